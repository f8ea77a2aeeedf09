"""`verify` names damage and unfinished work; `repair` does only what is provably safe."""

import errno
import json
import shutil
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import refimpl
from refimpl.care import repair as repair_module
from refimpl.care.repair import repair
from refimpl.care.verify import AHEAD_MS, ORPHAN_AGE_MS, STAGING_AGE_MS, Severity, verify
from refimpl.client.create import Creation
from refimpl.client.ownership import hand_back
from refimpl.owner.local import LocalOwner
from refimpl.protocol import actions, log_path
from refimpl.protocol.commit_owner import MaintenancePolicy, Registered, ResolvedTable, TableState
from refimpl.protocol.commits import (
    Conflict,
    DirectProposal,
    InlineProposal,
    Landed,
    NotLanded,
    Proposal,
    Ratified,
    RejectionReason,
    StagedProposal,
    VersionGap,
)
from refimpl.protocol.errors import (
    CorruptionError,
    CorruptLedgerError,
    CorruptLogError,
    InvalidRequestError,
    LocationError,
    OutcomeUnknown,
    TableNotFoundError,
)
from refimpl.protocol.table_feature import CATALOG_MANAGED, COORDINATED_COMMITS, MANAGED_COMMIT, CommitMode
from refimpl.storage.environment import Environment, HostLock, clock_ms, host_lock
from refimpl.storage.log_store import LogStore
from refimpl.warehouse import Warehouse
from spec_tests.support import builders
from spec_tests.support.faults import FailingFiles, Faults, Others

FOLDER = CATALOG_MANAGED.staging_folder


class Setting:
    """A warehouse with one table, which has one commit mode and is backfilled only on request."""

    def __init__(self, directory: Path, commit_mode: CommitMode = CommitMode.STAGED) -> None:
        self.directory = directory
        self.commit_mode = commit_mode
        self.open()
        policy = MaintenancePolicy(backfill_every=None)
        self.table: ResolvedTable = self.owner.stage_table("t", CATALOG_MANAGED, commit_mode=commit_mode, policy=policy)
        first = DirectProposal(
            attempt=builders.new_attempt(), content=builders.first_version(CATALOG_MANAGED, timestamp=1)
        )
        assert isinstance(self.owner.register_table(self.table.table_id, first), Registered)
        self.log = LogStore(self.table.location, self.warehouse.environment)

    def open(self) -> None:
        self.warehouse: Warehouse = refimpl.open(self.directory, create=True)
        self.owner = self.warehouse.owner

    def proposal(self, version: int, attempt: str | None = None) -> Proposal:
        attempt, content = attempt or builders.new_attempt(), builders.append(version + 1)
        if self.commit_mode is CommitMode.STAGED:
            return StagedProposal(attempt=attempt, file_name=self.log.stage(FOLDER, version, attempt, content))
        return InlineProposal(attempt=attempt, content=content)

    def commit(self, version: int) -> str:
        proposal = self.proposal(version)
        assert isinstance(self.owner.commit(self.table.table_id, version, proposal), Ratified)
        return proposal.attempt

    def publish(self, *versions: int) -> None:
        """Commit these versions, and publish all."""
        for version in versions:
            self.commit(version)
        self.owner.backfill_to_version(self.table.table_id)

    def back_up(self) -> None:
        self.owner.ledger.back_up(self.directory / "backup.sqlite")

    def restore(self) -> None:
        """Replace the ledger by the backup, also while processes have the ledger open."""
        builders.replace_ledger(self.owner.ledger.path, self.directory / "backup.sqlite")

    def codes(self) -> set[tuple[str, str]]:
        return {(finding.severity.value, finding.code) for finding in verify(self.owner)}

    def errors(self) -> set[str]:
        return {finding.code for finding in verify(self.owner) if finding.severity is Severity.ERROR}

    def latest(self) -> int | None:
        return self.owner.get_commits(self.table.table_id).latest_ratified_version

    def file(self, version: int) -> Path:
        return self.log.folder / log_path.commit(version)

    def staged(self, version: int) -> Path:
        (path,) = (self.log.folder / FOLDER).glob(f"{version:020d}.*")
        return path


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path / "lake")


def checkpoint(setting: Setting, version: int) -> None:
    (setting.log.folder / log_path.classic_checkpoint(version)).write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "codes"),
    [
        (lambda setting: setting.file(1).write_bytes(builders.append(2)), {"published-altered"}),
        (lambda setting: setting.file(0).unlink(), {"published-missing"}),
        (lambda setting: setting.file(1).unlink(), {"published-missing"}),
        (lambda setting: [setting.file(version).unlink() for version in (0, 1)], {"published-missing"}),
        (lambda setting: (setting.file(0).unlink(), checkpoint(setting, 0)), set()),
        (lambda setting: setting.staged(2).write_bytes(builders.append(3)), {"stored-altered"}),
        (lambda setting: setting.staged(2).unlink(), {"staged-missing"}),
        (lambda setting: setting.file(3).write_bytes(builders.append(4)), {"published-above-latest", "published-gap"}),
        (lambda setting: shutil.rmtree(setting.table.location), {"location-missing"}),
    ],
)
def test_verify_names_the_damage(setting: Setting, damage: Callable[[Setting], object], codes: set[str]) -> None:
    setting.publish(1)
    setting.commit(2)
    damage(setting)
    assert setting.errors() == codes


