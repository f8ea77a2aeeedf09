"""Digests that stand for the content of a commit in a history.

Staged and direct commits are compared by bytes, inline commits by actions: a catalog may store these in any format, and
may publish them with other spaces or another order of fields.
"""

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from conformance.history.events import Content, Digest

SMALL: Final = 8192
"""The maximum size, in bytes, of an action whose canonical form is cached: most commits are seen several times, as
proposed, listed and published."""


def of_bytes(content: bytes) -> Digest:
    """The digest of a commit file's bytes."""
    return hashlib.sha256(content).hexdigest()


def of_actions(actions: Iterable[str | bytes]) -> Digest:
    """The digest of actions, one JSON document each, in their order. Spaces and the order of fields do not count.

    Raises `ValueError` for invalid JSON, or for JSON that is nested too deeply.
    """
    digest = hashlib.sha256()
    for action in actions:
        digest.update(_remembered(action) if len(action) <= SMALL else _canonical(action))
    return digest.hexdigest()


def same_actions(first: Iterable[str | bytes], second: Iterable[str | bytes]) -> bool:
    """Whether both have the same digest; invalid JSON is never the same."""
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
    """The digests of a file of newline-delimited JSON: of its bytes and, if they can be read, of its actions."""
    try:
        actions = of_actions(line for line in content.split(b"\n") if line.strip())
    except ValueError:
        return Content(bytes=of_bytes(content))
    return Content(bytes=of_bytes(content), actions=actions)
