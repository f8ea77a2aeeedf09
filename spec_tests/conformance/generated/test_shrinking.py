"""A history is shrunk to what contradicts what, and nothing is made up."""

from __future__ import annotations

import io

import pytest

from conformance.checkers.check import HistoryVerdict, check_events
from conformance.generated import shrinking
from conformance.history import events
from conformance.history.events import Event
from conformance.history.files import HistoryWriter, read_events
from conformance.results import CaseResult, Layer, Verdict, Violation
from spec_tests.conformance.stored_histories import CASES, Case

BAD = [case for case in CASES if case.violates]


def judged(text: str) -> HistoryVerdict:
    return check_events(read(text))


def read(text: str) -> list[Event]:
    return list(read_events(io.BytesIO(text.encode())))


def failed(text: str) -> CaseResult:
    """A case that failed as the checkers say."""
    violations = tuple(
        Violation(
            requirements=("MC-COMMIT-01",), message=each.message, rule=each.rule.value, table=each.table,
            version=each.version, operations=tuple(operation.id for operation in each.operations),
        )
        for each in judged(text).violations
    )  # fmt: skip
    return CaseResult(
        case="c", check="c", title="", family="", layer=Layer.PROCESSES, feature="managedCommit", commit_mode="staged",
        requirements=(), verdict=Verdict.FAILED, violations=violations, history=text,
    )  # fmt: skip


def history(stream: io.BytesIO) -> HistoryWriter:
    clock = iter(range(10_000))
    header = events.Header(
        schema=1, clock=events.Clock(unit="tick"), subject=events.Subject(name="noisy"), feature="catalogManaged"
    )
    return HistoryWriter(stream, header, clock=lambda: next(clock))


def noisy(readers: int = 8, versions: int = 12) -> str:
    """A long history in which one read is stale."""
    stream = io.BytesIO()
    writer = history(stream)
    for version in range(versions):
        number = writer.invoke(f"w{version % 3}", "t", events.Commit(version=version, attempt=f"a{version}"))
        writer.ended(number, events.Ratified(version=version))
        for reader in range(readers):
            number = writer.invoke(f"r{reader}", "t", events.GetCommits())
            stale = (version, reader) == (9, 3)
            commits = tuple(
                events.Entry(version=each, attempt=f"a{each}") for each in range(3 if stale else version + 1)
            )
            writer.ended(number, events.Commits(latest=2 if stale else version, commits=commits))
        writer.fault("noise")
    for version in range(versions):
        writer.witness(events.Witness(table="t", version=version, attempt=f"a{version}"))
    writer.complete()
    return stream.getvalue().decode()


def test_a_long_history_becomes_two_operations_and_the_log() -> None:
    text = noisy()
    small = shrinking.shrunk(failed(text))
    assert small.history is not None
    assert len(text.splitlines()) > 200
    found = read(small.history)
    assert len([event for event in found if isinstance(event, events.Invoke)]) <= 3
    assert len(small.violations) == 1
    assert {each.rule.value for each in judged(small.history).violations} == {small.violations[0].rule}


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.file)
def test_a_shrunk_history_shows_the_same_and_nothing_else(case: Case) -> None:
    text = case.path.read_text(encoding="utf-8")
    whole = failed(text)
    small = shrinking.shrunk(whole)
    assert small.history is not None
    assert len(small.history) <= len(text)
    assert small.violations[0] == whole.violations[0]
    assert {each.rule for each in judged(small.history).violations} <= {each.rule for each in judged(text).violations}
    kept, before = read(small.history), read(text)
    requests = [event for event in kept if isinstance(event, events.Invoke | events.Ok | events.Fail | events.Info)]
    assert all(event in before for event in requests)


def test_an_unjudgeable_history_is_left_alone() -> None:
    """Nothing can be concluded from it."""
    text = noisy()
    cut = "".join(text.splitlines(keepends=True)[:-5])
    result = failed(text)
    unfinished = CaseResult(**{**{name: getattr(result, name) for name in result.__struct_fields__}, "history": cut})
    assert shrinking.shrunk(unfinished) == unfinished


def test_a_failure_that_no_checker_found_keeps_its_history() -> None:
    text = BAD[0].path.read_text(encoding="utf-8")
    result = failed(text)
    by_demand = Violation(requirements=("MC-COMMIT-01",), message="an answer was wrong")
    changed = CaseResult(
        **{**{name: getattr(result, name) for name in result.__struct_fields__}, "violations": (by_demand,)}
    )
    assert shrinking.shrunk(changed) == changed
