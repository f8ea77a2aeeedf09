"""Writers: one transaction is one commit, even after lost answers, old conflicts and a full backlog."""

import contextlib
import json
from functools import partial
from typing import Any

import msgspec

from conformance.adapters.delta_api import UNAVAILABLE
from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check
from conformance.checks.conflicts import added, prepare, removed, win
from conformance.interface import messages as m
from conformance.interface.log_names import FILESYSTEM, commit_file
from conformance.models import proposals
from conformance.models.proposals import BASE_TIME
from conformance.requirements.catalogue import Profile
from conformance.scenario.adversary import NO_ACCESS
from conformance.scenario.audit import Proposed
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.formatting import in_words
from conformance.scenario.log_builder import LogBuilder, file, vector
from conformance.scenario.scenario import Exchange, Inconclusive, TableHandle

TWICE = ("PROFILE-UNKNOWN-01", "PROFILE-CLIENT-02")
UNKNOWN = ("PROFILE-UNKNOWN-01", "MC-COMMIT-06", "CM-COMMIT-06", "PROFILE-CLIENT-02")


def append(s: ClientScenario, table: TableHandle, file: str = "mine", **options: Any) -> Exchange:
    """The client under test appends a file."""
    return s.transact(table, adds=(m.DataFile(path=file),), **options)


def landed(s: ClientScenario, table: TableHandle, call: Exchange, version: int, *requirements: str, why: str) -> None:
    """The transaction was committed exactly once, as this version."""
    expected = f"{why}: the transaction is version {version}, once"
    s.commits_as(call, version, *requirements, expected=expected)
    table.versions = max(table.versions, version + 1)
    s.require(
        files(s, table).count("mine") == 1, *requirements, evidence=(call,), expected=expected,
        observed=f"the table's commits add {files(s, table)}",
    )  # fmt: skip


def files(s: ClientScenario, table: TableHandle) -> list[str]:
    """Every file that a commit of the table adds, in the order of the versions."""
    paths = []
    for number in range(table.versions):
        paths += [body["path"] for body in s.actions_of(table, number, "add")]
    return paths


# Unknown outcomes


@check(Family.REPLAYS, *UNKNOWN)
def a_client_resolves_a_lost_answer_first(s: ClientScenario) -> None:
    """A writer whose commit landed, but whose answer was lost, reports success, and the table has its files once."""
    table = s.create()
    s.owner.on(m.Commit, lose_answer=True)
    call = append(s, table)
    landed(s, table, call, 1, *UNKNOWN, why="its first proposal was ratified before the answer was lost")


@check(Family.REPLAYS, *UNKNOWN)
def a_client_retries_a_lost_request(s: ClientScenario) -> None:
    """A writer whose request never arrived finds that out and commits."""
    table = s.create()
    s.owner.on(m.Commit, lose_request=True)
    call = append(s, table)
    landed(s, table, call, 1, "PROFILE-CLIENT-02", why="its first proposal never arrived")


@check(Family.REPLAYS, *UNKNOWN)
def a_client_recognizes_its_backfilled_commit(s: ClientScenario) -> None:
    """The answer is lost, then the commit is backfilled and other commits follow: the writer does not take its own
    commit for a lost race."""
    table = s.create()

    def go_on() -> None:
        table.versions = 2
        s.backfill(table, 1)
        s.land(table, client="other")
        s.backfill(table, 2)

    s.owner.on(m.Commit, lose_answer=True, after=go_on)
    call = append(s, table)
    landed(s, table, call, 1, *UNKNOWN, why="it was version 1 before other writers continued")


@check(Family.REPLAYS, *TWICE)
def a_server_error_is_an_unknown_outcome(s: ClientScenario) -> None:
    """The commit landed, was backfilled, and was answered 503; its replay is answered with a conflict, because the
    owner does not recognize it. The writer does not take its own commit for a lost race."""
    table = s.create()

    def publish() -> None:
        table.versions = 2
        s.backfill(table, 1)

    s.owner.on(m.Commit, change=lambda _: m.Unknown(reason=f"{UNAVAILABLE}: overloaded"), after=publish)
    s.owner.on(m.Commit, answer=m.Conflict())
    call = append(s, table)
    if isinstance(call.answer, m.Committed):
        landed(s, table, call, 1, *TWICE, why="its first proposal was ratified, and answered 503")
    s.require(
        files(s, table).count("mine") == 1, *TWICE, evidence=(call,), expected="its commit is in the table once",
        observed=f"the table's commits add {files(s, table)}",
    )  # fmt: skip


