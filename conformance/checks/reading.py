"""Readers: from an owner's answer and a listing to one gap-free snapshot."""

import json

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check
from conformance.checks.log_tail import FRESH, table_with
from conformance.interface import messages as m
from conformance.interface.log_names import STAGING, commit_file, staged_file
from conformance.models import proposals
from conformance.scenario.adversary import CommitsAndLatest, Entries
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, application, domain, file, gone, vector
from conformance.scenario.ownership import drop
from conformance.scenario.scenario import Inconclusive
from conformance.scenario.snapshots import ask, is_snapshot, must_read, must_refuse, newest_returned

APPLIED = ("MC-LOG-06", "CM-LOG-03")


@check(Family.READING, "CM-READ-02", "LOG-18", "MC-LOG-03", "CM-READ-09", "MC-READ-05", "MC-READ-08", "LOG-12",
       "CM-GET-02", "CM-READ-07", *FRESH)  # fmt: skip
def published_and_unpublished_commits_make_one_snapshot(s: ClientScenario) -> None:
    """Commits that the owner does not list come from the listing, the others from the owner."""
    log = table_with(s, 2)
    must_read(log, 2, "CM-READ-09", "MC-LOG-03", *FRESH,
              expected="versions 1 and 2 were ratified: the owner lists them")  # fmt: skip
    log.backfill(2)
    must_read(log, 2, "CM-READ-02", "LOG-18", expected="versions 0 to 2 are published: the listing shows them")
    log.land(gone("file-1"), file("file-3"))
    must_read(log, 3, "CM-READ-02", "LOG-18", *FRESH,
              expected="versions 0 to 2 from the listing and 3 from the owner, without a gap")  # fmt: skip


@check(Family.READING, *APPLIED, "LOG-09", "PROFILE-CLIENT-01", features=EVERY_TABLE)
def every_version_applies_all_earlier_commits(s: ClientScenario) -> None:
    """Each version has the files of all commits up to it: added, removed, and added again."""
    log = LogBuilder.create(s)
    log.land(file("a"), file("b"))
    log.land(gone("a"), file("c"))
    log.backfill(2)
    log.land(gone("b"))
    log.land(file("a"), gone("c"))
    for version in (4, 3, 2, 1, 0):
        must_read(log, version, *APPLIED, "LOG-09", version=version,
                  expected=f"version {version} has the files that its commits up to {version} added and did not remove "
                  f"since")  # fmt: skip


@check(Family.READING, "LOG-09", "PROFILE-CLIENT-01", "LOG-11", "CM-READ-09", "MC-LOG-03", features=EVERY_TABLE)
def the_requested_version_is_read(s: ClientScenario) -> None:
    """A read returns the requested version, published or not; a version above the latest is an error."""
    log = table_with(s, 2)
    log.backfill(2)
    log.land(file("file-3"))
    log.land(file("file-4"))
    must_read(log, 2, "LOG-09", version=2, expected="version 2, although newer versions exist")
    must_read(log, 3, "CM-READ-09", "MC-LOG-03", "LOG-09", version=3,
              expected="version 3 is ratified: it is read from the owner, although it is unpublished")  # fmt: skip
    must_read(log, 4, "LOG-09", *FRESH, expected="without a requested version, the latest: 4")
    must_refuse(log, "LOG-11", version=5, expected="version 5 does not exist: an error, not another version")


