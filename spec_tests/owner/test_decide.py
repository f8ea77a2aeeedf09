"""The rules for commits: managed-commits and catalog-managed, "Commit Protocol"; in-commit timestamps, "Enablement".

A rejected proposal leaves the table unchanged. Each one has a twin that differs in one thing and lands.
"""

import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refimpl
from refimpl.catalog.owner import Precondition, PreconditionFailed, UpdatePreconditions
from refimpl.owner import decide, records
from refimpl.owner.records import AttemptRecord, Examined, TableRecord
from refimpl.protocol import actions, commits, log_path
from refimpl.protocol.actions import Action, Metadata, Protocol
from refimpl.protocol.commit_owner import MAX_BACKLOG_LIMIT, MaintenancePolicy, Registered, TableState
from refimpl.protocol.commits import (
    Conflict,
    DirectProposal,
    InlineProposal,
    Landed,
    NotLanded,
    Ratified,
    Rejected,
    RejectionReason,
)
from refimpl.protocol.errors import CorruptionError, InvalidRequestError
from refimpl.protocol.log_path import staged_commit
from refimpl.protocol.table_feature import (
    CATALOG_MANAGED,
    IN_COMMIT_TIMESTAMP_PROPERTY,
    MANAGED_COMMIT,
    CommitMode,
    TableFeature,
)
from refimpl.served.catalog_requests import CatalogFacts, decide_request, etag_of, has_lost
from refimpl.storage.environment import Environment
from spec_tests.support.builders import (
    START,
    OwnedTable,
    addition,
    append,
    create,
    first_version,
    info,
    metadata_of,
    new_attempt,
    protocol_of,
    refused,
)
from spec_tests.support.faults import FailingFiles, Others

ID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"

# The version


def test_the_winners_of_a_conflict_are_bounded(warehouse: refimpl.Warehouse) -> None:
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=105)
    outcome = table.commit(2, append(START + 500))
    assert isinstance(outcome, Conflict)
    assert [w.version for w in outcome.winners] == list(range(2, 102))
    assert outcome.latest_ratified_version == 105


