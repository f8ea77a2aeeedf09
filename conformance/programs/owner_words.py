"""The alphabet of programs for owners: each word draws one step or a few, and has a weight.

A family is the same alphabet with other weights. Every program ends with the same ritual on each of its tables, which
looks at what the program left: without it, a program damages a table and no request shows it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from conformance.interface.messages import Identity
from conformance.programs import contents, delta_api, steps
from conformance.programs import program as programs
from conformance.programs.driving import NAMES, PATHS
from conformance.programs.group_driving import GroupDrive
from conformance.programs.program import FORMAT, LONG
from conformance.programs.steps import CLIENTS, Again, By, Fate, OwnerProgram, Step
from conformance.scenario.check import Variant
from conformance.scenario.scenario import Scenario

FATES: Final = (
    (Fate.ANSWERED,),
    (Fate.ANSWERED, Fate.ANSWERED, Fate.LOST, Fate.DELAYED),
    (Fate.ANSWERED, Fate.LOST, Fate.DELAYED),
)
"""A program draws the fates of its requests from one of these mixtures."""
SIZES: Final = (4096, 8192, 65536, 65537)
"""The sizes, in bytes, at which buffers end."""
FIRST: Final = (0, 0, 0, 0, 1, 7, 2**31 - 2, 2**32 - 2, 2**53 - 4096)
"""The first versions of filesystem tables: numbers of 32 bits end, but no version exceeds the integers that all readers
of JSON keep (RFC 8259, section 6)."""
AUDITED: Final = 14
"""The number of requests that an audit repeats."""


class Draw:
    """The draws of one program, and what all its words share."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.fates = self.one(*FATES)
        self.tables = self.one((0,), (0, 0, 0, 1))
        self.names = 0 if self.chance(0.4) else self.random.randrange(len(NAMES))
        self.odd_content = self.chance(0.35)
        self.kinds = self.random.sample(contents.ODD, 3)
        self.limit = self.one(0, 0, 0, 1, 2, 3)
        self.by_subject = self.chance(0.25)

    def one(self, *values: Any) -> Any:
        return self.random.choice(values)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def where(self) -> dict[str, Any]:
        return {"table": self.one(*self.tables), "client": self.random.randrange(CLIENTS)}

    def fate(self) -> Fate:
        return Fate(self.one(*self.fates))

    def which(self) -> int:
        return int(self.one(0, 0, 0, 1, 1, 2, 3, 4, 20))

    def bound(self) -> int | None:
        bound: int | None = self.one(None, 0, 0, 1, 2, 3, -1, -2, -3, -6, 40, 2**32, 2**53 - 1)
        return bound


Word = Callable[[Draw], tuple[Step, ...]]


def create(d: Draw) -> tuple[Step, ...]:
    return (
        steps.Create(
            **d.where(), fate=d.fate(), limit=d.limit, by_subject=d.by_subject, names=d.names,
            properties=d.one(0, 0, 0, 1, 300),
        ),
    )  # fmt: skip


def commit(d: Draw) -> tuple[Step, ...]:
    ahead = 0 if d.chance(0.6) else d.one(-1, -1, -2, -9, 1, 1, 2)
    more: dict[str, Any] = {}
    if d.odd_content and d.chance(0.6):
        more = {"size": d.one(*SIZES)} if d.chance(0.4) else {"content": d.one(*d.kinds)}
        more |= {"actions": d.one(1000, 1001)} if d.chance(0.05) else {}
    elif d.chance(0.2):
        more = {"content": "mixed"}
    elif d.chance(0.03):
        more = {"content": "unreadable schema"}
    elif d.chance(0.1):
        more = {"resembles": d.one(1, 2, 3)}
        ahead = d.one(0, -1, -1)
    return (
        steps.Commit(**d.where(), ahead=ahead, fate=d.fate(), staged=d.chance(0.2), misnamed=d.chance(0.3), **more),
    )


def metadata(d: Draw) -> tuple[Step, ...]:
    where = d.where()
    change = steps.Commit(**where, content="metadata", ahead=d.one(0, 0, -1, 1), fate=d.one(Fate.ANSWERED, d.fate()))
    return (change, *d.one((), (steps.Load(**where),)))


