"""The files of this package as values."""

import datetime
import shutil
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from conformance.interface.results import RequirementVerdict
from conformance.reports.stored import FINDING, HISTORY, Finding, ReportError, encoded, from_json, read_finding

HOME: Final = Path(__file__).parent
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


class Tested(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The summary of a run against one subject."""

    subject: str
    name: str
    version: str
    date: datetime.date
    kit_version: str
    profile: str
    seed: int
    cases: int
    seconds: float
    held: tuple[str, ...]
    violated: tuple[str, ...]
    inconclusive: tuple[str, ...] = ()


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


def runs(home: Path = HOME) -> list[Tested]:
    """The last run against every subject, by the subject's name."""
    files = sorted((home / "runs").glob("*.json"))
    return sorted((msgspec.json.decode(file.read_bytes(), type=Tested) for file in files), key=lambda run: run.subject)


def record(result_file: Path, home: Path = HOME) -> Tested:
    """Store the summary of a run from the `result.json` of its report. Raises `ReportError`, also for an incomplete
    run."""
    try:
        result = from_json(result_file.read_bytes())
    except OSError as error:
        raise ReportError(f"{result_file} cannot be read: {error.strerror or error}") from error
    if not result.complete or result.selection:
        raise ReportError(f"{result_file}: the run is incomplete or has a selection; only complete runs are recorded")
    verdicts: dict[RequirementVerdict, list[str]] = {}
    for entry in result.requirements:
        verdicts.setdefault(entry.verdict, []).append(entry.requirement)
    tested = Tested(
        subject=result.subject.named,
        name=result.subject.name,
        version=result.subject.version,
        date=datetime.datetime.fromisoformat(result.environment.started).date(),
        kit_version=result.kit_version,
        profile=result.profile,
        seed=result.seed,
        cases=len(result.cases),
        seconds=round(result.environment.seconds),
        held=tuple(verdicts.get(RequirementVerdict.HELD, ())),
        violated=tuple(verdicts.get(RequirementVerdict.VIOLATED, ())),
        inconclusive=tuple(verdicts.get(RequirementVerdict.INCONCLUSIVE, ())),
    )
    name = "".join(letter if letter.isalnum() else "-" for letter in tested.name).strip("-").lower()
    (home / "runs").mkdir(parents=True, exist_ok=True)
    (home / "runs" / f"{name}.json").write_text(encoded(tested), "utf-8")
    return tested


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
