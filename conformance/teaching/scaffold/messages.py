"""The messages of the interface as types of a language, from the JSON Schema of the wire.

A template, `LANGUAGE/FILE.jinja`, writes a language's types. It gets the messages in the order of the interface, and
maps each kind of type to the language's words.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import jinja2

from conformance.interface import messages
from conformance.subjects.smoke import CLIENT_SECTION, PAGE

HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    type: Any
    """Its JSON Schema."""
    required: bool
    nullable: bool
    """Whether it may be null, or may be left out and has no default that is like an empty one."""
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
