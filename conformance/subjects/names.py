"""Subjects by name, as on the command line. There is no default: a missing name is an error that lists the forms."""

import contextlib
import importlib
import os
import shlex
import site
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from conformance.adapters import wire
from conformance.adapters.engines.engine import EngineClient
from conformance.adapters.http import HttpServer, HttpSubject
from conformance.adapters.in_process import Handler, InProcessSubject
from conformance.adapters.jvm import jars
from conformance.adapters.stdio import StdioSubject
from conformance.interface.subject import TIMEOUT, Ask, Subject, UsageError

if TYPE_CHECKING:
    from conformance.adapters.uc.api import Address

_FORMS: Final = """\
  "stdio:COMMAND WITH ARGUMENTS"   a process that reads calls and writes replies, a line of JSON each
  http:URL                         a server that answers calls by POST (also https:)
  uc:URL?catalog=C&schema=S        a server of Unity Catalog's Delta API; its token is in $UC_TOKEN
  python:MODULE:CLASS              a Python class with one method for each operation, in this process
  jvm:in-memory, jvm:dynamodb      Delta's own commit coordinators; "jvm:CLASS --classpath JARS" for any other
  engine:NAME, engine:NAME@VERSION   a Delta engine as a client: {engines}
  reference                        the reference commit owner
  reference-client                 the reference's Delta client, against the kit's own owner
  reference-client-remote          the same client through its remote owner, which speaks the Delta API
  model, model-client              the kit's own readable owner, and its client
  mutant:ID                        a known-bad subject, to see what a violation looks like
  good:ID                          a subject that uses a freedom of the documents
"""
ENGINES: Final = {
    "delta-kernel": ("conformance.adapters.engines.delta_kernel", "DeltaKernel"),
    "delta-kernel-rs": ("conformance.adapters.engines.delta_kernel_rs", "DeltaKernelRs"),
    "delta-spark": ("conformance.adapters.engines.delta_spark", "DeltaSpark"),
    "delta-spark-coordinated": ("conformance.adapters.engines.delta_spark_coordinated", "DeltaSparkCoordinated"),
    "duckdb": ("conformance.adapters.engines.duckdb", "DuckDb"),
    "delta-rs": ("conformance.adapters.engines.delta_rs", "DeltaRs"),
    "sail": ("conformance.adapters.engines.sail", "Sail"),
}
"""Module and class of each engine, a `conformance.adapters.engines.engine.EngineClient`."""
FORMS: Final = _FORMS.replace("{engines}", ", ".join(ENGINES))
"""The forms of a subject's name, for people."""

_OURS: Final = {
    "reference": ("conformance.adapters.reference.owner", "ReferenceOwner"),
    "reference-client": ("conformance.adapters.reference.client", "ReferenceClient"),
    "reference-client-remote": ("conformance.adapters.reference.client", "RemoteReferenceClient"),
    "model": ("conformance.models.owner", "ModelOwner"),
    "model-client": ("conformance.models.client", "ModelClient"),
}
_KINDS: Final = ("stdio", "http", "https", "uc", "python", "jvm", "engine", "mutant", "good")