def resend(d: Draw) -> tuple[Step, ...]:
    return (
        steps.Resend(
            **d.where(), which=d.which(), unsettled=d.chance(0.66), resolved=d.chance(0.25), rebased=d.chance(0.1),
            altered=d.chance(0.15),
            old=d.chance(0.1),
            fate=d.fate(), gone=d.chance(0.1),
        ),
    )  # fmt: skip


def resolve(d: Draw) -> tuple[Step, ...]:
    return (
        steps.Resolve(
            **d.where(), which=d.which(), unsettled=d.chance(0.66), unsent=d.chance(0.15), other=d.chance(0.1),
            fate=d.fate(), gone=d.chance(0.1),
        ),
    )  # fmt: skip


def deliver(d: Draw) -> tuple[Step, ...]:
    return (steps.Deliver(which=d.which(), given_up=d.chance(0.5)),)


def read(d: Draw) -> tuple[Step, ...]:
    return (steps.Read(**d.where(), start=d.bound(), end=d.bound()),)


def look(d: Draw) -> tuple[Step, ...]:
    return (steps.Look(table=d.where()["table"]),)


def load(d: Draw) -> tuple[Step, ...]:
    return (steps.Load(**d.where(), by=d.one(By.NAME, By.NAME, By.PATH, By.ABSENT, By.PARENT)),)


def backfill(d: Draw) -> tuple[Step, ...]:
    return (steps.Backfill(**d.where(), behind=d.one(0, 0, 1, 2, -1, -3), gone=d.chance(0.05)),)


def drop(d: Draw) -> tuple[Step, ...]:
    return (steps.Drop(**d.where()),)


def recreate(d: Draw) -> tuple[Step, ...]:
    """A table is dropped and created again; late requests for the old one arrive."""
    where = d.where()
    late: list[Step] = [
        steps.Commit(**where, gone=True), steps.Resend(**where, gone=True, which=d.which()),
        steps.Resolve(**where, gone=True), steps.Backfill(**where, gone=True), steps.Drop(**where, gone=True),
        steps.Resolve(**where, which=0), steps.Read(**where, gone=True), steps.Load(**where), steps.Create(**where),
        steps.Resend(**where, old=True),
    ]  # fmt: skip
    d.random.shuffle(late)
    return (
        steps.Land(**where, count=d.one(0, 1, 3)), steps.Load(**where), steps.Drop(**where), *late[:1],
        steps.Create(**where, limit=d.one(0, 2), there=d.chance(0.4)), *late[1:d.one(2, 4, 7)],
        steps.Land(**where), steps.Look(table=where["table"]),
    )  # fmt: skip


def restart(d: Draw) -> tuple[Step, ...]:
    where = d.where()
    before = d.one((), (steps.Commit(**where, content="mixed"),), (steps.Commit(**where, size=65_537 + 400),))
    return (*before, steps.Restart(), *d.one((), (steps.Look(table=where["table"]),)))


def crash(d: Draw) -> tuple[Step, ...]:
    """The subject crashes at one of its points, during a request; then the writer finds out."""
    where = d.where()
    commit = steps.Commit(**where, staged=d.chance(0.2))
    doing = d.one(
        (commit,), (commit,), (steps.Backfill(**where),), (steps.Create(**where, names=d.names),),
        (steps.HandBack(**where),), (steps.TakeOver(**where),), (commit, steps.Write(**where)),
        (steps.TakeOver(**where), steps.Write(**where)), (steps.HandBack(**where), steps.Write(**where)),
        (steps.Drop(**where),), (steps.Resolve(**where, unsent=True),),
    )  # fmt: skip
    after: tuple[Step, ...] = (
        steps.Look(table=where["table"]), steps.Resend(**where), steps.Resolve(**where), steps.Land(**where),
        steps.Backfill(**where), steps.Look(table=where["table"]),
    )  # fmt: skip
    many: tuple[Step, ...] = (steps.Land(**where, count=d.one(2, 9)),) if d.chance(0.4) else ()
    return (*many, steps.Crash(point=d.random.randrange(2520)), *doing, *after)


