"""Two transactions over the same two tables: the reference is clean, and known-bad owners are found."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from conformance.simulation import groups
from conformance.simulation.reference import SimulatedReference
from refimpl.groups import rules
from refimpl.groups.owner import TableGroups
from refimpl.owner.local import Decision

SCOPE = "catalogManaged/inline"


def _ratified_one_by_one(owner: Any, waiting: Any) -> Decision:
    """Each member is decided in a transaction of its own."""
    if not hasattr(waiting, "tables"):
        return Decision(outcome=owner.decided_alone(waiting.cached, waiting.examined).outcome)
    members = zip(waiting.tables, (waiting.examined, *waiting.others), strict=True)
    outcomes = [owner.decided_alone(table, examined).outcome for table, examined in members]
    waiting.outcome = rules.decide_group(outcomes, [table.label for table in waiting.tables])
    return Decision(outcome=outcomes[0])


def _read_one_by_one(owner: Any, references: Any) -> Any:
    return tuple(owner.resolve(reference) for reference in references)


def found(patched: tuple[str, Callable[..., Any]] | None) -> groups.Result:
    """The result for the reference, or for one with a method replaced."""
    if patched is None:
        with SimulatedReference() as host:
            return groups.explore(host, SCOPE)
    with SimulatedReference(patch=lambda: patch.object(TableGroups, *patched)) as host:
        return groups.explore(host, SCOPE)


def requirements(result: groups.Result) -> set[str]:
    return {violation.partition(":")[0] for violation in result.violations}


def test_owner_that_ratifies_one_by_one_is_found() -> None:
    """A reader sees half of a group, and so does everybody after a crash in the middle."""
    result = found(("decide_waiting", _ratified_one_by_one))
    assert requirements(result) == {"PROFILE-GROUP-03"}
    assert len(result.violations) == 2, "in a schedule, and after an interruption"


@pytest.mark.longer
def test_reader_of_one_table_after_the_other_is_found() -> None:
    assert requirements(found(("resolve_together", _read_one_by_one))) == {"PROFILE-GROUP-03"}


@pytest.mark.longer
def test_reference_keeps_groups_whole_in_every_schedule_and_after_every_interruption() -> None:
    result = found(None)
    assert result.violations == []
    assert result.finished
    assert (result.schedules > 50, result.cuts > 40) == (True, True)
