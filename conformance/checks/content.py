"""The content of a commit: all of its actions, one per line, in one file that never changes; and staged files.

managed-commits, "Delta Log Entries" and "Commit Files"; catalog-managed, "Delta Log Entries", "Terminology: Commits".

Why examples: in the measured time programs found the mutants of these checks not at all, or under other requirements.
The other examples are those that the course names.
"""

from conformance.checks import check, families
from conformance.interface.messages import Commit, Conflict, Ratified, Rejected
from conformance.interface.results import Layer
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario import storage_access
from conformance.scenario.check import Family
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario


@check(Family.CONTENT, *families.CONTENT, *families.PUBLISHING, layer=Layer.MODEL)
def any_sequence_of_contents(g: Generation) -> None:
    """Generated commits with every size at which buffers end, every escape of JSON and unknown fields: each one is
    listed and published as it was proposed."""
    g.run(OwnerFamily(name=g.check.family, factors={"commit": 3, "metadata": 4, "backfill": 2, "stray": 3, "drop": 0}))


# Staged files

STAGED = ("staged",)
STORAGE = (Profile.STORAGE_ACCESS,)


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
