"""The code that the adapters of engines share: messages for users, data files, environments, versions, jars."""

import json
import os
import re
import socket
import stat
import tomllib
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from conformance.adapters.engines import sail
from conformance.adapters.engines.delta_kernel import DeltaKernel
from conformance.adapters.engines.delta_kernel_rs import PROGRAM, DeltaKernelRs, program
from conformance.adapters.engines.duckdb import DuckDb
from conformance.adapters.engines.engine import DataFiles
from conformance.adapters.engines.sail import Sail
from conformance.adapters.in_process import InProcess
from conformance.adapters.jvm import jars
from conformance.adapters.stdio import StdioSubject
from conformance.command.application import application
from conformance.interface import messages as m
from conformance.interface.log_names import LOG, commit_file
from conformance.interface.results import Verdict
from conformance.interface.subject import UsageError, how_to_install
from conformance.models import proposals
from conformance.models.client import ModelClient
from conformance.models.reader import Owner, Refused, Resolved, State
from conformance.programs import pinned
from conformance.programs.cases import run_case
from conformance.running.worker import check_named
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Variant
from conformance.subjects import names
from conformance.subjects.names import open_subject
from spec_tests.conformance.adapters.test_stdio import LONG, command


class OpensDataFiles(ModelClient):
    """A reader that opens the data files, as an engine does. PROTOCOL.md, "Add File and Remove File": a path is
    relative to the table's folder, or absolute.
    """

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner)
        self.files = DataFiles()

    def _read(self, client: str, table: Resolved, version: int | None, timestamp: int | None) -> State:
        state = super()._read(client, table, version, timestamp)
        self.files.write_missing(table.log.parent)
        for add in state.files.values():
            if not self._place_of(table.log.parent, self._decoded(add["path"])).is_file():
                raise Refused(f"no such file: {add['path']}")
        return state

    def _place_of(self, folder: Path, path: str) -> Path:
        return folder / path.removeprefix("file://")


def test_an_empty_data_file_gets_its_row_and_keeps_its_time(tmp_path: Path) -> None:
    """The kit makes empty files of a chosen age before a VACUUM."""
    (tmp_path / LOG).mkdir()
    (tmp_path / LOG / commit_file(0)).write_text(proposals.content(proposals.append("first", 1, ["a"])))
    (tmp_path / "a").touch()
    os.utime(tmp_path / "a", (1_000, 1_000))
    DataFiles().write_missing(tmp_path)
    assert (tmp_path / "a").read_bytes()[:4] == b"PAR1"
    assert (tmp_path / "a").stat().st_mtime == 1_000


class JoinsAbsolutePaths(OpensDataFiles):
    """DuckDB 1.5.5 joins paths like this."""

    def _place_of(self, folder: Path, path: str) -> Path:
        return Path(f"{folder}/{path}")


@pytest.mark.parametrize(
    "variant",
    [Variant(feature="catalogManaged", commit_mode="staged"), Variant(feature="filesystem", commit_mode="direct")],
    ids=str,
)
@pytest.mark.parametrize(
    ("client", "verdict"), [(OpensDataFiles, Verdict.PASSED), (JoinsAbsolutePaths, Verdict.FAILED)]
)
def test_an_absolute_path_is_opened_as_it_is(client: type[OpensDataFiles], verdict: Verdict, variant: Variant) -> None:
    host = ClientHost()
    check = check_named("pinned-programs-of-clients-in-reading")
    (program,) = (text for text in pinned.texts("reading", "client") if "a path is decoded once" in text)
    result = run_case(check, variant, InProcess(client(host.ask)), host=host, reproduction=program)
    assert result.verdict is verdict, result.violations
    assert {name for violation in result.violations for name in violation.requirements} == (
        set() if verdict is Verdict.PASSED else {"LOG-32"}
    )


def test_an_engine_has_its_own_folder_and_environment(tmp_path: Path) -> None:
    environment = names._confined(tmp_path)
    assert environment["RUST_BACKTRACE"] == "0"
    places = StdioSubject(
        command("places"), timeout=LONG, directory=tmp_path, environment=environment, working_directory=tmp_path
    )
    with places as subject:
        answer = subject.ask("a", m.DropTable(table="t"))
    assert isinstance(answer, m.Rejected)
    assert json.loads(answer.reason) == [str(tmp_path), str(tmp_path / "home"), str(tmp_path / "temporary")]
    assert not environment["XDG_CACHE_HOME"].startswith(str(tmp_path)), "the engine must find its fetched files"


