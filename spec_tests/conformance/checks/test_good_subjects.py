"""Good subjects: each one differs from the model in the freedom that it uses. `test_mutation_score.py` shows that no
check accuses them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from conformance.adapters.in_process import InProcess
from conformance.checks import maintenance as cleanup
from conformance.checks.conflicts import added, prepare, win
from conformance.checks.maintenance import log_of, names
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.models import proposals
from conformance.models.client import ModelClient
from conformance.models.owner import ModelOwner
from conformance.mutants import Mutant
from conformance.mutants import good_clients as good
from conformance.mutants.good_owners import NoServer, PlainModel, StateInFiles
from conformance.scenario import ownership
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Variant
from conformance.scenario.client import ClientScenario
from conformance.scenario.scenario import Scenario, Stopped
from spec_tests.conformance import kills

INSIDE: Final = {PlainModel, StateInFiles, NoServer}
"""Owners that use a freedom only inside: they answer as the model does."""


# Owners


class Overheard(InProcess):
    """Keeps every answer, also those after which the kit sends the request again."""

    def __init__(self, owner: ModelOwner) -> None:
        self.answers: list[str] = []
        super().__init__(owner)

    def ask(self, client: str, request: m.Request) -> m.Answer:
        answer = super().ask(client, request)
        self.answers.append(str(answer))
        return answer


def transcript(make: type[ModelOwner], variant: Variant) -> str:
    """The answers and files of an owner after a scenario that uses every kind of request."""
    subject = Overheard(make())
    s = Scenario(subject, variant, name="a little of everything")
    try:
        table = s.create(backfill="subject")
        for request in (*(s.proposal(table, version) for version in (1, 2, 1, 5, 3, 4, 5, 6, 7)), s.proposal(table, 1)):
            s.ask("writer", request)
            s.ask("writer", request)
            s.ask("reader", m.GetCommits(table=table.reference))
            s.observe(table)
        s.ask("reader", m.LoadTable(name=s.physical("orders")))
        s.ask("creator", s.creation("Orders"))
        for version in (6, 70):
            s.ask("anybody", m.MaintenancePolicy(table=table.reference))
            s.ask("anybody", m.BackfillToVersion(table=table.reference, version=version))
            s.observe(table)
        table.versions = 8
        imported = ownership.filesystem_table(s, versions=2)
        s.ask("migrator", ownership.taking_over(s, imported), imported)
        s.ask("migrator", ownership.giving_back(s, table))
        s.observe(table)
        items = s.create("items")
        s.land(items)
        ownership.restart(s)
        s.subject.ask("operator", m.DropTable(table=items.reference))
        s.observe(items)
        late = s.create("late")
        for name, path in (("LATE", None), ("white space", None), ("a", "shared"), ("b", "shared")):
            where = {} if path is None else {"path": f"{s.identity.storage}/{path}"}
            s.ask("creator", s.creation(name, **where))
        s.commit(late, actions=(*proposals.append(s.attempt(), 0, ["x" * 100_000]),))
        wrong = proposals.append(attempt := s.attempt(), 0)
        s.commit(late, attempt=attempt, actions=wrong)
        s.commit(late, 2, attempt=s.attempt().upper())
        s.ask("reader", m.GetCommits(table=late.reference))
    except Stopped as stopped:
        subject.answers.append(str(stopped))
    return "\n".join(subject.answers)


@pytest.mark.parametrize(
    "owner",
    [
        subject
        for subject in kills.good()
        if subject.side == "owner" and subject.freedoms and subject.make not in INSIDE
    ],
    ids=lambda owner: owner.id,
)
def test_each_good_owner_differs_from_the_model(owner: Mutant) -> None:
    """If the owner equalled the model, its passed checks would prove nothing."""
    variants = [
        Variant(feature=feature, commit_mode=commit_mode)
        for feature, commit_mode in (
            ("managedCommit", "staged"), ("managedCommit", "direct"), ("catalogManaged", "staged"),
            ("catalogManaged", "inline"),
        )
    ]  # fmt: skip
    assert any(transcript(owner.make, variant) != transcript(ModelOwner, variant) for variant in variants)


def test_two_good_owners_keep_no_state_in_memory() -> None:
    """They answer as the model does, and forget everything between two requests."""
    variant = Variant(feature="managedCommit", commit_mode="staged")
    assert transcript(StateInFiles, variant) == transcript(NoServer, variant) == transcript(ModelOwner, variant)
    kept = StateInFiles()
    s = Scenario(InProcess(kept), variant, name="kept")
    table = s.create()
    s.land(table)
    assert len(kept.saved) == 1
    assert kept.storage.list(f"{kept.storage.root}/.owner")
    stateless = NoServer()
    first = Scenario(InProcess(stateless), variant, name="stateless").create()
    assert stateless.tables[first.reference] is not stateless.tables[first.reference]


# Clients


@contextmanager
def scenario(
    client: type[ModelClient], feature: str = "managedCommit", commit_mode: str = "staged"
) -> Iterator[ClientScenario]:
    """A new scenario for this client."""
    host = ClientHost()
    with InProcess(client(host.ask)) as subject:
        s = ClientScenario(subject, Variant(feature=feature, commit_mode=commit_mode), host, name=client.__name__)
        try:
            yield s
        finally:
            s.close()


FILE: Final = {"adds": (m.DataFile(path="mine"),)}


@pytest.mark.parametrize(
    ("client", "if_needed", "version"),
    [
        (ModelClient, False, 1),
        (ModelClient, True, None),
        (good.CommitsEmptyTransactions, True, 1),
        (good.SkipsEmptyTransactions, False, None),
    ],
)
def test_an_empty_transaction_may_or_may_not_be_committed(
    client: type[ModelClient], if_needed: bool, version: int | None
) -> None:
    with scenario(client) as s:
        table = s.create()
        assert s.transact(table, if_needed=if_needed).answer == m.Committed(version=version)
        assert s.transact(table, **FILE).answer == m.Committed(version=(version or 0) + 1)


@pytest.mark.parametrize(
    ("client", "mine", "overlooked"),
    [
        (good.IgnoresPermittedAppends, {"isolation": m.Isolation.WRITE_SERIALIZABLE}, True),
        (good.AlwaysSerializable, {"isolation": m.Isolation.WRITE_SERIALIZABLE}, False),
        (good.AlwaysSerializable, {"isolation": m.Isolation.SNAPSHOT}, False),
        (ModelClient, {"data_change": False}, False),
        (good.RearrangesUnderSnapshotIsolation, {"data_change": False}, True),
    ],
)
def test_a_writer_may_or_may_not_ignore_harmless_winners(
    client: type[ModelClient], mine: dict[str, Any], overlooked: bool
) -> None:
    with scenario(client) as s:
        table = prepare(s)
        win(s, table, [added(s, "theirs")], blind=True)
        answer = s.transact(table, read_version=1, reads="*", removes=("a",), **FILE, **mine).answer
        assert answer == (m.Committed(version=3) if overlooked else m.Conflict())


def test_a_file_outside_the_table_is_refused_or_committed() -> None:
    outside = {"adds": (m.DataFile(path="/elsewhere/mine"),)}
    for client, expected in ((ModelClient, m.Committed), (good.RejectsFilesOutside, m.Rejected)):
        with scenario(client) as s:
            assert isinstance(s.transact(s.create(), **outside).answer, expected)


def info_of(client: type[ModelClient], feature: str) -> dict[str, Any]:
    """The commitInfo of the client's commit after version 0."""
    with scenario(client, feature) as s:
        table = s.create()
        assert s.transact(table, **FILE).answer == m.Committed(version=1)
        [info] = s.actions_of(table, 1, "commitInfo")
        return info


