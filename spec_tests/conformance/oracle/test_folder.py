"""What may happen to the published files of a log, event by event."""

from typing import Any

from conformance.interface import messages as m
from conformance.oracle.folder import ATOMIC, ORDER, STAYS, UNCHANGED, Call, Event, File, Kind, after, judge
from conformance.oracle.owner import Contract

STAGED = Contract(feature="managedCommit", commit_mode="staged", profiles=frozenset(), promises=frozenset())
DIRECT = Contract(feature="managedCommit", commit_mode="direct", profiles=frozenset(), promises=frozenset())
DROP = Call("anyone", m.DropTable(table="orders"))
ZERO_AND_ONE = {0: File("zero"), 1: File("one")}


def event(kind: Kind, version: int, **more: Any) -> Event:
    return Event(kind=kind, log="_delta_log", version=version, **{"at": 3, "content": "one", **more})


def violated(
    happened: Event, files: Any = ZERO_AND_ONE, contract: Contract = STAGED, dropped: int | None = None, newest: int = 2
) -> tuple[str, ...]:
    wrong = judge(files, contract, happened, dropped=dropped, newest=newest)
    return () if wrong is None else wrong.requirements


def test_a_version_appears_after_its_predecessor() -> None:
    assert violated(event(Kind.APPEARED, 2)) == ()
    assert violated(event(Kind.APPEARED, 0), {}) == ()
    assert violated(event(Kind.APPEARED, 3)) == ORDER
    assert violated(event(Kind.APPEARED, 1), {}) == ORDER


def test_a_published_file_is_not_written() -> None:
    assert violated(event(Kind.MODIFIED, 1)) == ATOMIC


def test_a_published_file_is_replaced_only_by_equal_bytes() -> None:
    assert violated(event(Kind.REPLACED, 1, content="other")) == UNCHANGED
    assert violated(event(Kind.REPLACED, 1)) == ()


def test_the_file_of_another_writer_is_not_replaced() -> None:
    assert violated(event(Kind.REPLACED, 1), {1: File("other", by_kit=True)}) == STAYS
    written = after({1: File("one", by_kit=True)}, event(Kind.MODIFIED, 1))
    assert written[1].by_kit


def test_only_a_drop_removes_published_files() -> None:
    assert violated(event(Kind.REMOVED, 1)) == STAYS
    assert violated(event(Kind.REMOVED, 1, during=(DROP,))) == ()
    assert violated(event(Kind.REMOVED, 1), dropped=1) == ()
    assert after(ZERO_AND_ONE, event(Kind.REMOVED, 1)) == {0: File("zero")}


def test_a_dropped_table_gets_no_further_version() -> None:
    assert violated(event(Kind.APPEARED, 2), dropped=3, newest=2) == ()
    assert violated(event(Kind.APPEARED, 2), dropped=4, newest=1) == ()
    assert violated(event(Kind.APPEARED, 2), dropped=3, newest=1) == ("PROFILE-DISCOVERY-02",)


def test_a_direct_commit_is_visible_before_its_answer() -> None:
    answered = event(Kind.APPEARED, 2, answer=m.Ratified(version=2))
    assert "PROFILE-DIRECT-01" in violated(answered, contract=DIRECT)
    assert violated(answered) == ()
    assert violated(event(Kind.APPEARED, 2, answer=m.Unknown(reason="timeout")), contract=DIRECT) == ()
