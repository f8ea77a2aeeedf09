"""Derives the verdicts on requirements, profiles and the run from the results of the cases.

An implementer may accept known failures for now, each with a reason. A list with an outdated entry fails the run. An
entry of a list:

[[known-failure]]
case = "backfill-ordering/*[managedCommit/direct]"
requirement = "MC-BACKFILL-02"
reason = "ticket 17: fixed in the next release"
flaky = true      # optional: it fails in some runs only
"""

import json
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from conformance.interface import results
from conformance.interface.messages import Identity
from conformance.interface.results import (
    CaseResult,
    KnownFailure,
    Layer,
    RequirementResult,
    RequirementVerdict,
    UnusableError,
    Verdict,
    Violation,
    matches,
)
from conformance.interface.safe_text import visible
from conformance.interface.subject import NO_ANSWER
from conformance.requirements.catalogue import BINDING, Level, Profile, Requirement, Side, load, place_of
from conformance.scenario.check import OTHER_FEATURE
from conformance.scenario.formatting import NO_SUCH_JOB

JUDGED: Final = (Verdict.PASSED, Verdict.FAILED)
FAILED_OTHERWISE: Final = "a case that is evidence for it failed for another reason"
_LIMIT_OF_NAMES: Final = 3


def fails(violation: Violation, *, strict: bool = False) -> bool:
    """Like `results.fails`, with the levels of the catalogue."""
    levels = {requirement: load().requirement(requirement).level for requirement in violation.requirements}
    return results.fails(violation, levels, strict=strict)


def failing(cases: Iterable[CaseResult], *, strict: bool = False) -> list[CaseResult]:
    """The cases that make the subject not conformant."""
    return [case for case in cases if any(fails(violation, strict=strict) for violation in case.violations)]


def requirement_results(cases: Iterable[CaseResult], identity: Identity) -> tuple[RequirementResult, ...]:
    """One result for each requirement, in the catalogue's order."""
    evidence: dict[str, list[CaseResult]] = {}
    against: dict[str, list[CaseResult]] = {}
    for case in cases:
        if case.verdict in (Verdict.SKIPPED, Verdict.NOT_RUN):
            continue
        for requirement in case.requirements:
            evidence.setdefault(requirement, []).append(case)
        for requirement in dict.fromkeys(name for violation in case.violations for name in violation.requirements):
            against.setdefault(requirement, []).append(case)
    return tuple(
        _result(requirement, evidence.get(requirement.id, []), against.get(requirement.id, []), identity)
        for requirement in load().requirements
    )


def _result(
    requirement: Requirement, evidence: list[CaseResult], against: list[CaseResult], identity: Identity
) -> RequirementResult:
    verdict, note = _verdict(requirement, evidence, against, identity)
    names = dict.fromkeys([case.case for case in against] + [case.case for case in evidence])
    level, source, section, paraphrase = _bound_by(requirement, identity)
    cited = place_of(source, section)
    return RequirementResult(
        requirement=requirement.id,
        level=level,
        section=section,
        source=source,
        paraphrase=paraphrase,
        rule=cited.text,
        links=cited.links,
        verdict=verdict,
        cases=tuple(names),
        note=note,
    )


def _bound_by(requirement: Requirement, identity: Identity) -> tuple[Level, str, str, str]:
    """The level, document, section and paraphrase of a requirement, for this subject. If a public contract of the
    subject demands a promise too, they come from the contract."""
    contract = requirement.contract
    if contract is not None and contract.promise in identity.promises:
        return Level.MUST, contract.document, contract.section, contract.paraphrase
    return requirement.level, requirement.source, requirement.passage, requirement.paraphrase


