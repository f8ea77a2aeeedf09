"""The stages of the course, and the exercise folder that a learner works in.

A stage is a page, the profiles that `hello` promises from then on, and the checks of the kit that judge it. The owner
commits staged files of managedCommit tables. Each stage builds on earlier ones: a race needs a second version, a replay
must survive a restart, and a hand-back needs publication.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping
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
"""The headings of the hints in a stored page. Hints are not written to the exercise folder."""


class Language(StrEnum):
    PYTHON = "python"
    JAVASCRIPT = "javascript"

    @property
    def file(self) -> str:
        """The name of the owner's file."""
        return "owner.py" if self is Language.PYTHON else "owner.mjs"


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stage, as `stages.toml` describes it."""

    number: int
    page: str
    """File name."""
    title: str
    profiles: tuple[str, ...] = ()
    """The profiles that the owner promises from this stage on."""
    checks: tuple[str, ...]
    """Names of checks."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The profiles that `hello` promises at this stage."""
        return tuple(profile for stage in STAGES[: self.number] for profile in stage.profiles)


def _data(name: str) -> str:
    return (files("conformance.learn") / name).read_text(encoding="utf-8")


STAGES: Final = msgspec.toml.decode(_data("stages.toml"), type=dict[str, tuple[Stage, ...]])["stage"]


# The pages


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
    """Create the folder. Raises `UnusableError` if it is not empty."""
    if folder.exists() and not folder.is_dir():
        raise UnusableError(f"{folder} is a file; expected a new or an empty directory")
    if (folder / MARKER).exists():
        raise UnusableError(
            f"{folder} is already an exercise, and is not overwritten; to continue: "
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
    """The exercise in a folder. Raises `UnusableError` if the folder is not an exercise."""
    try:
        found = msgspec.json.decode((folder / MARKER).read_bytes(), type=Exercise)
    except (FileNotFoundError, NotADirectoryError):
        advice = f"to create one: delta-commit-conformance learn {folder}"
        if Path(MARKER).is_file():
            advice = "the current directory is one: name it `.`"
        elif folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
            advice = "to create one in a new directory: delta-commit-conformance learn NEW-DIRECTORY"
        raise UnusableError(f"{folder} is not an exercise: it has no {MARKER}; {advice}") from None
    except msgspec.DecodeError as error:
        raise UnusableError(
            f'invalid {folder / MARKER}: {error}; expected {{"language": "python"}} or {{"language": "javascript"}}'
        ) from None
    return msgspec.structs.replace(found, folder=folder)


def command(exercise: Exercise) -> tuple[str, ...]:
    """The command that starts the learner's owner. Raises `UnusableError` if the language is not installed."""
    if exercise.language is Language.JAVASCRIPT and shutil.which("node") is None:
        raise UnusableError("node was not found on the PATH; this exercise is in JavaScript and needs Node 20 or newer")
    if not exercise.owner.is_file():
        raise UnusableError(f"{exercise.owner} is missing; the owner of this exercise is expected in that file")
    words = [sys.executable] if exercise.language is Language.PYTHON else ["node"]
    return (*words, str(exercise.owner))


def _words(language: Language) -> tuple[str, ...]:
    """The same command for people to type in the folder."""
    return ("python" if language is Language.PYTHON else "node", language.file)
