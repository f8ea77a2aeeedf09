"""The interface itself: `hello` is constant, every request gets an answer, and the kit can read and write files.

PROFILES.md#every-subject: the requirements without which the kit cannot judge a subject's other answers.

Why examples: they test what the oracle takes for granted: the adapter, `hello` and what `observe` shows.
"""

from conformance.adapters.identity import contradictions
from conformance.checks import check
from conformance.interface import messages as m
from conformance.interface.log_names import STAGING, staged_file
from conformance.models import proposals
from conformance.requirements.catalogue import Profile
from conformance.scenario import storage_access
from conformance.scenario.check import Family
from conformance.scenario.ownership import drop
from conformance.scenario.scenario import Exchange, Scenario, TableHandle

OUTCOMES = "PROFILE-CORE-03"
LOOKED_AT = "PROFILE-CORE-02"
TOUCHED = "PROFILE-STORAGE-01"


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


@check(Family.INTERFACE, LOOKED_AT)
def observe_shows_the_whole_log(s: Scenario) -> None:
    """`observe` shows every file of the log with its size in bytes and, on request, its content."""
    table = s.create()
    attempt, time = s.attempt(), s.timestamp(1)
    info = proposals.commit_info(attempt, time).replace("WRITE", "größe")  # characters of two bytes
    s.land(table, attempt=attempt, actions=(info, proposals.add("x.parquet", time)))
    s.observe(table)
    s.backfill(table, 1)
    files = s.observe(table)
    for file in files:
        size = None if file.content is None else len(file.content.encode("utf-8", "surrogateescape"))
        s.require(size == file.size, LOOKED_AT, table=table,
                  expected=f"`{file.name}` has {file.size} bytes: `observe` returns its content on request",
                  observed="the file has no content" if size is None else f"{size} bytes were returned")  # fmt: skip
    answer = s.answer("external observer", m.Observe(table=table.reference, contents=False))
    names = {file.name for file in answer.files} if isinstance(answer, m.Observation) else set()
    stayed = {file.name for file in files} & {file.name for file in s.observe(table)}
    s.require(stayed <= names, LOOKED_AT, table=table,
              expected=f"a listing without contents has all files that existed throughout: {sorted(stayed)}",
              observed=f"the listing shows {sorted(names)}")  # fmt: skip


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


def seen(s: Scenario, table: TableHandle, file: str) -> str | None:
    """The content of a file of the log, or None."""
    return next((entry.content or "" for entry in s.observe(table) if entry.name == file), None)


@check(Family.INTERFACE, TOUCHED, needs=(Profile.STORAGE_ACCESS,))
def files_that_the_kit_writes_are_visible(s: Scenario) -> None:
    """A file that the kit writes to the staging folder is visible to an external observer, can be replaced, is not
    replaced by a put-if-absent, and disappears when the kit removes it. The table is unchanged."""
    table = s.create()
    own = s.attempt()
    file = f"{STAGING[s.feature]}/{staged_file(9, own)}"
    first, second = (proposals.content(proposals.append(own, s.timestamp(9), [name])) for name in ("one", "other"))
    steps: list[tuple[Exchange, str | None]] = []

    def stands(call: Exchange, content: str | None) -> None:
        steps.append((call, content))
        now = seen(s, table, file)
        s.require(now == content, TOUCHED, evidence=[exchange for exchange, _ in steps[-2:]], table=table,
                  expected=f"`{file}` is {'gone' if content is None else 'as it was planted'}",
                  observed="the file is missing" if now is None else f"the file is {now[:200]!r}")  # fmt: skip

    stands(storage_access.plant(s, table, file, first), first)
    stands(storage_access.plant(s, table, file, second), second)
    call = storage_access.plant(s, table, file, first, if_absent=True)
    stands(call, second)
    s.require(isinstance(call.answer, m.Conflict), TOUCHED, evidence=(call,), table=table,
              expected="the file exists: a put-if-absent is answered `conflict`",
              observed="put-if-absent of an existing file was answered `done`")  # fmt: skip
    stands(storage_access.remove(s, table, file), None)
    stands(storage_access.plant(s, table, file, first, if_absent=True), first)
    s.land(table)
