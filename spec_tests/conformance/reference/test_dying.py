"""The reference owner crashes at each crash point, and starts again with everything that was durable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.adapters.reference import dying
from conformance.adapters.reference.dying import CRASH_POINTS
from conformance.interface import messages as m
from conformance.interface.subject import GONE
from spec_tests.conformance.reference.asking import COMMIT_MODES, STAGING, Asking, Table, content, published_name


def dies(owner: Asking, point: str, request: m.Request) -> None:
    """The request kills it; it answers no request until it starts again."""
    owner.expect(m.Done, m.Crash(point=point))
    for asked in (request, m.LoadTable(name="orders"), m.Crash()):
        answer = owner.expect(m.Unknown, asked)
        assert answer.reason.startswith(GONE), answer
    owner.expect(m.Done, m.Restart())


def staged(owner: Asking) -> Table:
    return owner.table(feature="managedCommit", commit_mode="staged")


def inline(owner: Asking) -> Table:
    return owner.table(commit_mode="inline")


def direct(owner: Asking) -> Table:
    return owner.table(commit_mode="direct")


COMMITS = [
    (make, point)
    for make, reached in (
        (staged, ("after-stage", "before-ratify", "after-ratify")),
        (inline, ("before-ratify", "after-ratify")),
        (direct, ("before-promise", "after-promise", "before-link", "after-link", "before-record", "after-record")),
    )
    for point in reached
]
LANDED = {"after-ratify", "after-promise", "before-link", "after-link", "before-record", "after-record"}
"""From here on the commit is the version when the owner is back: it was ratified, or is promised and completed."""


@pytest.mark.parametrize(("make", "point"), COMMITS, ids=lambda each: getattr(each, "__name__", each))
def test_a_commit_that_a_death_interrupted_can_be_sent_again(
    owner: Asking, make: Callable[[Asking], Table], point: str
) -> None:
    table = make(owner)
    table.land(1)
    request = table.proposal(2)
    dies(owner, point, request)
    assert owner.expect(m.Ratified, request).version == 2
    owner.expect(m.Conflict, table.proposal(2))
    table.land(3)
    table.backfill(3)
    assert table.published() == [0, 1, 2, 3]
    assert table.files()[published_name(2)] == content(request.actions)


@pytest.mark.parametrize(("make", "point"), COMMITS, ids=lambda each: getattr(each, "__name__", each))
def test_what_became_of_it_can_be_asked(owner: Asking, make: Callable[[Asking], Table], point: str) -> None:
    table = make(owner)
    request = table.proposal(1)
    dies(owner, point, request)
    kind = m.Landed if point in LANDED else m.NotLanded
    owner.expect(kind, m.AttemptOutcome(table=table.reference, attempt=request.attempt))
    assert table.latest == (1 if point in LANDED else 0)
    answer = owner.ask(request)
    assert isinstance(answer, m.Ratified if point in LANDED else m.Rejected), answer


@pytest.mark.parametrize("feature", sorted(STAGING))
def test_half_a_staged_file_is_never_a_commit(owner: Asking, feature: str) -> None:
    table = owner.table(feature=feature)
    request = table.proposal(1)
    dies(owner, "during-stage", request)
    (name,) = table.staged()
    left = table.files()[f"{STAGING[feature]}/{name}"]
    assert left is not None
    assert content(request.actions).startswith(left)
    assert 0 < len(left) < len(content(request.actions))
    owner.expect(m.Rejected, m.Commit(table=table.reference, version=1, attempt=request.attempt, staged_file=name))
    owner.expect(m.Rejected, request)
    table.land(1)


@pytest.mark.parametrize("point", ["before-promise", "after-promise", "before-link", "after-link", "before-record",
                                   "after-record"])  # fmt: skip
@pytest.mark.parametrize(("feature", "commit_mode"), COMMIT_MODES)
def test_a_creation_that_a_death_interrupted_can_be_sent_again(
    owner: Asking, point: str, feature: str, commit_mode: str
) -> None:
    request = owner.creation(feature=feature, commit_mode=commit_mode)
    dies(owner, point, request)
    made = owner.expect(m.Ratified, request)
    found = owner.expect(m.Table, m.LoadTable(name="orders"))
    assert (found.table, found.latest) == (made.table, 0)
    owner.expect(m.Conflict, owner.creation(feature=feature, commit_mode=commit_mode))


@pytest.mark.parametrize("point", ["after-promise", "before-link", "after-link"])
@pytest.mark.parametrize("feature", sorted(STAGING))
def test_a_creation_at_a_given_place_is_completed_or_lost_to_who_was_first(
    owner: Asking, point: str, feature: str
) -> None:
    place = f"{owner.identity.storage}/here"
    request = owner.creation(feature=feature, path=place)
    dies(owner, point, request)
    stranger = m.Plant(table=place, file=published_name(0), content='{"commitInfo":{}}\n', if_absent=True)
    was_first = isinstance(owner.ask(stranger), m.Done)
    assert was_first is (point != "after-link")
    owner.expect(m.Conflict if was_first else m.Ratified, request)
    owner.expect(m.NotFound if was_first else m.Table, m.LoadTable(path=place))


@pytest.mark.parametrize("point", ["before-promise", "after-promise", "after-link"])
def test_a_creation_at_a_given_place_can_be_sent_again(owner: Asking, point: str) -> None:
    request = owner.creation(path=f"{owner.identity.storage}/here")
    dies(owner, point, request)
    made = owner.expect(m.Ratified, request)
    assert owner.expect(m.Table, m.LoadTable(path=request.path)).table == made.table


TAKEN = {"after-promise", "before-link", "after-link", "before-record", "after-record"}


@pytest.mark.parametrize("point", ["before-promise", *sorted(TAKEN)])
@pytest.mark.parametrize("feature", sorted(STAGING))
def test_a_take_over_that_a_death_interrupted_is_completed_or_never_was(
    owner: Asking, point: str, feature: str
) -> None:
    """managed-commits, "Converting an existing filesystem based table": the promise is durable before the change."""
    path = owner.filesystem_table()
    request = owner.taking_over(path, 2, feature)
    dies(owner, point, request)
    owner.expect(m.Table if point in TAKEN else m.NotFound, m.LoadTable(path=path))
    made = owner.expect(m.Ratified, request)
    assert owner.expect(m.Table, m.LoadTable(name="imports")).table == made.table


@pytest.mark.parametrize("feature", sorted(STAGING))
def test_a_take_over_whose_place_was_lost_meanwhile_is_forgotten(owner: Asking, feature: str) -> None:
    path = owner.filesystem_table()
    dies(owner, "before-link", owner.taking_over(path, 2, feature))
    owner.expect(m.Done, m.Plant(table=path, file=published_name(2), content='{"commitInfo":{}}\n'))
    owner.expect(m.NotFound, m.LoadTable(path=path))
    seen = {file.name: file.content for file in owner.expect(m.Observation, m.Observe(table=path)).files}
    assert seen[published_name(2)] == '{"commitInfo":{}}\n'


@pytest.mark.parametrize("point", ["after-promise", "after-link", "before-record", "after-record", "after-publish"])
def test_a_hand_back_that_a_death_interrupted_can_be_sent_again(owner: Asking, point: str) -> None:
    """managed-commits, "Converting a managed-commit table": everything before is published first."""
    table = staged(owner)
    table.land(1, 2)
    request = table.handing_back(3)
    dies(owner, point, request)
    assert owner.expect(m.Ratified, request).version == 3
    assert table.published() == [0, 1, 2, 3]
    owner.expect(m.NotFound, m.LoadTable(name="orders"))


@pytest.mark.parametrize("point", ["before-publish", "after-publish", "before-forget", "after-forget"])
def test_a_backfill_that_a_death_interrupted_is_continued(owner: Asking, point: str) -> None:
    table = staged(owner)
    sent = table.land(1, 2, 3)
    dies(owner, point, m.BackfillToVersion(table=table.reference, version=3))
    published = table.published()
    assert published == {"before-publish": [0], "after-publish": [0, 1]}.get(point, [0, 1, 2, 3])
    listed = [each.version for each in table.commits().commits]
    assert set(published) | set(listed) == {0, 1, 2, 3}, "what is not published is listed"
    table.backfill(3)
    files = table.files()
    assert [files[published_name(each.version)] for each in sent] == [content(each.actions) for each in sent]
    assert table.commits() == m.Commits(commits=(), latest=3)


@pytest.mark.parametrize("point", ["before-tombstone", "after-tombstone"])
def test_an_outcome_that_was_recorded_stands_after_the_death(owner: Asking, point: str) -> None:
    table = staged(owner)
    late = table.proposal(1)
    dies(owner, point, m.AttemptOutcome(table=table.reference, attempt=late.attempt))
    answer = owner.ask(late)
    assert isinstance(answer, m.Rejected if point == "after-tombstone" else m.Ratified), answer


@pytest.mark.parametrize("point", ["before-drop", "after-drop"])
def test_a_table_is_dropped_or_not(owner: Asking, point: str) -> None:
    table = staged(owner)
    dies(owner, point, m.DropTable(table=table.reference))
    owner.expect(m.NotFound if point == "after-drop" else m.Table, m.LoadTable(name="orders"))


def test_every_point_has_a_test_that_gets_there() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [point for point in CRASH_POINTS if f'"{point}"' not in source] == []


# Dying without a point, and starting again


@pytest.mark.parametrize(("feature", "commit_mode"), COMMIT_MODES)
def test_what_was_answered_survives_a_death(owner: Asking, feature: str, commit_mode: str) -> None:
    table = owner.table(feature=feature, commit_mode=commit_mode)
    sent = table.land(1, 2)
    before = table.commits(), table.files()
    owner.expect(m.Done, m.Crash())
    owner.expect(m.Unknown, sent[0])
    owner.expect(m.Unknown, m.Observe(table=table.reference))
    owner.expect(m.Done, m.Restart())
    assert (table.commits(), table.files()) == before
    assert owner.expect(m.Ratified, sent[0]).version == 1
    table.land(3)


def test_it_dies_at_a_point_only_if_it_gets_there(owner: Asking) -> None:
    table = staged(owner)
    owner.expect(m.Done, m.Crash(point="after-tombstone"))
    table.land(1)
    owner.expect(m.Done, m.Restart())
    late = table.proposal(2)
    owner.expect(m.NotLanded, m.AttemptOutcome(table=table.reference, attempt=late.attempt))


def test_a_point_that_does_not_exist_is_unsupported(owner: Asking) -> None:
    owner.expect(m.Unsupported, m.Crash(point="after-lunch"))
    staged(owner).land(1)
    assert set(owner.identity.crash_points) == set(CRASH_POINTS)


def test_nothing_of_the_dead_process_happens_later(owner: Asking) -> None:
    """What the code still tries on its way out (here: removing its temporary file) has no effect either."""
    table = direct(owner)
    dies(owner, "before-link", table.proposal(1))
    assert [name for name in table.files() if name.startswith(".tmp-")] != []
    assert table.published() == [0]


def test_a_death_frees_the_locks_for_other_processes(owner: Asking) -> None:
    other = Asking(owner.handler.directory)
    try:
        table = staged(owner)
        owner.expect(m.Done, m.Crash(point="before-ratify"))
        owner.expect(m.Unknown, table.proposal(1))
        proposal = table.proposal(1)
        assert other.expect(m.Ratified, proposal).version == 1
        owner.expect(m.Done, m.Restart())
        assert owner.expect(m.Ratified, proposal).version == 1
    finally:
        other.close()


def test_the_answers_of_other_threads_die_with_the_process(owner: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread is about to commit when another kills the process: nothing lands, and no answer comes."""
    table = staged(owner)
    at_the_door, killed, answers = threading.Event(), threading.Event(), []
    reach = dying.Life.reach

    def waits(life: dying.Life, point: str) -> None:
        if point == "before-ratify":
            at_the_door.set()
            assert killed.wait(10)
        reach(life, point)

    monkeypatch.setattr(dying.Life, "reach", waits)
    request = table.proposal(1)
    thread = threading.Thread(target=lambda: answers.append(owner.ask(request)))
    thread.start()
    assert at_the_door.wait(10)
    owner.expect(m.Done, m.Crash())
    killed.set()
    thread.join()
    assert [type(answer) for answer in answers] == [m.Unknown]
    monkeypatch.undo()
    owner.expect(m.Done, m.Restart())
    assert table.latest == 0
    assert owner.expect(m.Ratified, request).version == 1