@check(Family.REPLAYS, *UNKNOWN)
def a_delayed_request_lands_once(s: ClientScenario) -> None:
    """A request arrives after its writer got no answer and proposed again. It lands once."""
    table = s.create()
    s.owner.on(m.Commit, lose_request=True)
    s.owner.on(m.Commit, before=lambda: s.answer("network", first_commit(s)))
    call = append(s, table)
    done = s.expect(call, m.Committed, *UNKNOWN, expected="the transaction is committed, once")
    table.versions = (done.version or 0) + 1
    s.require(
        files(s, table).count("mine") == 1, *UNKNOWN, evidence=(call,),
        expected="the writer ensured that its first request can no longer land before it proposed again",
        observed=f"the table's commits add {files(s, table)}",
    )  # fmt: skip


def first_commit(s: ClientScenario) -> m.Request:
    """The first proposal of the client under test."""
    return next(proposal.request for proposal in s.proposed if isinstance(proposal.request, m.Commit))


@check(Family.REPLAYS, "PROFILE-UNKNOWN-03", "PROFILE-UNKNOWN-01", commit_modes=("staged",))
def a_staged_file_stays_while_its_outcome_is_unknown(s: ClientScenario) -> None:
    """A writer that cannot resolve its commit reports the unknown outcome, and does not delete its staged file. The
    commit was ratified."""
    table = s.create()
    s.owner.go_silent_at_the_commit()
    call = append(s, table)
    s.not_answered_as_failed(call)
    table.versions = 2
    names = [commit.file_name for commit in s.listed(table)]
    staged = [file.name for file in s.observe(table)]
    for name in names:
        s.require(
            any(path.endswith(f"/{name}") for path in staged), "PROFILE-UNKNOWN-03", evidence=(call,),
            expected=f"the staged file {name} is version 1: it is not deleted", observed=f"the log folder has {staged}",
        )  # fmt: skip


# Lost races, refusals, limits


@check(Family.WRITING, "CONFLICT-RETRY-01", "CONFLICT-RETRY-05")
def many_lost_races_fail_no_append(s: ClientScenario) -> None:
    """A blind append that loses twenty races in a row is committed after them."""
    table = s.create()
    for version in range(1, 21):
        s.owner.on(m.Commit, before=partial(s.ask, "winner", s.proposal(table, version)))
    table.versions = 21
    landed(s, table, append(s, table), 21, "CONFLICT-RETRY-01", why="twenty winners, and none conflicts")


@check(Family.WRITING, "FIELD-04", "CONFLICT-RETRY-05")
def a_conflict_without_details_is_enough(s: ClientScenario) -> None:
    """The owner returns a conflict without latest version or winners: the writer requests the commits. The winner is
    unpublished."""
    table = s.create()
    s.owner.on(
        m.Commit, before=partial(s.ask, "winner", s.proposal(table, 1)),
        change=lambda call: m.Conflict() if isinstance(call, m.Conflict) else call,
    )  # fmt: skip
    table.versions = 2
    landed(s, table, append(s, table), 2, "FIELD-04", "CONFLICT-RETRY-05", why="a blind append lost one race")


@check(Family.WRITING, "FIELD-04", "CONFLICT-RETRY-05", commit_modes=("staged", "inline"))
def some_winners_are_unpublished(s: ClientScenario) -> None:
    """Two other writers were faster. The commit of the first is published, that of the second is not, and no conflict
    names them."""
    table = s.create()

    def win() -> None:
        s.ask("winner", s.proposal(table, 1))
        s.answer("kit", m.BackfillToVersion(table=table.reference, version=1))
        s.ask("winner", s.proposal(table, 2))
        table.versions = 3

    for first in (True, False):
        s.owner.on(
            m.Commit, before=win if first else None,
            change=lambda call: m.Conflict() if isinstance(call, m.Conflict) else call,
        )  # fmt: skip
    landed(s, table, append(s, table), 3, "FIELD-04", "CONFLICT-RETRY-05", why="a blind append lost to two others")


@check(Family.WRITING, "CONFLICT-RETRY-06", "FIELD-04")
def a_writer_that_never_wins_gives_up(s: ClientScenario) -> None:
    """The owner answers every proposal with a conflict, and lists no winner: the writer ends with an error."""
    table = s.create()
    s.owner.on(m.Commit, answer=m.Conflict(), times=100_000)
    call = append(s, table)
    s.require(
        not isinstance(call.answer, m.Committed), "PROFILE-CLIENT-02", evidence=(call,),
        expected="nothing was ratified: an error",
    )  # fmt: skip


@check(Family.WRITING, "CONFLICT-RETRY-02")
def a_rejection_is_not_retried(s: ClientScenario) -> None:
    """Only a lost version is retried: a rejection that is not retryable ends the transaction."""
    table = s.create()
    s.owner.on(m.Commit, answer=m.Rejected(reason="not allowed"), times=100_000)
    call = append(s, table)
    tries = len(s.asked(m.Commit))
    s.require(
        tries == 1 and not isinstance(call.answer, m.Committed), "CONFLICT-RETRY-02", evidence=(call,),
        expected="the owner rejected for a reason that a retry does not change: one proposal, and an error",
        observed=f"after {tries} proposals the answer was {in_words(call.answer)}",
    )  # fmt: skip


