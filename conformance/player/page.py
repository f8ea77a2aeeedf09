"""One self-contained page with stories to watch: every step, the state after it, and the other choices."""

from __future__ import annotations

import html
import re
from collections.abc import Hashable, Iterable
from importlib.resources import files
from itertools import pairwise
from typing import Any

from conformance.player.story import Forks, Step, Story, View
from conformance.requirements.catalogue import citation, load
from conformance.safe_text import to_json


def page(stories: Iterable[Story], *, title: str) -> str:
    """The HTML text, which loads no other files."""
    course = _Course()
    shown = [course.story(story) for story in stories]
    return filled("page.html", {"stories": shown, **course.tables()}, title=title)


def filled(template: str, data: Any, **texts: str) -> str:
    """A page from a template next to this module. `data` is JSON for its script; `texts` are inserted unchanged."""
    here = files("conformance.player")
    parts = {
        "style": (here / "page.css").read_text(encoding="utf-8"),
        "script": (here / "page.js").read_text(encoding="utf-8"),
        **{name: html.escape(text) for name, text in texts.items()},
        "data": to_json(data).decode().replace("</", "<\\/").replace("<!--", "<\\u0021--"),
    }
    page = (here / template).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], page)


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
            "headings": story.headings,
            "steps": self._steps(story.steps),
            "forks": {} if story.forks is None else self._forks(story, story.forks),
        }

    def _forks(self, story: Story, forks: Forks) -> dict[int, list[Any]]:
        """Every other choice at the steps before a decision, with its outcome."""
        found: dict[int, list[Any]] = {}
        for at, (step, following) in enumerate(pairwise(story.steps)):
            if following.choices != step.choices and following.decides:
                made = step.choices
                others = [option for option, _ in forks.options(made) if option != made[-1]]
                found[at] = [[option, self._steps(forks.follow(made, option))] for option in others]
        return found

    def _steps(self, steps: Iterable[Step]) -> list[list[int | str | bool | None]]:
        return [
            [
                step.happening.lane,
                self._number("texts", step.text),
                None if step.rule is None else self._number("rules", step.rule),
                self._number("views", step.view),
                2 if step.violates else int(step.decides),
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
    return {"ledger": view.ledger, "log": [[name, durable] for name, durable, _ in view.log], "readers": view.readers}
