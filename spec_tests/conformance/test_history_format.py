"""LOG_CHECKER.md#history: which files are histories, and the command `check`."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest

from conformance.command.application import application
from conformance.history import events
from conformance.history.events import (
    Clock,
    Commit,
    Conflict,
    Entry,
    Event,
    GetCommits,
    Header,
    InvalidHistoryError,
    Ratified,
    Subject,
    Unknown,
    Witness,
)
from conformance.history.files import read, read_events, write_events
from conformance.history.operations import Item, operations
from spec_tests.conformance.prove import without_final_log
from spec_tests.conformance.simulated_histories import (
    FOLDER,
    TABLE,
    Draft,
    DraftListing,
    DraftOperation,
    Version,
    simulate,
)

HEADER = Header(schema=1, clock=Clock(unit="tick"), subject=Subject(name="test", version="1"), feature="catalogManaged")


def main(arguments: list[str]) -> object:
    """Run the command; return the exit code."""
    with pytest.raises(SystemExit) as ended:
        application(arguments)
    return ended.value.code


def small() -> Draft:
    """Two writers, a read and an observation of files: every kind of line."""
    draft = Draft(
        log=[Version("a"), Version("b")],
        asked=[
            DraftOperation("w1", Commit(version=0, attempt="a"), 1, 2, Ratified(version=0)),
            DraftOperation(
                "w2", Commit(version=0, attempt="x"), 3, 4, Conflict(latest=0, winners=(Entry(version=0, attempt="a"),))
            ),
            DraftOperation("w2", Commit(version=1, attempt="b"), 5, 7, Unknown(reason="timeout")),
            DraftOperation("r", GetCommits(start=0), 6, 8, events.Commits(latest=1, commits=(Entry(version=1),))),
        ],
        looked=[DraftListing(since=9, at=10, published=[0], absent=[1])],
    )
    draft.faults.append(events.Fault(at=6, kind="lost answer", client="w2"))
    return draft


def as_bytes(source: list[Event]) -> bytes:
    stream = io.BytesIO()
    write_events(stream, source)
    return stream.getvalue()


def judged(content: bytes) -> list[Item]:
    return list(operations(read_events(io.BytesIO(content))))


def problem_of(content: bytes) -> InvalidHistoryError:
    with pytest.raises(InvalidHistoryError) as caught:
        judged(content)
    return caught.value


def changed(change: Callable[[list[Event]], object]) -> InvalidHistoryError:
    """The error for the small history after a change to its events."""
    source = small().events()
    change(source)
    return problem_of(as_bytes(source))


def test_a_written_history_is_read_back_unchanged() -> None:
    for number in range(200):
        source = simulate(Random(number), 8).events()
        assert list(read_events(io.BytesIO(as_bytes(source)))) == source


def test_a_history_cut_off_at_any_byte_is_invalid() -> None:
    """LOG_CHECKER.md#history: a history without a footer is invalid, and never passes."""
    content = as_bytes(small().events())
    assert judged(content)
    for length in range(len(content)):
        error = problem_of(content[:length])
        ended_in_line = content[:length].count(b"\n") + (0 if content[:length].endswith(b"\n") else 1)
        assert error.line in (ended_in_line, None), length


@pytest.mark.parametrize("at", [-1, -2])
def test_a_final_log_is_either_recorded_or_unseen(at: int) -> None:
    error = changed(lambda source: source.insert(at, events.Unseen(table=TABLE)))
    assert "final log" in error.problem


COUNTS = msgspec.convert(msgspec.to_builtins(small().events()[-1])["counts"], events.Counts)


def lines_with(source: list[Event], kind: type[Event]) -> list[int]:
    return [at for at, event in enumerate(source) if isinstance(event, kind)]


def at(line: int, **fields: object) -> Callable[[list[Event]], None]:
    """Change fields of the event in that line."""

    def change(source: list[Event]) -> None:
        source[line - 1] = msgspec.structs.replace(source[line - 1], **fields)

    return change


def footer(**fields: object) -> Callable[[list[Event]], None]:
    """Change fields of the last line."""
    return lambda source: at(len(source), **fields)(source)


def without_a_version(source: list[Event]) -> None:
    source.pop(lines_with(source, Witness)[-1])
    footer(counts=msgspec.structs.replace(COUNTS, witness=1))(source)