@check(Family.LIMITS, "PROFILE-BACKLOG-03", commit_modes=("staged", "inline"), needs=(Profile.BACKLOG_LIMIT,))
def a_client_backfills_a_full_backlog(s: ClientScenario) -> None:
    """The owner accepts no more unbackfilled commits: the writer requests a backfill, and commits."""
    table = s.create(backlog_limit=2)
    s.land(table)
    s.land(table)
    landed(s, table, append(s, table), 3, "PROFILE-BACKLOG-03", why="the backlog of two commits can be backfilled")


# Files


@check(Family.WRITING, "DELAYED-02", "DELAYED-04", "DELAYED-05", "DELAYED-08", "DELAYED-10", features=EVERY_TABLE)
def every_file_is_committed_with_its_path_and_partition(s: ClientScenario) -> None:
    """All files of a transaction are in its one commit, each once, with a correct path and partition value, which may
    be null."""
    attempt = s.attempt()
    actions = proposals.version_0(s.feature, attempt, s.attempt(), partition_columns=("part",))
    table = s.create(attempt=attempt, actions=actions)
    wanted = {"part=x/one.parquet": "x", "part=a b%/two %25.parquet": "a b%", "part=y/three.parquet": "y",
              "part=__HIVE_DEFAULT_PARTITION__/four.parquet": None}  # fmt: skip
    adds = tuple(m.DataFile(path=path, partition=value) for path, value in wanted.items())
    call = s.transact(table, adds=adds)
    if isinstance(call.answer, m.Rejected):  # no document says that a writer accepts a null
        wanted.popitem()
        call = s.transact(table, adds=adds[:-1])
    s.expect(call, m.Committed, "PROFILE-CLIENT-02", expected="there is no conflict: version 1")
    table.versions = 2
    changes = sorted({s.decoded(body["path"]) for body in s.actions_of(table, 1, "cdc")} & set(wanted))
    s.require(
        not changes, "DELAYED-04", evidence=(call,), expected="data files are added to the table",
        observed=f"the commit has {changes} as change data",
    )  # fmt: skip
    bodies = s.actions_of(table, 1, "add")
    s.require(
        len(bodies) == len(wanted), "DELAYED-10", "DELAYED-02", evidence=(call,),
        expected=f"{len(wanted)} files were written, and each is added once",
        observed=f"the commit has {len(bodies)} add actions",
    )  # fmt: skip
    partitions = {s.decoded(body["path"]): (body.get("partitionValues") or {}).get("part") or None for body in bodies}
    s.require(
        partitions == wanted, "DELAYED-05", evidence=(call,), observed=f"the commit names {partitions}",
        expected=f"paths are URL-encoded once and find the files; partition values are unencoded: {wanted}",
    )  # fmt: skip
    s.require(
        all(set(body.get("partitionValues") or {}) == {"part"} for body in bodies), "DELAYED-08", evidence=(call,),
        expected="the partition column `part`, and no other",
        observed=f"the partition values are {[body.get('partitionValues') for body in bodies]}",
    )  # fmt: skip


@check(Family.WRITING, "LOG-30", features=EVERY_TABLE)
def a_removed_file_is_named_with_its_deletion_vector(s: ClientScenario) -> None:
    """The table has a file with a deletion vector and one without. A transaction that removes both leaves none."""
    log = LogBuilder.create(s, reader_features=("deletionVectors",))
    log.land(file("a", deletionVector=vector("first"), stats=json.dumps({"numRecords": 2})), file("b"), file("c"))
    call = s.transact(log.table, removes=("a", "b"))
    if not isinstance(call.answer, m.Committed):
        raise Inconclusive(f"operation {call.number}: the client removed no file of a table with deletion vectors")
    left = s.kit_reads(log.table, 2)
    s.require(
        left == {"c"}, "LOG-30", evidence=(call,), version=2, observed=f"the kit reads the files {sorted(left)}",
        expected="version 2 removes `a`, which it names with its deletion vector, and `b`: the file `c` is left",
    )  # fmt: skip


