"""Any owner in Python as a subject of the simulator. All of its effects must go through the `Effects` that it gets.

    class MyOwner:
        def __init__(self, effects: Effects) -> None: ...
        def hello(self, client: str, request: m.Hello) -> m.Identity: ...
        def commit(self, client: str, request: m.Commit) -> m.Answer: ...     # one method for each operation

    delta-commit-conformance simulate explore --subject python:my_module:MyOwner

One object is one process. All state that processes share, or that must survive, is in files. Its methods are those of
the kit's interface (`conformance.adapters.in_process`); scopes that need a missing operation or commit mode are left
out. `example_owner` is a complete owner. The simulator cannot run a subject in another process or language; the kit can
only kill such a subject at the crash points that it names (`crash` and `restart`, profile `harness-control`).
"""

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Self

from conformance.interface import messages as m
from conformance.interface.messages import name_of
from conformance.simulation.disk import Disk, SimulatedFiles
from conformance.simulation.effects import Hook, Kind, happening, unobserved
from conformance.simulation.host import Host, Process
from conformance.simulation.operations import CHECKPOINTING, Operation
from conformance.simulation.schedule_scopes import Place, Scope, Start

PREFIX: Final = "python:"
STORAGE: Final = "/warehouse"
"""The folder that exists when an owner starts for the first time."""
START_MS: Final = 1_700_000_000_000

_NEEDED: Final = {
    "first-start": "create_table", "create": "create_table", "commit": "commit", "backfill": "backfill_to_version",
    "take-over": "take_over", "hand-back": "hand_back", "drop": "drop_table", "resolve": "attempt_outcome",
    "read": "get_commits", CHECKPOINTING: "commit",
}  # fmt: skip
"""The methods that each kind of operation needs. These processes have no threads, so `group` is left out."""


class LockTakenError(Exception):
    """Another process holds the lock, and keeps it longer than any timeout."""


@dataclass(frozen=True, slots=True)
class Effects:
    """The parts of the host that a simulated owner may use."""

    files: SimulatedFiles
    """The calls of a file system. A power cut may lose contents and names that were not fsynced."""
    lock: Callable[[], contextlib.AbstractContextManager[None]]
    """The host's only lock between processes. Raises `LockTakenError` if another process keeps it."""
    now: Callable[[], int]
    """ms since the epoch."""
    new_id: Callable[[], str]
    """Returns lower-case uuids."""


class PythonHost(Host):
    """Runs processes of one class on a simulated disk."""

    def __init__(self, make: Callable[[Effects], Any]) -> None:
        super().__init__()
        self._make = make
        self._holder: list[int] = []

    @classmethod
    def named(cls, name: str) -> Self:
        """The host for `python:MODULE:CLASS`. Raises `ImportError`, `AttributeError`, `ValueError`."""
        module, _, attribute = name.removeprefix(PREFIX).partition(":")
        if not module or not attribute:
            raise ValueError("a module or a class is missing")
        make = getattr(importlib.import_module(module), attribute)
        try:
            inspect.signature(make).bind("environment")
        except TypeError as error:
            raise ValueError(f"{attribute} does not take one argument, the environment: {error}") from error
        return cls(make)

    def boot(self, disk: Disk, hook: Hook = unobserved) -> None:  # noqa: ARG002  # there is no database
        self.disk = disk
        self._holder = []
        if disk.find(STORAGE) is None:
            disk.make_directory(STORAGE, now=0)
            disk.sync_directory("/")

    def process(self, number: int, hook: Hook, *, waits: bool = False) -> Process:
        ticks, numbers = count(START_MS + number * 1_000_000), count(1)

        @contextlib.contextmanager
        def lock() -> Iterator[None]:
            with happening(hook, Kind.ACQUIRE, "lock"):
                if self._holder and not waits:
                    raise LockTakenError
                self._holder.append(number)
            try:
                yield
            finally:
                with happening(hook, Kind.RELEASE, "lock"):
                    self._holder.remove(number)

        files = SimulatedFiles(self.disk, hook=hook)
        new_id = lambda: f"{number:08x}-0000-4000-8000-{next(numbers):012x}"  # noqa: E731
        return Process(self._make(Effects(files, lock, lambda: next(ticks), new_id)))

    # The operations of the class

    @property
    def identity(self) -> m.Identity:
        self.boot(Disk())
        return self.process(0, unobserved).identity

    def can(self, scope: Scope) -> bool:
        """Whether the class has the commit mode and all operations of a scope."""
        identity = self.identity
        if scope.commit_mode not in identity.commit_modes.get(scope.feature, ()) or scope.place is Place.FILESYSTEM:
            return False
        start = Start(table="t", feature=scope.feature, commit_mode=scope.commit_mode, identity=identity)
        requests = [*scope.prepared(start), *(request for todo in scope.requests(start).values() for request in todo)]
        return all(self._has(name_of(request)) for request in requests)

    def can_do(self, operation: Operation) -> bool:
        commit_modes = self.identity.commit_modes.get(operation.feature, ())
        needed = _NEEDED.get(operation.kind)
        return (
            operation.commit_mode in commit_modes
            and operation.path is None
            and needed is not None
            and self._has(needed)
        )

    def _has(self, name: str) -> bool:
        return hasattr(self._make, name)

    def state(self) -> object:
        """The disk: a process has no other state."""
        return self.disk.fingerprint()

    def stop(self) -> None:
        """Nothing of the real host is held."""
