"""LOG_CHECKER.md: constraints with a history that they forbid and the nearest one that they allow.

Every verdict here is compared with brute force. `fixtures/histories` has the plain case of every rule.
"""

from __future__ import annotations

import msgspec
import pytest

from conformance.checkers import bounds
from conformance.checkers.breaches import MOST_CONTRADICTIONS, MOST_OF_ONE_RULE
from conformance.checkers.check import check_events
from conformance.checkers.rules import Rule
from conformance.history import events
from conformance.history.events import Conflict, Entry, Gap, Promise, Rejected
from spec_tests.conformance.drafts import Asked, Draft, Version, asked, commit, log, read, rules, verdict_on

REPLAY = events.Ratified(version=0)


def race(**changes: object) -> Draft:
    """`a` wins version 0, `b` gets a conflict and takes version 1."""
    draft = Draft(
        log=log("a", "b"),
        asked=[
            commit("a", 0, 0, 3),
            commit("x", 0, 1, 4, Conflict(latest=0)),
            commit("b", 1, 5, 6),
            read(7, 8, 1),
        ],
    )
    for name, value in changes.items():
        setattr(draft, name, value)
    return draft


def test_empty_histories_and_idle_tables_are_conformant() -> None:
    assert rules(Draft()) == []
    assert rules(Draft(log=log("old"), before=1)) == []


# The content of the log


def test_an_attempt_is_one_version_at_most() -> None:
    """FB07, FB08: an unknown outcome, retried blindly."""
    twice = race(log=log("a", "a"))
    assert Rule.LANDED_TWICE in rules(twice)
    twice.log = log("a", "b")
    assert rules(twice) == []


def test_what_is_there_was_sent_for_that_version() -> None:
    assert rules(Draft(log=log("a"))) == [Rule.NOT_PROPOSED]
    assert rules(Draft(log=log("a"), open_world=True)) == []
    assert rules(Draft(log=log("a"), before=1)) == []
    elsewhere = Draft(log=log("a"), asked=[commit("a", 1, 0, None)])
    assert rules(elsewhere) == [Rule.NOT_PROPOSED]
    elsewhere.open_world = True
    assert rules(elsewhere) == [Rule.NOT_PROPOSED]


@pytest.mark.parametrize("refusal", [Rejected(), Gap(), events.Unsupported(), events.NotFound()])
def test_what_was_refused_is_not_there(refusal: events.Refusal) -> None:
    """FB43: a failure is answered although the commit landed."""
    draft = Draft(log=log("o", "a"), before=1, asked=[commit("a", 1, 0, 1, refusal)])
    assert Rule.REFUSED_BUT_LANDED in rules(draft)
    draft.asked.append(commit("a", 1, 2, None))
    assert Rule.REFUSED_BUT_LANDED not in rules(draft)


def test_disagreeing_answers_are_reported_together() -> None:
    draft = race()
    for at, attempt in ((10, "a"), (12, "z")):
        listed = events.Commits(latest=1, commits=(Entry(version=0, attempt=attempt), Entry(version=1)))
        draft.ask("r", at, at, events.GetCommits(), listed)
    verdict = verdict_on(draft)
    assert [violation.rule for violation in verdict.violations] == [Rule.VERSION_CHANGED]
    assert len(verdict.violations[0].operations) == 2


# When versions are ratified


def test_a_replay_answered_as_conflict_bounds_its_own_version() -> None:
    draft = Draft(log=log("a"), asked=[commit("a", 0, 0, 1, Conflict()), commit("a", 0, 2, 3)])
    assert rules(draft) == [Rule.FALSE_CONFLICT]


def test_nothing_is_missing_before_version_0() -> None:
    assert rules(Draft(asked=[commit("a", 0, 0, 1, Gap())])) == [Rule.REFUSAL_CONTRADICTS_ITSELF]


