"""Good owners: they differ from the model in answers, lists, publishing, state and files, as the documents permit."""

import io
import json
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, checkpoint_file, checksum_file, staged_file
from conformance.models import proposals
from conformance.models.log_files import checkpoint_parquet
from conformance.models.owner import OWNER_PROPERTY, Entries, ModelOwner, NotPublished, OwnedTable, content_of, time_of
from conformance.models.storage import Commit, Storage
from conformance.mutants import around, good, good_method, memory, memory_of, original
from conformance.mutants.content import schema_of


class Promising(ModelOwner):
    """A model that promises less: without some profiles, and without some promises."""

    without: tuple[str, ...] = ()

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = super().hello(client, request)
        return msgspec.structs.replace(
            identity,
            profiles=tuple(profile for profile in identity.profiles if profile not in self.without),
            promises=tuple(promise for promise in identity.promises if promise not in self.without),
        )


@good(
    "MC-LOG-02", "CM-LOG-04", "MC-GET-04", "LOG-06", "MC-BACKFILL-02", "CM-STORE-02", "CM-STORE-06", "CM-STORE-08",
    "CM-CREATE-02", "CM-DROP-01", "MC-RELEASE-06", "FREE-VALIDATE-01", "FREE-VALIDATE-02", "FREE-BACKFILL-02",
    "FREE-STAGING-01",
)  # fmt: skip
class PlainModel(ModelOwner):
    """Does only what is required: validates nothing, forgets backfilled commits, publishes on request only, and
    publishes all commits for a backfill beyond the latest version."""


@good("FREE-LATEST-01", "FREE-LATEST-02")
class ReturnsNoLatestVersion(Promising):
    """Returns no latest version for a managedCommit table without staged commits: a new one, one just taken over, or
    one with direct commits only."""

    without = ("version-0-by-owner",)
    nothing: int | None = None

    def _latest(self, table: OwnedTable) -> int | None:
        accepted = table.commit_mode == "staged" and len(table.landed) > 1
        return super()._latest(table) if accepted or table.feature != "managedCommit" else self.nothing


@good("FREE-LATEST-01", "FREE-LATEST-02")
class ReturnsMinusOne(ReturnsNoLatestVersion):
    """Returns latest version -1 where `returns-no-latest-version` returns none."""

    nothing = -1


@good("FREE-GET-01", "CM-GET-01")
class ListsEveryVersion(ModelOwner):
    """Lists all commits, published ones too: the newest hundred of those."""

    first = 0

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> Entries:
        stored = {entry.version: entry for entry in super()._entries(table, start, end)}
        last = table.latest if end is None else min(end, table.latest)
        begin = max(start, table.backfilled + 1 - (self.first or 100))
        return tuple(stored.get(version, m.CommitEntry(version=version)) for version in range(begin, last + 1))


@good("FREE-GET-02", "FREE-GET-01")
class ListsFromTheLastPublishedVersion(ListsEveryVersion):
    """Begins its list with the last published version, ignoring the requested start."""

    first = 1


@good("FREE-GET-03", "FREE-PUBLISH-01", "CM-PUBLISH-04")
class ClientsPublishWithoutNotification(ModelOwner):
    """Its clients publish every commit at once without notifying it, so that it continues to list published commits."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        answer = super()._ratify(table, request, staged)
        for version in sorted(table.unbackfilled):
            self._publish(table, version)
        return answer


@good_method("commit")
def rejects_each_proposal_twice_for_now(self: ModelOwner, client: str, request: m.Commit) -> m.Answer:
    """Accepts a proposal when it is sent for the third time, and rejects it before that as retryable."""
    tries = memory_of(self, Counter[m.Commit])
    tries[request] += 1
    return original(self).commit(client, request) if tries[request] > 2 else m.Rejected(reason="locked", retryable=True)


@good("FREE-BACKFILL-01")
class BackfillsEverything(ModelOwner):
    """Publishes all commits when asked to backfill some."""

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        return super().backfill_to_version(client, msgspec.structs.replace(request, version=1 << 60))


@good_method("_entries")
def lists_content_beside_file_names(self: ModelOwner, table: OwnedTable, start: int, end: int | None) -> Entries:
    """Reads the staged file of each listed commit, and lists its content, too."""
    entries = []
    for entry in original(self)._entries(table, start, end):
        content = entry.actions or tuple(proposals.lines(self._content(table, table.unbackfilled[entry.version])))
        entries.append(msgspec.structs.replace(entry, actions=content))
    return tuple(entries)


@good_method("_backfill")
def publishes_again(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Replaces the newest published file with the same bytes before it publishes others."""
    path = self._path(table, table.backfilled)
    file = self.storage.read(path)
    if file is not None and table.commit_mode != "direct":
        self.storage.put(path, file.content, file.modified)
    original(self)._backfill(table, version)


