"""Bugs of the reference that the simulator found, each as a file that a person can read and a command runs again.

Schedules have traces (`traces`); this is for power cuts and interruptions. A bug was fixed; the variant that lacks the
fix shows it still, with the same counterexample, and the reference passes where it failed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from conformance.simulation.teeth import Kill, Tooth

SCHEMA_VERSION: Final = 1


class Bug(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and by what."""

    schema: int
    bug: str
    """What the reference did wrong, for people."""
    fix: str
    """What it does now."""
    subject: str
    """The variant that lacks the fix; `reference` is the reference as it is."""
    family: str
    """`crash` or `power`."""
    scope: str
    requirement: str
    size: str
    counterexample: tuple[str, ...]


def from_json(text: bytes) -> Bug:
    """Raises `msgspec.ValidationError` or `msgspec.DecodeError` for what is none, `ValueError` for another schema."""
    found = msgspec.json.decode(text, type=Bug)
    if found.schema != SCHEMA_VERSION:
        raise ValueError(f"the bug has schema {found.schema}; this release reads {SCHEMA_VERSION}")
    return found


def to_json(bug: Bug) -> bytes:
    """Ends with a newline; the same bug gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(bug), indent=2) + b"\n"


def described(tooth: Tooth, kill: Kill, *, bug: str, fix: str) -> Bug:
    """The file of a variant that was killed."""
    return Bug(
        schema=SCHEMA_VERSION,
        bug=bug,
        fix=fix,
        subject=tooth.id,
        family=tooth.family,
        scope=tooth.scope,
        requirement=tooth.requirement,
        size=kill.size,
        counterexample=kill.counterexample,
    )
