"""Digests that stand for the content of a commit in a history.

Bytes are compared for commits that are files, actions for inline ones: a catalog may store those in whatever format
it likes, and may publish them with other spaces or another order of fields.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from conformance.history.events import Content, Digest

SMALL: Final = 8192
"""Bytes of an action whose canonical form is remembered: one commit is seen many times, as it was proposed, listed
and published."""


def of_bytes(content: bytes) -> Digest:
    """Of a commit file as it is."""
    return hashlib.sha256(content).hexdigest()


def of_actions(actions: Iterable[str | bytes]) -> Digest:
    """Of actions, one JSON document each, in their order. Spaces and the order of fields do not count.

    Raises `ValueError` for what is no JSON, or nested too deeply to be read.
    """
    digest = hashlib.sha256()
    for action in actions:
        digest.update(_remembered(action) if len(action) <= SMALL else _canonical(action))
    return digest.hexdigest()


def same_actions(first: Iterable[str | bytes], second: Iterable[str | bytes]) -> bool:
    """Whether they have one digest; what is no JSON is not the same as anything."""
    try:
        return of_actions(first) == of_actions(second)
    except ValueError:
        return False


def _canonical(action: str | bytes) -> bytes:
    try:
        parsed = json.loads(action)
        canonical = json.dumps(parsed, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    except RecursionError as error:
        raise ValueError("an action is nested too deeply") from error
    return canonical.encode("ascii") + b"\n"


_remembered = lru_cache(maxsize=1024)(_canonical)


def of_file(content: bytes) -> Content:
    """Both, of newline-delimited JSON. The actions are left out where they cannot be read."""
    try:
        actions = of_actions(line for line in content.split(b"\n") if line.strip())
    except ValueError:
        return Content(bytes=of_bytes(content))
    return Content(bytes=of_bytes(content), actions=actions)
