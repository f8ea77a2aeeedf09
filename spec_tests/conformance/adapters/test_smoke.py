"""`smoke`: it distinguishes a broken adapter from a broken owner, and accuses no correct subject."""

import shlex
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from conformance.adapters.identity import contradictions
from conformance.adapters.in_process import InProcess
from conformance.command.application import application
from conformance.interface import messages as m
from conformance.interface.results import ExitCode, UnusableError
from conformance.interface.subject import Subject
from conformance.models.client import ModelClient
from conformance.models.owner import ModelOwner
from conformance.models.reader import Refused, Resolved
from conformance.mutants import all_mutants
from conformance.scenario.adversary import ClientHost
from conformance.subjects.names import open_subject
from conformance.subjects.smoke import Outcome, SmokeReport, Step, smoke
from spec_tests.conformance.adapters.test_stdio import command
from spec_tests.support.sampling import sampled

GOOD = ModelOwner().hello("kit", m.Hello())


class Altered(ModelOwner):
    """The model with changed answers, as a broken adapter would give them."""

    def __init__(self, **changes: Callable[[Any], m.Answer]) -> None:
        super().__init__()
        for operation, change in changes.items():
            honest = getattr(self, operation)
            setattr(self, operation, lambda client, request, h=honest, c=change: c(h(client, request)))


def tried(**changes: Callable[[Any], m.Answer]) -> SmokeReport:
    return smoke(InProcess(Altered(**changes)))


def failed(report: SmokeReport) -> Step:
    """The first failed step of the report."""
    return next(step for step in report.steps if step.outcome in (Outcome.ADAPTER, Outcome.OWNER))


PARTS = 12
GOOD_OWNERS = [f"good:{i}" for i, entry in all_mutants().items() if not entry.violates and entry.side == "owner"]


@pytest.mark.parametrize("name", ["model", "reference", *sampled(GOOD_OWNERS, 5)])
def test_a_good_owner_passes_all_steps(name: str, tmp_path: Path) -> None:
    with open_subject(name, directory=tmp_path) as subject:
        report = smoke(subject)
    assert report.ok, str(report)
    assert {step.outcome for step in report.steps} == {Outcome.OK}
    assert len(report.steps) > 5


@pytest.mark.parametrize("part", sampled(range(PARTS), PARTS))
def test_no_mutant_is_reported_as_a_broken_adapter(part: int) -> None:
    """A mutant's answers are valid messages with a wrong content, which the checks find. Mutants of the interface are
    excluded: they break what an adapter is responsible for.
    """
    interface = {"PROFILE-CORE-01", "PROFILE-CORE-02", "PROFILE-CORE-03"}
    for identifier, mutant in [*all_mutants().items()][part::PARTS]:
        if mutant.side == "owner" and mutant.violates and not set(mutant.violates) <= interface:
            with open_subject(f"mutant:{identifier}") as subject:
                assert smoke(subject).adapter == "", identifier


