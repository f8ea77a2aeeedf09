"""The files of a client's commits: they are not deleted.

A client that writes real files writes them to the table's folder, before it proposes the commit that names them. In
every scenario the files of a commit that landed must still exist at the end. A client may choose their names.
"""

import json
from typing import Any

from conformance.checks import check
from conformance.interface import messages as m
from conformance.models.writer import ROW_DOMAIN, ROW_IDS
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import domain, file
from conformance.scenario.scenario import Exchange, Inconclusive, TableHandle


def append(s: ClientScenario, table: TableHandle, path: str) -> Exchange:
    """The client under test appends a file."""
    return s.transact(table, adds=(m.DataFile(path=path, rows=1),))


@check(Family.REPLAYS, "LOG-37", "PROFILE-UNKNOWN-03", "PROFILE-UNKNOWN-01")
def data_files_stay_while_the_outcome_is_unknown(s: ClientScenario) -> None:
    """A commit lands, and neither its answer nor any later one arrives: its writer cannot know the outcome, and leaves
    the data files in place. The files of a commit whose outcome is known stay too."""
    table, known = s.create(), s.create("known")
    s.owner.go_silent_at_the_commit()
    call = append(s, table, "mine")
    s.not_answered_as_failed(call)
    table.versions = 2
    s.owner.rules.clear()
    s.expect(
        append(s, known, "theirs"), m.Committed, "PROFILE-CLIENT-02", expected="the owner answers again: version 1"
    )
    known.versions = 2
    if not any(proposed.files for proposed in s.proposed):
        raise Inconclusive("the client writes no data files, or not under the paths in its commits")


FIRST_ROWS = "baseRowId 0, defaultRowCommitVersion 1"


def row_ids(body: dict[str, Any]) -> str:
    """The row ids of a file in words."""
    return ", ".join(f"no {name}" if body.get(name) is None else f"{name} {body[name]}" for name in ROW_IDS)


def tracked(path: str, version: int, first: int, rows: int) -> tuple[str, str]:
    """A file with row ids from `first` on, and the high water mark after it."""
    stats = json.dumps({"numRecords": rows})
    added = file(path, baseRowId=first, defaultRowCommitVersion=version, stats=stats)
    return added, domain(ROW_DOMAIN, json.dumps({"rowIdHighWaterMark": first + rows - 1}))
