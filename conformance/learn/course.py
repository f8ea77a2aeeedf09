"""The stages of the course, and the exercise folder that a learner works in.

A stage is a page, the profiles that `hello` promises from then on, and the checks of the kit that judge it. The owner
commits staged files of managedCommit tables. The order is that of need: a race can be lost when there is a second
version, a replay survives a restart, a table is handed back when it can be published.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec

from conformance.results import UnusableError

MARKER: Final = "exercise.json"
"""The file that makes a folder an exercise."""
LAST_PAGE: Final = "13-where-to-go-on.md"
HINT: Final = "\n## Hint\n"
DEEPER: Final = "\n## Deeper hint\n"
"""The headings of a stored page below which its hints are. They are not written to the exercise folder."""


class Language(StrEnum):
    PYTHON = "python"
    JAVASCRIPT = "javascript"

    @property
    def file(self) -> str:
        """The name of the owner's file."""
        return "owner.py" if self is Language.PYTHON else "owner.mjs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    number: int
    page: str
    """File name."""
    title: str
    profiles: tuple[str, ...] = ()
    """Those that the owner promises from this stage on."""
    checks: tuple[str, ...]
    """Names of checks. An owner of the stage before fails one of them, or does not promise a profile. Few of them start
    the owner again: that is what takes time."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The profiles that `hello` promises at this stage."""
        return tuple(profile for stage in STAGES[: self.number] for profile in stage.profiles)


STAGES: Final = (
    Stage(
        number=1, page="01-version-0.md", title="create version 0",
        profiles=("core", "version-0-by-owner", "staged"),
        checks=("version-0-needs-no-backfill", "a-table-without-commits-can-be-read"),
    ),
    Stage(
        number=2, page="02-next-version.md", title="ratify the next version",
        checks=(
            "the-first-commit-of-a-table-is-version-1", "a-staged-commit-is-listed-by-file-name-only",
            "a-staged-file-has-the-format-of-a-commit", "every-commit-is-returned-at-once",
            "version-0-is-what-the-creator-proposed", "a-lost-creation-is-a-conflict",
            "two-writers-of-one-version-have-one-winner", "an-early-proposal-does-not-land-later",
        ),
    ),
    Stage(
        number=3, page="03-lost-race.md", title="lose a race properly",
        checks=(
            "a-lost-race-is-a-conflict", "a-conflict-contains-no-false-information", "an-earlier-loser-can-win",
            "versions-are-counted-per-table", "a-loser-finds-the-winning-commit",
        ),
    ),
    Stage(
        number=4, page="04-restart.md", title="keep commits over a restart", profiles=("durable-restart",),
        checks=("requests-may-arrive-after-a-restart",),
    ),
    Stage(
        number=5, page="05-publish.md", title="publish in order",
        checks=(
            "a-backfill-publishes-everything-up-to-its-version", "a-repeated-backfill-is-done",
            "repeated-backfills-keep-the-order", "a-backfill-beyond-the-latest-version-adds-nothing",
            "published-content-is-ratified-content", "a-fully-published-table-accepts-commits",
            "a-published-version-stays-taken",
        ),
    ),
    Stage(
        number=6, page="06-ranges.md", title="answer ranges",
        checks=(
            "ranges-of-unpublished-commits-are-complete", "ranges-across-published-versions-are-complete",
            "ranges-of-a-fully-published-table-are-answered",
        ),
    ),
    Stage(
        number=7, page="07-replay.md", title="answer a replay", profiles=("idempotent-retry",),
        checks=(
            "an-immediate-replay-is-ratified", "a-replay-after-other-commits-is-ratified",
            "a-replay-after-backfill-is-ratified", "a-landed-attempt-cannot-be-rebased", "a-gap-is-not-remembered",
            "a-repeated-creation-makes-no-second-table", "a-replay-is-ratified-after-a-restart",
        ),
    ),
    Stage(
        number=8, page="08-resolve.md", title="resolve an unknown outcome", profiles=("attempt-outcome",),
        checks=(
            "an-outcome-is-known-after-backfill", "rejected-attempts-have-not-landed",
            "an-attempt-resolved-as-not-landed-never-lands", "a-tombstone-rejects-every-copy-of-a-request",
            "a-tombstone-survives-a-restart",
        ),
    ),
    Stage(
        number=9, page="09-clocks.md", title="resist clock skew",
        checks=(
            "the-owners-times-are-those-of-the-commits", "times-far-from-the-wall-clock-are-kept",
            "a-time-that-does-not-increase-is-rejected-or-kept",
        ),
    ),
    Stage(
        number=10, page="10-take-over.md", title="take a table over",
        profiles=("storage-access", "ownership-transfer"),
        checks=(
            "files-that-the-kit-writes-are-visible", "an-owner-takes-over-a-filesystem-table",
            "a-take-over-needs-the-next-version", "a-take-over-loses-to-a-filesystem-commit",
            "a-lost-take-over-leaves-the-name-free", "a-repeated-take-over-is-ratified",
            "a-table-is-not-taken-over-twice", "a-take-over-survives-restarts",
            "a-client-staged-file-is-published-unchanged", "a-staged-file-is-valid-for-one-version",
            "a-foreign-file-is-not-taken-for-the-commit", "a-missing-staged-file-is-not-replaced",
            "a-failed-publication-stops-later-ones",
        ),
    ),
    Stage(
        number=11, page="11-hand-back.md", title="hand a table back",
        checks=(
            "an-owner-hands-back-a-table", "a-hand-back-publishes-all-commits", "a-former-owner-ratifies-nothing",
            "a-hand-back-needs-the-next-version", "a-repeated-hand-back-is-ratified",
            "filesystem-writers-continue-after-a-hand-back", "a-second-take-over-uses-the-current-log",
            "a-hand-back-survives-a-restart",
        ),
    ),
    Stage(
        number=12, page="12-limits.md", title="set a limit", profiles=("backlog-limit",),
        checks=(
            "a-full-backlog-rejects-until-a-backfill", "one-backfilled-commit-makes-room-for-one",
            "a-proposal-above-the-limit-is-not-kept", "a-lost-race-is-a-conflict-after-a-backfill",
            "a-replay-is-ratified-with-a-full-backlog", "the-limit-survives-a-restart",
        ),
    ),
)  # fmt: skip