@pytest.mark.parametrize(
    ("version", "answer", "expected"),
    [
        (1, Conflict(latest=0), [Rule.REFUSAL_CONTRADICTS_ITSELF]),
        (1, Conflict(latest=1), []),
        (3, Gap(latest=2), [Rule.REFUSAL_CONTRADICTS_ITSELF, Rule.NEVER_RATIFIED]),
        (3, Gap(latest=1), []),
        (3, Gap(latest=-1), []),
        (3, Gap(), []),
    ],
)
def test_a_refusal_agrees_with_itself(version: int, answer: events.Refusal, expected: list[Rule]) -> None:
    draft = race()
    draft.asked[3] = commit("x", version, 7, 8, answer)
    assert rules(draft) == expected


def test_refusals_may_be_stale_without_the_promise() -> None:
    draft = race()
    draft.asked.append(commit("y", 0, 9, 10, Conflict(latest=0)))
    assert rules(draft) == []
    draft.promises = {Promise.FRESH_REFUSALS}
    assert rules(draft) == [Rule.STALE_REFUSAL]
    draft.asked[-1] = commit("y", 0, 9, 10, Conflict(latest=1))
    assert rules(draft) == []
    draft.asked[-1] = commit("y", 3, 9, 10, Gap(latest=0))
    assert rules(draft) == [Rule.STALE_REFUSAL]
    draft.asked[-1] = commit("y", 3, 9, 10, Gap(latest=1))
    assert rules(draft) == []


def test_a_refusal_tells_of_no_version_before_it_is_ratified() -> None:
    draft = race()
    draft.asked[1] = commit("x", 0, 1, 4, Conflict(latest=1))
    assert rules(draft) == [Rule.REPORTED_TOO_EARLY]
    draft.asked[1] = commit("x", 0, 1, 5, Conflict(latest=1))
    assert rules(draft) == []
    draft.asked[1] = commit("x", 0, 1, 4, Conflict(winners=(Entry(version=0), Entry(version=1))))
    assert rules(draft) == [Rule.REPORTED_TOO_EARLY]


def test_a_repeated_ratification_keeps_the_first_time() -> None:
    draft = Draft(log=log("a"), asked=[commit("a", 0, 0, 1), read(2, 3, -1), commit("a", 0, 4, 5)])
    assert rules(draft) == [Rule.STALE_READ]


def test_a_read_that_may_be_stale_claims_less() -> None:
    """RULINGS.md#stale: pinned, by path, or reported as stale."""
    for request, answer in (
        (events.Snapshot(version=0), events.SnapshotRead(version=0)),
        (events.Snapshot(timestamp=5), events.SnapshotRead(version=0)),
        (events.Snapshot(), events.SnapshotRead(version=0, stale=True)),
        (events.Snapshot(by_path=True), events.SnapshotRead(version=0)),
    ):
        draft = race()
        draft.ask("r", 9, 10, request, answer)
        assert rules(draft) == []
    draft = race()
    draft.ask("r", 9, 10, events.Snapshot(), events.SnapshotRead(version=0))
    assert rules(draft) == [Rule.STALE_READ]


def test_managed_commit_readers_may_skip_the_owner() -> None:
    """managed-commits, "Reading managed-commit tables": two choices. FB01, FB02 are about those who ask."""
    draft = race(feature="managedCommit")
    draft.ask("r", 9, 10, events.Snapshot(), events.SnapshotRead(version=0))
    assert rules(draft) == []
    draft.promises = {Promise.FRESH_SNAPSHOTS}
    assert rules(draft) == [Rule.STALE_READ]
    draft.asked[-1].answer = events.SnapshotRead(version=1)
    assert rules(draft) == []


def test_a_stale_read_tells_of_no_version_before_it_is_ratified() -> None:
    draft = race()
    draft.ask("r", 3, 4, events.Snapshot(), events.SnapshotRead(version=1, stale=True))
    assert rules(draft) == [Rule.REPORTED_TOO_EARLY]


