"""A history as columns of integers, so that a history of millions of operations fits in memory.

For each table, one group of rows per kind of observation, in the order in which operations ended. An attempt is an
index; versions, times and operation numbers are those of the history. Facts that many answers repeat (the attempt and
the content of a version) are stored once, with the first operation that showed them, and a `Clash` for each different
one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from conformance.history import events
from conformance.history.events import Content, Entry, FileLook, Header, InvalidHistoryError, Promise, Unseen, Witness
from conformance.history.operations import Item, Operation

NO_LATEST: Final = -2
"""Instead of a latest version: the answer makes no claim."""
ANY_VERSION: Final = -1
"""Instead of a proposed version: a client's transaction, which has no fixed version."""
NO_ATTEMPT: Final = -1
"""Instead of an attempt: a version from before the history, of an unknown attempt, or an answer about no attempt."""
MOST_CLASHES: Final = 100
"""The limit per table, so that an owner with many different answers does not fill the memory."""


class Rows:
    """One kind of observation. Columns that a kind does not use have `NO_ATTEMPT` or `NO_LATEST`."""

    __slots__ = ("answered", "attempt", "id", "invoked", "latest", "version")

    def __init__(self) -> None:
        self.id = array("q")
        self.version = array("q")
        self.invoked = array("q")
        self.answered = array("q")
        self.attempt = array("q")
        self.latest = array("q")

    def add(
        self, number: int, version: int, invoked: int, answered: int, attempt: int = NO_ATTEMPT, latest: int = NO_LATEST
    ) -> None:
        self.id.append(number)
        self.version.append(version)
        self.invoked.append(invoked)
        self.answered.append(answered)
        self.attempt.append(attempt)
        self.latest.append(latest)

    def __len__(self) -> int:
        return len(self.id)


class Clash(NamedTuple):
    """Two operations name different contents of one version. `field`: `attempt`, `bytes` or `actions`."""

    version: int
    field: str
    first: int
    first_value: str
    second: int
    second_value: str


class Misplaced(NamedTuple):
    """An answer that contradicts its own request."""

    id: int
    version: int
    returned: int


class Sighting(NamedTuple):
    value: str
    id: int


