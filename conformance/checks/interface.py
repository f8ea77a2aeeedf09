"""The interface itself: `hello` is constant, every request gets an answer, and the kit can read and write files.

PROFILES.md#every-subject: the requirements without which the kit cannot judge a subject's other answers.

Why examples: they test what the oracle takes for granted: the adapter, `hello` and what `observe` shows.
"""

from conformance.adapters.identity import contradictions
from conformance.checks import check
from conformance.interface import messages as m
from conformance.scenario.check import Family
from conformance.scenario.scenario import Scenario


@check(Family.INTERFACE, "PROFILE-CORE-01")
def hello_is_constant_and_consistent(s: Scenario) -> None:
    """`hello` returns the same to several clients, before and after a commit, and its profiles and commit modes do not
    contradict each other."""
    table = s.create()
    for client in ("first", "second"):
        call = s.ask(client, m.Hello())
        identity = s.expect(call, m.Identity, "PROFILE-CORE-01", expected="the identity of the subject")
        wrong = contradictions(identity)
        s.require(not wrong, "PROFILE-CORE-01", evidence=(call,),
                  expected="the declarations of a subject do not contradict each other",
                  observed="; ".join(wrong))  # fmt: skip
        s.require(identity == s.identity, "PROFILE-CORE-01", evidence=(call,),
                  expected="`hello` always returns the same",
                  observed=f"`hello` changed between calls: was {s.identity}, is {identity}"[:900])  # fmt: skip
        s.land(table, client=client)
