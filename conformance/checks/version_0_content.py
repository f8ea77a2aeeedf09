"""Race on version 0: what the table is that was made, and who else may have made it.

Where version 0 stands (in its place or staged), what it says, which latest version the new table has, and the race with
a filesystem creator who asks nobody. managed-commits, "Creating a new managed-commit table" and "Managed Commit
Enablement".
"""

from __future__ import annotations

import json
from typing import Any

from conformance.checks.registry import Family, check
from conformance.history import digests
from conformance.interface.messages import (
    Conflict,
    CreateTable,
    Observation,
    Observe,
    Ratified,
    Rejected,
    Unsupported,
)
from conformance.requirements.catalogue import Profile
from conformance.scenario import hands, proposals, reads
from conformance.scenario.ownership import write_file
from conformance.scenario.scenario import TRIES, Inconclusive, Scenario, TableHandle, Told

OWNER = "delta.managedCommit.commitOwner"
CONF = "delta.managedCommit.commitOwnerConf"
MADE = ("MC-API-03", "CM-CATALOG-03")
RACE = (Profile.VERSION_0_BY_FILESYSTEM, Profile.STORAGE_ACCESS)
IN_PLACE = "PROFILE-VERSION0-03"
ONE_FILE = ("PROFILE-VERSION0-04", "MC-CREATE-02")


def version_0(s: Scenario, table: TableHandle) -> str:
    """The content of version 0, wherever it stands."""
    found = s.published(table).get(0)
    if found is not None:
        return found
    commit = reads.ask(s, table).commits.get(0)
    if commit is not None and commit.actions is not None:
        return proposals.content(commit.actions)
    files = hands.staged(s, table)
    name = "" if commit is None or commit.file_name is None else commit.file_name.rpartition("/")[2]
    s.require(name in files, *MADE, table=table, version=0,
              expected="version 0 is published, or its owner lists it", observed=f"it lists {commit}")  # fmt: skip
    return files[name]


def configuration(content: str) -> dict[str, Any]:
    """The table's properties, as version 0 sets them."""
    for line in content.splitlines():
        action = json.loads(line)
        if "metaData" in action:
            return dict(action["metaData"].get("configuration", {}))
    return {}


@check(Family.VERSION_0, "PROFILE-VERSION0-01", needs=(Profile.VERSION_0_BY_OWNER,))
def an_owner_makes_tables(s: Scenario) -> None:
    """A subject that declares to create tables makes one for a name that nobody has. Policies of its own may refuse
    some names, not all."""
    for number in range(TRIES):
        name = f"orders{number}"
        told = s.ask("creator", s.creation(name))
        if not isinstance(told.answer, Rejected):
            break
    ratified = s.expect(told, Ratified, "PROFILE-VERSION0-01", expected="nobody else wants the table: it is made")
    s.land(s.created(name, told, ratified))


@check(Family.VERSION_0, "PROFILE-VERSION0-02", needs=(Profile.VERSION_0_BY_OWNER,))
def a_new_table_has_version_0(s: Scenario) -> None:
    """The latest version of a table that its owner just made is 0: whoever asks is told so, before and after the first
    commit of another table."""
    table = s.create()
    for reader in ("first", "second"):
        seen = reads.ask(s, table, client=reader)
        s.require(seen.latest == 0, "PROFILE-VERSION0-02", told=(seen.told,), table=table, version=0,
                  expected="the table has version 0, and its owner made it: 0 is the latest version",
                  observed=f"the latest version is told as {seen.told.answer.latest}")  # type: ignore[union-attr]  # fmt: skip
        s.land(s.create(f"other-{reader}"))
    s.land(table)


@check(Family.VERSION_0, *MADE)
def a_new_table_is_what_its_creator_proposed(s: Scenario) -> None:
    """Version 0 says what was proposed: its commitInfo, its protocol, its schema, its properties. Its owner may add
    properties of its own and table features that it asks of all its tables, and nothing else."""
    request = s.creation()
    actions = proposals.version_0(s.feature, request.attempt, s.attempt(), timestamp=s.timestamp(0),
                                  properties={"delta.appendOnly": "false", "purpose": "a test, nothing else"},
                                  partition_columns=("part",))  # fmt: skip
    told = s.ask("creator", CreateTable(name=request.name, feature=request.feature, commit_mode=request.commit_mode,
                                        attempt=request.attempt, actions=actions))  # fmt: skip
    ratified = s.expect(told, Ratified, "PROFILE-VERSION0-01", *MADE, may_refuse=True,
                        expected="nobody else wants the table: it is made")  # fmt: skip
    table = s.created("orders", told, ratified)
    found = version_0(s, table).splitlines()
    s.require(_without_additions(list(actions), found) == digests.of_actions(actions), *MADE, told=(told,), table=table,
              version=0, expected="version 0 is what was proposed, but for what the owner may add",
              observed=f"it is {found}"[:900])  # fmt: skip
    s.land(table)


def _without_additions(proposed: list[str], found: list[str]) -> str | None:
    """The digest of what was found, without properties and features that were not proposed; None: it is no commit."""
    try:
        parsed = [json.loads(line) for line in found]
        wanted = [json.loads(line) for line in proposed]
        own = next(action["metaData"]["configuration"] for action in wanted if "metaData" in action)
        protocol = next(action["protocol"] for action in wanted if "protocol" in action)
        for action in parsed:
            if "metaData" in action:
                told = action["metaData"]["configuration"]
                action["metaData"]["configuration"] = {key: told[key] for key in told if key in own}
            if "protocol" in action:
                for kind in ("readerFeatures", "writerFeatures"):
                    kept = [each for each in protocol.get(kind, ()) if each in action["protocol"].get(kind, ())]
                    action["protocol"] |= {kind: kept} if kind in protocol else {}
        return digests.of_actions(json.dumps(action) for action in parsed)
    except (ValueError, KeyError, TypeError, StopIteration):
        return None


