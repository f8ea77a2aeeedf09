"""The composition root: a directory with tables and, in `_owner/`, the owner of them.

warehouse = refimpl.open("/data/warehouse", create=True)
table = warehouse.create_table("sales", schema, partition_columns=["month"])
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from refimpl.commit_owner import MaintenancePolicy
from refimpl.environment import Environment, HostLock
from refimpl.errors import CorruptLedgerError, InvalidRequestError, LocationError, OwnerUnavailableError
from refimpl.owner.local import OWNER_FOLDER, LocalOwner
from refimpl.table_feature import CATALOG_MANAGED, CommitMode, TableFeature

if TYPE_CHECKING:
    from refimpl.client.table import Table


class Warehouse:
    """A directory of tables with one commit owner. Made by `refimpl.open`."""

    def __init__(self, directory: Path, owner: LocalOwner, environment: Environment) -> None:
        self.directory = directory
        self.owner = owner
        self.environment = environment

    @property
    def lock(self) -> HostLock:
        """The owner's lock, under which everything in the owner's folder is changed."""
        return self.owner.context.lock

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
        commit_mode: CommitMode | None = None,
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
            commit_mode=commit_mode,
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
    create: bool = False,
    roots: Iterable[str | os.PathLike[str]] = (),
    environment: Environment | None = None,
) -> Warehouse:
    """The warehouse at `directory`, with its owner.

    `create`: make directory and owner where there is none, as `commit-owner init` does (two first starts at
    once are fine); otherwise that is an `InvalidRequestError`. `roots`: directories outside the warehouse below which
    tables may be taken over, added to those that the owner knows.
    Raises `CorruptLedgerError` for a damaged ledger, `LocationError` for a network file system: the
    file lock and SQLite's write-ahead log are for one host.
    """
    place = _resolved(directory)
    environment = environment or Environment()
    folder = place / OWNER_FOLDER
    files = environment.files
    wanted_roots = [_checked_root(root) for root in roots]
    kind = network_file_system(place)
    if kind is not None:
        raise LocationError(f"{place} is on a network file system ({kind}); the owner needs a local one", kind=kind)
    try:
        if files.stat(folder) is None:
            if not create:
                raise InvalidRequestError(
                    f"{place} has no commit owner; create one with: commit-owner init {place}, or in Python: "
                    f"refimpl.open({str(place)!r}, create=True)",
                    directory=str(place),
                )
            _refuse_new_owner(place, environment)
        owner = LocalOwner(place, environment)
        if create:
            _refuse_lost_owner(owner, place, environment)
            _make_folders(folder, environment)
        if not owner.ledger.exists():
            if not create:
                raise InvalidRequestError(f"{folder} holds no ledger; restore it from a backup", directory=str(place))
            owner.ledger.create()
        owner.ledger.open()
    except OSError as error:
        raise OwnerUnavailableError(f"cannot use {place} as a warehouse: {error}", directory=str(place)) from error
    if wanted_roots:
        owner.add_roots(wanted_roots)
    return Warehouse(place, owner, environment)


def _refuse_lost_owner(owner: LocalOwner, place: Path, environment: Environment) -> None:
    """`CorruptLedgerError` where tables have an owner whose ledger is gone: a new one would know none of their commits.

    Asked again after the search: another first start may have made the ledger, and a table, meanwhile.
    """
    from refimpl.owner.verify import owned_tables

    if owner.ledger.exists() or environment.files.stat(place) is None:
        return
    found = next(owned_tables(environment, place, owner.name, set()), None)
    if found is not None and not owner.ledger.exists():
        raise CorruptLedgerError(
            f"{found[0]} is a {found[1].name} table, but its owner's ledger {owner.ledger.path} is gone; "
            f"move the folder {OWNER_FOLDER} back, or restore the ledger from a backup",
            path=str(owner.ledger.path),
        )


def _make_folders(folder: Path, environment: Environment) -> None:
    """Order: each directory, then fsync its parent. The owner's is for its user alone: it holds inline commits and
    tokens."""
    missing = [path for path in (folder, *folder.parents) if environment.files.stat(path) is None]
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            environment.files.make_directory(path, 0o700 if path == folder else 0o777)
        environment.files.fsync_directory(path.parent)


def _resolved(directory: str | os.PathLike[str]) -> Path:
    """The real path of a directory, which need not exist. Paths are stored and shown, so they must be text."""
    try:
        place = Path(directory).resolve()
        str(place).encode()
    except (OSError, RuntimeError, ValueError) as error:
        raise LocationError(f"{str(directory)!r} cannot be a warehouse: {error}") from error
    return place


def _refuse_new_owner(place: Path, environment: Environment) -> None:
    """`LocationError` for a place where no owner can be made: at or below a file, or inside another warehouse."""
    for parent in (place, *place.parents):
        found = environment.files.stat(parent)
        if found is not None and not found.is_directory:
            raise LocationError(f"{place} cannot be a warehouse: {parent} is a file", location=str(place))
    for parent in place.parents:  # at `place` itself another first start may have made one meanwhile
        if environment.files.stat(parent / OWNER_FOLDER) is not None:
            raise LocationError(
                f"{place} is inside the warehouse {parent}; open that one, or choose a place outside of it",
                location=str(place),
            )


def _checked_root(root: str | os.PathLike[str]) -> Path:
    found = Path(root).resolve()
    if not found.is_dir():
        raise LocationError(f"the root {found} is not a directory", location=str(found))
    kind = network_file_system(found)
    if kind is not None:
        raise LocationError(f"the root {found} is on a network file system ({kind}); name a local one", kind=kind)
    return found


# A host lock on a network file system locks nobody out.

NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "davfs", "fuse.blobfuse", "fuse.blobfuse2", "fuse.ceph-fuse",
        "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs", "fuse.mount-s3", "fuse.rclone", "fuse.s3fs", "fuse.sshfs",
        "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "smb2", "smb3", "smbfs",
    }
)  # fmt: skip
"""File systems that several hosts share. Where the kernel does not tell (not Linux) nothing is detected."""

_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
"""How the kernel spells blanks and backslashes in a mount point."""

MOUNTS: Final = Path("/proc/self/mounts")


def network_file_system(directory: Path, mounts: str | None = None) -> str | None:
    """The type of the network file system that holds `directory`, or None. `mounts`: as in /proc/self/mounts."""
    if mounts is None:
        try:
            mounts = MOUNTS.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
    return _kind_of_place(directory, mounts)


@lru_cache(maxsize=16)
def _kind_of_place(directory: Path, mounts: str) -> str | None:
    """A table of mounts is long, stays as it is, and is asked at every start."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        if directory.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind if kind in NETWORK_FILE_SYSTEMS else None
