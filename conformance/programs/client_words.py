"""The alphabet of programs for clients: each word draws a step or a few. A program is a layout, then one to four rounds
of freedoms, winners and an operation, then reads that show what became of the table."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

import msgspec

from conformance.interface.messages import Identity, Isolation
from conformance.programs import client_steps as steps
from conformance.programs import program as programs
from conformance.programs.client_group_driving import ClientGroupDrive
from conformance.programs.client_steps import By, Change, ClientProgram, Columns, Form, Freedom, Harm, Job, Layout, Step
from conformance.programs.program import FORMAT
from conformance.programs.running import Suspect
from conformance.scenario.check import Variant
from conformance.scenario.client import ClientScenario

T = TypeVar("T")
Word = Callable[["Draw"], tuple[Step, ...]]


class Draw:
    """The draws of one program, and what all its words share."""

    def __init__(self, random: Random, details: Random, unusual: Random, imported: float = 0.15) -> None:
        """`details`: draws how the table describes its columns, and other details; these draws do not move those of
        `random`. `unusual`: draws what few tables have. `imported`: the share of tables that an owner took over."""
        self.random, self.details = random, details
        every = tuple(range(len(steps.PATHS)))
        self.paths = self.one((0,), (0,), (self.one(*every),), every, (0, every[-1]))
        self.imported = self.chance(imported)
        self.partitioned = not self.imported and self.chance(0.35)
        self.limit = self.one(0, 0, 0, 0, 1, 1, 1, 2)
        self.partitions = self.one((0, 1), tuple(range(len(steps.PARTITIONS)))) if self.partitioned else (0,)
        self.features = tuple(name for name in steps.FEATURES if self.chance(0.3))
        plain, void, named = Columns.PLAIN, Columns.VOID, (Columns.STALE, Columns.READERS_ONLY)
        self.columns = details.choice((plain, plain, plain, void, *(named if self.partitioned else ())))
        self.codec = details.random() < 0.2
        self.append_only = unusual.random() < 0.08
        if self.partitioned and unusual.random() < 0.15:
            self.columns = Columns.MAPPED
        self.changes = {change: weight * self.one(*programs.SWARM) for change, weight in CHANGES.items()}
        if "deletionVectors" in self.features:
            self.changes[Change.VECTOR] = 8
        self.contested = self.weighted(CONTESTED | ({Change.VECTOR: 6} if "deletionVectors" in self.features else {}))
        """The kind of the winners' changes in this program."""
        self.isolation = self.one(*Isolation, None, None)
        self.isolated = self.chance(0.5)
        self.begin_round(races=False)

    def begin_round(self, *, races: bool) -> None:
        """`races`: the next transaction loses. Then it and its winners are mostly about the same files."""
        self.races, self.which, self.partition = races, self.one(0, 0, 1, 2), self.one(*self.partitions)
        self.null = races and self.partitioned and self.details.random() < 0.3
        """Whether the winners' files have the partition value null, which a read of everything meets."""
        if self.null:
            self.partition = steps.PARTITIONS.index(None)

    def one(self, *values: T) -> T:
        return self.random.choice(values)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def weighted(self, weights: Mapping[T, float]) -> T:
        return self.random.choices(list(weights), list(weights.values()))[0]

    def change(self) -> Change:
        return self.detailed(self.weighted(self.changes) if any(self.changes.values()) else Change.APPEND)

    def detailed(self, change: Change) -> Change:
        """The change, or a rarer one of the same kind."""
        return RARER[change] if change in RARER and self.details.random() < 0.3 else change


CHANGES: Final[dict[Change, float]] = {
    Change.APPEND: 8, Change.REMOVE: 3, Change.REPLACE: 3, Change.AGAIN: 1, Change.APPLICATION: 1.5, Change.DOMAIN: 1.5,
    Change.NO_DOMAIN: 1, Change.PROPERTIES: 1.5, Change.SCHEMA: 0.5, Change.PARTITIONING: 0.3, Change.FEATURE: 0.7,
    Change.UNKNOWN_WRITER: 0.5, Change.UNKNOWN_READER: 0.5, Change.UNKNOWN_ACTION: 1, Change.VECTOR: 2,
    Change.NOTHING: 0.5,
}  # fmt: skip


