"""What can go wrong between a client and a server, and which requests it happens to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final


class Fault(StrEnum):
    """What happens to one request. Its client sees a broken connection, unless said otherwise."""

    DROP_REQUEST = "drop-request"
    """The server never sees it."""
    DROP_RESPONSE = "drop-response"
    """The server does what it was asked and answers; the answer is lost."""
    DUPLICATE = "duplicate"
    """The server sees it twice, one after the other; the client gets the first answer."""
    DELAY = "delay"
    """It reaches the server when another request like it has succeeded, one of the same method to the same place: past
    another's commit."""
    BUSY = "429"
    """The server never sees it; the client is answered 429."""
    UNAVAILABLE = "503"
    """The server never sees it; the client is answered 503."""
    UNAVAILABLE_LANDED = "503-landed"
    """The server does what it was asked and answers; the client is answered 503."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which requests are meant. What is not given is not looked at."""

    method: str | None = None
    path: str | None = None
    """A regular expression, found anywhere in path and query."""
    body: str | None = None
    """A text that the body contains."""

    def __call__(self, method: str, target: str, body: bytes) -> bool:
        return (
            (self.method is None or self.method == method)
            and (self.path is None or re.search(self.path, target) is not None)
            and (self.body is None or self.body.encode() in body)
        )


ANYTHING: Final = Match()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Faults at random, the same ones for the same seed: the n-th request that matches has the same fault in every
    run, from any client. `shares`: of the requests that match, from 0 to 1, together at most 1. `once`: a
    repeated request, byte for byte, passes, so that a client that retries gets an answer in the end."""

    seed: int
    shares: Mapping[Fault, float]
    match: Match = field(default=ANYTHING)
    once: bool = False

    def __post_init__(self) -> None:
        if any(share < 0 for share in self.shares.values()) or sum(self.shares.values()) > 1:
            raise ValueError(f"shares are from 0 to 1, and together at most 1; these are {dict(self.shares)}")

    def fault_of(self, number: int) -> Fault | None:
        """Of the `number`-th request that matches, from 0."""
        drawn = Random(f"{self.seed}/{number}").random()
        for fault, share in self.shares.items():
            if drawn < share:
                return fault
            drawn -= share
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What became of one request. Headers are not kept: they carry tokens."""

    number: int
    """From 1, in the order in which requests arrived at the proxy."""
    method: str
    target: str
    """Path and query."""
    fault: Fault | None
    reached: int
    """How often it reached the server."""
    status: int | None
    """What the server answered; None: nothing, or it was not asked."""
    lost: bytes | None = None
    """The body of the server's answer, where the client did not get it."""
    overtaken: bool = False
    """Of a delayed one: whether another request was done before it. Otherwise it waited in vain, and went on."""