def test_an_owner_may_not_have_noticed_a_commit_by_put_if_absent() -> None:
    """catalog-managed, "Commit Protocol", option 3; unless it promises to."""
    draft = race(log=[Version("a"), Version("b", direct=True)])
    draft.asked[3] = read(7, 8, 0)
    assert rules(draft) == []
    draft.promises = {Promise.FRESH_DIRECT}
    assert rules(draft) == [Rule.STALE_READ]
    draft.promises = set()
    draft.log.append(Version("c"))
    draft.asked += [commit("c", 2, 9, 10), read(11, 12, 0)]
    assert rules(draft) == [Rule.STALE_READ]


# What became of attempts


def outcome(attempt: str, at: int, answer: events.Answer) -> Asked:
    return asked("w", at, at, events.AttemptOutcome(attempt=attempt), answer)


def test_an_attempt_that_was_resolved_as_landed_is_there() -> None:
    draft = race()
    draft.asked.append(outcome("a", 9, events.Landed(version=0)))
    assert rules(draft) == []
    draft.asked.append(outcome("x", 10, events.Landed(version=0)))
    assert rules(draft) == [Rule.OUTCOME_WRONG]
    draft.asked[-1] = outcome("a", 10, events.Landed(version=1))
    assert rules(draft) == [Rule.OUTCOME_WRONG]


def test_an_outcome_is_not_known_before_the_request() -> None:
    draft = Draft(
        log=log("a", "b"),
        asked=[commit("b", 1, 0, None), outcome("b", 1, events.Landed(version=1)), commit("a", 0, 2, 3)],
    )
    assert rules(draft) == [Rule.REPORTED_TOO_EARLY]
    draft.asked[1] = outcome("b", 2, events.Landed(version=1))
    assert rules(draft) == []


@pytest.mark.parametrize("answer", [Conflict(), Gap(latest=-1)])
def test_tombstone_first_excludes_later_conflicts_and_gaps(answer: events.Refusal) -> None:
    """Without the promise a conflict is computed anew, which is harmless."""
    version = 0 if isinstance(answer, Conflict) else 2
    draft = Draft(
        log=log("a"),
        asked=[
            commit("x", version, 0, None),
            outcome("x", 1, events.NotLanded()),
            commit("a", 0, 2, 3),
            commit("x", version, 4 if version == 0 else 2, 5, answer),
        ],
    )
    assert rules(draft) == []
    draft.promises = {Promise.TOMBSTONE_FIRST}
    assert set(rules(draft)) == {Rule.TOMBSTONE_IGNORED}
    draft.asked[3] = commit("x", version, 4, 5, Rejected(reason="resolved"))
    assert rules(draft) == []


def test_a_late_conflict_was_computed_before_the_tombstone() -> None:
    """min(b, d) of the table: the answer came late, and speaks of an earlier moment."""
    late = commit("x", 0, 0, 9, Conflict())
    draft = Draft(
        log=log("a"),
        promises={Promise.TOMBSTONE_FIRST},
        asked=[late, outcome("x", 2, events.NotLanded()), outcome("x", 7, events.NotLanded()), commit("a", 0, 3, 5)],
    )
    assert rules(draft) == [Rule.TOMBSTONE_IGNORED]
    draft.asked[3] = commit("a", 0, 2, 5)
    assert rules(draft) == []
    draft.asked[3] = commit("a", 0, 3, 5)
    draft.promises = set()
    assert rules(draft) == []


def test_winners_of_a_resolved_attempt_predate_its_tombstone() -> None:
    answer = Conflict(winners=(Entry(version=0, attempt="a"), Entry(version=1, attempt="b")))
    draft = Draft(
        log=log("a", "b"),
        promises={Promise.TOMBSTONE_FIRST},
        asked=[
            commit("a", 0, 0, 1),
            commit("x", 0, 1, 9, answer),
            outcome("x", 3, events.NotLanded()),
            commit("b", 1, 4, 5),
        ],
    )
    assert rules(draft) == [Rule.TOMBSTONE_IGNORED]
    draft.asked[3] = commit("b", 1, 3, 5)
    assert rules(draft) == []


