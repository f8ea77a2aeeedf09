"""What a check is, and where all of them are found.

    @check(Family.CONCURRENT_WRITERS, "MC-COMMIT-01", "CM-COMMIT-07")
    def the_owner_commits_only_the_version_after_the_last(s: Scenario) -> None:
        "A proposal of version v is ratified only if v-1 is ratified."
        table = s.create()
        ...

The function's name is the check's, its docstring what the report says. It runs once for every table feature and
commit mode that the subject offers, unless the check names some. Which of its requirements count follows from these
two and the subject's profiles.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, Final

from conformance.interface.messages import Identity
from conformance.requirements.catalogue import Profile, load
from conformance.results import Layer

FEATURES: Final = ("managedCommit", "catalogManaged")
COMMIT_MODES: Final = ("staged", "inline", "direct")
OTHER_FEATURE: Final = {"managedCommit": "CM-", "catalogManaged": "MC-"}
"""Requirements with this prefix say nothing of the table feature."""
COMMIT_MODE_OF: Final = {Profile.STAGED: "staged", Profile.INLINE: "inline", Profile.DIRECT_PUBLISH: "direct"}
"""Profiles that speak of one commit mode."""


class Family(StrEnum):
    """What a check is about. The first four are the core."""

    CONCURRENT_WRITERS = "concurrent-writers"
    VERSION_0 = "version-0"
    BACKFILL = "backfill-ordering"
    STALE_READS = "stale-reads"
    OWNERSHIP = "ownership-change"
    MAINTENANCE = "maintenance"
    REPLAYS = "unknown-outcomes-and-replays"
    LIMITS = "limits"
    LIFECYCLE = "create-drop-discover"
    TIMESTAMPS = "in-commit-timestamps"
    RESTARTS = "restarts"
    CONTENT = "content-of-commits"
    INTERFACE = "interface"
    READING = "reading"
    WRITING = "writing"
    CONFLICTS = "conflicts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A table feature and a commit mode."""

    feature: str
    commit_mode: str

    def __str__(self) -> str:
        return f"{self.feature}/{self.commit_mode}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that is tried on a subject."""

    name: str
    title: str
    family: Family
    side: str
    """`owner` or `client`: whose subject it is for."""
    layer: Layer
    requirements: tuple[str, ...]
    """Ids in the catalogue, of all table features and profiles."""
    needs: frozenset[Profile]
    """Profiles without which it cannot be run."""
    features: tuple[str, ...]
    commit_modes: tuple[str, ...]
    function: Callable[[Any], None] = field(compare=False)

    def variants(self, identity: Identity) -> list[Variant]:
        """Where it applies, of what the subject offers."""
        if not {profile.value for profile in self.needs} <= set(identity.profiles):
            return []
        return [
            Variant(feature=feature, commit_mode=commit_mode)
            for feature in self.features
            for commit_mode in self.commit_modes
            if feature in identity.features and commit_mode in identity.commit_modes.get(feature, ())
        ]

    def case(self, variant: Variant) -> str:
        """The stable name of the check on that variant."""
        return f"{self.family}/{self.name}[{variant}]"


def applies(requirement: str, identity: Identity, variant: Variant) -> bool:
    """Whether the subject is held to the requirement on that variant. Raises `KeyError` for an unknown id."""
    found = load().requirement(requirement)
    if requirement.startswith(OTHER_FEATURE[variant.feature]):
        return False
    commit_mode = COMMIT_MODE_OF.get(found.profile)
    if commit_mode is not None and commit_mode != variant.commit_mode:
        return False
    return found.profile is Profile.CORE or found.profile.value in identity.profiles


_checks: dict[str, Check] = {}


def check(
    family: Family,
    *requirements: str,
    side: str = "owner",
    layer: Layer = Layer.EXAMPLE,
    needs: Iterable[Profile] = (),
    features: tuple[str, ...] = FEATURES,
    commit_modes: tuple[str, ...] = COMMIT_MODES,
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a check. Raises `ValueError` for a name that is taken or a requirement that does not exist."""

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
        _checks[name] = Check(
            name=name,
            title=title,
            family=family,
            side=side,
            layer=layer,
            requirements=requirements,
            needs=frozenset(needs),
            features=features,
            commit_modes=commit_modes,
            function=function,
        )
        return function

    return register


@cache
def all_checks() -> tuple[Check, ...]:
    """Every check of the kit, by family and then in the order of their modules."""
    import conformance.checks as package

    for module in sorted(pkgutil.walk_packages(package.__path__, f"{package.__name__}."), key=lambda m: m.name):
        importlib.import_module(module.name)
    order = list(Family)
    return tuple(sorted(_checks.values(), key=lambda each: order.index(each.family)))