def filesystem(d: Draw) -> tuple[Step, ...]:
    return (
        steps.Filesystem(
            **d.where(),
            versions=d.one(1, 1, 2, 3),
            first=d.one(*FIRST),
            path=d.one(0, 0, *range(len(PATHS))),
            hint=d.one(0, 0, 1, 2),
        ),
    )


def take_over(d: Draw) -> tuple[Step, ...]:
    where = d.where()
    ahead = 0 if d.chance(0.7) else d.one(-1, 1, 2)
    again = d.one((), (), (steps.Resend(**where),), (steps.Resolve(**where), steps.Resend(**where)))
    if d.chance(0.08):
        other = {**where, "table": 1 - where["table"]}
        more = steps.Filesystem(**other, versions=d.one(1, 2))
        return (
            steps.Filesystem(**where), steps.TakeOver(**where, ahead=-1), more,
            steps.TakeOver(**other, swapped=True), steps.Look(**where), steps.Land(**other), steps.TakeOver(**where),
        )  # fmt: skip
    if d.chance(0.3):
        rival, take = steps.Write(**where, giving=d.chance(0.6)), steps.TakeOver(**where)
        lanes = d.one(((take,), (rival,)), ((take,), (rival,)), ((rival,), (take,)))
        race = steps.Together(lanes=lanes, gap_ms=d.one(0, 1, 2, 3, 5, 9))
        after = (
            steps.Load(**where),
            steps.Look(table=where["table"]),
            *again,
            steps.Write(**where),
            steps.Land(**where),
        )
        return (*d.one((race,), (rival, steps.TakeOver(**where, ahead=d.one(0, -1)))), *after)
    return (steps.TakeOver(**where, ahead=ahead, fate=d.fate(), slash=d.chance(0.1), encoded=d.chance(0.1)), *again)


def hand_back(d: Draw) -> tuple[Step, ...]:
    where = d.where()
    ahead = 0 if d.chance(0.7) else d.one(-1, 1, 2)
    back = steps.HandBack(**where, ahead=ahead, fate=d.fate())
    late: list[Step] = [
        steps.Commit(**where), steps.Resend(**where), steps.Resend(**where, which=1), steps.Resolve(**where),
        steps.HandBack(**where), steps.Write(**where), steps.TakeOver(**where, ahead=d.one(0, -1)), steps.Deliver(),
        steps.Restart(),
        steps.Resend(**where, which=20), steps.Resolve(**where, which=20),
    ]  # fmt: skip
    d.random.shuffle(late)
    first = (steps.Write(**where),) if d.chance(0.3) else ()
    if d.chance(0.15):
        return (steps.Write(**where), steps.HandBack(**where, ahead=-1), back, *late[:3])
    if d.chance(0.2):  # it is taken over again, and what the owner answered about attempts before still holds
        again = (steps.TakeOver(**where), *_audit(d.one(4, 6), **where), steps.Resend(**where, which=20))
        return (steps.Land(**where), steps.Resolve(**where, unsettled=True), back, *first, *again)
    return (back, *first, *late[: d.one(0, 2, 4, 6)])


def write(d: Draw) -> tuple[Step, ...]:
    where = d.where()
    wrote = steps.Write(**where, count=d.one(1, 1, 2, 3), metadata=d.odd_content)
    return (wrote, steps.Load(**where)) if wrote.metadata else (wrote,)


def block(d: Draw) -> tuple[Step, ...]:
    """A foreign file has the name of the next publication."""
    where = d.where()
    many = (steps.Land(**where, count=d.one(1, 2, 3)),) if d.chance(0.7) else ()
    return (
        *many, steps.Block(**where, ahead=d.one(0, 0, 1, 2), torn=d.chance(0.3), short=d.odd_content),
        d.one(steps.Backfill(**where), steps.Backfill(**where, behind=-2), steps.HandBack(**where), steps.Restart()),
        steps.Look(table=where["table"]), *d.one((), (steps.Unblock(**where), steps.Backfill(**where))),
    )  # fmt: skip


def publish(d: Draw) -> tuple[Step, ...]:
    """A client publishes a commit before the owner does."""
    where = d.where()
    return (steps.Land(**where), steps.Publish(**where), steps.Backfill(**where))


