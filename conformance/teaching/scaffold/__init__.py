"""An owner's project in a language: a program that builds with the language's usual tool, answers `hello`, and answers
each other operation of the protocol by "not implemented". `new` and `learn` begin with it.

Each folder below this one is a project. A file `NAME.txt` is written as NAME, because tools must not take it for a part
of the kit; `NAME.jinja` is a template that writes the messages of the interface as types of the language, from the JSON
Schema of the wire. `README.md.jinja` is the page of all projects.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

import jinja2

from conformance.interface import messages
from conformance.interface.results import UnusableError
from conformance.subjects.smoke import CLIENT_SECTION, PAGE

HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    type: Any
    """Its JSON Schema."""
    required: bool
    nullable: bool
    """Whether the language's type needs a value for an absent field: it may be null, or its default is not empty."""
    default: str
    """The default of an optional field, as JSON; empty for null and for empty values."""
    about: tuple[str, ...]
    """The lines of its description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    name: str
    """The name of its type."""
    tag: str
    """The `op` of a request, the `outcome` of an answer; empty for a part of other messages."""
    see: str
    """The section about a request: a page and an anchor."""
    fields: tuple[Field, ...]
    about: tuple[str, ...]


def rendered(template: str) -> str:
    """The text of a template below this folder: requests, answers and parts of both."""
    definitions = messages.schema()["$defs"]
    requests = _names(definitions["Call"]["properties"]["request"])
    answers = _names(definitions["Reply"]["properties"]["answer"])
    alone = {"Call", "Reply", *requests, *answers}
    parts = [name for name, definition in definitions.items() if name not in alone and "enum" not in definition]
    known = {
        kind: [_message(name, definitions[name]) for name in names]
        for kind, names in (("requests", requests), ("answers", answers), ("parts", parts))
    }
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"camel": camel, "pascal": lambda name: camel(f"_{name}")}
    text = environment.from_string((HERE / template).read_text(encoding="utf-8"))
    typed = partial(_typed, definitions)
    source = text.render(**known, typed=typed, version=messages.INTERFACE_VERSION, page=PAGE)
    return "".join(f"{line.rstrip()}\n" for line in source.splitlines())


def camel(name: str) -> str:
    """`commit_mode` as `commitMode`."""
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def _names(union: Mapping[str, Any]) -> list[str]:
    """The names of the types in a union."""
    return [each["$ref"].rpartition("/")[2] for each in union["anyOf"]]


def _message(name: str, definition: Mapping[str, Any]) -> Message:
    fields = dict(definition["properties"])
    tag = fields.pop("op", None) or fields.pop("outcome", None) or {"enum": [""]}
    about = tuple(definition.get("description", "").splitlines())
    anchor = CLIENT_SECTION if about and about[0].startswith("Client side") else tag["enum"][0]
    required = definition.get("required", ())
    return Message(
        name=name, tag=tag["enum"][0], see=f"{PAGE}#{anchor}", about=about,
        fields=tuple(_field(field, schema, field in required) for field, schema in fields.items()),
    )  # fmt: skip


def _field(name: str, schema: Mapping[str, Any], required: bool) -> Field:
    default = schema.get("default")
    null = {"type": "null"} in schema.get("anyOf", ())
    return Field(
        name=name, type=schema, required=required, nullable=null or bool(default),
        default=json.dumps(default) if default else "", about=tuple(schema.get("description", "").splitlines()),
    )  # fmt: skip


def _typed(definitions: Mapping[str, Any], schema: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """A type in the words of a language. `words` has a word for `string`, `integer`, `boolean` and `answer` (any
    answer), and a format for `list`, `map` and `pair`."""
    match schema:
        case {"$ref": reference}:
            name = reference.rpartition("/")[2]
            return words["string"] if "enum" in definitions[name] else str(name)
        case {"anyOf": [first, {"type": "null"}]}:
            return _typed(definitions, first, words)
        case {"anyOf": _}:
            return words["answer"]
        case {"prefixItems": [first, second]}:
            return words["pair"].format(_typed(definitions, first, words), _typed(definitions, second, words))
        case {"items": items}:
            return words["list"].format(_typed(definitions, items, words))
        case {"additionalProperties": values}:
            return words["map"].format(_typed(definitions, values, words))
    return words[schema["type"]]


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
