"""Engines as subjects: each violates only the known requirements and passes the others."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from conformance.adapters.engines.delta_kernel import DeltaKernel
from conformance.adapters.engines.delta_kernel_rs import DeltaKernelRs
from conformance.adapters.engines.delta_rs import DeltaRs
from conformance.adapters.engines.delta_spark import DeltaSpark
from conformance.adapters.engines.sail import Sail
from conformance.checks import all_checks
from conformance.command.application import application
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.interface.results import ExitCode, Layer
from conformance.models import proposals
from conformance.programs import pinned
from conformance.running import execution
from spec_tests.engines.prerequisites import needed_jars

EXAMPLES: Final = [check.name for check in all_checks() if check.layer is Layer.EXAMPLE and check.side == "client"]
WRITTEN: Final = [word for name in (f"{pinned.CHECKS.replace('_', '-')}*", *EXAMPLES) for word in ("--check", name)]
"""Options for the pinned programs and the examples."""

# Delta Kernel, for Java and for Rust: a part of the quick profile

KERNELS: Final = {
    "delta-kernel": (("writing", "conflicts"), {"CONFLICT-RETRY-05", "FIELD-04"}),
    "delta-kernel-rs": (
        ("reading", "backfill-ordering", "limits"),
        {"CM-ACCESS-01", "FIELD-03", "FIELD-05", "ICT-22", "LOG-08", "LOG-21", "LOG-26", "LOG-38", "PROFILE-CLIENT-01"},
    ),
}
"""For each engine: families of checks, and the requirements or advice that it violates there."""


def violated(cases: list[dict[str, Any]]) -> set[str]:
    return {name for case in cases for violation in case.get("violations", ()) for name in violation["requirements"]}


def kernel_cases(subject: str, report: Path, *options: str) -> list[dict[str, Any]]:
    """The cases of a run. Skips the test if the engine, or this version of it, is missing."""
    engine = DeltaKernelRs if "delta-kernel-rs" in subject else DeltaKernel
    if problem := engine.missing(subject.partition("@")[2] or None):
        pytest.skip(problem)
    arguments = ["run", subject, "-n", "1", "--budget", "1h", *WRITTEN, "--report", str(report), *options]
    CliRunner().invoke(application, arguments)
    cases: list[dict[str, Any]] = json.loads((report / "result.json").read_text())["cases"]
    return cases


@pytest.mark.engines
@pytest.mark.processes
@pytest.mark.parametrize("engine", KERNELS)
def test_delta_kernel_violates_only_the_known_requirements(engine: str, tmp_path: Path) -> None:
    families, known = KERNELS[engine]
    options = [word for family in families for word in ("--family", family)]
    cases = kernel_cases(f"engine:{engine}", tmp_path, *options)
    assert violated(cases) == known
    assert sum(case["verdict"] == "passed" for case in cases) > len(cases) // 3


# delta-rs, on filesystem tables, and Sail: all checks

WHEELS: Final = {
    DeltaRs: (
        {"LOG-19", "LOG-21", "LOG-26", "LOG-32", "LOG-35", "LOG-36", "LOG-37", "LOG-38", "LOG-39", "LOG-50", "FIELD-03",
         "CONFLICT-FILES-02", "PROFILE-CLIENT-02"},
        {"passed": 7, "failed": 4, "skipped": 4, "inconclusive": 1},
    ),
    Sail: (
        {"CM-FILES-04", "CM-PUBLISH-08", "CM-READ-02", "CM-READ-04", "CM-READ-05", "FIELD-03", "ICT-17", "ICT-18",
         "ICT-19", "ICT-20", "LOG-13", "LOG-17", "LOG-26", "LOG-27"},
        {"passed": 1, "failed": 4, "skipped": 3, "inconclusive": 8},
    ),
}  # fmt: skip
"""For each engine: the requirements and advice that it violates, and the number of cases with each verdict."""


@pytest.mark.engines
@pytest.mark.parametrize("engine", WHEELS, ids=lambda engine: engine.engine)
def test_a_wheel_violates_only_the_known_requirements(engine: type[DeltaRs | Sail], tmp_path: Path) -> None:
    if problem := engine.missing(None):
        pytest.skip(problem)
    arguments = ["run", f"engine:{engine.engine}", "--budget", "1h", *WRITTEN, "--report", str(tmp_path)]
    shown = CliRunner().invoke(application, arguments)
    assert shown.exit_code == 1, shown.output
    known, verdicts = WHEELS[engine]
    cases = json.loads((tmp_path / "result.json").read_text("utf-8"))["cases"]
    assert violated(cases) == known
    assert Counter(case["verdict"] for case in cases) == verdicts


@pytest.mark.engines
def test_an_engine_runs_programs_too(tmp_path: Path) -> None:
    if problem := DeltaRs.missing(None):
        pytest.skip(problem)
    arguments = ["run", "engine:delta-rs", "--check", "any-log-is-read", "-n", "1", "--report", str(tmp_path)]
    CliRunner().invoke(application, arguments)
    [case] = json.loads((tmp_path / "result.json").read_text("utf-8"))["cases"]
    assert violated([case]) <= WHEELS[DeltaRs][0]
    assert case["programs"] > 0


@pytest.mark.engines
def test_no_program_begins_in_the_reserve_of_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if problem := DeltaRs.missing(None):
        pytest.skip(problem)
    monkeypatch.setattr(execution, "RESERVE", 1)  # all of it
    shown = CliRunner().invoke(application, ["run", "engine:delta-rs", "--check", "any-log-is-read", "-n", "1"])
    assert shown.exit_code == ExitCode.INCOMPLETE, shown.output
    assert execution.NO_TIME in shown.output


@pytest.mark.engines
@pytest.mark.parametrize(("feature", "reads"), [("managedCommit", True), ("catalogManaged", False)])
def test_an_owned_table_is_never_written_by_path(tmp_path: Path, feature: str, *, reads: bool) -> None:
    """The published commits of a managedCommit table may be read by path. A catalog-managed table must be refused."""
    if problem := DeltaRs.missing(None):
        pytest.skip(problem)
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    versions = (proposals.version_0(feature, "first", "table"), proposals.append("second", 2, ["a"]))
    for version, actions in enumerate(versions):
        (log / commit_file(version)).write_text(proposals.content(actions))
    path = str(log.parent)
    client = DeltaRs(lambda _, __: m.Unknown(), tmp_path)
    read = client.snapshot("reader", m.Snapshot(path=path))
    assert (read.version, read.files) == (1, ("a",)) if isinstance(read, m.SnapshotRead) else not reads
    assert isinstance(read, m.SnapshotRead) == reads
    written = client.transact("writer", m.Transact(table=path, marker="mine", adds=(m.DataFile(path="b"),)))
    client.close()
    assert isinstance(written, m.Conflict | m.Rejected)
    assert sorted(file.name for file in log.iterdir()) == [commit_file(0), commit_file(1)]


@pytest.mark.engines
def test_a_table_with_unsupported_features_is_rejected_not_lost(tmp_path: Path) -> None:
    """delta-rs raises the same exception for a conflict."""
    if problem := DeltaRs.missing(None):
        pytest.skip(problem)
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata"]}
    actions = (proposals.line("protocol", features), proposals.metadata("table", 1, stamped=False))
    (log / commit_file(0)).write_text(proposals.content(actions))
    client = DeltaRs(lambda _, __: m.Unknown(), tmp_path)
    request = m.Transact(table=str(log.parent), marker="mine", adds=(m.DataFile(path="b"),))
    written = client.transact("writer", request)
    client.close()
    assert isinstance(written, m.Rejected)


# Delta Spark as a client of the kit's owner, through a catalog and through a coordinator

WRONG: Final = {
    "delta-spark": {},
    "delta-spark-coordinated": {"pinned-programs-of-clients-in-writing": "CONFLICT-RETRY-06"},
}
"""For each engine and check: a requirement or advice that Delta 4.4.0 violates, if no stored finding shows it. The
findings have their own test, `test_the_file_of_a_finding_reproduces_it`."""
RIGHT: Final = {
    "delta-spark": ("pinned-programs-of-clients-in-conflicts",),
    "delta-spark-coordinated": (
        "pinned-programs-of-clients-in-conflicts", "pinned-programs-of-clients-in-in-commit-timestamps",
    ),
}  # fmt: skip
PASSED: Final = [(engine, check) for engine, checks in RIGHT.items() for check in checks]
DEVIATING: Final = [(engine, *known) for engine, checks in WRONG.items() for known in checks.items()]


def in_one_process(tried: Sequence[tuple[str, ...]]) -> list[Any]:
    """The tests of an engine, which share a run, in one process."""
    return [pytest.param(*name, marks=pytest.mark.xdist_group(f"run-{name[0]}")) for name in tried]


@pytest.fixture(scope="module")
def spark_cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """The cases of an engine, by check. One run serves all tests, because starting Spark takes longer than any of
    them.
    """
    needed_jars()
    if problem := DeltaSpark.missing(None):
        pytest.skip(problem)

    @cache
    def run(engine: str) -> dict[str, Any]:
        report = tmp_path_factory.mktemp("run") / "report"
        command = [sys.executable, "-m", "conformance", "run", f"engine:{engine}", "--strict", "--budget", "900s"]
        chosen = [argument for check in (*WRONG[engine], *RIGHT[engine]) for argument in ("--check", check)]
        arguments = [*command, "-n", "1", *chosen, "--report", str(report)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert done.returncode == (1 if WRONG[engine] else 0), done.stderr
        return {case["check"]: case for case in json.loads((report / "result.json").read_text())["cases"]}

    return run


@pytest.mark.engines
@pytest.mark.parametrize(("engine", "check", "requirement"), in_one_process(DEVIATING))
def test_a_known_deviation_is_shown_by_its_check(
    spark_cases: Callable[[str], dict[str, Any]], engine: str, check: str, requirement: str
) -> None:
    assert requirement in violated([spark_cases(engine)[check]])


@pytest.mark.engines
@pytest.mark.parametrize(("engine", "check"), in_one_process(PASSED))
def test_delta_spark_passes_the_other_checks(
    spark_cases: Callable[[str], dict[str, Any]], engine: str, check: str
) -> None:
    assert spark_cases(engine)[check]["verdict"] == "passed"


@pytest.mark.engines
def test_the_error_for_an_unknown_version_lists_the_known_ones() -> None:
    assert DeltaSpark.missing("4.3.0") == "unknown version '4.3.0'; expected 4.4.0, which PySpark 4.2 runs"
