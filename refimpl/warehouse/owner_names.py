"""Finds the owner of a table that is opened by its path, by the name that the table has for it.

managed-commits, "Managed Commit Enablement": the table's metadata has the name of its owner, and may have a
configuration for the owner's client. Tables of `coordinatedCommits` have the same two properties.

    refimpl.register_owner("lake-2", build)     # build("lake-2", {"endpoint": ...}) -> CommitOwner
    table = refimpl.open_table("/data/lake/orders")

A package registers its owners as entry points of the group `refimpl.commit_owners`, each with the owner's name.
"""

import threading
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import msgspec

from refimpl.client.table import Table
from refimpl.owner.tables import DEFAULT_NAME
from refimpl.protocol.actions import Metadata
from refimpl.protocol.commit_owner import CommitOwner
from refimpl.protocol.errors import InvalidRequestError, InvalidTableError
from refimpl.protocol.table_feature import TableFeature
from refimpl.storage.environment import Environment
from refimpl.storage.locations import OWNER_FOLDER
from refimpl.warehouse import open as open_warehouse

OwnerBuilder = Callable[[str, Mapping[str, str]], CommitOwner]
"""Makes the client side of an owner from its name and its configuration."""

ENTRY_POINTS: Final = "refimpl.commit_owners"
WAREHOUSE: Final = "warehouse"
"""The key of this package's owner in its configuration: the warehouse's folder."""

_lock = threading.RLock()  # a builder, or a module of an entry point, may register owners
_owners: dict[tuple[str, frozenset[tuple[str, str]]], CommitOwner] = {}


def warehouse_owner(name: str, conf: Mapping[str, str]) -> CommitOwner:
    """The owner of the warehouse in the configuration: the builder for the owners of this package."""
    if WAREHOUSE not in conf:
        raise InvalidRequestError(
            f"cannot find the owner {name!r}: the table is not inside a warehouse, and its configuration has no "
            f"{WAREHOUSE!r}; open the table by its name: refimpl.open(WAREHOUSE).table(NAME)"
        )
    return open_warehouse(conf[WAREHOUSE]).owner


_builders: dict[str, OwnerBuilder] = {DEFAULT_NAME: warehouse_owner}


def register_owner(name: str, builder: OwnerBuilder) -> None:
    """Let tables that name this owner be opened by their paths. Use `refimpl.warehouse_owner` for a warehouse that was
    created with another name. Raises `InvalidRequestError` if the name has another builder."""
    if not isinstance(name, str) or not name or not callable(builder):
        raise InvalidRequestError(f"cannot register {name!r} with {builder!r}; expected a name, and a function")
    with _lock:
        if _builders.setdefault(name, builder) is not builder:
            raise InvalidRequestError(f"the owner's name {name!r} is registered already; choose another name")


def owner_named(name: str, conf: Mapping[str, str]) -> CommitOwner:
    """The owner of this name and configuration, the same object at each call. Raises `InvalidRequestError` for a name
    that is not registered, and the errors of its builder."""
    key = name, frozenset(conf.items())
    with _lock:
        if key not in _owners:
            owner = _builder(name)(name, dict(conf))
            if getattr(owner, "name", None) is None:
                raise InvalidRequestError(f"the builder of the owner {name!r} returned {owner!r}; expected an owner")
            if owner.name != name:
                raise InvalidRequestError(f"the owner at {dict(conf)} is called {owner.name!r}; expected {name!r}")
            _owners[key] = owner
        return _owners[key]


def _builder(name: str) -> OwnerBuilder:
    builder = _builders.get(name)
    found = entry_points(group=ENTRY_POINTS)
    if builder is None and name in found.names:
        builder = found[name].load()
    if builder is None:
        known = ", ".join(sorted({*_builders, *found.names}))
        raise InvalidRequestError(
            f"unknown commit owner {name!r}; expected one of {known}; add it with refimpl.register_owner"
        )
    return builder


def open_table(path: str | Path, environment: Environment | None = None) -> Table:
    """The table at a path: through the owner that the table names, or as a filesystem table if it names none.

    Raises `TableNotFoundError` (also if the owner does not know the table), `PathAccessError` for a catalog-managed
    table, and the errors of `owner_named`.
    """
    return with_owner(Table.by_path(path, environment))


def with_owner(handle: Table) -> Table:
    """`open_table` for a table that was opened by its path."""
    snapshot = handle.snapshot()
    feature, metadata = snapshot.feature, snapshot.metadata
    name = None if feature is None else metadata.configuration.get(feature.owner_property or "")
    if feature is None or name is None:
        return handle
    owner = owner_named(name, _conf(feature, metadata, handle.location))
    return Table.resolve(handle.location, owner, handle.environment)


def _conf(feature: TableFeature, metadata: Metadata, location: Path) -> dict[str, str]:
    """The configuration in the table, and the warehouse that the table is in, unless it names one."""
    text = metadata.configuration.get(feature.owner_conf_property or "", "{}")
    around = next((folder for folder in location.resolve().parents if (folder / OWNER_FOLDER).is_dir()), None)
    found = {} if around is None else {WAREHOUSE: str(around)}
    try:
        return found | msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise InvalidTableError(
            f"invalid {feature.owner_conf_property} of the table at {location}: {text!r}; expected a JSON map of "
            f"strings to strings ({error})"
        ) from None