CONTESTED: Final[dict[Change, float]] = {
    Change.APPEND: 4, Change.REMOVE: 3, Change.REPLACE: 2, Change.APPLICATION: 2, Change.DOMAIN: 2,
    Change.PROPERTIES: 2, Change.SCHEMA: 1.5, Change.PARTITIONING: 1, Change.FEATURE: 2, Change.UNKNOWN_WRITER: 1.5,
    Change.AGAIN: 0.5, Change.NO_DOMAIN: 0.5, Change.UNKNOWN_ACTION: 0.5, Change.REARRANGE: 2,
}  # fmt: skip
RARER: Final = {
    Change.APPLICATION: Change.EARLIER, Change.DOMAIN: Change.NO_DOMAIN, Change.AGAIN: Change.RESTORE,
    Change.REPLACE: Change.REARRANGE,
}  # fmt: skip
AGAINST: Final[dict[Change, tuple[str, ...]]] = {
    Change.APPEND: ("adds", "adds", "rewrite", "properties", "repartition"), Change.REMOVE: ("removes", "adds"),
    Change.REPLACE: ("rewrite",), Change.REARRANGE: ("rewrite", "removes"), Change.VECTOR: ("rewrite",),
    Change.APPLICATION: ("application",),
    Change.DOMAIN: ("domain",), Change.PROPERTIES: ("properties",), Change.FEATURE: ("feature",),
}  # fmt: skip
"""The transactions that conflict with such winners, most of all."""


def make(d: Draw) -> tuple[Step, ...]:
    features = d.features
    first = steps.Make(
        partitioned=d.partitioned, features=features, limit=d.limit, imported=d.imported, old=d.chance(0.1),
        columns=d.columns, codec=d.codec, append_only=d.append_only,
    )  # fmt: skip
    return (first, steps.Make(table=1)) if d.chance(0.15) else (first,)


def land(d: Draw) -> tuple[Step, ...]:
    return (
        steps.Land(
            change=d.change(), path=d.one(*d.paths), partition=d.one(*d.partitions), which=d.one(0, 0, 1, 2, 3),
            blind=d.chance(0.3), times=d.one(1, 1, 1, 2, 5),
        ),
    )  # fmt: skip


def backfill(d: Draw) -> tuple[Step, ...]:
    return (steps.Backfill(behind=d.one(0, 0, 1, 2)),)


def checkpoint(d: Draw) -> tuple[Step, ...]:
    harm = d.one(Harm.NONE, Harm.NONE, Harm.NONE, Harm.HALF, Harm.TRUNCATED, Harm.EMPTY)
    single = Form.PARTS if harm is Harm.HALF else Form.CLASSIC
    form = d.one(single, single, Form.PARTS, Form.JSON, Form.PARQUET)
    return (
        steps.Checkpoint(
            behind=d.one(0, 1, 1, 2, 3), form=form, parts=d.one(0, 1), hint=d.chance(0.6), harm=harm,
            first=harm is Harm.HALF and d.details.random() < 0.5,
        ),
    )  # fmt: skip


def hint(d: Draw) -> tuple[Step, ...]:
    return (steps.Hint(behind=d.one(0, 1, 2), truncated=d.chance(0.3)),)


def compaction(d: Draw) -> tuple[Step, ...]:
    return (steps.Compaction(behind=d.one(0, 0, 1, 2), width=d.one(1, 2, 3)),)


def checksum(d: Draw) -> tuple[Step, ...]:
    return (steps.Checksum(behind=d.one(0, 0, 1, 2), harm=d.one(Harm.NONE, Harm.NONE, Harm.TRUNCATED, Harm.EMPTY)),)


