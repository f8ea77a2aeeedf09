"""The JSON Schema of every message, made from `messages`. The file beside this module is it, as released.

A line or a body that the kit sends is a `Call`, one that it gets is a `Reply`. `x-answers` says which outcomes may
answer which request.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.interface.messages import ANSWERS, INTERFACE_VERSION, Call, Reply, answers_to, name_of

FILE: Final = Path(__file__).with_name("interface.schema.json")


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a message; `#/$defs/Call` and `#/$defs/Reply` are those of each direction."""
    messages, components = msgspec.json.schema_components([Call, Reply], ref_template="#/$defs/{name}")
    for component in components.values():
        if "description" in component:
            component["description"] = inspect.cleandoc(component["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A message of the commit owners' shared interface, version {INTERFACE_VERSION}",
        "anyOf": list(messages),
        "x-interface-version": INTERFACE_VERSION,
        "x-answers": {name_of(request): [name_of(answer) for answer in answers_to(request)] for request in ANSWERS},
        "$defs": components,
    }


def text() -> str:
    """The file's text."""
    return json.dumps(schema(), indent=1) + "\n"