@good_method("take_over")
def refuses_escapes_in_paths(self: ModelOwner, client: str, request: m.TakeOver) -> m.Answer:
    """Takes no table over whose path contains a percent sign or a blank."""
    if {"%", " "} & set(request.path):
        return m.Rejected(reason=f"{request.path!r} is not supported: rename the folder")
    return original(self).take_over(client, request)


@good_method("take_over")
def commits_a_take_over_of_its_own_table(self: ModelOwner, client: str, request: m.TakeOver) -> m.Answer:
    """Treats a take-over of a table that it owns as a commit of the next version."""
    reference = self._find(None, request.path)
    if reference is None or not self.tables[reference].active:
        return original(self).take_over(client, request)
    actions = self._with_owner(request.actions, request.feature)
    commit = m.Commit(table=reference, version=request.version, attempt=request.attempt, actions=actions)
    answer = self.commit(client, commit)
    return msgspec.structs.replace(answer, table=reference) if isinstance(answer, m.Ratified) else answer


@good_method("backfill_to_version", "FREE-BACKFILL-02")
def rejects_backfill_beyond_latest(self: ModelOwner, client: str, request: m.BackfillToVersion) -> m.Answer:
    """Rejects a backfill beyond the latest version, and publishes nothing."""
    table = self.tables.get(request.table)
    if table is not None:
        self._notice(table)
        if request.version > table.latest:
            return m.Rejected(reason=f"version {request.version} does not exist")
    return original(self).backfill_to_version(client, request)


@good_method("create_table", "FREE-BACKFILL-03", "CM-STORE-06")
def publishes_only_on_request(self: ModelOwner, client: str, request: m.CreateTable) -> m.Answer:
    """Publishes only on request, even if publishing is left to it."""
    return original(self).create_table(client, msgspec.structs.replace(request, backfill="on-request"))


@good("FREE-ANSWER-01")
class ConflictsWithoutDetails(ModelOwner):
    """Returns conflicts without the latest version or the winners."""

    @around("commit", "create_table", "take_over")
    def _bare(self, request: m.Request, ask: Callable[[], m.Answer]) -> m.Answer:
        answer = ask()
        return m.Conflict() if isinstance(answer, m.Conflict) else answer


