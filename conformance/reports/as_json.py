"""A run as JSON: the complete result, for scripts, and as the source of the other reports."""

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.interface import safe_text
from conformance.interface.results import RESULT_SCHEMA_VERSION, Cause, RunResult

SCHEMA_FILE: Final = Path(__file__).with_name("result.schema.json")


class ReportError(Exception):
    """A report cannot be written or read. `problem` names the file and the error, and says what to do."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class FolderInUseError(ReportError):
    """Another run writes its reports into the same folder."""


def to_json(result: RunResult) -> str:
    """The JSON that `result.schema.json` describes, indented, with a final line feed. Keys of dictionaries are
    sorted."""
    from conformance.reports.causes import causes  # slow to import, because it reads histories

    summaries = tuple(
        Cause(
            headline=cause.headline,
            hints=cause.hints,
            requirements=tuple(requirement.requirement for requirement in cause.requirements),
            cases=tuple(case.case for case in cause.cases),
            warning=cause.warning,
        )
        for cause in causes(result)
    )
    return encoded(msgspec.structs.replace(result, causes=summaries))


def encoded(value: msgspec.Struct) -> str:
    """Any value of the kit as JSON. Characters that UTF-8 cannot encode are escaped; only names of the host have
    them."""
    return msgspec.json.format(safe_text.to_json(value, order="deterministic"), indent=1).decode("utf-8") + "\n"


def from_json(text: str | bytes) -> RunResult:
    """Read a run back, without its causes, which follow from the rest. Raises `ReportError` for any other text, and for
    a later schema."""
    try:
        result = msgspec.json.decode(text, type=RunResult)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReportError(f"not the result of a run: {error}") from None
    if result.schema != RESULT_SCHEMA_VERSION:
        raise ReportError(
            f"the result has schema {result.schema}; this version of the kit reads {RESULT_SCHEMA_VERSION}"
        )
    return msgspec.structs.replace(result, causes=())


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a run, made from its types."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A run of the conformance kit, schema {RESULT_SCHEMA_VERSION}",
        **msgspec.json.schema(RunResult),
    }


def schema_text() -> str:
    """The text of the released schema file."""
    return json.dumps(schema(), indent=1) + "\n"
