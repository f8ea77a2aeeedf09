"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from conformance.adapters.subject import TIMEOUT

SubjectArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="SUBJECT",
        help="Who is tested: `reference`, `mutant:ID`, `python:MODULE:CLASS`, `'stdio:COMMAND WITH ARGUMENTS'`, "
        "`http:URL`, `uc:URL` or `jvm:CLASS`. There is no default. All forms: `list subjects`.",
        show_default=False,
    ),
]
ClasspathOption = Annotated[
    str | None,
    typer.Option("--classpath", metavar="JARS", help="Of a subject jvm:CLASS: where its class is.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on the standard output.")]
TimeoutOption = Annotated[
    str,
    typer.Option("--timeout", metavar="TIME", help="How long one answer may take: `10s`, `500ms`."),
]
TIMEOUT_TEXT: Final = f"{TIMEOUT:g}s"
