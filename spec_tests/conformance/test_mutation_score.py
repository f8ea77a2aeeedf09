"""The checks find every mutant by a requirement that it violates, and accuse no good subject. Every requirement has a
check, and a bad subject that violates it. Every check has a requirement, and a bad subject that it finds. Every field
bug has a bad subject, every freedom a good one. There is no list of exceptions: the catalogue marks requirements that
cannot be tested.

`pytest` judges every `PARTS`-th of the subjects, requirements and checks, and `pytest -m longer` all others. CI judges
all good subjects with `mutation_score --clean 200 --examples 31`; `--clean 0 --examples 1` runs all examples on them.
"""

import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Final

import pytest

from conformance.checks import all_checks
from conformance.interface.results import Layer, Verdict
from conformance.models.owner import ModelOwner
from conformance.mutants import Mutant, all_mutants, mutant_method
from conformance.requirements.catalogue import Level, load
from conformance.running.verdicts import JUDGED, failing
from conformance.scenario.check import Family, Variant
from spec_tests.conformance import kills, layers, mutation_score
from spec_tests.conformance.kills import Fate
from spec_tests.conformance.layers import Row, Seen
from spec_tests.support.sampling import sampled

pytestmark = pytest.mark.xdist_group("kills")
"""These tests use many of the same runs."""

PARTS: Final = 48
each_part = pytest.mark.parametrize("part", sampled(range(PARTS), PARTS))

SHARE: Final = 211
"""Each good subject runs every `SHARE`-th case, and each subject other cases. CI runs every 31st, and `test_checks.py`
all of them on the models.
"""


@each_part
def test_each_mutant_is_found_by_a_requirement_that_it_violates(part: int) -> None:
    found = [(mutant, kills.kill(mutant)) for mutant in kills.bad()[part::PARTS]]
    assert {mutant.id: (kill.fate, kill.note) for mutant, kill in found if kill.fate is not Fate.KILLED} == {}
    assert [kill for mutant, kill in found if kill.requirement not in mutant.violates or kill.operations == 0] == []


def test_no_good_subject_is_accused() -> None:
    """Each subject must also pass some cases, so that an accusation was possible."""
    for number, name in list(enumerate(mutation_score.good_names()))[::PARTS]:
        cases, judged = list(kills.cases(kills.identity(name))), False
        for start in range(number, number + SHARE):
            results = [kills.run(case, name, count=2) for case in cases[start % SHARE :: SHARE]]
            assert {result.case: result.violations for result in failing(results)} == {}
            judged = any(result.verdict in JUDGED for result in results)
            if judged:
                break
        assert judged, name


def test_a_subject_that_cannot_start_is_broken_but_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class DoesNothing:
        def hello(self, client: str, request: object) -> object:
            raise RuntimeError("out of order")

    mutant = Mutant(id="does-nothing", title="Nothing.", make=DoesNothing, side="owner", violates=("MC-COMMIT-01",))
    monkeypatch.setitem(kills.all_mutants(), mutant.id, mutant)
    assert kills.kill(mutant).fate is Fate.BROKEN


@pytest.fixture
def few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few checks, but enough to distinguish a good owner from a bad one."""
    few = tuple(check for check in all_checks() if check.family is Family.CONCURRENT_WRITERS)
    monkeypatch.setattr(kills, "all_checks", lambda: few)
    monkeypatch.setattr(kills, "DETERMINISTIC", (Layer.EXAMPLE,))


@pytest.mark.usefixtures("few_checks")
def test_a_mutant_without_a_fault_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise `killed` would mean nothing."""
    mutant = Mutant(id="innocent", title="Nothing wrong.", make=ModelOwner, side="owner", violates=("MC-COMMIT-01",))
    monkeypatch.setitem(kills.all_mutants(), mutant.id, mutant)
    assert kills.kill(mutant).fate is Fate.SURVIVED


