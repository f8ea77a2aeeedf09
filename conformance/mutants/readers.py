"""Readers that see what is not there, or not what is: the owner's answer and the listing, put together wrongly."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.models.log_files import Listing
from conformance.models.owner import STAGING
from conformance.models.reader import Actions, Owner, Refused, Resolved, State, Unsure
from conformance.models.storage import LOG
from conformance.mutants.registry import mutant


@mutant("CM-READ-01", "MC-GET-03", "MC-READ-07", "CM-READ-05", "LOG-04", bugs=("FB01",), side="client")
class ListsThenAsks(ModelClient):
    """Lists the log, then asks the owner, and does not list again: a backfill in between makes versions vanish."""

    def _gather(self, client: str, table: Resolved) -> Listing:
        listed = self._list(table)
        self._ask(client, table)
        return listed


@mutant("MC-READ-07", "CM-READ-05", "CM-READ-09", bugs=("FB02",), side="client")
class AsksNoMoreAfterAnEmptyAnswer(ModelClient):
    """Once its owner had no unpublished commit to tell, it reads the table from listings alone."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner)
        self.settled: set[str | None] = set()

    def _ask(self, client: str, table: Resolved) -> None:
        if table.name not in self.settled:
            super()._ask(client, table)
        if not table.commits:
            self.settled.add(table.name)


@mutant("LOG-13", bugs=("FB03",), side="client")
class ReadsOnlyTheStagedFile(ModelClient):
    """Fails when the staged file that the owner named was published and removed before it opened it."""

    def _commit(self, table: Resolved, listed: Listing, owned: dict[int, m.CommitEntry], version: int) -> Actions:
        name = owned[version].file_name if version in owned else None
        if name is not None and not (table.log / STAGING[table.feature or ""] / name).exists():
            raise Refused(f"the commit file {name} is gone")
        return super()._commit(table, listed, owned, version)


@mutant("CM-READ-09", "MC-LOG-03", bugs=("FB04",), side="client")
class LooksForVersionsInTheListing(ModelClient):
    """A version that it is asked for has to be published: "no such commit" for one that is only ratified."""

    def _target(self, table: Resolved, listed: Listing, version: int | None) -> int:
        if version is not None and version not in listed.commits:
            raise Refused(f"no commit file of version {version}")
        return super()._target(table, listed, version)


@mutant("MC-FILES-05", "CM-FILES-04", "LOG-17", bugs=("FB05",), side="client")
class ListsRecursively(ModelClient):
    """Its listing goes into the staging folder, where proposals that lost look like commits."""

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        for path in sorted(table.log.rglob("_*commits/*.json")):
            listed.commits[int(path.name[:20])] = path
        return listed


@mutant("LOG-16", "CM-LOG-08", "CM-READ-09", "MC-FILES-05", "CM-FILES-04", side="client")
class GuessesFromTheStagingFolder(ModelClient):
    """Takes the first staged file of each next version for the commit, and asks no owner."""

    def _ask(self, client: str, table: Resolved) -> None:
        table.latest, table.commits = None, ()

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        for path in sorted(table.log.rglob("_*commits/*.json")):
            listed.commits.setdefault(int(path.name[:20]), path)
        return listed


@mutant("CM-READ-04", bugs=("FB15",), side="client")
class ReadsPastTheLatestVersion(ModelClient):
    """Reads whatever newer versions its listing shows, although the catalog named an older one as the latest."""

    def _latest(self, table: Resolved, listed: Listing) -> int:
        return max(listed.newest, -1 if table.latest is None else table.latest)


@mutant("MC-FILES-09", "LOG-09", side="client")
class StopsAtWhatTheOwnerNoticed(ModelClient):
    """Reads a managedCommit table only up to the version that its owner tells, and hides direct commits."""

    def _latest(self, table: Resolved, listed: Listing) -> int:
        return listed.newest if table.latest is None else table.latest


@mutant("LOG-10", side="client")
class TakesMinusOneForEmpty(ModelClient):
    """An owner that tells no latest version makes it say that the table has none."""

    def _latest(self, table: Resolved, listed: Listing) -> int:
        if table.latest is None and table.reference is not None:
            raise Refused("the table has no version")
        return super()._latest(table, listed)


@mutant("LOG-08", side="client")
class StopsWhereTheListEnds(ModelClient):
    """Takes the last commit that the owner lists for the newest version."""

    def _ask(self, client: str, table: Resolved) -> None:
        super()._ask(client, table)
        if table.commits:
            table.latest = table.commits[-1].version

    def _latest(self, table: Resolved, listed: Listing) -> int:
        return listed.newest if table.latest is None else table.latest


