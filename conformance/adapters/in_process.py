"""A subject that is a Python object with one method for each operation.

    class MyOwner:
        def hello(self, client: str, request: Hello) -> Identity: ...
        def commit(self, client: str, request: Commit) -> Ratified | Conflict | Gap | Rejected: ...

An operation without a method is `Unsupported`. A method that raises has not answered: that is `Unknown`, with the
exception in its reason, and a violation where the kit expects an answer. One that raises `Died` was told to crash.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self

import msgspec

from conformance.interface.messages import Answer, Hello, Identity, Request, Unknown, Unsupported
from conformance.interface.subject import AdapterError, Died, gone

RAISED: Final = "raised"
"""What the reason of `Unknown` begins with when a method raised."""

_ANSWERS: Final = tuple(Answer.__args__)


def operation(request: Request) -> str:
    """The name of a request, as on the wire."""
    return str(type(request).__struct_config__.tag)


class InProcess:
    """`handler` is the object. Everything happens in the caller's thread."""

    def __init__(self, handler: Any) -> None:
        self.handler = handler
        identity = self.ask("kit", Hello())
        if not isinstance(identity, Identity):
            raise AdapterError(f"`hello` was answered by {identity!r}; it must be an `Identity`")
        self.identity = identity

    def ask(self, client: str, request: Request) -> Answer:
        name = operation(request)
        method = getattr(self.handler, name, None)
        if method is None:
            return Unsupported(reason=f"{type(self.handler).__name__} has no method {name!r}")
        try:
            answer = method(client, request)
        except AdapterError:
            raise
        except Died as died:
            return gone(str(died))
        except Exception as error:  # noqa: BLE001  # whatever a subject raises, it has not answered
            return Unknown(reason=f"{RAISED}: {type(error).__name__}: {error}")
        if not isinstance(answer, _ANSWERS):
            says = "it must be an answer of the interface"
            raise AdapterError(f"`{name}` returned {answer!r}; {says}", repr(answer), says)
        try:
            checked: Answer = msgspec.convert(msgspec.to_builtins(answer), type(answer))
        except msgspec.ValidationError as error:
            raise AdapterError(f"`{name}` returned {answer!r}: {error}", repr(answer), str(error)) from error
        return checked

    def close(self) -> None:
        close = getattr(self.handler, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
