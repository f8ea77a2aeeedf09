"""Writers: one transaction is one commit with exactly its changes, even after lost answers, old conflicts and a full
backlog.

Why an example: a program takes the rejection of a transaction for a limit of the client.
"""

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check, families
from conformance.interface import messages as m
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.programs.client_words import ClientFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario


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
