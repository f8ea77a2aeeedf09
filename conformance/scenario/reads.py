"""The commits that an owner returns to a reader, as values to compare."""

from dataclasses import dataclass

from conformance.interface import messages as m
from conformance.scenario.scenario import Exchange, Scenario, TableHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The answer to one request for commits, or to one resolution of the table."""

    exchange: Exchange
    order: tuple[int, ...]
    """The versions as they were listed."""
    commits: dict[int, m.CommitEntry]
    latest: int | None
    """None: the answer makes no claim (null, or -1)."""


def ask(
    s: Scenario, table: TableHandle, start: int | None = None, end: int | None = None, client: str = "reader"
) -> Listed:
    """Request the commits."""
    return listed(s, s.ask(client, m.GetCommits(table=table.reference, start=start, end=end)))


def listed(s: Scenario, exchange: Exchange) -> Listed:
    """The answer to a request for commits, which must be a list."""
    answer = s.expect(exchange, m.Commits, "MC-API-04", "CM-CATALOG-04", "PROFILE-CORE-03",
                      expected="the commits and the latest version")  # fmt: skip
    return _listed(exchange, answer.commits, answer.latest)


def resolve(s: Scenario, table: TableHandle, client: str = "reader") -> Listed:
    """Resolve the table by its name. Profile `discovery`."""
    exchange = s.ask(client, m.LoadTable(name=s.physical(table.name)), table)
    answer = s.expect(
        exchange, m.Table, "PROFILE-DISCOVERY-01", expected="the table was created and not dropped: it is found"
    )
    return _listed(exchange, answer.commits or (), answer.latest)


def location(s: Scenario, table: TableHandle) -> str | None:
    """The location in a resolution; None if the owner does not return it."""
    answer = s.ask("reader", m.LoadTable(name=s.physical(table.name)), table).answer
    return answer.location if isinstance(answer, m.Table) else None


def _listed(exchange: Exchange, commits: tuple[m.CommitEntry, ...], latest: int | None) -> Listed:
    return Listed(
        exchange=exchange,
        order=tuple(commit.version for commit in commits),
        commits={commit.version: commit for commit in commits},
        latest=None if latest is None or latest < 0 else latest,
    )