def misplace(d: Draw) -> tuple[Step, ...]:
    """The staged file of a commit is missing for a while."""
    where, count = d.where(), d.one(1, 2, 3)
    return (steps.Land(**where, count=count), steps.Misplace(**where, restart=count > 1))


def many(d: Draw) -> tuple[Step, ...]:
    """Many commits, and a proposal that lost against all of them."""
    where, count = d.where(), d.one(4, 8, 11, 12)
    return (steps.Land(**where, count=count), steps.Commit(**where, ahead=-count))


def audit(d: Draw) -> tuple[Step, ...]:
    """The last requests again, each with a look-up of its outcome, then a read."""
    where = d.where()
    return (*_audit(AUDITED, **where), steps.Read(**where))


def _audit(count: int, **where: Any) -> tuple[Step, ...]:
    return tuple(
        step
        for which in range(count)
        for step in (steps.Resolve(**where, which=which), steps.Resend(**where, which=which))
    )


def stray(d: Draw) -> tuple[Step, ...]:
    return (steps.Stray(**d.where(), ahead=d.one(0, 0, 1, -1), kind=d.one(0, 0, 1, 2, 3, 4, 5)),)


def unknown(d: Draw) -> tuple[Step, ...]:
    return (steps.Unknown(request=d.random.randrange(12)),)


def api_call(d: Draw) -> tuple[Step, ...]:
    return tuple(steps.ApiCall(**d.where(), row=d.one(*delta_api.NAMED)) for _ in range(d.one(2, 8, 16)))


def policy(d: Draw) -> tuple[Step, ...]:
    where = d.where()
    return (steps.Policy(**where), *d.one((), (steps.Restart(), steps.Policy(**where))))


def disturbance(d: Draw) -> tuple[Step, ...]:
    """Open ends, a disturbance, and an audit of everything."""
    where = d.where()
    ends: tuple[Step, ...] = (
        steps.Commit(**where, fate=Fate.DELAYED), steps.Resolve(**where, unsettled=True), steps.Commit(**where),
        steps.Commit(**where, ahead=d.one(1, 2)), steps.Resolve(**where, unsettled=True),
        steps.Commit(**where, ahead=-1),
        steps.Resolve(**where), steps.Commit(**where, fate=Fate.LOST),
    )  # fmt: skip
    event: tuple[Step, ...] = d.one(
        (steps.Restart(),), (steps.Drop(**where),), (steps.HandBack(**where),), (steps.Land(**where),),
        (steps.HandBack(**where), steps.TakeOver(**where)), (steps.Restart(), steps.Restart()),
    )  # fmt: skip
    return (*d.random.sample(ends, d.one(3, 5, 8)), *event, steps.Deliver(), *_audit(8, **where), steps.Land(**where))


def together(d: Draw) -> tuple[Step, ...]:
    """Requests that race with each other, and what they left."""
    where = d.where()
    other = {**where, "table": 1 - where["table"]}
    commit, commits = steps.Commit(**where), [steps.Commit(**{**where, "client": client}) for client in (1, 2)]
    create, read, write = steps.Create(**where), steps.Read(**where), steps.Write(**where)
    before: tuple[Step, ...] = (steps.Land(**where, count=d.one(1, 2, 4)),) if d.chance(0.5) else ()
    lanes = d.one(
        ((commit,), *((one,) for one in commits)), ((commit, commit), (commits[0], read)),
        ((commit,), (steps.Drop(**where), *d.one((), (steps.Resolve(**where),)))),
        ((commit,), (steps.Resolve(**where),)), ((commit,), (steps.Resend(**where),), (steps.Resend(**where),)),
        ((read, read), (steps.Backfill(**where),), (read, read)), ((commit,), (steps.Commit(**other),)),
        ((read,), (steps.Read(**other),), (commit, read)), ((commit,), (steps.Load(**where), steps.Load(**where))),
        ((create,), (create,), (steps.Load(**where),)), ((commit,), (write,)), ((commit, commit), (write, write)),
    )  # fmt: skip
    before = (steps.Drop(**where),) if lanes[0] == (create,) and d.chance(0.7) else before
    race = steps.Together(lanes=lanes, gap_ms=d.one(0, 0, 1, 3, 5, 9))
    return (
        *before, race, steps.Look(table=where["table"]), steps.Resolve(**where), steps.Resend(**where),
        steps.Look(table=other["table"]),
    )  # fmt: skip


