"""A simulated host: a disk, and processes of one subject on it.

Schedules, crashes and power cuts use the same host. A subclass starts processes of its subject; their effects go to the
hook that the exploration passes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from conformance.adapters.in_process import InProcess
from conformance.interface import messages as m
from conformance.interface.subject import Closing
from conformance.simulation.disk import Disk
from conformance.simulation.effects import Hook, unobserved

Ask = Callable[[m.Request], m.Answer]
Prepared = TypeVar("Prepared")


class Process(InProcess):
    """One process of the subject. A call sends a request of the client `client`; `ask` names another client."""

    def __call__(self, request: m.Request) -> m.Answer:
        return self.ask("client", request)

    def together(self, requests: Sequence[m.Request], answered: Callable[[int, m.Answer], None]) -> None:
        """Send each request from a thread of its own. The other requests arrive while the first one waits for the
        owner's lock. `answered` gets the number of each request and its answer, as soon as the answer comes."""
        raise NotImplementedError


class Host(Closing):
    """One simulated host."""

    def __init__(self) -> None:
        self.disk = Disk()
        """The disk of the last start."""
        self._kept = Disk()

    def boot(self, disk: Disk, hook: Hook = unobserved) -> None:
        """Start the host on this disk; no process runs yet. `hook` is called for the effects of a database on its
        files; it may only read."""
        raise NotImplementedError

    def process(self, number: int, hook: Hook, *, waits: bool = False) -> Process:
        """Start a process. `number`: of this start, for ids and clocks. `waits`: the scheduler lets it wait for a held
        lock; otherwise it gets the error of an expired timeout at once. Any exception means that it does not start."""
        raise NotImplementedError

    def threads(self, number: int, hook: Hook) -> Process:
        """Start a process whose clients are this number of threads, if the subject has threads."""
        raise NotImplementedError

    def state(self) -> object:
        """The state just after a start. Two states may be equal only if the subject answers every request alike."""
        raise NotImplementedError

    def stop(self) -> None:
        """Free the resources of the real host that the processes hold. Writes nothing to the disk."""
        raise NotImplementedError

    def close(self) -> None:
        self.stop()

    # For interruptions: one process, and others beside it

    def start(self, disk: Disk, *, start: int, hook: Hook) -> Process:
        """Start the host on this disk, and a process on it. `start`: the number of the start."""
        self.boot(disk, hook)
        return self.process(start, hook)

    def beside(self, *, start: int) -> Process:
        """Start another process while the others run."""
        return self.process(start, unobserved)

    # For schedules: a process for each client, from the same state in every run

    def prepare(self, ask: Callable[[Process], Prepared]) -> Prepared:
        """Let `ask` create the start state of every run, with one client. Returns its result."""
        self.boot(Disk())
        process = self.process(0, unobserved, waits=True)
        result = ask(process)
        self.settle(process)
        self.stop()
        self.disk.sync_everything()
        self._kept = self.disk
        return result

    def settle(self, process: Process) -> None:
        """Called after the preparation, with its process."""

    def clients(self, names: Iterable[str], hook: Hook, *, threads: bool = False) -> Mapping[str, Process]:
        """Begin a run from the prepared state: start a process for each client, or one with a thread for each."""
        self.boot(self._kept.copy())
        clients = list(names)
        if threads:
            return dict.fromkeys(clients, self.threads(len(clients), hook))
        return {name: self.process(number, hook, waits=True) for number, name in enumerate(clients, 1)}
