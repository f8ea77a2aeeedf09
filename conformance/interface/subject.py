"""What is tested, as the kit sees it: something that is asked, and answers.

An answer that does not come in time, or a connection that breaks, is the outcome `Unknown`: an owner's network may do
that too, and it proves nothing. What can only be a fault of the adapter raises `AdapterError`: no verdict is possible.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Protocol, Self

from conformance.interface.messages import Answer, Identity, Request, Unknown

TIMEOUT: Final = 10.0
"""Seconds that one answer may take, unless the user says otherwise."""

GONE: Final = "gone"
"""The `Unknown.reason` of requests that a subject that is not there cannot answer."""


Ask = Callable[[str, Request], Answer]
"""Asks a subject, for example an owner as its client in this process calls it: `(client, request) -> answer`."""


class AdapterError(Exception):
    """The subject does not speak the interface: no answer of it means anything. `problem` says what it did, with the
    text that it sent, and what the interface asks for. If it is one answer that is wrong: `came` is that answer, as it
    is shown, and `says` what the interface asks for."""

    def __init__(self, problem: str, came: str = "", says: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.came = came
        self.says = says

    def __reduce__(self) -> tuple[type[AdapterError], tuple[Any, ...]]:
        return type(self), (self.problem, self.came, self.says)


class UsageError(Exception):
    """The name of a subject is invalid. `problem` says why, and what to do."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __reduce__(self) -> tuple[type[UsageError], tuple[str]]:
        return type(self), (self.problem,)


class ProcessDied(Exception):  # noqa: N818  # it did what it was asked to
    """Raised, instead of an answer, by a subject in this process after a simulated crash."""


class Subject(Protocol):
    """A commit owner, a client, or the kit's own owner. Not safe for threads unless `identity.shared_state` or the
    transport says so."""

    identity: Identity
    """Its answer to `hello`, which opened the connection."""

    def ask(self, client: str, request: Request) -> Answer:
        """Ask on behalf of a simulated client. Raises `AdapterError`, and nothing else whatever the subject does."""
        ...

    def close(self) -> None:
        """End what was started for it. Idempotent."""
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


def gone(why: str) -> Unknown:
    """The answer for a subject that died or hung up."""
    return Unknown(reason=f"{GONE}: {why}")
