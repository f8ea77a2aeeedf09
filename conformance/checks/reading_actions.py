"""Readers: what the actions of a commit mean."""

from __future__ import annotations

import json

from conformance.checks.reading import APPLIED
from conformance.checks.registry import Family, check
from conformance.scenario import proposals
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, application, domain, file, gone, vector
from conformance.scenario.snapshots import must_read


def with_checkpoint(log: LogBuilder, version: int) -> None:
    """From now on everything up to the version is known only from a checkpoint."""
    log.readers = 1
    log.backfill(version)
    log.checkpoint(version)
    log.hide(*(log.commit_name(each) for each in range(version)))


@check(Family.READING, "LOG-29", *APPLIED, side="client")
def what_a_reader_does_not_know_does_not_stop_it(s: ClientScenario) -> None:
    """Actions of kinds that came later, fields that came later, and actions that change no file are passed over."""
    log = LogBuilder.create(s)
    log.land(file("a"))
    must_read(log, 1, "LOG-29", expected="a commit with one file")
    log.land(
        file("b", somethingNew={"deep": [1, None]}, stats=None),
        proposals.line("actionOfTomorrow", {"path": "a", "kind": 7}),
        proposals.line("cdc", {"path": "a", "partitionValues": {}, "size": 1, "dataChange": False}),
    )
    must_read(log, 2, "LOG-29",
              expected="version 2 adds the file b; what is unknown in it says nothing to this reader")  # fmt: skip
    log.land()
    must_read(log, 3, "LOG-29", *APPLIED, expected="version 3 has a commitInfo and nothing else: the files stay")


@check(Family.READING, "LOG-30", side="client")
def a_file_is_its_path_and_its_deletion_vector(s: ClientScenario) -> None:
    """An update marks rows of a file as deleted: it adds the file again with a deletion vector, and removes it without
    one. Both have the same path, and are not the same file."""
    log = LogBuilder.create(s, reader_features=("deletionVectors",))
    log.land(file("a"), file("b"))
    must_read(log, 1, "LOG-30", may_refuse=True, expected="two files without deletion vectors")
    log.land(file("a", deletionVector=vector("first")), gone("a"))
    must_read(log, 2, "LOG-30", may_refuse=True,
              expected="version 2 adds a with a deletion vector, and removes a without one: a is there")  # fmt: skip
    log.land(gone("a", deletionVector=vector("first")), file("a", deletionVector=vector("second")))
    log.land(gone("b"), gone("a", deletionVector=vector("first")))
    must_read(log, 4, "LOG-30", may_refuse=True,
              expected="the vector of a is the second one: removing a with the first removes nothing")  # fmt: skip
    with_checkpoint(log, 4)
    log.land(gone("a", deletionVector=vector("second")))
    must_read(log, 5, "LOG-30", may_refuse=True, expected="the file that the checkpoint has is removed")


@check(Family.READING, "LOG-30", side="client")
def a_deletion_vector_that_goes_takes_no_file_with_it(s: ClientScenario) -> None:
    """A file is written anew without the deletion vector that it had: the commit adds its path without one, and removes
    it with one. Nothing in the table has a vector any more, so that readers need not support them."""
    log = LogBuilder.create(s, reader_features=("deletionVectors",))
    log.readers = 0
    log.land(file("a"), file("b"))
    must_read(log, 1, "LOG-30", may_refuse=True, expected="two files, and none with a deletion vector")
    log.land(file("a", deletionVector=vector("first")), gone("a"))
    log.land(file("a"), gone("a", deletionVector=vector("first")))
    must_read(log, 3, "LOG-30", may_refuse=True,
              expected="version 3 adds a without a deletion vector, and removes a with one: a is there")  # fmt: skip
    log.land(gone("b", deletionVector=vector("never there")))
    must_read(log, 4, "LOG-30", may_refuse=True,
              expected="b never had the deletion vector with which version 4 removes it: b is there")  # fmt: skip


@check(Family.READING, "LOG-31", side="client")
def the_latest_of_its_kind_holds(s: ClientScenario) -> None:
    """Of metadata, of each application's transaction and of each domain the last one counts; a domain may go."""
    log = LogBuilder.create(s, properties={"delta.appendOnly": "false", "kit.first": "1"})
    log.land(application("loader", 1), application("other", 7), domain("owners", "first"), domain("rows", "kept"))
    about = ("applications", "domains", "properties")
    must_read(log, 1, "LOG-31", about=about, expected="what version 1 says")
    log.land(application("loader", 9), domain("owners", "second"), _metadata(log, {"kit.second": "2"}))
    must_read(log, 2, "LOG-31", expected="version 2 says newer things of the application loader, of the domain owners "
              "and of all properties")  # fmt: skip
    log.land(domain("owners", "second", removed=True))
    must_read(log, 3, "LOG-31", expected="version 3 removes the domain owners")
    with_checkpoint(log, 3)
    log.land(domain("owners", "again"), application("loader", 10))
    must_read(log, 4, "LOG-31", expected="what the checkpoint of version 3 says, and the news of version 4")
    must_read(log, 3, "LOG-31", version=3, expected="what the checkpoint of version 3 says")


def _metadata(log: LogBuilder, properties: dict[str, str]) -> str:
    """All properties but the kit's own stay as they are."""
    body = next(each["metaData"] for each in log.actions[0] if "metaData" in each)
    kept = {name: value for name, value in body["configuration"].items() if not name.startswith("kit.")}
    return json.dumps({"metaData": {**body, "configuration": {**kept, **properties}}})


@check(Family.READING, "LOG-32", side="client")
def a_path_is_a_uri(s: ClientScenario) -> None:
    """The path of a file is URL-encoded in the log, and decoded once by who reads the file; it may be absolute."""
    log = LogBuilder.create(s)
    log.land(file("plain.parquet"), file("with%20space.parquet"), file("day=2024-01-01%2010%253A00/part.parquet"))
    must_read(
        log, 1, "LOG-32",
        expected="`with%20space.parquet` is the file `with space.parquet`, and `%253A` stands for `%3A`: what is "
        "encoded is decoded, once",
    )  # fmt: skip
    log.land(file("file:///elsewhere/other%20table/part.parquet"))
    must_read(log, 2, "LOG-32", expected="an absolute path is where it says, and not in the table's folder")
    log.land(gone("with%20space.parquet"), gone("file:///elsewhere/other%20table/part.parquet"))
    must_read(log, 3, "LOG-32", expected="both are removed by the paths under which they were added")


@check(Family.READING, "LOG-33", side="client")
def a_partition_value_is_a_string_or_null(s: ClientScenario) -> None:
    """Partition values stand in the log as strings; null may be written as null and as the empty string."""
    log = LogBuilder.create(s, partitioned=True)
    log.land(file("a", "north", partitioned=True), file("b", "007", partitioned=True))
    must_read(log, 1, "LOG-33", about=("partitions",), expected="the values `north` and `007`, as they are written")
    log.land(file("c", None, partitioned=True), file("d", "", partitioned=True))
    must_read(log, 2, "LOG-33", expected="c and d have no value: null and the empty string mean the same")
    with_checkpoint(log, 2)
    must_read(log, 2, "LOG-33", expected="the same from a checkpoint")
