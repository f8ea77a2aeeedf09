"""The composition root: a directory with tables and, in `_owner/`, the owner of them.

    warehouse = refimpl.open("/data/warehouse", create=True)
    table = warehouse.create_table("sales", schema, partition_columns=["month"])

Or the tables of a server, whose owner runs on another host: refimpl.open("https://catalog.example.org:8443", token=...)
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, overload

import msgspec

from refimpl.announced import AnnouncedTables
from refimpl.care.owner import WatchedOwner
from refimpl.groups import TableGroups
from refimpl.owner.local import LocalOwner
from refimpl.owner.statements import View
from refimpl.owner.tables import DEFAULT_NAME, disk_errors
from refimpl.protocol.commit_owner import CommitOwner, MaintenancePolicy, TableSummary
from refimpl.protocol.errors import (
    CorruptLedgerError,
    DeltaError,
    InvalidRequestError,
    LocationError,
    OwnerUnavailableError,
    TableNotFoundError,
    UnsupportedFeatureError,
    check_type,
)
from refimpl.protocol.owner_conf import conf_flaw
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode, TableFeature
from refimpl.storage.environment import Environment, HostLock
from refimpl.storage.locations import OWNER_FOLDER
from refimpl.storage.object_store import check_store, record_stores, with_stores

if TYPE_CHECKING:
    from refimpl.care.verify import Finding
    from refimpl.client.group_transaction import GroupTransaction
    from refimpl.client.snapshot import Snapshot
    from refimpl.client.table import Table
    from refimpl.remote_owner.owner import RemoteOwner


class _Tables:
    """The tables of one commit owner, wherever it runs."""

    owner: CommitOwner
    environment: Environment

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
        location: str | Path | None = None,
        policy: MaintenancePolicy | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Create an empty table. `schema`: a `pyarrow.Schema`, or types by column: Delta's names, such as `long` or
        `decimal(10,2)`, or Arrow's types.

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

    def transaction(self, *references: str | Path) -> GroupTransaction:
        """A transaction over several tables, for a `with` statement: its end commits to all of them, or to none.

        `references`: tables that are read in one state of the owner; others can be named later. An owner without such
        transactions raises `InvalidRequestError`, a server not before the statement begins. See
        `refimpl.client.group_transaction`.
        """
        from refimpl.client.group_transaction import GroupTransaction

        return GroupTransaction(self.owner, self.environment, references)

    def snapshots(self, *references: str | Path) -> tuple[Snapshot, ...]:
        """The newest versions of several tables, in one state of the owner: of each transaction over them, all or
        nothing is visible, also if it lands during this call. Raises the errors of `table` and `Table.snapshot`."""
        from refimpl.client.group_transaction import read_together

        return tuple(read.snapshot for read in read_together(self.owner, self.environment, references))

    @property
    def label(self) -> str:
        """The warehouse in messages."""
        raise NotImplementedError

    def close(self) -> None:
        """Close this thread's connection to the owner."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


IDENTITY: Final = "SELECT name, conf FROM owner"
SET_IDENTITY: Final = "UPDATE owner SET name = ?, conf = ?"
SET_ROOTS: Final = "UPDATE owner SET roots = ?"


class HostOwner(WatchedOwner, TableGroups, AnnouncedTables):
    """The owner of a warehouse, a `CatalogOwner`: the core with all packages around it."""

    def identify(self, name: str | None, conf: Mapping[str, str] | None) -> None:
        """Load the owner's name and configuration, after setting those that are not None: in one transaction, so that
        two processes cannot give it two names. Raises `InvalidRequestError`."""
        if name is not None or conf is not None:
            with disk_errors("name the owner"), self.lock(), self.ledger.write() as writer:
                known, stored = _identity(writer)
                has_tables = name is not None and bool(writer.tables())
                flaw = _identity_flaw(known, name, conf, has_tables=has_tables)
                if flaw is not None:
                    raise InvalidRequestError(flaw)
                chosen = msgspec.json.encode(stored if conf is None else conf).decode()
                writer.execute(SET_IDENTITY, (known if name is None else name, chosen))
        with self.ledger.read() as view:
            self.name, self.conf = _identity(view)

    def add_roots(self, roots: list[Path]) -> None:
        """Allow take-overs below these directories too."""
        with disk_errors("store the roots"), self.lock(), self.ledger.write() as writer:
            known = dict.fromkeys(map(str, (*writer.roots(), *roots)))
            writer.execute(SET_ROOTS, (msgspec.json.encode([*known]).decode(),))


def _identity(view: View) -> tuple[str, dict[str, str]]:
    """The owner's name and its configuration."""

    def load(row: tuple[str | None, str | None]) -> tuple[str, dict[str, str]]:
        name, conf = row
        return name or DEFAULT_NAME, {} if conf is None else msgspec.json.decode(conf, type=dict[str, str])

    identity = view.first(load, IDENTITY)
    if identity is None:
        raise CorruptLedgerError("the ledger does not describe its owner; restore it from a backup, then run verify")
    return identity


