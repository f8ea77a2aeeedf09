"""The commands `serve`, `jars` and `engines`."""

from typing import Annotated

import typer

from conformance.adapters.jvm import jars as libraries
from conformance.command.output import SubjectArgument, option, say
from conformance.interface.results import UnusableError
from conformance.subjects import names


def serve(subject: SubjectArgument = None) -> None:
    """Serve a subject to another process, on stdin and stdout.

    Its state is in the folder that $CONFORMANCE_DIRECTORY names, or in a temporary one.
    """
    from conformance.command.running import subject_of
    from conformance.subjects import serving

    raise typer.Exit(serving.serve(subject_of(subject)))


def jars(
    show: Annotated[bool, option("--print", "print the class path; download nothing")] = False,
    group: Annotated[str, option("--group GROUP", f"libraries in the class path: {', '.join(libraries.GROUPS)}")] = "",
) -> None:
    """Download the Java libraries of `jvm:...` and of the engines that run on Java, once, with Maven.

    The target folder is below ~/.cache, or the one that $DELTA_CONFORMANCE_JARS names.
    """
    group = group or "all"
    if group not in libraries.GROUPS:
        raise UnusableError(f"unknown group {group!r}; expected one of {', '.join(libraries.GROUPS)}")
    try:
        if show:
            print(libraries.classpath(group))
        else:
            folder = libraries.fetch()
            say(f"{len(libraries.jars(group))} Java libraries are in {folder}")
    except libraries.JarsError as error:
        raise UnusableError(error.problem) from error


def engines(
    fetch: Annotated[
        str | None, option("--fetch NAME[@VERSION]", "download or build this engine, once, below ~/.cache")
    ] = None,
) -> None:
    """Show which engines can run here as subjects `engine:NAME`, and what the others need."""
    if fetch is not None:
        engine, version = names.engine_of(f"engine:{fetch}", fetch)
        print(engine.fetch(version))
        return
    for name in names.ENGINES:
        problem = names.engine_of(f"engine:{name}", name)[0].missing(None)
        print(f"engine:{name}: {problem or 'can run here'}")
