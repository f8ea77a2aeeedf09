"""The Java libraries of tests that need them: fetched once for all processes of a run, or the test is skipped."""

from __future__ import annotations

import shutil

import pytest
from filelock import FileLock

from conformance import jars


def needed_classpath(group: str, *, hadoop: bool = False) -> str:
    """The class path of that group (see `conformance.jars.GROUPS`). Skips the test, with the reason, where the files
    are not there and no Maven is that could fetch them, or no Java that could use them. A Maven that fails is a
    failure."""
    try:
        return jars.classpath(group, hadoop=hadoop)
    except jars.JarsError as error:
        if shutil.which("mvn") is None:
            pytest.skip(f"no Maven: {error.problem}")
    folder = jars.folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        jars.fetch()
    return jars.classpath(group, hadoop=hadoop)
