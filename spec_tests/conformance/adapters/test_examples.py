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
from conformance.interface.results import Layer, Verdict
from conformance.scenario.check import Family
from conformance.scenario.running import run_case
from conformance.subjects.names import open_subject
from spec_tests.conformance.asking import Asking, Table

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


def created(owner: Asking, **more: str) -> Table:
    feature = owner.identity.features[-1]
    return owner.table(feature=feature, commit_mode=owner.identity.commit_modes[feature][0], **more)


def test_the_core_checks_pass(name: str) -> None:
    """The checks of the core families, with one variant each. The command `run` executes all variants."""
    with open_subject(name, timeout=LONG) as subject:
        for check in all_checks():
            variants = check.variants(subject.identity) if check.side == "owner" and check.family in CORE else []
            if variants and check.layer is Layer.EXAMPLE:
                result = run_case(check, variants[-1], subject)
                publishes_later = result.reason.endswith("the owner may do it later")
                assert publishes_later or result.verdict is Verdict.PASSED, (result.case, result.reason)
                assert not result.violations


def test_the_durable_example_survives_a_kill_and_a_torn_write(tmp_path: Path) -> None:
    with Asking(open_subject(COMMANDS["python"], timeout=LONG, directory=tmp_path)) as owner:
        table = created(owner)
        (first,) = table.land(1)
        owner.ask(m.Crash())
        with (tmp_path / "journal.jsonl").open("ab") as journal:
            journal.write(b'{"fact": "ratified", "table": "or')  # a kill during a write leaves this
        owner.expect(m.Done, m.Restart())
        (second,) = table.land(2)
        owner.expect(m.Done, m.Restart())
        assert [owner.ask(commit) for commit in (first, second)] == [m.Ratified(version=1), m.Ratified(version=2)]
        owner.expect(m.Conflict, table.proposal(2))


def test_a_file_of_another_writer_does_not_end_the_durable_example(tmp_path: Path) -> None:
    with Asking(open_subject(COMMANDS["python"], timeout=LONG, directory=tmp_path)) as owner:
        table = created(owner)
        table.land(1)
        (log,) = tmp_path.glob("tables/*/_delta_log")
        other = log / f"{1:020}.json"
        other.write_text("{}\n")
        backfill = m.BackfillToVersion(table=table.reference, version=1)
        assert "another content" in owner.expect(m.Rejected, backfill).reason
        assert other.read_text() == "{}\n"
        other.unlink()
        owner.expect(m.Done, backfill)


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
    assert all(module.startswith("node:") for module in modules)


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
