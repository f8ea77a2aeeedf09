"""Does the steps about several tables: groups of proposals, and requests for all tables (profile `transaction-group`).

A group is recorded as its members, each a `commit` of its table, all with the same beginning and end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from conformance.interface import messages as m
from conformance.oracle import groups as oracle
from conformance.oracle.groups import WrongMember
from conformance.oracle.owner import State, Worlds, Wrong
from conformance.programs import steps
from conformance.programs.driving import Drive, DrivenTable, client_of
from conformance.programs.steps import TABLES, Again, Fate
from conformance.programs.together import Call
from conformance.scenario import groups as scenario_groups
from conformance.scenario.scenario import TRIES, Exchange, Inconclusive

PROFILE = "transaction-group"


@dataclass(slots=True, kw_only=True)
class SentGroup:
    """A group that was sent."""

    request: m.CommitGroup
    tables: tuple[DrivenTable, ...]
    whole: bool = True
    """Whether its attempts can land only together: none of them was sent in another group, or alone, before all
    landed."""

    @property
    def attempts(self) -> frozenset[m.AttemptId]:
        return frozenset(member.attempt for member in self.request.members)

    @property
    def surely_landed(self) -> bool:
        return all(
            world.landed(member.attempt) == member.version
            for table, member in zip(self.tables, self.request.members, strict=True)
            for world in table.worlds
        )


@dataclass(slots=True, kw_only=True)
class Waiting:
    """A group that the network holds back."""

    group: SentGroup
    client: str
    numbers: list[int]


class GroupDrive(Drive):
    """A scenario whose steps may concern several tables."""

    def __init__(self, s: Any) -> None:
        super().__init__(s)
        self.groups: list[SentGroup] = []
        self.waiting: list[Waiting] = []
        self.seen_together: list[Call] = []
        """The requests for all tables of a race."""

    def do(self, step: steps.Step) -> None:
        super().do(step)
        self._agree()

    def _do(self, step: Any) -> None:
        if isinstance(step, steps.Deliver) and self.waiting and step.which % 2 == 0:
            self._deliver_group(step)
        elif not isinstance(step, steps.Group | steps.Regroup | steps.LoadAll):
            super()._do(step)
            if isinstance(step, steps.Together):
                self._hear_all_tables()
        elif PROFILE not in self.contract.profiles or self.contract.commit_mode == "direct":
            return
        elif isinstance(step, steps.LoadAll):
            self._load_all(step)
        elif isinstance(step, steps.Group) and step.surely and len(step.members) == 2:  # more may be too many
            self._until_certain(step)
        elif (group := self._of(step)) is not None:
            self._send_group(group, client_of(step.client), step.fate)

    # Groups

    def _of(self, step: steps.Group | steps.Regroup) -> SentGroup | None:
        group = self._new_group(step) if isinstance(step, steps.Group) else self._again(step)
        if group is not None:
            self.groups.append(group)
        return group

    def _new_group(self, step: steps.Group) -> SentGroup | None:
        tables: list[DrivenTable] = []
        for number in step.members:
            table = self.tables.get(number % TABLES)
            if table is not None and table.known and table.handle.reference and table not in tables:
                tables.append(table)
        if len(tables) < 2 or all(not table.is_surely(State.OWNED) for table in tables):
            return None
        members = []
        for index, table in enumerate(tables):
            ahead = step.ahead if step.which < 0 or index == step.which % len(tables) else 0
            proposal, whole = self._proposal(table, steps.Commit(ahead=ahead, staged=step.staged))
            table.content[whole.attempt] = whole
            table.sent.append(proposal)
            members.append(proposal)
        return SentGroup(request=scenario_groups.group_of(members), tables=tuple(tables))

    def _again(self, step: steps.Regroup) -> SentGroup | None:
        if not self.groups:
            return None
        old = self.groups[-1 - step.which % len(self.groups)]
        if any(
            member.table != table.handle.reference or member.attempt in table.facts.altered | table.rebased
            for table, member in zip(old.tables, old.request.members, strict=True)
        ):
            return None  # it may land with either of its contents
        if step.again in (Again.WHOLE, Again.TURNED):
            self.groups.remove(old)
            if step.again is Again.TURNED and not any(waiting.group is old for waiting in self.waiting):
                old.request, old.tables = m.CommitGroup(members=old.request.members[::-1]), old.tables[::-1]
            return old
        if len(old.tables) < 2:
            return None
        old.whole = old.whole and old.surely_landed
        others = old.request.members[1:]
        if step.again is Again.PART:
            kept = old.request.members[:-1]
            return SentGroup(request=m.CommitGroup(members=kept), tables=old.tables[: len(kept)], whole=False)
        members = oracle.commits_of(old.request)[:1]
        for table, _ in zip(old.tables[1:], others, strict=True):
            proposal, whole = self._proposal(table, steps.Commit())
            table.content[whole.attempt] = whole
            table.sent.append(proposal)
            members.append(proposal)
        return SentGroup(request=scenario_groups.group_of(members), tables=old.tables, whole=False)

    def _send_group(self, group: SentGroup, client: str, fate: Fate) -> m.Answer | None:
        """The answer, if the client gets it."""
        s, request = self.s, group.request
        numbers = scenario_groups.invoke(s, client, request, [table.handle for table in group.tables])
        if fate is Fate.DELAYED:
            self.waiting.append(Waiting(group=group, client=client, numbers=numbers))
            return None
        if fate is Fate.LOST:
            self._lose_group(group, client, numbers)
            return None
        answer = s.answer(client, request)
        self._hear_group(group, numbers, answer)
        return answer

    def _lose_group(self, group: SentGroup, client: str, numbers: Sequence[int]) -> None:
        self.s.recording.writer.fault("lost answer", client=client)
        answer = self.s.answer(client, group.request, getattr(self.s.subject, "lose", None))
        for number in numbers:
            self.s.recording.lost(number, "the answer was lost")
        self.s.looked = None
        self._died(Exchange(number=numbers[0], request=group.request, answer=answer))
        if isinstance(answer, m.Unknown):
            self._judge_group(group, answer)
        else:
            links = self._links(group.tables)
            self._is_judged(group.tables)
            possible = oracle.lost([table.worlds for table in group.tables], links, self.contract, group.request)
            for table, worlds in zip(group.tables, possible, strict=True):
                table.worlds = worlds

    def _deliver_group(self, step: steps.Deliver) -> None:
        waiting = self.waiting.pop(step.which // 2 % len(self.waiting))
        if step.given_up:
            for number in waiting.numbers:
                self.s.recording.lost(number, "no answer in time")
            answer = self.s.answer(waiting.client, waiting.group.request)
            possible = oracle.lost(
                [table.worlds for table in waiting.group.tables], self._links(waiting.group.tables), self.contract,
                waiting.group.request,
            )  # fmt: skip
            if isinstance(answer, m.Unknown):
                self._judge_group(waiting.group, answer)
                return
            for table, worlds in zip(waiting.group.tables, possible, strict=True):
                table.worlds = worlds
        else:
            self._hear_group(waiting.group, waiting.numbers, self.s.answer(waiting.client, waiting.group.request))

    def _hear_group(self, group: SentGroup, numbers: Sequence[int], answer: m.Answer) -> None:
        """Exclude the worlds of all its tables in which the answer is impossible."""
        exchanges = scenario_groups.ended(self.s, numbers, group.request, answer, self._known(group))
        self._died(exchanges[0])
        was = [table.worlds for table in group.tables]
        self._judge_group(group, answer, exchanges)
        for table, exchange, before in zip(group.tables, exchanges, was, strict=True):
            if not isinstance(exchange.answer, m.Unknown):
                self._conclude(table, exchange, before)

    def _judge_group(self, group: SentGroup, answer: m.Answer, exchanges: Sequence[Exchange] = ()) -> None:
        self._is_judged(group.tables)
        outcome = oracle.judge(
            [table.worlds for table in group.tables], self._links(group.tables), self.contract, group.request,
            self._with_known_names(answer), [table.facts for table in group.tables], whole=group.whole,
        )  # fmt: skip
        self._keep_all(group.tables, exchanges, outcome)

    def _with_known_names(self, answer: m.Answer) -> m.Answer:
        if isinstance(answer, m.GroupRefused):
            return m.GroupRefused(
                decided_by=answer.decided_by, answer=self._by_content(answer.answer), lost=answer.lost
            )
        return answer

    def _keep_all(
        self, tables: Sequence[DrivenTable], exchanges: Sequence[Exchange], outcome: list[Worlds] | WrongMember
    ) -> None:
        if isinstance(outcome, WrongMember):
            index = outcome.table
            of_it = exchanges[index] if exchanges else None
            self._fail(tables[index], of_it, outcome.wrong, *[one for one in exchanges if one is not of_it])
            return
        for table, worlds in zip(tables, outcome, strict=True):
            self._keep(table, None, worlds)

    def _is_judged(self, tables: Sequence[DrivenTable]) -> None:
        if oracle.too_many([table.worlds for table in tables]):
            raise Inconclusive(f"more than {oracle.MOST} states of several tables are possible")

    def _links(self, tables: Sequence[DrivenTable]) -> list[dict[int, m.AttemptId]]:
        """The groups that can only land whole, by the numbers of these tables."""
        found = [
            {
                index: member.attempt
                for index, table in enumerate(tables)
                for member, other in zip(group.request.members, group.tables, strict=True) if other is table
            }
            for group in self.groups if group.whole
        ]  # fmt: skip
        return [link for link in found if len(link) > 1]

    def _known(self, group: SentGroup) -> frozenset[m.AttemptId]:
        """Attempts of the group that may have landed before."""
        return frozenset(
            member.attempt
            for table, member in zip(group.tables, group.request.members, strict=True)
            if any(world.landed(member.attempt) is not None for world in table.worlds)
        )

    def _agree(self) -> None:
        """No group landed in part."""
        tables = list({id(table): table for group in self.groups if group.whole for table in group.tables}.values())
        links = self._links(tables)
        if not links:
            return
        agreed = oracle.agree([table.worlds for table in tables], links)
        if agreed is None:
            self._fail_in_part(tables, links)
            return
        for table, worlds in zip(tables, agreed, strict=True):
            if worlds < frozenset(table.worlds) or not table.worlds <= worlds:
                table.worlds = worlds

    def _fail_in_part(self, tables: Sequence[DrivenTable], links: Sequence[dict[int, m.AttemptId]]) -> None:
        for link in links:
            if oracle.agree([table.worlds for table in tables], [link]) is None:
                break
        landed = [
            index for index in link if all(world.landed(link[index]) is not None for world in tables[index].worlds)
        ]
        index = (landed or [*link])[0]
        names = ", ".join(tables[other].handle.name for other in link)
        shown = ", ".join(tables[other].handle.name for other in landed)
        what = f"the group in {names} landed whole, or not at all"
        last = self.s._answered.get((tables[index].handle.name, link[index]), [])
        self._fail(tables[index], last[-1] if last else None, Wrong(
            (oracle.ATOMIC, "PROFILE-DURABLE-01"), what, observed=f"it landed in {shown} alone" if shown else "neither",
        ))  # fmt: skip

    def _until_certain(self, step: steps.Group) -> None:
        """The owner ratifies the next versions, if the backlog has room; a taken one is the reason of a refusal."""
        tables = [self.tables.get(number % TABLES) for number in step.members]
        if not all(table is not None and table.owned and not table.halted for table in tables):
            return
        once = steps.Group(members=step.members, client=step.client, which=step.which, ahead=step.ahead)
        answers: list[m.Answer] = []
        for attempt in range(TRIES):
            group = self._of(once)
            if group is None or any(len(table.worlds) > 1 for table in group.tables):
                return
            number = step.which % len(group.tables)
            table, version = group.tables[number], group.request.members[number].version
            answer = self._send_group(group, client_of(step.client), Fate.ANSWERED)
            if answer is None or isinstance(answer, m.GroupRatified | m.Unknown) or self.down:
                return
            decided = isinstance(answer, m.GroupRefused) and isinstance(answer.answer, m.Conflict)
            if step.ahead < 0 and decided:
                return
            answers.append(answer)
            exchange = self._last(group, number)
            for full in group.tables if attempt == TRIES // 2 else ():
                self.s.ask("publisher", m.BackfillToVersion(table=full.handle.reference, version=max(0, full.surely)))
        if step.ahead < 0:
            what = f"version {version} is taken, and that is the only problem: a refusal that names member {number}"
            self._fail(table, exchange, Wrong((oracle.NAMED, "PROFILE-CORE-04"), what, version))
        elif any(isinstance(answer, m.Rejected | m.GroupRefused | m.Unsupported | m.NotFound) for answer in answers):
            what = "all members propose the next version of their table, and no other client does: `group_ratified`"
            self._fail(table, exchange, Wrong((oracle.PROGRESS,), what))

    def _last(self, group: SentGroup, number: int) -> Exchange | None:
        about = (group.tables[number].handle.name, group.request.members[number].attempt)
        found = self.s._answered.get(about, [])
        return found[-1] if found else None

    # All tables

    def _load_all(self, step: steps.LoadAll) -> None:
        call = self._all_tables(step)
        if call is None:
            return
        numbers = [self.s._invoke(call.client, part.request, part.handle) for part in call.parts]
        answer = self.s.answer(call.client, call.request)
        parts = _tables_of(call, answer)
        exchanges = [
            self.s._ended(number, part.request, given)
            for number, part, given in zip(numbers, call.parts, parts, strict=True)
        ]
        self._died(exchanges[0])
        if isinstance(answer, m.Unknown | m.Unsupported | m.Rejected):
            return
        tables = [part.table for part in call.parts]
        self._is_judged(tables)
        outcome = oracle.load_tables(
            [table.worlds for table in tables], self._links(tables), self.contract,
            [self._by_content(given) for given in parts], [table.facts for table in tables],
        )  # fmt: skip
        self._keep_all(tables, exchanges, outcome)
        for table, exchange in zip(tables, exchanges, strict=True):
            if isinstance(exchange.answer, m.Table):
                self._resolved(table, exchange, exchange.answer)

    def _all_tables(self, step: steps.LoadAll) -> Call | None:
        tables = [table for _, table in sorted(self.tables.items()) if table.owned and not table.odd]
        if not tables or "discovery" not in self.contract.profiles:
            return None
        client = client_of(step.client)
        parts = [
            Call(table=table, handle=table.handle, client=client, request=m.LoadTable(name=self._physical(table)))
            for table in tables
        ]
        request = m.LoadTables(names=tuple(part.request.name for part in parts))
        call = Call(table=None, handle=tables[0].handle, client=client, request=request, parts=parts)
        call.apart = lambda answer: _tables_of(call, answer)
        return call

    # Races

    def _call(self, step: steps.Single) -> Call | None:
        if PROFILE in self.contract.profiles and self.contract.commit_mode != "direct":
            if isinstance(step, steps.LoadAll):
                call = self._all_tables(step)
                self.seen_together += [] if call is None else [call]
                return call
            again = isinstance(step, steps.Regroup) and step.again is Again.WHOLE
            if (again or isinstance(step, steps.Group)) and (group := self._of(step)) is not None:  # type: ignore[arg-type]
                return self._group_call(group, client_of(step.client))  # type: ignore[union-attr]
        if isinstance(step, steps.Group | steps.Regroup | steps.LoadAll):
            return None
        call = super()._call(step)
        if call is not None and isinstance(call.request, m.Commit):
            self._is_alone(call.table, call.request.attempt)
        return call

    def _group_call(self, group: SentGroup, client: str) -> Call | None:
        if not all(table.owned and not table.foreign for table in group.tables):
            self.groups.remove(group)
            return None
        parts = [
            Call(table=table, handle=table.handle, client=client, request=commit)
            for table, commit in zip(group.tables, oracle.commits_of(group.request), strict=True)
        ]
        known = self._known(group)
        return Call(
            table=None, handle=group.tables[0].handle, client=client, request=group.request, parts=parts,
            apart=lambda answer: oracle.parts_of(group.request, answer, known),
        )  # fmt: skip

    def _hear_all_tables(self) -> None:
        """A request for all tables in a race shows each group whole, or not at all."""
        shown, self.seen_together = self.seen_together, []
        for call in shown:
            exchanges = [part.exchange for part in call.parts if part.exchange is not None]
            latest = {
                id(part.table): part.exchange.answer.latest
                for part in call.parts if part.exchange is not None and isinstance(part.exchange.answer, m.Table)
            }  # fmt: skip
            for group in self.groups:
                members = {
                    id(table): member.version
                    for table, member in zip(group.tables, group.request.members, strict=True)
                }  # fmt: skip
                if group.whole and group.surely_landed and oracle.half_shown(members, latest):
                    names = " and ".join(table.handle.name for table in group.tables)
                    self._fail(group.tables[0], exchanges[0], Wrong(
                        (oracle.ONE_STATE,), f"the group in {names} is shown whole, or not at all", None,
                        f"the latest versions are {sorted(str(version) for version in latest.values())}",
                    ), *exchanges[1:])  # fmt: skip

    # Members alone

    def _is_alone(self, table: DrivenTable, attempt: m.AttemptId) -> None:
        """The attempt is sent alone: from now on its group may land in part, unless all of it landed."""
        for group in self.groups:
            if table in group.tables and attempt in group.attempts:
                group.whole = group.whole and group.surely_landed

    def _send(self, table: DrivenTable, client: str, request: m.Request, fate: Fate) -> Exchange | None:
        if isinstance(request, m.Commit):
            self._is_alone(table, request.attempt)
        return super()._send(table, client, request, fate)

    def _altered(self, table: DrivenTable, request: m.Commit) -> m.Commit:
        self._is_alone(table, request.attempt)
        return super()._altered(table, request)

    # What a violation says about groups

    def _of_ratification(self, table: DrivenTable) -> tuple[str, ...]:
        grouped = any(table in group.tables for group in self.groups)
        return (*super()._of_ratification(table), *((oracle.PROGRESS,) if grouped else ()))

    def _fail(self, table: DrivenTable, exchange: Exchange | None, wrong: Wrong, *others: Exchange | None) -> None:
        version = table.newest + 1 if wrong.version is None else wrong.version
        of_group = any(
            other is table and member.version == version
            for group in self.groups
            for other, member in zip(group.tables, group.request.members, strict=True)
        )
        if of_group and {oracle.ATOMIC, oracle.PROGRESS}.isdisjoint(wrong.requirements):
            wrong = wrong._replace(requirements=(*wrong.requirements, oracle.ATOMIC))
        super()._fail(table, exchange, wrong, *others)


def _tables_of(call: Call, answer: m.Answer) -> Sequence[m.Answer]:
    """What the answer says about each table."""
    if not isinstance(answer, m.Tables):
        return [answer for _ in call.parts]
    if len(answer.tables) != len(call.parts):
        return [m.Unknown(reason=f"{len(answer.tables)} tables") for _ in call.parts]
    return answer.tables
