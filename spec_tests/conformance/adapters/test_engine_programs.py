"""The program of Delta Kernel (Rust): what is missing for it is named, and cargo builds it only when asked."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conformance.adapters.engines import delta_kernel_rs
from conformance.adapters.engines.delta_kernel_rs import PROGRAM, DeltaKernelRs, program
from conformance.command.application import application
from conformance.interface.subject import UsageError
from conformance.subjects.names import open_subject

CARGO = """#!/bin/sh
cp Cargo.toml "{seen}"
echo "$DELTA_KERNEL_VERSION" > "{seen}.version"
mkdir -p "$CARGO_TARGET_DIR/debug" && echo built > "$CARGO_TARGET_DIR/debug/{program}"
exit {code}
"""


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def cargo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, code: int = 0) -> Path:
    """A cargo on the PATH that keeps the manifest that it gets."""
    script, seen = tmp_path / "bin" / "cargo", tmp_path / "Cargo.toml"
    script.parent.mkdir()
    script.write_text(CARGO.format(seen=seen, program=PROGRAM, code=code))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
    return seen


def test_an_unknown_version_is_a_usage_error() -> None:
    with pytest.raises(UsageError) as raised:
        open_subject("engine:delta-kernel-rs@0.1.0")
    assert "0.30.0" in raised.value.problem


def test_a_missing_program_names_its_command() -> None:
    with pytest.raises(UsageError) as raised:
        open_subject("engine:delta-kernel-rs@0.30.0")
    assert "engines --fetch delta-kernel-rs@0.30.0" in raised.value.problem


def test_a_missing_cargo_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError) as raised:
        DeltaKernelRs.fetch(None)
    assert "cargo" in raised.value.problem


def test_cargo_builds_the_version_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = cargo(tmp_path, monkeypatch)
    assert CliRunner().invoke(application, ["engines", "--fetch", "delta-kernel-rs@0.30.0"]).exit_code == 0
    crates = tomllib.loads(seen.read_text())["dependencies"]
    assert crates["delta_kernel"]["version"] == crates["delta_kernel_default_engine"] == "=0.30.0"
    assert crates["delta-kernel-unity-catalog"] == "=0.2.0"
    assert Path(f"{seen}.version").read_text().strip() == "0.30.0"
    assert [each.name for each in program("0.30.0").parent.iterdir()] == [PROGRAM]
    assert DeltaKernelRs.missing("0.30.0") == ""


def test_an_older_version_is_built_without_newer_crates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = cargo(tmp_path, monkeypatch)
    DeltaKernelRs.fetch("0.20.0")
    crates = tomllib.loads(seen.read_text())["dependencies"]
    assert crates["delta_kernel"]["version"] == "=0.20.0"
    assert "catalog-managed" in crates["delta_kernel"]["features"]
    assert not {"delta_kernel_default_engine", "delta-kernel-unity-catalog"} & set(crates)


def test_a_failed_build_leaves_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cargo(tmp_path, monkeypatch, code=101)
    with pytest.raises(UsageError) as raised:
        DeltaKernelRs.fetch(None)
    assert "101" in raised.value.problem
    assert list(program(delta_kernel_rs.NEWEST).parent.iterdir()) == []
