"""Runs a program in a terminal of 80 columns."""

import os
import pty
import subprocess
import sys


def in_terminal(code: str, *words: str, typed: str = "") -> tuple[int, str]:
    """The exit code and the output of Python code that gets `typed`."""
    terminal, inside = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    command = [sys.executable, "-c", code, *words]
    process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=environment)
    os.close(inside)
    os.write(terminal, typed.encode())
    text = b""
    while part := _read(terminal):
        text += part
    os.close(terminal)
    return process.wait(), text.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the process has closed it
        return b""