def _identity_flaw(current: str, name: str | None, conf: Mapping[str, str] | None, *, has_tables: bool) -> str | None:
    """Why the owner cannot get this name or configuration. Its tables have the name in their metadata."""
    if name is not None and not (name.strip() and name.isprintable() and (name == current or not has_tables)):
        expected = f"{current!r}, the name in its tables" if has_tables else "a printable text that is not blank"
        return f"invalid name {name!r} of the owner; expected {expected}"
    flaw = None if conf is None else conf_flaw(msgspec.json.encode(dict(conf)).decode())
    return None if flaw is None else flaw.detail


class Warehouse(_Tables):
    """A directory of tables with one commit owner. Made by `refimpl.open`."""

    owner: HostOwner

    def __init__(self, directory: Path, owner: HostOwner, environment: Environment) -> None:
        self.directory = directory
        self.owner = owner
        self.environment = environment

    @property
    def label(self) -> str:
        """The warehouse in messages."""
        return str(self.directory)

    def undrop_table(self, reference: str) -> Table:
        """Restore a dropped table, by name or id, while its files are there and no other table has its name.

        Raises `TableNotFoundError`, `NameTakenError`, `LocationError`.
        """
        from refimpl.care import dropping
        from refimpl.client.table import Table

        return Table.resolved(dropping.undrop_table(self.owner, reference), self.owner, self.environment)

    def verify(self, *, data: bool = False) -> list[Finding]:
        """What is wrong with the ledger and the tables: see `refimpl.care.verify`; and with checkpoints and
        the data files of the newest version: whether they exist and, with `data`, their content. Reads only."""
        from refimpl.care.verify import Severity, unreadable, verify

        findings = verify(self.owner)
        try:
            tables = self.owner.recorded_tables()
        except CorruptLedgerError:  # which is a finding
            return findings
        for table in tables:
            label = table.name or table.table_id
            try:
                findings += self._damaged_files(table, label)
                if not any(finding.table == label and finding.severity is Severity.ERROR for finding in findings):
                    with contextlib.suppress(UnsupportedFeatureError):  # this client cannot read the table
                        findings += self._data_files(table, label, data)
            except (CorruptLedgerError, TableNotFoundError):  # a finding; or dropped meanwhile
                continue
            except (DeltaError, OSError) as error:
                findings.append(unreadable(table, error))
        return findings

    def _damaged_files(self, table: TableSummary, label: str) -> Iterator[Finding]:
        from refimpl.care.verify import Finding, Severity
        from refimpl.client.maintenance import Damage, damaged_files

        for path, problem, damage in damaged_files(self.table(table.table_id)):
            effect = {
                Damage.REPLACED: "older files are read instead, but other readers may fail",
                Damage.DIFFERENT: "readers get a wrong state of the table",
                Damage.LOST: "older files do not have what it held: restore it from a backup",
            }[damage]
            if damage is not Damage.LOST:
                effect += f": remove {path.name}, then write it again: "
                effect += f"commit-owner checkpoint {label} --version {path.version}"
            severity = Severity.WARNING if damage is Damage.REPLACED else Severity.ERROR
            code = f"checkpoint-{'differs' if damage is Damage.DIFFERENT else 'unreadable'}"
            yield Finding(table=label, severity=severity, code=code, message=f"{problem}; {effect}")

    def _data_files(self, table: TableSummary, label: str, data: bool) -> Iterator[Finding]:
        from refimpl.care.verify import Finding, Severity
        from refimpl.client.data_maintenance import damaged_files, missing_files

        version, missing = missing_files(self.table(table.table_id))
        if missing:
            message = (
                f"missing data files of version {version}: {len(missing)}, such as {missing[0]}; reads of their rows "
                f"fail: restore the files from a backup, or remove their rows with an overwrite, or with a delete of "
                f"all rows of their partitions, which does not read the files"
            )
            yield Finding(table=label, severity=Severity.ERROR, code="data-file-missing", message=message)
        for problem in damaged_files(self.table(table.table_id)) if data else ():
            yield Finding(table=label, severity=Severity.ERROR, code="data-file-damaged", message=problem)

    @property
    def lock(self) -> HostLock:
        """The owner's lock, under which everything in the owner's folder is changed."""
        return self.owner.lock

    def close(self) -> None:
        """Close this thread's connection to the ledger."""
        self.owner.close()


