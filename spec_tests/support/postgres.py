"""A PostgreSQL server for tests and benchmarks, on a unix socket, with a folder of its own.

    python -m spec_tests.support.postgres COMMAND [ARGUMENT...]

runs the command with `DATABASE` set, and returns its exit code. The programs are those in PATH, in Debian's folder, or
of the wheel `pgserver`. PostgreSQL refuses root, so that root starts it as the user 65534.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

OPTIONS: Final = "-c listen_addresses= -c unix_socket_directories={folder} -c max_connections=60 -c shared_buffers=16MB"
UNPRIVILEGED: Final = 65534


class PostgresError(Exception):
    """No server can be started here. The message says why."""


class Postgres:
    """A server. `kill` and `start` are for tests of crashes."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.database = f"host={folder} user=owner dbname=postgres"
        """The connection string."""

    def start(self) -> None:
        """Returns when the server answers; after a crash, when it has recovered."""
        self._run("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", OPTIONS.format(folder=self.folder), "start")

    def kill(self) -> None:
        """End all processes of the server without a checkpoint, as a crash does: the next start reads the log."""
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def initialize(self) -> None:
        self._run("initdb", "-U", "owner", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8")

    def _run(self, program: str, *arguments: str) -> None:
        """Raises `PostgresError`."""
        command = [str(self.programs / program), "-D", str(self.folder / "data"), *arguments]
        other = {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []} if os.geteuid() == 0 else {}
        try:
            done = subprocess.run(
                command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True, timeout=120, **other,  # type: ignore[call-overload]
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PostgresError(f"{program} of PostgreSQL cannot be run: {error}") from error
        if done.returncode:
            raise PostgresError(f"{program} of PostgreSQL failed with exit code {done.returncode}: {done.stderr}")


def programs() -> Path:
    """The folder of `initdb`, `pg_ctl` and `postgres`. Raises `PostgresError` without one."""
    wheel = importlib.util.find_spec("pgserver")
    inside = Path(wheel.origin).parent / "pginstall" / "bin" if wheel and wheel.origin else None
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name)
    in_path = shutil.which("initdb")
    for folder in (Path(in_path).resolve().parent if in_path else None, *reversed(debian), inside):
        if folder is not None and (folder / "initdb").is_file():
            return folder
    raise PostgresError(
        "no initdb in PATH, and no wheel pgserver; install Debian's postgresql, or pip install pgserver"
    )


@contextmanager
def server() -> Iterator[Postgres]:
    """A started server; its folder is removed at the end. Raises `PostgresError`."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # a socket's path has at most 107 bytes
    try:
        if os.geteuid() == 0:
            os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
        postgres = Postgres(programs(), folder)
        postgres.initialize()
        postgres.start()
        try:
            yield postgres
        finally:
            postgres.kill()
    finally:
        shutil.rmtree(folder)


def main(command: list[str]) -> int:
    """The exit code of the command; 2 without a command or a server."""
    if not command or command[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if command else 2
    try:
        with server() as postgres:
            return subprocess.run(command, env={**os.environ, "DATABASE": postgres.database}).returncode
    except (PostgresError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
