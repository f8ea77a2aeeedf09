"""The alphabet of programs for owners: each word draws one step or a few."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from conformance.interface.messages import Identity
from conformance.programs import drawing, steps
from conformance.programs.driving import Drive
from conformance.programs.steps import CLIENTS, Fate, OwnerProgram, Step
from conformance.scenario.check import Variant
from conformance.scenario.scenario import Scenario

FATES: Final = (
    (Fate.ANSWERED,),
    (Fate.ANSWERED, Fate.ANSWERED, Fate.LOST, Fate.DELAYED),
    (Fate.ANSWERED, Fate.LOST, Fate.DELAYED),
)
"""A program draws the fates of its requests from one of these mixtures."""


class Draw:
    """The draws of one program, and what all its words share."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.fates = self.one(*FATES)
        self.tables = self.one((0,), (0, 0, 0, 1))

    def one(self, *values: Any) -> Any:
        return self.random.choice(values)

    def often(self) -> bool:
        return bool(self.random.randrange(3))

    def seldom(self) -> bool:
        return not self.random.randrange(4)

    def where(self) -> dict[str, int]:
        return {"table": self.one(*self.tables), "client": self.random.randrange(CLIENTS)}

    def fate(self) -> Fate:
        return Fate(self.one(*self.fates))

    def which(self) -> int:
        return int(self.one(0, 0, 0, 1, 1, 2, 3, 4))


Word = Callable[[Draw], tuple[Step, ...]]


def create(d: Draw) -> tuple[Step, ...]:
    return (steps.Create(**d.where(), fate=d.fate(), limit=d.one(0, 0, 1, 2, 3), by_subject=d.seldom()),)


def commit(d: Draw) -> tuple[Step, ...]:
    return (steps.Commit(**d.where(), ahead=d.one(0, 0, 0, 0, 0, 0, -1, -2, -9, 1, 2), fate=d.fate()),)


def resend(d: Draw) -> tuple[Step, ...]:
    return (
        steps.Resend(**d.where(), which=d.which(), unsettled=d.often(), resolved=d.seldom(), fate=d.fate()),
    )  # fmt: skip


def resolve(d: Draw) -> tuple[Step, ...]:
    return (steps.Resolve(**d.where(), which=d.which(), unsettled=d.often(), fate=d.fate()),)


def deliver(d: Draw) -> tuple[Step, ...]:
    return (steps.Deliver(which=d.which(), given_up=d.one(False, True)),)


def read(d: Draw) -> tuple[Step, ...]:
    return (steps.Read(**d.where(), start=d.one(None, *range(7)), end=d.one(None, *range(7))),)


def look(d: Draw) -> tuple[Step, ...]:
    return (steps.Look(table=d.where()["table"]),)


def load(d: Draw) -> tuple[Step, ...]:
    return (steps.Load(**d.where()),)


def backfill(d: Draw) -> tuple[Step, ...]:
    return (steps.Backfill(**d.where(), behind=d.one(0, 0, 1, 2, -1)),)


def drop(d: Draw) -> tuple[Step, ...]:
    return (steps.Drop(**d.where()),)


def restart(d: Draw) -> tuple[Step, ...]:  # noqa: ARG001  # a word takes the draws
    return (steps.Restart(),)


WORDS: Final[Mapping[str, Word]] = {
    word.__name__: word
    for word in (create, commit, resend, resolve, deliver, read, look, load, backfill, drop, restart)
}
WEIGHTS: Final[Mapping[str, float]] = {
    "commit": 8, "resend": 4, "resolve": 3, "deliver": 2, "read": 3, "look": 2, "load": 2, "backfill": 3, "create": 2,
    "drop": 1.5, "restart": 1,
}  # fmt: skip
"""How often a word is drawn, in relation to the others, in programs of no particular family."""
NEEDS: Final[Mapping[str, str]] = {"load": "discovery", "drop": "discovery", "restart": "durable-restart"}
"""The profile without which a word is not drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerFamily:
    """A property of owners: any sequence of steps, some of them more frequent than in other families."""

    name: str
    factors: Mapping[str, float] = field(default_factory=dict)
    """The factors of the weights."""
    kind: type[OwnerProgram] = OwnerProgram
    side: str = "owner"

    def draw(self, seed: int, number: int, identity: Identity, variant: Variant) -> OwnerProgram:  # noqa: ARG002
        random = drawing.random_of(seed, number)
        weights = {
            word: weight * self.factors.get(word, 1)
            for word, weight in WEIGHTS.items()
            if word not in NEEDS or NEEDS[word] in identity.profiles
        }
        d = Draw(random)
        words = drawing.words(random, weights, number)
        tables = (steps.Create(limit=d.one(0, 0, 1, 2, 3), by_subject=d.seldom()), steps.Create(table=1))
        drawn = [step for word in words for step in WORDS[word](d)]
        return OwnerProgram(
            format=2, side="owner", family=self.name, seed=seed + number, words=words,
            steps=(*tables[: len(set(d.tables))], *drawn),
        )  # fmt: skip

    def begin(self, scenario: Scenario) -> Drive:
        return Drive(scenario)
