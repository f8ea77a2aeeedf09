"""The adapter for Unity Catalog: the kit's requests as calls of the Delta API, and the server's responses as
answers.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from conformance.adapters.uc.api import Address, AddressError, address_of
from conformance.adapters.uc.owner import UcSubject
from conformance.checks import all_checks
from conformance.generated.running import run_case
from conformance.interface import messages as m
from conformance.interface.subject import AdapterError, UsageError
from conformance.models import proposals
from conformance.proxy import Fault, FaultProxy, Match
from conformance.results import Verdict
from conformance.scenario.check import Variant
from conformance.subjects.names import open_subject
from conformance.subjects.smoke import smoke
from spec_tests.conformance.adapters.catalog_server import Answers, Catalog, Refusal, serving

LONG = 120.0
COMMIT = Match(method="POST", body="add-commit")
CHECKS = {check.name: check for check in all_checks()}
TABLE = "t_orders"
REQUIREMENTS = {
    "attempts-are-known-after-many-commits": "PROFILE-RETRY-01",
    "a-staged-file-is-valid-for-one-version": "CM-LOG-05",
    "a-duplicated-creation-after-the-drop-is-ignored": "PROFILE-CORE-06",
}


def attempt(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def name_of(url: str, options: str = "") -> str:
    return f"uc:{url}?catalog=main&schema=s1{options}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Catalog]]:
    with serving(tmp_path) as (url, catalog):
        yield url, catalog


@pytest.fixture
def subject(server: tuple[str, Catalog]) -> Iterator[UcSubject]:
    with open_subject(name_of(server[0]), timeout=LONG) as subject:
        assert isinstance(subject, UcSubject)
        yield subject


def creation(name: str = TABLE, number: int = 0) -> m.CreateTable:
    actions = proposals.version_0("catalogManaged", attempt(number), attempt(99))
    return m.CreateTable(
        name=name, feature="catalogManaged", commit_mode="staged", attempt=attempt(number), actions=actions
    )  # fmt: skip


def created(subject: UcSubject, name: str = TABLE) -> str:
    answer = subject.ask("creator", creation(name))
    assert isinstance(answer, m.Ratified)
    assert answer.table is not None
    return answer.table


def proposal(table: str, version: int, number: int | None = None) -> m.Commit:
    own = attempt(version if number is None else number)
    actions = proposals.append(own, proposals.BASE_TIME + version)
    return m.Commit(table=table, version=version, attempt=own, actions=actions)


def names(subject: UcSubject, table: str) -> list[str]:
    seen = subject.ask("observer", m.Observe(table=table))
    assert isinstance(seen, m.Observation)
    return [file.name for file in seen.files]


def listed(subject: UcSubject, table: str) -> tuple[list[int], int | None]:
    answer = subject.ask("reader", m.GetCommits(table=table))
    assert isinstance(answer, m.Commits)
    return [commit.version for commit in answer.commits], answer.latest


# The kit's commands


def test_smoke_passes(subject: UcSubject) -> None:
    assert smoke(subject).ok


@pytest.mark.parametrize(
    ("answers", "check", "verdict"),
    [
        (Answers(), "attempts-are-known-after-many-commits", Verdict.PASSED),
        (Answers(remembers=False), "attempts-are-known-after-many-commits", Verdict.FAILED),
        (Answers(), "a-staged-file-is-valid-for-one-version", Verdict.PASSED),
        (Answers(looks=False), "a-staged-file-is-valid-for-one-version", Verdict.FAILED),
        (Answers(), "a-duplicated-creation-after-the-drop-is-ignored", Verdict.PASSED),
        (Answers(consumes=False), "a-duplicated-creation-after-the-drop-is-ignored", Verdict.FAILED),
    ],
)
def test_recorded_and_correct_answers_get_the_expected_verdict(
    tmp_path: Path, answers: Answers, check: str, verdict: Verdict
) -> None:
    with serving(tmp_path, answers) as (url, _), open_subject(name_of(url), timeout=LONG) as subject:
        result = run_case(CHECKS[check], Variant(feature="catalogManaged", commit_mode="staged"), subject, salt="-1")
    assert result.verdict is verdict
    violated = {requirement for each in result.violations for requirement in each.requirements}
    assert (REQUIREMENTS[check] in violated) == bool(violated) == (verdict is Verdict.FAILED)


# Creating


def test_version_0_is_created_as_the_server_requires(subject: UcSubject, server: tuple[str, Catalog]) -> None:
    table = created(subject)
    assert names(subject, table) == ["00000000000000000000.json"]
    location = Path(server[1].tables[TABLE].location.removeprefix("file://"))
    actions = [json.loads(line) for line in (location / "_delta_log/00000000000000000000.json").read_text().split("\n")
               if line]  # fmt: skip
    assert actions[0]["commitInfo"]["txnId"] == attempt(0)
    assert "vacuumProtocolCheck" in actions[1]["protocol"]["readerFeatures"]
    assert actions[2]["metaData"]["configuration"]["io.unitycatalog.tableId"] == table.rpartition("@")[2]
    assert server[1].tables[TABLE].properties["delta.feature.catalogManaged"] == "supported"


def test_a_creation_with_a_lost_answer_is_recognized_by_its_version_0(server: tuple[str, Catalog]) -> None:
    url, catalog = server
    with FaultProxy(url) as proxy, open_subject(name_of(proxy.url), timeout=LONG) as subject:
        proxy.next(Fault.DROP_RESPONSE, match=Match(method="POST", path="/tables$"))
        assert isinstance(subject.ask("a", creation()), m.Unknown)
        reference = f"{TABLE}@{catalog.tables[TABLE].uuid}"
        assert subject.ask("a", creation()) == m.Ratified(version=0, table=reference)
        assert subject.ask("b", creation(number=1)) == m.Conflict(latest=0, winner_table=reference)
    assert len(catalog.tables) == 1


def test_a_name_that_no_catalog_permits_is_replaced(subject: UcSubject) -> None:
    first, second = created(subject, "Orders and more"), created(subject, "orders-and-more")
    assert first != second
    loaded = subject.ask("a", m.LoadTable(name="Orders and more"))
    assert isinstance(loaded, m.Table)
    assert loaded.table == first


# Committing


def test_a_commit_is_staged_before_the_server_gets_it(subject: UcSubject, server: tuple[str, Catalog]) -> None:
    table = created(subject)
    assert subject.ask("a", proposal(table, 1)) == m.Ratified(version=1)
    staged = f"00000000000000000001.{attempt(1)}.json"
    assert names(subject, table) == ["00000000000000000000.json", f"_staged_commits/{staged}"]
    commit = server[1].tables[TABLE].commits[1]
    assert (commit["file-name"], commit["timestamp"]) == (staged, proposals.BASE_TIME + 1)
    assert listed(subject, table) == ([1], 1)


def test_each_kind_of_refusal_has_its_own_answer(subject: UcSubject, server: tuple[str, Catalog]) -> None:
    table = created(subject)
    subject.ask("a", proposal(table, 1))
    assert subject.ask("b", proposal(table, 1, 8)) == m.Conflict()
    assert subject.ask("b", proposal(table, 5)) == m.Gap(latest=1)
    assert subject.ask("b", proposal(table, 0, 7)) == m.Conflict(latest=1)
    absent = m.Commit(table=table, version=2, attempt=attempt(9), staged_file=f"{2:020}.{attempt(9)}.json")
    assert isinstance(subject.ask("b", absent), m.Rejected)
    assert isinstance(subject.ask("b", proposal(f"{TABLE}@{attempt(5)}", 2)), m.NotFound)
    assert isinstance(subject.ask("b", proposal("unknown", 1)), m.NotFound)
    assert listed(subject, table) == ([1], 1)
    assert server[1].tables[TABLE].latest == 1


def test_an_attempt_is_one_version_and_one_content(subject: UcSubject) -> None:
    table = created(subject)
    first = proposal(table, 1)
    subject.ask("a", first)
    assert subject.ask("a", first) == m.Ratified(version=1)
    assert isinstance(subject.ask("a", proposal(table, 2, 1)), m.Rejected)
    other = m.Commit(table=table, version=1, attempt=attempt(1), actions=("{}",))
    assert isinstance(subject.ask("a", other), m.Rejected)
    assert listed(subject, table) == ([1], 1)


def test_the_client_publishes_if_the_backlog_is_full(subject: UcSubject, server: tuple[str, Catalog]) -> None:
    table = created(subject)
    for version in range(1, 13):
        assert subject.ask("a", proposal(table, version)) == m.Ratified(version=version)
    assert f"{10:020}.json" in names(subject, table)
    assert listed(subject, table) == ([11, 12], 12)
    assert server[1].tables[TABLE].backfilled == 10


@pytest.mark.parametrize(
    ("fault", "landed"),
    [
        (Fault.DROP_REQUEST, False), (Fault.DROP_RESPONSE, True), (Fault.UNAVAILABLE, False),
        (Fault.UNAVAILABLE_LANDED, True),
    ],
)  # fmt: skip
def test_an_unanswered_commit_is_unknown_until_repeated(
    server: tuple[str, Catalog], fault: Fault, landed: bool
) -> None:
    with FaultProxy(server[0]) as proxy, open_subject(name_of(proxy.url), timeout=LONG) as subject:
        assert isinstance(subject, UcSubject)
        table = created(subject)
        proxy.next(fault, match=COMMIT)
        assert isinstance(subject.ask("a", proposal(table, 1)), m.Unknown)
        assert listed(subject, table)[1] == (1 if landed else 0)
        assert subject.ask("a", proposal(table, 1)) == m.Ratified(version=1)
        assert listed(subject, table) == ([1], 1)


@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.UNAVAILABLE, Fault.DROP_RESPONSE])
def test_a_deferred_lookup_proves_nothing(server: tuple[str, Catalog], fault: Fault) -> None:
    """A busy server answers 429, which does not mean that the table does not exist."""
    with FaultProxy(server[0]) as proxy, open_subject(name_of(proxy.url), timeout=LONG) as subject:
        assert isinstance(subject, UcSubject)
        table = created(subject)
        for question in (m.GetCommits(table=table), m.LoadTable(name=TABLE), m.DropTable(table=table)):
            proxy.next(fault, match=Match(method="GET"))
            assert isinstance(subject.ask("a", question), m.Unknown)
        assert listed(subject, table) == ([], 0)


def test_a_rejected_lookup_is_not_a_missing_table(
    subject: UcSubject, server: tuple[str, Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(subject)

    def refused(name: str) -> NoReturn:
        raise Refusal(400, "InvalidParameterValueException", name)

    with monkeypatch.context() as changed:
        changed.setattr(server[1], "_table", refused)
        assert isinstance(subject.ask("a", m.GetCommits(table=table)), m.Rejected)
        assert isinstance(subject.ask("b", creation(number=1)), m.Rejected)
    assert listed(subject, table) == ([], 0)


def test_a_request_is_repeated_identically(server: tuple[str, Catalog]) -> None:
    """A repeated commit that changed the metadata still has its first etag, which is now out of date."""
    with FaultProxy(server[0]) as proxy, open_subject(name_of(proxy.url), timeout=LONG) as subject:
        assert isinstance(subject, UcSubject)
        table = created(subject)
        own = attempt(1)
        changed = proposals.metadata(attempt(99), 0, {"owner": "me"}, ())
        actions = (proposals.commit_info(own, proposals.BASE_TIME + 1), changed)
        request = m.Commit(table=table, version=1, attempt=own, actions=actions)
        proxy.next(Fault.DROP_RESPONSE, match=COMMIT)
        assert isinstance(subject.ask("a", request), m.Unknown)
        assert subject.ask("a", request) == m.Ratified(version=1)
        assert subject.ask("a", request) == m.Ratified(version=1)
    first, *again = server[1].updates
    assert again == [first] * 2
    assert first["requirements"][1] == {"type": "assert-etag", "etag": "etag-1"}
    assert server[1].tables[TABLE].etag == 2


def test_a_refused_commit_is_built_again(subject: UcSubject, server: tuple[str, Catalog]) -> None:
    table = created(subject)
    early = proposal(table, 2, 5)
    assert subject.ask("a", early) == m.Gap(latest=0)
    assert subject.ask("a", proposal(table, 1)) == m.Ratified(version=1)
    assert subject.ask("a", early) == m.Ratified(version=2)
    assert listed(subject, table) == ([1, 2], 2)
    assert len(server[1].updates) == 3


def test_a_zero_timestamp_is_a_timestamp(subject: UcSubject, server: tuple[str, Catalog]) -> None:
    table = created(subject)
    subject.ask("a", m.Commit(table=table, version=1, attempt=attempt(1), actions=proposals.append(attempt(1), 0)))
    assert server[1].tables[TABLE].commits[1]["timestamp"] == 0


def test_a_lost_answer_is_hidden_from_the_client_only(subject: UcSubject, server: tuple[str, Catalog]) -> None:
    table = created(subject)
    assert subject.lose("a", proposal(table, 1)) == m.Ratified(version=1)
    assert subject.lose("b", proposal(table, 1, 8)) == m.Conflict()
    assert server[1].tables[TABLE].latest == 1


# Metadata


def test_a_commit_that_changes_the_metadata_is_sent_with_the_change(
    subject: UcSubject, server: tuple[str, Catalog]
) -> None:
    table = created(subject)
    before = subject.ask("a", m.LoadTable(name=TABLE))
    assert isinstance(before, m.Table)
    configuration = json.loads(before.metadata or "")["metaData"]["configuration"]
    assert configuration["delta.enableInCommitTimestamps"] == "true"
    assert "catalogManaged" in json.loads(before.protocol or "")["protocol"]["writerFeatures"]
    own = attempt(1)
    changed = proposals.metadata(attempt(99), 0, {**configuration, "owner": "me"}, ("part",))
    actions = (proposals.commit_info(own, proposals.BASE_TIME + 1), changed)
    assert subject.ask("a", m.Commit(table=table, version=1, attempt=own, actions=actions)) == m.Ratified(version=1)
    after = subject.ask("a", m.LoadTable(name=TABLE))
    assert isinstance(after, m.Table)
    metadata = json.loads(after.metadata or "")["metaData"]
    assert metadata["configuration"] == {**configuration, "owner": "me"}
    assert metadata["partitionColumns"] == ["part"]
    assert server[1].tables[TABLE].etag == 2


# Publishing, dropping, and the kit's access to the files


def test_publishing_is_in_order_and_reported_to_the_server(subject: UcSubject, server: tuple[str, Catalog]) -> None:
    table = created(subject)
    for version in (1, 2, 3):
        subject.ask("a", proposal(table, version))
    assert subject.ask("p", m.BackfillToVersion(table=table, version=2)) == m.Done()
    published = [name for name in names(subject, table) if "/" not in name]
    assert published == [f"{version:020}.json" for version in (0, 1, 2)]
    assert listed(subject, table) == ([3], 3)
    assert server[1].tables[TABLE].backfilled == 2


def test_a_published_file_with_another_content_stops_publishing(
    subject: UcSubject, server: tuple[str, Catalog]
) -> None:
    table = created(subject)
    for version in (1, 2):
        subject.ask("a", proposal(table, version))
    assert subject.ask("k", m.Plant(table=table, file=f"{1:020}.json", content="other")) == m.Done()
    assert isinstance(subject.ask("p", m.BackfillToVersion(table=table, version=2)), m.Rejected)
    assert f"{2:020}.json" not in names(subject, table)
    assert server[1].tables[TABLE].backfilled == 0
    assert subject.ask("k", m.Remove(table=table, file=f"{1:020}.json")) == m.Done()
    assert subject.ask("p", m.BackfillToVersion(table=table, version=2)) == m.Done()


def test_a_dropped_table_differs_from_a_new_table_of_its_name(subject: UcSubject) -> None:
    first = created(subject)
    assert subject.ask("a", m.DropTable(table=first)) == m.Done()
    assert subject.ask("a", m.LoadTable(name=TABLE)) == m.NotFound()
    second = subject.ask("a", creation(number=1))
    assert isinstance(second, m.Ratified)
    assert second.table != first
    for request in (m.GetCommits(table=first), m.DropTable(table=first), proposal(first, 1)):
        assert subject.ask("a", request) == m.NotFound()
    assert listed(subject, second.table or "") == ([], 0)


def test_nothing_outside_the_log_is_changed(subject: UcSubject, tmp_path: Path) -> None:
    table = created(subject)
    for file in ("../x", "/etc/x", ""):
        assert isinstance(subject.ask("k", m.Plant(table=table, file=file, content="x")), m.Rejected)
    assert not list(tmp_path.rglob("x"))


# Servers that cannot be tested


def test_the_token_is_sent_with_every_call_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path, Answers(token="hush")) as (url, _):
        with pytest.raises(AdapterError, match=r"401 NotAuthorizedException.*\$UC_TOKEN, which is not set"):
            open_subject(name_of(url))
        monkeypatch.setenv("UC_TOKEN", "hush")
        with open_subject(name_of(url), timeout=LONG) as subject:
            assert isinstance(subject.ask("a", creation()), m.Ratified)
            assert "hush" not in repr(subject.identity)
    assert "hush" not in repr(address_of("http://h?catalog=c&schema=s"))


@pytest.mark.parametrize("options", ["?catalog=other&schema=s1"])
def test_a_missing_catalog_is_an_error(server: tuple[str, Catalog], options: str) -> None:
    with pytest.raises(AdapterError, match="no Delta API for the catalog 'other'"):
        open_subject(f"uc:{server[0]}{options}")


def test_tables_on_another_machine_are_an_error(server: tuple[str, Catalog], subject: UcSubject) -> None:
    server[1].root = Path("/nowhere")
    created_at = server[1]._stage
    server[1]._stage = lambda: {**created_at(), "location": "s3://bucket/t"}  # type: ignore[method-assign]
    with pytest.raises(AdapterError, match="s3://bucket/t"):
        subject.ask("a", creation())


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
    with pytest.raises(UsageError) as raised:
        open_subject(f"uc:{name}")
    assert "hush" not in raised.value.problem


def test_an_address_is_split_into_url_and_options() -> None:
    address = address_of("https://h:1/base/?catalog=a%20b&schema=s&name=mine&version=2&without=idempotent-retry")
    assert address == Address(
        server="https://h:1/base", catalog="a b", schema="s", name="mine", version="2", without=("idempotent-retry",)
    )
    assert address.tables == "/base/api/2.1/unity-catalog/delta/v1/catalogs/a%20b/schemas/s/tables"
