"""A program: steps as plain JSON, with everything that is needed to draw it or to run it again.

    {"format": 2, "side": "owner", "family": "restarts", "seed": 3, "steps": [{"type": "create"}, {"type": "crash"}]}

The steps are those of one side, an owner's or a client's. Each is valid after any others.
"""

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
    """Of a pinned program: the requirements that its bad subjects violate."""
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
