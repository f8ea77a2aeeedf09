"""The command `jars`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from conformance import jars as libraries
from conformance.command.output import say
from conformance.running.errors import UnusableError

_EPILOG: Final = """Examples:

delta-commit-conformance jars

java -cp "$(delta-commit-conformance jars --print)" ..."""


def register(application: typer.Typer) -> None:
    application.command(epilog=_EPILOG)(jars)


def jars(
    show: Annotated[bool, typer.Option("--print", help="print the class path; download nothing")] = False,
    group: Annotated[
        str,
        typer.Option("--group", metavar="GROUP", help=f"libraries in the class path: {', '.join(libraries.GROUPS)}"),
    ] = "all",
) -> None:
    """Download the Java libraries of the subjects `jvm:...`, once, with Maven.

    The target folder is below ~/.cache, or the one that $DELTA_CONFORMANCE_JARS names.
    """
    if group not in libraries.GROUPS:
        raise UnusableError(f"unknown group {group!r}; choose one of {', '.join(libraries.GROUPS)}")
    try:
        if not show:
            folder = libraries.fetch()
            say(f"{len(libraries.jars(group))} Java libraries are in {folder}")
            return
        print(libraries.classpath(group))
    except libraries.JarsError as error:
        raise UnusableError(error.problem) from error
