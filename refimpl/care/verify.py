"""Check a whole owner directory and its tables against every invariant. Reads only.

The invariants of a table: the recorded versions are contiguous up to the latest; their in-commit
timestamps increase; every version is either stored (inline bytes, or its staged file, unaltered) or
published with the ratified bytes; published files have no gap and none is above the latest; no
promise is open. Published versions from before this owner's time are allowed, and metadata cleanup
may have removed the oldest ones. Checkpoints are the client's: `Warehouse.verify` reads them, too.
"""

import contextlib
import hashlib
from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from refimpl.care.owner import WatchedOwner
from refimpl.owner import decide
from refimpl.owner.records import TableRecord
from refimpl.owner.statements import View
from refimpl.protocol import actions, log_path
from refimpl.protocol.actions import Metadata, Protocol, same_actions
from refimpl.protocol.commit_owner import TableState, TableSummary
from refimpl.protocol.commits import RatifiedCommit
from refimpl.protocol.errors import CorruptLedgerError, CorruptLogError, OwnerUnavailableError, TableNotFoundError
from refimpl.protocol.log_path import CHECKPOINT_KINDS, LOG_FOLDER, FileKind, LogPath, Version
from refimpl.protocol.table_feature import CommitMode, TableFeature, feature_of
from refimpl.storage.environment import Environment
from refimpl.storage.log_store import LogStore

STAGING_AGE_MS: Final = 24 * 3600 * 1000
"""A table that was staged longer ago than this and never registered gets a note."""

ORPHAN_AGE_MS: Final = 24 * 3600 * 1000
"""By default, staged files younger than a day stay: a reader may still open them."""

AHEAD_MS: Final = 3600 * 1000
"""An in-commit timestamp this far ahead of this host's clock gets a warning: clocks of one network differ by less."""

DEEPEST: Final = 8
"""Maximum depth of the search for tables: symbolic links may form a cycle."""


class Severity(Enum):
    ERROR = "error"
    """An invariant is broken."""
    WARNING = "warning"
    """No invariant is broken. Something is unfinished, and the next call, or repair, finishes it; or an operator must
    look at it, as the message says."""
    NOTE = "note"
    """Harmless leftovers."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One result of verify. `code` is stable; `repairable`: repair has a provably safe remedy."""

    table: str | None
    severity: Severity
    code: str
    message: str
    repairable: bool = False


def verify(owner: WatchedOwner) -> list[Finding]:
    """All findings, the ledger's first, then table by table. Empty: all invariants hold."""
    findings = [
        Finding(table=None, severity=Severity.ERROR, code="ledger-integrity", message=f"SQLite says: {message}")
        for message in owner.ledger.integrity_errors()
    ]
    try:
        with owner.ledger.read() as view:
            tables = view.tables()
    except CorruptLedgerError as error:
        return [*findings, _damaged(None, error)]
    for table in tables:
        try:
            findings.extend(_findings(owner, table.table_id))
        except CorruptLedgerError as error:
            findings.append(_damaged(table.name or table.table_id, error))
    gone = (TableState.HANDED_BACK, TableState.DROPPED)
    known = {table.location for table in tables if table.state not in gone}
    dropped = {table.location: table for table in tables if table.state is TableState.DROPPED}
    findings += [
        Finding(
            table=table.name or table.table_id,
            severity=Severity.NOTE,
            code="dropped-files",
            message=f"was never registered; its files are in {location}: delete them by hand"
            if table.latest is None
            else f"was dropped; its files are in {location}; run commit-owner undrop {table.table_id}, or delete them",
        )
        for location, table in dropped.items()
        if location not in known and owner.environment.files.stat(location) is not None
    ]
    try:
        findings += [
            Finding(
                table=None,
                severity=Severity.ERROR,
                code="unknown-table",
                message=f"{location} is a {feature.name} table that the ledger does not have; if an older ledger was "
                f"restored, a newer backup may have the table",
            )
            for location, feature in owned_tables(
                owner.environment, owner.warehouse, owner.name, known | dropped.keys()
            )
            if not _is_known(owner, location)
        ]
    except CorruptLedgerError as error:
        findings.append(_damaged(None, error))
    return findings


