"""One uninterrupted run of a script, remembered at every moment at which the power may go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from conformance.interface import messages as m
from conformance.simulation.effects import Effect, Hook, Moment
from conformance.simulation.storage import Disk

Ask = Callable[[m.Request], m.Answer]


class Unfit(Exception):  # noqa: N818  # about the subject, not about this code
    """The subject refuses what a script is about."""


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
    meanwhile: tuple[Asked, ...] = ()
    """What others asked between this request and its answer."""


def in_order_of_answers(facts: Sequence[Asked]) -> list[Asked]:
    """Each of them, and what was asked meanwhile just before it."""
    return [each for fact in facts for each in (*in_order_of_answers(fact.meanwhile), fact)]


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment at which the power may go, or the process may die."""

    effect: Effect
    """The last one that was seen."""
    at: int
    """Its number in the run."""
    disk: Disk
    """As it was, with everything that was not synced. Nobody changes it any more."""
    facts: tuple[Asked, ...]
    """Everything that was asked by then; what was interrupted has no answer."""

    @property
    def pending(self) -> m.Request | None:
        """What was going on."""
        return self.facts[-1].request if self.facts and self.facts[-1].answer is None else None


class Recorder:
    """Runs a subject on a disk, and remembers every moment at which a power cut leaves something else than a moment
    before, or something else was answered."""

    def __init__(self, disk: Disk, facts: Sequence[Asked] = ()) -> None:
        self.disk = disk
        self.facts = list(facts)
        self.cuts: list[Cut] = []
        self.effects = 0
        self.syncs = 0
        """Of the script."""
        self.remembers = True
        self._last: object = None

    def start(self, host: Host, start: int) -> Ask:
        ask = host.start(self.disk, start=start, hook=self._seen)

        def asked(request: m.Request) -> m.Answer:
            self.facts.append(Asked(request, None))
            answer = ask(request)
            self.facts[-1] = Asked(request, answer)
            return answer

        return asked

    def end(self) -> None:
        """The last moment: everything was answered."""
        if self.cuts:
            self.cuts.append(Cut(self.cuts[-1].effect, self.effects, self.disk.copy(), tuple(self.facts)))

    def _seen(self, effect: Effect) -> None:
        if not self.remembers:
            return
        self.effects += effect.moment is Moment.BEFORE
        now = self.disk.revision, len(self.facts), bool(self.facts) and self.facts[-1].answer is None
        if now != self._last:
            self._last = now
            self.cuts.append(Cut(effect, self.effects, self.disk.copy(), tuple(self.facts)))


def recorded(host: Host, setup: Script | None, script: Script) -> Recorder:
    """Run `setup`, let the disk settle, then remember `script`. Without a setup, remember the first start too."""
    run = Recorder(Disk())
    run.remembers = setup is None
    ask = run.start(host, 1)
    if setup is not None:
        setup(ask)
        run.disk.sync_everything()
    run.remembers = True
    before = run.disk.syncs
    script(ask)
    run.syncs = run.disk.syncs - before
    run.end()
    host.stop()
    return run


def troubled(host: Host, setup: Script, script: Script, sync: int) -> Recorder:
    """The same with a disk of which one sync of the script fails, by its number. The script goes on as far as it can;
    then what failed is sent once more, and that is the end."""
    run = Recorder(Disk())
    run.remembers = False
    ask = run.start(host, 1)
    setup(ask)
    run.disk.sync_everything()
    run.disk.failing_sync = run.disk.syncs + sync
    run.remembers = True
    try:
        script(ask)
    except Unfit:
        ask(run.facts[-1].request)
    run.end()
    host.stop()
    return run


def recovery(
    host: Host, disk: Disk, facts: Sequence[Asked], start: Callable[[], int], failing_sync: int | None = None
) -> Recorder:
    """Start on a disk, whatever it holds, and send once more what was interrupted, and what was asked last; all of it
    remembered. `failing_sync`: by its number from then on; where that ends the start, another one follows."""
    run = Recorder(disk, facts)
    disk.failing_sync = None if failing_sync is None else disk.syncs + failing_sync
    try:
        try:
            ask = run.start(host, start())
        except Exception:
            if failing_sync is None or disk.syncs < (disk.failing_sync or 0):
                raise
            host.stop()
            ask = run.start(host, start())
        if facts and (facts[-1].answer is None or failing_sync is not None):
            ask(facts[-1].request)
        run.end()
    finally:
        host.stop()
    return run
