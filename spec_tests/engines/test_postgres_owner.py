"""The example owner on PostgreSQL: it survives crashes of its processes and of the database, and the kit finds three
mutants of it that reviews of such code overlook."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Final

import pytest
from typer.testing import CliRunner

from conformance.adapters.stdio import StdioSubject
from conformance.command.application import application
from conformance.command.listing import files
from conformance.interface import messages as m
from conformance.interface.results import ExitCode
from conformance.subjects.names import open_subject
from conformance.subjects.smoke import smoke
from spec_tests.conformance.asking import Asking

pytestmark = [pytest.mark.engines, pytest.mark.processes, pytest.mark.xdist_group("postgres")]

OWNER = files()["postgres_owner.py"]
LONGEST = 220
COMMITS = 10
OPTIONS: Final = "-c listen_addresses= -c unix_socket_directories={folder} -c max_connections=60 -c shared_buffers=16MB"
UNPRIVILEGED: Final = 65534


class PostgresError(Exception):
    """No server can be started here. The message says why."""


class Postgres:
    """A server on a unix socket, with a folder of its own. The programs are those in PATH, in Debian's folder, or of
    the wheel `pgserver`. PostgreSQL refuses root, so that root starts it as the user 65534."""

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


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    try:
        with server() as running:
            yield running
    except PostgresError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def database(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> Postgres:
    pytest.importorskip("psycopg", reason="install the extra postgres")
    monkeypatch.setenv("DATABASE", postgres.database)
    return postgres


def command(owner: Path = OWNER) -> str:
    return f"stdio:{shlex.join([sys.executable, str(owner)])}"


def test_smoke_passes(database: Postgres) -> None:
    with open_subject(command(), timeout=60) as subject:
        report = smoke(subject)
    assert report.ok, str(report)
    assert len(OWNER.read_text("utf-8").splitlines()) <= LONGEST


def test_no_acknowledged_commit_is_lost_when_owner_and_database_die(database: Postgres) -> None:
    """Two writers commit; meanwhile the owner's processes and the database are killed. A writer repeats an attempt
    without an answer until it is ratified. Then each attempt is at the version that was acknowledged, once."""
    subject = open_subject(command(), timeout=60)
    assert isinstance(subject, StdioSubject)
    with Asking(subject) as owner, ThreadPoolExecutor(2) as pool:
        tables = [owner.table(feature="catalogManaged", commit_mode="staged", name=name) for name in ("a", "b")]

        def write(number: int) -> list[tuple[m.Commit, m.Answer]]:
            table, version = tables[number], 1
            exchanges: list[tuple[m.Commit, m.Answer]] = []
            while version <= COMMITS or not killed.is_set():
                commit = table.proposal(version)
                answer = subject.ask(f"writer {number}", commit)
                while isinstance(answer, m.Unknown):
                    exchanges.append((commit, answer))
                    answer = subject.ask(f"writer {number}", commit)
                assert answer == m.Ratified(version=version), answer
                exchanges.append((commit, answer))
                version += 1
                begun[number].set()
            return exchanges

        begun, killed = (Event(), Event()), Event()
        running = [pool.submit(write, number) for number in (0, 1)]
        try:
            for number in (0, 1):
                assert begun[number].wait(60)
                subject.kill(f"writer {number}")
            database.kill()
            database.start()
            subject.kill("writer 1")
        finally:
            killed.set()
        subject.kill("client")  # its connection has ended
        exchanges = [future.result() for future in running]
        for table, sent in zip(tables, exchanges, strict=True):
            listed = owner.expect(m.Commits, m.GetCommits(table=table.reference))
            assert [(entry.version, (entry.file_name or "").split(".")[1]) for entry in listed.commits] == [
                (answer.version, commit.attempt) for commit, answer in sent if isinstance(answer, m.Ratified)
            ]
        assert any(isinstance(answer, m.Unknown) for sent in exchanges for _, answer in sent)


MUTANTS = {
    "read-committed-without-a-row-lock": (
        ("concurrent-writers", "processes"),
        {
            'LOCK = LOOK + " FOR UPDATE"': "LOCK = LOOK",
            "PRIMARY KEY (id, version), UNIQUE (id, attempt)": "PRIMARY KEY (id, attempt)",
        },
    ),
    "a-phantom-under-serializable-without-a-retry": (
        ("version-0", "processes"),
        {
            "CREATE UNIQUE INDEX IF NOT EXISTS one_table_of_a_name": "CREATE INDEX IF NOT EXISTS one_table_of_a_name",
            ' ON CONFLICT DO NOTHING"\nHOLDER': '"\nHOLDER',
            "        if self.sql(CREATE, table, name, feature).rowcount == 1:": """\
        self.database.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        held = self.sql(HOLDER, name).fetchone() or self.sql(LANDED, table, table).fetchone()
        if not held and self.sql(CREATE, table, name, feature).rowcount == 1:""",
            "        except psycopg.OperationalError as error:": """\
        except psycopg.errors.SerializationFailure:  # the table of that name exists now
            held = self.sql(HOLDER, request["name"]).fetchone()
            taken = {"outcome": "conflict", "latest": 0}
            return {"outcome": "ratified", "version": 0, "table": held["id"]} if held else taken
        except psycopg.OperationalError as error:""",
        },
    ),
    "on-conflict-do-nothing-without-a-look-at-the-count": (
        ("version-0", "processes"),
        {
            "if self.sql(CREATE, table, name, feature).rowcount == 1:": "if self.sql(CREATE, table, name, feature):",
            "commits (id text REFERENCES tables, ": "commits (id text, ",
        },
    ),
}
"""For each mutant: the family and the layer of the quick profile that find it, and its edits of the example."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_kit_finds_the_mutant(mutant: str, database: Postgres, tmp_path: Path) -> None:
    (family, layer), edits = MUTANTS[mutant]
    text = OWNER.read_text("utf-8")
    for before, after in edits.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    owner = tmp_path / "mutant.py"
    owner.write_text(text, "utf-8")
    options = ["--family", family, "--layer", layer, "--workers", "1", "--budget", "1h", "--fail-fast"]
    result = CliRunner().invoke(application, ["run", command(owner), *options, "--json"])
    assert result.exit_code == ExitCode.VIOLATION, result.output