def _verdict(
    requirement: Requirement, evidence: list[CaseResult], against: list[CaseResult], identity: Identity
) -> tuple[RequirementVerdict, str]:
    if against and requirement.level in BINDING:
        return RequirementVerdict.VIOLATED, ""
    if against and requirement.level is Level.SHOULD:
        return RequirementVerdict.WARNED, ""
    passed = any(case.held for case in evidence)
    if passed and any(_ended_early(case) or requirement.id in case.doubtful for case in evidence):
        return RequirementVerdict.INCONCLUSIVE, FAILED_OTHERWISE
    if passed:
        return RequirementVerdict.HELD, ""
    if evidence:
        reasons = dict.fromkeys(case.reason or "it failed for another reason" for case in evidence)
        return RequirementVerdict.INCONCLUSIVE, "; ".join(list(reasons)[:_LIMIT_OF_NAMES])
    excuse = not_applicable(requirement, identity)
    if excuse:
        return RequirementVerdict.NOT_APPLICABLE, excuse
    if requirement.untestable:
        return RequirementVerdict.NOT_CHECKED, f"nothing that can be observed shows it: {requirement.untestable}"
    return RequirementVerdict.NOT_CHECKED, "no case of this run is evidence"


def _ended_early(case: CaseResult) -> bool:
    """Whether an example failed. Its remaining steps did not run, so requirements without a violation have no verdict.
    A generated case is different: its other programs test the same requirements."""
    return case.verdict is Verdict.FAILED and case.layer is Layer.EXAMPLE and not case.held


def not_applicable(requirement: Requirement, identity: Identity) -> str:
    """Why the requirement does not bind the subject; empty if it does."""
    if (requirement.side is Side.OWNER) != (identity.side == "owner"):
        return f"binds another side ({requirement.side}); the subject is of the side {identity.side}"
    offered = [
        feature for feature in OTHER_FEATURE if feature in identity.features and identity.commit_modes.get(feature)
    ]
    if offered and all(requirement.id.startswith(OTHER_FEATURE[feature]) for feature in offered):
        return f"binds another table feature; the subject offers {', '.join(offered)} only"
    if requirement.profile is not Profile.CORE and requirement.profile.value not in identity.profiles:
        return f"is a promise of {requirement.profile}, which the subject does not declare"
    return ""


def profiles_without_verdict(cases: Sequence[CaseResult], identity: Identity) -> tuple[str, ...]:
    """Declared profiles without any case that came to a verdict."""
    open_profiles = []
    for profile in identity.profiles:
        about = [case for case in cases if case.verdict is not Verdict.SKIPPED and _is_about(case, profile)]
        if about and not any(case.verdict in JUDGED for case in about):
            open_profiles.append(profile)
    return tuple(open_profiles)


def _is_about(case: CaseResult, profile: str) -> bool:
    return any(load().requirement(requirement).profile.value == profile for requirement in case.requirements)


def without_verdict_in_words(profiles: Sequence[str]) -> str:
    single = len(profiles) == 1
    return (
        f"no case of the declared profile{'' if single else 's'} {', '.join(profiles)} came to a verdict: the subject "
        "refused or did not answer"
    )


def too_little(cases: Sequence[CaseResult]) -> tuple[str, ...]:
    """The reasons why the run is not enough to call a subject conformant; empty if it is enough. `cases`: in the order
    in which they ended, because after a subject died no case gets an answer.

    A subject may reject many requests; the other cases judge it. But if fewer than half of the cases come to a verdict,
    the passed cases prove little. If the subject died or did not answer, its behaviour is unknown. A client need not
    support everything: for a client that only reads, the cases about reading are enough."""
    judged = sum(case.verdict in JUDGED for case in cases)
    open_ = [case for case in cases if case.verdict is Verdict.INCONCLUSIVE and not case.reason.startswith(NO_SUCH_JOB)]
    advised = [case for case in cases if case.verdict is Verdict.FAILED and not failing([case])]
    silent = [case for case in (*open_, *advised) if NO_ANSWER.search(case.reason)]
    problems = []
    if silent:
        number = "1 case" if len(silent) == 1 else f"{len(silent)} cases"
        problems.append(f"{number} ended because no answer came, first {silent[0].case}: {silent[0].reason}")
    if judged and len(open_) > judged:
        problems.append(f"only {judged} of {judged + len(open_)} cases came to a verdict, fewer than half")
    return tuple(problems)