@pytest.mark.usefixtures("few_checks")
def test_a_kill_by_another_requirement_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    guilty = next(mutant for mutant in kills.bad() if mutant.id == "last-writer-wins")
    mutant = Mutant(id="misnamed", title=guilty.title, make=guilty.make, side="owner", violates=("MC-ENABLE-05",))
    monkeypatch.setitem(kills.all_mutants(), mutant.id, mutant)
    assert kills.kill(mutant).fate is Fate.WRONGLY


def test_a_mutant_with_stale_cases_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "last-writer-wins"
    assert not kills.kill(all_mutants()[name]).stale
    monkeypatch.setitem(kills.REMEMBERED, name, ["restarts/a-check-that-was-deleted[managedCommit/staged]"])
    assert mutation_score.main(["--mutants", name]) == 0
    assert f"any more: {name}; to search anew" in capsys.readouterr().err


def test_a_function_has_the_parameters_of_the_method_that_it_replaces() -> None:
    def published(self: ModelOwner, version: int) -> int:
        return version

    with pytest.raises(TypeError, match=r"other parameters than ModelOwner\._published"):
        mutant_method("_published", "MC-COMMIT-01")(published)


@pytest.mark.parametrize(
    ("good", "check"),
    [
        ("offers-small-limits", "pinned-programs-of-limits"),
        ("offers-small-limits", "pinned-programs-of-unknown-outcomes-and-replays"),
        ("reads-what-it-takes-over", "pinned-programs-of-ownership-change"),
    ],
)
def test_a_freedom_leaves_the_check_testable(good: str, check: str) -> None:
    name, staged = f"good:{good}", Variant(feature="managedCommit", commit_mode="staged")
    [case] = [case for case in kills.cases(kills.identity(name)) if (case.check.name, case.variant) == (check, staged)]
    result = kills.run(case, name)
    assert result.verdict is Verdict.PASSED, result


# Coverage


FIELD_BUGS_PAGE = Path(str(resources.files("conformance.requirements") / "FIELD_BUGS.md")).read_text("utf-8")
FIELD_BUGS = tuple(sorted(anchor.upper() for anchor in re.findall(r'<a id="(fb\d\d)"></a>', FIELD_BUGS_PAGE)))

BINDING = [
    requirement
    for requirement in load().requirements
    if requirement.level is not Level.MAY and not requirement.untestable
]
MUSTS = [requirement for requirement in BINDING if requirement.level is Level.MUST]
FREEDOMS = load().freedoms
PERMISSIONS = [
    requirement for requirement in load().requirements if requirement.level is Level.MAY and not requirement.untestable
]
FOUND_BY_MUTANTS = [check for check in all_checks() if check.layer in kills.DETERMINISTIC]


def by_id(value: object) -> str:
    return str(getattr(value, "id", None) or getattr(value, "name", value))


def test_each_requirement_has_a_check() -> None:
    evidence = {requirement for check in all_checks() for requirement in check.requirements}
    assert [requirement.id for requirement in BINDING if requirement.id not in evidence] == []


@each_part
def test_each_requirement_has_a_mutant_that_a_check_finds(part: int) -> None:
    for requirement in MUSTS[part::PARTS]:
        guilty = [mutant for mutant in kills.bad() if requirement.id in mutant.violates]
        assert guilty, f"no mutant violates {requirement.id}: {requirement.paraphrase}"
        assert kills.shown_by(requirement.id, guilty), (
            f"no check names {requirement.id} for {', '.join(mutant.id for mutant in guilty)}"
        )


@each_part
def test_each_check_finds_a_bad_subject(part: int) -> None:
    """The bad subject violates a requirement of the check."""
    for check in FOUND_BY_MUTANTS[part::PARTS]:
        assert check.requirements
        guilty = kills.meant_for(check)
        assert kills.found_by(check, guilty), f"{check.name}: not one of {', '.join(mutant.id for mutant in guilty)}"