@check(Family.READING, "CM-READ-04", "LOG-09", "LOG-15", features=("catalogManaged",))
def the_catalogs_latest_version_limits_the_snapshot(s: ClientScenario) -> None:
    """Commits published after the catalog answered are above the version that it returned, and are ignored, even by a
    reader that lists the log during its request and again after the answer."""
    log = table_with(s, 2)

    def three_more() -> None:
        log.land(file(f"file-{log.latest + 1}"))
        log.land(file(f"file-{log.latest + 1}"))
        log.backfill(log.latest)
        log.checkpoint(log.latest)
        log.hint(log.latest)
        log.land(file(f"file-{log.latest + 1}"))

    s.owner.on(m.GetCommits, before=lambda: log.backfill(log.latest), after=three_more, times=5)
    call, since = ask(log)
    read = s.expect(call, m.SnapshotRead, "CM-READ-04", expected="a snapshot of version 2")
    latest = newest_returned(s, since)
    s.require(
        read.version == latest, "CM-READ-04", "LOG-09", "LOG-15", evidence=(call, log.committed[latest]),
        table=log.table, version=read.version, observed=f"the read returned a snapshot of version {read.version}",
        expected=f"the catalog returned latest version {latest}: the snapshot of version {latest}, although the "
        f"listing shows newer files",
    )  # fmt: skip
    is_snapshot(log, call, read, "CM-READ-04", "LOG-15")
    s.owner.rules.clear()
    must_read(log, log.latest, "CM-READ-05", expected="asked again, the catalog returns the newest version")


@check(Family.READING, "CM-READ-04", "LOG-11", features=("catalogManaged",))
def a_version_above_the_catalogs_latest_is_not_read(s: ClientScenario) -> None:
    """A requested version that was published after the catalog answered is an error for that read, although its file
    exists."""
    log = table_with(s, 2)
    must_read(log, 2, "LOG-09", version=2, expected="version 2 was ratified before the read began")

    def one_more() -> None:
        log.land(file("file-3"))
        log.backfill(3)

    s.owner.after_commits_are_read(one_more)
    call, since = ask(log, version=3)
    if isinstance(call.answer, m.SnapshotRead):
        s.require(
            newest_returned(s, since) >= 3, "CM-READ-04", "LOG-11", evidence=(call, log.committed[3]), table=log.table,
            version=3,
            expected="the catalog returned latest version 2: an error for version 3, or another request",
            observed="the read returned version 3, which the catalog had not returned",
        )  # fmt: skip
        is_snapshot(log, call, call.answer, "CM-READ-04")
    must_read(log, log.latest, "CM-READ-05", version=log.latest, expected="asked again, the catalog returns version 3")


@check(Family.READING, "MC-FILES-09", "LOG-09", features=("managedCommit",), commit_modes=("direct",))
def a_direct_commit_counts_before_its_owner_knows(s: ClientScenario) -> None:
    """A commit that became visible in a managedCommit table by put-if-absent is read, even if its owner returns an
    older latest version."""
    log = table_with(s, 3)
    must_read(log, 3, "MC-FILES-09", expected="version 3 is published")
    s.owner.override_commits(lambda commits, _: (commits, 2))
    must_read(
        log, 3, "MC-FILES-09", "LOG-09",
        expected="`00000000000000000003.json` proves that version 3 is committed, which its owner may not know: the "
        "latest version is the greater of the owner's and the published one",
    )  # fmt: skip


@check(Family.READING, "LOG-10", "LOG-09", features=("managedCommit",))
def an_owner_without_a_latest_version_hides_nothing(s: ClientScenario) -> None:
    """An owner without staged commits may return -1 or no latest version; a reader still reads the published
    versions."""
    log = LogBuilder.create(s)
    if s.commit_mode == "direct":
        log.land(file("file-1"))
        log.land(file("file-2"))
    must_read(log, log.latest, "LOG-10", expected=f"version {log.latest} is published")
    for nothing in (-1, None):
        s.owner.rules.clear()
        s.owner.override_commits(lambda _, __, nothing=nothing: ((), nothing))  # type: ignore[misc]
        must_read(
            log, log.latest, "LOG-10", "LOG-09",
            expected=f"a latest version of {nothing} says only that the owner has accepted no staged commit: version "
            f"{log.latest} is published, and is read",
        )  # fmt: skip


