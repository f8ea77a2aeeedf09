"""What may go wrong around a coordinator, by name and by plan: a run with the same seed meets the same faults."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

from conformance.adapters.jvm import delta

THROTTLED: Final = 16
"""With `Fault.THROTTLING`, every so many requests."""
FAILING: Final = 3
"""With `Fault.FAILING_STORAGE`, every so many versions."""


class Fault(StrEnum):
    """What the service, or the network before it, may do."""

    STALE_READS = "stale-reads"
    """A read that does not ask for consistency may miss what was written lately. Here the first such read after an
    update of the item is answered as if that update had not been; the next one sees it."""
    LOST_ANSWERS = "lost-answers"
    """The answer to every second update of an item is lost after it was applied. Amazon's client library then sends
    the request again, without telling its caller: that is its default. The caller hears the second answer."""
    THROTTLING = "throttling"
    """Every sixteenth request to an item is refused because too many came, and nothing happens: Amazon's client library
    has sent it again several times before its caller hears of it."""
    FAILING_STORAGE = "failing-storage"
    """While every third version is committed, whatever was staged before cannot be read: the storage fails, and
    recovers. The coordinators publish then, where that is left to them."""


STORAGE: Final = frozenset({Fault.FAILING_STORAGE})
"""Faults that a coordinator meets whatever its database is."""


@contextlib.contextmanager
def unreadable(log: Path) -> Iterator[None]:
    """What is staged in that log is out of sight for the while, and back afterwards as it was."""
    staged, aside = log / delta.STAGING, log.with_name(".out-of-sight")
    aside.mkdir()
    for path in sorted(staged.glob("*.json")):
        path.replace(aside / path.name)
    try:
        yield
    finally:
        for path in sorted(aside.iterdir()):
            path.replace(staged / path.name)
        aside.rmdir()
