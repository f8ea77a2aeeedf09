"""Does the steps of a program on a subject, and judges every answer and every listing by the oracle."""

import string
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import singledispatchmethod
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import msgspec

from conformance.adapters.uc.owner import table_name
from conformance.interface import log_names
from conformance.interface import messages as m
from conformance.interface.log_names import (
    LOG,
    STAGING,
    checkpoint_file,
    checksum_file,
    commit_file,
    compacted_file,
    version_of,
)
from conformance.interface.subject import GONE, LONG_PAUSES, refused_for_now
from conformance.models import proposals
from conformance.models.log_files import HINT, checkpoint_parquet
from conformance.models.owner import OWNER_PROPERTY
from conformance.oracle import contents as oracle_contents
from conformance.oracle import owner as model
from conformance.oracle.contents import Proposal
from conformance.oracle.folder import AFTER_DROP, Kind
from conformance.oracle.owner import Contract, Facts, State, Worlds, Wrong
from conformance.programs import contents, delta_api, steps
from conformance.programs.steps import CLIENTS, TABLES, By, Fate
from conformance.programs.together import MOST, Call, Impossible, Overlapping, concurrently, judge_together, published
from conformance.programs.watching import Logs, Watch
from conformance.scenario import ownership, storage_access
from conformance.scenario.check import applies
from conformance.scenario.formatting import answered
from conformance.scenario.scenario import TRIES, Delayed, Exchange, Inconclusive, Scenario, TableHandle

NAMES: Final = (
    ("orders", "returns"),
    ("orders", "orders1"),
    *(("n" * length + "a", "n" * length + "b") for length in (63, 127, 200)),
    ("\u0437\u0430\u043a\u0430\u0437", "\u0442\u043e\u0432\u0430\u0440"),
    ("anb", "a_b"),
    ("orders", "constructor"),
    ("orders", "Orders"),
    ("caf\u00e9", "cafe\u0301"),
    ("a/b", "a_b"),
    ("a b", "a_b"),
    ("a%20b", "a b"),
    ("a/b", "a//b"),
    ("a.b", "a_b"),
)
"""The names of the two tables, by class. A subject may reject other names than identifiers."""
ALIKE: Final = 8
"""From this class on, a subject may treat the two as one name."""
PATHS: Final = ("imports", "gr\u00f6\u00dfe a%20b+c", "a b", "a%20b")
"""The names of the folders of filesystem tables."""
IN_EVERY_PATH: Final = frozenset(string.ascii_letters + string.digits + "/._-")
"""The characters of a path that no owner refuses."""
STRAYS: Final = (
    checkpoint_file,
    checksum_file,
    lambda version: compacted_file(version - 1, version),
    lambda version: f"{version:020}.json.tmp",
    lambda version: f"notes-{version}.txt",
)
"""The names of files that are no commits, by a version above the newest one."""
WORLDS: Final = 64
"""With more possible states a program is inconclusive."""
STAYS_STAGED: Final = "RULING-RELEASE-01"
"""The advice to publish a hand-back at the latest on request."""
LOOKED: Final = 40
"""The number of versions up to which the files are listed after each direct commit."""


