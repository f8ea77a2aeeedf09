"""A history as a file: read line by line in bounded memory, and written as it happens, from several threads.

    with HistoryWriter(path, header, clock=time.monotonic_ns) as history:
        number = history.invoke("writer-1", "orders", Commit(version=3, attempt=attempt))
        history.ended(number, answer)
        ...
        history.witness(Witness(table="orders", version=0, attempt=...))   # for every version of every table
        history.complete()

Without `complete()` the file has no footer and is not a valid history, as after an interrupted run.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from conformance.history import events
from conformance.interface import safe_text
from conformance.interface.subject import Closing

LONGEST_LINE: Final = 64 * 1024 * 1024
"""Bytes; a file with a longer line is rejected without reading the line into memory."""

_SHOWN: Final = 60
"""The number of bytes of an invalid line that its message quotes."""


def read_events(stream: BinaryIO) -> Iterator[events.Event]:
    """The events of a history, one per line. Raises `InvalidHistoryError` for an invalid line."""
    decode = msgspec.json.Decoder(events.Event).decode
    number = 0
    while line := stream.readline(LONGEST_LINE):
        number += 1
        if not line.endswith(b"\n"):
            raise _cut_off(line, number)
        try:
            yield decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise events.InvalidHistoryError(
                f"not an event of a history: {error} (it reads {_start(line)})", number
            ) from None


def read(path: Path) -> Iterator[events.Event]:
    """The events of the history in a file. Raises `InvalidHistoryError`, also for a file that cannot be read."""
    try:
        with path.open("rb") as stream:
            yield from read_events(stream)
    except OSError as error:
        raise events.InvalidHistoryError(f"cannot be read: {error.strerror or error}") from None


def _start(line: bytes) -> str:
    text = line[:_SHOWN].decode("utf-8", "replace").strip()
    return repr(text) + (" ..." if len(line) > _SHOWN else "")


def _cut_off(line: bytes, number: int) -> events.InvalidHistoryError:
    if len(line) >= LONGEST_LINE:
        return events.InvalidHistoryError(f"longer than {LONGEST_LINE} bytes; an event is one short line", number)
    return events.InvalidHistoryError(
        f"cut off after {len(line)} bytes: the last line has no end, and no footer follows; it reads {_start(line)}",
        number,
    )


def write_events(stream: BinaryIO, source: Iterable[events.Event]) -> None:
    """Write the events, one per line, without checking them: for histories that are not recorded by a
    `HistoryWriter`."""
    encode = msgspec.json.Encoder().encode
    for event in source:
        stream.write(encode(event))
        stream.write(b"\n")


class HistoryWriter(Closing):
    """Records a history. Times come from `clock`, under the lock that also orders the lines."""

    def __init__(self, stream: BinaryIO | Path, header: events.Header, *, clock: Callable[[], int]) -> None:
        self._owned = isinstance(stream, Path)
        self._stream: BinaryIO = stream.open("wb") if isinstance(stream, Path) else stream
        self._clock = clock
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(events.Counts.__struct_fields__, 0)
        self._tables: dict[str, int] = {}
        self._next_id = 0
        self._complete = False
        self._write(header)

    @property
    def tables(self) -> frozenset[str]:
        """All tables that the history names so far."""
        return frozenset(self._tables)

    def invoke(self, client: str, table: str, request: events.Request) -> int:
        """Record a request, just before it is sent. Returns its number, for `ended`."""
        with self._lock:
            number = self._number(table)
            self._count(
                "invoke", events.Invoke(at=self._clock(), id=number, client=client, table=table, request=request)
            )
            return number

    def ended(self, number: int, answer: events.Answer) -> None:
        """Record an answer, just after it arrived or the client stopped waiting (`Unknown`)."""
        with self._lock:
            at = self._clock()
            if isinstance(answer, events.Unknown):
                self._count("info", events.Info(at=at, id=number, answer=answer))
            elif isinstance(answer, events.Refusal):
                self._count("fail", events.Fail(at=at, id=number, answer=answer))
            else:
                self._count("ok", events.Ok(at=at, id=number, answer=answer))

    def fault(self, kind: str, *, client: str = "", note: str = "") -> None:
        with self._lock:
            self._count("fault", events.Fault(at=self._clock(), kind=kind, client=client, note=note))

    def now(self) -> int:
        """The start time of a listing, for `look`."""
        return self._clock()

    def look(
        self, table: str, since: int, published: Iterable[events.PublishedFile] = (), absent: Iterable[int] = ()
    ) -> int:
        """Record an external observer's listing of published files that began at `since` and ends now. Returns its
        number."""
        with self._lock:
            number = self._number(table)
            look = events.FileLook(
                since=since, at=self._clock(), id=number, table=table, published=tuple(published), absent=tuple(absent)
            )
            self._count("fs", look)
            return number

    @property
    def operations(self) -> int:
        """The number of requests and listings so far."""
        return self._counts["invoke"] + self._counts["fs"]

    def witness(self, version: events.Witness) -> None:
        """Record one version of a final log: in ascending order, after all other events."""
        with self._lock:
            self._tables[version.table] = self._tables.get(version.table, 0) + 1
            self._count("witness", version)

    def unseen(self, table: events.Unseen) -> None:
        """Record that a table's final log could not be read, instead of its witnesses."""
        with self._lock:
            self._tables.setdefault(table.table, 0)
            self._count("unseen", table)

    def complete(self) -> None:
        """Write the footer: the history is complete, with the final log of every table."""
        with self._lock:
            self._still_open("footer")
            footer = events.Footer(counts=events.Counts(**self._counts), tables=dict(self._tables), complete=True)
            self._write(footer)
            self._stream.flush()
            self._complete = True

    def close(self) -> None:
        if self._owned:
            self._stream.close()

    def _number(self, table: str) -> int:
        self._next_id += 1
        self._tables.setdefault(table, 0)
        return self._next_id

    def _count(self, kind: str, event: events.Event) -> None:
        self._still_open(kind)
        self._counts[kind] += 1
        self._write(event)

    def _still_open(self, kind: str) -> None:
        if self._complete:
            raise ValueError(f"the history is complete; no `{kind}` can follow its footer")

    def _write(self, event: events.Event) -> None:
        self._stream.write(safe_text.to_json(event) + b"\n")
