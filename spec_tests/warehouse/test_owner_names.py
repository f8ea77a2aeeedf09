"""Tables that are opened by their paths, through the owner that they name.

managed-commits, "Managed Commit Enablement"."""

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pyarrow as pa
import pytest

import refimpl
from refimpl.care.verify import verify
from refimpl.client.create import create_filesystem_table
from refimpl.client.ownership import hand_back, take_over
from refimpl.client.table import Table
from refimpl.protocol.commit_owner import CommitOwner, MaintenancePolicy
from refimpl.protocol.errors import InvalidRequestError, PathAccessError, TableNotFoundError
from refimpl.protocol.table_feature import MANAGED_COMMIT
from refimpl.storage.environment import Environment
from refimpl.warehouse import Warehouse, owner_names

SCHEMA = pa.schema([("id", pa.int64())])
ROWS = pa.table({"id": [1]})
ON_REQUEST = MaintenancePolicy(backfill_every=None)


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_names, "_builders", {"refimpl": refimpl.warehouse_owner})
    monkeypatch.setattr(owner_names, "_owners", {})


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[tuple[Warehouse, Warehouse]]:
    """Two owners, that may both take over tables below one folder."""
    (tmp_path / "plain").mkdir()
    with (
        refimpl.open(tmp_path / "a", create=True, roots=[tmp_path / "plain"]) as first,
        refimpl.open(
            tmp_path / "b", create=True, roots=[tmp_path / "plain"], name="lake-2", conf={"warehouse": f"{tmp_path}/b"}
        ) as second,
    ):
        yield first, second


def test_a_table_is_opened_through_the_owner_that_it_names(lakes: tuple[Warehouse, Warehouse]) -> None:
    refimpl.register_owner("lake-2", refimpl.warehouse_owner)
    for lake, conf in zip(lakes, (None, f'{{"warehouse":"{lakes[1].directory}"}}'), strict=True):
        made = lake.create_table("orders", SCHEMA, feature=MANAGED_COMMIT, policy=ON_REQUEST)
        made.append(ROWS)
        table = refimpl.open_table(made.location)
        assert (table.table_id, table.snapshot().version) == (made.table_id, 1)
        assert Table.by_path(made.location).snapshot().version == 0
        assert table.append(ROWS).version == 2  # type: ignore[union-attr]
        properties = table.snapshot().metadata.configuration
        assert properties["delta.managedCommit.commitOwner"] == lake.owner.name
        assert properties.get("delta.managedCommit.commitOwnerConf") == conf
        assert refimpl.open_table(str(made.location)).owner is table.owner


def test_the_warehouse_around_the_table_completes_its_configuration(tmp_path: Path) -> None:
    with refimpl.open(tmp_path, create=True, conf={"endpoint": "x"}) as lake:
        made = lake.create_table("orders", SCHEMA, feature=MANAGED_COMMIT)
        assert refimpl.open_table(made.location).table_id == made.table_id


def test_a_builder_returns_an_owner(lakes: tuple[Warehouse, Warehouse]) -> None:
    refimpl.register_owner("lake-2", lambda name, conf: None)  # type: ignore[arg-type,return-value]
    made = lakes[1].create_table("orders", SCHEMA, feature=MANAGED_COMMIT)
    with pytest.raises(InvalidRequestError, match="returned None; expected an owner"):
        refimpl.open_table(made.location)


def test_a_builder_may_register_owners(lakes: tuple[Warehouse, Warehouse]) -> None:
    def build(_: str, conf: Mapping[str, str]) -> CommitOwner:
        refimpl.register_owner("another", refimpl.warehouse_owner)
        return lakes[1].owner

    refimpl.register_owner("lake-2", build)
    assert owner_names.owner_named("lake-2", {}) is lakes[1].owner


def test_one_owner_is_kept_for_each_configuration(lakes: tuple[Warehouse, Warehouse]) -> None:
    built: list[Mapping[str, str]] = []

    def build(name: str, conf: Mapping[str, str]) -> CommitOwner:
        built.append(conf)
        return refimpl.warehouse_owner(name, {"warehouse": str(lakes[1].directory)})

    refimpl.register_owner("lake-2", build)
    refimpl.register_owner("lake-2", build)
    one, two = {"b": "2", "a": "1"}, {"a": "1"}
    assert owner_names.owner_named("lake-2", one) is owner_names.owner_named("lake-2", dict(reversed(one.items())))
    assert owner_names.owner_named("lake-2", two) is not owner_names.owner_named("lake-2", one)
    assert built == [one, two]
    for name, other in (("lake-2", refimpl.warehouse_owner), ("refimpl", build)):
        with pytest.raises(InvalidRequestError, match="is registered already"):
            refimpl.register_owner(name, other)


def test_an_owner_is_found_as_an_entry_point(
    lakes: tuple[Warehouse, Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = lakes[1].create_table("orders", SCHEMA, feature=MANAGED_COMMIT)
    with pytest.raises(InvalidRequestError, match="unknown commit owner 'lake-2'; expected one of refimpl"):
        refimpl.open_table(made.location)
    entry = EntryPoint(name="lake-2", value="refimpl:warehouse_owner", group=owner_names.ENTRY_POINTS)
    monkeypatch.setattr(owner_names, "entry_points", lambda group: EntryPoints([entry]).select(group=group))
    assert refimpl.open_table(made.location).table_id == made.table_id


def test_tables_without_such_an_owner(lakes: tuple[Warehouse, Warehouse], tmp_path: Path) -> None:
    plain = create_filesystem_table(tmp_path / "plain" / "t", Environment(), SCHEMA)
    assert refimpl.open_table(plain.location).owner is None
    with pytest.raises(PathAccessError):
        refimpl.open_table(lakes[0].create_table("managed", SCHEMA).location)
    with pytest.raises(TableNotFoundError):
        refimpl.open_table(tmp_path / "nothing")
    owned = take_over(plain, lakes[0].owner, "t", MANAGED_COMMIT)
    with pytest.raises(InvalidRequestError, match="its configuration has no 'warehouse'"):
        refimpl.open_table(owned.location)
    hand_back(owned)
    assert refimpl.open_table(plain.location).owner is None
    wrong = take_over(plain, lakes[0].owner, "t", MANAGED_COMMIT, owner_conf={"warehouse": str(lakes[1].directory)})
    with pytest.raises(InvalidRequestError, match="is called 'lake-2'; expected 'refimpl'"):
        refimpl.open_table(wrong.location)


def test_the_name_is_kept_and_cannot_change_once_it_is_used(lakes: tuple[Warehouse, Warehouse], tmp_path: Path) -> None:
    for lake in lakes:
        lake.create_table("orders", SCHEMA, feature=MANAGED_COMMIT)
    for name, conf in (("other", None), (" ", None), (None, {"password": "x"})):
        with pytest.raises(InvalidRequestError):
            refimpl.open(tmp_path / "b", name=name, conf=conf)
    with refimpl.open(tmp_path / "b") as again:
        assert (again.owner.name, again.owner.conf) == ("lake-2", {"warehouse": f"{tmp_path}/b"})
        assert verify(again.owner) == []
