"""What other people's engines do wrong as clients: no subject of the kit, so that a test is what shows it again."""

from __future__ import annotations

import datetime
import textwrap
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from conformance.findings.stored import HOME
from conformance.reports.as_json import ReportError
from conformance.requirements.catalogue import citation, load
from conformance.safe_text import code, escaped

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


def entry(found: Deviation) -> str:
    """The deviation as one item of the page's list."""
    return item(found.title, f"Found on {found.date}.", found.requirements, found.known, code(found.again))


def item(title: str, when: str, requirements: Sequence[str], known: str, again: str) -> str:
    """One item of the page: the title, its conditions, what is violated, and the command that shows it again."""
    before = f"Known: {escaped(known)}." if known else "**New.**"
    facts = f"{when} Violates {', '.join(requirements)}. {before}".strip()
    wrapped = textwrap.fill(
        facts, 100, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return f"- **{escaped(title)}.**\n{wrapped}\n  {again}"


def report(found: Deviation) -> str:
    """One of them, complete."""
    asked = [load().requirement(each) for each in found.requirements]
    parts = [
        f"# {escaped(found.title)}",
        f"Versions: {escaped(found.versions)}. Found on {found.date}. "
        + (f"Known: {escaped(found.known)}." if found.known else "Not known."),
        "## What is asked for",
        "\n".join(
            f"- {escaped(each.paraphrase)} ({escaped(citation(each.source, each.passage))}; {each.id})"
            for each in asked
        ),
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