def _is_known(owner: WatchedOwner, location: Path) -> bool:
    """Whether the ledger has a table there now: one that was created since the tables were read."""
    with owner.ledger.read() as view:
        table = view.table_at(location)
    return table is not None and table.state is not TableState.HANDED_BACK


def _damaged(table: str | None, error: CorruptLedgerError) -> Finding:
    return Finding(table=table, severity=Severity.ERROR, code="ledger-damaged", message=error.message)


def owned_tables(
    environment: Environment, warehouse: Path, owner_name: str | None, known: set[Path]
) -> Iterator[tuple[Path, TableFeature]]:
    """The tables below the warehouse, except the known locations, whose logs name this owner; None: any owner."""
    pending = [(warehouse, 0)]
    while pending:
        directory, depth = pending.pop()
        if directory in known or depth > DEEPEST:
            continue
        try:
            entries = environment.files.list_directory(directory)
        except OSError:
            continue
        if any(entry.name == LOG_FOLDER and entry.is_directory for entry in entries):
            feature = _feature_at(LogStore(directory, environment), owner_name)
            if feature is not None:
                yield directory, feature
            continue
        folders = [entry.name for entry in entries if entry.is_directory and not entry.name.startswith(("_", "."))]
        pending += [(directory / name, depth + 1) for name in folders]


def _feature_at(log: LogStore, owner_name: str | None) -> TableFeature | None:
    """The table feature of the newest protocol in the log; None if the log names another owner."""
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    try:
        versions = log.published_versions()
    except OSError:
        return None
    for version in sorted(versions, reverse=True):
        name = log_path.commit(version)
        try:
            content = log.read(name)
            relevant = b'"protocol"' in content or b'"metaData"' in content
            parsed = actions.decode(content, source=name) if relevant else []
        except (CorruptLogError, OSError):
            break
        protocol = protocol or next((action for action in parsed if isinstance(action, Protocol)), None)
        metadata = metadata or next((action for action in parsed if isinstance(action, Metadata)), None)
        if protocol is not None and (metadata is not None or feature_of(protocol) is None):
            break
    feature = None if protocol is None else feature_of(protocol)
    if feature is None or metadata is None or feature.owner_property is None:
        return feature
    named = metadata.configuration.get(feature.owner_property)
    return feature if owner_name in (None, named) else None


def _findings(owner: WatchedOwner, table_id: str) -> list[Finding]:
    """The findings of a table. An error or a warning counts only if a second check has it too: a file that another
    process publishes or cleans up between two steps of a check looks like damage."""
    try:
        first = list(_check(owner, table_id).findings())
        if all(finding.severity is Severity.NOTE for finding in first):
            return first
        codes = {finding.code for finding in first}
        return [finding for finding in _check(owner, table_id).findings() if finding.code in codes]
    except TableNotFoundError:  # a take-over or creation that was forgotten since
        return []
    except OSError as error:
        with owner.ledger.read() as view:
            table = view.table(table_id)
        return [] if table is None else [unreadable(table, error)]


def unreadable(table: TableSummary, error: Exception) -> Finding:
    """The finding for a table that cannot be checked; the others still can."""
    message = f"the files in {table.location} cannot be read: {error}; check the disk and the permissions"
    return Finding(table=table.name or table.table_id, severity=Severity.ERROR, code="unreadable", message=message)


def _check(owner: WatchedOwner, table_id: str) -> "_Check":
    """The checks of a table. What looks like an interrupted commit may be in progress: then it reads again under the
    lock, which the processes hold that make such commits. If it cannot get the lock, the first read state counts."""
    check = _Check(owner, table_id)
    if check.is_unfinished:
        with contextlib.suppress(OwnerUnavailableError), owner.lock():
            check = _Check(owner, table_id)
    return check


