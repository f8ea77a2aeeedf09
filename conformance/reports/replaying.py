"""The command that shows a failure again, exactly as it is typed into a shell."""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePath
from typing import Final

from conformance.results import CaseResult, RunResult

COMMAND: Final = "delta-commit-conformance"

_SPECIAL_IN_DOUBLE: Final = re.compile(r"[\"$`\\!]")


def replay_command(finding: PurePath) -> str:
    """From a bundle's `finding.json`. Its path is quoted as it is given: relative ones hold in the folder where the
    run was started."""
    return joined(COMMAND, "replay", *_operand(str(finding)))


def run_command(result: RunResult, case: CaseResult | None = None) -> str:
    """From nothing but the names: the same run, or one case of it, whose seed does not depend on what else is run."""
    options = ["--profile", result.profile, "--seed", str(result.seed)]
    if case is not None:
        options += ["--check", case.case]
    if result.strict:
        options.append("--strict")
    return joined(COMMAND, "run", *options, *_operand(result.subject.named))


def joined(*words: str) -> str:
    """A command line for a POSIX shell, quoted no more than it must be."""
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    """Commands that are subjects often hold single quotes, which double ones keep readable."""
    if "'" in word and not _SPECIAL_IN_DOUBLE.search(word):
        return f'"{word}"'
    return shlex.quote(word)


def _operand(text: str) -> list[str]:
    """What looks like an option is none."""
    return ["--", text] if text.startswith("-") else [text]


def finding_of(folder: Path, name: str) -> Path:
    """Where the bundle of that name has what `replay` reads, in a folder of reports."""
    return folder / "findings" / name / "finding.json"