def test_a_missing_sail_is_installed_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sail, "find_spec", lambda name: None if name == "pysail" else name)
    assert Sail.missing(None) == f"pysail is missing; install it: {how_to_install('sail')}"


def test_a_session_that_cannot_be_stopped_keeps_no_server_of_sail_running(tmp_path: Path) -> None:
    engine, servers = Sail(Mock(), tmp_path), [Mock(), Mock()]
    servers[0].stop.side_effect = OSError("no answer")
    engine._servers = list(servers)
    engine._connections = {"a": Mock(stop=Mock(side_effect=ConnectionError("session a"))), "b": Mock()}
    sessions = list(engine._connections.values())
    with pytest.raises(OSError):
        engine.close()
    assert [stopped.stop.call_count for stopped in (*sessions, *servers)] == [1, 1, 1, 1]
    address = urlsplit(engine.url)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((str(address.hostname), int(address.port or 0)))
    engine.close()


def test_kernel_closes_everything_even_if_a_connector_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = DeltaKernel(lambda client, request: m.Unknown(), tmp_path)
    connectors = [Mock(close=Mock(side_effect=OSError)), Mock()]
    monkeypatch.setattr(engine, "connect", Mock(side_effect=connectors))
    for client in ("a", "b"):
        engine.connection(client)
    with pytest.raises(OSError):
        engine.close()
    assert all(connector.close.called for connector in connectors)
    address = urlsplit(engine.url)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port), timeout=5).close()


def test_the_plan_of_a_scan_lists_its_files() -> None:
    plan = "DataSourceExec: file_groups={2 groups: [[t/a, t/b c], [t/d]]}, projection=[id]"
    assert sail.files_in(plan) == ["t/a", "t/b c", "t/d"]
    assert sail.files_in("EmptyExec") == sail.files_in("DataSourceExec: file_groups={1 group: [[]]}") == []
    assert sail.files_in("DataSourceExec: file_groups={6 groups: [[t/a], ...]}") is None
    assert sail.files_in("AnotherExec") is None


def test_another_version_of_a_wheel_is_installed_with_pip() -> None:
    assert DuckDb.missing("1.5.5") == ""
    wheels = " ".join(f"{wheel}==1.99.0" for wheel in DuckDb.wheels)
    wanted = f"duckdb 1.5.5 is installed, not 1.99.0; run: pip install {wheels}"
    assert DuckDb.missing("1.99.0") == wanted
    with pytest.raises(UsageError, match=re.escape(wanted)):
        DuckDb.fetch("1.99.0")


# The Delta Kernel (Rust) program


CARGO = """#!/bin/sh
cp Cargo.toml "{seen}"
echo "$DELTA_KERNEL_VERSION" > "{seen}.version"
mkdir -p "$CARGO_TARGET_DIR/debug" && echo built > "$CARGO_TARGET_DIR/debug/{program}"
exit {code}
"""


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def cargo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, code: int = 0) -> Path:
    """Put a `cargo` on the PATH that keeps a copy of the manifest."""
    script, seen = tmp_path / "bin" / "cargo", tmp_path / "Cargo.toml"
    script.parent.mkdir()
    script.write_text(CARGO.format(seen=seen, program=PROGRAM, code=code))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
    return seen


@pytest.mark.parametrize(
    ("version", "words"), [("0.1.0", "0.30.0"), ("0.30.0", "engines --fetch delta-kernel-rs@0.30.0")]
)
def test_the_error_for_an_unknown_or_missing_version_says_what_to_do(version: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        open_subject(f"engine:delta-kernel-rs@{version}")


def test_a_missing_cargo_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="cargo"):
        DeltaKernelRs.fetch(None)


def test_cargo_builds_the_requested_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = cargo(tmp_path, monkeypatch)
    assert CliRunner().invoke(application, ["engines", "--fetch", "delta-kernel-rs@0.30.0"]).exit_code == 0
    crates = tomllib.loads(seen.read_text())["dependencies"]
    assert crates["delta_kernel"]["version"] == crates["delta_kernel_default_engine"] == "=0.30.0"
    assert crates["delta-kernel-unity-catalog"] == "=0.2.0"
    assert Path(f"{seen}.version").read_text().strip() == "0.30.0"
    assert [path.name for path in program("0.30.0").parent.iterdir()] == [PROGRAM]
    assert DeltaKernelRs.missing("0.30.0") == ""


# Java libraries


