"""The history of a scenario: requests and answers, listings of the files, and the final log.

Times are counts of events, so that the same answers give the same bytes.
"""

import contextlib
import io
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, Final

from conformance.history import digests, events, translation
from conformance.history.files import HistoryWriter, read_events
from conformance.history_checkers.check import HistoryVerdict, check_events
from conformance.interface import log_names
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file, version_of
from conformance.models.proposals import attempt_of, lines
from conformance.scenario.formatting import different_action

_DIGEST: Final = re.compile(r"\b([0-9a-f]{12})\.\.\.")
"""The short name of a content in messages."""
NOWHERE = "-"
"""The table name of requests without a table."""


class Recording:
    """Writes one history. Every method may be called from several threads if `clock` may."""

    def __init__(self, header: events.Header, clock: Callable[[], int] | None = None) -> None:
        self._stream = io.BytesIO()
        self.texts: list[str | tuple[str, ...]] = []
        """Contents of commits that were proposed or observed, as files or actions: the history has only their
        digests."""
        ticks = count(1)
        self.writer = HistoryWriter(self._stream, header, clock=clock or (lambda: next(ticks)))

    def invoke(self, client: str, table: str, request: m.Request) -> int:
        """Record a request, just before it is sent. Returns the number of the operation."""
        if actions := getattr(request, "actions", None):
            self.texts.append(tuple(actions))
        about = translation.request(request) or events.Other(name="observe")
        return self.writer.invoke(client, table, about)

    def ended(self, number: int, request: m.Request, answer: m.Answer) -> bool:
        """Record an answer, just after it arrived. Returns whether it is valid for the request; otherwise `unknown` is
        recorded."""
        self.seen(commits=getattr(answer, "commits", None) or ())
        if translation.request(request) is None:
            named: events.Answer | None = events.Done()
        else:
            named = translation.answer(request, answer)
        self.writer.ended(number, named or events.Unknown(reason=f"not a valid answer to this request: {answer}"[:200]))
        return named is not None

    def lost(self, number: int, why: str) -> None:
        """Record that no client receives the answer."""
        self.writer.ended(number, events.Unknown(reason=why))

    def look(self, table: str, since: int, files: Iterable[m.LogFile], absent: Iterable[int] = ()) -> int:
        """Record the result of an `observe` that began at `since`. `absent`: versions that were looked up one by
        one."""
        files = list(files)
        self.seen(files=files)
        return self.writer.look(table, since, translation.published(files), absent)

    def seen(self, files: Iterable[m.LogFile] = (), commits: Iterable[m.CommitEntry] = ()) -> None:
        """Store the contents."""
        self.texts += [file.content for file in files if file.content is not None and version_of(file.name) is not None]
        self.texts += [tuple(commit.actions) for commit in commits if commit.actions]

    def difference(self, message: str) -> str:
        """The difference between the contents whose digests are in the message; empty if they are unknown."""
        wanted = dict.fromkeys(_DIGEST.findall(message))
        if len(wanted) != 2:
            return ""
        by_digest: dict[str, list[str]] = {}
        for text in self.texts:
            actions = lines(text) if isinstance(text, str) else list(text)
            for digest in _digests(text, actions):
                if digest[:12] in wanted:
                    by_digest.setdefault(digest[:12], actions)
        first, second = (by_digest.get(digest) for digest in wanted)
        return "" if first is None or second is None else different_action("the first has", first, "the second", second)

    def final_log(self, versions: Iterable[events.Witness]) -> None:
        for version in versions:
            self.writer.witness(version)

    @property
    def text(self) -> str:
        """The history, JSON Lines."""
        return self._stream.getvalue().decode("utf-8")

    def judge(self) -> HistoryVerdict:
        """The verdict of the checkers. Raises `InvalidHistoryError` if the history is incomplete."""
        return check_events(list(read_events(io.BytesIO(self._stream.getvalue()))))