def leftover(d: Draw) -> tuple[Step, ...]:
    return (steps.Leftover(behind=d.one(-1, -1, -2, 0, 1)),)


def several(d: Draw) -> tuple[Step, ...]:
    """A version has two checkpoints in several parts, one of them not complete."""
    behind = d.one(0, 1)
    half = steps.Checkpoint(
        behind=behind, form=Form.PARTS, parts=1, harm=Harm.HALF, first=d.details.random() < 0.5
    )  # fmt: skip
    return (half, steps.Checkpoint(behind=behind, form=Form.PARTS, parts=0), *d.one((), (steps.Clean(),)))


def clean(_: Draw) -> tuple[Step, ...]:
    return (steps.Clean(),)


def touch(d: Draw) -> tuple[Step, ...]:
    order = d.one(0, 1, 2)
    return (steps.Touch(order=3 if d.details.random() < 0.25 else order),)


def changed(d: Draw) -> tuple[Step, ...]:
    """A version that changes what an earlier one has."""
    vectors = (Change.VECTOR,) * 4 if "deletionVectors" in d.features else ()
    change = d.one(
        Change.REMOVE, Change.REMOVE, Change.REPLACE, Change.AGAIN, Change.DOMAIN, Change.NO_DOMAIN, Change.APPLICATION,
        Change.PROPERTIES, d.contested, *vectors,
    )  # fmt: skip
    path, partition, which = d.one(*d.paths), d.one(*d.partitions), d.one(0, 0, 1)
    return (steps.Land(change=d.detailed(change), path=path, partition=partition, which=which),)


LAYOUT: Final[dict[Callable[[Draw], tuple[Step, ...]], float]] = {
    land: 3, changed: 2, backfill: 3, checkpoint: 2, compaction: 1, checksum: 0.7, leftover: 1, clean: 1, several: 0.5,
    hint: 0.5, touch: 0.5,
}  # fmt: skip


def read(d: Draw) -> tuple[Step, ...]:
    by = (
        By.TIME
        if d.imported and d.chance(0.5)
        else d.one(By.NEWEST, By.NEWEST, By.NEWEST, By.VERSION, By.VERSION, By.TIME, By.PATH)
    )
    harm = d.one(*[Harm.NONE] * 9, Harm.HALF, Harm.TRUNCATED, Harm.EMPTY)
    step = steps.Read(
        by=by, behind=d.one(0, 0, 1, 1, 2, 3, -1), offset=d.one(0, 0, 1, 500, 999), fresh=d.chance(0.4), harm=harm,
        at=d.one(0, 1, 2),
    )  # fmt: skip
    return (steps.Leftover(behind=step.at), step) if harm is Harm.HALF else (step,)