def test_a_timestamp_far_ahead_of_the_clock_is_a_warning(setting: Setting) -> None:
    """`verify` warns about the first such version: each later commit is one ms later, whatever the clocks say."""
    setting.commit(1)
    times = [commit.in_commit_timestamp for commit in setting.owner.get_commits(setting.table.table_id).commits]
    reported: list[list[tuple[str, str]]] = []
    for now in (times[-1], times[-1] - AHEAD_MS, times[-1] - AHEAD_MS - 1):
        environment = replace(setting.warehouse.environment, now=lambda now=now: now)
        with refimpl.open(setting.directory, environment=environment) as warehouse:
            codes = [
                (finding.severity.value, finding.code)
                for finding in verify(warehouse.owner)
                if "version 1" in finding.message
            ]
            reported.append(codes)
    assert reported == [[], [], [("warning", "timestamp-ahead")]]


def restore_the_ledger_of(setting: Setting, while_it_was: Callable[[], None]) -> None:
    """Back up the ledger, make changes, and restore the backup, as an operator does after the loss of a disk."""
    setting.back_up()
    while_it_was()
    setting.warehouse.close()
    setting.restore()
    setting.open()


def test_restored_older_ledger_takes_no_commits_before_repair(setting: Setting) -> None:
    setting.commit(1)
    later: list[str] = []

    def go_on() -> None:
        later.extend(setting.commit(version) for version in (2, 3))
        setting.owner.backfill_to_version(setting.table.table_id)

    restore_the_ledger_of(setting, go_on)
    assert setting.latest() == 3  # the owner never denies a visible version
    loser = setting.proposal(
        2, "00000000-0000-4000-8000-000000000000"
    )  # its file is listed before the winner's, and has the same size
    builders.refused(setting.owner.commit(setting.table.table_id, 2, loser), RejectionReason.HALTED)
    with pytest.raises(CorruptionError):
        setting.owner.attempt_outcome(setting.table.table_id, later[0])
    assert "published-above-latest" in setting.errors()

    repair(setting.owner)
    assert "published-above-latest" in setting.errors()

    done = repair(setting.owner, adopt_published=True)
    assert {action.code for action in done if action.done} >= {"adopt"}
    assert setting.errors() == set()
    for attempt, version in zip(later, (2, 3), strict=True):
        outcome = setting.owner.attempt_outcome(setting.table.table_id, attempt)
        assert isinstance(outcome, Landed)
        assert outcome.commit.version == version
    assert isinstance(setting.owner.attempt_outcome(setting.table.table_id, builders.new_attempt()), NotLanded)
    setting.commit(4)
    assert setting.latest() == 4


def test_repair_adopts_nothing_above_an_unpublishable_version(setting: Setting) -> None:
    setting.commit(1)

    def go_on() -> None:
        setting.publish(2)

    restore_the_ledger_of(setting, go_on)
    setting.file(1).write_bytes(builders.append(2))
    done = repair(setting.owner, adopt_published=True)
    assert not any(action.done for action in done if action.code == "adopt")
    with setting.owner.ledger.read() as view:
        table = view.table(setting.table.table_id)
    assert table is not None
    assert table.latest == 1


def test_foreign_file_halts_the_table_until_it_is_removed(setting: Setting) -> None:
    setting.commit(1)
    setting.file(1).write_bytes(builders.append(2))
    with pytest.raises(CorruptionError):
        setting.owner.backfill_to_version(setting.table.table_id)
    assert "halted" in setting.errors()
    assert not all(action.done for action in repair(setting.owner))
    assert "halted" in setting.errors()

    setting.file(1).unlink()
    assert all(action.done for action in repair(setting.owner))
    assert setting.errors() == set()
    setting.commit(2)


def test_only_old_staged_files_of_decided_versions_are_removed(setting: Setting) -> None:
    loser = setting.proposal(1)
    setting.publish(1)
    waiting = setting.commit(2)
    undecided = setting.proposal(3)
    staged = setting.log.folder / FOLDER

    repair(setting.owner)
    assert len(list(staged.iterdir())) == 4  # all files are too young to remove

    repair(setting.owner, orphan_age_ms=-60_000)
    left = {path.name.split(".")[1] for path in staged.iterdir()}
    assert undecided.attempt in left
    assert loser.attempt not in left
    backlog = {commit.attempt for commit in setting.owner.get_commits(setting.table.table_id).commits}
    assert backlog <= left | {waiting}
    assert setting.errors() == set()