# Groups: proposals of several tables


def _members(d: Draw) -> tuple[int, ...]:
    count = d.one(2, 2, len(d.tables))
    return tuple(d.random.sample(d.tables, min(count, len(d.tables))))


def group(d: Draw) -> tuple[Step, ...]:
    more: dict[str, Any] = {"ahead": d.one(-1, -1, -2, 1), "which": d.one(0, 1, 2, -1)} if d.chance(0.35) else {}
    members, client, staged = _members(d), d.random.randrange(CLIENTS), d.chance(0.2)
    sent = steps.Group(members=members, client=client, fate=d.fate(), staged=staged, **more)
    return (sent, *d.one((), (steps.LoadAll(),), (steps.Look(table=members[-1]),)))


def regroup(d: Draw) -> tuple[Step, ...]:
    again = Again(d.one(Again.WHOLE, Again.WHOLE, Again.TURNED, Again.PART, Again.MORE))
    return (steps.Regroup(which=d.one(0, 0, 0, 1, 2), client=d.random.randrange(CLIENTS), again=again, fate=d.fate()),)


def load_all(d: Draw) -> tuple[Step, ...]:
    return (steps.LoadAll(client=d.random.randrange(CLIENTS)),)


def alone(d: Draw) -> tuple[Step, ...]:
    """One member of a group alone, before or after the group; then the group again."""
    members = _members(d)
    one = steps.Resend(table=d.one(*members), client=1, unsettled=d.chance(0.5))
    first = steps.Group(members=members, fate=d.one(Fate.ANSWERED, Fate.LOST, Fate.DELAYED))
    return (first, one, steps.Regroup(), *d.one((), (steps.Regroup(again=Again.MORE),)), steps.Deliver(),
            steps.LoadAll(), *(steps.Resolve(table=table) for table in members))  # fmt: skip


def tombstone(d: Draw) -> tuple[Step, ...]:
    """One member of a group is resolved before the group arrives: nothing of it lands any more."""
    members = _members(d)
    fate = d.one(Fate.DELAYED, Fate.DELAYED, Fate.LOST)
    late = (steps.Deliver(given_up=d.chance(0.3)), steps.Regroup()) if d.chance(0.5) else (steps.Regroup(),)
    return (
        steps.Group(members=members, fate=fate), steps.Resolve(table=d.one(*members)), *late,
        *(steps.Look(table=table) for table in members),
    )  # fmt: skip


def group_crash(d: Draw) -> tuple[Step, ...]:
    """The subject crashes during a group, or just after it; the writer finds out from one member."""
    members = _members(d)
    crash = (steps.Crash(point=d.random.randrange(2520)), steps.Group(members=members))
    event = d.one(crash, crash, (steps.Group(members=members, fate=d.one(*Fate)), steps.Restart()))
    after: list[Step] = [
        steps.Regroup(), steps.Resolve(table=members[0]), steps.LoadAll(), steps.Look(table=members[-1]),
    ]  # fmt: skip
    d.random.shuffle(after)
    return (*event, *after, steps.Group(members=members, surely=True))


def group_gone(d: Draw) -> tuple[Step, ...]:
    """One table of a group is dropped, or handed back."""
    members = _members(d)
    table = d.one(*members)
    gone = d.one(steps.Drop(table=table), steps.HandBack(table=table))
    first = steps.Group(members=members, fate=d.one(Fate.ANSWERED, Fate.LOST, Fate.DELAYED))
    late: list[Step] = [steps.Regroup(), steps.Group(members=members), steps.Deliver(), steps.LoadAll()]
    d.random.shuffle(late)
    again = d.one((), (steps.Create(table=table),))
    return (first, gone, *late, *again, *(steps.Look(table=one) for one in members))


