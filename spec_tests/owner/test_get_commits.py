"""managed-commits, "Getting Un-backfilled Commits"; catalog-managed, "Getting Ratified Commits". An answer shows one
state of the table, whatever other processes do at the same time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import refimpl
from refimpl.care.repair import repair
from refimpl.care.verify import Severity, verify
from refimpl.owner.statements import COMMITS_BETWEEN
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import TableState
from refimpl.protocol.commits import CommitsAnswer, Conflict, Landed, NotLanded, Ratified, RejectionReason
from refimpl.protocol.errors import CorruptLedgerError, OutcomeUnknown, OwnerUnavailableError, TableNotFoundError
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode, TableFeature
from refimpl.storage.environment import Environment
from spec_tests.support.builders import START, OwnedTable, append, create, hand_back_commit, new_attempt, owned, refused
from spec_tests.support.faults import FailingFiles, Faults, disk_is_broken, opened

UNKNOWN_ID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"


def test_open_write_transaction_does_not_delay_answers(warehouse: refimpl.Warehouse, table: OwnedTable) -> None:
    """A reader sees one state, and no part of an unfinished transaction."""
    table.land(2)
    before = table.owner.get_commits(table.table_id)
    with opened(warehouse.directory) as other, other.lock(), other.owner.ledger.write() as writer:
        record = writer.table(table.table_id)
        assert record is not None
        writer.set(record, halted="an unfinished change")
        assert table.owner.get_commits(table.table_id) == before
        assert table.owner.resolve("orders").halted is None
    assert table.owner.resolve("orders").halted is not None


@pytest.mark.parametrize("reference", ["nothing", "a/b", "/", "/\0", "/" + "x" * 5000, "\udcff/x", UNKNOWN_ID])
def test_unknown_reference_is_not_found(warehouse: refimpl.Warehouse, reference: str) -> None:
    create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
    with pytest.raises(TableNotFoundError):
        warehouse.owner.resolve(reference)


def test_staging_table_is_found_by_id_and_path_only(warehouse: refimpl.Warehouse) -> None:
    """catalog-managed, "Creating and Dropping": unnamed until it is registered."""
    staged = warehouse.owner.stage_table("orders", CATALOG_MANAGED)
    assert staged.state is TableState.STAGING
    assert warehouse.owner.resolve(staged.table_id) == warehouse.owner.resolve(staged.location) == staged
    assert staged.commits.latest_ratified_version is None
    with pytest.raises(TableNotFoundError):
        warehouse.owner.resolve("orders")
    assert warehouse.owner.tables() == []
    create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
    assert owned(warehouse, "orders").table_id != staged.table_id


# Commits by put-if-absent: managed-commits, "Commit Protocol", choice 2; catalog-managed, option 3

both_features = pytest.mark.parametrize("feature", [MANAGED_COMMIT, CATALOG_MANAGED], ids=lambda f: f.name)


def publish(table: OwnedTable, version: int, content: bytes | None = None) -> bytes:
    """A commit by put-if-absent, without the owner."""
    content = append(START + version) if content is None else content
    assert table.log.put_if_absent(log_path.commit(version), content)
    return content


def errors(warehouse: refimpl.Warehouse) -> list[str]:
    return [finding.code for finding in verify(warehouse.owner) if finding.severity is Severity.ERROR]


@pytest.mark.parametrize("failing", ["fsync temporary", "fsync _delta_log/"])
def test_visible_commit_with_a_failed_sync_is_rewritten(tmp_path: Path, failing: str) -> None:
    with opened(tmp_path / "warehouse") as warehouse:
        content = publish(create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT), 1)
    faults = Faults(failing=failing, error=disk_is_broken)
    troubled = refimpl.open(tmp_path / "warehouse", environment=faults.environment(), create=True)
    with pytest.raises(OwnerUnavailableError):
        owned(troubled, "orders").commit(2)
    troubled.close()
    sound = Faults()
    warehouse = refimpl.open(tmp_path / "warehouse", environment=sound.environment(), create=True)
    table = owned(warehouse, "orders")
    assert isinstance(table.commit(2), Ratified)
    assert "replace 1.json" in sound.seen, "a second fsync of the same file may succeed without writing"
    assert table.log.read(log_path.commit(1)) == content
    table.land()
    warehouse.close()


@both_features
def test_replay_of_a_commit_without_the_owner_is_ratified(warehouse: refimpl.Warehouse, feature: TableFeature) -> None:
    """The file was the commit point, and its bytes identify it; the owner noticed it with a later commit."""
    table = create(warehouse, feature, CommitMode.DIRECT, commits=1)
    content = publish(table, 2)
    table.land()
    attempt = new_attempt()
    replay = table.propose(2, content, attempt=attempt)
    for _ in range(2):
        again = table.owner.commit(table.table_id, 2, replay)
        assert isinstance(again, Ratified)
        assert (again.replayed, again.commit.version, again.commit.attempt) == (True, 2, attempt)
    assert table.latest == 3
    for version, other in ((2, append(START + 2)), (1, content), (3, content)):
        assert isinstance(table.commit(version, other), Conflict)
    farewell = hand_back_commit(START + 5)
    publish(table, 4, farewell)
    given = table.propose(4, farewell)
    assert isinstance(table.owner.hand_back(table.table_id, 4, given), Ratified)  # type: ignore[arg-type]


def test_outcome_is_not_guessed_after_a_visible_commit(warehouse: refimpl.Warehouse) -> None:
    """The visible commit may have been that attempt."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.DIRECT, commits=1)
    mine = new_attempt()
    assert isinstance(table.commit(2, attempt=mine), Ratified)
    assert isinstance(table.owner.attempt_outcome(table.table_id, new_attempt()), NotLanded)
    publish(table, 3)
    with pytest.raises(OutcomeUnknown, match="propose the same commit again"):
        table.owner.attempt_outcome(table.table_id, new_attempt())
    assert isinstance(table.owner.attempt_outcome(table.table_id, mine), Landed)


