"""A simulated story to watch step by step: its steps with their sentences, and the state after each; and the page of
stories. Other packages create the stories.
"""

import html
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Any, Protocol

from conformance.interface.safe_text import to_json
from conformance.requirements.catalogue import citation, load

Rows = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Happening:
    """One visible step: an effect, a request, an answer, or a fault."""

    lane: str
    client: str
    kind: str
    target: str
    """A path below the table's folder or the warehouse, or the request."""
    detail: str = ""
    """The answer, or the error that ended the client."""


@dataclass(frozen=True, slots=True)
class View:
    """The state after a step."""

    ledger: Rows
    """The owner's durable records."""
    log: tuple[tuple[str, bool, int], ...]
    """Names below `_delta_log`, whether a power cut would leave them whole, and a checksum of the content."""
    readers: tuple[tuple[str, str], ...]
    """The current observations of each reader."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step as people read it."""

    happening: Happening
    text: str
    rule: str | None
    """The id of a requirement."""
    view: View
    """The state after the step."""
    choices: tuple[str, ...] = ()
    """All choices up to the step."""
    decides: bool = False
    """Whether the outcome depends on the step: a decision, an answer, a fault or an end."""


class Forks(Protocol):
    """Runs a story again with other choices."""

    def options(self, choices: Sequence[str]) -> list[str]:
        """The options after these choices."""
        ...

    def follow(self, choices: Sequence[str], option: str) -> list[Step]:
        """The steps of `option` after these choices, and then of all remaining clients."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A story, with its other outcomes."""

    name: str
    title: str
    about: str
    ends: str
    """The result at the end."""
    clients: tuple[str, ...]
    others: tuple[str, ...]
    """Further lanes."""
    steps: tuple[Step, ...]
    forks: Forks

    @property
    def lanes(self) -> tuple[str, ...]:
        return *self.clients, *self.others


# The page


def page(stories: Iterable[Story], *, title: str) -> str:
    """The HTML text, which loads no other files."""
    course = _Course()
    shown = [course.story(story) for story in stories]
    return filled("page.html", {"stories": shown, **course.tables()}, title=title)


def filled(template: str, data: Any, **texts: str) -> str:
    """A page from a template next to this module. `data` is JSON for its script; `texts` are inserted unchanged."""
    here = files("conformance.story")
    parts = {
        "style": (here / "page.css").read_text(encoding="utf-8"),
        "script": (here / "page.js").read_text(encoding="utf-8"),
        **{name: html.escape(text) for name, text in texts.items()},
        "data": to_json(data).decode().replace("</", "<\\/").replace("<!--", "<\\u0021--"),
    }
    page = (here / template).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], page)


class _Course:
    """The data of all stories of one page, with each text, rule and view only once."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[Hashable, int]] = {"texts": {}, "rules": {}, "views": {}}

    def _number(self, table: str, value: Hashable) -> int:
        numbers = self._numbers[table]
        return numbers.setdefault(value, len(numbers))

    def story(self, story: Story) -> dict[str, Any]:
        return {
            "name": story.name,
            "title": story.title,
            "about": story.about,
            "ends": story.ends,
            "lanes": story.lanes,
            "clients": len(story.clients),
            "steps": self._steps(story.steps),
            "forks": self._forks(story),
        }

    def _forks(self, story: Story) -> dict[int, list[Any]]:
        """Every other choice at the steps before a decision, with its outcome."""
        by_step: dict[int, list[Any]] = {}
        for at, (step, following) in enumerate(pairwise(story.steps)):
            if following.choices != step.choices and following.decides:
                made = step.choices
                others = [option for option in story.forks.options(made) if option != made[-1]]
                by_step[at] = [[option, self._steps(story.forks.follow(made, option))] for option in others]
        return by_step

    def _steps(self, steps: Iterable[Step]) -> list[list[int | str | None]]:
        return [
            [
                step.happening.lane,
                self._number("texts", step.text),
                None if step.rule is None else self._number("rules", step.rule),
                self._number("views", step.view),
                int(step.decides),
            ]
            for step in steps
        ]

    def tables(self) -> dict[str, Any]:
        known = load()
        rules = [known.requirement(str(identifier)) for identifier in self._numbers["rules"]]
        return {
            "texts": list(self._numbers["texts"]),
            "rules": [[rule.id, f"{rule.paraphrase} ({citation(rule.source, rule.passage)})"] for rule in rules],
            "views": [_view(number) for number in self._numbers["views"] if isinstance(number, View)],
        }


def _view(view: View) -> dict[str, Any]:
    return {"ledger": view.ledger, "log": [[name, durable] for name, durable, _ in view.log], "readers": view.readers}
