"""What tests with engines need: a server of the Delta API in a process of its own, and Java libraries."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from filelock import FileLock

from conformance import jars

_COMMAND: Final = "from refimpl.cli import main; main()"


@contextmanager
def served(warehouse: Path, *options: str) -> Iterator[str]:
    """The URL of a server of this warehouse, whose catalog is `unity`; `options`: of `commit-owner serve`. Skips the
    test without the extra `server`."""
    pytest.importorskip("uvicorn", reason="the extra `server` is not installed")
    command = [sys.executable, "-c", _COMMAND, "serve", "-w", str(warehouse), "--port", "0", "--log-level", "error"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def needed_classpath(group: str, *, hadoop: bool = False) -> str:
    """The class path of a group (see `conformance.jars.GROUPS`), fetched once for all processes of a run.

    Skips the test where there is no Maven to fetch it, or no Java. A Maven that fails is a failure.
    """
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
