"""delta-rs as a subject: what it violates on plain tables is what is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from conformance.adapters.engines.delta_rs import DeltaRs
from conformance.adapters.engines.wheels import fetch, installed, missing
from conformance.command.application import application
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.interface.subject import UsageError
from conformance.models import proposals

KNOWN: Final = {
    "LOG-21", "LOG-26", "LOG-32", "LOG-35", "LOG-36", "LOG-38", "LOG-39", "FIELD-03", "CONFLICT-FILES-02",
    "CONFLICT-FILES-05",
}  # fmt: skip


@pytest.mark.engines
def test_what_delta_rs_violates_is_known(tmp_path: Path) -> None:
    if problem := DeltaRs.missing(None):
        pytest.skip(problem)
    shown = CliRunner().invoke(application, ["run", "engine:delta-rs", "--report", str(tmp_path)])
    assert shown.exit_code == 1, shown.output
    cases = json.loads((tmp_path / "result.json").read_text("utf-8"))["cases"]
    assert {name for case in cases for each in case.get("violations", ()) for name in each["requirements"]} == KNOWN
    tried = [case for case in cases if case["verdict"] != "skipped"]
    assert sum(case["verdict"] == "passed" for case in tried) > len(tried) // 2


@pytest.mark.engines
@pytest.mark.parametrize(("feature", "reads"), [("managedCommit", True), ("catalogManaged", False)])
def test_an_owned_table_is_read_by_path_or_refused_and_never_written(
    tmp_path: Path, feature: str, *, reads: bool
) -> None:
    """The published commits of a managedCommit table may be read by path; a catalog-managed table may not."""
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
    assert sorted(each.name for each in log.iterdir()) == [commit_file(0), commit_file(1)]


def test_an_absent_version_is_named_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert missing("deltalake", "0.8.1", "delta-rs").endswith("engines --fetch delta-rs@0.8.1")
    assert "invalid version 'newest'" in missing("deltalake", "newest", "delta-rs")
    assert missing("deltalake", installed("deltalake"), "delta-rs") == ""
    (tmp_path / "delta-commit-conformance" / "deltalake-0.8.1" / "deltalake").mkdir(parents=True)
    assert missing("deltalake", "0.8.1", "delta-rs") == ""


def test_a_failed_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UsageError, match=r"pip cannot install deltalake 0\.8\.1"):
        fetch("deltalake", "0.8.1")
    assert list((tmp_path / "delta-commit-conformance").iterdir()) == []
