"""The reference passes its own kit: every example check, on both sides, each with one table feature and commit mode,
and a few programs of every third family of clients.

`delta-commit-conformance run reference --profile quick` and the same command for `reference-client` run all
combinations.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.adapters.in_process import InProcess
from conformance.adapters.reference.client import ReferenceClient, RemoteReferenceClient
from conformance.adapters.reference.host_effects import CRASH_POINTS
from conformance.adapters.reference.owner import FILESYSTEM_TABLES, ReferenceOwner
from conformance.checks import all_checks
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.interface.log_names import STAGING
from conformance.interface.results import CaseResult, Layer, Verdict
from conformance.interface.subject import GONE, Subject
from conformance.models.proposals import content
from conformance.programs import pinned
from conformance.programs.cases import run_case
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Check, Family, Variant
from conformance.simulation.operations import COMMIT_MODES
from spec_tests.conformance.asking import Asking, Table, attempt
from spec_tests.support.sampling import sampled

PROGRAMS, SEED = 6, 8


def checks_of(side: str, layer: Layer = Layer.EXAMPLE) -> dict[Family, list[Check]]:
    checks: dict[Family, list[Check]] = {}
    for check in all_checks():
        if check.side == side and check.layer is layer:
            checks.setdefault(check.family, []).append(check)
    return checks


def cases(subject: Subject, checks: Iterable[Check]) -> Iterator[tuple[Check, Variant]]:
    """Each check with one of its variants, in turn."""
    for number, check in enumerate(checks):
        if variants := check.variants(subject.identity):
            yield check, variants[number % len(variants)]


def every_pinned(subject: Subject, checks: Iterable[Check]) -> Iterator[tuple[Check, Variant]]:
    """Pinned programs with all their variants, and the generated ones of a check with one."""
    for check in checks:
        variants = check.variants(subject.identity)
        yield from ((check, variant) for variant in variants[: None if pinned.is_of_pinned(check.name) else 1])


def judged(results: Iterator[CaseResult]) -> None:
    """Every check passes."""
    some = False
    for result in results:
        some = True
        messages = [violation.message for violation in result.violations]
        assert result.verdict is Verdict.PASSED, (result.case, result.reason, messages)
    assert some


@pytest.mark.parametrize("family", checks_of("owner"), ids=str)
def test_the_owner_passes_every_check(tmp_path: Path, family: Family) -> None:
    def results() -> Iterator[CaseResult]:
        with InProcess(ReferenceOwner(tmp_path / "warehouse")) as subject:
            for check, variant in cases(subject, checks_of("owner")[family]):
                yield run_case(check, variant, subject)

    judged(results())


@pytest.mark.parametrize("family", checks_of("client"), ids=str)
def test_the_client_passes_every_check(family: Family) -> None:
    host = ClientHost()

    def results() -> Iterator[CaseResult]:
        with InProcess(ReferenceClient(host.ask)) as subject:
            for check, variant in cases(subject, checks_of("client")[family]):
                yield run_case(check, variant, subject, host=host)

    judged(results())


@pytest.mark.parametrize("family", sampled(checks_of("client", Layer.MODEL), 3), ids=str)
def test_the_client_passes_programs(family: Family) -> None:
    host = ClientHost()
    with InProcess(ReferenceClient(host.ask)) as subject:
        for check, variant in every_pinned(subject, checks_of("client", Layer.MODEL)[family]):
            generation = Generation(check, variant, subject, seed=SEED, count=PROGRAMS, host=host, shrink=False)
            check.function(generation)
            result = generation.result()
            assert result.violations == (), (result.case, result.reproduction)
            assert generation.operations > 0


@pytest.mark.longer
def test_the_client_over_the_delta_api_violates_nothing() -> None:
    """The remote owner allows only the maintenance that is always allowed, and returns no additional metadata of a
    table.
    """
    host = ClientHost()
    passed = 0
    with InProcess(RemoteReferenceClient(host.ask)) as subject:
        for check, variant in every_pinned(subject, all_checks()):
            if check.side != "client" or not (check.layer is Layer.EXAMPLE or pinned.is_of_pinned(check.name)):
                continue
            result = run_case(check, variant, subject, host=host)
            assert result.verdict in (Verdict.PASSED, Verdict.INCONCLUSIVE), (result.case, result.violations)
            passed += result.verdict is Verdict.PASSED
    assert passed > 10


both = pytest.mark.parametrize("feature", STAGING)


def opened(directory: Path | None = None, **options: Any) -> Asking:
    return Asking(InProcess(ReferenceOwner(directory, **options)))


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Asking]:
    with opened(tmp_path / "warehouse") as asking:
        yield asking


@pytest.fixture
def other(owner: Asking, tmp_path: Path) -> Iterator[Asking]:
    """Another process on the same warehouse."""
    with opened(tmp_path / "warehouse") as asking:
        yield asking


def test_every_profile_and_commit_mode_is_declared(owner: Asking) -> None:
    identity = owner.identity
    elsewhere = {Profile.CHANGE_DATA, Profile.ROW_TRACKING, Profile.UC_DELTA_API}  # of clients; of a server
    assert set(identity.profiles) == {profile.value for profile in set(Profile) - elsewhere}
    assert {
        (feature, commit_mode)
        for feature, commit_modes in identity.commit_modes.items()
        for commit_mode in commit_modes
    } == set(COMMIT_MODES)
    assert {Promise(promise) for promise in identity.promises} <= set(Promise)
    assert identity.shared_state


# Changing the owner


def test_only_tables_below_its_storage_are_taken_over(owner: Asking, tmp_path: Path) -> None:
    owner.expect(m.Rejected, owner.taking_over(str(tmp_path), 1))
    owner.expect(m.Rejected, owner.taking_over("", 1))
    inside = owner.taking_over(owner.filesystem_table(), 2)
    owner.expect(m.Rejected, msgspec.structs.replace(inside, feature="delta"))
    owner.expect(m.Ratified, inside)


# The kit's access to files


@pytest.mark.parametrize("file", ["../x", "a/../../x", "/etc/x", "", ".."])
def test_plant_and_remove_reach_only_the_log(owner: Asking, file: str) -> None:
    table = owner.table()
    owner.expect(m.Rejected, m.Plant(table=table.reference, file=file, content="x"))
    owner.expect(m.Rejected, m.Remove(table=table.reference, file=file))
    assert table.published() == [0]


def test_plant_and_remove_touch_no_table_outside_the_storage(owner: Asking, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "_delta_log").mkdir(parents=True)
    storage = owner.identity.storage
    for path in (str(tmp_path / "elsewhere"), f"{storage}/../x", str(storage), "/"):
        owner.expect(m.Rejected, m.Plant(table=path, file="x", content="x"))
        owner.expect(m.Rejected, m.Observe(table=path))
    owner.expect(m.NotFound, m.Observe(table=attempt()))
    assert list((tmp_path / "elsewhere" / "_delta_log").iterdir()) == []


# Processes, threads, and the owner's directory


def test_a_temporary_directory_is_removed_with_the_subject(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CONFORMANCE_DIRECTORY", raising=False)
    handler = ReferenceOwner()
    Asking(InProcess(handler)).table()
    assert (handler.directory / FILESYSTEM_TABLES).is_dir()
    handler.close()
    handler.close()
    assert not handler.directory.exists()
    monkeypatch.setenv("CONFORMANCE_DIRECTORY", str(tmp_path / "given"))
    ReferenceOwner().close()
    assert (tmp_path / "given" / "_owner").is_dir()


# Crashes


def dies(owner: Asking, point: str, request: m.Request) -> None:
    """Send a request that kills the owner. The owner answers no request until it starts again."""
    owner.expect(m.Done, m.Crash(point=point))
    for message in (request, m.LoadTable(name="orders"), m.Crash()):
        answer = owner.expect(m.Unknown, message)
        assert answer.reason.startswith(GONE), answer
    owner.expect(m.Done, m.Restart())


def staged(owner: Asking) -> Table:
    return owner.table(feature="managedCommit", commit_mode="staged")


@both
def test_an_incomplete_staged_file_is_never_a_commit(owner: Asking, feature: str) -> None:
    table = owner.table(feature=feature)
    request = table.proposal(1)
    dies(owner, "during-stage", request)
    (name,) = table.staged()
    left = table.files()[f"{STAGING[feature]}/{name}"]
    assert left is not None
    assert content(request.actions or ()).startswith(left)
    assert 0 < len(left) < len(content(request.actions or ()))
    owner.expect(m.Rejected, m.Commit(table=table.reference, version=1, attempt=request.attempt, staged_file=name))
    owner.expect(m.Rejected, request)
    table.land(1)


# The process as a whole


def test_an_unknown_crash_point_is_unsupported(owner: Asking) -> None:
    owner.expect(m.Unsupported, m.Crash(point="after-lunch"))
    staged(owner).land(1)
    assert set(owner.identity.crash_points) == set(CRASH_POINTS)


def test_a_death_frees_the_locks_for_other_processes(owner: Asking, other: Asking) -> None:
    table = staged(owner)
    owner.expect(m.Done, m.Crash(point="before-ratify"))
    owner.expect(m.Unknown, table.proposal(1))
    proposal = table.proposal(1)
    assert other.expect(m.Ratified, proposal).version == 1
    owner.expect(m.Done, m.Restart())
    assert owner.expect(m.Ratified, proposal).version == 1
