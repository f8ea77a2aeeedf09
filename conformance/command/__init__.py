"""The command `delta-commit-conformance`."""

import io
import sys
from collections.abc import Sequence


def main() -> None:
    """The console script."""
    if sys.platform not in ("linux", "darwin"):
        print(f"error: the kit runs on Linux and macOS, not on {sys.platform}; on Windows, use WSL 2", file=sys.stderr)
        sys.exit(2)
    words = sys.argv[1:]
    if _only_serves(words):
        sys.exit(_served(words[1]))
    from conformance.command.application import application

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for a terminal that is not in UTF-8
    application()


def _only_serves(words: Sequence[str]) -> bool:
    """Whether the command is exactly `serve SUBJECT` over stdin and stdout: a run may start such a subject some hundred
    times after crashes, so it does not import the modules that run cases."""
    return len(words) == 2 and words[0] == "serve" and not words[1].startswith("-")


def _served(subject: str) -> int:
    """Serve the subject; exit code and messages are those of the full command line."""
    from conformance.subjects.serving import serve

    try:
        return serve(subject)
    except Exception as error:  # noqa: BLE001 - this is the border
        from conformance.command.application import report

        return report(error)