# Transactions of clients


def test_a_clients_transaction_lands_once_wherever_it_can() -> None:
    """FB07, FB08: the marker in the log counts, not the attempts."""
    request = events.Transact(attempt="m")
    draft = Draft(log=log("a", "m"), asked=[commit("a", 0, 0, 1)])
    draft.ask("c", 1, 2, request, events.Committed(version=1))
    assert rules(draft) == []
    draft.log = log("a", "m", "m")
    assert Rule.LANDED_TWICE in rules(draft)
    draft.log = log("a")
    assert Rule.RATIFIED_BUT_LOST in rules(draft)
    draft.asked[1].answer = Conflict()
    assert rules(draft) == []
    draft.log = log("a", "m")
    assert rules(draft) == [Rule.REFUSED_BUT_LANDED]
    draft.asked[1].answer, draft.asked[1].answered = None, None
    assert rules(draft) == []


# Clocks


def test_clocks_that_may_differ_make_fewer_orders_certain() -> None:
    draft = Draft(log=log("a"), asked=[commit("a", 0, 0, 1), read(4, 5, -1)])
    assert rules(draft) == [Rule.STALE_READ]
    draft.skew = 2
    assert rules(draft) == [Rule.STALE_READ]
    draft.skew = 3
    assert rules(draft) == []


# The whole


def test_a_missing_ratified_version_is_only_forgotten() -> None:
    source = race().events()
    witness = source[-2]
    assert isinstance(witness, events.Witness)
    source[-2] = events.Witness(table=witness.table, version=2, attempt="b")
    assert [violation.rule for violation in check_events(source).violations] == [Rule.COMMIT_FORGOTTEN]


def test_a_log_that_begins_late_was_there_before() -> None:
    """FB44: the first commit of an empty log may not have any version."""
    draft = Draft(first=5, log=log("a"), asked=[commit("a", 5, 0, 1)])
    assert rules(draft) == [Rule.LOG_HAS_GAP]
    draft.before = 1
    assert check_events(draft.events()).conformant


def test_versions_before_the_history_may_lack_attempts() -> None:
    draft = Draft(first=6, before=1, log=log("o", "a"))
    draft.asked = [commit("a", 7, 0, 1), commit("x", 5, 0, 1, Conflict()), read(2, 3, 7)]
    source = draft.events()
    source[-3] = events.Witness(table="orders", version=6, before=True)
    assert check_events(source).conformant
    source[-2] = events.Witness(table="orders", version=7, attempt="z")
    assert [violation.rule for violation in check_events(source).violations] == [
        Rule.RATIFIED_BUT_LOST,
        Rule.NOT_PROPOSED,
    ]


def test_a_later_answer_names_an_old_attempt() -> None:
    draft = Draft(first=6, before=1, log=log("o"), asked=[commit("a", 6, 0, 1), commit("a", 6, 2, 3)])
    source = draft.events()
    source[-2] = events.Witness(table="orders", version=6, before=True)
    assert check_events(source).conformant
    draft.asked.append(commit("b", 6, 4, 5))
    source = draft.events()
    source[-2] = events.Witness(table="orders", version=6, before=True)
    assert [violation.rule for violation in check_events(source).violations] == [Rule.RATIFIED_BUT_LOST]


def test_several_tables_are_judged_each_for_itself() -> None:
    """The same two operations contradict each other in one table, and say nothing together in two."""
    draft = Draft(log=log("a"), asked=[commit("a", 0, 0, 1), read(2, 3, -1)])
    source = draft.events()
    assert not check_events(source).conformant
    asking = next(event for event in source if isinstance(event, events.Invoke) and event.client == "reader")
    source[source.index(asking)] = msgspec.structs.replace(asking, table="customers")
    footer = source[-1]
    assert isinstance(footer, events.Footer)
    source[-1] = msgspec.structs.replace(footer, tables={"orders": 1, "customers": 0})
    verdict = check_events(source)
    assert verdict.conformant
    assert verdict.tables == {"orders": 1, "customers": 0}


