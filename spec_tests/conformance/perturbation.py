"""Small changes to a history, of the kind that make it wrong, or leave it right by luck.

Of histories that are made at random nearly all are wrong, and for the same few reasons; a correct one with one lie in
it is where a checker has to be exact.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from conformance.history import events
from conformance.history.events import Entry, Promise
from conformance.history.operations import ANSWERS
from spec_tests.conformance.drafts import Asked, Draft, Version

Change = Callable[[Draft, Random], None]


def perturb(draft: Draft, random: Random, changes: int) -> None:
    """Make so many changes, each chosen at random; some have nothing to change."""
    for _ in range(changes):
        random.choice(CHANGES)(draft, random)


def _pick(draft: Draft, random: Random, *answers: type[Any]) -> Asked | None:
    fitting = [each for each in draft.asked if not answers or isinstance(each.answer, answers)]
    return random.choice(fitting) if fitting else None


def _move_a_time(draft: Draft, random: Random) -> None:
    each = _pick(draft, random)
    if each is None:
        return
    by = random.choice((-5, -3, -2, -1, 1, 2, 3, 5))
    if each.answered is not None and random.random() < 0.5:
        each.answered = max(each.invoked, each.answered + by)
    else:
        each.invoked = each.invoked + by if each.answered is None else min(each.answered, each.invoked + by)


def _shift_an_operation(draft: Draft, random: Random) -> None:
    each = _pick(draft, random)
    if each is not None:
        by = random.choice((-6, -4, -2, -1, 1, 2, 4, 6))
        each.invoked += by
        each.answered = None if each.answered is None else each.answered + by


def _hurry(draft: Draft, random: Random) -> None:
    """Everything is answered at once: intervals of one moment contradict each other most easily."""
    for each in draft.asked:
        if each.answered is not None and random.random() < 0.7:
            each.answered = each.invoked


def _change_latest(draft: Draft, random: Random) -> None:
    each = _pick(draft, random, events.Conflict, events.Gap, events.Commits, events.Table)
    if each is not None and each.answer is not None:
        latest: int | None = each.answer.latest  # type: ignore[union-attr]
        latest = random.choice((None, -1, 0, 1, 2)) if latest is None else max(-1, latest + random.choice((-2, -1, 1)))
        each.answer = msgspec.structs.replace(each.answer, latest=latest)


def _change_version(draft: Draft, random: Random) -> None:
    each = _pick(draft, random, events.Ratified, events.Committed, events.Landed, events.SnapshotRead)
    if each is not None and each.answer is not None:
        version = max(0, each.answer.version + random.choice((-1, 1)))  # type: ignore[union-attr]
        each.answer = msgspec.structs.replace(each.answer, version=version)


def _change_answer(draft: Draft, random: Random) -> None:
    """Another answer that the request could have had."""
    each = _pick(draft, random)
    if each is None:
        return
    version = getattr(each.request, "version", None)
    if version is None:
        version = random.randint(0, len(draft.log))
    kind = random.choice(sorted(ANSWERS[type(each.request)], key=lambda found: found.__name__))
    fields = set(kind.__struct_fields__)
    values: dict[str, Any] = {}
    if "version" in fields:
        values["version"] = version
    if "latest" in fields and kind in (events.Commits, events.Table):
        values["latest"] = random.randint(-1, len(draft.log))
    each.answer = kind(**values)
    if each.answered is None:
        each.answered = each.invoked + random.randint(0, 4)


def _lose_the_answer(draft: Draft, random: Random) -> None:
    each = _pick(draft, random)
    if each is not None:
        each.answer, each.answered = None, None


def _swap_answers(draft: Draft, random: Random) -> None:
    one = _pick(draft, random)
    if one is None:
        return
    same = [each for each in draft.asked if type(each.request) is type(one.request) and each is not one]
    if same:
        other = random.choice(same)
        if (one.answered is None) == (other.answered is None):
            one.answer, other.answer = other.answer, one.answer


def _forget_an_operation(draft: Draft, random: Random) -> None:
    if draft.asked:
        draft.asked.pop(random.randrange(len(draft.asked)))


def _change_the_request(draft: Draft, random: Random) -> None:
    """Another version, range or attempt was asked for."""
    each = _pick(draft, random)
    if each is None:
        return
    request = each.request
    if isinstance(request, events.GetCommits):
        start, end = random.choice((None, 0, 1, 2)), random.choice((None, 0, 1, 2))
        each.request = msgspec.structs.replace(request, start=start, end=end)
    elif isinstance(request, events.Snapshot):
        each.request = msgspec.structs.replace(request, by_path=not request.by_path)
    elif isinstance(request, (events.Commit, events.HandBack, events.BackfillToVersion, events.Checkpoint)):
        version = max(0, request.version + random.choice((-1, 1)))
        each.request = msgspec.structs.replace(request, version=version)
    elif isinstance(request, events.AttemptOutcome) and draft.log:
        each.request = events.AttemptOutcome(attempt=random.choice(draft.log).attempt)


def _change_winners(draft: Draft, random: Random) -> None:
    each = _pick(draft, random, events.Conflict, events.Commits, events.Table)
    if each is None or not draft.log:
        return
    name = "winners" if isinstance(each.answer, events.Conflict) else "commits"
    entries = list(getattr(each.answer, name) or ())
    attempt = random.choice((None, random.choice(draft.log).attempt))
    entry = Entry(version=random.randint(0, len(draft.log)), attempt=attempt)
    if entries and random.random() < 0.5:
        entries.pop(random.randrange(len(entries)))
    else:
        entries.append(entry)
    each.answer = msgspec.structs.replace(each.answer, **{name: tuple(entries)})


def _swap_versions(draft: Draft, random: Random) -> None:
    if len(draft.log) > 1:
        at = random.randrange(len(draft.log) - 1)
        draft.log[at], draft.log[at + 1] = draft.log[at + 1], draft.log[at]


def _lose_the_last_version(draft: Draft, random: Random) -> None:
    if draft.log:
        draft.log.pop()


def _add_a_version(draft: Draft, random: Random) -> None:
    """An attempt that was refused, lost or never sent, or that is there already."""
    attempts = [getattr(each.request, "attempt", "unknown") for each in draft.asked] or ["unknown"]
    draft.log.insert(random.randint(draft.before, max(draft.before, len(draft.log))), Version(random.choice(attempts)))


def _replace_a_version(draft: Draft, random: Random) -> None:
    attempts = [getattr(each.request, "attempt", "unknown") for each in draft.asked] or ["unknown"]
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
        draft.asked.append(Asked("c0", events.Cleanup(), random.choice(draft.looked).at + random.choice((-1, 0, 1, 2))))


WEIGHTS: dict[Change, int] = {
    _move_a_time: 6,
    _shift_an_operation: 6,
    _hurry: 6,
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
"""How often each is made. Changes of times come first: what happened when is the harder half."""

CHANGES = [change for change, weight in WEIGHTS.items() for _ in range(weight)]
