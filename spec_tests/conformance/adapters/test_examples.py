"""The two example owners that users start from: they are short and correct, and need only their standard libraries."""

import ast
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conformance.checks import all_checks
from conformance.command.application import application
from conformance.command.listing import files
from conformance.interface import messages as m
from conformance.interface.subject import Subject
from conformance.models import proposals
from conformance.results import Layer, Verdict
from conformance.running.verdicts import failing
from conformance.scenario.check import Family
from conformance.scenario.running import run_case
from conformance.subjects.names import open_subject
from conformance.subjects.smoke import smoke

pytestmark = pytest.mark.processes

LONG = 120.0
PYTHON, NODE = files()["owner.py"], files()["owner.mjs"]
COMMANDS = {
    "python": f"stdio:{shlex.join([sys.executable, '-S', str(PYTHON)])}",
    "node": f"stdio:node {shlex.quote(str(NODE))}",
}
CORE = (Family.CONCURRENT_WRITERS, Family.VERSION_0, Family.BACKFILL)
LONGEST = 210
"""The maximum number of lines of an example."""


@pytest.fixture(params=COMMANDS)
def name(request: pytest.FixtureRequest) -> str:
    if request.param == "node" and shutil.which("node") is None:
        pytest.skip("there is no node on this machine")
    return COMMANDS[request.param]


def proposal(table: str, version: int, attempt: str) -> m.Commit:
    actions = proposals.append(attempt, proposals.BASE_TIME + version)
    return m.Commit(table=table, version=version, attempt=attempt, actions=actions)


def created(subject: Subject) -> tuple[str, m.CreateTable]:
    """A table of the subject, and the answer to its creation."""
    feature = subject.identity.features[-1]
    request = m.CreateTable(
        name="orders", feature=feature, commit_mode=subject.identity.commit_modes[feature][0], attempt="creation",
        actions=proposals.version_0(feature, "creation", "id"),
    )  # fmt: skip
    answer = subject.ask("a", request)
    assert isinstance(answer, m.Ratified)
    assert answer.table is not None
    return answer.table, request


def test_smoke_passes(name: str) -> None:
    with open_subject(name, timeout=LONG) as subject:
        report = smoke(subject)
    assert report.ok, str(report)


def test_a_conversation_has_the_expected_answers(name: str) -> None:
    with open_subject(name, timeout=LONG) as subject:
        table, creation = created(subject)
        assert subject.ask("a", creation) == m.Ratified(version=0, table=table)
        assert subject.ask("a", proposal(table, 1, "first")) == m.Ratified(version=1)
        assert subject.ask("a", proposal(table, 1, "first")) == m.Ratified(version=1)
        lost = subject.ask("b", proposal(table, 1, "second"))
        assert isinstance(lost, m.Conflict)
        assert lost.latest == 1
        assert [each.version for each in lost.winners or ()] == [1]
        assert subject.ask("b", proposal(table, 3, "third")) == m.Gap(latest=1)
        listed = subject.ask("c", m.GetCommits(table=table))
        assert isinstance(listed, m.Commits)
        assert [each.version for each in listed.commits] == [1]
        assert subject.ask("c", m.BackfillToVersion(table=table, version=1)) == m.Done()
        listed = subject.ask("c", m.GetCommits(table=table))
        assert listed == m.Commits(commits=(), latest=1)
        seen = subject.ask("c", m.Observe(table=table))
        assert isinstance(seen, m.Observation)
        published = {file.name: file.content for file in seen.files}
        assert proposals.attempt_of(published["00000000000000000001.json"] or "") == "first"
        assert subject.ask("c", m.DropTable(table=table)) == m.Done()
        assert subject.ask("c", proposal(table, 2, "late")) == m.NotFound()


def test_the_core_checks_pass(name: str) -> None:
    """The checks of the core families, with one variant each. The command `run` executes all variants."""
    with open_subject(name, timeout=LONG) as subject:
        for check in all_checks():
            variants = check.variants(subject.identity) if check.side == "owner" and check.family in CORE else []
            if variants and check.layer is Layer.EXAMPLE:
                result = run_case(check, variants[-1], subject)
                advice_only = result.verdict is Verdict.FAILED and not failing([result])
                assert advice_only or result.verdict is Verdict.PASSED, (result.case, result.reason, result.violations)


def test_the_durable_example_survives_a_kill_and_a_torn_write(tmp_path: Path) -> None:
    with open_subject(COMMANDS["python"], timeout=LONG, directory=tmp_path) as subject:
        table, _ = created(subject)
        assert subject.ask("a", proposal(table, 1, "first")) == m.Ratified(version=1)
        subject.ask("kit", m.Crash())
        with (tmp_path / "journal.jsonl").open("ab") as journal:
            journal.write(b'{"fact": "ratified", "table": "or')  # a kill during a write leaves this
        assert subject.ask("kit", m.Restart()) == m.Done()
        assert subject.ask("a", proposal(table, 2, "second")) == m.Ratified(version=2)
        subject.ask("kit", m.Restart())
        assert subject.ask("a", proposal(table, 1, "first")) == m.Ratified(version=1)
        assert subject.ask("a", proposal(table, 2, "second")) == m.Ratified(version=2)
        assert isinstance(subject.ask("a", proposal(table, 2, "other")), m.Conflict)


def test_the_examples_need_only_their_standard_libraries() -> None:
    imported = set()
    for node in ast.walk(ast.parse(PYTHON.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported <= sys.stdlib_module_names
    modules = re.findall(r"""(?:from|import|require)\s*\(?\s*["']([^"']+)["']""", NODE.read_text(encoding="utf-8"))
    assert modules
    assert all(each.startswith("node:") for each in modules)


def test_each_example_is_about_a_page_long() -> None:
    for path in (PYTHON, NODE):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


def test_the_examples_can_be_printed() -> None:
    printed = CliRunner().invoke(application, ["examples", "owner.mjs", "owner.py"])
    assert printed.output == NODE.read_text(encoding="utf-8") + PYTHON.read_text(encoding="utf-8")
    listed = CliRunner().invoke(application, ["examples"])
    assert [line.split()[0] for line in listed.output.splitlines()] == ["name", *files()]
    unknown = CliRunner().invoke(application, ["examples", "owner.rs"])
    assert unknown.exit_code == 2
    assert "unknown example 'owner.rs'; expected one of owner.py, owner.mjs" in unknown.output
