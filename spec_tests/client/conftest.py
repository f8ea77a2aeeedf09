"""Tables with each table feature and each commit mode. That the client works with other owners too, the kit shows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import refimpl
from refimpl.actions import Add
from refimpl.client.create import create_filesystem_table, create_table
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.commit_owner import MaintenancePolicy
from refimpl.environment import Environment
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode, TableFeature
from spec_tests.support.faults import FailingFiles, ScriptedHost
from spec_tests.support.unreliable_owner import UnreliableOwner

SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"month","type":"string","nullable":true,"metadata":{}}]}'
)
ON_REQUEST = MaintenancePolicy(backfill_every=None)
"""Nothing is published unless it is asked for."""

OWNED_COMMIT_MODES = [
    (feature, commit_mode)
    for feature in (MANAGED_COMMIT, CATALOG_MANAGED)
    for commit_mode in CommitMode
    if commit_mode in feature.commit_modes
]


def adding(path: str, month: str = "01", **fields: Any) -> Add:
    values = {"size": 1, "modification_time": 0, "data_change": True} | fields
    return Add(path=path, partition_values={"month": month}, **values)


def appending(table: Table, path: str, **options: int) -> Transaction:
    transaction = table.transaction(**options)  # type: ignore[arg-type]
    transaction.add(adding(path))
    return transaction


def at_once(count: int, act: Callable[[int], object]) -> list[Exception]:
    """Run `act` in so many threads that begin together; what they raised."""
    barrier = threading.Barrier(count)
    raised: list[Exception] = []

    def run(number: int) -> None:
        barrier.wait()
        try:
            act(number)
        except Exception as error:  # noqa: BLE001 - a thread's failure must reach the test
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


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

    def paths(self, table: Table) -> set[str]:
        """Of the active files, as another process sees them."""
        return {path for path, _ in self.again(table).snapshot().files}

    def append(self, table: Table, *paths: str, month: str = "01") -> None:
        """A blind append by another writer."""
        transaction = self.again(table).transaction()
        transaction.add(*(adding(path, month) for path in paths))
        transaction.commit()


@pytest.fixture
def storage() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def host(storage: FailingFiles) -> ScriptedHost:
    return ScriptedHost(files=storage)


@pytest.fixture
def setting(tmp_path: Path, host: ScriptedHost) -> Iterator[Setting]:
    environment = host.environment()
    folder = tmp_path / "warehouse"
    with refimpl.open(folder, environment=environment, roots=[tmp_path], create=True) as warehouse:
        yield Setting(UnreliableOwner(warehouse.owner), host, environment, folder)
