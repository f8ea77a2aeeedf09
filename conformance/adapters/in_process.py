"""A subject that is a Python object with one method for each operation.

    class MyOwner:
        def hello(self, client: str, request: Hello) -> Identity: ...
        def commit(self, client: str, request: Commit) -> Ratified | Conflict | Gap | Rejected: ...

An operation without a method is `Unsupported`; a method `lacks` returns the reason, in words for users. A method that
raises has not answered: the answer is `Unknown`, with the exception as its reason. It is a violation where the kit
expects an answer.
`ProcessDied` means a simulated crash.
"""

import contextlib
import functools
import inspect
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from conformance.adapters.http import HttpSubject
from conformance.adapters.stdio import StdioSubject
from conformance.interface.messages import Answer, Hello, Identity, Request, Unknown, Unsupported, name_of
from conformance.interface.subject import AdapterError, Ask, Closing, ProcessDied, UsageError, gone

RAISED: Final = "raised"
"""The beginning of an `Unknown` reason when a method raised."""

_ANSWERS: Final = tuple(Answer.__args__)


class Answering(Protocol):
    """A handler that turns the errors of its methods into answers."""

    def answered(self, ask: Callable[[], Answer]) -> Answer: ...


_Handler = TypeVar("_Handler", bound=Answering)
_Asked = TypeVar("_Asked", bound=Request)


def answering(method: Callable[[_Handler, str, _Asked], Answer]) -> Callable[[_Handler, str, _Asked], Answer]:
    """A handler's method whose errors become answers, by the handler's `answered`."""

    @functools.wraps(method)
    def ask(self: _Handler, client: str, request: _Asked) -> Answer:
        return self.answered(lambda: method(self, client, request))

    return ask


class InProcess(Closing):
    """`handler`: the object with the methods. They run in the caller's thread, and in several at the same time only if
    its attribute `concurrent` is true."""

    def __init__(self, handler: Any) -> None:
        self.handler = handler
        self.concurrent = bool(getattr(handler, "concurrent", False))
        identity = self.ask("kit", Hello())
        if not isinstance(identity, Identity):
            raise AdapterError(f"`hello` was answered by {identity!r}; it must be an `Identity`")
        self.identity = identity

    def ask(self, client: str, request: Request) -> Answer:
        name = name_of(request)
        method = getattr(self.handler, name, None)
        if method is None:
            lacks = getattr(self.handler, "lacks", f"{type(self.handler).__name__} has no method {{!r}}".format)
            return Unsupported(reason=lacks(name))
        try:
            answer = method(client, request)
        except AdapterError:
            raise
        except ProcessDied as died:
            return gone(str(died))
        except Exception as error:  # noqa: BLE001  # a subject that raises has not answered
            return Unknown(reason=f"{RAISED}: {type(error).__name__}: {error}")
        if not isinstance(answer, _ANSWERS):
            expected = "it must be an answer of the interface"
            raise AdapterError(f"`{name}` returned {answer!r}; {expected}", repr(answer), expected)
        try:
            checked: Answer = msgspec.convert(msgspec.to_builtins(answer), type(answer))
        except msgspec.ValidationError as error:
            raise AdapterError(f"`{name}` returned {answer!r}: {error}", repr(answer), str(error)) from error
        return checked

    def close(self) -> None:
        close = getattr(self.handler, "close", None)
        if close is not None:
            close()


# By name


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """Creates a subject in this process. Its constructor gets arguments by the names of its parameters: `directory`, a
    `Path`, and `owner`, an `Ask`. A required parameter with any other name gets the owner too."""

    name: str
    make: Callable[..., Any]
    owner_parameter: str | None
    directory_parameter: bool

    @classmethod
    def of(cls, name: str, kind: Any) -> "Handler":
        """For a class, or a function that makes the subject. Raises `UsageError` for a parameter that has no value
        here."""
        try:
            parameters = list(inspect.signature(kind).parameters.values())
        except (TypeError, ValueError):  # written in C: it takes no argument
            parameters = []
        needed = [
            parameter.name
            for parameter in parameters
            if parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]
        owners = [parameter.name for parameter in parameters if parameter.name == "owner"]
        owners = owners or [name for name in needed if name != "directory"][:1]
        others = [parameter for parameter in needed if parameter not in (*owners, "directory")]
        if others:
            raise UsageError(
                f"{name!r}: its constructor requires {', '.join(others)}; only `directory`, its own folder, and, for a "
                f"client, `owner`, a function of a client's name and a request; other parameters need a default"
            )
        return cls(
            name=name,
            make=kind,
            owner_parameter=owners[0] if owners else None,
            directory_parameter=any(parameter.name == "directory" for parameter in parameters),
        )

    @property
    def takes_owner(self) -> bool:
        """Whether the subject is a client, which asks an owner."""
        return self.owner_parameter is not None

    def made(self, *, owner: Ask | None, directory: Path | None) -> Any:
        """A new subject. Raises `UsageError` if its constructor fails."""
        arguments: dict[str, Any] = {}
        if self.owner_parameter is not None:
            if owner is None:
                raise UsageError(f"{self.name!r} is a client; its test needs an owner, and none was given")
            arguments[self.owner_parameter] = owner
        if self.directory_parameter:
            arguments["directory"] = directory
        try:
            return self.make(**arguments)
        except Exception as error:
            raise UsageError(
                f"cannot create {self.name!r}: its constructor raised {type(error).__name__}: {error}"
            ) from error


class InProcessSubject(InProcess):
    """A subject in this process, by its name, with its folder and its owner."""

    def __init__(
        self, handler: Handler, *, owner: Ask | None, owner_url: str | None, directory: Path | None, timeout: float
    ) -> None:
        self._made = contextlib.ExitStack()
        self._name = handler.name
        self._timeout = timeout
        self._beside: StdioSubject | None = None
        try:
            if handler.takes_owner and owner is None and owner_url is not None:
                owner = self._made.enter_context(HttpSubject(owner_url, timeout=timeout)).ask
            if handler.directory_parameter and directory is None:
                temporary = tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True)
                directory = Path(self._made.enter_context(temporary))
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            self.directory = directory
            made = handler.made(owner=owner, directory=directory)
            self._made.callback(getattr(made, "close", lambda: None))
            super().__init__(made)
        except BaseException:
            self._made.close()
            raise

    def beside(self) -> StdioSubject:
        """The same subject in separate processes, which serve concurrent clients and can be killed. They start at the
        first call of this method, and end with this subject. Raises `AdapterError`."""
        if self._beside is None:
            command = [sys.executable, "-m", "conformance", "serve", self._name]
            self._beside = self._made.enter_context(StdioSubject(command, timeout=self._timeout))
        return self._beside

    def close(self) -> None:
        self._made.close()
