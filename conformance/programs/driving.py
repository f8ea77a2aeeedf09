"""Runs the steps of a program on a subject and on the model: every answer must be possible in some world."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Final, NoReturn

from conformance.interface import messages as m
from conformance.models.proposals import attempt_of
from conformance.oracle import owner as model
from conformance.oracle.folder import Kind
from conformance.oracle.owner import Contract, Worlds, Wrong
from conformance.programs import steps
from conformance.programs.steps import CLIENTS, Fate
from conformance.programs.watching import Logs, Watch
from conformance.scenario import ownership
from conformance.scenario.formatting import in_words
from conformance.scenario.scenario import Delayed, Exchange, Inconclusive, Scenario, TableHandle

NAMES: Final = ("orders", "returns")
"""Of the tables."""


@dataclass(slots=True, kw_only=True)
class DrivenTable:
    """A table, and the program's knowledge of it."""

    handle: TableHandle
    worlds: Worlds = model.UNKNOWN_TABLE
    sent: list[m.Commit | m.CreateTable] = field(default_factory=list)
    """Every proposal, once."""
    ratified: dict[m.Version, Exchange] = field(default_factory=dict)
    """The exchange that first returned a version, by version."""
    limit: int | None = None
    seen: dict[m.Version, str] = field(default_factory=dict)
    """The content of published versions."""

    @property
    def known(self) -> bool:
        """Whether the subject's reference to it is known."""
        return bool(self.handle.reference)

    @property
    def newest(self) -> m.Version:
        """The newest version in the world with most versions."""
        return max(world.newest for world in self.worlds)

    @property
    def surely(self) -> m.Version:
        """The newest version in the world with fewest versions, which surely exists."""
        return min(world.newest for world in self.worlds)

    def proposal(self, which: int, *, unsettled: bool) -> m.Commit | m.CreateTable:
        """A proposal that was sent, counted from the last one."""
        unresolved = [sent for sent in self.sent if any(world.landed(sent.attempt) is None for world in self.worlds)]
        candidates = unresolved if unresolved and unsettled else self.sent
        return candidates[-1 - which % len(candidates)]

    @property
    def dropped(self) -> bool:
        """Whether the proposal may have landed."""
        return any(world.dropped for world in self.worlds)