def test_a_commit_info_may_have_many_or_few_fields() -> None:
    assert "txnId" not in info_of(good.WritesMinimalCommitInfo, "managedCommit")
    assert "txnId" in info_of(good.WritesMinimalCommitInfo, "catalogManaged")
    assert info_of(good.WritesLargeCommitInfo, "managedCommit")["operationMetrics"]["by"]["空"] == {}
    assert info_of(good.TxnIdsAreSentences, "catalogManaged")["txnId"].startswith("Ω: ")
    assert info_of(good.ClockIsACenturyAhead, "managedCommit")["inCommitTimestamp"] == good.ClockIsACenturyAhead.now


def test_an_in_commit_timestamp_is_an_integer() -> None:
    for value, time in (("7", 7), ("true", None), ('"7"', None)):
        assert proposals.time_of(f'{{"commitInfo":{{"inCommitTimestamp":{value}}}}}') == time


def test_a_staged_file_may_have_any_uuid() -> None:
    with scenario(good.StagedNamesUseUuid5) as s:
        table = s.create()
        assert s.transact(table, **FILE).answer == m.Committed(version=1)
        [entry] = s.listed(table)
        assert (entry.file_name or "")[21 + 14] == "5"


def test_change_data_may_be_beside_the_data() -> None:
    with scenario(good.WritesChangeData) as s:
        table = prepare(s, partitioned=True)
        mine = (m.DataFile(path="mine", partition="x"),)
        assert s.transact(table, reads="x", removes=("a",), adds=mine).answer == m.Committed(version=2)
        [change] = s.actions_of(table, 2, "cdc")
        assert change["path"].startswith("_change_data/part%3Dx/cdc-00000-")
        assert [body["path"] for body in s.actions_of(table, 2, "add")] == ["mine"]


