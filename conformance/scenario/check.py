"""What a check is: a function that tests one behaviour of a subject, for each table feature and commit mode that
applies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from conformance.adapters.identity import COMMIT_MODE_OF
from conformance.interface.log_names import FILESYSTEM
from conformance.interface.messages import Identity
from conformance.interface.results import CaseResult, Layer, Verdict
from conformance.requirements.catalogue import Profile, load

OTHER_FEATURE: Final[Mapping[str, tuple[str, ...]]] = {
    "managedCommit": ("CM-",), "catalogManaged": ("MC-",), FILESYSTEM: ("MC-", "CM-"),
}  # fmt: skip
"""The prefixes of requirements that do not apply, by table feature."""


class Family(StrEnum):
    """The subject matter of a check. The first four families are the core."""

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
    TRANSACTIONS = "transactions"


ABOUT: Final[Mapping[Family, str]] = {
    Family.CONCURRENT_WRITERS: "one of several proposals of a version is ratified; each writer learns its own outcome",
    Family.VERSION_0: "one of several creators of a table succeeds; version 0 is published",
    Family.BACKFILL: "commits are published in order, without gaps, and do not change afterwards",
    Family.STALE_READS: "the owner reports all commits that are ratified, and no others",
    Family.OWNERSHIP: "take-overs and hand-backs lose no commit; a table has one owner at every version",
    Family.MAINTENANCE: "checkpoints, compactions, cleanups, VACUUM and OPTIMIZE keep every readable version",
    Family.REPLAYS: "an attempt becomes at most one version, although requests are lost, late or repeated",
    Family.LIMITS: "an owner limits its unpublished commits, and accepts more after a backfill",
    Family.LIFECYCLE: "a table is found by its name; a dropped table does not return",
    Family.TIMESTAMPS: "in-commit timestamps increase; a time selects the newest version up to it",
    Family.RESTARTS: "all answers before a crash or a restart hold after it",
    Family.CONTENT: "a commit keeps all of its actions, whatever their size and form",
    Family.INTERFACE: "the subject answers each request with a valid message",
    Family.READING: "a reader combines checkpoints, compactions, published files and the owner's commits",
    Family.WRITING: "a writer proposes correct commits, and retries them correctly",
    Family.CONFLICTS: "a transaction that lost a race commits only if the winners do not conflict with it",
    Family.TRANSACTIONS: "a transaction over several tables is ratified whole, or not at all",
}
"""What the checks of each family test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A table feature and a commit mode."""

    feature: str
    commit_mode: str

    def __str__(self) -> str:
        return f"{self.feature}/{self.commit_mode}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A registered check."""

    name: str
    title: str
    family: Family
    side: str
    """The side of its subjects: `owner` or `client`."""
    layer: Layer
    requirements: tuple[str, ...]
    """Ids in the catalogue, of all table features and profiles."""
    needs: frozenset[Profile]
    """Profiles without which it cannot be run."""
    features: tuple[str, ...]
    commit_modes: tuple[str, ...]
    function: Callable[[Any], None] = field(compare=False)

    def variants(self, identity: Identity) -> list[Variant]:
        """The variants of the subject that the check applies to."""
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

    def held(self, identity: Identity, variant: Variant) -> tuple[str, ...]:
        """Those of its requirements that apply to the subject on that variant."""
        return tuple(requirement for requirement in self.requirements if applies(requirement, identity, variant))

    def result(
        self, variant: Variant | None, requirements: tuple[str, ...], verdict: Verdict, reason: str = "", **more: Any
    ) -> CaseResult:
        """The result of the check on that variant (None: the check has no variant that the subject supports). `more`:
        other fields of `CaseResult`."""
        return CaseResult(
            case=f"{self.family}/{self.name}" if variant is None else self.case(variant),
            check=self.name,
            title=self.title,
            family=self.family,
            layer=self.layer,
            feature="" if variant is None else variant.feature,
            commit_mode="" if variant is None else variant.commit_mode,
            requirements=requirements,
            verdict=verdict,
            reason=reason,
            **more,
        )


def applies(requirement: str, identity: Identity, variant: Variant) -> bool:
    """Whether the requirement applies to the subject on that variant. Raises `KeyError` for an unknown id."""
    entry = load().requirement(requirement)
    if entry.plain:
        if variant.feature != FILESYSTEM or "managedCommit" not in identity.features:
            return False
    elif requirement.startswith(OTHER_FEATURE[variant.feature]):
        return False
    commit_mode = COMMIT_MODE_OF.get(entry.profile)
    if commit_mode is not None and commit_mode != variant.commit_mode:
        return False
    return entry.profile is Profile.CORE or entry.profile.value in identity.profiles
