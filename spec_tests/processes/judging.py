"""The exact verdict on what several processes did to one table, some of them killed. Pure.

Every attempt was noted before it was sent, with the SHA-256 of its bytes, so that the world is closed:
nothing may be in the table that nobody proposed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

Digest = str


class Answer(Enum):
    """What is known of an attempt."""

    IN_FLIGHT = "in flight"
    """Sent; its process died, or was told that the outcome is unknown."""
    RATIFIED = "ratified"
    REFUSED = "refused"
    """A conflict, a gap, a rejection, or "owner unavailable": it did not land."""


@dataclass(slots=True)
class Try:
    """One attempt to make one version."""

    attempt: str
    version: int
    digest: Digest
    answer: Answer = Answer.IN_FLIGHT
    resolved: bool | None = None
    """Whether somebody was told, finally, that it landed (True) or not (False); None: nobody asked."""


def violations(
    history: Mapping[int, Digest],
    published: Sequence[int],
    tries: Mapping[str, Try],
    before: Mapping[int, Digest],
) -> Iterator[str]:
    """What is wrong, one sentence each.

    `history`: the bytes of every version as a reader finds them; `published`: the versions visible as
    `<v>.json`, ascending; `before`: the history as it was seen earlier.
    """
    versions = sorted(history)
    if versions != list(range(len(versions))):
        yield f"the versions are not contiguous: {versions}"
    if list(published) != versions[: len(published)]:
        yield f"the published versions {list(published)} are no prefix of {versions}"
    for version, digest in before.items():
        if history.get(version) != digest:
            yield f"version {version} was {digest[:8]}, and is {history.get(version, 'gone')[:8]}"
    owners: dict[Digest, int] = {}
    for version, digest in history.items():
        if digest in owners:
            yield f"versions {owners[digest]} and {version} have the same bytes: an attempt landed twice"
        owners[digest] = version
    proposed = {each.digest for each in tries.values()}
    for version, digest in history.items():
        if digest not in proposed:
            yield f"nobody proposed the bytes of version {version}"
    for each in tries.values():
        yield from _about(each, history, owners.get(each.digest))


def _about(each: Try, history: Mapping[int, Digest], found: int | None) -> Iterator[str]:
    label = f"attempt {each.attempt} for version {each.version}"
    if found is not None and found != each.version:
        yield f"{label} is version {found}"
    landed = history.get(each.version) == each.digest
    if each.answer is Answer.RATIFIED and not landed:
        yield f"{label} was acknowledged and is not there"
    if each.answer is Answer.REFUSED and landed:
        yield f"{label} was refused and is there"
    if each.resolved is True and not landed:
        yield f"{label} was resolved as landed and is not there"
    if each.resolved is False and landed:
        yield f"{label} was resolved as never to land and is there"
    if each.answer is Answer.IN_FLIGHT and each.resolved is None:
        yield f"nobody resolved {label}"
