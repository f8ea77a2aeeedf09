"""The composition root: a directory with tables and, in `_owner/`, the owner of them.

warehouse = refimpl.open("/data/warehouse")
table = warehouse.create_table("sales", schema, partition_columns=["month"])
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refimpl.commit_owner import MaintenancePolicy
from refimpl.environment import Environment
from refimpl.errors import InvalidRequestError, LocationError, OwnerUnavailableError
from refimpl.owner.host import network_file_system
from refimpl.owner.local import OWNER_FOLDER, LocalOwner
from refimpl.table_feature import CATALOG_MANAGED, TableFeature, Way

if TYPE_CHECKING:
    from refimpl.client.table import Table


class Warehouse:
    """A directory of tables with one commit owner. Made by `refimpl.open`."""

    def __init__(self, directory: Path, owner: LocalOwner, environment: Environment) -> None:
        self.directory = directory
        self.owner = owner
        self.environment = environment

    def table(self, reference: str | Path) -> Table:
        """The table of this name, id or path. Raises `TableNotFoundError`."""
        from refimpl.client.table import Table

        return Table.resolve(reference, self.owner, self.environment)

    def tables(self) -> list[str]:
        """The names of all live tables, sorted."""
        return [table.name for table in self.owner.tables() if table.name is not None]

    def create_table(
        self,
        name: str,
        schema: Any,
        *,
        partition_columns: Sequence[str] = (),
        feature: TableFeature = CATALOG_MANAGED,
        way: Way | None = None,
        location: Path | None = None,
        policy: MaintenancePolicy | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Create an empty table. `schema`: a `pyarrow.Schema`.

        Raises `NameTakenError` (its `winner` is the other table), `LocationError`, `InvalidRequestError`.
        """
        from refimpl.client.create import create_table

        return create_table(
            self.owner,
            self.environment,
            name,
            schema,
            partition_columns=partition_columns,
            feature=feature,
            way=way,
            location=location,
            policy=policy,
            properties=properties or {},
        )

    def close(self) -> None:
        """Close this thread's connection to the ledger."""
        self.owner.close()

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open(  # noqa: A001 - `refimpl.open` is the one entry, named like the builtin on purpose
    directory: str | os.PathLike[str],
    *,
    create: bool = True,
    roots: Iterable[str | os.PathLike[str]] = (),
    environment: Environment | None = None,
) -> Warehouse:
    """The warehouse at `directory`, with its owner.

    `create`: make directory and owner where there is none (two first starts at once are fine);
    otherwise that is an `InvalidRequestError`. `roots`: directories outside the warehouse below which
    tables may be taken over, added to those that the owner knows.
    Raises `CorruptLedgerError` for a damaged ledger, `LocationError` for a network file system: the
    file lock and SQLite's write-ahead log are for one host.
    """
    place = Path(directory).absolute()
    environment = environment or Environment()
    folder = place / OWNER_FOLDER
    files = environment.files
    if not create and files.stat(folder) is None:
        raise InvalidRequestError(
            f"{place} has no commit owner; make one with: commit-owner init {place}", directory=str(place)
        )
    kind = network_file_system(place.resolve())
    if kind is not None:
        raise LocationError(f"{place} is on a network file system ({kind}); the owner needs a local one", kind=kind)
    try:
        if create:
            _make_folders(folder, environment)
        place = place.resolve(strict=True)
        owner = LocalOwner(place, environment)
        if not owner.ledger.exists():
            if not create:
                raise InvalidRequestError(f"{folder} holds no ledger; restore it from a backup", directory=str(place))
            owner.ledger.create()
        owner.ledger.open()
    except OSError as error:
        raise OwnerUnavailableError(f"cannot use {place} as a warehouse: {error}", directory=str(place)) from error
    if roots:
        _add_roots(owner, roots)
    return Warehouse(place, owner, environment)


def _make_folders(folder: Path, environment: Environment) -> None:
    """Order: each directory, then fsync its parent."""
    missing = [path for path in (folder, *folder.parents) if environment.files.stat(path) is None]
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            environment.files.make_directory(path)
        environment.files.fsync_directory(path.parent)


def _add_roots(owner: LocalOwner, roots: Iterable[str | os.PathLike[str]]) -> None:
    wanted = [Path(root).resolve() for root in roots]
    for root in wanted:
        if not root.is_dir():
            raise LocationError(f"the root {root} is not a directory", location=str(root))
        kind = network_file_system(root)
        if kind is not None:
            raise LocationError(f"the root {root} is on a network file system ({kind}); name a local one", kind=kind)
    owner.add_roots(wanted)
