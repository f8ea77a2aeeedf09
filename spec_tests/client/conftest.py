"""Tables with each table feature and each commit mode, made by our own owner. The kit tests the client with other
owners.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import refimpl
from refimpl.client.create import create_filesystem_table, create_table
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.protocol import log_path
from refimpl.protocol.actions import Add
from refimpl.protocol.commit_owner import ALLOWED_BY_DEFAULT, Maintenance, MaintenancePolicy
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, TABLE_FEATURES, CommitMode, TableFeature
from refimpl.rows.data_files import DataFileWriter
from refimpl.storage.environment import Environment
from spec_tests.support.faults import FailingFiles, ScriptedHost
from spec_tests.support.other_readers import Rows
from spec_tests.support.unreliable_owner import UnreliableOwner
from spec_tests.support.written_log import SCHEMA, add

ON_REQUEST = MaintenancePolicy(backfill_every=None)
"""The owner publishes a commit only when a test asks for it."""

OWNED_COMMIT_MODES = [
    (feature, commit_mode)
    for feature in (MANAGED_COMMIT, CATALOG_MANAGED)
    for commit_mode in CommitMode
    if commit_mode in feature.commit_modes
]


def adding(path: str, month: str = "01", **fields: Any) -> Add:
    return add(path, month, **{"size": 1} | fields)


def appending(table: Table, path: str, **options: int) -> Transaction:
    transaction = table.transaction(**options)  # type: ignore[arg-type]
    transaction.add(adding(path))
    return transaction


@dataclass
class Setting:
    """One owner with its host, and the tables that a test creates there."""

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
        **options: Any,
    ) -> Table:
        """Create a table partitioned by `month`. Without a feature, it is a filesystem table."""
        options["partition_columns"] = ["month"]
        if feature is None:
            return create_filesystem_table(self.folder / name, self.environment, SCHEMA, **options)
        own = {"feature": feature, "commit_mode": commit_mode, "policy": policy}
        return create_table(self.owner, self.environment, name, SCHEMA, **own, **options)

    def again(self, table: Table) -> Table:
        """Open the same table again, as another process would."""
        if table.owner is None:
            return Table.by_path(table.location, self.environment)
        assert table.table_id is not None
        return Table.resolve(table.table_id, self.owner, self.environment)

    def paths(self, table: Table) -> set[str]:
        """The paths of the active files, as another process sees them."""
        return {path for path, _ in self.again(table).snapshot().files}

    def append(self, table: Table, *paths: str, month: str = "01") -> None:
        """Commit a blind append, as another writer."""
        transaction = self.again(table).transaction()
        transaction.add(*(adding(path, month) for path in paths))
        transaction.commit()


def once(
    storage: FailingFiles, moment: tuple[str, Path], act: Callable[[], object], when: Callable[[], bool] = lambda: True
) -> list[str]:
    """Act just before this operation on this path, the first time that `when` is true. The list is filled then."""
    acted: list[str] = []

    def interfere(operation: str, path: Path) -> bool:
        if not acted and (operation, path) == moment and when():
            acted.append(operation)
            act()
        return False

    storage.fail_when = interfere
    return acted


@contextlib.contextmanager
def failing(storage: FailingFiles, operations: str, name: str = "") -> Iterator[None]:
    """Inside, these operations fail on each path that ends with `name`."""
    storage.fail_when = lambda operation, path: operation in operations.split() and str(path).endswith(name)
    yield
    storage.fail_when = lambda operation, path: False


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


# A table with some history and real data files, and the state that a test compares


DAY = 86_400_000
GENEROUS = MaintenancePolicy(backfill_every=None, allowed=ALLOWED_BY_DEFAULT | {Maintenance.METADATA_CLEANUP})
EVERY_COMMIT = MaintenancePolicy(backfill_every=1, allowed=ALLOWED_BY_DEFAULT | {Maintenance.METADATA_CLEANUP})


def name_of(value: object) -> str:
    return str(getattr(value, "name", "filesystem")).lower()


every_kind = pytest.mark.parametrize("feature", [None, *TABLE_FEATURES.values()], ids=name_of)
both = pytest.mark.parametrize("feature", TABLE_FEATURES.values(), ids=name_of)


def backfill(setting: Setting, table: Table, version: int | None = None) -> None:
    if table.owner is not None and table.table_id is not None:
        setting.owner.backfill_to_version(table.table_id, version)


def written(setting: Setting, table: Table, rows: Rows) -> list[Add]:
    writer = DataFileWriter(table.snapshot().layout, new_id=setting.environment.new_id)
    writer.write(pa.table({"id": [row[0] for row in rows], "month": [row[1] for row in rows]}))
    return [action for action in writer.finish() if isinstance(action, Add)]


def busy(setting: Setting, table: Table, commits: int) -> Rows:
    """Commit rows `commits` times; the last commit also removes the files of the first month. Return the remaining
    rows.
    """
    rows: Rows = []
    for number in range(commits):
        transaction = setting.again(table).transaction()
        new: Rows = [(number, f"{number % 3:02d}"), (number + 100, "ü/=%")]
        if number == commits - 1:
            gone = transaction.read_files("month = '00'")
            transaction.remove(*gone)
            rows = [row for row in rows if row[1] != "00"]
        transaction.add(*written(setting, table, new))
        transaction.claim("job", number)
        transaction.commit()
        rows += new
    return sorted(rows)


def state(snapshot: Snapshot) -> tuple[object, ...]:
    """The content of a snapshot without `dataChange`, which a checkpoint does not keep."""
    return (
        snapshot.version,
        snapshot.protocol,
        snapshot.metadata,
        {key: msgspec.structs.replace(add, data_change=True) for key, add in snapshot.files.items()},
        {key: msgspec.structs.replace(remove, data_change=True) for key, remove in snapshot.tombstones.items()},
        dict(snapshot.transactions),
        dict(snapshot.domains),
        snapshot.in_commit_timestamp,
    )


def names(table: Table) -> list[str]:
    return [path.name for path in table.log.listing()]


def hide(table: Table, *versions: int) -> None:
    for version in versions:
        table.log.delete(log_path.commit(version))
