"""A run as JSON: all that is known of it, for scripts, and to make the other reports of later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.reports.errors import ReportError
from conformance.results import RESULT_SCHEMA_VERSION, RunResult
from conformance.safe_text import writable

SCHEMA_FILE: Final = Path(__file__).with_name("result.schema.json")


def to_json(result: RunResult) -> str:
    """As `result.schema.json` describes it, indented, with a final new line. Fields of dictionaries are sorted."""
    return encoded(result)


def encoded(value: msgspec.Struct) -> str:
    """Any value of the kit as JSON. What UTF-8 cannot write, and only the host can have brought in, is escaped."""
    try:
        compact = msgspec.json.encode(value, order="deterministic")
    except UnicodeEncodeError:
        compact = msgspec.json.encode(_writable(msgspec.to_builtins(value)), order="deterministic")
    return msgspec.json.format(compact, indent=1).decode("utf-8") + "\n"


def from_json(text: str | bytes) -> RunResult:
    """A run that was written before. Raises `ReportError` for what is none, or one of a later schema."""
    try:
        result = msgspec.json.decode(text, type=RunResult)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReportError(f"this is not the JSON of a run: {error}") from None
    if result.schema != RESULT_SCHEMA_VERSION:
        raise ReportError(
            f"the result has schema {result.schema}; this version of the kit reads {RESULT_SCHEMA_VERSION}"
        )
    return result


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a run, made from its types."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A run of the conformance kit, schema {RESULT_SCHEMA_VERSION}",
        **msgspec.json.schema(RunResult),
    }


def schema_text() -> str:
    """The text of the file as released."""
    return json.dumps(schema(), indent=1) + "\n"


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return writable(value)
    if isinstance(value, dict):
        return {_writable(key): _writable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_writable(each) for each in value]
    return value
