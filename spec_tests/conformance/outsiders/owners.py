"""Twenty commit owners with one mistake each. Most are wrong only in a rare situation."""

import json
from contextlib import suppress
from typing import Any

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING
from conformance.models.owner import Commit, ModelOwner, NotPublished, OwnedTable, content_of, time_of
from spec_tests.conformance.outsiders import outsider


class Owner(ModelOwner):
    """The model owner, but it describes a table without its metadata if a file is missing."""

    def _newest(self, table: OwnedTable, kind: str) -> str | None:
        with suppress(NotPublished):
            return super()._newest(table, kind)
        return None


# Committing and replaying


@outsider(
    "bad owner", 'managed-commits, "Managed Commits": the owner is the source of truth for whether a commit succeeded'
)
class KeyStoredBeforeTheBacklogCheck(Owner):
    """Idempotency: the owner stores the attempt as landed before it checks the backlog. If it then rejects the attempt,
    the retry is answered `ratified` without a commit.
    """

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        if isinstance(answer, m.Rejected) and answer.retryable:
            table.landed[request.attempt] = request.version
            self._save(table)
        return answer


@outsider("bad owner", 'catalog-managed, "Publishing Commits": the content of a ratified commit is immutable')
class RetryStagesAgain(Owner):
    """Wrong order: a retry overwrites the ratified staged file before the owner recognizes the attempt."""

    def _stage(self, table: OwnedTable, request: m.Commit) -> str | None:
        name = super()._stage(table, request)
        if name is not None and request.actions is not None:
            content = content_of(request.actions)
            self.storage.put(self._staged_path(table, name), content, time_of(request.actions))
        return name


@outsider(
    "bad owner", 'managed-commits, "Commit Protocol": a commit has succeeded, whether or not its writer was answered'
)
class KeysInTheMemoryOfANode(Owner):
    """Stale node: only the node that ratified an attempt knows it, until it restarts. Another node answers a retry with
    `conflict`, and the writer commits the same data again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.node = ""
        self.known: set[tuple[str, str]] = set()

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        self.node = client
        answer = super().commit(client, request)
        self.node = ""
        if isinstance(answer, m.Ratified):
            self.known.add((client, request.attempt))
        return answer

    def _replay(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        answer = super()._replay(table, request)
        return answer if not self.node or (self.node, request.attempt) in self.known else None

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        self.known.clear()
        return super().restart(client, request)


@outsider("bad owner", 'managed-commits, "Commit Protocol": version v does not exist when it is committed')
class HandBackRebases(Owner):
    """Conflicts: a hand-back for an existing version is committed as the next free version, although its writer has not
    seen the winner.
    """

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and table.active and request.attempt not in table.landed:
            version = max(request.version, table.latest + 1)
            request = msgspec.structs.replace(request, version=version)
        return super().hand_back(client, request)


# Backfill


@outsider("bad owner", 'catalog-managed, "Publishing Commits": publishing copies the ratified commit to <v>.json')
class SameSizeIsTheSameFile(Owner):
    """Wrong comparison: a published file is compared with the commit by size only."""

    def _publish(self, table: OwnedTable, version: int) -> None:
        try:
            super()._publish(table, version)
        except NotPublished:
            content = self._content(table, table.unbackfilled[version])
            published = self.storage.read(self._path(table, version))
            if published is None or len(published.content) != len(content):
                raise


@outsider("bad owner", 'managed-commits, "Commit Backfills": v is backfilled only when v-1 is completely backfilled')
class MissingStagedFileIsPublished(Owner):
    """Recovery: the owner assumes that another process published a missing staged file, without checking <v>.json."""

    def _publish(self, table: OwnedTable, version: int) -> None:
        staged = table.unbackfilled[version].staged_file
        if staged is None or self.storage.read(self._staged_path(table, staged)) is not None:
            super()._publish(table, version)


@outsider("bad owner", 'managed-commits, "Sample Commit Owner API": backfillToVersion backfills all commits <= version')
class YieldsToAnotherPublisher(Owner):
    """Partial failure: a backfill that finds a published version assumes that another backfill is running, stops there,
    and reports success.
    """

    def _backfill(self, table: OwnedTable, version: int) -> None:
        for next_version in range(table.backfilled + 1, version + 1):
            published = self.storage.read(self._path(table, next_version)) is not None
            super()._backfill(table, next_version)
            if published:
                return


@outsider(
    "bad owner", 'managed-commits, "Commit Files": un-backfilled files are kept track of until they are backfilled'
)
class JanitorOffByOne(Owner):
    """Off by one: after a backfill the owner deletes the staged files of backfilled versions, and that of the next
    version.
    """

    def _backfill(self, table: OwnedTable, version: int) -> None:
        super()._backfill(table, version)
        folder = f"{table.location}/{LOG}/{STAGING[table.feature]}"
        for name in self.storage.list(folder):
            if name[:20].isdecimal() and int(name[:20]) <= table.backfilled + 1:
                self.storage.remove(f"{folder}/{name}")


@outsider(
    "bad owner", 'managed-commits, "Commit Protocol": un-backfilled commits are tracked until they are backfilled'
)
class WatermarkBeyondTheLatest(Owner):
    """Range: a backfill to a version beyond the latest moves the watermark to it. Later commits are below the watermark
    and are not listed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.watermarks: dict[str, int] = {}

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        answer = super().backfill_to_version(client, request)
        if isinstance(answer, m.Done):
            self.watermarks[request.table] = max(request.version, self.watermarks.get(request.table, 0))
        return answer

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, max(start, self.watermarks.get(table.reference, -1) + 1), end)


