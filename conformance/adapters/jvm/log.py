"""Translates between Delta's names and the names in the documents, which the kit uses. Behaviour is never translated.

Delta 4 ships managed commits as the feature `coordinatedCommits-preview`. Other properties than the document's name the
owner, and staged files lie in `_staged_commits`, under a uuid that the coordinator chooses. The kit identifies a commit
by its attempt, the `txnId` of its commitInfo, and a file by the name that the document gives it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final

from conformance.adapters.log_folder import LogFolder

OWNER: Final = "delta.managedCommit.commitOwner"
NAME: Final = "delta.coordinatedCommits.commitCoordinator-preview"
CONF: Final = "delta.coordinatedCommits.commitCoordinatorConf-preview"
TABLE_CONF: Final = "delta.coordinatedCommits.tableConf-preview"
STAGING: Final = "_staged_commits"
STAGING_OF_THE_DOCUMENT: Final = "_commits"
DIGITS: Final = 20


def published_name(version: int) -> str:
    return f"{version:0{DIGITS}}.json"


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text("utf-8").split("\n") if line]


def owned(action: str, coordinator: str, table_conf: Mapping[str, str]) -> str:
    """A metaData action with the properties that make the coordinator the owner; any other action unchanged. Raises
    `ValueError` for a text that is no action."""
    parsed = _parsed(action)
    if "metaData" not in parsed:
        return action
    configuration = parsed["metaData"].setdefault("configuration", {})
    configuration.update(
        {OWNER: coordinator, NAME: coordinator, CONF: "{}", TABLE_CONF: json.dumps(dict(table_conf), sort_keys=True)}
    )
    return json.dumps(parsed, separators=(",", ":"))


def table_conf(actions: Iterable[str]) -> dict[str, str]:
    """The table configuration in the newest metaData of these actions: the coordinator's answer when the table was
    registered. Raises `ValueError`."""
    found: dict[str, str] = {}
    for action in actions:
        configuration = (_parsed(action).get("metaData") or {}).get("configuration") or {}
        if TABLE_CONF in configuration:
            found = json.loads(configuration[TABLE_CONF])
    return found


def has_owner(actions: Iterable[str]) -> bool:
    """Whether the newest metaData of these actions names a coordinator. Raises `ValueError`."""
    newest = of_kind(actions, "metaData")
    return newest is not None and NAME in (_parsed(newest)["metaData"].get("configuration") or {})


def of_kind(actions: Iterable[str], kind: str) -> str | None:
    """The last action of that kind. Raises `ValueError`."""
    return next((action for action in reversed(list(actions)) if kind in _parsed(action)), None)


def attempt_in(content: str) -> str | None:
    """The attempt of the commit; None if it has no `txnId`."""
    try:
        info = _parsed(content.partition("\n")[0]).get("commitInfo")
    except ValueError:
        return None
    attempt = info.get("txnId") if isinstance(info, dict) else None
    return attempt if isinstance(attempt, str) and attempt else None


def _parsed(action: str) -> dict[str, Any]:
    body = json.loads(action)
    if not isinstance(body, dict):
        raise ValueError(f"{action[:60]!r} is no action")  # noqa: TRY004 - the content is wrong, not the call
    return body


# Files


class Log(LogFolder):
    """The files of one table. A staged file gets its name for the kit when it is first seen, because the kit may change
    its content later. The name stays, unless another file of the same attempt turns out to be the commit."""

    def __init__(self, location: Path) -> None:
        super().__init__(location)
        self._shown: dict[str, str] = {}
        """For the real name of each staged file, its name for the kit."""
        self._of_attempt: dict[str, str] = {}
        """For the real name of each staged file, the document's name for the commit of its attempt."""

    def make(self) -> None:
        """Make the folders, as Delta's client does before the first commit."""
        (self.folder / STAGING).mkdir(parents=True, exist_ok=True)

    def published(self, version: int) -> Path:
        return self.folder / published_name(version)

    def commit(self, version: int) -> list[str] | None:
        """The actions of a published commit."""
        try:
            return _lines(self.published(version))
        except FileNotFoundError:
            return None

    def actions(self) -> list[str]:
        """Of all published commits, in order."""
        return [line for path in sorted(self.folder.glob("*.json")) for line in _lines(path)]

    # Names

    def name_of(self, real: str) -> str:
        """The kit's name for a staged file: `<version>.<attempt>.json`. If an attempt has several files, the committed
        file has that name, and the others keep their own. Until a commit is known, the first file has it."""
        self.meet()
        return self._shown.get(real, real)

    def ratified(self, real: str) -> None:
        """Record that this file is a commit. Its attempt may have other files: a coordinator stages a new file for each
        request, and leaves the file of a rejected request there."""
        self.meet()
        wanted = self._of_attempt.get(real)
        if wanted is not None and self._shown[real] != wanted:
            self._shown = {name: name if shown == wanted else shown for name, shown in self._shown.items()}
            self._shown[real] = wanted

    def meet(self) -> None:
        """Give names to new staged files. Called after each commit, while their contents are unchanged since
        staging."""
        folder = self.folder / STAGING
        with contextlib.suppress(FileNotFoundError):
            for name in sorted({path.name for path in folder.iterdir()} - self._shown.keys()):
                version, _, rest = name.partition(".")
                if not rest.endswith(".json"):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    content = (folder / name).read_bytes().decode("utf-8", "surrogateescape")
                    attempt = attempt_in(content)
                    wanted = f"{version}.{attempt}.json"
                    free = attempt is not None and wanted not in self._shown.values()
                    self._shown[name] = wanted if free else name
                    if attempt is not None:
                        self._of_attempt[name] = wanted

    def path(self, file: str) -> Path:
        """The path of the file with this name in the document. Raises `OutsideError`."""
        path = PurePosixPath(file)
        if not path.parts or path.parts[0] != STAGING_OF_THE_DOCUMENT:
            return super().path(file)
        self.meet()
        name = next((real for real, shown in self._shown.items() if shown == path.name), path.name)
        return super().path("/".join((STAGING, *path.parts[1:-1], name)))

    def shown(self, path: PurePath) -> str:
        if path.parts[0] != STAGING:
            return path.as_posix()
        return "/".join((STAGING_OF_THE_DOCUMENT, *path.parts[1:-1], self.name_of(path.name)))


@contextlib.contextmanager
def unreadable(log: Path) -> Iterator[None]:
    """Hide the staged files of the log while this context is open."""
    staged, aside = log / STAGING, log.with_name(".out-of-sight")
    aside.mkdir()
    for path in sorted(staged.glob("*.json")):
        path.replace(aside / path.name)
    try:
        yield
    finally:
        for path in sorted(aside.iterdir()):
            path.replace(staged / path.name)
        aside.rmdir()
