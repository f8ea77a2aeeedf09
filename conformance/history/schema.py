"""The JSON Schema of one line of a history, made from `events`. The file beside this module is it, as released."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.history.events import SCHEMA_VERSION, Event

FILE: Final = Path(__file__).with_name("history.schema.json")


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a line. What lines mean together is in `operations`."""
    found = msgspec.json.schema(Event)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"One line of a history, schema {SCHEMA_VERSION}",
        **found,
    }


def text() -> str:
    """The file's text."""
    return json.dumps(schema(), indent=1) + "\n"
