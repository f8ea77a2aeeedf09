"""The cases of a run: their order, seeds and selection."""

import pytest

from conformance.checks.registry import all_checks
from conformance.results import Layer, UnusableError, Verdict, matches
from conformance.running.plan import LAYERS, PROFILES, Selection, case_seed, plan, profile_named, seconds, select
from conformance.scenario.check import Family
from spec_tests.conformance.running.cases import ONE, identity

QUICK = PROFILES["quick"]
OWNER = identity("staged", "inline", "idempotent-retry")


def test_a_plan_is_always_the_same_and_has_no_case_twice() -> None:
    first = plan(OWNER, QUICK, 7)
    assert first == plan(OWNER, QUICK, 7)
    assert len(set(first.order)) == len(first.order) > 10


def test_fast_layers_come_first_and_core_families_before_others() -> None:
    cases = plan(OWNER, QUICK, 7).cases
    layers = [LAYERS.index(case.check.layer) for case in cases]
    assert layers == sorted(layers)
    families = [list(Family).index(case.check.family) for case in cases if case.check.layer is Layer.EXAMPLE]
    assert families == sorted(families)
    assert cases[0].check.layer is Layer.EXAMPLE


def test_every_check_runs_once_before_any_runs_twice() -> None:
    planned = plan(OWNER, QUICK, 7)
    turns = planned.in_turn()
    assert sorted(case.name for case in turns) == sorted(case.name for case in planned.cases)
    examples = [case for case in turns if case.check.layer is Layer.EXAMPLE]
    assert examples == turns[: len(examples)], "fast layers come first"
    checks = {case.check.name for case in examples}
    first = examples[: len(checks)]
    assert {case.check.name for case in first} == checks
    assert {str(case.variant) for case in first} == {str(case.variant) for case in examples}


def test_a_seed_depends_only_on_the_case_and_the_runs_seed() -> None:
    everything = {case.name: case.seed for case in plan(OWNER, QUICK, 7).cases}
    chosen = plan(OWNER, QUICK, 7, select(check=[ONE.name])).cases
    assert chosen
    assert all(everything[case.name] == case.seed for case in chosen)
    assert len(set(everything.values())) == len(everything)
    others = {case.name: case.seed for case in plan(OWNER, QUICK, 8).cases}
    assert all(others[name] != seed for name, seed in everything.items())


def test_a_seed_is_exact_in_json() -> None:
    assert all(0 <= case_seed(seed, "a") < 2**53 for seed in range(100))


def test_a_subject_gets_only_the_checks_of_its_side() -> None:
    for side in ("owner", "client"):
        cases = plan(identity("staged", side=side), QUICK, 0).cases
        assert {case.check.side for case in cases} == {side}


def test_a_case_is_evidence_only_for_requirements_of_the_subject() -> None:
    """Requirements of another table feature or of undeclared profiles are excluded."""
    cases = plan(identity("staged"), QUICK, 0).cases
    assert cases
    for case in cases:
        other = "CM-" if case.variant.feature == "managedCommit" else "MC-"
        assert not [each for each in case.requirements if each.startswith((other, "PROFILE-RETRY"))]


def test_checks_of_undeclared_promises_are_skipped_with_the_reason() -> None:
    needing = [check for check in all_checks() if check.side == "owner" and check.needs]
    assert needing
    skipped = {case.check: case for case in plan(identity(), QUICK, 0).skipped}
    for check in needing:
        assert skipped[check.name].verdict is Verdict.SKIPPED
        assert "does not declare" in skipped[check.name].reason


def test_counts_come_from_the_profile() -> None:
    for profile in PROFILES.values():
        for case in plan(OWNER, profile, 0).cases:
            assert case.count == profile.counts[case.check.layer]
    assert all(profile.counts.keys() == set(Layer) for profile in PROFILES.values())
    assert all(profile.counts[Layer.EXAMPLE] == 1 for profile in PROFILES.values())


