"""Our server of the Delta API in a process of its own, for clients that are other people's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_COMMAND: Final = "from refimpl.cli import main; main()"


@contextmanager
def served(warehouse: Path, *options: str) -> Iterator[str]:
    """The URL of a server of this warehouse, whose catalog is `unity`; `options`: of `commit-owner serve`. Skips the
    test without the extra `server`."""
    pytest.importorskip("uvicorn", reason="the extra `server` is not installed")
    command = [
        sys.executable,
        "-c",
        _COMMAND,
        "serve",
        "-w",
        str(warehouse),
        "--port",
        "0",
        "--log-level",
        "error",
        *options,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