@check(Family.VERSION_0, "MC-ENABLE-05", features=("managedCommit",))
def the_owners_configuration_is_a_map_of_strings(s: Scenario) -> None:
    """If the owner stores a configuration of its own in the table's properties, that is a JSON object whose values are
    strings; clients keep it without reading anything into it."""
    table = s.create()
    found = configuration(version_0(s, table)).get(CONF)
    if found is not None:
        s.require(is_a_map_of_strings(found), "MC-ENABLE-05", table=table, version=0,
                  expected=f"`{CONF}` is a JSON object whose values are strings",
                  observed=repr(found)[:300])  # fmt: skip
    s.land(table)


def is_a_map_of_strings(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        parsed = json.loads(text)
    except ValueError:
        return False
    return isinstance(parsed, dict) and all(isinstance(value, str) for value in parsed.values())


@check(Family.VERSION_0, IN_PLACE, needs=(Profile.VERSION_0_BY_FILESYSTEM,))
def version_0_stands_in_its_place(s: Scenario) -> None:
    """Version 0 is written as a published commit at once, where every creator would write it, and no staged file is
    made for it."""
    request = s.creation()
    told = s.ask("creator", request)
    ratified = s.expect(told, Ratified, "PROFILE-VERSION0-01", "PROFILE-CORE-05", may_refuse=True,
                        expected="nobody else wants the table: it is made")  # fmt: skip
    table = s.created("orders", told, ratified)
    s.require(0 in s.published(table), IN_PLACE, told=(told,), table=table, version=0,
              expected=f"version 0 stands as {hands.published_name(0)} from the start",
              observed="there is no such file")  # fmt: skip
    staged = [name for name, content in hands.staged(s, table).items() if request.attempt in name + content]
    s.require(not staged, IN_PLACE, told=(told,), table=table, version=0,
              expected="version 0 is not staged", observed=f"the staging folder has {staged}")  # fmt: skip
    s.land(table)


def place(s: Scenario, name: str) -> str:
    """A folder for a table, below those that the kit may write to."""
    if s.identity.storage is None:
        raise Inconclusive("the subject says no folder (`storage`) below which the kit may write")
    return f"{s.identity.storage.rstrip('/')}/{s.physical(name)}"


def create_at(s: Scenario, path: str, name: str) -> Told:
    """Create a table at a place; a subject that always finds its own cannot be judged here."""
    told = s.ask("creator", s.creation(name, path=path))
    if isinstance(told.answer, Unsupported):
        raise Inconclusive(f"operation {told.number}: the subject makes no tables at a given place")
    return told


def first_file(s: Scenario, path: str) -> str | None:
    answer = s.subject.ask("stranger", Observe(table=path))
    files = answer.files if isinstance(answer, Observation) else ()
    return next((file.content for file in files if file.name == hands.published_name(0)), None)


@check(Family.VERSION_0, *ONE_FILE, needs=RACE)
def a_filesystem_creator_that_was_first_keeps_its_table(s: Scenario) -> None:
    """A filesystem creator wrote version 0 at the place where the owner is asked to make a table. The file that is
    there has won: the owner does not say that it made the table, and leaves the file as it is."""
    path = place(s, "orders")
    table = TableHandle(name="orders", reference=path, versions=0, path=path)
    s.tables.append(table)
    planted, won = write_file(s, table, 0, client="filesystem creator")
    s.require(won, "PROFILE-STORAGE-01", told=(planted,), expected="nothing is there: the file is written",
              observed="a conflict")  # fmt: skip
    before = first_file(s, path)
    told = create_at(s, path, "orders")
    stands = first_file(s, path)
    s.require(stands == before, *ONE_FILE, told=(planted, told), version=0,
              expected="the file of version 0 that was there first stays as it is",
              observed="it is gone" if stands is None else f"it is {stands[:200]}")  # fmt: skip
    s.expect(told, (Conflict, Rejected), *ONE_FILE, because=(planted,),
             expected="another creator's version 0 is there: this one did not make the table")  # fmt: skip


@check(Family.VERSION_0, *ONE_FILE, needs=RACE)
def a_filesystem_creator_that_comes_second_finds_the_table(s: Scenario) -> None:
    """The owner made a table at a given place. A filesystem creator that comes second finds version 0 there, so its
    put-if-absent fails; the table is the owner's, and goes on."""
    path = place(s, "orders")
    told = create_at(s, path, "orders")
    ratified = s.expect(told, Ratified, "PROFILE-VERSION0-01", *ONE_FILE, may_refuse=True,
                        expected="the place is empty: the table is made")  # fmt: skip
    table = s.created("orders", told, ratified)
    table.path = path
    planted, won = write_file(s, table, 0, client="filesystem creator")
    s.require(not won, *ONE_FILE, told=(told, planted), table=table, version=0,
              expected=f"{hands.published_name(0)} is there: nobody else can create the table",
              observed="a filesystem creator could")  # fmt: skip
    s.land(table)