@pytest.mark.parametrize(
    "pattern",
    [
        ONE.name,
        f"concurrent-writers/{ONE.name}",
        f"concurrent-writers/{ONE.name}[managedCommit/staged]",
        f"*{ONE.name[1:]}",
        f"{ONE.name}[catalogManaged/staged]",
        f"*/{ONE.name}[*/staged]",
    ],
)
def test_a_check_is_selected_by_name_by_case_or_by_pattern(pattern: str) -> None:
    chosen = plan(OWNER, QUICK, 0, select(check=[pattern])).cases
    assert chosen
    assert {case.check.name for case in chosen} == {ONE.name}
    if "staged" in pattern:
        assert {case.variant.commit_mode for case in chosen} == {"staged"}


def test_selections_of_one_kind_add_up_and_of_two_kinds_narrow() -> None:
    def names(**chosen: list[str]) -> set[str]:
        return {case.name for case in plan(OWNER, QUICK, 0, select(**chosen)).cases}

    writers = names(family=["concurrent-writers"])
    first = sorted(each.name for each in all_checks() if each.family is not ONE.family)[0]
    assert names(check=[ONE.name]) < writers
    assert names(check=[ONE.name, first]) == names(check=[ONE.name]) | names(check=[first])
    assert names(family=["concurrent-writers"], check=[first]) == set()
    assert names(family=["concurrent-writers"], check=[ONE.name]) == names(check=[ONE.name])
    assert names(layer=["example"]) >= names(check=[ONE.name])


def test_a_requirement_selects_the_cases_that_check_it() -> None:
    cases = plan(OWNER, QUICK, 0, select(requirement=["PROFILE-CORE-*"])).cases
    assert cases
    assert all(any(each.startswith("PROFILE-CORE-") for each in case.requirements) for case in cases)


def test_a_selection_prints_as_its_options() -> None:
    chosen = select(check=["*"], family=["limits"], layer=["model"])
    assert str(chosen) == "--check '*' --family limits --layer model"
    assert str(Selection()) == ""
    assert not Selection()
    assert chosen


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"check": [f"{ONE.name}x"]}, f"did you mean {ONE.name}"),
        ({"check": ["qqqq"]}, "list checks"),
        ({"requirement": ["MC-COMIT-02"]}, "MC-COMMIT-02"),
        ({"family": ["backfill"]}, "backfill-ordering"),
        ({"layer": ["models"]}, "did you mean model"),
    ],
)
def test_an_unknown_selection_suggests_names(chosen: dict[str, list[str]], words: str) -> None:
    with pytest.raises(UnusableError) as refused:
        select(**chosen)
    assert words in refused.value.problem


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("a[b/c]", "a[b/c]", True),
        ("a[*]", "a[b/c]", True),
        ("*", "", True),
        ("a[bc]", "ab", False),
        ("a", "ab", False),
        ("a?", "ab", False),
    ],
)
def test_only_the_star_is_special_in_a_pattern(pattern: str, name: str, expected: bool) -> None:
    assert matches(pattern, name) is expected


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("60s", 60), ("1.5m", 90), ("2h", 7200), ("500ms", 0.5)])
def test_a_duration_is_parsed(text: str, expected: float) -> None:
    assert seconds(text, "--budget") == expected


@pytest.mark.parametrize("text", ["", "0", "0s", "-5s", "5d", "a minute", "1e3", "inf"])
def test_an_invalid_duration_names_its_option(text: str) -> None:
    with pytest.raises(UnusableError) as refused:
        seconds(text, "--budget")
    assert "--budget" in refused.value.problem


def test_the_error_for_an_unknown_profile_lists_the_profiles() -> None:
    assert profile_named("quick") is QUICK
    with pytest.raises(UnusableError) as refused:
        profile_named("fast")
    assert "quick, standard, thorough" in refused.value.problem
