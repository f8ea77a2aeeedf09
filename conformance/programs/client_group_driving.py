"""Does the steps of a client about several tables (profile `transaction-group`): transactions that change all of them,
or none, and reads that show each of those whole, or not at all.

The kit's owner answers with the same freedoms as for one table. Each part of an operation is judged as one on its own
table; what is judged here is that the parts belong together.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.interface.log_names import FILESYSTEM
from conformance.models import proposals
from conformance.oracle import client as oracle
from conformance.oracle import groups
from conformance.oracle.client import Wrong
from conformance.programs import client_steps as steps
from conformance.programs.client_driving import KINDS, LANDING, ClientDrive, DrivenTable, is_excused
from conformance.programs.client_steps import Change, Columns, Freedom
from conformance.requirements.catalogue import Profile
from conformance.scenario import groups as scenario_groups
from conformance.scenario.adversary import COMMITS
from conformance.scenario.client import ClientScenario
from conformance.scenario.ownership import drop
from conformance.scenario.scenario import Exchange, Inconclusive
from conformance.scenario.snapshots import ask, newest_returned

ADDING: Final = (*LANDING, Freedom.LAND_GROUP)
ALONE: Final = (
    Freedom.NO_LATEST, Freedom.LATEST_BEHIND, Freedom.LIST_PUBLISHED, Freedom.TRUNCATED_COPY, Freedom.FOREIGN_COPY,
    Freedom.MISSING_STAGED,
)  # fmt: skip
"""Freedoms that the owner uses only during operations on one table."""


class ClientGroupDrive(ClientDrive):
    """A client whose operations may concern several tables."""

    def __init__(self, scenario: ClientScenario) -> None:
        super().__init__(scenario)
        self.groups: list[dict[str, int]] = []
        """The transactions over several tables that landed: the version of each table, by reference."""
        self.together: Sequence[DrivenTable] = ()
        """The tables of the operation, if it is about several."""

    def do(self, step: steps.Step) -> None:
        if not isinstance(step, steps.TransactAll | steps.ReadAll):
            super().do(step)
            return
        with suppress(Inconclusive):
            self._do_together(step)

    def _free(self, table: DrivenTable, step: steps.Free) -> None:
        several = self.together
        if several and step.what is Freedom.LAND_GROUP:
            when = "after" if step.after else "before"
            happens = partial(self._quietly, self._land_group, several)
            self.s.owner.on(KINDS.get(step.on, m.GetCommits), **{when: happens}, skip=step.skip)
        elif several and step.what is Freedom.DROP:
            self.s.owner.on(COMMITS, before=partial(self._quietly, self._drop, table), skip=step.skip)
        elif not several or step.what not in ALONE:
            super()._free(table, step)

    def _do_together(self, step: steps.TransactAll | steps.ReadAll) -> None:
        members: dict[int, steps.Transact | None]
        if isinstance(step, steps.TransactAll):
            members = {member.table % steps.TABLES: member for member in step.members}
        else:
            members = dict.fromkeys(number % steps.TABLES for number in step.tables)
        tables = [self._table(number, steps.Make()) for number in members]
        usable = Profile.TRANSACTION_GROUP.value in self.s.identity.profiles and self.s.feature != FILESYSTEM
        unclear = any(table.gone or table.make.columns is Columns.READERS_ONLY for table in tables)
        if not usable or unclear or self.s.commit_mode == "direct" or len(tables) < 2:
            self.pending.clear()
            return
        for table in tables:
            self._sync(table)
        self.together = tables
        try:
            if isinstance(step, steps.TransactAll):
                self._transact_all(tables, [member for member in members.values() if member is not None])
            else:
                self._read_all(tables, fresh=step.fresh)
        finally:
            self.together = ()

    def _land_group(self, tables: Sequence[DrivenTable]) -> None:
        """Another writer commits to all of these tables at once."""
        proposed = []
        for table in tables:
            self._sync(table)
            if table.make.limit:
                self._publish(table, table.log.latest)
            attempt = self.s.attempt()
            info = proposals.commit_info(attempt, self._next_time(table))
            lines = (info, *self._lines(table, Change.APPEND, 0, 0, 0))
            proposed.append(self.s.proposal(table.log.table, attempt=attempt, actions=lines))
        handles = [table.log.table for table in tables]
        answer, calls = scenario_groups.ask(self.s, scenario_groups.group_of(proposed), handles, "other")
        if not isinstance(answer, m.GroupRatified):
            return
        self.groups.append({commit.table: commit.version for commit in proposed})
        for table, commit, call in zip(tables, proposed, calls, strict=True):
            table.log.actions[commit.version] = [json.loads(line) for line in commit.actions or ()]
            table.log.committed[commit.version] = call
            table.log.table.versions += 1

    def _drop(self, table: DrivenTable) -> None:
        self._sync(table)
        table.log.restore()
        drop(self.s, table.log.table)
        table.gone = table.dropped = True

    def _together(
        self, tables: Sequence[DrivenTable], client: str, request: m.TransactGroup | m.Snapshots
    ) -> tuple[m.Answer, list[Exchange]]:  # fmt: skip
        """The operation, under the owner's freedoms. No file of another writer may change."""
        before = [self._folder(table) for table in tables]
        try:
            answer, calls = self.s.act_together(client, request, [table.log.table for table in tables])
            touched = set(self.touched)
        finally:
            self._disarm()
        for table, call, files in zip(tables, calls, before, strict=True):
            seen = {name: file for name, file in files.items() if name not in touched}
            after = seen if table.gone else self._folder(table)
            for wrong in oracle.folder(seen, after, self.s.feature, cleaned=self._commits_may_clean):
                self._fail(table, wrong, call)
        for table, call in zip(tables, calls, strict=True):
            self._fail(table, self._deleted(table) if not table.gone else None, call)
            if not table.gone:
                self._sync(table)
        return answer, calls

    def _group_of(self, tables: Sequence[DrivenTable], members: Sequence[steps.Transact]) -> m.TransactGroup:
        """A transaction that changes each table."""
        requests = []
        for table, member in zip(tables, members, strict=True):
            plain = msgspec.structs.replace(member, adds=max(1, member.adds), application=0, if_needed=False, behind=0)
            changes = self._changes(table, msgspec.structs.replace(plain, outside=False), table.log.latest)
            marker, name = self.s.attempt(), self._reference(table.log)
            requests.append(m.Transact(table=name, marker=marker, **{**changes, "read_version": None}))
        return m.TransactGroup(members=tuple(requests))

    def _transact_all(self, tables: Sequence[DrivenTable], members: Sequence[steps.Transact]) -> None:
        request = self._group_of(tables, members)
        # The client reads the newest versions: other writers commit only after that.
        self.pending = [
            msgspec.structs.replace(step, on="commit") if isinstance(step, steps.Free) and step.what in ADDING else step
            for step in self.pending
        ]
        bases, mine = [table.log.latest for table in tables], [len(table.mine) for table in tables]
        readable = all(table.log.latest in self._readable(table) for table in tables)
        freedoms, stakes = self._armed(*tables)
        since = len(self.s.owner.exchanges)
        answer, calls = self._together(tables, "client", request)
        special = any(member.properties == 4 for member in members) or any(table.gone for table in tables)
        excused = is_excused(freedoms) or not readable or special
        done = [
            self._transacted(table, call, base, number, since)
            for table, call, base, number in zip(tables, calls, bases, mine, strict=True)
        ]
        done = [one._replace(excused=one.excused or excused) for one in done]
        words = [name for table in tables for name in self._stakes(table)]
        more = (*stakes, *words) if isinstance(answer, m.Rejected) else stakes
        for index, wrong in oracle.transaction_group(done, in_one_request=self._landed_in_one_request(tables, done)):
            if isinstance(answer, m.Rejected) and not done[index].landed and self._rejects_all(tables, members):
                break
            self._fail(tables[index], wrong, calls[index], more)
        for table, call, one in zip(tables, calls, done, strict=True):
            for version in one.landed:
                self._fail(table, self._content(table, call, version), call, (*stakes, *self._stakes(table)))
        self._note_group(tables, mine)

    def _note_group(self, tables: Sequence[DrivenTable], mine: Sequence[int]) -> None:
        landed = [table.mine[number:] for table, number in zip(tables, mine, strict=True)]
        if all(landed):
            self.groups.append({t.log.table.reference: v[0] for t, v in zip(tables, landed, strict=True)})

    def _landed_in_one_request(self, tables: Sequence[DrivenTable], done: Sequence[oracle.Transacted]) -> bool:
        """Whether each commit of the transaction landed by a request for all tables."""
        references = [table.log.table.reference for table in tables]
        whole = {
            member.attempt
            for heard in self.s.owner.exchanges if isinstance(heard.request, m.CommitGroup)
            if {member.table for member in heard.request.members} == set(references)
            for member in heard.request.members
        }  # fmt: skip
        owned = self.s.owner.owner.tables
        return all(
            attempt in whole
            for reference, one in zip(references, done, strict=True)
            for attempt, version in owned[reference].landed.items() if version in one.landed
        )  # fmt: skip

    def _rejects_all(self, tables: Sequence[DrivenTable], members: Sequence[steps.Transact]) -> bool:
        """Whether the client rejects such a transaction without any disturbance too."""
        if any(table.gone for table in tables):
            return True
        for table in tables:
            if table.make.limit:
                self._publish(table, table.log.latest)
        mine = [len(table.mine) for table in tables]
        answer, _ = self._together(tables, "client", self._group_of(tables, members))
        self._note_group(tables, mine)
        return isinstance(answer, m.Rejected)

    def _read_all(self, tables: Sequence[DrivenTable], *, fresh: bool) -> None:
        freedoms, stakes = self._armed(*tables)
        before = [(table.log.latest, table.log.published, self._readable(table)) for table in tables]
        client, since = self._client(fresh=fresh), len(self.s.owner.exchanges)
        names = tuple(self._reference(table.log) for table in tables)
        answer, calls = self._together(tables, client, m.Snapshots(tables=names))
        if self._is_silent(calls[0]):
            return
        if not isinstance(answer, m.SnapshotsRead):
            alone = len(tables) == 2 and not freedoms and all(
                isinstance(ask(table.log, client)[0].answer, m.SnapshotRead) for table in tables
            )  # fmt: skip
            what = "both tables are read: the client reads each alone, and nothing changes"
            ids = (groups.READ_TOGETHER, "PROFILE-CLIENT-01")
            self._fail(
                tables[0],
                Wrong(ids, what, f"the read of both was answered `{m.name_of(answer)}`") if alone else None,
                calls[0],
            )
            return
        for table, call, (latest, published, readable) in zip(tables, calls, before, strict=True):
            assert isinstance(call.request, m.Snapshot)
            assert isinstance(call.answer, m.SnapshotRead)
            reading = oracle.Reading(
                request=call.request, log=table.log.actions, before=latest, published=published,
                published_after=table.log.published, remembered=table.log.latest, may_refuse=True, asked=True,
                returned=newest_returned(self.s, since, table.log.table.reference),
                readable=readable | self._readable(table), feature=self.s.feature, location=table.log.location,
                promises_fresh=Promise.FRESH_SNAPSHOTS.value in self.s.identity.promises, modified=table.modified,
                names=self.s.renamed,
            )  # fmt: skip
            self._fail(table, oracle.read(reading, call.answer), call, (*stakes, *self._stakes(table)))
            table.read = max(table.read, call.answer.version)
        versions = [snapshot.version for snapshot in answer.snapshots]
        shown = dict(zip([table.log.table.reference for table in tables], versions, strict=True))
        for group in self.groups:
            if groups.half_shown(group, shown):
                what = f"one transaction is {_named(tables, group)}: a read shows all of it, or nothing"
                wrong = Wrong((groups.READ_TOGETHER,), what, f"it shows {_named(tables, shown)}")
                self._fail(tables[0], wrong, calls[0])


def _named(tables: Sequence[DrivenTable], versions: Mapping[str, int]) -> str:
    known = [(table.log.name, versions.get(table.log.table.reference)) for table in tables]
    return ", ".join(f"version {version} of {name}" for name, version in known if version is not None)