def transact(d: Draw) -> tuple[Step, ...]:
    more: dict[str, Any] = {}
    kind = d.one(
        "adds", "adds", "rewrite", "rewrite", "removes", "application", "domain", "properties", "feature",
        "repartition", "replace_table", "cdc", "empty",
    )  # fmt: skip
    if d.imported and d.chance(0.3):
        kind = "replace_table"
    elif "changeDataFeed" in d.features and d.chance(0.4):
        kind = "cdc"
    elif d.chance(0.7 if d.races else 0.3):
        kind = d.one(*AGAINST.get(d.contested, ("adds",)))
    match kind:
        case "rewrite":
            more = {"removes": d.one(1, 2, 99), "reads": d.one(0, 1, 1, 2, 3)}
        case "removes":
            more = {"adds": 0, "removes": d.one(1, 1, 2), "reads": d.one(0, 0, 1, 2)}
        case "application":
            more = {"application": d.one(1, 1, 2, 2), "reads": d.one(0, 0, 1)}
            if d.details.random() < 0.3:  # a batch without rows
                more |= {"adds": 0, "if_needed": True}
        case "domain":
            more = {"domain": d.one(1, 2), "adds": d.one(0, 1)}
        case "properties":
            more = {"properties": d.one(1, 1, 2, 3, 4), "adds": d.one(0, 0, 1), "reads": d.one(0, 1)}
        case "feature" | "repartition" | "replace_table":
            more = {kind: True, "adds": d.one(0, 1)}
        case "empty":
            more = {"adds": 0}
        case "cdc":
            more = {"changes": 1, "removes": 1}
        case _:
            reads = (0, 1, 2, 3, 3) if d.partitioned else (0, 0, 1, 1, 2)
            more = {"reads": d.one(*reads), "adds": d.one(1, 1, 2, 3), "outside": d.chance(0.05)}
    if d.null and more.get("reads"):
        more["reads"] = 1
    isolation = (d.isolation or Isolation.SERIALIZABLE) if d.isolated else d.one(*Isolation)
    common: dict[str, Any] = {
        "path": d.one(*d.paths), "partition": d.one(d.partition, d.partition, *d.partitions),
        "which": d.one(d.which, d.which, 0, 1), "isolation": isolation,
        "data_change": not d.chance(0.2), "behind": d.one(0, 0, 0, 1, 2), "by_path": d.chance(0.04),
    }  # fmt: skip
    return (steps.Transact(**{**common, **more}),)


def maintain(d: Draw) -> tuple[Step, ...]:
    job = d.one(
        Job.CHECKPOINT, Job.CHECKPOINT, Job.ANY_CHECKPOINT, Job.COMPACTION, Job.COMPACTION, Job.CHECKSUM, Job.CLEANUP,
        Job.CLEANUP, Job.CLEANUP, Job.PUBLISH, Job.VACUUM, Job.OPTIMIZE, Job.REORG,
    )  # fmt: skip
    step = steps.Maintain(job=job, behind=d.one(0, 0, 1, 1, 2), width=d.one(1, 2, 3), allowed=not d.chance(0.15))
    if not step.allowed:
        step = msgspec.structs.replace(step, silent=d.details.random() < 0.5)
    return (*copy(d, job), step)


def copy(d: Draw, job: Job) -> tuple[Step, ...]:
    """Another file has the name of the first version that a client publishes, or its staged file is missing."""
    chance = d.details.random() if job is Job.PUBLISH else 1
    what = Freedom.FOREIGN_COPY if chance < 0.35 else Freedom.MISSING_STAGED
    several = (steps.Land(times=2),) if what is Freedom.MISSING_STAGED else ()
    return (*several, steps.Free(what=what)) if chance < 0.7 else ()


def layers(d: Draw) -> tuple[Step, ...]:
    """Files of the log, each with versions after it that change what it has; then new readers of several versions."""
    program: tuple[Step, ...] = ()
    for _ in range(d.one(1, 2, 2, 3)):
        first, file, then = land(d), d.one(checkpoint, checkpoint, compaction, checksum)(d), changed(d)
        if d.details.random() < 0.1:
            first, then = (steps.Land(change=Change.APPLICATION),), (steps.Land(change=Change.EARLIER),)
        program += (*first, *file, *then)
    program += d.one((), (steps.Clean(),))
    newest, earlier = steps.Read(fresh=True), steps.Read(by=By.VERSION, behind=d.one(1, 2, 3), fresh=True)
    return (*program, *d.one((), of_readers(d)), newest, *d.one((), of_readers(d)), earlier)


PREPARED: Final = (
    Job.CHECKPOINT, Job.CHECKPOINT, Job.ANY_CHECKPOINT, Job.COMPACTION, Job.COMPACTION, Job.CHECKSUM, Job.VACUUM,
    Job.PUBLISH,
)  # fmt: skip


