"""Watches the log folders of a subject while requests are under way: in which order published files appear, and
whether they change afterwards.

    with Watch(subject) as watch:
        answer = watch.ask(client, request)     # in place of `subject.ask`
        events = watch.events()

It needs nothing of the subject but a log in a folder of this machine, and Linux, whose inotify reports changes in their
order. `blind` says why the order is unknown; then a subject is judged by listings alone.
"""

import hashlib
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from conformance.adapters.log_folder import LogFolder
from conformance.interface import messages as m
from conformance.interface.log_names import LOG, commit_file, version_of
from conformance.interface.subject import Ask, Subject
from conformance.models import proposals
from conformance.oracle import folder as rules
from conformance.oracle.folder import Call, Event, Kind
from conformance.oracle.owner import Contract, Wrong
from conformance.scenario.scenario import TableHandle

if TYPE_CHECKING:
    from inotify_simple import INotify

MOST_FOLDERS: Final = 4096
"""The most folders that a subject may have at first, and that its logs may have at a time."""


class Watch:
    """A subject whose log folders are watched. Safe for threads if the subject is."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.identity = subject.identity
        self.blind = ""
        """What keeps the watch from seeing all events; empty if nothing does."""
        self.answers: dict[m.AttemptId, tuple[m.TableRef | None, m.Answer]] = {}
        """The last answer to each proposal."""
        self.dropped: dict[m.TableRef, int] = {}
        """`Event.at` when the drop of a table was answered."""
        self._lock = Lock()
        self._events: list[Event] = []
        self._open: list[Call] = []
        self._answered = 0
        self._unread: deque[Any] = deque()
        """Events of inotify."""
        self._folders: dict[int, Path] = {}
        """Watched folders, by watch descriptor."""
        self._logs: dict[Path, set[m.Version]] = {}
        """The published versions of each log folder."""
        self._seen = False
        """Whether any log was watched."""
        self._ratified = False
        """Whether any commit was ratified: without one there may be no log."""
        self._placed = False
        """Whether a table's location is below a watched folder, so that later ones need not be looked up."""
        self._places: dict[m.TableRef, Path] = {}
        """The known log folders of tables."""
        self._inotify = self._start()
        for root in (getattr(subject, "directory", None), subject.identity.storage):
            self.add(root)

    def _start(self) -> "INotify | None":
        if sys.platform != "linux":
            self.blind = "only Linux reports the order of changes"
            return None
        try:
            from inotify_simple import INotify
        except ImportError:
            self.blind = "inotify_simple is not installed (pip install inotify_simple)"
            return None
        try:
            return INotify()
        except OSError as error:
            self.blind = f"inotify: {error}"
            return None

    @property
    def unknown(self) -> str:
        """Why the order of events is not known; empty if it is."""
        return self.blind or ("" if self._seen or not self._ratified else "the table's log is not in a local folder")

    def begin(self) -> None:
        """Forget the logs of earlier programs."""
        with self._lock:
            self._drain()
            self._events, self._places, self.answers, self.dropped = [], {}, {}, {}
            over = {*self._logs, *(log.parent for log in self._logs)}
            for watched, folder in list(self._folders.items()):
                if folder in over and self._inotify is not None:
                    del self._folders[watched]
                    with suppress(OSError):  # the folder is gone
                        self._inotify.rm_watch(watched)
            self._logs.clear()

    # The subject

    def __getattr__(self, name: str) -> Any:
        return getattr(self.subject, name)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop watching. The subject stays open."""
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def ask(self, client: str, request: m.Request) -> m.Answer:
        """The subject's answer. Changes until then have this request as one that was under way. The kit itself plants
        and removes files of a subject that only lets itself be watched."""
        own = isinstance(request, m.Plant | m.Remove) and self.can_plant(request.table)
        return self._watched(self._change_file if own else self.subject.ask, client, request)

    def place(self, table: m.TableRef, log: str) -> None:
        """Learn the log folder of a table."""
        self._places[table] = Path(log)

    def can_plant(self, table: m.TableRef) -> bool:
        """Whether the kit itself can change the files of this table."""
        return "storage-access" not in self.identity.profiles and table in self._places

    def _change_file(self, _client: str, request: m.Request) -> m.Answer:
        assert isinstance(request, m.Plant | m.Remove)
        log = LogFolder(self._places[request.table].parent)
        return log.plant(request) if isinstance(request, m.Plant) else log.remove(request.file)

    @property
    def lose(self) -> Ask | None:
        """The subject's own way to lose an answer, if it has one."""
        lose: Ask | None = getattr(self.subject, "lose", None)
        return None if lose is None else lambda client, request: self._watched(lose, client, request)

    def _watched(self, ask: Ask, client: str, request: m.Request) -> m.Answer:
        call = Call(client, request)
        with self._lock:
            self._drain()
            self._open.append(call)
            reference = getattr(request, "table", None)
            before = self.answers.get(getattr(request, "attempt", ""))
            if before is not None and before[0] != reference:  # the attempt is sent to another table
                del self.answers[getattr(request, "attempt", "")]
        answer: m.Answer = m.Unknown(reason="no answer")
        try:
            answer = ask(client, request)
        finally:
            with self._lock:
                self._drain()
                self._open = [other for other in self._open if other is not call]
                self._heard(request, answer)
        self._place(request, answer)
        return answer

    def _heard(self, request: m.Request, answer: m.Answer) -> None:
        self._answered += 1
        self._ratified |= isinstance(answer, m.Ratified)
        attempt = getattr(request, "attempt", None)
        if attempt is not None and not isinstance(request, m.AttemptOutcome):
            self.answers[attempt] = getattr(request, "table", None), answer
        if isinstance(request, m.DropTable) and isinstance(answer, m.Done):
            self.dropped[request.table] = self._answered

    # Folders

    def _place(self, request: m.Request, answer: m.Answer) -> None:
        """Watch the folder of a table that was found or created, if it is no folder of the subject's."""
        if self._inotify is None:
            return
        if isinstance(request, m.CreateTable) and isinstance(answer, m.Ratified) and not self._placed:
            if "discovery" not in self.identity.profiles:
                self._placed = True
                return
            answer = self.subject.ask("kit", m.LoadTable(name=request.name))
        if isinstance(answer, m.Table) and answer.location is not None:
            location = local_folder(answer.location)
            below = location is not None and any(folder in location.parents for folder in self._folders.values())
            self._placed |= below
            if not below:
                self.add(answer.location)

    def add(self, root: Path | str | None) -> None:
        """Watch a folder and all folders below it, if it is one of this machine."""
        folder = local_folder(root)
        if folder is not None and self._inotify is not None:
            with self._lock:
                self._add(folder)

    def _add(self, folder: Path) -> None:
        """The watch comes first: what the listing shows besides is from before it, or in an order that is unknown."""
        from inotify_simple import flags

        assert self._inotify is not None
        mask = flags.CREATE | flags.MOVED_TO | flags.ONLYDIR
        if folder.name == LOG:
            mask |= flags.MOVED_FROM | flags.DELETE | flags.MODIFY
        if len(self._folders) >= MOST_FOLDERS:
            self.blind = f"the subject has more than {MOST_FOLDERS} folders"
            return
        try:
            watched = self._inotify.add_watch(folder, mask)
            if self._folders.get(watched) == folder:
                return
            self._folders[watched] = folder
            entries = list(folder.iterdir())
        except FileNotFoundError:
            return
        except OSError as error:
            self.blind = f"{folder.name}: {error.strerror}"
            return
        if folder.name == LOG:
            self._list(folder, entries)
            return
        for entry in entries:
            if entry.is_dir() and not entry.is_symlink():
                self._add(entry)

    def _list(self, folder: Path, entries: Iterable[Path]) -> None:
        """The files that were there before the watch. Their events so far say nothing more."""
        versions = sorted(version for entry in entries if (version := _version(entry)) is not None)
        self._logs[folder], self._seen = set(versions), True
        for version in versions:
            self._note(Kind.LISTED, folder, version)
        self._read()
        self._unread = deque(
            event for event in self._unread
            if self._folders.get(event.wd) != folder or version_of(event.name) not in self._logs[folder]
        )  # fmt: skip

    # Events

    def events(self) -> list[Event]:
        """The events since the last call, in their order."""
        with self._lock:
            self._drain()
            events, self._events = self._events, []
        return events

    def _read(self) -> None:
        if self._inotify is not None:
            self._unread += self._inotify.read(timeout=0)

    def _drain(self) -> None:
        self._read()
        if not self._unread:
            return
        from inotify_simple import flags

        while self._unread:
            event = self._unread.popleft()
            if event.mask & flags.Q_OVERFLOW:
                self.blind = "there were more changes than the system can report"
                continue
            folder = self._folders.get(event.wd)
            if folder is None:
                continue
            if event.mask & flags.IGNORED:
                del self._folders[event.wd]
                self._logs.pop(folder, None)
            elif event.mask & flags.ISDIR:
                if event.mask & (flags.CREATE | flags.MOVED_TO) and folder.name != LOG:
                    self._add(folder / event.name)
            elif folder in self._logs and (version := version_of(event.name)) is not None:
                self._change(folder, version, event.mask)

    def _change(self, folder: Path, version: m.Version, mask: int) -> None:
        from inotify_simple import flags

        present = self._logs[folder]
        if mask & flags.MODIFY:
            kind = Kind.MODIFIED
        elif mask & (flags.DELETE | flags.MOVED_FROM):
            present.discard(version)
            kind = Kind.REMOVED
        else:
            kind = Kind.REPLACED if version in present else Kind.APPEARED
            present.add(version)
        self._note(kind, folder, version)

    def _note(self, kind: Kind, folder: Path, version: m.Version) -> None:
        content = b""
        if kind is not Kind.REMOVED:
            with suppress(OSError):
                content = (folder / commit_file(version)).read_bytes()
        text = content.partition(b"\n")[0].decode("utf-8", "surrogateescape")
        name, attempt = commit_file(version), proposals.attempt_of(text)
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        planted = any(getattr(call.request, "file", None) == name for call in self._open)
        self._events.append(
            Event(
                kind=kind, log=str(folder), version=version, at=self._answered, during=tuple(self._open),
                attempt=attempt, answer=self.answers.get(attempt or "", (None, None))[1], content=digest,
                by_kit=planted,
            )
        )  # fmt: skip