def _digests(text: str | tuple[str, ...], actions: list[str]) -> Iterator[str]:
    """All digests by which a history may represent the content."""
    if isinstance(text, str):
        yield digests.of_bytes(text.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(ValueError):
        yield digests.of_actions(actions)


def witnesses(
    table: str,
    published: Iterable[m.LogFile],
    listed: Iterable[m.CommitEntry],
    *,
    commit_mode: str,
    before: int = 0,
    ownership: Iterable[str] = (),
) -> list[events.Witness]:
    """The final log of a table: for every version its published file, otherwise the owner's entry.

    `before`: the number of versions, from 0 on, that existed before the history. `ownership`: attempts that changed the
    owner, which became commits by becoming visible.
    """
    contents = final_contents(published, listed)
    changes = set(ownership)
    log = []
    for version, (attempt, content) in sorted(contents.items()):
        how = "ownership" if attempt in changes else commit_mode if version > 0 else None
        log.append(
            events.Witness(
                table=table,
                version=version,
                attempt=None if version < before else attempt or f"unknown attempt of version {version}",
                before=version < before,
                commit_mode=how,  # type: ignore[arg-type]
                content=None if content is None else digests.of_file(content.encode("utf-8", "surrogatepass")),
            )
        )
    return log


def final_contents(
    published: Iterable[m.LogFile], listed: Iterable[m.CommitEntry]
) -> dict[int, tuple[str | None, str | None]]:
    """The attempt and the content of every commit, by version, from its published file or else from the owner's
    list."""
    files = list(published)
    by_name = {file.name: file.content for file in files}
    contents: dict[int, tuple[str | None, str | None]] = {}
    for commit in listed:
        contents[commit.version] = _listed(commit, by_name)
    for file in translation.published(files):
        content = by_name[commit_file(file.version)]
        contents[file.version] = (None if content is None else attempt_of(content), content)
    return contents


def _listed(commit: m.CommitEntry, files: dict[str, str | None]) -> tuple[str | None, str | None]:
    """The attempt and the content of a commit that an owner lists."""
    if commit.actions is not None:
        content = "".join(f"{action}\n" for action in commit.actions)
        return attempt_of(content), content
    if commit.file_name is None:
        return None, None
    staged = next((content for name, content in files.items() if name.endswith(f"/{commit.file_name}")), None)
    # A client under test chooses the names of its staged files; the kit identifies its commit by the marker.
    return (attempt_of(staged) if staged else None) or log_names.attempt_of(commit.file_name), staged


class Deferred:
    """A recording that is written only if it is read: the histories of programs that pass are not needed. It is its own
    `writer`. Not for concurrent clients."""

    def __init__(self, header: events.Header) -> None:
        self._header = header
        self._calls: list[tuple[str, tuple[Any, ...]]] = []
        self._ticks = 0
        self._made: Recording | None = None
        self.operations = 0
        """The number of requests and listings so far."""

    @property
    def writer(self) -> "Deferred":
        return self

    @property
    def made(self) -> Recording:
        """The recording with everything so far; later calls go to it."""
        if self._made is None:
            self._made = Recording(self._header)
            for name, arguments in self._calls:
                self._do(name, arguments)
        return self._made

    def _do(self, name: str, arguments: tuple[Any, ...]) -> Any:
        assert self._made is not None
        if name == "fault":
            kind, client, note = arguments
            return self._made.writer.fault(kind, client=client, note=note)
        return getattr(self._made.writer if name == "now" else self._made, name)(*arguments)

    def _note(self, name: str, *arguments: Any) -> Any:
        """Forward the call to the recording, if there is one; else keep it, and return its number as its time."""
        self._ticks += 1
        if self._made is not None:
            return self._do(name, arguments)
        self._calls.append((name, arguments))
        return self._ticks

    def invoke(self, client: str, table: str, request: m.Request) -> int:
        self.operations += 1
        self._note("invoke", client, table, request)
        return self.operations

    def ended(self, number: int, request: m.Request, answer: m.Answer) -> bool:
        self._note("ended", number, request, answer)
        return m.belongs(request, answer) and _is_possible(answer)

    def lost(self, number: int, why: str) -> None:
        self._note("lost", number, why)

    def look(self, table: str, since: int, files: Iterable[m.LogFile], absent: Iterable[int] = ()) -> int:
        self.operations += 1
        self._note("look", table, since, tuple(files), tuple(absent))
        return self.operations

    def fault(self, kind: str, *, client: str = "", note: str = "") -> None:
        self._note("fault", kind, client, note)

    def now(self) -> int:
        return int(self._note("now"))

    def __getattr__(self, name: str) -> Any:
        """Create the recording if there is none, and forward to it: all other methods complete or read the history."""
        if name.startswith("__"):
            raise AttributeError(name)
        made = self.made
        return getattr(made if hasattr(made, name) else made.writer, name)


def _is_possible(answer: m.Answer) -> bool:
    """Whether a history can name the versions in the answer."""
    versions = (getattr(answer, "version", None), getattr(answer, "latest", None))
    return all(version is None or -1 <= version <= translation.HIGHEST for version in versions)
