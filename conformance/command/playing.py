"""The command `play`: watch a scenario step by step, in the terminal, as text or as a page."""

from __future__ import annotations

import shutil
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from conformance.command.options import JsonOption
from conformance.command.output import say, show, show_json, show_rows
from conformance.command.running import require_library
from conformance.running.errors import UnusableError

if TYPE_CHECKING:
    from conformance.play.story import Step
    from conformance.play.world import Scenario

SMALLEST: Final = (80, 24)
"""Columns and lines of the smallest terminal."""


def play(
    scenario: Annotated[
        str | None, typer.Argument(metavar="[SCENARIO]", show_default=False, help="its name; without one: list them")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="all scenarios; with --html")] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="PATH", show_default=False,
            help="write one self-contained page: the file PATH; with --all the file index.html in the directory PATH",
        ),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="print the story as text, as without a terminal")
    ] = False,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="of the text: only requests, decisions, answers, results and faults")
    ] = False,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Watch the protocol step by step: the reference's own code, run by the simulator.

    In the terminal you go forward and back, and at any step you may let another client go first, lose an answer, kill
    a process or cut the power, and see what happens.
    """
    require_library("greenlet", "conformance")
    from conformance.play.scenarios import SCENARIOS

    if html is not None:
        chosen = SCENARIOS.values() if all_ else [_named(scenario)]
        _write_page(list(chosen), html / "index.html" if all_ else html)
    elif all_:
        raise UnusableError("--all needs --html DIRECTORY")
    elif scenario is None:
        rows = [{"name": each.name, "title": each.title} for each in SCENARIOS.values()]
        show_json(rows) if json else show_rows(rows, wide="title")
    elif json:
        show_json(_document(_named(scenario)))
    elif plain or decisions or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _print(_named(scenario), decisions=decisions)
    else:
        _watch(_named(scenario))


def _named(name: str | None) -> Scenario:
    from conformance.play.scenarios import SCENARIOS

    if name in SCENARIOS:
        return SCENARIOS[name]
    what = "no scenario is named; name one, or use --all" if name is None else f"no scenario is called {name!r}"
    raise UnusableError(f"{what}; expected one of {', '.join(SCENARIOS)}")


def _watch(scenario: Scenario) -> None:
    columns, lines = shutil.get_terminal_size()
    if columns < SMALLEST[0] or lines < SMALLEST[1]:
        raise UnusableError(
            f"the terminal has {columns} columns and {lines} lines, and the player needs {SMALLEST[0]} and "
            f"{SMALLEST[1]}: make it larger, or use --plain or --html FILE"
        )
    require_library("textual", "learn")
    from conformance.play.terminal import Player

    Player(scenario).run()


def _write_page(scenarios: list[Scenario], path: Path) -> None:
    from conformance.play.page import page

    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = count(1)
    text = page(scenarios, progress=lambda name: say(f"{next(numbers)} of {len(scenarios)}: {name}"))
    path.write_text(text, encoding="utf-8")
    show(str(path))


def _print(scenario: Scenario, *, decisions: bool) -> None:
    from conformance.play.narration import decides
    from conformance.play.story import steps_of

    show(f"{scenario.title}\n{scenario.about}\n")
    seen: tuple[tuple[str, str], ...] = ()
    for number, step in enumerate(steps_of(scenario), 1):
        if not decisions or decides(step.happening):
            rule = f" [{step.rule}]" if step.rule else ""
            show(f"{number:3}. {step.text}.{rule}")
        for who, sees in step.view.readers:
            if (who, sees) not in seen:
                show(f"     A reader {who} sees: {sees}")
        seen = step.view.readers
    show(f"\nAt the end: {scenario.ends}")


def _document(scenario: Scenario) -> dict[str, Any]:
    from conformance.play.story import steps_of

    return {
        "name": scenario.name,
        "title": scenario.title,
        "about": scenario.about,
        "steps": [_step(each) for each in steps_of(scenario)],
        "ends": scenario.ends,
    }


def _step(step: Step) -> dict[str, Any]:
    happening, view = step.happening, step.view
    return {
        "lane": happening.lane,
        "kind": happening.kind,
        "target": happening.target,
        "text": step.text,
        "rule": step.rule,
        "ledger": view.ledger,
        "log": [{"name": name, "durable": durable} for name, durable, _ in view.log],
        "readers": dict(view.readers),
    }
