"""Commands of the server: `serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from refimpl.cli.options import BacklogOption, WarehouseOption, backfill_number, default_root, names_of
from refimpl.errors import InvalidRequestError

_PANEL = "Server"


def register(application: typer.Typer) -> None:
    application.command("serve", rich_help_panel=_PANEL, epilog=_SERVE)(serve)


_SERVE = "Example:  commit-owner serve -w /data/lake --port 8080"


def serve(
    warehouse: WarehouseOption = None,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Others than loopback need a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", metavar="N", help="0: any that is free.", min=0, max=65535)] = 8080,
    catalog: Annotated[str, typer.Option("--catalog", metavar="NAME", help="What clients call the warehouse.")] = (
        "unity"
    ),
    schema: Annotated[
        list[str] | None,
        typer.Option("--schema", metavar="NAME", help="A schema besides default and those that have tables."),
    ] = None,
    backfill_every: Annotated[
        str,
        typer.Option("--backfill-every", metavar="N", help="Of tables made over HTTP: publish every N; or: never."),
    ] = "10",
    backlog_limit: BacklogOption = 1000,
    log_level: Annotated[
        str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = "info",
) -> None:
    """Serve a warehouse over HTTP, in Unity Catalog's Delta API.

    The first line on the standard output is a JSON object with the URL; logs go to the standard error. The schema
    default holds the tables with one-part names, the schema s those called s.TABLE. Stop it with Ctrl-C or SIGTERM.
    """
    try:
        from refimpl.server.serving import Serving
        from refimpl.server.serving import serve as run
    except ImportError as error:
        raise InvalidRequestError(
            f"the server needs {error.name}; install it with: pip install 'delta-commit-owner[server]'"
        ) from error
    from refimpl.commit_owner import MaintenancePolicy

    if log_level not in ("debug", "info", "warning", "error"):
        raise InvalidRequestError(f"{log_level!r} is not a log level; choose debug, info, warning or error")
    run(
        Serving(
            warehouse=(warehouse or default_root()).absolute(),
            host=host,
            port=port,
            catalog=catalog,
            schemas=tuple(names_of(schema)),
            policy=MaintenancePolicy(backfill_every=backfill_number(backfill_every), backlog_limit=backlog_limit),
            log_level=log_level,
        )
    )