def prepared(d: Draw) -> tuple[Step, ...]:
    """Versions that change what earlier ones have, and a job that summarizes them."""
    behind, job = d.one(0, 0, 0, 1), d.one(*PREPARED)
    summed = (steps.Checksum(),) if job is Job.CHECKSUM else ()
    removed = (steps.Land(change=Change.VECTOR), steps.Land(change=Change.REMOVE, which=1))  # a file with a vector
    vectors = removed if "deletionVectors" in d.features else ()
    program = (*land(d), *summed, *changed(d), *d.one((), changed(d)), *vectors, *d.one((), backfill(d)))
    job_step = steps.Maintain(job=job, behind=behind, width=d.one(1, 2, 3))
    return (
        *program,
        *d.one((), checksum(d), checkpoint(d), leftover(d)),
        *copy(d, job),
        job_step,
        *d.one((), (steps.Read(fresh=True),)),
    )


def clean_up(d: Draw) -> tuple[Step, ...]:
    """Files of the log at the cut-off, below and above it; then a cleanup."""
    cut = d.one(0, 1, 1, 2)
    program = (steps.Land(times=d.one(2, 3, 4)), *d.one((), changed(d)), *d.one((), (steps.Backfill(),)))
    files: dict[Word, float] = {checkpoint: 3, compaction: 1, checksum: 1, leftover: 1}
    for _ in range(d.one(1, 2, 3, 4)):
        [drawn] = d.weighted(files)(d)
        program += (msgspec.structs.replace(drawn, behind=cut) if d.chance(0.4) else drawn,)
    if d.details.random() < 0.2:  # the sidecar of its checkpoint is missing
        program += (steps.Checkpoint(behind=cut, form=Form.PARQUET, harm=Harm.HALF),)
    listed = (steps.Free(what=Freedom.LIST_PUBLISHED),) if d.chance(0.5) else ()
    if d.details.random() < (0.5 if "v2Checkpoint" in d.features else 0.2):  # both may have sidecars
        program += (steps.Checkpoint(behind=cut, form=Form.PARQUET), steps.Checkpoint(form=Form.PARQUET))
    if d.details.random() < 0.2:
        program += (steps.Touch(order=3),)
    return (*program, *listed, steps.Maintain(job=Job.CLEANUP, behind=cut), steps.Read(fresh=True))


def times(d: Draw) -> tuple[Step, ...]:
    """Times at and between those of published and unpublished versions, before and after the enablement."""
    program = (*land(d), *d.one((), backfill(d)), *d.one((), touch(d)), *d.one((), land(d)))
    behind, offset = (0, 0, 1, 1, 2, 3, 4), (0, 0, 1, 500, 999)
    reads = [
        steps.Read(by=By.TIME, behind=d.one(*behind), offset=d.one(*offset), fresh=d.chance(0.4)) for _ in range(4)
    ]
    return (*program, *reads)


def overtaken(d: Draw) -> tuple[Step, ...]:
    """A writer has a version that a checkpoint keeps; the later ones were cleaned up, except for the newest."""
    behind = d.one(2, 2, 3)
    program = (*land(d), steps.Checkpoint(), steps.Land(times=behind), steps.Checkpoint(), steps.Clean())
    return (*program, steps.Transact(behind=behind, adds=d.one(1, 1, 2)), steps.Read(fresh=True))


def metadata(d: Draw) -> tuple[Step, ...]:
    """A property that the client sets, and sets again; then it may replace the table."""
    sets = tuple(steps.Transact(properties=d.one(1, 2), adds=d.one(0, 1)) for _ in range(2))
    return (*sets, *d.one((), (steps.Transact(replace_table=True),)))


def permission(d: Draw) -> tuple[Step, ...]:
    """A job that the owner allows, and does not allow any more."""
    jobs = (Job.VACUUM, Job.OPTIMIZE, Job.REORG, Job.CLEANUP)
    silent = d.details.random() < 0.5
    return (steps.Maintain(job=d.one(*jobs)), steps.Maintain(job=d.one(*jobs), allowed=False, silent=silent))


def create(d: Draw) -> tuple[Step, ...]:
    return (steps.Create(fate=d.one(None, *FATES)),)


