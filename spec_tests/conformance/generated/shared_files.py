"""Two owners whose processes share their state in a file: one takes a lock, the other does not, and is overwritten."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import filelock
import msgspec

from conformance.interface import messages as m
from conformance.interface.messages import name_of
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.models.storage import FolderStorage


class LockedOwner:
    """Reads its state, answers, and writes it; no other request does so meanwhile."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory
        self._state = directory / "state"
        self._owner = ModelOwner(FolderStorage(directory))
        self._locked: Callable[[], AbstractContextManager[object]] = filelock.FileLock(directory / "lock").acquire

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = self._owner.hello(client, request)
        profiles = tuple(each for each in identity.profiles if each != "harness-control")
        return msgspec.structs.replace(identity, profiles=profiles, shared_state=True, promises=(), crash_points=())

    def _ask(self, client: str, request: m.Request) -> m.Answer:
        with self._locked():
            if self._state.exists():
                self._owner._tables = msgspec.json.decode(self._state.read_bytes(), type=dict[str, OwnedTable])
            answer: m.Answer = getattr(self._owner, name_of(request))(client, request)
            temporary = self._folder / f"state.{os.getpid()}"
            temporary.write_bytes(msgspec.json.encode(self._owner._tables))
            temporary.replace(self._state)
            return answer

    create_table = load_table = commit = attempt_outcome = get_commits = backfill_to_version = observe = _ask


class UnlockedOwner(LockedOwner):
    """What one process decided, another overwrites."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._locked = contextlib.nullcontext
