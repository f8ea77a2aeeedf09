"""Operations interrupted at every effect, by the death of the process or by a failing disk: staging, undrop,
adoption, and the first start.

`.ci/run` runs these tests. The simulator interrupts the owner's commits, creations and ownership changes.
"""

import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

import refimpl
from conformance.adapters.reference.host_effects import Killed
from refimpl.care import dropping
from refimpl.care.repair import repair
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import TableState
from refimpl.protocol.errors import OutcomeUnknown, OwnerUnavailableError, TableNotFoundError
from refimpl.protocol.table_feature import CATALOG_MANAGED, COORDINATED_COMMITS, CommitMode
from spec_tests.support.builders import (
    START,
    create,
    dropped,
    filesystem_table,
    owned,
    ownership_change,
    replace_ledger,
)
from spec_tests.support.faults import Faults, crashed, disk_is_broken, disk_is_full, opened, read_only

pytestmark = pytest.mark.longer
Act = Callable[[refimpl.Warehouse], object]


@dataclass
class Interruption:
    """How one run ended: with an `answer`, with an `error`, or with a crash (neither)."""

    where: str
    answer: object = None
    error: Exception | None = None


@dataclass
class Runs:
    """Runs of one operation. Each run uses a copy of the same warehouse, and is interrupted at another point."""

    directory: Path
    prepare: Callable[[refimpl.Warehouse], Act]

    @cached_property
    def act(self) -> Act:
        """Prepare the warehouse, and return the operation. A ledger stores its path, so every copy has the same
        path."""
        with opened(self.directory / "warehouse") as warehouse:
            act = self.prepare(warehouse)
        (self.directory / "warehouse").rename(self.directory / "prepared")
        return act

    def once(self, faults: Callable[[], Faults], where: str) -> tuple[Path, Interruption, Faults]:
        act, folder = self.act, self.directory / "warehouse"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.directory / "prepared", folder)
        plan = faults()
        # Opening an existing warehouse has no effects, so the first effect is the operation's.
        ended = Interruption(where)
        try:
            ended.answer = crashed(folder, plan, act)
        except (OwnerUnavailableError, OutcomeUnknown) as error:
            ended.error = error
        return folder, ended, plan

    def effects(self) -> int:
        _, ended, plan = self.once(Faults, "nowhere")
        assert ended.answer is not None, "the operation succeeds when nothing interrupts it"
        return len(plan.seen)

    def crashes(self) -> Iterator[tuple[Path, Interruption]]:
        for after in range(self.effects() + 1):
            for torn in (False, True):
                folder, ended, plan = self.once(
                    lambda after=after, torn=torn: Faults(crash_after=after, torn=torn),  # type: ignore[misc]
                    f"crash after {after}, torn={torn}",
                )
                yield folder, ended
                if not plan.seen or not plan.seen[-1].startswith("create"):
                    break  # only a write can be torn, and it follows a create

    def failures(self) -> Iterator[tuple[Path, Interruption]]:
        for number in range(1, self.effects() + 1):
            for error, count, reads in (
                (disk_is_full, None, False),
                (read_only, None, True),
                (disk_is_broken, 1, False),
                (disk_is_broken, 2, True),
            ):
                folder, ended, _ = self.once(
                    lambda n=number, e=error, c=count, r=reads: Faults(  # type: ignore[misc]
                        fail_from=n, error=e, fail_count=c, fail_reads=r
                    ),
                    f"{error.__name__} from {number}, count={count}, reads={reads}",
                )
                yield folder, ended

    def interruptions(self) -> Iterator[tuple[Path, Interruption]]:
        yield from self.crashes()
        yield from self.failures()


def test_location_is_usable_after_the_crash_of_its_creator(tmp_path: Path) -> None:
    """Whatever the crash left there, dropping the unfinished table frees the location. The folders around it may exist
    and not be durable."""

    def prepare(warehouse: refimpl.Warehouse) -> Act:
        return lambda failing: failing.owner.stage_table(
            "orders", CATALOG_MANAGED, location=failing.directory / "a" / "place"
        )

    for folder, ended in Runs(tmp_path, prepare).interruptions():
        again = Faults()
        with refimpl.open(folder, environment=again.environment()) as warehouse:
            location = warehouse.directory / "a" / "place"
            try:
                left = warehouse.owner.resolve(location)
            except TableNotFoundError:
                assert ended.answer is None
            else:
                assert left.state is TableState.STAGING
                warehouse.owner.drop_table(left.table_id)
            assert warehouse.owner.stage_table("orders", CATALOG_MANAGED, location=location).location == location
            assert {f"fsync {warehouse.directory.name}/", "fsync a/", "fsync place/"} <= {*again.seen}


