"""Owners that store, place or name the content of commits wrongly."""

import json
import re
import time
import unicodedata
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING, staged_file
from conformance.models.owner import Commit, Entries, ModelOwner, OwnedTable, content_of, time_of
from conformance.models.storage import FolderStorage, Storage
from conformance.mutants import mutant, mutant_functions, mutant_method, original

KNOWN = frozenset({"protocol", "metaData", "add", "remove", "txn", "commitInfo", "cdc", "domainMetadata"})


def _instead(request: m.Commit, actions: tuple[str, ...]) -> m.Commit:
    return m.Commit(table=request.table, version=request.version, attempt=request.attempt, actions=actions)


# All or nothing


class Rewrites(ModelOwner):
    """Changes the actions of every proposal before it stores them."""

    def rewritten(self, actions: tuple[str, ...]) -> tuple[str, ...]:
        raise NotImplementedError

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        if request.actions is not None:
            request = _instead(request, self.rewritten(request.actions))
        return super().commit(client, request)


def each_action(change: Callable[[str], str]) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """A function that changes each action of a proposal."""
    return lambda actions: tuple(map(change, actions))


class _StorageInPlace(FolderStorage):
    """Creates a version's file under its name, and writes it 1 ms later."""

    def put_if_absent(self, path: str, content: str, modified: int) -> bool:
        if Path(path).parent.name != LOG:
            return super().put_if_absent(path, content, modified)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            with Path(path).open("x") as file:
                time.sleep(0.001)
                file.write(content)
        except FileExistsError:
            return False
        return True


@mutant("MC-LOG-01", "CM-LOG-01")
class PublicationIsWrittenInPlace(ModelOwner):
    """Publishes a version by creating its file and then writing it, so that readers see a part."""

    def __init__(self, storage: Storage | None = None, directory: Path | None = None) -> None:
        super().__init__(storage if directory is None else _StorageInPlace(directory))


@mutant_method("commit", "MC-LOG-01", "CM-LOG-01", "MC-API-03", "CM-CATALOG-03")
def large_commits_are_split(self: ModelOwner, client: str, request: m.Commit) -> m.Answer:
    """Splits a commit with many actions into two versions."""
    if request.actions is None or len(request.actions) <= 3:
        return original(self).commit(client, request)
    answer = original(self).commit(client, _instead(request, request.actions[:3]))
    rest = m.Commit(table=request.table, version=request.version + 1, attempt=str(uuid.uuid5(uuid.NAMESPACE_OID,
                    request.attempt)), actions=(request.actions[0], *request.actions[3:]))  # fmt: skip
    original(self).commit(client, rest)
    return answer


CONTENT: Final = ("MC-API-03", "CM-CATALOG-03")


mutant_functions(
    "rewritten", Rewrites, *CONTENT,
    drops_unknown_actions=(
        "Drops unknown kinds of actions from a commit.",
        lambda actions: tuple(action for action in actions if set(json.loads(action)) <= KNOWN)),
    actions_are_cut_at_sixty_four_kibibytes=(
        "Stores the first 64 KiB of each action.",
        each_action(lambda action: action[: 1 << 16])),
    text_is_normalized=(
        "Stores text in a normal form of Unicode.",
        each_action(lambda action: unicodedata.normalize("NFC", action))),
    line_separators_end_actions=(
        "Takes every line separator of Unicode for the end of an action.",
        lambda actions: tuple(line for action in actions for line in action.splitlines())),
    strings_are_trimmed=(
        "Trims white space at both ends of strings.",
        each_action(lambda action: re.sub(r'(?<=:")\s+|(?<!\\)\s+(?=",)', "", action))),
    encoded_paths_are_decoded=(
        "Stores the decoded paths of data files.",
        each_action(lambda action: re.sub(r'"path":"[^"]*"', lambda path: unquote(path[0]), action))),
    last_of_doubled_keys_stays=(
        "Stores only the last value of a key that an action has twice.",
        each_action(lambda action: json.dumps(json.loads(action)))),
)  # fmt: skip


@mutant(*CONTENT)
class CharactersBeyondTheBmpAreReplaced(Rewrites):
    """Replaces characters that need four bytes in UTF-8."""

    highest = 0xFFFF

    def rewritten(self, actions: tuple[str, ...]) -> tuple[str, ...]:
        return tuple("".join("?" if ord(letter) > self.highest else letter for letter in action) for action in actions)