@check(Family.READING, "LOG-08", "LOG-18", *FRESH)
def the_listing_completes_the_owners_list(s: ClientScenario) -> None:
    """An owner may list published commits, and fewer than its latest version, because later ones were published
    directly: the reader takes those from the listing."""
    log = table_with(s, 2)
    listed = s.listed(log.table)
    kept = listed or tuple(m.CommitEntry(version=version) for version in (1, 2))
    log.land(file("file-3"))
    log.backfill(3)
    must_read(log, 3, "LOG-18", *FRESH, expected="versions 0 to 3 are published")

    def some(_: Entries, latest: int | None) -> CommitsAndLatest:
        return kept, latest

    s.owner.override_commits(some)
    must_read(
        log, 3, "LOG-08",
        expected="the owner lists versions 1 and 2, which are published too, and returns latest version 3: version 3 "
        "is taken from the listing",
    )  # fmt: skip


@check(Family.READING, "CM-READ-03", "CM-READ-05", features=("catalogManaged",), commit_modes=("staged", "inline"))
def the_catalogs_copy_of_a_commit_is_read(s: ClientScenario) -> None:
    """If the catalog returns a published commit, the reader uses the catalog's copy. Here the published file is
    truncated, as some storages show a file during its write."""
    log = table_with(s, 2)
    must_read(log, 2, "CM-READ-05", expected="version 2 was ratified before the read began")
    log.plant(commit_file(1), b'{"commitInfo":{"inCommitTimest')
    must_read(
        log, 2, "CM-READ-03",
        expected="the catalog returned version 1: the reader uses its copy, and ignores the published file of that "
        "version",
    )  # fmt: skip
    log.restore()


@check(Family.READING, "MC-FILES-05", "CM-FILES-04", "LOG-16", "LOG-17", "CM-LOG-08")
def unratified_staged_files_are_ignored(s: ClientScenario) -> None:
    """The staging folder has proposals that lost, proposals in flight, and truncated files. None of them changes a
    snapshot."""
    log = table_with(s, 2)
    log.backfill(1)
    folder = STAGING[s.feature]
    must_read(log, 2, *FRESH, expected="version 2 was ratified before the read began")
    for version, content in ((1, _lost(s, 1)), (2, _lost(s, 2)), (3, _lost(s, 3)), (4, b'{"commitInfo":{"inC')):
        log.plant(f"{folder}/{staged_file(version, s.attempt())}", content)
    must_read(
        log, 2, "MC-FILES-05", "CM-FILES-04", "LOG-17", "LOG-16", "CM-LOG-08",
        expected=f"the owner ratified versions 0 to 2, and returned their file names: any other file in {folder} is "
        f"not a commit, because only the owner knows which files are commits",
    )  # fmt: skip
    must_read(log, 1, "MC-FILES-05", "CM-FILES-04", "LOG-17", "LOG-16", "CM-LOG-08", version=1,
              expected="version 1 as it was ratified, not as in a proposal that lost")  # fmt: skip


def _lost(s: ClientScenario, version: int) -> bytes:
    request = s.proposal(s.tables[0], version)
    return "".join(f"{line}\n" for line in request.actions or ()).encode()


# Access


@check(Family.READING, "MC-READ-03", "MC-READ-04", "MC-READ-01", "MC-READ-02", "MC-FILES-09", "MC-FILES-10",
       features=("managedCommit",))  # fmt: skip
def a_path_reads_the_published_prefix(s: ClientScenario) -> None:
    """A managedCommit table may be read by its path alone: the snapshot is that of the last published version, without
    staged files."""
    log = table_with(s, 2)
    log.backfill(2)
    _read_by_path(log, 2)
    log.land(file("file-3"))
    log.land(file("file-4"))
    _read_by_path(log, log.published)


def _read_by_path(log: LogBuilder, version: int) -> None:
    s = log.s
    call, since = ask(log, path=log.location)
    if isinstance(call.answer, m.Rejected):
        raise Inconclusive(f"operation {call.number}: the reader does not read tables by path: {call.answer.reason}")
    read = s.expect(call, m.SnapshotRead, "MC-READ-04", expected=f"a snapshot of version {version}")
    beyond = max(version, newest_returned(s, since))
    s.require(
        read.version <= beyond, "MC-READ-04", "MC-READ-03", evidence=(call,), table=log.table, version=read.version,
        expected=f"version {version} is the last published one: a reader that does not ask the owner knows no later "
        f"one",
        observed=f"the read returned a snapshot of version {read.version}",
    )  # fmt: skip
    s.require(
        read.version >= version, "MC-FILES-09", "MC-READ-04", evidence=(call,), table=log.table, version=version,
        expected=f"version {version} is published, and a listing shows it",
        observed=f"the read returned version {read.version}",
    )  # fmt: skip
    is_snapshot(log, call, read, "MC-READ-03", "MC-READ-04")


