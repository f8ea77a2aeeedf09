"""What an owner answered stays true: after replays and restarts, in tables that are dropped, found and created again,
and with a limit of unbackfilled commits.

PROFILES.md#idempotent-retry: the replay of a landed attempt is ratified, a conflict is decided again, a gap is not
remembered. PROFILES.md#attempt-outcome: an attempt reported as not landed never lands, because its writer proposes its
changes again. A client under test reports each transaction as it ended.

PROFILES.md#durable-restart, PROFILES.md#harness-control: the owner crashes between requests and at its declared crash
points; what was under way landed as a whole or not at all.

catalog-managed, "Table Discovery", "Getting Ratified Commits from the Catalog", "Creating and Dropping Catalog-managed
Tables": a table is found by name or by path; a name is unknown, a prefix of another, or spelled differently; a name or
a path is reused.

PROFILES.md#backlog-limit: an owner with a full backlog rejects commits until some are backfilled. Commits that are
published directly do not count.
"""

from conformance.checks import check, families
from conformance.interface.results import Layer
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.rounds import Rounds
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family


@check(Family.REPLAYS, *families.OUTCOMES, *families.COMMITTING, layer=Layer.MODEL)
def any_sequence_of_replays(g: Generation) -> None:
    """Generated replays and look-ups of attempts with lost, late and refused requests: each attempt lands at most once,
    and no answer about it is taken back."""
    factors = {"resend": 3, "resolve": 3, "deliver": 3, "audit": 4, "disturbance": 4, "read": 0.5}
    g.run(OwnerFamily(name=g.check.family, factors=factors))


@check(Family.REPLAYS, *families.TRANSACTIONS, layer=Layer.MODEL, side="client")
def any_transaction_with_lost_answers(g: Generation) -> None:
    """Generated transactions whose requests and answers are lost, delayed, repeated and refused: each one is committed
    at most once, and reported as it ended."""
    factors = {"transact": 4, "read": 0.3, "maintain": 0.1, "win": 0.4, "of_writers": 1.8, "create": 2, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))


@check(Family.RESTARTS, *families.DURABLE, *families.REQUESTS, layer=Layer.MODEL,
       needs=(Profile.DURABLE_RESTART,))  # fmt: skip
def any_sequence_with_restarts(g: Generation) -> None:
    """Generated requests with crashes between and during them: everything ratified, resolved and published is kept."""
    g.run(OwnerFamily(name=g.check.family, factors={"restart": 4, "crash": 4, "disturbance": 2}))


@check(Family.RESTARTS, *families.DURABLE, *families.REQUESTS, layer=Layer.PROCESSES,
       needs=(Profile.DURABLE_RESTART,))  # fmt: skip
def killed_client_processes(rounds: Rounds) -> None:
    """Writers are killed during their commits: other writers continue, ratified commits stay, and each interrupted
    commit landed as a whole or not at all."""
    rounds.run(kills=True)


@check(Family.LIFECYCLE, *families.DISCOVERY, *families.OUTCOMES, layer=Layer.MODEL, needs=(Profile.DISCOVERY,))
def any_sequence_of_drops(g: Generation) -> None:
    """Generated drops and re-creations under the same name, with late requests for the old table: none of them reaches
    the new one."""
    g.run(OwnerFamily(name=g.check.family, factors={"recreate": 8, "drop": 4, "load": 4, "unknown": 4, "deliver": 2}))


@check(Family.LIMITS, *families.LIMITED, *families.COMMITTING, layer=Layer.MODEL, needs=(Profile.BACKLOG_LIMIT,))
def any_sequence_within_a_limit(g: Generation) -> None:
    """Generated commits of tables with and without a limit: no commit exceeds it, and a publication makes room."""
    g.run(OwnerFamily(name=g.check.family, factors={"create": 3, "many": 6, "backfill": 3, "resend": 2, "load": 0.5}))