@mutant("CM-READ-03", side="client")
class PrefersThePublishedCopy(ModelClient):
    """Reads the published file of a version that the catalog returned too."""

    def _commit(self, table: Resolved, listed: Listing, owned: dict[int, m.CommitEntry], version: int) -> Actions:
        return super()._commit(table, listed, {} if version in listed.commits else owned, version)


@mutant("CM-READ-09", "MC-READ-07", "CM-READ-05", side="client")
class FallsBackToTheListing(ModelClient):
    """If the owner does not answer, it reads what is published, and says nothing of it."""

    def _ask(self, client: str, table: Resolved) -> None:
        told = self.owner(client, m.GetCommits(table=table.reference or ""))
        if isinstance(told, m.Commits):
            table.latest, table.commits = told.latest, told.commits


@mutant("LOG-27", "MC-READ-07", "CM-READ-05", bugs=("FB37",), side="client")
class LeavesOutWhatItCannotFind(ModelClient):
    """If the newest commits are in no listing, it reads the version before them as the newest."""

    def _latest(self, table: Resolved, listed: Listing) -> int:
        return min(super()._latest(table, listed), max([*listed.commits, *table.owned], default=-1))


@mutant("CM-READ-02", "LOG-18", side="client")
class NeverLists(ModelClient):
    """Makes a snapshot of version 0 and of what the owner returns, and never looks for published commits."""

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        return Listing(commits={v: path for v, path in listed.commits.items() if v == 0})


@mutant("LOG-09", "PROFILE-CLIENT-01", side="client")
class AlwaysReadsTheNewest(ModelClient):
    """Whatever version is asked for, it reads the newest one."""

    def _target(self, table: Resolved, listed: Listing, version: int | None) -> int:
        super()._target(table, listed, version)
        return super()._target(table, listed, None)


@mutant("LOG-11", side="client")
class ReadsTheNewestForOneThatIsNotThere(ModelClient):
    """A version above the latest is read as the latest, without an error."""

    def _target(self, table: Resolved, listed: Listing, version: int | None) -> int:
        return super()._target(table, listed, None if version is None else min(version, self._latest(table, listed)))


@mutant("MC-READ-04", "MC-READ-03", side="client")
class ReadsStagedFilesByPath(ModelClient):
    """Given a path, it takes what lies in the staging folder for the newest commits."""

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        if table.reference is None:
            for path in sorted((table.log / "_commits").glob("*.json")):
                listed.commits.setdefault(int(path.name[:20]), path)
        return listed


@mutant("CM-ACCESS-01", side="client")
class JudgesAnOldVersionByItself(ModelClient):
    """Reads by path the versions that a catalog-managed table had before its catalog took it over."""

    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        self.pinned = request.version
        return super().snapshot(client, request)

    def _by_path(self, path: str) -> Resolved:
        if self.pinned is None:
            return super()._by_path(path)
        table = Resolved(name=None, reference=None, feature=None, commit_mode="", log=Path(path) / LOG)
        state = self._replay(table, self._list(table), self.pinned)
        if "catalogManaged" in state.protocol.get("readerFeatures", ()):
            raise Refused("a catalog-managed table is read through its catalog")
        return table


@mutant("CM-ACCESS-01", side="client")
class ReadsCatalogTablesByPath(ModelClient):
    """Reads a catalog-managed table from its path, without its catalog."""

    def _by_path(self, path: str) -> Resolved:
        return Resolved(name=None, reference=None, feature=None, commit_mode="", log=Path(path) / LOG)


@mutant("CM-READ-08", "PROFILE-CLIENT-01", "MC-READ-07", "CM-READ-05", side="client")
class RemembersWhereATableWas(ModelClient):
    """Resolves a name once, and asks about that table for ever, whatever has the name now: another table, or the same
    one that was handed back and taken over again. If its owner knows nothing of the table any more, the log serves."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner)
        self.known: dict[tuple[str, str], Resolved] = {}

    def _resolve(self, client: str, name: str) -> Resolved:
        if (client, name) not in self.known:
            self.known[client, name] = super()._resolve(client, name)
        return self.known[client, name]

    def _ask(self, client: str, table: Resolved) -> None:
        with suppress(Unsure):
            super()._ask(client, table)


@mutant("CM-LOG-03", "MC-LOG-06", side="client")
class TrustsTheCatalogForEveryVersion(ModelClient):
    """Puts the metadata that the catalog tells, which are those of the latest version, on older versions too."""

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        state = super()._replay(table, listed, target)
        told = self.owner("reader", m.LoadTable(name=table.name))
        if isinstance(told, m.Table) and told.metadata is not None:
            state.metadata = msgspec.json.decode(told.metadata)
        return state
