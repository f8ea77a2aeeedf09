"""The command `serve`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from conformance.command.options import SubjectArgument
from conformance.command.running import subject_of
from conformance.running.errors import UnusableError
from conformance.subjects import serving

_SERVE: Final = """Examples:

delta-commit-conformance serve reference --stdio

delta-commit-conformance serve python:my_owner:MyOwner --http 8080

delta-commit-conformance run 'stdio:delta-commit-conformance serve model'"""


def register(application: typer.Typer) -> None:
    application.command(epilog=_SERVE)(serve)


def serve(
    subject: SubjectArgument = None,
    stdio: Annotated[bool, typer.Option("--stdio", help="serve on stdin and stdout (default)")] = False,
    http: Annotated[
        str | None, typer.Option("--http", metavar="[HOST:]PORT", help="serve over HTTP; port 0: any free port")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="accept requests from other machines (no authentication)")
    ] = False,
) -> None:
    """Serve a subject to other processes, over stdio or HTTP.

    Its state is in the folder that $CONFORMANCE_DIRECTORY names, or in a temporary one. With --http, the first line
    on stdout is a JSON object with the URL.
    """
    if stdio and http is not None:
        raise UnusableError("--stdio and --http are mutually exclusive; pass one of them")
    raise typer.Exit(serving.serve(subject_of(subject), http=http, public=public))
