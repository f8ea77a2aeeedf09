"""What the session of all Spark tests is started with, so that it can have Delta tables too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from conformance.jars import JarsError
from refimpl.spark import coordinator
from spec_tests.engines.jars import needed_classpath

TINY: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.commitLock.enabled": "false",  # else the commits of one session never race
}
"""For statements on a few rows: compiling code for them would be most of the work."""


def needed_jars() -> str:
    """The class path of Delta Spark and of its client of catalogs. Skips the test where they are missing."""
    return os.pathsep.join([needed_classpath("spark"), needed_classpath("unity")])


def delta_settings(classes: Path | None = None) -> dict[str, str]:
    """None where Delta is missing: its own tests say why."""
    try:
        path = needed_jars()
    except (JarsError, pytest.skip.Exception):
        return {}
    return {
        **coordinator.SETTINGS,
        "spark.driver.extraClassPath": path if classes is None else os.pathsep.join([path, str(classes)]),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",  # which our client does not read
    }