# Known failures


_HEADING: Final = """\
# Known failures of {subject}.
#
# A run with `--known` and this file accepts them, and fails as soon as one of them passes or matches no case. An entry
# with `flaky = true` may also pass.
# Give each entry the reason why it is accepted; an empty reason is an error.

schema = 1
"""
_LONGEST_COMMENT: Final = 300


class _Entry(KnownFailure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry, without misspelt fields."""


KNOWN_SCHEMA_VERSION: Final = 1


class KnownFailures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file. One without `schema` has version 1."""

    schema: int = KNOWN_SCHEMA_VERSION
    known_failure: tuple[_Entry, ...] = msgspec.field(default=(), name="known-failure")


def read(file: Path) -> tuple[KnownFailure, ...]:
    """The entries of a list. Raises `UnusableError`, which names the invalid entry."""
    try:
        content = tomllib.loads(file.read_text("utf-8"))
        version = content.get("schema", KNOWN_SCHEMA_VERSION)
        if version != KNOWN_SCHEMA_VERSION:
            raise UnusableError(
                f"the list of known failures {file} has schema {version!r}; this version of the kit reads "
                f"{KNOWN_SCHEMA_VERSION}; write it again with --write-known"
            )
        entries = msgspec.convert(content, KnownFailures).known_failure
    except OSError as error:
        raise UnusableError(f"cannot read the list of known failures {file}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UnusableError(f"the list of known failures {file} is not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        form = "[[known-failure]] with case, reason and, optionally, requirement and flaky = true"
        raise UnusableError(f"the list of known failures {file}: {error}; its entries are {form}") from error
    for number, entry in enumerate(entries, 1):
        problem = _problem(entry)
        if problem:
            raise UnusableError(f"the list of known failures {file}, entry {number} ({entry.case!r}): {problem}")
    return entries


def _problem(entry: KnownFailure) -> str:
    if not entry.case.strip():
        return "it names no case"
    if not entry.reason.strip():
        return "its reason is empty; say why it is accepted"
    if entry.requirement is not None:
        try:
            load().requirement(entry.requirement)
        except KeyError:
            return f"unknown requirement {entry.requirement!r}"
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
    if any(_covers(entry, case) for case in mine):
        return False
    if not mine:
        return not any(matches(entry.case, name) for name in names)
    return not entry.flaky and all(case.verdict not in (Verdict.NOT_RUN, Verdict.INCONCLUSIVE) for case in mine)


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
    for (check, requirement), failures in failed.items():
        variants = sum(case.check == check for case in judged)
        together = 1 < len(failures) == variants
        for case, violation in failures[:1] if together else failures:
            name = f"{case.family}/{check}[*]" if together else case.case
            same = next((entry for entry in before if entry.covers(case.case, violation)), None)
            entry = same or KnownFailure(case=name, reason="")
            parts.append(_entry(msgspec.structs.replace(entry, case=name, requirement=requirement), violation.message))
    kept = [entry for entry in before if entry.flaky and not any(_covers(entry, case) for case in judged)]
    return "".join([*parts, *(_entry(entry, "It did not fail in this run.") for entry in kept)])


def _covers(entry: KnownFailure, case: CaseResult) -> bool:
    return any(entry.covers(case.case, violation) for violation in case.violations)


def _entry(entry: KnownFailure, message: str) -> str:
    words = visible(" ".join(message.split()))
    comment = words if len(words) <= _LONGEST_COMMENT else f"{words[:_LONGEST_COMMENT]} ..."
    fields = [f"# {comment}", "[[known-failure]]", f"case = {_quoted(entry.case)}"]
    if entry.requirement is not None:
        fields.append(f"requirement = {_quoted(entry.requirement)}")
    fields.append(f"reason = {_quoted(entry.reason)}")
    return "\n".join(["", *fields, *(["flaky = true"] if entry.flaky else []), ""])


def _quoted(text: str) -> str:
    """A basic string of TOML, which uses JSON's escapes."""
    return json.dumps(text).replace("\x7f", "\\u007f")
