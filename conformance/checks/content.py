"""The content of a commit: all of its actions, one per line, in one file that never changes; and staged files.

managed-commits, "Delta Log Entries" and "Commit Files"; catalog-managed, "Delta Log Entries", "Terminology: Commits".

Why examples: in the measured time programs found the mutants of these checks not at all, or under other requirements.
The course names the others.
"""

import json
import re
from typing import Any, Final

from conformance.checks import check
from conformance.checks.backfill import CONTENT, lines, same_content
from conformance.history import digests
from conformance.interface.log_names import STAGING, commit_file
from conformance.interface.messages import Commit, Conflict, Ratified, Rejected
from conformance.models import proposals
from conformance.requirements.catalogue import Profile
from conformance.scenario import reads, storage_access
from conformance.scenario.check import Family
from conformance.scenario.formatting import different_action
from conformance.scenario.ownership import restart
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle

WHOLE = ("MC-LOG-01", "CM-LOG-01")
COMMITTED = ("MC-API-03", "CM-CATALOG-03")


def content_of(s: Scenario, table: TableHandle, landed: Exchange) -> list[str] | None:
    """The actions of a commit as readers can get them now: published, listed or staged; None if they cannot."""
    assert isinstance(landed.request, Commit)
    version = landed.request.version
    listed = reads.ask(s, table).commits.get(version)
    files = {file.name: file.content or "" for file in s.observe(table)}
    if listed is not None and listed.actions is not None:
        return list(listed.actions)
    name = commit_file(version)
    if listed is not None and listed.file_name is not None and name not in files:
        name = f"{STAGING[s.feature]}/{listed.file_name.rpartition('/')[2]}"
    return lines(files[name]) if name in files else None


def whole(s: Scenario, table: TableHandle, landed: Exchange) -> None:
    """Readers get every action of the commit, and no other."""
    assert isinstance(landed.request, Commit)
    proposed = [_normal(action) for action in landed.request.actions or ()]
    stored = content_of(s, table, landed) or []
    part = [line for line in proposed if line in map(_normal, stored)]
    version = landed.request.version
    s.require(len(part) == len(proposed) or not part, *WHOLE, evidence=(landed,), table=table, version=version,
              expected=f"all {len(proposed)} actions of version {version} are visible together, or none of them",
              observed=f"{len(part)} of the actions are visible")  # fmt: skip
    as_proposed(s, table, landed, stored)


def as_proposed(s: Scenario, table: TableHandle, landed: Exchange, stored: list[str]) -> None:
    """Readers get the commit as it was proposed."""
    assert isinstance(landed.request, Commit)
    actions, version = landed.request.actions or (), landed.request.version
    s.require([_normal(line) for line in stored] == [_normal(action) for action in actions], *COMMITTED,
              evidence=(landed,),
              table=table, version=version,
              expected=f"version {version} is the {len(actions)} actions that were proposed",
              observed=different_action("proposed", actions, "found", stored))  # fmt: skip


def _normal(line: str) -> str:
    try:
        return digests.of_actions([line])
    except ValueError:
        return line


@check(Family.CONTENT, *WHOLE, *COMMITTED)
def a_commit_is_atomic(s: Scenario) -> None:
    """A commit adds four files and removes two. A reader gets all of its actions: when it is ratified, after the next
    commit, and when it is published."""
    table = s.create()
    attempt, time = s.attempt(), s.timestamp(1)
    actions = [proposals.commit_info(attempt, time)]
    actions += [proposals.add(f"{attempt}-{number}.parquet", time) for number in range(4)]
    actions += [proposals.remove(f"old-{number}.parquet", time) for number in range(2)]
    landed = s.land(table, attempt=attempt, actions=actions)
    whole(s, table, landed)
    later = s.land(table)
    whole(s, table, landed)
    s.backfill(table, 2)
    whole(s, table, landed)
    whole(s, table, later)


TEXT: Final = (
    '  "quoted" \\ / \' %20 \\u0041 </script> \x7f ÿ \xa0 \x85 é e\u0301 \u212b Ω 表 한 ﷺ € \u200b \u202e \ufeff '
    "\uffff \u2028 \u2029 🜁 👩\u200d👩\u200d👧 \U0010ffff  "
)
"""Characters of one to four bytes in UTF-8, normalized or not; line separators of other formats than JSON; white space
at both ends."""
LARGE: Final = (2 * 2**20, 80 * 2**10)
"""The size of a commit in bytes; the second is for an owner that rejects the first as too large."""


def raw(kind: str, body: object) -> str:
    """One action whose characters are not escaped, as most writers write it."""
    return json.dumps({kind: body}, separators=(",", ":"), ensure_ascii=False)