@pytest.mark.parametrize(
    ("change", "version", "lost"),
    [({}, 1, True), ({}, 2, False), ({"halted": "why"}, 1, False), ({"promised": True}, 1, False)],
)
def test_only_a_settled_table_says_early_that_an_attempt_lost(
    warehouse: refimpl.Warehouse, change: dict[str, object], version: int, lost: bool
) -> None:
    """Without the lock; any other table may have to give another answer."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
    with warehouse.owner.ledger.read() as view:
        record = view.table(table.table_id)
    assert record is not None
    assert has_lost(msgspec.structs.replace(record, **change), version, None) is lost


# The request: names and attempts


@pytest.mark.parametrize("attempt", ["", "attempt-1", "../../x", "A" * 36, str.upper(ID), f"{ID}x", f"{ID}\n"])
def test_an_attempt_id_is_a_lower_case_uuid(warehouse: refimpl.Warehouse, attempt: str) -> None:
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
    bad = InlineProposal(attempt=attempt, content=append(START + 1))
    refused(table.owner.commit(table.table_id, 1, bad), RejectionReason.BAD_FILE_NAME)
    with pytest.raises(InvalidRequestError):
        table.owner.attempt_outcome(table.table_id, attempt)
    assert table.latest == 0
    assert isinstance(table.commit(1, attempt=ID), Ratified)


# The content


def lines(*given: Action) -> bytes:
    return actions.encode(given)


R = RejectionReason
FLAWS: dict[str, tuple[RejectionReason, bytes]] = {
    "empty": (R.MALFORMED_ACTIONS, b""),
    "blank": (R.MALFORMED_ACTIONS, b"\n\n"),
    "no JSON": (R.MALFORMED_ACTIONS, append(START + 1) + b"{"),
    "not UTF-8": (R.MALFORMED_ACTIONS, append(START + 1) + b'{"x":"\xff"}'),
    "an incomplete action": (R.MALFORMED_ACTIONS, append(START + 1) + b'{"add":{"path":"x"}}'),
    "two actions in a line": (R.MALFORMED_ACTIONS, append(START + 1) + lines(addition())[:-1] + lines(addition())),
    "two commitInfo": (R.MALFORMED_ACTIONS, lines(info(START + 1), info(START + 2))),
    "two protocols": (R.MALFORMED_ACTIONS, lines(info(START + 1), *[protocol_of(CATALOG_MANAGED)] * 2)),
    "two metaData": (R.MALFORMED_ACTIONS, lines(info(START + 1), *[metadata_of(CATALOG_MANAGED)] * 2)),
    "no commitInfo": (R.COMMIT_INFO_NOT_FIRST, lines(addition())),
    "late commitInfo": (R.COMMIT_INFO_NOT_FIRST, lines(addition(), info(START + 1))),
    "commitInfo after an unknown action": (R.COMMIT_INFO_NOT_FIRST, b'{"futureAction":{}}\n' + append(START + 1)),
    "commitInfo after a null one": (R.COMMIT_INFO_NOT_FIRST, b'{"commitInfo":null}\n' + append(START + 1)),
    "only an unknown action": (R.COMMIT_INFO_NOT_FIRST, b'{"futureAction":{}}\n'),
    "no timestamp": (R.IN_COMMIT_TIMESTAMP, lines(info(START, inCommitTimestamp=None))),
    "timestamp as text": (R.IN_COMMIT_TIMESTAMP, lines(info(START, inCommitTimestamp="1001"))),
    "timestamp as boolean": (R.IN_COMMIT_TIMESTAMP, lines(info(START, inCommitTimestamp=True))),
    "timestamp beyond a long": (R.IN_COMMIT_TIMESTAMP, append(2**63)),
    "negative timestamp": (R.IN_COMMIT_TIMESTAMP, append(-1)),
    "same timestamp": (R.IN_COMMIT_TIMESTAMP, append(START)),
    "earlier timestamp": (R.IN_COMMIT_TIMESTAMP, append(START - 1)),
}


@pytest.mark.parametrize(("reason", "content"), FLAWS.values(), ids=FLAWS.keys())
def test_invalid_content_is_rejected_and_changes_nothing(
    table: OwnedTable, reason: RejectionReason, content: bytes
) -> None:
    before = table.history()
    refused(table.commit(1, content), reason)
    assert table.history() == before
    assert table.published() == [0]
    assert isinstance(table.commit(1, append(START + 1)), Ratified)


def test_the_largest_timestamp_lands_and_is_the_last(table: OwnedTable) -> None:
    assert isinstance(table.commit(1, append(2**63 - 1)), Ratified)
    refused(table.commit(2, append(2**63)), RejectionReason.IN_COMMIT_TIMESTAMP)
    assert table.latest == 1


@pytest.mark.parametrize("value", [None, "", 7])
@pytest.mark.parametrize("feature", [MANAGED_COMMIT, CATALOG_MANAGED], ids=lambda feature: feature.name)
def test_only_catalog_managed_commits_need_a_transaction_id(
    warehouse: refimpl.Warehouse, feature: TableFeature, value: object
) -> None:
    """catalog-managed, "Commit Provenance Information"."""
    table = create(warehouse, feature, CommitMode.STAGED)
    outcome = table.commit(1, lines(info(START + 1, txnId=value)))
    if feature is CATALOG_MANAGED:
        refused(outcome, RejectionReason.TXN_ID_MISSING)
        outcome = table.commit(1, lines(info(START + 1, txnId="x")))
    assert isinstance(outcome, Ratified)


@pytest.mark.parametrize("commit_mode", [CommitMode.INLINE, CommitMode.STAGED])
def test_a_commit_has_a_size_limit(
    warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch, commit_mode: CommitMode
) -> None:
    """The ledger stores inline commits, and every reader gets them. The owner reads other commits as a whole."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
    content = append(START + 1, lines=10)
    limit = (records, "MAX_INLINE_BYTES") if commit_mode is CommitMode.INLINE else (commits, "MAX_COMMIT_BYTES")
    monkeypatch.setattr(*limit, len(content) - 1)
    proposal = table.propose(1, content, commit_mode=commit_mode)
    refused(table.owner.commit(table.table_id, 1, proposal), RejectionReason.TOO_LARGE)
    assert table.latest == 0
    monkeypatch.setattr(*limit, len(content))
    assert isinstance(table.owner.commit(table.table_id, 1, proposal), Ratified)


# The table


def changed(feature: TableFeature, *, protocol: Protocol | None = None, metadata: Metadata | None = None) -> bytes:
    content: list[Action] = [info(START + 1)]
    content += [action for action in (protocol, metadata) if action is not None]
    return actions.encode(content)


