"""A program: steps as plain JSON, with everything that is needed to draw it or to run it again.

    {"format": 2, "side": "owner", "family": "restarts", "seed": 3, "steps": [{"type": "create"}, {"type": "crash"}]}

The steps are those of one side, an owner's or a client's. Each is valid after any others.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, Generic, TypeVar

import msgspec

from conformance.interface.safe_text import visible

FORMAT: Final = 2
"""The format of programs that this version of the kit draws and reads."""

S = TypeVar("S")


class Program(msgspec.Struct, Generic[S], frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A program of steps of the type `S`."""

    format: int
    side: str
    """`owner` or `client`."""
    family: str
    seed: int
    """The seed from which it was drawn, and that of the ids of its attempts."""
    variant: str | None = None
    """The only variant on which it is run, `feature/commit mode`; null for every one."""
    words: tuple[str, ...] = ()
    """The words of its family's alphabet from which its steps were drawn."""
    title: str = ""
    """Of a pinned program: the claim that it tests."""
    requirements: tuple[str, ...] = ()
    """Of a pinned program: the requirements that its bad subjects violate. Of a failing program that was made small:
    those that its first violation is about."""
    steps: tuple[S, ...]


class NotAProgramError(Exception):
    """A text is not a program, or not of this format and side. `problem` says why."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class _Envelope(msgspec.Struct, frozen=True):
    """The fields that decide whether a text is a program for this version and side."""

    format: int
    side: str


def encode(program: Program[Any]) -> str:
    return msgspec.json.encode(program).decode()


def decode(text: str, kind: type[Program[S]], side: str) -> Program[S]:
    """Raises `NotAProgramError`."""
    try:
        envelope = msgspec.json.decode(text, type=_Envelope)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise NotAProgramError(f"not a program: {error}; expected {{'format': {FORMAT}, ...}}") from error
    if envelope.format != FORMAT:
        raise NotAProgramError(f"a program of format {envelope.format}; this version of the kit reads {FORMAT}")
    if envelope.side != side:
        raise NotAProgramError(f"a program for side {visible(envelope.side)!r}; expected one for side {side!r}")
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise NotAProgramError(f"invalid program: {error}") from error


# Drawing words from a seed: small scopes first, each program with other weights (swarm testing), and the heavy words
# in turn. The draws never see an answer, so that a seed gives the same programs for every subject with the same
# capabilities.

SWARM: Final = (0.0, 0.5, 1.0, 1.0, 2.0, 4.0)
"""The factors of a word's weight in one program: some words are missing, others are frequent."""
SMALL: Final = (3, 6)
"""The numbers of words of the first programs, whose failures are easy to read."""
FULL: Final = (3, 24)
SMALL_PROGRAMS: Final = 40
HEAVY_EVERY: Final = 16
"""One of so many programs is heavy."""

T = TypeVar("T")


def random_of(seed: int, number: int) -> Random:
    """The source of all draws of a run's program of that number."""
    return Random(f"{seed}/{number}")


def words(random: Random, weights: Mapping[str, float], number: int) -> tuple[str, ...]:
    """The words of the program of that number, drawn from its own subset of the alphabet."""
    mine = {word: weight * random.choice(SWARM) for word, weight in weights.items()}
    if not any(mine.values()):
        mine = dict(weights)
    length = random.randint(*(SMALL if number < SMALL_PROGRAMS else FULL))
    return tuple(random.choices(list(mine), list(mine.values()), k=length))


def heavy(cycle: Sequence[T], seed: int, number: int) -> T | None:
    """The heavy word of the program of that number: the next one of the cycle, which begins elsewhere for each seed.
    None if the program is an ordinary one. Rare words need a schedule: a weight may never draw them."""
    turn, rest = divmod(number, HEAVY_EVERY)
    if not cycle or rest != HEAVY_EVERY - 1:
        return None
    return cycle[(seed + turn) % len(cycle)]


# Names of the kinds of steps, for readers: results and stored programs have the raw words

NAMES: Final[Mapping[str, str]] = {
    "again": "table replaced",
    "alone": "member of a group alone",
    "api_call": "request of the Delta API",
    "audit": "all attempts repeated",
    "backfill": "backfill",
    "block": "foreign file at the next version",
    "checkpoint": "checkpoint",
    "checksum": "version checksum",
    "clean": "log cleanup",
    "commit": "commit",
    "compaction": "log compaction",
    "contend": "proposal of a taken version",
    "crash": "crash",
    "create": "create_table",
    "deliver": "late delivery",
    "disturbance": "interrupted requests",
    "drop": "drop_table",
    "filesystem": "filesystem table",
    "free": "freedom of the owner",
    "group": "group of proposals",
    "group_crash": "crash during a group",
    "group_gone": "group with a table that is gone",
    "hand_back": "hand_back",
    "hint": "wrong _last_checkpoint",
    "land": "commits",
    "leftover": "left-over staged file",
    "load": "load_table",
    "load_all": "load_tables",
    "look": "list files",
    "maintain": "maintenance",
    "make": "new table",
    "many": "several commits",
    "metadata": "metadata change",
    "misplace": "staged file missing",
    "overlap": "concurrent groups",
    "policy": "maintenance_policy",
    "publish": "publication by a client",
    "read": "read",
    "readall": "read of several tables",
    "recreate": "drop and create",
    "regroup": "repeated group",
    "resend": "repeated request",
    "resolve": "attempt_outcome",
    "restart": "restart",
    "stray": "unrelated file",
    "take_over": "take_over",
    "together": "concurrent requests",
    "tombstone": "late group with a resolved member",
    "touch": "changed file times",
    "transact": "transaction",
    "transactall": "transaction over several tables",
    "transfer": "take-over or hand-back",
    "unknown": "request for an unknown table",
    "win": "another writer commits",
    "write": "filesystem commit",
}
LONG: Final = "heavy: "
"""The beginning of a word that takes long, before its title."""


def step_name(word: str) -> str:
    """The name of a word; a word of another version of the kit names itself."""
    return NAMES.get(word, word.removeprefix(LONG))
