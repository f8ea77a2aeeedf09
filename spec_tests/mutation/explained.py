"""The mutants that no check can kill, because they change nothing that anybody could see: each with its reason."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spec_tests.mutation.operators import Mutant

FILE: Final = Path(__file__).with_name("equivalent.toml")
Key = tuple[str, str, str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One entry of the list."""

    file: str
    function: str
    operator: str
    source: str
    reason: str
    occurrence: int = 1

    @property
    def key(self) -> Key:
        """As of a mutant."""
        return self.file, self.function, self.operator, self.source, self.occurrence


def load(text: str) -> list[Explained]:
    """The entries; `ValueError` for one that lacks something, has no reason, or stands there twice."""
    try:
        found = [Explained(**entry) for entry in tomllib.loads(text).get("mutant", [])]
    except TypeError as error:
        raise ValueError(f"an entry of the list of explained mutants is wrong: {error}") from error
    keys = [each.key for each in found]
    for each in found:
        if len(each.reason.split()) < 5:
            raise ValueError(f"{each.key} has no reason that explains it")
        if keys.count(each.key) > 1:
            raise ValueError(f"{each.key} is explained twice")
    return found


def stale(entries: Iterable[Explained], known: Collection[Mutant], killed: dict[Key, str]) -> list[str]:
    """What is wrong with the list: entries without a mutant, of files that were looked at, and entries of mutants that
    a check kills after all."""
    files = {mutant.file for mutant in known}
    keys = {mutant.key for mutant in known}
    found = []
    for entry in entries:
        where = f"{entry.file} {entry.function}: {entry.operator} of `{entry.source}`"
        if entry.file in files and entry.key not in keys:
            found.append(f"{where} is explained, but there is no such mutant; remove the entry")
        elif entry.key in killed:
            found.append(f"{where} is explained, but {killed[entry.key]} kills it; remove the entry")
    return found
