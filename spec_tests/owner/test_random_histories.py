"""Random histories of one table, with crashes and failing disks, against a model; and the order of `decide`'s rules.

The model is a list of the ratified bytes, and the outcome of each attempt. It applies to every feature and commit mode:
managed-commits and catalog-managed, "Commit Protocol"; managed-commits, "Commit Backfills"; catalog-managed,
"Publishing Commits".
"""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from refimpl.catalog.owner import Precondition, PreconditionFailed, UpdatePreconditions
from refimpl.owner import decide
from refimpl.owner.local import LocalOwner
from refimpl.owner.records import AttemptRecord, Examined, TableRecord
from refimpl.protocol import commits, log_path
from refimpl.protocol.commit_owner import Backfilled, MaintenancePolicy, TableState
from refimpl.protocol.errors import InvalidRequestError, OutcomeUnknown, OwnerUnavailableError
from refimpl.protocol.log_path import staged_commit
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode, TableFeature
from refimpl.served.catalog_requests import CatalogFacts, decide_request, etag_of
from spec_tests.support.builders import (
    FEATURES_AND_COMMIT_MODES,
    START,
    OwnedTable,
    append,
    create,
    metadata_of,
    new_attempt,
    protocol_of,
    refused,
)
from spec_tests.support.faults import Faults, crashed, disk_is_broken, disk_is_full, opened

LIMIT = 3
"""The maximum number of unbackfilled commits of the table."""


