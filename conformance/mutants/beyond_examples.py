"""Owners with faults that show with unusual numbers, sizes, names, times or coincidences. Generated programs find them;
most are beyond what an example tries."""

import json
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from threading import RLock
from typing import Any, Final

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG
from conformance.models.log_files import HINT
from conformance.models.owner import Commit, Entries, ModelOwner, NotPublished, OwnedTable, time_of
from conformance.models.storage import FolderStorage, Storage
from conformance.mutants import (
    around,
    beyond,
    beyond_functions,
    beyond_method,
    good,
    memory,
    mutant,
    mutant_functions,
    mutant_method,
    original,
)
from conformance.mutants.committing import AttemptsAreComparedByTheirBeginning
from conformance.mutants.content import CONTENT, Rewrites, each_action
from conformance.mutants.good_owners import Promising

OPERATIONS: Final = ("commit", "attempt_outcome", "get_commits", "backfill_to_version", "load_table", "create_table",
                     "hand_back", "take_over", "drop_table", "maintenance_policy")  # fmt: skip

# Order of effects, which shows after a crash


@beyond("MC-FEATURE-01", "CM-STORE-03", "MC-FILES-06", "CM-STORE-09", "PROFILE-DURABLE-01", "PROFILE-DURABLE-03")
class StagesAfterItRatifies(ModelOwner):
    """Writes the staged file of a commit after the commit is recorded. After a crash in between, a commit is listed
    without a file, and every backfill is answered as unknown."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        path = self._staged_path(table, staged or "")
        file = self.storage.read(path) if staged is not None and request.actions is not None else None
        if file is not None:
            self.storage.remove(path)
        answer = super()._ratify(table, request, staged)
        if file is not None:
            self.storage.put(path, *file)
        return answer

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        answer = super().backfill_to_version(client, request)
        return m.Unknown(reason="no such file") if isinstance(answer, m.Rejected) else answer


class _SyncsLater(ModelOwner):
    """Syncs its newest files when the next request arrives: a crash before it loses them."""

    unsynced: list[str] = memory(list)

    @around(*OPERATIONS)
    def _synced(self, request: m.Request, ask: Callable[[], m.Answer]) -> m.Answer:
        self.unsynced.clear()
        return ask()

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        for path in self.unsynced if self._tables is None else ():
            self.storage.remove(path)
        return super().restart(client, request)


@mutant("MC-BACKFILL-05", "PROFILE-DURABLE-01", "MC-FILES-08", "CM-FILES-07", "MC-FILES-06", "CM-STORE-04",
        "CM-STORE-05", "CM-STORE-09")  # fmt: skip
class PublishedFilesAreSyncedLater(_SyncsLater):
    """Forgets a commit before its published file is durable."""

    def _publish(self, table: OwnedTable, version: int) -> None:
        super()._publish(table, version)
        self.unsynced.append(self._path(table, version))


# Several requests at once


@good()
class AnswersConcurrently(ModelOwner):
    """Answers requests of several threads, and decides about one at a time."""

    concurrent = True
    lock: Any = memory(RLock)

    @around(*OPERATIONS)
    def _locked(self, request: m.Request, ask: Callable[[], m.Answer]) -> m.Answer:
        with self.lock:
            return ask()

    def _let_others(self) -> None:
        """Release the lock for a moment."""
        self.lock.release()
        time.sleep(0.003)
        self.lock.acquire()


class _ChecksTwice(AnswersConcurrently):
    """Checks a proposal, and some of its conditions a second time when it records it 3 ms later."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        self._let_others()
        return self._again(table, request, staged) or super()._ratify(table, request, staged)

    def _again(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        """The answer if something changed meanwhile."""
        return self._replay(table, request) or self._refusal(table, request, staged)


@beyond_method("_again", "PROFILE-DISCOVERY-02", "MC-RELEASE-04")
def a_drop_overtakes_a_commit(
    self: _ChecksTwice, table: OwnedTable, request: m.Commit, staged: str | None
) -> m.Answer | None:
    """Checks that a table exists; a drop is answered; then it records the commit, and acknowledges it."""
    active, table.active = table.active, True
    answer = original(self)._again(table, request, staged)
    table.active = active
    return answer


@beyond_method("_again", "PROFILE-OUTCOME-02")
def a_lookup_overtakes_a_commit(
    self: _ChecksTwice, table: OwnedTable, request: m.Commit, staged: str | None
) -> m.Answer | None:
    """Checks that an attempt is not resolved; it is looked up, and reported as not landed; then it lands."""
    resolved, table.never = table.never, set()
    answer = original(self)._again(table, request, staged)
    table.never = resolved
    return answer


@beyond_method("_again", "MC-COMMIT-02", "CM-COMMIT-08", "MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03")
def a_commit_overtakes_a_commit(
    self: _ChecksTwice, table: OwnedTable, request: m.Commit, staged: str | None
) -> m.Answer | None:
    """Checks that a version is free, and records the commit without another check: two writers win."""
    return (
        None if table.active and request.attempt not in table.never else original(self)._again(table, request, staged)
    )


@beyond_method("_again", "PROFILE-RETRY-01", "PROFILE-CORE-06")
def a_replay_overtakes_its_commit(
    self: _ChecksTwice, table: OwnedTable, request: m.Commit, staged: str | None
) -> m.Answer | None:
    """Answers the second of two concurrent copies of a request with a conflict: its own commit has the version."""
    return self._refusal(table, request, staged)


@beyond("MC-CREATE-02", "CM-COMMIT-08", "PROFILE-DISCOVERY-01")
class ACreatorOvertakesACreator(AnswersConcurrently):
    """Checks that a name is free, and creates the table without another check: two creators win."""

    def _reference(self, name: str) -> str:
        self._let_others()
        return super()._reference(name)


@beyond("MC-FILES-06", "CM-STORE-04", "CM-STORE-05", "CM-STORE-09", "MC-GET-01", "CM-GET-03", "LOG-05", "LOG-07")
class HidesCommitsWhileItPublishes(AnswersConcurrently):
    """Stops listing a commit 3 ms before its published file exists."""

    def _publish(self, table: OwnedTable, version: int) -> None:
        commit = table.unbackfilled.pop(version)
        self._let_others()
        table.unbackfilled[version] = commit
        super()._publish(table, version)


@beyond("MC-FEATURE-02", "CM-FEATURE-01", "MC-GET-01", "CM-GET-03", "MC-READ-06", "CM-GET-04", "MC-GET-02")
class ConcurrentReadsShareAnAnswer(AnswersConcurrently):
    """Gives a read the answer of one that was under way, even of another table."""

    under_way: list[m.Answer] = memory(list)

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        if self.under_way:
            return self.under_way[-1]
        self.under_way.append(super().get_commits(client, request))
        time.sleep(0.005)
        return self.under_way.pop()


# The folder, of owners without crash points and without access to their storage


class _Observed(Promising):
    """An owner that is only observed: in a real folder, without crash points and without access to its storage."""

    without = ("storage-access", "harness-control", "durable-restart", "ownership-transfer")

    def __init__(self, storage: Storage | None = None, directory: Path | None = None) -> None:
        super().__init__(storage if directory is None else self._folder(directory))

    def _folder(self, directory: Path) -> FolderStorage:
        return FolderStorage(directory)

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return msgspec.structs.replace(super().hello(client, request), crash_points=())


@good()
class IsOnlyObserved(_Observed):
    """Has no crash points, and gives no access to its storage."""


@beyond("MC-FILES-08", "CM-FILES-07", "CM-PUBLISH-03")
class IsSeenToPublishOverFiles(_Observed):
    """Publishes by renaming over whatever file has the name."""

    def _publish(self, table: OwnedTable, version: int) -> None:
        content = self._content(table, table.unbackfilled[version])
        self.storage.put(self._path(table, version), content, time_of(content.splitlines()))


@beyond("MC-FILES-08", "CM-FILES-07", "CM-PUBLISH-03", "MC-LOG-01", "CM-LOG-01", "MC-BACKFILL-03", "CM-PUBLISH-06")
class IsSeenToPublishAgain(_Observed):
    """Deletes the last published commit, and publishes it again, before it publishes others: a reader finds a gap."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        path = self._path(table, table.backfilled)
        file = self.storage.read(path)
        if file is not None and table.backfilled < version:
            self.storage.remove(path)
            self.storage.put_if_absent(path, *file)
        super()._backfill(table, version)


@beyond("MC-FILES-06", "CM-STORE-04", "CM-STORE-05", "CM-STORE-09", "MC-BACKFILL-05", "MC-BACKFILL-01",
        "CM-PUBLISH-01", "CM-PUBLISH-02", "MC-BACKFILL-03", "CM-PUBLISH-06")  # fmt: skip
class IsSeenToForgetFirst(_Observed):
    """Forgets a commit, and then publishes it: if another file has its name, the commit is lost, and the next backfill
    is answered as done."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        for next_version in range(table.backfilled + 1, version + 1):
            content = self._content(table, table.unbackfilled.pop(next_version))
            table.backfilled = next_version
            self._save(table)
            if not self.storage.put_if_absent(self._path(table, next_version), content, 0):
                raise NotPublished(f"version {next_version} is published with other content")


@beyond("MC-LOG-01", "CM-LOG-01")
class IsSeenToWriteInPlace(_Observed):
    """Publishes by opening a file under its final name, and writing its lines."""

    def _folder(self, directory: Path) -> FolderStorage:
        return _LineByLine(directory)


class _LineByLine(FolderStorage):
    def put_if_absent(self, path: str, content: str, modified: int) -> bool:
        if not super().put_if_absent(path, "", modified):
            return False
        with Path(path).open("a", encoding="utf-8", errors="surrogateescape", newline="") as file:
            for line in content.split("\n")[:-1]:
                file.write(f"{line}\n")
                file.flush()
        return True


# Time


# The size of numbers

VERSIONS: Final = ("MC-COMMIT-01", "MC-COMMIT-02", "CM-COMMIT-07", "CM-COMMIT-08", "MC-GET-02", "CM-GET-04",
                   "MC-GET-01", "CM-GET-03", "MC-READ-06", "LOG-05", "LOG-07", "PROFILE-CORE-05")  # fmt: skip


@beyond_method("_refusal", "PROFILE-CORE-08")
def conflicts_name_the_newest_three_winners(
    self: ModelOwner, table: OwnedTable, request: m.Commit, staged: str | None
) -> m.Answer | None:
    """Names only the last three of many winners."""
    answer = original(self)._refusal(table, request, staged)
    if not isinstance(answer, m.Conflict) or answer.winners is None:
        return answer
    return msgspec.structs.replace(answer, winners=answer.winners[-3:])


class _StoresVersions(ModelOwner):
    """Answers with versions as they are stored."""

    def stored(self, version: int) -> int:
        raise NotImplementedError

    @around("commit", "get_commits", "hand_back", "take_over", "attempt_outcome")
    def _as_stored(self, request: m.Request, ask: Callable[[], m.Answer]) -> m.Answer:
        answer = ask()
        if isinstance(answer, m.Ratified | m.Landed):
            return msgspec.structs.replace(answer, version=self.stored(answer.version))
        if not isinstance(answer, m.Commits):
            return answer
        entries = [msgspec.structs.replace(entry, version=self.stored(entry.version)) for entry in answer.commits]
        return m.Commits(commits=tuple(entries), latest=None if answer.latest is None else self.stored(answer.latest))


beyond_functions(
    "stored", _StoresVersions, *VERSIONS,
    versions_have_thirty_two_unsigned_bits=(
        "Answers with versions of 32 bits without a sign: after 2^32 - 1 comes 0.",
        lambda version: version % (1 << 32)),
    versions_are_doubles=(
        "Answers with versions that were doubles: beyond 2^53 they are even.",
        lambda version: int(float(version))),
)  # fmt: skip


@beyond_method("_path", "MC-FILES-07", "CM-FILES-06", "LOG-01", "MC-BACKFILL-05", "PROFILE-CORE-05")
def published_names_have_ten_digits_at_most(self: ModelOwner, table: OwnedTable, version: int) -> str:
    """Writes the last ten digits of a version into the name of its published file, after zeros."""
    return original(self)._path(table, version % 10**10)


# The size of content


@beyond("MC-BACKFILL-01", "CM-PUBLISH-01", "CM-PUBLISH-02")
class CopiesByBlocksOfSixtyFourKibibytes(ModelOwner):
    """Publishes by copying blocks of 65,536 bytes, and loses the last one if it is full."""

    block = 65_536

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        content = super()._content(table, commit)
        data = content.encode("utf-8", "surrogateescape")
        return content if len(data) % self.block else data[: -self.block].decode("utf-8", "surrogateescape")


@beyond_method("rewritten", *CONTENT)
def stores_four_mebibytes(self: Rewrites, actions: tuple[str, ...]) -> tuple[str, ...]:
    """Stores the actions that fit into 4 MiB."""
    sizes = accumulate(len(action.encode("utf-8", "surrogatepass")) for action in actions)
    return tuple(action for action, size in zip(actions, sizes, strict=True) if size <= 1 << 22)


# The form of content


mutant_functions(
    "rewritten", Rewrites, *CONTENT,
    loses_every_five_hundred_and_first_action=(
        "Inserts actions in batches of 500, and loses the one with which a batch overflows.",
        lambda actions: tuple(action for number, action in enumerate(actions, 1) if number % 501)),
    escaped_zeros_are_dropped=(
        "Drops escaped characters with the number 0, which a text column cannot store.",
        each_action(lambda action: re.sub(r"(?<!\\)\\u0000", "", action))),
    large_integers_are_rounded=(
        "Rounds integers beyond 2^53, in every commit mode.",
        each_action(lambda action: _with_numbers(action, lambda text: int(float(text)), 1 << 53))),
    null_members_are_dropped=(
        "Drops the members of objects that are null, such as null partition values.",
        each_action(lambda action: _without_members(action, None) if ":null" in action else action)),
    empty_members_are_dropped=(
        "Drops the members of objects that are empty lists.",
        each_action(lambda action: _without_members(action, []) if ":[]" in action else action)),
)  # fmt: skip


@beyond_method("rewritten", *CONTENT)
def lone_surrogates_are_replaced(self: Rewrites, actions: tuple[str, ...]) -> tuple[str, ...]:
    """Replaces escaped halves of surrogate pairs, which have no form in UTF-8."""
    lone = r"(?<!\\)\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F].."
    return tuple(re.sub(lone, r"\\ufffd", action) for action in actions)


def _with_numbers(action: str, number: Callable[[str], Any], least: int) -> str:
    """The action with its integers from `least` on replaced; unchanged if it has none."""
    numbers: list[int] = []
    json.loads(action, parse_int=lambda text: numbers.append(abs(int(text))))
    if max(numbers, default=0) < least:
        return action
    return json.dumps(json.loads(action, parse_int=number), separators=(",", ":"))


@beyond_method("rewritten", *CONTENT)
def integers_have_sixty_four_bits(self: Rewrites, actions: tuple[str, ...]) -> tuple[str, ...]:
    """Stores the last 64 bits of an integer."""
    return tuple(
        _with_numbers(action, lambda text: (int(text) + (1 << 63)) % (1 << 64) - (1 << 63), 1 << 63)
        for action in actions
    )


def _without_members(action: str, dropped: Any) -> str:
    return json.dumps(_without(json.loads(action), dropped), separators=(",", ":"))


def _without(value: Any, dropped: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _without(member, dropped) for key, member in value.items() if member != dropped}


# Ranges, and the length of a backlog


@mutant_method("_entries", "MC-GET-01", "CM-GET-03", "CM-GET-05", "LOG-07")
def lists_are_cut_after_five_hundred_commits(
    self: ModelOwner, table: OwnedTable, start: int, end: int | None
) -> Entries:
    """Lists the first 500 commits."""
    return original(self)._entries(table, start, end)[:500]


@beyond("MC-RELEASE-03", "MC-BACKFILL-03", "CM-PUBLISH-06")
class HandsBackAfterAHundredPublications(ModelOwner):
    """Publishes the first 100 unpublished commits before a hand-back, and hands the table back."""

    most = 0

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        self.most = 100
        answer = super().hand_back(client, request)
        self.most = 0
        return answer

    def _backfill(self, table: OwnedTable, version: int) -> None:
        super()._backfill(table, min(version, table.backfilled + self.most) if self.most else version)


@mutant_method("_restarted", "PROFILE-DURABLE-01", "MC-FILES-06", "CM-STORE-04", "CM-STORE-05", "CM-STORE-09",
               "MC-GET-01", "CM-GET-03", "LOG-05", "LOG-07", "PROFILE-DURABLE-03")  # fmt: skip
def restart_loads_a_hundred_and_twenty_eight_commits(self: ModelOwner, table: OwnedTable) -> None:
    """Loads the newest 128 unpublished commits in a restart."""
    original(self)._restarted(table)
    for version in sorted(table.unbackfilled)[:-128]:
        del table.unbackfilled[version]


@beyond_method("backfill_to_version", "MC-BACKFILL-05", "PROFILE-CORE-10")
def backfill_is_done_after_a_thousand_commits(self: ModelOwner, client: str, request: m.BackfillToVersion) -> m.Answer:
    """Publishes at most 1,000 commits for one backfill request, and answers it as done."""
    table = self.tables.get(request.table)
    last = request.version if table is None else min(request.version, table.backfilled + 1000)
    return original(self).backfill_to_version(client, msgspec.structs.replace(request, version=last))


# The backlog limit


class _CountsItsBacklog(ModelOwner):
    """Enforces the limit by a count of its own."""

    more: Counter[str] = memory(Counter)
    """By table, what it counts in addition."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        backlog = table.latest - table.backfilled + self._others(table)
        if answer is None and table.backlog_limit is not None and backlog >= table.backlog_limit:
            return m.Rejected(reason="too many unbackfilled commits", retryable=True)
        return answer

    def _others(self, table: OwnedTable) -> int:
        return self.more[table.reference]


BACKLOG: Final = ("PROFILE-BACKLOG-02", "PROFILE-BACKLOG-01", "PROFILE-CORE-05")


@beyond_method("_replay", *BACKLOG)
def replays_fill_the_backlog(self: _CountsItsBacklog, table: OwnedTable, request: m.Commit) -> m.Answer | None:
    """Counts each replay of a landed commit as one more unpublished commit."""
    answer = original(self)._replay(table, request)
    self.more[table.reference] += answer is not None
    return answer


@beyond_method("_others", *BACKLOG)
def other_tables_fill_the_backlog(self: _CountsItsBacklog, table: OwnedTable) -> int:
    """Counts the unpublished commits of all tables for the limit of each."""
    return sum(other.latest - other.backfilled for other in self.tables.values() if other is not table)


# Names and attempts


class _ComparesNames(ModelOwner):
    """Finds tables by a part of their names."""

    def key(self, name: str) -> str:
        raise NotImplementedError

    def _find(self, name: str | None, path: str | None) -> str | None:
        alike = [] if name is None else [
            table.name for table in self.tables.values() if table.active and self.key(table.name) == self.key(name)
        ]  # fmt: skip
        return super()._find(alike[0] if alike else name, path)


NAMES: Final = ("PROFILE-DISCOVERY-01", "PROFILE-VERSION0-01", "PROFILE-CORE-05")


beyond_functions(
    "key", _ComparesNames, *NAMES,
    names_are_compared_by_their_beginning=(
        "Compares the first 255 characters of names.", lambda name: name[:255]),
    foreign_letters_are_one_letter=(
        "Takes all letters beyond ASCII for one.",
        lambda name: re.sub(r"[^\x00-\x7f]", "?", unicodedata.normalize("NFC", name))),
    punctuation_is_ignored_in_names=(
        "Takes an underscore, a hyphen and a dot in a name for the same.",
        lambda name: re.sub(r"[-_.]", "-", name)),
)  # fmt: skip


@mutant_method("key", *NAMES)
def names_have_sixty_three_characters(self: _ComparesNames, name: str) -> str:
    """Compares the first 63 characters of names."""
    return name[:63]


@mutant("MC-COMMIT-02", "CM-COMMIT-08", "PROFILE-CORE-06")
class AttemptsAreComparedButForTheLastCharacter(AttemptsAreComparedByTheirBeginning):
    """Recognizes a replay by all but the last character of the attempt."""

    same = slice(35)


# Conversion of tables with checkpoints

HINTED: Final = ("PROFILE-CORE-05", "PROFILE-TRANSFER-01", "MC-CONVERT-02", "MC-CONVERT-05")


def hinted(self: ModelOwner, table: OwnedTable) -> int | None:
    """The version of the checkpoint that the hint names."""
    file = self.storage.read(f"{table.location}/{LOG}/{HINT}")
    return None if file is None else int(json.loads(file.content)["version"])


@beyond_method("_published", *HINTED)
def take_over_lists_after_the_checkpoint(self: ModelOwner, table: OwnedTable) -> int:
    """Lists only what comes after the checkpoint that the hint names: a table whose newest commit it covers is
    empty."""
    since = hinted(self, table)
    latest = original(self)._published(table)
    return -1 if since is not None and latest <= since else latest


@beyond_method("_published", *HINTED)
def take_over_trusts_the_hint(self: ModelOwner, table: OwnedTable) -> int:
    """Takes the checkpoint that the hint names for the newest version."""
    since = hinted(self, table)
    return original(self)._published(table) if since is None else since


# After a lost race


@beyond_method("_conflict", "MC-FEATURE-01", "CM-STORE-03", "CM-STORE-05", "MC-FILES-06", "CM-STORE-09")
def cleans_up_the_winner(self: ModelOwner, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
    """Deletes, after a lost race, the staged file of the winner instead of that of the loser."""
    answer = original(self)._conflict(table, request, staged)
    winner = table.unbackfilled.get(request.version)
    if winner is not None and winner.staged_file is not None:
        self.storage.remove(self._staged_path(table, winner.staged_file))
    return answer