def test_a_client_publishes_before_a_hand_back() -> None:
    with scenario(good.PublishesBeforeAHandBack) as s:
        table = s.create()
        actions = s.proposal(table, attempt=(attempt := s.attempt())).actions
        s.land(table, attempt=attempt, actions=actions)
        there: list[dict[int, str]] = []
        s.owner.on(m.HandBack, before=lambda: there.append(s.published(table)))
        request = m.HandBack(table=s.name_of(table), version=2, attempt=s.attempt(), actions=())
        assert s.act("migrator", request, table).answer == m.Ratified(version=2)
        assert there[0][1] == proposals.content(actions or ())


@pytest.mark.parametrize(
    ("client", "published", "left"),
    [
        (ModelClient, 6, {4, 5, 6}),
        (good.KeepsTheNewestCommits, 6, {4, 5, 6}),
        (good.KeepsAllCommits, 6, {0, 1, 2, 3, 4, 5, 6}),
        (good.NeverCleansUp, 6, {0, 1, 2, 3, 4, 5, 6}),
        # The checkpoint covers all published versions.
        (ModelClient, cleanup.CUT_OFF, {4}),
        (good.KeepsTheNewestCommits, cleanup.CUT_OFF, {2, 3, 4}),
    ],
)
def test_a_cleanup_may_keep_any_number_of_commits(client: type[ModelClient], published: int, left: set[int]) -> None:
    with scenario(client) as s:
        log = cleanup.prepare(s, published=published)
        log.checkpoint(2)
        log.checkpoint(cleanup.CUT_OFF)
        after = cleanup.clean(s, log).after
        assert {version for version in range(9) if commit_file(version) in after} == left
        assert (cleanup.checkpoint(2) in after) is (client is good.NeverCleansUp)


@pytest.mark.parametrize("feature", ["managedCommit", "catalogManaged"])
def test_a_cleanup_may_keep_or_delete_listed_staged_files(feature: str) -> None:
    for client in (ModelClient, good.DeletesListedStagedFilesOfManagedCommits):
        with scenario(client, feature) as s:
            log = cleanup.prepare(s)
            log.checkpoint(cleanup.CUT_OFF)
            files = {int(Path(name).name[:20]): name for name in log.staged()}
            listed = tuple(m.CommitEntry(version=v, file_name=Path(name).name) for v, name in sorted(files.items()))
            s.owner.on(m.GetCommits, change=lambda _, listed=listed: m.Commits(commits=listed, latest=8), times=100)
            kept = feature == "catalogManaged" or client is ModelClient
            assert (files[1] in cleanup.clean(s, log).after) is kept


def test_a_writer_may_write_checkpoints_and_checksums_unasked() -> None:
    for client, name in (
        (good.CheckpointsAfterEveryCommit, f"{5:020}.checkpoint.parquet"),
        (good.WritesChecksums, f"{6:020}.crc"),
    ):
        with scenario(client, "catalogManaged") as s:
            log = log_of(s)
            assert s.transact(log.table, **FILE).answer == m.Committed(version=6)
            assert name in names(log)
            assert commit_file(6) not in names(log)
            assert not s.asked(m.MaintenancePolicy)


@pytest.mark.parametrize(
    ("client", "requested", "hinted"),
    [(ModelClient, [], True), (good.BackfillsBeforeMaintenance, [5], True), (good.WritesNoCheckpointHint, [], False)],
)
def test_a_checkpoint_may_follow_a_backfill_or_lack_a_hint(
    client: type[ModelClient], requested: list[int], hinted: bool
) -> None:
    with scenario(client) as s:
        log = log_of(s)
        assert s.act("maintenance", m.Checkpoint(table=s.name_of(log.table), version=2), log.table).answer == m.Done()
        backfills = [heard.request for heard in s.asked(m.BackfillToVersion)]
        assert [request.version for request in backfills if isinstance(request, m.BackfillToVersion)] == requested
        assert ("_last_checkpoint" in names(log)) is hinted
