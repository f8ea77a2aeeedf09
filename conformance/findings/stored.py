"""The stored findings and runs as values."""

import datetime
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from conformance.interface.results import RunResult
from conformance.reports.stored import FINDING, Finding, ReportError, from_json, read_finding

HOME: Final = Path(__file__).parent
RUNS: Final = HOME.with_name("implementations")
"""The reports of implementations. The page of findings shows their verdicts."""
RESULT: Final = "result.json"
ABOUT: Final = "about.toml"


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The description of a finding, written by hand."""

    title: str
    date: datetime.date
    requirements: tuple[str, ...]
    versions: str
    cause: str
    consequence: str
    known: str = ""
    conditions: str = ""
    quotes: tuple[str, ...] = ()
    """Sentences of the documents that the subject contradicts, word for word."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A stored finding."""

    id: str
    folder: Path
    about: About
    finding: Finding

    @property
    def file(self) -> Path:
        """The file for `replay`."""
        return self.folder / FINDING

    @property
    def subject(self) -> str:
        return self.finding.subject.named


def findings(home: Path = HOME) -> list[Stored]:
    """All findings, by id. Raises `ReportError` for an unreadable one."""
    stored = []
    for folder in sorted(path.parent for path in (home / "found").glob(f"*/{ABOUT}")):
        try:
            about = msgspec.convert(tomllib.loads((folder / ABOUT).read_text("utf-8")), About)
        except (msgspec.ValidationError, tomllib.TOMLDecodeError) as error:
            raise ReportError(f"{folder / ABOUT} cannot be read: {error}") from error
        stored.append(Stored(id=folder.name, folder=folder, about=about, finding=read_finding(folder / FINDING)))
    return stored


def runs() -> list[RunResult]:
    """The stored run against each subject, by the subject's name. Raises `ReportError` for an unreadable one."""
    results = [from_json(file.read_bytes()) for file in RUNS.glob(f"*/{RESULT}")]
    return sorted(results, key=lambda result: result.subject.named)