def test_losers_of_a_table_that_was_handed_back_are_removed(setting: Setting) -> None:
    setting.proposal(1)
    setting.commit(1)
    hand_back(setting.warehouse.table("t"))
    setting.proposal(3)  # it may be another owner's
    assert [action.code for action in repair(setting.owner, orphan_age_ms=-60_000)] == ["remove-leftovers"]
    assert [path.version for path in setting.log.staged_listing(FOLDER)] == [3]
    setting.proposal(1)
    for version in range(3):
        setting.file(version).write_bytes(b"{}")  # another table's
    assert repair(setting.owner, orphan_age_ms=-60_000) == []
    assert len(setting.log.staged_listing(FOLDER)) == 2
    builders.sql(setting.owner.ledger.path, "UPDATE commits SET commit_mode = 'damaged'")
    assert repair(setting.owner, orphan_age_ms=-60_000) == [], "verify reports damage of the ledger"


def test_files_staged_after_a_concurrent_drop_are_kept(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    setting.publish(1)
    finish = repair_module._finish_backfill

    def finish_and_lose_the_table(owner: LocalOwner, table_id: str) -> str | None:
        done = finish(owner, table_id)
        setting.owner.drop_table(table_id)
        return done

    monkeypatch.setattr(repair_module, "_finish_backfill", finish_and_lose_the_table)
    before = setting.log.staged_listing(FOLDER)
    assert before
    assert [action.code for action in repair(setting.owner, orphan_age_ms=-60_000)] == []
    assert setting.log.staged_listing(FOLDER) == before


def test_inline_commit_published_in_another_spelling_is_no_error(tmp_path: Path) -> None:
    """catalog-managed, "Publishing Commits": owner and clients publish; the bytes of inline content may differ."""
    setting = Setting(tmp_path / "lake", CommitMode.INLINE)
    setting.commit(1)
    (stored,) = setting.owner.get_commits(setting.table.table_id).commits
    assert stored.content is not None
    respelled = b"".join(json.dumps(json.loads(line)).encode() + b"\n" for line in stored.content.splitlines())
    assert respelled != stored.content
    assert actions.decode(respelled, source="respelled") == actions.decode(stored.content, source="stored")
    setting.file(1).write_bytes(respelled)
    assert setting.errors() == set()
    setting.owner.backfill_to_version(setting.table.table_id)
    assert setting.errors() == set()
    assert ("note", "published-respelled") in setting.codes()


def test_a_ledger_older_than_a_cleanup_ratifies_nothing(setting: Setting) -> None:
    """The next versions are no longer in the log, but later versions are."""
    setting.publish(1)
    later: list[str] = []

    def go_on_and_clean_up() -> None:
        later.extend(setting.commit(version) for version in range(2, 7))
        setting.owner.backfill_to_version(setting.table.table_id)
        for version in range(5):
            setting.file(version).unlink()

    restore_the_ledger_of(setting, go_on_and_clean_up)
    assert setting.latest() == 6
    builders.refused(setting.owner.commit(setting.table.table_id, 2, setting.proposal(2)), RejectionReason.HALTED)
    with pytest.raises(CorruptionError):
        setting.owner.attempt_outcome(setting.table.table_id, later[0])
    (adoption,) = [action for action in repair(setting.owner, adopt_published=True) if action.code == "adopt"]
    assert not adoption.done


def test_restored_ledger_finds_a_published_hand_back(setting: Setting) -> None:
    """Otherwise both the owner and a filesystem writer could acknowledge the next version."""
    setting.commit(1)

    def go_on_and_hand_back() -> None:
        setting.commit(2)
        write = hand_back(setting.warehouse.table("t")).transaction(operation="WRITE")
        write.add(builders.addition())
        write.commit()

    restore_the_ledger_of(setting, go_on_and_hand_back)
    done = repair(setting.owner, adopt_published=True)
    assert all(action.done for action in done), done
    assert any("gave the table back" in action.message for action in done)
    assert setting.owner.resolve(setting.table.location).state is TableState.HANDED_BACK
    builders.refused(setting.owner.commit(setting.table.table_id, 4, setting.proposal(4)), RejectionReason.NOT_ACTIVE)
    assert setting.warehouse.tables() == []
    assert setting.errors() == set()


@pytest.mark.parametrize("commits", [0, 2])
def test_another_table_at_the_location_after_a_restore_is_named(setting: Setting, commits: int) -> None:
    """It is neither adopted nor cleaned up."""
    setting.commit(1)

    def replace_the_table() -> None:
        setting.owner.drop_table(setting.table.table_id)
        shutil.rmtree(setting.table.location)
        schema = pa.schema([("id", pa.int64())])
        new = setting.warehouse.create_table("new", schema, location=setting.table.location)
        for _ in range(commits):
            new.append(pa.table({"id": [1]}))

    restore_the_ledger_of(setting, replace_the_table)
    assert setting.errors() == {"another-table"}
    files = set(setting.log.folder.rglob("*"))
    (action,) = repair(setting.owner, orphan_age_ms=0, adopt_published=True)
    assert (action.code, action.done) == ("another-table", False)
    assert setting.errors() == {"another-table"}
    assert set(setting.log.folder.rglob("*")) == files


def test_halt_stays_while_an_unknown_version_is_published(setting: Setting) -> None:
    setting.commit(1)
    with setting.owner.lock(), setting.owner.changing(setting.table.table_id) as (writer, table):
        writer.set(table, halted="by hand")
    setting.log.publish(2, builders.append(3))
    repair(setting.owner)
    assert setting.owner.resolve("t").halted
    setting.file(2).unlink()
    repair(setting.owner)
    assert setting.owner.resolve("t").halted is None


def test_process_writes_into_the_replacing_ledger(setting: Setting) -> None:
    """The file that the process has open is no longer in the folder. This process writes before it reads."""
    setting.back_up()
    setting.restore()
    with setting.owner.lock(), setting.owner.ledger.write() as writer:
        table = setting.owner.required(writer, setting.table.table_id)
        writer.set(table, halted="written just now")
    resolved = refimpl.open(setting.directory, create=True).owner.resolve("t")
    assert resolved.halted == "written just now"


def test_a_table_that_was_handed_back_is_not_verified(setting: Setting) -> None:
    hand_back(setting.warehouse.table("t"))
    shutil.rmtree(setting.table.location)
    assert verify(setting.owner) == []


@pytest.mark.parametrize("commits", [0, 2])
def test_a_table_that_was_staged_in_the_restored_backup_is_registered(setting: Setting, commits: int) -> None:
    """Otherwise its acknowledged rows would be gone without a finding."""
    schema = pa.schema([("id", pa.int64())])
    creation = Creation.begin(setting.owner, setting.warehouse.environment, "after", schema)

    def go_on() -> None:
        table = creation.finish()
        for number in range(commits):
            table.append(pa.table({"id": [number]}))
        setting.owner.backfill_to_version(creation.table_id)

    restore_the_ledger_of(setting, go_on)
    assert setting.codes() == {("error", "not-registered") if commits else ("note", "never-registered")}
    assert [(action.code, action.done) for action in repair(setting.owner)] == []
    done = [(action.code, action.done) for action in repair(setting.owner, adopt_published=True)]
    assert done == [("register", True), ("adopt", True)][: 2 if commits else 1]
    rows = setting.warehouse.table("after").snapshot().to_arrow()["id"]
    assert sorted(rows.to_pylist()) == list(range(commits))
    with pytest.raises(OutcomeUnknown):
        setting.owner.attempt_outcome(creation.table_id, builders.new_attempt())
    assert setting.errors() == set()


def test_a_staged_table_without_its_version_0_needs_a_newer_backup(setting: Setting) -> None:
    """A cleanup removed the version between the backup and the restore. verify advised a repair, which did nothing."""
    log = setting.owner.stage_table("late", CATALOG_MANAGED).location / "_delta_log"
    (log / log_path.commit(7)).write_bytes(builders.append(7))
    (finding,) = (finding for finding in verify(setting.owner) if finding.code == "not-registered")
    assert not finding.repairable
    assert "restore a newer backup" in finding.message
    assert [(action.code, action.done) for action in repair(setting.owner, adopt_published=True)] == [
        ("register", False)
    ]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("UPDATE commits SET in_commit_timestamp = 5000", "timestamp-order"),
        ("UPDATE tables SET protocol = NULL", "no-protocol"),
        ("DELETE FROM commits WHERE version = 1", "ledger-gap"),
        ("UPDATE tables SET feature = 'catalogLanaged'", "ledger-damaged"),
        ("UPDATE tables SET name = CAST(x'ff' AS TEXT)", "ledger-damaged"),
        ("UPDATE tables SET policy = '{'", "ledger-damaged"),
        ("UPDATE tables SET protocol = '{}'", "ledger-damaged"),
        ("UPDATE commits SET commit_mode = 'steged'", "ledger-damaged"),
        ("UPDATE commits SET content = 'text'", "ledger-damaged"),
    ],
)
def test_verify_names_damage_in_the_ledger(setting: Setting, statement: str, code: str) -> None:
    for version in (1, 2):
        setting.commit(version)
    assert setting.errors() == set()
    builders.sql(setting.owner.ledger.path, statement)
    assert code in setting.errors()