@outsider("bad owner", 'managed-commits, "Delta Log Entries": newline-delimited JSON, each action one line')
class SplitsAtUnicodeLineEnds(Owner):
    """Encoding: lines are also split at U+2028, U+2029 and U+0085, which may occur in a JSON string."""

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        return content_of(tuple(super()._content(table, commit).splitlines()))


@outsider("bad owner", 'catalog-managed, "Publishing Commits": the content of a ratified commit is immutable')
class NumbersAsDoubles(Owner):
    """Encoding: the owner publishes through a JSON library that reads numbers as doubles; integers beyond
    2^53 lose digits.
    """

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        return "".join(f"{_with_doubles(line)}\n" for line in super()._content(table, commit).split("\n")[:-1])


def _with_doubles(line: str) -> str:
    changed = False

    def integer(digits: str) -> int:
        nonlocal changed
        changed |= int(float(digits)) != int(digits)
        return int(float(digits))

    with suppress(ValueError):
        parsed = json.loads(line, parse_int=integer)
        return json.dumps(parsed, separators=(",", ":"), ensure_ascii=False) if changed else line
    return line


# Getting commits


@outsider("bad owner", 'managed-commits, "Sample Commit Owner API": contiguous and in ascending version order')
class SortsVersionsAsText(Owner):
    """Wrong comparison: versions are sorted as text, so 10 comes before 9."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return tuple(sorted(super()._entries(table, start, end), key=lambda entry: str(entry.version)))


@outsider("bad owner", 'catalog-managed, "Commit Protocol": ratified commits are available to readers until published')
class NegativeSlice(Owner):
    """Off by one: `start` is an index into the list of unpublished commits. An index of -1 selects the last one."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        stored = super()._entries(table, 0, end)
        return stored[start - stored[0].version :] if stored and start > 0 else stored


@outsider("bad owner", 'managed-commits, "Getting Un-backfilled Commits": the latest ratified version is returned too')
class EmptyAnswerIsCached(Owner):
    """Wrong cache: each client's component caches an answer without commits, with its `latest`, until that client
    commits. A client that only reads never sees another client's commit.
    """

    def __init__(self) -> None:
        super().__init__()
        self.empty: dict[tuple[str, str], m.Answer] = {}

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        key = client, request.table
        if key not in self.empty:
            answer = super().get_commits(client, request)
            if not isinstance(answer, m.Commits) or answer.commits or request.start or request.end is not None:
                return answer
            self.empty[key] = answer
        return self.empty[key]

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        self.empty.pop((client, request.table), None)
        return super().commit(client, request)


