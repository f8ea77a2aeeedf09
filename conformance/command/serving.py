"""The command `serve`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from conformance.adapters import serve as serving
from conformance.command.options import SubjectArgument
from conformance.command.running import subject_of
from conformance.running.errors import UnusableError

_SERVE: Final = """Examples:

delta-commit-conformance serve reference --stdio

delta-commit-conformance serve python:my_owner:MyOwner --http 8080

delta-commit-conformance run 'stdio:delta-commit-conformance serve model'"""


def register(application: typer.Typer) -> None:
    application.command(epilog=_SERVE)(serve)


def serve(
    subject: SubjectArgument = None,
    stdio: Annotated[bool, typer.Option("--stdio", help="Standard input and output; this is the default.")] = False,
    http: Annotated[
        str | None, typer.Option("--http", metavar="[HOST:]PORT", help="At a URL; port 0 is a free one.")
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Let other machines call; nothing asks who calls.")] = False,
) -> None:
    """Offer a subject of this process to others, for as long as they want it.

    Its state is in the folder that CONFORMANCE_DIRECTORY names, or in a temporary one. With --http, one line of JSON
    tells the URL.
    """
    if stdio and http is not None:
        raise UnusableError("--stdio and --http are two ways; choose one")
    raise typer.Exit(serving.serve(subject_of(subject), http=http, public=public))