class TableColumns:
    """All observations of one table."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.attempts: dict[str, int] = {}
        self.attempt_names: list[str] = []
        # Proposals by their answers; a client's committed transaction is a ratified proposal.
        self.ratified = Rows()
        self.unknown = Rows()
        self.conflicts = Rows()
        self.gaps = Rows()
        self.refused = Rows()
        """Other rejections: they contain no facts about the log, but an attempt without another answer did not land."""
        self.elsewhere: list[Misplaced] = []
        self.landed = Rows()
        self.not_landed = Rows()
        # Reads: `version` is the latest one returned.
        self.fresh = Rows()
        self.stale = Rows()
        self.listed = Rows()
        """The highest version that an answer listed, if the returned latest version does not bound it."""
        self.beyond_latest: list[Misplaced] = []
        # Publication.
        self.visible = Rows()
        self.absent = Rows()
        self.omitted = Rows()
        self.backfilled = Rows()
        self.path_reads = Rows()
        self.handed_back = Rows()
        self.checkpoints = Rows()
        self.first_cleanup: int | None = None
        # The final log, from version `base` on.
        self.base = 0
        self.log = array("q")
        self.before = 0
        """The number of versions that existed before the history."""
        self.direct: set[int] = set()
        self.unseen: Unseen | None = None
        """Why the final log is missing; then the log is inferred from the answers."""
        self.missing: int | None = None
        """A version that the final log lacks, although it has later ones."""
        # The attempts and contents of versions.
        self.identities: dict[int, tuple[int, int]] = {}
        self.contents: dict[tuple[int, str], Sighting] = {}
        self.log_contents: dict[int, Content] = {}
        self.proposed: dict[int, list[tuple[Content, int]]] = {}
        self.clashes: list[Clash] = []

    @property
    def end(self) -> int:
        """The version after the last of the final log."""
        return self.base + len(self.log)

    def attempt(self, name: str) -> int:
        index = self.attempts.get(name)
        if index is None:
            index = self.attempts[name] = len(self.attempt_names)
            self.attempt_names.append(name)
        return index

    def clash(self, clash: Clash) -> None:
        if len(self.clashes) < MOST_CLASHES:
            self.clashes.append(clash)


class HistoryColumns:
    """All tables of a history, and the facts of its header."""

    def __init__(self, items: Iterable[Item]) -> None:
        """Read the whole history. Raises `InvalidHistoryError`."""
        self.tables: dict[str, TableColumns] = {}
        self.operations = 0
        header: Header | None = None
        for item in items:
            if isinstance(item, Operation):
                self.operations += 1
                table = self._table(item.table)
                if not isinstance(item.request, events.Other):
                    _PLACE[type(item.request)](self, table, item)
            elif isinstance(item, Witness):
                _place_witness(self._table(item.table), item)
            elif isinstance(item, FileLook):
                self.operations += 1
                _place_look(self._table(item.table), item)
            elif isinstance(item, Unseen):
                self._table(item.table).unseen = item
            elif isinstance(item, Header):
                header = item
                self.minus_one_claims = item.feature == "catalogManaged"
                self.fresh_refusals = Promise.FRESH_REFUSALS in item.promises
                self.fresh_snapshots = self.minus_one_claims or Promise.FRESH_SNAPSHOTS in item.promises
        if header is None:
            raise InvalidHistoryError("it is empty")
        self.header = header

    def _table(self, name: str) -> TableColumns:
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = TableColumns(name)
        return table

    def latest_read(self, latest: int | None) -> int:
        """The claim of a read by its `latest`. managed-commits, sample API: -1 only means that the owner never accepted
        an unbackfilled commit."""
        if latest is None or latest == -1:
            return -1 if self.minus_one_claims else NO_LATEST
        return latest

    def latest_refused(self, latest: int | None) -> int:
        """The claim of a rejection by its `latest`; without the field it makes none."""
        return NO_LATEST if latest is None else self.latest_read(latest)


def _place_proposal(history: HistoryColumns, table: TableColumns, op: Operation) -> None:
    request = op.request
    assert isinstance(request, (events.Commit, events.CreateTable, events.TakeOver, events.HandBack, events.Transact))
    attempt = table.attempt(request.attempt)
    if request.content is not None:
        _propose(table, attempt, request.content, op.id)
    version = ANY_VERSION if isinstance(request, events.Transact) else getattr(request, "version", 0)
    answer, answered = op.answer, op.answered
    if answered is None or isinstance(answer, events.Unknown):
        table.unknown.add(op.id, version, op.invoked, 0, attempt)
    elif isinstance(answer, (events.Ratified, events.Committed)):
        table.ratified.add(op.id, answer.version, op.invoked, answered, attempt)
        if version not in (ANY_VERSION, answer.version):
            table.elsewhere.append(Misplaced(op.id, version, answer.version))
        if isinstance(request, events.HandBack) and answer.version > 0:
            table.handed_back.add(op.id, answer.version - 1, op.invoked, answered)
    elif isinstance(answer, events.Conflict):
        latest = history.latest_refused(answer.latest)
        if version == ANY_VERSION:  # the transaction lost to a writer at an unknown version
            table.refused.add(op.id, version, op.invoked, answered, attempt)
            if latest > -1:
                table.listed.add(op.id, latest, op.invoked, answered, attempt)
        else:
            table.conflicts.add(op.id, version, op.invoked, answered, attempt, latest)
        if answer.winners:
            highest = _place_entries(table, answer.winners, op.id)
            table.listed.add(op.id, highest, op.invoked, answered, attempt)
            if history.fresh_refusals and version != ANY_VERSION and NO_LATEST < latest < highest:
                table.beyond_latest.append(Misplaced(op.id, highest, latest))
    elif isinstance(answer, events.Gap):
        table.gaps.add(op.id, version, op.invoked, answered, attempt, history.latest_refused(answer.latest))
    else:
        table.refused.add(op.id, version, op.invoked, answered, attempt)


def _place_outcome(_: HistoryColumns, table: TableColumns, op: Operation) -> None:
    assert isinstance(op.request, events.AttemptOutcome)
    if isinstance(op.answer, events.Landed) and op.answered is not None:
        attempt = table.attempt(op.request.attempt)
        table.landed.add(op.id, op.answer.version, op.invoked, op.answered, attempt)
    elif isinstance(op.answer, events.NotLanded) and op.answered is not None:
        table.not_landed.add(op.id, 0, op.invoked, op.answered, table.attempt(op.request.attempt))


def _place_read(history: HistoryColumns, table: TableColumns, op: Operation) -> None:
    answer, answered = op.answer, op.answered
    if answered is None or not isinstance(answer, (events.Commits, events.Table)):
        return
    latest = history.latest_read(answer.latest)
    if latest != NO_LATEST:
        table.fresh.add(op.id, latest, op.invoked, answered)
    if answer.commits is None:
        return
    highest = _place_entries(table, answer.commits, op.id)
    if highest > latest:
        table.listed.add(op.id, highest, op.invoked, answered)
        if latest != NO_LATEST:
            table.beyond_latest.append(Misplaced(op.id, highest, latest))
    start = end = None
    if isinstance(op.request, events.GetCommits):
        start, end = op.request.start, op.request.end
    omitted = _last_omitted(answer.commits, start or 0, latest if end is None else min(end, latest))
    if omitted is not None:
        table.omitted.add(op.id, omitted, op.invoked, answered)


def _last_omitted(commits: tuple[Entry, ...], start: int, end: int) -> int | None:
    """The highest version in start..end that is not listed; if it is published, so are all lower ones."""
    listed = {entry.version for entry in commits}
    while end in listed:
        end -= 1
    return end if end >= start else None


def _place_snapshot(history: HistoryColumns, table: TableColumns, op: Operation) -> None:
    answer, request, answered = op.answer, op.request, op.answered
    if answered is None or not isinstance(answer, events.SnapshotRead) or not isinstance(request, events.Snapshot):
        return
    pinned = request.version is not None or request.timestamp is not None
    may_be_stale = pinned or answer.stale or request.by_path or not history.fresh_snapshots
    rows = table.stale if may_be_stale else table.fresh
    rows.add(op.id, answer.version, op.invoked, answered)
    if request.by_path:
        table.path_reads.add(op.id, answer.version, op.invoked, answered)


def _place_publication(_: HistoryColumns, table: TableColumns, op: Operation) -> None:
    if op.answered is not None and isinstance(op.answer, events.Done):
        assert isinstance(op.request, (events.BackfillToVersion, events.Checkpoint))
        rows = table.checkpoints if isinstance(op.request, events.Checkpoint) else table.backfilled
        rows.add(op.id, op.request.version, op.invoked, op.answered)


def _place_cleanup(_: HistoryColumns, table: TableColumns, op: Operation) -> None:
    if table.first_cleanup is None or op.invoked < table.first_cleanup:
        table.first_cleanup = op.invoked


_PLACE: Final = {
    events.Commit: _place_proposal,
    events.CreateTable: _place_proposal,
    events.TakeOver: _place_proposal,
    events.HandBack: _place_proposal,
    events.Transact: _place_proposal,
    events.AttemptOutcome: _place_outcome,
    events.GetCommits: _place_read,
    events.LoadTable: _place_read,
    events.Snapshot: _place_snapshot,
    events.BackfillToVersion: _place_publication,
    events.Checkpoint: _place_publication,
    events.Cleanup: _place_cleanup,
}


def _place_look(table: TableColumns, look: FileLook) -> None:
    if look.published:
        highest = max(file.version for file in look.published)
        table.visible.add(look.id, highest, look.since, look.at)
        for file in look.published:
            if file.content is not None:
                _record_content(table, file.version, file.content, look.id)
    if look.absent:
        table.absent.add(look.id, min(look.absent), look.since, look.at)


def _place_witness(table: TableColumns, witness: Witness) -> None:
    if not table.log:
        table.base = witness.version
        if witness.version > 0 and not witness.before:
            table.missing = 0
    elif witness.version != table.end and table.missing is None:
        table.missing = table.end
    table.log.append(NO_ATTEMPT if witness.attempt is None else table.attempt(witness.attempt))
    if witness.before:
        table.before += 1
    if witness.commit_mode == "direct" or witness.commit_mode == "ownership":
        table.direct.add(witness.version)
    if witness.content is not None:
        table.log_contents[witness.version] = witness.content


def _place_entries(table: TableColumns, entries: Iterable[Entry], number: int) -> int:
    """Place the listed commits. Returns the highest version among them; -1 if there are none."""
    highest = -1
    identities = table.identities
    for entry in entries:
        version = entry.version
        if version > highest:
            highest = version
        if entry.attempt is not None:
            attempt = table.attempt(entry.attempt)
            first = identities.get(version)
            if first is None:
                identities[version] = (attempt, number)
            elif first[0] != attempt:
                known = table.attempt_names[first[0]]
                table.clash(Clash(version, "attempt", first[1], known, number, entry.attempt))
        if entry.content is not None:
            _record_content(table, version, entry.content, number)
    return highest


def _record_content(table: TableColumns, version: int, content: Content, number: int) -> None:
    for field, value in (("bytes", content.bytes), ("actions", content.actions)):
        if value is None:
            continue
        first = table.contents.setdefault((version, field), Sighting(value, number))
        if first.value != value:
            table.clash(Clash(version, field, first.id, first.value, number, value))


def _propose(table: TableColumns, attempt: int, content: Content, number: int) -> None:
    known = table.proposed.setdefault(attempt, [])
    if all(content != other for other, _ in known):
        known.append((content, number))


def infer_log(table: TableColumns) -> None:
    """Fill the log of a table whose final log could not be read, as far as the answers show it.

    Every possible final log has each ratified attempt at the version of its answer; otherwise the answer is a
    violation. So these answers, and then all others that name the attempt of a version, give the log. A version whose
    attempt no answer names may be any attempt, and the log is not longer than the number of attempts that can have
    landed. The checkers then find only contradictions to every possible final log. LOG_CHECKER.md#unseen
    """
    assert table.unseen is not None
    table.before = table.unseen.before
    attempts: dict[int, int] = {}
    for rows in (table.ratified, table.landed):
        for version, attempt in zip(rows.version, rows.attempt, strict=True):
            attempts.setdefault(version, attempt)
    for version, (attempt, _) in table.identities.items():
        attempts.setdefault(version, attempt)
    claimed = max((max(versions, default=-1) for versions in _claims(table)), default=-1)
    longest = table.before + len({*table.ratified.attempt, *table.unknown.attempt})
    length = min(longest, max(table.before, claimed + 1))
    known = (attempts.get(version, NO_ATTEMPT) for version in range(table.before, length))
    table.log = array("q", [*[NO_ATTEMPT] * table.before, *known])


def _claims(table: TableColumns) -> list[array[int]]:
    """Versions that an answer or a file shows to exist."""
    rows = (
        table.ratified, table.landed, table.conflicts, table.fresh, table.stale, table.listed, table.visible,
        table.path_reads, table.handed_back, table.checkpoints,
    )  # fmt: skip
    return [*(row.version for row in rows), table.conflicts.latest, table.gaps.latest]
