"""Commands of the server: `serve`, and `token` with its own commands."""

from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from refimpl.catalog.messages import SERVER_PUBLISHES_AFTER
from refimpl.cli import options, output
from refimpl.cli.commands import command, commands, epilog
from refimpl.cli.output import Result, Table
from refimpl.protocol.errors import InvalidRequestError

if TYPE_CHECKING:
    from refimpl.warehouse import Warehouse

_PANEL = "Server"
_ADDING = "token add pipeline --scope write"
tokens = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help="Manage the access tokens of the server.")
commands.add_typer(tokens, name="token", rich_help_panel=_PANEL, epilog=epilog(_ADDING))


@command(_PANEL, "serve -w /data/lake --port 8080", json=False)
def serve(
    address: options.WarehouseOption = None,
    host: Annotated[
        str,
        Option("--host", metavar="ADDRESS", help="listen address; one that other machines can reach requires a token"),
    ] = "127.0.0.1",
    port: Annotated[int, Option("--port", metavar="N", help="port; 0: any free port", min=0, max=65535)] = 8080,
    catalog: Annotated[str, Option("--catalog", metavar="NAME", help="name of the catalog for clients")] = "unity",
    schema: Annotated[
        list[str] | None, Option("--schema", metavar="NAME", help="additional empty schema (repeatable)")
    ] = None,
    backfill_every: Annotated[
        str,
        Option(
            "--backfill-every",
            metavar="N",
            help="for tables created over HTTP: publish after every N commits, or: never",
        ),
    ] = str(SERVER_PUBLISHES_AFTER),
    backlog_limit: options.BacklogOption = 1000,
    allow: options.AllowOption = None,
    forbid: options.ForbidOption = None,
    hand_back: options.HandBackOption = True,
    log_level: Annotated[
        str, Option("--log-level", metavar="LEVEL", help="log level: debug, info, warning or error")
    ] = "info",
) -> None:
    """Serve a warehouse over HTTP, in Unity Catalog's Delta API.

    The first line on stdout is a JSON object with the URL; logs go to stderr. The schema default holds the tables
    with one-part names, the schema s the tables named s.TABLE. The options of the policy are for tables that are
    created over HTTP. Stop the server with Ctrl-C or SIGTERM.
    """
    try:
        from refimpl.server.serving import Serving
        from refimpl.server.serving import serve as run
    except ImportError as error:
        raise InvalidRequestError(
            f"the server needs {error.name}; install it with: pip install 'delta-commit-owner[server]'"
        ) from error
    if log_level not in ("debug", "info", "warning", "error"):
        raise InvalidRequestError(f"invalid log level {log_level!r}; expected debug, info, warning or error")
    with options.opened(address) as warehouse:  # only `init` creates a warehouse
        directory = warehouse.directory
    run(
        Serving(
            warehouse=directory,
            host=host,
            port=port,
            catalog=catalog,
            schemas=tuple(options.names_of(schema)),
            policy=options.policy_of(backfill_every, backlog_limit, allow, forbid, hand_back=hand_back),
            log_level=log_level,
        )
    )


_NameArgument = Annotated[str, Argument(metavar="NAME", help="name of the token: letters, digits, - and _")]


@command(None, _ADDING, group=tokens)
def add(
    warehouse: "Warehouse",
    name: _NameArgument,
    scope: Annotated[str, Option("--scope", metavar="SCOPE", help="read, or write (includes read)")] = "read",
    expires_in: Annotated[
        str | None, Option("--expires-in", metavar="TIME", help="lifetime, for example 30d (default: no limit)")
    ] = None,
) -> Result:
    """Create a token and print it once; only its hash is stored.

    As soon as a warehouse has a token, its servers reject requests without one.
    """
    from refimpl.server.access import Scope, Tokens

    valid_ms = None if expires_in is None else options.duration_ms(expires_in)
    known = {member.value: member for member in Scope}
    if scope not in known:
        raise InvalidRequestError(f"invalid scope {scope!r}; expected {' or '.join(known)}")
    secret = Tokens(warehouse).add(name, known[scope], valid_ms=valid_ms)
    return Result({"name": name, "scope": scope, "token": secret}, secret)


@command(None, "token list", group=tokens, name="list")
def list_tokens(warehouse: "Warehouse") -> Result:
    """List the tokens: names, scopes and expiry; never the tokens themselves."""
    from refimpl.server.access import Tokens

    listed = Tokens(warehouse).all()
    document = [
        {"name": t.name, "scope": t.scope.value, "added_at": t.added_at, "expires_at": t.expires_at} for t in listed
    ]
    if not listed:
        return Result(document, "no tokens: servers of this warehouse accept every request that reaches them")
    rows = [
        (t.name, t.scope.value, output.moment(t.added_at), output.moment(t.expires_at) if t.expires_at else "never")
        for t in listed
    ]
    return Result(document, Table(columns=("name", "scope", "added", "expires"), rows=rows))


@command(None, "token remove pipeline", group=tokens)
def remove(warehouse: "Warehouse", name: _NameArgument) -> Result:
    """Remove a token. Running servers reject it at once."""
    from refimpl.server.access import Tokens

    tokens = Tokens(warehouse)
    tokens.remove(name)
    left = len(tokens.all())
    if not left:
        output.show_hint("no tokens left: servers accept every request that reaches them")
    return Result({"name": name, "left": left}, f"removed {name}; {output.counted(left, 'token')} left")