def transfer(d: Draw) -> tuple[Step, ...]:
    back = d.chance(0.35)
    fate = d.one(
        None, None, *FATES, Freedom.LAND, Freedom.LAND, *((Freedom.PUBLISH,) * 5 + (Freedom.LAND,) * 4 if back else ())
    )
    rich = fate is not Freedom.REFUSE and d.chance(0.5)
    return (steps.Transfer(back=back, late=d.one(0, 0, 1), rich=rich, upgrade=d.chance(0.7), fate=fate),)


def again(d: Draw) -> tuple[Step, ...]:
    """Twice: the second table has the versions of the first, in files of the same names and sizes."""
    reads = (steps.Read(), steps.Read(by=By.VERSION, behind=1))
    during = d.details.choice((None, "get_commits", "commit"))
    first = (steps.Again(during=during), *reads) if d.details.random() < 0.5 else ()
    return (*first, steps.Again(empty=d.chance(0.3)), *reads)


FATES: Final = (Freedom.LOSE_ANSWER, Freedom.REPEAT, Freedom.REFUSE_AFTER, Freedom.REFUSE, Freedom.LAND)
OPERATIONS: Final[dict[Callable[[Draw], tuple[Step, ...]], float]] = {
    read: 2, layers: 1, transact: 4, maintain: 1, prepared: 1, clean_up: 0.5, permission: 0.1, create: 0.4,
    transfer: 1, again: 0.4,
}  # fmt: skip


def of_readers(d: Draw) -> tuple[Step, ...]:
    what = d.one(
        Freedom.PUBLISH, Freedom.PUBLISH, Freedom.PUBLISH_AND_DELETE, Freedom.LAND, Freedom.LAND_AND_PUBLISH,
        Freedom.NO_LATEST, Freedom.LATEST_BEHIND, Freedom.LIST_PUBLISHED, Freedom.LIST_PUBLISHED, Freedom.LOSE_REQUEST,
        Freedom.TRUNCATED_COPY,
    )  # fmt: skip
    on = d.one("get_commits", "get_commits", "get_commits", "load_table", "any")
    free = steps.Free(what=what, on=on, after=d.chance(0.5), skip=d.one(0, 0, 0, 1))
    if what is Freedom.LOSE_REQUEST and d.details.random() < 0.5:
        free = msgspec.structs.replace(free, times=1_000)  # the owner does not answer any more
    return (free,)


def of_writers(d: Draw) -> tuple[Step, ...]:
    if d.limit and d.chance(0.5):
        return (steps.Free(what=Freedom.LAND, on="backfill_to_version", after=True, times=d.one(1, 2)),)
    if d.chance(0.45):
        return lost(d)
    what = d.one(
        Freedom.BUSY, Freedom.BARE_CONFLICT, Freedom.OLD_CONFLICT, Freedom.REFUSE, Freedom.SILENT, Freedom.REFUSE_AFTER,
        Freedom.REPEAT, Freedom.DELAY, Freedom.NEVER, Freedom.PUBLISH, Freedom.LAND_AND_PUBLISH, Freedom.NO_LATEST,
    )  # fmt: skip
    return (steps.Free(what=what, on="commit", after=d.chance(0.5), skip=d.one(0, 0, 1, 2)),)


def lost(d: Draw) -> tuple[Step, ...]:
    """A lost commit, and what happens when the client looks it up."""
    what = d.one(Freedom.LOSE_REQUEST, Freedom.LOSE_ANSWER, Freedom.LOSE_ANSWER)
    first = steps.Free(what=what, on="commit", skip=d.one(0, 0, 0, 1))
    then = d.one(Freedom.LOSE_REQUEST, Freedom.LOSE_ANSWER, Freedom.PUBLISH, Freedom.LAND_AND_PUBLISH, None)
    if then is None:
        return (first,)
    on = d.one("attempt_outcome", "attempt_outcome", "commit", "get_commits", "any")
    skip = 1 if on == "any" else 0
    endless = then in (Freedom.LOSE_REQUEST, Freedom.LOSE_ANSWER) and on != "commit"
    often = 1_000 if endless else 2  # a winner, or a lost proposal, each time is a race without end
    return (first, steps.Free(what=then, on=on, after=d.chance(0.3), skip=skip, times=d.one(1, 1, 2, often)))


