"""The server: commits over HTTP."""

import contextlib
import http.client
import tempfile
import time
import uuid
from collections.abc import Iterator
from functools import partial
from json import dumps, loads
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import psutil
import pyarrow as pa

import refimpl
from refimpl.protocol.commit_owner import SERVER_PUBLISHES_AFTER, MaintenancePolicy
from refimpl.protocol.commits import Conflict, Ratified, StagedProposal
from refimpl.storage.log_store import LogStore
from spec_tests.benchmarks import measure
from spec_tests.benchmarks.measure import Options, Works
from spec_tests.server.wire import WireTable
from spec_tests.support.builders import STATISTICS, append
from spec_tests.support.serving import SERVE, started

CLIENTS = 8
SHARED = "shared"
START = 4_000_000_000_000
"""ms; later than any clock, so that a version's time depends only on the version."""
FILE = loads(append(START, stats=STATISTICS).splitlines()[1])


class InProcess:
    """Proposes to the ledger of the warehouse directly."""

    def __init__(self, directory: str, name: str) -> None:
        self._warehouse = refimpl.open(directory, create=False)
        self._table = self._warehouse.owner.resolve(name)
        self._log = LogStore(self._table.location, self._warehouse.environment)

    def latest(self) -> int:
        return self._warehouse.owner.get_commits(self._table.table_id).latest_ratified_version or 0

    def turn(self) -> contextlib.AbstractContextManager[bool]:
        return self._warehouse.owner.turn(self._table.table_id)

    def propose(self, version: int) -> bool:
        attempt = str(uuid.uuid4())
        name = self._log.stage("_staged_commits", version, attempt, append(START + version, stats=STATISTICS))
        proposal = StagedProposal(attempt=attempt, file_name=name)
        outcome = self._warehouse.owner.commit(self._table.table_id, version, proposal)
        assert isinstance(outcome, Ratified | Conflict), outcome
        return isinstance(outcome, Ratified)


class OverHttp:
    """Proposes to a server, on one connection."""

    def __init__(self, url: str, name: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc)
        self._latest: int | None = None
        """The version to propose next, from the answer to a lost proposal."""
        self._table = WireTable(self, name)
        metadata = self._table.load()["metadata"]
        self._table.table_id = metadata["table-uuid"]
        self._table.location = Path(urlsplit(metadata["location"]).path)

    def request(self, method: str, path: str, json: Any = None) -> Any:
        headers = {"content-type": "application/json", "prefer": "return=representation"}
        self._connection.request(method, path, None if json is None else dumps(json), headers)
        answer = self._connection.getresponse()
        content = answer.read()
        return SimpleNamespace(status_code=answer.status, text=content, json=partial(loads, content))

    def latest(self) -> int:
        latest, self._latest = self._latest, None
        return self._table.state()[0] if latest is None else latest

    def turn(self) -> contextlib.AbstractContextManager[bool]:
        """The server orders the clients itself."""
        return contextlib.nullcontext(False)

    def propose(self, version: int) -> bool:
        answer = self._table.propose(self._table.write_staged(version, FILE, timestamp=START + version))
        assert answer.status_code in (200, 409), answer.text
        if answer.status_code == 409:
            self._latest = answer.json()["table"]["latest-table-version"]
        return bool(answer.status_code == 200)


def client(connection: Connection, kind: type[InProcess | OverHttp], address: str, name: str, seconds: float) -> None:
    """Land as many commits as possible. A single writer does not queue."""
    proposer = kind(address, name)
    while not proposer.propose(proposer.latest() + 1):  # the other clients would wait for one that gave up
        pass
    measure.wait_for_others(connection)
    landed = 0
    version = proposer.latest() + 1
    used = time.process_time()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        with proposer.turn() if name == SHARED else contextlib.nullcontext(False) as others_were_first:
            if others_were_first:
                version = proposer.latest() + 1
            if proposer.propose(version):
                landed += 1
                version += 1
            else:
                version = proposer.latest() + 1
    connection.send((landed, time.process_time() - used))


def run(kind: type[InProcess | OverHttp], address: str, names: list[str], seconds: float) -> tuple[list[int], float]:
    """The number of commits of each client, and the seconds of processor time of all clients."""
    clients = [(kind, address, name, seconds) for name in names]
    commits = measure.at_once(client, clients)
    return [landed for landed, _ in commits], sum(used for _, used in commits)


def processor_seconds(server: int) -> tuple[float, float]:
    """The processor time of the server's event loop, and of all its other threads."""
    used = {thread.id: thread.user_time + thread.system_time for thread in psutil.Process(server).threads()}
    return used.pop(server), sum(used.values())


@contextlib.contextmanager
def server(options: Options) -> Iterator[Works]:
    """Durable commits over HTTP against the same commits on the ledger directly.

    Each try stages a file of one small commit and proposes it. The owner publishes as often as the server does by
    default. In process the client makes the staged file durable; over HTTP the server does.

    - `one client`: one process on one table.
    - `8 tables`: eight processes, a table each. Over HTTP also by `serve --workers 2`: one worker is one Python
      process, which uses little more than one core.
    - `one table`: eight clients race for every version, in process in the owner's queue. A loser stages again.
      `slowest / fastest` compares how many commits each client landed.
    - `processor time` of a landed commit is shown for each part: the clients, the server's event loop, which does the
      HTTP work in the main thread, and the server's other threads, where the owner works.

    Other load lowers the rates, above all over HTTP, because a commit there waits for two processes. It hardly changes
    the processor time. On one table all steps happen one after the other. A client that gets its turn loses a proposal
    first, and is answered with the table; then it lands several commits while it proposes at once. With TMPDIR on a
    file system in memory, the figures show the rest when syncing costs nothing.
    """
    yield {"all": partial(_measured, options.seconds)}


def _measured(seconds: float) -> dict[str, float]:
    """The figures of one round."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        names = [f"t{index}" for index in range(CLIENTS)]
        with refimpl.open(directory, create=True) as warehouse:
            for name in (*names, SHARED):
                policy = MaintenancePolicy(backfill_every=SERVER_PUBLISHES_AFTER, backlog_limit=10_000)
                warehouse.create_table(name, pa.schema([("id", pa.int64())]), policy=policy)
        with started(*SERVE, directory) as (process, url):
            tables_of = {"one client": names[:1], "8 tables": names, "one table": [SHARED] * CLIENTS}
            for label, tables in tables_of.items():
                for where, kind, address in (("in process", InProcess, directory), ("over HTTP", OverHttp, url)):
                    before = processor_seconds(process.pid)
                    landed, clients = run(kind, address, tables, seconds)
                    after = processor_seconds(process.pid)
                    loop, threads = (now - then for now, then in zip(after, before, strict=True))
                    used = {"clients": clients}
                    if kind is OverHttp:
                        used |= {"the event loop": loop, "the owner's threads": threads}
                    figures[f"{label}, {where} (commits/s)"] = sum(landed) / seconds
                    for part, spent in used.items():
                        figures[f"{label}, {where}, processor time of {part} (ms)"] = spent / sum(landed) * 1000
            figures["one table, slowest / fastest"] = min(landed) / max(landed)
        with started(*SERVE, directory, "--workers", "2") as (_, url):
            landed, _ = run(OverHttp, url, names, seconds)
            figures["8 tables, two workers (commits/s)"] = sum(landed) / seconds
    return figures
