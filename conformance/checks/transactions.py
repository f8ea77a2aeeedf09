"""Transactions over several tables: profile `transaction-group`, the form of which follows a draft RFC.

The variations: groups of two or three tables; overlapping groups in opposite order; a member that cannot be ratified;
lost answers, late and repeated requests of a group, of a part of it, and of one member alone; crashes between its
effects; a table that is dropped or handed back; readers of all tables.

Why an example: the course and a server's test name it; programs find the same bugs.
"""

from typing import Final

import msgspec

from conformance.checks import check, families
from conformance.interface import messages as m
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.oracle import groups as oracle
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario import groups
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle

GROUPS: Final = ("PROFILE-GROUP-01", "PROFILE-GROUP-02", "PROFILE-GROUP-03", "PROFILE-GROUP-04", "PROFILE-GROUP-05")
FEWER: Final = {
    "commit": 0.5, "resend": 0.7, "resolve": 0.7, "read": 0.5, "load": 0.5, "create": 0.3, "recreate": 0.5, "drop": 0.5,
    "filesystem": 0.3, "take_over": 0.3, "write": 0.3, "misplace": 0.3, "audit": 0.5, "metadata": 0.3, "deliver": 2,
}  # fmt: skip


@check(
    Family.TRANSACTIONS, *GROUPS, *families.REQUESTS, *families.OUTCOMES, *families.DURABLE, layer=Layer.MODEL,
    needs=(Profile.TRANSACTION_GROUP,), commit_modes=("staged", "inline"),
)  # fmt: skip
def any_sequence_of_groups(g: Generation) -> None:
    """Generated groups of proposals of several tables: each is ratified whole, or not at all."""
    g.run(OwnerFamily(name=g.check.family, factors=FEWER, groups=True))


@check(
    Family.TRANSACTIONS, "PROFILE-GROUP-06", "PROFILE-GROUP-07", *families.TRANSACTIONS, *families.LOGS,
    layer=Layer.MODEL, side="client", needs=(Profile.TRANSACTION_GROUP,), commit_modes=("staged", "inline"),
)  # fmt: skip
def any_client_of_several_tables(g: Generation) -> None:
    """Generated transactions over several tables against any winners: each lands whole, or not at all, and a read of
    several tables never shows half of one."""
    factors = {"transact": 0.3, "read": 0.3, "maintain": 0.2, "create": 0.2, "transfer": 0.2, "again": 0.5}
    g.run(ClientFamily(name=g.check.family, factors=factors, groups=True))


def latest(s: Scenario, table: TableHandle) -> tuple[int | None, Exchange]:
    exchange = s.ask("reader", m.GetCommits(table=table.reference), table)
    return getattr(exchange.answer, "latest", None), exchange


@check(
    Family.TRANSACTIONS, "PROFILE-GROUP-01", "PROFILE-GROUP-02", "PROFILE-GROUP-04", "PROFILE-GROUP-05",
    needs=(Profile.TRANSACTION_GROUP,), commit_modes=("staged", "inline"),
)  # fmt: skip
def a_group_lands_whole_or_not_at_all(s: Scenario) -> None:
    """A group of two next versions is ratified, and so is its replay. A later group, of which one version is taken by
    then, is refused for that member, and changes neither table."""
    tables = [s.create("orders"), s.create("stock")]
    first = groups.group_of([s.proposal(table) for table in tables])
    answer, exchanges = groups.ask(s, first, tables)
    if isinstance(answer, m.Unknown):
        raise Inconclusive("the outcome of the group stayed unknown")
    s.require(
        isinstance(answer, m.GroupRatified), "PROFILE-GROUP-05", evidence=exchanges, table=tables[0], version=1,
        expected="both members propose the next version, and no other client does: `group_ratified`",
    )  # fmt: skip
    for table, member in zip(tables, exchanges, strict=True):
        table.versions += 1
        version, read = latest(s, table)
        s.require(
            version == 1, "PROFILE-GROUP-01", evidence=(member, read), table=table, version=1,
            expected=f"the group was ratified: version 1 is the latest of {table.name}", observed=f"{version} is",
        )  # fmt: skip
    answer, replayed = groups.ask(s, first, tables, "retrier", frozenset(one.attempt for one in first.members))
    s.require(
        isinstance(answer, m.GroupRatified) or "idempotent-retry" not in s.identity.profiles, "PROFILE-GROUP-04",
        evidence=(exchanges[0], *replayed), table=tables[0], version=1,
        expected="all attempts of the group landed: `group_ratified`, again",
    )  # fmt: skip
    late = groups.group_of([s.proposal(table) for table in tables])
    won = s.land(tables[1], "other")
    answer, refused = groups.ask(s, late, tables, "late")
    s.require(
        not isinstance(answer, m.GroupRatified), "PROFILE-GROUP-01", evidence=(won, *refused), table=tables[1],
        version=2, expected="version 2 of stock is taken: the group is refused",
    )  # fmt: skip
    named = answer.decided_by if isinstance(answer, m.GroupRefused) and isinstance(answer.answer, m.Conflict) else 1
    s.require(
        named == 1, "PROFILE-GROUP-02", evidence=(won, *refused), table=tables[0], version=2,
        expected="the refusal names member 1: only version 2 of stock is taken", observed=f"it names member {named}",
    )  # fmt: skip
    version, read = latest(s, tables[0])
    s.require(
        version == 1, "PROFILE-GROUP-01", evidence=(refused[0], read), table=tables[0], version=1,
        expected="the group was refused: version 1 is still the latest of orders", observed=f"{version} is",
    )  # fmt: skip


