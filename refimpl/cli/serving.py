"""Commands of the server: `serve`, and `token` with its own commands."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from refimpl.catalog.messages import SERVER_PUBLISHES_AFTER
from refimpl.cli import options, output
from refimpl.protocol.errors import InvalidRequestError

if TYPE_CHECKING:
    from refimpl.server.access import Tokens

commands = typer.Typer()
tokens = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help="Manage the access tokens of the server.")
_TOKEN = "Example:  commit-owner token add pipeline --scope write"
commands.add_typer(tokens, name="token", rich_help_panel="Server", epilog=_TOKEN)


@commands.command("serve", rich_help_panel="Server", epilog="Example:  commit-owner serve -w /data/lake --port 8080")
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


NameArgument = Annotated[str, Argument(metavar="NAME", help="name of the token: letters, digits, - and _")]


@tokens.command("add", epilog=_TOKEN)
def token_add(
    name: NameArgument,
    scope: Annotated[str, Option("--scope", metavar="SCOPE", help="read, or write (includes read)")] = "read",
    expires_in: Annotated[
        str | None, Option("--expires-in", metavar="TIME", help="lifetime, for example 30d (default: no limit)")
    ] = None,
    warehouse: options.WarehouseOption = None,
    json: options.JsonOption = False,
) -> None:
    """Create a token and print it once; only its hash is stored.

    As soon as a warehouse has a token, its servers reject requests without one.
    """
    valid_ms = None if expires_in is None else options.duration_ms(expires_in)
    with _tokens(warehouse) as tokens:
        from refimpl.server.access import Scope

        known = {member.value: member for member in Scope}
        if scope not in known:
            raise InvalidRequestError(f"invalid scope {scope!r}; expected {' or '.join(known)}")
        secret = tokens.add(name, known[scope], valid_ms=valid_ms)
    output.show({"name": name, "scope": scope, "token": secret}, secret, json=json)


@tokens.command("list", epilog="Example:  commit-owner token list")
def token_list(warehouse: options.WarehouseOption = None, json: options.JsonOption = False) -> None:
    """List the tokens: names, scopes and expiry; never the tokens themselves."""
    with _tokens(warehouse) as tokens:
        listed = tokens.all()
    if json:
        output.show_json(
            [
                {"name": t.name, "scope": t.scope.value, "added_at": t.added_at, "expires_at": t.expires_at}
                for t in listed
            ]
        )
        return
    if not listed:
        output.show_line("no tokens: servers of this warehouse accept every request that reaches them")
        return
    rows = [
        (
            token.name,
            token.scope.value,
            output.moment(token.added_at),
            "never" if token.expires_at is None else output.moment(token.expires_at),
        )
        for token in listed
    ]
    output.show_table(("name", "scope", "added", "expires"), rows)


@tokens.command("remove", epilog="Example:  commit-owner token remove pipeline")
def token_remove(
    name: NameArgument, warehouse: options.WarehouseOption = None, json: options.JsonOption = False
) -> None:
    """Remove a token. Running servers reject it at once."""
    with _tokens(warehouse) as tokens:
        tokens.remove(name)
        left = len(tokens.all())
    if json:
        output.show_json({"name": name, "left": left})
        return
    output.show_line(f"removed {name}; {output.counted(left, 'token')} left")
    if not left:
        output.show_hint("no tokens left: servers accept every request that reaches them")


@contextmanager
def _tokens(address: str | None) -> "Iterator[Tokens]":
    from refimpl.server.access import Tokens

    with options.opened(address) as warehouse:
        yield Tokens(warehouse)
