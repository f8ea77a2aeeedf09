"""The interface itself: `hello` is constant, every request gets an answer, and the kit can read and write files.

PROFILES.md#every-subject: the requirements without which the kit cannot judge a subject's other answers.
"""

from conformance.adapters.identity import contradictions
from conformance.checks import check
from conformance.interface import messages as m
from conformance.interface.log_names import STAGING, staged_file
from conformance.models import proposals
from conformance.requirements.catalogue import Profile
from conformance.scenario import reads, storage_access
from conformance.scenario.check import Family
from conformance.scenario.ownership import drop
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle

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


@check(Family.INTERFACE, OUTCOMES)
def requests_for_an_unknown_table_are_answered(s: Scenario) -> None:
    """Each request for a table that does not exist is answered as unknown or rejected; nothing is ratified, and
    existing tables are unchanged."""
    table = s.create()
    for request in s.requests_for_an_unknown_table(s.attempt()):
        call = s.ask("lost", request)
        s.require(not isinstance(call.answer, m.Ratified | m.Table | m.Landed), OUTCOMES, evidence=(call,),
                  expected="the table does not exist: `not_found`, or another rejection",
                  observed=f"the request was answered {str(call.answer)[:300]}")  # fmt: skip
    s.land(table)


@check(Family.INTERFACE, OUTCOMES)
def unusual_requests_are_answered(s: Scenario) -> None:
    """Empty and reversed ranges, ranges after the latest version, a backfill to version 0, a proposal of a very high
    version: each gets an answer of its kind."""
    table = s.create()
    s.land(table)
    for start, end in ((5, 2), (9, None), (2, 9), (0, 0)):
        call = s.ask("reader", m.GetCommits(table=table.reference, start=start, end=end))
        beyond = [] if isinstance(call.answer, m.Rejected | m.NotFound) else [
            commit.version for commit in getattr(call.answer, "commits", ()) if commit.version > 1]  # fmt: skip
        s.require(not beyond, OUTCOMES, evidence=(call,), table=table, expected="there is no version above 1",
                  observed=f"versions {beyond} are listed, which do not exist")  # fmt: skip
    s.ask("publisher", m.BackfillToVersion(table=table.reference, version=0))
    far = s.commit(table, 2**32 + table.versions, client="hasty")
    s.require(not isinstance(far.answer, m.Ratified), OUTCOMES, "MC-COMMIT-01", "CM-COMMIT-07", evidence=(far,),
              table=table,
              expected="version 1 is the latest: such a version is refused",
              observed="a proposal far above the latest version was ratified")  # fmt: skip
    s.land(table)
    reads.ask(s, table)


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


@check(Family.INTERFACE, TOUCHED, needs=(Profile.STORAGE_ACCESS,), commit_modes=("staged",))
def files_that_the_kit_stages_can_be_proposed(s: Scenario) -> None:
    """A staged file that the kit writes can be proposed by its name; the owner publishes to the log in which the kit
    wrote it."""
    table = s.create()
    proposal = storage_access.stage(s, table)
    call = s.ask("writer", proposal)
    if isinstance(call.answer, m.Rejected) and staged_file(1, proposal.attempt) not in storage_access.staged(s, table):
        s.fail(TOUCHED, evidence=(call,), expected="the staged file exists", observed="the staged file is missing")
    if isinstance(call.answer, m.Rejected | m.Unsupported):
        raise Inconclusive(f"operation {call.number}: the subject does not accept files staged by its writers")
    s.expect(call, m.Ratified, TOUCHED, "PROFILE-CORE-05", expected="version 1 is free, and its file exists: ratified")
    table.versions += 1
    s.backfill(table, 1)
    published = s.published(table).get(1, "")
    s.require(proposals.attempt_of(published) == proposal.attempt, TOUCHED, evidence=(call,), table=table, version=1,
              expected="the kit's file is published", observed=f"published is {published!r}"[:300])  # fmt: skip
