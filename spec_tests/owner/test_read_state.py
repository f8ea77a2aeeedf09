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
from refimpl.errors import OwnerUnavailableError
from refimpl.owner.statements import COMMITS_BETWEEN
from spec_tests.support.builders import OwnedTable, create
from spec_tests.support.failing_files import FailingFiles
from spec_tests.support.faults import Faults


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


def _listed(owner: refimpl.Warehouse, table_id: str) -> CommitsAnswer:
    (found,) = [table for table in owner.owner.tables() if table.table_id == table_id]
    return found.commits


@pytest.mark.parametrize("ask", [_asked, _resolved, _listed])
def test_an_answer_is_of_one_moment_although_a_backfill_comes_in_between(
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


@pytest.mark.parametrize("ask", [_asked, _resolved, _listed])
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


def test_a_list_of_tables_is_of_one_moment(tmp_path: Path, warehouse: refimpl.Warehouse, delayed: OwnedTable) -> None:
    other = create(warehouse, delayed.feature, delayed.commit_mode, name="others", commits=1)
    between = Between()
    files = Faults().environment().files
    reader = refimpl.open(
        tmp_path / "warehouse", environment=Environment(files=files, connect=between.connect), create=True
    )
    between.act = lambda: other.owner.drop_table(other.table_id)
    assert {table.name for table in reader.owner.tables()} == {"orders", "others"}
    assert {table.name for table in reader.owner.tables()} == {"orders"}
    reader.owner.close()
