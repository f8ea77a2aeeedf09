"""The commands `play` and `puzzle`: watch a scenario step by step, as text or as a page; find the
violation in a history."""

import shutil
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conformance.command.output import argument, option, say, show, show_rows
from conformance.command.running import require_library
from conformance.interface.results import ExitCode, UnusableError

if TYPE_CHECKING:
    from conformance.story import Story
    from conformance.teaching.play.puzzles import Line, Puzzle


def play(
    scenario: Annotated[
        str | None, argument("SCENARIO", "scenario to watch (default: list them)", show_default=False)
    ] = None,
    all_: Annotated[bool, option("--all", "all scenarios (only with --html)")] = False,
    html: Annotated[
        Path | None,
        option(
            "--html PATH",
            "write one self-contained page: the file PATH; with --all the file index.html in the folder PATH",
            show_default=False,
        ),
    ] = None,
    decisions: Annotated[
        bool, option("--decisions", "print only requests, decisions, answers, results and faults")
    ] = False,
) -> None:
    """Watch the protocol step by step: the reference's own code, run by the simulator.

    With --html, a page goes forward and back. Before each decision you can let another client go first, lose an answer,
    kill a process or cut the power there, and see what happens.
    """
    require_library("greenlet", "conformance")
    from conformance.teaching.play.scenarios import SCENARIOS

    if html is not None and all_:
        _write_page(SCENARIOS, html / "index.html")
    elif all_:
        raise UnusableError("--all needs --html FOLDER")
    elif html is not None:
        _write_page([scenario], html)
    elif scenario is None:
        rows = [{"name": entry.name, "title": entry.title} for entry in SCENARIOS.values()]
        show_rows(rows, wide="title")
    else:
        _print(_opened(scenario), decisions=decisions)


def _opened(name: str | None) -> "Story":
    from conformance.teaching.play.narration import story_of
    from conformance.teaching.play.scenarios import SCENARIOS

    if name in SCENARIOS:
        return story_of(SCENARIOS[name])
    what = "no scenario given; name one, or use --all" if name is None else f"unknown scenario {name!r}"
    raise UnusableError(f"{what}; expected one of {', '.join(SCENARIOS)}")


def _write_page(names: Iterable[str | None], path: Path) -> None:
    from conformance.story import page

    if path.is_dir():
        raise UnusableError(f"{path} is a folder; expected a file to write, or --all")
    if path.parent.exists() and not path.parent.is_dir():
        raise UnusableError(f"{path.parent} is a file; expected a folder")
    chosen = list(names)
    stories = []
    for number, name in enumerate(chosen, 1):
        stories.append(_opened(name))
        say(f"{number} of {len(chosen)}: {stories[-1].name}")
    title = stories[0].title if len(stories) == 1 else "Managed commits, step by step"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(stories, title=title), encoding="utf-8")
    show(str(path))


def _print(story: "Story", *, decisions: bool) -> None:
    show(f"{story.title}\n{story.about}\n")
    seen: tuple[tuple[str, str], ...] = ()
    for number, step in enumerate(story.steps, 1):
        if not decisions or step.decides:
            rule = f" [{step.rule}]" if step.rule else ""
            show(f"{number:3}. {step.text}.{rule}")
        for who, sees in step.view.readers:
            if (who, sees) not in seen:
                show(f"     A reader {who} sees: {sees}")
        seen = step.view.readers
    show(f"\nAt the end: {story.ends}")


# Puzzles: which operation of this history violates which rule?


def puzzle(
    number: Annotated[int | None, argument("NUMBER", "puzzle to show (default: list all)", show_default=False)] = None,
    operation: Annotated[int | None, option("--operation N", "your answer: the operation", show_default=False)] = None,
    rule: Annotated[int | None, option("--rule N", "your answer: the rule", show_default=False)] = None,
    solution: Annotated[bool, option("--solution", "show the solution")] = False,
    html: Annotated[Path | None, option("--html FILE", "write all puzzles as one page", show_default=False)] = None,
) -> None:
    """Find the violation in the history of a bad owner or client: the operation, and the rule.

    The first puzzles are easy, the last ones hard. Exit code 1: the answer is wrong.
    """
    from conformance.teaching.play import puzzles

    if (operation is None) != (rule is None) or (rule is not None and number is None):
        raise UnusableError("an answer is a puzzle's number, --operation and --rule; pass all three")
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(puzzles.page(), encoding="utf-8")
        show(str(html))
        return
    if number is None:
        numbers = range(1, len(puzzles.NAMES) + 1)
        rows = [{"puzzle": str(each), "operations": str(len(puzzles.puzzle(each).lines))} for each in numbers]
        show_rows(rows, wide="operations")
        return
    try:
        chosen = puzzles.puzzle(number)
    except IndexError:
        raise UnusableError(f"no puzzle {number}; expected 1 to {len(puzzles.NAMES)}") from None
    if rule is not None and not 1 <= rule <= len(chosen.rules):
        raise UnusableError(f"no rule {rule} in puzzle {number}; expected 1 to {len(chosen.rules)}")
    if operation is None or rule is None:
        _print_puzzle(chosen)
        if solution:
            _print_solution(chosen)
            return
        show(f"\nanswer with: delta-commit-conformance puzzle {number} --operation N --rule N")
    elif not _judge(chosen, operation, rule):
        raise typer.Exit(ExitCode.VIOLATION)


def _print_puzzle(puzzle: "Puzzle") -> None:
    _show_filled(
        f"Puzzle {puzzle.number}: which operation contradicts another, or the final log? Which rule is violated?"
    )
    show("")
    clients = list(dict.fromkeys(line.client for line in puzzle.lines if line.client))
    by_time = sorted(puzzle.lines, key=lambda line: line.since)
    show_rows([_row_of_line(line, clients) for line in by_time], wide=clients[-1], also=clients[:-1])
    show(f"\nthe final log: {puzzle.log}\n")
    for position, text in enumerate(puzzle.rules, 1):
        _show_filled(f"rule {position}: {text}")


def _show_filled(text: str) -> None:
    """Show text, wrapped between words on a terminal."""
    show(textwrap.fill(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text)


def _row_of_line(line: "Line", clients: list[str]) -> dict[str, str]:
    """One operation in the lane of its client; a fault in all lanes."""
    until = "" if line.until is None else line.until
    when = str(line.since) if line.until == line.since else f"{line.since}..{until}"
    text = line.asked if line.number is None else f"{line.number}: {line.asked} -> {line.answer}"
    return {"when": when} | {name: text if line.client in ("", name) else "" for name in clients}


def _print_solution(puzzle: "Puzzle") -> None:
    operations = " or ".join(map(str, sorted(puzzle.suspects)))
    show("")
    _show_filled(f"operation {operations}, rule {puzzle.rule}: {puzzle.rules[puzzle.rule - 1]}")
    _show_filled(puzzle.message)


def _judge(puzzle: "Puzzle", operation: int, rule: int) -> bool:
    right = operation in puzzle.suspects, rule == puzzle.rule
    if all(right):
        show("right")
        _print_solution(puzzle)
        return True
    words = ["right" if correct else "wrong" for correct in right]
    say(f"the operation is {words[0]}, the rule is {words[1]}; --solution shows the solution")
    return False