class _Check:
    """The checks of one table, on one read state of the ledger."""

    def __init__(self, owner: WatchedOwner, table_id: str) -> None:
        self._owner = owner
        with owner.ledger.read() as view:
            self._table = owner.required(view, table_id)
            self._promise = view.promise(self._table.key)
            self._commits = commits_of(view, self._table)
            self._state = view.protocol_and_metadata(self._table.key)
        # Listed after the ledger was read: versions published meanwhile are above those that are checked here.
        self._log: LogStore = owner.log(self._table)
        listing = self._log.listing()
        self._published = {path.version: path for path in listing if path.kind is FileKind.COMMIT}
        self._checkpoint = max((path.version for path in listing if path.kind in CHECKPOINT_KINDS), default=-1)

    @property
    def is_unfinished(self) -> bool:
        """Whether a promise is open, or a table that is not registered has a version."""
        return self._promise is not None or (self._table.state is TableState.STAGING and bool(self._published))

    def findings(self) -> Iterator[Finding]:
        table = self._table
        if table.state in (TableState.DROPPED, TableState.HANDED_BACK):  # other writers may use the location
            return
        if self._promise is not None:
            yield self._finding(
                Severity.WARNING,
                "open-promise",
                f"a {self._promise.kind.value} of version {self._promise.version} was interrupted",
                repairable=True,
            )
        if table.state is TableState.STAGING:
            yield from self._never_registered()
            return
        if self._owner.environment.files.stat(table.location) is None:
            yield self._finding(Severity.ERROR, "location-missing", f"{table.location} does not exist")
            return
        other = another_table(self._log, self._commits, self._state)
        if other is not None:
            yield self._finding(Severity.ERROR, "another-table", other)
            return
        if table.halted is not None:
            yield self._finding(Severity.ERROR, "halted", f"accepts no commits: {table.halted}", repairable=True)
        yield from self._history()
        yield from self._bytes()
        yield from self._listing()
        yield from self._state_of_table()
        yield from self._staging_folder()

    def _finding(self, severity: Severity, code: str, message: str, *, repairable: bool = False) -> Finding:
        label = self._table.name or self._table.table_id
        return Finding(table=label, severity=severity, code=code, message=message, repairable=repairable)

    def _never_registered(self) -> Iterator[Finding]:
        """A staged table. A later version than 0 proves that it was registered, unless an engine creates tables."""
        table, newest = self._table, max(self._published, default=None)
        old = self._owner.now - table.created_at > STAGING_AGE_MS
        if newest and not table.feature.engines_create:
            remedy = "run repair --adopt-published" if 0 in self._published else "restore a newer backup"
            message = f"has version {newest} at {table.location}, but an older ledger was restored, in which it is not"
            message += f" registered; {remedy}"
            yield self._finding(Severity.ERROR, "not-registered", message, repairable=0 in self._published)
        elif old or newest == 0:
            message = f"was staged at {table.location} but never registered"
            if self._published:
                message += "; it holds versions, and stays"
            if newest == 0:
                message += (
                    "; its creator may still register it; if an older ledger was restored, run repair --adopt-published"
                )
            yield self._finding(Severity.NOTE, "never-registered", message, repairable=not self._published)

    def _history(self) -> Iterator[Finding]:
        """Contiguous versions up to the latest, increasing timestamps."""
        versions = sorted(self._commits)
        for before, after in pairwise(versions):
            if after != before + 1:
                yield self._finding(
                    Severity.ERROR, "ledger-gap", f"no record of the versions after {before}, before {after}"
                )
            earlier, later = (self._commits[v][0].in_commit_timestamp for v in (before, after))
            if later <= earlier:
                yield self._finding(
                    Severity.ERROR,
                    "timestamp-order",
                    f"in-commit timestamp {later} of version {after} is not greater than {earlier} of {before}",
                )
        now = self._owner.now
        for version in versions:
            time = self._commits[version][0].in_commit_timestamp
            if time > now + AHEAD_MS:
                yield self._finding(
                    Severity.WARNING,
                    "timestamp-ahead",
                    f"in-commit timestamp {time} of version {version} is {(time - now) // AHEAD_MS} h after this "
                    f"host's clock ({now}); until then each later commit is one ms after the one before, and "
                    f"timestamps select the wrong version: set the clocks of the writers and of this host",
                )
                return

    def _bytes(self) -> Iterator[Finding]:
        """Every version is stored or published, with the bytes that were ratified."""
        first_kept = min(self._published, default=0)
        if self._checkpoint < first_kept - 1:  # a cleanup keeps all commits after a checkpoint
            first_kept = 0
        for version, (commit, digest) in self._commits.items():
            if version in self._published:
                yield from self._published_bytes(commit, digest)
            elif version >= self._table.first_unbackfilled:
                yield from self._stored(commit, digest)
            elif version >= first_kept:
                yield self._finding(Severity.ERROR, "published-missing", f"{log_path.commit(version)} is missing")
        if self._published and self._table.backlog and not self._table.halted:
            what = "1 commit is" if self._table.backlog == 1 else f"{self._table.backlog:,} commits are"
            yield self._finding(Severity.NOTE, "backlog", f"{what} not published yet", repairable=True)

    def _published_bytes(self, commit: RatifiedCommit, digest: bytes) -> Iterator[Finding]:
        """catalog-managed, "Publishing Commits": a client may publish too, and spell inline actions as it likes."""
        name = log_path.commit(commit.version)
        try:
            content = self._log.read(name)
        except FileNotFoundError:  # removed since it was listed; a cleanup removes only versions below a checkpoint
            if commit.version >= self._checkpoint:
                yield self._finding(Severity.ERROR, "published-missing", f"{name} is missing")
            return
        if hashlib.sha256(content).digest() == digest:
            return
        if commit.content is not None:
            altered = not same_actions(content, commit.content)
        else:
            altered = commit.commit_mode is not CommitMode.INLINE or not self._table.feature.clients_publish
        if altered:
            yield self._finding(Severity.ERROR, "published-altered", f"{name} is not the ratified commit")
        elif commit.content is None:
            yield self._finding(
                Severity.NOTE,
                "published-respelled",
                f"{name} has other bytes than the inline commit: a client published the same actions in its own format",
            )

    def _stored(self, commit: RatifiedCommit, digest: bytes) -> Iterator[Finding]:
        content, name = commit.content, commit.file_name or f"the inline commit of version {commit.version}"
        if content is None and commit.file_name is not None:
            try:
                content = self._log.read_staged(self._table.feature.staging_folder, commit.file_name)
            except FileNotFoundError:
                if not self._log.in_checkpoint(commit.version):
                    yield self._finding(Severity.ERROR, "staged-missing", f"{commit.file_name} is ratified but missing")
                return
        if content is None:
            yield self._finding(Severity.ERROR, "inline-missing", f"the bytes of version {commit.version} are missing")
        elif hashlib.sha256(content).digest() != digest:
            yield self._finding(
                Severity.ERROR,
                "stored-altered",
                f"{name} is not the commit that was ratified as version {commit.version}; restore it from a backup",
            )

    def _listing(self) -> Iterator[Finding]:
        """Published versions: no gap, and none above the latest."""
        versions = sorted(self._published)
        for before, after in pairwise(versions):
            if after != before + 1:
                yield self._finding(
                    Severity.ERROR, "published-gap", f"published versions jump from {before} to {after}"
                )
        unknown = self._above_latest(versions)
        if unknown and self._table.state is TableState.ACTIVE and self._promise is None:
            yield self._finding(
                Severity.ERROR,
                "published-above-latest",
                f"versions {unknown[0]} to {unknown[-1]} are published, but the ledger's latest version is "
                f"{self._table.latest}; if an older ledger was restored, run repair --adopt-published, which records "
                "the files",
                repairable=True,
            )

    def _above_latest(self, versions: list[Version]) -> list[Version]:
        """The versions above the latest one as it is now: commits continue while verify runs."""
        with self._owner.ledger.read() as view:
            latest = self._owner.required(view, self._table.table_id).latest
        return [version for version in versions if latest is None or version > latest]

    def _state_of_table(self) -> Iterator[Finding]:
        if self._table.state is not TableState.ACTIVE:
            return
        if self._state is None:
            yield self._finding(Severity.ERROR, "no-protocol", "the ledger holds no protocol and metadata")
            return
        flaw = decide.table_flaw(self._table.feature, *self._state)
        if flaw is not None:
            yield self._finding(Severity.ERROR, flaw.reason.value, flaw.detail)

    def _staging_folder(self) -> Iterator[Finding]:
        orphans = list(orphaned(self._log, self._table, self._commits))
        if orphans:
            yield self._finding(
                Severity.NOTE,
                "orphaned-staged-files",
                _left_over(orphans, self._table.first_unbackfilled),
                repairable=any(path.modified < self._owner.now - ORPHAN_AGE_MS for path in orphans),
            )
        if self._table.latest is None:
            return
        following = [
            path
            for path in self._log.staged_listing(self._table.feature.staging_folder)
            if path.version > self._table.latest
        ]
        if following:
            yield self._finding(
                Severity.NOTE
                if max(path.version for path in following) == self._table.latest + 1
                else Severity.WARNING,
                "staged-above-latest",
                f"staged files follow the ledger's latest version {self._table.latest}: {len(following)}, such as "
                f"{following[-1].name}; either their writers still propose them, or the ledger lost its newest "
                f"transactions: if no writer runs, restore a newer {self._owner.ledger.path}",
            )


