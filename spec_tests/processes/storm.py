"""A storm test: rounds of competing processes, with kills and disk failures. An exact check follows each round.

    python -m spec_tests.processes.storm --minutes 5 --seed 1 [--json]
    python -m spec_tests.processes.storm --rounds 200
    python -m spec_tests.processes.storm --rows --minutes 20 --spark 2

With `--rows`, clients, a server and Spark drivers change the rows of one table instead (see `rows.py`).

A table exists for some rounds. First, creators race for its name; or, for an existing table, take-overs race with a
filesystem writer. Then writers, backfills, checkpoints, cleanups, readers and resolvers work on it at the same time. At
last it is handed back while other processes write, and sometimes taken over again.

The disturbances: each round kills some processes, from outside at a random moment, or a process kills itself at a
random effect (kills); in some rounds, writes and syncs fail, also those of SQLite (disk); every process opens the
warehouse several times (opens); another SQLite client opens the ledger, reads it and closes it (foreign).

Through a pipe, every worker reports each request before it sends it, and each answer. After each round, these records
are compared with the owner and the log. The seed fixes the orders, not the schedule.

Exit status: 0 no commit was lost, repeated or reordered; 1 a violation; 2 usage.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

import refimpl
from refimpl.care.repair import repair
from refimpl.care.verify import Severity, verify
from refimpl.demo.workers import Ended, Worker, WorkerPool
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import ALLOWED_BY_DEFAULT, Maintenance, MaintenancePolicy, TableState
from refimpl.protocol.commits import Conflict, DirectProposal, Landed, Ratified, Rejected, RejectionReason
from refimpl.protocol.errors import DeltaError, TableNotFoundError
from refimpl.storage.log_store import LogStore
from spec_tests.processes import rows, worker
from spec_tests.processes.table_record import Answer, Attempt, Summary, TableLife, count
from spec_tests.processes.worker import EXTERNAL, Note, Order, attempts_of, digest_of
from spec_tests.support import builders
from spec_tests.support.faults import opened

ROUND_SECONDS = 120.0
"""A round that takes longer hangs, which is a violation."""


@dataclass(frozen=True, kw_only=True)
class ScheduledKill:
    """Kill the worker some seconds after it has written a number of notes."""

    after_notes: int
    delay: float


WORKERS = 4
ROUNDS_OF_A_TABLE = 12
PROGRESS_SECONDS = 10
DISTURBANCES = ("kills", "disk", "opens", "foreign")
ALLOWED = ALLOWED_BY_DEFAULT | {Maintenance.METADATA_CLEANUP}
POLICIES = (
    MaintenancePolicy(allowed=ALLOWED, backfill_every=None),
    MaintenancePolicy(allowed=ALLOWED, backfill_every=1),
    MaintenancePolicy(allowed=ALLOWED, backfill_every=3),
    MaintenancePolicy(allowed=ALLOWED, backfill_every=None, backlog_limit=25),
)


class Run:
    """One run on a directory, for a number of rounds or seconds."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        durable: bool,
        report: Callable[[Summary], None],
        without: Collection[str] = (),
    ) -> None:
        self._without = without
        self._stopped = False
        self._directory = directory
        self._random = random.Random(seed)
        self._durable = durable
        self._pool = WorkerPool(fork=True)
        self._running: dict[int, Worker] = {}
        self._report = report
        self._trouble = False
        self.summary = Summary(seed=seed)

    def run(self, *, rounds: int | None, seconds: float | None, keep_going: bool) -> Summary:
        started = time.perf_counter()

        def over() -> bool:
            late = seconds is not None and time.perf_counter() - started > seconds
            return self._stopped or late or (rounds is not None and self.summary.rounds >= rounds)

        with opened(self._directory):
            pass  # create the owner here; `test_storm` tests races for the first start
        with self._pool:
            while not over() and (keep_going or not self.summary.violations):
                life = self._new_table()
                try:
                    self._live(life, over)
                except (DeltaError, AssertionError, OSError) as error:
                    frames = "".join(traceback.format_tb(error.__traceback__)[-3:])
                    self._note_violations(life, [f"{type(error).__name__}: {error}\n{frames}"])
                self._report(self.summary)
        self.summary.seconds = round(time.perf_counter() - started, 3)
        self.summary.rounds_per_second = round(self.summary.rounds / self.summary.seconds, 2)
        return self.summary

    def _note_violations(self, life: TableLife, texts: Iterable[str]) -> None:
        where = f"round {self.summary.rounds}, {life.name} ({life.feature.name}, {life.commit_mode.value})"
        violations = [f"{where}: {text}" for text in texts]
        life.violated = life.violated or bool(violations)
        self.summary.violations += violations
        for text in violations:
            print(text, file=sys.stderr, flush=True)

    def stop(self, *_: object) -> None:
        """End after this round, and report the figures so far. Also a signal handler."""
        self._stopped = True

    def _new_table(self) -> TableLife:
        feature, commit_mode = self._random.choice(builders.FEATURES_AND_COMMIT_MODES)
        existing = self._random.random() < 0.25
        self.summary.tables += 1
        return TableLife(self.summary.tables, feature, commit_mode, self._random.choice(POLICIES), existing)

    def _live(self, life: TableLife, over: Callable[[], bool]) -> None:
        begin = self._take_over if life.existing else self._create
        begin(life)
        while not (over() or life.violated):
            for _ in range(self._random.randint(2, ROUNDS_OF_A_TABLE)):
                if over() or life.violated:
                    break
                self._work(life)
            if over() or life.violated:
                break
            self._work(life, hand_back=True)
            if not self._handed_back(life) or over() or self._random.random() >= 0.6:
                break
            self._take_over_again(life)
        self._end(life)

    # Rounds

    def _play(self, life: TableLife, roles: list[str], location: Path | None = None, former: str | None = None) -> None:
        """Run one round: orders, kills, failures, notes. `location`: of a table without an owner. `former`:
        its former id, which writers still use."""
        orders = []
        if self._happens("foreign", 0.6):
            roles = [*roles, "foreign"]
        self._trouble = self._happens("disk", 0.3)
        for role in roles:
            dies = self._happens("kills", 0.3)
            fails = self._trouble and self._random.random() < 0.6
            orders.append(
                Order(
                    role=role,
                    table=former if former and role == "write" else life.table_id or str(location or life.name),
                    name=life.name,
                    feature=life.feature.name,
                    commit_mode=life.commit_mode.value,
                    count=self._random.randint(1, 6),
                    seed=self._random.getrandbits(32),
                    die_after=self._random.randint(0, 60) if dies else None,
                    torn=self._random.random() < 0.5,
                    fail_after=self._random.randint(0, 60) if fails else None,
                    fail_count=self._random.choice((1, 1, 2, 5, 20)),
                    broken=self._random.random() < 0.6,
                    trouble=self._trouble,
                    owners=1 if "opens" in self._without else self._random.randint(1, 3),
                )
            )
        orders = [self._with_others(order, orders) for order in orders]
        kills = {
            number: ScheduledKill(after_notes=self._random.randint(1, 6), delay=self._random.random() ** 2 * 0.01)
            for number, order in enumerate(orders)
            if order.die_after is None and self._happens("kills", 0.3)
        }
        for number, note in self._round(orders, kills):
            if note.what == "try":
                if orders[number].table == former:
                    life.asked[note.attempt] = former
                if orders[number].role in ("create", "take-over", "hand-back"):
                    life.without_files.add(note.attempt)
            self._note_violations(life, life.noted(note, self.summary))
        self.summary.rounds += 1
        self._report(self.summary)
        if self._trouble:
            self._repair(life)

    def _round(self, orders: Sequence[Order], kills: dict[int, ScheduledKill]) -> Iterator[tuple[int, Note]]:
        """All notes of one round, as (worker, note), in the order in which each worker made them."""
        for number in range(len(orders)):
            if number not in self._running:
                self._running[number] = self._pool.start(str(number), worker.main, self._directory, self._durable)
            self._running[number].send(orders[number])
        busy = {self._running[number]: number for number in range(len(orders))}
        notes: Counter[int] = Counter()
        due: dict[Worker, float] = {}
        started = time.monotonic()
        while busy:
            if time.monotonic() - started > ROUND_SECONDS:
                raise TimeoutError(f"workers {sorted(busy.values())} hang")
            for process, note in self._pool.receive(0 if due else ROUND_SECONDS):
                number = busy[process]
                if isinstance(note, Ended):
                    del self._running[number], busy[process]
                    due.pop(process, None)
                    if note.code not in (0, -signal.SIGKILL):
                        yield number, Note(what="bug", text=f"{number} ended with code {note.code}: {note.error}")
                    continue
                yield number, note
                notes[number] += 1
                if note.what == "done" and not process.killed:
                    del busy[process]
                    due.pop(process, None)
                elif note.what != "done" and number in kills and notes[number] >= kills[number].after_notes:
                    due[process] = time.perf_counter() + kills.pop(number).delay
            for process in [process for process, moment in due.items() if time.perf_counter() >= moment]:
                process.kill()
                self.summary.killed_from_outside += 1
                del due[process]

    def _happens(self, disturbance: str, chance: float) -> bool:
        return self._random.random() < chance and disturbance not in self._without

    def _repair(self, life: TableLife) -> None:
        """Repair the warehouse, as an operator does after a disk failure."""
        with opened(self._directory) as warehouse:
            for action in repair(warehouse.owner):
                count(self.summary.repairs, action.code)
                if not action.done:
                    self._note_violations(life, [f"repair could not {action.code} {action.table}: {action.message}"])

    def _with_others(self, order: Order, orders: list[Order]) -> Order:
        """Let a resolver ask about the first attempts of each writer of this round."""
        if order.role != "resolve":
            return order
        attempts = [
            attempt
            for writer in orders
            if writer.role == "write"
            for attempt, _ in zip(attempts_of(writer.seed), range(4), strict=False)
        ]
        self._random.shuffle(attempts)
        return msgspec.structs.replace(order, others=tuple(attempts[: order.count]))

    def _create(self, life: TableLife) -> None:
        """All workers race to create the table. Exactly one wins the name, and each answer names the winner."""
        self.summary.races_for_version_0 += 1
        self._play(life, ["create"] * WORKERS)
        with opened(self._directory) as warehouse:
            for attempt, table_id in life.staged.items():
                self._resolve(warehouse, life, attempt, table_id)
            try:
                table = builders.owned(warehouse, life.name)
            except TableNotFoundError:
                winners = [
                    attempt
                    for attempt in life.attempts.values()
                    if attempt.answer is Answer.RATIFIED or attempt.resolved
                ]
                self._note_violations(life, [f"{w.attempt} won version 0, but the table is missing" for w in winners])
                table = builders.create(warehouse, life.feature, life.commit_mode, name=life.name)
                life.attempts.clear()
                self._record_own_commit(life, 0, table.history()[0])
            else:
                losers = [a for a, table_id in life.staged.items() if table_id != table.table_id]
                for attempt in losers:
                    lost = life.attempts.pop(attempt)
                    if lost.answer is Answer.RATIFIED or lost.resolved:
                        self._note_violations(life, [f"two creators won: {attempt} too"])
            self._drop_leftovers(warehouse)
            self._check_first(warehouse, life, table)

    def _drop_leftovers(self, warehouse: refimpl.Warehouse) -> None:
        """Drop the tables that dead creators left, as a program may do after a long wait."""
        with warehouse.owner.ledger.read() as view:
            left = [table.table_id for table in view.tables() if table.state is TableState.STAGING]
        for table_id in left:
            warehouse.owner.drop_table(table_id)

    def _take_over(self, life: TableLife) -> None:
        log = builders.filesystem_table(self._directory / life.name)
        for path in log.listing():
            self._record_own_commit(life, path.version, log.read(path.name))
        self._race_to_own(life, log, ["take-over", "take-over", "take-over", "filesystem"])

    def _take_over_again(self, life: TableLife) -> None:
        """Take the table over again, while other writers still write to the former owner's table."""
        former, life.table_id = life.table_id, None
        life.feature, life.commit_mode = self._random.choice(builders.FEATURES_AND_COMMIT_MODES)
        life.policy = self._random.choice(POLICIES)
        with opened(self._directory) as warehouse:
            assert former is not None
            life.asked |= {attempt: former for attempt in life.attempts if attempt not in life.asked}
            log = builders.owned(warehouse, former).log
        self._race_to_own(life, log, ["take-over", "take-over", "write", "filesystem"], former)

    def _race_to_own(self, life: TableLife, log: LogStore, roles: list[str], former: str | None = None) -> None:
        """Take-overs race with each other and with a filesystem writer."""
        self.summary.take_over_races += 1
        self._random.shuffle(roles)
        self._play(life, roles, log.location, former)
        with opened(self._directory) as warehouse:
            self._look_for_filesystem_commits(life, log)
            table = self._ensure_owned(warehouse, life, log)
            self._resolve_all(warehouse, life, table.table_id)
            self._check_first(warehouse, life, table)

    def _record_own_commit(self, life: TableLife, version: int, content: bytes) -> None:
        """Record a commit of this process, made before the workers started."""
        name = f"{EXTERNAL}{version}"
        life.attempts[name] = Attempt(name, version, digest_of(content), Answer.RATIFIED)
        life.without_files.add(name)

    def _look_for_filesystem_commits(self, life: TableLife, log: LogStore) -> None:
        """Look in the log whether a dead filesystem writer made its commit: there is no owner to ask."""
        for record in life.attempts.values():
            if record.attempt.startswith(EXTERNAL) and record.answer is Answer.IN_FLIGHT and record.resolved is None:
                name = log_path.commit(record.version)
                record.resolved = log.published(record.version) and digest_of(log.read(name)) == record.digest

    def _ensure_owned(self, warehouse: refimpl.Warehouse, life: TableLife, log: LogStore) -> builders.OwnedTable:
        """The owned table. If no process has taken it over yet, take it over now."""
        while True:
            version = max(log.published_versions()) + 1
            content, attempt = builders.ownership_change(life.feature, builders.START + version), builders.new_attempt()
            proposal = DirectProposal(attempt=attempt, content=content)
            outcome = warehouse.owner.take_over(
                log.location,
                life.name,
                life.feature,
                version,
                proposal,
                commit_mode=life.commit_mode,
                policy=builders.ON_REQUEST,
            )
            if isinstance(outcome, Ratified):
                life.attempts[attempt] = Attempt(attempt, version, digest_of(content), Answer.RATIFIED)
                life.without_files.add(attempt)
            owned_already = isinstance(outcome, Rejected) and outcome.reason is RejectionReason.OWNERSHIP_CHANGE
            if isinstance(outcome, Ratified) or owned_already:
                return builders.owned(warehouse, log.location)
            assert isinstance(outcome, Conflict), outcome  # the owner first completed an interrupted take-over

    def _check_first(self, warehouse: refimpl.Warehouse, life: TableLife, table: builders.OwnedTable) -> None:
        life.table_id = table.table_id
        warehouse.owner.set_policy(table.table_id, life.policy)
        self._check(warehouse, life)

    def _work(self, life: TableLife, *, hand_back: bool = False) -> None:
        roles = ["write", self._random.choice(("write", "transact"))]
        roles.append(self._random.choice(("write", "transact", "backfill", "resolve", "checkpoint")))
        if hand_back:
            roles.append("hand-back")
        elif self._random.random() < 0.1:
            roles = ["write", "write", "write", "clean-up"]
            life.cleaned = True
        else:
            roles.append(self._random.choice(("write", "transact", "read", "backfill", "resolve", "checkpoint")))
        self._play(life, roles)
        with opened(self._directory) as warehouse:
            assert life.table_id is not None
            warehouse.owner.attempt_outcome(
                life.table_id, builders.new_attempt()
            )  # keeps the promises of a dead process
            self._resolve_all(warehouse, life, life.table_id)
            self._check(warehouse, life)

    def _handed_back(self, life: TableLife) -> bool:
        with opened(self._directory) as warehouse:
            assert life.table_id is not None
            handed_back = warehouse.owner.resolve(life.table_id).state is TableState.HANDED_BACK
        self.summary.hand_backs += handed_back
        return handed_back

    def _resolve_all(self, warehouse: refimpl.Warehouse, life: TableLife, table_id: str) -> None:
        for record in list(life.attempts.values()):
            if record.answer is Answer.IN_FLIGHT and (record.digest or record.attempt in life.proposals):
                self._resolve(warehouse, life, record.attempt, life.asked.get(record.attempt, table_id))

    def _resolve(self, warehouse: refimpl.Warehouse, life: TableLife, attempt: str, table_id: str) -> None:
        record = life.attempts[attempt]
        if record.resolved is not None:
            return
        proposal = life.proposals.get(attempt, attempt)
        landed = isinstance(warehouse.owner.attempt_outcome(table_id, proposal), Landed)
        if record.answer is Answer.IN_FLIGHT:
            if landed:
                self.summary.in_flight_landed += 1
            else:
                self.summary.in_flight_not_landed += 1
        record.resolved = landed

    def _check(self, warehouse: refimpl.Warehouse, life: TableLife) -> None:
        self._note_violations(life, life.violations(warehouse, self._random))

    def _end(self, life: TableLife) -> None:
        if life.violated or life.table_id is None:
            return
        with opened(self._directory) as warehouse:
            table = builders.owned(warehouse, life.table_id)
            handed_back = warehouse.owner.resolve(life.table_id).state is TableState.HANDED_BACK
            if not handed_back:
                table.backfill()
            self._check(warehouse, life)
            if table.published() != sorted(life.seen)[-len(table.published()) :]:
                self._note_violations(life, [f"published only {table.published()}"])
            errors = [f for f in verify(warehouse.owner) if f.severity is Severity.ERROR and f.table == life.name]
            self._note_violations(life, [f"verify says {e.code}: {e.message}" for e in errors])
            if not handed_back:
                warehouse.owner.drop_table(life.table_id)
            if not life.violated:
                shutil.rmtree(table.location)