def win(d: Draw) -> tuple[Step, ...]:
    times, races = d.one((1, 1), (1, 1), (1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (9, 1), (12, 1), (1, 17))
    return (
        steps.Win(
            times=times, races=races, change=d.detailed(d.one(*[d.contested] * 4, Change.APPEND)), last=d.chance(0.5),
            partition=d.partition, which=d.which, blind=d.chance(0.5), publish=d.chance(0.4),
        ),
    )  # fmt: skip


# Operations on several tables


def transact_all(d: Draw) -> tuple[Step, ...]:
    drawn = [(table, transact(d)[-1]) for table in _several(d)]
    members = [msgspec.structs.replace(one, table=t) for t, one in drawn if isinstance(one, steps.Transact)]
    return (steps.TransactAll(members=tuple(members)),)


def read_all(d: Draw) -> tuple[Step, ...]:
    return (steps.ReadAll(tables=_several(d), fresh=d.chance(0.3)),)


def _several(d: Draw) -> tuple[int, ...]:
    return tuple(d.random.sample(range(steps.TABLES), d.one(2, 2, 2, 3)))


def during_reads(d: Draw) -> tuple[Step, ...]:
    """A freedom during a read of several tables."""
    if d.chance(0.6):
        on = d.one("load_table", "get_commits", "get_commits", "any")
        return (steps.Free(what=Freedom.LAND_GROUP, on=on, after=d.chance(0.7), skip=d.one(0, 0, 1)),)
    return spread(d, of_readers(d))


def during_transactions(d: Draw) -> tuple[Step, ...]:
    """A freedom during a transaction over several tables."""
    if d.chance(0.3):
        return spread(d, (steps.Free(what=d.one(Freedom.LAND_GROUP, Freedom.DROP), on="commit", skip=d.one(0, 0, 1)),))
    return spread(d, d.one(lost, of_writers)(d))


def spread(d: Draw, drawn: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps, on any of the tables."""
    return tuple(msgspec.structs.replace(step, table=d.random.randrange(steps.TABLES)) for step in drawn)


GROUPED: Final[Mapping[Word, float]] = {transact_all: 6, read_all: 5}
"""The words about several tables: other families draw none of them."""
DURING: Final[Mapping[Word, Word]] = {
    transact: of_writers, transact_all: during_transactions, read_all: during_reads,
}  # fmt: skip
GROUP_RITUAL: Final[tuple[Step, ...]] = (
    steps.ReadAll(), steps.TransactAll(), steps.Free(what=Freedom.LAND_GROUP, after=True),
    steps.ReadAll(fresh=True), steps.ReadAll(tables=(1, 0)),
)  # fmt: skip
"""The end of each program with groups."""
RARE: Final[tuple[Word, ...]] = (times, overtaken, metadata)
SUCH_AS: Final = {"layers": "read", "prepared": "maintain", "clean_up": "maintain", "permission": "maintain"}
"""Words that a family makes as frequent as another one, unless it names them itself."""
HEAVY: Final[tuple[Step, ...]] = (steps.Land(times=110), steps.Land(change=Change.MANY))
"""Steps that take long, in turn, one in a program."""
RITUAL: Final[tuple[Step, ...]] = (
    steps.Read(), steps.Read(by=By.VERSION, behind=1, fresh=True), steps.Transact(), steps.Read(fresh=True),
)  # fmt: skip
"""The end of each program: the reader that has read before, and a new one, show what became of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFamily:
    """A property of clients: any layout, freedoms, winners and operations, some of them more frequent than in other
    families."""

    name: str
    factors: Mapping[str, float] = field(default_factory=dict)
    """The factors of the weights, by word. Words of `RARE` are drawn only if they are among them."""
    groups: bool = False
    """Whether its programs have operations on several tables."""
    kind: type[ClientProgram] = ClientProgram
    side: str = "client"

    def draw(self, seed: int, number: int, identity: Identity, variant: Variant) -> ClientProgram:  # noqa: ARG002
        """The first programs are small: their failures are easy to read."""
        random = programs.random_of(seed, number)
        timed = times.__name__ in self.factors
        details = programs.random_of(seed, -1 - number)
        unusual, small = programs.random_of(seed, -1_000_000 - number), number < programs.SMALL_PROGRAMS
        d = Draw(random, details, unusual, 0.6 if timed else 0.15)
        rare = {word: 1.0 for word in RARE if word.__name__ in self.factors}
        more: Mapping[Word, float] = GROUPED if self.groups else rare
        layout, operations = self._weights(LAYOUT, d), self._weights({**OPERATIONS, **more}, d)
        somewhere = partial(spread, d) if self.groups else tuple
        program: list[Step] = [*make(d), *land(d), *d.one((), changed(d))]
        for _ in range(random.randint(0, 3 if small else 9)):
            program += somewhere(d.weighted(layout)(d))
        for _ in range(random.randint(1, 3 if small else 5)):
            program += self._round(d, d.weighted(operations))
            for _ in range(random.randint(0, 2)):
                program += somewhere(d.weighted(layout)(d))
        if (heavy := programs.heavy(HEAVY, seed, number)) is not None:
            program.insert(1, heavy)
        words = tuple(type(step).__name__.lower() for step in program)
        program += (*(GROUP_RITUAL if self.groups else ()), *RITUAL)
        return ClientProgram(
            format=FORMAT, side="client", family=self.name, seed=seed + number, words=words, steps=tuple(program)
        )

    def suspect(self, program: programs.Program[Step]) -> Suspect | None:
        """The step of the layout that sets most, of those that put requirements at stake. Without a freedom or a race,
        requirements that no step names would not be tested any more."""
        staked = [step for step in program.steps if isinstance(step, Layout) and step.stakes()]
        fields = [(type(step), msgspec.to_builtins(step)) for step in staked]
        suspects = [Suspect(kind, {key: body[key] for key in body.keys() - {"type", "table"}}) for kind, body in fields]
        suspect = max(suspects, key=lambda suspect: len(suspect.fields), default=None)
        return suspect if suspect is not None and suspect.fields else None

    def stakes(self, step: Step) -> tuple[str, ...]:
        return step.stakes()

    def _weights(self, weights: Mapping[Word, float], d: Draw) -> dict[Word, float]:
        mine = {word: weight * self._factor(word) * d.one(*programs.SWARM) for word, weight in weights.items()}
        return mine if any(mine.values()) else {word: weight * self._factor(word) for word, weight in weights.items()}

    def _factor(self, word: Word) -> float:
        name = word.__name__
        return self.factors.get(name, self.factors.get(SUCH_AS.get(name, ""), 1))

    def _round(self, d: Draw, operation: Word) -> list[Step]:
        """An operation of the client, with the freedoms and winners during it."""
        word = DURING.get(operation, of_readers)
        races = operation in (transact, transact_all)
        d.begin_round(races=races and d.chance(0.6 * self.factors.get("win", 1)))
        free = word(d) if d.chance(0.5 * self.factors.get(word.__name__, 1)) else ()
        winners = win(d) if d.races else ()
        return [*(spread(d, winners) if operation in GROUPED else winners), *free, *operation(d)]

    def offers(self, words: Collection[str], identity: Identity, variant: Variant) -> bool:  # noqa: ARG002
        return True

    def begin(self, scenario: ClientScenario) -> ClientGroupDrive:
        return ClientGroupDrive(scenario)
