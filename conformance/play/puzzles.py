"""Puzzles: a short history of a bad owner or client. Which operation contradicts the others, and which rule?

The histories are the repository's bad ones, and the solutions are the checker's verdicts on them.
"""

from __future__ import annotations

import dataclasses
import os
import random
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.checkers.check import check_file, describe_answer, describe_request
from conformance.checkers.rules import Rule
from conformance.history.events import Answer, Conflict, Fault, FileLook, Witness
from conformance.history.files import read
from conformance.history.operations import Item, Operation, operations
from conformance.player.page import filled

NAMES: Final = (
    "lost-on-restart", "two-winners-of-one-version", "backfill-answered-and-not-done", "published-out-of-order",
    "ratified-as-another-version", "first-commit-of-any-version", "replay-answered-as-conflict",
    "fresh-read-misses-a-commit", "latest-goes-back", "direct-commit-is-not-visible", "ratified-out-of-order",
    "reader-takes-staged-files", "blind-retry-commits-twice", "failed-and-yet-there", "winner-named-wrongly",
    "checkpoint-of-an-unpublished-version", "forgotten-before-it-was-published", "tombstone-forgotten",
    "list-and-latest-of-two-states", "delayed-request-lands-after-its-tombstone",
)  # fmt: skip
"""From obvious to subtle."""
CHOICES: Final = 4
"""So many rules to choose from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that happened: who asked what, between which two moments, and the answer."""

    number: int | None
    """None: a fault, which is no operation."""
    client: str
    """Empty: a fault, which concerns all."""
    since: int
    until: int | None
    """None: it was not answered."""
    asked: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Puzzle:
    number: int
    name: str
    lines: tuple[Line, ...]
    log: str
    """The final log: version and attempt."""
    rules: tuple[str, ...]
    """One of them is violated."""
    rule: int
    """Its position, from 1 on."""
    suspects: frozenset[int]
    """Operations that contradict each other, or the final log; each of them is right."""
    message: str
    """What contradicts what."""


def folder() -> Path:
    """In the wheel the histories are beside this module."""
    here = Path(str(files("conformance.play"))) / "puzzles"
    return here if here.is_dir() else Path(__file__).parents[2] / "fixtures/histories/bad"


@cache
def puzzle(number: int) -> Puzzle:
    """By its number, from 1 on. Raises `IndexError`."""
    if not 1 <= number <= len(NAMES):
        raise IndexError(number)
    name = NAMES[number - 1]
    path = folder() / f"{name}.jsonl"
    items = list(operations(read(path)))
    violation = check_file(path).violations[0]
    named = violation.operations[: violation.contradicting or None] or tuple(
        each for each in items if isinstance(each, Operation)
    )
    chance = random.Random(number)  # the same choices for everybody
    others = chance.sample([rule for rule in Rule if rule is not violation.rule], CHOICES - 1)
    rules = [violation.rule, *others]
    chance.shuffle(rules)
    return Puzzle(
        number=number,
        name=name,
        lines=tuple(line for line in map(_line, items) if line is not None),
        log=", ".join(f"{each.version}: {each.attempt or 'before'}" for each in items if isinstance(each, Witness)),
        rules=tuple(rule.meaning for rule in rules),
        rule=rules.index(violation.rule) + 1,
        suspects=frozenset(each.id for each in named),
        message=violation.message,
    )


def _line(item: Item) -> Line | None:
    if isinstance(item, Operation):
        answer = "no answer" if item.answer is None else _answer(item.answer)
        client, asked = item.client or "a client", describe_request(item.request)
        return Line(number=item.id, client=client, since=item.invoked, until=item.answered, asked=asked, answer=answer)
    if isinstance(item, FileLook):
        seen = [f"version {each.version} is published" for each in item.published]
        seen += [f"version {each} is not" for each in item.absent]
        asked, answer = "looks at the files", ", ".join(seen)
        return Line(number=item.id, client="observer", since=item.since, until=item.at, asked=asked, answer=answer)
    if isinstance(item, Fault):
        return Line(number=None, client="", since=item.at, until=item.at, asked=item.kind, answer="")
    return None


def _answer(answer: Answer) -> str:
    """With the attempts that it names: a puzzle may turn on them."""
    listed = answer.winners if isinstance(answer, Conflict) else getattr(answer, "commits", None)
    attempts = ", ".join(f"{each.version}: {each.attempt}" for each in listed or () if each.attempt)
    return describe_answer(answer) + (f" ({attempts})" if attempts else "")


# The score of this user, on this machine only


def score_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(state) / "delta-commit-conformance/puzzles.json"


def solved() -> set[int]:
    """The puzzles that were solved here. An unreadable file is an empty one: nothing depends on it."""
    try:
        return set(msgspec.json.decode(score_file().read_bytes(), type=list[int]))
    except (OSError, msgspec.DecodeError):
        return set()


def record(number: int) -> None:
    path = score_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(sorted({*solved(), number})))


# The page


def page() -> str:
    """All puzzles on one self-contained page."""
    documents = [document(puzzle(number)) for number in range(1, len(NAMES) + 1)]
    return filled("puzzles.html", documents, count=str(len(NAMES)))


def document(found: Puzzle) -> dict[str, Any]:
    """With the solution."""
    return {
        "number": found.number,
        "lines": [dataclasses.asdict(each) for each in found.lines],
        "log": found.log,
        "rules": found.rules,
        "rule": found.rule,
        "suspects": sorted(found.suspects),
        "message": found.message,
    }
