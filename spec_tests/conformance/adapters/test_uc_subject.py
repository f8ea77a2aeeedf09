"""The adapter for Unity Catalog: the kit's requests as calls of the Delta API, and the server's responses as
answers.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.adapters.uc.api import Address, AddressError, address_of
from conformance.interface import messages as m
from conformance.interface.log_names import LOG, commit_file, staged_file
from conformance.interface.results import Verdict
from conformance.interface.subject import AdapterError, UsageError
from conformance.models import proposals
from conformance.programs.cases import run_case
from conformance.scenario.check import Variant
from conformance.subjects.names import open_subject
from conformance.teaching.learn import judges
from spec_tests.conformance.adapters.catalog_server import Catalog, Forgetting, serving
from spec_tests.conformance.asking import Asking, Table, attempt
from spec_tests.support.serving import Fault, FaultProxy, Match

LONG = 120.0
COMMIT = Match(method="POST", body="add-commit")
TABLE = "t_orders"


def name_of(url: str) -> str:
    return f"uc:{url}?catalog=kit&schema=kit"


@contextmanager
def asking(url: str) -> Iterator[Asking]:
    with open_subject(name_of(url), timeout=LONG) as subject:
        yield Asking(subject)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with serving(tmp_path / "catalog", Forgetting) as catalog:
        yield catalog


@pytest.fixture
def owner(catalog: Catalog) -> Iterator[Asking]:
    with asking(catalog.url) as owner:
        yield owner


def listed(table: Table) -> tuple[list[int], int | None]:
    answer = table.commits()
    return [commit.version for commit in answer.commits], answer.latest


def staged_commit(catalog: Catalog) -> dict[str, Any]:
    """The newest commit that the server was asked to ratify."""
    (commit,) = (update["commit"] for update in catalog.updates[-1]["updates"] if update["action"] == "add-commit")
    return dict(commit)


def test_a_server_that_forgets_attempts_fails_the_check_of_that(owner: Asking) -> None:
    check, program = judges()["answers are kept over 130 commits, publications and restarts"]
    variant = Variant(feature="catalogManaged", commit_mode="staged")
    result = run_case(check, variant, owner.subject, salt="-1", reproduction=program)
    assert result.verdict is Verdict.FAILED
    assert "PROFILE-RETRY-01" in {name for violation in result.violations for name in violation.requirements}


# Creating


def test_version_0_is_created_as_the_server_requires(owner: Asking, catalog: Catalog) -> None:
    creation = owner.creation(TABLE)
    table = owner.expect(m.Ratified, creation).table or ""
    location = Path(catalog.table(TABLE).location)
    assert [path.name for path in (location / LOG).iterdir()] == [commit_file(0)]
    actions = [json.loads(line) for line in (location / LOG / commit_file(0)).read_text().split("\n") if line]
    assert actions[0]["commitInfo"]["txnId"] == creation.attempt
    assert "vacuumProtocolCheck" in actions[1]["protocol"]["readerFeatures"]
    assert actions[2]["metaData"]["configuration"]["io.unitycatalog.tableId"] == table.rpartition("@")[2]


def test_a_creation_with_a_lost_answer_is_recognized_by_its_version_0(catalog: Catalog) -> None:
    with FaultProxy(catalog.url) as proxy, asking(proxy.url) as owner:
        proxy.next(Fault.DROP_RESPONSE, match=Match(method="POST", path="/tables$"))
        creation = owner.creation(TABLE)
        owner.expect(m.Unknown, creation)
        reference = f"{TABLE}@{catalog.table(TABLE).reference}"
        assert owner.ask(creation) == m.Ratified(version=0, table=reference)
        assert owner.ask(owner.creation(TABLE)) == m.Conflict(latest=0, winner_table=reference)
    assert len(catalog.owner.owner.tables) == 1


def test_a_name_that_no_catalog_permits_is_replaced(owner: Asking) -> None:
    first, second = owner.table("Orders and more"), owner.table("orders-and-more")
    assert first.reference != second.reference
    assert owner.expect(m.Table, m.LoadTable(name="Orders and more")).table == first.reference


# Committing


def test_a_commit_is_staged_before_the_server_gets_it(owner: Asking, catalog: Catalog) -> None:
    table = owner.table(TABLE)
    (sent,) = table.land(1)
    staged = staged_file(1, sent.attempt)
    assert list(table.files()) == [commit_file(0), f"_staged_commits/{staged}"]
    commit = staged_commit(catalog)
    assert (commit["file-name"], commit["timestamp"]) == (staged, proposals.BASE_TIME + 1)
    assert listed(table) == ([1], 1)


def test_each_kind_of_refusal_has_its_own_answer(owner: Asking, catalog: Catalog) -> None:
    table = owner.table(TABLE)
    table.land(1)
    assert owner.ask(table.proposal(1)) == m.Conflict()
    assert owner.ask(table.proposal(5)) == m.Gap(latest=1)
    assert owner.ask(table.proposal(0)) == m.Conflict(latest=1)
    absent = attempt()
    owner.expect(m.Rejected, table.proposal(2, attempt=absent, actions=None, staged_file=staged_file(2, absent)))
    for unknown in (f"{TABLE}@{attempt()}", "unknown"):
        owner.expect(m.NotFound, msgspec.structs.replace(table.proposal(2), table=unknown))
    assert listed(table) == ([1], 1)
    assert catalog.table(TABLE).latest == 1


def test_the_client_publishes_if_the_backlog_is_full(owner: Asking, catalog: Catalog) -> None:
    table = owner.table(TABLE)
    table.land(*range(1, 13))
    assert table.published() == [*range(11)]
    assert listed(table) == ([11, 12], 12)
    assert catalog.table(TABLE).backfilled == 10


@pytest.mark.parametrize(
    ("fault", "landed"),
    [
        (Fault.DROP_REQUEST, False), (Fault.DROP_RESPONSE, True), (Fault.UNAVAILABLE, False),
        (Fault.UNAVAILABLE_LANDED, True),
    ],
)  # fmt: skip
def test_an_unanswered_commit_is_unknown_until_repeated(catalog: Catalog, fault: Fault, landed: bool) -> None:
    with FaultProxy(catalog.url) as proxy, asking(proxy.url) as owner:
        table = owner.table(TABLE)
        proxy.next(fault, match=COMMIT)
        proposal = table.proposal(1)
        owner.expect(m.Unknown, proposal)
        assert table.latest == int(landed)
        assert owner.ask(proposal) == m.Ratified(version=1)
        assert listed(table) == ([1], 1)


@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.UNAVAILABLE, Fault.DROP_RESPONSE])
def test_a_deferred_lookup_proves_nothing(catalog: Catalog, fault: Fault) -> None:
    """A busy server answers 429, which does not mean that the table does not exist."""
    with FaultProxy(catalog.url) as proxy, asking(proxy.url) as owner:
        table = owner.table(TABLE)
        for kind in (m.GetCommits, m.DropTable):
            proxy.next(fault, match=Match(method="GET"))
            owner.expect(m.Unknown, kind(table=table.reference))
        proxy.next(fault, match=Match(method="GET"))
        owner.expect(m.Unknown, m.LoadTable(name=TABLE))
        assert listed(table) == ([], 0)


def test_a_rejected_lookup_is_not_a_missing_table(owner: Asking, catalog: Catalog) -> None:
    table = owner.table(TABLE)
    catalog.owner.on((m.GetCommits, m.LoadTable), answer=m.Rejected(), times=2)
    owner.expect(m.Rejected, m.GetCommits(table=table.reference))
    owner.expect(m.Rejected, owner.creation(TABLE))
    assert listed(table) == ([], 0)


def test_a_request_is_repeated_identically(catalog: Catalog) -> None:
    """A repeated commit that changed the metadata still has its first etag, which is now out of date."""
    with FaultProxy(catalog.url) as proxy, asking(proxy.url) as owner:
        request = changing(owner.table(TABLE), {"owner": "me"}, ())
        proxy.next(Fault.DROP_RESPONSE, match=COMMIT)
        owner.expect(m.Unknown, request)
        assert owner.ask(request) == m.Ratified(version=1)
        assert owner.ask(request) == m.Ratified(version=1)
    first, *again = catalog.updates
    assert again == [first] * 2
    assert [requirement["type"] for requirement in first["requirements"]] == ["assert-table-uuid", "assert-etag"]


def test_a_refused_commit_is_built_again(owner: Asking, catalog: Catalog) -> None:
    table = owner.table(TABLE)
    early = table.proposal(2)
    assert owner.ask(early) == m.Gap(latest=0)
    table.land(1)
    assert owner.ask(early) == m.Ratified(version=2)
    assert listed(table) == ([1, 2], 2)
    assert len(catalog.updates) == 3


def test_a_zero_timestamp_is_a_timestamp(owner: Asking, catalog: Catalog) -> None:
    own = attempt()
    owner.ask(owner.table(TABLE).proposal(1, attempt=own, actions=proposals.append(own, 0)))
    assert staged_commit(catalog)["timestamp"] == 0


# Metadata


def changing(table: Table, properties: dict[str, str], partition_columns: tuple[str, ...]) -> m.Commit:
    """A proposal of version 1 with other metadata."""
    own = attempt()
    changed = proposals.metadata(attempt(), 0, properties, partition_columns)
    return table.proposal(1, attempt=own, actions=(proposals.commit_info(own, proposals.BASE_TIME + 1), changed))


def test_a_commit_that_changes_the_metadata_is_sent_with_the_change(owner: Asking, catalog: Catalog) -> None:
    table = owner.table(TABLE)
    before = owner.expect(m.Table, m.LoadTable(name=TABLE))
    configuration = json.loads(before.metadata or "")["metaData"]["configuration"]
    assert configuration["delta.enableInCommitTimestamps"] == "true"
    assert "catalogManaged" in json.loads(before.protocol or "")["protocol"]["writerFeatures"]
    owner.expect(m.Ratified, changing(table, {**configuration, "owner": "me"}, ("part",)))
    metadata = json.loads(owner.expect(m.Table, m.LoadTable(name=TABLE)).metadata or "")["metaData"]
    assert metadata["configuration"] == {**configuration, "owner": "me"}
    assert metadata["partitionColumns"] == ["part"]
    sent = {update.pop("action"): update for update in catalog.updates[-1]["updates"]}
    assert sent["set-properties"] == {"updates": {"owner": "me"}}
    assert sent["set-partition-columns"] == {"partition-columns": ["part"]}


# Publishing, dropping, and the kit's access to the files


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({}, set()),
        ({"additional-client-maintenance-operations": ["VACUUM"]}, set()),
        ({"allowed-maintenance-operations": ["DATA_REORGANIZATION", "TABLE_PURGE"]}, {"optimize", "reorg"}),
        ({"allowed-maintenance-operations": ["DATA_CLEANUP", "METADATA_CLEANUP"]}, {"vacuum", "metadata-cleanup"}),
    ],
)
def test_policy_is_what_the_server_allows(
    owner: Asking, catalog: Catalog, fields: dict[str, object], allowed: set[str]
) -> None:
    table = owner.table(TABLE)

    def replace(loaded: dict[str, object]) -> None:
        del loaded["allowed-maintenance-operations"], loaded["additional-client-maintenance-operations"]
        loaded.update(fields)

    catalog.edit("/tables/", replace)
    policy = owner.expect(m.Policy, m.MaintenancePolicy(table=table.reference))
    assert {*policy.allowed} == {"checkpoint", "log-compaction", "checksum", *allowed}
    owner.expect(m.NotFound, m.MaintenancePolicy(table="nope@nope"))


def test_a_published_file_with_another_content_stops_publishing(owner: Asking, catalog: Catalog) -> None:
    table = owner.table(TABLE)
    table.land(1, 2)
    owner.expect(m.Done, m.Plant(table=table.reference, file=commit_file(1), content="other"))
    owner.expect(m.Rejected, m.BackfillToVersion(table=table.reference, version=2))
    assert table.published() == [0, 1]
    assert catalog.table(TABLE).backfilled == 0
    owner.expect(m.Done, m.Remove(table=table.reference, file=commit_file(1)))
    table.backfill(2)


def test_nothing_outside_the_log_is_changed(owner: Asking, tmp_path: Path) -> None:
    table = owner.table(TABLE)
    for file in ("../x", "/etc/x", ""):
        owner.expect(m.Rejected, m.Plant(table=table.reference, file=file, content="x"))
    assert not list(tmp_path.rglob("x"))


# Servers that cannot be tested


def test_the_token_is_sent_with_every_call_and_never_shown(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UC_TOKEN", "hush")
    with asking(catalog.url) as owner:
        owner.table(TABLE)
        assert "hush" not in repr(owner.identity)
    assert {exchange.client for exchange in catalog.owner.exchanges} == {"hush"}  # a client is known by its token
    assert "hush" not in repr(address_of("http://h?catalog=c&schema=s"))


def test_a_rejected_token_is_an_error(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog.api, "send", lambda *_: (401, b'{"error":{"type":"NotAuthorizedException"}}'))
    with pytest.raises(AdapterError, match=r"401 NotAuthorizedException.*\$UC_TOKEN, which is not set"):
        open_subject(name_of(catalog.url))


def test_a_missing_catalog_is_an_error(catalog: Catalog) -> None:
    with pytest.raises(AdapterError, match="no Delta API for the catalog 'other'"):
        open_subject(f"uc:{catalog.url}?catalog=other&schema=s1")


def test_tables_on_another_machine_are_an_error(owner: Asking, catalog: Catalog) -> None:
    catalog.edit("/staging-tables", lambda staged: staged.update(location="s3://bucket/t"))
    with pytest.raises(AdapterError, match="s3://bucket/t"):
        owner.table(TABLE)


def test_an_unreachable_server_is_an_error() -> None:
    with pytest.raises(AdapterError, match="no server at http://127"):
        open_subject("uc:http://127.0.0.1:1?catalog=main&schema=s1", timeout=LONG)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("ftp://h?catalog=c&schema=s", "invalid server URL"),
        ("http://h?catalog=c", "`schema` is missing"),
        ("http://h", "`catalog` is missing"),
        ("http://h?catalog=c&schema=s&nonsense=1", "unknown option 'nonsense'"),
        ("http://h?catalog=c&schema=s&token=t", r"\$UC_TOKEN instead"),
        ("http://me:t@h?catalog=c&schema=s", r"\$UC_TOKEN instead"),
        ("http://h:port?catalog=c&schema=s", "invalid server URL"),
        ("http://[h?catalog=c&schema=s", "invalid server URL"),
    ],
)
def test_an_invalid_address_is_an_error(name: str, problem: str) -> None:
    with pytest.raises(AddressError, match=problem):
        address_of(name)
    with pytest.raises(UsageError):
        open_subject(f"uc:{name}")


@pytest.mark.parametrize(
    "name", ["http://me:hush@h?catalog=c", "ftp://me:hush@h", "http://h?catalog=c&token=hush", "ftp://h?api_key=hush"]
)
def test_an_error_never_repeats_a_possible_token(name: str) -> None:
    with pytest.raises(UsageError, match=r"\A((?!hush).)*\Z"):
        open_subject(f"uc:{name}")


def test_an_address_is_split_into_url_and_options() -> None:
    address = address_of("https://h:1/base/?catalog=a%20b&schema=s&name=mine&version=2&without=idempotent-retry")
    assert address == Address(
        server="https://h:1/base", catalog="a b", schema="s", name="mine", version="2", without=("idempotent-retry",)
    )
    assert address.tables == "/base/api/2.1/unity-catalog/delta/v1/catalogs/a%20b/schemas/s/tables"