@check(Family.WRITING, "LOG-47", features=EVERY_TABLE)
def unsupported_protocols_are_not_written(s: ClientScenario) -> None:
    """Version 1 requires an unknown writer feature, or a writer version that does not exist: a transaction is rejected.
    If it repeats the protocol of version 0, the transaction lands."""
    for name, why, changes in (
        ("known", "", {}),
        ("features", "the feature `anUnknownFeature`", proposals.with_features(s.feature, "anUnknownFeature")),
        ("version", "writer version 8", {"minWriterVersion": 8}),
    ):
        table = s.create(name)
        [known] = s.actions_of(table, 0, "protocol")
        protocol, attempt = {**known, **changes}, s.attempt()
        s.land(table, attempt=attempt, actions=(
            proposals.commit_info(attempt, s.timestamp(1)), proposals.line("protocol", protocol),
        ))  # fmt: skip
        call = s.transact(table, adds=(m.DataFile(path="mine"),))
        if not why:
            landed(s, table, call, 2, "PROFILE-CLIENT-02", why="version 1 repeats the protocol of version 0")
            continue
        s.require(
            not isinstance(call.answer, m.Committed), "LOG-47", evidence=(call,), version=2,
            expected=f"version 1 requires {why}, which is unknown: the transaction is rejected",
        )  # fmt: skip


# Tables with and without an owner


@check(
    Family.WRITING, "MC-FILES-11", "CONFLICT-RETRY-03", "CONFLICT-RETRY-05",
    features=("managedCommit", FILESYSTEM), commit_modes=("direct",),
)  # fmt: skip
def without_an_owner_put_if_absent_decides(s: ClientScenario) -> None:
    """In a table without an owner a writer commits by creating the next file, and never replaces an existing one."""
    table = s.filesystem_table("plain")
    path = table.reference
    first = s.act("writer", m.Transact(table=path, marker=s.attempt(), adds=(m.DataFile(path="one"),)))
    s.expect(first, m.Committed, "MC-FILES-11", "CONFLICT-RETRY-05", expected="no other writer: version 1")
    table.versions = 2
    planted = s.write_file(table)
    call = s.act("writer", m.Transact(table=path, marker=s.attempt(), read_version=1, adds=(m.DataFile(path="two"),)))
    done = s.expect(call, m.Committed, "CONFLICT-RETRY-05", expected="a blind append after another commit: version 3")
    s.require(
        done.version == 3 and s.content_of(table, 2) == planted, "CONFLICT-RETRY-03", "MC-FILES-11", evidence=(call,),
        expected="version 2 existed: it stays unchanged, and the transaction is version 3",
        observed=f"the transaction was committed as {done.version}; version 2 is {s.content_of(table, 2)!r}",
    )  # fmt: skip


@check(
    Family.WRITING, "MC-FILES-11", "CONFLICT-RETRY-03", features=("managedCommit", FILESYSTEM), commit_modes=("direct",)
)
def a_cleaned_up_version_is_not_reused(s: ClientScenario) -> None:
    """The commits before the checkpoint of version 5 were deleted in a table without an owner. A writer that read
    version 1 from its checkpoint does not commit version 2 again, because no reader would see it."""
    log = LogBuilder.filesystem(s)
    protocol = proposals.line("protocol", {"minReaderVersion": 1, "minWriterVersion": 2})
    metadata = proposals.metadata(s.attempt(), BASE_TIME, stamped=False)
    log.write(proposals.commit_info(s.attempt(), BASE_TIME), protocol, metadata, modified=BASE_TIME)
    for version in range(1, 6):
        log.write(proposals.commit_info(s.attempt(), BASE_TIME + version), file(f"file-{version}"), modified=BASE_TIME)
    log.checkpoint(1)
    log.checkpoint(5)
    log.hide(*(commit_file(version) for version in range(5)))
    log.hint(5)
    late = m.Transact(table=log.location, marker=s.attempt(), read_version=1, adds=(m.DataFile(path="late"),))
    call = s.act("writer", late, log.table)
    made = (log.folder / commit_file(2)).exists()
    s.require(
        not made, "MC-FILES-11", "CONFLICT-RETRY-03", evidence=(call,), version=2,
        expected="version 2 was committed before, and version 5 builds on it: this writer lost version 2, and must "
        "read the table again",
        observed=f"{commit_file(2)} was created again, and the answer is {in_words(call.answer)}",
    )  # fmt: skip
    again = s.act(
        "writer", m.Transact(table=log.location, marker=s.attempt(), adds=(m.DataFile(path="next"),)), log.table
    )
    done = s.expect(again, m.Committed, "PROFILE-CLIENT-02", expected="no conflict on the newest version")
    log.table.versions = (done.version or 0) + 1


@check(Family.WRITING, "CM-ACCESS-02", "CM-WRITE-01", "MC-WRITE-03", "CM-WRITE-04", "MC-FILES-12")
def an_owned_table_is_not_written_by_path(s: ClientScenario) -> None:
    """A writer that has only the path of an owned table commits through its owner or not at all; with the name it
    commits."""
    table = s.create()
    path = s.location(table)
    call = s.act("writer", m.Transact(table=path, marker=s.attempt(), adds=(m.DataFile(path="sneaked"),)), table)
    if isinstance(call.answer, m.Committed):
        s.require(
            s.feature == "managedCommit", "CM-ACCESS-02", "CM-WRITE-01", evidence=(call,),
            expected="a catalog-managed table is written only through its catalog: the client rejects the path",
        )  # fmt: skip
        table.versions += 1
    landed(s, table, append(s, table), table.versions, "PROFILE-CLIENT-02", why="the name finds the owner")


