"""Subjects by name, as on the command line. There is no default: a missing name is an error that lists the forms."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from conformance.adapters import wire
from conformance.adapters.http import HttpSubject
from conformance.adapters.http_server import HttpServer
from conformance.adapters.in_process import InProcess
from conformance.adapters.stdio import StdioSubject
from conformance.interface.messages import Answer, Request
from conformance.interface.subject import TIMEOUT, Subject

FORMS: Final = """\
  "stdio:COMMAND WITH ARGUMENTS"   a process that reads calls and writes replies, a line of JSON each
  http:URL                         a server that answers calls by POST (also https:)
  uc:URL?catalog=C&schema=S        a server of Unity Catalog's Delta API; its token is in $UC_TOKEN
  python:MODULE:CLASS              a Python class with one method for each operation, in this process
  jvm:in-memory, jvm:dynamodb      Delta's own commit coordinators; "jvm:CLASS --classpath JARS" for any other
  reference                        the reference commit owner
  reference-client                 the reference's Delta client, against the kit's own owner
  model, model-client              the kit's own readable owner, and its client
  mutant:ID                        a known-bad subject, to see what a violation looks like
  good:ID                          a subject that uses a freedom of the documents
"""
"""How a subject can be named, for people."""

Ask = Callable[[str, Request], Answer]
"""An owner, as a client in this process calls it."""

_OURS: Final = {
    "reference": ("conformance.adapters.reference.owner", "ReferenceOwner"),
    "reference-client": ("conformance.adapters.reference.client", "ReferenceClient"),
    "model": ("conformance.models.owner", "ModelOwner"),
    "model-client": ("conformance.models.client", "ModelClient"),
}
_KINDS: Final = ("stdio", "http", "https", "uc", "python", "jvm", "mutant", "good")


class UsageError(Exception):
    """No subject can be what the name says. `problem` tells why, and what to do."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __reduce__(self) -> tuple[type[UsageError], tuple[str]]:
        return type(self), (self.problem,)


def open_subject(
    name: str,
    *,
    timeout: float = TIMEOUT,
    directory: Path | None = None,
    owner_url: str | None = None,
    owner: Ask | None = None,
) -> Subject:
    """The subject of that name, ready to be asked. `timeout`: seconds that one answer may take; a subject in this
    process is not interrupted. `directory`: of its own, where its state survives restarts; otherwise a temporary one.

    A client under test gets `owner`, or the owner at `owner_url`. Raises `UsageError` for a name that names nothing,
    `AdapterError` for a subject that does not speak the interface.
    """
    kind, rest = _parts(name)
    if kind == "uc":
        return _catalog(rest, timeout)
    if kind not in ("stdio", "http", "https"):
        return InProcessSubject(
            handler_of(name), owner=owner, owner_url=owner_url, directory=directory, timeout=timeout
        )
    made = contextlib.ExitStack()
    try:
        if owner_url is None and owner is not None:
            owner_url = made.enter_context(HttpServer(owner)).url
        if kind == "stdio":
            command = _command(name, rest)
            subject: Subject = StdioSubject(
                command, timeout=timeout, directory=directory, owner_url=owner_url, at_close=made.close
            )
        else:
            subject = HttpSubject(_url(name, kind, rest), timeout=timeout, owner_url=owner_url, at_close=made.close)
    except BaseException:
        made.close()
        raise
    return subject


def _catalog(rest: str, timeout: float) -> Subject:
    from conformance.adapters.uc.address import AddressError, address_of
    from conformance.adapters.uc.subject import UcSubject

    try:
        return UcSubject(address_of(rest), timeout=timeout)
    except AddressError as error:
        raise UsageError(f"uc: {error.problem}") from error  # the name is not repeated: there may be a token in it


# Names


def _parts(name: str) -> tuple[str, str]:
    """The kind of subject, and the rest of its name."""
    kind, colon, rest = name.partition(":")
    if (kind in _OURS and not colon) or (kind in _KINDS and rest.strip()):
        return kind, rest
    if kind in _OURS:
        problem = f"unknown subject {name!r}; expected {kind!r} without a suffix"
    elif kind in _KINDS:
        problem = f"incomplete subject {name!r}; expected a value after {kind + ':'!r}"
    else:
        more = wire.near(kind if colon else name, (*_OURS, *_KINDS))
        if not more and (" " in name or "/" in name):
            more = f"; for a command: {'stdio:' + name!r}"
        problem = f"unknown subject {name!r}{more}"
    raise UsageError(f"{problem}\nA subject is one of:\n{FORMS}".rstrip())


def _command(name: str, rest: str) -> list[str]:
    try:
        command = shlex.split(rest)
    except ValueError as error:
        raise UsageError(
            f"{name!r}: invalid command line: {str(error).lower()}; it is split into words by shell rules and run "
            f"without a shell"
        ) from error
    if not command:
        raise UsageError(f"{name!r}: expected a command after 'stdio:'")
    return command


def _url(name: str, kind: str, rest: str) -> str:
    """`http://host`, and with the kind in front of it too."""
    url = rest if rest.startswith(("http://", "https://")) else f"{kind}://{rest.removeprefix('//')}"
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise UsageError(
            "a subject's URL must not contain a user or a password, because reports show it; test a server that needs "
            "them through an adapter (stdio:, python:)"
        )
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise UsageError(f"{name!r}: invalid URL {url!r}: {error}") from error
    if not usable:
        raise UsageError(f"{name!r}: {url!r} has no host; expected for example http://127.0.0.1:8080/")
    return url


