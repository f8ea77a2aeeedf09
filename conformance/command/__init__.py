"""The command `delta-commit-conformance`."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main() -> None:
    """The console script."""
    words = sys.argv[1:]
    if _only_serves(words):
        sys.exit(_served(words[1]))
    from conformance.command.application import application

    application()


def _only_serves(words: Sequence[str]) -> bool:
    """Whether it is `serve SUBJECT` over standard input and output, and nothing else: a subject that is crashed is
    started so some hundred times in a run, and imports nothing of what runs the cases."""
    named = len(words) in (2, 3) and words[0] == "serve" and not words[1].startswith("-")
    return named and list(words[2:]) in ([], ["--stdio"])


def _served(subject: str) -> int:
    """The exit code, which is that of the long way, and so are the messages."""
    from conformance.subjects.serving import serve

    try:
        return serve(subject)
    except Exception as error:  # noqa: BLE001 - this is the border
        from conformance.command.application import report

        return report(error)
