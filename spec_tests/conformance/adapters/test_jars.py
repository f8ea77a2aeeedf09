"""The command that fetches Java libraries, and its errors."""

import stat
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from conformance import jars
from conformance.command.application import application

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


def test_a_class_path_holds_exactly_the_group(folder: Path, maven: Path) -> None:
    jars.fetch()
    assert jars.classpath("storage") == str(folder / "delta-storage-4.4.0.jar")
    assert jars.classpath("storage", hadoop=True).split(":")[1:] == [jars.pyspark_jars()]


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
    assert CliRunner().invoke(application, ["jars", "--delta", "4.3.1"]).exit_code == 0
    assert not folder.exists()
    printed = CliRunner().invoke(application, ["jars", "--delta", "4.3.1", "--print"]).stdout.strip().split(":")
    assert str(other / "delta-kernel-api-4.3.1.jar") in printed
    assert str(other / "delta-storage-4.3.0.jar") in printed
    assert CliRunner().invoke(application, ["jars", "--delta", "4.3.1", "--group", "spark"]).exit_code == 2
    listed = {
        each.findtext("artifactId", ""): each.findtext("version", "")
        for each in ElementTree.fromstring(jars._pom_of("4.3.1")).iter("dependency")
    }
    assert set(listed) == set(jars.GROUPS[jars.KERNEL])
    assert (listed["delta-kernel-api"], listed["delta-storage"]) == ("[4.3.1]", "[4.3.0,4.3.1]")
    assert listed["unitycatalog-client"] == "0.5.0"


@pytest.mark.parametrize("version", ["", "newest", "4.4", "../4.4.0", "4.4.0,5.0.0"])
def test_an_invalid_version_is_named(folder: Path, maven: Path, version: str) -> None:
    refused = CliRunner().invoke(application, ["jars", "--delta", version])
    assert refused.exit_code == 2
    assert repr(version) in refused.stderr
    assert maven.read_text() == ""