@check(
    Family.TRANSACTIONS, "PROFILE-GROUP-01", needs=(Profile.TRANSACTION_GROUP,), commit_modes=("staged", "inline")
)  # fmt: skip
def a_group_of_different_tables_is_whole(s: Scenario) -> None:
    """A group of two tables with different features or commit modes changes both tables, or neither."""
    orders = s.create("orders")
    kinds = [
        (feature, mode) for feature, modes in s.identity.commit_modes.items() for mode in modes if mode != "direct"
    ]
    for number, (feature, commit_mode) in enumerate(kinds):
        if (feature, commit_mode) == (s.feature, s.commit_mode):
            continue
        attempt = s.attempt()
        actions = proposals.version_0(feature, attempt, s.attempt(), timestamp=s.timestamp(0))
        creation = s.creation(f"other{number}", attempt=attempt, actions=actions)
        created = s.answer("creator", msgspec.structs.replace(creation, feature=feature, commit_mode=commit_mode))
        if not isinstance(created, m.Ratified) or created.table is None:
            continue
        # The history records `orders` alone: its rules are those of one table feature.
        other = TableHandle(name=f"other{number}", reference=created.table, versions=1)
        group = groups.group_of([s.proposal(orders), s.proposal(other)])
        commit = oracle.commits_of(group)[0]
        sent = s._invoke("writer", commit, orders)
        answer = s.answer("writer", group)
        valid = m.belongs(group, answer)
        member = s._ended(sent, commit, oracle.parts_of(group, answer if valid else m.Unknown())[0])
        there = s.answer("reader", m.GetCommits(table=other.reference))
        if isinstance(answer, m.Unknown) or not isinstance(there, m.Commits):
            raise Inconclusive("the outcome of the group stayed unknown")
        landed = isinstance(answer, m.GroupRatified)
        orders.versions += landed
        version, read = latest(s, orders)
        s.require(
            (max(version or 0, 0), max(there.latest or 0, 0)) == (orders.versions - 1, int(landed)), "PROFILE-GROUP-01",
            evidence=(member, read), table=orders, version=commit.version,
            expected="the group was ratified, so its members are versions of both tables" if landed
            else "the group was not ratified, so it changed neither table",
            observed=f"orders has the latest version {version}, the {feature} table with {commit_mode} commits "
            f"{there.latest}",
        )  # fmt: skip


@check(
    Family.TRANSACTIONS, "PROFILE-GROUP-06", "PROFILE-GROUP-07", "PROFILE-CLIENT-02",
    needs=(Profile.TRANSACTION_GROUP,), commit_modes=("staged", "inline"),
)  # fmt: skip
def a_client_commits_to_two_tables_at_once(s: ClientScenario) -> None:
    """A client adds a file to two tables in one transaction, which lands by one request, and reads both tables."""
    tables = [s.create("orders"), s.create("stock")]
    names = [s.name_of(table) for table in tables]
    members = [m.Transact(table=name, marker=s.attempt(), adds=(m.DataFile(path="mine"),)) for name in names]
    answer, calls = s.act_together("writer", m.TransactGroup(members=tuple(members)), tables)
    expected = "no other client writes to the tables: the transaction is version 1 of both"
    s.require(
        answer == m.GroupCommitted(versions=(1, 1)), "PROFILE-GROUP-06", "PROFILE-CLIENT-02", evidence=calls,
        expected=expected, observed=f"it was answered {m.name_of(answer)}",
    )  # fmt: skip
    for table, call in zip(tables, calls, strict=True):
        s.commits_as(call, 1, "PROFILE-GROUP-06", "PROFILE-CLIENT-02", expected=expected)
        table.versions = 2
    alone = [heard.request for heard in s.asked(m.Commit)]
    s.require(
        not alone, "PROFILE-GROUP-06", evidence=calls, expected="both commits are proposed by one `commit_group`",
        observed=f"`commit` was sent {len(alone)} times",
    )  # fmt: skip
    read, reads = s.act_together("reader", m.Snapshots(tables=tuple(names)), tables)
    shown = [snapshot.version for snapshot in read.snapshots] if isinstance(read, m.SnapshotsRead) else []
    s.require(
        shown == [1, 1], "PROFILE-GROUP-07", evidence=reads, expected="version 1 of both tables is the newest",
        observed=f"the read was answered {m.name_of(read)}, with the versions {shown}",
    )  # fmt: skip
