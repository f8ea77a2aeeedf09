"""Parses the part of a subject's name after `jvm:`, and makes the coordinator that it names.

jvm:in-memory                                   Delta's coordinator for its tests and examples
jvm:dynamodb                                    Delta's coordinator for DynamoDB, on a database that never fails
jvm:dynamodb:stale-reads                        the same, with a weakness of the service (see `faults`)
"jvm:com.example.MyBuilder --classpath my.jar"  any other, by the name of its class or of its builder's class
"""

import argparse
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from conformance.adapters.jvm import jars
from conformance.adapters.jvm.dynamodb import CRASH_POINTS, Database, Fault
from conformance.adapters.jvm.machine import Machine, class_of, message_of
from conformance.interface.subject import UsageError

CLIENT: Final = "io.delta.storage.commit.CommitCoordinatorClient"
BUILDER: Final = "org.apache.spark.sql.delta.coordinatedcommits.CommitCoordinatorBuilder"
_PACKAGE: Final = "org.apache.spark.sql.delta.coordinatedcommits"
_PROFILES: Final = ("core", "version-0-by-filesystem", "staged", "ownership-transfer", "storage-access")
_DURABLE: Final = ("durable-restart", "harness-control")
STORAGE: Final = frozenset({Fault.FAILING_STORAGE})
"""Faults that a coordinator may have with any database."""
_NAMES: Final = ("in-memory", "dynamodb")


class UnknownError(UsageError):
    """The part after `jvm:` names no coordinator. `problem` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A coordinator, as the subject's name describes it."""

    name: str
    version: str
    """The version of Delta, or the names of the coordinator's files."""
    classpath: str
    class_name: str
    profiles: tuple[str, ...] = _PROFILES
    crash_points: tuple[str, ...] = ()
    faults: frozenset[Fault] = frozenset()
    conf: Mapping[str, str] = field(default_factory=dict)
    """The configuration that a builder gets."""
    on_dynamodb: bool = False

    def database(self, machine: Machine, directory: Path) -> Database | None:
        """The coordinator's durable state, if it has any."""
        return Database(machine, directory / "dynamodb", self.faults) if self.on_dynamodb else None

    def make(self, machine: Machine, batch: int, database: Database | None) -> Any:
        """A new coordinator. If it has such a setting, it publishes by itself after every `batch` commits. Raises
        `UnknownError` for a class that is missing, is not a coordinator, or cannot be constructed."""
        from py4j.protocol import Py4JJavaError

        try:
            return self._made(machine, batch, database)
        except Py4JJavaError as error:
            if class_of(error) == "java.lang.ClassNotFoundException":
                problem = f"there is no class {self.class_name} on the class path {self.classpath}"
            else:
                problem = f"cannot construct a coordinator from {self.class_name}: {message_of(error)}"
            raise UnknownError(problem) from error

    def _made(self, machine: Machine, batch: int, database: Database | None) -> Any:
        if database is not None:
            return machine.type(self.class_name)("commits", "the kit", database, batch)
        made = _constructed(machine, self.class_name, machine.reflected(self.class_name), batch)
        if machine.reflected(CLIENT).isInstance(made):
            return made
        if not machine.reflected(BUILDER).isInstance(made):
            raise UnknownError(f"{self.class_name} is neither a {CLIENT} nor a {BUILDER}")
        conf = machine.type("scala.collection.immutable.HashMap")()
        for key, value in self.conf.items():
            conf = conf.updated(key, value)
        return made.build(None, conf)


def named(text: str) -> Named:
    """The coordinator of that name. Raises `UnknownError` for an invalid name, `JarsError` if libraries are missing."""
    words = _words(text)
    name, _, more = words[0].partition(":")
    if name not in _NAMES:
        return _by_class(words)
    if len(words) > 1:
        raise UnknownError(f"jvm:{name} takes no options; {words[1]!r} belongs to jvm:CLASS")
    version = f"Delta {jars.version('delta-storage')}"
    if name == "dynamodb":
        return Named(
            name=words[0],
            version=version,
            classpath=jars.classpath("dynamodb", hadoop=True),
            class_name="io.delta.dynamodbcommitcoordinator.DynamoDBCommitCoordinatorClient",
            profiles=(*_PROFILES, *_DURABLE),
            crash_points=CRASH_POINTS,
            faults=_faults(name, more, frozenset(Fault)),
            on_dynamodb=True,
        )
    return Named(
        name=words[0],
        version=version,
        classpath=jars.classpath("dynamodb", hadoop=True),
        class_name=f"{_PACKAGE}.InMemoryCommitCoordinatorBuilder",
        faults=_faults(name, more, STORAGE),
    )


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UnknownError(f"cannot split {text!r} into words: {str(error).lower()}") from error
    if not words:
        raise UnknownError("nothing follows `jvm:`")
    return words


def _faults(name: str, text: str, possible: frozenset[Fault]) -> frozenset[Fault]:
    """The faults in the name, which commas separate."""
    faults = frozenset(fault for fault in Fault if fault in text.split(","))
    if text and (len(faults) != len(text.split(",")) or not faults <= possible):
        known = ", ".join(sorted(possible))
        raise UnknownError(f"jvm:{name}:{text} is unknown; its variants are {known}, or several with commas")
    return faults


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UnknownError(f"jvm:CLASS --classpath JARS [--conf KEY=VALUE]: {message}")


def _by_class(words: Sequence[str]) -> Named:
    parser = _Options(add_help=False)
    parser.add_argument("class_name")
    parser.add_argument("--classpath", "-cp", default="")
    parser.add_argument("--conf", action="append", default=[])
    options = parser.parse_args(words)
    conf = {}
    for setting in options.conf:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UnknownError(f"--conf {setting!r} is invalid; expected KEY=VALUE")
        conf[key] = value
    if "." not in options.class_name and not options.classpath:
        known = ", ".join(f"jvm:{name}" for name in _NAMES)
        raise UnknownError(
            f"unknown coordinator {options.class_name!r}; expected {known}, or jvm:CLASS --classpath JARS"
        )
    theirs = [str(Path(path).absolute()) for path in options.classpath.split(os.pathsep) if path]
    return Named(
        name=options.class_name,
        version=", ".join(Path(jar).name for jar in theirs) or "unknown",
        classpath=os.pathsep.join([*theirs, jars.classpath("dynamodb", hadoop=True)]),
        class_name=options.class_name,
        conf=conf,
    )


def _constructed(machine: Machine, name: str, kind: Any, batch: int) -> Any:
    """Call the constructor that takes the size of a batch; if the class has none, the constructor without
    parameters."""
    parameters = [[parameter.getName() for parameter in made.getParameterTypes()] for made in kind.getConstructors()]
    if ["long"] in parameters:
        return machine.type(name)(batch)
    if [] in parameters:
        return machine.type(name)()
    raise UnknownError(f"{name} needs a public constructor without parameters, or with the size of a batch as a long")
