"""Requests that were under way at the same time: their answers must be possible in some order that agrees with their
times. A request that ended before another one began comes first."""

from collections.abc import Sequence
from typing import NamedTuple

from conformance.interface import messages as m
from conformance.oracle import owner
from conformance.oracle.owner import NOTHING, Contract, Facts, Worlds, Wrong


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


def judge(
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