def large(s: Scenario, size: int) -> list[str]:
    """Actions of about `size` bytes: one with half of them, and many with text in many scripts."""
    time, unit = s.timestamp(1), TEXT * 16
    add: dict[str, Any] = json.loads(proposals.add("large.parquet", time))["add"]
    repeats = size // len(unit.encode()) // 2 + 1
    small = [raw("add", {**add, "path": f"{n}.parquet", "tags": {"x": TEXT}}) for n in range(repeats * 4)]
    return [raw("add", {**add, "tags": {"x": unit * repeats}}), *small]


def kept(s: Scenario, table: TableHandle, *unusual: str) -> bool:
    """Whether the owner ratifies a commit with these actions, which are then stored, also over a restart, and published
    as proposed. It may reject a commit that it considers invalid or too large."""
    attempt = s.attempt()
    actions = (proposals.commit_info(attempt, s.timestamp(table.versions)), *unusual)
    call = s.commit(table, attempt=attempt, actions=actions)
    if isinstance(call.answer, Rejected):
        return False
    s.expect(call, Ratified, "PROFILE-CORE-05", expected=f"version {table.versions} is free: ratified, or rejected")
    table.versions += 1
    as_proposed(s, table, call, content_of(s, table, call) or [])
    if Profile.DURABLE_RESTART.value in s.identity.profiles:
        restart(s)
    s.backfill(table, table.versions - 1)
    same_content(s, table, call, s.published(table).get(table.versions - 1, ""))
    return True


@check(Family.CONTENT, *COMMITTED, *CONTENT)
def unusual_content_is_kept(s: Scenario) -> None:
    """Text in many scripts, escaped and not, control characters, unknown actions and fields, nulls and large numbers
    are published as proposed."""
    table = s.create()
    add = json.loads(proposals.add("part%20é.parquet", s.timestamp(1)))["add"]
    add |= {"x-tag": [1, [2.5]], "tags": {TEXT: TEXT}, "x-nothing": None, "x-empty": {}}
    commits = (
        (raw("add", add), '{"x-unknown":{"big":9223372036854775807,"small":1e-7,"text":"\\u2028"}}'),
        (proposals.line("add", add), raw("domainMetadata", {"domain": TEXT, "configuration": TEXT, "removed": False})),
        (proposals.line("add", {**add, "tags": {"controls": "".join(map(chr, range(32)))}}),),
    )
    if sum(kept(s, table, *actions) for actions in commits) == 0:
        raise Inconclusive("the owner rejects every commit with unusual content")


@check(Family.CONTENT, *COMMITTED, *CONTENT)
def a_large_commit_is_kept(s: Scenario) -> None:
    """A commit of 2 MiB has one action of more than 1 MiB, and more than a thousand with text in many scripts. The
    owner publishes it as proposed, or rejects it as too large; then the writer proposes one of 80 KiB."""
    table = s.create()
    if not any(kept(s, table, *large(s, size)) for size in LARGE):
        raise Inconclusive(f"the owner rejects every commit of {LARGE[-1]} bytes")


# Staged files

STAGED = ("staged",)
STORAGE = (Profile.STORAGE_ACCESS,)
UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""The UUID of any version of the UUID standard."""


def propose_staged(s: Scenario, proposal: Commit) -> Exchange:
    """Propose a file that the kit staged. Raises `Inconclusive` if a policy of the owner rejects it."""
    call = s.ask("writer", proposal)
    if isinstance(call.answer, Rejected):
        raise Inconclusive(f"operation {call.number}: the owner rejects a staged file: {call.answer.reason}")
    return call


@check(Family.CONTENT, "CM-LOG-05", needs=STORAGE, features=("catalogManaged",), commit_modes=STAGED)
def a_staged_file_is_valid_for_one_version(s: Scenario) -> None:
    """A writer proposes files staged for versions 0 and 2 as version 1, which is free. They are not ratified; a file
    staged for version 1 is."""
    table = s.create()
    for version in (2, 0):
        staged = storage_access.stage(s, table, version)
        reused = Commit(table=table.reference, version=1, attempt=staged.attempt, staged_file=staged.staged_file)
        call = s.ask("writer", reused)
        s.expect(call, (Rejected, Conflict), "CM-LOG-05",
                 expected=f"`{staged.staged_file}` is a proposal of version {version}: not ratified as version 1"
                 )  # fmt: skip
    call = propose_staged(s, storage_access.stage(s, table, 1))
    s.expect(call, Ratified, "PROFILE-CORE-05", expected="version 1 is free, and the file was staged for it: ratified")
    table.versions += 1
    s.land(table)
