"""One self-contained page with scenarios to watch: every step, what was there after it, and what else could happen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from conformance.play.html_page import filled
from conformance.play.narration import decides
from conformance.play.story import Step, forks_of, steps_of
from conformance.play.world import OWNER, Scenario, View
from conformance.requirements.catalogue import citation, load


def page(scenarios: Sequence[Scenario], *, progress: Callable[[str], None] = lambda _: None) -> str:
    """The HTML text. It loads nothing from anywhere."""
    course = _Course()
    shown = []
    for scenario in scenarios:
        progress(scenario.name)
        shown.append(course.scenario(scenario))
    title = scenarios[0].title if len(scenarios) == 1 else "Managed commits, step by step"
    return filled("page.html", {"scenarios": shown, **course.tables()}, title=title)


class _Course:
    """What the scenarios of one page share: each text, rule and view is in it once."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[Hashable, int]] = {"texts": {}, "rules": {}, "views": {}}

    def _number(self, table: str, value: Hashable) -> int:
        numbers = self._numbers[table]
        return numbers.setdefault(value, len(numbers))

    def scenario(self, scenario: Scenario) -> dict[str, Any]:
        steps = list(steps_of(scenario))
        forks: dict[int, list[Any]] = {}
        for at, (step, following) in enumerate(pairwise(steps)):
            if following.choices != step.choices and decides(following.happening):
                forks[at] = [[option, self._steps(fork)] for option, fork in forks_of(scenario, step.choices)]
        return {
            "name": scenario.name,
            "title": scenario.title,
            "about": scenario.about,
            "ends": scenario.ends,
            "lanes": [*scenario.clients, OWNER],
            "steps": self._steps(steps),
            "forks": forks,
        }

    def _steps(self, steps: Iterable[Step]) -> list[list[int | str | bool | None]]:
        return [
            [
                step.happening.lane,
                self._number("texts", step.text),
                None if step.rule is None else self._number("rules", step.rule),
                self._number("views", step.view),
                decides(step.happening),
            ]
            for step in steps
        ]

    def tables(self) -> dict[str, Any]:
        known = load()
        rules = [known.requirement(str(identifier)) for identifier in self._numbers["rules"]]
        return {
            "texts": list(self._numbers["texts"]),
            "rules": [[each.id, f"{each.paraphrase} ({citation(each.source, each.passage)})"] for each in rules],
            "views": [_view(each) for each in self._numbers["views"] if isinstance(each, View)],
        }


def _view(view: View) -> dict[str, Any]:
    return {
        "ledger": view.ledger,
        "log": [[name, durable] for name, durable, _ in view.log],
        "readers": view.readers,
    }