BROKEN: dict[str, tuple[dict[str, Callable[[Any], m.Answer]], str, str]] = {
    "hello changes": (
        {"hello": lambda answer: msgspec.structs.replace(answer, version=str(uuid.uuid4()))},
        "must always be answered by the same", "#hello",
    ),
    "another interface": (
        {"hello": lambda answer: msgspec.structs.replace(answer, interface_version=2)},
        "`interface_version` is 2, but this kit implements 1", "#hello",
    ),
    "create_table names no table": (
        {"create_table": lambda answer: m.Ratified(version=0)}, "must name the table, in `table`", "#create_table",
    ),
    "no answer to commit": (
        {"commit": lambda answer: m.Unknown(reason="no answer within 10 s")}, "10 s; expected `ratified`", "#commit",
    ),
    "whole paths": (
        {"observe": lambda answer: msgspec.structs.replace(answer, files=tuple(
            msgspec.structs.replace(file, name=f"/tables/t/_delta_log/{file.name}") for file in answer.files))},
        "expected a name relative to the log folder: '00000000000000000000.json'", "#observe",
    ),
    "no contents": (
        {"observe": lambda answer: msgspec.structs.replace(answer, files=tuple(
            msgspec.structs.replace(file, content=None) for file in answer.files))},
        "returned no content", "#observe",
    ),
    "sizes in characters, or made up": (
        {"observe": lambda answer: msgspec.structs.replace(answer, files=tuple(
            msgspec.structs.replace(file, size=1) for file in answer.files))},
        "returned the wrong size 1", "#observe",
    ),
    "staged files of another name": (
        {"get_commits": lambda answer: msgspec.structs.replace(answer, commits=tuple(
            msgspec.structs.replace(commit, file_name="1.json") for commit in answer.commits))
            if isinstance(answer, m.Commits) else answer},
        "is named `<version with 20 digits>.<attempt>.json`", "#observe",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "words", "anchor"), BROKEN.values(), ids=BROKEN)
def test_an_invalid_answer_is_shown_with_what_was_expected(
    changes: dict[str, Callable[[Any], m.Answer]], words: str, anchor: str
) -> None:
    report = tried(**changes)
    step = failed(report)
    assert step.outcome is Outcome.ADAPTER
    assert words in step.detail
    assert step.see.endswith(anchor)
    assert step.request.startswith('`{"op":')
    assert step.answer.startswith('`{"outcome":')
    assert not report.ok
    assert words in report.adapter
    assert "the adapter is broken" in str(report)


def test_after_an_invalid_answer_independent_steps_run() -> None:
    class Unreadable(ModelOwner):
        def get_commits(self, client: str, request: m.GetCommits) -> Any:
            return super().get_commits(client, request) if request.table in self.tables else {"outcome": "not_found"}

    report = smoke(InProcess(Unreadable()))
    wrong = [step.name for step in report.steps if step.outcome is not Outcome.OK]
    assert wrong == ["get_commits of an unknown table"]
    step = failed(report)
    assert step.outcome is Outcome.ADAPTER
    assert step.detail == "it must be an answer of the interface"
    assert step.request.startswith('`{"op":"get_commits"')
    assert step.answer == "{'outcome': 'not_found'}"
    assert step.see.endswith("#get_commits")
    assert report.steps[-1].name != step.name


@pytest.mark.processes
def test_a_dead_subject_is_reported_once() -> None:
    with open_subject(f"stdio:{shlex.join(command('no JSON'))}") as subject:
        report = smoke(subject)
    assert failed(report).name == "get_commits of an unknown table"
    assert "`version 1 is ratified`, which is not JSON" in failed(report).detail
    assert {step.outcome for step in report.steps[3:]} == {Outcome.SKIPPED}
    assert report.adapter == str(failed(report))


