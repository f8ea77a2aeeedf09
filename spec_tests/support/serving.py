"""Python programs in processes of their own that print their URL, such as `commit-owner serve`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SERVE: Final = ("-c", "from refimpl.cli import main; main()", "serve", "--port", "0", "--log-level", "error", "-w")
"""The arguments of Python that serve the warehouse whose directory follows."""


@contextmanager
def started(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run Python with these arguments; yield the process and its URL. At the end, the process is killed."""
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.kill()