def schema_of(action: str) -> dict[str, Any] | None:
    """The schema of a `metaData` action; empty if it does not parse, None for another action."""
    metadata = json.loads(action).get("metaData")
    if metadata is None:
        return None
    try:
        return dict(json.loads(metadata["schemaString"]))
    except ValueError:
        return {}


@mutant_method("_content", "CM-PUBLISH-02", "CM-PUBLISH-03")
def large_numbers_are_rounded(self: ModelOwner, table: OwnedTable, commit: Commit) -> str:
    """Stores the numbers of inline commits as doubles."""
    if commit.actions is None:
        return original(self)._content(table, commit)
    return content_of(tuple(json.dumps(json.loads(action, parse_int=float)) for action in commit.actions))


@mutant_method("_record", "CM-PUBLISH-03", "MC-BACKFILL-01")
def later_commits_rewrite_earlier_ones(self: ModelOwner, table: OwnedTable, version: int, attempt: str) -> None:
    """Changes the content of the previous commit with every commit, to mark it as superseded."""
    original(self)._record(table, version, attempt)
    before = table.unbackfilled.get(version - 1)
    mark = json.dumps({"x-superseded": {"by": version}})
    if before is not None and before.actions is not None:
        before.actions = (*before.actions, mark)
    elif before is not None and before.staged_file is not None:
        path = self._staged_path(table, before.staged_file)
        file = self.storage.read(path)
        if file is not None:
            self.storage.put(path, f"{file.content}{mark}\n", file.modified)


# The form and the name of a published commit


@mutant("MC-LOG-05", "CM-LOG-02")
class CommitFileIsAnArray(ModelOwner):
    """Writes a published file as one JSON array of all actions."""

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        return _array(super()._content(table, commit).splitlines())

    def _publish_directly(self, table: OwnedTable, request: m.Commit) -> m.Answer:
        return super()._publish_directly(table, _instead(request, (_array(request.actions or ()).strip(),)))


def _array(actions: tuple[str, ...] | list[str]) -> str:
    return json.dumps([json.loads(action) for action in actions]) + "\n"


@mutant_method("_path", "MC-FILES-07", "CM-FILES-06", "LOG-01")
def published_name_is_not_padded(self: ModelOwner, table: OwnedTable, version: int) -> str:
    """Names published commits with versions that are not padded."""
    return original(self)._path(table, version) if version == 0 else f"{table.location}/{LOG}/{version}.json"


# Staged files


@mutant_method("_staged_path", "MC-FILES-01", "CM-FILES-02", "LOG-03")
def staged_files_are_in_the_other_folder(self: ModelOwner, table: OwnedTable, name: str) -> str:
    """Writes staged files to the folder of the other table feature."""
    mine, other = STAGING[table.feature], next(STAGING[feature] for feature in STAGING if feature != table.feature)
    return original(self)._staged_path(table, name).replace(f"/{mine}/", f"/{other}/")


class _Naming(ModelOwner):
    """Gives staged files other names, and accepts these names in proposals."""

    def _named(self, version: int, attempt: str) -> str:
        raise NotImplementedError

    def _stage(self, table: OwnedTable, request: m.Commit) -> str | None:
        right = super()._stage(table, request)
        if right is None or request.actions is None:
            return right
        name = self._named(request.version, request.attempt)
        self.storage.remove(self._staged_path(table, right))
        self.storage.put(self._staged_path(table, name), content_of(request.actions), time_of(request.actions))
        return name


mutant_functions(
    "_named", _Naming,
    staged_name_has_no_uuid=(
        "Names a staged file by its version and a short hash instead of a UUID.",
        lambda version, attempt: f"{version:020}.{attempt[:8]}.json", "MC-FILES-02", "CM-FILES-02"),
    staged_names_get_shorter=(
        "Names staged files with 19 digits from version 10 on.",
        lambda version, attempt: f"{version:0{20 if version < 10 else 19}}.{attempt}.json",
        "MC-FILES-04", "CM-FILES-02"),
)  # fmt: skip


@mutant_method("_named", "MC-FILES-03", "CM-FILES-03")
def attempts_share_a_staged_file(self: _Naming, version: int, attempt: str) -> str:
    """Derives the UUID of a staged file from its version: all attempts write the same file."""
    return staged_file(version, str(uuid.uuid5(uuid.NAMESPACE_OID, str(version))))