# Version 0


@check(Family.VERSION_0, "PROFILE-UNKNOWN-02")
def a_creator_recognizes_its_own_version_0(s: ClientScenario) -> None:
    """A client whose creation succeeded, but whose answer was lost, finds out that it created the table."""
    s.owner.on(m.CreateTable, lose_answer=True)
    creation = s.creation("created")
    call = s.act("creator", creation)
    made = s.expect(
        call, m.Ratified, "PROFILE-UNKNOWN-02", expected="its version 0 landed before the answer was lost: it succeeded"
    )
    s.created("created", call, made)


@check(Family.VERSION_0, "PROFILE-UNKNOWN-02")
def a_creator_recognizes_its_table_in_a_conflict(s: ClientScenario) -> None:
    """A creation succeeds, and its answer is lost. The owner does not recognize the same request when it arrives again:
    it answers that the name is taken, by this very table. A client that takes it for another creator's table deletes
    its own version 0 and data files."""

    def taken(answer: m.Answer) -> m.Answer:
        return m.Conflict(latest=0, winner_table=answer.table) if isinstance(answer, m.Ratified) else answer

    s.owner.on(m.CreateTable, lose_answer=True)
    s.owner.on(m.CreateTable, change=taken)
    call = s.act("creator", s.creation("created"))
    s.require(
        not isinstance(call.answer, m.Conflict | m.Rejected), "PROFILE-UNKNOWN-02", evidence=(call,),
        expected="its version 0 landed before the answer was lost: no failure",
        observed=f"the creation was answered {in_words(call.answer)}",
    )  # fmt: skip
    if isinstance(call.answer, m.Ratified):
        s.created("created", call, call.answer)


@check(Family.VERSION_0, "PROFILE-UNKNOWN-02")
def a_creator_recognizes_another_version_0(s: ClientScenario) -> None:
    """A client's create request is lost, and another creator takes the name: the client reports that it lost. Without
    another creator it creates the table."""
    s.owner.on(m.CreateTable, before=partial(s.create, "taken", client="other creator"), lose_request=True)
    call = s.act("creator", s.creation("taken"))
    s.require(
        not isinstance(call.answer, m.Ratified), "PROFILE-UNKNOWN-02", evidence=(call,),
        expected="version 0 of that name is another creator's: an error",
    )  # fmt: skip
    again = s.act("creator", s.creation("free"))
    s.created("free", again, s.expect(again, m.Ratified, "PROFILE-CLIENT-02", expected="the name is free"))


# Other folders


@check(Family.WRITING, "PROFILE-CLIENT-03", features=EVERY_TABLE)
def a_client_keeps_to_the_folder_of_its_table(s: ClientScenario) -> None:
    """A client reads, writes and maintains one of two tables. Nothing appears in the other table's folder, nor beside
    the tables. (Every other scenario looks for that, too.)"""
    table, other = s.create(), s.create("other")
    s.land(other)
    name, attempt = s.name_of(table), s.attempt()
    jobs: list[m.Request] = [
        m.Snapshot(path=name) if s.feature == FILESYSTEM else m.Snapshot(table=name),
        m.Transact(table=name, marker=attempt, adds=(m.DataFile(path="one"),)),
        m.Checkpoint(table=name, version=0), m.Checksum(table=name, version=0),
    ]  # fmt: skip
    done = 0
    for job in jobs:
        with contextlib.suppress(Inconclusive):
            call = s.act("client", job, table)
            table.versions += isinstance(call.answer, m.Committed)
            done += 1
    if not done:
        raise Inconclusive("the client carried out none of these requests")


# Writes of many tasks (delayed-commit-protocol): all of a write is one commit, or none of it

FILES = ("one", "two", "three")
"""The files that the tasks of a write wrote."""
MOST_VERSIONS = 5
"""More versions than any of these tables gets."""


def of_the_write(s: ClientScenario, table: TableHandle) -> list[str]:
    """Files of the write that commits of the table add, published or not."""
    added = [body["path"] for version in range(MOST_VERSIONS) for body in s.actions_of(table, version, "add")]
    return sorted(set(FILES) & {s.decoded(path) for path in added})


def in_proposal(s: ClientScenario, proposed: Proposed) -> list[str]:
    """Files of the write that a proposal adds."""
    bodies = [json.loads(line).get("add") for line in proposed.lines or ()]
    return sorted(set(FILES) & {s.decoded(body["path"]) for body in bodies if body})