def test_interrupted_undrop_happens_or_changes_nothing(tmp_path: Path) -> None:
    def prepare(warehouse: refimpl.Warehouse) -> Act:
        dropped(warehouse)
        return lambda failing: dropping.undrop_table(failing.owner, "orders")

    for folder, ended in Runs(tmp_path, prepare).interruptions():
        with opened(folder) as warehouse:
            back = bool(warehouse.owner.tables())
            assert back or ended.answer is None, ended
            table = owned(warehouse, "orders") if back else None
            if table is None:
                dropping.undrop_table(warehouse.owner, "orders")
                table = owned(warehouse, "orders")
            assert list(table.history()) == [0, 1, 2], ended
            table.land()


def adopting(warehouse: refimpl.Warehouse) -> Act:
    """An engine has made this owner the owner of its table."""
    log = filesystem_table(warehouse.directory / "orders", versions=2)
    table = warehouse.owner.announce(log.location, "orders", COORDINATED_COMMITS, 1)
    assert log.put_if_absent(log_path.commit(2), ownership_change(COORDINATED_COMMITS, START + 2))
    return lambda failing: failing.owner.adopt(table.table_id)


def repairing(warehouse: refimpl.Warehouse) -> Act:
    """A ledger was restored that is older than a published version and a registered table."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
    backup = warehouse.directory / "backup"
    warehouse.owner.ledger.back_up(backup)
    table.land()
    table.backfill()
    warehouse.close()
    replace_ledger(warehouse.owner.ledger.path, backup)
    return lambda failing: repair(failing.owner, adopt_published=True)


@pytest.mark.longer
@pytest.mark.parametrize("prepare", [adopting, repairing])
def test_interrupted_adoption_of_published_files_is_repeated(
    tmp_path: Path, prepare: Callable[[refimpl.Warehouse], Act]
) -> None:
    runs = Runs(tmp_path, prepare)
    for folder, ended in runs.interruptions():
        with opened(folder) as warehouse:
            runs.act(warehouse)
            table = owned(warehouse, "orders")
            assert list(table.history()) == [0, 1, 2], ended
            assert table.latest == 2, ended
            table.land()
            table.backfill()
            assert table.published() == [0, 1, 2, 3], ended


# The first start


def test_first_start_can_crash_at_every_effect(tmp_path: Path) -> None:
    for after in itertools.count():
        folder = tmp_path / str(after) / "deep" / "warehouse"
        faults = Faults(crash_after=after)
        try:
            refimpl.open(folder, environment=faults.environment(), create=True)
        except Killed:
            died = True
        else:
            died = False
        faults.abandon()
        again = Faults()
        with refimpl.open(folder, environment=again.environment(), create=True) as warehouse:
            create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
            assert warehouse.owner.ledger.integrity_errors() == []
        seen = [*faults.seen, *again.seen]
        for made, parent in (("deep/", f"{after}/"), ("warehouse/", "deep/"), ("_owner/", "warehouse/")):
            following = seen[seen.index(f"mkdir {made}") :]
            assert following.index(f"fsync {parent}") < following.index("replace ledger.sqlite"), after
        if not died:
            assert after > 5
            return


def test_first_start_on_a_failing_disk_is_an_error(tmp_path: Path) -> None:
    starts = Faults()
    refimpl.open(tmp_path / "good", environment=starts.environment(), create=True)
    starts.abandon()
    for error in (disk_is_full, read_only, disk_is_broken):
        for number in range(1, len(starts.seen) + 1):
            folder = tmp_path / f"{error.__name__}-{number}"
            faults = Faults(fail_from=number, error=error)
            try:
                refimpl.open(folder, environment=faults.environment(), create=True)
            except OwnerUnavailableError:
                pass
            else:
                assert starts.seen[number - 1].startswith("unlink")
            finally:
                faults.abandon()
            with opened(folder) as warehouse:
                create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
