"""Whether the versions of a table can be found in what an owner lists and what a stranger sees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from conformance.adapters import wire
from conformance.history.translation import attempt_of
from conformance.interface import messages as m

FOLDER: Final = "_delta_log/"


class Log:
    """An answer to `get_commits` with one to `observe` just after it."""

    class UnreadableError(Exception):
        """The kit cannot make sense of an answer."""

    class WrongError(Exception):
        """A ratified commit is nowhere, or is another one."""

    def __init__(self, listed: m.Commits, seen: m.Observation) -> None:
        self._listed = {commit.version: commit for commit in listed.commits}
        self._files = {file.name: file for file in seen.files}

    def check_names(self) -> None:
        """Raises `UnreadableError` for names that are not relative to the log folder, and sizes that are not bytes."""
        for name, file in self._files.items():
            if name.startswith(("/", "./")) or FOLDER in name:
                right = name.rpartition(FOLDER)[2].lstrip("./")
                raise self.UnreadableError(
                    f"`observe` names the file {wire.shown(name)}; names are relative to the log folder: {right!r}"
                )
            if file.content is not None and file.size != len(file.content.encode("utf-8", "surrogatepass")):
                raise self.UnreadableError(f"`observe` says that {name!r} has {file.size} bytes, and shows others")

    def check_version(self, version: int, attempt: str, actions: Sequence[str]) -> None:
        """Raises `WrongError` if the version is not there, or is not what was ratified; `UnreadableError` if nobody can
        tell."""
        published = f"{version:020}.json"
        commit = self._listed.get(version)
        if published in self._files:
            self._check_content(published, attempt, actions if version else None)
        elif commit is None:
            seen = ", ".join(sorted(self._files)[:10]) or "nothing"
            raise self.WrongError(
                f"version {version} was ratified, and is neither listed by `get_commits` nor published: there is no "
                f"{published!r} (`observe` shows {seen})"
            )
        elif commit.actions is not None:
            self._check_actions(commit.actions, attempt, actions if version else None, f"version {version}, inline,")
        else:
            self._check_staged(version, commit.file_name, attempt, actions if version else None)

    def _check_staged(self, version: int, name: str | None, attempt: str, actions: Sequence[str] | None) -> None:
        if name is None:
            raise self.WrongError(
                f"`get_commits` lists version {version} with neither `file_name` nor `actions`, and it is not published"
            )
        if attempt_of(name) != attempt:
            named = name.startswith(f"{version:020}.") and attempt_of(name) is not None
            raise (self.WrongError if named else self.UnreadableError)(
                f"`get_commits` lists version {version} as the file {name!r}. A staged file of the kit's proposals is "
                f"named `<version with 20 digits>.<attempt>.json`, here '{version:020}.{attempt}.json'"
            )
        places = [found for found in self._files if found.endswith(f"/{name}")]
        if not places:
            seen = ", ".join(sorted(self._files)[:10]) or "nothing"
            raise self.WrongError(
                f"`get_commits` lists the staged file {name!r}, and `observe` shows no such file in a staging folder "
                f"(it shows {seen})"
            )
        self._check_content(places[0], attempt, actions)

    def _check_content(self, name: str, attempt: str, actions: Sequence[str] | None) -> None:
        content = self._files[name].content
        if content is None:
            raise self.UnreadableError(f"`observe` was asked for contents, and shows none of {name!r}")
        self._check_actions(content.splitlines(), attempt, actions, f"the file {name!r}")

    def _check_actions(self, found: Sequence[str], attempt: str, proposed: Sequence[str] | None, where: str) -> None:
        """`proposed` None: an owner may add to it, so that only its first action is compared."""
        try:
            parsed = [json.loads(line) for line in found]
            first: Any = parsed[0]["commitInfo"]["txnId"]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            text = wire.shown("\n".join(found))
            raise self.WrongError(
                f"{where} is not the actions that were proposed, one a line, commitInfo first: {text}"
            ) from error
        if first != attempt:
            raise self.WrongError(f"{where} is the commit of the attempt {first!r}, and {attempt!r} was ratified")
        if proposed is not None and parsed != [json.loads(action) for action in proposed]:
            raise self.WrongError(f"{where} holds other actions than those that were proposed and ratified")
