"""Runs the steps of a program on a client under test: the kit builds the logs and disturbs, `conformance.oracle.client`
judges every answer and every file."""

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from conformance.adapters.uc.server import UNAVAILABLE
from conformance.history.digests import of_bytes, same_actions
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.interface.log_names import (
    FILESYSTEM,
    STAGING,
    checksum_file,
    commit_file,
    compacted_file,
    staged_file,
    version_of,
)
from conformance.interface.subject import NO_ANSWER
from conformance.models import log_files, proposals
from conformance.models.proposals import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION
from conformance.oracle import client as oracle
from conformance.oracle.client import ROW_DOMAIN, UNKNOWN_FEATURE, Wrong, replay
from conformance.programs import client_steps as steps
from conformance.programs.client_steps import Change, Columns, Form, Freedom, Harm, Job
from conformance.requirements.catalogue import Level, Profile, load
from conformance.scenario.adversary import COMMITS, Kind
from conformance.scenario.audit import OWNER_CONF
from conformance.scenario.check import applies
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, application, domain, file, gone, vector
from conformance.scenario.ownership import drop
from conformance.scenario.scenario import Exchange, Inconclusive, Stopped, Violated
from conformance.scenario.snapshots import ask, held, newest_returned

KINDS: Final[dict[str, Kind]] = {
    "get_commits": m.GetCommits, "load_table": (m.LoadTable, m.LoadTables), "commit": COMMITS,
    "attempt_outcome": m.AttemptOutcome, "backfill_to_version": m.BackfillToVersion, "any": object,
}  # fmt: skip
OFTEN: Final = 1_000
HOUR: Final = 3_600_000
CONFIGURATION: Final = '{"b": "1",  "a": "" }'
"""The owner's, which clients do not interpret."""
NEEDED: Final = {"rowTracking": "row-tracking", "changeDataFeed": "change-data"}
"""The profiles without which a client is not asked to write to tables with these features."""
THEIRS: Final = "kit.theirs"
VECTORS: Final = ("e8b3b5d0-6f0e-4b5c-9d8e-2f4f6b1c7a11", "1d6a2c34-9b7f-4d21-8c55-0a9e3f7b6c22")
"""The files with deletion vectors."""
SCHEMAS: Final = {
    Columns.PLAIN: proposals.SCHEMA, Columns.VOID: proposals.WITH_VOID, Columns.STALE: proposals.NAMED,
    Columns.READERS_ONLY: proposals.NAMED, Columns.MAPPED: proposals.NAMED,
}  # fmt: skip


@dataclass(kw_only=True)
class DrivenTable:
    log: LogBuilder
    make: steps.Make
    words: list[Any] = field(default_factory=list)
    """The steps that formed its log."""
    mine: list[int] = field(default_factory=list)
    """The versions that the client committed."""
    read: int = -1
    """The newest version that a client read."""
    seen: dict[str, int] = field(default_factory=dict)
    """The newest version that each client read."""
    files: int = 0
    """The number of names of files so far."""
    names: Counter[str] = field(default_factory=Counter)
    """The same for each form of a name."""
    gone: bool = False
    """Whether it was dropped or handed back."""
    dropped: bool = False
    damaged: dict[str, str] = field(default_factory=dict)
    """The checkpoints that the kit damaged, and wrong hints, with the advice about them. A reader may refuse them."""
    miscounted: set[int] = field(default_factory=set)
    """The versions whose checksum has wrong figures."""
    modified: dict[int, int] = field(default_factory=dict)
    """The modification times of its files, as far as the kit set them."""

    @property
    def partitioned(self) -> bool:
        return any(a["metaData"].get("partitionColumns") for a in self.state() if "metaData" in a)

    def state(self) -> list[oracle.Action]:
        return oracle.reconciled(self.log.actions, self.log.latest)


MANY: Final = 1_030
"""The number of files in a large commit: readers read 1,024 lines at a time."""
CUT: Final = b'{"commitInfo":{"inCommitTimest'
"""The beginning of a commit, as during its copy."""
FOREIGN: Final = b'{"commitInfo":{"operation":"of another table"}}\n'
OLD: Final = proposals.BASE_TIME - 8_000 * 24 * HOUR
"""A time in 2001. Each clock shows a later one."""