def write(s: ClientScenario, table: TableHandle, *, removes: tuple[str, ...] = (), base: int | None = None) -> Exchange:
    """One transaction with the files of all tasks."""
    adds = tuple(m.DataFile(path=path) for path in FILES)
    return s.transact(table, adds=adds, removes=removes, read_version=base)


@check(Family.WRITING, "DELAYED-01", "DELAYED-03", "DELAYED-02", "DELAYED-10")
def a_write_is_committed_as_a_whole(s: ClientScenario) -> None:
    """A write of three tasks loses a race and is proposed again: until it is ratified, the log names none of its
    files, and every proposal has all of them."""
    table = s.create()
    early: list[str] = []
    s.owner.on(m.Commit, before=partial(s.ask, "winner", s.proposal(table, 1)))
    s.owner.on(m.Commit, before=lambda: early.extend(of_the_write(s, table)), times=10)
    call = write(s, table)
    s.require(
        not early, "DELAYED-01", "DELAYED-03", evidence=(call,),
        expected="the log has no file of the write before the driver's last proposal",
        observed=f"the log had {sorted(set(early))}",
    )  # fmt: skip
    for proposed in s.proposed:
        named = in_proposal(s, proposed)
        s.require(
            not named or len(named) == len(FILES), "DELAYED-03", "DELAYED-02", "DELAYED-10", evidence=(call,),
            expected=f"the driver proposes after all tasks succeeded: {', '.join(FILES)} together",
            observed=f"{proposed.named()} has only {', '.join(named)}",
        )  # fmt: skip
    done = s.expect(call, m.Committed, "PROFILE-CLIENT-02", expected="a blind append that lost one race: version 2")
    s.require(done.version == 2, "PROFILE-CLIENT-02", evidence=(call,), expected="version 2")
    table.versions = 3


@check(Family.WRITING, "DELAYED-11", "CONFLICT-CHECK-02")
def an_aborted_write_leaves_no_commit(s: ClientScenario) -> None:
    """A write that conflicts, and one that the owner rejects, end with an error: no commit names their files. The same
    write succeeds without the obstacle."""
    table = prepare(s)
    winner = win(s, table, [removed(s, "a")])
    conflicting = write(s, table, removes=("a",), base=1)
    _left_nothing(s, table, conflicting, winner, why="another transaction removed the file that it removes")
    refusing = s.owner.on(m.Commit, answer=m.Rejected(reason="not today"), times=100_000)
    refused = write(s, table)
    _left_nothing(s, table, refused, why="the owner rejected it")
    refusing.times = 0
    again = write(s, table)
    s.expect(again, m.Committed, "PROFILE-CLIENT-02", expected="there is no conflict: version 3")
    table.versions = 4


def _left_nothing(s: ClientScenario, table: TableHandle, call: Exchange, *because: Exchange, why: str) -> None:
    expected = f"{why}: the write ends with an error, and no commit names a file of it"
    s.require(
        isinstance(call.answer, m.Conflict | m.Rejected), "CONFLICT-CHECK-02", evidence=(call, *because),
        expected=expected,
    )  # fmt: skip
    named = of_the_write(s, table)
    s.require(
        not named, "DELAYED-11", "CONFLICT-CHECK-02", evidence=(call, *because), expected=expected,
        observed=f"the log names {named}",
    )  # fmt: skip


@check(Family.WRITING, "DELAYED-05", "DELAYED-02", features=EVERY_TABLE)
def a_file_outside_the_table_is_rejected_or_correct(s: ClientScenario) -> None:
    """A write with a file outside the table's folder is rejected as a whole, or its path is correct; a write without
    such a file succeeds."""
    table = s.create()
    (s.place / "elsewhere").mkdir()
    outside = str(s.place / "elsewhere" / "one.parquet")
    adds = (m.DataFile(path="inside"), m.DataFile(path=outside))
    call = s.transact(table, adds=adds)
    if isinstance(call.answer, m.Committed):
        paths = [s.decoded(body["path"]) for body in s.actions_of(table, 1, "add")]
        plain = [path.removeprefix("file:").removeprefix("//") for path in paths]
        s.require(
            len(paths) == 2 and outside in plain, "DELAYED-05",
            evidence=(call,), expected=f"two files, one of them at {outside}", observed=f"version 1 adds {paths}",
        )  # fmt: skip
        table.versions = 2
    after = s.transact(table, adds=(m.DataFile(path="inside-too"),))
    done = s.expect(after, m.Committed, "PROFILE-CLIENT-02", expected=f"version {table.versions}")
    s.require(
        done.version == table.versions, "DELAYED-02", "PROFILE-CLIENT-02", evidence=(after, call),
        expected=f"the rejected write left no commit: version {table.versions}",
    )  # fmt: skip
    table.versions += 1


OFTEN = 1_000
"""More requests than any client may send."""


