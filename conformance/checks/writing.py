"""Writers: one transaction is one commit with exactly its changes, even after lost answers, old conflicts and a full
backlog.

Why examples: reported findings about engines name them.
"""

from typing import Any

from conformance.adapters.identity import EVERY_TABLE
from conformance.adapters.uc.server import UNAVAILABLE
from conformance.checks import check, families
from conformance.interface import messages as m
from conformance.interface.log_names import FILESYSTEM, commit_file
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.models.proposals import BASE_TIME
from conformance.programs.client_words import ClientFamily
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.adversary import NO_ACCESS
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.formatting import in_words
from conformance.scenario.log_builder import LogBuilder, file
from conformance.scenario.scenario import Exchange, TableHandle


@check(
    Family.WRITING, *families.TRANSACTIONS, "MC-FILES-11", "CONFLICT-RETRY-03", "CONFLICT-RETRY-07", "CM-LOG-06",
    "MC-WRITE-02", "CM-WRITE-03", layer=Layer.MODEL, side="client", features=EVERY_TABLE,
)  # fmt: skip
def any_change_by_the_client(g: Generation) -> None:
    """Generated changes by the client, with lost answers, bare conflicts and cleanups: the files, partition values,
    properties, protocol and metadata that it commits are the requested ones, once."""
    factors = {
        "transact": 5, "create": 1, "overtaken": 2, "metadata": 2, "win": 0.7, "of_writers": 1.3, "read": 0.3,
        "maintain": 0.2,
    }  # fmt: skip
    g.run(ClientFamily(name=g.check.family, factors=factors))


TWICE = ("PROFILE-UNKNOWN-01", "PROFILE-CLIENT-02")


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


@check(
    Family.LIMITS, "PROFILE-BACKLOG-03", "UC-CLIENT-04", commit_modes=("staged", "inline"),
    needs=(Profile.BACKLOG_LIMIT,),
)  # fmt: skip
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


# Tables with and without an owner


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


# No answer


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