class Table(Protocol):
    """A table of a program."""

    @property
    def handle(self) -> TableHandle: ...

    @property
    def sent(self) -> Sequence[m.Commit | m.CreateTable | m.TakeOver | m.HandBack]: ...

    @property
    def newest(self) -> m.Version: ...


T = TypeVar("T", bound=Table)


class Logs(Generic[T]):
    """The log folders of one program, whose events are judged. A folder belongs to the table that proposed one of its
    files; folders without a table are those of other users of the subject."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._files: dict[str, rules.Files] = {}
        self._tables: dict[str, T] = {}

    def judge(self, event: Event, tables: Iterable[T], watch: Watch) -> tuple[T | None, Wrong | None]:
        """The event's table, if it is known, and the reason why the event is not possible."""
        files = self._files.get(event.log, {})
        self._files[event.log] = rules.after(files, event)
        for table in tables:
            if event.attempt is not None and any(sent.attempt == event.attempt for sent in table.sent):
                self._tables[event.log] = table
        found = self._tables.get(event.log)
        if found is None:
            return None, None
        watch.place(found.handle.reference, event.log)
        wrong = rules.judge(
            files, self._contract, event, newest=found.newest,
            dropped=watch.dropped.get(found.handle.reference),
        )  # fmt: skip
        return found, wrong


def local_folder(location: Path | str | None) -> Path | None:
    """The folder of this machine that a location names, as a path or URI, or None."""
    if location is None:
        return None
    if isinstance(location, str):
        parts = urlsplit(location)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            location = unquote(parts.path)
        elif parts.scheme:
            return None
    folder = Path(location)
    with suppress(OSError):
        if folder.is_absolute() and folder.is_dir():
            return folder.resolve()
    return None


def _version(entry: Path) -> m.Version | None:
    return version_of(entry.name) if entry.is_file() else None