def main(arguments: list[str] | None = None) -> int:
    description, _, epilog = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="storm", description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--rounds", type=int, help="number of rounds (default: 200)")
    length.add_argument("--minutes", type=float, help="duration in minutes")
    parser.add_argument("--seed", type=int, default=1, help="seed of the orders (default: 1)")
    parser.add_argument("--rows", action="store_true", help="change the rows of one table (default: 20 minutes)")
    parser.add_argument("--spark", type=int, default=0, metavar="N", help="number of Spark drivers (with --rows)")
    parser.add_argument("--directory", type=Path, help="empty or new directory, kept afterwards")
    parser.add_argument("--no-fsync", action="store_true", help="do not sync files (faster; SIGKILL does not need it)")
    parser.add_argument(
        "--without", action="append", default=[], choices=DISTURBANCES, help="leave out a disturbance, to find a cause"
    )
    parser.add_argument("--keep-going", action="store_true", help="continue with another table after a violation")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    options = parser.parse_args(arguments)
    if options.rows and options.rounds is not None:
        parser.error("--rows has no rounds; expected --minutes")
    if options.spark and not options.rows:
        parser.error(f"--spark {options.spark} without --rows; add --rows")
    directory = options.directory or Path(tempfile.mkdtemp(prefix="storm-"))
    started = last = time.monotonic()

    def report(summary: Summary | rows.Summary) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > PROGRESS_SECONDS:
            last = now
            print(f"{(now - started) / 60:.1f} min: {summary.text()}", file=sys.stderr, flush=True)

    seconds = None if options.minutes is None else options.minutes * 60
    run = Run(directory.resolve(), options.seed, durable=not options.no_fsync, report=report, without=options.without)
    rows_run = rows.RowsRun(directory.resolve(), options.seed, options.spark, report)
    signal.signal(signal.SIGINT, rows_run.stop if options.rows else run.stop)
    signal.signal(signal.SIGTERM, rows_run.stop if options.rows else run.stop)
    summary: Summary | rows.Summary
    if options.rows:
        summary = rows_run.run(seconds or 20 * 60)
    else:
        rounds = 200 if options.rounds is None and seconds is None else options.rounds
        summary = run.run(rounds=rounds, seconds=seconds, keep_going=options.keep_going)
    if options.json:
        sys.stdout.buffer.write(msgspec.json.encode(summary) + b"\n")
    else:
        print(f"{summary.seconds / 60:.1f} min: {summary.text()}")
        for name, counts in msgspec.structs.asdict(summary).items():
            if isinstance(counts, dict):
                print(f"{name}: " + ", ".join(f"{counts[what]} {what}" for what in sorted(counts)))
    if options.directory is None and not summary.violations:
        shutil.rmtree(directory)
    else:
        print(f"kept: {directory}", file=sys.stderr)
    return 1 if summary.violations else 0


if __name__ == "__main__":
    sys.exit(main())
