"""The scheduler and the exploration of schedules, tested on clients of a few lines."""

from collections.abc import Callable
from math import comb

import pytest

from conformance.simulation.effects import Effect, Kind, Moment
from conformance.simulation.explore import Report, depth_first
from conformance.simulation.schedule import Scheduler, Step, dependent

Do = Callable[[Kind, str], None]
Client = Callable[[Do, dict[str, int]], None]


class Cells:
    """Clients that share integers by name. The outcome of a run is the values, or a description of the deadlock."""

    def __init__(self, *clients: Client) -> None:
        self.cells: dict[str, int] = {}
        self.scheduler = Scheduler()
        self.scheduler.start((f"client{number}", self._running(client)) for number, client in enumerate(clients))

    def _running(self, client: Client) -> Callable[[], None]:
        def do(kind: Kind, target: str) -> None:
            self.scheduler.hook(Effect(kind=kind, target=target, moment=Moment.BEFORE))
            self.scheduler.hook(Effect(kind=kind, target=target, moment=Moment.AFTER))

        return lambda: client(do, self.cells)

    def finish(self, deadlock: str | None) -> object:
        return deadlock or tuple(sorted(self.cells.items()))

    def close(self) -> None:
        self.scheduler.close()


def increment(do: Do, cells: dict[str, int]) -> None:
    """Add one to a value by a read and a write. Two such clients lose an update in some schedules."""
    do(Kind.READ, "n")
    value = cells.get("n", 0)
    do(Kind.WRITE, "n")
    cells["n"] = value + 1


def locked_increment(do: Do, cells: dict[str, int]) -> None:
    do(Kind.ACQUIRE, "lock")
    increment(do, cells)
    do(Kind.RELEASE, "lock")


def alone(name: str) -> Client:
    """A client that uses only its own objects."""

    def client(do: Do, cells: dict[str, int]) -> None:
        for value in range(3):
            do(Kind.WRITE, name)
            cells[name] = value

    return client


def takes(first: str, second: str) -> Client:
    def client(do: Do, cells: dict[str, int]) -> None:
        do(Kind.ACQUIRE, first)
        do(Kind.ACQUIRE, second)
        cells[first] = 1
        do(Kind.RELEASE, second)
        do(Kind.RELEASE, first)

    return client


def explored(*clients: Client, pruned: bool) -> tuple[set[object], Report]:
    report = Report()
    return set(depth_first(lambda: Cells(*clients), report, pruned=pruned)), report


def test_without_pruning_every_interleaving_is_run_once() -> None:
    outcomes, report = explored(alone("a"), alone("b"), pruned=False)
    assert report.schedules == comb(6, 3)
    assert report.finished
    assert outcomes == {(("a", 2), ("b", 2))}


def test_commuting_steps_are_run_in_one_order() -> None:
    outcomes, report = explored(alone("a"), alone("b"), alone("c"), pruned=True)
    assert (report.schedules, report.pruned, report.finished) == (1, 0, True)
    assert outcomes == {(("a", 2), ("b", 2), ("c", 2))}


@pytest.mark.parametrize(
    "clients",
    [
        (increment, increment),
        (increment, increment, increment),
        (locked_increment, locked_increment),
        (locked_increment, increment),
        (takes("a", "b"), takes("b", "a")),
        (takes("a", "b"), takes("b", "a"), increment),
        (alone("n"), increment),
    ],
)
def test_pruning_loses_no_outcome(clients: tuple[Client, ...]) -> None:
    all_outcomes, everything = explored(*clients, pruned=False)
    outcomes, report = explored(*clients, pruned=True)
    assert outcomes == all_outcomes
    assert everything.finished
    assert report.finished
    assert report.schedules <= everything.schedules


def test_a_lost_update_is_found_and_a_lock_prevents_it() -> None:
    assert explored(increment, increment, pruned=True)[0] == {(("n", 1),), (("n", 2),)}
    assert explored(locked_increment, locked_increment, pruned=True)[0] == {(("n", 2),)}


def test_a_deadlock_names_its_clients() -> None:
    outcomes, _ = explored(takes("a", "b"), takes("b", "a"), pruned=True)
    assert "client0 waits for b, which client1 holds; client1 waits for a, which client0 holds" in outcomes
    assert explored(takes("a", "b"), takes("a", "b"), pruned=True)[0] == {(("a", 1),)}


@pytest.mark.parametrize(
    ("step", "other", "expected"),
    [
        (Step("a", Kind.READ, "f"), Step("b", Kind.STAT, "f"), False),
        (Step("a", Kind.READ, "f"), Step("b", Kind.WRITE, "f"), True),
        (Step("a", Kind.READ, "f"), Step("b", Kind.WRITE, "g"), False),
        (Step("a", Kind.LIST, "d"), Step("b", Kind.LINK, "d/f"), True),
        (Step("a", Kind.LIST, "d"), Step("b", Kind.LINK, "d/e/f"), False),
        (Step("a", Kind.CREATE, "d/f"), Step("b", Kind.MAKE_DIRECTORY, "d"), True),
        (Step("a", Kind.ACQUIRE, "lock"), Step("b", Kind.RELEASE, "lock"), True),
        (Step("a", Kind.QUERY, "ledger"), Step("b", Kind.COMMIT, "ledger"), True),
        (Step("a", Kind.QUERY, "ledger"), Step("b", Kind.BEGIN, "ledger"), False),
        (Step("a", Kind.READ, "f"), Step("a", Kind.READ, "g"), True),
        (Step("a", Kind.READ, "f", returns=True), Step("b", Kind.READ, "g", invokes=True), True),
        (Step("a", Kind.READ, "f", invokes=True), Step("b", Kind.READ, "g", invokes=True), False),
    ],
)
def test_which_steps_commute(step: Step, other: Step, expected: bool) -> None:
    assert dependent(step, other) is expected
    assert dependent(other, step) is expected
