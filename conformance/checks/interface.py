"""The interface itself: `hello` is constant, every request gets an answer, and the kit can read and write files.

PROFILES.md#every-subject: the requirements without which the kit cannot judge a subject's other answers.

Why examples: they test what the oracle takes for granted: the adapter, `hello` and what `observe` shows.
"""

from conformance.adapters.identity import contradictions
from conformance.checks import check
from conformance.interface import messages as m
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.ownership import drop
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


@check(Family.INTERFACE, "PROFILE-CORE-07")
def declared_profiles_are_supported(s: Scenario) -> None:
    """Every operation of a declared profile is supported: resolve a table, look up an attempt, return the maintenance
    policy, drop a table."""
    table = s.create()
    profiles = s.identity.profiles
    requests: list[tuple[Profile, m.Request, tuple[type, ...]]] = [
        (Profile.DISCOVERY, m.LoadTable(name=s.physical(table.name)), (m.Table,)),
        (Profile.ATTEMPT_OUTCOME, m.AttemptOutcome(table=table.reference, attempt=s.attempt()), (m.NotLanded,)),
        (Profile.MAINTENANCE_POLICY, m.MaintenancePolicy(table=table.reference), (m.Policy,)),
    ]
    for profile, request, kinds in requests:
        if profile.value in profiles:
            call = s.ask("client", request, table)
            s.expect(call, kinds, "PROFILE-CORE-07", may_refuse=True,
                     expected=f"the subject declares `{profile}`: it supports its requests")  # fmt: skip
    s.land(table)
    if Profile.DISCOVERY.value in profiles:
        drop(s, s.create("discarded"))
