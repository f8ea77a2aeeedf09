"""First act: eight processes want to create the table, and one of them does.

Then each notes in a second table, by an inline commit, which table it believes in: eight more commits
that race for the versions 1 to 8, and all land.
"""

from __future__ import annotations

from typing import Final

from refimpl.client.create import create_table
from refimpl.client.schema import Field, Primitive, Struct, from_arrow
from refimpl.commit_owner import MaintenancePolicy
from refimpl.demo.crew import ENDED, Worker
from refimpl.demo.stage import Stage, counted
from refimpl.demo.tasks import GO, Create, Told
from refimpl.table_feature import CATALOG_MANAGED, CommitMode

CREATORS: Final = 8
JOURNAL: Final = "race"
BACKFILL_EVERY: Final = 5

_JOURNAL_COLUMNS: Final = Struct(
    fields=(
        Field(name="process", type=Primitive(name="long")),
        Field(name="won", type=Primitive(name="boolean")),
        Field(name="table_id", type=Primitive(name="string")),
        Field(name="milliseconds", type=Primitive(name="long")),
    )
)


def race(stage: Stage) -> None:
    stage.display.chapter(f"{CREATORS} processes race for version 0 of '{stage.table}'")
    warehouse = stage.warehouse
    create_table(
        warehouse.owner,
        warehouse.environment,
        JOURNAL,
        _JOURNAL_COLUMNS,
        feature=CATALOG_MANAGED,
        commit_mode=CommitMode.INLINE,
        policy=MaintenancePolicy(backfill_every=None),
    )
    task = Create(
        warehouse=str(warehouse.directory),
        name=stage.table,
        schema_string=from_arrow(stage.source.schema).to_json(),
        partition_column=stage.source.partition_column,
        backfill_every=BACKFILL_EVERY,
        journal=JOURNAL,
    )
    creators = [stage.crew.start(f"creator {number}", task) for number in range(1, CREATORS + 1)]
    _run(stage, creators)
    _check_winner(stage, creators)
    _check_journal(stage, creators)


def _run(stage: Stage, creators: list[Worker]) -> None:
    """All wait until all are there; then all run."""
    ready = ended = 0
    for worker, told in stage.crew.events():
        stage.hear(worker, told)
        match told.what:
            case "ready":
                ready += 1
                if ready == len(creators):
                    for creator in creators:
                        creator.say(GO)
            case "created":
                stage.display.line(
                    f"{worker.name} (process {worker.pid}) created it in {told.facts['milliseconds']} ms"
                )
            case _ if told.what == ENDED:
                ended += 1
        if ended == len(creators):
            return


def _check_winner(stage: Stage, creators: list[Worker]) -> None:
    ends = [(worker, told) for worker in creators for told in worker.heard if told.what in ("created", "beaten")]
    winners = [worker for worker, told in ends if told.what == "created"]
    beaten = [worker for worker, told in ends if told.what == "beaten"]
    proposed = [told for worker in creators for told in worker.heard if _is_first_version(told)]
    believed = {told.facts["table_id"] for _, told in ends}
    table = stage.warehouse.owner.resolve(stage.table)
    folders = list(stage.warehouse.directory.glob(f"{stage.table}-*"))
    stage.check(
        "one winner",
        f"{len(winners)} of {len(ends)} processes created '{stage.table}' "
        f"({', '.join(worker.name for worker in winners)}), {len(beaten)} lost; "
        f"{len(proposed)} of them had a version 0 in place",
        ok=len(ends) == CREATORS and len(winners) == 1 and len(beaten) == CREATORS - 1,
        winner_pid=winners[0].pid if winners else None,
    )
    stage.check(
        "the losers learnt who won",
        f"all {len(ends)} name the table {', '.join(sorted(believed))}; {counted(len(folders), 'folder')} left, "
        f"at version {table.commits.latest_ratified_version}",
        ok=believed == {table.table_id} and folders == [table.location] and table.commits.latest_ratified_version == 0,
    )


def _is_first_version(told: Told) -> bool:
    return told.what == "proposing" and told.facts["version"] == 0


def _check_journal(stage: Stage, creators: list[Worker]) -> None:
    table = stage.warehouse.table(JOURNAL)
    snapshot = table.snapshot()
    waiting = stage.warehouse.owner.get_commits(table.table_id or JOURNAL).commits
    rows = snapshot.to_arrow().to_pylist()
    versions = sorted(told.facts["version"] for worker in creators for told in worker.heard if told.what == "noted")
    lost = sum(told.what == "lost" for worker in creators for told in worker.heard)
    stage.check(
        "inline commits that raced",
        f"{len(rows)} rows in versions {versions[0]} to {versions[-1]} of '{JOURNAL}', "
        f"{counted(lost, 'lost race')} rebased; "
        f"the owner itself holds the bytes of {sum(commit.content is not None for commit in waiting)} of them",
        ok=versions == list(range(1, CREATORS + 1))
        and snapshot.version == CREATORS
        and {row["process"] for row in rows} == {worker.pid for worker in creators}
        and sum(row["won"] for row in rows) == 1,
        lost_attempts=lost,
    )
