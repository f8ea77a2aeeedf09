"""The files of a client's commits: they are not deleted, and their change data and row ids are correct.

A client that writes real files writes them to the table's folder, before it proposes the commit that names them. In
every scenario the files of a commit that landed must still exist at the end. A client may choose their names.
"""

import json
from functools import partial
from typing import Any

from conformance.checks import check
from conformance.checks.conflicts import lands
from conformance.interface import messages as m
from conformance.models.writer import ROW_DOMAIN, ROW_IDS, ROW_TRACKING
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, domain, file
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


@check(Family.WRITING, "DELAYED-04", "PROFILE-CHANGES-01", needs=(Profile.CHANGE_DATA,))
def change_data_is_in_the_commit_of_its_change(s: ClientScenario) -> None:
    """An update replaces a file, and has change data. It is one commit with the new file, the removal and the change
    data. An update that loses a race ends with a conflict, or is committed as one too."""
    features, properties = ("changeDataFeed", "domainMetadata"), {"delta.enableChangeDataFeed": "true"}
    log = LogBuilder.create(s, writer_features=features, properties=properties)
    log.land(file("a"), file("b"))
    call = _update(s, log, "a")
    lands(s, log.table, call, 2, why="there is no conflict")
    _whole(s, log, call, 2)
    log.actions[2] = []
    s.owner.on(m.Commit, before=partial(log.land, file("theirs")))
    call = _update(s, log, "b")
    if isinstance(call.answer, m.Committed):
        lands(s, log.table, call, 4, why="another writer added a file that the update did not read")
        _whole(s, log, call, 4)


def _update(s: ClientScenario, log: LogBuilder, path: str) -> Exchange:
    """The client replaces a file."""
    adds, changes = (m.DataFile(path=f"new-{path}"),), (m.DataFile(path=f"_change_data/cdc-{path}"),)
    return s.transact(log.table, removes=(path,), adds=adds, changes=changes)


def _whole(s: ClientScenario, log: LogBuilder, call: Exchange, version: int) -> None:
    """The version contains the whole update, and no version follows."""
    for number, expected in ((version, ["add", "remove", "cdc"]), (version + 1, [])):
        kinds = [kind for kind in ("add", "remove", "cdc") if s.actions_of(log.table, number, kind)]
        s.require(
            kinds == expected, "DELAYED-04", "PROFILE-CHANGES-01", evidence=(call,), version=number,
            expected=f"version {version} has the new file, the removal and the change data; no version follows",
            observed=f"version {number} has the actions {kinds}",
        )  # fmt: skip


@check(Family.WRITING, "ROW-01", "ROW-02", "ROW-03", "ROW-04", "PROFILE-ROWS-01", needs=(Profile.ROW_TRACKING,))
def row_ids_are_above_those_of_earlier_commits(s: ClientScenario) -> None:
    """On a table with row tracking the files of a commit have new row ids, the version of their commit, and the commit
    records the highest id: without a race, and after a lost race with a winner that assigned ids too."""
    log = LogBuilder.create(s, writer_features=("domainMetadata", ROW_TRACKING))
    log.land(*tracked("first", 1, 0, 10))
    mark = _appended(s, log, 2, 9, why="there is no conflict")

    def win() -> None:
        log.land(*tracked("theirs", 3, mark + 1, 5))

    s.owner.on(m.Commit, before=win)
    _appended(s, log, 4, mark + 5, "ROW-04", why="the winner added a file and assigned row ids")


@check(Family.WRITING, "ROW-05", needs=(Profile.ROW_TRACKING,))
def a_removed_file_keeps_its_row_ids(s: ClientScenario) -> None:
    """On a table with row tracking the removal of a file has the file's row ids."""
    log = LogBuilder.create(s, writer_features=("domainMetadata", ROW_TRACKING))
    log.land(*tracked("first", 1, 0, 10))
    call = s.transact(log.table, removes=("first",))
    if not isinstance(call.answer, m.Committed):
        raise Inconclusive(f"operation {call.number}: the client removed no file of a table with row tracking")
    log.table.versions = 3
    ids = [row_ids(body) for body in s.actions_of(log.table, 2, "remove")]
    s.require(
        ids == [FIRST_ROWS], "ROW-05", evidence=(call,), version=2, expected=f"`first` has {FIRST_ROWS}",
        observed=f"the removal of `first` has {'; '.join(ids)}" if ids else "version 2 removes no file",
    )  # fmt: skip


FIRST_ROWS = "baseRowId 0, defaultRowCommitVersion 1"


def row_ids(body: dict[str, Any]) -> str:
    """The row ids of a file in words."""
    return ", ".join(f"no {name}" if body.get(name) is None else f"{name} {body[name]}" for name in ROW_IDS)


def tracked(path: str, version: int, first: int, rows: int) -> tuple[str, str]:
    """A file with row ids from `first` on, and the high water mark after it."""
    stats = json.dumps({"numRecords": rows})
    added = file(path, baseRowId=first, defaultRowCommitVersion=version, stats=stats)
    return added, domain(ROW_DOMAIN, json.dumps({"rowIdHighWaterMark": first + rows - 1}))


def _appended(s: ClientScenario, log: LogBuilder, version: int, mark: int, *requirements: str, why: str) -> int:
    """The client appends two files; `mark` is the highest row id before that. Returns the highest one after it."""
    adds = (m.DataFile(path=f"mine-{version}", rows=7), m.DataFile(path=f"more-{version}", rows=2))
    call = s.transact(log.table, adds=adds)
    lands(s, log.table, call, version, why=why)
    log.actions[version] = []
    bodies = s.actions_of(log.table, version, "add")
    free = mark + 1
    for body in sorted(bodies, key=_base_row_id):
        first = _base_row_id(body)
        s.require(
            first >= free, "ROW-01", *requirements, "PROFILE-ROWS-01", evidence=(call,), version=version,
            expected=f"the rows of {body['path']} have ids from {free} on: no other row has them",
            observed=f"its baseRowId is {body.get('baseRowId')}",
        )  # fmt: skip
        s.require(
            body.get("defaultRowCommitVersion") == version, "ROW-02", *requirements, evidence=(call,), version=version,
            expected=f"the rows of {body['path']} have the version of their commit, {version}",
            observed=f"its defaultRowCommitVersion is {body.get('defaultRowCommitVersion')}",
        )  # fmt: skip
        free = first + _rows(body, 7)
    marks = [_mark(body) for body in s.actions_of(log.table, version, "domainMetadata") if body["domain"] == ROW_DOMAIN]
    s.require(
        bool(marks) and marks[0] >= free - 1, "ROW-03", *requirements, evidence=(call,), version=version,
        expected=f"the highest row id in the commit is {free - 1}", observed=f"its high water mark is {marks}",
    )  # fmt: skip
    return marks[0]


def _base_row_id(body: dict[str, Any]) -> int:
    """The first row id of a file; -1 if the file has none."""
    first_id = body.get("baseRowId")
    return first_id if isinstance(first_id, int) else -1


def _rows(body: dict[str, Any], otherwise: int) -> int:
    """How many rows the statistics of a file count."""
    count = json.loads(body.get("stats") or "{}").get("numRecords", otherwise)
    return count if isinstance(count, int) else otherwise


def _mark(body: dict[str, Any]) -> int:
    return int(json.loads(body["configuration"])["rowIdHighWaterMark"])
