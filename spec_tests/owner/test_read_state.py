"""What the owner tells of a table is of one moment, whatever others do while it looks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import refimpl
from refimpl.commits import CommitsAnswer, RatifiedCommit
from refimpl.environment import Environment
from refimpl.errors import CorruptLedgerError, OwnerUnavailableError
from refimpl.owner.statements import COMMITS_BETWEEN
from refimpl.table_feature import CATALOG_MANAGED, CommitMode
from spec_tests.support.builders import OwnedTable, create
from spec_tests.support.faults import FailingFiles, Faults


class Between:
    """Lets something happen once, just before the commits of a table are read."""

    def __init__(self) -> None:
        self.act: Callable[[], object] | None = None

    def connect(self, path: Path) -> apsw.Connection:
        between = self

        class Connection(apsw.Connection):
            def execute(self, statement: str, *values: Any, **more: Any) -> Any:  # type: ignore[override]
                act = between.act
                if act is not None and statement == COMMITS_BETWEEN:
                    between.act = None
                    act()
                return super().execute(statement.replace("synchronous=FULL", "synchronous=OFF"), *values, **more)

        return Connection(str(path))


def _asked(owner: refimpl.Warehouse, table_id: str) -> CommitsAnswer:
    return owner.owner.get_commits(table_id)


def _resolved(owner: refimpl.Warehouse, table_id: str) -> CommitsAnswer:
    return owner.owner.resolve(table_id).commits


@pytest.mark.parametrize("ask", [_asked, _resolved])
def test_answer_is_of_one_state_despite_a_backfill(
    tmp_path: Path, delayed: OwnedTable, warehouse: refimpl.Warehouse, ask: Callable[..., CommitsAnswer]
) -> None:
    """Else it would list commits without their bytes, or leave a gap."""
    delayed.land(2)
    before = ask(warehouse, delayed.table_id)
    between = Between()
    environment = Faults().environment()
    reader = refimpl.open(
        tmp_path / "warehouse",
        environment=Environment(files=environment.files, connect=between.connect),
        create=True,
    )
    assert ask(reader, delayed.table_id) == before
    between.act = delayed.backfill
    assert ask(reader, delayed.table_id) == before
    assert between.act is None, "nothing came in between"
    assert _kept(before.commits)
    after = ask(reader, delayed.table_id)
    assert after.latest_ratified_version == before.latest_ratified_version == 2
    assert after.commits == ()
    reader.owner.close()


def _kept(commits: tuple[RatifiedCommit, ...]) -> bool:
    return [each.version for each in commits] == [1, 2] and all(each.content or each.file_name for each in commits)


@pytest.mark.parametrize("ask", [_asked, _resolved])
def test_a_log_that_cannot_be_looked_into_gives_no_answer(
    tmp_path: Path, delayed: OwnedTable, ask: Callable[[refimpl.Warehouse, str], CommitsAnswer]
) -> None:
    """A newer version may be visible there, and one that is visible must not be denied."""
    storage = FailingFiles()
    storage.fail_when = lambda effect, path: effect == "exists"
    with refimpl.open(tmp_path / "warehouse", environment=Environment(files=storage)) as reader:
        with pytest.raises(OwnerUnavailableError):
            ask(reader, delayed.table_id)
        storage.fail_when = lambda effect, path: False
        assert ask(reader, delayed.table_id).latest_ratified_version == 0


def test_listing_reads_no_commit_contents(tmp_path: Path, warehouse: refimpl.Warehouse) -> None:
    """Inline commits may be large, and one that is damaged must not hide the other tables."""
    for name in ("damaged", "sound"):
        create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, name=name, commits=2)
    with apsw.Connection(str(warehouse.owner.ledger.path)) as database:
        altered = "CAST(replace(content, 'add', 'bdd') AS BLOB)"
        damaged = "(SELECT key FROM tables WHERE name = 'damaged')"
        database.execute(f"UPDATE commits SET content = {altered} WHERE version = 1 AND table_key = {damaged}")
    with pytest.raises(CorruptLedgerError):
        warehouse.owner.resolve("damaged")
    between = Between()
    environment = Environment(files=Faults().environment().files, connect=between.connect)
    with refimpl.open(tmp_path / "warehouse", environment=environment) as reader:
        between.act = lambda: pytest.fail("commits were read")
        assert [(table.name, table.latest, table.backlog) for table in reader.owner.tables()] == [
            ("damaged", 2, 2), ("sound", 2, 2),
        ]  # fmt: skip
        between.act = None