def test_altered_inline_bytes_are_not_served(tmp_path: Path) -> None:
    setting = Setting(tmp_path / "lake", CommitMode.INLINE)
    attempt = setting.commit(1)
    setting.commit(2)
    altered = "CAST(replace(content, 'part-', 'mart-') AS BLOB)"
    update = f"UPDATE commits SET content = {altered} WHERE version = 1 RETURNING version"
    assert builders.sql(setting.owner.ledger.path, update) == [(1,)]
    for ask in (
        lambda: setting.owner.get_commits(setting.table.table_id),
        lambda: setting.owner.resolve("t"),
        lambda: setting.owner.commit(setting.table.table_id, 1, setting.proposal(1)),
        lambda: setting.owner.attempt_outcome(setting.table.table_id, attempt),
    ):
        with pytest.raises(CorruptLedgerError):
            ask()
    assert setting.errors() == {"stored-altered"}


def test_only_losers_of_the_newest_version_are_orphaned(setting: Setting) -> None:
    setting.commit(1)
    assert ("note", "orphaned-staged-files") not in setting.codes()
    setting.proposal(1)
    setting.proposal(2)
    (left_over,) = [finding for finding in verify(setting.owner) if finding.code == "orphaned-staged-files"]
    assert left_over.message.startswith("1 staged file (")
    assert " of a ratified version is left over; repair removes it when it is 24 hours old" in left_over.message
    assert not left_over.repairable, "repair keeps it for a day"
    late = replace(setting.warehouse.environment, now=lambda: clock_ms() + 2 * ORPHAN_AGE_MS)
    with refimpl.open(setting.directory, environment=late) as tomorrow:
        assert [finding.repairable for finding in verify(tomorrow.owner) if finding.code == left_over.code] == [True]
    assert len(setting.log.staged_listing(FOLDER)) == 3


