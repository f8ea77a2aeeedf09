"""Subjects for `python:` names: owners that misbehave or do little, and an owner that is reached over stdio."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import ModelOwner
from conformance.models.storage import FolderStorage, SavedFiles

FOREVER = 3_600.0


class Printing(ModelOwner):
    """Prints to standard output, which carries the replies."""

    def commit(self, client: str, request: m.Commit) -> Any:
        print("a subject may print", flush=True)
        sys.__stdout__.write("and by any way\n")  # type: ignore[union-attr]
        return super().commit(client, request)


class _Armed(ModelOwner):
    """Behaves until the first case. An earlier fault would be found by the kit's first requests."""

    armed = False

    def create_table(self, client: str, request: m.CreateTable) -> Any:
        self.armed = self.armed or "concurrent_writers" in request.name
        return super().create_table(client, request)


class DyingSometimes(ModelOwner):
    """Its process ends when it gets a request for versions in the wrong order. A new process continues as if nothing
    had happened.
    """

    def get_commits(self, client: str, request: m.GetCommits) -> Any:
        if (request.start or 0) > (0 if request.end is None else request.end) > 0:
            os._exit(7)
        return super().get_commits(client, request)


class DyingAfterAViolation(ModelOwner):
    """Answers lost races as ratified. Its process ends soon afterwards."""

    wrong = 0

    def commit(self, client: str, request: m.Commit) -> Any:
        answer = super().commit(client, request)
        if not isinstance(answer, m.Conflict):
            return answer
        self.wrong += 1
        if self.wrong == 14:
            os._exit(3)
        return m.Ratified(version=request.version)


class Hanging(_Armed):
    """Never answers a commit."""

    def commit(self, client: str, request: m.Commit) -> Any:
        while self.armed:
            time.sleep(FOREVER)
        return super().commit(client, request)


class HangingAtOnce(ModelOwner):
    def commit(self, client: str, request: m.Commit) -> NoReturn:
        while True:
            time.sleep(FOREVER)


class Dying(_Armed):
    """Kills its process."""

    def commit(self, client: str, request: m.Commit) -> Any:
        if self.armed:
            print("out of luck", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().commit(client, request)


class Refusing(_Armed):
    """Rejects every commit, as an owner may, so no verdict is possible."""

    def commit(self, client: str, request: m.Commit) -> Any:
        return m.Rejected(reason="not today") if self.armed else super().commit(client, request)


class Babbling(_Armed):
    """Answers a commit with an object that is no answer."""

    def commit(self, client: str, request: m.Commit) -> Any:
        return "ratified" if self.armed else super().commit(client, request)


class Fickle(Refusing):
    """Changes its identity whenever it is opened, which happens again after each case that did not pass."""

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return msgspec.structs.replace(super().hello(client, request), version=f"{os.getpid()} {id(self)}")


class Unmakeable(ModelOwner):
    """Cannot be constructed."""

    def __init__(self) -> None:
        raise RuntimeError("no database")


class Wrong(_Armed):
    """Answers every commit with a gap: the version before it is missing."""

    def commit(self, client: str, request: m.Commit) -> Any:
        return m.Gap(latest=None) if self.armed else super().commit(client, request)


class Elsewhere(ModelOwner):
    """Keeps its state in a folder that does not depend on the run. In the next run, every table already exists."""

    def __init__(self) -> None:
        super().__init__(FolderStorage(Path(os.environ["ELSEWHERE"])))
        self.saved = SavedFiles(self.storage)
        self.restart("kit", m.Restart())


# Valid and invalid classes for `python:` names


NUMBER = 7
Ask = Callable[[str, m.Request], m.Answer]


class Quiet:
    """An owner without tables."""

    side = "owner"

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return m.Identity(
            name=type(self).__name__, version="1", interface_version=m.INTERFACE_VERSION, side=self.side,
            profiles=("core", "version-0-by-owner", "staged"), commit_modes={"managedCommit": ("staged",)},
            features=("managedCommit",),
        )  # fmt: skip

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        print("a request came")  # this text must not be sent as a reply
        return m.NotFound()


class WithFolder(Quiet):
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "here").touch()

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        return m.Rejected(reason=str(self.directory))


class Client(Quiet):
    """Forwards every request to its owner."""

    side = "client"

    def __init__(self, owner: Ask) -> None:
        self.owner = owner

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        return self.owner(client, request)


class ClientOfAnyName(Client):
    def __init__(self, catalog: Ask) -> None:
        super().__init__(catalog)


class AsksForMore(Quiet):
    def __init__(self, owner: Ask, password: str) -> None:
        raise AssertionError("it cannot be made")


class Raises(Quiet):
    def __init__(self) -> None:
        raise OSError("no database at port 5432")


class Mute:
    """Has no `hello`."""