def overlap(d: Draw) -> tuple[Step, ...]:
    """Groups over the same tables in opposite order, with readers of both, and writers of one table."""
    members = _members(d)
    back = members[::-1]
    one, other = steps.Group(members=members), steps.Group(members=back, client=1)
    read, alone = steps.LoadAll(client=2), steps.Commit(table=members[0], client=2)
    lanes = d.one(
        ((one,), (other,)), ((one,), (other,)), ((one,), (other,), (read,)), ((one,), (read, read)), ((read,), (one,)),
        ((one,), (steps.Regroup(),)), ((one,), (alone,)), ((one, one), (other, other)),
        ((one,), (steps.Resolve(table=back[0]),), (read,)),
    )  # fmt: skip
    race = steps.Together(lanes=lanes, gap_ms=d.one(0, 0, 1, 3, 5))
    return (race, steps.LoadAll(), steps.Regroup(), steps.Group(members=back, surely=True))


GROUPED: Final[Mapping[str, float]] = {
    "group": 6, "regroup": 3, "load_all": 2, "alone": 1.5, "tombstone": 1.2, "group_crash": 3, "group_gone": 0.8,
    "overlap": 2,
}  # fmt: skip
"""The words about several tables, as `WEIGHTS`: other families draw none of them."""


def group_ritual() -> tuple[Step, ...]:
    """The end of every program with groups."""
    return (
        steps.LoadAll(), steps.Group(surely=True), steps.Regroup(), steps.LoadAll(client=1), steps.Backfill(),
        steps.Resolve(), steps.Regroup(again=Again.TURNED),
        steps.Together(lanes=((steps.LoadAll(),), (steps.Group(client=1),)), gap_ms=3),
        steps.Group(which=-1, ahead=-1),
        steps.Resolve(table=0), steps.Resolve(table=1), steps.Regroup(again=Again.MORE),
        steps.Group(which=1, ahead=-1, surely=True), steps.Group(members=(1, 0), ahead=1), steps.Look(table=0),
        steps.Look(table=1), steps.LoadAll(client=2),
    )  # fmt: skip


