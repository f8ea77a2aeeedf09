"""Creating tables: version 0, and the three phases with an owner.

catalog-managed, "Creating and Dropping": a location from the owner, version 0 written there by
put-if-absent, then the name. Creators of one name race for the third phase; each has a location of its
own until then, and a loser removes its files there. managed-commits, "Creating a new managed-commit
table": version 0 is written in place, so that a filesystem creator cannot win at the same time.

    creation = Creation.begin(owner, environment, "sales", schema)
    table = creation.finish(adds)        # create-as-select: data files that were written at creation.location
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from refimpl.client.proposing import MAX_LOOKS, CommitBytes, FilesystemProposer, Lost, RetryPolicy, commit_info
from refimpl.client.table import Table
from refimpl.protocol import errors, log_path
from refimpl.protocol.actions import Add, Metadata, Protocol
from refimpl.protocol.commit_owner import CommitOwner, MaintenancePolicy, NameTaken, Registered, ResolvedTable
from refimpl.protocol.commits import Conflict, DirectProposal, Landed, Ratified, Rejected, VersionGap
from refimpl.protocol.table_feature import CATALOG_MANAGED, IN_COMMIT_TIMESTAMP_PROPERTY, CommitMode, TableFeature
from refimpl.rows import row_tracking
from refimpl.schema import column_mapping, features, properties
from refimpl.schema.features import check_writable
from refimpl.schema.schema import Struct, as_struct, check_columns, refuse_void
from refimpl.storage.environment import Environment
from refimpl.storage.log_store import LogStore

FIRST = log_path.commit(0)


def create_table(owner: CommitOwner, environment: Environment, name: str, schema: Any, **options: Any) -> Table:
    """Create an empty table of this name with an owner. Options: see `Creation.begin`."""
    errors.check_type("table name", name, str, "a text such as 'orders'")
    return Creation.begin(owner, environment, name, schema, **options).finish()


def create_filesystem_table(
    location: Path,
    environment: Environment,
    schema: Any,
    *,
    partition_columns: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    in_commit_timestamps: bool = False,
    adds: Sequence[Add] = (),
) -> Table:
    """Create a table without an owner at `location`. `adds`: data files that exist already.

    Raises `LocationError` if a table exists there or cannot be created, `InvalidRequestError` for an invalid schema
    or property, `OutcomeUnknown` if version 0 may be visible but not durable.
    """
    metadata = _metadata(environment, schema, partition_columns, properties or {})
    if in_commit_timestamps:
        metadata = _with_properties(metadata, {IN_COMMIT_TIMESTAMP_PROPERTY: "true"})
    protocol = features.first_protocol(metadata, None, in_commit_timestamps=in_commit_timestamps)
    content = first_version(environment, protocol, metadata, adds, stamped=in_commit_timestamps)
    table = Table.by_path(location, environment)
    try:
        table.log.create_folders()
        outcome = FilesystemProposer(table.reader).propose(0, content)
    except (OSError, errors.OwnerUnavailableError) as error:
        raise errors.LocationError(f"cannot create a table at {location}: {error}", location=str(location)) from error
    except errors.ConcurrentModificationError:  # version 0 was cleaned up
        outcome = Lost(version=0)
    if isinstance(outcome, Lost):
        raise errors.LocationError(
            f"{location} is already a table; open it, or choose another location", location=str(location)
        )
    return table


def first_version(
    environment: Environment, protocol: Protocol, metadata: Metadata, adds: Sequence[Add], *, stamped: bool
) -> bytes:
    """The bytes of version 0. in-commit timestamps, rule 3: without the enablement properties."""
    check_writable(protocol, metadata)
    _check_rules(protocol, metadata)
    now = environment.now()
    info = commit_info(
        txn_id=environment.new_id(),
        timestamp=now,
        operation="CREATE TABLE AS SELECT" if adds else "CREATE TABLE",
        parameters={
            "partitionBy": msgspec.json.encode(metadata.partition_columns).decode(),
            "properties": msgspec.json.encode(metadata.configuration).decode(),
        },
        read_version=None,
        blind_append=True,
    )
    tracked = row_tracking.assigns(protocol, metadata)
    return CommitBytes(info, [protocol, metadata, *adds]).stamped(0, now if stamped else None, 0 if tracked else None)


def _metadata(
    environment: Environment, schema: Any, partition_columns: Sequence[str], wanted: Mapping[str, str]
) -> Metadata:
    struct = as_struct(schema)
    refuse_void(struct)
    partition_columns = struct.spelled(partition_columns)
    metadata = Metadata(
        id=environment.new_id(),
        schema_string=struct.to_json(),
        partition_columns=partition_columns,
        configuration=properties.checked_for_users(wanted),
        created_time=environment.now(),
    )
    check_columns(struct, partition_columns, mapped=column_mapping.maps_columns(metadata))
    metadata = column_mapping.assigned(metadata, None, environment.new_id)
    return row_tracking.with_hidden_columns(metadata, environment.new_id)


def _check_rules(protocol: Protocol, metadata: Metadata) -> None:
    """Raise `UnsupportedFeatureError` for a rule that this client cannot evaluate."""
    if features.RULES & {*features.writer_features(protocol)}:
        from refimpl.rows.row_rules import RowRules

        RowRules.of(protocol, metadata, now=0)


def _with_properties(metadata: Metadata, more: Mapping[str, str]) -> Metadata:
    return msgspec.structs.replace(metadata, configuration={**metadata.configuration, **more})


def owned_metadata(
    metadata: Metadata, feature: TableFeature, owner: CommitOwner, owner_conf: Mapping[str, str] | None
) -> Metadata:
    """Metadata of a new table of this owner: managed-commits and catalog-managed, "Enablement".

    `owner_conf`: instead of the owner's own configuration.
    """
    added = {IN_COMMIT_TIMESTAMP_PROPERTY: "true"}
    if feature.owner_property is not None:
        added[feature.owner_property] = owner.name
    if owner_conf is None and feature.owner_conf_property is not None:
        owner_conf = owner.conf or None
    if owner_conf is not None:
        if feature.owner_conf_property is None:
            raise errors.InvalidRequestError(f"a {feature.name} table cannot have an owner's configuration in its log")
        added[feature.owner_conf_property] = msgspec.json.encode(dict(owner_conf)).decode()
    return _with_properties(metadata, added)


class Creation:
    """A table that is being created: staged at `location`, not yet registered under its name."""

    def __init__(self, owner: CommitOwner, environment: Environment, staged: ResolvedTable, metadata: Metadata) -> None:
        self.location = staged.location
        self.table_id = staged.table_id
        self.metadata = metadata
        self._owner = owner
        self._environment = environment
        self._staged = staged
        self._log = LogStore(staged.location, environment)
        self._adds: tuple[Add, ...] = ()
        self._proposal: DirectProposal | None = None
        self._asked = False
        """Whether a request to register it was sent, with any result."""

    @classmethod
    def begin(
        cls,
        owner: CommitOwner,
        environment: Environment,
        name: str,
        schema: Any,
        *,
        partition_columns: Sequence[str] = (),
        feature: TableFeature = CATALOG_MANAGED,
        commit_mode: CommitMode | None = None,
        location: str | Path | None = None,
        policy: MaintenancePolicy | None = None,
        properties: Mapping[str, str] | None = None,
        owner_conf: Mapping[str, str] | None = None,
    ) -> "Creation":
        """Phase 1. `schema`: Delta's JSON, a `Struct`, or a `pyarrow.Schema`.

        Raises `InvalidRequestError` (schema, property, commit mode), `LocationError`, `NameTakenError`. After
        these errors no file remains.
        """
        for what, value, kinds, expected in (
            ("partition columns", partition_columns, (list, tuple), "a list of columns"),
            (
                "table feature",
                feature,
                TableFeature,
                "CATALOG_MANAGED or MANAGED_COMMIT of refimpl.protocol.table_feature",
            ),
            ("commit mode", commit_mode, (CommitMode, None), "a refimpl.protocol.table_feature.CommitMode"),
            ("location", location, (str, Path, None), "a folder's path"),
            ("properties", properties, (Mapping, None), "a map of texts to texts"),
        ):
            errors.check_type(what, value, kinds, expected)
        location = None if location is None else Path(location)
        draft = _metadata(environment, schema, partition_columns, properties or {})
        draft = owned_metadata(draft, feature, owner, owner_conf)
        _check_rules(features.first_protocol(draft, feature, in_commit_timestamps=True), draft)
        staged = owner.stage_table(name, feature, commit_mode=commit_mode, location=location, policy=policy)
        metadata = msgspec.structs.replace(draft, id=staged.table_id, name=staged.name)
        if staged.demands is not None:
            metadata = _with_properties(metadata, staged.demands.properties)
            metadata = row_tracking.with_hidden_columns(metadata, environment.new_id)
        if feature.table_id_property is not None:
            metadata = _with_properties(metadata, {feature.table_id_property: staged.table_id})
        creation = cls(owner, environment, staged, metadata)
        try:
            check_writable(creation.protocol, metadata)
        except errors.InvalidRequestError:  # the catalog requires a feature that this client does not write
            creation.abandon()
            raise
        return creation

    @property
    def protocol(self) -> Protocol:
        """The protocol of version 0: the features that the table and its columns need, and that the catalog
        requires."""
        protocol = features.first_protocol(self.metadata, self._staged.feature, in_commit_timestamps=True)
        demands = self._staged.demands
        return (
            protocol
            if demands is None
            else features.demanded(protocol, demands.reader_features, demands.writer_features)
        )

    @property
    def schema(self) -> Struct:
        """The schema that the files of version 0 must have."""
        return column_mapping.of_table(self.protocol, self.metadata)

    def finish(self, adds: Sequence[Add] = ()) -> Table:
        """Phases 2 and 3. `adds`: data files that were written, durably, below `location`.

        Raises `NameTakenError` (fact `winner`) if another creator was first; this one's files are then
        removed. After `OutcomeUnknown` it may be called again: it recognizes its own version 0 by its bytes.
        """
        if self._proposal is None:
            content = first_version(self._environment, self.protocol, self.metadata, adds, stamped=True)
            self._proposal = DirectProposal(attempt=self._environment.new_id(), content=content)
            self._adds = tuple(adds)
        self._write_first_version(self._proposal.content)
        self._register(self._proposal)
        return Table.resolved(self._staged, self._owner, self._environment)

    def _write_first_version(self, content: bytes) -> None:
        try:
            written = self._log.put_once(FIRST, content)
        except OSError as error:
            raise errors.OwnerUnavailableError(
                f"cannot write version 0 at {self.location}: {error}; no table was created"
            ) from error
        if not written:
            self.abandon()
            raise self._occupied()

    def _occupied(self) -> errors.LocationError:
        return errors.LocationError(
            f"another process created a table at {self.location}; read it, or use another location",
            location=str(self.location),
        )

    def _register(self, proposal: DirectProposal) -> None:
        name = repr(self._staged.name)
        unknown = errors.OutcomeUnknown(
            f"{name} may or may not be registered: {MAX_LOOKS} requests were not answered; finish the creation again, "
            f"or ask attempt_outcome",
            table_id=self.table_id,
            version=0,
            attempt=proposal.attempt,
        )
        retries = RetryPolicy(self._environment, max_tries=1, label=name)
        repeated, self._asked = self._asked, True
        answer = retries.ask_until_answered(lambda: self._owner.register_table(self.table_id, proposal), unknown)
        doubtful = isinstance(answer, Conflict) or (isinstance(answer, Rejected) and repeated)
        if doubtful and self._is_registered(proposal, unknown):
            return
        match answer:
            case Registered() | Ratified():
                return
            case NameTaken(winner=winner) if winner.table_id == self.table_id:
                return  # this owner does not recognize a replay
            case NameTaken(winner=winner):
                self.abandon()
                raise errors.NameTakenError(
                    f"another creator was first: {name} is the table at {winner.location}; "
                    f"use that one, or choose another name",
                    name=self._staged.name,
                    winner=winner,
                )
            case Conflict():
                self.abandon()
                raise self._occupied()
            case VersionGap():
                raise errors.CorruptionError(
                    f"version 0 at {self.location} disappeared before it was registered; find out which process "
                    f"deletes it",
                    path=str(self._log.folder / FIRST),
                )
            case Rejected(reason=reason, detail=detail):
                self.abandon()
                raise errors.CommitRejectedError(f"the owner rejected {name}: {detail}", reason=reason)

    def _is_registered(self, proposal: DirectProposal, unknown: errors.OutcomeUnknown) -> bool:
        """Whether an earlier request landed: some owners answer a replay as a conflict, or reject it."""
        try:
            return isinstance(self._owner.attempt_outcome(self.table_id, proposal.attempt), Landed)
        except (errors.DeltaError, OSError) as error:
            raise unknown from error

    def abandon(self, adds: Sequence[Add] = ()) -> None:
        """Abandon the creation and remove, as far as possible, its files. Not allowed after `OutcomeUnknown`.

        It removes a version 0 only with this creation's bytes, only the data files in `adds`, and only empty
        directories. Order: the owner's record, version 0, the data files, the directories.
        """
        with contextlib.suppress(errors.InvalidRequestError, errors.OutcomeUnknown, errors.OwnerUnavailableError):
            self._owner.drop_table(self.table_id)
        with contextlib.suppress(OSError):
            if self._proposal is not None and self._log.holds(FIRST, self._proposal.content):
                self._log.delete(FIRST)
        files, folders = self._environment.files, {self.location}
        for add in (*self._adds, *adds):
            relative = _inside(add.path)
            if relative is not None:
                with contextlib.suppress(OSError):
                    files.unlink(self.location / relative)
                folders |= {self.location / parent for parent in relative.parents}
        folders |= {self._log.folder, self._log.folder / self._staged.feature.staging_folder}
        for folder in sorted(folders, key=lambda path: len(path.parts), reverse=True):
            with contextlib.suppress(OSError):
                files.remove_directory(folder)


def _inside(path: str) -> PurePosixPath | None:
    """The path of an add action below its table; None for an absolute path."""
    parts = urlsplit(path)
    relative = PurePosixPath(unquote(parts.path))
    if parts.scheme or relative.is_absolute() or ".." in relative.parts:
        return None
    return relative
