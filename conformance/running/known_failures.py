"""Known failures: an implementer accepts them for now, with a reason. A list with an outdated entry fails the run.

[[known-failure]]
case = "backfill-ordering/*[managedCommit/direct]"
requirement = "MC-BACKFILL-02"
reason = "ticket 17: fixed in the next release"
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from conformance.requirements.catalogue import load
from conformance.results import CaseResult, KnownFailure, UnusableError, Verdict, Violation, matches
from conformance.running.verdicts import JUDGED, fails
from conformance.safe_text import visible

_HEADING: Final = """\
# Known failures of {subject}.
#
# A run with `--known` and this file accepts them, and fails as soon as one of them is gone or is misspelt.
# Say for each why it is accepted: an empty reason is refused.
"""
_LONGEST_COMMENT: Final = 300


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    case: str
    reason: str
    requirement: str | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    known_failure: tuple[_Entry, ...] = msgspec.field(default=(), name="known-failure")


def read(file: Path) -> tuple[KnownFailure, ...]:
    """The entries of a list. Raises `UnusableError`, which names the invalid entry."""
    try:
        entries = msgspec.convert(tomllib.loads(file.read_text("utf-8")), _File).known_failure
    except OSError as error:
        raise UnusableError(f"cannot read the list of known failures {file}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UnusableError(f"the list of known failures {file} is not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        form = "[[known-failure]] with case, reason and, if only one is known, requirement"
        raise UnusableError(f"the list of known failures {file}: {error}; its entries are {form}") from error
    found = tuple(
        KnownFailure(case=entry.case, reason=entry.reason, requirement=entry.requirement) for entry in entries
    )
    for number, entry in enumerate(found, 1):
        problem = _problem(entry)
        if problem:
            raise UnusableError(f"the list of known failures {file}, entry {number} ({entry.case!r}): {problem}")
    return found


def _problem(entry: KnownFailure) -> str:
    if not entry.case.strip():
        return "it names no case"
    if not entry.reason.strip():
        return "its reason is empty; say why it is accepted"
    if entry.requirement is not None:
        try:
            load().requirement(entry.requirement)
        except KeyError:
            return f"there is no requirement {entry.requirement!r}"
    return ""


def is_known(case: CaseResult, known: Iterable[KnownFailure], *, strict: bool = False) -> bool:
    """Whether all failures of the case are known."""
    entries = list(known)
    failing = [violation for violation in case.violations if fails(violation, strict=strict)]
    return bool(failing) and all(any(entry.covers(case.case, violation) for entry in entries) for violation in failing)


def stale(
    known: Iterable[KnownFailure], cases: Iterable[CaseResult], everything: Iterable[str]
) -> tuple[KnownFailure, ...]:
    """The outdated entries. The cases of such an entry have a verdict, but none fails like that; or the kit has no case
    of that name. `everything`: the names of all cases for the subject, selected or not."""
    judged = list(cases)
    names = set(everything) | {case.case for case in judged}
    return tuple(entry for entry in known if _is_stale(entry, judged, names))


def _is_stale(entry: KnownFailure, judged: list[CaseResult], names: set[str]) -> bool:
    mine = [case for case in judged if matches(entry.case, case.case)]
    if any(entry.covers(case.case, violation) for case in mine for violation in case.violations):
        return False
    if not mine:
        return not any(matches(entry.case, name) for name in names)
    return all(case.verdict not in (Verdict.NOT_RUN, Verdict.INCONCLUSIVE) for case in mine)


def generate(subject: str, cases: Iterable[CaseResult], known: Iterable[KnownFailure], *, strict: bool = False) -> str:
    """A list of the failures, as TOML. It has an entry for each check and each requirement that names a failure; one
    pattern stands for all variants if all of them fail. Reasons of known entries are kept; the user has to fill in the
    other ones."""
    before = list(known)
    judged = [case for case in cases if case.verdict in JUDGED]
    parts = [_HEADING.format(subject=visible(" ".join(subject.split())))]
    failed: dict[tuple[str, str], list[tuple[CaseResult, Violation]]] = {}
    for case in judged:
        named = {
            violation.requirements[0]: violation
            for violation in reversed(case.violations)
            if fails(violation, strict=strict)
        }
        for requirement, violation in named.items():
            failed.setdefault((case.check, requirement), []).append((case, violation))
    for (check, requirement), found in failed.items():
        variants = sum(case.check == check for case in judged)
        together = 1 < len(found) == variants
        for case, violation in found[:1] if together else found:
            name = f"{case.family}/{check}[*]" if together else case.case
            reason = next((entry.reason for entry in before if entry.covers(case.case, violation)), "")
            parts.append(_entry(name, requirement, reason, violation.message))
    return "".join(parts)


def _entry(case: str, requirement: str, reason: str, message: str) -> str:
    words = visible(" ".join(message.split()))
    comment = words if len(words) <= _LONGEST_COMMENT else f"{words[:_LONGEST_COMMENT]} ..."
    return (
        f"\n# {comment}\n[[known-failure]]\ncase = {_quoted(case)}\n"
        f"requirement = {_quoted(requirement)}\nreason = {_quoted(reason)}\n"
    )


def _quoted(text: str) -> str:
    """A basic string of TOML, which uses JSON's escapes."""
    return json.dumps(text).replace("\x7f", "\\u007f")
