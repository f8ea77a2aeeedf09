"""Pinned programs are read from data files, judged by the oracle, and run as one check for each family and side."""

import json
from pathlib import Path

import pytest

from conformance.adapters.in_process import InProcess
from conformance.checks import all_checks
from conformance.interface.results import CaseResult, Verdict
from conformance.models.owner import ModelOwner
from conformance.mutants import all_mutants
from conformance.programs import pinned
from conformance.programs.client_steps import ClientProgram
from conformance.programs.owner_words import WORDS, OwnerFamily
from conformance.programs.program import decode
from conformance.programs.running import Generation
from conformance.programs.steps import OwnerProgram
from conformance.scenario.check import Family, Variant

STORED = [
    (family, side, text) for family in Family for side in ("owner", "client") for text in pinned.texts(family, side)
]
PINNED = [check for check in all_checks() if check.name.startswith("pinned-programs")]
OF_OWNERS = next(check for check in PINNED if check.side == "owner")
TOMBSTONE = """{"format": 2, "side": "owner", "family": "restarts", "seed": 1, "title": "a tombstone stays", "words":
 ["restart"], "requirements": ["PROFILE-OUTCOME-02"], "steps": [{"type": "create"}, {"type": "land"}, {"type": "commit",
 "fate": "delayed"}, {"type": "resolve", "unsettled": true}, {"type": "restart"}, {"type": "deliver"}]}"""


def ran(make: type[ModelOwner], *texts: str) -> tuple[CaseResult, Generation]:
    with InProcess(make()) as subject:
        variant = Variant(feature="managedCommit", commit_mode="staged")
        g = Generation(OF_OWNERS, variant, subject, seed=0, count=1)
        g.run_stored(OwnerFamily(name="restarts"), texts)
        return g.result(), g


@pytest.mark.parametrize(("family", "side", "text"), STORED)
def test_every_file_contains_programs_of_its_family(family: Family, side: str, text: str) -> None:
    program = decode(text, OwnerProgram if side == "owner" else ClientProgram, side)  # type: ignore[arg-type]
    assert program.family == family
    assert program.title
    assert program.requirements
    assert side == "client" or set(program.words) <= set(WORDS)


def test_every_file_has_a_check() -> None:
    assert PINNED
    assert len(PINNED) == len({(family, side) for family, side, _ in STORED})


def test_a_failed_program_is_named_by_its_title() -> None:
    failed, _ = ran(all_mutants()["crash-forgets-tombstones"].make, TOMBSTONE)
    assert (failed.verdict, failed.title) == (Verdict.FAILED, "a tombstone stays")
    assert failed.violations[0].requirements[0] == "PROFILE-OUTCOME-02"


def test_a_refused_replay_contradicts_the_earlier_answer_about_its_attempt() -> None:
    text = """{"format": 2, "side": "owner", "family": "restarts", "seed": 1, "title": "found out", "words": ["resend"],
     "requirements": ["PROFILE-RETRY-01"], "steps": [{"type": "create"}, {"type": "commit", "fate": "lost"},
     {"type": "resolve", "client": 1}, {"type": "resend"}]}"""
    failed, _ = ran(all_mutants()["replay-is-a-conflict"].make, text)
    assert failed.history is not None
    events = [json.loads(line) for line in failed.history.splitlines()]
    asked = {event["id"]: event["request"] for event in events if "request" in event}
    refused, earlier = failed.violations[0].operations
    assert (asked[refused]["op"], asked[earlier]["op"]) == ("commit", "attempt_outcome")
    assert asked[refused]["attempt"] == asked[earlier]["attempt"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TOMBSTONE.replace('"format": 2', '"format": 1'), "a program of format 1; this version of the kit reads 2"),
        ("[3]", "not a program"),
        (TOMBSTONE.replace("deliver", "unheard"), "invalid program"),
    ],
)
def test_what_is_not_a_program_is_skipped_and_counted(text: str, problem: str) -> None:
    result, g = ran(ModelOwner, text, TOMBSTONE, TOMBSTONE)
    assert (result.verdict, g.drawn, len(g.inconclusive)) == (Verdict.PASSED, 2, 1)
    assert problem in g.inconclusive[0]


def test_a_program_for_another_subject_is_left_out() -> None:
    other = TOMBSTONE.replace('"seed"', '"variant": "catalogManaged/inline", "seed"')
    assert ran(ModelOwner, other)[0].verdict is Verdict.SKIPPED
    assert ran(ModelOwner, other, TOMBSTONE)[1].drawn == 1


def test_a_file_that_is_no_list_is_named(tmp_path: Path) -> None:
    (tmp_path / "limits.json").write_text('{"format": 2')
    [text] = pinned.texts("limits", "owner", tmp_path)
    assert ran(ModelOwner, text)[1].inconclusive
    assert "limits.json" in text