@pytest.mark.parametrize("commit_mode", CommitMode)
def test_put_if_absent_is_no_commit_in_staged_and_inline_mode(
    warehouse: refimpl.Warehouse, commit_mode: CommitMode
) -> None:
    """Writers must not commit by put-if-absent in these modes, nor with invalid content in mode direct. But the owner
    must not deny the visible version."""
    table = create(warehouse, CATALOG_MANAGED, commit_mode)
    direct = commit_mode is CommitMode.DIRECT
    publish(table, 1, *([b'{"add":'] if direct else []))
    assert direct or table.latest == 1
    refused(table.commit(1), RejectionReason.HALTED)
    refused(table.commit(2), RejectionReason.HALTED)
    assert all(action.done for action in repair(warehouse.owner, adopt_published=True)) is not direct
    assert direct or isinstance(table.commit(2), Ratified)


def test_unreadable_log_leaves_no_open_transaction(warehouse: refimpl.Warehouse) -> None:
    table, other = (create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, name=name) for name in ("orders", "others"))
    table.log.folder.rename(table.location / "kept")
    table.log.folder.symlink_to(LOG_FOLDER)  # a link to itself
    with pytest.raises(OwnerUnavailableError):
        table.commit(1)
    with opened(warehouse.directory) as second:
        assert isinstance(other.through(second).commit(1), Ratified)
    assert isinstance(other.commit(2), Ratified)


# An answer shows one state of the table


class Between:
    """Acts once, just before the owner reads the commits of a table."""

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
def test_unreadable_log_gives_no_answer(
    tmp_path: Path, delayed: OwnedTable, ask: Callable[[refimpl.Warehouse, str], CommitsAnswer]
) -> None:
    """A newer version may be visible there, and the owner must not deny a visible version."""
    storage = FailingFiles()
    storage.fail_when = lambda effect, path: effect == "exists"
    with refimpl.open(tmp_path / "warehouse", environment=Environment(files=storage)) as reader:
        with pytest.raises(OwnerUnavailableError):
            ask(reader, delayed.table_id)
        storage.fail_when = lambda effect, path: False
        assert ask(reader, delayed.table_id).latest_ratified_version == 0


def test_listing_reads_no_commit_contents(tmp_path: Path, warehouse: refimpl.Warehouse) -> None:
    """Inline commits may be large, and a damaged commit must not hide the other tables."""
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