def test_verify_names_the_folder_of_a_dropped_table(setting: Setting) -> None:
    setting.owner.drop_table(setting.table.table_id)
    (finding,) = verify(setting.owner)
    assert (finding.code, finding.severity) == ("dropped-files", Severity.NOTE)
    assert str(setting.table.location) in finding.message
    shutil.rmtree(setting.table.location)
    assert verify(setting.owner) == []


@pytest.mark.parametrize("left", ["nothing", "a file", "version 0"])
def test_abandoned_staging_table_is_named_and_can_be_removed(setting: Setting, left: str) -> None:
    """`repair` deletes no file, and keeps a table with a version 0: a late creator may still register it."""
    staged = setting.owner.stage_table("late", CATALOG_MANAGED)
    assert setting.codes() == set()
    assert repair(setting.owner, orphan_age_ms=STAGING_AGE_MS) == []
    late = replace(setting.warehouse.environment, now=lambda: clock_ms() + 2 * STAGING_AGE_MS)
    owner = refimpl.open(setting.directory, environment=late, create=True).owner
    if left == "a file":
        (staged.location / "part-0.parquet").write_bytes(b"x")
    elif left == "version 0":
        (staged.location / "_delta_log" / log_path.commit(0)).write_bytes(builders.first_version(CATALOG_MANAGED))
    (finding,) = verify(owner)
    assert finding.code == "never-registered"
    assert str(staged.location) in finding.message
    done = [action.code for action in repair(owner, orphan_age_ms=STAGING_AGE_MS)]
    assert done == ([] if left == "version 0" else ["forget-abandoned"])
    assert staged.location.exists() is (left != "nothing")
    assert {finding.code for finding in verify(owner)} == {
        "nothing": set(), "a file": {"dropped-files"}, "version 0": {"never-registered"},
    }[left]  # fmt: skip
    state = owner.resolve(staged.table_id).state if left == "version 0" else None
    assert state is (TableState.STAGING if left == "version 0" else None)


# Tables that cannot be read


def test_a_table_that_cannot_be_read_does_not_hide_the_others(setting: Setting) -> None:
    other = builders.create(setting.warehouse, CATALOG_MANAGED, CommitMode.STAGED, name="a", commits=1)
    files = FailingFiles()
    files.error = errno.EIO
    files.fail_when = lambda operation, path: operation in ("read", "list_directory") and path.is_relative_to(folder)
    folder = other.log.folder
    setting.publish(1)
    setting.file(1).unlink()
    with refimpl.open(setting.directory, environment=Environment(files=files)) as broken:
        findings = {(finding.table, finding.code) for finding in broken.verify() if finding.severity is Severity.ERROR}
        done = [(action.table, action.done) for action in repair(broken.owner, orphan_age_ms=-1)]
    assert findings == {("a", "unreadable"), ("t", "published-missing")}
    assert done == [("a", False), ("t", True)]


# What other processes do while verify runs


def verified(setting: Setting, operation: str, path: Path, act: Callable[[], object]) -> set[tuple[str, str]]:
    """The findings, if `act` happens once, just before verify does this."""
    files = FailingFiles()
    acts = [act]

    def acting(done: str, at: Path) -> bool:
        if done == operation and at == path and acts:
            acts.pop()()
        return False

    files.fail_when = acting
    with refimpl.open(setting.directory, environment=Environment(files=files)) as other:
        codes = {(finding.severity.value, finding.code) for finding in verify(other.owner)}
    assert not acts
    return codes