def configured(feature: TableFeature, **changes: str | None) -> Metadata:
    properties = {
        "timestamps": IN_COMMIT_TIMESTAMP_PROPERTY,
        "owner": feature.owner_property or "",
        "conf": feature.owner_conf_property or "",
    }
    configuration = dict(metadata_of(feature).configuration)
    for name, value in changes.items():
        if value is None:
            del configuration[properties[name]]
        else:
            configuration[properties[name]] = value
    return msgspec.structs.replace(metadata_of(feature), configuration=configuration)


@pytest.mark.parametrize("owner", [None, "another-owner", ""])
def test_a_commit_cannot_change_the_owner(warehouse: refimpl.Warehouse, owner: str | None) -> None:
    """managed-commits, "Managed Commit Enablement"; FB22."""
    table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED)
    content = changed(MANAGED_COMMIT, metadata=configured(MANAGED_COMMIT, owner=owner))
    refused(table.commit(1, content), RejectionReason.OWNERSHIP_CHANGE)
    assert isinstance(table.commit(1, changed(MANAGED_COMMIT, metadata=configured(MANAGED_COMMIT))), Ratified)


def test_in_commit_timestamps_cannot_be_turned_off(table: OwnedTable) -> None:
    """managed-commits and catalog-managed, "Writer Requirements": the feature and its property stay."""
    for content in (
        changed(table.feature, metadata=configured(table.feature, timestamps=None)),
        changed(table.feature, metadata=configured(table.feature, timestamps="false")),
        changed(table.feature, protocol=protocol_of(table.feature, in_commit_timestamps=False)),
    ):
        refused(table.commit(1, content), RejectionReason.INCONSISTENT_TABLE)
    assert table.latest == 0
    table.land()


SECRETS = [
    "password",
    "PASSWORD",
    "db.Password",
    "fs.s3a.access.key",
    "fs.s3a.secret.key",
    "AWS_SECRET_ACCESS_KEY",
    "awsSessionToken",
    "client-secret",
    "oauth2.client.secret",
    "fs.azure.account.key.shop.dfs.core.windows.net",
    "api_key",
    "token",
    "Authorization",
    "connectionString",
]
HARMLESS = ["authenticationMode", "endpoint", "token.endpoint", "keyspace", "passwordless", "region", "secretScope"]


@pytest.mark.parametrize("key", [*SECRETS, *HARMLESS])
def test_secret_in_the_configuration_is_rejected(warehouse: refimpl.Warehouse, key: str) -> None:
    """managed-commits, "Managed Commit Enablement": every reader of the storage could read it. Other keys are
    allowed."""
    table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED)
    conf = json.dumps({"endpoint": "http://host/commit", key: "x"})
    outcome = table.commit(1, changed(MANAGED_COMMIT, metadata=configured(MANAGED_COMMIT, conf=conf)))
    if key in HARMLESS:
        assert isinstance(outcome, Ratified)
    else:
        refused(outcome, RejectionReason.SECRET_IN_CONF)
        assert table.latest == 0


@pytest.mark.parametrize("conf", ["", "[]", "x", '{"a":1}', '{"a":{"b":"c"}}', "null"])
def test_the_owners_configuration_is_a_map_of_strings(warehouse: refimpl.Warehouse, conf: str) -> None:
    table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED)
    content = changed(MANAGED_COMMIT, metadata=configured(MANAGED_COMMIT, conf=conf))
    refused(table.commit(1, content), RejectionReason.INCONSISTENT_TABLE)
    content = changed(MANAGED_COMMIT, metadata=configured(MANAGED_COMMIT, conf="{}"))
    assert isinstance(table.commit(1, content), Ratified)


# The backlog and the table's state


def test_only_a_full_backlog_is_retryable() -> None:
    assert [r for r in RejectionReason if Rejected(reason=r, detail="").retryable] == [RejectionReason.BACKLOG_FULL]


def test_a_missing_published_version_costs_one_listing(tmp_path: Path) -> None:
    """The owner lists the log again only after a file was added or removed."""
    storage = FailingFiles()
    with refimpl.open(tmp_path, create=True, environment=Environment(files=storage)) as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, commits=2)
        table.backfill(1)
        table.log.delete(log_path.commit(1))
        os.utime(table.log.folder, (1, 1))
        listed: list[Path] = []
        storage.fail_when = lambda effect, path: effect == "list_directory" and listed.append(path) is not None
        table.land(3)
        assert listed == [table.log.folder]
        (table.log.folder / log_path.commit(9)).write_bytes(append(START + 9))
        refused(table.commit(6), RejectionReason.HALTED)
        (table.log.folder / log_path.commit(9)).unlink()
        now = (warehouse.environment.now() * 1_000_000,) * 2
        os.utime(table.log.folder, ns=now)
        table.land()
        (table.log.folder / log_path.commit(9)).write_bytes(append(START + 9))
        os.utime(table.log.folder, ns=now)  # within one tick of the file system's clock
        refused(table.commit(7), RejectionReason.HALTED)