def another_table(log: LogStore, recorded: Collection[Version], state: tuple[Protocol, Metadata] | None) -> str | None:
    """A message, if the log is that of another table: after the restore of an older ledger, or of other files.

    The first recorded version has the metadata, whose id never changes while the table has this owner.
    """
    version = min(log.published_versions().intersection(recorded), default=None)
    if version is None or state is None:
        return None
    name = log_path.commit(version)
    try:
        parsed = actions.decode(log.read(name), source=name)
    except (CorruptLogError, FileNotFoundError):
        return None
    metadata = next((action for action in parsed if isinstance(action, Metadata)), None)
    if metadata is None or metadata.id == state[1].id:
        return None
    return (
        f"{log.location} holds another table: the id in its metadata is {metadata.id}, and the ledger expects "
        f"{state[1].id}; restore a newer backup of the ledger, or this table's files"
    )


def _left_over(orphans: Sequence[LogPath], first_unbackfilled: Version) -> str:
    one, kind = len(orphans) == 1, "published"
    if any(path.version >= first_unbackfilled for path in orphans):
        kind = "ratified"
    return (
        f"{len(orphans):,} staged {'file' if one else 'files'} ({sum(path.size for path in orphans):,} bytes) of "
        f"{f'a {kind} version is' if one else f'{kind} versions are'} left over; repair removes "
        f"{'it when it is' if one else 'them when they are'} 24 hours old (--older-than)"
    )


def commits_of(view: View, table: TableRecord) -> dict[Version, tuple[RatifiedCommit, bytes]]:
    """The commits that the ledger has, by version, with the digests of their bytes."""
    return {commit.version: (commit, digest) for commit, digest, _ in view.digests(table)}


def orphaned(
    log: LogStore, table: TableRecord, commits: dict[Version, tuple[RatifiedCommit, bytes]]
) -> Iterator[LogPath]:
    """Staged files that can never be read as a commit again: losers of a decided version, and published winners.

    Files for undecided versions are not included: they may be about to be proposed.
    """
    for path in log.staged_listing(table.feature.staging_folder):
        if table.latest is None or path.version > table.latest:
            continue
        entry = commits.get(path.version)
        needed = path.version >= table.first_unbackfilled and entry is not None and entry[0].file_name == path.name
        if not needed:
            yield path