@good("FREE-ANSWER-02")
class GapsAreRejections(ModelOwner):
    """Answers a proposal that is too early with a rejection instead of a gap."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        return m.Rejected(reason="the previous version is missing") if isinstance(answer, m.Gap) else answer

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        answer = super().take_over(client, request)
        return m.Rejected(reason="not the next version") if isinstance(answer, m.Gap) else answer


@good("FREE-ANSWER-03")
class ReplaysMayConflict(Promising):
    """Does not promise to recognize replays: answers every second one as ratified, the others with a conflict."""

    without = ("idempotent-retry",)

    def __init__(self, storage: Storage | None = None) -> None:
        super().__init__(storage)
        self.replays = 0

    def _replay(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        answer = super()._replay(table, request)
        if isinstance(answer, m.Ratified):
            self.replays += 1
            return answer if self.replays % 2 else m.Conflict(latest=table.latest)
        return answer


@good("FREE-POLICY-01")
class RejectsByPolicy(ModelOwner):
    """Rejects every third valid proposal by a policy of its own."""

    def __init__(self, storage: Storage | None = None) -> None:
        super().__init__(storage)
        self.proposals = 0

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        self.proposals += answer is None
        refuses = answer is None and self.proposals % 3 == 0
        return m.Rejected(reason="not on a Sunday") if refuses else answer


@good("FREE-POLICY-01")
class LimitsSizes(Promising):
    """Rejects commits of more than 100,000 bytes, and every commit while 20 are unbackfilled, without declaring a
    limit."""

    without = ("backlog-limit",)

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        return super().create_table(client, msgspec.structs.replace(request, backlog_limit=20))

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        too_large = len(content_of(request.actions or ()).encode()) > 100_000
        return super()._refusal(table, request, staged) or (m.Rejected(reason="too large") if too_large else None)


@good_method("create_table", "FREE-POLICY-01")
def limits_the_backlog(self: LimitsSizes, client: str, request: m.CreateTable) -> m.Answer:
    """Rejects every commit while three are unbackfilled, without declaring a limit."""
    return ModelOwner.create_table(self, client, msgspec.structs.replace(request, backlog_limit=3))


@good_method("create_table")
def offers_small_limits(self: ModelOwner, client: str, request: m.CreateTable) -> m.Answer:
    """Rejects a table with a limit of more than five unbackfilled commits."""
    large = (request.backlog_limit or 0) > 5
    return m.Rejected(reason="at most 5") if large else original(self).create_table(client, request)


@good_method("take_over")
def reads_what_it_takes_over(self: ModelOwner, client: str, request: m.TakeOver) -> m.Answer:
    """Rejects the take-over of a table with a checkpoint that it cannot read, or with properties that it does not
    know."""
    import pyarrow.parquet as pq  # slow to import, and each process that serves a mutant imports this module

    metadata = proposals.body_of(content_of(request.actions), "metaData") or {}
    if not set(metadata.get("configuration", {})) <= {proposals.TIMESTAMPS, proposals.KEPT}:
        return m.Rejected(reason="unknown properties")
    for name in self.storage.list(f"{request.path}/{LOG}"):
        file = self.storage.read(f"{request.path}/{LOG}/{name}")
        if file is not None and name.endswith(".checkpoint.parquet"):
            try:
                pq.read_table(io.BytesIO(file.content.encode("utf-8", "surrogateescape")))
            except ValueError:
                return m.Rejected(reason=f"{name} is not Parquet")
    return original(self).take_over(client, request)


@good_method("commit")
def attempts_keep_their_actions(self: ModelOwner, client: str, request: m.Commit) -> m.Answer:
    """Rejects an attempt that was proposed with other actions before, because it writes a staged file only once."""
    first = memory_of(self, dict[str, tuple[str, ...] | None])
    same = first.setdefault(request.attempt, request.actions) == request.actions
    return original(self).commit(client, request) if same else m.Rejected(reason="proposed with other actions before")


@good("FREE-VALIDATE-01", "FREE-POLICY-01")
class ValidatesEverything(ModelOwner):
    """Checks times, provenance and schema of proposals, and rejects invalid ones."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        if answer is not None:
            return answer
        proposed = tuple(self._proposed(table, request, staged))
        if any(schema_of(action) == {} for action in proposed):
            return m.Rejected(reason="the schema is invalid")
        info = self._info(proposed)
        newest = self._info((self._newest(table, "commitInfo") or "{}",))
        if info.get("txnId") is None or not info.get("inCommitTimestamp", 0) > newest.get("inCommitTimestamp", 0):
            return m.Rejected(reason="a commit needs a txnId, and a later time than the previous version")
        return None

    def _proposed(self, table: OwnedTable, request: m.Commit, staged: str | None) -> Iterable[str]:
        file = self.storage.read(self._staged_path(table, staged or "")) if request.actions is None else None
        return proposals.lines(file.content) if file is not None else request.actions or ()

    def _info(self, actions: Iterable[str]) -> dict[str, Any]:
        parsed = [msgspec.json.decode(action) for action in actions if '"commitInfo"' in action]
        info: dict[str, Any] = parsed[0].get("commitInfo", {}) if parsed else {}
        return info


@good()
class TableIdsNeverChange(ModelOwner):
    """Rejects a change of the owner whose metadata have another id than the table."""

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        table = OwnedTable(
            reference="", name=request.name, feature=request.feature, commit_mode=request.commit_mode,
            location=request.path,
        )  # fmt: skip
        table.latest = self._published(table)
        return self._changed(table, request.actions) or super().take_over(client, request)

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        table = self.tables.get(request.table)
        changed = None if table is None else self._changed(table, request.actions)
        return changed or super().hand_back(client, request)

    def _changed(self, table: OwnedTable, actions: tuple[str, ...]) -> m.Answer | None:
        known = proposals.table_id_in([self._newest(table, "metaData") or "{}"])
        changed = known not in ("", proposals.table_id_in(actions))
        return m.Rejected(reason="the table's id changes") if changed else None


