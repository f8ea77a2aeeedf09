"""Replays of an attempt, and lookups of its outcome: both are final.

PROFILES.md#idempotent-retry: the replay of a landed attempt is ratified, a conflict is decided again, a gap is not
remembered. PROFILES.md#attempt-outcome: an attempt reported as not landed never lands, because its writer proposes its
changes again.

Answers are lost, requests arrive late or twice, and everything is asked again after a disturbance. A client under test
reports each transaction as it ended.

Why examples: the course names them.
"""

from conformance.checks import check, families
from conformance.interface import messages as m
from conformance.interface.results import Layer
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.formatting import in_words
from conformance.scenario.scenario import Delayed, Exchange, Inconclusive, Scenario, TableHandle, persist


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


RETRY = (Profile.IDEMPOTENT_RETRY,)


def lose_one(s: Scenario, table: TableHandle, client: str = "writer") -> Exchange:
    """Commit the next version, and lose the answer to its writer."""
    sent = persist(lambda: s.lose(client, s.proposal(table)))
    if not isinstance(sent.answer, m.Ratified):
        raise Inconclusive(f"operation {sent.number} did not land, so there is nothing to replay")
    table.versions += 1
    return sent


def replay(s: Scenario, sent: Exchange, client: str = "writer", since: str = "") -> Exchange:
    """Send the request of a landed attempt again: it is answered `ratified` with the same version."""
    assert isinstance(sent.request, m.Commit)
    again = s.ask(client, sent.request)
    version = sent.request.version
    expected = f"the attempt is version {version}{since}: its replay is answered `ratified` as version {version}"
    ratified = s.expect(again, m.Ratified, "PROFILE-RETRY-01", expected=expected, because=(sent,),
                        what="the replay of a landed attempt")  # fmt: skip
    s.require(
        ratified.version == version, "PROFILE-CORE-06", "PROFILE-RETRY-01", evidence=(again, sent), expected=expected,
        observed=f"the replay was answered as version {ratified.version}",
    )  # fmt: skip
    return again


@check(Family.REPLAYS, "PROFILE-RETRY-01", "PROFILE-CORE-06", needs=RETRY)
def an_immediate_replay_is_ratified(s: Scenario) -> None:
    """A writer whose answer was lost sends its commit again, and so does another process after it: both replays are
    ratified. Another attempt at the same version gets a conflict, and the next version is free."""
    table = s.create()
    sent = lose_one(s, table)
    replay(s, sent)
    replay(s, sent, client="successor")
    s.contend(table, 1, client="other")
    s.land(table, client="other")


# Lookup of outcomes


def attempt_of(sent: Exchange | Delayed) -> str:
    """The attempt as which a proposal was sent."""
    assert isinstance(sent.request, m.Commit | m.CreateTable | m.TakeOver | m.HandBack)
    return sent.request.attempt


def outcome(s: Scenario, table: TableHandle, attempt: str, client: str = "writer") -> Exchange:
    """Look up the outcome of the attempt."""
    return s.ask(client, m.AttemptOutcome(table=table.reference, attempt=attempt))


def known_without_the_table(s: Scenario, table: TableHandle, sent: Exchange, because: Exchange) -> None:
    """A commit that landed arrives again after the owner gave its table up: it may be unknown then, but it did not lose
    its version, which would make its writer commit the changes again."""
    if Profile.IDEMPOTENT_RETRY.value in s.identity.profiles:
        again = s.ask("writer", sent.request, table)
        s.require(
            not isinstance(again.answer, m.Conflict | m.Gap), "PROFILE-RETRY-01", evidence=(again, sent, because),
            table=table, expected=f"attempt {attempt_of(sent)} has landed: `ratified`, or the table is unknown",
            observed=f"the replay of a landed attempt was answered {in_words(again.answer)}",
        )  # fmt: skip


def landed(s: Scenario, table: TableHandle, sent: Exchange, client: str = "writer") -> None:
    """The outcome of an attempt that landed."""
    call = outcome(s, table, attempt_of(sent), client)
    version = getattr(sent.request, "version", 0)
    expected = f"the attempt landed as version {version}, for every client"
    answer = s.expect(call, m.Landed, "PROFILE-OUTCOME-01", expected=expected, because=(sent,))
    s.require(
        answer.version == version, "PROFILE-OUTCOME-01", evidence=(call, sent), table=table, version=version,
        expected=expected, observed=f"the attempt was reported as version {answer.version}",
    )  # fmt: skip


def not_landed(s: Scenario, table: TableHandle, attempt: str, client: str = "writer") -> Exchange:
    """The outcome of an attempt that has not landed."""
    call = outcome(s, table, attempt, client)
    s.expect(
        call, m.NotLanded, "PROFILE-OUTCOME-02", "PROFILE-OUTCOME-01",
        expected=f"no version is attempt {attempt}: it has not landed, and never lands",
    )  # fmt: skip
    return call


def arrives_late(s: Scenario, table: TableHandle, late: Delayed, resolved: Exchange) -> None:
    """The request of an attempt that was resolved as not landed arrives: it is rejected."""
    assert isinstance(late.request, m.Commit)
    call = s.deliver(late)
    s.require(
        not isinstance(call.answer, m.Ratified), "PROFILE-OUTCOME-02", evidence=(call, resolved), table=table,
        version=late.request.version,
        expected=f"attempt {late.request.attempt} was reported as not landed: its request is rejected",
        observed="an attempt reported as not landed was ratified",
    )  # fmt: skip
