"""The watch of log folders: it names what an owner does wrong between two answers, and accuses no good owner."""

import inspect
import sys
from pathlib import Path

import msgspec
import pytest

from conformance.adapters.in_process import InProcess
from conformance.checks import all_checks
from conformance.interface import messages as m
from conformance.interface.log_names import LOG, commit_file
from conformance.interface.results import CaseResult, Verdict
from conformance.models.owner import ModelOwner
from conformance.models.storage import FolderStorage
from conformance.mutants import Mutant, all_mutants
from conformance.oracle.folder import Event, Kind
from conformance.programs import watching
from conformance.programs.cases import run_case
from conformance.programs.watching import Watch, local_folder
from conformance.scenario.check import Variant
from spec_tests.support.sampling import sampled

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is a part of Linux")

BACKFILLS = next(check for check in all_checks() if check.name == "any-sequence-of-publications")
REQUESTS = next(check for check in all_checks() if check.name == "any-sequence-of-requests")
RESTARTS = next(check for check in all_checks() if check.name == "any-sequence-with-restarts")
STAGED = Variant(feature="managedCommit", commit_mode="staged")
INLINE = Variant(feature="catalogManaged", commit_mode="inline")
BAD = [mutant for mutant in all_mutants().values() if mutant.id.startswith("is-seen-to-")]
GOOD = [mutant for mutant in all_mutants().values() if not mutant.violates and mutant.side == "owner"]


def opened(make: type, folder: Path) -> InProcess:
    parameters = inspect.signature(make).parameters
    if "directory" in parameters:
        return InProcess(make(directory=folder))
    return InProcess(make(FolderStorage(folder)) if "storage" in parameters else make())


def run(make: type, folder: Path, variant: Variant = STAGED, *, count: int = 20) -> CaseResult:
    return run_case(BACKFILLS, variant, opened(make, folder), seed=5, count=count)


@pytest.mark.parametrize("variant", sampled([STAGED, INLINE], 2), ids=str)
@pytest.mark.parametrize("mutant", BAD, ids=lambda mutant: mutant.id)
def test_each_bad_owner_is_named_within_twenty_programs(mutant: Mutant, variant: Variant, tmp_path: Path) -> None:
    result = run(mutant.make, tmp_path, variant)
    assert result.verdict is Verdict.FAILED
    assert {*result.violations[0].requirements} & {*mutant.violates}
    assert len(msgspec.json.decode(result.reproduction or "")["steps"]) <= 4


@pytest.mark.parametrize("mutant", sampled(BAD, 3), ids=lambda mutant: mutant.id)
def test_listings_alone_accuse_none_of_them(mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching.sys, "platform", "darwin")
    result = run(mutant.make, tmp_path, count=8)
    assert (result.verdict, result.unwatched) == (Verdict.PASSED, "only Linux reports the order of changes")


@pytest.mark.parametrize("variant", [STAGED, INLINE], ids=str)
def test_the_owner_in_a_folder_passes(variant: Variant, tmp_path: Path) -> None:
    result = run(all_mutants()["is-only-observed"].make, tmp_path, variant, count=6)
    assert (result.verdict, result.reason, result.unwatched) == (Verdict.PASSED, "", "")


def test_a_result_says_that_no_folder_was_watched() -> None:
    result = run_case(REQUESTS, STAGED, InProcess(ModelOwner()), seed=1, count=2)
    assert result.unwatched == "the table's log is not in a local folder"


@pytest.mark.parametrize("mutant", sampled(GOOD, 6), ids=lambda mutant: mutant.id)
def test_no_good_owner_with_a_folder_is_accused(mutant: Mutant, tmp_path: Path) -> None:
    with opened(mutant.make, tmp_path) as subject:
        check = RESTARTS if RESTARTS.variants(subject.identity) else REQUESTS
        for variant in check.variants(subject.identity)[:1]:
            result = run_case(check, variant, subject, seed=1, count=2)
            assert (result.violations, result.reproduction) == ((), None)


class Publisher:
    """A subject that publishes by any `write` to its folder, instead of answering."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder
        self.log = folder / "orders" / LOG
        self.identity = m.Identity(name="publisher", version="1", interface_version=1, side="owner", profiles=("core",))

    def ask(self, client: str, request: m.Request) -> m.Answer:
        self.log.mkdir(parents=True, exist_ok=True)
        assert isinstance(request, m.BackfillToVersion)
        self.publish(request.version)
        return m.Done()

    def publish(self, version: int) -> None:
        temporary = self.directory / "temporary"
        temporary.write_text("{}\n", encoding="utf-8")
        temporary.rename(self.log / commit_file(version))

    def close(self) -> None:
        pass


def kinds(events: list[Event]) -> list[tuple[Kind, int]]:
    return [(event.kind, event.version) for event in events]


def test_events_have_the_request_under_way(tmp_path: Path) -> None:
    subject = Publisher(tmp_path)
    with Watch(subject) as watch:
        first, second = (m.BackfillToVersion(table="orders", version=version) for version in (0, 1))
        watch.ask("a", first)
        subject.publish(2)
        watch.ask("b", second)
        events = watch.events()
    assert kinds(events) == [(Kind.LISTED, 0), (Kind.APPEARED, 2), (Kind.APPEARED, 1)]
    assert [[call.request for call in event.during] for event in events] == [[first], [], [second]]
    assert [event.at for event in events] == [0, 1, 1]


def test_a_file_is_replaced_modified_and_removed(tmp_path: Path) -> None:
    subject = Publisher(tmp_path)
    with Watch(subject) as watch:
        watch.ask("a", m.BackfillToVersion(table="orders", version=0))
        subject.publish(0)
        file = subject.log / commit_file(0)
        with file.open("a", encoding="utf-8") as more:
            more.write("{}\n")
        file.rename(file.with_name("elsewhere"))
        assert kinds(watch.events())[1:] == [(Kind.REPLACED, 0), (Kind.MODIFIED, 0), (Kind.REMOVED, 0)]


def test_the_kit_plants_files_itself_where_the_subject_lets_it_only_watch(tmp_path: Path) -> None:
    subject = Publisher(tmp_path)
    planted = m.Plant(table="orders", file=commit_file(1), content="{}\n", if_absent=True)
    with Watch(subject) as watch:
        watch.ask("a", m.BackfillToVersion(table="orders", version=0))
        watch.place("orders", str(subject.log))
        assert watch.ask("kit", planted) == m.Done()
        assert watch.ask("kit", planted) == m.Conflict()
        subject.publish(2)
        assert watch.ask("kit", m.Remove(table="orders", file=commit_file(1))) == m.Done()
        assert [event.by_kit for event in watch.events()] == [False, True, False, True]


def test_a_new_program_forgets_earlier_logs_and_sees_new_ones(tmp_path: Path) -> None:
    subject = Publisher(tmp_path)
    with Watch(subject) as watch:
        watch.ask("a", m.BackfillToVersion(table="orders", version=0))
        watch.begin()
        subject.publish(1)
        subject.log = tmp_path / "returns" / LOG
        watch.ask("a", m.BackfillToVersion(table="returns", version=0))
        watch.ask("a", m.BackfillToVersion(table="returns", version=1))
        assert kinds(watch.events()) == [(Kind.LISTED, 0), (Kind.APPEARED, 1)]


def test_a_location_may_be_a_uri(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    assert local_folder(folder.as_uri()) == local_folder(f"{folder}/") == folder
