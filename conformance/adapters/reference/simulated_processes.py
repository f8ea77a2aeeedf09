"""The reference as processes of one simulated host: one dies or stalls at an effect, and another one goes on.

The lock is that of a host: whoever wants what another process holds hears what it hears when it has waited for its
whole timeout, because nobody gets on while it waits. Transactions are effects here too, each as a whole: what SQLite
does to its files stands inside of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from conformance.adapters.in_process import InProcess
from conformance.adapters.reference.simulated import SimulatedOwner, SimulatedReference, _Folding, environment
from conformance.interface import messages as m
from conformance.simulation.effects import Effect, Hook, Kind, Moment, unobserved
from conformance.simulation.schedule import WRITER
from conformance.simulation.storage import Disk
from refimpl.environment import Environment, HostLock
from refimpl.errors import OwnerUnavailableError

Change = Callable[[Environment], Environment]
"""Puts something between the reference and the effects of a process: a known-bad variant, or nothing."""

Patch = Callable[[], contextlib.AbstractContextManager[Any]]
"""Edits the reference while its processes run."""


def unchanged(environment: Environment) -> Environment:
    return environment


class SimulatedProcesses(SimulatedReference):
    """`start` boots the host with one process; `beside` starts another one next to those that run."""

    def __init__(self, change: Change = unchanged, patch: Patch = contextlib.nullcontext, **more: Any) -> None:
        super().__init__(**more)
        self._change = change
        self._patch = patch
        self._patched = contextlib.ExitStack()
        self._holders: dict[Path, list[int]] = {}
        self._connect: Callable[[Path], Any] | None = None

    def start(self, disk: Disk, *, start: int, hook: Hook) -> Callable[[m.Request], m.Answer]:
        self._disk = disk
        self._holders.clear()
        self._patched.close()
        self._patched.enter_context(self._patch())
        effects = environment(disk, self._sqlite, start=start, hook=hook, **self._changes)
        self._connect = effects.connect
        return self._process(effects, start, hook)

    def beside(self, *, start: int) -> Callable[[m.Request], m.Answer]:
        """An ordinary start of another process. It shares files, database and lock with those that run."""
        assert self._disk is not None, "a host is started before another process runs beside"
        effects = environment(self._disk, self._sqlite, start=start, **self._changes)
        return self._process(dataclasses.replace(effects, connect=self._connect), start, unobserved)

    def _process(self, effects: Environment, number: int, hook: Hook) -> Callable[[m.Request], m.Answer]:
        connect = effects.connect
        assert connect is not None
        assert self._disk is not None

        def connected(path: Path) -> Any:
            database = connect(path)
            self._connections.append(database)
            return _Transactions(_Folding(database) if self._folding else database, hook)

        changed = self._change(
            dataclasses.replace(effects, connect=connected, host_lock=lambda path: self._lock(path, number, hook))
        )
        owner = InProcess(SimulatedOwner(self._disk, changed))
        return lambda request: owner.ask("client", request)

    def _lock(self, path: Path, number: int, hook: Hook) -> HostLock:
        @contextlib.contextmanager
        def held() -> Iterator[None]:
            _tell(hook, Kind.ACQUIRE, str(path), Moment.BEFORE)
            holders = self._holders.setdefault(path, [])
            if holders and holders[-1] != number:
                raise OwnerUnavailableError(f"{path} was held by another process all the time; try again")
            holders.append(number)
            try:
                _tell(hook, Kind.ACQUIRE, str(path), Moment.AFTER)
                yield
            finally:
                _tell(hook, Kind.RELEASE, str(path), Moment.BEFORE)
                holders.remove(number)
                _tell(hook, Kind.RELEASE, str(path), Moment.AFTER)

        return held

    def stop(self) -> None:
        super().stop()
        self._patched.close()


def _tell(hook: Hook, kind: Kind, target: str, moment: Moment) -> None:
    hook(Effect(kind=kind, target=target, moment=moment))


class _Transactions:
    """A connection whose transactions are effects: when one that writes begins and ends, and when one that reads takes
    its snapshot, which is at its first question."""

    def __init__(self, database: Any, hook: Hook) -> None:
        self.database = database
        self._hook = hook
        self._begun: str | None = None

    def execute(self, statement: str, *values: Any) -> Any:
        kind = self._kind(statement)
        if kind is None:
            return self.database.execute(statement, *values)
        _tell(self._hook, kind, WRITER, Moment.BEFORE)
        try:
            return self.database.execute(statement, *values)
        finally:
            _tell(self._hook, kind, WRITER, Moment.AFTER)

    def _kind(self, statement: str) -> Kind | None:
        if statement == "BEGIN":
            self._begun = "read"
            return None
        if statement.startswith("BEGIN"):
            self._begun = "write"
            return Kind.BEGIN
        if statement in ("COMMIT", "ROLLBACK"):
            begun, self._begun = self._begun, None
            return Kind(statement.lower()) if begun == "write" else None
        if self._begun == "read":
            self._begun = "reading"
            return Kind.QUERY
        return None

    def set_busy_timeout(self, _milliseconds: int) -> None:
        """Nobody gets on while somebody waits: what is taken stays taken."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)
