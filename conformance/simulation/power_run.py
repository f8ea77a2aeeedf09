"""One uninterrupted run of a script, remembered at every moment at which the power may go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from conformance.interface import messages as m
from conformance.simulation.effects import Effect, Hook, Moment
from conformance.simulation.storage import Disk, Snapshot

Ask = Callable[[m.Request], m.Answer]
Script = Callable[[Ask], None]


class Host(Protocol):
    """Starts the subject on a disk."""

    def start(self, disk: Disk, *, start: int, hook: Hook) -> Ask:
        """An ordinary start; `start` counts them. Whatever it raises means that the subject does not start."""
        ...

    def state(self) -> object:
        """Just after a start: a value that is equal for two starts only if the subject will answer everything alike.
        `object()` where nobody can tell: then no two are equal."""
        ...

    def stop(self) -> None:
        """The last one that was started is gone; what it holds of the real host is freed. Writes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A request and its answer; None: the power went before anybody was told."""

    request: m.Request
    answer: m.Answer | None


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment at which the power may go."""

    effect: Effect
    """The last one that was seen."""
    at: int
    """Its number in the run."""
    snapshot: Snapshot
    facts: tuple[Asked, ...]
    """Everything that was asked by then; only the last one may be without an answer."""


@dataclass(slots=True)
class Run:
    """One uninterrupted run of a script: all its moments, and the disk at its end."""

    cuts: list[Cut] = field(default_factory=list)
    facts: list[Asked] = field(default_factory=list)
    effects: int = 0
    disk: Disk = field(default_factory=Disk)


def recorded(host: Host, setup: Script, script: Script) -> Run:
    """Run `setup`, let the disk settle, then run `script` and remember every moment at which a power cut leaves
    something else than a moment before."""
    run = Run()
    recording = False
    last: tuple[int, int, bool] | None = None

    def seen(effect: Effect) -> None:
        nonlocal last
        if not recording:
            return
        run.effects += effect.moment is Moment.BEFORE
        told = len(run.facts), run.facts[-1].answer is None if run.facts else False
        now = (run.disk.revision, *told)
        if now != last:
            last = now
            run.cuts.append(Cut(effect, run.effects, run.disk.snapshot(), tuple(run.facts)))

    ask = host.start(run.disk, start=1, hook=seen)

    def asked(request: m.Request) -> m.Answer:
        run.facts.append(Asked(request, None))
        answer = ask(request)
        run.facts[-1] = Asked(request, answer)
        return answer

    setup(asked)
    run.disk.sync_everything()
    recording = True
    script(asked)
    run.cuts.append(Cut(run.cuts[-1].effect, run.effects, run.disk.snapshot(), tuple(run.facts)))
    host.stop()
    return run