class ClientDrive:
    """Does the steps of one program in one scenario."""

    def __init__(self, scenario: ClientScenario) -> None:
        self.s = scenario
        self.ratified = 0
        self.tables: dict[int, DrivenTable] = {}
        self.pending: list[steps.Free | steps.Win] = []
        self.copies: dict[Path, bytes] = {}
        """Wrong copies of commits, during the client's operation."""
        self.touched: set[str] = set()
        """Files that the kit itself changes during the client's operation."""
        self.clients = 0
        self.silence = ""
        """Why the client's answer is missing, if one is."""

    def do(self, step: steps.Step) -> None:
        if isinstance(step, steps.Free | steps.Win):
            self.pending.append(step)
            return
        table = self._table(step.table, step if isinstance(step, steps.Make) else steps.Make())
        with suppress(Inconclusive):
            self._do(table, step)

    def end(self) -> None:
        for table in self.tables.values():
            if not table.gone:
                self._sync(table)
        if self.silence:
            raise Inconclusive(self.silence)

    def _is_silent(self, call: Exchange) -> bool:
        """Whether no answer of the client arrived in time. A slow client is not a wrong one."""
        if isinstance(call.answer, m.Unknown) and NO_ANSWER.search(call.answer.reason):
            self.silence = call.answer.reason
            return True
        return False

    def _do(self, table: DrivenTable, step: steps.Step) -> None:
        do: dict[type, Callable[[DrivenTable, Any], None]] = {
            steps.Land: self._land, steps.Backfill: self._backfill, steps.Checkpoint: self._checkpoint,
            steps.Hint: self._hint, steps.Compaction: self._compaction, steps.Checksum: self._checksum,
            steps.Leftover: self._leftover, steps.Clean: lambda table, _: self._clean(table),
            steps.Touch: self._touch, steps.Read: self._read, steps.Transact: self._transact,
            steps.Maintain: self._maintain, steps.Create: self._create, steps.Transfer: self._transfer,
            steps.Again: self._again,
        }  # fmt: skip
        if table.gone:
            self._read_nothing(table, step)
            return
        self._sync(table)
        if type(step) in do:
            do[type(step)](table, step)
        if not isinstance(step, steps.Read | steps.Transact):
            table.words.append(step)

    def _reference(self, log: LogBuilder) -> str:
        """The table's name in requests to the client; for a plain table its path."""
        return log.location if self.s.feature == FILESYSTEM else self.s.physical(log.name)

    # Tables and their versions

    def _table(self, slot: int, make: steps.Make) -> DrivenTable:
        if slot not in self.tables:
            limit = make.limit if Profile.BACKLOG_LIMIT.value in self.s.identity.profiles else 0
            names = (name for name in make.features if NEEDED.get(name, "core") in self.s.identity.profiles)
            features = tuple(names) if self.s.feature != FILESYSTEM or make.features else ()
            readers = [name for name in features if name in ("deletionVectors", "v2Checkpoint")]
            writers = [name for name in features if name not in readers]
            if make.domains if self.s.feature != FILESYSTEM else "rowTracking" in features:
                writers = ["domainMetadata", *writers]
            more = {"delta.enableChangeDataFeed": "true"} if "changeDataFeed" in features else {}
            more |= {"delta.parquet.compression.codec": "zstd"} if make.codec else {}
            if make.columns in (Columns.STALE, Columns.MAPPED):
                readers, more[proposals.MODE] = [*readers, "columnMapping"], "none"
            if make.columns.has_physical_names:
                more |= {proposals.MODE: "name", "delta.columnMapping.maxColumnId": "2"}
            if make.append_only:
                writers, more["delta.appendOnly"] = [*writers, "appendOnly"], "true"
            if self.s.feature == "managedCommit":
                more[OWNER_CONF] = CONFIGURATION
            made = msgspec.structs.replace(make, features=features, limit=limit)
            if make.imported:
                name = f"table-{slot}"
                log = self._disabled(name) if self.s.feature == FILESYSTEM else self._imported(name)
                modified = {version: _hour(version) for version in log.actions if version not in log.committed}
                made = steps.Make(imported=True)
                self.tables[slot] = DrivenTable(log=log, make=made, words=[make], modified=modified)
                return self.tables[slot]
            log = LogBuilder.create(
                self.s, f"table-{slot}", partitioned=make.partitioned, reader_features=readers,
                writer_features=writers, properties=more,
                backlog_limit=limit if limit and self.s.feature != FILESYSTEM else None,
                timestamp=OLD if make.old else None, schema=SCHEMAS[make.columns],
                readers_only=("columnMapping",) if make.columns is Columns.READERS_ONLY else (),
            )  # fmt: skip
            self.tables[slot] = DrivenTable(log=log, make=made, words=[made])
        return self.tables[slot]

    def _imported(self, name: str) -> LogBuilder:
        """Three versions without in-commit timestamps, an hour apart; the fourth one enables them."""
        log = self._filesystem(name, (_hour(0), _hour(1), _hour(2)))
        time = _hour(3)
        log.take_over(timestamp=time, properties={ENABLEMENT_VERSION: "3", ENABLEMENT_TIMESTAMP: str(time)})
        content = (log.folder / commit_file(3)).read_text("utf-8")
        log.actions[3] = [json.loads(line) for line in proposals.lines(content)]
        return log

    def _disabled(self, name: str) -> LogBuilder:
        """Versions an hour apart, of which one enables in-commit timestamps and a later one disables them."""
        log = self._filesystem(name, (proposals.BASE_TIME,))
        hours = map(_hour, range(1, 4))
        later = (proposals.commit_info(self.s.attempt(), proposals.BASE_TIME + 20 * HOUR + n) for n in range(3))
        enabled = {ENABLEMENT_VERSION: "1", ENABLEMENT_TIMESTAMP: str(proposals.BASE_TIME + 20 * HOUR)}
        table = log.table.id or self.s.attempt()
        first = (proposals.protocol(None), proposals.metadata(table, proposals.BASE_TIME, enabled))
        last = proposals.metadata(table, proposals.BASE_TIME, {proposals.TIMESTAMPS: "false"})
        for actions in (first, (file("between"),), (last,)):
            log.write(next(later), *actions, modified=next(hours))
        return log

    def _filesystem(self, name: str, modified: Sequence[int], protocol: dict[str, Any] | None = None) -> LogBuilder:
        """A filesystem table whose files have these times, without in-commit timestamps."""
        log = LogBuilder.filesystem(self.s, name)
        info = proposals.line("commitInfo", {"timestamp": proposals.BASE_TIME - HOUR, "operation": "WRITE"})
        left = {ENABLEMENT_VERSION: "0", ENABLEMENT_TIMESTAMP: "1"}  # of an earlier owner
        properties = {"a.property": "1", "delta.appendOnly": "true", **left} if protocol is not None else {}
        metadata = proposals.metadata(self.s.attempt(), proposals.BASE_TIME, properties, stamped=False)
        old = proposals.line("protocol", protocol or {"minReaderVersion": 1, "minWriterVersion": 2})
        log.write(info, old, metadata, modified=modified[0])
        for version, time in enumerate(modified[1:], 1):
            log.write(info, file(f"old-{version}"), modified=time)
        return log

    def _sync(self, table: DrivenTable) -> None:
        """Note the versions that the client committed."""
        log, owned = table.log, self.s.owner.owner.tables.get(table.log.table.reference)
        if owned is None:  # no owner, not even the kit's, which stands for the writers of other filesystem tables
            while (path := log.folder / commit_file(log.latest + 1)).exists():
                table.mine.append(log.latest + 1)
                log.actions[log.latest + 1] = [json.loads(line) for line in proposals.lines(path.read_text("utf-8"))]
                self.ratified += 1
            log.table.versions = log.latest + 1
            return
        if owned.commit_mode == "direct":
            self.s.listed(log.table)  # the owner notices what was published
        for version in range(log.latest + 1, owned.latest + 1):
            path = log.folder / commit_file(version)
            listed = self.s.owner.owner.listed_content(owned, version) if version in owned.unbackfilled else None
            if listed is None and not path.exists() and self.s.newest is not None:
                staged = version in owned.unbackfilled
                what = "its staged file stays until it is published" if staged else f"{path.name} stays"
                ids = ("PROFILE-UNKNOWN-03",) if staged else ("PROFILE-CLIENT-03",)
                wrong = Wrong(ids, f"version {version} is ratified: {what}", "it is gone", version)
                self._fail(table, wrong, self.s.newest)
            content = path.read_text("utf-8") if listed is None else listed
            log.actions[version] = [json.loads(line) for line in proposals.lines(content)]
            table.mine.append(version)
            self.ratified += 1
        log.table.versions = log.latest + 1

    def _version(self, table: DrivenTable, behind: int) -> int:
        return table.log.latest - behind % (table.log.latest + 1)

    def _readable(self, table: DrivenTable, *, compacted: bool = False) -> set[int]:
        """The versions that the files and the owner's commits prove; `compacted`: with the compactions, which a reader
        need not use."""
        log, listing = table.log, table.log.listing()
        present = self._present(table, listing)
        starts = {c.version for c in listing.checkpoints if c.complete and _actions_of(c) is not None}
        readable: set[int] = set()
        for version in range(log.latest + 1):
            bridged = compacted and any(end == version and start - 1 in readable for start, end in listing.compactions)
            if version in starts or bridged or (version in present and (version == 0 or version - 1 in readable)):
                readable.add(version)
        return readable

    def _lacks_times(self, table: DrivenTable) -> bool:
        return len(self._present(table, table.log.listing())) <= table.log.latest

    def _present(self, table: DrivenTable, listing: log_files.Listing) -> set[int]:
        """The versions whose commit exists. A checkpoint alone has no in-commit timestamp."""
        owned = self.s.owner.owner.tables.get(table.log.table.reference)
        whole = {version for version, path in listing.commits.items() if _is_whole(path)}
        return whole | set(owned.unbackfilled if owned is not None else ())

    # The layout

    def _land(self, table: DrivenTable, step: steps.Land) -> None:
        for _ in range(step.times):
            self._commit(table, step.change, step.path, step.partition, step.which, blind=step.blind)

    def _commit(
        self, table: DrivenTable, change: Change, path: int = 0, partition: int = 0, which: int = 0, *,
        blind: bool = False,
    ) -> None:  # fmt: skip
        """Another writer commits the next version."""
        self._sync(table)
        if table.make.limit and table.log.latest - table.log.published >= table.make.limit:
            self._publish(table, table.log.latest)
        lines = tuple(self._lines(table, change, path, partition, which))
        time = self._next_time(table)
        if table.make.imported and self.s.feature == FILESYSTEM:
            version = table.log.latest + 1
            if not table.mine:
                if version == 0 or version - 1 in table.modified:
                    table.modified[version] = _hour(version)
                table.log.write(proposals.commit_info(self.s.attempt(), time), *lines, modified=_hour(version))
            return
        table.log.land(*lines, timestamp=time, blind=blind)

    def _next_time(self, table: DrivenTable) -> int:
        latest: object = replay(table.log.actions, table.log.latest).timestamp
        last = latest if isinstance(latest, int) else 0  # the client may have written anything
        return last + 1000 if table.make.old else max(self.s.timestamp(table.log.latest + 1), last + 1000)

    def _has_domains(self, table: DrivenTable) -> bool:
        return "domainMetadata" in (replay(table.log.actions, table.log.latest).protocol.get("writerFeatures") or ())

    def _name(self, table: DrivenTable, kind: int) -> str:
        table.files += 1
        path = steps.PATHS[kind % len(steps.PATHS)]
        table.names[path] += 1
        return path.format(table.names[path])

    def _lines(self, table: DrivenTable, change: Change, path: int, partition: int, which: int) -> Iterator[str]:
        """The actions of a commit, without its commitInfo."""
        adds = [action["add"] for action in table.state() if "add" in action]
        adds = [add for add in adds if which % 2 and add.get("deletionVector")] or adds
        chosen = adds[which % len(adds)] if adds else None
        if table.make.append_only and change in (Change.REMOVE, Change.REPLACE, Change.VECTOR):
            change = Change.APPEND
        match change:
            case Change.REMOVE if chosen:
                expired = which % 2 and not chosen.get("deletionVector")
                yield _removal(chosen, deletionTimestamp=proposals.BASE_TIME if expired else oracle.FUTURE)
            case Change.REPLACE if chosen:
                yield _removal(chosen)
                yield from self._add(table, path, partition)
            case Change.REARRANGE if chosen:
                yield _removal(chosen, dataChange=False)
                kept = {"dataChange": False, "partitionValues": chosen["partitionValues"]}
                yield from self._add(table, path, partition, **kept)
            case Change.AGAIN if chosen and not chosen.get("deletionVector"):
                yield proposals.line("add", {**chosen, "size": chosen["size"] + 1, "dataChange": False})
            case Change.RESTORE if removed := self._removed(table):
                yield proposals.line("add", removed[which % len(removed)])
            case Change.VECTOR if chosen and "deletionVectors" in table.make.features:
                offset = (chosen.get("deletionVector") or {}).get("offset", 0) + 46
                name = log_files.vector_name(VECTORS[table.log.latest % 2])
                new = {**vector(name), "storageType": "u", "offset": offset}
                if path == len(steps.PATHS) - 1:
                    new |= {"storageType": "p", "pathOrInlineDv": f"file://{quote(table.log.location)}/url.bin"}
                changed = proposals.line("add", {**chosen, "deletionVector": new, "stats": '{"numRecords":3}'})
                removed_file = _removal(chosen, deletionTimestamp=oracle.FUTURE)
                yield from (removed_file, changed) if which % 2 else (changed, removed_file)
            case Change.APPLICATION:
                large = (0, 2**31, 2**53, 2**32)[which % 4]
                yield application(("stream", "other")[which % 2], max(self._batch(table), large) + 1)
                yield from self._add(table, path, partition)
            case Change.EARLIER:
                recorded = replay(table.log.actions, table.log.latest).applications
                yield application("stream", max(0, recorded.get("stream", 0) - 1))
                yield from self._add(table, path, partition)
            case Change.DOMAIN | Change.NO_DOMAIN if self._has_domains(table):
                name = ("kit.domain", "kit.other")[which % 2]
                yield domain(name, f"theirs {table.files}", removed=change is Change.NO_DOMAIN)
            case Change.PROPERTIES | Change.SCHEMA | Change.PARTITIONING:
                yield self._metadata(table, change)
            case Change.FEATURE | Change.UNKNOWN_WRITER | Change.UNKNOWN_READER:
                yield self._protocol(table, change)
            case Change.UNKNOWN_ACTION:
                yield proposals.line("actionOfTomorrow", {"path": "a", "kind": 7})
                body = {"path": "cdc-a", "partitionValues": {}, "size": 1, "dataChange": False}
                yield proposals.line("cdc", body)
                yield from self._add(table, path, partition, somethingNew={"deep": [1, None]}, stats=None)
            case Change.NOTHING:
                return
            case Change.MANY if "rowTracking" not in table.make.features:
                for _ in range(MANY):
                    yield from self._add(table, path, partition)
                yield from self._lines(table, Change.DOMAIN, path, partition, which)
            case _:
                yield from self._add(table, path, partition)

    def _removed(self, table: DrivenTable) -> list[oracle.Action]:
        """The last additions of the files that were removed. One with row ids or deletion vectors gets others."""
        if {"rowTracking", "deletionVectors"} & {*table.make.features}:
            return []
        gone = {action["remove"]["path"] for action in table.state() if "remove" in action}
        adds = (action["add"] for actions in table.log.actions.values() for action in actions if "add" in action)
        return list({add["path"]: add for add in adds if add["path"] in gone}.values())

    def _add(self, table: DrivenTable, path: int, partition: int, **more: Any) -> Iterator[str]:
        name = quote(self._name(table, path), safe="/+")
        if path % len(steps.PATHS) == len(steps.PATHS) - 1:
            name = f"file://{quote(table.log.location)}/{name}"
        value = steps.PARTITIONS[partition % len(steps.PARTITIONS)]
        if table.partitioned and table.make.columns.has_physical_names and "partitionValues" not in more:
            metadata = oracle.metadata_of(table.log.actions, table.log.latest)  # the client may have replaced the table
            more["partitionValues"] = {oracle.stored_part(metadata): value}
        if "rowTracking" not in table.make.features:
            yield file(name, value, partitioned=table.partitioned, **more)
            return
        first = oracle.mark_of(replay(table.log.actions, table.log.latest)) + 1
        ids = {"baseRowId": first, "defaultRowCommitVersion": table.log.latest + 1, "stats": '{"numRecords":10}'}
        yield file(name, value, partitioned=table.partitioned, **{**more, **ids})
        yield domain(ROW_DOMAIN, json.dumps({"rowIdHighWaterMark": first + 9}))

    def _batch(self, table: DrivenTable) -> int:
        """The highest batch of any application."""
        return max(replay(table.log.actions, table.log.latest).applications.values(), default=0)

    def _metadata(self, table: DrivenTable, change: Change) -> str:
        body = next(action["metaData"] for action in table.state() if "metaData" in action)
        table.files += 1
        match change:
            case Change.SCHEMA:
                body = {**body, "schemaString": body["schemaString"].replace('"long"', '"string"')}
            case Change.PARTITIONING:
                body = {**body, "partitionColumns": [] if body["partitionColumns"] else ["part"]}
            case _:
                kept = {name: value for name, value in body["configuration"].items() if not name.startswith("kit.")}
                body = {**body, "configuration": {**kept, f"{THEIRS}.{table.files % 2}": str(table.files)}}
                body["name"], body["description"] = f"name {table.files}", f"theirs {table.files}"
        return proposals.line("metaData", body)

    def _protocol(self, table: DrivenTable, change: Change) -> str:
        body = dict(next(action["protocol"] for action in table.state() if "protocol" in action))
        new = "appendOnly" if change is Change.FEATURE else UNKNOWN_FEATURE
        body["minWriterVersion"] = 7
        body["writerFeatures"] = sorted({*body.get("writerFeatures", ("appendOnly", "invariants")), new})
        if change is Change.UNKNOWN_READER:
            body["minReaderVersion"] = 3
            body["readerFeatures"] = sorted({*body.get("readerFeatures", ()), new})
        return proposals.line("protocol", body)

    def _backfill(self, table: DrivenTable, step: steps.Backfill) -> None:
        self._publish(table, self._version(table, step.behind))

    def _publish(self, table: DrivenTable, version: int) -> None:
        if self.s.feature != FILESYSTEM:
            table.log.backfill(version)

    def _checkpoint(self, table: DrivenTable, step: steps.Checkpoint) -> None:
        version, log = self._version(table, step.behind), table.log
        if version not in self._readable(table):
            return
        self._publish(table, version)
        form = step.form if "v2Checkpoint" in table.make.features or step.form is Form.PARTS else Form.CLASSIC
        if form in (Form.CLASSIC, Form.PARTS):
            names = log.checkpoint(version, parts=1 if form is Form.CLASSIC else 2 + step.parts % 2)
        else:
            names = log.v2_checkpoint(version, form=form.value, sidecars=1 + step.parts % 2)
        match step.harm:
            case Harm.HALF if len(names) > 1:
                log.hide(names[0 if step.first and form is Form.PARTS else -1])
            case Harm.TRUNCATED | Harm.EMPTY:
                content = (log.folder / names[0]).read_bytes()
                log.plant(names[0], content[: len(content) // 2] if step.harm is Harm.TRUNCATED else b"")
        whole = step.harm is Harm.NONE or (step.harm is Harm.HALF and len(names) == 1)
        hint = (log_files.HINT,) if step.hint or (not whole and (log.folder / log_files.HINT).exists()) else ()
        for name in (*names, *hint):
            table.damaged.pop(name, None)
            if not whole:
                table.damaged[name] = "FIELD-03"
        if step.hint:
            log.hint(version, **({"parts": len(names)} if form is Form.PARTS else {}))

    def _hint(self, table: DrivenTable, step: steps.Hint) -> None:
        table.damaged[log_files.HINT] = "LOG-21"
        if step.truncated:
            table.log.plant(log_files.HINT, b'{"version":')
        else:
            table.log.hint(self._version(table, step.behind))

    def _compaction(self, table: DrivenTable, step: steps.Compaction) -> None:
        end = self._version(table, step.behind)
        start = end - max(1, step.width)
        if start >= 1 and oracle.reconciled(table.log.actions, end, start):
            self._publish(table, end)
            table.log.compaction(start, end)

    def _checksum(self, table: DrivenTable, step: steps.Checksum) -> None:
        version = self._version(table, step.behind)
        wrong = step.harm is Harm.HALF
        figures: dict[str, Any] = {"numFiles": 7, "domainMetadata": []} if wrong else {}
        name = table.log.checksum(version, **figures)
        table.miscounted = table.miscounted - {version} | ({version} if wrong else set())
        if step.harm in (Harm.TRUNCATED, Harm.EMPTY):
            table.log.plant(name, b"" if step.harm is Harm.EMPTY else b'{"tableSizeBytes":')

    def _leftover(self, table: DrivenTable, step: steps.Leftover) -> None:
        if self.s.feature not in STAGING:
            return
        attempt, version = self.s.attempt(), max(1, table.log.latest - step.behind)
        lines = (proposals.commit_info(attempt, self._next_time(table)), file(f"leftover-{attempt[:4]}"))
        name = f"{STAGING[self.s.feature]}/{staged_file(version, attempt)}"
        table.log.plant(name, proposals.content(lines).encode())

    def _clean(self, table: DrivenTable) -> None:
        """Deletes the commits before the newest usable checkpoint, but never the newest published one."""
        log = table.log
        listing = log.listing()
        usable = [c.version for c in listing.checkpoints if c.complete and _actions_of(c) is not None]
        newest = max(listing.commits, default=-1)
        if usable:
            log.hide(*(commit_file(v) for v in listing.commits if v < max(usable) and v != newest))

    def _touch(self, table: DrivenTable, step: steps.Touch) -> None:
        log = table.log
        versions = [v for v in range(log.latest + 1) if (log.folder / commit_file(v)).exists()]
        for number, version in enumerate(versions):
            table.modified.pop(version, None)
            time = (0, -number, oracle.FUTURE - proposals.BASE_TIME + number, number - 24 * HOUR)[step.order % 4]
            log.touch(version, proposals.BASE_TIME + 3_600_000 + time)

    # Disturbances

    def _armed(self, *tables: DrivenTable) -> tuple[list[Freedom], tuple[str, ...]]:
        """Give the owner the pending freedoms for one operation. Returns them, and the requirements at stake."""
        pending, self.pending = self.pending, []
        if self.s.feature == FILESYSTEM:
            return [], ()
        for step in pending:
            table = tables[step.table % len(tables)]
            if isinstance(step, steps.Win):
                self._winners(table, step)
            else:
                self._free(table, step)
        freedoms = [step.what for step in pending if isinstance(step, steps.Free)]
        return freedoms, tuple(name for step in pending for name in step.stakes())

    def _winners(self, table: DrivenTable, step: steps.Win) -> None:
        decisive = step.times * step.races - 1 if step.last else 0
        numbers = itertools.count()

        def win() -> None:
            for number in itertools.islice(numbers, step.times):
                change = step.change if number == decisive else Change.APPEND
                self._quietly(self._commit, table, change, 0, step.partition, step.which, blind=step.blind)
            if step.publish:
                self._quietly(self._publish, table, table.log.latest)
            if step.clean:
                self._quietly(self._go_on_and_clean, table)

        for _ in range(step.races):
            self.s.owner.on(COMMITS, before=win)

    def _quietly(self, call: Callable[..., object], *arguments: Any, **options: Any) -> None:
        """Within a request of the client: a failure of the kit's own request must not pass through the client."""
        with suppress(Stopped):
            call(*arguments, **options)

    def _free(self, table: DrivenTable, step: steps.Free) -> None:
        owner, kind = self.s.owner, KINDS.get(step.on, m.GetCommits)
        where = {"skip": step.skip, "times": max(1, step.times)}
        when = "after" if step.after else "before"
        managed, direct = self.s.feature == "managedCommit", self.s.commit_mode == "direct"
        match step.what:
            case Freedom.PUBLISH:
                owner.on(kind, **{when: partial(self._publish_all, table)}, **where)
            case Freedom.PUBLISH_AND_DELETE:
                owner.on(kind, **{when: partial(self._publish_all, table, delete=True)}, **where)
            case Freedom.LAND:
                owner.on(kind, **{when: partial(self._quietly, self._commit, table, Change.APPEND)}, **where)
            case Freedom.LAND_AND_PUBLISH:
                owner.on(kind, **{when: partial(self._land_and_publish, table)}, **where)
            case Freedom.LOSE_REQUEST:
                owner.on(kind, lose_request=True, **where)
            case Freedom.LOSE_ANSWER:
                owner.on(kind, lose_answer=True, **where)
            case Freedom.BUSY:
                owner.on(COMMITS, answer=m.Rejected(reason="the backlog is full", retryable=True), **where)
            case Freedom.BARE_CONFLICT | Freedom.OLD_CONFLICT:
                bare = m.Conflict() if step.what is Freedom.BARE_CONFLICT else m.Conflict(latest=0, winners=())
                for rule in owner.rules:
                    if rule.kind is COMMITS and rule.change is None:
                        rule.change = partial(_instead, m.Conflict, bare)
            case Freedom.NO_LATEST if managed:
                nothing = None if step.after else -1
                for question in (m.GetCommits, m.LoadTable):
                    owner.on(question, change=partial(_without_latest, nothing), times=OFTEN)
            case Freedom.LATEST_BEHIND if managed and direct and table.log.latest > 0:
                last = table.log.latest - 1
                owner.override_commits(lambda commits, _: (commits, last))
            case Freedom.LIST_PUBLISHED | Freedom.LIST_EARLIER:
                owner.override_commits(partial(self._with_published, table, earlier=step.what is Freedom.LIST_EARLIER))
            case Freedom.CHECKPOINT:
                after = partial(self._quietly, self._go_on, table)
                owner.on(kind, before=partial(self._publish_all, table), after=after, **where)
            case Freedom.REFUSE:
                owner.on(COMMITS, answer=m.Rejected(reason="not allowed"), times=OFTEN)
            case Freedom.SILENT if step.after:  # nothing arrives
                for request in (*COMMITS, m.AttemptOutcome):
                    owner.on(request, lose_request=True, times=OFTEN)
            case Freedom.SILENT:
                owner.go_silent_at_the_commit()
            case Freedom.REFUSE_AFTER:
                refusal = m.NotFound() if step.after else m.Rejected(reason="no access any more")
                again = (None, m.Conflict(), m.Rejected(reason="the backlog is full", retryable=True))[step.skip % 3]
                owner.refuse_after(COMMITS, again=again, refusal=refusal)
            case Freedom.REPEAT:
                answer = m.Rejected(reason="the backlog is full", retryable=True) if step.skip else m.Conflict()
                then = partial(self._quietly, self._go_on_and_clean, table) if step.after else None
                owner.on(COMMITS, lose_answer=True, after=then)
                owner.on(COMMITS, answer=answer)
            case Freedom.UNAVAILABLE:
                owner.on(COMMITS, change=lambda _: m.Unknown(reason=f"{UNAVAILABLE}: overloaded"))
                owner.on(COMMITS, answer=m.Conflict())
            case Freedom.DELAY:
                owner.on(COMMITS, lose_request=True)
                owner.on(COMMITS, before=self._deliver)
            case Freedom.TRUNCATED_COPY | Freedom.FOREIGN_COPY if (
                self.s.feature == "catalogManaged" and len(self.s.owner.rules) == 0
            ):
                self._copy(table, CUT if step.what is Freedom.TRUNCATED_COPY else FOREIGN)
            case Freedom.NEVER:
                owner.on(COMMITS, answer=m.Conflict(), times=100_000)

    def _publish_all(self, table: DrivenTable, *, delete: bool = False) -> None:
        self._sync(table)
        self._quietly(self._publish, table, table.log.latest)
        if delete:
            staged = [name for name in self._published_staged(table) if not self._is_listed(table, Path(name).name)]
            self.touched.update(staged)
            table.log.hide(*staged)

    def _published_staged(self, table: DrivenTable) -> list[str]:
        """The staged files that have the content of their published version: not those of other attempts."""
        files = [(name, table.log.folder / name) for name in table.log.staged()]
        copies = [(name, file, table.log.folder / commit_file(int(file.name[:20]))) for name, file in files]
        return [name for name, file, copy in copies if copy.exists() and copy.read_bytes() == file.read_bytes()]

    def _is_listed(self, table: DrivenTable, name: str) -> bool:
        return any(commit.file_name == name for commit in self.s.listed(table.log.table))

    def _land_and_publish(self, table: DrivenTable) -> None:
        self._quietly(self._commit, table, Change.APPEND)
        self._quietly(self._publish, table, table.log.latest)

    def _copy(self, table: DrivenTable, content: bytes) -> None:
        """The published file of a commit that the catalog lists has this content, during the operation."""
        owned = self.s.owner.owner.tables[table.log.table.reference]
        if owned.unbackfilled:
            path = table.log.folder / commit_file(min(owned.unbackfilled))
            path.write_bytes(content)
            self.touched.add(path.name)
            self.copies[path] = content

    def _go_on(self, table: DrivenTable) -> None:
        """Other writers commit, the first of them with a checkpoint."""
        self._checkpointed(table)
        table.log.hint(table.log.latest)
        self.touched.add(log_files.HINT)
        self._commit(table, Change.APPEND)

    def _checkpointed(self, table: DrivenTable) -> None:
        """Another writer commits, publishes its version and writes a checkpoint."""
        self._commit(table, Change.APPEND)
        self._publish(table, table.log.latest)
        table.log.checkpoint(table.log.latest)

    def _go_on_and_clean(self, table: DrivenTable) -> None:
        """Another writer commits, and a cleanup deletes the commits before a checkpoint."""
        self._checkpointed(table)
        log = table.log
        names = [commit_file(version) for version in range(log.latest) if (log.folder / commit_file(version)).exists()]
        self.touched.update(names)
        log.hide(*names)

    def _deliver(self) -> None:
        exchanges = reversed(self.s.owner.exchanges)
        first = next((heard.request for heard in exchanges if isinstance(heard.request, COMMITS)), None)
        if first is not None:
            self.s.answer("network", first)

    def _with_published(
        self, table: DrivenTable, commits: Sequence[m.CommitEntry], latest: int | None, *,
        earlier: bool = False,
    ) -> tuple[Sequence[m.CommitEntry], int | None]:  # fmt: skip
        """The list, with the published commits too; `earlier`: except for the newest version."""
        log, listed = table.log, {commit.version for commit in commits}
        entries = {commit.version: commit for commit in commits}
        for name in map(Path, self._published_staged(table)):
            version = int(name.name[:20])
            if version not in listed:
                entries[version] = m.CommitEntry(version=version, file_name=name.name)
        for version in range(1, log.published + 1) if self.s.commit_mode == "inline" else ():
            if version not in entries and version in log.committed:  # else filesystem writers made it
                lines = tuple(json.dumps(action) for action in log.actions[version])
                entries[version] = m.CommitEntry(version=version, actions=lines)
        last = max(entries, default=-1) - (earlier and log.published == log.latest)
        gap = next((version for version in range(last, -1, -1) if version not in entries), -1)  # before an asked range
        return [entries[version] for version in range(gap + 1, last + 1)], latest

    def _disarm(self) -> None:
        self.s.owner.rules.clear()
        self.touched.clear()
        for path in self._incomplete():
            path.unlink()
        self.copies.clear()

    def _incomplete(self) -> list[Path]:
        """The copies that are still wrong: a client that publishes may complete them."""
        return [path for path, wrong in self.copies.items() if path.exists() and path.read_bytes() == wrong]

    # Judgement

    def _fail(
        self, table: DrivenTable, wrong: Wrong | None, call: Exchange, more: tuple[str, ...] = ()
    ) -> None:  # fmt: skip
        """Report a violation, of the rule's requirements and those that the words put at stake; advice stays advice. If
        none applies, there is no violation, except of the basic promise of readers."""
        if wrong is None:
            return
        exact = wrong.alone or _is_advice(wrong)
        ids = wrong.requirements if exact else tuple(dict.fromkeys((*wrong.requirements, *more)))
        if isinstance(call.request, m.Snapshot):
            ids = held(self.s, tuple(name for name in ids if not name.startswith("CONFLICT-")))
        if any(applies(requirement, self.s.identity, self.s.variant) for requirement in ids):
            self.s.fail(
                *ids, evidence=(call,), table=table.log.table, version=wrong.version, expected=wrong.expected,
                observed=wrong.observed,
            )  # fmt: skip

    def _stakes(self, table: DrivenTable) -> tuple[str, ...]:
        return tuple(name for step in table.words for name in step.stakes())

    def _client(self, *, fresh: bool) -> str:
        self.clients += fresh
        return f"client {self.clients}" if fresh else "client"

    def _folder(self, table: DrivenTable) -> dict[str, oracle.File]:
        """The files of the table's log."""
        folder = str(table.log.folder)
        return {path[len(folder) + 1 :]: file for path, file in sorted(_files_in(folder))}

    def _watched(
        self, table: DrivenTable, act: Callable[[], Exchange], *, cleans: bool = False
    ) -> tuple[Exchange, dict[str, oracle.File], dict[str, oracle.File]]:  # fmt: skip
        """The operation, and the files of the log before and after it, which other writers own."""
        before = self._folder(table)
        call = act()
        after = self._folder(table)
        seen = {name: file for name, file in before.items() if name not in self.touched}
        for wrong in oracle.folder(seen, after, self.s.feature, cleaned=cleans):
            self._disarm()
            self._fail(table, wrong, call)
        return call, seen, after

    # Reads

    def _read(self, table: DrivenTable, step: steps.Read) -> None:
        log = table.log
        target = self._version(table, step.behind) if step.behind >= 0 else log.latest + 1
        fields: dict[str, Any] = {}
        match step.by:
            case steps.By.VERSION:
                fields["version"] = target
            case steps.By.TIME:
                time = table.modified.get(target) or replay(log.actions, min(target, log.latest)).timestamp
                fields["timestamp"] = (time or proposals.BASE_TIME) + step.offset
            case steps.By.PATH:
                fields["path"] = log.location
                if step.behind > 0:
                    fields["version"] = target
        harmed = self._harm(table, step)
        freedoms, stakes = self._armed(table)
        before, published = log.latest, log.published
        readable = self._readable(table, compacted=bool(harmed))
        present = self._present(table, log.listing()) if "version" in fields else set()
        client, since = self._client(fresh=step.fresh or bool(harmed)), len(self.s.owner.exchanges)

        def act() -> Exchange:
            return ask(log, client, **fields)[0]

        try:
            call, _, _ = self._watched(table, act)
        finally:
            copied = bool(self.copies)
            self._disarm()
            for name, (content, modified) in harmed.items():
                log.plant(name, content, modified=modified)
        self._sync(table)
        if not harmed:
            readable |= self._readable(table)
        request = call.request
        assert isinstance(request, m.Snapshot)
        asked = self.s.owner.exchanges[since:]
        lost = self._is_silent(call) or any(isinstance(heard.answer, m.Unknown | m.Rejected) for heard in asked)
        timeless = request.timestamp is not None and self._lacks_times(table)
        cleaned = request.version is not None and request.version not in present
        unproven = log.latest + (step.harm is not Harm.HALF)  # a reader may find the newest version in another way
        reading = oracle.Reading(
            request=request, log=log.actions, before=before, published=published,
            published_after=log.published, returned=newest_returned(self.s, since),
            remembered=log.latest if step.fresh or harmed else max(published, table.seen.get(client, -1)),
            readable=readable, feature=self.s.feature, location=log.location,
            asked=bool(asked or copied or harmed),  # a wrong copy or a harmed commit may hide that there is a catalog
            promises_fresh=Promise.FRESH_SNAPSHOTS.value in self.s.identity.promises,
            may_refuse=(
                lost or timeless or cleaned or bool(harmed) or bool(table.miscounted)
                or bool({*table.make.features} & {"deletionVectors", "v2Checkpoint"})
                or table.make.columns is not Columns.PLAIN
            ),
            modified=table.modified, names=self.s.renamed,
            harmed=step.stakes() if any(table.read < (version_of(name) or 0) < unproven for name in harmed) else (),
        )  # fmt: skip
        wrong = oracle.read(reading, call.answer)
        refused = wrong is not None and not isinstance(call.answer, m.SnapshotRead)
        of_owner = tuple(ADVICE[freedom] for freedom in freedoms if freedom in ADVICE)
        if wrong is not None and refused and (advice := self._advice(table, client, fields, of_owner)):
            wrong = wrong._replace(requirements=advice)
        if wrong is None and isinstance(call.answer, m.SnapshotRead) and call.answer.version in table.miscounted:
            wrong = None if call.answer.warnings else MISCOUNTED
        try:
            self._fail(table, wrong, call, (*step.stakes(), *stakes, *self._stakes(table)))
        except Violated:
            if wrong is None or not (refused and _is_advice(wrong)):
                raise  # a read that was refused against advice changed nothing: the program goes on
        if isinstance(call.answer, m.SnapshotRead):
            table.read = max(table.read, call.answer.version)
            table.seen[client] = max(table.seen.get(client, -1), call.answer.version)

    def _advice(
        self, table: DrivenTable, client: str, fields: dict[str, Any], of_owner: tuple[str, ...]
    ) -> tuple[str, ...]:  # fmt: skip
        """The advice that the client did not follow when it refused the read; none if it had another reason. Without
        the freedoms of the read, only damaged files may be the reason. `of_owner`: the advice about these freedoms."""
        advice = sorted({name for file, name in table.damaged.items() if (table.log.folder / file).exists()})
        if not (advice or of_owner) or self._reads_without(table, client, fields, ()):
            return of_owner
        choices = dict.fromkeys((*((name,) for name in advice), tuple(advice)))
        return next((names for names in choices if self._reads_without(table, client, fields, names)), ())

    def _reads_without(
        self, table: DrivenTable, client: str, fields: dict[str, Any], advice: tuple[str, ...]
    ) -> bool:  # fmt: skip
        """Whether the client reads the same when the damaged files of this advice, which no version needs, are gone."""
        log, readable = table.log, self._readable(table)
        names = (name for name, about in table.damaged.items() if about in advice and (log.folder / name).exists())
        hidden = {name: (log.folder / name).read_bytes() for name in names}
        log.hide(*hidden)
        needed = self._readable(table) != readable
        reads = needed or isinstance(ask(log, client, **fields)[0].answer, m.SnapshotRead)
        for name, content in hidden.items():
            log.plant(name, content)
        return reads

    def _harm(self, table: DrivenTable, step: steps.Read) -> dict[str, tuple[bytes, int]]:
        """Harm a published commit, until the read has ended. Returns the files with their contents and times."""
        if step.harm is Harm.NONE or self.pending:
            return {}
        name = commit_file(self._version(table, step.at))
        path = table.log.folder / name
        owned = self.s.owner.owner.tables.get(table.log.table.reference)
        version = self._version(table, step.at)
        newest = step.harm is Harm.HALF and version == table.log.latest
        unseen = newest and self.s.feature != "catalogManaged"  # nothing shows that it is missing
        if not path.exists() or owned is None or version in owned.unbackfilled or unseen:
            return {}
        content, modified = path.read_bytes(), path.stat().st_mtime_ns // 1_000_000
        harmed = {name: (content, modified)}
        if step.harm is Harm.HALF:
            table.log.hide(name)
        else:
            staged = [path for path in self._published_staged(table) if Path(path).name.startswith(name[:20])]
            harmed |= {path: ((table.log.folder / path).read_bytes(), modified) for path in staged}
            table.log.hide(*staged)  # a reader of one does not need the published file
            cut = content.rindex(b'"')  # within the last line: without whole lines at its end, a commit is valid
            table.log.plant(name, content[:cut] if step.harm is Harm.TRUNCATED else b"")
        self.touched.update(harmed)
        return harmed

    # Transactions

    @property
    def _commits_may_clean(self) -> bool:
        """Whether a commit may clean up the log: a client needs no permission for that."""
        return self.s.feature != "catalogManaged"

    def _transact(self, table: DrivenTable, step: steps.Transact) -> None:
        if table.make.columns is Columns.READERS_ONLY:  # the documents do not say what its writers do
            self.pending.clear()
            return
        log = table.log
        base = self._version(table, step.behind)
        changes = self._changes(table, step, base)
        freedoms, stakes = self._armed(table)
        before, mine, since = log.latest, len(table.mine), len(self.s.owner.exchanges)
        present = self._present(table, log.listing())
        readable = self._readable(table) & present
        marker = self.s.attempt()
        name = log.location if step.by_path else self._reference(log)
        request = m.Transact(table=name, marker=marker, **changes)

        def act() -> Exchange:
            return self.s.act("client", request, log.table)

        cleans = self._commits_may_clean
        cleanable = self._cleanable(table) if cleans else None
        try:
            call, held_before, held_after = self._watched(table, act, cleans=cleans)
        finally:
            self._disarm()
        self._fail(table, self._deleted(table), call, (*step.stakes(), *stakes))
        self._fail(table, self._reused(table, held_before, held_after), call)
        self._sync(table)
        readable &= self._present(table, log.listing())
        done = self._transacted(table, call, base, mine, since)._replace(before=before, by_path=step.by_path)
        stuck = bool(table.make.limit) and not COPIES.isdisjoint(freedoms)  # no backfill makes room
        special = step.by_path or step.outside or step.properties == 4 or base not in readable or stuck
        done = done._replace(excused=done.excused or is_excused(freedoms) or special)
        wrong = oracle.transaction(done)
        if wrong is not None and isinstance(call.answer, m.Rejected) and not done.landed:
            wrong = None if self._rejects(table, step) else wrong
        unread = isinstance(call.answer, m.Rejected)  # the layout may be the reason
        words = [name for name in self._stakes(table) if unread or name.startswith(("CONFLICT", "PROFILE"))]
        more = (*step.stakes(), *stakes, *words)
        self._fail(table, wrong, call, more)
        for version in done.landed:
            self._fail(table, self._content(table, call, version), call, (*more, *self._stakes(table)))
        if cleanable is not None:
            for gone in self._cleaned(table, cleanable, oracle.FUTURE, held_before, held_after, whole=False):
                self._fail(table, gone, call, step.stakes())

    def _content(self, table: DrivenTable, call: Exchange, version: int) -> Wrong | None:
        """What is wrong with the client's commit. It may have read the layout wrongly."""
        log, request = table.log, call.request
        assert isinstance(request, m.Transact)
        self.s.note_names((action["add"] for action in log.actions[version] if "add" in action), call.number)
        return next(oracle.commit(log.actions, request, version, self.s.renamed), None)

    def _transacted(
        self, table: DrivenTable, call: Exchange, base: int, mine: int, since: int
    ) -> oracle.Transacted:  # fmt: skip
        """The client's newest transaction. `base`: the version that it read; `mine` and `since`: the numbers of its
        commits to the table, and of its requests, before that."""
        assert isinstance(call.request, m.Transact)
        asked = self.s.owner.exchanges[since:]
        commits = [heard for heard in asked if isinstance(heard.request, COMMITS)]
        rejected = [n for n, heard in enumerate(commits) if _is_final(heard.answer)]
        lost = self._is_silent(call) or any(isinstance(heard.answer, m.Unknown) for heard in commits)
        return oracle.Transacted(
            request=call.request, answer=call.answer, log=table.log.actions, base=base, before=base,
            landed=tuple(table.mine[mine:]), lost=lost,
            excused=any(isinstance(h.answer, m.Unknown) or _is_final(h.answer) for h in asked) or self.s.gave_up(call)
            or bool(self.silence),
            rejected=bool(rejected) and not lost, proposals=len(commits) - rejected[0] - 1 if rejected else 0,
            by_path=False, feature=self.s.feature,
        )  # fmt: skip

    def _reused(self, table: DrivenTable, before: Collection[str], after: Iterable[str]) -> Wrong | None:
        """A version that a cleanup deleted is not created again: no reader would see it."""
        log = table.log
        for name in after:
            version, path = version_of(name), log.folder / name
            if name in before or version is None or version >= log.latest or not path.exists():
                continue
            found = proposals.lines(path.read_text("utf-8", "replace"))
            if not same_actions(found, map(json.dumps, log.actions[version])):
                ids, expected = ("MC-FILES-11", "CONFLICT-RETRY-03"), f"version {version} was committed before"
                return Wrong(ids, f"{expected}, and is not created again", f"{name} has other actions", version)
        return None

    def _deleted(self, table: DrivenTable) -> Wrong | None:
        """The staged file of a commit that the owner lists is there, even if its writer does not know the outcome."""
        for commit in self.s.listed(table.log.table) if self.s.feature in STAGING else ():
            name = f"{STAGING[self.s.feature]}/{commit.file_name}"
            if commit.file_name is not None and not (table.log.folder / name).exists():
                return Wrong(("PROFILE-UNKNOWN-03",), f"{name} is version {commit.version}: it stays", "it was deleted")
        return None

    def _is_landing(self) -> bool:
        """Whether another writer commits while the client reads, so that its request names the version to read."""
        return any(isinstance(step, steps.Free) and step.what in LANDING for step in self.pending)

    def _rejects(self, table: DrivenTable, step: steps.Transact) -> bool:
        """Whether the client rejects such a transaction without any disturbance too: no document requires that it
        supports every one."""
        again = msgspec.structs.replace(step, behind=0)
        if table.make.limit:
            self._publish(table, table.log.latest)
        changes = self._changes(table, again, table.log.latest)
        name = self._reference(table.log)
        call = self.s.act("client", m.Transact(table=name, marker=self.s.attempt(), **changes), table.log.table)
        self._sync(table)
        return isinstance(call.answer, m.Rejected)

    def _changes(self, table: DrivenTable, step: steps.Transact, base: int) -> dict[str, Any]:
        """The fields of the request."""
        snapshot = replay(table.log.actions, base)
        present = [path for path in snapshot.files if not path.startswith("file:")]  # the newest file first
        repartition = step.repartition and len(present) == len(snapshot.files)  # it replaces every file
        removes = min(step.removes, len(present))
        first = step.which % len(present) if present else 0
        removed = (present[first:] + present[:first])[:removes]
        partitioned = table.partitioned or repartition
        value = steps.PARTITIONS[step.partition % len(steps.PARTITIONS)] if partitioned else None
        rows = 3 if "rowTracking" in table.make.features else None
        names = [self._name(table, 0 if number else step.path) for number in range(step.adds)]
        if step.outside:
            elsewhere = self.s.place / "elsewhere"
            elsewhere.mkdir(exist_ok=True)
            names.append(f"{elsewhere}/{self._name(table, 0)}")
        changes: dict[str, Any] = {
            "adds": tuple(m.DataFile(path=name, partition=value, rows=rows) for name in names),
            "removes": tuple(present if repartition else removed), "isolation": step.isolation,
            "data_change": step.data_change, "if_needed": step.if_needed,
            "read_version": base if step.behind or self._is_landing() else None,
        }  # fmt: skip
        if step.reads:
            changes["reads"] = "*" if step.reads == 1 else steps.PARTITIONS[(step.reads - 2) % 2]
        if step.application:
            changes["application"] = ("stream", self._batch(table) + step.application - 1)
        if step.domain and "domainMetadata" in (snapshot.protocol.get("writerFeatures") or ()):
            changes["domain"] = (("kit.domain", "kit.other")[step.domain % 2], f"mine {table.files}")
        if step.properties in (1, 2):
            changes["set_properties"] = {"kit.mine": f"{step.properties} {table.files}"}
        if step.properties == 3:
            changes["unset_properties"] = (f"{THEIRS}.0", f"{THEIRS}.1")
        if step.properties == 4:
            changes["unset_properties"] = (proposals.TIMESTAMPS,)
        if step.feature and self.s.feature != FILESYSTEM:
            changes["add_feature"] = "appendOnly"
        if repartition:
            changes["partition_by"] = ("part",)
        if step.replace_table:
            changes["replace_table"], changes["removes"] = True, ()
        if step.changes and "changeDataFeed" in table.make.features:
            changes["changes"] = (m.DataFile(path=f"_change_data/cdc-{table.files}", partition=value),)
        return changes

    # Maintenance

    def _maintain(self, table: DrivenTable, step: steps.Maintain) -> None:
        log, name = table.log, self._reference(table.log)
        version = self._version(table, step.behind)
        start = max(0, version - max(1, step.width))
        cut = replay(log.actions, version).timestamp or proposals.BASE_TIME + version
        request: m.Request
        match step.job:
            case Job.CHECKPOINT | Job.ANY_CHECKPOINT:
                request = m.Checkpoint(table=name, version=version, any_version=step.job is Job.ANY_CHECKPOINT)
            case Job.COMPACTION:
                request = m.Compact(table=name, start=start, end=version)
            case Job.CHECKSUM:
                request = m.Checksum(table=name, version=version)
            case Job.CLEANUP:
                request = m.Cleanup(table=name, older_than=cut)
            case Job.PUBLISH:
                request = m.BackfillToVersion(table=name, version=version)
            case _:
                request = m.Maintain(table=name, job=step.job.value)
        freedoms, stakes = self._armed(table)
        allowed: tuple[str, ...] = ("checkpoint", "log-compaction", "checksum", "data-cleanup-dry-run")
        if step.allowed:
            allowed = (*allowed, "metadata-cleanup", "vacuum", "optimize", "reorg")
        policy = None if step.silent else m.Policy(allowed=allowed)
        self.s.owner.on(m.MaintenancePolicy, answer=policy, lose_request=step.silent, times=OFTEN)
        early: list[str] = []
        self.s.owner.on(m.BackfillToVersion, before=lambda: early.extend(self._unpublished(table)), times=10)
        cleans = step.job is Job.CLEANUP or self.s.feature == FILESYSTEM  # there any commit may clean up the log
        writes = step.job in CHECKPOINTS and self.s.feature != "catalogManaged"
        forbids = not step.allowed and self.s.feature == "catalogManaged"  # other tables have no policy
        hint, cleanable = self._hinted(table), self._cleanable(table)
        foreign = bool(self.copies)
        left: list[int] = []
        alone = freedoms == [Freedom.MISSING_STAGED]  # otherwise the owner, too, may need the file
        hidden = self._hide_staged(table) if alone and step.job is Job.PUBLISH else {}
        old = self._old_files(table) if step.job is Job.VACUUM else []
        since = len(self.s.owner.exchanges)

        def act() -> Exchange:
            call = self.s.act("maintenance", request, log.table)
            left.extend(version_of(path.name) or 0 for path in self._incomplete())
            return call

        try:
            call, before, after = self._watched(table, act, cleans=(cleans or writes) and not forbids)
        finally:
            self._disarm()
            for name, content in hidden.items():
                log.plant(name, content)
        self._sync(table)
        more = (*step.stakes(), *stakes)
        for name, content in hidden.items():
            copy = log.folder / commit_file(int(Path(name).name[:20]))
            if copy.exists() and copy.read_bytes() != content:
                wrong = Wrong(("CM-PUBLISH-07",), f"{copy.name} is a copy of {name}, or missing", "it is another file")
                self._fail(table, wrong, call)
        for name in (*early, *self._unpublished(table)):
            ids = ("MC-COMPACTION-01", "CM-MAINT-02") if "compacted" in name else ("MC-CHECKPOINT-03", "CM-MAINT-01")
            if name not in before and not foreign:  # a copy that is under way has the name of a published version
                self._fail(table, Wrong(ids, "only of published versions", f"{name} was written before"), call, more)
        new = sorted(name for name in after if name not in before and not Path(name).name.startswith("."))
        for wrong in (*self._named(step, request, call, after, new), *self._hints(table, hint)):
            self._fail(table, wrong, call, more)
        for wrong in self._written(table, new):
            self._fail(table, wrong, call, (*more, *self._stakes(table)))
        if step.job is Job.PUBLISH and isinstance(call.answer, m.Done) and any(v <= version for v in left):
            wrong = Wrong(("FIELD-05",), f"version {left[0]} has another file's content: an error", "it answered done")
            self._fail(table, wrong, call)
        later = [name for name in new if left and (version_of(name) or 0) > left[0]]
        if step.job is Job.PUBLISH and Freedom.FOREIGN_COPY in freedoms and later:
            wrong = Wrong(("FIELD-05",), f"version {left[0]} is not published: no later one is", f"{later[0]} is")
            self._fail(table, wrong, call)
        missing = {name for name, path in old if not path.exists()}
        self._fail(table, oracle.vacuum(log.actions, missing), call, more)
        if cleans:
            cleanable, cut = self._as_listed(cleanable, since), cut if step.job is Job.CLEANUP else oracle.FUTURE
            for wrong in self._cleaned(table, cleanable, cut, before, after):
                disturbed = bool({*freedoms} - {Freedom.LIST_PUBLISHED})  # the folder may have changed meanwhile
                if not (disturbed and _is_advice(wrong)):
                    self._fail(table, wrong, call, (*more, *self._stakes(table)) if step.job is Job.CLEANUP else ())
        asked = any(isinstance(heard.request, m.MaintenancePolicy) for heard in self.s.owner.exchanges[since:])
        if step.job in FORBIDDEN and isinstance(call.answer, m.Done | m.Committed) and not asked and self._has_policy():
            wrong = Wrong(("CM-MAINT-05",), f"the client requests the policy before every {step.job}", "it did not")
            self._fail(table, wrong, call)
        if forbids and step.job in FORBIDDEN and isinstance(call.answer, m.Done):
            self._fail(table, Wrong(step.stakes(), f"the owner does not allow {step.job}: an error"), call)

    def _cleaned(
        self, table: DrivenTable, cleanable: oracle.Folder, cut: int, before: Collection[str], after: Collection[str],
        *, whole: bool = True,
    ) -> Iterator[Wrong]:  # fmt: skip
        """What is wrong with the files that are gone."""
        lost = {name for name in before if name not in after}
        names = {commit_file(v): v for v in range(table.log.latest + 1)}
        published = {version for name, version in names.items() if name in after}  # the owner may have published
        cleanable = cleanable._replace(commits={*cleanable.commits, *published})
        if self.s.feature == FILESYSTEM or not whole:  # the same commit may have written a checkpoint
            checkpoints = {**self._cleanable(table).checkpoints, **cleanable.checkpoints}
            cleanable = cleanable._replace(checkpoints=checkpoints)
        yield from oracle.cleanup(table.log.actions, cleanable, cut, lost, self.s.feature, names, whole=whole)

    def _hide_staged(self, table: DrivenTable) -> dict[str, bytes]:
        """Hide the staged file of the first commit that a client publishes. Returns its name, with the content."""
        log = table.log
        unpublished = [c for c in self.s.listed(log.table) if not (log.folder / commit_file(c.version)).exists()]
        first = min(unpublished, key=lambda commit: commit.version, default=None)
        if self.s.feature != "catalogManaged" or first is None or first.file_name is None:
            return {}
        name = f"{STAGING[self.s.feature]}/{first.file_name}"
        content = (log.folder / name).read_bytes()
        log.hide(name)
        return {name: content}

    def _as_listed(self, folder: oracle.Folder, since: int) -> oracle.Folder:
        """With the staged files that the owner's answers to the client listed, if it asked."""
        answers = [heard.answer for heard in self.s.owner.exchanges[since:]]
        lists = [a.commits for a in answers if isinstance(a, m.Commits | m.Table) and a.commits is not None]
        if not lists:
            return folder
        return folder._replace(listed=self._staged(lists[-1]), seen=self._staged(itertools.chain(*lists)))

    def _staged(self, commits: Iterable[m.CommitEntry]) -> set[str]:
        return {f"{STAGING.get(self.s.feature, '')}/{commit.file_name}" for commit in commits}

    def _has_policy(self) -> bool:
        return self.s.feature == "catalogManaged" and Profile.MAINTENANCE_POLICY.value in self.s.identity.profiles

    def _old_files(self, table: DrivenTable) -> list[tuple[str, Path]]:
        """Write the data files and deletion vectors of all versions below the table's folder, and one that no version
        has, as if long ago, and a new one. Returns them by their paths in the log, decoded."""
        location = Path(table.log.location)
        adds = [action["add"] for actions in table.log.actions.values() for action in actions if "add" in action]
        files = []
        for name in (*itertools.chain(*map(oracle.files_of, adds)), "orphan.parquet", oracle.YOUNG):
            where = location / oracle.without_scheme(name)
            if location in where.parents:
                where.parent.mkdir(parents=True, exist_ok=True)
                where.touch()
                if name != oracle.YOUNG:
                    os.utime(where, (LONG_AGO, LONG_AGO))
                files.append((name, where))
        return files

    def _unpublished(self, table: DrivenTable) -> list[str]:
        """The checkpoints and compactions of versions that are not published."""
        listing = table.log.listing()
        published = max(listing.commits, default=-1)
        files = [path.name for c in listing.checkpoints if c.version > published for path in c.files]
        return files + [path.name for (_, end), path in listing.compactions.items() if end > published]

    def _named(
        self, step: steps.Maintain, request: m.Request, call: Exchange, after: Iterable[str], new: Sequence[str]
    ) -> Iterator[Wrong]:  # fmt: skip
        """Whether a file that the client reports as written has its prescribed name."""
        if not isinstance(call.answer, m.Done):
            return
        match request:
            case m.Checkpoint(any_version=False):
                there = any(name.startswith(f"{request.version:020}.checkpoint.") for name in after)
            case m.Compact():
                there = compacted_file(request.start, request.end) in after
            case m.Checksum():
                there = checksum_file(request.version) in after
            case _:
                there = True
        if not there:
            yield Wrong(("LOG-02",), f"the {step.job} has its prescribed name", f"the new files are {list(new)}")

    def _written(self, table: DrivenTable, new: Sequence[str]) -> Iterator[Wrong]:
        """What is wrong with the files that the client wrote."""
        log = table.log
        listing = log.listing()
        for checkpoint in listing.checkpoints:
            if checkpoint.complete and any(path.name in new for path in checkpoint.files):
                actions = _actions_of(checkpoint)
                if actions is None or checkpoint.version not in log.actions:
                    yield Wrong(("LOG-34",), "a complete checkpoint of a version", f"{checkpoint.files[0].name}")
                else:
                    yield from _one(oracle.checkpoint(log.actions, checkpoint.version, actions))
        for (start, end), path in listing.compactions.items():
            if path.name in new and end in log.actions:
                with suppress(log_files.Unreadable):
                    yield from _one(oracle.compaction(log.actions, start, end, log_files.actions_in(path)))
        for version, path in listing.checksums.items():
            if path.name in new and version in log.actions:
                body = _json(path)
                if body is None:
                    yield Wrong(("LOG-44",), "a checksum is one JSON object", path.name)
                else:
                    yield from _one(oracle.checksum(log.actions, version, body))

    # Tables that are created, dropped, taken over and handed back

    def _create(self, table: DrivenTable, step: steps.Create) -> None:
        self.pending.clear()
        if self.s.feature == FILESYSTEM:
            return
        self.clients += 1
        name, s = f"made-{self.clients}", self.s
        creation = s.creation(name)
        self._fate(m.CreateTable, step.fate, partial(s.create, name, client="other creator"))
        since = len(s.owner.exchanges)
        try:
            call = s.act("creator", creation)
        finally:
            self._disarm()
        requests = [heard.request for heard in s.owner.exchanges[since:] if isinstance(heard.request, m.CreateTable)]
        mine = {creation.attempt, *(request.attempt for request in requests)}  # an engine chooses its own
        landed = any(not mine.isdisjoint(owned.landed) for owned in s.owner.owner.tables.values())
        ids = ("PROFILE-UNKNOWN-02",) if step.fate in (*LOSING, Freedom.LAND) else ()
        wrong = oracle.change_of_owner(call.answer, landed, step.fate in LOSING, ids)
        if wrong is not None and not isinstance(call.answer, m.Unsupported):
            self._fail(table, wrong, call)
        if isinstance(call.answer, m.Ratified) and call.answer.table is not None:
            made = s.created(name, call, call.answer)
            self._fail(table, oracle.created(s.action_of(made, 0, "metaData", call)), call)

    def _fate(self, kind: type[m.Message], fate: Freedom | None, other: Callable[[], object]) -> None:
        """What happens to the client's request for a table."""
        owner = self.s.owner
        match fate:
            case Freedom.LOSE_ANSWER:
                owner.on(kind, lose_answer=True)
            case Freedom.REPEAT:
                owner.on(kind, lose_answer=True)
                owner.on(kind, change=_taken)
            case Freedom.REFUSE_AFTER:
                owner.refuse_after(kind)
            case Freedom.REFUSE:
                owner.on(kind, answer=m.Rejected(reason="not this table"), times=OFTEN)
            case Freedom.LAND:
                owner.on(kind, before=partial(self._quietly, other), lose_request=kind is m.CreateTable)
            case Freedom.PUBLISH:
                owner.on(m.GetCommits, after=partial(self._quietly, other))

    def _transfer(self, table: DrivenTable, step: steps.Transfer) -> None:
        self.pending.clear()
        if self.s.feature == FILESYSTEM or Profile.OWNERSHIP_TRANSFER.value not in self.s.identity.profiles:
            return
        if step.back:
            self._hand_back(table, step)
        else:
            self._take_over(step)

    def _hand_back(self, table: DrivenTable, step: steps.Transfer) -> None:
        s, log = self.s, table.log
        log.restore()
        request = m.HandBack(table=self._reference(log), version=log.latest + 1, attempt=s.attempt(), actions=())
        seen: dict[str, oracle.File] = {}

        def other() -> None:
            if step.fate is not Freedom.PUBLISH:
                for change in (Change.FEATURE, Change.PROPERTIES) if step.upgrade else (Change.APPEND,):
                    self._commit(table, change)
                return
            self._publish_all(table)
            seen.update({name: file for name, file in self._folder(table).items() if version_of(name) is not None})

        self._fate(m.HandBack, step.fate, other)
        try:
            call = s.act("migrator", request, log.table)
        finally:
            self._disarm()
        owned = s.owner.owner.tables[log.table.reference]
        landed = owned.latest > log.latest and not owned.active
        if landed:
            log.table.ownership.append(s.markers[call.number])
            self._sync(table)
            table.gone, log.table.versions = True, log.latest + 1
        for wrong in oracle.folder(seen, self._folder(table), self.s.feature, again=False):
            replaced = wrong._replace(requirements=("MC-RELEASE-09",))
            self._fail(table, replaced if wrong.observed == oracle.REPLACED else wrong, call)
        self._fail(table, oracle.change_of_owner(call.answer, landed, step.fate in LOSING, ()), call, step.stakes())
        if landed:
            for wrong in (
                *oracle.keeps_the_table(log.actions, log.latest),
                *oracle.handed_back(log.actions, log.latest),
            ):
                self._fail(table, wrong, call)

    def _take_over(self, step: steps.Transfer) -> None:
        s = self.s
        self.clients += 1
        late = oracle.FUTURE if step.late else proposals.BASE_TIME
        log = self._filesystem(f"imports-{self.clients}", (late - 1, late), LISTS if step.rich else BY_VERSION)
        table = DrivenTable(log=log, make=steps.Make(imported=True))
        request = m.TakeOver(
            path=log.location, name=s.physical(log.name), feature=s.feature, commit_mode=s.commit_mode, version=2,
            attempt=s.attempt(), actions=(),
        )  # fmt: skip
        known = set(s.owner.owner.tables)

        def another() -> None:
            changes = [proposals.line("protocol", MORE), self._metadata(table, Change.PROPERTIES)]
            log.write(
                proposals.commit_info(s.attempt(), late), file("faster"), *(changes if step.upgrade else ()),
                modified=late,
            )  # fmt: skip

        self._fate(m.TakeOver, step.fate, another)
        try:
            call = s.act("migrator", request, log.table)
        finally:
            self._disarm()
        made = [reference for reference, t in s.owner.owner.tables.items() if reference not in known and t.latest >= 0]
        if made:
            log.table.reference = made[0]
            log.table.ownership.append(s.markers[call.number])
            self._sync(table)
        raced = step.fate is Freedom.LAND
        ids = () if step.fate is not Freedom.REFUSE else ("MC-CONVERT-04",)
        self._fail(table, oracle.change_of_owner(call.answer, bool(made), step.fate in LOSING, ids), call)
        if made:
            for wrong in oracle.taken_over(log.actions, log.latest, late, raced):
                self._fail(table, wrong, call)
        self._write_after(table, step, owned=bool(made))

    def _write_after(self, table: DrivenTable, step: steps.Transfer, *, owned: bool) -> None:
        """Transactions by name and by path, after the take-over or its rejection."""
        s, log = self.s, table.log
        requests = [m.Transact(table=log.location, marker=s.attempt(), adds=(m.DataFile(path="late"),), read_version=0)]
        if owned:
            requests.append(m.Transact(table=s.physical(log.name), marker=s.attempt(), adds=(m.DataFile(path="mine"),)))
        for request in requests:
            before = log.latest
            call = s.act("writer", request, log.table)
            heard = any(proposed.operation == call.number for proposed in s.proposed)
            committed = isinstance(call.answer, m.Committed)
            if owned:
                self._sync(table)
            elif committed:
                path = log.folder / commit_file(before + 1)
                if not path.exists():
                    ids = (*step.stakes(), "PROFILE-CLIENT-02")
                    self._fail(table, Wrong(ids, f"{path.name} is the commit", "it does not exist", before + 1), call)
                log.actions[before + 1] = [json.loads(line) for line in proposals.lines(path.read_text("utf-8"))]
                log.table.versions = log.latest + 1
            if owned and committed and not heard:
                expected = "the table has an owner: the commit is proposed to it, or fails"
                self._fail(table, Wrong(step.stakes(), expected, "it was committed without the owner"), call)
            if owned and not committed and request.table != log.location:
                wrong = Wrong(("MC-CONVERT-10", "PROFILE-CLIENT-02"), "the owner ratifies it", m.name_of(call.answer))
                self._fail(table, wrong, call)
            refused = step.fate is Freedom.REFUSE and not step.rich and isinstance(call.answer, m.Rejected | m.Conflict)
            if refused and self._writes_filesystem_tables():
                wrong = Wrong(("MC-CONVERT-04",), "the table has no owner: it is committed", m.name_of(call.answer))
                self._fail(table, wrong, call)
            if not owned and heard:
                wrong = Wrong(("MC-CONVERT-04",), "the table has no owner: a file is created", "it asked the owner")
                self._fail(table, wrong, call)

    def _writes_filesystem_tables(self) -> bool:
        """Whether the client commits to a table that no owner was asked for: it need not."""
        self.clients += 1
        log = self._filesystem(f"imports-{self.clients}", (proposals.BASE_TIME - 1, proposals.BASE_TIME), BY_VERSION)
        adds = (m.DataFile(path="mine"),)
        request = m.Transact(table=log.location, marker=self.s.attempt(), adds=adds, read_version=0)
        return isinstance(self.s.act("writer", request, log.table).answer, m.Committed)

    def _again(self, table: DrivenTable, step: steps.Again) -> None:
        if self.s.feature == FILESYSTEM:
            return
        slot = next(slot for slot, known in self.tables.items() if known is table)
        table.log.restore()
        if step.during is not None:
            self._replaced_during(slot, table, step)
        if self.tables[slot] is table:
            self._replace(slot, table, step)

    def _replace(
        self, slot: int, table: DrivenTable, step: steps.Again, changes: Iterable[Change] = (Change.APPEND,)
    ) -> None:  # fmt: skip
        drop(self.s, table.log.table)
        if step.empty:
            table.gone, table.dropped = True, True
            return
        self.clients += 1
        log = LogBuilder.create(self.s, table.log.name, in_history=f"{table.log.name}-{self.clients}")
        self.tables[slot] = DrivenTable(log=log, make=steps.Make(), words=[step], names=table.names)
        for change in changes:
            self._commit(self.tables[slot], change)

    def _replaced_during(self, slot: int, table: DrivenTable, step: steps.Again) -> None:
        """While the client rewrites a file of the table, another one gets its name, with as many versions. Its protocol
        is not supported: a client that reads it before it proposes, as it may, commits nothing."""
        changes = self._changes(table, steps.Transact(removes=1, reads=1), table.log.latest)
        if table.make.columns is Columns.READERS_ONLY or not changes["removes"]:
            return
        changes["read_version"] = table.log.latest
        versions = (*(Change.APPEND,) * (table.log.latest - 1), Change.UNKNOWN_WRITER)
        happens = partial(self._quietly, self._replace, slot, table, step, versions)
        when = "before" if step.during == "commit" else "after"
        self.s.owner.on(KINDS.get(step.during or "", m.GetCommits), **{when: happens})
        request = m.Transact(table=self._reference(table.log), marker=self.s.attempt(), **changes)
        try:
            call = self.s.act("client", request, table.log.table)
        finally:
            self._disarm()
        new = self.tables[slot]
        self._sync(new)
        if new is not table and new.mine:
            wrong = Wrong(
                ("LOG-47", "PROFILE-CLIENT-02", "CM-READ-08"),
                "the table that it read was dropped, and it does not support the new one: it commits nothing",
                f"it committed to the new table with the same name, whose protocol requires {UNKNOWN_FEATURE}",
                new.mine[0],
            )  # fmt: skip
            self._fail(new, wrong, call)

    def _read_nothing(self, table: DrivenTable, step: steps.Step) -> None:
        """A read of a name that finds nothing."""
        self.pending.clear()
        if isinstance(step, steps.Read) and table.dropped:
            call = self.s.act("client", m.Snapshot(table=self.s.physical(table.log.name)), table.log.table)
            if isinstance(call.answer, m.SnapshotRead):
                self._fail(
                    table,
                    Wrong(("CM-READ-08", "PROFILE-CLIENT-01"), "the name finds nothing: an error", "a snapshot"),
                    call,
                )

    def _hinted(self, table: DrivenTable) -> int | None:
        body = _json(table.log.folder / "_last_checkpoint")
        version = None if body is None else body.get("version")
        return version if isinstance(version, int) else None

    def _hints(self, table: DrivenTable, before: int | None) -> Iterator[Wrong]:
        after = self._hinted(table)
        if before is None or after is None or after >= before:
            return
        listing = table.log.listing()
        if any(c.version == before and c.complete and _actions_of(c) is not None for c in listing.checkpoints):
            yield Wrong(("FIELD-01",), f"the hint names version {before} or a later one", f"it names version {after}")

    def _cleanable(self, table: DrivenTable) -> oracle.Folder:
        log = table.log
        listing = log.listing()
        usable: dict[int, list[str]] = {}
        rest: dict[int, list[str]] = {}
        for checkpoint in listing.checkpoints:
            actions = _actions_of(checkpoint) if checkpoint.complete else None
            names = [path.name for path in checkpoint.files]
            names += [f"_sidecars/{a['sidecar']['path']}" for a in _manifest(checkpoint) if "sidecar" in a]
            (rest if actions is None else usable).setdefault(checkpoint.version, []).extend(names)
        return oracle.Folder(
            commits=set(listing.commits), checkpoints=usable, incomplete=rest,
            compactions={path.name: span for span, path in listing.compactions.items()},
            checksums={path.name: version for version, path in listing.checksums.items()},
            staged={name: int(Path(name).name[:20]) for name in log.staged()},
            listed=self._staged(self.s.listed(log.table)),
            modified={v: path.stat().st_mtime_ns // 1_000_000 for v, path in listing.commits.items()},
        )  # fmt: skip


LONG_AGO: Final = 1_500_000_000
"""s since the epoch: older than any retention period."""
ADVICE: Final = {Freedom.PUBLISH_AND_DELETE: "LOG-13", Freedom.LIST_EARLIER: "LOG-08"}
"""The advice to a reader about a freedom of the owner."""
MISCOUNTED: Final = Wrong(("LOG-26",), "the version's checksum differs from its commits: a warning or an error", "none")
COPIES: Final = frozenset((Freedom.TRUNCATED_COPY, Freedom.FOREIGN_COPY))
LANDING: Final = (Freedom.LAND, Freedom.LAND_AND_PUBLISH)
LOSING: Final = (Freedom.LOSE_ANSWER, Freedom.REPEAT, Freedom.REFUSE_AFTER)
BY_VERSION: Final = {"minReaderVersion": 1, "minWriterVersion": 2}
LISTS: Final[dict[str, Any]] = {
    "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["appendOnly", "deletionVectors", "domainMetadata"],
}  # fmt: skip
MORE: Final = {**LISTS, "writerFeatures": sorted({*LISTS["writerFeatures"], "invariants"})}
FORBIDDEN: Final = (Job.VACUUM, Job.OPTIMIZE, Job.REORG)
CHECKPOINTS: Final = (Job.CHECKPOINT, Job.ANY_CHECKPOINT)


def _is_advice(wrong: Wrong) -> bool:
    return all(load().requirement(name).level is Level.SHOULD for name in wrong.requirements)


def _one(wrong: Wrong | None) -> Iterator[Wrong]:
    if wrong is not None:
        yield wrong


def _json(path: Path) -> dict[str, Any] | None:
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def _hour(number: int) -> int:
    return proposals.BASE_TIME + number * HOUR


def _is_final(answer: m.Answer) -> bool:
    refusal = answer.answer if isinstance(answer, m.GroupRefused) else answer
    return isinstance(refusal, m.Rejected) and not refusal.retryable


def is_excused(freedoms: Iterable[Freedom]) -> bool:
    """Whether a transaction need not land, because of these freedoms."""
    return not {Freedom.BUSY, Freedom.NEVER}.isdisjoint(freedoms)


def _removal(add: dict[str, Any], **more: Any) -> str:
    kept = {name: add[name] for name in ("deletionVector", *oracle.ROW_IDS) if add.get(name) is not None}
    return gone(add["path"], **kept, **more)


def _instead(kind: type[m.Message], other: m.Answer, answer: m.Answer) -> m.Answer:
    return other if isinstance(answer, kind) else answer


def _taken(answer: m.Answer) -> m.Answer:
    """The owner does not recognize a repetition: the name, or the version, is taken."""
    return m.Conflict(latest=0, winner_table=answer.table) if isinstance(answer, m.Ratified) else m.Conflict()


def _without_latest(latest: int | None, answer: m.Answer) -> m.Answer:
    """The answer of an owner without staged commits."""
    if isinstance(answer, m.Commits | m.Table) and not answer.commits:
        return msgspec.structs.replace(answer, latest=latest)
    return answer


def _actions_of(checkpoint: log_files.Checkpoint) -> list[dict[str, Any]] | None:
    """The actions of a checkpoint; None if it cannot be read."""
    sidecars = sorted(checkpoint.files[0].parent.glob(f"{log_files.SIDECARS}/*"))
    return _decoded(
        checkpoint,
        tuple((path, path.stat().st_ctime_ns, path.stat().st_ino) for path in (*checkpoint.files, *sidecars)),
    )


@lru_cache(maxsize=64)
def _decoded(checkpoint: log_files.Checkpoint, _: tuple[tuple[Path, int, int], ...]) -> list[dict[str, Any]] | None:
    try:
        return log_files.checkpoint_actions(checkpoint)
    except log_files.Unreadable:
        return None


def _manifest(checkpoint: log_files.Checkpoint) -> list[dict[str, Any]]:
    try:
        return [action for path in checkpoint.files for action in log_files.rows_of(path)]
    except log_files.Unreadable:
        return []


def _files_in(folder: str) -> Iterator[tuple[str, oracle.File]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files_in(entry.path)
            else:
                at = entry.stat()
                content = of_bytes(Path(entry).read_bytes()) if version_of(entry.name) is not None else None
                yield entry.path, oracle.File(at.st_size, at.st_mtime_ns, at.st_ino, content)


def _is_whole(path: Path) -> bool:
    at = path.stat()
    return _whole(path, at.st_ino, at.st_ctime_ns)


@lru_cache(maxsize=1024)
def _whole(path: Path, _inode: int, _changed: int) -> bool:
    try:
        log_files.actions_in(path)
    except (log_files.Unreadable, OSError):
        return False
    return True