@check(Family.REPLAYS, *UNKNOWN)
def a_client_repeats_a_lost_lookup(s: ClientScenario) -> None:
    """The answer to a commit is lost, and so are the first two lookups. The writer reports its one commit."""
    table = s.create()
    s.owner.on(m.Commit, lose_answer=True)
    s.owner.on(m.AttemptOutcome, lose_request=True, times=2)
    landed(s, table, append(s, table), 1, *UNKNOWN, why="it was ratified before the answer was lost")


@check(Family.WRITING, "CONFLICT-RETRY-05", "FIELD-04")
def a_conflict_may_be_out_of_date(s: ClientScenario) -> None:
    """A conflict names an old latest version and old winners: the writer continues from the commits that it finds,
    and is committed after the last winner."""
    table = s.create()
    winners = [s.proposal(table, version) for version in (1, 2, 3)]
    s.owner.on(
        m.Commit, before=lambda: [s.ask("winner", winner) for winner in winners],
        change=lambda call: m.Conflict(latest=0, winners=()) if isinstance(call, m.Conflict) else call,
    )  # fmt: skip
    table.versions = 4
    landed(s, table, append(s, table), 4, "CONFLICT-RETRY-05", why="three winners, and none conflicts")


@check(Family.WRITING, "PROFILE-CLIENT-02", "CONFLICT-RETRY-05", features=("managedCommit",))
def a_missing_latest_version_is_no_empty_table(s: ClientScenario) -> None:
    """An owner without staged commits may return no latest version, or -1, for a table with versions: the writer
    proposes the version after those that it sees."""
    for name, nothing in (("none", None), ("minus-one", -1)):
        table = s.create(name)
        rules = [
            s.owner.on(kind, change=partial(_with_latest, nothing), times=OFTEN) for kind in (m.GetCommits, m.LoadTable)
        ]
        landed(s, table, append(s, table), 1, "PROFILE-CLIENT-02", why="version 0 is published")
        for rule in rules:
            rule.times = 0


def _with_latest(latest: int | None, call: m.Answer) -> m.Answer:
    """The answer of an owner without staged commits, with `latest` as its latest version."""
    if isinstance(call, m.Commits | m.Table) and not call.commits:
        return msgspec.structs.replace(call, latest=latest)
    return call


@check(Family.LIMITS, "PROFILE-BACKLOG-03", commit_modes=("staged", "inline"), needs=(Profile.BACKLOG_LIMIT,))
def a_client_backfills_a_refilled_backlog(s: ClientScenario) -> None:
    """The writer requests a backfill of a full backlog, and other writers fill it again first: the writer requests
    another backfill, and commits."""
    table = s.create(backlog_limit=2)
    s.land(table)
    s.land(table)

    def fill() -> None:
        s.land_all(table, 2, client="faster")

    s.owner.on(m.BackfillToVersion, after=fill)
    call = append(s, table)
    landed(s, table, call, table.versions, "PROFILE-BACKLOG-03", why="the full backlog can be backfilled")


# Repeated races, and no answer

RACES = 5
OFTEN = 1_000
"""More requests than any client may send."""


@check(Family.CONFLICTS, "CONFLICT-RETRY-04", "CONFLICT-RETRY-01")
def the_last_of_many_lost_races_is_checked(s: ClientScenario) -> None:
    """A transaction that removes file `a` loses five versions in a row. The first four winners add files, the last one
    removes `a`: it fails. Another transaction, which loses only to appends, is committed or, against advice, gives
    up."""
    for name, conflicts in (("taken", True), ("passed", False)):
        table = prepare(s, name)
        winners = [added(s, f"theirs-{number}") for number in range(RACES)]
        if conflicts:
            winners[-1] = removed(s, "a")
        for winner in winners:
            s.owner.on(m.Commit, before=partial(_wins, s, table, winner))
        call = s.transact(table, removes=("a",), isolation=m.Isolation.SNAPSHOT)
        right = isinstance(call.answer, m.Conflict | m.Rejected if conflicts else m.Committed)
        why = "the fifth winner removed the file `a`" if conflicts else "five winners only added files"
        s.require(
            right, "CONFLICT-RETRY-04" if conflicts else "CONFLICT-RETRY-01", evidence=(call,), table=table,
            expected=f"{why}: {'a conflict' if conflicts else 'the transaction is committed after them'}",
        )  # fmt: skip
        s.owner.rules.clear()
        if isinstance(call.answer, m.Committed):
            table.versions += 1


def _wins(s: ClientScenario, table: TableHandle, action: str) -> None:
    """Another writer commits the next version first."""
    attempt = s.attempt()
    info = proposals.commit_info(attempt, s.timestamp(table.versions))
    s.land(table, client="winner", attempt=attempt, actions=(info, action))