@good("FREE-STALE-04")
class ConflictsHaveOldDetails(Promising):
    """Returns conflicts with the oldest permitted details: the proposed version and its winner."""

    without = ("fresh-refusals",)

    def _conflict(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        return m.Conflict(latest=request.version, winners=self._entries(table, request.version, request.version))


@good("FREE-STALE-05", "CM-STORE-07")
class NoticesDirectCommitsLate(Promising):
    """Reports direct commits and take-overs one request late."""

    without = ("fresh-direct", "version-0-by-owner")

    known: dict[str, int | None] = memory(dict)

    def _latest(self, table: OwnedTable) -> int | None:
        actual = super()._latest(table)
        if table.commit_mode != "direct":
            return actual
        known = self.known.get(table.reference, 0)
        self.known[table.reference] = actual
        return known

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        there = [table.reference for table in self.tables.values() if table.location == request.path]
        answer = super().take_over(client, request)
        if isinstance(answer, m.Ratified) and answer.table and there:
            self.known.setdefault(answer.table, self.known.get(there[-1], 0))
        return answer


@good_method("observe", "FREE-LISTING-01")
def lists_files_in_pages(self: ModelOwner, client: str, request: m.Observe) -> m.Answer:
    """Lists a log in two pages while commits are published: one listing may show a version without the previous one."""
    before = original(self).observe(client, request)
    table = self.tables.get(request.table)
    if table is None or not isinstance(before, m.Observation) or table.latest - table.backfilled < 2:
        return before
    page = self._path(table, table.latest - 1).rpartition("/")[2]
    with suppress(NotPublished):
        self._backfill(table, table.latest)
    after = original(self).observe(client, request)
    assert isinstance(after, m.Observation)
    later = [file for file in after.files if file.name > page]
    return m.Observation(files=(*(file for file in before.files if file.name <= page), *later))


@good("MC-FILES-13")
class AlternatesStagedAndDirect(ModelOwner):
    """Stages every second commit of a managedCommit table, and publishes the others directly where all earlier commits
    are backfilled."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        free = table.feature == "managedCommit" and table.latest == table.backfilled and request.version % 2 == 1
        if not free or staged is None:
            return super()._ratify(table, request, staged)
        file = self.storage.read(self._staged_path(table, staged))
        content = content_of(request.actions or ()) if file is None else file.content
        return self._publish_directly(
            table, msgspec.structs.replace(request, actions=tuple(content.removesuffix("\n").split("\n")))
        )


@good("FREE-ANSWER-01", "FREE-ANSWER-02", "FREE-GET-01", "FREE-GET-03", "FREE-BACKFILL-01", "FREE-POLICY-01")
class ManyFreedoms(
    ConflictsWithoutDetails,
    GapsAreRejections,
    ListsEveryVersion,
    ClientsPublishWithoutNotification,
    BackfillsEverything,
    RejectsByPolicy,
):
    """Uses many freedoms together: conflicts without details, errors for gaps, lists with published commits, larger
    backfills, and rejections by policy."""


# Good owners that store their state, their files and their tables differently from the model, as the documents permit.
# No check may fail for them.


@good("MC-API-01", "CM-CATALOG-02", "FREE-CATALOG-01")
class NoServer(ModelOwner):
    """Keeps no process state: each request reads and writes the stored state."""

    @property
    def tables(self) -> dict[str, OwnedTable]:
        super().tables  # noqa: B018  # a killed process does not answer
        return {name: msgspec.json.decode(saved, type=OwnedTable) for name, saved in self.saved.items()}


@good("CM-STORE-01")
class InlineContentIsReformatted(ModelOwner):
    """Stores inline commits with sorted fields and spaces, and publishes them so."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        if table.commit_mode == "inline" and request.actions is not None:
            actions = tuple(json.dumps(json.loads(action), sort_keys=True) for action in request.actions)
            request = msgspec.structs.replace(request, actions=actions)
        return super()._ratify(table, request, staged)


@good_method("_ratify", "FREE-STAGING-02", "FREE-STAGING-03", "FREE-STAGING-04", "MC-LOG-04", "CM-FILES-05")
def writes_other_staged_files(self: ModelOwner, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
    """Writes other files to its staging folder: a truncated one of another attempt, and one for a distant version."""
    answer = original(self)._ratify(table, request, staged)
    if table.commit_mode == "staged":
        half = content_of(request.actions or ("{}",))[:40]
        for version in (request.version, request.version + 7):
            name = f"{version:020}.{request.attempt[:-4]}{version % 10_000:04}.json"
            self.storage.put(self._staged_path(table, name), half, 0)
    return answer


@good_method("_backfill", "FREE-STAGING-01", "MC-BACKFILL-02", "CM-STORE-08")
def removes_staged_files(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Deletes the staged file of a published commit; an empty staging folder disappears."""
    staged = [commit.staged_file for number, commit in table.unbackfilled.items() if number <= version]
    original(self)._backfill(table, version)
    for name in staged:
        if name is not None:
            self.storage.remove(self._staged_path(table, name))


@good("FREE-VERSION0-01")
class StagesVersion0(Promising):
    """Stages version 0 like any other commit of a table with staged commits."""

    without: tuple[str, ...] = ("version-0-by-owner", "version-0-by-filesystem")

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        if version > 0 or table.commit_mode != "staged":
            return super()._begin(table, version, attempt, actions)
        content = self._with_owner(actions, table.feature)
        name = staged_file(0, attempt)
        self.storage.put_if_absent(self._staged_path(table, name), content_of(content), time_of(content))
        if self._published(table) >= 0:
            return m.Conflict(latest=self._published(table))
        table.unbackfilled[0] = Commit(attempt=attempt, staged_file=name)
        self.tables[table.reference] = table
        self._record(table, 0, attempt)
        return m.Ratified(version=0, table=table.reference)


@good_method("_with_owner", "FREE-CONF-01", "MC-ENABLE-04", "MC-ENABLE-06")
def stores_its_configuration(self: ModelOwner, actions: tuple[str, ...], feature: str) -> tuple[str, ...]:
    """Stores in the table's properties the way in which its clients connect and authenticate."""
    connection = {"endpoint": "http://owner.example/commits", "authenticationMode": "oauth2"}
    conf = json.dumps(json.dumps(connection))
    owner = f'"{OWNER_PROPERTY}":'
    with_name = original(self)._with_owner(actions, feature)
    return tuple(action.replace(owner, f'"{OWNER_PROPERTY}Conf":{conf},{owner}') for action in with_name)


@good_method("load_table", "FREE-CATALOG-02", "CM-READ-06")
def resolutions_name_checkpoints(self: ModelOwner, client: str, request: m.LoadTable) -> m.Answer:
    """Returns checkpoints and metadata in its resolutions."""
    answer = original(self).load_table(client, request)
    if not isinstance(answer, m.Table) or answer.metadata is None:
        return answer
    metadata = {"metaData": {**json.loads(answer.metadata)["metaData"], "checkpoints": [0]}}
    return msgspec.structs.replace(answer, metadata=json.dumps(metadata))


@good_method("_reference", "CM-FEATURE-02", "CM-CREATE-01")
def opaque_references(self: ModelOwner, name: str) -> str:
    """Uses table references with spaces, quotes, braces and letters of many scripts."""
    return json.dumps({"naïve": name, "№": len(self.tables)}, ensure_ascii=False)


@good("FREE-NAME-03", "CM-CREATE-01")
class NormalizesNames(ModelOwner):
    """Compares names without case, in one Unicode form and decoded: `caf%C3%A9` and `Café` are one table."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        return super().create_table(client, msgspec.structs.replace(request, name=plain_name(request.name)))

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        name = None if request.name is None else plain_name(request.name)
        return super().load_table(client, m.LoadTable(name=name, path=request.path))

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        return super().take_over(client, msgspec.structs.replace(request, name=plain_name(request.name)))


def plain_name(name: str) -> str:
    """The same name for all of its spellings."""
    return unicodedata.normalize("NFC", unquote(name)).casefold()


@good("FREE-NAME-04")
class ComparesAttemptsAsUuids(ModelOwner):
    """Stores the attempts that it gets in lower case."""

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        return super().commit(client, msgspec.structs.replace(request, attempt=request.attempt.lower()))

    def attempt_outcome(self, client: str, request: m.AttemptOutcome) -> m.Answer:
        return super().attempt_outcome(client, msgspec.structs.replace(request, attempt=request.attempt.lower()))


@good("CM-DROP-01", "CM-CREATE-01")
class DropDeletesFiles(ModelOwner):
    """Deletes all files of a dropped table before it answers."""

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        answer = super().drop_table(client, request)
        table = self.tables.get(request.table)
        if table is not None and isinstance(answer, m.Done):
            table.unbackfilled.clear()
            table.backfilled = table.latest
            for name in self.storage.list(f"{table.location}/{LOG}"):
                self.storage.remove(f"{table.location}/{LOG}/{name}")
        return answer


@good("FREE-TRANSFER-01", "FREE-TRANSFER-02", "MC-RELEASE-02")
class RejectsTheFirstTransfer(ModelOwner):
    """Rejects the first take-over and the first hand-back of every table, and accepts the second."""

    asked: set[str] = memory(set)

    def _first(self, what: str) -> bool:
        first = what not in self.asked
        self.asked.add(what)
        return first

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        if self._first(request.path):
            return m.Rejected(reason="sure?")
        return super().take_over(client, request)

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        if self._first(f"back: {request.table}"):
            return m.Rejected(reason="sure?")
        return super().hand_back(client, request)


@good("FREE-TRANSFER-03")
class StagesTheHandBack(ModelOwner):
    """Stages the commit of a hand-back, and publishes it at the next request for the table."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        table = self.tables.get(request.table)
        if table is None or table.commit_mode != "staged":
            return super().hand_back(client, request)
        proposal = m.Commit(
            table=request.table, version=request.version, attempt=request.attempt, actions=request.actions
        )
        answer = self._replay(table, proposal) or self._refusal(table, proposal, None)
        if answer is not None:
            return answer
        try:
            self._backfill(table, table.latest)
        except NotPublished as error:
            return m.Rejected(reason=str(error), retryable=True)
        staged = self._stage(table, proposal)
        table.active = False
        table.unbackfilled[request.version] = Commit(attempt=request.attempt, staged_file=staged)
        self._record(table, request.version, request.attempt)
        return m.Ratified(version=request.version)


@good("FREE-TRANSFER-03")
class PublishesTheHandBackInTheBackground(StagesTheHandBack):
    """Stages the commit of a hand-back, no longer knows the table, and publishes the commit long after the
    answer."""

    looks: Counter[str] = memory(Counter)

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        left = request.table in self.tables and not self.tables[request.table].active
        return m.NotFound() if left else super().backfill_to_version(client, request)

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and not table.active and table.unbackfilled:
            self.looks[table.reference] += 1
            if self.looks[table.reference] > 30:
                self._backfill(table, table.latest)
        return super().observe(client, request)


@good()
class FormerOwnerComparesVersions(ModelOwner):
    """Answers proposals for a table that it handed back with a gap or a conflict, by the versions that it knows."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        if table.leaving is None or request.version == table.latest + 1 or request.attempt in table.never:
            return super()._refusal(table, request, staged)
        return self._refusal(msgspec.structs.replace(table, active=True, leaving=None), request, staged)


@good("FREE-CHECKSUM-02", "CM-MAINT-03", "MC-OWNER-01", "CM-CATALOG-01")
class KeepsOtherFilesInTheLog(ModelOwner):
    """Writes a checksum of every commit before it publishes it, and its own state to a folder of the log."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        answer = super()._ratify(table, request, staged)
        if isinstance(answer, m.Ratified) and answer.version in table.unbackfilled:
            content = self._content(table, table.unbackfilled[answer.version])
            self.storage.put(f"{table.location}/{LOG}/{checksum_file(answer.version)}", checksum_of(content), 0)
        return answer

    def _save(self, table: OwnedTable) -> None:
        super()._save(table)
        self.storage.put(f"{table.location}/{LOG}/.owner/attempts.db", " ".join(table.landed), 0)


def checksum_of(content: str) -> str:
    """The checksum of a version; its numbers do not matter."""
    info = json.loads(content.partition("\n")[0]).get("commitInfo", {})
    return json.dumps({"txnId": info.get("txnId"), "tableSizeBytes": 0, "numFiles": 0})


@good_method("get_commits", "FREE-GET-02", "FREE-GET-01")
def rejects_reversed_ranges(self: ListsFromTheLastPublishedVersion, client: str, request: m.GetCommits) -> m.Answer:
    """Rejects a reversed range; answers any other with a list that may begin elsewhere."""
    if request.end is not None and request.end < (request.start or 0):
        return m.Rejected(reason="the range ends before it begins")
    return original(self).get_commits(client, request)


@good_method("maintenance_policy", "FREE-POLICY-02")
def restricts_checkpoints(self: ModelOwner, client: str, request: m.MaintenancePolicy) -> m.Answer:
    """Allows log compactions while nothing is unbackfilled, metadata cleanup of tables with commits, and never
    checkpoints or checksums."""
    table = self.tables.get(request.table)
    if table is None:
        return m.NotFound()
    compaction = () if table.unbackfilled else ("log-compaction",)
    return m.Policy(allowed=(*compaction, *(["metadata-cleanup"] if table.latest else [])))


# Habits of owners in production


@good("FREE-BACKFILL-01", "FREE-GET-01")
class PublishesAtTheNextRequest(ModelOwner):
    """Publishes the commits of earlier requests when the next commit or read of the table arrives."""

    @around("commit", "get_commits")
    def _catch_up(self, request: m.Commit | m.GetCommits, ask: Callable[[], m.Answer]) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and table.active:
            with suppress(NotPublished):
                self._backfill(table, table.latest)
        return ask()


class _BusyAtFirst(ModelOwner):
    """Rejects some requests as retryable when they first arrive."""

    every = 3
    refused: set[m.Request] = memory(set)

    def _busy(self, request: m.Request) -> bool:
        first = request not in self.refused
        self.refused.add(request)
        return first and len(self.refused) % self.every == 0


@good("FREE-POLICY-01")
class ThrottlesRequests(_BusyAtFirst):
    """Rejects some requests of every kind as retryable when they first arrive, as after a lost conditional write or
    with a throttled database."""

    every = 4

    @around("create_table", "commit", "get_commits", "backfill_to_version")
    def _throttled(self, request: m.Request, ask: Callable[[], m.Answer]) -> m.Answer:
        return m.Rejected(reason="throttled; retry", retryable=True) if self._busy(request) else ask()


@good("FREE-POLICY-01")
class LimitsTheRate(ModelOwner):
    """Rejects every seventh commit, read, backfill or lookup as retryable, including replays."""

    requests = 0

    @around("commit", "get_commits", "backfill_to_version", "attempt_outcome")
    def _limited(self, request: m.Request, ask: Callable[[], m.Answer]) -> m.Answer:
        self.requests += 1
        return m.Rejected(reason="429 Too Many Requests", retryable=True) if self.requests % 7 == 0 else ask()


@good_method("hello", "MC-FILES-13", "FREE-LATEST-02")
def publishes_directly_only(self: Promising, client: str, request: m.Hello) -> m.Identity:
    """Offers direct commits only, and no other profile."""
    direct = dict.fromkeys(("managedCommit", "catalogManaged"), ("direct",))
    identity = original(self).hello(client, request)
    return msgspec.structs.replace(
        identity, profiles=("core", "direct-publish"), promises=(), commit_modes=direct, crash_points=()
    )


@good("FREE-ANSWER-03")
class KnowsAnAttemptByItsVersion(Promising):
    """Knows no attempts, only staged files: with another version, an attempt is a new proposal, as for Delta's
    coordinators."""

    without = ("idempotent-retry", "attempt-outcome")

    def _replay(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        answer = super()._replay(table, request)
        return None if isinstance(answer, m.Rejected) else answer


@good()
class KeepsItsStateInMemory(Promising):
    """Promises to survive no restart, and supports none."""

    without = ("durable-restart", "harness-control")

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return msgspec.structs.replace(super().hello(client, request), crash_points=())

    def crash(self, client: str, request: m.Crash) -> m.Answer:
        return m.Unsupported(reason="its state is in the memory of its process")


@good_method("observe")
def clock_is_a_day_slow(self: ModelOwner, client: str, request: m.Observe) -> m.Answer:
    """Has a clock that is a day slow: the files of its log are older than their in-commit timestamps."""
    answer = original(self).observe(client, request)
    if not isinstance(answer, m.Observation):
        return answer
    day = 86_400_000
    files = [msgspec.structs.replace(file, modified=max(0, (file.modified or 0) - day)) for file in answer.files]
    return m.Observation(files=tuple(files))


@good_method("create_table", "CM-CREATE-01", "FREE-POLICY-01")
def one_table_per_path(self: ModelOwner, client: str, request: m.CreateTable) -> m.Answer:
    """Rejects a table whose path is, contains or is below the path of any other table, including dropped ones."""
    paths = [] if request.path is None else [table.location for table in self.tables.values()]
    own = f"{request.path}/"
    if any(f"{path}/".startswith(own) or own.startswith(f"{path}/") for path in paths):
        repeated = any(request.attempt in table.landed for table in self.tables.values())
        if not repeated:
            return m.Rejected(reason="that path belongs to another table")
    return original(self).create_table(client, request)


@good()
class FoldersBeginAlike(ModelOwner):
    """Gives every second table a folder whose name is the beginning of another folder's. Its locations end with a
    slash, which a path may lack."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        path = None if request.path is None else request.path.rstrip("/")
        answer = super().load_table(client, msgspec.structs.replace(request, path=path))
        if isinstance(answer, m.Table):
            answer = msgspec.structs.replace(answer, location=f"{answer.location}/")
        return answer

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        if table.location.endswith(table.reference):
            number, rest = divmod(len(self.tables), 2)
            table.location = f"{self.storage.root}/{number}-{'t' * (2 - rest)}"
        return super()._begin(table, version, attempt, actions)


@good_method("_backfill", "CM-READ-06", "CM-POLICY-02")
def writes_checkpoints(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Writes a checkpoint of every second version that it publishes, and the hint to it."""
    original(self)._backfill(table, version)
    newest = table.backfilled
    if newest > 0 and newest % 2 == 0 and table.commit_mode != "direct":
        log = f"{table.location}/{LOG}"
        actions: dict[str, dict[str, Any]] = {}
        for number in range(newest + 1):
            file = self.storage.read(self._path(table, number))
            for line in file.content.splitlines() if file else ():
                try:
                    kind, body = next(iter(json.loads(line).items()))
                    key = f"{kind} {body.get('path') or body.get('appId') or body.get('domain')}"
                except (ValueError, AttributeError, StopIteration):
                    return
                actions[key] = {kind: body}
        kept = [action for key, action in actions.items() if key.split()[0] in ("protocol", "metaData", "add")]
        content = checkpoint_parquet(kept).decode("utf-8", "surrogateescape")
        self.storage.put_if_absent(f"{log}/{checkpoint_file(newest)}", content, 0)
        self.storage.put(f"{log}/_last_checkpoint", json.dumps({"version": newest, "size": len(kept)}), 0)


@good_method("drop_table", "CM-DROP-01", "CM-CREATE-01")
def drops_published_tables_only(self: ModelOwner, client: str, request: m.DropTable) -> m.Answer:
    """Rejects the drop of a table with unbackfilled commits as retryable, and publishes them."""
    table = self.tables.get(request.table)
    if table is not None and table.active and table.unbackfilled:
        with suppress(NotPublished):
            self._backfill(table, table.latest)
        return m.Rejected(reason="commits are being published; retry", retryable=True)
    return original(self).drop_table(client, request)


@good()
class UnknownTablesAreRejected(ModelOwner):
    """Answers requests for unknown and dropped tables with a rejection, as a catalog that does not reveal which tables
    exist."""

    @around("commit", "get_commits", "backfill_to_version", "attempt_outcome", "maintenance_policy", "drop_table")
    def _hidden(self, request: m.Request, ask: Callable[[], m.Answer]) -> m.Answer:
        answer = ask()
        return m.Rejected(reason="no permission") if isinstance(answer, m.NotFound) else answer


# Good owners that a check could accuse by accident.


@good("FREE-NAME-03", "CM-CREATE-01")
class NamesAreIdentifiers(ModelOwner):
    """Accepts only table names of ASCII letters, digits and underscores."""

    @around("create_table", "take_over", "load_table")
    def _named(self, request: m.CreateTable | m.TakeOver | m.LoadTable, ask: Callable[[], m.Answer]) -> m.Answer:
        valid = request.name is None or re.fullmatch(r"[A-Za-z0-9_]+", request.name)
        return ask() if valid else m.Rejected(reason=f"invalid table name {request.name!r}")


_CHANGES: Final = ("create_table", "commit", "attempt_outcome", "backfill_to_version", "take_over", "hand_back")


@good("FREE-POLICY-01")
class HasNoLeaderAfterARestart(ModelOwner):
    """Rejects all requests of 20 ms after a restart as retryable, replays included."""

    elected = 0.0

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        self.elected = time.monotonic() + 0.02
        return super().restart(client, request)

    @around(*_CHANGES, "drop_table", "get_commits", "load_table", "maintenance_policy")
    def _led(self, request: m.Request, ask: Callable[[], m.Answer]) -> m.Answer:
        leads = time.monotonic() >= self.elected
        return ask() if leads else m.Rejected(reason="no leader yet", retryable=True)


@good("FREE-POLICY-01")
class HasItsOwnCrashPoints(ModelOwner):
    """Declares two crash points of its own, which every change reaches: before it, and after the answer."""

    points: Final = ("received", "answered")

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return msgspec.structs.replace(super().hello(client, request), crash_points=self.points)

    def crash(self, client: str, request: m.Crash) -> m.Answer:
        answer = super().crash(client, m.Crash()) if request.point is None else m.Done()
        self.deadly = request.point
        return answer

    @around(*_CHANGES, "drop_table")
    def _between(self, request: m.Request, ask: Callable[[], m.Answer]) -> m.Answer:
        self._reach("received")
        answer = ask()
        if self.deadly == "answered":
            self._tables = None
        return answer


@good_method("create_table")
def reserves_dropped_names(self: ModelOwner, client: str, request: m.CreateTable) -> m.Answer:
    """Keeps the name of a dropped table until its data is purged."""
    tables = self.tables.values()
    dropped = any(table.name == request.name and not table.active and table.leaving is None for table in tables)
    if dropped and not any(request.attempt in table.landed for table in tables):
        return m.Rejected(reason="the name is reserved")
    return original(self).create_table(client, request)


@good_method("hand_back")
def returns_only_published_tables(self: ModelOwner, client: str, request: m.HandBack) -> m.Answer:
    """Rejects a hand-back until a client has requested the backfill of all commits."""
    table = self.tables.get(request.table)
    if table is not None and table.active and table.backfilled < table.latest and request.attempt not in table.landed:
        return m.Rejected(reason="backfill first", retryable=True)
    return original(self).hand_back(client, request)
