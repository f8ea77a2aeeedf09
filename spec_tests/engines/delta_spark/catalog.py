"""Delta Spark whose catalog is a server: the stand-in of Unity Catalog's connector, which is compiled when needed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conformance.jars import pyspark_jars
from spec_tests.engines.delta_spark.session import needed_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASS = "io.unitycatalog.spark.UCSingleCatalog"
"""Delta 4.4 looks for this name, and for no interface."""

_SOURCE = Path(__file__).with_name("UCSingleCatalog.java")


def compile_into(classes: Path) -> None:
    """Compile the stand-in. Skips the test where there is no `javac`."""
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("no javac: the stand-in catalog class cannot be compiled")
    path = f"{needed_jars()}:{pyspark_jars()}"
    subprocess.run([javac, "-proc:none", "-d", str(classes), "-cp", path, str(_SOURCE)], check=True)


def session_of(spark: SparkSession, url: str) -> SparkSession:
    """A session of the same Spark that calls the server's tables `unity.default.NAME`."""
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.unity", CLASS)
    session.conf.set("spark.sql.catalog.unity.uri", url)
    session.conf.set("spark.sql.catalog.unity.token", "not-needed-on-loopback")
    return session
