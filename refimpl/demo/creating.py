"""One of the processes that race for a table's name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from refimpl.client.create import Creation
from refimpl.client.table import Table
from refimpl.commit_owner import MaintenancePolicy
from refimpl.demo.observed_owner import ObservedOwner
from refimpl.demo.tasks import Create
from refimpl.environment import Environment
from refimpl.errors import NameTakenError
from refimpl.table_feature import CATALOG_MANAGED, CommitMode


def create(task: Create, tell: Callable[..., None], wait: Callable[[], str]) -> None:
    """Race for the name, then write into the journal which table this process now believes to be the one.

    The word comes after the first phase: by then every process has a place of its own for its version 0, and
    what is raced for is the name.
    """
    import pyarrow as pa

    environment = Environment()
    owner = ObservedOwner(Path(task.warehouse), environment, tell=tell, wait=wait)
    journal = Table.resolve(task.journal, owner, environment)
    journal.snapshot()  # now, so that the note after the race is quick
    creation = Creation.begin(
        owner,
        environment,
        task.name,
        task.schema_string,
        partition_columns=[task.partition_column],
        feature=CATALOG_MANAGED,
        commit_mode=CommitMode.STAGED,
        policy=MaintenancePolicy(backfill_every=task.backfill_every),
    )
    tell("ready")
    wait()
    started = time.perf_counter()
    try:
        won, table_id = True, creation.finish().table_id
    except NameTakenError as error:
        won, table_id = False, error.facts["winner"].table_id
    milliseconds = round((time.perf_counter() - started) * 1000)
    tell("created" if won else "beaten", table_id=table_id, milliseconds=milliseconds)
    row = {"process": os.getpid(), "won": won, "table_id": table_id, "milliseconds": milliseconds}
    committed = journal.append(pa.Table.from_pylist([row]))
    assert committed is not None
    tell("noted", version=committed.version, tries=committed.tries)
    owner.close()