@outsider("bad owner", "in-commit timestamps: milliseconds since the epoch, and strictly increasing")
class TimestampsInSeconds(Owner):
    """Timestamps: the database column has no fraction, so listed commits have in-commit timestamps in whole seconds."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return tuple(
            msgspec.structs.replace(entry, in_commit_timestamp=self._time(table, entry.version) // 1000 * 1000)
            for entry in super()._entries(table, start, end)
        )

    def _time(self, table: OwnedTable, version: int) -> int:
        with suppress(NotPublished):
            return time_of(self._content(table, table.unbackfilled[version]).split("\n"))
        return 0


# Restarting, changing the owner, creating again


@outsider(
    "bad owner",
    'managed-commits, "Converting an existing filesystem based table": no refusal of a table after its backfill',
)
class RowWithTheFirstCommit(Owner):
    """Lost state: the owner stores a new table together with its first commit. A restart before that loses the
    table.
    """

    def _save(self, table: OwnedTable) -> None:
        if table.promised is None and len(table.landed) == 1 and table.active:
            self.saved.pop(table.reference, None)
        else:
            super()._save(table)


@outsider(
    "bad owner",
    'managed-commits, "Converting an existing filesystem based table": its backfill races with filesystem commits',
)
class RedoOverwrites(Owner):
    """Recovery: after a crash the owner writes a promised ownership change again, over the file of a faster writer."""

    def _recover(self, table: OwnedTable) -> None:
        if table.promised is not None:
            version, _, content = table.promised
            self.storage.put(self._path(table, version), content, time_of(content.split("\n")))
        super()._recover(table)


@outsider("bad owner", 'managed-commits, "Converting a managed-commit table": accepts no new commits on the table')
class HandBackIsForgotten(Owner):
    """Lost state: a hand-back is not stored durably. After a restart the owner accepts commits to the table again."""

    def _save(self, table: OwnedTable) -> None:
        super()._save(table if table.leaving is None else msgspec.structs.replace(table, active=True))


@outsider("bad owner", 'managed-commits, "Commit Protocol": v-1 exists and v does not when v is committed')
class SecondTakeOverResumes(Owner):
    """Ownership transfer: a table that is taken over again continues from the latest version of the first ownership.
    The filesystem commits in between are unknown to the owner.
    """

    def __init__(self) -> None:
        super().__init__()
        self.resumed: set[str] = set()

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        answer = super().take_over(client, request)
        if isinstance(answer, m.Ratified):
            table = self.tables[answer.table or ""]
            for earlier in self.tables.values():
                if earlier is not table and earlier.location == table.location and earlier.leaving is not None:
                    table.latest = table.backfilled = earlier.latest
                    self.resumed.add(table.reference)
                    self._save(table)
        return answer

    def _notice(self, table: OwnedTable) -> None:
        if table.reference not in self.resumed:
            super()._notice(table)


@outsider(
    "bad owner", 'catalog-managed, "Catalog Responsibilities": a version is committed with the given set of actions'
)
class RecreatedTableInheritsRows(Owner):
    """Re-creation: unpublished commits are rows by table name and version, inserted only if missing. A table that is
    dropped with unpublished commits leaves them to the next table of its name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[tuple[str, int], Commit] = {}

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        answer = super().drop_table(client, request)
        if isinstance(answer, m.Done):
            table = self.tables[request.table]
            self.rows |= {(table.name, version): commit for version, commit in table.unbackfilled.items()}
        return answer

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        answer = super()._ratify(table, request, staged)
        stored: Any = self.rows.get((table.name, request.version))
        if stored is not None and request.version in table.unbackfilled:
            table.unbackfilled[request.version] = stored
            self._save(table)
        return answer
