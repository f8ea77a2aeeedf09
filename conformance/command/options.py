"""Options and arguments that several commands share, and the examples below a command's help."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from conformance.interface.subject import TIMEOUT

SubjectArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="SUBJECT",
        help="subject to test: `reference`, `mutant:ID`, `python:MODULE:CLASS`, `'stdio:COMMAND WITH ARGUMENTS'`, "
        "`http:URL`, `uc:URL` or `jvm:CLASS` (required; all forms: `list subjects`)",
        show_default=False,
    ),
]
ClasspathOption = Annotated[
    str | None,
    typer.Option("--classpath", metavar="JARS", help="class path of a subject jvm:CLASS", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON document to stdout")]
TimeoutOption = Annotated[
    str,
    typer.Option("--timeout", metavar="TIME", help="timeout of one answer, for example `10s` or `500ms`"),
]
TIMEOUT_TEXT: Final = f"{TIMEOUT:g}s"


def examples(*words: str) -> str:
    """The text below a command's help."""
    return "\n\n".join(["Examples:", *(f"delta-commit-conformance {each}" for each in words)])
