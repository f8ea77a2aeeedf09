"""The command line `commit-owner`: calls the owner and the client, and shows their answers.

Importing it is cheap: each command imports what it needs when it runs.
"""

import codecs
import contextlib
import io
import sys


def main() -> None:
    """The console script. It ends the process without the end of its interpreter, in which a thread of Arrow that still
    has a Python object would abort it: `terminate called without an active exception`."""
    import atexit
    import os

    try:
        run()
    except SystemExit as ending:
        if "pyarrow" not in sys.modules or not isinstance(ending.code, int):
            raise
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # a broken pipe, or closed
                stream.flush()
        os._exit(ending.code)


def run() -> None:
    """Run the command of `sys.argv`. A logged warning, for example of an unreadable checkpoint, is a line on stderr."""
    import logging

    from refimpl.cli.application import application

    if logging.lastResort is not None:
        logging.lastResort.setFormatter(logging.Formatter("warning: %(message)s"))
    codecs.register_error("escape", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="escape")
    application()


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Escapes, which are also those of JSON, for the characters that the output's encoding does not have."""
    assert isinstance(error, UnicodeEncodeError)
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end
