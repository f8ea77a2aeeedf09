"""Tables with each owner, each table feature and each commit mode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import refimpl
from refimpl.actions import Add
from refimpl.client.create import create_filesystem_table, create_table
from refimpl.client.table import Table
from refimpl.commit_owner import MaintenancePolicy
from refimpl.environment import Environment
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode, TableFeature
from spec_tests.support.faults import FailingFiles, ScriptedHost
from spec_tests.support.in_memory_owner import InMemoryOwner
from spec_tests.support.unreliable_owner import UnreliableOwner

SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"month","type":"string","nullable":true,"metadata":{}}]}'
)
ON_REQUEST = MaintenancePolicy(backfill_every=None)
"""Nothing is published unless somebody asks."""

OWNED_COMMIT_MODES = [
    (feature, commit_mode)
    for feature in (MANAGED_COMMIT, CATALOG_MANAGED)
    for commit_mode in CommitMode
    if commit_mode in feature.commit_modes
]


def adding(path: str, month: str = "01", **fields: Any) -> Add:
    values = {"size": 1, "modification_time": 0, "data_change": True} | fields
    return Add(path=path, partition_values={"month": month}, **values)


@dataclass
class Setting:
    """One owner with a host, and the tables that a test makes there."""

    owner: UnreliableOwner
    host: ScriptedHost
    environment: Environment
    folder: Path

    def table(
        self,
        feature: TableFeature | None = CATALOG_MANAGED,
        commit_mode: CommitMode | None = CommitMode.STAGED,
        *,
        name: str = "orders",
        policy: MaintenancePolicy | None = ON_REQUEST,
        properties: dict[str, str] | None = None,
        **options: Any,
    ) -> Table:
        """A table partitioned by `month`; without a feature, on the file system."""
        if feature is None:
            return create_filesystem_table(
                self.folder / name,
                self.environment,
                SCHEMA,
                partition_columns=["month"],
                properties=properties,
                **options,
            )
        return create_table(
            self.owner,
            self.environment,
            name,
            SCHEMA,
            partition_columns=["month"],
            feature=feature,
            commit_mode=commit_mode,
            policy=policy,
            properties=properties,
            **options,
        )

    def again(self, table: Table) -> Table:
        """Another handle to the same table, as another process would have it."""
        if table.owner is None:
            return Table.by_path(table.location, self.environment)
        assert table.table_id is not None
        return Table.resolve(table.table_id, self.owner, self.environment)

    def append(self, table: Table, *paths: str, month: str = "01") -> None:
        """Somebody else's blind append."""
        transaction = self.again(table).transaction()
        transaction.add(*(adding(path, month) for path in paths))
        transaction.commit()


@pytest.fixture
def storage() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def host(storage: FailingFiles) -> ScriptedHost:
    return ScriptedHost(files=storage)


@pytest.fixture(params=["in-memory", "local"])
def setting(request: pytest.FixtureRequest, tmp_path: Path, host: ScriptedHost) -> Iterator[Setting]:
    environment = host.environment()
    folder = tmp_path / "warehouse"
    if request.param == "local":
        with refimpl.open(folder, environment=environment, roots=[tmp_path], create=True) as warehouse:
            yield Setting(UnreliableOwner(warehouse.owner), host, environment, folder)
        return
    folder.mkdir()
    yield Setting(UnreliableOwner(InMemoryOwner(folder, environment)), host, environment, folder)