def test_damage_of_the_ledger_meanwhile_is_a_finding(setting: Setting) -> None:
    def create_another_and_damage_it() -> None:
        setting.warehouse.create_table("after", pa.schema([("id", pa.int64())]))
        builders.sql(setting.owner.ledger.path, "UPDATE tables SET policy = '{' WHERE name = 'after'")

    codes = verified(setting, "list_directory", setting.directory, create_another_and_damage_it)
    assert codes == {("error", "ledger-damaged")}


def test_table_that_is_forgotten_meanwhile_is_no_finding(setting: Setting) -> None:
    """The owner forgets a take-over that lost its race."""
    staged = setting.owner.stage_table("z", CATALOG_MANAGED)

    def forget() -> None:
        with setting.owner.lock(), setting.owner.ledger.write() as writer:
            writer.forget_table(setting.owner.required(writer, staged.table_id))

    assert verified(setting, "list_directory", setting.log.folder, forget) == set()


def test_versions_that_are_cleaned_up_meanwhile_are_not_missing(setting: Setting) -> None:
    setting.publish(1, 2)
    checkpoint(setting, 2)
    assert verified(setting, "read", setting.file(0), setting.file(0).unlink) == {("note", "orphaned-staged-files")}
    assert verified(setting, "read", setting.file(2), setting.file(1).unlink) == {("note", "orphaned-staged-files")}
    assert ("error", "published-missing") in verified(setting, "read", setting.file(2), setting.file(2).unlink)


def test_long_cleanup_meanwhile_is_no_damage(setting: Setting) -> None:
    """Both checks of the table lost a file between their listing and their read."""
    setting.publish(1, 2)
    checkpoint(setting, 2)

    listed = False

    def clean_up(operation: str, path: Path) -> bool:
        nonlocal listed
        if operation == "read" and listed and path in (setting.file(0), setting.file(1)):
            path.unlink()
            listed = False
        listed = listed or (operation == "list_directory" and path == setting.log.folder)
        return False

    files = FailingFiles()
    files.fail_when = clean_up
    with refimpl.open(setting.directory, environment=Environment(files=files)) as other:
        assert [finding.code for finding in verify(other.owner)] == ["orphaned-staged-files"]
    assert not setting.file(0).exists()


