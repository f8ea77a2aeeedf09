"""The sequential model layer: Hypothesis makes programs of steps.

Every step runs as soon as it is drawn. The draws do not depend on the subject's answers, so that a seed gives the same
programs for every subject. A failing program is shrunk as a list of steps, by removing steps (see `running`):
Hypothesis has to find the meaning of its choices, needed a hundred times as long for the same result, and its result
could not be run again without it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, strategies
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from conformance.programs import steps
from conformance.programs.steps import CLIENTS, Fate

STEPS: Final = 16
"""The number of rules in one program; a rule is one step or two."""

_tables = strategies.sampled_from((0, 0, 0, 1))
_clients = strategies.integers(0, CLIENTS - 1)
_fates = strategies.sampled_from((Fate.ANSWERED, Fate.ANSWERED, Fate.LOST, Fate.DELAYED))
_answered_or_lost = strategies.sampled_from((Fate.ANSWERED, Fate.ANSWERED, Fate.LOST))
_which = strategies.sampled_from((0, 0, 0, 1, 1, 2, 3, 4))
_often = strategies.sampled_from((False, True, True))
_bounds = strategies.none() | strategies.integers(0, 6)
_seldom = strategies.sampled_from((False, False, False, True))
_limits = strategies.sampled_from((0, 0, 2, 3))

_commits = strategies.builds(
    steps.Commit, table=_tables, client=_clients, ahead=strategies.sampled_from((0, 0, 0, 0, -1, 1, -2, 2)), fate=_fates
)
_meanwhile = strategies.one_of(_commits, strategies.none(), _commits)
"""Every rule may be preceded by a commit: Hypothesis leaves some rules out of each program, and a program without
commits finds nothing."""

STRATEGIES: Final[dict[type[steps.Step], dict[str, strategies.SearchStrategy[Any]]]] = {
    steps.Create: {
        "table": _tables, "client": _clients, "fate": _fates, "limit": _limits, "by_subject": _seldom,
    },
    steps.Resend: {
        "table": _tables, "client": _clients, "which": _which, "unsettled": _often, "resolved": _seldom, "fate": _fates,
    },
    steps.Deliver: {"which": _which, "given_up": strategies.booleans()},
    steps.Resolve: {
        "table": _tables, "client": _clients, "which": _which, "unsettled": _often, "fate": _answered_or_lost,
    },
    steps.Read: {"table": _tables, "client": _clients, "start": _bounds, "end": _bounds},
    steps.Load: {"table": _tables, "client": _clients},
    steps.Backfill: {
        "table": _tables, "client": _clients, "behind": strategies.sampled_from((0, 0, 1, 2, -1)),
    },
    steps.Drop: {"table": _tables, "client": _clients},
    steps.Restart: {},
}  # fmt: skip
"""The strategy of each kind of step."""


class Runs(Protocol):
    """The interface that the machine drives: `begin` a scenario, `do` its steps, `end` it. The latter two raise an
    exception for a violation."""

    def begin(self, *, watched: bool) -> None: ...

    def do(self, step: steps.Step) -> None: ...

    def end(self) -> None: ...


def machine(runs: Runs, kinds: Sequence[type[steps.Step]]) -> type[RuleBasedStateMachine]:
    """A state machine whose rules are the steps of these kinds. Its tables are created at the start."""

    class OwnerMachine(RuleBasedStateMachine):
        @initialize(watched=_seldom, second=_seldom, limit=_limits, by_subject=_seldom)
        def begin(self, watched: bool, second: bool, limit: int, by_subject: bool) -> None:
            runs.begin(watched=watched)
            runs.do(steps.Create(limit=limit, by_subject=by_subject))
            if second:
                runs.do(steps.Create(table=1))

        def teardown(self) -> None:
            runs.end()

    for kind in kinds:
        drawn: dict[str, Any] = {"meanwhile": _meanwhile, **STRATEGIES[kind]}
        as_rule: Callable[..., Any] = rule(**drawn)
        setattr(OwnerMachine, kind.__name__.lower(), as_rule(_step(runs, kind)))
    return OwnerMachine


def _step(runs: Runs, kind: type[steps.Step]) -> Callable[..., None]:
    def step(_: RuleBasedStateMachine, meanwhile: steps.Commit | None, **drawn: Any) -> None:
        if meanwhile is not None:
            runs.do(meanwhile)
        runs.do(kind(**drawn))

    step.__name__ = kind.__name__.lower()
    return step


def generate(runs: Runs, kinds: Sequence[type[steps.Step]], *, seed: int, count: int) -> None:
    """Make and run `count` programs. Raises the exception of the first one that fails, or one of Hypothesis' own if the
    program does not fail again."""
    settings = hypothesis.settings(
        max_examples=count,
        stateful_step_count=STEPS,
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        print_blob=False,
        backend=register(),
        verbosity=Verbosity.quiet,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    made = hypothesis.seed(seed)(machine(runs, kinds))
    hypothesis.stateful.run_state_machine_as_test(made, settings=settings)


NAME: Final = "delta-commit-conformance"


class SeedAlone(HypothesisProvider):
    """Hypothesis' generation of values, without constants from source files."""

    def _maybe_draw_constant(self, *_: Any, **__: Any) -> None:
        return None


def register() -> str:
    """The name by which settings select it."""
    AVAILABLE_PROVIDERS[NAME] = f"{SeedAlone.__module__}.{SeedAlone.__name__}"
    return NAME
