"""The checks of maintenance: each passes on the model client on every variant, every bad job is found by a requirement
that it violates, and a good one is not accused. All good ones on all checks and variants: `test_teeth.py`."""

from __future__ import annotations

from typing import Final

import pytest

from conformance.checks import maintenance_cleanup as cleanup
from conformance.checks.maintenance import log_of, names
from conformance.checks.registry import Check
from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.mutants import good_writers as good
from conformance.mutants.registry import Mutant
from conformance.results import Verdict
from conformance.scenario.client import ClientScenario, file_name
from spec_tests.conformance.checks import clients
from spec_tests.conformance.checks.families import checks_of, mutants_of

CHECKS: Final = checks_of(("maintenance", "maintenance_cleanup"))
BAD: Final = mutants_of(("maintenance",))
GOOD: Final = mutants_of(("good_writers",))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_model_client_is_judged_and_passes(check: Check) -> None:
    results = clients.on_the_model(check)
    assert results
    assert clients.unjudged(results) == {}


@pytest.mark.parametrize("mutant", BAD, ids=lambda mutant: mutant.id)
def test_a_bad_job_is_found_by_a_requirement_that_it_violates(mutant: Mutant) -> None:
    assert clients.found_by(mutant, CHECKS) in mutant.violates


@pytest.mark.parametrize("mutant", GOOD, ids=lambda mutant: mutant.id)
def test_a_good_job_is_not_accused(mutant: Mutant) -> None:
    results = clients.on_one_variant_each(mutant, CHECKS[GOOD.index(mutant) % 3 :: 3])
    assert clients.accused(results) == {}
    assert Verdict.PASSED in {each.verdict for each in results}


# Good ones that did what the model does would prove nothing


@pytest.mark.parametrize(
    ("client", "left"),
    [
        (ModelClient, {4, 5, 6}),
        (good.KeepsManyCommits, {4, 5, 6}),
        (good.KeepsAllCommits, {0, 1, 2, 3, 4, 5, 6}),
        (good.NeverCleansUp, {0, 1, 2, 3, 4, 5, 6}),
    ],
)
def test_a_cleanup_keeps_as_many_commits_as_it_likes(client: type[ModelClient], left: set[int]) -> None:
    with clients.scenario(client) as s:
        log = cleanup.prepare(s)
        log.checkpoint(2)
        log.checkpoint(cleanup.CUT_OFF)
        after = cleanup.clean(s, log).after
        assert {version for version in range(9) if file_name(version) in after} == left
        assert (cleanup.checkpoint(2) in after) is (client is good.NeverCleansUp)


def test_the_newest_commits_are_kept_beyond_the_cut_off() -> None:
    """Where the checkpoint covers all that is published."""
    for client, left in ((ModelClient, {4}), (good.KeepsManyCommits, {2, 3, 4})):
        with clients.scenario(client) as s:
            log = cleanup.prepare(s, published=4, latest=5)
            log.checkpoint(4)
            after = cleanup.clean(s, log, 4).after
            assert {version for version in range(6) if file_name(version) in after} == left


def test_a_writer_checkpoints_and_sums_up_without_asking() -> None:
    for client, name in (
        (good.CheckpointsWheneverItLikes, f"{5:020}.checkpoint.parquet"),
        (good.WritesChecksumsOfItsCommits, f"{6:020}.crc"),
    ):
        with clients.scenario(client, "catalogManaged") as s:
            log = log_of(s)
            request = m.Transact(table=s.name_of(log.table), marker=s.attempt(), adds=(m.DataFile(path="mine"),))
            assert s.act("writer", request, log.table).answer == m.Committed(version=6)
            assert name in names(log)
            assert file_name(6) not in names(log)
            assert not s.asked(m.MaintenancePolicy)


def published_by(s: ClientScenario) -> list[int]:
    """Up to which versions the client had commits backfilled."""
    return [
        heard.request.version
        for heard in s.asked(m.BackfillToVersion)
        if isinstance(heard.request, m.BackfillToVersion)
    ]


def test_commits_are_backfilled_before_a_job_or_when_it_needs_them() -> None:
    for client, expected in ((ModelClient, []), (good.PublishesBeforeEveryJob, [5])):
        with clients.scenario(client) as s:
            log = log_of(s)
            assert (
                s.act("maintenance", m.Checkpoint(table=s.name_of(log.table), version=2), log.table).answer == m.Done()
            )
            assert published_by(s) == expected


def test_a_checkpoint_may_come_without_a_hint() -> None:
    for client, hinted in ((ModelClient, True), (good.LeavesNoHint, False)):
        with clients.scenario(client) as s:
            log = log_of(s)
            assert (
                s.act("maintenance", m.Checkpoint(table=s.name_of(log.table), version=2), log.table).answer == m.Done()
            )
            assert ("_last_checkpoint" in names(log)) is hinted