@check(Family.READING, "CM-ACCESS-01", "CM-READ-08", features=("catalogManaged",))
def a_catalog_managed_table_is_not_read_by_its_path(s: ClientScenario) -> None:
    """A reader that has only the path of a catalog-managed table rejects it: its catalog may have further commits."""
    log = table_with(s, 1)
    log.backfill(1)
    must_read(log, 1, "CM-READ-08", expected="through its catalog the table is read")
    call, since = ask(log, path=log.location)
    if isinstance(call.answer, m.SnapshotRead):
        s.require(
            bool(s.owner.exchanges[since:]), "CM-ACCESS-01", evidence=(call,), table=log.table,
            expected="a reader that has only the path rejects a table whose protocol lists catalogManaged, or asks "
            "its catalog",
            observed=f"version {call.answer.version} was read without asking the catalog",
        )  # fmt: skip
        is_snapshot(log, call, call.answer, "CM-ACCESS-01")


@check(Family.READING, "CM-READ-08", "PROFILE-CLIENT-01")
def a_name_resolves_to_its_current_table(s: ClientScenario) -> None:
    """A reader resolves the name for every read: a dropped name is not found, and a reused name is the new table, both
    at the version that the old table had and later."""
    old = table_with(s, 1)
    must_read(old, 1, "CM-READ-08", expected="the table is found by its name")
    drop(s, old.table)
    must_refuse(old, "CM-READ-08", expected="the table was dropped: its name finds nothing, although its files exist")
    new = LogBuilder.create(s, in_history="the new orders")
    for version in (1, 2):
        new.land(file(f"new-{version}"))
        must_read(new, version, "CM-READ-08", "PROFILE-CLIENT-01",
                  expected="the name finds the new table, at any location")  # fmt: skip


@check(Family.READING, "CM-CATALOG-06", *APPLIED, features=("catalogManaged",))
def catalog_metadata_is_for_the_latest_version(s: ClientScenario) -> None:
    """A catalog may return the latest protocol and metadata, and a reader may use them, but not for an older
    version."""
    log = LogBuilder.create(s, properties={"kit.state": "early"})
    log.land(_metadata(log, {"kit.state": "late"}))
    log.land(file("file-2"))
    must_read(log, 2, *APPLIED, *FRESH, about=("properties",),
              expected="the properties of version 2, from its catalog or from its log")  # fmt: skip
    must_read(log, 0, *APPLIED, version=0, about=("properties",),
              expected="the properties of version 0: the catalog returned those of the latest version")  # fmt: skip


# Actions


def with_checkpoint(log: LogBuilder, version: int) -> None:
    """Write a checkpoint of the version, and delete the commits up to it."""
    log.readers = 1
    log.backfill(version)
    log.checkpoint(version)
    log.hide(*(commit_file(number) for number in range(version)))


@check(Family.READING, "LOG-29", *APPLIED, features=EVERY_TABLE)
def unknown_actions_and_fields_are_ignored(s: ClientScenario) -> None:
    """Unknown kinds of actions, unknown fields, and actions that change no file are ignored."""
    log = LogBuilder.create(s)
    log.land(file("a"))
    must_read(log, 1, "LOG-29", expected="a commit with one file")
    log.land(
        file("b", somethingNew={"deep": [1, None]}, stats=None),
        proposals.line("actionOfTomorrow", {"path": "a", "kind": 7}),
        proposals.line("cdc", {"path": "a", "partitionValues": {}, "size": 1, "dataChange": False}),
    )
    must_read(log, 2, "LOG-29",
              expected="version 2 adds the file b; the reader ignores its unknown actions and fields")  # fmt: skip
    log.land()
    must_read(log, 3, "LOG-29", *APPLIED, expected="version 3 has only a commitInfo: the files stay")