MIB: Final = 1 << 20
HEAVY: Final[Mapping[str, tuple[Step, ...]]] = {
    "104 commits and a range": (
        steps.Land(count=104), steps.Read(start=0, end=-1), steps.Read(start=1, end=-1), steps.Read(start=1),
        steps.Read(end=-1),
    ),
    "104 commits and a hand-back": (steps.Land(count=104), steps.HandBack()),
    "4 MiB and a read": (steps.Commit(size=4 * MIB + 17), steps.Look()),
    "104 commits and a resolution": (steps.Land(count=104), steps.Load()),
    "10,001 actions and a backfill": (steps.Commit(actions=10_001), steps.Backfill(), steps.Look()),
    "130 commits and a backfill": (steps.Land(count=130), steps.Backfill(), steps.Look()),
    "1 MiB and a restart": (steps.Commit(size=MIB + 17), steps.Restart(), steps.Look()),
    "1,010 commits and a range": (steps.Land(count=1010), steps.Read(start=0), steps.Read(start=3, end=-2)),
    "1,010 commits and a backfill": (steps.Land(count=1010), steps.Backfill(), steps.Look(), *_audit(1)),
    "1 MiB and a backfill": (steps.Commit(size=MIB), steps.Commit(size=MIB + 17), steps.Backfill(), steps.Look()),
    "an open end and 110 resolutions": (
        steps.Commit(fate=Fate.DELAYED), steps.Resolve(unsettled=True), *(steps.Resolve(unsent=True),) * 110,
        steps.Deliver(), steps.Land(), *_audit(3),
    ),
    "130 commits and a restart": (steps.Land(count=130), steps.Restart(), steps.Read(), steps.Load()),
    "110 tables": (
        steps.Land(), steps.Commit(fate=Fate.DELAYED), steps.Resolve(unsettled=True), steps.Tables(count=110),
        steps.Load(), steps.Deliver(), steps.Land(), *_audit(3),
    ),
    "520 commits and a read": (steps.Land(count=520), steps.Read(start=0), steps.Read(start=-5)),
    "130 commits and an audit": (
        steps.Land(count=130), steps.Resend(which=129), steps.Resolve(which=128), steps.Resend(which=65),
        steps.Resolve(which=64), steps.Resolve(which=33), steps.Resend(which=33), *_audit(AUDITED),
    ),
    "1,010 commits and an audit": (steps.Land(count=1010), steps.Resend(which=1009), steps.Resolve(which=1005)),
    "1,001 actions": (steps.Commit(actions=1001), steps.Commit(actions=502), steps.Backfill(), steps.Look()),
    "64 KiB in one action": (steps.Commit(size=65_537 + 400), steps.Backfill(), steps.Look()),
    "open ends and a wait": (
        steps.Commit(fate=Fate.DELAYED), steps.Resolve(unsettled=True), steps.Commit(), steps.Commit(fate=Fate.LOST),
        steps.Wait(ms=2100), steps.Deliver(), *_audit(5), steps.Land(),
    ),
}  # fmt: skip
"""Words that take long, by title. They are drawn in turn, one in a program: a weight might never draw them."""
WEIGHTS: Final[Mapping[str, float]] = {
    "commit": 8, "resend": 4, "resolve": 3, "deliver": 2, "read": 3, "look": 1.5, "load": 2, "backfill": 3,
    "create": 2, "drop": 0.7, "recreate": 0.8, "restart": 1, "crash": 1.2, "filesystem": 0.3, "take_over": 1.2,
    "hand_back": 1.2, "write": 1, "block": 0.7, "publish": 0.5, "misplace": 0.25, "many": 0.7, "audit": 0.6,
    "stray": 0.4, "unknown": 0.25, "policy": 0.25, "api_call": 0.1, "metadata": 1, "disturbance": 0.7, "together": 1.5,
}  # fmt: skip
"""How often a word is drawn, in relation to the others, in programs of no particular family."""
WORDS: Final[Mapping[str, Word]] = {name: globals()[name] for name in (*WEIGHTS, *GROUPED)}
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "load": ("discovery",), "drop": ("discovery",), "recreate": ("discovery",), "restart": ("durable-restart",),
    "crash": ("durable-restart", "harness-control"), "filesystem": ("ownership-transfer", "storage-access"),
    "take_over": ("ownership-transfer", "storage-access"), "hand_back": ("ownership-transfer", "storage-access"),
    "write": ("storage-access",), "publish": ("storage-access",), "misplace": ("storage-access",),
    "stray": ("storage-access",),
    "disturbance": ("durable-restart",), "policy": ("maintenance-policy", "durable-restart"),
    "resolve": ("attempt-outcome",), "api_call": ("uc-delta-api", "storage-access"),
    **dict.fromkeys(GROUPED, ("transaction-group",)),
    "tombstone": ("transaction-group", "attempt-outcome"),
    "group_crash": ("transaction-group", "durable-restart", "harness-control"),
    "group_gone": ("transaction-group", "discovery"),
}  # fmt: skip
"""The profiles without which a word is not drawn."""
OWNERSHIP: Final = ("filesystem", "take_over", "hand_back")
"""Words for table features with documented ownership changes."""


def beginning(d: Draw, *, transfers: bool) -> tuple[Step, ...]:
    """The tables of the program."""
    first: tuple[Step, ...] = (
        steps.Create(limit=d.limit, by_subject=d.by_subject, names=d.names, properties=d.one(0, 0, 1)),
    )
    if d.chance(0.08):
        first = (steps.Rival(giving=d.chance(0.5), first=d.chance(0.3), gap_ms=d.one(0, 1, 2, 5, 9)),)
    elif transfers and d.chance(0.35):
        first = filesystem(d)
        if d.chance(0.35):
            writer = (steps.Write(),) if d.chance(0.5) else ()
            point = d.random.randrange(2520)
            again = (steps.Look(), steps.Load(), steps.Write(), steps.TakeOver(), steps.Land())
            first = (*first, steps.Crash(point=point), steps.TakeOver(), *writer, steps.Restart(), *again)
        elif d.chance(0.7):
            first = (*first, *take_over(d))
    elif d.chance(0.1):
        first = (*first, steps.Commit(ahead=d.one(1, 2)))
    return (*first, steps.Create(table=1, names=d.names)) if 1 in d.tables else first


