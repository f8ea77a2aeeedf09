"""Options and arguments that several commands share, and the values that they stand for."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from refimpl.errors import InvalidRequestError
from refimpl.table_feature import CATALOG_MANAGED, TABLE_FEATURES, CommitMode, TableFeature

if TYPE_CHECKING:
    from refimpl.commit_owner import Maintenance, MaintenancePolicy
    from refimpl.warehouse import Warehouse

WAREHOUSE_VARIABLE: Final = "COMMIT_OWNER_WAREHOUSE"

WarehouseOption = Annotated[
    Path | None,
    typer.Option(
        "--warehouse",
        "-w",
        envvar=WAREHOUSE_VARIABLE,
        metavar="DIR",
        help="warehouse directory (default: the current directory)",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON document to stdout")]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="name, id, or path (with a /) of the table")]
FeatureOption = Annotated[
    str,
    typer.Option("--feature", metavar="FEATURE", help=f"table feature: {' or '.join(TABLE_FEATURES)}"),
]
CommitModeOption = Annotated[
    str | None,
    typer.Option("--commit-mode", metavar="MODE", help="commit mode: staged (default), inline or direct"),
]
BackfillOption = Annotated[
    str,
    typer.Option("--backfill-every", metavar="N", help="publish after every N commits, or: never"),
]
BacklogOption = Annotated[
    int, typer.Option("--backlog-limit", metavar="N", help="maximum unpublished commits; further ones are rejected")
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow", metavar="JOB", help="maintenance jobs to allow: metadata-cleanup, vacuum, ... (repeatable)"
    ),
]


def opened(warehouse: Path | None) -> Warehouse:
    """The warehouse that the option, the environment variable or the current directory names.

    Raises `InvalidRequestError` where none does: a command never makes one by accident.
    """
    import refimpl
    from refimpl.owner.local import OWNER_FOLDER

    if warehouse is None:
        here = Path.cwd()
        if not (here / OWNER_FOLDER).is_dir():
            raise InvalidRequestError(
                f"no warehouse given, and {here} is not a warehouse; pass -w DIR, set {WAREHOUSE_VARIABLE}, "
                f"or create one: commit-owner init DIR"
            )
        warehouse = here
    return refimpl.open(warehouse)


def feature_named(name: str) -> TableFeature:
    """The table feature of this name, in any case."""
    for feature in TABLE_FEATURES.values():
        if feature.name.lower() == name.lower():
            return feature
    raise InvalidRequestError(f"unknown table feature {name!r}; choose {' or '.join(TABLE_FEATURES)}")


def commit_mode_named(name: str | None) -> CommitMode | None:
    if name is None:
        return None
    try:
        return CommitMode(name)
    except ValueError:
        known = ", ".join(commit_mode.value for commit_mode in CommitMode)
        raise InvalidRequestError(f"unknown commit mode {name!r}; choose one of {known}") from None


def policy_of(backfill_every: str, backlog_limit: int, allow: list[str] | None) -> MaintenancePolicy:
    """The owner's policy for a new table; the owner checks its limits."""
    from refimpl.commit_owner import ALWAYS_ALLOWED, MaintenancePolicy

    return MaintenancePolicy(
        allowed=ALWAYS_ALLOWED | jobs_named(allow),
        backfill_every=backfill_number(backfill_every),
        backlog_limit=backlog_limit,
    )


def jobs_named(names: list[str] | None) -> frozenset[Maintenance]:
    """Maintenance jobs by their names, repeated or joined by commas."""
    from refimpl.commit_owner import Maintenance

    known = {job.value: job for job in Maintenance}
    wanted = names_of(names)
    for name in wanted:
        if name not in known:
            raise InvalidRequestError(f"unknown maintenance job {name!r}; choose from {', '.join(known)}")
    return frozenset(known[name] for name in wanted)


def backfill_number(given: str) -> int | None:
    """`10`, or `never`: None."""
    if given == "never":
        return None
    if not given.isascii() or not given.isdigit():
        raise InvalidRequestError(f"invalid --backfill-every {given!r}; expected a number >= 1, or never")
    return int(given)


def properties_of(pairs: list[str] | None) -> dict[str, str]:
    """`KEY=VALUE` pairs as a map."""
    found: dict[str, str] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InvalidRequestError(f"invalid property {pair!r}; expected KEY=VALUE")
        found[key] = value
    return found


def names_of(listed: list[str] | None) -> list[str]:
    """Names given one by one, or several joined by commas."""
    return [name.strip() for item in listed or () for name in item.split(",") if name.strip()]


_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}


def duration_ms(given: str) -> int:
    """`90s`, `24h`, `7d`: in ms."""
    match = re.fullmatch(r"(\d{1,9})(ms|s|m|h|d|w)", given.strip(), re.ASCII)
    if match is None:
        raise InvalidRequestError(f"invalid duration {given!r}; expected for example 90s, 24h or 7d")
    return int(match[1]) * _UNITS[match[2]]


def moment_ms(given: str) -> int:
    """A moment in ISO 8601 (UTC where it names no zone), or ms since the epoch."""
    import datetime

    from refimpl.client.in_commit_timestamp import milliseconds

    if re.fullmatch(r"\d{1,15}", given, re.ASCII):
        return int(given)
    try:
        at = datetime.datetime.fromisoformat(given)
    except ValueError:
        raise InvalidRequestError(
            f"invalid timestamp {given!r}; expected ISO 8601, such as 2026-11-21T12:00:00, or epoch milliseconds"
        ) from None
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.UTC)
    return milliseconds(at)


def default_root() -> Path:
    """The default directory of `init`: the environment variable's, otherwise the current one."""
    return Path(os.environ.get(WAREHOUSE_VARIABLE) or ".")


DEFAULT_FEATURE: Final = CATALOG_MANAGED.name