class History(RuleBasedStateMachine):
    """Two processes of an owner, a third process that dies or whose disk fails, and a client that publishes."""

    @initialize(pair=st.sampled_from(FEATURES_AND_COMMIT_MODES))
    def start(self, pair: tuple[TableFeature, CommitMode]) -> None:
        self.stack = ExitStack()
        self.place = Path(self.stack.enter_context(tempfile.TemporaryDirectory())) / "warehouse"
        self.opened = [self.stack.enter_context(opened(self.place)) for _ in range(2)]
        policy = MaintenancePolicy(backfill_every=None, backlog_limit=LIMIT)
        table = create(self.opened[0], *pair, policy=policy)
        self.tables = [table, table.through(self.opened[1])]
        self.contents = table.history()
        self.published = 0
        self.landed: dict[int, tuple[commits.AttemptId, commits.Proposal]] = {}
        self.resolved: list[tuple[int, commits.Proposal]] = []
        self.is_direct = pair[1] is CommitMode.DIRECT

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            self.stack.close()

    @property
    def latest(self) -> int:
        return max(self.contents)

    def record(self, version: int, proposal: commits.Proposal, content: bytes) -> None:
        self.contents[version] = content
        self.landed[version] = proposal.attempt, proposal
        if self.is_direct:
            self.published = version

    def table(self, process: int) -> OwnedTable:
        return self.tables[process]

    @rule(process=st.integers(0, 1), ahead=st.integers(-3, 3), resolve=st.booleans())
    def commit(self, process: int, ahead: int, resolve: bool) -> None:
        """Only the next version is ratified, and only if the backlog has room."""
        table, version = self.table(process), max(0, self.latest + 1 + ahead)
        content = append(START + 10 * self.latest + 10)
        proposal = table.propose(version, content)
        outcome = table.owner.commit(table.table_id, version, proposal)
        if version <= self.latest:
            assert isinstance(outcome, commits.Conflict)
            assert [won.version for won in outcome.winners] == list(range(version, self.latest + 1))
            assert all(self.landed[won.version][0] == won.attempt for won in outcome.winners if won.version)
            published = [won for won in outcome.winners if won.version <= self.published]
            assert all(won.content is won.file_name is None for won in published), "read `<v>.json`"
        elif version > self.latest + 1:
            assert isinstance(outcome, commits.VersionGap)
        elif self.latest - self.published >= LIMIT:
            assert isinstance(outcome, commits.Rejected)
            assert (outcome.reason, outcome.retryable) == (commits.RejectionReason.BACKLOG_FULL, True)
        else:
            assert isinstance(outcome, commits.Ratified)
            assert outcome.commit.version == version
            self.record(version, proposal, content)
        if isinstance(outcome, commits.Conflict | commits.VersionGap):
            assert outcome.latest_ratified_version == self.latest
        if resolve and not isinstance(outcome, commits.Ratified):
            assert table.owner.attempt_outcome(table.table_id, proposal.attempt) == commits.NotLanded()
            self.resolved.append((version, proposal))

    @precondition(lambda self: self.landed)
    @rule(process=st.integers(0, 1), data=st.data())
    def replay(self, process: int, data: st.DataObject) -> None:
        """A landed attempt gets the same answer again, but only for its own version and content."""
        table, version = self.table(process), data.draw(st.sampled_from(sorted(self.landed)))
        attempt, proposal = self.landed[version]
        outcome = table.owner.commit(table.table_id, version, proposal)
        assert isinstance(outcome, commits.Ratified)
        assert (outcome.commit.version, outcome.commit.attempt, outcome.replayed) == (version, attempt, True)
        assert table.owner.attempt_outcome(table.table_id, attempt) == commits.Landed(commit=outcome.commit)
        others = [self.latest + 1] if table.commit_mode is CommitMode.STAGED else [self.latest + 1, version]
        for other in others:
            reused = table.commit(other, append(START + 10 * self.latest + 10), attempt=attempt)
            refused(reused, commits.RejectionReason.ATTEMPT_REUSED)
            if table.commit_mode is CommitMode.STAGED:  # so that the next replay can stage it again
                table.log.delete(f"{table.feature.staging_folder}/{staged_commit(other, attempt)}")

    @precondition(lambda self: self.resolved)
    @rule(process=st.integers(0, 1), data=st.data())
    def delayed_request(self, process: int, data: st.DataObject) -> None:
        """An attempt that was resolved as not landed never lands."""
        table = self.table(process)
        version, proposal = data.draw(st.sampled_from(self.resolved))
        outcome = table.owner.commit(table.table_id, version, proposal)
        refused(outcome, commits.RejectionReason.ATTEMPT_RESOLVED)
        assert table.owner.attempt_outcome(table.table_id, proposal.attempt) == commits.NotLanded()

    @rule(process=st.integers(0, 1), version=st.none() | st.integers(0, 30))
    def backfill(self, process: int, version: int | None) -> None:
        table = self.table(process)
        if version is not None and version > self.latest:
            with pytest.raises(InvalidRequestError, match=f"the latest is {self.latest}"):
                table.owner.backfill_to_version(table.table_id, version)
            return
        through = max(self.published, self.latest if version is None else version)
        done = table.owner.backfill_to_version(table.table_id, version)
        assert done == Backfilled(through=through, published=through - self.published)
        self.published = through

    @rule(whole=st.booleans())
    def client_publishes(self, whole: bool) -> None:
        """catalog-managed, "Publishing Commits": clients may publish. A client may also die after it wrote a part of a
        file."""
        version = self.published + 1
        if version <= self.latest:
            content = self.contents[version]
            (self.table(0).log.folder / log_path.commit(version)).write_bytes(content if whole else content[:9])
            if not whole:
                self.backfill(0, version)

    @rule(start=st.integers(0, 30), length=st.none() | st.integers(0, 5))
    def get_commits(self, start: int, length: int | None) -> None:
        table, end = self.table(1), None if length is None else start + length
        answer = table.owner.get_commits(table.table_id, start, end)
        last = self.latest if end is None else min(end, self.latest)
        assert [commit.version for commit in answer.commits] == list(range(max(start, self.published + 1), last + 1))

    @rule(after=st.integers(0, 9), torn=st.booleans(), kind=st.sampled_from(["crash", "full", "broken"]))
    def interrupted_commit(self, after: int, torn: bool, kind: str) -> None:
        """An acknowledged commit is in the log; any other commit is there completely or not at all."""
        if self.latest - self.published >= LIMIT:
            return
        table, version = self.table(0), self.latest + 1
        content = append(START + 10 * self.latest + 10)
        proposal = table.propose(version, content)
        answer, error = self._interrupted(
            lambda owner: owner.commit(table.table_id, version, proposal), after, torn, kind
        )
        outcome = table.owner.attempt_outcome(table.table_id, proposal.attempt)
        if isinstance(answer, commits.Ratified):
            assert isinstance(outcome, commits.Landed)
        if isinstance(error, OwnerUnavailableError):
            assert outcome == commits.NotLanded()
        if isinstance(outcome, commits.Landed):
            self.record(version, proposal, content)
        else:
            self.resolved.append((version, proposal))

    @rule(after=st.integers(0, 15), torn=st.booleans(), kind=st.sampled_from(["crash", "full", "broken"]))
    def interrupted_backfill(self, after: int, torn: bool, kind: str) -> None:
        table = self.table(0)
        self._interrupted(lambda owner: owner.backfill_to_version(table.table_id), after, torn, kind)
        through = table.owner.backfill_to_version(table.table_id, 0).through
        assert through is not None
        assert through >= self.published
        self.published = through

    def _interrupted(
        self, act: Callable[[LocalOwner], object], after: int, torn: bool, kind: str
    ) -> tuple[object, Exception | None]:
        if kind == "crash":
            faults = Faults(crash_after=after, torn=torn)
        else:
            faults = Faults(
                fail_from=after + 1,
                fail_count=None if torn else 1,
                error=disk_is_full if kind == "full" else disk_is_broken,
            )
        try:
            return crashed(self.place, faults, lambda warehouse: act(warehouse.owner)), None
        except (OwnerUnavailableError, OutcomeUnknown) as error:
            return None, error

    @invariant()
    def every_process_answers_the_same_history(self) -> None:
        for table in getattr(self, "tables", ()):
            assert table.history() == self.contents
        if hasattr(self, "tables"):
            visible = self.tables[0].published()
            assert visible == list(range(len(visible)))
            assert visible[-1] >= self.published


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


