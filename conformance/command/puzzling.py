"""The command `puzzle`: what is wrong in this history?"""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conformance.command.output import JsonOption, say, show, show_json, show_rows
from conformance.results import ExitCode, UnusableError

if TYPE_CHECKING:
    from conformance.play.puzzles import Line, Puzzle


def puzzle(
    number: Annotated[
        int | None, typer.Argument(metavar="[NUMBER]", show_default=False, help="of the puzzle; without one: list them")
    ] = None,
    operation: Annotated[
        int | None, typer.Option("--operation", metavar="N", show_default=False, help="your answer: the operation")
    ] = None,
    rule: Annotated[
        int | None, typer.Option("--rule", metavar="N", show_default=False, help="your answer: the rule")
    ] = None,
    solution: Annotated[bool, typer.Option("--solution", help="show the solution")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", show_default=False, help="write all puzzles as one page")
    ] = None,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Find the violation in the history of a bad owner or client: the operation, and the rule.

    The first puzzles are easy, the last ones hard. Solved ones are recorded on this machine only. Exit code 1: a wrong
    answer.
    """
    from conformance.play import puzzles

    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(puzzles.page(), encoding="utf-8")
        show(str(html))
        return
    done = puzzles.solved()
    if number is None:
        rows = [
            {
                "puzzle": str(each),
                "operations": str(len(puzzles.puzzle(each).lines)),
                "solved": str(each in done).lower(),
            }
            for each in range(1, len(puzzles.NAMES) + 1)
        ]
        show_json(rows) if json else show_rows(rows, wide="solved")
        return
    try:
        found = puzzles.puzzle(number)
    except IndexError:
        raise UnusableError(f"no puzzle {number}; expected 1 to {len(puzzles.NAMES)}") from None
    if json:
        show_json(puzzles.document(found))
        return
    if operation is None or rule is None:
        _print(found)
        if solution:
            _print_solution(found)
            return
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            show(f"\nanswer with: delta-commit-conformance puzzle {number} --operation N --rule N")
            return
        operation = operation if operation is not None else typer.prompt("\nOperation", type=int)
        rule = rule if rule is not None else typer.prompt("Rule", type=int)
    _judge(found, operation, rule)


def _print(found: Puzzle) -> None:
    _show(f"Puzzle {found.number}: which operation contradicts another, or the final log? Which rule is violated?")
    show("")
    clients = list(dict.fromkeys(line.client for line in found.lines if line.client))
    by_time = sorted(found.lines, key=lambda line: line.since)
    show_rows([_row(line, clients) for line in by_time], wide=clients[-1], also=clients[:-1])
    show(f"\nthe final log: {found.log}\n")
    for position, text in enumerate(found.rules, 1):
        _show(f"rule {position}: {text}")


def _show(text: str) -> None:
    """With its words whole on a terminal."""
    show(textwrap.fill(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text)


def _row(line: Line, clients: list[str]) -> dict[str, str]:
    """One operation in the lane of its client; a fault in all lanes."""
    until = "" if line.until is None else line.until
    when = str(line.since) if line.until == line.since else f"{line.since}..{until}"
    text = line.asked if line.number is None else f"{line.number}: {line.asked} -> {line.answer}"
    return {"when": when} | {name: text if line.client in ("", name) else "" for name in clients}


def _print_solution(found: Puzzle) -> None:
    operations = " or ".join(map(str, sorted(found.suspects)))
    show("")
    _show(f"operation {operations}, rule {found.rule}: {found.rules[found.rule - 1]}")
    _show(found.message)


def _judge(found: Puzzle, operation: int, rule: int) -> None:
    from conformance.play import puzzles

    right = operation in found.suspects, rule == found.rule
    if all(right):
        puzzles.record(found.number)
        show("right")
        _print_solution(found)
        return
    words = ["right" if each else "wrong" for each in right]
    say(f"the operation is {words[0]}, the rule is {words[1]}; --solution shows the solution")
    raise typer.Exit(ExitCode.VIOLATION)