@dataclass(slots=True, kw_only=True)
class DrivenTable:
    """A table, and the program's knowledge of it."""

    handle: TableHandle
    worlds: Worlds = model.UNKNOWN_TABLE
    sent: list[Proposal] = field(default_factory=list)
    """Every proposal, once."""
    content: dict[m.AttemptId, Proposal] = field(default_factory=dict)
    """Every proposal with its actions, also those in staged files."""
    ratified: dict[m.Version, Exchange] = field(default_factory=dict)
    """The exchange that first returned a version, by version."""
    limit: int | None = None
    seen: dict[m.Version, str] = field(default_factory=dict)
    """The content of published versions."""
    listed: frozenset[str] = frozenset()
    """The names of all files in the last listing."""
    staged: dict[m.Version, str] = field(default_factory=dict)
    """The content of the staged files that the owner listed."""
    facts: Facts = model.NOTHING
    foreign: dict[m.Version, str] = field(default_factory=dict)
    """The foreign files that are in its log."""
    torn: set[m.Version] = field(default_factory=set)
    """Those of them that are the beginning of a commit."""
    strays: list[str] = field(default_factory=list)
    """Other files that the kit wrote."""
    remade: bool = False
    """Whether its folder was given to another table."""
    halted: bool = False
    """Whether a publication was blocked: the owner may halt the table."""
    odd: bool = False
    """Whether its name is one that a subject may reject."""
    alike: bool = False
    """Whether its name is one that a subject need not tell apart from the other's."""
    rebased: set[m.AttemptId] = field(default_factory=set)
    """Attempts that were sent for several versions."""
    known_as: str | None = None
    """The name under which the owner gets it, if that is not its own."""
    named: bool = True
    """Whether the reference is the owner's; the one of a table without an owner is its path."""
    location: str | None = None
    policy: frozenset[str] | None = None
    aided: bool = False
    """Whether a client published a commit, of which the owner need not know."""

    @property
    def known(self) -> bool:
        """Whether the subject's reference to it is known."""
        return bool(self.handle.reference) and (self.named or self.can_be_taken_over)

    @property
    def can_be_taken_over(self) -> bool:
        """Whether the owner surely does not have it."""
        return all(world.state.can_be_taken_over for world in self.worlds)

    @property
    def newest(self) -> m.Version:
        """The newest version in the world with most versions."""
        return max(world.newest for world in self.worlds)

    @property
    def surely(self) -> m.Version:
        """The newest version in the world with fewest versions, which surely exists."""
        return min(world.newest for world in self.worlds)

    @property
    def base(self) -> m.Version:
        return min(world.base for world in self.worlds)

    @property
    def taken(self) -> m.Version:
        return max(world.taken for world in self.worlds)

    def proposal(self, which: int, *, unsettled: bool) -> Proposal:
        """A proposal that was sent, counted from the last one."""
        unresolved = [sent for sent in self.sent if any(world.landed(sent.attempt) is None for world in self.worlds)]
        candidates = unresolved if unresolved and unsettled else self.sent
        return candidates[-1 - which % len(candidates)]

    def is_surely(self, *states: State) -> bool:
        return all(world.state in states for world in self.worlds)

    @property
    def owned(self) -> bool:
        """Whether the owner surely owns it."""
        return self.is_surely(State.OWNED) and self.known

    @property
    def dropped(self) -> bool:
        """Whether it may have been dropped."""
        return any(world.state is State.DROPPED for world in self.worlds)


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
        self.past: dict[int, DrivenTable] = {}
        """The tables that had these places before."""
        self.in_flight: list[tuple[DrivenTable, Delayed]] = []
        self.ratified = 0
        """Commits that were answered as ratified."""
        self.plain_names = False
        """Whether the subject does not tell odd names apart, or rejects them."""
        self.names: int | None = None
        """The class of the names of its tables."""
        self.armed = False
        """Whether the subject will crash, or crashed, at a crash point."""
        self.down = False
        """Whether the subject crashed, and was not restarted yet."""

    def do(self, step: steps.Step) -> None:
        """Do one step; a step that is not possible yet is skipped."""
        if self.down and not isinstance(step, steps.Write | steps.Block):
            self._restart()
        try:
            self._do(step)
        except Inconclusive as stopped:
            if not self.armed or GONE not in stopped.reason:
                raise
            self.down = True  # it reached the crash point during a request of the step
        self._follow()
        if not isinstance(step, steps.Policy | steps.Restart):  # what is allowed may depend on what was done
            for table in self.tables.values():
                table.policy = None
        if any(len(table.worlds) > WORLDS for table in self.tables.values()):
            raise Inconclusive(f"more than {WORLDS} states of a table are possible")

    def end(self) -> None:
        """Remove the foreign files, which no owner wrote."""
        if self.down or self.armed:
            self._restart()
        for table in (*self.tables.values(), *self.past.values()):
            for version in table.foreign:
                self.s.answer("kit", m.Remove(table=table.handle.reference, file=commit_file(version)))
            for file in table.strays:
                self.s.answer("kit", m.Remove(table=table.handle.reference, file=file))

    @singledispatchmethod
    def _do(self, step: Any) -> None:
        raise TypeError(f"not a step: {step!r}")

    # Faults

    @_do.register
    def _restarts(self, step: steps.Restart) -> None:  # noqa: ARG002  # the type is the whole step
        if "durable-restart" not in self.contract.profiles:
            return
        ownership.crash(self.s)
        table = next((table for table in self.tables.values() if table.owned), None)
        if table is not None and "harness-control" in self.contract.profiles:
            exchange = self.s.ask("reader", m.GetCommits(table=table.handle.reference), table.handle)
            self.s.require(
                not isinstance(exchange.answer, m.Commits), "PROFILE-HARNESS-01", evidence=(exchange,),
                expected="the subject crashed: it answers nothing until it is restarted",
            )  # fmt: skip
        self._restart()

    def _restart(self) -> None:
        ownership.restart(self.s)
        self.down = self.armed = False
        for table in (*self.tables.values(), *self.past.values()):
            table.facts = table.facts._replace(restarted=True)

    @_do.register
    def _crash(self, step: steps.Crash) -> None:
        points = self.s.identity.crash_points
        if points and {"durable-restart", "harness-control"} <= self.contract.profiles:
            ownership.crash(self.s, points[step.point % len(points)])
            self.armed = True

    @_do.register
    def _wait(self, step: steps.Wait) -> None:
        time.sleep(max(0, min(step.ms, 5000)) / 1000)

    # Creating, finding and dropping

    @_do.register
    def _create(self, step: steps.Create) -> None:
        slot = step.table % TABLES
        table = self.tables.get(slot)
        if step.other and (table is None or not table.owned):
            return
        if table is None or table.is_surely(State.DROPPED):
            table = self._new(slot, step)
        elif not table.is_surely(State.OWNED) or table.handle.path is not None:  # its name may be free
            return
        backfill = "subject" if step.by_subject else "on-request"
        options: dict[str, object] = {"backfill": backfill, "backlog_limit": table.limit}
        name = table.handle.name.removesuffix(" again")
        old = self.past.get(slot)
        if step.there and old is not None and table.surely < 0 and old.location and self._may_remake(old):
            for file in self.s.observe(old.handle):
                self.s.answer("kit", m.Remove(table=old.handle.reference, file=file.name))
                old.remade = True
            there = self._send(
                table, client_of(step.client), self.s.creation(name, path=old.location, **options), Fate.ANSWERED
            )
            if there is None or not isinstance(there.answer, m.Rejected):  # an owner may keep the folder
                return
        request = self.s.creation(name, **options)
        if step.other:
            self._create_other(table, step, request)
            return
        if step.properties:
            body = proposals.body_of(proposals.content(request.actions), "metaData") or {}
            more = {f"kit.p{number}": str(number) for number in range(min(step.properties, 1000))}
            body["configuration"] = {**body["configuration"], **more}
            actions = [proposals.line("metaData", body) if '"metaData"' in line else line for line in request.actions]
            request = msgspec.structs.replace(request, actions=tuple(actions))
        exchange = self._send(table, client_of(step.client), request, step.fate)
        if exchange is not None and table.odd and isinstance(exchange.answer, m.Conflict | m.Rejected) and (
            table.alike or not isinstance(exchange.answer, m.Conflict)
        ):  # fmt: skip
            if (
                not table.known
                or not isinstance(exchange.answer, m.Conflict)
                or table.handle.reference in [other.handle.reference for other in self._others(table)]
            ):
                self.plain_names = True
                del self.tables[slot]
            return
        if exchange is not None and isinstance(exchange.answer, m.Rejected) and not table.sent[1:] and table.newest < 0:
            self._must_create(table, step, exchange, name)
        if exchange is not None and isinstance(exchange.answer, m.Rejected) and table.surely >= 0 and table.owned:
            for _ in range(TRIES):
                again = self._send(table, client_of(step.client), self.s.creation(name, **options), Fate.ANSWERED)
                if again is None or not isinstance(again.answer, m.Rejected):
                    return
            self.s.fail(
                "PROFILE-CORE-04", evidence=(exchange,), table=table.handle, version=0,
                expected="the only problem is that the name is taken: a conflict",
                observed=answered(exchange.request, exchange.answer),
            )  # fmt: skip

    def _create_other(self, table: DrivenTable, step: steps.Create, request: m.CreateTable) -> None:
        modes = self.s.identity.commit_modes
        for feature in STAGING.keys() - {self.s.feature}:
            if not modes.get(feature):
                continue
            actions = proposals.version_0(feature, request.attempt, self.s.attempt(), timestamp=self.s.timestamp(0))
            other = msgspec.structs.replace(request, feature=feature, commit_mode=modes[feature][0], actions=actions)
            self._send(table, client_of(step.client), other, Fate.ANSWERED)

    def _must_create(self, table: DrivenTable, step: steps.Create, rejected: Exchange, name: str) -> None:
        """ "Creating a new managed-commit table": an owner may reject some creations, but not all. "Creating and
        Dropping": it may keep the name of a dropped table."""
        kept = step.table % TABLES in self.past
        if kept or table.odd or "version-0-by-owner" not in self.contract.profiles:
            return
        for _ in range(TRIES):
            request = self.s.creation(name, backlog_limit=table.limit)
            again = self._send(table, client_of(step.client), request, Fate.ANSWERED)
            if again is None or not isinstance(again.answer, m.Rejected):
                return
        what = f"{name} is a new name with one creator: `ratified` with version 0"
        self._fail(table, rejected, Wrong(("PROFILE-VERSION0-01",), what))

    def _may_remake(self, old: DrivenTable) -> bool:
        """Whether the folder of a dropped table can get another one."""
        storage = self.s.identity.storage
        inside = storage is not None and (old.location or "").startswith(storage)
        return inside and self._has_access and "version-0-by-filesystem" in self.contract.profiles and not old.remade

    @_do.register
    def _rival(self, step: steps.Rival) -> None:
        slot, storage = step.table % TABLES, self.s.identity.storage
        can = self._has_access and "version-0-by-filesystem" in self.contract.profiles
        if slot in self.tables or storage is None or not can:
            return
        name = f"shared{slot}"
        place, attempt = f"{storage.rstrip('/')}/{self.s.physical(name)}", self.s.attempt()
        handle = TableHandle(name=name, reference=place, versions=0, id=self.s.attempt())
        table = DrivenTable(handle=handle, location=place, named=False)
        feature = self.s.feature if step.giving else None
        properties = {OWNER_PROPERTY: "another owner"} if step.giving else None
        time_ = self.s.timestamp(0)
        actions = proposals.version_0(feature, attempt, handle.id, timestamp=time_, properties=properties)
        content = proposals.content(actions)
        plant = m.Plant(table=place, file=commit_file(0), content=content, if_absent=True)
        request = self.s.creation(name, path=place)
        for proposal in (request, m.Commit(table=place, version=0, attempt=attempt, actions=actions)):
            table.content[proposal.attempt] = proposal
        table.sent.append(request)
        local = Path(storage).is_dir()
        if local:
            (Path(place) / LOG).mkdir(parents=True, exist_ok=True)
        mine = Call(table=table, handle=handle, client=client_of(step.client), request=request)
        theirs = Call(table=table, handle=handle, client="another creator", request=plant, plant=plant)
        calls = [theirs, mine] if step.first else [mine, theirs]
        at_once = local or getattr(self.s.subject, "concurrent", False)
        answered = concurrently(self.s, [[call] for call in calls] if at_once else [calls], step.gap_ms)
        taken = mine.exchange is not None and isinstance(mine.exchange.answer, m.Conflict)
        self._hear_all([call for call in answered if call is theirs or not taken])  # an owner may keep the folder
        if len(table.worlds) > 1:
            raise Inconclusive(f"it is unknown who created the table in {place}")
        if table.surely < 0:  # neither creator
            return
        self.tables[slot] = table
        table.halted |= taken  # an owner may keep the folder
        if table.can_be_taken_over:
            handle.path, handle.before, handle.versions = place, 1, 1
            self.s.tables.append(handle)
        self._look(table)

    def _new(self, slot: int, step: steps.Create) -> DrivenTable:
        """A table that will be created in that place."""
        before = self.tables.get(slot)
        if self.names is None:
            self.names = step.names % len(NAMES)
        names = NAMES[0 if self.plain_names else self.names]
        new = names[slot] if slot < len(names) else f"customers{slot}"
        name = new if before is None else (before.known_as or before.handle.name).removesuffix(" again")
        if before is not None:
            self.past[slot] = before
        again = name if before is None else f"{name} again"
        table = DrivenTable(
            handle=TableHandle(name=again, reference="", versions=0),
            odd=names is not NAMES[0] and before is None,
            alike=names in NAMES[ALIKE:] and before is None,
            facts=Facts(again=before is not None, similar=names is not NAMES[0]),
        )
        if step.limit > 0 and "backlog-limit" in self.contract.profiles and self.contract.commit_mode != "direct":
            table.limit = step.limit
        self.tables[slot] = table
        return table

    def _others(self, table: DrivenTable) -> list[DrivenTable]:
        return [other for other in (*self.tables.values(), *self.past.values()) if other is not table]

    @_do.register
    def _tables(self, step: steps.Tables) -> None:
        for number in range(min(step.count, 1000)):
            created = self.s.answer("creator", self.s.creation(f"table {number}"))
            if isinstance(created, m.Ratified) and created.table is not None:
                self.s.answer("creator", m.GetCommits(table=created.table))

    @_do.register
    def _load(self, step: steps.Load) -> None:
        table = self._at(step)
        if table is None or "discovery" not in self.contract.profiles:
            return
        if step.by is By.ABSENT:
            self._absent(table, step)
            return
        by_path = step.by in (By.PATH, By.PARENT)
        if by_path and table.location is None:
            return
        path = table.location if step.by is By.PATH else (table.location or "").rstrip("/").rpartition("/")[0]
        request = m.LoadTable(path=path) if by_path else m.LoadTable(name=self._physical(table))
        exchange = self.s.ask(client_of(step.client), request, table.handle)
        answer = exchange.answer
        if by_path and not isinstance(answer, m.Table):  # an owner need not offer it
            return
        if step.by is By.PARENT:
            self._fail(table, exchange, Wrong(("PROFILE-DISCOVERY-01",), f"no table is at {path}: `not_found`"))
            return
        if table.is_surely(State.PLAIN) and isinstance(answer, m.Table):
            what = "the table has no owner yet: it is not found by a name"
            lost = ("MC-CONVERT-09",) if table.facts.asked else ()
            self._fail(table, exchange, Wrong(("MC-CONVERT-03", "MC-CONVERT-01", *lost), what))
        if any(world.state.can_be_taken_over for world in table.worlds):
            owned = frozenset(world for world in model.settled(table.worlds) if world.state is State.OWNED)
            if not isinstance(answer, m.Table) or not owned or table.named:
                return
            table.worlds = owned
        if isinstance(answer, m.Table) and table.known and answer.table != table.handle.reference:
            self._resolved(table, exchange, answer)
        self._hear(table, exchange)
        if isinstance(answer, m.Table):
            self._resolved(table, exchange, answer)
            if step.advised and None in (answer.protocol, answer.metadata):
                self._fail(table, exchange, Wrong(("CM-CATALOG-05",), "the resolution has the protocol and metadata"))

    def _absent(self, table: DrivenTable, step: steps.Load) -> None:
        if table.odd or self.plain_names:
            return
        name = self._physical(table)
        taken = {self._physical(other) for other in self.tables.values()}
        for absent in (f"{name}1", name[:-1], f"{name[:-1]}_", self.s.physical("toString"), "constructor"):
            if absent in taken:
                continue
            exchange = self.s.ask(client_of(step.client), m.LoadTable(name=absent))
            if isinstance(exchange.answer, m.Table):
                what = f"no table has the name {absent!r}: `not_found`"
                self._fail(table, exchange, Wrong(("PROFILE-DISCOVERY-01",), what))

    def _physical(self, table: DrivenTable) -> str:
        return self.s.physical(table.known_as or table.handle.name.removesuffix(" again"))

    def _resolved(self, table: DrivenTable, exchange: Exchange, answer: m.Table) -> None:
        """ "Table Discovery": one name is one table, at one location."""
        if not table.known:
            self._named(table, exchange, answer.table)
        self.s.require(
            answer.table == table.handle.reference, "PROFILE-DISCOVERY-01", "PROFILE-DISCOVERY-02",
            evidence=(exchange,), table=table.handle, expected=f"the table {table.handle.reference}",
            observed=f"the answer names the table {answer.table}",
        )  # fmt: skip
        if answer.location is not None:
            table.location = answer.location
            others = [other.location for other in self.tables.values() if other is not table and not other.dropped]
            self.s.require(
                answer.location not in others, "PROFILE-DISCOVERY-01", evidence=(exchange,), table=table.handle,
                expected="a location of its own", observed=f"it is at {answer.location}, like the other table",
            )  # fmt: skip
        if answer.commits is not None or self.contract.feature == "catalogManaged":
            self._listed(table, exchange, answer.commits or (), answer.latest, resolution=True)
        self._has_newest(table, exchange, answer)

    def _has_newest(self, table: DrivenTable, exchange: Exchange, answer: m.Table) -> None:
        latest = answer.latest
        if latest is None or latest != table.newest or len(table.worlds) > 1:
            return
        (world,) = table.worlds
        log = [table.content[attempt].actions or () for attempt in world.log[: latest + 1 - world.base]
               if attempt in table.content]  # fmt: skip
        for kind, returned in (("protocol", answer.protocol), ("metaData", answer.metadata)):
            wrong = oracle_contents.resolution(kind, returned, oracle_contents.newest_of(kind, log), latest)
            if wrong is not None:
                self._fail(table, exchange, wrong)

    @_do.register
    def _drop(self, step: steps.Drop) -> None:
        table = self._at(step)
        if table is not None and step.gone and table.known:
            self.s.ask(client_of(step.client), m.DropTable(table=table.handle.reference), table.handle)
            return
        if table is None or not table.owned or table.foreign:
            return
        self._look(table)  # the owner may forget a dropped table
        table.handle.final = self.s.log_of(table.handle)
        exchange = self.s.ask(client_of(step.client), m.DropTable(table=table.handle.reference), table.handle)
        if isinstance(exchange.answer, m.Unknown):
            raise Inconclusive(f"it is unknown whether {table.handle.name} was dropped, and what its last log is")
        self._hear(table, exchange)
        if not table.dropped:
            table.handle.final = None

    # Committing

    def _body(self, table: DrivenTable) -> dict[str, Any]:
        """The newest metadata of the table, as far as the program knows it."""
        first = [proposals.lines(text) for version, text in sorted(table.seen.items()) if version <= table.taken]
        log = [proposal.actions or () for proposal in table.content.values()]
        return oracle_contents.newest_of("metaData", first or log[:1]) or {}

    def _proposal(
        self, table: DrivenTable, step: steps.Commit, resolved: m.AttemptId | None = None
    ) -> tuple[m.Commit, m.Commit]:  # fmt: skip
        """The request, and the same with its actions."""
        s, version = self.s, max(table.base, table.newest + 1 + step.ahead)
        attempt = resolved or s.attempt()
        if step.resembles and table.sent:
            near = table.sent[-1].attempt
            alike = (near[:-12] + attempt[-12:], attempt[:9] + near[9:], near[:-1] + ("0" if near[-1] != "0" else "1"))
            chosen = alike[(step.resembles - 1) % len(alike)]
            attempt = attempt if chosen in table.content else chosen  # it may be that of an earlier proposal
        body = self._body(table) if step.content in ("metadata", "many properties", "unreadable schema") else {}
        any_format = step.content == "doubled" and s.commit_mode == "inline"  # its fields may be stored once
        actions = contents.actions(
            "plain" if any_format else step.content, attempt, s.timestamp(version) + version % 1000, body,
            size=min(step.size, 1 << 24), count=min(step.actions, 20_000),
        )  # fmt: skip
        whole = s.proposal(table.handle, version, attempt=attempt, actions=actions)
        if step.staged and s.commit_mode == "staged" and self._has_access:
            text = proposals.content(actions)
            if step.misnamed:
                table.rebased.add(attempt)
                another = version - 1 if version and version % 2 == 0 else version + 1
                other = storage_access.stage(s, table.handle, another, content=text, attempt=attempt)
                return msgspec.structs.replace(other, version=version), whole
            return storage_access.stage(s, table.handle, version, content=text, attempt=attempt), whole
        return whole, whole

    def _unmade(self, table: DrivenTable) -> m.AttemptId | None:
        """An attempt that no client made, and that surely does not land."""
        never = frozenset.intersection(*(world.never for world in table.worlds))
        return min(never - table.content.keys(), default=None)

    @_do.register
    def _commit(self, step: steps.Commit) -> None:
        table = self._at(step)
        resolved = self._unmade(table) if table is not None and step.resolved else None
        if table is not None and table.known and (resolved or not step.resolved):
            request, whole = self._proposal(table, step, resolved)
            table.content[whole.attempt] = whole
            table.halted |= step.content == "late"  # an owner may demand that times increase
            exchange = self._send(table, client_of(step.client), request, step.fate)
            if step.misnamed and request is not whole and exchange and isinstance(exchange.answer, m.Ratified):
                what = f"{request.staged_file} is no staged file of version {request.version}: rejected"
                self._fail(table, exchange, Wrong(("CM-LOG-05",), what))

    @_do.register
    def _land(self, step: steps.Land) -> None:
        table = self._at(step)
        for _ in range(min(step.count, 5000)):
            if table is None or not self._is_settled(table, step) or not self._lands(table, client_of(step.client)):
                break

    def _is_settled(self, table: DrivenTable, step: steps.Land) -> bool:
        """Whether the owner surely owns the table; a hand-back without an answer is sent again."""
        leaving = next((proposal for proposal in table.sent if isinstance(proposal, m.HandBack)), None)
        states = {world.state for world in model.settled(table.worlds)}
        if leaving is None or not table.known or states != {State.OWNED, State.RELEASED}:
            return table.owned
        answers = [self._send(table, client_of(step.client), leaving, Fate.ANSWERED) for _ in range(TRIES)]
        published = self._look(table)
        if table.halted or not all(answer and isinstance(answer.answer, m.Rejected) for answer in answers):
            return table.owned
        if leaving.version in published or leaving.version != table.newest:
            return table.owned
        commits = [self._send(table, client_of(step.client), self._next(table, table.newest), Fate.ANSWERED)
                   for _ in range(TRIES)]  # fmt: skip
        if all(answer and isinstance(answer.answer, m.Rejected | m.NotFound) for answer in commits):
            what = f"version {leaving.version} ends the ownership, or the owner ratifies another commit"
            self._fail(table, commits[-1], Wrong(("MC-RELEASE-07", "MC-RELEASE-05"), what, leaving.version))
        return table.owned

    def _lands(self, table: DrivenTable, client: str) -> bool:
        """Commit the next version, which the owner has to ratify: after some rejections by its policy, and after a
        backfill if it limits its unbackfilled commits."""
        exchanges: list[Exchange] = []
        for number in range(2 * TRIES):
            if number == 2 * TRIES - 1 and refused_for_now(exchanges[-1].answer):  # its reason may last for a second
                self.s.pauses = LONG_PAUSES
            last = table.surely if number % 2 else table.newest  # a request without an answer landed, or did not
            exchange = self._send(table, client, self._next(table, last), Fate.ANSWERED)
            assert exchange is not None
            exchanges.append(exchange)
            if isinstance(exchange.answer, m.Ratified | m.Unknown):
                return isinstance(exchange.answer, m.Ratified)
            if self._has_room(table):
                continue
            if number == TRIES - 1 or (number == 0 and self._is_full(table)):
                known = self.s.ask("publisher", m.GetCommits(table=table.handle.reference), table.handle).answer
                newest = max(0, table.surely, (known.latest or 0) if isinstance(known, m.Commits) else 0)
                self.s.ask("publisher", m.BackfillToVersion(table=table.handle.reference, version=newest))
        if table.halted or not any(isinstance(exchange.answer, m.Rejected) for exchange in exchanges):
            return False
        what = f"version {table.newest + 1} is the next, and no other client proposes it: it is ratified"
        self._fail(table, exchanges[-1], Wrong(self._of_ratification(table), what))
        return False

    def _has_room(self, table: DrivenTable) -> bool:
        """Whether the owner surely knows that its limit is not reached: all is published, and it lists no more than
        the rest."""
        if table.limit is None or table.aided or table.facts.restarted or self.armed:
            return False
        unpublished = table.newest - max(self._look(table), default=-1)
        known = self.s.ask("publisher", m.GetCommits(table=table.handle.reference), table.handle).answer
        return isinstance(known, m.Commits) and max(unpublished, len(known.commits)) < table.limit

    def _next(self, table: DrivenTable, last: m.Version) -> m.Commit:
        request = self.s.proposal(table.handle, last + 1)
        table.content[request.attempt] = request
        return request

    def _of_ratification(self, table: DrivenTable) -> tuple[str, ...]:
        """The requirements that an owner breaks which ratifies nothing more."""
        mode = {"staged": "PROFILE-STAGED-01", "inline": "PROFILE-INLINE-01", "direct": "PROFILE-DIRECT-01"}
        after = ("PROFILE-DURABLE-03",) if table.facts.restarted and self.ratified else ()
        limit = ("PROFILE-BACKLOG-02",) if table.limit is not None else ()
        owner = ("MC-CONVERT-06",) if table.handle.path is not None else ()
        refused = [proposal for proposal in table.sent if isinstance(proposal, m.HandBack)]
        ended = ("MC-FEATURE-03", "MC-CONVERT-06") if refused else ()
        around = ("MC-COMMIT-05", "CM-COMMIT-05") if table.facts.around else ()
        return (*after, *limit, *owner, *ended, *around, mode[self.contract.commit_mode])

    @_do.register
    def _contend(self, step: steps.Contend) -> None:
        table = self._at(step)
        if table is None or not table.owned or table.surely < table.taken or table.halted:
            return
        if table.surely == 0 and "version-0-by-filesystem" in self.contract.profiles:  # it is never proposed
            return
        exchanges = []
        for _ in range(TRIES):
            commit = steps.Commit(ahead=table.surely - table.newest - 1, staged=step.staged)
            request, whole = self._proposal(table, commit)
            table.content[request.attempt] = whole
            exchange = self._send(table, client_of(step.client), request, Fate.ANSWERED)
            if exchange is None or isinstance(exchange.answer, m.Conflict | m.Unknown):
                lost = getattr(exchange, "answer", None)
                if step.advised and isinstance(lost, m.Conflict) and not lost.winners and lost.latest is None:
                    what = "the conflict names the latest ratified commits"
                    self._fail(table, exchange, Wrong(("CM-COMMIT-09",), what))
                return
            exchanges.append(exchange)
            if refused_for_now(exchange.answer):  # its reason may last for a second
                self.s.pauses = LONG_PAUSES
        what = f"version {table.surely} is taken, and that is the only problem: a conflict"
        self._fail(table, exchanges[-1], Wrong(("PROFILE-CORE-04",), what, table.surely))

    @_do.register
    def _resend(self, step: steps.Resend) -> None:
        table = self._at(step)
        if table is None or not table.sent:
            return
        request = table.proposal(step.which, unsettled=step.unsettled)
        if step.resolved:
            self._find_out(table, client_of(step.client + 1), request.attempt, Fate.ANSWERED)
        if isinstance(request, m.CreateTable):
            if self._may_create_another(table, request):
                return
        elif isinstance(request, m.TakeOver):
            if table.dropped or (request.path != table.location and not table.owned):
                return  # its folder may have another owner; another spelling is the same folder for an owner alone
        elif not table.known:
            return
        elif request.table == table.handle.path:  # a writer of files proposed it, by the path
            request = msgspec.structs.replace(request, table=table.handle.reference)
        past = self.past.get(step.table % TABLES)
        if step.old and past is not None and table.owned:
            request = next((sent for sent in reversed(past.sent) if isinstance(sent, m.Commit)), request)
            if not isinstance(request, m.Commit) or request.actions is None:
                return
            request = msgspec.structs.replace(request, table=table.handle.reference)
            table.facts = table.facts._replace(old=table.facts.old | {request.attempt})
        elif step.altered and isinstance(request, m.Commit) and request.actions is not None:
            altered = self._altered(table, request)
            exchange = self.s.ask(client_of(step.client), altered, table.handle)
            self._died(exchange)
            if altered is request or isinstance(exchange.answer, m.Ratified):  # an owner may reject other actions
                self._hear(table, exchange)
            return
        elif step.rebased and isinstance(request, m.Commit) and request.actions is not None:
            if request.version > table.newest + 1:  # its time would be later than that of the next version
                return
            if "idempotent-retry" not in self.contract.profiles:  # an owner may know an attempt by its version alone
                return
            table.rebased.add(request.attempt)
            request = msgspec.structs.replace(request, version=table.newest + 1)
        if request.attempt in table.facts.altered and not self._is_replay(table.worlds, request):
            return  # it may land with either of its contents
        answered = self._send(table, client_of(step.client), request, step.fate)
        if answered is not None and refused_for_now(answered.answer):
            self._must_be_ratified_again(table, request)

    def _must_be_ratified_again(self, table: DrivenTable, request: m.Request) -> None:
        """Profile idempotent-retry: a replay that is rejected for now is ratified soon."""
        if not isinstance(request, m.Commit) or "idempotent-retry" not in self.contract.profiles:
            return
        worlds, version = table.worlds, request.version
        landed = all(world.state is State.OWNED and world.replayed(request.attempt, version) for world in worlds)
        if not landed or request.attempt in table.facts.altered:
            return
        self.s.pauses = LONG_PAUSES
        again = self.s.ask("retrier", request, table.handle)
        if refused_for_now(again.answer):
            what = f"the attempt is version {version}: `ratified`, again"
            self._fail(table, again, Wrong(("PROFILE-RETRY-01",), what, version))

    def _altered(self, table: DrivenTable, request: m.Commit) -> m.Commit:
        """The proposal with another file, unless it is unknown whether it landed."""
        worlds = model.settled(table.worlds)
        landed = [world.landed(request.attempt) is not None for world in worlds]
        delayed = any(getattr(waiting.request, "attempt", None) == request.attempt for _, waiting in self.in_flight)
        if delayed or any(landed) != all(landed):
            return request
        if not any(landed) and any(request.attempt in {known for _, known, _ in world.pending} for world in worlds):
            return request
        other = proposals.append(request.attempt, self.s.timestamp(request.version), [f"other-{request.attempt}"])
        altered = msgspec.structs.replace(request, actions=other)
        table.facts = table.facts._replace(altered=table.facts.altered | {request.attempt})
        if not any(landed):
            table.content[request.attempt] = altered
        return altered

    def _may_create_another(self, table: DrivenTable, request: m.CreateTable) -> bool:
        """Whether the name is free, perhaps, and the request is not surely the replay of the creation."""
        lost = not all(world.landed(request.attempt) == 0 for world in table.worlds)
        return lost and not table.is_surely(State.OWNED)

    @_do.register
    def _deliver(self, step: steps.Deliver) -> None:
        if not self.in_flight:
            return
        table, delayed = self.in_flight.pop(step.which % len(self.in_flight))
        if isinstance(delayed.request, m.CreateTable) and self._may_create_another(table, delayed.request):
            return
        if isinstance(delayed.request, m.TakeOver) and table.dropped:  # its folder may have another owner
            return
        if step.given_up:
            self.s.give_up(delayed)
            self.s.deliver(delayed)
            table.worlds = model.lost(table.worlds, delayed.request)
        else:
            self._hear(table, self.s.deliver(delayed))

    @_do.register
    def _resolve(self, step: steps.Resolve) -> None:
        table = self._at(step)
        if table is None or not table.known or not table.sent:
            return
        source = self.tables.get(1 - step.table % TABLES) if step.other else table
        if source is None or not source.sent:
            return
        attempt = source.proposal(step.which, unsettled=step.unsettled).attempt
        if step.unsent:
            own = self.s.attempt()
            attempt = own[:-12] + attempt[-12:] if step.which % 2 else attempt[:-12] + own[-12:]
        self._find_out(table, client_of(step.client), attempt, step.fate)

    def _find_out(self, table: DrivenTable, client: str, attempt: m.AttemptId, fate: Fate) -> None:
        if table.known and "attempt-outcome" in self.contract.profiles:
            self._send(table, client, m.AttemptOutcome(table=table.handle.reference, attempt=attempt), fate)

    @_do.register
    def _stray(self, step: steps.Stray) -> None:
        table = self._at(step)
        if table is not None and table.owned and self.s.commit_mode == "staged" and self._has_access and not step.kind:
            storage_access.stage(self.s, table.handle, max(1, table.newest + 1 + step.ahead))
        elif table is not None and table.owned and self._has_access:
            file = STRAYS[step.kind % len(STRAYS)](table.newest + 9)
            storage_access.plant(self.s, table.handle, file, "")
            table.strays.append(file)

    @property
    def _has_access(self) -> bool:
        return "storage-access" in self.contract.profiles

    def _can_plant(self, table: DrivenTable) -> bool:
        watch = self.s.subject
        return self._has_access or (isinstance(watch, Watch) and watch.can_plant(table.handle.reference))

    # Reading and publishing

    @_do.register
    def _watch(self, step: steps.Look) -> None:
        table = self._at(step)
        if table is None or not table.handle.reference or table.dropped:
            return
        self._do(steps.Read(table=step.table, client=-1))
        self._look(table)
        shown = self.s.answer("observer", m.Observe(table=table.handle.reference, contents=False))
        if isinstance(shown, m.Observation) and table.surely - table.base < LOOKED:
            before = table.listed
            self._look(table)
            commits = {name for name in before & table.listed if name.endswith(".json")}
            hidden = sorted(commits - {file.name for file in shown.files})
            if hidden:
                what = f"a listing without contents shows {hidden[0]}, too"
                self._fail(table, None, Wrong(("PROFILE-CORE-02",), what, None, "it does not"))

    @_do.register
    def _read(self, step: steps.Read) -> None:
        table = self._at(step)
        if table is None or not table.known:
            return

        def bound(number: int | None) -> int | None:
            return number if number is None or number >= 0 else max(0, table.newest + 1 + number)

        start, end = bound(step.start), bound(step.end)
        request = m.GetCommits(table=table.handle.reference, start=start, end=end)
        exchange = self.s.ask(client_of(step.client), request, table.handle)
        self._hear(table, exchange)
        if isinstance(exchange.answer, m.Commits):
            self._listed(table, exchange, exchange.answer.commits, exchange.answer.latest, start, end)
            if step.advised and table.dropped:
                what = "the table was dropped: its commits are not listed"
                self._fail(table, exchange, Wrong(("PROFILE-DISCOVERY-04",), what))

    @_do.register
    def _backfill(self, step: steps.Backfill) -> None:
        table = self._at(step)
        if table is None or not table.known:
            return
        if table.remade:  # what the owner does with the commits of a dropped table is its own affair
            return
        version = max(0, table.newest - step.behind)
        request = m.BackfillToVersion(table=table.handle.reference, version=version)
        exchange = self.s.ask(client_of(step.client), request, table.handle)
        if not table.owned:
            successor = self.tables.get(step.table % TABLES)
            if successor is not None and successor is not table and successor.owned:
                self._look(successor)
            return
        self._hear(table, exchange)
        after = ("PROFILE-DURABLE-03",) if table.facts.restarted else ()
        if isinstance(exchange.answer, m.Done):
            last, published = min(version, table.surely), self._look(table)
            foreign = sorted(number for number in table.foreign if number <= last)
            if foreign:
                what = f"version {foreign[0]} is not published: a foreign file has its name; so it is not `done`"
                self._fail(table, exchange, Wrong(
                    ("MC-BACKFILL-01", "CM-PUBLISH-01", "CM-PUBLISH-02", "MC-BACKFILL-05"), what, foreign[0]
                ))  # fmt: skip
            self.s.require(
                max(published, default=-1) >= last, "MC-BACKFILL-05", "PROFILE-CORE-10", *after, evidence=(exchange,),
                table=table.handle, version=last, expected=f"every version up to {last} is published: the request to "
                f"backfill up to {version} was answered as done", observed=f"{sorted(published)} are published",
            )  # fmt: skip
        elif (
            isinstance(exchange.answer, m.Rejected | m.Unsupported) and not table.halted and version <= table.surely
            and not self.contract.direct_commits_may_lag
        ):  # fmt: skip
            if refused_for_now(exchange.answer):  # its reason may last for a second
                self.s.pauses = LONG_PAUSES
                exchange = self.s.ask(client_of(step.client), request, table.handle)
            if isinstance(exchange.answer, m.Rejected | m.Unsupported):
                what = f"version {version} is ratified: `done`"
                self._fail(table, exchange, Wrong(("MC-BACKFILL-05", *after), what))

    @_do.register
    def _block(self, step: steps.Block) -> None:
        table = self._at(step)
        if (
            table is None
            or not table.owned
            or not self._can_plant(table)
            or self.s.commit_mode == "direct"
            or self.down
        ):
            return
        published = self._look(table)
        version = max(published, default=-1) + 1 + step.ahead
        if version > table.surely:  # an owner may take the file of the next version for a commit
            version = max(published, default=0)
        attempt = self.s.attempt()
        content = proposals.content(proposals.append(attempt, self.s.timestamp(version)))
        ratified = {world.attempt_at(version) for world in table.worlds}
        if step.torn and len(ratified) == 1 and (own := ratified.pop()) in table.content and own is not None:
            content = proposals.content((table.content[own].actions or ())[:1])
            table.torn.add(version)
        elif step.short:
            content = content[: content.index("\n") + 1]
        file = commit_file(version)
        exchange = storage_access.plant(self.s, table.handle, file, content, if_absent=True)
        if isinstance(exchange.answer, m.Conflict):
            return
        self.s.require(version not in published, "PROFILE-STORAGE-01", evidence=(exchange,), table=table.handle,
                       expected=f"{file} exists: `conflict`", observed="`done`")  # fmt: skip
        table.foreign[version], table.halted = content, True
        if not self._has_access:
            return
        files = {file.name: file.content for file in self.s.observe(table.handle)}
        self.s.require(files.get(file) == content, "PROFILE-STORAGE-01", evidence=(exchange,), table=table.handle,
                       expected=f"{file} is as the kit wrote it", observed="it is not")  # fmt: skip

    @_do.register
    def _publish(self, step: steps.Publish) -> None:
        table = self._at(step)
        if table is None or not table.owned or not self._has_access or self.s.commit_mode == "direct" or table.foreign:
            return
        self._do(steps.Look(table=step.table))
        version = max(table.seen, default=-1) + 1
        content = table.staged.get(version)
        if content is None or version > table.surely:
            return
        table.aided = True
        plant = m.Plant(table=table.handle.reference, file=commit_file(version), content=content, if_absent=True)
        self.s.ask(client_of(step.client), plant, table.handle)
        self._look(table)

    @_do.register
    def _misplace(self, step: steps.Misplace) -> None:
        table = self._at(step)
        if table is None or not table.owned or not self._has_access or self.s.commit_mode != "staged" or table.foreign:
            return
        self._do(steps.Look(table=step.table))
        missing = {version: text for version, text in table.staged.items() if version not in table.seen}
        proposal = self._only(table, min(missing, default=-1))
        if proposal is None:
            return
        files = self.s.observe(table.handle)
        if any(".checkpoint." in file.name for file in files):  # of another writer: it may prove that all was published
            return
        version, table.halted = min(missing), True
        names = [file.name for file in files if file.name.startswith(STAGING[self.s.feature])
                 and file.content == missing[version]]  # fmt: skip
        for name in names:
            storage_access.remove(self.s, table.handle, name)
        request = m.BackfillToVersion(table=table.handle.reference, version=table.newest)
        self.s.ask(client_of(step.client), request, table.handle)
        self._look(table)
        if step.restart:
            self._do(steps.Restart())
        for name in names:
            storage_access.plant(self.s, table.handle, name, missing[version])

    @_do.register
    def _unblock(self, step: steps.Unblock) -> None:
        table = self._at(step)
        if table is None or not table.foreign:
            return
        self._look(table)
        for version in list(table.foreign):
            exchange = storage_access.remove(self.s, table.handle, commit_file(version))
            content = table.foreign.pop(version, "")
            file = commit_file(version)
            files = {file.name: file.content for file in self.s.observe(table.handle)}
            self.s.require(files.get(file) != content, "PROFILE-STORAGE-01", evidence=(exchange,),
                           table=table.handle, expected=f"{file} is removed", observed="it stays")  # fmt: skip

    # Filesystem tables, and changes of the owner

    @_do.register
    def _filesystem(self, step: steps.Filesystem) -> None:
        slot = step.table % TABLES
        if slot in self.tables or not self._transfers:
            return
        first, count = max(0, step.first), 1 + max(0, step.versions - 1) % 5
        place = self.s.physical(PATHS[step.path % len(PATHS)])
        path = f"{(self.s.identity.storage or '').rstrip('/')}/{place}"
        used = {other.location for other in (*self.tables.values(), *self.past.values())}
        if path in used | {other.path for other in self.s.tables}:
            path += str(slot)
        handle = TableHandle(
            name=f"imports{slot}", reference=path, versions=first + count, before=first + count,
            id=self.s.attempt(), path=path,
        )  # fmt: skip
        self.s.tables.append(handle)
        self.tables[slot] = table = DrivenTable(handle=handle, location=path, named=False)
        log = []
        for version in range(first, first + count):
            attempt = self.s.attempt()
            actions = proposals.append(attempt, self.s.timestamp(version))
            if version == first:
                actions = proposals.version_0(None, attempt, handle.id, timestamp=self.s.timestamp(version))
            self._plant(table, version, proposals.content(actions))
            log.append(attempt)
            table.content[attempt] = m.Commit(table=path, version=version, attempt=attempt, actions=actions)
        hinted = (None, first, first + count - 1)[step.hint % 3]
        if first or hinted is not None:
            at = first if hinted is None else hinted
            commits = [table.content[attempt].actions or () for attempt in log[: at + 1 - first]]
            lines = [msgspec.json.decode(line) for actions in commits for line in actions]
            lines = [action for action in lines if "commitInfo" not in action]
            checkpoint = checkpoint_parquet(lines)
            content = checkpoint.decode("utf-8", "surrogateescape")
            ownership.put_beside(self.s, m.Plant(table=path, file=checkpoint_file(at), content=content))
            if hinted is not None:
                hint = f'{{"version":{at},"size":{len(lines)}}}'
                ownership.put_beside(self.s, m.Plant(table=path, file=HINT, content=hint))
        table.worlds = frozenset({model.World(log=tuple(log), base=first, state=State.PLAIN, taken=first + count)})

    @property
    def _transfers(self) -> bool:
        needed = {"ownership-transfer", "storage-access"}
        return (
            needed <= self.contract.profiles
            and self.s.identity.storage is not None
            and self.contract.feature == "managedCommit"
        )

    def _plant(self, table: DrivenTable, version: int, content: str) -> None:
        request = m.Plant(table=table.handle.reference, file=commit_file(version), content=content, if_absent=True)
        exchange = self.s.ask("filesystem writer", request, table.handle)
        self.s.expect(
            exchange,
            m.Done,
            "PROFILE-STORAGE-01",
            expected="a folder below `storage`: the kit may create a table there",
        )

    @_do.register
    def _write(self, step: steps.Write) -> None:
        table = self._at(step)
        if table is None or not table.handle.reference or table.dropped or not self._has_access:
            return
        states = {world.state for world in table.worlds}
        may_have_owner = State.OWNED in states and not (self.down and State.PLAIN in states)
        if may_have_owner and self.s.commit_mode != "direct":
            return  # a writer of files sees that the table has an owner
        for number in range(min(step.count, 20)):
            self._written(table, giving=step.giving and number == 0, changing=step.metadata)

    def _written(self, table: DrivenTable, *, giving: bool, changing: bool) -> None:
        """A writer that lists the log creates the next file."""
        place = table.handle.path or (table.location if self.down else table.handle.reference)
        if place is None:
            return
        place = place.rstrip("/") if self.down else place
        request, plant = self._file(table, place, giving=giving, changing=changing)
        number = self.s.recording.invoke("filesystem writer", table.handle.name, request)
        self.s.sent.add(request.attempt)
        answer = ownership.put_beside(self.s, plant) if self.down else self.s.answer("filesystem writer", plant)
        exchange = self.s._ended(number, request, ownership.as_commit(answer, request.version))
        if isinstance(exchange.answer, m.Ratified | m.Conflict):
            self._keep(table, exchange, model.judge(table.worlds, self.contract, plant, exchange.answer, table.facts))
            self._wrote(table, exchange)

    def _file(self, table: DrivenTable, place: str, *, giving: bool, changing: bool) -> tuple[m.Commit, m.Plant]:
        """The next commit of a writer that lists the log, which is recorded as a commit, and its file."""
        listed = [*table.seen, table.surely] if self.down else self._look(table)
        version, attempt = max(listed, default=table.newest) + 1, self.s.attempt()
        changed = "metadata" if changing and table.owned and not self.down else "plain"
        actions = contents.actions(changed, attempt, self.s.timestamp(version), self._body(table))
        if giving and table.is_surely(State.PLAIN, State.RELEASED):
            table_id, time_ = table.handle.id or self._body(table).get("id", ""), self.s.timestamp(version)
            info, protocol, _ = proposals.ownership_change(attempt, time_, self.s.feature, table_id)
            owner = {OWNER_PROPERTY: "another owner"}
            actions = (info, protocol, proposals.metadata(table_id, time_, owner))
        request = m.Commit(table=place, version=version, attempt=attempt, actions=actions)
        table.content[attempt] = request
        plant = m.Plant(table=place, file=commit_file(version), content=proposals.content(actions), if_absent=True)
        return request, plant

    def _wrote(self, table: DrivenTable, exchange: Exchange) -> None:
        if isinstance(exchange.answer, m.Ratified) and isinstance(exchange.request, m.Commit):
            table.handle.ownership.append(exchange.request.attempt)
            if table.is_surely(State.OWNED):
                table.sent.append(exchange.request)
            table.facts = table.facts._replace(around=True)

    @_do.register
    def _take_over(self, step: steps.TakeOver) -> None:
        table = self._at(step)
        if table is None or not self._transfers or table.dropped or table.foreign or not table.location:
            return
        self._swap_names(step)
        path = table.location.rstrip("/") + ("/" if step.slash and table.owned else "")
        path = quote(path) if step.encoded and table.owned else path
        below = path.removeprefix((self.s.identity.storage or "").rstrip("/"))
        plain = not step.slash and table.base == 0 and not step.ahead and set(below) <= IN_EVERY_PATH
        plain = plain and table.is_surely(State.PLAIN, State.RELEASED) and not table.halted
        for _ in range(TRIES if plain and step.fate is Fate.ANSWERED else 1):
            request = self._taking_over(table, path, step.ahead)
            exchange = self._send(table, client_of(step.client), request, step.fate)
            if exchange is None or not isinstance(exchange.answer, m.Rejected | m.NotFound | m.Unsupported):
                return
        if plain:
            again = any(world.state is State.RELEASED for world in table.worlds)
            requirements = ("PROFILE-TRANSFER-02",) if again else ("PROFILE-TRANSFER-01",)
            what = f"version {table.newest + 1} is the table's next: the owner takes it over"
            self._fail(table, exchange, Wrong(requirements, what))

    def _swap_names(self, step: steps.TakeOver) -> None:
        first, second = self.tables.get(0), self.tables.get(1)
        plain = [table is not None and table.is_surely(State.PLAIN) for table in (first, second)]
        if step.swapped and all(plain) and not self.in_flight and first is not None and second is not None:
            first.known_as, second.known_as = second.handle.name, first.handle.name

    def _taking_over(self, table: DrivenTable, path: str, ahead: int) -> m.TakeOver:
        name = self.s.physical("again") if table.is_surely(State.OWNED) else self._physical(table)
        version = max(1, table.newest + 1 + ahead)
        request = ownership.taking_over(self.s, table.handle, version, path=path, name=name)
        table.content[request.attempt] = request
        table.named = table.named and not table.can_be_taken_over
        table.facts = table.facts._replace(asked=True)
        return request

    @_do.register
    def _hand_back(self, step: steps.HandBack) -> None:
        table = self._at(step)
        if table is None or not table.known or not self._transfers or table.dropped:
            return
        for _ in range(TRIES if not step.ahead and step.fate is Fate.ANSWERED else 1):
            table.handle.id = table.handle.id or self._body(table).get("id", "")
            request = ownership.giving_back(self.s, table.handle, max(1, table.newest + 1 + step.ahead))
            table.content[request.attempt] = request
            exchange = self._send(table, client_of(step.client), request, step.fate)
            if exchange is None or not isinstance(exchange.answer, m.Rejected | m.Unsupported) or not table.owned:
                return
            self.s.ask("publisher", m.BackfillToVersion(table=table.handle.reference, version=max(0, table.surely)))
        if not step.ahead and not table.halted and table.newest == table.surely:
            what = f"version {table.newest + 1} is the table's next: the table is handed back with it"
            self._fail(table, exchange, Wrong(("PROFILE-TRANSFER-01",), what))

    def _handed_back(self, table: DrivenTable, exchange: Exchange) -> None:
        """ "Converting a managed-commit table to filesystem table": everything is published."""
        assert isinstance(exchange.request, m.HandBack)
        version = exchange.request.version
        files = {file.name: file.content or "" for file in self.s.observe(table.handle)}
        attempt = proposals.attempt_of(files.get(commit_file(version), ""))
        if commit_file(version) in files and attempt != exchange.request.attempt:
            what, seen = f"version {version} is the commit that ends the ownership", f"it is attempt {attempt}"
            self._fail(table, exchange, Wrong(("MC-RELEASE-05", "MC-COMMIT-02", "MC-FILES-08"), what, version, seen))
        if version not in self._look(table):
            again = self.s.ask("publisher", m.BackfillToVersion(table=table.handle.reference, version=version))
            if version not in self._look(table):
                broken = ("MC-RELEASE-07", "MC-RELEASE-05") if isinstance(again.answer, m.Done) else (STAYS_STAGED,)
                what = f"version {version} ends the ownership, and the owner publishes it"
                self._fail(table, again, Wrong(broken, what, version))
        table.handle.ownership.append(exchange.request.attempt)
        table.handle.path = table.handle.path or table.location

    # Other requests

    @_do.register
    def _calls_the_api(self, step: steps.ApiCall) -> None:
        table, row = self._at(step), delta_api.NAMED.get(step.row)
        can = {"uc-delta-api", "storage-access"} <= self.contract.profiles
        if can and table is not None and row is not None and table.owned and not table.odd:
            name = table_name(self._physical(table))
            delta_api.send(self.s, name, row, client_of(step.client))

    @_do.register
    def _unknown(self, step: steps.Unknown) -> None:
        requests = self.s.requests_for_an_unknown_table(self.s.attempt())
        requests.insert(3, m.Hello())
        request = requests[step.request % len(requests)]
        if isinstance(request, m.Hello):
            answer = self.s.answer("client", request)
            same = not isinstance(answer, m.Identity) or answer.profiles == self.s.identity.profiles
            self.s.require(same, "PROFILE-CORE-01", expected="the answer to `hello` does not change",
                           observed=f"the profiles are {answer}")  # fmt: skip
            return
        exchange = self.s.ask(client_of(step.client), request)
        if isinstance(exchange.answer, m.Ratified | m.Table | m.Landed | m.Policy):
            first = ("PROFILE-POLICY-01",) if isinstance(exchange.answer, m.Policy) else ("PROFILE-DISCOVERY-01",)
            self.s.fail(
                *first, "PROFILE-CORE-03", evidence=(exchange,), observed=answered(exchange.request, exchange.answer),
                expected="the table does not exist: `not_found`, or another rejection",
            )  # fmt: skip

    @_do.register
    def _policy(self, step: steps.Policy) -> None:
        table = self._at(step)
        if table is None or not table.owned or "maintenance-policy" not in self.contract.profiles:
            return
        exchange = self.s.ask(client_of(step.client), m.MaintenancePolicy(table=table.handle.reference), table.handle)
        self._hear(table, exchange)
        if isinstance(exchange.answer, m.Policy):
            allowed = frozenset(exchange.answer.allowed)
            if table.policy is not None and table.policy != allowed and table.facts.restarted:
                what = f"{sorted(table.policy)}, as before the restart"
                self._fail(table, exchange, Wrong(("PROFILE-POLICY-01", "PROFILE-DURABLE-03"), what))
            table.policy = allowed

    # Requests at the same time

    @_do.register
    def _together(self, step: steps.Together) -> None:
        if self.armed or not (getattr(self.s.subject, "concurrent", False) or self._is_race_with_writers(step)):
            for single in (single for lane in step.lanes for single in lane):
                self._do(single)
            return
        lanes = [[call for single in lane if (call := self._call(single)) is not None] for lane in step.lanes[:MOST]]
        if sum(len(lane) for lane in lanes) > MOST:
            lanes = [lane[:2] for lane in lanes[: MOST // 2]]
        calls = concurrently(self.s, lanes, step.gap_ms)
        for table in dict.fromkeys(id(call.table) for call in calls):
            self._hear_all([call for call in calls if id(call.table) == table])

    def _is_race_with_writers(self, step: steps.Together) -> bool:
        """Whether the subject gets one request at a time: the others are writers to a local folder."""
        tables = [self._at(single) for lane in step.lanes for single in lane]
        places = [self._place(table) for table in tables if table is not None]
        others = [lane for lane in step.lanes if not any(isinstance(single, steps.Write) for single in lane)]
        return len(others) == 1 and all(place is not None and ownership.is_local(place) for place in places)

    def _place(self, table: DrivenTable) -> str | None:
        """Where its files are."""
        return table.handle.path or table.location or table.handle.reference

    def _call(self, step: steps.Single) -> Call | None:
        """The request of a step, which is sent at the same time as others; None if it is not possible now."""
        if isinstance(step, steps.Create):
            return self._creation(step)
        table = self._at(step)
        if table is not None and isinstance(step, steps.Write):
            return self._writing(table, step)
        if table is not None and isinstance(step, steps.TakeOver):
            return self._taking(table, step)
        if table is None or not table.owned or table.foreign:
            return None
        reference, request = table.handle.reference, cast(m.Request | None, None)
        match step:
            case steps.Commit():
                commit, whole = self._proposal(table, step)
                request, table.content[whole.attempt] = commit, whole
                table.sent.append(commit)
            case steps.Resend() if isinstance(sent := table.proposal(step.which, unsettled=step.unsettled), m.Commit):
                request = msgspec.structs.replace(sent)
            case steps.Resolve() if "attempt-outcome" in self.contract.profiles:
                attempt = table.proposal(step.which, unsettled=step.unsettled).attempt
                request = m.AttemptOutcome(table=reference, attempt=attempt)
            case steps.Read():
                request = m.GetCommits(table=reference)
            case steps.Load() if "discovery" in self.contract.profiles:
                request = m.LoadTable(name=self._physical(table))
            case steps.Backfill():
                request = m.BackfillToVersion(table=reference, version=max(0, table.surely - step.behind))
            case steps.Drop():
                self._look(table)  # the owner may forget a dropped table
                table.handle.final = self.s.log_of(table.handle)
                request = m.DropTable(table=reference)
        if request is None:
            return None
        return Call(table=table, handle=table.handle, client=client_of(getattr(step, "client", 0)), request=request)

    def _writing(self, table: DrivenTable, step: steps.Write) -> Call | None:
        """The commit of a filesystem writer or of another owner."""
        place = self._place(table)
        beside = table.owned and self.contract.commit_mode == "direct"
        if place is None or not self._has_access or not (beside or table.is_surely(State.PLAIN, State.RELEASED)):
            return None
        request, plant = self._file(table, place, giving=step.giving, changing=False)
        self.s.sent.add(request.attempt)
        return Call(table=table, handle=table.handle, client="filesystem writer", request=request, plant=plant)

    def _taking(self, table: DrivenTable, step: steps.TakeOver) -> Call | None:
        surely = table.is_surely(State.PLAIN, State.RELEASED)
        if table.location is None or table.foreign or not self._transfers or not surely:
            return None
        request = self._taking_over(table, table.location.rstrip("/"), step.ahead)
        table.sent.append(request)
        return Call(table=table, handle=table.handle, client=client_of(step.client), request=request)

    def _creation(self, step: steps.Create) -> Call | None:
        table = self.tables.get(step.table % TABLES)
        if table is None or table.is_surely(State.DROPPED):
            table = self._new(step.table % TABLES, step)
        if table.odd or table.handle.path is not None or not table.is_surely(State.OWNED):
            return None
        request = self.s.creation(table.handle.name.removesuffix(" again"), backlog_limit=table.limit)
        table.sent.append(request)
        table.content[request.attempt] = request
        return Call(table=table, handle=table.handle, client=client_of(step.client), request=request)

    def _hear_all(self, calls: Sequence[Call]) -> None:
        """Exclude the worlds in which the answers to requests of one table are possible in no order."""
        table: DrivenTable = calls[0].table
        was, surely = table.worlds, table.surely
        exchanges = [call.exchange for call in calls if call.exchange is not None]
        if any(
            call.plant and isinstance(call.exchange.answer, m.Unknown | m.Rejected) for call in calls if call.exchange
        ):
            raise Inconclusive("it is unknown whether a filesystem writer created a file")
        if any(call.plant for call in calls):
            table.facts = table.facts._replace(around=True)
        outcome = judge_together(was, self.contract, [
            Overlapping(
                call.plant or call.request, self._by_content(exchange.answer), call.begun, call.ended
            ) for call, exchange in zip(calls, exchanges, strict=True)
        ], table.facts)  # fmt: skip
        if isinstance(outcome, Impossible):
            wrong, index = outcome
            said = f"answers that are possible in some order of the concurrent requests; else {wrong.expected}"
            others = exchanges[:index] + exchanges[index + 1 :]
            self._fail(table, exchanges[index], wrong._replace(expected=said), *others)
            return
        self._keep(table, None, outcome)
        for call, exchange in zip(calls, exchanges, strict=True):
            self._hear_one(call, exchange, was, surely)

    def _hear_one(self, call: Call, exchange: Exchange, was: Worlds, surely: m.Version) -> None:
        table, request, answer = call.table, call.request, exchange.answer
        if call.plant is not None:
            self._wrote(table, exchange)
            return
        self._conclude(table, exchange, was)
        if isinstance(answer, m.Commits):
            self._listed(table, exchange, answer.commits, answer.latest, published=call.published)
        elif isinstance(answer, m.Table):
            self._resolved(table, exchange, answer)
        elif isinstance(request, m.BackfillToVersion) and isinstance(answer, m.Done) and table.owned:
            last, found = min(request.version, surely), sorted(self._look(table))
            self.s.require(
                max(found, default=-1) >= last, "MC-BACKFILL-05", "CM-PUBLISH-06", evidence=(exchange,),
                table=table.handle, version=last, expected=f"every version up to {last} is published: the request to "
                f"backfill was answered as done", observed=f"{found} are published",
            )  # fmt: skip
        elif isinstance(request, m.DropTable) and isinstance(answer, m.Done) and self.contract.commit_mode == "direct":
            late = sorted((published(self.s, call) or frozenset()) - (call.published or frozenset()))
            if call.published is not None and late:
                what = f"version {late[0]}, which is ratified by being published, is not published after the drop"
                self._fail(table, exchange, Wrong(AFTER_DROP, what, late[0], "a later listing has its file"))
        elif isinstance(request, m.DropTable) and isinstance(answer, m.Unknown):
            raise Inconclusive(f"it is unknown whether {table.handle.name} was dropped, and what its last log is")
        elif isinstance(request, m.DropTable) and not table.dropped:
            table.handle.final = None

    # Requests, and the conclusions from their answers

    def _at(self, step: Any) -> DrivenTable | None:
        places = self.past if getattr(step, "gone", False) else self.tables
        return places.get(step.table % TABLES) if hasattr(step, "table") else None

    def _send(self, table: DrivenTable, client: str, request: m.Request, fate: Fate) -> Exchange | None:
        """The exchange, if the client gets the answer."""
        if isinstance(request, m.Commit | m.CreateTable | m.TakeOver | m.HandBack):
            if request.attempt not in {sent.attempt for sent in table.sent[-20:]} and request not in table.sent:
                table.sent.append(request)
            table.content.setdefault(request.attempt, request)
        if fate is Fate.DELAYED:
            self.in_flight.append((table, self.s.delay(client, request, table.handle)))
        elif fate is Fate.LOST:
            exchange = self.s.lose(client, request, table.handle)
            self._died(exchange)
            if isinstance(exchange.answer, m.Unknown):
                table.worlds = frozenset(model.opened(world, request) for world in table.worlds)
            table.worlds = model.lost(table.worlds, request)
        else:
            pauses = self.s.pauses
            if isinstance(request, m.Commit) and self._is_full(table) and pauses is not LONG_PAUSES:
                self.s.pauses = ()
            exchange = self.s.ask(client, request, table.handle)
            self.s.pauses = self.s.pauses or pauses
            self._died(exchange)
            self._hear(table, exchange)
            return exchange
        return None

    def _is_full(self, table: DrivenTable) -> bool:
        """Whether a rejection is expected, so that it is no use to send the request again."""
        return table.limit is not None and table.newest - max(table.seen, default=-1) >= table.limit

    def _died(self, exchange: Exchange) -> None:
        if isinstance(exchange.answer, m.Unknown) and exchange.answer.reason.startswith(GONE) and self.armed:
            self.down = True

    def _hear(self, table: DrivenTable, exchange: Exchange) -> None:
        """Exclude the worlds in which the answer is impossible; at least one must remain."""
        before, request, answer = table.newest, exchange.request, exchange.answer
        self._died(exchange)
        if isinstance(request, m.CreateTable) and table.alike and isinstance(answer, m.Conflict) and before < 0:
            return
        was = table.worlds
        self._keep(table, exchange, model.judge(was, self.contract, request, self._by_content(answer), table.facts))
        self._conclude(table, exchange, was)

    def _conclude(self, table: DrivenTable, exchange: Exchange, was: Worlds) -> None:
        """What else follows from a possible answer. `was`: the worlds before the request."""
        before, request, answer = max(world.newest for world in was), exchange.request, exchange.answer
        if isinstance(answer, m.Conflict | m.Gap | m.Rejected) and isinstance(request, m.Commit | m.HandBack):
            facts = table.facts
            proposal = (request.version, request.attempt)
            early, beaten = ({request.attempt} if isinstance(answer, kind) else set() for kind in (m.Gap, m.Conflict))
            table.facts = facts._replace(
                refused=facts.refused | {proposal}, early=facts.early | early, beaten=facts.beaten | beaten
            )
        if isinstance(answer, m.Ratified):
            if isinstance(request, m.Commit | m.HandBack):
                known = (request.table, request.attempt)
                table.facts = table.facts._replace(ratified=table.facts.ratified | {known})
            self._is_ratified(table, exchange, request, answer)
        elif isinstance(answer, m.Conflict):
            self._named(table, exchange, answer.winner_table)
            if answer.winners and isinstance(request, m.Commit) and not self._is_replay(was, request):
                self._shows_winners(table, exchange, request.version, answer.winners)
        if table.limit is not None and table.newest > before and table.handle.path is None:
            self._within_limit(table, exchange)

    def _by_content(self, answer: m.Answer) -> Any:
        """The answer without the names of staged files that name no attempt of the kit: their content tells."""
        for kind in ("commits", "winners"):
            entries = getattr(answer, kind, None) or ()
            if any(entry.file_name is not None and self._is_unsent(entry.file_name) for entry in entries):
                changed = tuple(
                    msgspec.structs.replace(entry, file_name=None) if self._is_unsent(entry.file_name or "") else entry
                    for entry in entries
                )
                answer = msgspec.structs.replace(answer, **{kind: changed})
        return answer

    def _is_unsent(self, file: str) -> bool:
        return (log_names.attempt_of(file) or "").lower() not in self.s.sent

    def _is_replay(self, worlds: Worlds, request: Proposal) -> bool:
        return any(world.landed(request.attempt) is not None for world in worlds)

    def _is_ratified(self, table: DrivenTable, exchange: Exchange, request: m.Request, answer: m.Ratified) -> None:
        self.ratified += isinstance(request, m.Commit)
        table.ratified.setdefault(answer.version, exchange)
        if isinstance(request, m.TakeOver) and answer.version > table.taken:  # the owner's table: one more commit
            if answer.table not in (None, table.handle.reference):
                forgotten = ("MC-CONVERT-07", "MC-CONVERT-08") if table.facts.restarted else ()
                what = f"the table has this owner, as {table.handle.reference}: it is not taken over again"
                self._fail(table, exchange, Wrong(("MC-CONVERT-02", "MC-CONVERT-05", *forgotten), what, table.taken))
        elif isinstance(request, m.TakeOver):
            new = answer.version == table.taken and (not table.named or answer.table != table.handle.reference)
            if answer.table is not None and new and table.is_surely(State.OWNED):
                self._is_another(table, exchange, answer.table)
                left = table.facts.left | {table.handle.reference}
                table.facts = table.facts._replace(left=left - {answer.table})
                if answer.table != table.handle.reference:  # an outcome is about the reference that was asked about
                    table.worlds = frozenset(world._replace(never=frozenset()) for world in table.worlds)
                table.handle.reference, table.named = answer.table, True
                table.known_as = self.s.logical(request.name)
            if request.attempt not in table.handle.ownership:
                table.handle.ownership.append(request.attempt)
            lost = ("MC-CONVERT-09",) if any(other.facts.asked for other in self._others(table)) else ()
            change = ("MC-CONVERT-03", "MC-CONVERT-05", "MC-CONVERT-08", "MC-CONVERT-02", *lost)
            self._is_visible(table, exchange, answer.version, *change)
        elif not table.taken:  # a table that was taken over may have another reference than before
            self._named(table, exchange, answer.table)
        if isinstance(request, m.HandBack) and table.is_surely(State.RELEASED):
            self._handed_back(table, exchange)
        direct = self.contract.commit_mode == "direct" and len(table.seen) < LOOKED
        if isinstance(request, m.Commit) and direct and table.owned:
            self._is_visible(table, exchange, answer.version, "PROFILE-DIRECT-01", "MC-COMMIT-05", "CM-COMMIT-05")
        if isinstance(request, m.CreateTable) and table.owned and "version-0-by-filesystem" in self.contract.profiles:
            self._is_visible(table, exchange, 0, "PROFILE-VERSION0-03", "MC-CREATE-01")

    def _keep(self, table: DrivenTable, exchange: Exchange | None, outcome: Worlds | Wrong) -> None:
        if isinstance(outcome, Wrong):
            self._fail(table, exchange, outcome)
            return
        table.worlds = outcome
        table.handle.versions = max(table.handle.versions, table.surely + 1)

    def _fail(self, table: DrivenTable, exchange: Exchange | None, wrong: Wrong, *others: Exchange | None) -> None:
        """The answer, or the last listing, is possible in no world. Only the requirements that bind the subject here
        are violated; if there is none, it is not a violation."""
        if not any(applies(name, self.s.identity, self.s.variant) for name in wrong.requirements):
            return
        because = None if wrong.version is None else table.ratified.get(wrong.version)
        operations = list({call.number: call for call in (exchange, *others, because) if call is not None}.values())
        observed = wrong.observed or ("" if exchange is None else answered(exchange.request, exchange.answer))
        self.s.fail(
            *wrong.requirements, evidence=operations, expected=wrong.expected, table=table.handle,
            version=wrong.version, observed=observed,
        )  # fmt: skip

    def _named(self, table: DrivenTable, exchange: Exchange, reference: str | None) -> None:
        if not reference:
            return
        if not table.named or not table.handle.reference:
            self._is_another(table, exchange, reference)
            table.handle.reference, table.named = reference, True
            if table.handle not in self.s.tables:
                self.s.tables.append(table.handle)
        elif reference != table.handle.reference:
            what = f"the table {table.handle.reference}, which has this name"
            self._fail(table, exchange, Wrong(
                ("PROFILE-DISCOVERY-01", "PROFILE-CORE-06", "MC-CREATE-02", "CM-COMMIT-08"), what,
                observed=f"the answer names the table {reference}",
            ))  # fmt: skip

    def _is_another(self, table: DrivenTable, exchange: Exchange, reference: str) -> None:
        """A reference is that of one table, also after its drop."""
        for other in self._others(table):
            if other.handle.reference == reference and not (table.alike and isinstance(exchange.answer, m.Conflict)):
                twice = ("MC-CREATE-02", "CM-COMMIT-08") if isinstance(exchange.answer, m.Ratified) else ()
                first = ("PROFILE-DISCOVERY-02",) if other.dropped else twice
                self._fail(table, exchange, Wrong(
                    (*first, "PROFILE-DISCOVERY-01"), "a reference of its own",
                    observed=f"{reference} is the reference of {other.handle.name}",
                ))  # fmt: skip

    # Observations

    def _follow(self) -> None:
        """Judge what happened in the log folders."""
        watch = self.s.subject
        if not isinstance(watch, Watch):
            return
        for event in watch.events():
            table, wrong = self.logs.judge(event, self.tables.values(), watch)
            if table is None or event.version in table.torn:  # an owner may complete a file that it may have begun
                continue
            if event.kind is Kind.APPEARED and not event.by_kit and not table.dropped:
                outcome = model.visible(table.worlds, {event.version: event.attempt})
                wrong = outcome if isinstance(outcome, Wrong) else wrong
            if wrong is not None:
                self._fail(table, None, wrong, *(self.s.under_way(call.request) for call in event.during))

    def _look(self, table: DrivenTable) -> dict[m.Version, str]:
        """List the files: the published commits are a prefix of the ratified ones, and never change."""
        files = self.s.observe(table.handle)
        sent = {name: proposal for name, proposal in table.content.items() if name not in table.rebased}
        table.listed = frozenset(file.name for file in files)
        own = [file for file in files if file.name not in table.strays]
        newest = max((version_of(name) or 0 for name in table.listed), default=-1)
        wrong = oracle_contents.names(files, sent, self.contract.feature, self.contract.commit_mode)
        if oracle_contents.sizes(files) is not None:  # a file may grow while it is listed
            wrong = wrong or oracle_contents.sizes(self.s.observe(table.handle))
        if wrong is None and oracle_contents.derived(own, newest) is not None:  # a listing is not atomic
            later = (version_of(file.name) or 0 for file in self.s.observe(table.handle))
            wrong = oracle_contents.derived(own, max(later, default=-1))
        if wrong is not None:
            self._fail(table, None, wrong)
        published = self._published(table, files)
        expected = list(range(table.base, table.base + len(published)))
        if sorted(published) != expected or not set(table.seen) <= set(published):  # a listing is not atomic
            published = {**self._published(table, self.s.observe(table.handle)), **published}
        for version in sorted(set(table.seen) - set(published)):
            self._fail(table, None, Wrong(
                ("MC-FILES-08", "CM-FILES-07", "MC-RELEASE-04"),
                f"version {version}, which was published, stays until a cleanup", version, "it is missing",
            ))  # fmt: skip
        identities = {version: proposals.attempt_of(content) for version, content in published.items()}
        self._keep(table, None, model.visible(table.worlds, identities, table.facts))
        missing = sorted(set(range(table.base, max(published, default=-1) + 1)) - set(published))
        if missing:
            left = ("MC-RELEASE-03",) if any(world.state is State.RELEASED for world in table.worlds) else ()
            self._fail(table, None, Wrong(
                (*left, "MC-BACKFILL-03", "CM-PUBLISH-06"),
                f"version {missing[0]} is published before version {max(published)}", missing[0],
                f"published are versions {sorted(published)[-9:]}",
            ))  # fmt: skip
        left_at = min((world.newest if world.state is State.RELEASED else -1 for world in table.worlds), default=-1)
        late = [version for version in range(table.base, left_at) if version not in published]
        if late:
            self._fail(table, None, Wrong(
                ("MC-RELEASE-03", "MC-BACKFILL-03", "CM-PUBLISH-06"),
                f"version {late[0]} is published before version {left_at}, the hand-back", late[0], "it is missing",
            ))  # fmt: skip
        new = {version: content for version, content in published.items() if table.seen.get(version) != content}
        for version in sorted(set(new) & set(table.seen)):
            first = ("MC-CREATE-02", "CM-COMMIT-08") if version == 0 else ("MC-BACKFILL-01", "MC-FEATURE-02")
            self._fail(table, None, Wrong(
                ("CM-PUBLISH-03", "MC-FILES-08", "CM-FILES-07", *first),
                f"version {version} never changes", version, "its file had two contents, in this order",
            ))  # fmt: skip
        for version, content in new.items():
            table.seen[version] = content
            self._is_as_proposed(table, version, proposals.lines(content), content)
        return published

    def _published(self, table: DrivenTable, files: Sequence[m.LogFile]) -> dict[m.Version, str]:
        """The published commits, without foreign files, which must be unchanged."""
        found = {}
        for file in files:
            version = version_of(file.name)
            if version is None or version < table.base:
                continue
            if file.content is None:
                self.s.fail("PROFILE-CORE-02", table=table.handle, version=version, observed="it has none",
                            expected=f"`observe` shows the content of {file.name}")  # fmt: skip
            elif version not in table.foreign:
                found[version] = file.content
            elif version in table.torn and file.content != table.foreign[version]:  # the owner completed it
                del table.foreign[version]
                found[version] = file.content
            elif file.content != table.foreign[version]:
                self._fail(table, None, Wrong(
                    ("MC-FILES-08", "CM-FILES-07", "MC-BACKFILL-01", "CM-PUBLISH-03", "MC-COMMIT-02", "CM-COMMIT-08"),
                    f"the file {file.name} of another writer is not replaced", version, "it was replaced",
                ))  # fmt: skip
        return found

    def _is_as_proposed(self, table: DrivenTable, version: int, actions: Sequence[str], text: str | None) -> None:
        """In some world the version is the attempt with this content."""
        wrongs = []
        for world in table.worlds:
            proposal = table.content.get(world.attempt_at(version) or "")
            wrong = None
            if proposal is not None and (proposal.actions is not None):
                wrong = oracle_contents.commit(proposal, actions, version, table.facts)
                if text is not None and version > world.taken and self.contract.commit_mode != "direct":
                    wrong = oracle_contents.published(text, table.staged.get(version), version, wrong)
            if wrong is None:
                return
            if proposal is not None and proposal.attempt in table.facts.altered:
                wrong = wrong._replace(requirements=("MC-FEATURE-02", "CM-PUBLISH-03", *wrong.requirements))
            wrongs.append(wrong)
        self._fail(table, None, wrongs[0])

    def _listed(
        self,
        table: DrivenTable,
        exchange: Exchange,
        commits: Sequence[m.CommitEntry],
        latest: int | None,
        start: int | None = None,
        end: int | None = None,
        *,
        resolution: bool = False,
        published: Collection[m.Version] | None = None,
    ) -> None:
        """Every unlisted version is published; the listed ones are as proposed. `published`: what a listing after the
        answer showed; by default, the published versions now."""
        if not table.owned:
            return
        self._entries(table, exchange, commits)
        if latest in model.NONE or latest is None:
            return
        last = latest if end is None else min(end, latest)
        omitted = set(range(max(start or 0, table.base), last + 1)) - {commit.version for commit in commits}
        omitted -= set(table.seen)
        shown = self._look(table) if omitted and published is None else published or ()
        forgotten = sorted(omitted - set(shown))
        if forgotten:
            found = ("CM-GET-05",) if resolution else ()
            none = ("LOG-07",) if commits else ("MC-API-04", "CM-CATALOG-04")
            after = ("PROFILE-DURABLE-01",) if table.facts.restarted else ()
            stored: tuple[str, ...] = ("CM-STORE-04", "CM-STORE-05") if table.foreign else ()
            if table.facts.asked and forgotten[0] == table.taken:
                stored = ("MC-CONVERT-03", "MC-CONVERT-09", "MC-CONVERT-05")
            self._fail(table, exchange, Wrong(
                ("MC-GET-01", "CM-GET-03", "MC-FILES-06", "CM-STORE-09", "MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03",
                 *found, *after, *stored, *none),
                f"version {forgotten[0]}, ratified and not published, is listed", forgotten[0],
                f"listed are versions {[commit.version for commit in commits][-9:]}",
            ))  # fmt: skip

    def _entries(self, table: DrivenTable, exchange: Exchange, commits: Iterable[m.CommitEntry]) -> None:
        """ "Getting Ratified Commits": a staged commit is listed by its file, an inline one with its content."""
        listed = [entry for entry in commits if entry.version > table.taken and entry.version not in table.seen]
        wants_files = [entry for entry in listed if entry.file_name is not None and entry.version not in table.staged]
        files = {file.name: file.content for file in self.s.observe(table.handle)} if wants_files else {}
        for entry in listed:
            version = entry.version
            if (wrong := oracle_contents.listed(entry)) is not None:
                self._fail(table, exchange, wrong)
            proposal = self._only(table, version)
            if entry.actions is not None and entry.file_name is None and self.contract.commit_mode == "staged":
                self._fail(table, exchange, Wrong(
                    ("MC-FEATURE-01", "CM-STORE-03"), f"the file name of version {version}, not its content", version
                ))  # fmt: skip
            if entry.actions is None and self.contract.commit_mode == "inline" and version not in self._look(table):
                self._fail(table, exchange, Wrong(
                    ("PROFILE-INLINE-01", "CM-STORE-05", "CM-STORE-09"), f"version {version} with its content", version
                ))  # fmt: skip
            if entry.actions is not None:
                self._is_as_proposed(table, version, entry.actions, None)
            if entry in wants_files and commit_file(version) not in files:
                self._is_staged(table, exchange, entry, files)
            claimed = entry.in_commit_timestamp
            own = None if proposal is None else proposals.time_of(proposals.content(proposal.actions or ()))
            if claimed is not None and own is not None and claimed != own:
                self._fail(table, exchange, Wrong(
                    ("MC-API-04", "CM-CATALOG-04"), f"{own} as the time of version {version}", version
                ))  # fmt: skip

    def _only(self, table: DrivenTable, version: int) -> Proposal | None:
        """The proposal that is this version in every world."""
        attempts = {world.attempt_at(version) for world in table.worlds}
        return table.content.get(attempts.pop() or "") if len(attempts) == 1 else None

    def _is_staged(
        self, table: DrivenTable, exchange: Exchange, entry: m.CommitEntry, files: dict[str, str | None]
    ) -> None:
        """A listed staged file exists, and is the proposal."""
        version = entry.version
        name = f"{STAGING[self.contract.feature]}/{(entry.file_name or '').rpartition('/')[2]}"
        content = files.get(name)
        if content is None:
            if version in self._look(table):
                return
            after = ("PROFILE-DURABLE-01",) if table.facts.restarted else ()
            self._fail(table, exchange, Wrong(
                ("MC-FEATURE-01", "CM-STORE-09", "MC-FILES-06", *after, "MC-FILES-04", "CM-FILES-02", "LOG-03"),
                f"the staged file {name} of version {version} exists", version, "it does not exist",
            ))  # fmt: skip
            return
        proposal = self._only(table, version)
        attempt = proposals.attempt_of(content)
        if proposal is not None and attempt is not None and attempt != proposal.attempt:
            self._fail(table, exchange, Wrong(
                ("MC-FILES-03", "CM-FILES-03", *model.IDENTITY), f"the staged file {name} is attempt "
                f"{proposal.attempt}", version, f"it is attempt {attempt}",
            ))  # fmt: skip
        lines = proposals.lines(content)
        if attempt is None and proposal is not None:
            self._fail(table, exchange, Wrong(
                ("CM-FILES-01", "MC-LOG-05"), f"the staged file {name} has the format of a commit", version,
                f"it begins with {content[:80]}",
            ))  # fmt: skip
        self._is_as_proposed(table, version, lines, None)
        table.staged[version] = content

    def _shows_winners(
        self, table: DrivenTable, exchange: Exchange, version: int, winners: Sequence[m.CommitEntry]
    ) -> None:
        """ "Conflict Resolution": before the last winner, only published versions are left out."""
        self._entries(table, exchange, winners)
        shown = {winner.version for winner in winners}
        omitted = sorted(set(range(version, max(shown))) - shown - set(table.seen))
        omitted = [number for number in omitted if number not in self._look(table)] if omitted else []
        if omitted:
            what = f"version {omitted[0]}, a winner that is not published"
            self._fail(table, exchange, Wrong(("PROFILE-CORE-08",), what, omitted[0]))

    def _is_visible(self, table: DrivenTable, exchange: Exchange, version: int, *requirements: str) -> None:
        self.s.require(
            version in self._look(table), *requirements, evidence=(exchange,), table=table.handle, version=version,
            observed="it is not", expected=f"version {version}, which was ratified, is published",
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


def client_of(number: int) -> str:
    return "watcher" if number < 0 else f"client {number % CLIENTS}"
