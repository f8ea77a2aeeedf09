"""Rounds of competing processes, some of which are killed, each followed by an exact check.

    python -m spec_tests.processes.kill_rounds --rounds 2000 --seed 1 [--json]

A table lives for some rounds: creators race for its name (or owners-to-be and a filesystem writer for
an existing table), then writers, backfillers, readers and resolvers work on it at once, at last somebody
hands it back while others write. Each round kills some of them, from outside at a random moment or by
their own hand at a random effect. The seed fixes the orders, not the schedule.

Exit status: 0 nothing was lost, 1 something was, 2 usage.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

import refimpl
from refimpl import log_path
from refimpl.commit_owner import MaintenancePolicy, TableState
from refimpl.commits import Conflict, DirectProposal, Landed, Ratified, Rejected, RejectionReason
from refimpl.errors import DeltaError, TableNotFoundError
from refimpl.log_store import LogStore
from refimpl.owner.verify import Severity, verify
from refimpl.table_feature import TableFeature, Way
from spec_tests.processes.crew import Crew, Shot
from spec_tests.processes.judging import Answer, Try, violations
from spec_tests.processes.worker import STRANGER, Note, Order, attempts_of, digest_of
from spec_tests.support.builders import (
    DIALECTS_AND_WAYS,
    ON_REQUEST,
    START,
    OwnedTable,
    create,
    filesystem_table,
    new_attempt,
    owned,
    ownership_change,
)
from spec_tests.support.faults import opened

WORKERS = 4
ROUNDS_OF_A_TABLE = 12
POLICIES = (
    ON_REQUEST,
    MaintenancePolicy(backfill_every=1),
    MaintenancePolicy(backfill_every=3),
    MaintenancePolicy(backfill_every=None, backlog_limit=25),
)


class Summary(msgspec.Struct, kw_only=True):
    """What a run did. `violations` is empty if nothing was lost."""

    seed: int
    rounds: int = 0
    seconds: float = 0.0
    rounds_per_second: float = 0.0
    tables: int = 0
    attempts: int = 0
    acknowledged: int = 0
    refused: int = 0
    in_flight_landed: int = 0
    in_flight_not_landed: int = 0
    races_for_version_0: int = 0
    take_over_races: int = 0
    hand_backs: int = 0
    shot: int = 0
    deaths_by_effect: dict[str, int] = {}
    violations: list[str] = []


@dataclass
class Series:
    """The life of one table."""

    number: int
    feature: TableFeature
    way: Way
    policy: MaintenancePolicy
    existing: bool
    """Whether it starts as a filesystem table."""
    tries: dict[str, Try] = field(default_factory=dict)
    staged: dict[str, str] = field(default_factory=dict)
    """Attempt at version 0 -> the table that it would make."""
    resolved: dict[str, bool] = field(default_factory=dict)
    seen: dict[int, str] = field(default_factory=dict)
    table_id: str | None = None

    @property
    def name(self) -> str:
        return f"t{self.number}"


class Run:
    """One run: `rounds` rounds on a directory."""

    def __init__(self, directory: Path, seed: int, *, durable: bool, report: Callable[[Summary], None]) -> None:
        self._directory = directory
        self._random = random.Random(seed)
        self._crew = Crew(directory, WORKERS, durable)
        self._report = report
        self.summary = Summary(seed=seed)

    def rounds(self, count: int) -> Summary:
        started = time.perf_counter()
        with opened(self._directory):
            pass  # the workers do not race for the first start here: `test_races` does that
        try:
            while self.summary.rounds < count and not self.summary.violations:
                self._live(self._new_series(), count)
        except (DeltaError, AssertionError, OSError) as error:
            self.summary.violations.append(f"{type(error).__name__}: {error}")
        finally:
            self._crew.dismiss()
        self.summary.seconds = round(time.perf_counter() - started, 3)
        self.summary.rounds_per_second = round(self.summary.rounds / self.summary.seconds, 2)
        deaths = self._crew.deaths
        self.summary.shot = deaths.get("shot", 0)
        self.summary.deaths_by_effect = {k: deaths[k] for k in sorted(deaths) if k != "shot"}
        return self.summary

    def _new_series(self) -> Series:
        feature, way = self._random.choice(DIALECTS_AND_WAYS)
        existing = self._random.random() < 0.25
        self.summary.tables += 1
        return Series(self.summary.tables, feature, way, self._random.choice(POLICIES), existing)

    def _live(self, series: Series, count: int) -> None:
        begin = self._take_over if series.existing else self._create
        begin(series)
        for turn in range(ROUNDS_OF_A_TABLE):
            if self.summary.rounds >= count or self.summary.violations:
                break
            last = turn == ROUNDS_OF_A_TABLE - 1
            self._work(series, farewell=last)
        self._end(series)

    # Rounds

    def _play(self, series: Series, roles: list[str], **facts: object) -> None:
        """One round: orders, kills, notes."""
        orders = []
        for role in roles:
            suicide = self._random.random() < 0.3
            orders.append(
                Order(
                    role=role,
                    table=series.table_id or series.name,
                    feature=series.feature.name,
                    way=series.way.value,
                    count=self._random.randint(1, 6),
                    seed=self._random.getrandbits(32),
                    die_after=self._random.randint(0, 25) if suicide else None,
                    torn=self._random.random() < 0.5,
                )
            )
        orders = [self._with_others(order, orders) for order in orders]
        shots = {
            place: Shot(after_notes=self._random.randint(1, 6), delay=self._random.random() ** 2 * 0.01)
            for place, order in enumerate(orders)
            if order.die_after is None and self._random.random() < 0.3
        }
        for _, note in self._crew.round(orders, shots):
            self._noted(series, note)
        self.summary.rounds += 1
        self._report(self.summary)

    def _with_others(self, order: Order, orders: list[Order]) -> Order:
        """A resolver asks about the first attempts of each writer of this very round."""
        if order.role != "resolve":
            return order
        asked = [
            attempt
            for writer in orders
            if writer.role == "write"
            for attempt, _ in zip(attempts_of(writer.seed), range(4), strict=False)
        ]
        self._random.shuffle(asked)
        return msgspec.structs.replace(order, others=tuple(asked[: order.count]))

    def _noted(self, series: Series, note: Note) -> None:
        match note.what:
            case "try":
                series.tries[note.attempt] = Try(note.attempt, note.version, note.digest)
                if note.text:
                    series.staged[note.attempt] = note.text
                self.summary.attempts += 1
            case "ratified" | "registered":
                series.tries[note.attempt].answer = Answer.RATIFIED
                self.summary.acknowledged += 1
            case "refused":
                series.tries[note.attempt].answer = Answer.REFUSED
                self.summary.refused += 1
            case "resolved":
                if series.resolved.setdefault(note.attempt, note.landed) != note.landed:
                    self.summary.violations.append(f"attempt {note.attempt} was resolved both ways")
            case "dying":
                effect = re.sub(r"(t?\d+|kill)(?=\.json|/)", "#", note.text)
                self._crew.deaths[effect] = self._crew.deaths.get(effect, 0) + 1
            case "bug":
                self.summary.violations.append(f"{series.name}, a worker: {note.text}")

    def _create(self, series: Series) -> None:
        """Version 0 raced by everybody; exactly one name, and everybody who was answered knows whose."""
        self.summary.races_for_version_0 += 1
        self._play(series, ["create"] * WORKERS)
        with opened(self._directory) as warehouse:
            for attempt, table_id in series.staged.items():
                self._resolve(warehouse, series, attempt, table_id)
            try:
                table = owned(warehouse, series.name)
            except TableNotFoundError:
                winners = [each for each in series.tries.values() if each.answer is Answer.RATIFIED or each.resolved]
                self.summary.violations += [f"{series.name}: {w.attempt} won version 0, which is gone" for w in winners]
                table = create(warehouse, series.feature, series.way, name=series.name)
                series.tries.clear()
                self._made(series, 0, table.history()[0])
            else:
                losers = [a for a, table_id in series.staged.items() if table_id != table.table_id]
                for attempt in losers:
                    lost = series.tries.pop(attempt)
                    if lost.answer is Answer.RATIFIED or lost.resolved:
                        self.summary.violations.append(f"{series.name}: two creators won: {attempt} too")
            self._drop_leftovers(warehouse)
            self._settle_in(warehouse, series, table)

    def _drop_leftovers(self, warehouse: refimpl.Warehouse) -> None:
        """What creators that died left behind, as somebody would who waited for them long enough."""
        with warehouse.owner.ledger.read() as view:
            left = [table.table_id for table in view.tables() if table.state is TableState.STAGING]
        for table_id in left:
            warehouse.owner.drop_table(table_id)

    def _take_over(self, series: Series) -> None:
        """Owners-to-be race with each other and with a filesystem writer."""
        self.summary.take_over_races += 1
        with opened(self._directory) as warehouse:
            log = filesystem_table(self._directory / series.name)
            for path in log.listing():
                self._made(series, path.version, log.read(path.name))
        roles = ["take-over", "take-over", "take-over", "filesystem"]
        self._random.shuffle(roles)
        self._play(series, roles)
        with opened(self._directory) as warehouse:
            self._look_for_filesystem_commits(series, log)
            table = self._owned_at_last(warehouse, series, log)
            for each in series.tries.values():
                if each.answer is Answer.IN_FLIGHT:
                    self._resolve(warehouse, series, each.attempt, table.table_id)
            self._settle_in(warehouse, series, table)

    def _made(self, series: Series, version: int, content: bytes) -> None:
        """What this process committed itself, before the workers came."""
        name = f"{STRANGER}{version}"
        series.tries[name] = Try(name, version, digest_of(content), Answer.RATIFIED)

    def _look_for_filesystem_commits(self, series: Series, log: LogStore) -> None:
        """A filesystem writer that died left its file or did not: there is nobody to ask."""
        for each in series.tries.values():
            if each.attempt.startswith(STRANGER) and each.answer is Answer.IN_FLIGHT:
                name = log_path.commit(each.version)
                each.resolved = log.published(each.version) and digest_of(log.read(name)) == each.digest

    def _owned_at_last(self, warehouse: refimpl.Warehouse, series: Series, log: LogStore) -> OwnedTable:
        """The taken-over table: taken over now if nobody had the luck to."""
        while True:
            version = len(log.listing())
            content, attempt = ownership_change(series.feature, START + version), new_attempt()
            proposal = DirectProposal(attempt=attempt, content=content)
            outcome = warehouse.owner.take_over(
                log.location, series.name, series.feature, version, proposal, way=series.way, policy=ON_REQUEST
            )
            if isinstance(outcome, Ratified):
                series.tries[attempt] = Try(attempt, version, digest_of(content), Answer.RATIFIED)
            if isinstance(outcome, Ratified | Rejected):
                return owned(warehouse, log.location)
            assert isinstance(outcome, Conflict), outcome  # an interrupted one was completed first

    def _settle_in(self, warehouse: refimpl.Warehouse, series: Series, table: OwnedTable) -> None:
        series.table_id = table.table_id
        warehouse.owner.set_policy(table.table_id, series.policy)
        self._check(warehouse, series)

    def _work(self, series: Series, *, farewell: bool) -> None:
        roles = ["write", "write", self._random.choice(("write", "backfill", "resolve")), None]
        roles[3] = "hand-back" if farewell else self._random.choice(("write", "read", "backfill", "resolve"))
        self._play(series, [role for role in roles if role is not None])
        with opened(self._directory) as warehouse:
            assert series.table_id is not None
            for each in list(series.tries.values()):
                if each.answer is Answer.IN_FLIGHT and each.resolved is None:
                    self._resolve(warehouse, series, each.attempt, series.table_id)
            self._check(warehouse, series)

    def _resolve(self, warehouse: refimpl.Warehouse, series: Series, attempt: str, table_id: str) -> None:
        each = series.tries[attempt]
        if each.resolved is not None:
            return
        landed = isinstance(warehouse.owner.attempt_outcome(table_id, attempt), Landed)
        if each.answer is Answer.IN_FLIGHT:
            if landed:
                self.summary.in_flight_landed += 1
            else:
                self.summary.in_flight_not_landed += 1
        each.resolved = landed

    # Checks

    def _check(self, warehouse: refimpl.Warehouse, series: Series) -> None:
        assert series.table_id is not None
        table = owned(warehouse, series.table_id)
        for attempt, landed in series.resolved.items():
            if attempt in series.tries:
                series.tries[attempt].resolved = landed
        contents = table.history()
        history = {version: digest_of(content) for version, content in contents.items()}
        found = list(violations(history, table.published(), series.tries, series.seen))
        found += self._replays(table, series, contents)
        resolved = warehouse.owner.resolve(series.table_id)
        if resolved.halted is not None:
            found.append(f"halted: {resolved.halted}")
        self.summary.violations += [
            f"{series.name} ({series.feature.name}, {series.way.value}): {text}" for text in found
        ]
        series.seen = history

    def _replays(self, table: OwnedTable, series: Series, contents: dict[int, bytes]) -> Iterator[str]:
        """An attempt that landed is answered so again; one that was resolved otherwise is refused, for ever."""
        known = [each for each in series.tries.values() if not each.attempt.startswith(STRANGER)]
        for each in self._random.sample(known, min(2, len(known))):
            content = contents.get(each.version, b"")
            landed = digest_of(content) == each.digest
            if each.version == 0 or (not landed and each.resolved is not False):
                continue
            proposal = table.propose(each.version, content or b"{}\n", attempt=each.attempt, way=Way.DIRECT)
            outcome = table.owner.commit(table.table_id, each.version, proposal)
            if landed and not (isinstance(outcome, Ratified) and outcome.replayed):
                yield f"the replay of {each.attempt}, which is version {each.version}, was answered {outcome}"
            refused = isinstance(outcome, Rejected) and outcome.reason is RejectionReason.ATTEMPT_RESOLVED
            if not landed and not refused:
                yield f"{each.attempt} was resolved as never to land, and was answered {outcome}"

    def _end(self, series: Series) -> None:
        if self.summary.violations or series.table_id is None:
            return
        with opened(self._directory) as warehouse:
            table = owned(warehouse, series.table_id)
            handed_back = warehouse.owner.resolve(series.table_id).state is TableState.HANDED_BACK
            self.summary.hand_backs += handed_back
            if not handed_back:
                table.backfill()
            self._check(warehouse, series)
            if table.published() != sorted(series.seen):
                self.summary.violations.append(f"{series.name}: published only {table.published()}")
            errors = [f for f in verify(warehouse.owner) if f.severity is Severity.ERROR and f.table == series.name]
            self.summary.violations += [f"{series.name}: verify says {e.code}: {e.message}" for e in errors]
            if not handed_back:
                warehouse.owner.drop_table(series.table_id)
            if not self.summary.violations:
                shutil.rmtree(table.location)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kill_rounds", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="an empty or missing directory that is kept")
    parser.add_argument("--no-fsync", action="store_true", help="faster: death by SIGKILL does not depend on it")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    options = parser.parse_args(arguments)
    directory = options.directory or Path(tempfile.mkdtemp(prefix="kill-rounds-"))
    last = [0.0]

    def report(summary: Summary) -> None:
        now = time.monotonic()
        if now - last[0] > 2:
            last[0] = now
            text = f"{summary.rounds}/{options.rounds} rounds, {summary.acknowledged} commits acknowledged"
            print(text, file=sys.stderr, flush=True)

    run = Run(directory.resolve(), options.seed, durable=not options.no_fsync, report=report)
    summary = run.rounds(options.rounds)
    if options.json:
        sys.stdout.buffer.write(msgspec.json.encode(summary) + b"\n")
    else:
        deaths = summary.shot + sum(summary.deaths_by_effect.values())
        print(
            f"{summary.rounds} rounds in {summary.seconds:.1f} s ({summary.rounds_per_second}/s): {deaths} processes "
            f"killed, {summary.attempts} attempts, {summary.acknowledged} acknowledged, "
            f"{summary.in_flight_landed + summary.in_flight_not_landed} resolved, "
            f"{len(summary.violations)} violations"
        )
    for text in summary.violations:
        print(text, file=sys.stderr)
    if options.directory is None and not summary.violations:
        shutil.rmtree(directory)
    else:
        print(f"kept: {directory}", file=sys.stderr)
    return 1 if summary.violations else 0


if __name__ == "__main__":
    sys.exit(main())
