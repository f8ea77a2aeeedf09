"""Options and arguments that several commands share."""

from __future__ import annotations

import re
from typing import Annotated, Final

import typer

from conformance.adapters.subject import TIMEOUT
from conformance.running.errors import UnusableError

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}

SubjectArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="SUBJECT",
        help="Who is tested: `reference`, `mutant:ID`, `python:MODULE:CLASS`, `'stdio:COMMAND WITH ARGUMENTS'` or "
        "`http:URL`. There is no default. All forms: `list subjects`.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on the standard output.")]
TimeoutOption = Annotated[
    str,
    typer.Option("--timeout", metavar="TIME", help="How long one answer may take: `10s`, `500ms`."),
]
TIMEOUT_TEXT: Final = f"{TIMEOUT:g}s"


def seconds(text: str, option: str) -> float:
    """`90`, `90s`, `1.5m`, `2h`. Raises `UnusableError`."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not (value := float(found[1]) * _SECONDS[found[2]]):
        raise UnusableError(f"{option} {text!r} is not a time above zero, such as 60s, 500ms, 5m or 2h")
    return value