class RemoteWarehouse(_Tables):
    """A schema of a server with Unity Catalog's Delta API. Made by `refimpl.open`."""

    owner: RemoteOwner

    def __init__(self, owner: RemoteOwner, environment: Environment) -> None:
        self.owner = owner
        self.environment = environment

    @property
    def label(self) -> str:
        """The warehouse in messages."""
        return f"{self.owner.address.server} ({self.owner.address.catalog}.{self.owner.address.schema})"

    def close(self) -> None:
        """Close this thread's connection to the server."""
        self.owner.close()


AnyWarehouse = Warehouse | RemoteWarehouse


def is_url(reference: object) -> bool:
    """Whether a warehouse is named by the URL of a server, and not by a directory."""
    return isinstance(reference, str) and reference.lower().startswith(("http://", "https://"))


@overload
def open(  # noqa: A001
    directory: str | os.PathLike[str],
    *,
    create: bool = False,
    roots: Iterable[str | os.PathLike[str]] = (),
    stores: Mapping[str, str] | None = None,
    name: str | None = None,
    conf: Mapping[str, str] | None = None,
    environment: Environment | None = None,
) -> Warehouse: ...


@overload
def open(  # noqa: A001
    directory: str, *, token: str | None, environment: Environment | None = None
) -> RemoteWarehouse: ...


def open(  # noqa: A001 - `refimpl.open` is the one entry, named like the builtin on purpose
    directory: str | os.PathLike[str],
    *,
    create: bool = False,
    roots: Iterable[str | os.PathLike[str]] = (),
    stores: Mapping[str, str] | None = None,
    name: str | None = None,
    conf: Mapping[str, str] | None = None,
    token: str | None = None,
    environment: Environment | None = None,
) -> AnyWarehouse:
    """The warehouse at `directory`, with its owner; or, by the URL of a server, a schema of its catalog.

    `create`: create the directory and the owner if they are missing, as `commit-owner init` does (two processes may do
    so at once); otherwise a missing one is an `InvalidRequestError`. `roots`: directories outside the warehouse below
    which tables may be taken over, added to those that the owner knows. `stores`: URLs of S3-compatible stores by name,
    added likewise; tables may then be created below `NAME.store` (`refimpl.storage.object_store`). `name`: the owner's
    name in the metadata of its tables (default: refimpl), until it has one. `conf`: the configuration for its clients
    that new tables get, such as {"warehouse": PATH} (`refimpl.open_table`). Raises `CorruptLedgerError`
    for a damaged ledger, `LocationError` for a network file system: the file lock and SQLite's write-ahead log are for
    one host.

    Of a server, `https://host:port` or `http://127.0.0.1:port`: `token` (default: $COMMIT_OWNER_TOKEN). The URL may end
    with `?catalog=C&schema=S` (default: unity and default); `allow-http=true` in it sends the token to another host
    without TLS. Nothing is sent before the first table is asked for.
    """
    if not isinstance(directory, str | os.PathLike) or not str(directory):
        raise InvalidRequestError(f"invalid warehouse {directory!r}; expected a folder's path, or the URL of a server")
    if is_url(directory):
        if create or roots or stores or name or conf:
            raise InvalidRequestError("create, roots, stores, name and conf are for folders, not for a server's URL")
        from refimpl.remote_owner.connection import address_of
        from refimpl.remote_owner.owner import RemoteOwner

        environment = environment or Environment()
        return RemoteWarehouse(RemoteOwner(address_of(str(directory), token=token), environment), environment)
    scheme, separator, _ = str(directory).partition("://")
    if separator and scheme.isalnum():
        raise InvalidRequestError(
            f"invalid warehouse {str(directory)!r}: unknown scheme {scheme}; expected http:// or "
            "https://, or a folder's path"
        )
    if token is not None:
        raise InvalidRequestError(f"a token needs the URL of a server (https://host:port), not {str(directory)!r}")
    home = _resolved(directory)
    environment = environment or Environment()
    folder = home / OWNER_FOLDER
    files = environment.files
    wanted_roots = [_checked_root(root) for root in roots]
    check_type("name of the owner", name, (str, None), "a text")
    check_type("configuration of the owner", conf, (Mapping, None), "a map of texts to texts")
    flaw = _identity_flaw(DEFAULT_NAME, name, conf, has_tables=False)
    if flaw is not None:
        raise InvalidRequestError(flaw)
    for store, url in (stores or {}).items():
        check_store(store, url)
    kind = network_file_system(home)
    if kind is not None:
        raise LocationError(f"{home} is on a network file system ({kind}); the owner needs a local one", kind=kind)
    try:
        if files.stat(folder) is None:
            if not create:
                for parent in (home, *home.parents):
                    status = files.stat(parent)
                    if status is not None and not status.is_directory:
                        raise InvalidRequestError(
                            f"{parent} is a file; expected a warehouse's folder", directory=str(home)
                        )
                _refuse_lost_owner(HostOwner(home, environment), None, home, environment)
                raise InvalidRequestError(
                    f"{home} has no commit owner; create one with: commit-owner init {home}, or in Python: "
                    f"refimpl.open({str(home)!r}, create=True)",
                    directory=str(home),
                )
            _refuse_new_owner(home, environment)
        host, environment = environment, with_stores(environment, folder)
        owner = HostOwner(home, environment)
        if create:
            _refuse_lost_owner(owner, name, home, environment)
            if not owner.ledger.exists():
                make_folders(folder, environment)
        if stores:
            with owner.lock():
                record_stores(folder, stores)
            environment = with_stores(host, folder)
            owner = HostOwner(home, environment)
        if not owner.ledger.exists():
            if not create:
                raise CorruptLedgerError(
                    f"{folder} holds no ledger; restore it from a backup, or, if init was interrupted, run it again",
                    directory=str(home),
                )
            owner.ledger.create()
        owner.ledger.open()
        owner.identify(name, conf)
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        raise OwnerUnavailableError(
            f"cannot use {home} as a warehouse: {path}{error.strerror or error}; check the path and its permissions",
            directory=str(home),
        ) from error
    if wanted_roots:
        owner.add_roots(wanted_roots)
    return Warehouse(home, owner, environment)