MAVEN = """#!/bin/sh
for word in "$@"; do case "$word" in -DoutputDirectory=*) folder="${word#*=}" ;; esac; done
echo called >> "$CALLS"
for name in $NAMES; do echo jar > "$folder/$name"; done
exit "${STATUS:-0}"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(jars.VARIABLE, str(tmp_path / "jars"))
    return tmp_path / "jars"


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a `mvn` on the PATH that creates files with the right names. Returns the file that lists its calls."""
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(MAVEN)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("NAMES", " ".join(jars._file_names().values()))
    calls = tmp_path / "calls"
    calls.touch()
    monkeypatch.setenv("CALLS", str(calls))
    return calls


def test_every_group_has_one_version_of_each_library() -> None:
    names = jars._file_names()
    assert set(names) == set(jars.GROUPS["all"])
    assert names["delta-storage"] == "delta-storage-4.4.0.jar"
    assert not [name for name in names.values() if "$" in name]


def test_libraries_are_fetched_once(folder: Path, maven: Path) -> None:
    assert jars.fetch() == folder
    assert {path.name for path in folder.iterdir()} == set(jars._file_names().values())
    jars.fetch()
    assert maven.read_text() == "called\n"


def test_a_missing_library_is_named(folder: Path, maven: Path) -> None:
    jars.fetch()
    (folder / "delta-storage-4.4.0.jar").unlink()
    with pytest.raises(jars.JarsError) as raised:
        jars.classpath("spark")
    assert "delta-storage-4.4.0.jar" in raised.value.problem
    assert "aws-java-sdk" not in raised.value.problem


@pytest.mark.parametrize(("status", "names"), [("1", None), ("0", "other.jar")])
def test_a_fetch_without_one_of_the_libraries_is_an_error(
    folder: Path, maven: Path, monkeypatch: pytest.MonkeyPatch, status: str, names: str | None
) -> None:
    monkeypatch.setenv("STATUS", status)
    if names is not None:
        monkeypatch.setenv("NAMES", names)
    with pytest.raises(jars.JarsError):
        jars.fetch()
    with pytest.raises(jars.JarsError):
        jars.classpath("storage")


def test_the_error_for_missing_maven_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    fetched = CliRunner().invoke(application, ["jars"])
    assert fetched.exit_code == 2
    assert "`mvn`" in fetched.stderr
    printed = CliRunner().invoke(application, ["jars", "--print", "--group", "storage"])
    assert printed.exit_code == 2
    assert "delta-storage-4.4.0.jar" in printed.stderr


def test_the_class_path_is_printed(folder: Path, maven: Path) -> None:
    assert CliRunner().invoke(application, ["jars"]).exit_code == 0
    printed = CliRunner().invoke(application, ["jars", "--print", "--group", "storage"])
    assert printed.stdout == f"{folder / 'delta-storage-4.4.0.jar'}\n"
    assert CliRunner().invoke(application, ["jars", "--group", "nothing"]).exit_code == 2


def test_another_version_has_its_own_folder(folder: Path, maven: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maven gets the requested version of `delta-kernel-api`, and the newest earlier release of the other libraries."""
    other = folder.with_name("jars-delta-4.3.1")
    names = [name.replace("4.4.0", "4.3.0") for name in jars._file_names().values()]
    monkeypatch.setenv("NAMES", " ".join(name.replace("api-4.3.0", "api-4.3.1") for name in names))
    assert CliRunner().invoke(application, ["engines", "--fetch", "delta-kernel@4.3.1"]).exit_code == 0
    assert not folder.exists()
    fetched = jars.jars(jars.KERNEL, "4.3.1")
    assert {other / "delta-kernel-api-4.3.1.jar", other / "delta-storage-4.3.0.jar"} < set(fetched)
    with pytest.raises(jars.JarsError, match="no group 'spark'"):
        jars.jars("spark", "4.3.1")
    listed = {
        dependency.findtext("artifactId", ""): dependency.findtext("version", "")
        for dependency in ElementTree.fromstring(jars._pom_of("4.3.1")).iter("dependency")
    }
    assert set(listed) == set(jars.GROUPS[jars.KERNEL])
    assert (listed["delta-kernel-api"], listed["delta-storage"]) == ("[4.3.1]", "[4.3.0,4.3.1]")
    assert listed["unitycatalog-client"] == "0.5.0"


@pytest.mark.parametrize("version", ["newest", "4.4", "../4.4.0", "4.4.0,5.0.0"])
def test_an_invalid_version_is_named(folder: Path, maven: Path, version: str) -> None:
    refused = CliRunner().invoke(application, ["engines", "--fetch", f"delta-kernel@{version}"])
    assert refused.exit_code == 2
    assert repr(version) in refused.stderr
    assert maven.read_text() == ""
