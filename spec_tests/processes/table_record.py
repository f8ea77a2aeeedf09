"""The record of a storm's workers on one table, and the exact check of the table against it."""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec

import refimpl
from refimpl.protocol import actions, log_path
from refimpl.protocol.actions import Add
from refimpl.protocol.commit_owner import MaintenancePolicy, TableState
from refimpl.protocol.commits import Ratified, Rejected, RejectionReason
from refimpl.protocol.table_feature import CommitMode, TableFeature
from spec_tests.processes.worker import EXTERNAL, Note, attempt_of, digest_of
from spec_tests.support.builders import OwnedTable, owned


def count(counts: dict[str, int], what: str) -> None:
    counts[what] = counts.get(what, 0) + 1


class Summary(msgspec.Struct, kw_only=True):
    """The figures of a run. `violations` is empty if no commit was lost."""

    seed: int
    rounds: int = 0
    seconds: float = 0.0
    rounds_per_second: float = 0.0
    tables: int = 0
    attempts: int = 0
    acknowledged: int = 0
    refused: int = 0
    in_flight_landed: int = 0
    in_flight_not_landed: int = 0
    races_for_version_0: int = 0
    take_over_races: int = 0
    hand_backs: int = 0
    killed_from_outside: int = 0
    deaths_by_effect: dict[str, int] = {}
    failed_effects: int = 0
    """Effects, such as writes and syncs, that failed on purpose."""
    repairs: dict[str, int] = {}
    did: dict[str, int] = {}
    """The number of the workers' actions, by kind and result."""
    violations: list[str] = []

    def text(self) -> str:
        """The figures so far, as text."""
        deaths = self.killed_from_outside + sum(self.deaths_by_effect.values())
        return (
            f"{self.rounds} rounds, {deaths} processes killed, {self.failed_effects} effects failed, "
            f"{self.tables} tables, {self.take_over_races} take-over races, {self.hand_backs} hand-backs, "
            f"{self.attempts} attempts, {self.acknowledged} acknowledged, "
            f"{self.in_flight_landed + self.in_flight_not_landed} resolved, {len(self.violations)} violations"
        )


