"""Validates an answer to `hello`: known words without contradictions."""

from collections.abc import Iterable, Iterator
from typing import Final

from conformance.adapters import wire
from conformance.history.events import Promise
from conformance.interface.log_names import FILESYSTEM
from conformance.interface.messages import INTERFACE_VERSION, Identity
from conformance.requirements.catalogue import Profile

SIDES: Final = ("owner", "client")
FEATURES: Final = ("managedCommit", "catalogManaged")
"""Table features of an owner."""
EVERY_TABLE: Final = (*FEATURES, FILESYSTEM)
"""What a client may offer: also tables that it finds by their path, and commits to without an owner."""
COMMIT_MODES: Final = ("staged", "inline", "direct")
FEATURE_COMMIT_MODES: Final = {"managedCommit": ("staged", "direct"), "catalogManaged": COMMIT_MODES}
"""Only catalogManaged has inline commits."""
COMMIT_MODE_OF: Final = {Profile.STAGED: "staged", Profile.INLINE: "inline", Profile.DIRECT_PUBLISH: "direct"}
"""The commit mode that each profile promises."""


def contradictions(identity: Identity) -> list[str]:
    """All contradictions, as sentences without a full stop; an empty list if the identity is valid."""
    return [
        *_about_the_interface(identity),
        *_unknown("profile", identity.profiles, [profile.value for profile in Profile]),
        *_unknown("promise", identity.promises, [promise.value for promise in Promise]),
        *_unknown("feature", identity.features, EVERY_TABLE if identity.side == "client" else FEATURES),
        *_about_commit_modes(identity),
        *_about_profiles(identity),
    ]


def _about_the_interface(identity: Identity) -> Iterator[str]:
    if identity.interface_version != INTERFACE_VERSION:
        yield (
            f"`interface_version` is {identity.interface_version}, but this kit implements {INTERFACE_VERSION}; use "
            f"the kit of the subject's version, or adapt the subject"
        )
    if identity.side not in SIDES:
        yield f"`side` is {identity.side!r}{wire.near(identity.side, SIDES)}; expected `owner` or `client`"
    if not identity.name.strip():
        yield "`name` is empty; reports name the subject by it"
    for name, limit in identity.limits.items():
        if limit < 1:
            yield f"the limit {name!r} is {limit}; expected at least 1"


def _unknown(what: str, given: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    words = tuple(known)
    for word in given:
        if word not in words:
            yield f"{word!r} is not a {what}{wire.near(word, words)} (expected: {', '.join(words)})"


def _about_commit_modes(identity: Identity) -> Iterator[str]:
    if not identity.features:
        yield "`features` is empty; expected at least one table feature: those of the tables that the subject uses"
    for feature, commit_modes in identity.commit_modes.items():
        if feature not in identity.features:
            yield f"`commit_modes` names {feature!r}, which is missing in `features`"
        yield from _unknown(
            f"commit mode of {feature} tables", commit_modes, FEATURE_COMMIT_MODES.get(feature, COMMIT_MODES)
        )
    for feature in identity.features:
        if not identity.commit_modes.get(feature):
            yield (
                f"`commit_modes` lacks {feature!r}; add the commit modes that the subject uses, as in "
                f'{{"{feature}": ["staged"]}}, or remove {feature!r} from `features`'
            )


def _about_profiles(identity: Identity) -> Iterator[str]:
    profiles = set(identity.profiles)
    if Profile.CORE.value not in profiles:
        yield "`profiles` lacks `core`, which every subject must declare"
    if identity.side != "owner":
        return
    offered = {commit_mode for commit_modes in identity.commit_modes.values() for commit_mode in commit_modes}
    for profile, commit_mode in COMMIT_MODE_OF.items():
        if profile.value in profiles and commit_mode not in offered:
            yield f"the profile `{profile}` is declared, and `commit_modes` offers {commit_mode!r} for no feature"
        if commit_mode in offered and profile.value not in profiles:
            yield f"`commit_modes` offers {commit_mode!r}, and the profile `{profile}` is not declared"
    if identity.crash_points and Profile.HARNESS_CONTROL.value not in profiles:
        yield "`crash_points` are named, and the profile `harness-control` is not declared"
