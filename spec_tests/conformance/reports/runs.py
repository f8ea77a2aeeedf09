"""Results of runs, made from the histories in `fixtures/histories`, so their violations and messages are real."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from conformance import reports
from conformance.history.events import Header
from conformance.history.files import read
from conformance.history_checkers.check import check_events
from conformance.interface.results import (
    CaseResult,
    Environment,
    KnownFailure,
    Link,
    OtherProgram,
    RequirementResult,
    RequirementVerdict,
    RunResult,
    SubjectFacts,
    Verdict,
)
from conformance.reports.page import Column, to_matrix
from conformance.requirements.catalogue import Level, Side, load, place_of
from conformance.scenario.running import violations_of
from spec_tests.conformance.running.cases import case

HISTORIES = Path(__file__).resolve().parents[3] / "fixtures" / "histories"
FAMILIES = ("concurrent-writers", "version-0", "backfill-ordering", "stale-reads")
PREFIX = {"managedCommit": "MC-", "catalogManaged": "CM-"}


def histories(kind: str) -> list[Path]:
    return sorted((HISTORIES / kind).glob("*.jsonl"))


START = 7_024_625_000_000
"""The time of tick 0 in `in_nanoseconds`."""


def in_nanoseconds(path: Path) -> str:
    """The history with real times instead of ticks: a tick is 1.5 ms."""

    def moment(match: re.Match[str]) -> str:
        return f'"{match[1]}":{START + int(match[2]) * 1_500_000}'

    return re.sub(r'"(at|since)":(\d+)', moment, path.read_text("utf-8")).replace('"unit":"tick"', '"unit":"ns"')


@cache
def failed(path: Path) -> CaseResult:
    """A failed case with this history."""
    events = list(read(path))
    verdict = check_events(events)
    assert verdict.violations
    violations = tuple(violations_of(verdict))
    return _case(
        path, verdict.header, verdict=Verdict.FAILED, requirements=violations[0].requirements, violations=violations,
        operations=verdict.operations, history=path.read_text("utf-8"),
    )  # fmt: skip


def failed_twice(one: CaseResult, other: CaseResult) -> CaseResult:
    """The case `one`, with a second program that shows the violations of `other`."""
    further = tuple(msgspec.structs.replace(violation, program=1) for violation in other.violations)
    program = OtherProgram(
        title="Other.", operations=7, history=other.history, reproduction='{"seed":2}', reason="shown once"
    )
    return msgspec.structs.replace(one, violations=(*one.violations, *further), others=(program,))


@cache
def passed(path: Path) -> CaseResult:
    """A passed case with this history."""
    header = check_events(list(read(path))).header
    wanted = PREFIX[header.feature]
    mine = [
        requirement.id
        for requirement in load().requirements
        if requirement.id.startswith(wanted) and requirement.side is Side.OWNER
    ]
    number = histories("good").index(path)
    return _case(path, header, requirements=tuple(mine[number * 3 : number * 3 + 3]))


def _case(path: Path, header: Header, **more: Any) -> CaseResult:
    name = f"{FAMILIES[len(path.stem) % len(FAMILIES)]}/{path.stem}[{header.feature}/staged]"
    return case(name, **{"title": header.note, "operations": 5, **more})


def without_verdict(verdict: Verdict, reason: str, number: int = 1) -> CaseResult:
    return case(
        f"limits/nothing-to-see-{number}[catalogManaged/inline]", verdict, reason=reason,
        title="A backlog limit refuses what exceeds it.", requirements=("PROFILE-CORE-05",),
    )  # fmt: skip


def run(*cases: CaseResult, **changes: Any) -> RunResult:
    """A run of these cases; `changes` replace fields of the run."""
    failing = [case for case in cases if case.violations]
    result = RunResult(
        kit_version="0.1.0",
        interface_version=1,
        subject=SubjectFacts(
            named="stdio:go run ./owner --table 'a b'",
            name="an owner in Go",
            version="1.2.3",
            side="owner",
            profiles=("core", "staged", "direct-publish"),
            commit_modes={"managedCommit": ("staged", "direct"), "catalogManaged": ("staged",)},
        ),
        profile="quick",
        seed=7,
        complete=True,
        cases=tuple(cases),
        requirements=requirements(cases),
        exit_code=1 if failing else 0,
    )
    return msgspec.structs.replace(result, **changes)


def requirements(cases: tuple[CaseResult, ...]) -> tuple[RequirementResult, ...]:
    """A verdict on every requirement of the catalogue, as a runner returns them."""
    against = {name: case for case in cases for violation in case.violations for name in violation.requirements}
    evidence = {name for case in cases if case.verdict is Verdict.PASSED for name in case.requirements}
    results = []
    for requirement in load().requirements:
        note = ""
        if requirement.id in against:
            verdict = RequirementVerdict.WARNED if requirement.level is Level.SHOULD else RequirementVerdict.VIOLATED
        elif requirement.id in evidence:
            verdict = RequirementVerdict.HELD
        elif requirement.side is not Side.OWNER:
            verdict, note = (
                RequirementVerdict.NOT_APPLICABLE,
                f"binds another side ({requirement.side}); the subject is of the side owner",
            )
        else:
            verdict, note = RequirementVerdict.NOT_CHECKED, requirement.untestable or "no case of this run is evidence"
        results.append(
            RequirementResult(
                requirement=requirement.id,
                level=requirement.level,
                section=requirement.passage,
                source=requirement.source,
                paraphrase=requirement.paraphrase,
                rule=(cited := place_of(requirement.source, requirement.passage)).text,
                links=tuple(Link(title=link.title, url=link.url) for link in cited.links),
                verdict=verdict,
                cases=tuple(case.case for case in cases if requirement.id in case.requirements),
                note=note,
            )
        )
    return tuple(results)


ENVIRONMENT = Environment(
    started="2026-01-02T03:04:05Z", seconds=12.5, python="3.11.9", platform="Linux", first_failure_seconds=0.5
)


def everything() -> RunResult:
    """A run with an example of everything that a report can contain."""
    bad = [failed(path) for path in histories("bad")]
    good = [passed(path) for path in histories("good")]
    open_ones = (
        without_verdict(Verdict.SKIPPED, "the subject does not declare backlog-limit", 1),
        without_verdict(Verdict.INCONCLUSIVE, "operation 3 was refused, which its owner may do: busy", 2),
        without_verdict(Verdict.NOT_RUN, "the budget of 60 s expired", 3),
    )
    return run(
        *bad,
        *good,
        *open_ones,
        known=(KnownFailure(case=bad[0].case, reason="ticket 17"),),
        stale=(KnownFailure(case="limits/gone*", reason="ticket 3"),),
        environment=ENVIRONMENT,
    )


def conformant() -> RunResult:
    return run(*(passed(path) for path in histories("good")))


STORED = Path(__file__).resolve().parents[3] / "fixtures" / "reports"
"""The stored reports of `sample`. After an intended change: `python -m spec_tests.conformance.reports.runs`."""


def sample() -> RunResult:
    """A run with one case of each kind, and few requirements."""
    bad = [failed(HISTORIES / "bad" / f"{name}.jsonl") for name in ("two-winners-of-one-version", "lost-on-restart")]
    good = passed(histories("good")[0])
    known = failed(HISTORIES / "bad" / "backfill-answered-and-not-done.jsonl")
    known = msgspec.structs.replace(known, reproduction='{"seed":1}')
    cases = (
        *bad,
        known,
        good,
        without_verdict(Verdict.SKIPPED, "the subject does not declare backlog-limit", 1),
        without_verdict(Verdict.INCONCLUSIVE, "operation 3 was rejected: busy", 2),
        without_verdict(Verdict.NOT_RUN, "the budget of 60 s expired", 3),
    )
    result = run(
        *cases,
        known=(KnownFailure(case=known.case, reason="ticket 17"),),
        stale=(KnownFailure(case="limits/gone*", reason="ticket 3"),),
        environment=ENVIRONMENT,
    )
    named = {name for case in cases for name in case.requirements} | {
        name for case in cases for violation in case.violations for name in violation.requirements
    }
    kept = tuple(entry for entry in result.requirements if entry.requirement in named)
    return msgspec.structs.replace(result, requirements=kept)


def matrix() -> str:
    """A page of two runs, and of a subject that was not run."""
    columns = [
        Column(subject="stdio:go-owner", result=run(failed(HISTORIES / "bad" / "lost-on-restart.jsonl"))),
        Column(subject="stdio:other <owner>", result=run(passed(histories("good")[0]), passed(histories("good")[1]))),
        Column(subject="engine:delta-kernel", reason="no Java was found; install a JDK 17"),
    ]
    return to_matrix(columns, Path("matrix"))


def stored_reports() -> dict[str, str]:
    """The text of each report of the sample, by file name."""
    result, folder = sample(), Path("report")
    return {
        "result.json": reports.to_json(result),
        "junit.xml": reports.to_junit(result),
        "summary.md": reports.to_markdown(result, folder),
        "badge.json": reports.to_badge(result),
        "index.html": reports.to_html(result, folder),
        "matrix.html": matrix(),
    }


if __name__ == "__main__":
    STORED.mkdir(exist_ok=True)
    for name, text in stored_reports().items():
        (STORED / name).write_text(text, encoding="utf-8")