# The pages


def _data(name: str) -> str:
    return (files("conformance.learn") / name).read_text(encoding="utf-8")


@cache
def _parts(stage: Stage) -> tuple[str, str, str]:
    """The page, the hint, and the deeper hint."""
    page, _, hints = _data(f"pages/{stage.page}").partition(HINT)
    hint, _, deeper = hints.partition(DEEPER)
    return page, hint.strip(), deeper.strip()


def hint(stage: Stage, *, deeper: bool = False) -> str:
    return _parts(stage)[2 if deeper else 1]


def pages(language: Language, folder: str) -> Mapping[str, str]:
    """The text of every page of an exercise folder, by file name."""
    stored = {stage.page: _parts(stage)[0] for stage in STAGES}
    stored |= {name: _data(f"pages/{name}") for name in ("README.md", LAST_PAGE)}
    words = {"FOLDER": folder, "OWNER": language.file, "RUN": " ".join(_words(language))}
    for word, value in words.items():
        stored = {name: text.replace(f"{{{word}}}", value) for name, text in stored.items()}
    return stored


# The exercise folder


class Exercise(msgspec.Struct, frozen=True, kw_only=True):
    """An exercise folder; `exercise.json` holds the language."""

    language: Language
    folder: Path = Path()

    @property
    def owner(self) -> Path:
        return self.folder / self.language.file


def create(folder: Path, language: Language) -> Exercise:
    """Make the folder. Raises `UnusableError` if there is something in it."""
    if folder.exists() and not folder.is_dir():
        raise UnusableError(f"{folder} is a file; expected a new or an empty directory")
    if (folder / MARKER).exists():
        raise UnusableError(
            f"{folder} is an exercise already, and is not overwritten; to go on: "
            f"delta-commit-conformance learn {shlex.quote(str(folder))} check"
        )
    if folder.is_dir() and any(folder.iterdir()):
        raise UnusableError(f"{folder} is not empty; expected a new or an empty directory")
    folder.mkdir(parents=True, exist_ok=True)
    exercise = Exercise(language=language, folder=folder)
    for name, text in pages(language, shlex.quote(str(folder))).items():
        (folder / name).write_text(text, encoding="utf-8")
    exercise.owner.write_text(skeleton(language), encoding="utf-8")
    (folder / MARKER).write_text(msgspec.json.encode({"language": language}).decode() + "\n", encoding="utf-8")
    return exercise


def skeleton(language: Language) -> str:
    """The owner with which the course begins."""
    return _data(f"skeleton/{language.file}.txt")


def opened(folder: Path) -> Exercise:
    """Raises `UnusableError` if it is no exercise folder."""
    try:
        found = msgspec.json.decode((folder / MARKER).read_bytes(), type=Exercise)
    except (FileNotFoundError, NotADirectoryError):
        advice = f"to make one: delta-commit-conformance learn {folder}"
        if Path(MARKER).is_file():
            advice = "the current directory is one: name it `.`"
        elif folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
            advice = "to make one in a new directory: delta-commit-conformance learn NEW-DIRECTORY"
        raise UnusableError(f"{folder} is not an exercise: it has no {MARKER}; {advice}") from None
    except msgspec.DecodeError as error:
        raise UnusableError(
            f'invalid {folder / MARKER}: {error}; expected {{"language": "python"}} or {{"language": "javascript"}}'
        ) from None
    return msgspec.structs.replace(found, folder=folder)


def command(exercise: Exercise) -> tuple[str, ...]:
    """What starts the learner's owner. Raises `UnusableError` if the language is not installed."""
    if exercise.language is Language.JAVASCRIPT and shutil.which("node") is None:
        raise UnusableError("node was not found on the PATH; this exercise is in JavaScript and needs Node 20 or newer")
    if not exercise.owner.is_file():
        raise UnusableError(f"{exercise.owner} is missing; the owner of this exercise is expected in that file")
    words = [sys.executable] if exercise.language is Language.PYTHON else ["node"]
    return (*words, str(exercise.owner))


def _words(language: Language) -> tuple[str, ...]:
    """The same as people type it, in the folder."""
    return ("python" if language is Language.PYTHON else "node", language.file)
