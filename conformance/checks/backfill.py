"""Backfill: the published commits are a prefix of the ratified ones, with their content, and none is lost.

managed-commits, "Commit Backfills", "Commit Files"; catalog-managed, "Publishing Commits", "Terminology: Commits".

Backlogs grow and are published in parts; foreign files block a publication; the log folder is watched while requests
are under way. A client under test publishes, and reads while others do. The content of a commit is all of its actions,
one per line, in one file that never changes (both documents, "Delta Log Entries").

Why examples: stored findings name them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from conformance.checks import check, families
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.interface.messages import Commit, Conflict, Ratified, Rejected
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario import storage_access
from conformance.scenario.check import Family
from conformance.scenario.scenario import TRIES, Exchange, Inconclusive, Scenario, TableHandle


@check(Family.BACKFILL, *families.PUBLISHING, *families.CONTENT, *families.READING, layer=Layer.MODEL)
def any_sequence_of_publications(g: Generation) -> None:
    """Generated backlogs that are published in parts, with foreign files in the way: each commit is published after its
    predecessor, with its content, and never changes."""
    g.run(OwnerFamily(name=g.check.family, factors={"backfill": 4, "block": 4, "many": 4, "read": 2, "drop": 0}))


@check(Family.BACKFILL, *families.MAINTAINING, *families.LOGS, layer=Layer.MODEL, side="client")
def any_publication_and_the_client(g: Generation) -> None:
    """Generated logs that are published in parts, by the client too: it reads each version from the right place, and
    replaces no published file."""
    factors = {"backfill": 4, "leftover": 3, "maintain": 2, "of_readers": 2, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))


# A foreign file. The kit removes its own files; what it observes until then is not recorded.

STORAGE = (Profile.STORAGE_ACCESS,)


def glance(s: Scenario, table: TableHandle) -> dict[str, str]:
    """The content of all files of the log, by name. The history does not record the request."""
    for _ in range(TRIES):  # an answer may be lost, and the kit must remove its file
        answer = s.answer("external observer", m.Observe(table=table.reference))
        if isinstance(answer, m.Observation):
            return {file.name: file.content or "" for file in answer.files}
    raise Inconclusive(f"`observe` failed for the table {table.name}: {answer}")


@contextmanager
def blocked(s: Scenario, table: TableHandle, version: int, foreign: str | None = None) -> Iterator[str]:
    """Run with a foreign file under the name of an unpublished version; yields its content."""
    foreign = foreign or proposals.content(proposals.append(s.attempt(), s.timestamp(version)))
    call = storage_access.plant(s, table, commit_file(version), foreign, if_absent=True)
    if isinstance(call.answer, m.Conflict):
        raise Inconclusive(f"the owner has already published version {version}: no foreign file can have its name")
    try:
        yield foreign
    finally:
        if glance(s, table).get(commit_file(version)) == foreign:
            storage_access.remove(s, table, commit_file(version))


# Content


@check(Family.CONTENT, *families.CONTENT, *families.PUBLISHING, layer=Layer.MODEL)
def any_sequence_of_contents(g: Generation) -> None:
    """Generated commits with every size at which buffers end, every escape of JSON and unknown fields: each one is
    listed and published as it was proposed."""
    g.run(OwnerFamily(name=g.check.family, factors={"commit": 3, "metadata": 4, "backfill": 2, "stray": 3, "drop": 0}))


# Staged files

STAGED = ("staged",)


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