def test_versions_that_are_published_meanwhile_are_no_gap(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names that are created while a folder is read may be in the listing or not."""
    setting.publish(1, 2)
    listing, times = LogStore.listing, count()

    def without_the_first(log: LogStore, *, newest: bool = False) -> list[log_path.LogPath]:
        paths = listing(log, newest=newest)
        return [path for path in paths if path.version != 1 or next(times)]

    monkeypatch.setattr(LogStore, "listing", without_the_first)
    assert setting.codes() == {("note", "orphaned-staged-files")}
    assert next(times) > 1


def test_direct_commit_in_progress_is_not_interrupted(tmp_path: Path) -> None:
    """Its promise is open while verify reads the ledger."""
    with refimpl.open(tmp_path / "lake", create=True) as warehouse:
        table = builders.create(warehouse, CATALOG_MANAGED, CommitMode.DIRECT)
    asks, codes = threading.Event(), []

    def announced_lock(path: Path) -> HostLock:
        lock = host_lock(path)

        def taken() -> AbstractContextManager[object]:
            asks.set()
            return lock()

        return taken

    def check() -> None:
        with refimpl.open(tmp_path / "lake", environment=Environment(host_lock=announced_lock)) as other:
            asks.clear()
            codes.extend(finding.code for finding in verify(other.owner))
        asks.set()

    checking, files = threading.Thread(target=check), FailingFiles()

    def linking(operation: str, path: Path) -> bool:
        if operation == "link":
            checking.start()
            assert asks.wait(120)
        return False

    files.fail_when = linking
    with refimpl.open(tmp_path / "lake", environment=Environment(files=files)) as writing:
        assert isinstance(table.through(writing).commit(1), Ratified)
    checking.join()
    assert codes == []


# Tables that an engine announces, and then creates or converts by itself (DELTA_SPARK.md)


def announced(
    warehouse: refimpl.Warehouse, folder: str = "orders", latest: int | None = None, name: str | None = "orders"
) -> ResolvedTable:
    return warehouse.owner.announce(warehouse.directory / folder, name, COORDINATED_COMMITS, latest)


def log_of(warehouse: refimpl.Warehouse, table: ResolvedTable) -> LogStore:
    return LogStore(table.location, warehouse.environment)


def put(log: LogStore, version: int, content: bytes) -> None:
    assert log.put_if_absent(log_path.commit(version), content)


def test_announced_table_is_owned_from_the_first_call_on(warehouse: refimpl.Warehouse) -> None:
    table = announced(warehouse)
    assert table.state is TableState.STAGING
    assert warehouse.owner.adopt(table.table_id) == VersionGap(latest_ratified_version=None)
    content = builders.first_version(COORDINATED_COMMITS)
    put(log_of(warehouse, table), 0, content)
    outcome = warehouse.owner.adopt(table.table_id)
    assert isinstance(outcome, Ratified)
    assert outcome.commit.size == len(content)
    mine = builders.owned(warehouse, "orders")
    assert mine.table_id == table.table_id
    assert isinstance(mine.commit(1), Ratified)
    assert mine.published() == [0, 1]


def test_versions_before_an_adopted_one_are_durable_first(tmp_path: Path) -> None:
    """Their writer may not have synced them, and the owner's versions cannot be read without them."""
    faults = Faults()
    with refimpl.open(tmp_path / "w", environment=faults.environment(), create=True) as warehouse:
        log = builders.filesystem_table(warehouse.directory / "orders", versions=2)
        table = announced(warehouse, latest=1)
        put(log, 2, builders.ownership_change(COORDINATED_COMMITS, builders.START + 2))
        faults.seen.clear()
        assert isinstance(warehouse.owner.adopt(table.table_id), Ratified)
    assert {"fsync 0.json", "fsync 1.json"} <= {*faults.seen[: faults.seen.index("commit")]}


def test_version_that_lands_during_the_lock_wait_is_adopted(tmp_path: Path) -> None:
    """The owner reads the log under the lock: an earlier read may be outdated."""
    folder = tmp_path / "warehouse"
    with refimpl.open(folder, create=True) as others:
        table = announced(others)
        log = log_of(others, table)
        late = Others(before=lambda: put(log, 0, builders.first_version(COORDINATED_COMMITS)))
        with refimpl.open(folder, environment=Environment(host_lock=late.lock), create=True) as warehouse:
            assert isinstance(warehouse.owner.adopt(table.table_id), Ratified)
        assert late.acted
        assert others.owner.resolve("orders").commits.latest_ratified_version == 0


def test_an_existing_table_is_owned_from_its_ownership_change_on(warehouse: refimpl.Warehouse) -> None:
    """Other writers may have committed between the announcement and the ownership change."""
    log = builders.filesystem_table(warehouse.directory / "orders", versions=3, environment=warehouse.environment)
    table = announced(warehouse, latest=2)
    put(log, 3, builders.append(builders.START + 3))
    put(log, 4, builders.ownership_change(COORDINATED_COMMITS, builders.START + 4))
    assert isinstance(warehouse.owner.adopt(table.table_id), Ratified)
    assert warehouse.owner.resolve("orders").commits.latest_ratified_version == 4
    assert isinstance(builders.owned(warehouse, "orders").commit(5), Ratified)


@pytest.mark.parametrize("previous", ["in a checkpoint", "missing", "damaged"])
def test_adoption_needs_the_previous_version_or_a_checkpoint(warehouse: refimpl.Warehouse, previous: str) -> None:
    """Without it, the table stays announced, and lookups and listings of other tables still work."""
    log = builders.filesystem_table(warehouse.directory / "orders", versions=2, environment=warehouse.environment)
    table = announced(warehouse, latest=1)
    put(log, 2, builders.ownership_change(COORDINATED_COMMITS, builders.START + 2))
    log.delete(log_path.commit(0))
    log.delete(log_path.commit(1))
    if previous == "in a checkpoint":
        (log.folder / log_path.classic_checkpoint(2)).write_bytes(b"")
    elif previous == "damaged":
        put(log, 1, b"{")
    with pytest.raises(TableNotFoundError):
        warehouse.owner.resolve("unknown")
    if previous == "in a checkpoint":
        assert warehouse.tables() == ["orders"]
        assert isinstance(builders.owned(warehouse, "orders").commit(3), Ratified)
        return
    assert warehouse.tables() == []
    if previous == "missing":
        builders.refused(warehouse.owner.adopt(table.table_id), RejectionReason.INCONSISTENT_TABLE)
    else:
        with pytest.raises(CorruptLogError):
            warehouse.owner.adopt(table.table_id)


def test_a_table_that_was_announced_and_created_is_found_by_its_name(warehouse: refimpl.Warehouse) -> None:
    """The engine may never call again; other clients need not wait for it. A damaged table does not hide the others."""
    damaged = log_of(warehouse, announced(warehouse, "damaged", name="damaged"))
    put(damaged, 0, b"{")
    put(damaged, 1, builders.first_version(COORDINATED_COMMITS))
    for name in ("orders", "sales"):
        table = announced(warehouse, name, name=name)
        with pytest.raises(TableNotFoundError):
            warehouse.owner.resolve(name)
        put(log_of(warehouse, table), 0, builders.first_version(COORDINATED_COMMITS))
    assert warehouse.owner.resolve("orders").state is TableState.ACTIVE
    assert warehouse.tables() == ["orders", "sales"]
    staged = warehouse.owner.stage_table("ours", MANAGED_COMMIT)
    put(log_of(warehouse, staged), 0, builders.first_version(MANAGED_COMMIT))
    assert warehouse.tables() == ["orders", "sales"]  # the creator has not registered `ours` yet


@pytest.mark.parametrize("by", ["location", "table_id"])
def test_a_table_that_was_announced_and_created_is_found_by_location_and_id(
    warehouse: refimpl.Warehouse, by: str
) -> None:
    table = announced(warehouse)
    assert warehouse.owner.resolve(getattr(table, by)).state is TableState.STAGING
    put(log_of(warehouse, table), 0, builders.first_version(COORDINATED_COMMITS))
    assert warehouse.owner.resolve(getattr(table, by)).state is TableState.ACTIVE


def test_an_unreadable_announced_table_hides_no_other_table(warehouse: refimpl.Warehouse) -> None:
    log = log_of(warehouse, announced(warehouse, "unreadable", name="unreadable"))
    shutil.rmtree(log.folder)
    log.folder.write_bytes(b"")
    staged = warehouse.owner.stage_table("ours", MANAGED_COMMIT)
    assert warehouse.owner.resolve(staged.table_id).state is TableState.STAGING


def test_table_that_names_another_owner_is_not_adopted(warehouse: refimpl.Warehouse) -> None:
    table = announced(warehouse)
    put(log_of(warehouse, table), 0, builders.first_version(None))
    version = log_of(warehouse, table).folder / log_path.commit(0)
    before = version.stat().st_mtime_ns
    builders.refused(warehouse.owner.adopt(table.table_id), RejectionReason.INCONSISTENT_TABLE)
    assert warehouse.owner.resolve(table.location).state is TableState.STAGING
    assert warehouse.tables() == []
    assert version.stat().st_mtime_ns == before, (
        "without in-commit timestamps, the time of a commit is the modification time of its file"
    )


def test_adopted_table_is_not_adopted_again(warehouse: refimpl.Warehouse) -> None:
    table = announced(warehouse)
    put(log_of(warehouse, table), 0, builders.first_version(COORDINATED_COMMITS))
    assert isinstance(warehouse.owner.adopt(table.table_id), Ratified)
    builders.owned(warehouse, "orders").land(2)
    assert warehouse.owner.adopt(table.table_id) == Conflict(latest_ratified_version=2)
    warehouse.owner.drop_table(table.table_id)
    builders.refused(warehouse.owner.adopt(table.table_id), RejectionReason.NOT_ACTIVE)


def test_two_announcements_of_a_location_give_one_table(warehouse: refimpl.Warehouse) -> None:
    first, second = announced(warehouse), announced(warehouse, name="other")
    assert first.table_id == second.table_id
    put(log_of(warehouse, first), 0, builders.first_version(COORDINATED_COMMITS))
    assert isinstance(warehouse.owner.adopt(first.table_id), Ratified)
    with pytest.raises(LocationError):
        announced(warehouse)
    with pytest.raises(LocationError):
        announced(warehouse, latest=0)
    assert warehouse.tables() == ["orders"]


@pytest.mark.parametrize("name", ["orders", None, "no name here", "9", "x" * 255])
def test_every_announced_table_gets_a_unique_name(warehouse: refimpl.Warehouse, name: str | None) -> None:
    """The owner does not reject a table that is already in the log because of a taken or invalid name."""
    taken = name if name == "x" * 255 else "orders"
    builders.create(warehouse, COORDINATED_COMMITS, CommitMode.STAGED, name=taken)
    table = announced(warehouse, "2024/orders", name=name)
    put(log_of(warehouse, table), 0, builders.first_version(COORDINATED_COMMITS))
    assert isinstance(warehouse.owner.adopt(table.table_id), Ratified)
    assert set(warehouse.tables()) == {taken, f"{taken[:246]}_{table.table_id[:8]}"}


def test_announced_location_must_be_in_the_warehouse_or_a_root(warehouse: refimpl.Warehouse, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere" / "orders"
    for folder in (outside, warehouse.directory, warehouse.directory / "_owner" / "orders"):
        with pytest.raises(LocationError):
            warehouse.owner.announce(folder, "orders", COORDINATED_COMMITS, None)
    assert not outside.exists()
    outside.parent.mkdir()
    warehouse.owner.add_roots([outside.parent])
    assert warehouse.owner.announce(outside, "orders", COORDINATED_COMMITS, None).location == outside


def test_announcement_must_match_the_existing_log(warehouse: refimpl.Warehouse) -> None:
    builders.filesystem_table(warehouse.directory / "orders", versions=2, environment=warehouse.environment)
    with pytest.raises(LocationError):
        announced(warehouse)
    with pytest.raises(InvalidRequestError):
        announced(warehouse, latest=2)
    assert announced(warehouse, latest=1).state is TableState.STAGING


def test_secret_is_rejected_before_it_is_in_the_log(warehouse: refimpl.Warehouse) -> None:
    folder = warehouse.directory / "orders"
    with pytest.raises(InvalidRequestError):
        warehouse.owner.announce(folder, "orders", COORDINATED_COMMITS, None, owner_conf='{"aws.secret.key": "x"}')
    assert not folder.exists()
    warehouse.owner.announce(folder, "orders", COORDINATED_COMMITS, None, owner_conf='{"region": "x"}')
    assert folder.exists()