def with_a_line_twice(source: list[Event]) -> None:
    source.insert(lines_with(source, events.Fault)[0], source[lines_with(source, events.Fault)[0]])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda source: source.pop(lines_with(source, events.Fault)[0]), "1 `fault` lines, found 0"),
        (with_a_line_twice, "1 `fault` lines, found 2"),
        (footer(counts=msgspec.structs.replace(COUNTS, ok=3)), "3 `ok` lines, found 2"),
        (without_a_version, "2 versions in the final log of 'orders', found 1"),
        (footer(tables={}), "the footer lacks table 'orders'"),
        (footer(tables={"orders": 2, "ghost": 3}), "'ghost'"),
        (footer(complete=False), "marked it as incomplete"),
        (at(13, version=0), "from version 0 to 0; it must be ascending"),
        (at(13, before=True), "version 1 of 'orders' existed before the history, but 0 did not"),
        (at(13, attempt=None), "version 1 of 'orders' has no attempt"),
    ],
)
def test_the_error_for_an_inconsistent_history_says_what_differs(
    change: Callable[[list[Event]], object], said: str
) -> None:
    assert said in changed(change).problem


def swapped(source: list[Event]) -> None:
    source[2], source[3] = source[3], source[2]


INVALID: dict[str, tuple[Callable[[list[Event]], object], int, str]] = {
    "no header": (lambda source: source.pop(0), 1, "begins with its header, not with `invoke`"),
    "two headers": (lambda source: source.insert(1, source[0]), 2, "second header"),
    "unknown schema": (at(1, schema=2), 1, "schema 2; this version reads 1"),
    "swapped": (swapped, 4, "time decreases from 3 to 2"),
    "an id twice": (at(4, id=0), 4, "operation 0 follows operation 0"),
    "never asked": (at(3, id=77), 3, "operation 77, which was never sent"),
    "answered twice": (lambda source: source.insert(3, source[2]), 4, "operation 0, which was answered before"),
    "no answer to it": (
        at(3, answer=events.Landed(version=0)), 3, "`landed` is not a valid answer to `commit` (operation 0)",
    ),
    "begun too late": (at(11, since=11), 11, "began at 11, after its end at 10"),
    "footer in the middle": (lambda source: source.append(source[-2]), 15, "follows the footer"),
    "fault after the log": (
        lambda source: source.insert(-1, events.Fault(at=99, kind="late")), 14, "`fault` after the final log has begun",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "line", "said"), INVALID.values(), ids=INVALID)
def test_an_invalid_event_is_rejected_at_its_line(
    change: Callable[[list[Event]], object], line: int, said: str
) -> None:
    error = changed(change)
    assert (error.line, said in error.problem) == (line, True), str(error)


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"{}\n",
        b'{"event":"unheard of"}\n',
        b'{"event":"invoke","at":1,"id":1,"client":"c","table":"t","request":{"op":"commit","attempt":"a","version":-1}}\n',
        b'{"event":"invoke","at":1.5,"id":1,"client":"c","table":"t","request":{"op":"load_table"}}\n',
        b'{"event":"fault","at":1,"kind":"x","unheard":1}\n',
        b'{"event":"fault","at":1,"kind":"\xff"}\n',
        b'{"event":"fault","at":99999999999999999999,"kind":"x"}\n',
        b"[" * 100_000 + b"\n",
        b"\x00\n",
        b"\n",
    ],
)
def test_an_invalid_line_is_quoted_in_the_error(line: bytes) -> None:
    content = as_bytes(small().events()).splitlines(keepends=True)
    error = problem_of(b"".join([content[0], line, *content[1:]]))
    assert error.line == 2
    assert "not an event of a history" in error.problem
    assert len(error.problem) < 400


