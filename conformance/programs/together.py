"""Requests at the same time: one thread for each lane, which sends its requests one after the other. Their answers must
be possible in some order that agrees with their times: a request that ended before another one began comes first."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock, Thread
from typing import Any, Final, NamedTuple

from conformance.interface import messages as m
from conformance.interface.log_names import version_of
from conformance.oracle import owner
from conformance.oracle.owner import NOTHING, Contract, Facts, Worlds, Wrong
from conformance.scenario import ownership
from conformance.scenario.scenario import Exchange, Scenario, TableHandle


class Overlapping(NamedTuple):
    """A request of one table with its answer, and the moments at which it began and ended."""

    request: m.Request
    answer: m.Answer
    begun: int
    ended: int


class Impossible(NamedTuple):
    """The answers are possible in no order: `answer` is the index of one that is wrong after most others."""

    wrong: Wrong
    answer: int


def judge_together(
    worlds: Worlds, contract: Contract, calls: Sequence[Overlapping], facts: Facts = NOTHING
) -> Worlds | Impossible:
    """The worlds after all of them, in any order that is possible."""
    possible: set[owner.World] = set()
    seen: set[tuple[frozenset[int], Worlds]] = set()
    stuck: dict[int, list[Impossible]] = {}
    """The answers that are not possible next, by the number of requests that were left."""
    pending: list[tuple[frozenset[int], Worlds]] = [(frozenset(range(len(calls))), worlds)]
    while pending:
        left, now = state = pending.pop()
        if state in seen:
            continue
        seen.add(state)
        if not left:
            possible |= now
            continue
        first_end = min(calls[index].ended for index in left)
        for index in sorted(left, key=lambda index: -calls[index].ended):
            call = calls[index]
            if call.begun > first_end:
                continue
            after = owner.judge(now, contract, call.request, call.answer, facts)
            if not isinstance(after, Wrong):
                pending.append((left - {index}, after))
            else:
                stuck.setdefault(len(left), []).append(Impossible(after, index))
    return frozenset(possible) if possible or not stuck else _shown(stuck[min(stuck)])


def _shown(stuck: Sequence[Impossible]) -> Impossible:
    """One of them, with the requirements that every order breaks, if there are any."""
    last = stuck[-1]
    common = set(last.wrong.requirements).intersection(*(other.wrong.requirements for other in stuck))
    broken = tuple(name for name in last.wrong.requirements if name in common or not common)
    return last._replace(wrong=last.wrong._replace(requirements=broken))


MOST: Final = 6
"""The most requests at the same time: all their orders are tried."""
GAP_MS: Final = 50
"""The longest gap between the beginnings of two lanes."""


@dataclass(slots=True, kw_only=True)
class Call:
    """A request of a lane; `table` is any object that the caller keeps with it."""

    table: Any
    handle: TableHandle
    client: str
    request: Any
    plant: m.Plant | None = None
    """The file with which a writer commits instead of sending the request."""
    exchange: Exchange | None = None
    begun: int = 0
    ended: int = 0
    published: frozenset[m.Version] | None = None
    """The published versions in a listing that began after a read or a drop ended; None without one."""
    parts: "Sequence[Call]" = ()
    """Of a request about several tables: the same about each one, as which it is recorded."""
    apart: Callable[[m.Answer], Sequence[m.Answer]] | None = None
    """The answers to the parts."""


def concurrently(s: Scenario, lanes: Sequence[Sequence[Call]], gap_ms: int) -> list[Call]:
    """All calls that were answered, in the order of their ends. `gap_ms`: each lane begins so much later than the one
    before it. Raises the first exception of a lane."""
    lock, moments = Lock(), count(1)
    errors: list[BaseException] = []

    def run(lane: Sequence[Call], delay: float) -> None:
        time.sleep(delay)
        try:
            for call in lane:
                _ask(s, call, lock, lambda: next(moments))
        except BaseException as error:  # noqa: BLE001  # it is raised in the thread of the program
            errors.append(error)

    gap = max(0, min(gap_ms, GAP_MS)) / 1000
    threads = [Thread(target=run, args=(lane, number * gap), daemon=True) for number, lane in enumerate(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    called = [part for lane in lanes for call in lane for part in (call.parts or (call,))]
    return sorted((call for call in called if call.exchange is not None), key=lambda call: call.ended)


def _ask(s: Scenario, call: Call, lock: Lock, now: Callable[[], int]) -> None:
    if call.apart is not None:
        _ask_apart(s, call, call.apart, lock, now)
        return
    with lock:
        number = s._invoke(call.client, call.request, call.handle)
        call.begun = now()
    if call.plant is None:
        answer = s.answer(call.client, call.request)
    else:
        answer = ownership.put_beside(s, call.plant)
        if isinstance(call.request, m.Commit):  # it is recorded as one
            answer = ownership.as_commit(answer, call.request.version)
    with lock:
        call.ended = now()
        call.exchange = s._ended(number, call.request, answer)
    if isinstance(call.request, m.GetCommits | m.DropTable):
        call.published = published(s, call)


def _ask_apart(
    s: Scenario, call: Call, apart: Callable[[m.Answer], Sequence[m.Answer]], lock: Lock, now: Callable[[], int]
) -> None:
    """A request about several tables: its parts have one beginning and one end."""
    with lock:
        numbers = [s._invoke(part.client, part.request, part.handle) for part in call.parts]
        begun = now()
    answers = apart(s.answer(call.client, call.request))
    with lock:
        ended = now()
        for part, number, answer in zip(call.parts, numbers, answers, strict=True):
            part.begun, part.ended, part.exchange = begun, ended, s._ended(number, part.request, answer)


def published(s: Scenario, call: Call) -> frozenset[m.Version] | None:
    """The published versions of the table of a call, now; None if the subject does not list them."""
    seen = s.answer(call.client, m.Observe(table=call.request.table, contents=False))
    if not isinstance(seen, m.Observation):
        return None
    versions = (version_of(file.name) for file in seen.files)
    return frozenset(version for version in versions if version is not None)
