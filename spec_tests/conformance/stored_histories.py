"""The histories in `fixtures/histories`: good ones that use a freedom, bad ones that violate one rule, each short.

The files are the source. `index.json` says what happens in each, as its header does, and which rules it violates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from conformance.checkers.rules import Rule

FOLDER: Final = Path(__file__).resolve().parents[2] / "fixtures" / "histories"


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the files. A good one violates nothing."""

    file: str
    """Below `FOLDER`."""
    about: str
    violates: tuple[Rule, ...]

    @property
    def path(self) -> Path:
        return FOLDER / self.file


CASES: Final = msgspec.json.decode((FOLDER / "index.json").read_bytes(), type=tuple[Case, ...])
