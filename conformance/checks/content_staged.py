"""Staged files: where they stand, what they are called, and that each is one proposal of one version.

managed-commits, "Delta Log Entries" and "Commit Files"; catalog-managed, "Delta Log Entries" and "Terminology:
Commits".
"""

from __future__ import annotations

import re
from typing import Final

from conformance.checks.backfill_ordering import CONTENT, same_content
from conformance.checks.content import is_an_action
from conformance.checks.registry import Family, check
from conformance.interface.messages import Commit, Conflict, Ratified, Rejected
from conformance.requirements.catalogue import Profile
from conformance.scenario import hands, proposals, reads
from conformance.scenario.scenario import Inconclusive, Scenario, TableHandle, Told
from conformance.scenario.words import difference

STAGED = ("staged",)
STORAGE = (Profile.STORAGE_ACCESS,)
PLACE = ("LOG-03", "MC-FILES-01", "CM-FILES-02")
OWN = ("MC-FILES-03", "CM-FILES-03")
WHERE = ("MC-FEATURE-01", "CM-STORE-03")
UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""Of any version."""


def listed_file(s: Scenario, table: TableHandle, version: int) -> tuple[reads.Listed, str]:
    """The name of the file that a ratified version is, as its owner lists it while it is not published."""
    listed = reads.ask(s, table)
    commit = listed.commits.get(version)
    if commit is None or (commit.file_name is None and commit.actions is None):
        raise Inconclusive(f"version {version} is published already: nobody says which staged file it was")
    if commit.file_name is None:
        s.fail(*WHERE, told=(listed.told,), table=table, version=version,
               expected=f"version {version} is a staged commit: its owner says which file it is",
               observed="it says what is in it, and no file")  # fmt: skip
    return listed, commit.file_name.rpartition("/")[2]


def staged_content(s: Scenario, table: TableHandle, version: int, name: str) -> str | None:
    """What the staged file of a version says. None: there is no such file. Raises `Inconclusive` where the version is
    published, and its staged file need not be kept."""
    files = hands.staged(s, table)
    if name not in files and version in s.published(table):
        raise Inconclusive(f"version {version} was published meanwhile: its staged file need not be there")
    return files.get(name)


@check(Family.CONTENT, *PLACE, commit_modes=STAGED)
def staged_files_stand_in_the_folder_of_the_feature(s: Scenario) -> None:
    """The file of a ratified commit that is not published stands in the staging folder of the table's feature, and no
    staged file stands in that of the other."""
    table = s.create()
    landed = s.land(table)
    _, name = listed_file(s, table, 1)
    names = [file.name for file in s.observe(table)]
    folder = hands.STAGING[s.feature]
    others = [f"{each}/" for feature, each in hands.STAGING.items() if feature != s.feature]
    wrong = [each for each in names if each.startswith(tuple(others))]
    s.require(not wrong, *PLACE, told=(landed,), table=table, version=1,
              expected=f"staged files of the feature `{s.feature}` stand in `_delta_log/{folder}`",
              observed=f"there are {wrong}")  # fmt: skip
    s.require(staged_content(s, table, 1, name) is not None, *PLACE[1:], told=(landed,), table=table, version=1,
              expected=f"version 1 is `{name}`: that file stands in `_delta_log/{folder}`",
              observed=f"the log has {names}"[:400])  # fmt: skip


@check(Family.CONTENT, "MC-FILES-02", "MC-FILES-04", "CM-FILES-02", commit_modes=STAGED)
def staged_files_are_called_by_version_and_uuid(s: Scenario) -> None:
    """The name of a staged file is the proposed version in 20 digits and a uuid."""
    table = s.create()
    for version in (1, 2):
        landed = s.land(table)
        _, name = listed_file(s, table, version)
        parts = name.split(".")
        s.require(parts[0] == f"{version:020}", "MC-FILES-04", "CM-FILES-02", told=(landed,), table=table,
                  version=version, expected=f"the name begins with {version:020}",
                  observed=f"it is {name}")  # fmt: skip
        right = len(parts) == 3 and UUID.fullmatch(parts[1]) is not None and parts[2] == "json"
        s.require(right, "MC-FILES-02", "CM-FILES-02", told=(landed,), table=table, version=version,
                  expected="the name is `<version>.<uuid>.json`", observed=f"it is {name}")  # fmt: skip


@check(Family.CONTENT, *OWN, commit_modes=STAGED)
def every_attempt_has_a_staged_file_of_its_own(s: Scenario) -> None:
    """Two writers propose version 1. The file that the owner ratified says what its writer wrote, before and after the
    other one staged its own."""
    table = s.create()
    won = s.land(table, client="first")
    _, name = listed_file(s, table, 1)
    before = staged_content(s, table, 1, name)
    lost = s.contend(table, 1, client="second")
    after = staged_content(s, table, 1, name)
    s.require(before == after, *OWN, told=(won, lost), table=table, version=1,
              expected=f"no other attempt writes to `{name}`, the file of the winner",
              observed=f"it was {before}, and is {after}"[:500])  # fmt: skip
    assert isinstance(won.request, Commit)
    s.require(after is None or won.request.attempt in after, *OWN, told=(won, lost), table=table, version=1,
              expected=f"`{name}` says what attempt {won.request.attempt} proposed",
              observed=f"it says {after}"[:300])  # fmt: skip


@check(Family.CONTENT, "CM-FILES-01", "MC-LOG-05", commit_modes=STAGED)
def a_staged_file_is_written_like_a_published_commit(s: Scenario) -> None:
    """A staged file is lines of JSON with one action each, so that it can be published as it is, and readers read both
    alike."""
    table = s.create()
    landed = s.land(table)
    _, name = listed_file(s, table, 1)
    content = staged_content(s, table, 1, name) or ""
    wrong = [line for line in content.splitlines() if not is_an_action(line)]
    s.require(not wrong, "CM-FILES-01", "MC-LOG-05", told=(landed,), table=table, version=1,
              expected="every line of a staged file is a JSON object that holds one action",
              observed=f"a line is {wrong[:1]}"[:300])  # fmt: skip
    same_content(s, table, landed, content)


@check(Family.CONTENT, *WHERE, commit_modes=STAGED)
def the_owner_says_where_a_staged_commit_is_and_not_what(s: Scenario) -> None:
    """Of a staged commit its owner keeps the name of the file; what it says is in the table's storage, and nowhere else
    that a reader would have to trust."""
    table = s.create()
    landed = s.land(table)
    listed, name = listed_file(s, table, 1)
    s.require(listed.commits[1].actions is None, *WHERE, told=(landed, listed.told), table=table, version=1,
              expected=f"version 1 is `{name}`: its content is what that file says",
              observed="its owner tells a content of its own beside it")  # fmt: skip
    s.require(staged_content(s, table, 1, name) is not None, *WHERE, told=(landed, listed.told), table=table, version=1,
              expected=f"the file `{name}` that its owner names is there", observed="there is none")  # fmt: skip


def propose_staged(s: Scenario, proposal: Commit, client: str = "writer") -> Told:
    """Propose a file that the kit staged; a policy may refuse it, and then nothing is known."""
    told = s.ask(client, proposal)
    if isinstance(told.answer, Rejected):
        raise Inconclusive(f"operation {told.number}: a staged file is refused: {told.answer.reason}")
    return told


@check(Family.CONTENT, *CONTENT, *WHERE, needs=STORAGE, commit_modes=STAGED)
def a_file_that_its_writer_staged_is_published_byte_for_byte(s: Scenario) -> None:
    """A writer stages its file itself, with blanks and an order of fields of its own, and proposes its name. It is
    published with exactly these bytes."""
    table = s.create()
    attempt = s.attempt()
    content = proposals.content(
        action.replace(":", " :  ").replace(",", " ,") for action in proposals.append(attempt, s.timestamp(1))
    )
    proposal = hands.stage(s, table, content=content, attempt=attempt)
    told = propose_staged(s, proposal)
    s.expect(told, Ratified, "PROFILE-CORE-05", expected="version 1 is free: ratified")  # fmt: skip
    table.versions += 1
    s.backfill(table, 1)
    seen = s.published(table).get(1, "")
    s.require(seen == content, *CONTENT, told=(told,), table=table, version=1,
              expected="version 1 is published with exactly the bytes of its staged file",
              observed=difference("staged", content, "published", seen))  # fmt: skip


@check(Family.CONTENT, "CM-LOG-05", "MC-FILES-04", needs=STORAGE, commit_modes=STAGED)
def a_staged_file_is_ratified_as_the_version_of_its_name_only(s: Scenario) -> None:
    """A writer that staged a file for version 2 finds version 1 free, and proposes that file as version 1. It is not
    ratified; a file that was staged for version 1 is."""
    table = s.create()
    staged = hands.stage(s, table, 2)
    reused = Commit(table=table.reference, version=1, attempt=staged.attempt, staged_file=staged.staged_file)
    told = s.ask("writer", reused)
    s.expect(told, (Rejected, Conflict), "CM-LOG-05", "MC-FILES-04",
             expected=f"`{staged.staged_file}` is a proposal of version 2: not ratified as version 1")  # fmt: skip
    told = propose_staged(s, hands.stage(s, table, 1))
    s.expect(told, Ratified, "PROFILE-CORE-05", expected="version 1 is free, and the file is one for it: ratified")
    table.versions += 1
    s.land(table)
