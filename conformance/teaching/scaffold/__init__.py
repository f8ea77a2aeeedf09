"""An owner's project in a language: a program that builds with the language's usual tool, answers `hello`, and answers
each other operation of the protocol by "not implemented". `new` and `learn` begin with it.

Each folder below this one is a project. A file `NAME.txt` is written as NAME, because tools must not take it for a part
of the kit; `NAME.jinja` is a template of the message types. `README.md.jinja` is the page of all projects.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import jinja2

from conformance.interface.results import UnusableError
from conformance.teaching.scaffold.messages import HERE, rendered


class Language(StrEnum):
    PYTHON = "python"
    JAVASCRIPT = "javascript"
    RUST = "rust"
    GO = "go"
    JAVA = "java"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What differs between the languages. Paths are relative to the project's folder."""

    owner: str
    """The file that the author extends."""
    types: str
    """The file of the message types, which is generated."""
    program: str
    """The command that runs the owner, in the folder; after `build`."""
    build: str = ""
    """The command that builds it; empty if there is nothing to build."""
    tools: Mapping[str, str]
    """The commands that it needs, and what to install."""


PYTHON: Final = next(filter(shutil.which, ("python", "python3")), shlex.quote(sys.executable))
"""The command of an interpreter."""
PROJECTS: Final = {
    Language.PYTHON: Project(owner="owner.py", types="messages.py", program=f"{PYTHON} owner.py", tools={}),
    Language.JAVASCRIPT: Project(
        owner="owner.mjs", types="messages.mjs", program="node owner.mjs", tools={"node": "Node.js 20 or newer"}
    ),
    Language.RUST: Project(
        owner="src/main.rs", types="src/messages.rs", build="cargo build --quiet", program="target/debug/my-owner",
        tools={"cargo": "Rust 1.80 or newer, with Cargo"},
    ),
    Language.GO: Project(
        owner="owner.go", types="messages.go", build="go build -o my-owner .", program="./my-owner",
        tools={"go": "Go 1.24 or newer"},
    ),
    Language.JAVA: Project(
        owner="src/main/java/Owner.java", types="src/main/java/Messages.java", build="mvn -B -q package",
        program="java -jar target/my-owner.jar", tools={"javac": "a JDK 17 or newer", "mvn": "Maven 3.8 or newer"},
    ),
}  # fmt: skip

LONGEST: Final = 4000
"""The number of characters shown of a compiler's output."""


def language_named(name: str) -> Language:
    """Raises `UnusableError` for an unknown language."""
    try:
        return Language(name)
    except ValueError:
        raise UnusableError(f"unknown --language {name!r}; expected {', '.join(Language)}") from None


def require_tools(language: Language) -> None:
    """Raises `UnusableError` if a command of the language is missing."""
    for tool, package in PROJECTS[language].tools.items():
        if shutil.which(tool) is None:
            raise UnusableError(
                f"{tool} was not found on the PATH; install {package}: a project in {language} needs it"
            )


def files_of(language: Language) -> dict[str, str]:
    """The text of each file of a project, by its path in the folder."""
    project = PROJECTS[language]
    root = HERE / language
    texts = {project.types: rendered(f"{language}/{project.types}.jinja")}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix != ".jinja":
            texts[path.relative_to(root).as_posix().removesuffix(".txt")] = path.read_text(encoding="utf-8")
    page = jinja2.Template((HERE / "README.md.jinja").read_text(encoding="utf-8"), keep_trailing_newline=True)
    return texts | {"README.md": page.render(project=project, language=language)}


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Create the folder with these files. Raises `UnusableError` if it exists, and is not an empty folder, or is
    below a file."""
    for place in (folder, *folder.parents):
        if os.path.lexists(place) and not place.is_dir():
            raise UnusableError(f"{place} is not a folder; expected a new or an empty folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise UnusableError(f"{folder} is not empty; expected a new or an empty folder")
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def build(folder: Path, language: Language) -> None:
    """Build the project. Raises `UnusableError` with the compiler's output if that fails."""
    command = PROJECTS[language].build
    if not command:
        return
    words = shlex.split(command)
    done = subprocess.run(words, check=False, cwd=folder, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise UnusableError(f"`{command}` failed in {folder}:\n{(done.stdout + done.stderr)[:LONGEST].strip()}")


def program(folder: Path, language: Language) -> tuple[str, ...]:
    """The command that runs the owner of a project, built, from any folder."""
    first, *rest = shlex.split(PROJECTS[language].program)
    words = [sys.executable if language is Language.PYTHON else first, *rest]
    return tuple(
        str((folder / word).absolute()) if "/" in word or (folder / word).is_file() else word for word in words
    )