@dataclass
class TableLife:
    """One table of a storm, and the record of the workers' attempts on it."""

    number: int
    feature: TableFeature
    commit_mode: CommitMode
    policy: MaintenancePolicy
    existing: bool
    """Whether the table starts as a filesystem table."""
    attempts: "dict[str, Attempt]" = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    """Attempt -> the id of the table to which it was sent, if that is not the present id."""
    clients: set[str] = field(default_factory=set)
    """Attempts of clients. The client chooses the bytes, the version and the ids of its proposals itself."""
    proposals: dict[str, str] = field(default_factory=dict)
    """Attempt of a client -> its proposal with an unknown outcome."""
    without_files: set[str] = field(default_factory=set)
    """Attempts that add no file: creations, take-overs and hand-backs."""
    cleaned: bool = False
    """Whether the log may have been cleaned up."""
    staged: dict[str, str] = field(default_factory=dict)
    """Attempt at version 0 -> the id of the table that it would create."""
    resolved: dict[str, bool] = field(default_factory=dict)
    seen: dict[int, str] = field(default_factory=dict)
    table_id: str | None = None
    violated: bool = False

    @property
    def name(self) -> str:
        return f"t{self.number}"

    def noted(self, note: Note, summary: Summary) -> Iterator[str]:
        """Record a worker's note, and yield the violations that it proves."""
        match note.what:
            case "try":
                self.attempts[note.attempt] = Attempt(note.attempt, note.version, note.digest)
                if not note.digest:
                    self.clients.add(note.attempt)
                if note.text:
                    self.staged[note.attempt] = note.text
                summary.attempts += 1
            case "ratified" | "registered":
                attempt = self.attempts[note.attempt]
                attempt.answer = Answer.RATIFIED
                attempt.version = max(attempt.version, note.version)
                summary.acknowledged += 1
            case "refused":
                self.attempts[note.attempt].answer = Answer.REFUSED
                summary.refused += 1
            case "unknown":
                if note.text:
                    self.proposals[note.attempt] = note.text
                count(summary.did, "outcome unknown")
            case "resolved":
                if self.resolved.setdefault(note.attempt, note.landed) != note.landed:
                    yield f"attempt {note.attempt} was resolved both ways"
            case "did":
                count(summary.did, note.text)
            case "done":
                summary.failed_effects += int(note.text)
            case "dying":
                effect = re.sub(r"(t?\d+|storm)(?=\.json|/)", "#", note.text)
                count(summary.deaths_by_effect, effect)
            case "bug":
                yield f"a worker: {note.text}"

    def violations(self, warehouse: refimpl.Warehouse, choices: random.Random) -> list[str]:
        """The violations of the table now, one sentence each. Proposes some random attempts again."""
        assert self.table_id is not None
        table = owned(warehouse, self.table_id)
        for attempt, landed in self.resolved.items():
            if attempt in self.attempts:
                self.attempts[attempt].resolved = landed
        contents = table.history()
        if warehouse.owner.resolve(self.table_id).state is TableState.HANDED_BACK:  # clients continue without an owner
            contents |= {v: table.log.read(log_path.commit(v)) for v in table.published() if v not in contents}
        sentences = list(self._identified(contents))
        history = self._remembered(min(contents)) | {v: digest_of(content) for v, content in contents.items()}
        published = [*range(min(contents)), *table.published()]
        sentences += violations(history, published, self.attempts, self.seen)
        sentences += self._replays(table, contents, choices)
        sentences += self._files(warehouse)
        halted = warehouse.owner.resolve(self.table_id).halted
        if halted is not None:
            sentences.append(f"halted: {halted}")
        self.seen = history
        return sentences

    def _identified(self, contents: dict[int, bytes]) -> Iterator[str]:
        """Find the commits of clients by the names of their files, because clients choose version and bytes
        themselves."""
        clients = {record.attempt: record for record in self.attempts.values() if not record.digest}  # not found yet
        versions: dict[str, int] = {}
        for version, content in contents.items():
            if version in self.seen:
                continue
            for action in actions.decode(content, source=str(version)):
                record = clients.get(attempt_of(action.path)) if isinstance(action, Add) else None
                if record is None:
                    continue
                attempt = record.attempt
                if attempt in versions:
                    yield f"the transaction {attempt} is version {versions[attempt]} and version {version}"
                versions[attempt] = version
                record.digest = digest_of(content)
                if record.answer is not Answer.RATIFIED:
                    record.version = version
        for client in clients.values():
            if client.answer is Answer.IN_FLIGHT and client.resolved is None:
                client.resolved = client.attempt in versions

    def _remembered(self, first: int) -> dict[int, str]:
        """The versions that a cleanup removed: their bytes as seen before, otherwise those that were acknowledged."""
        if first and not self.cleaned:
            return {}
        landed = {
            attempt.version: attempt.digest
            for attempt in self.attempts.values()
            if attempt.answer is Answer.RATIFIED or attempt.resolved
        }
        return {v: self.seen.get(v) or landed[v] for v in range(first) if v in self.seen or v in landed}

    def _files(self, warehouse: refimpl.Warehouse) -> Iterator[str]:
        """The newest snapshot, read from a checkpoint if there is one, must have exactly the files of landed
        attempts."""
        assert self.table_id is not None
        files = warehouse.table(self.table_id).snapshot().files.values()
        there = {attempt_of(add.path) for add in files if not add.path.startswith("part-")}
        landed = {
            record.attempt
            for record in self.attempts.values()
            if (record.answer is Answer.RATIFIED or record.resolved) and record.attempt not in self.without_files
        }
        for attempt in sorted(there ^ landed):
            where = "in the snapshot, and did not land" if attempt in there else "missing in the snapshot, and landed"
            yield f"the files of attempt {attempt} are {where}"

    def _replays(self, table: OwnedTable, contents: dict[int, bytes], choices: random.Random) -> Iterator[str]:
        """A replay of a landed attempt must be ratified; an attempt that was resolved as not landed must be
        rejected."""
        others = self.clients | self.asked.keys()
        known = [t for t in self.attempts.values() if t.attempt not in others and not t.attempt.startswith(EXTERNAL)]
        for record in choices.sample(known, min(2, len(known))):
            content = contents.get(record.version, b"")
            landed = digest_of(content) == record.digest
            if record.version == 0 or (not landed and record.resolved is not False):
                continue
            proposal = table.propose(
                record.version, content or b"{}\n", attempt=record.attempt, commit_mode=CommitMode.DIRECT
            )
            outcome = table.owner.commit(table.table_id, record.version, proposal)
            if landed and not (isinstance(outcome, Ratified) and outcome.replayed):
                yield f"the replay of {record.attempt}, which is version {record.version}, was answered {outcome}"
            refused = isinstance(outcome, Rejected) and outcome.reason is RejectionReason.ATTEMPT_RESOLVED
            if not landed and not refused:
                yield f"{record.attempt} was resolved as never to land, and was answered {outcome}"