def open_subject(
    name: str,
    *,
    timeout: float = TIMEOUT,
    directory: Path | None = None,
    owner_url: str | None = None,
    owner: Ask | None = None,
) -> Subject:
    """Open the subject of that name. `timeout`: seconds that one answer may take; a subject in this process is not
    interrupted. `directory`: the subject's own folder, in which its state survives restarts; by default a temporary
    one.

    A client under test gets `owner`, or the owner at `owner_url`. Raises `UsageError` for an invalid name,
    `AdapterError` for a subject that does not speak the interface. An engine runs in a process of its own, and may take
    longer for an answer than `timeout`, as its class says.
    """
    kind, rest = _parts(name)
    if kind == "uc":
        return _catalog(rest, timeout)
    if kind == "engine":
        _engine(name, rest)
        timeout = answer_seconds(name, timeout)
    elif kind not in ("stdio", "http", "https"):
        handler = handler_of(name)
        return InProcessSubject(handler, owner=owner, owner_url=owner_url, directory=directory, timeout=timeout)
    made = contextlib.ExitStack()
    try:
        if owner_url is None and owner is not None:
            owner_url = made.enter_context(HttpServer(owner)).url
        if kind in ("stdio", "engine"):
            # -P: do not import a folder `conformance` in the working directory instead of this package
            served = [sys.executable, "-P", "-m", "conformance", "serve", name]
            environment: dict[str, str] = {}
            if kind == "engine":
                if directory is None:
                    directory = Path(made.enter_context(tempfile.TemporaryDirectory(prefix="conformance-")))
                directory = directory.absolute()
                environment = _confined(directory)
            subject: Subject = StdioSubject(
                served if kind == "engine" else _command(name, rest),
                timeout=timeout,
                directory=directory,
                owner_url=owner_url,
                environment=environment,
                working_directory=directory if kind == "engine" else None,
                at_close=made.close,
            )
        else:
            subject = HttpSubject(_url(name, kind, rest), timeout=timeout, owner_url=owner_url, at_close=made.close)
    except BaseException:
        made.close()
        raise
    return subject


def answer_seconds(name: str, timeout: float) -> float:
    """Seconds that one answer of the subject may take. This is `timeout`, or more if an engine's class says so. For an
    unknown engine this is `timeout`; `open_subject` raises the error."""
    kind, _, rest = name.partition(":")
    if kind == "engine":
        with contextlib.suppress(UsageError):
            return max(timeout, engine_of(name, rest)[0].seconds)
    return timeout


def _confined(directory: Path) -> dict[str, str]:
    """The environment of an engine that may write only to its own folder. Fetched programs and the user's own Python
    packages stay where they are."""
    places = {name: directory / folder for name, folder in (("HOME", "home"), ("TMPDIR", "temporary"))}
    for folder in places.values():
        folder.mkdir(parents=True, exist_ok=True)
    environment = {name: str(folder.absolute()) for name, folder in places.items()}
    environment |= {"XDG_CACHE_HOME": str(jars.cache().parent), "PYTHONUSERBASE": site.getuserbase()}
    environment["RUST_BACKTRACE"] = "0"  # otherwise each error message holds a backtrace
    if os.environ.get(jars.VARIABLE):
        environment[jars.VARIABLE] = str(jars.folder())
    return environment


def _catalog(rest: str, timeout: float) -> Subject:
    from conformance.adapters.uc.owner import UcSubject

    return UcSubject(_address(rest), timeout=timeout)


def _address(rest: str) -> "Address":
    from conformance.adapters.uc.api import AddressError, address_of

    try:
        return address_of(rest)
    except AddressError as error:
        raise UsageError(f"uc: {error.problem}") from error  # without the name, which may hold a token


# Names


def check_name(name: str) -> None:
    """Raises `UsageError` for a name that no subject can have. Starts nothing, but imports a Python subject."""
    kind, rest = _parts(name)
    if kind == "stdio":
        _command(name, rest)
    elif kind in ("http", "https"):
        _url(name, kind, rest)
    elif kind == "uc":
        _address(rest)
    elif kind == "engine":
        engine_of(name, rest)
    elif kind != "jvm":  # it needs a Java runtime, which may be missing
        handler_of(name)


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
    """The URL, from `http://host` or `http:http://host`."""
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


def handler_of(name: str) -> Handler:
    """The subject of that name, if it can be one in this process. Raises `UsageError`."""
    kind, rest = _parts(name)
    if kind in _OURS:
        return Handler.of(name, _loaded(name, *_OURS[name]))
    if kind == "python":
        return Handler.of(name, _class(name, rest))
    if kind == "jvm":
        return Handler.of(name, _coordinator(name, rest))
    if kind == "engine":
        engine, version = _engine(name, rest)
        return Handler.of(name, partial(engine, version=version))
    if kind in ("mutant", "good"):
        return Handler.of(name, _mutant(kind, rest))
    raise UsageError(f"{name!r} runs in another process; expected python:MODULE:CLASS or a built-in subject")