@mutant("CM-FILES-01", "MC-LOG-05")
class StagedFileIsAnEnvelope(ModelOwner):
    """Wraps the actions of a staged file in a JSON document, and unwraps them when it publishes."""

    def _stage(self, table: OwnedTable, request: m.Commit) -> str | None:
        name = super()._stage(table, request)
        if name is not None and request.actions is not None:
            self.storage.put(self._staged_path(table, name), json.dumps({"version": request.version, "actions":
                             request.actions}), time_of(request.actions))  # fmt: skip
        return name

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        content = super()._content(table, commit)
        return content if commit.staged_file is None else content_of(tuple(json.loads(content)["actions"]))


@mutant("MC-FEATURE-01", "CM-STORE-03")
class ListsContentInsteadOfFileNames(ModelOwner):
    """Returns the content of a staged commit instead of its file name."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        answer = super()._ratify(table, request, staged)
        kept = table.unbackfilled.get(request.version)
        if kept is not None and kept.staged_file is not None:
            kept.actions, kept.staged_file = tuple(self._content(table, kept).splitlines()), None
        return answer


@mutant_method("_is_proposal", "CM-LOG-05")
def staged_file_is_valid_for_the_next_version(self: ModelOwner, table: OwnedTable, request: m.Commit) -> bool:
    """Ratifies a file that was staged for a version as the version after it: a loser can propose its old file."""
    before = staged_file(request.version - 1, request.attempt)
    staged = self.storage.read(self._staged_path(table, before)) if request.staged_file == before else None
    return staged is not None or original(self)._is_proposal(table, request)


# Inline commits


@mutant("CM-INLINE-01")
class InlineCommitsAreStagedToo(ModelOwner):
    """Writes the content of an inline commit to the staging folder too."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        answer = super()._ratify(table, request, staged)
        if table.commit_mode == "inline":
            path = self._staged_path(table, staged_file(request.version, request.attempt))
            actions = request.actions or ()
            self.storage.put(path, content_of(actions), time_of(actions))
        return answer


@mutant_method("_entries", "PROFILE-INLINE-01", "CM-STORE-05")
def inline_content_is_not_returned(self: ModelOwner, table: OwnedTable, start: int, end: int | None) -> Entries:
    """Lists inline commits without their content."""
    return tuple(
        m.CommitEntry(version=entry.version, file_name=entry.file_name)
        for entry in original(self)._entries(table, start, end)
    )


# Owners that change the writers' in-commit timestamps.

NOW: Final = 1_750_000_000_000
"""ms since the epoch: the time of these owners' clocks."""


def stamped(actions: tuple[str, ...], moment: int) -> tuple[str, ...]:
    """The same actions with another in-commit timestamp."""
    first = json.loads(actions[0])
    if "commitInfo" not in first:
        return actions
    first["commitInfo"]["inCommitTimestamp"] = moment
    return (json.dumps(first, separators=(",", ":")), *actions[1:])


class Restamps(ModelOwner):
    """Ratifies every proposal with the time that `moment` returns."""

    def moment(self, table: OwnedTable, proposed: int) -> int:
        raise NotImplementedError

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        if request.actions is not None:
            proposed = json.loads(request.actions[0])["commitInfo"]["inCommitTimestamp"]
            actions = stamped(request.actions, self.moment(table, proposed))
            if staged is not None:
                self.storage.put(self._staged_path(table, staged), content_of(actions), 0)
            request = msgspec.structs.replace(request, actions=actions)
        return super()._ratify(table, request, staged)


@mutant_method("moment", "MC-API-03", "CM-CATALOG-03", "CM-PUBLISH-03")
def replaces_timestamps(self: Restamps, table: OwnedTable, proposed: int) -> int:
    """Replaces the writer's timestamp with the time of ratification."""
    return min(proposed, NOW)


@mutant_method("_entries", "MC-API-04", "CM-CATALOG-04")
def lists_the_time_of_the_request(self: ModelOwner, table: OwnedTable, start: int, end: int | None) -> Entries:
    """Returns the time of the request with each listed commit."""
    entries = original(self)._entries(table, start, end)
    return tuple(msgspec.structs.replace(entry, in_commit_timestamp=NOW) for entry in entries)