def test_a_contradiction_names_both_operations() -> None:
    """style: fact, numbers; the request, its times and its answer."""
    draft = race()
    draft.asked[3] = read(7, 8, 0)
    (violation,) = verdict_on(draft).violations
    assert violation.rule is Rule.STALE_READ
    assert violation.requirement == Rule.STALE_READ.meaning
    assert (violation.table, violation.version) == ("orders", 1)
    assert "reader's get_commits" in violation.message
    assert "operation 3, 7..8: commits, latest 0" in violation.message
    assert "writer's commit of version 1 as attempt b (operation 2, 5..6: ratified, version 1)" in violation.message
    assert [operation.id for operation in violation.operations] == [3, 2]


def test_all_requests_of_the_attempt_belong_to_the_explanation() -> None:
    draft = Draft(
        log=log("a", "b"),
        asked=[
            commit("b", 1, 0, 1, Gap()),
            commit("x", 1, 2, 3, Conflict()),
            commit("a", 0, 4, 5),
            commit("b", 1, 6, 7),
            commit("b", 1, 8, 9),
        ],
    )
    (violation,) = verdict_on(draft).violations
    assert violation.rule is Rule.FALSE_CONFLICT
    assert [operation.id for operation in violation.operations] == [3, 1, 0, 4]
    assert "All other requests of attempt b" in violation.message


def test_further_violations_of_a_rule_are_counted() -> None:
    draft = Draft(asked=[commit(f"a{at}", 0, at, at) for at in range(30)], log=[])
    verdict = verdict_on(Draft(asked=draft.asked[:5], log=[]))
    assert len(verdict.violations) == 5
    verdict = check_events(draft.events())
    assert len(verdict.violations) == MOST_OF_ONE_RULE
    assert verdict.left_out == 30 - MOST_OF_ONE_RULE


def wrong_everywhere(versions: int) -> Draft:
    """Each version is denied after it was acknowledged, and each replay is refused."""
    draft = Draft(log=log(*(f"a{version}" for version in range(versions))), profiles={"idempotent-retry"})
    for version in range(versions):
        draft.asked.append(commit(f"a{version}", version, 10 * version, 10 * version + 1))
        draft.asked.append(read(10 * version + 2, 10 * version + 3, version - 1))
        draft.asked.append(commit(f"a{version}", version, 10 * version + 4, 10 * version + 5, Conflict()))
        draft.asked.append(commit(f"b{version}", version, 10 * version + 6, 10 * version + 7))
    return draft


def test_judging_many_contradictions_stays_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every explanation costs a look at everything: few are given, the rest is counted."""
    looks: list[int] = []
    original = bounds.earliest

    def counted(groups: object, window: object, index: int) -> object:
        looks.append(index)
        return original(groups, window, index)  # type: ignore[arg-type]

    monkeypatch.setattr(bounds, "earliest", counted)
    verdict = check_events(wrong_everywhere(300).events())
    assert {violation.rule for violation in verdict.violations} == {
        Rule.STALE_READ,
        Rule.REPLAY_REFUSED,
        Rule.RATIFIED_BUT_LOST,
    }
    assert len(looks) <= MOST_CONTRADICTIONS
    assert len(verdict.violations) + verdict.left_out == 3 * 300


def test_names_with_braces_are_kept() -> None:
    draft = Draft(log=log("{first}", "{0}"), asked=[commit("{0}", 1, 0, 1), commit("{first}", 0, 2, 3)])
    (violation,) = verdict_on(draft).violations
    assert violation.rule is Rule.RATIFIED_OUT_OF_ORDER