WRONG: dict[str, tuple[dict[str, Callable[[Any], m.Answer]], str]] = {
    "an unknown table has commits": (
        {"get_commits": lambda answer: m.Commits(commits=(), latest=None)}, "expected `not_found`",
    ),
    "nothing can be created": ({"create_table": lambda answer: m.Rejected()}, "expected `ratified` for the only"),
    "nothing can be committed": ({"commit": lambda answer: m.Gap(latest=0)}, "expected `ratified`: version 1 follows"),
    "another version": ({"commit": lambda answer: m.Ratified(version=7)}, "that was proposed, 1, not 7"),
    "lost commits": (
        {"get_commits": lambda answer: m.Commits(commits=(), latest=1) if isinstance(answer, m.Commits) else answer},
        "version 1 was ratified, but `get_commits` does not list it",
    ),
    "neither file nor actions": (
        {"get_commits": lambda answer: msgspec.structs.replace(answer, commits=tuple(
            m.CommitEntry(version=commit.version) for commit in answer.commits))
            if isinstance(answer, m.Commits) else answer},
        "with neither `file_name` nor `actions`",
    ),
    "another latest": (
        {"get_commits": lambda answer: msgspec.structs.replace(answer, latest=5)
         if isinstance(answer, m.Commits) else answer},
        "`latest` must be 1",
    ),
    "every attempt wins": (
        {"commit": lambda answer: m.Ratified(version=1)}, "expected `conflict`: another attempt is version 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), WRONG.values(), ids=WRONG)
def test_a_broken_owner_is_not_reported_as_a_broken_adapter(
    changes: dict[str, Callable[[Any], m.Answer]], words: str
) -> None:
    report = tried(**changes)
    step = failed(report)
    assert step.outcome is Outcome.OWNER
    assert words in step.detail
    assert report.adapter == ""
    assert not report.ok
    assert "the adapter works" in str(report)


def test_a_raised_exception_is_an_error_of_the_owner() -> None:
    def fail(answer: Any) -> m.Answer:
        raise ZeroDivisionError

    report = tried(backfill_to_version=fail)
    assert failed(report).outcome is Outcome.OWNER
    assert "ZeroDivisionError" in failed(report).answer


# `hello`


CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "side": ({"side": "owners"}, "`side` is 'owners'; did you mean 'owner'?"),
    "name": ({"name": " "}, "`name` is empty"),
    "profile": ({"profiles": (*GOOD.profiles, "idempotent")}, "'idempotent' is not a profile"),
    "near profile": ({"profiles": (*GOOD.profiles, "idempotent-retries")}, "did you mean 'idempotent-retry'?"),
    "no core": ({"profiles": GOOD.profiles[1:]}, "`profiles` lacks `core`"),
    "promise": ({"promises": ("freshness",)}, "'freshness' is not a promise"),
    "feature": ({"features": ("coordinatedCommits",)}, "'coordinatedCommits' is not a feature"),
    "no feature": ({"features": (), "commit_modes": {}}, "`features` is empty"),
    "a client without commit modes": ({"side": "client", "commit_modes": {}}, "`commit_modes` lacks 'managedCommit'"),
    "no modes": ({"commit_modes": {"managedCommit": ("staged", "direct")}},
        "`commit_modes` lacks 'catalogManaged'"),
    "an unknown commit mode": (
        {"commit_modes": {**GOOD.commit_modes, "managedCommit": ("stage", "staged")}}, "did you mean 'staged'",
    ),
    "inline for the older table feature": (
        {"commit_modes": {**GOOD.commit_modes, "managedCommit": ("staged", "inline")}},
        "'inline' is not a commit mode of managedCommit tables",
    ),
    "commit modes of no feature": ({"features": ("catalogManaged",)}, "`commit_modes` names 'managedCommit'"),
    "a profile without its commit mode": (
        {"commit_modes": {"managedCommit": ("staged",), "catalogManaged": ("staged", "inline")}},
        "the profile `direct-publish` is declared, and `commit_modes` offers 'direct' for no feature",
    ),
    "a commit mode without its profile": (
        {"profiles": tuple(profile for profile in GOOD.profiles if profile != "inline")},
        "`commit_modes` offers 'inline', and the profile `inline` is not declared",
    ),
    "a limit": ({"limits": {"inline_bytes": 0}}, "the limit 'inline_bytes' is 0"),
    "crash points": (
        {"profiles": tuple(name for name in GOOD.profiles if name != "harness-control"), "crash_points": ("x",)},
        "the profile `harness-control` is not declared",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_contradiction_in_hello_is_an_adapter_error(changes: dict[str, Any], words: str) -> None:
    problems = contradictions(msgspec.structs.replace(GOOD, **changes))
    assert any(words in problem for problem in problems), problems
    report = smoke(InProcess(Altered(hello=lambda answer: msgspec.structs.replace(answer, **changes))))
    assert words in report.adapter
    assert [step.name for step in report.steps] == ["repeated hello", "identity"]


@pytest.mark.parametrize("name", ["model-client", "reference-client", "reference-client-remote", *(
    f"good:{i}" for i, e in all_mutants().items() if not e.violates and e.side == "client")])  # fmt: skip
def test_a_good_client_reads_and_writes_a_table_of_the_kits_owner(name: str) -> None:
    host = ClientHost()
    with open_subject(name, owner=host.ask) as subject:
        report = smoke(subject, host)
    assert report.ok, str(report)
    assert {step.outcome for step in report.steps} <= {Outcome.OK, Outcome.SKIPPED}


@pytest.mark.parametrize("commit_mode", ["inline", "direct"])
def test_a_client_of_one_commit_mode_is_tested_in_that_mode(commit_mode: str) -> None:
    class Client(ModelClient):
        def hello(self, client: str, request: m.Hello) -> m.Identity:
            modes = {"catalogManaged": (commit_mode,)}
            return msgspec.structs.replace(
                super().hello(client, request), features=tuple(modes), commit_modes=modes, profiles=profiles
            )

        def _request(self, table: Resolved, version: int, attempt: str, actions: tuple[str, ...]) -> m.Commit:
            if table.commit_mode != commit_mode:
                raise Refused(f"{table.commit_mode} commits are not supported")
            return super()._request(table, version, attempt, actions)

    host = ClientHost()
    profiles: tuple[str, ...] = ("core", "inline", "direct-publish")
    assert smoke(InProcess(Client(host.ask)), host).ok
    profiles = ("core",)
    assert f"with {commit_mode} commits" in failed(smoke(InProcess(Client(host.ask)), host)).detail


def test_a_wrong_read_of_a_client_is_reported() -> None:
    host = ClientHost()
    client = ModelClient(host.ask)
    client.snapshot = lambda asker, request: m.SnapshotRead(version=0, files=())  # type: ignore[method-assign]
    step = failed(smoke(InProcess(client), host))
    assert step.outcome is Outcome.OWNER
    assert "`snapshot_read` of version 1" in step.detail
    client.snapshot = lambda asker, request: m.Unknown(reason="no answer")  # type: ignore[method-assign]
    assert failed(smoke(InProcess(client), host)).outcome is Outcome.ADAPTER


def test_the_error_for_a_subject_that_needs_its_old_folder_says_so() -> None:
    def reopen() -> Subject:
        raise UnusableError("the subject 'x' ended with exit code 1")

    step = failed(smoke(InProcess(ModelOwner()), reopen=reopen))
    assert (step.name, step.outcome) == ("empty folder", Outcome.ADAPTER)
    assert "exit code 1" in step.detail
    assert "$CONFORMANCE_DIRECTORY" in step.detail


def test_an_invalid_answer_to_hello_is_a_step_with_an_explanation(tmp_path: Path) -> None:
    """A run reports the same: the request, the answer, and the page that describes the answer."""
    program = tmp_path / "owner.py"
    program.write_text(
        "import json, sys\n"
        "call = json.loads(sys.stdin.readline())\n"
        "who = {'outcome': 'identity', 'name': 'x', 'versoin': '1', 'interface_version': 1, 'side': 'owner'}\n"
        "print(json.dumps({'id': call['id'], 'answer': {**who, 'profiles': ['core']}}), flush=True)\n"
        "sys.stdin.read()\n",
        "utf-8",
    )
    named = f"stdio:{shlex.join([sys.executable, str(program)])}"
    for arguments in (["smoke", named], ["smoke", named, "--json"], ["run", named]):
        result = CliRunner().invoke(application, arguments)
        assert result.exit_code == ExitCode.USAGE
        printed = result.output
        for fact in (
            "adapter  hello: ",
            "did you mean 'version'?",
            "TEST_YOUR_OWNER.md#hello",
            "answer: ",
            "request: ",
        ):
            assert fact in printed, (arguments, printed)
