"""Commands that change who owns a table: `take-over`, `hand-back`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refimpl.cli import output
from refimpl.cli.options import (
    AllowOption,
    BackfillOption,
    BacklogOption,
    CommitModeOption,
    JsonOption,
    TableArgument,
    WarehouseOption,
    commit_mode_named,
    feature_named,
    opened,
    policy_of,
)
from refimpl.table_feature import MANAGED_COMMIT, TABLE_FEATURES

_PANEL = "Ownership"


def register(application: typer.Typer) -> None:
    application.command("take-over", rich_help_panel=_PANEL, epilog=_TAKE_OVER)(take_over)
    application.command("hand-back", rich_help_panel=_PANEL, epilog=_HAND_BACK)(hand_back)


_TAKE_OVER = "Example:  commit-owner take-over /data/lake/sales sales --feature managedCommit"


def take_over(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="path of a filesystem table inside the warehouse or a root")
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="new name of the table")],
    feature: Annotated[
        str, typer.Option("--feature", metavar="FEATURE", help=f"new table feature: {' or '.join(TABLE_FEATURES)}")
    ] = MANAGED_COMMIT.name,
    commit_mode: CommitModeOption = None,
    backfill_every: BackfillOption = "1",
    backlog_limit: BacklogOption = 1000,
    allow: AllowOption = None,
    warehouse: WarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Give a filesystem table to the owner.

    The change is one commit by put-if-absent; a concurrent writer wins or loses the version as usual. A table
    outside the warehouse must be below a root (`commit-owner init --root`).
    """
    from refimpl.client.ownership import take_over as taken_over
    from refimpl.client.table import Table

    new_feature, chosen = feature_named(feature), commit_mode_named(commit_mode)
    policy = policy_of(backfill_every, backlog_limit, allow)
    with opened(warehouse) as place:
        table = Table.by_path(path.absolute(), place.environment)
        owned = taken_over(table, place.owner, name, new_feature, commit_mode=chosen, policy=policy)
        version = owned.snapshot().version
    if json:
        told = {"name": name, "table_id": owned.table_id, "location": str(owned.location), "version": version}
        output.show_json(told | {"feature": new_feature.name})
        return
    output.show_line(f"{owned.location} is now {name}, a {new_feature.name} table from version {version} on")


_HAND_BACK = "Example:  commit-owner hand-back sales"


def hand_back(table: TableArgument, warehouse: WarehouseOption = None, json: JsonOption = False) -> None:
    """Return a table to the filesystem.

    All commits are published first; then one commit removes the feature, and the owner rejects further commits.
    """
    from refimpl.client.ownership import hand_back as handed_back

    with opened(warehouse) as place:
        free = handed_back(place.table(table))
        version = free.snapshot().version
    if json:
        output.show_json({"location": str(free.location), "version": version})
        return
    output.show_line(f"{free.location} is a filesystem table from version {version} on; use it by its path")