# Subjects in this process


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """What makes a subject in this process. Its constructor is given what it asks for by the names of its parameters:
    `directory`, a `Path`, and `owner`, an `Ask`. A parameter of another name that must be given is the owner too."""

    name: str
    make: Callable[..., Any]
    owner_parameter: str | None
    directory_parameter: bool

    @property
    def takes_owner(self) -> bool:
        """Whether it is a client: it has an owner to ask."""
        return self.owner_parameter is not None

    def made(self, *, owner: Ask | None, directory: Path | None) -> Any:
        """A new one. Raises `UsageError` if that fails."""
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


def handler_of(name: str) -> Handler:
    """The subject of that name, if it can be one in this process. Raises `UsageError`."""
    kind, rest = _parts(name)
    if kind in _OURS:
        return _handler(name, _ours(name))
    if kind == "python":
        return _handler(name, _class(name, rest))
    if kind == "jvm":
        return _handler(name, _coordinator(name, rest))
    if kind in ("mutant", "good"):
        return _handler(name, _mutant(kind, rest))
    raise UsageError(f"{name!r} runs in another process; expected python:MODULE:CLASS or a built-in subject")


def _handler(name: str, kind: Any) -> Handler:
    try:
        parameters = list(inspect.signature(kind).parameters.values())
    except (TypeError, ValueError):  # written in C: it takes nothing
        parameters = []
    needed = [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    owners = [each.name for each in parameters if each.name == "owner"] or [n for n in needed if n != "directory"][:1]
    others = [each for each in needed if each not in (*owners, "directory")]
    if others:
        raise UsageError(
            f"{name!r}: its constructor requires {', '.join(others)}; only `directory`, its own folder, and, for a "
            f"client, `owner`, a function of a client's name and a request; other parameters need a default"
        )
    return Handler(
        name=name,
        make=kind,
        owner_parameter=owners[0] if owners else None,
        directory_parameter=any(each.name == "directory" for each in parameters),
    )


def _ours(name: str) -> Any:
    module, member = _OURS[name]
    try:
        return getattr(importlib.import_module(module), member)
    except ImportError as error:
        raise UsageError(f"cannot load {name!r}: {error}") from error


def _mutant(kind: str, identifier: str) -> Any:
    from conformance.mutants.registry import all_mutants

    known = {each.id: each for each in all_mutants().values() if bool(each.violates) == (kind == "mutant")}
    if identifier in known:
        return known[identifier].make
    other = all_mutants().get(identifier)
    if other is not None:
        right = "good" if kind == "mutant" else "mutant"
        raise UsageError(f"unknown subject '{kind}:{identifier}'; did you mean '{right}:{identifier}'?")
    raise UsageError(
        f"unknown subject '{kind}:{identifier}'{wire.near(identifier, known)} "
        f"(all {len(known)}: delta-commit-conformance list mutants)"
    )


def _coordinator(name: str, rest: str) -> Any:
    from conformance.adapters.jvm.machine import NoJavaError, java
    from conformance.adapters.jvm.naming import UnknownError, named
    from conformance.adapters.jvm.owner import CoordinatorOwner
    from conformance.jars import JarsError

    try:
        java()
        return partial(CoordinatorOwner, named(rest))
    except (NoJavaError, UnknownError, JarsError) as error:
        raise UsageError(f"{name!r}: {error.problem}") from error


def _class(name: str, rest: str) -> Any:
    module_name, _, member = rest.partition(":")
    if not module_name or not member:
        raise UsageError(f"{name!r}: a Python subject is python:MODULE:CLASS, for example python:my_owner:MyOwner")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does: an owner that one is writing is in the folder one is in
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name is not None
        if missing and f"{module_name}.".startswith(f"{error.name}."):
            hint = ""
            if module_name.endswith(".py") or "/" in module_name:
                hint = f"; a module is named without its file's ending: {Path(module_name).stem!r}"
            raise UsageError(f"{name!r}: there is no module {module_name!r} in {here} or installed{hint}") from error
        raise UsageError(f"{name!r}: importing {module_name!r} failed: {error}") from error
    except Exception as error:
        raise UsageError(f"{name!r}: importing {module_name!r} failed: {type(error).__name__}: {error}") from error
    found = getattr(module, member, None)
    if found is None:
        raise UsageError(f"{name!r}: module {module_name!r} has no {member!r}{wire.near(member, vars(module))}")
    if not callable(found):
        raise UsageError(f"{name!r}: {member!r} is a {type(found).__name__}; it must be a class, or make the subject")
    return found


class InProcessSubject(InProcess):
    """With what was made for it."""

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
                directory = Path(tempfile.mkdtemp(prefix="conformance-"))
                self._made.callback(shutil.rmtree, directory, ignore_errors=True)
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            made = handler.made(owner=owner, directory=directory)
            self._made.callback(getattr(made, "close", lambda: None))
            super().__init__(made)
        except BaseException:
            self._made.close()
            raise

    def beside(self) -> StdioSubject:
        """The same subject once more, in processes of its own, which clients can ask at the same time and which can be
        killed. It is started when it is first wanted, and ends with this one. Raises `AdapterError`."""
        if self._beside is None:
            command = [sys.executable, "-m", "conformance.adapters.serve", self._name, "--stdio"]
            self._beside = self._made.enter_context(StdioSubject(command, timeout=self._timeout))
        return self._beside

    def close(self) -> None:
        self._made.close()