# The order of the rules


ATTEMPT, OTHER = new_attempt(), new_attempt()
CURRENT = protocol_of(CATALOG_MANAGED), metadata_of(CATALOG_MANAGED)
FLAWS = {
    "attempt": ["landed", "reused", "resolved"],
    "table": [commits.RejectionReason.NOT_ACTIVE, commits.RejectionReason.HALTED],
    "version": [commits.Conflict, "unknown", commits.VersionGap],
    "report": ["beyond", "missing"],
    "etag": [Precondition.ETAG],
    "mode": [commits.RejectionReason.COMMIT_MODE_NOT_ALLOWED],
    "content": [commits.RejectionReason.MALFORMED_ACTIONS],
    "timestamp": [commits.RejectionReason.IN_COMMIT_TIMESTAMP],
    "feature": [commits.RejectionReason.OWNERSHIP_CHANGE],
    "claim": [Precondition.METADATA],
    "backlog": [commits.RejectionReason.BACKLOG_FULL],
}
"""The rules in the order in which `decide` checks them."""
EXPECTED = {
    "landed": commits.Ratified,
    "reused": commits.RejectionReason.ATTEMPT_REUSED,
    "resolved": commits.RejectionReason.ATTEMPT_RESOLVED,
    "unknown": commits.RejectionReason.HALTED,
    "beyond": Precondition.PUBLISHED,
    "missing": Precondition.PUBLISHED,
}


def kind_of(verdict: decide.Ratify | commits.Outcome | PreconditionFailed) -> object:
    match verdict:
        case commits.Rejected(reason=reason):
            return reason
        case PreconditionFailed(precondition=failed):
            return failed
        case decide.Ratify():
            return decide.Ratify
    return type(verdict)


