"""The history of a scenario: requests and answers, listings of the files, and the final log.

Time is a count of events, so that the same answers give the same bytes.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Final

from conformance.checkers.check import HistoryVerdict, check_events
from conformance.history import digests, events, translation
from conformance.history.files import HistoryWriter, read_events
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
        """Contents of commits that were proposed or seen, as files or actions: the history has their digests only."""
        ticks = count(1)
        self._writer = HistoryWriter(self._stream, header, clock=clock or (lambda: next(ticks)))

    @property
    def operations(self) -> int:
        """Requests so far, looks at files included."""
        return self._writer.operations

    @property
    def tables(self) -> frozenset[str]:
        """All tables of requests, by their names in the history."""
        return self._writer.tables

    def invoke(self, client: str, table: str, request: m.Request) -> int:
        """Just before a request is sent. The number of the operation, in the history and for its answer."""
        if actions := getattr(request, "actions", None):
            self.texts.append(tuple(actions))
        about = translation.request(request) or events.Other(name="observe")
        return self._writer.invoke(client, table, about)

    def ended(self, number: int, request: m.Request, answer: m.Answer) -> bool:
        """Just after the answer. Whether such a request can have such an answer: if not, the record says unknown."""
        self.seen(commits=getattr(answer, "commits", None) or ())
        if translation.request(request) is None:
            named: events.Answer | None = events.Done()
        else:
            named = translation.answer(request, answer)
        self._writer.ended(number, named or events.Unknown(reason=f"no answer to this request: {answer}"[:200]))
        return named is not None

    def lost(self, number: int, why: str) -> None:
        """No client receives the answer."""
        self._writer.ended(number, events.Unknown(reason=why))

    def fault(self, kind: str, client: str = "", note: str = "") -> None:
        self._writer.fault(kind, client=client, note=note)

    def now(self) -> int:
        return self._writer.now()

    def look(self, table: str, since: int, files: Iterable[m.LogFile], absent: Iterable[int] = ()) -> int:
        """What an `observe` that began at `since` showed. `absent`: versions that were looked for one by one."""
        files = list(files)
        self.seen(files=files)
        return self._writer.look(table, since, translation.published(files), absent)

    def seen(self, files: Iterable[m.LogFile] = (), commits: Iterable[m.CommitEntry] = ()) -> None:
        """Keep the contents."""
        self.texts += [file.content for file in files if file.content is not None and version_of(file.name) is not None]
        self.texts += [tuple(commit.actions) for commit in commits if commit.actions]

    def difference(self, message: str) -> str:
        """The difference of the contents whose digests the message has; empty if they are not known."""
        wanted = dict.fromkeys(_DIGEST.findall(message))
        if len(wanted) != 2:
            return ""
        found: dict[str, list[str]] = {}
        for text in self.texts:
            actions = lines(text) if isinstance(text, str) else list(text)
            for digest in _digests(text, actions):
                if digest[:12] in wanted:
                    found.setdefault(digest[:12], actions)
        one, other = (found.get(each) for each in wanted)
        return "" if one is None or other is None else different_action("the first has", one, "the second", other)

    def final_log(self, versions: Iterable[events.Witness]) -> None:
        for version in versions:
            self._writer.witness(version)

    def unseen(self, table: events.Unseen) -> None:
        self._writer.unseen(table)

    def complete(self) -> None:
        self._writer.complete()

    @property
    def text(self) -> str:
        """The history, JSON Lines."""
        return self._stream.getvalue().decode("utf-8")

    def judge(self) -> HistoryVerdict:
        """What the checkers say of it. Raises `InvalidHistoryError` if it was not completed."""
        return check_events(list(read_events(io.BytesIO(self._stream.getvalue()))))


def _digests(text: str | tuple[str, ...], actions: list[str]) -> Iterator[str]:
    """All that a history may have in the place of the content."""
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
    """The final log of a table: of every version its published file, else what its owner lists.

    `before`: so many versions, from 0 on, were there before the history. `ownership`: attempts that changed the owner,
    which became commits by becoming visible.
    """
    found = final_contents(published, listed)
    changes = set(ownership)
    log = []
    for version, (attempt, content) in sorted(found.items()):
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
    """By version: the attempt and the content of every commit, from its published file, else as its owner lists it."""
    files = list(published)
    by_name = {file.name: file.content for file in files}
    found: dict[int, tuple[str | None, str | None]] = {}
    for commit in listed:
        found[commit.version] = _listed(commit, by_name)
    for file in translation.published(files):
        content = by_name[commit_file(file.version)]
        found[file.version] = (None if content is None else attempt_of(content), content)
    return found


def _listed(commit: m.CommitEntry, files: dict[str, str | None]) -> tuple[str | None, str | None]:
    """The attempt and the content of a commit that an owner lists."""
    if commit.actions is not None:
        content = "".join(f"{action}\n" for action in commit.actions)
        return attempt_of(content), content
    if commit.file_name is None:
        return None, None
    staged = next((content for name, content in files.items() if name.endswith(f"/{commit.file_name}")), None)
    # A client under test names its staged files itself; the kit identifies its commit by its marker.
    return (attempt_of(staged) if staged else None) or log_names.attempt_of(commit.file_name), staged
