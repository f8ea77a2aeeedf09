"""Owners that cannot be tested as they say: who they are, what they answer, what they let the kit see and do."""

from __future__ import annotations

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import ModelOwner
from conformance.mutants.registry import mutant


@mutant("PROFILE-CORE-01")
class ProfilesDependOnTheMoment(ModelOwner):
    """The owner declares everything as long as it has nothing to do, and less as soon as it has a commit."""

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = super().hello(client, request)
        busy = any(table.latest > 0 for table in self.tables.values())
        return msgspec.structs.replace(identity, profiles=("core",)) if busy else identity


@mutant("PROFILE-CORE-02")
class ContentsAreToldOnce(ModelOwner):
    """The content of version 0 is told in the first look at a log, and left out in those after it."""

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        answer = super().observe(client, request)
        shown: set[str] = self.__dict__.setdefault("_shown", set())
        if not isinstance(answer, m.Observation) or request.table not in shown:
            shown.add(request.table)
            return answer
        first = f"{0:020}.json"
        files = [msgspec.structs.replace(f, content=None) if f.name == first else f for f in answer.files]
        return m.Observation(files=tuple(files))


@mutant("PROFILE-CORE-02")
class StagingFolderIsHiddenAtTimes(ModelOwner):
    """Without contents a look at the log shows the published commits only."""

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        answer = super().observe(client, request)
        if request.contents or not isinstance(answer, m.Observation):
            return answer
        return m.Observation(files=tuple(file for file in answer.files if "/" not in file.name)[:-1])


@mutant("PROFILE-CORE-03")
class UnknownTableBreaksTheOwner(ModelOwner):
    """A request about a table that does not exist ends in an exception."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        self.tables[request.table]
        return super().get_commits(client, request)


@mutant("PROFILE-CORE-03")
class EmptyRangeIsNoAnswer(ModelOwner):
    """A range with nothing in it is answered as done, without the latest version."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        if request.start is not None and request.end is not None and request.start > request.end:
            return m.Done()
        return super().get_commits(client, request)


@mutant("PROFILE-CORE-07")
class PolicyIsDeclaredAndMissing(ModelOwner):
    """The owner declares a maintenance policy, and does not support the question for it."""

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        return m.Unsupported(reason="not yet")


@mutant("PROFILE-STORAGE-01")
class PlantedFilesAreKeptApart(ModelOwner):
    """What the kit plants goes to a copy of the log that nobody else looks at."""

    def plant(self, client: str, request: m.Plant) -> m.Answer:
        return m.Done()


@mutant("PROFILE-STORAGE-01")
class PutIfAbsentReplaces(ModelOwner):
    """The storage has no put-if-absent, and the owner says that it has."""

    def plant(self, client: str, request: m.Plant) -> m.Answer:
        return super().plant(client, msgspec.structs.replace(request, if_absent=False))


@mutant("PROFILE-STORAGE-01")
class RemovedFilesStay(ModelOwner):
    """A file that the kit removes is still there."""

    def remove(self, client: str, request: m.Remove) -> m.Answer:
        return m.Done()
