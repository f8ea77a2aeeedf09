"""The checks: the requests that each one sends to a subject, and the answers that it accepts.

    @check(Family.CONCURRENT_WRITERS, "MC-COMMIT-01", "CM-COMMIT-07")
    def the_owner_commits_only_the_version_after_the_last(s: Scenario) -> None:
        "A proposal of version v is ratified only if v-1 is ratified."
        table = s.create()
        ...

One file is one family, or two that belong together: first its properties, which generated programs check, then its
examples. What the programs find has no check of its own. An example is written where they do not reach; its file says
why. A scenario that is a program, but a rare one, is pinned (`conformance.programs.pinned`).

The function's name gives the check's id; reports show its docstring. A check with a `ClientScenario` is for clients,
any other for owners. It runs once for every table feature and commit mode that the subject offers, unless it names some
(`EVERY_TABLE`: plain tables too). The feature, the commit mode and the subject's profiles select which of its
requirements apply.

Most of what clients do is generated. An example for clients exists only where generation does not reach,
which its file says, or where a stored finding or the course names it (`conformance.findings`): an engine takes
seconds for a request, so that examples are its regression tests.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, get_type_hints

from conformance.adapters.identity import COMMIT_MODES, FEATURES
from conformance.interface.results import Layer
from conformance.requirements.catalogue import Profile, load
from conformance.scenario.check import Check, Family
from conformance.scenario.client import ClientScenario

_checks: dict[str, Check] = {}


def check(
    family: Family,
    *requirements: str,
    layer: Layer = Layer.EXAMPLE,
    needs: Iterable[Profile] = (),
    features: tuple[str, ...] = FEATURES,
    commit_modes: tuple[str, ...] = COMMIT_MODES,
    side: str = "",
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a check. Raises `ValueError` if the name is taken or a requirement does not exist. `side`: that of a
    generated check, whose function does not say it; by default `owner`."""

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        name = function.__name__.replace("_", "-")
        title = " ".join((function.__doc__ or "").split())
        if not title:
            raise ValueError(f"check {name!r} has no docstring; reports show it")
        if name in _checks and _checks[name].function.__module__ != function.__module__:
            raise ValueError(f"two checks are called {name!r}")
        for requirement in requirements:
            try:
                load().requirement(requirement)
            except KeyError:
                raise ValueError(
                    f"check {name!r} names the requirement {requirement!r}, which does not exist"
                ) from None
        scenario = next(iter(get_type_hints(function).values()))
        _checks[name] = Check(
            name=name,
            title=title,
            family=family,
            side=side or ("client" if issubclass(scenario, ClientScenario) else "owner"),
            layer=layer,
            requirements=tuple(dict.fromkeys(requirements)),
            needs=frozenset(needs),
            features=features,
            commit_modes=commit_modes,
            function=function,
        )
        return function

    return register


@cache
def all_checks() -> tuple[Check, ...]:
    """Every check of the kit, sorted by family and then in the order of its module."""
    for module in sorted(pkgutil.walk_packages(__path__, f"{__name__}."), key=lambda m: m.name):
        importlib.import_module(module.name)
    order = list(Family)
    return tuple(sorted(_checks.values(), key=lambda registered: order.index(registered.family)))
