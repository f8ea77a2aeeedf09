"""Results of cases, made by hand, and a clock that runs ahead."""

import time
from typing import Any, Final

import pytest

from conformance.checks import all_checks
from conformance.command.running import Progress
from conformance.interface.messages import Identity
from conformance.interface.results import CaseResult, Layer, Verdict, Violation
from conformance.running import execution
from conformance.scenario.check import Family

MUST: Final = "PROFILE-RETRY-01"
OTHER_MUST: Final = "MC-COMMIT-02"
SHOULD: Final = "MC-BACKFILL-04"
MAY: Final = "MC-GET-04"
UNTESTABLE: Final = "MC-API-02"


ONE: Final = next(
    check
    for check in all_checks()
    if check.family is Family.CONCURRENT_WRITERS
    and check.layer is Layer.EXAMPLE
    and not check.needs
    and len(check.features) == 2
    and {"staged", "inline", "direct"} <= set(check.commit_modes)
)
"""A check with several variants for an owner, which lands a commit."""


def identity(*profiles: str, side: str = "owner", **options: object) -> Identity:
    commit_modes = {"managedCommit": ("staged", "direct"), "catalogManaged": ("staged", "inline")}
    settings = {"commit_modes": commit_modes, **options}
    return Identity(name="made", version="1", interface_version=1, side=side, profiles=("core", *profiles), **settings)  # type: ignore[arg-type]


def case(
    name: str = "limits/a-check[managedCommit/staged]",
    verdict: Verdict = Verdict.PASSED,
    *violated: tuple[str, ...],
    **more: Any,
) -> CaseResult:
    """Make a result. `violated` has the requirements of each violation; `more` has other fields."""
    family, _, rest = name.partition("/")
    check, _, variant = rest.partition("[")
    feature, _, commit_mode = variant.removesuffix("]").partition("/")
    fields: dict[str, Any] = {
        "title": "A check.",
        "layer": Layer.EXAMPLE,
        "requirements": (MUST,),
        "violations": tuple(Violation(requirements=requirements, message="it was so") for requirements in violated),
        **more,
    }
    verdict = Verdict.FAILED if violated else verdict
    return CaseResult(
        case=name, check=check, family=family, feature=feature, commit_mode=commit_mode, verdict=verdict, **fields
    )


class Clock:
    """A clock that shows the real time plus a number of seconds."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


def budget_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock forward when the cases begin, so that one second of the command's budget of an hour is left."""
    clock, begins = Clock(), Progress.begins
    started = clock.monotonic()

    def late(lines: Progress, *planned: Any) -> None:
        begins(lines, *planned)
        clock.ahead = 3_599.0 - (clock.monotonic() - started)

    monkeypatch.setattr(execution, "time", clock)
    monkeypatch.setattr(Progress, "begins", late)
