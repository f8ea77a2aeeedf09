"""The checks of writers: each passes on the model client on every variant, every bad writer is found by a requirement
that it violates, and a good one is not accused. All good ones on all checks and variants: `test_teeth.py`."""

from __future__ import annotations

from typing import Any, Final

import pytest

from conformance.checks.conflicts import added, prepare, win
from conformance.checks.registry import Check
from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.mutants import good_writers as good
from conformance.mutants.registry import Mutant
from conformance.results import Verdict
from conformance.scenario import proposals
from conformance.scenario.client import ClientScenario
from conformance.scenario.scenario import TableHandle
from spec_tests.conformance.checks import clients
from spec_tests.conformance.checks.families import checks_of, mutants_of

CHECKS: Final = checks_of(
    ("writing", "writing_whole", "writing_answers", "writing_losses", "conflicts", "conflicts_isolation", "timestamps",
     "publishing_of_clients", "ownership_of_clients")
)  # fmt: skip
BAD: Final = mutants_of(("writers", "conflicts", "timestamps", "ownership_of_clients"))
GOOD: Final = mutants_of(("good_writers",))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_model_client_is_judged_and_passes(check: Check) -> None:
    results = clients.on_the_model(check)
    assert results
    assert clients.unjudged(results) == {}


@pytest.mark.parametrize("mutant", BAD, ids=lambda mutant: mutant.id)
def test_a_bad_writer_is_found_by_a_requirement_that_it_violates(mutant: Mutant) -> None:
    assert clients.found_by(mutant, CHECKS) in mutant.violates


@pytest.mark.parametrize("mutant", GOOD, ids=lambda mutant: mutant.id)
def test_a_good_writer_is_not_accused(mutant: Mutant) -> None:
    results = clients.on_one_variant_each(mutant, CHECKS[GOOD.index(mutant) % 8 :: 8])
    assert clients.accused(results) == {}
    assert Verdict.PASSED in {each.verdict for each in results}


# Good ones that did what the model does would prove nothing


def transact(s: ClientScenario, table: TableHandle, **what: Any) -> m.Answer:
    return s.act("writer", m.Transact(table=s.name_of(table), marker=s.attempt(), **what)).answer


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
def test_an_empty_transaction_is_a_commit_or_not(
    client: type[ModelClient], if_needed: bool, version: int | None
) -> None:
    with clients.scenario(client) as s:
        table = s.create()
        assert transact(s, table, if_needed=if_needed) == m.Committed(version=version)
        assert transact(s, table, **FILE) == m.Committed(version=(version or 0) + 1)


@pytest.mark.parametrize(
    ("client", "mine", "overlooked"),
    [
        (good.OverlooksWhatItMay, {"isolation": m.Isolation.WRITE_SERIALIZABLE}, True),
        (good.IsAlwaysSerializable, {"isolation": m.Isolation.WRITE_SERIALIZABLE}, False),
        (good.IsAlwaysSerializable, {"isolation": m.Isolation.SNAPSHOT}, False),
        (ModelClient, {"data_change": False}, False),
        (good.RearrangesUnderSnapshotIsolation, {"data_change": False}, True),
    ],
)
def test_a_writer_overlooks_what_it_may_or_does_not(
    client: type[ModelClient], mine: dict[str, Any], overlooked: bool
) -> None:
    with clients.scenario(client) as s:
        table = prepare(s)
        win(s, table, [added(s, "theirs")], blind=True)
        told = transact(s, table, read_version=1, reads="*", removes=("a",), **FILE, **mine)
        assert told == (m.Committed(version=3) if overlooked else m.Conflict())


def test_a_file_outside_is_refused_or_committed() -> None:
    outside = {"adds": (m.DataFile(path="/elsewhere/mine"),)}
    for client, expected in ((ModelClient, m.Committed), (good.RefusesFilesOutside, m.Rejected)):
        with clients.scenario(client) as s:
            assert isinstance(transact(s, s.create(), **outside), expected)


def info_of(client: type[ModelClient], feature: str) -> dict[str, Any]:
    """The commitInfo of its commit after a version 0."""
    with clients.scenario(client, feature) as s:
        table = s.create()
        assert transact(s, table, **FILE) == m.Committed(version=1)
        [info] = s.actions_of(table, 1, "commitInfo")
        return info


def test_a_commit_may_say_much_or_little() -> None:
    assert "txnId" not in info_of(good.TellsLittleOfItsCommits, "managedCommit")
    assert "txnId" in info_of(good.TellsLittleOfItsCommits, "catalogManaged")
    assert info_of(good.TellsMuchOfItsCommits, "managedCommit")["operationMetrics"]["by"]["空"] == {}
    assert info_of(good.NamesItsTransactionsInWords, "catalogManaged")["txnId"].startswith("Ω: ")


def test_a_clock_may_be_anywhere() -> None:
    assert info_of(good.LivesInTheFuture, "managedCommit")["inCommitTimestamp"] == good.LivesInTheFuture.now
    assert info_of(good.LivesInThePast, "managedCommit")["inCommitTimestamp"] == proposals.BASE_TIME + 1


def test_staged_files_are_named_by_any_uuid() -> None:
    with clients.scenario(good.NamesItsStagedFilesByHash) as s:
        table = s.create()
        assert transact(s, table, **FILE) == m.Committed(version=1)
        [entry] = s.listed(table)
        assert (entry.file_name or "")[21 + 14] == "5"


def test_change_data_stands_beside_the_data() -> None:
    with clients.scenario(good.WritesChangeData) as s:
        table = prepare(s, partitioned=True)
        mine = (m.DataFile(path="mine", partition="x"),)
        assert transact(s, table, reads="x", removes=("a",), adds=mine) == m.Committed(version=2)
        [change] = s.actions_of(table, 2, "cdc")
        assert change["path"].startswith("_change_data/part%3Dx/cdc-00000-")
        assert [body["path"] for body in s.actions_of(table, 2, "add")] == ["mine"]


def test_a_client_publishes_what_keeps_a_table_from_being_given_back() -> None:
    with clients.scenario(good.PublishesBeforeItGivesBack) as s:
        table = s.create()
        actions = s.proposal(table, attempt=(attempt := s.attempt())).actions
        s.land(table, attempt=attempt, actions=actions)
        there: list[dict[int, str]] = []
        s.owner.on(m.HandBack, before=lambda: there.append(s.published(table)))
        request = m.HandBack(table=s.name_of(table), version=2, attempt=s.attempt(), actions=())
        assert s.act("migrator", request, table).answer == m.Ratified(version=2)
        assert there[0][1] == proposals.content(actions or ())
