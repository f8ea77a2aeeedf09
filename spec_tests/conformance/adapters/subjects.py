"""Subjects in this process, by `python:MODULE:CLASS`: some that can be made, and some that cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conformance.interface import messages as m

NUMBER = 7
Ask = Callable[[str, m.Request], m.Answer]


class Quiet:
    """Knows no table."""

    side = "owner"

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return m.Identity(
            name=type(self).__name__, version="1", interface_version=m.INTERFACE_VERSION, side=self.side,
            profiles=("core", "version-0-by-owner", "staged"), commit_modes={"managedCommit": ("staged",)},
            features=("managedCommit",),
        )  # fmt: skip

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        print("a request came")  # which must not get among the replies
        return m.NotFound()


class WithFolder(Quiet):
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "here").touch()

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        return m.Rejected(reason=str(self.directory))


class Client(Quiet):
    """Passes everything on to its owner."""

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
