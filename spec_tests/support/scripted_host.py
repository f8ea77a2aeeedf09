"""An environment whose clock, ids and pauses a test controls; the files are real."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from refimpl.environment import Environment
from refimpl.files import Files, PosixFiles

START = 1_700_000_000_000
"""ms since the epoch. Far enough in the past that no file of a test is older."""


@dataclass
class ScriptedHost:
    """`clock` is what `now` says, in ms; it moves by `tick` after each look. `pauses` are never slept.

    Hosts of different names never make the same id.
    """

    name: str = "host"
    clock: int = START
    tick: int = 0
    files: Files = field(default_factory=PosixFiles)
    pauses: list[float] = field(default_factory=list)
    on_pause: Callable[[], object] | None = None
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def environment(self) -> Environment:
        return Environment(files=self.files, now=self._now, new_id=self._new_id, random=lambda: 0.5, pause=self._pause)

    def _now(self) -> int:
        self.clock += self.tick
        return self.clock - self.tick

    def _new_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.name}-{next(self._ids)}"))

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if self.on_pause is not None:
            self.on_pause()
