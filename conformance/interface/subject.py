"""The subject of a test as the kit sees it: it gets requests and answers them.

A late answer or a broken connection is the outcome `Unknown`: it may come from the network, and proves nothing. What
can only be a fault of the adapter raises `AdapterError`: no verdict is possible.
"""

import re
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Protocol, Self

from conformance.interface.messages import Answer, Identity, Rejected, Request, Unknown

TIMEOUT: Final = 10.0
"""Seconds that one answer may take (default)."""

GONE: Final = "not running"
"""The `Unknown.reason` of requests to a subject that is not running."""
NO_ANSWER: Final = re.compile(rf"\b(?:{GONE}: |no answer within |HTTP status )")
"""Matches the reasons that adapters give when no answer arrived."""


PAUSES: Final = (0.001, 0.002, 0.004, 0.008)
"""Seconds between the tries of a request that is rejected as retryable."""
LONG_PAUSES: Final = tuple(2**number / 1000 for number in range(10))
"""The same just after a restart, when the subject may have to elect a leader."""

Ask = Callable[[str, Request], Answer]
"""A function that sends a request to a subject: `(client, request) -> answer`."""


class AdapterError(Exception):
    """The subject does not implement the interface, so its answers prove nothing. `problem` says what it did, with the
    text that it sent, and what the interface requires. If one answer is invalid, `received` is that answer, as errors
    show it, and `expected` is what the interface requires."""

    def __init__(self, problem: str, received: str = "", expected: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.received = received
        self.expected = expected


class UsageError(Exception):
    """The name of a subject is invalid. `problem` gives the reason, and what to do."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class ProcessDied(Exception):  # noqa: N818  # it did what it was asked to
    """Raised, instead of an answer, by a subject in this process after a simulated crash."""


class Subject(Protocol):
    """A commit owner, a client, or the kit's own owner. Not safe for threads unless `identity.shared_state` or the
    transport says so."""

    identity: Identity
    """The subject's answer to `hello`, which opened the connection."""

    def ask(self, client: str, request: Request) -> Answer:
        """Send a request on behalf of a simulated client. Raises only `AdapterError`."""
        ...

    def close(self) -> None:
        """Stop every process that was started for the subject. Idempotent."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Closing:
    """A context manager that calls `close` at its end."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def refused_for_now(answer: Answer) -> bool:
    return isinstance(answer, Rejected) and answer.retryable


def patiently(ask: Callable[[], Answer], pauses: Iterable[float] = PAUSES) -> Answer:
    """The final answer: a request that is rejected as retryable is sent again after each of the pauses."""
    for pause in pauses:
        if not refused_for_now(answer := ask()):
            return answer
        time.sleep(pause)
    return ask()


def gone(why: str) -> Unknown:
    """The answer of a subject that crashed or closed the connection."""
    return Unknown(reason=f"{GONE}: {why}")


def how_to_install(extra: str) -> str:
    """The command that installs the extra. It names a checkout or a wheel: no package index has this project."""
    return f"pip install '.[{extra}]' in a checkout of this project, or 'WHEEL[{extra}]' with the path of its wheel"