def _loaded(name: str, module: str, member: str) -> Any:
    try:
        return getattr(importlib.import_module(module), member)
    except ImportError as error:
        raise UsageError(f"cannot load {name!r}: {error}") from error


def _mutant(kind: str, identifier: str) -> Any:
    from conformance.mutants import all_mutants

    mutant = all_mutants().get(identifier)
    if mutant is not None and bool(mutant.violates) == (kind == "mutant"):
        return mutant.make
    known = {mutant.id: mutant for mutant in all_mutants().values() if bool(mutant.violates) == (kind == "mutant")}
    if mutant is not None:
        right = "good" if kind == "mutant" else "mutant"
        raise UsageError(f"unknown subject '{kind}:{identifier}'; did you mean '{right}:{identifier}'?")
    raise UsageError(
        f"unknown subject '{kind}:{identifier}'{wire.near(identifier, known)} "
        f"(all {len(known)}: delta-commit-conformance list mutants)"
    )


def _coordinator(name: str, rest: str) -> Any:
    from conformance.adapters.jvm.jars import JarsError
    from conformance.adapters.jvm.machine import java
    from conformance.adapters.jvm.naming import named
    from conformance.adapters.jvm.owner import CoordinatorOwner

    try:
        java()
        return partial(CoordinatorOwner, named(rest))
    except (UsageError, JarsError) as error:
        raise UsageError(f"{name!r}: {error.problem}") from error


def _engine(name: str, rest: str) -> tuple[type[EngineClient], str | None]:
    """The class of the engine, and the version. Raises `UsageError` also for an engine that cannot run here."""
    kind, version = engine_of(name, rest)
    problem = kind.missing(version)
    if problem:
        raise UsageError(f"{name!r} cannot run here: {problem}")
    return kind, version


def engine_of(name: str, rest: str) -> tuple[type[EngineClient], str | None]:
    """Like `_engine`, but also for an engine that cannot run here yet. `rest`: NAME or NAME@VERSION."""
    engine, at, version = rest.partition("@")
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}{wire.near(engine, ENGINES)} (engines: {', '.join(ENGINES)})")
    if at and not version:
        raise UsageError(f"incomplete subject {name!r}; expected a version after '@'")
    kind: type[EngineClient] = _loaded(name, *ENGINES[engine])
    return kind, version or None


def _class(name: str, rest: str) -> Any:
    module_name, _, member = rest.partition(":")
    if not module_name or not member:
        raise UsageError(f"{name!r}: a Python subject is python:MODULE:CLASS, for example python:my_owner:MyOwner")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # like `python -m`: the user's owner may be in the working directory
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name is not None
        if missing and f"{module_name}.".startswith(f"{error.name}."):
            hint = ""
            if module_name.endswith(".py") or "/" in module_name:
                hint = f"; a module is named without its file's ending: {Path(module_name).stem!r}"
            hint = hint or "; run the command in the module's folder, or install the module"
            raise UsageError(f"{name!r}: there is no module {module_name!r} in {here} or installed{hint}") from error
        raise UsageError(f"{name!r}: importing {module_name!r} failed: {error}") from error
    except Exception as error:
        raise UsageError(f"{name!r}: importing {module_name!r} failed: {type(error).__name__}: {error}") from error
    factory = getattr(module, member, None)
    if factory is None:
        raise UsageError(f"{name!r}: module {module_name!r} has no {member!r}{wire.near(member, vars(module))}")
    if not callable(factory):
        raise UsageError(f"{name!r}: {member!r} is a {type(factory).__name__}; it must be a class, or make the subject")
    return factory
