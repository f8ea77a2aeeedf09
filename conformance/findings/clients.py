"""What other people's engines do wrong as clients: no subject of the kit, so that a test is what shows it again."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from conformance.findings.stored import HOME
from conformance.reports.errors import ReportError
from conformance.reports.markdown_text import code, escaped
from conformance.requirements.catalogue import load

FILE: Final = HOME / "clients.toml"


class Deviation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As it can be sent to those who maintain the engine."""

    id: str
    subject: str
    versions: str
    date: datetime.date
    title: str
    requirements: tuple[str, ...]
    """The one that is violated first."""
    steps: tuple[str, ...]
    expected: str
    observed: str
    test: str
    """As pytest names it, from the top of the repository."""
    known: str = ""

    @property
    def again(self) -> str:
        return f"pytest -n0 -m engines {self.test}"


def deviations(file: Path = FILE) -> list[Deviation]:
    """All of them. Raises `ReportError` for a file that cannot be read."""
    try:
        return msgspec.convert(tomllib.loads(file.read_text("utf-8"))["deviation"], list[Deviation])
    except (OSError, KeyError, msgspec.ValidationError, tomllib.TOMLDecodeError) as error:
        raise ReportError(f"{file} cannot be read: {error}") from error


def table(found: Sequence[Deviation]) -> str:
    """One line for each."""
    lines = ["| client | what was found | on | violated | known before | see it again |", "|---|---|---|---|---|---|"]
    for each in found:
        cells = (
            escaped(each.versions), escaped(each.title), str(each.date), " ".join(each.requirements),
            escaped(each.known) or "**new**", code(each.again),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def report(found: Deviation) -> str:
    """One of them, complete."""
    asked = [load().requirement(each) for each in found.requirements]
    parts = [
        f"# {escaped(found.title)}",
        f"Versions: {escaped(found.versions)}. Found on {found.date}. "
        + (f"Known: {escaped(found.known)}." if found.known else "Not known."),
        "## What is asked for",
        "\n".join(f"- {escaped(each.paraphrase)} ({escaped(each.source)}; {each.id})" for each in asked),
        "## Steps",
        "\n".join(f"{number}. {escaped(step)}" for number, step in enumerate(found.steps, 1)),
        "## Expected",
        escaped(found.expected),
        "## Observed",
        escaped(found.observed),
        "## Again",
        code(found.again),
    ]
    return "\n\n".join(parts) + "\n"
