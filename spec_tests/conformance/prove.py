"""Compare the checkers with the brute-force linearizer, on any number of small histories.

    python -m spec_tests.conformance.prove --histories 200000 --seed 1

The checker also judges each history without its final log. It may then report a violation only if the history is wrong
with its log too.

Each history comes from the simulation of a correct owner; most are then changed at random. A fully random history would
almost always be wrong, for the same few reasons. A correct history with one change is the hard case for a checker.
Number i of a seed is always the same history. The command prints progress to standard error and figures as JSON. The
exit code is 1 if the two disagree about a history; each such history is named, and `--only N` shows it.
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from conformance.history import events
from conformance.history.events import Entry, Event, Promise
from conformance.history.operations import ANSWERS, Item, Operation, operations
from conformance.history_checkers.check import HistoryViolation, explain, judge
from conformance.history_checkers.columns import HistoryColumns
from spec_tests.conformance.brute_force import is_linearizable
from spec_tests.conformance.simulated_histories import TABLE, Draft, DraftOperation, Version, simulate

Change = Callable[[Draft, Random], None]


def perturb(draft: Draft, random: Random, changes: int) -> None:
    """Make `changes` random changes. A change that does not apply to the draft does nothing."""
    for _ in range(changes):
        random.choice(CHANGES)(draft, random)


def _pick(draft: Draft, random: Random, *answers: type[Any]) -> DraftOperation | None:
    fitting = [operation for operation in draft.asked if not answers or isinstance(operation.answer, answers)]
    return random.choice(fitting) if fitting else None


def _move_a_time(draft: Draft, random: Random) -> None:
    if (operation := _pick(draft, random)) is None:
        return
    by = random.choice((-5, -3, -2, -1, 1, 2, 3, 5))
    if operation.answered is not None and random.random() < 0.5:
        operation.answered = max(operation.invoked, operation.answered + by)
    else:
        invoked = operation.invoked + by
        operation.invoked = invoked if operation.answered is None else min(operation.answered, invoked)


def _shift_an_operation(draft: Draft, random: Random) -> None:
    if operation := _pick(draft, random):
        by = random.choice((-6, -4, -2, -1, 1, 2, 4, 6))
        operation.invoked += by
        operation.answered = None if operation.answered is None else operation.answered + by


def _answer_at_once(draft: Draft, random: Random) -> None:
    """Answer every operation at once: intervals of one moment contradict each other most easily."""
    for operation in draft.asked:
        if operation.answered is not None and random.random() < 0.7:
            operation.answered = operation.invoked


def _change_latest(draft: Draft, random: Random) -> None:
    if (
        operation := _pick(draft, random, events.Conflict, events.Gap, events.Commits, events.Table)
    ) and operation.answer is not None:
        latest: int | None = operation.answer.latest  # type: ignore[union-attr]
        latest = random.choice((None, -1, 0, 1, 2)) if latest is None else max(-1, latest + random.choice((-2, -1, 1)))
        operation.answer = msgspec.structs.replace(operation.answer, latest=latest)


def _change_version(draft: Draft, random: Random) -> None:
    if (
        operation := _pick(draft, random, events.Ratified, events.Committed, events.Landed, events.SnapshotRead)
    ) and operation.answer is not None:
        version = max(0, operation.answer.version + random.choice((-1, 1)))  # type: ignore[union-attr]
        operation.answer = msgspec.structs.replace(operation.answer, version=version)


def _change_answer(draft: Draft, random: Random) -> None:
    """Replace an answer by another possible answer to the request."""
    if (operation := _pick(draft, random)) is None:
        return
    version = getattr(operation.request, "version", None)
    if version is None:
        version = random.randint(0, len(draft.log))
    kind = random.choice(sorted(ANSWERS[type(operation.request)], key=lambda kind: kind.__name__))
    fields = set(kind.__struct_fields__)
    values: dict[str, Any] = {}
    if "version" in fields:
        values["version"] = version
    if "latest" in fields and kind in (events.Commits, events.Table):
        values["latest"] = random.randint(-1, len(draft.log))
    operation.answer = kind(**values)
    if operation.answered is None:
        operation.answered = operation.invoked + random.randint(0, 4)


def _lose_the_answer(draft: Draft, random: Random) -> None:
    if operation := _pick(draft, random):
        operation.answer, operation.answered = None, None


def _swap_answers(draft: Draft, random: Random) -> None:
    operation = _pick(draft, random)
    if operation is None:
        return
    same = [other for other in draft.asked if type(other.request) is type(operation.request) and other is not operation]
    if same:
        other = random.choice(same)
        if (operation.answered is None) == (other.answered is None):
            operation.answer, other.answer = other.answer, operation.answer


def _forget_an_operation(draft: Draft, random: Random) -> None:
    if draft.asked:
        draft.asked.pop(random.randrange(len(draft.asked)))


def _change_the_request(draft: Draft, random: Random) -> None:
    """Change the version, range or attempt of a request."""
    if (operation := _pick(draft, random)) is None:
        return
    request = operation.request
    if isinstance(request, events.GetCommits):
        start, end = random.choice((None, 0, 1, 2)), random.choice((None, 0, 1, 2))
        operation.request = msgspec.structs.replace(request, start=start, end=end)
    elif isinstance(request, events.Snapshot):
        operation.request = msgspec.structs.replace(request, by_path=not request.by_path)
    elif isinstance(request, (events.Commit, events.HandBack, events.BackfillToVersion, events.Checkpoint)):
        version = max(0, request.version + random.choice((-1, 1)))
        operation.request = msgspec.structs.replace(request, version=version)
    elif isinstance(request, events.AttemptOutcome) and draft.log:
        operation.request = events.AttemptOutcome(attempt=random.choice(draft.log).attempt)


def _change_winners(draft: Draft, random: Random) -> None:
    operation = _pick(draft, random, events.Conflict, events.Commits, events.Table)
    if operation is None or not draft.log:
        return
    name = "winners" if isinstance(operation.answer, events.Conflict) else "commits"
    entries = list(getattr(operation.answer, name) or ())
    attempt = random.choice((None, random.choice(draft.log).attempt))
    entry = Entry(version=random.randint(0, len(draft.log)), attempt=attempt)
    if entries and random.random() < 0.5:
        entries.pop(random.randrange(len(entries)))
    else:
        entries.append(entry)
    operation.answer = msgspec.structs.replace(operation.answer, **{name: tuple(entries)})


def _swap_versions(draft: Draft, random: Random) -> None:
    if len(draft.log) > 1:
        at = random.randrange(len(draft.log) - 1)
        draft.log[at], draft.log[at + 1] = draft.log[at + 1], draft.log[at]


def _lose_the_last_version(draft: Draft, random: Random) -> None:
    if draft.log:
        draft.log.pop()


def _add_a_version(draft: Draft, random: Random) -> None:
    """Add an attempt that was rejected, lost or never sent, or that is already in the log."""
    attempts = [getattr(operation.request, "attempt", "unknown") for operation in draft.asked] or ["unknown"]
    draft.log.insert(random.randint(draft.before, max(draft.before, len(draft.log))), Version(random.choice(attempts)))


def _replace_a_version(draft: Draft, random: Random) -> None:
    attempts = [getattr(operation.request, "attempt", "unknown") for operation in draft.asked] or ["unknown"]
    if draft.log:
        draft.log[random.randrange(len(draft.log))] = Version(random.choice(attempts))


def _change_the_past(draft: Draft, random: Random) -> None:
    draft.before = min(len(draft.log), max(0, draft.before + random.choice((-1, 1))))


def _change_the_commit_mode(draft: Draft, random: Random) -> None:
    if draft.log:
        version = random.choice(draft.log)
        version.direct = not version.direct


def _change_the_header(draft: Draft, random: Random) -> None:
    choice = random.randrange(5)
    if choice == 0:
        draft.profiles ^= {"idempotent-retry"}
    elif choice == 1:
        draft.promises ^= {random.choice(list(Promise))}
    elif choice == 2:
        draft.open_world = not draft.open_world
    elif choice == 3:
        draft.skew = max(0, draft.skew + random.choice((-1, 1)))
    else:
        draft.feature = "catalogManaged" if draft.feature == "managedCommit" else "managedCommit"


def _change_a_look(draft: Draft, random: Random) -> None:
    if not draft.looked:
        return
    look = random.choice(draft.looked)
    choice = random.randrange(4)
    if choice == 0:
        look.published, look.absent = look.absent, look.published
    elif choice == 1:
        look.published.append(random.randint(0, len(draft.log)))
    elif choice == 2:
        look.absent.append(random.randint(0, len(draft.log)))
    else:
        by = random.choice((-3, -1, 1, 3))
        look.since, look.at = look.since + by, look.at + by


def _clean_up(draft: Draft, random: Random) -> None:
    if draft.looked:
        draft.asked.append(
            DraftOperation("c0", events.Cleanup(), random.choice(draft.looked).at + random.choice((-1, 0, 1, 2)))
        )


WEIGHTS: dict[Change, int] = {
    _move_a_time: 6,
    _shift_an_operation: 6,
    _answer_at_once: 6,
    _change_latest: 5,
    _change_answer: 3,
    _change_a_look: 4,
    _change_version: 1,
    _lose_the_answer: 2,
    _swap_answers: 2,
    _forget_an_operation: 1,
    _change_the_request: 1,
    _change_winners: 1,
    _swap_versions: 2,
    _lose_the_last_version: 1,
    _add_a_version: 1,
    _replace_a_version: 1,
    _change_the_past: 1,
    _change_the_commit_mode: 1,
    _change_the_header: 3,
    _clean_up: 1,
}
"""How often each change is made. Changes of times are the most frequent, because intervals are the hardest part to
judge.
"""

CHANGES = [change for change, weight in WEIGHTS.items() for _ in range(weight)]


BATCH = 1000
CONFORMANT, VIOLATION = "conformant", "violation"


class Figures:
    """The number and the kinds of compared histories, and the histories on which the two disagree."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """For each kind of figure: how many histories have an answer, a verdict, violate a rule."""
        self.disagreements: list[int] = []

    def add(self, other: "Figures") -> None:
        for kind, counter in other.counts.items():
            self.counts[kind] += counter
        self.disagreements += other.disagreements


def history(seed: int, number: int) -> tuple[list[Event], bool]:
    """History `number` of a seed, and whether it was changed."""
    random = Random(f"{seed}/{number}")
    draft = simulate(random, random.randint(3, 12))
    changes = random.choice((0, 1, 1, 2, 2, 3, 4))
    perturb(draft, random, changes)
    return draft.events(), changes > 0


def compare(seed: int, numbers: range) -> Figures:
    """Judge some histories in both ways."""
    figures = Figures()
    for number in numbers:
        lines, perturbed = history(seed, number)
        items, violations = judged(lines)
        expected = is_linearizable(items)
        seen = [item for item in items if isinstance(item, Operation)]
        on_record = bool(judged(without_final_log(lines))[1])
        figures.counts["verdict"].update([CONFORMANT if expected else VIOLATION])
        figures.counts["answer"].update({_tag(operation) for operation in seen})
        figures.counts["rule"].update({violation.rule.value for violation in violations})
        if expected == bool(violations) or (not perturbed and not expected) or (on_record and expected):
            figures.disagreements.append(number)
    return figures


def judged(lines: list[Event]) -> tuple[list[Item], list[HistoryViolation]]:
    """The items of a history, and the violations that the checker finds."""
    items = list(operations(lines))
    findings, _ = judge(HistoryColumns(items))
    return items, list(explain(findings, items))


def without_final_log(lines: list[Event]) -> list[Event]:
    log = [event for event in lines if isinstance(event, events.Witness)]
    direct = any(event.commit_mode == "direct" for event in log)
    before = [event.version + 1 for event in log if event.before]
    unseen = events.Unseen(table=TABLE, before=max(before, default=0), commit_mode=None if direct else "staged")
    *rest, footer = [event for event in lines if not isinstance(event, events.Witness)]
    assert isinstance(footer, events.Footer)
    counts = msgspec.structs.replace(footer.counts, witness=0, unseen=1)
    ended = msgspec.structs.replace(footer, counts=counts, tables={TABLE: 0})
    return [*rest, unseen, ended]


def _tag(operation: Operation) -> str:
    return "no answer" if operation.answer is None else str(type(operation.answer).__struct_config__.tag)


def show(seed: int, number: int) -> None:
    """Print one history, and both verdicts on it."""
    lines, perturbed = history(seed, number)
    for event in lines:
        print(msgspec.json.encode(event).decode())
    items, violations = judged(lines)
    print(f"perturbed: {perturbed}; brute force: {CONFORMANT if is_linearizable(items) else VIOLATION}")
    for violation in violations:
        print(f"checker: {violation.rule.value}: {violation.message}")


def main() -> int:
    parser = argparse.ArgumentParser(description="compare the checkers with brute force")
    parser.add_argument("--histories", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="show this history instead")
    options = parser.parse_args()
    if options.only is not None:
        show(options.seed, options.only)
        return 0
    figures = Figures()
    for start in range(0, options.histories, BATCH):
        figures.add(compare(options.seed, range(start, min(start + BATCH, options.histories))))
        print(f"{start + BATCH} of {options.histories}: {len(figures.disagreements)} disagreements", file=sys.stderr)
    counts = {f"histories_by_{kind}": dict(sorted(counter.items())) for kind, counter in figures.counts.items()}
    print(json.dumps({"seed": options.seed, "disagreements": figures.disagreements[:20], **counts}, indent=2))
    return 1 if figures.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
