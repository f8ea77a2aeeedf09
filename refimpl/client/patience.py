"""How long a writer goes on after lost races: a count of tries, and pauses with jitter between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from refimpl.environment import Environment
from refimpl.errors import LostRaceError, OutcomeUnknown, OwnerUnavailableError
from refimpl.log_path import Version

Answer = TypeVar("Answer")

DEFAULT_MAX_TRIES: Final = 10_000
"""Fifteen are exhausted by ordinary contention; a writer that cannot win in so many has another problem."""

MAX_LOOKS: Final = 12
"""So often in a row a writer looks for something that should be there already, before it gives up.
With the pauses in between this is about a second and a half."""

FIRST_PAUSE: Final = 0.001
LONGEST_PAUSE: Final = 0.25
"""Seconds. The pause before try n is random between nothing and the doubled one before it."""


class Patience:
    """The tries of one transaction."""

    def __init__(self, environment: Environment, *, max_tries: int, label: str) -> None:
        self.tries = 0
        self._max_tries = max_tries
        self._environment = environment
        self._label = label

    def next_try(self, version: Version) -> None:
        """Count a proposal of `version`; `LostRaceError` (fact `tries`) when there were enough of them."""
        if self.tries >= self._max_tries:
            raise LostRaceError(
                f"{self._label} was proposed {self.tries} times and others were first each time, last at version "
                f"{version - 1}; try again when fewer write, or allow more than {self._max_tries} tries",
                tries=self.tries,
                version=version,
            )
        self.tries += 1

    def pause(self, doublings: int) -> None:
        """Wait a random while that grows with `doublings`, up to `LONGEST_PAUSE` seconds."""
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(doublings, 20))
        self._environment.pause(self._environment.random() * longest)

    def answer(self, send: Callable[[], Answer], unknown: OutcomeUnknown) -> Answer:
        """The answer to a request that is answered the same way however often it is sent.

        It is sent again while its answer is lost; `unknown` is raised where none comes. Once an answer was lost, an
        owner that is unavailable proves nothing any more: the lost one may have said that the request landed.
        """
        lost = False
        for look in range(MAX_LOOKS):
            try:
                return send()
            except (OutcomeUnknown, OSError):
                lost = True
            except OwnerUnavailableError:
                if not lost:
                    raise
            self.pause(look)
        raise unknown
