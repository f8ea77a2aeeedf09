"""Puzzles: a short history of a bad owner or client, with an operation and a violated rule to find.

The histories are the repository's bad ones, and the solutions are the checker's verdicts on them.
"""

import dataclasses
import random
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from conformance.history.events import Answer, Conflict, Fault, FileLook, Witness
from conformance.history.files import read
from conformance.history.operations import Item, Operation, operations
from conformance.history_checkers.check import check_file, describe_answer, describe_request
from conformance.history_checkers.rules import Rule
from conformance.story import filled

NAMES: Final = (
    "lost-on-restart", "two-winners-of-one-version", "backfill-answered-and-not-done", "published-out-of-order",
    "ratified-as-another-version", "first-commit-of-any-version", "replay-answered-as-conflict",
    "fresh-read-misses-a-commit", "latest-goes-back", "direct-commit-is-not-visible", "ratified-out-of-order",
    "reader-takes-staged-files", "blind-retry-commits-twice", "failed-and-yet-there", "winner-named-wrongly",
    "checkpoint-of-an-unpublished-version", "forgotten-before-it-was-published", "tombstone-forgotten",
    "list-and-latest-of-two-states", "delayed-request-lands-after-its-tombstone",
    "refused-group-lands-in-one-table",
)  # fmt: skip
"""The puzzles, from obvious to subtle."""
CHOICES: Final = 4
"""The number of rules to choose from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a history: the client, the request, its two times, and the answer."""

    number: int | None
    """None for a fault, which is not an operation."""
    client: str
    """Empty for a fault, which concerns all clients."""
    since: int
    until: int | None
    """None if it was not answered."""
    asked: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Puzzle:
    number: int
    name: str
    lines: tuple[Line, ...]
    log: str
    """The final log, as version and attempt."""
    rules: tuple[str, ...]
    """The offered rules, one of which is violated."""
    rule: int
    """The position of the violated rule, from 1 on."""
    suspects: frozenset[int]
    """The operations that contradict each other or the final log; each is a correct answer. All operations, if the
    violation names none."""
    message: str
    """The contradiction, in words."""


def folder() -> Path:
    """The folder of the histories: beside this module in the wheel, in `fixtures` in a checkout."""
    here = Path(str(files("conformance.teaching.play"))) / "puzzles"
    return here if here.is_dir() else Path(__file__).parents[3] / "fixtures/histories/bad"


@cache
def puzzle(number: int) -> Puzzle:
    """A puzzle by its number, from 1 on. Raises `IndexError`."""
    if not 1 <= number <= len(NAMES):
        raise IndexError(number)
    name = NAMES[number - 1]
    path = folder() / f"{name}.jsonl"
    items = list(operations(read(path)))
    tables = {item.table for item in items if isinstance(item, Operation | Witness)}
    violation = check_file(path).violations[0]
    named = violation.operations[: violation.contradicting or None] or tuple(
        item for item in items if isinstance(item, Operation)
    )
    chance = random.Random(number)  # the same choices for every user
    others = chance.sample([rule for rule in Rule if rule is not violation.rule], CHOICES - 1)
    rules = [violation.rule, *others]
    chance.shuffle(rules)
    return Puzzle(
        number=number,
        name=name,
        lines=tuple(line for item in items if (line := _line(item, _of(item, tables))) is not None),
        log=", ".join(
            f"{item.version}{_of(item, tables)}: {item.attempt or 'before'}"
            for item in items
            if isinstance(item, Witness)
        ),
        rules=tuple(rule.meaning for rule in rules),
        rule=rules.index(violation.rule) + 1,
        suspects=frozenset(operation.id for operation in named),
        message=violation.message,
    )


def _of(item: Item, tables: set[str]) -> str:
    """The table, if the history has several."""
    return f" of {item.table}" if len(tables) > 1 and isinstance(item, Operation | FileLook | Witness) else ""


def _line(item: Item, table: str = "") -> Line | None:
    if isinstance(item, Operation):
        answer = "no answer" if item.answer is None else _answer(item.answer)
        client, text = item.client or "a client", describe_request(item.request) + table
        return Line(number=item.id, client=client, since=item.invoked, until=item.answered, asked=text, answer=answer)
    if isinstance(item, FileLook):
        seen = [f"version {file.version} is published" for file in item.published]
        seen += [f"version {version} is not" for version in item.absent]
        text, answer = f"lists the files{table}", ", ".join(seen)
        return Line(number=item.id, client="observer", since=item.since, until=item.at, asked=text, answer=answer)
    if isinstance(item, Fault):
        return Line(number=None, client="", since=item.at, until=item.at, asked=item.kind, answer="")
    return None


def _answer(answer: Answer) -> str:
    """The answer with the attempts in it, because the solution may depend on them."""
    listed = answer.winners if isinstance(answer, Conflict) else getattr(answer, "commits", None)
    attempts = ", ".join(f"{entry.version}: {entry.attempt}" for entry in listed or () if entry.attempt)
    return describe_answer(answer) + (f" ({attempts})" if attempts else "")


# The page


def page() -> str:
    """All puzzles on one self-contained page."""
    documents = [document(puzzle(number)) for number in range(1, len(NAMES) + 1)]
    return filled("puzzles.html", documents, count=str(len(NAMES)))


def document(puzzle: Puzzle) -> dict[str, Any]:
    """The puzzle with its solution, as JSON."""
    return {
        "number": puzzle.number,
        "lines": [dataclasses.asdict(line) for line in puzzle.lines],
        "log": puzzle.log,
        "rules": puzzle.rules,
        "rule": puzzle.rule,
        "suspects": sorted(puzzle.suspects),
        "message": puzzle.message,
    }