def test_policies_out_of_range_are_refused(warehouse: refimpl.Warehouse) -> None:
    for bad in (
        MaintenancePolicy(backlog_limit=0),
        MaintenancePolicy(backlog_limit=MAX_BACKLOG_LIMIT + 1),
        MaintenancePolicy(backfill_every=0),
        MaintenancePolicy(backfill_every=11, backlog_limit=10),
    ):
        with pytest.raises(InvalidRequestError):
            warehouse.owner.stage_table("orders", CATALOG_MANAGED, policy=bad)
    good = MaintenancePolicy(backfill_every=10, backlog_limit=10)
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, policy=good)
    with pytest.raises(InvalidRequestError):
        warehouse.owner.set_policy(table.table_id, MaintenancePolicy(backlog_limit=0))
    assert warehouse.owner.resolve("orders").policy == good
    for limit, every in ((1, 1), (MAX_BACKLOG_LIMIT, 1), (1, None)):
        bound = MaintenancePolicy(allowed=frozenset(), backfill_every=every, backlog_limit=limit)
        warehouse.owner.set_policy(table.table_id, bound)
        assert warehouse.owner.resolve("orders").policy == bound


def test_the_first_moment_of_the_epoch_is_a_timestamp(warehouse: refimpl.Warehouse) -> None:
    for name, timestamp in (("before", -1), ("at", 0)):
        staged = warehouse.owner.stage_table(name, CATALOG_MANAGED)
        proposal = DirectProposal(attempt=new_attempt(), content=first_version(CATALOG_MANAGED, timestamp))
        outcome = warehouse.owner.register_table(staged.table_id, proposal)
        if timestamp < 0:
            assert isinstance(outcome, Rejected)
            refused(outcome, RejectionReason.IN_COMMIT_TIMESTAMP)
        else:
            assert isinstance(outcome, Registered), outcome


# Attempts: a replay of a landed attempt is ratified; an unresolved attempt is resolved for good. FB07 to FB10, FB27


def test_attempt_that_lands_during_the_lock_wait_is_found(tmp_path: Path, table: OwnedTable) -> None:
    """The first look-up does not find it; the second look-up, under the lock, does."""
    attempt = new_attempt()
    late = Others(before=lambda: table.commit(1, attempt=attempt))
    with refimpl.open(tmp_path / "warehouse", environment=Environment(host_lock=late.lock)) as asking:
        assert isinstance(asking.owner.attempt_outcome(table.table_id, attempt), Landed)
    assert late.acted
    assert table.latest == 1


def test_possibly_outdated_ledger_resolves_no_attempt(delayed: OwnedTable) -> None:
    """With an unknown published version, or an older ledger, "not landed" could be wrong."""
    landed = delayed.land()[0].attempt
    delayed.backfill()
    delayed.log.put_if_absent(log_path.commit(2), append(START + 2))
    attempt = new_attempt()
    with pytest.raises(CorruptionError):
        delayed.owner.attempt_outcome(delayed.table_id, attempt)
    assert isinstance(delayed.owner.attempt_outcome(delayed.table_id, landed), Landed)
    delayed.log.delete(log_path.commit(2))
    assert delayed.owner.attempt_outcome(delayed.table_id, attempt) == NotLanded()


def test_an_attempt_id_belongs_to_one_version_and_one_content(table: OwnedTable) -> None:
    attempt, content = new_attempt(), append(START + 1)
    table.commit(1, content, attempt=attempt)
    before = table.history()
    refused(table.commit(2, append(START + 2), attempt=attempt), RejectionReason.ATTEMPT_REUSED)
    if table.commit_mode is not CommitMode.STAGED:
        refused(table.commit(1, append(START + 1), attempt=attempt), RejectionReason.ATTEMPT_REUSED)
    assert table.history() == before
    assert isinstance(table.commit(2, append(START + 2)), Ratified)


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
