"""Unknown outcomes: an attempt lands at most once, and whatever is said of it stays true.

Answers are lost, requests arrive late or twice, and everything is asked again after a disturbance. A client under test
reports each transaction as it ended.
"""

from conformance.checks import check
from conformance.checks.families import COMMITTING, OUTCOMES, TRANSACTIONS
from conformance.interface.results import Layer
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family


@check(Family.REPLAYS, *OUTCOMES, *COMMITTING, layer=Layer.MODEL)
def any_sequence_of_replays(g: Generation) -> None:
    """Generated replays and look-ups of attempts with lost, late and refused requests: each attempt lands at most once,
    and no answer about it is taken back."""
    factors = {"resend": 3, "resolve": 3, "deliver": 3, "audit": 4, "disturbance": 4, "read": 0.5}
    g.run(OwnerFamily(name=g.check.family, factors=factors))


@check(Family.REPLAYS, *TRANSACTIONS, layer=Layer.MODEL, side="client")
def any_transaction_with_lost_answers(g: Generation) -> None:
    """Generated transactions whose requests and answers are lost, delayed, repeated and refused: each one is committed
    at most once, and reported as it ended."""
    factors = {"transact": 4, "read": 0.3, "maintain": 0.1, "win": 0.4, "of_writers": 1.8, "create": 2, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))