UNKNOWN_FEATURE = "anUnknownFeature"


@check(Family.READING, "LOG-46", features=EVERY_TABLE)
def unsupported_protocols_are_not_read(s: ClientScenario) -> None:
    """A later version of the table requires an unknown reader feature, or a reader version that does not exist: it is
    not read. An unknown feature that only writers list does not concern a reader."""
    writers = LogBuilder.create(s, "writers", writer_features=(UNKNOWN_FEATURE,))
    writers.land(file("a"))
    must_read(writers, 1, "LOG-46", may_refuse=True, expected="only the writer features have an unknown feature")
    known = proposals.with_features(s.feature)
    features = [*known.get("readerFeatures", ()), UNKNOWN_FEATURE]
    for name, why, protocol in (
        ("features", f"the reader feature `{UNKNOWN_FEATURE}`",
         {**proposals.with_features(s.feature, UNKNOWN_FEATURE), "minReaderVersion": 3, "readerFeatures": features}),
        ("version", "reader version 4",
         {**known, "minReaderVersion": 4, "readerFeatures": known.get("readerFeatures", [])}),
    ):  # fmt: skip
        log = LogBuilder.create(s, name)
        log.land(file("a"))
        log.land(proposals.line("protocol", protocol))
        must_refuse(log, "LOG-46", expected=f"version 2 requires {why}, which is unknown: an error")


@check(Family.READING, "LOG-30", features=EVERY_TABLE)
def a_file_is_identified_by_path_and_vector(s: ClientScenario) -> None:
    """An update adds a file with a deletion vector and removes it without one. Both have the same path, and are
    different logical files."""
    log = LogBuilder.create(s, reader_features=("deletionVectors",))
    log.land(file("a"), file("b"))
    must_read(log, 1, "LOG-30", may_refuse=True, expected="two files without deletion vectors")
    log.land(file("a", deletionVector=vector("first")), gone("a"))
    must_read(log, 2, "LOG-30", may_refuse=True,
              expected="version 2 adds a with a deletion vector, and removes a without one: a stays")  # fmt: skip
    log.land(gone("a", deletionVector=vector("first")), file("a", deletionVector=vector("second")))
    log.land(gone("b"), gone("a", deletionVector=vector("first")))
    must_read(log, 4, "LOG-30", may_refuse=True,
              expected="a has the second vector: a removal with the first one removes nothing")  # fmt: skip
    with_checkpoint(log, 4)
    log.land(gone("a", deletionVector=vector("second")))
    must_read(log, 5, "LOG-30", may_refuse=True, expected="the file in the checkpoint is removed")


@check(Family.READING, "LOG-30", features=EVERY_TABLE)
def a_deletion_vector_is_identified_by_its_offset(s: ClientScenario) -> None:
    """One file holds two deletion vectors. The commit that replaces one by the other adds the data file with the
    second, and removes it with the first."""
    log = LogBuilder.create(s, reader_features=("deletionVectors",))
    first, second = ({**vector("ab^-aqEH.-t@S}K{vb[*k^"), "storageType": "u", "offset": at} for at in (1, 47))
    log.land(file("a"), file("b"))
    log.land(gone("a"), file("a", deletionVector=first))
    log.land(file("a", deletionVector=second), gone("a", deletionVector=first))
    must_read(log, 3, "LOG-30", may_refuse=True,
              expected="version 3 adds a with the vector at offset 47, and removes it with the one at offset 1: a "
              "stays")  # fmt: skip