class Drive:
    """One scenario. `do` raises `Violated` or `Inconclusive`, which ends it."""

    def __init__(self, s: Scenario) -> None:
        self.s = s
        identity = s.identity
        self.contract = Contract(
            feature=s.feature,
            commit_mode=s.commit_mode,
            profiles=frozenset(identity.profiles),
            promises=frozenset(identity.promises),
        )
        self.logs = Logs[DrivenTable](self.contract)
        self.tables: dict[int, DrivenTable] = {}
        self.in_flight: list[tuple[DrivenTable, Delayed]] = []
        self.ratified = 0
        """Commits that were answered as ratified."""

    def do(self, step: steps.Step) -> None:
        """Do one step; a step that is not possible yet is skipped."""
        self._do(step)
        self._follow()

    def watch(self, number: int) -> None:
        """A reader requests the commits, and an external observer lists the files."""
        table = self.tables.get(number % len(NAMES))
        if table is not None and table.known and not table.dropped:
            self._do(steps.Read(table=number, client=-1))
            self._look(table)

    def end(self) -> None:
        """Read all tables again, and look up those whose creation got no answer."""
        for number, table in sorted(self.tables.items()):
            if not table.known and table.newest >= 0 and not table.dropped:
                self._find(number, table)
            self.watch(number)
        self._follow()

    def _find(self, number: int, table: DrivenTable) -> None:
        if "discovery" in self.contract.profiles:
            self._do(steps.Load(table=number, client=-1))
        else:
            for request in list(table.sent):
                self._send(table, "kit", request, Fate.ANSWERED)
        if not table.known and table.newest >= 0:
            raise Inconclusive(f"the subject never returned a reference to the table {table.handle.name}")

    # Steps

    @singledispatchmethod
    def _do(self, step: steps.Step) -> None:
        """A restart: the only step without a table and a request."""
        assert isinstance(step, steps.Restart)
        ownership.crash(self.s)
        ownership.restart(self.s)

    @_do.register
    def _watch(self, step: steps.Look) -> None:
        self.watch(step.table)

    @_do.register
    def _create(self, step: steps.Create) -> None:
        before = self.tables.get(step.table % len(NAMES))
        name = NAMES[step.table % len(NAMES)]
        table = before
        if before is None or all(world.dropped for world in before.worlds):
            again = name if before is None else f"{before.handle.name} again"
            table = DrivenTable(handle=TableHandle(name=again, reference="", versions=0))
            self.tables[step.table % len(NAMES)] = table
        elif before.dropped:  # it is unknown whether the name is free
            return
        assert table is not None
        options: dict[str, object] = {"backfill": "subject" if step.by_subject else "on-request"}
        if (
            not table.sent
            and step.limit
            and "backlog-limit" in self.contract.profiles
            and self.contract.commit_mode != "direct"
        ):
            table.limit = step.limit
        if table.limit is not None:
            options["backlog_limit"] = table.limit
        self._send(table, _client(step.client), self.s.creation(name, **options), step.fate)

    @_do.register
    def _commit(self, step: steps.Commit) -> None:
        table = self._table(step.table)
        if table is not None:
            version = max(1, table.newest + 1 + step.ahead)
            self._send(table, _client(step.client), self.s.proposal(table.handle, version), step.fate)

    @_do.register
    def _resend(self, step: steps.Resend) -> None:
        table = self.tables.get(step.table % len(NAMES))
        if table is None or not table.sent:
            return
        request = table.proposal(step.which, unsettled=step.unsettled)
        if step.resolved:
            self._find_out(table, _client(step.client + 1), request.attempt, Fate.ANSWERED)
        if isinstance(request, m.Commit) or not table.dropped:  # the replay would create another table
            self._send(table, _client(step.client), request, step.fate)

    @_do.register
    def _deliver(self, step: steps.Deliver) -> None:
        if not self.in_flight:
            return
        table, delayed = self.in_flight.pop(step.which % len(self.in_flight))
        if step.given_up:
            self.s.give_up(delayed)
            self.s.deliver(delayed)
            table.worlds = model.lost(table.worlds, delayed.request)
        else:
            self._hear(table, self.s.deliver(delayed))

    @_do.register
    def _resolve(self, step: steps.Resolve) -> None:
        table = self._table(step.table)
        if table is not None and table.sent:
            attempt = table.proposal(step.which, unsettled=step.unsettled).attempt
            self._find_out(table, _client(step.client), attempt, step.fate)

    def _find_out(self, table: DrivenTable, client: str, attempt: m.AttemptId, fate: Fate) -> None:
        if table.known and "attempt-outcome" in self.contract.profiles:
            self._send(table, client, m.AttemptOutcome(table=table.handle.reference, attempt=attempt), fate)

    @_do.register
    def _read(self, step: steps.Read) -> None:
        table = self._table(step.table)
        if table is None:
            return
        request = m.GetCommits(table=table.handle.reference, start=step.start, end=step.end)
        exchange = self.s.ask(_client(step.client), request, table.handle)
        self._hear(table, exchange)
        if isinstance(exchange.answer, m.Commits):
            self._listed(table, exchange, exchange.answer.commits, exchange.answer.latest, step.start, step.end)

    @_do.register
    def _load(self, step: steps.Load) -> None:
        table = self.tables.get(step.table % len(NAMES))
        if table is None:
            return
        exchange = self.s.ask(
            _client(step.client), m.LoadTable(name=self.s.physical(NAMES[step.table % len(NAMES)])), table.handle
        )
        self._hear(table, exchange)
        if isinstance(exchange.answer, m.Table):
            self._named(table, exchange.answer.table)
            if exchange.answer.commits is not None:
                self._listed(table, exchange, exchange.answer.commits, exchange.answer.latest)

    @_do.register
    def _backfill(self, step: steps.Backfill) -> None:
        table = self._table(step.table)
        if table is None or table.dropped:
            return
        version = max(0, table.newest - step.behind)
        request = m.BackfillToVersion(table=table.handle.reference, version=version)
        exchange = self.s.ask(_client(step.client), request, table.handle)
        self._hear(table, exchange)
        if isinstance(exchange.answer, m.Done):
            last, published = min(version, table.surely), self._look(table)
            self.s.require(
                max(published, default=-1) >= last, "MC-BACKFILL-05", "CM-PUBLISH-06", evidence=(exchange,),
                table=table.handle, version=last, expected=f"every version up to {last} is published: the request to "
                f"backfill up to {version} was answered as done", observed=f"{sorted(published)} are published",
            )  # fmt: skip

    @_do.register
    def _drop(self, step: steps.Drop) -> None:
        table = self._table(step.table)
        if table is None or table.dropped:
            return
        self.watch(step.table)  # the owner may forget a dropped table
        table.handle.final = self.s.log_of(table.handle)
        self.in_flight = [delayed for delayed in self.in_flight if delayed[0] is not table]
        exchange = self.s.ask(_client(step.client), m.DropTable(table=table.handle.reference), table.handle)
        if isinstance(exchange.answer, m.Unknown):
            raise Inconclusive(f"it is unknown whether {table.handle.name} was dropped, and what its last log is")
        self._hear(table, exchange)
        if not table.dropped:
            table.handle.final = None

    # Requests, and the conclusions from their answers

    def _table(self, number: int) -> DrivenTable | None:
        """The table, if its reference is known."""
        table = self.tables.get(number % len(NAMES))
        return table if table is not None and table.known else None

    def _send(self, table: DrivenTable, client: str, request: m.Request, fate: Fate) -> None:
        if isinstance(request, m.Commit | m.CreateTable) and request not in table.sent:
            table.sent.append(request)
        if fate is Fate.DELAYED:
            self.in_flight.append((table, self.s.delay(client, request, table.handle)))
        elif fate is Fate.LOST:
            self.s.lose(client, request, table.handle)
            table.worlds = model.lost(table.worlds, request)
        else:
            self._hear(table, self.s.ask(client, request, table.handle))

    def _hear(self, table: DrivenTable, exchange: Exchange) -> None:
        """Exclude the worlds in which the answer is impossible; at least one must remain."""
        before = table.newest
        self._keep(table, exchange, model.judge(table.worlds, self.contract, exchange.request, exchange.answer))
        if isinstance(exchange.answer, m.Ratified):
            self.ratified += isinstance(exchange.request, m.Commit)
            table.ratified.setdefault(exchange.answer.version, exchange)
            self._named(table, exchange.answer.table)
            if self.contract.commit_mode == "direct" and isinstance(exchange.request, m.Commit) and not table.dropped:
                self._is_visible(table, exchange)
        elif isinstance(exchange.answer, m.Conflict):
            self._named(table, exchange.answer.winner_table)
        if table.limit is not None and table.newest > before:
            self._within_limit(table, exchange)

    def _keep(self, table: DrivenTable, exchange: Exchange | None, outcome: Worlds | Wrong) -> None:
        if isinstance(outcome, Wrong):
            observed = outcome.observed or ("" if exchange is None else in_words(exchange.answer))
            self._wrong(table, outcome._replace(observed=observed), exchange)
        table.worlds = outcome
        table.handle.versions = max(table.handle.versions, table.surely + 1)

    def _wrong(self, table: DrivenTable, wrong: Wrong, *exchanges: Exchange | None) -> NoReturn:
        """`exchanges`: what contradicts the commit of the version."""
        because = None if wrong.version is None else table.ratified.get(wrong.version)
        evidence = {exchange.number: exchange for exchange in (*exchanges, because) if exchange is not None}
        self.s.fail(
            *wrong.requirements, evidence=list(evidence.values()), expected=wrong.expected, table=table.handle,
            version=wrong.version, observed=wrong.observed,
        )  # fmt: skip

    def _named(self, table: DrivenTable, reference: str | None) -> None:
        if reference and not table.known:
            table.handle.reference = reference
            self.s.tables.append(table.handle)

    # Invariants

    def _follow(self) -> None:
        """Judge what happened in the log folders."""
        watch = self.s.subject
        if not isinstance(watch, Watch):
            return
        for event in watch.events():
            table, wrong = self.logs.judge(event, self.tables.values(), watch)
            if table is None:
                continue
            if event.kind is Kind.APPEARED and not event.by_kit and not table.dropped:
                outcome = model.visible(table.worlds, {event.version: event.attempt})
                wrong = outcome if isinstance(outcome, Wrong) else wrong
            if wrong is not None:
                self._wrong(table, wrong, *(self.s.under_way(call.request) for call in event.during))

    def _look(self, table: DrivenTable) -> dict[m.Version, str]:
        """The published commits are a prefix of the ratified ones, and no published commit disappears."""
        seen = self.s.published(table.handle)
        if sorted(seen) != list(range(len(seen))) or not set(table.seen) <= set(seen):
            seen = {**self.s.published(table.handle), **seen}  # a listing is not atomic
        missing = set(range(max(seen, default=-1) + 1)) - set(seen)
        for version in sorted(set(table.seen) - set(seen)):
            self.s.fail(
                "MC-FILES-08", "CM-FILES-07", table=table.handle, version=version, observed="it is missing",
                expected=f"version {version}, which was published, stays until a cleanup",
            )  # fmt: skip
        if missing:
            self.s.fail(
                "MC-BACKFILL-03", "CM-PUBLISH-06", table=table.handle, version=min(missing),
                expected=f"version {min(missing)} is published before version {max(seen)}",
                observed=f"published are versions {sorted(seen)}",
            )  # fmt: skip
        for version, content in seen.items():
            if table.seen.setdefault(version, content) != content:
                self.s.fail(
                    "CM-PUBLISH-03", "MC-FILES-08", table=table.handle, version=version,
                    expected=f"version {version} never changes", observed="its file had two contents, in this order",
                )  # fmt: skip
        identities = {version: attempt_of(content) for version, content in seen.items()}
        self._keep(table, None, model.visible(table.worlds, identities))
        return seen

    def _listed(
        self,
        table: DrivenTable,
        exchange: Exchange,
        commits: Sequence[m.CommitEntry],
        latest: int | None,
        start: int | None = None,
        end: int | None = None,
    ) -> None:
        """Every unlisted version is published."""
        if latest in model.NONE or latest is None or table.dropped:
            return
        last = latest if end is None else min(end, latest)
        omitted = set(range(start or 0, last + 1)) - {commit.version for commit in commits} - set(table.seen)
        forgotten = sorted(omitted - set(self._look(table))) if omitted else []
        if forgotten:
            self.s.fail(
                "MC-GET-01", "CM-GET-03", "MC-FILES-06", "CM-STORE-09", evidence=(exchange,), table=table.handle,
                version=forgotten[0], expected=f"version {forgotten[0]}, ratified and not published, is listed",
                observed=f"listed are versions {[commit.version for commit in commits]}",
            )  # fmt: skip

    def _is_visible(self, table: DrivenTable, exchange: Exchange) -> None:
        assert isinstance(exchange.answer, m.Ratified)
        version = exchange.answer.version
        self.s.require(
            version in self._look(table), "PROFILE-DIRECT-01", "MC-COMMIT-05", "CM-COMMIT-05", evidence=(exchange,),
            table=table.handle, version=version, observed="it is not",
            expected=f"version {version}, which was ratified by publishing it, is published",
        )  # fmt: skip

    def _within_limit(self, table: DrivenTable, exchange: Exchange) -> None:
        published = max(self._look(table), default=-1)
        assert table.limit is not None
        self.s.require(
            table.surely - published <= table.limit, "PROFILE-BACKLOG-01", evidence=(exchange,), table=table.handle,
            version=table.surely, expected=f"at most {table.limit} unbackfilled commits: {published} is published, "
            f"so nothing is ratified after version {published + table.limit}",
            observed=f"version {table.surely} is ratified",
        )  # fmt: skip


def _client(number: int) -> str:
    return "watcher" if number < 0 else f"client {number % CLIENTS}"