def test_random_damage_never_crashes_the_reader() -> None:
    content = as_bytes(small().events())
    random = Random(4)
    for _ in range(3000):
        damaged = bytearray(content)
        for _ in range(random.randint(1, 3)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        try:
            judged(bytes(damaged))
        except InvalidHistoryError as error:
            assert error.problem


def test_the_error_for_an_unreadable_file_has_the_reason(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(InvalidHistoryError, match="cannot be read"):
            list(read(path))


def many(count: int) -> Iterator[Event]:
    yield HEADER
    for number in range(count):
        yield events.Invoke(at=number, id=number, client="c", table="t", request=GetCommits())
        yield events.Ok(at=number, id=number, answer=events.Commits(latest=None))


def test_events_stream_in_bounded_memory(tmp_path: Path) -> None:
    """The reader holds only the events of open requests, a few of 40,000."""
    import tracemalloc

    path = tmp_path / "long.jsonl"
    with path.open("wb") as stream:
        write_events(stream, many(20_000))
    source = operations(read(path))
    for _ in range(1000):
        next(source)
    tracemalloc.start()
    with pytest.raises(InvalidHistoryError, match="without a footer"):
        for _ in source:
            pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


def test_the_schema_file_is_up_to_date_and_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """After a change, run `delta-commit-conformance schema history > conformance/history/history.schema.json`."""
    assert main(["schema", "history"]) == 0
    assert capsys.readouterr().out == events.SCHEMA_FILE.read_text(encoding="utf-8") == events.schema_text()
    names = json.loads(events.schema_text())["$defs"].keys()
    assert {"Header", "Invoke", "Ok", "Fail", "Info", "Fault", "FileLook", "Witness", "Footer"} <= names


# The command `check`


GOOD = FOLDER / "good" / "late-backfill.jsonl"
BAD = FOLDER / "bad" / "fresh-read-misses-a-commit.jsonl"


def test_a_conformant_history_takes_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(GOOD)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.splitlines() == [f"{GOOD}: conformant: 8 operations on orders (3 versions); a correct owner"]


def test_a_violation_shows_requirement_and_operations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(BAD)]) == 1
    printed = capsys.readouterr().out
    assert "1. stale-read: orders, version 1" in printed
    assert "Required: A request for the latest version returns every commit" in printed
    assert "reader's get_commits (operation 1, events 3 to 4, answer: commits, latest 0, listing 0)" in printed
    assert (
        "writer's commit of version 1 as attempt first (operation 0, events 1 to 2, answer: ratified, version 1)"
        in printed
    )


def test_json_has_the_verdict_the_rule_and_the_operations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(BAD), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert (printed["verdict"], printed["operations"], printed["tables"]) == ("violation", 2, {"orders": 2})
    (violation,) = printed["violations"]
    assert (violation["rule"], violation["version"]) == ("stale-read", 1)
    assert [operation["id"] for operation in violation["operations"]] == [1, 0]
    assert main(["check", str(GOOD), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["verdict"], printed["violations"]) == ("conformant", [])


@pytest.mark.parametrize(("file", "code", "verdict"), [(GOOD, 3, "incomplete"), (BAD, 1, "violation")])
def test_a_history_without_its_final_log_is_never_conformant(
    file: Path, code: int, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """LOG_CHECKER.md#unseen: the recorded answers are judged."""
    *rest, unseen, footer = without_final_log(list(read(file)))
    cut = tmp_path / "unseen.jsonl"
    cut.write_bytes(as_bytes([*rest, msgspec.structs.replace(unseen, reason="status 500"), footer]))
    assert main(["check", str(cut), "--json"]) == code
    printed = json.loads(capsys.readouterr().out)
    assert (printed["verdict"], printed["unseen"]) == (verdict, {"orders": "status 500"})
    assert printed["tables"] == {"orders": 0}
    assert main(["check", str(cut)]) == code
    assert "orders: no final log, checked by the answers alone: status 500" in capsys.readouterr().out


CUT = GOOD.read_bytes().rpartition(b'{"event":"footer"')[0]


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"", None), (b"{", 1), (b"\x00\xff\n", 1), (b"[]\n", 1), (b'{"event":"footer"}\n', 1), (CUT, None)],
)
def test_an_invalid_history_does_not_pass_and_the_error_names_its_line(
    content: bytes, line: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """LOG_CHECKER.md#history: a history without a footer is invalid, and never passes."""
    file = tmp_path / "no-history"
    file.write_bytes(content)
    assert main(["check", str(file), "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert (report["verdict"], report["line"]) == ("invalid", line)
    assert main(["check", str(file)]) == 2
    where = "" if line is None else f", line {line}"
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {file}{where}: invalid history: ")
    assert content != CUT or "it ends after line 17 without a footer" in printed.err
