"""What a run without any option says of subjects whose verdict is known; of all of them: `mutation_score --plain`."""

from __future__ import annotations

import pytest

from conformance.mutants.registry import all_mutants
from conformance.running.errors import ExitCode
from spec_tests.conformance import plain


@pytest.mark.parametrize("identifier", ["unknown-names-are-found", "profiles-change", "observe-shows-content-once"])
def test_past_escapes_are_not_conformant(identifier: str) -> None:
    """A run asks one subject after another of the same process; the kill of a single case does not show that."""
    told = plain.judge(all_mutants()[identifier])
    assert (told.right, told.exit_code) == (True, ExitCode.VIOLATION), told.note


def test_ignored_advice_is_kept_apart() -> None:
    """Nobody is not conformant because of advice."""
    assert plain.only_advice(all_mutants()["conflicts-with-every-removal"])
    assert not plain.only_advice(all_mutants()["last-writer-wins"])