Digest = str


class Answer(Enum):
    """The known answer to an attempt."""

    IN_FLIGHT = "in flight"
    """Sent, but the process died, or the outcome was reported as unknown."""
    RATIFIED = "ratified"
    REFUSED = "refused"
    """A conflict, a gap, a rejection, or "owner unavailable": it did not land."""


@dataclass(slots=True)
class Attempt:
    """One attempt to make one version."""

    attempt: str
    version: int
    digest: Digest
    answer: Answer = Answer.IN_FLIGHT
    resolved: bool | None = None
    """The last resolution: landed (True) or not (False); None: no client asked."""


def violations(
    history: Mapping[int, Digest],
    published: Sequence[int],
    attempts: Mapping[str, Attempt],
    before: Mapping[int, Digest],
) -> Iterator[str]:
    """The violations, one sentence each.

    `history`: the bytes of every version, as a reader gets them. `published`: the versions visible as `<v>.json`,
    ascending. `before`: the history as seen earlier.
    """
    versions = sorted(history)
    if versions != list(range(len(versions))):
        yield f"the versions are not contiguous: {versions}"
    if list(published) != versions[: len(published)]:
        yield f"the published versions {list(published)} are no prefix of {versions}"
    for version, digest in before.items():
        if history.get(version) != digest:
            yield f"version {version} was {digest[:8]}, but now is {history.get(version, 'gone')[:8]}"
    owners: dict[Digest, int] = {}
    for version, digest in history.items():
        if digest in owners:
            yield f"versions {owners[digest]} and {version} have the same bytes: an attempt landed twice"
        owners[digest] = version
    proposed = {attempt.digest for attempt in attempts.values()}
    for version, digest in history.items():
        if digest not in proposed:
            yield f"no attempt has the bytes of version {version}"
    for record in attempts.values():
        yield from _about(record, history, owners.get(record.digest))


def _about(record: Attempt, history: Mapping[int, Digest], landed_at: int | None) -> Iterator[str]:
    label = f"attempt {record.attempt} for version {record.version}"
    if landed_at is not None and landed_at != record.version:
        yield f"{label} is version {landed_at}"
    landed = history.get(record.version) == record.digest
    if record.answer is Answer.RATIFIED and not landed:
        yield f"{label} was acknowledged, but is not in the log"
    if record.answer is Answer.REFUSED and landed:
        yield f"{label} was rejected, but is in the log"
    if record.resolved is True and not landed:
        yield f"{label} was resolved as landed, but is not in the log"
    if record.resolved is False and landed:
        yield f"{label} was resolved as not landed, but is in the log"
    if record.answer is Answer.IN_FLIGHT and record.resolved is None:
        yield f"no resolution of {label}"