@check(Family.READING, "LOG-30", features=EVERY_TABLE)
def a_removed_deletion_vector_removes_no_file(s: ClientScenario) -> None:
    """A file is rewritten without its deletion vector: the commit adds its path without a vector and removes it with
    one. No file in the table has a vector, so that readers need not support them."""
    log = LogBuilder.create(s, reader_features=("deletionVectors",))
    log.readers = 0
    log.land(file("a"), file("b"))
    must_read(log, 1, "LOG-30", may_refuse=True, expected="two files, and none with a deletion vector")
    log.land(file("a", deletionVector=vector("first")), gone("a"))
    log.land(file("a"), gone("a", deletionVector=vector("first")))
    must_read(log, 3, "LOG-30", may_refuse=True,
              expected="version 3 adds a without a deletion vector, and removes a with one: a stays")  # fmt: skip
    log.land(gone("b", deletionVector=vector("never there")))
    must_read(log, 4, "LOG-30", may_refuse=True,
              expected="b never had the deletion vector with which version 4 removes it: the table has b")  # fmt: skip


@check(Family.READING, "LOG-31", features=EVERY_TABLE)
def the_latest_metadata_txn_and_domain_count(s: ClientScenario) -> None:
    """The last metadata, the last transaction of each application and the last state of each domain count; a domain may
    be removed."""
    log = LogBuilder.create(s, properties={"kit.first": "1"})
    log.land(application("loader", 1), application("other", 7), domain("owners", "first"), domain("rows", "kept"))
    about = ("applications", "domains", "properties")
    must_read(log, 1, "LOG-31", about=about, expected="the state of version 1")
    log.land(application("loader", 9), domain("owners", "second"), _metadata(log, {"kit.second": "2"}))
    must_read(log, 2, "LOG-31",
              expected="version 2 changes the application loader, the domain owners and all properties")  # fmt: skip
    log.land(domain("owners", "second", removed=True))
    must_read(log, 3, "LOG-31", expected="version 3 removes the domain owners")
    with_checkpoint(log, 3)
    log.land(domain("owners", "again"), application("loader", 10))
    must_read(log, 4, "LOG-31", expected="the checkpoint of version 3, and the changes of version 4")
    must_read(log, 3, "LOG-31", version=3, expected="the checkpoint of version 3")


def _metadata(log: LogBuilder, properties: dict[str, str]) -> str:
    """Metadata in which only the kit's own properties change."""
    body = next(action["metaData"] for action in log.actions[0] if "metaData" in action)
    kept = {name: value for name, value in body["configuration"].items() if not name.startswith("kit.")}
    return json.dumps({"metaData": {**body, "configuration": {**kept, **properties}}})


@check(Family.READING, "LOG-32", features=EVERY_TABLE)
def a_path_is_a_uri(s: ClientScenario) -> None:
    """The path of a file is URL-encoded in the log, and decoded once by the reader; it may be absolute."""
    log = LogBuilder.create(s)
    log.land(file("plain.parquet"), file("with%20space.parquet"), file("day=2024-01-01%2010%253A00/part.parquet"))
    must_read(
        log, 1, "LOG-32",
        expected="`with%20space.parquet` is the file `with space.parquet`, and `%253A` means `%3A`: paths are decoded "
        "once",
    )  # fmt: skip
    elsewhere = s.place / "elsewhere" / "other table"
    elsewhere.mkdir(parents=True)
    absolute = (elsewhere / "part.parquet").as_uri()
    log.land(file(absolute))
    must_read(log, 2, "LOG-32", expected="an absolute path is used as it is, not below the table's folder")
    log.land(gone("with%20space.parquet"), gone(absolute))
    must_read(log, 3, "LOG-32", expected="both are removed by the paths under which they were added")


@check(Family.READING, "LOG-33", features=EVERY_TABLE)
def a_partition_value_is_a_string_or_null(s: ClientScenario) -> None:
    """Partition values are strings in the log; null may be written as null or as the empty string."""
    log = LogBuilder.create(s, partitioned=True)
    log.land(file("a", "north", partitioned=True), file("b", "007", partitioned=True))
    must_read(log, 1, "LOG-33", about=("partitions",), expected="the values `north` and `007`, as written")
    log.land(file("c", None, partitioned=True), file("d", "", partitioned=True))
    must_read(log, 2, "LOG-33", expected="c and d have no value: null and the empty string mean the same")
    with_checkpoint(log, 2)
    must_read(log, 2, "LOG-33", expected="the same from a checkpoint")
