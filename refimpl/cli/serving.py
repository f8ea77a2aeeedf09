"""Commands of the server: `serve`, and `token` with its own commands."""

from typing import TYPE_CHECKING

import typer

from refimpl.cli import options, output
from refimpl.cli.commands import command, commands, epilog
from refimpl.cli.output import Result, TextTable
from refimpl.protocol.commit_owner import SERVER_PUBLISHES_AFTER
from refimpl.protocol.errors import InvalidRequestError
from refimpl.protocol.release import how_to_install

if TYPE_CHECKING:
    from refimpl.warehouse import Warehouse

_PANEL = "Server"
_ADDING = "token add pipeline --scope write"
tokens = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help="Manage the access tokens of the server.")
commands.add_typer(tokens, name="token", rich_help_panel=_PANEL, epilog=epilog(_ADDING))


@command(_PANEL, "serve -w /data/lake --port 8080", json=False)
def serve(
    address: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    catalog: str = "unity",
    schema: list[str] | None = None,
    backfill_every: str = str(SERVER_PUBLISHES_AFTER),
    backlog_limit: int = 1000,
    allow: list[str] | None = None,
    forbid: list[str] | None = None,
    hand_back: bool = True,
    workers: int = 1,
    log_level: str = "info",
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
            f"the server needs {error.name}; install it with: {how_to_install('server')}"
        ) from error
    if log_level not in ("debug", "info", "warning", "error"):
        raise InvalidRequestError(f"invalid log level {log_level!r}; expected debug, info, warning or error")
    with options.open_folder(address) as warehouse:  # only `init` creates a warehouse
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
            workers=workers,
        )
    )


@command(None, _ADDING, group=tokens)
def add(warehouse: "Warehouse", name: str, scope: str = "read", expires_in: str | None = None) -> Result:
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
    return Result(document, TextTable(columns=("name", "scope", "added", "expires"), rows=rows))


@command(None, "token remove pipeline", group=tokens)
def remove(warehouse: "Warehouse", name: str) -> Result:
    """Remove a token. Running servers reject it at once."""
    from refimpl.server.access import Tokens

    tokens = Tokens(warehouse)
    tokens.remove(name)
    left = len(tokens.all())
    if not left:
        output.show_hint("no tokens left: servers accept every request that reaches them")
    return Result({"name": name, "left": left}, f"removed {name}; {output.counted(left, 'token')} left")