@st.composite
def flawed(draw: st.DrawFn) -> dict[str, object]:
    """For each rule, a flaw or None. No rule before a random rule finds a flaw."""
    rules = list(FLAWS)
    first = draw(st.integers(0, len(rules)))
    return {
        rule: None if index < first else draw(st.sampled_from(FLAWS[rule] if index == first else [None, *FLAWS[rule]]))
        for index, rule in enumerate(rules)
    }


@given(flawed(), st.booleans())
def test_first_failing_rule_decides(flaws: dict[str, object], makes_room: bool) -> None:
    """For any combination of flaws. A valid report makes room in a full backlog."""
    latest = 5
    version = {commits.Conflict: latest, commits.VersionGap: latest + 2}.get(flaws["version"], latest + 1)  # type: ignore[call-overload]
    proposal: commits.Proposal = commits.StagedProposal(attempt=ATTEMPT, file_name=staged_commit(version, ATTEMPT))
    if flaws["mode"]:
        proposal = commits.InlineProposal(attempt=ATTEMPT, content=append(START + 9))
    examined = decide.examine(CATALOG_MANAGED, version, proposal, append(START if flaws["timestamp"] else START + 9))
    malformed = commits.Rejected(reason=commits.RejectionReason.MALFORMED_ACTIONS, detail="flawed")
    examined = msgspec.structs.replace(
        examined, flaw=malformed if flaws["content"] else None, protocol=protocol_of(None) if flaws["feature"] else None
    )
    table = TableRecord(
        table_id=OTHER,
        name="orders",
        location=Path("/warehouse/orders"),
        feature=CATALOG_MANAGED,
        commit_mode=CommitMode.STAGED,
        state=TableState.DROPPED if flaws["table"] is commits.RejectionReason.NOT_ACTIVE else TableState.ACTIVE,
        halted="damaged" if flaws["table"] is commits.RejectionReason.HALTED else None,
        policy=MaintenancePolicy(backlog_limit=2 if flaws["backlog"] else 99),
        latest=latest,
        backfilled=3,
        in_commit_timestamp=START + 5,
        created_at=START,
    )
    landed = ratified(version + (flaws["attempt"] == "reused"), examined)
    attempt = {
        None: None,
        "landed": AttemptRecord(landed=landed, digest=examined.digest),
        "reused": AttemptRecord(landed=landed, digest=examined.digest),
        "resolved": AttemptRecord(landed=None, digest=None),
    }[flaws["attempt"]]  # type: ignore[index]
    unknown = latest + 4 if flaws["version"] == "unknown" else None
    etag = "stale" if flaws["etag"] else etag_of(*CURRENT, {})
    facts = CatalogFacts(
        preconditions=UpdatePreconditions(
            etag=etag,
            published_through=latest + 1 if flaws["report"] == "beyond" else 4 if makes_room else None,
            size=1 if flaws["claim"] else len(examined.content),
        ),
        unpublished="4.json is missing" if flaws["report"] == "missing" else None,
    )
    wanted = [kind for rule in FLAWS if (kind := flaws[rule]) and not (rule == "backlog" and makes_room)]
    if flaws["backlog"] and makes_room and flaws["report"] == "beyond":
        wanted.append(commits.RejectionReason.BACKLOG_FULL)
    expected = EXPECTED.get(wanted[0], wanted[0]) if wanted else decide.Ratify  # type: ignore[call-overload]
    verdict = decide_request(table, examined, attempt, facts, unknown_published=unknown, current=CURRENT)
    assert kind_of(verdict) == expected


def ratified(version: int, examined: Examined) -> commits.RatifiedCommit:
    return commits.RatifiedCommit(
        version=version,
        attempt=ATTEMPT,
        commit_mode=CommitMode.STAGED,
        in_commit_timestamp=examined.in_commit_timestamp,
        size=len(examined.content),
        ratified_at=START,
    )