def _refuse_lost_owner(owner: LocalOwner, name: str | None, home: Path, environment: Environment) -> None:
    """Raise `CorruptLedgerError` if tables have an owner of this name, by default any, whose ledger is missing: a new
    one would lose their commits.

    Checked again after the search: another process may have created the ledger, and a table, meanwhile.
    """
    from refimpl.care.verify import owned_tables

    if owner.ledger.exists() or environment.files.stat(home) is None:
        return
    owned = next(owned_tables(environment, home, name, set()), None)
    if owned is not None and not owner.ledger.exists():
        raise CorruptLedgerError(
            f"{owned[0]} is a {owned[1].name} table, but its owner's ledger {owner.ledger.path} is missing; "
            f"move the folder {OWNER_FOLDER} back, or restore the ledger from a backup; if another owner has the "
            f"table, create this one in another folder, or under a name of its own (--name)",
            path=str(owner.ledger.path),
        )


def make_folders(folder: Path, environment: Environment) -> None:
    """Order: each directory, then fsync its parent, also if it exists: the process that made it may have died before
    its fsync. Only its user may read the owner's folder: it holds inline commits and tokens."""
    for path in reversed((folder, *folder.parents[:-1])):
        missing = environment.files.stat(path) is None
        if missing:
            with contextlib.suppress(FileExistsError):
                environment.files.make_directory(path, 0o700 if path == folder else 0o777)
        # An existing directory may be in another user's, or on another file system.
        with contextlib.nullcontext() if missing or path == folder else contextlib.suppress(OSError):
            environment.files.fsync_directory(path.parent)


def _resolved(directory: str | os.PathLike[str]) -> Path:
    """The real path of a directory, which may be missing. Paths are stored and shown, so they must be text."""
    try:
        resolved = Path(directory).resolve()
        str(resolved).encode()
    except (OSError, RuntimeError, ValueError) as error:
        raise LocationError(f"{str(directory)!r} cannot be a warehouse: {error}") from error
    return resolved


def _refuse_new_owner(home: Path, environment: Environment) -> None:
    """Raise `LocationError` where no owner can be created: at or below a file, or inside another warehouse."""
    for parent in (home, *home.parents):
        status = environment.files.stat(parent)
        if status is not None and not status.is_directory:
            raise LocationError(
                f"{home} cannot be a warehouse: {parent} is a file; choose another folder", location=str(home)
            )
    for parent in home.parents:  # at `home` itself another process may have created one meanwhile
        if environment.files.stat(parent / OWNER_FOLDER) is not None:
            raise LocationError(
                f"{home} is inside the warehouse {parent}; open that one, or choose a folder outside of it",
                location=str(home),
            )


def _checked_root(root: str | os.PathLike[str]) -> Path:
    resolved = Path(root).resolve()
    if not resolved.is_dir():
        raise LocationError(f"the root {resolved} is not a folder; expected an existing one", location=str(resolved))
    kind = network_file_system(resolved)
    if kind is not None:
        raise LocationError(f"the root {resolved} is on a network file system ({kind}); use a local one", kind=kind)
    return resolved


# A host lock on a network file system does not exclude other hosts.

NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "davfs", "fuse.blobfuse", "fuse.blobfuse2", "fuse.ceph-fuse",
        "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs", "fuse.mount-s3", "fuse.rclone", "fuse.s3fs", "fuse.sshfs",
        "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "smb2", "smb3", "smbfs",
    }
)  # fmt: skip
"""File systems that several hosts share. None is detected on systems without /proc/self/mounts."""

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
    """The mount table is long and rarely changes, and every start reads it."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        if directory.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind if kind in NETWORK_FILE_SYSTEMS else None