@check(Family.REPLAYS, "PROFILE-UNKNOWN-01", "PROFILE-UNKNOWN-03", "LOG-37", "PROFILE-CLIENT-02")
def a_refusal_after_a_lost_answer_proves_nothing(s: ClientScenario) -> None:
    """A commit lands, its answer is lost, and the owner refuses all later requests of the writer, in another table as
    those for a table that was dropped. The outcome is unknown, and the data files stay. If the owner refuses the first
    request, the commit failed."""
    table, dropped, other = map(s.create, ("orders", "dropped", "other"))
    for handle, refusal in ((table, NO_ACCESS), (dropped, m.NotFound())):
        s.owner.refuse_after(m.Commit, refusal=refusal)
        s.not_answered_as_failed(append(s, handle))
        handle.versions = 2
        s.owner.rules.clear()
    s.owner.on(m.Commit, answer=m.Rejected(reason="no access"))
    refused = append(s, other, "refused")
    s.require(
        not isinstance(refused.answer, m.Committed), "PROFILE-CLIENT-02", evidence=(refused,), table=other,
        expected="the owner refused the commit",
    )  # fmt: skip


@check(Family.REPLAYS, "PROFILE-UNKNOWN-01", "PROFILE-UNKNOWN-03", "LOG-37", "PROFILE-CLIENT-02")
def a_refusal_after_a_conflict_proves_nothing(s: ClientScenario) -> None:
    """The answer to a commit that landed is lost. The owner does not recognize the same commit when it arrives again:
    it answers with a conflict, or that the backlog is full, and refuses all other requests. The outcome is unknown, and
    the data files stay, even if a checkpoint and a cleanup removed the commit meanwhile. In another table the backlog
    is full only once: the transaction is committed once. In the last one the conflict is about another writer's commit:
    the writer does not report success."""
    log, table, full, once, other = LogBuilder.create(s), *map(s.create, ("kept", "full", "once", "other"))

    def clean_up() -> None:
        log.table.versions = 2
        log.actions[1] = [json.loads(line) for line in proposals.lines(s.content_of(log.table, 1))]
        log.land(file("theirs"))
        log.backfill(2)
        log.checkpoint(2)
        log.hide(commit_file(0), commit_file(1))

    s.owner.refuse_after(m.Commit, again=m.Conflict(), then=clean_up)
    s.not_answered_as_failed(append(s, log.table))
    s.owner.rules.clear()
    too_many = m.Rejected(reason="the backlog is full", retryable=True)
    for handle, again in ((table, m.Conflict()), (full, too_many)):
        s.owner.refuse_after(m.Commit, again=again)
        s.not_answered_as_failed(append(s, handle))
        handle.versions = 2
        s.owner.rules.clear()
    s.owner.on(m.Commit, lose_answer=True)
    s.owner.on(m.Commit, answer=too_many)
    s.not_answered_as_failed(append(s, once))
    once.versions = 2
    s.owner.rules.clear()
    s.owner.refuse_after(m.Commit, again=m.Conflict(), before=lambda: s.land(other, client="winner"))
    lost = append(s, other, "lost")
    s.require(
        not isinstance(lost.answer, m.Committed), "PROFILE-CLIENT-02", evidence=(lost,), table=other,
        expected="version 1 is the commit of another writer: no success",
    )  # fmt: skip


@check(Family.VERSION_0, "PROFILE-UNKNOWN-01")
def a_refusal_after_a_lost_creation_proves_nothing(s: ClientScenario) -> None:
    """A table is created, the answer is lost, and the owner refuses whatever the creator asks after that: the outcome
    is unknown. A creation that is refused at once may be reported as failed."""
    s.owner.on(m.CreateTable, answer=m.Rejected(reason="no access"))
    s.act("creator", s.creation("refused"))
    s.owner.refuse_after(m.CreateTable)
    s.not_answered_as_failed(s.act("creator", s.creation("created")))


@check(Family.REPLAYS, "PROFILE-UNKNOWN-01", "PROFILE-CLIENT-02")
def no_answer_is_no_success(s: ClientScenario) -> None:
    """No request of the writer arrives after it read the table: neither its commit nor any lookup. It does not report
    success. A writer whose requests arrive commits."""
    table = s.create()
    s.owner.on(m.Commit, lose_request=True, times=OFTEN)
    s.owner.on(m.AttemptOutcome, lose_request=True, times=OFTEN)
    call = append(s, table)
    s.require(
        not isinstance(call.answer, m.Committed), "PROFILE-UNKNOWN-01", "PROFILE-CLIENT-02", evidence=(call,),
        table=table,
        expected="no request was answered, and nothing was ratified: an error",
    )  # fmt: skip
    s.owner.rules.clear()
    again = append(s, table, "heard")
    s.expect(again, m.Committed, "PROFILE-CLIENT-02", expected="the owner answers again: version 1")
    table.versions = 2
