"""A checker's findings, with numbers of operations; `check` looks these up in the history."""

from typing import Final, NamedTuple

from conformance.checkers.bounds import Bound, Early, Late, violated
from conformance.checkers.rules import Rule

MOST_OF_ONE_RULE: Final = 10
"""The limit of breaches of one rule in one table."""
MOST_CONTRADICTIONS: Final = 20
"""The limit of contradictions between times, of all rules, in one table: explaining one takes linear time."""
FIRST: Final = "{first}"
SECOND: Final = "{second}"


class Breach(NamedTuple):
    """`problem` is a sentence in which {first} and {second} stand for the operations of these numbers; a number None
    stands for the final log. If `attempt` is set, all of its requests belong to the breach."""

    rule: Rule
    table: str
    version: int | None
    problem: str
    first: int | None = None
    second: int | None = None
    attempt: str | None = None


class Breaches:
    """Breaches of one table, few of each rule."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.found: list[Breach] = []
        self.unexplained = 0
        """The number of contradictions without an explanation."""
        self._counts: dict[Rule, int] = {}

    def has_room(self, rule: Rule) -> bool:
        """Whether another breach of the rule is explained; if not, it is only counted."""
        if self._counts.get(rule, 0) < MOST_OF_ONE_RULE:
            return True
        self._counts[rule] += 1
        return False

    def add(
        self,
        rule: Rule,
        version: int | None,
        problem: str,
        first: int | None = None,
        second: int | None = None,
        attempt: str | None = None,
    ) -> None:
        count = self._counts[rule] = self._counts.get(rule, 0) + 1
        if count <= MOST_OF_ONE_RULE:
            self.found.append(Breach(rule, self.table, version, problem, first, second, attempt))

    @property
    def left_out(self) -> int:
        return self.unexplained + sum(max(0, count - MOST_OF_ONE_RULE) for count in self._counts.values())

    def contradiction(self, early: Bound[Early], late: Bound[Late], attempt: str | None) -> None:
        """Add two observations that contradict each other: a version is not before the first, and must be before the
        second."""
        u, v = early.version, late.version
        after = f", and version {v} comes after version {u}" if u != v else ""
        older = "no version at all" if u == 0 else f"nothing newer than version {u - 1}"
        not_before = _EARLY[early.kind].format(v=u, at=early.time, first=FIRST, older=older)
        but_there = _LATE[late.kind].format(v=v, at=late.time, second=SECOND)
        shown = attempt if early.kind is Early.SENT else None
        self.add(violated(early, late), v, f"{not_before} {but_there}{after}.", early.id, late.id, shown)


_EARLY: Final = {
    Early.SENT: "The attempt that is version {v} was first sent, in a request that was not rejected, by {first}, so "
    "it was not ratified before {at}.",
    Early.GAP: "{first} got the answer that version {v} is missing, so it was not ratified before {at}.",
    Early.READ: "{first} returned {older}, so version {v} was not ratified before {at}.",
    Early.REFUSAL: "{first} returned {older}, so version {v} was not ratified before {at}.",
    Early.ABSENT: "{first} did not find the published file of version {v}, so it was not published before {at}.",
}

_LATE: Final = {
    Late.BEFORE: "But version {v} existed before the history began",
    Late.RATIFIED: "But {second} got the answer by {at} that version {v} is ratified",
    Late.CONFLICT: "But {second} got the answer by {at} that version {v} is taken",
    Late.TOMBSTONE: "But {second} got an answer about version {v} for an attempt that was resolved by {at}, and would "
    "have been rejected as resolved after that",
    Late.LISTED: "But {second} got the answer by {at} that version {v} exists",
    Late.VISIBLE: "But {second} saw the published file of version {v} by {at}",
    Late.OMITTED: "But {second} got a list without version {v} by {at}, as if it had been published",
    Late.BACKFILLED: "But {second} got the answer by {at} that its backfill is done, and version {v} was ratified "
    "before that request",
    Late.PATH_READ: "But {second} read version {v} from published files by {at}",
    Late.HANDED_BACK: "But {second} handed the table back to the filesystem by {at}, with version {v} published",
    Late.CHECKPOINT: "But {second} made a checkpoint of version {v} by {at}",
}