def ritual(table: int) -> tuple[Step, ...]:
    """The end of every program, on each of its tables."""
    return (
        steps.Look(table=table), steps.Load(table=table), steps.Load(table=table, by=By.PATH),
        steps.Load(table=table, by=By.PARENT), steps.Load(table=table, by=By.ABSENT), steps.Land(table=table),
        steps.Commit(table=table, client=1),
        steps.Resend(table=table), steps.Resolve(table=table), steps.Resolve(table=table, which=1, unsettled=True),
        steps.Resolve(table=table, unsent=True), steps.Read(table=table, start=-2, end=-1),
        steps.Contend(table=table, client=2, staged=True), steps.Read(table=table, client=2),
        steps.Backfill(table=table, behind=1), steps.Land(table=table), steps.Read(table=table, start=-1),
        steps.Backfill(table=table), steps.Look(table=table), steps.Load(table=table),
        *(steps.Contend(table=table, client=client) for client in range(CLIENTS)), steps.Land(table=table),
        steps.Resend(table=table, which=1), steps.Resend(table=table, which=4), steps.Resolve(table=table, which=4),
        steps.Commit(table=table, resolved=True), steps.Commit(table=table, resolved=True),
        steps.Create(table=table, other=True), steps.Read(table=table),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerFamily:
    """A property of owners: any sequence of steps, some of them more frequent than in other families."""

    name: str
    factors: Mapping[str, float] = field(default_factory=dict)
    """The factors of the weights."""
    groups: bool = False
    """Whether its programs have groups of several tables."""
    calls: bool = False
    """Whether its first program sends each request of `delta_api.ROWS` at the end."""
    kind: type[OwnerProgram] = OwnerProgram
    side: str = "owner"

    def draw(self, seed: int, number: int, identity: Identity, variant: Variant) -> OwnerProgram:
        d = Draw(programs.random_of(seed, number))
        if self.groups:
            d.tables, d.names = d.one((0, 1), (0, 1), (0, 1, 2)), 0
        if self.calls:
            d.names = 0  # requests of the API are about tables whose name no server rejects
        weights = {
            word: weight * self.factors.get(word, 1)
            for word, weight in (*WEIGHTS.items(), *(GROUPED.items() if self.groups else ()))
            if self.offers((word,), identity, variant)
        }
        heavy = None if self.groups else programs.heavy([*HEAVY], seed, number)
        if heavy is not None:
            return self._program(seed + number, (f"{LONG}{heavy}",), (steps.Create(), *HEAVY[heavy], *ritual(0)))
        words = programs.words(d.random, weights, number)
        first = beginning(d, transfers=weights.get("filesystem", 0) > 0)
        if 2 in d.tables:
            first = (*first, steps.Create(table=2))
        drawn = [step for word in words for step in WORDS[word](d)]
        end = [step for table in sorted(set(d.tables)) for step in ritual(table)]
        if self.groups:
            end = [*group_ritual(), *end]
        if self.calls and number == 0:
            end += [steps.ApiCall(row=row) for row in d.random.sample([*delta_api.NAMED], len(delta_api.NAMED))]
            words = (*words, *[api_call.__name__] * len(delta_api.NAMED))
        return self._program(seed + number, words, (*first, *drawn, *end))

    def suspect(self, program: programs.Program[Step]) -> None:
        """None: a bug of an owner seldom hides another."""

    def stakes(self, step: Step) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    def offers(self, words: Collection[str], identity: Identity, variant: Variant) -> bool:
        managed = variant.feature == "managedCommit"
        return all(
            set(NEEDS.get(word, ())) <= set(identity.profiles) and (managed or word not in OWNERSHIP) for word in words
        )

    def _program(self, seed: int, words: tuple[str, ...], drawn: tuple[Step, ...]) -> OwnerProgram:
        return OwnerProgram(format=FORMAT, side="owner", family=self.name, seed=seed, words=words, steps=drawn)

    def begin(self, scenario: Scenario) -> GroupDrive:
        return GroupDrive(scenario)
