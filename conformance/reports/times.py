"""The explanations of a case with times as people read them."""

from __future__ import annotations

import msgspec

from conformance.history.times import Times, times_of
from conformance.results import CaseResult, Violation


def with_readable_times(case: CaseResult) -> CaseResult:
    """The case, with the times in its explanations as people read them. Its history stays as it is."""
    times = times_of(case.history)
    if not times.real:
        return case
    return msgspec.structs.replace(case, violations=tuple(_readable(each, times) for each in case.violations))


def _readable(violation: Violation, times: Times) -> Violation:
    return msgspec.structs.replace(
        violation,
        message=times.in_words(violation.message),
        expected=times.in_words(violation.expected),
        observed=times.in_words(violation.observed),
    )