def test_each_freedom_has_a_good_subject() -> None:
    used = {freedom for subject in kills.good() for freedom in subject.freedoms}
    assert {entry.id: entry.paraphrase for entry in [*FREEDOMS, *PERMISSIONS] if entry.id not in used} == {}


@pytest.mark.parametrize("bug", FIELD_BUGS)
def test_the_page_names_the_mutants_of_each_field_bug(bug: str) -> None:
    """Each bug has at least one. If this fails after a change of the mutants, correct the two lines of the page."""
    mutants = sorted((mutant for mutant in kills.bad() if bug in mutant.bugs), key=by_id)
    assert mutants
    part = FIELD_BUGS_PAGE.partition(f'<a id="{bug.lower()}"></a>')[2].partition("\n\n<a id")[0].partition("\n## ")[0]
    requirements, _, names = part.partition("- Requirements: ")[2].partition("- Mutants: ")
    assert set(requirements.replace(",", "").split()) == {name for mutant in mutants for name in mutant.violates}
    assert re.findall(r"`(.+?)`", names) == [mutant.id for mutant in mutants]


def test_every_cited_field_bug_exists() -> None:
    assert {bug for mutant in kills.bad() for bug in mutant.bugs} <= set(FIELD_BUGS)


def test_permissions_are_never_required() -> None:
    """A MAY cannot be violated. Good subjects use it."""
    permissions = {requirement.id for requirement in load().requirements if requirement.level is Level.MAY}
    assert {mutant.id: sorted(set(mutant.violates) & permissions) for mutant in kills.bad()
            if set(mutant.violates) & permissions} == {}  # fmt: skip


# One layer alone: it finds a mutant by what it does wrong, and tells that from another accusation


GUILTY: Final = all_mutants()["last-writer-wins"]


def searched(mutant: Mutant, monkeypatch: pytest.MonkeyPatch, seconds: float = 2) -> Row:
    monkeypatch.setitem(all_mutants(), mutant.id, mutant)
    return layers.search(mutant, "programs", seconds=seconds, seed=0)


def test_programs_find_a_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    row = searched(GUILTY, monkeypatch)
    assert row.seen is Seen.FOUND
    assert set(row.requirements) & set(GUILTY.violates)
    assert 0 < row.steps <= row.operations
    assert row.programs > 0


def test_another_accusation_is_not_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    row = searched(replace(GUILTY, id="misnamed", violates=("MC-ENABLE-05",)), monkeypatch, seconds=0.1)
    assert row.seen is Seen.ACCUSED
    assert row.requirements


def test_a_third_is_held_out() -> None:
    others, held_out = layers.chosen(), layers.chosen(holdout=True)
    everyone = {mutant.id for mutant in all_mutants().values() if mutant.violates}
    assert {mutant.id for mutant in others} | {mutant.id for mutant in held_out} == everyone
    assert len(others) + len(held_out) == len(everyone)
    assert 0.25 < len(held_out) / len(everyone) < 0.4


def test_the_held_out_third_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    held_out = layers.chosen(holdout=True)[0].id
    assert mutation_score.main(["--layers", "programs", "--mutants", held_out]) == 1
    assert "--holdout" in capsys.readouterr().out


def test_a_mutant_of_programs_is_searched_again_if_one_is_remembered() -> None:
    of_programs = {mutant.id for mutant in layers.chosen() if mutant.found_by}
    assert of_programs & {mutant.id for mutant in kills.bad()} == of_programs & kills.REMEMBERED.keys()


def test_a_remembered_case_is_read_again() -> None:
    program = "conflicts/any-transaction-against-any-winners[managedCommit/staged] seed 7"
    example = "concurrent-writers/two-writers-of-one-version-have-one-winner[managedCommit/staged]"
    assert [str(kills.case_of(text)) for text in (program, example, "conflicts/unknown[managedCommit/staged]")] == [
        program, example, "None",
    ]  # fmt: skip
