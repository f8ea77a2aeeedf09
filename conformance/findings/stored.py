"""The stored findings and runs as values."""

import datetime
import shutil
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from conformance.interface.results import RunResult
from conformance.reports.stored import FINDING, HISTORY, Finding, ReportError, from_json, read_finding

HOME: Final = Path(__file__).parent
RUNS: Final = HOME.with_name("implementations")
"""The reports of implementations. The page of findings shows their verdicts."""
RESULT: Final = "result.json"
ABOUT: Final = "about.toml"
TEMPLATE: Final = """\
# One sentence: subject, verb, object.
title = ""
date = {date}
# All requirements that are violated for this cause, the main one first.
requirements = {requirements}
# Earlier reports of the bug; empty if it is new.
known = ""
# Versions of all components involved.
versions = {version}
# Conditions in addition to the steps.
conditions = ""
# The sentences of the documents that the subject contradicts, word for word.
quotes = []
# The code that causes it, and why.
cause = ""
# The harm to users.
consequence = ""
"""


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


def runs(home: Path = RUNS) -> list[RunResult]:
    """The stored run against each subject, by the subject's name. Raises `ReportError` for an unreadable one."""
    results = [from_json(file.read_bytes()) for file in home.glob(f"*/{RESULT}")]
    return sorted(results, key=lambda result: result.subject.named)


def record(report: Path, home: Path = RUNS) -> RunResult:
    """Store the run of a report, unmodified. Raises `ReportError`, also for a run that is not whole."""
    file = report / RESULT
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ReportError(f"{file} cannot be read: {error.strerror or error}") from error
    result = from_json(content)
    if not result.complete or result.selection or result.known:
        raise ReportError(
            f"{file}: the run is incomplete, or has a selection or known failures; expected a complete run; "
            "run it again without a selection and without --known"
        )
    from conformance.reports.page import slug  # needs the extra `conformance`

    folder = home / slug(result.subject.named)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULT).write_bytes(content)
    return result


def keep(bundle: Path, identifier: str, home: Path = HOME) -> Path:
    """Store the finding of a bundle, without changing an existing description. Returns its folder. Raises
    `ReportError`."""
    finding = read_finding(bundle / FINDING)
    folder = home / "found" / identifier
    folder.mkdir(parents=True, exist_ok=True)
    for name in (FINDING, HISTORY):
        if (bundle / name).is_file():
            shutil.copyfile(bundle / name, folder / name)
    if not (folder / ABOUT).exists():
        shown = tuple(dict.fromkeys(name for violation in finding.violations for name in violation.requirements))
        text = TEMPLATE.format(
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            requirements=msgspec.json.encode(shown).decode(),
            version=msgspec.json.encode(finding.subject.version).decode(),
        )
        (folder / ABOUT).write_text(text, "utf-8")
    return folder
