"""A subject with short methods for the usual requests, for the tests of owners and adapters."""

import uuid
from typing import Any, TypeVar

from conformance.interface import messages as m
from conformance.interface.log_names import STAGING, commit_file, version_of
from conformance.interface.subject import Closing, Subject
from conformance.models import proposals

A = TypeVar("A", bound=m.Message)


def attempt() -> str:
    return str(uuid.uuid4())


class Asking(Closing):
    """A subject under test. `expect` sends a request and checks the kind of the answer."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.identity = subject.identity

    def ask(self, request: m.Request, client: str = "client") -> m.Answer:
        return self.subject.ask(client, request)

    def expect(self, kind: type[A], request: m.Request, client: str = "client") -> A:
        answer = self.ask(request, client)
        assert isinstance(answer, kind), answer
        return answer

    def close(self) -> None:
        self.subject.close()

    # Tables

    def creation(
        self, name: str = "orders", feature: str = "catalogManaged", commit_mode: str = "staged", **more: Any
    ) -> m.CreateTable:
        """A request to create a table. `more` replaces or adds fields."""
        own = attempt()
        fields = {"attempt": own, "actions": proposals.version_0(feature, own, attempt()), **more}
        return m.CreateTable(name=name, feature=feature, commit_mode=commit_mode, **fields)

    def table(
        self, name: str = "orders", feature: str = "catalogManaged", commit_mode: str = "staged", **more: Any
    ) -> "Table":
        made = self.expect(m.Ratified, self.creation(name, feature, commit_mode, **more))
        assert made.version == 0
        assert made.table is not None
        return Table(self, made.table, feature, commit_mode)

    def filesystem_table(self, name: str = "imports", versions: int = 2) -> str:
        """Create a table without an owner, below the subject's storage; return its path."""
        assert self.identity.storage is not None
        path = f"{self.identity.storage}/{name}"
        for version in range(versions):
            own, time = attempt(), proposals.BASE_TIME + version
            actions = proposals.version_0(None, own, name, timestamp=time)
            if version:
                actions = proposals.append(own, time)
            self.expect(m.Done, m.Plant(table=path, file=commit_file(version), content=proposals.content(actions)))
        return path

    def taking_over(
        self, path: str, version: int, feature: str = "managedCommit", commit_mode: str = "staged"
    ) -> m.TakeOver:
        own, time = attempt(), proposals.BASE_TIME + version
        actions = proposals.version_0(feature, own, "imports", timestamp=time)
        return m.TakeOver(
            path=path,
            name="imports",
            feature=feature,
            commit_mode=commit_mode,
            version=version,
            attempt=own,
            actions=actions,
        )


class Table:
    """A table of that owner."""

    def __init__(self, owner: Asking, reference: str, feature: str, commit_mode: str) -> None:
        self.owner = owner
        self.reference = reference
        self.feature = feature
        self.commit_mode = commit_mode

    def proposal(self, version: int, **more: Any) -> m.Commit:
        own = more.get("attempt", attempt())
        fields = {"attempt": own, "actions": proposals.append(own, proposals.BASE_TIME + version), **more}
        return m.Commit(table=self.reference, version=version, **fields)

    def land(self, *versions: int) -> list[m.Commit]:
        """Commit these versions one after the other; return the requests."""
        sent = [self.proposal(version) for version in versions]
        for request in sent:
            assert self.owner.expect(m.Ratified, request).version == request.version
        return sent

    def commits(self, start: int | None = None, end: int | None = None) -> m.Commits:
        return self.owner.expect(m.Commits, m.GetCommits(table=self.reference, start=start, end=end))

    @property
    def latest(self) -> int | None:
        return self.commits().latest

    def files(self) -> dict[str, str | None]:
        """The content by name of every file below the log folder."""
        seen = self.owner.expect(m.Observation, m.Observe(table=self.reference))
        return {file.name: file.content for file in seen.files}

    def published(self) -> list[int]:
        """The published versions."""
        return sorted(version for name in self.files() if (version := version_of(name)) is not None)

    def staged(self) -> list[str]:
        folder = f"{STAGING[self.feature]}/"
        return [name.removeprefix(folder) for name in self.files() if name.startswith(folder)]

    def backfill(self, version: int) -> None:
        self.owner.expect(m.Done, m.BackfillToVersion(table=self.reference, version=version))
