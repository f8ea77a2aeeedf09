"""Durable commits over HTTP against the same commits on the ledger directly.

    python -m spec_tests.benchmarks.server

Each try stages a file of one small commit and proposes it. The owner publishes as often as the server does by default.
In process the client makes the staged file durable; over HTTP the server does. The figures are commits per second.

- `one client`: one process on one table.
- `8 tables`: eight processes, a table each. Over HTTP also with two servers on the warehouse, four tables each: one
  server is one Python process, which uses little more than one core.
- `one table`: eight clients race for every version, in process in the owner's queue. A loser stages again. `slowest /
  fastest` compares how many commits each client landed.
- `processor time` of a landed commit is shown for each part: the clients, the server's event loop, which does the HTTP
  work in the main thread, and the server's other threads, where the owner works.
- `bound` is the least time for the steps of a commit on one table: the syncs, with the disk alone, and the requests,
  with the same HTTP library and an application that does nothing. The syncs are of a staged file and its folder, side
  by side, and then of a log that is overwritten again and again.

Other load lowers the rates, above all over HTTP, because a commit there waits for two processes. It hardly changes the
processor time. On one table all steps happen one after the other. A client that gets its turn loses a proposal first,
and is answered with the table; then it lands several commits while it proposes at once. With TMPDIR on a file system
in memory, the figures show the rest when syncing costs nothing.
"""

import contextlib
import http.client
import itertools
import json
import os
import sys
import tempfile
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pyarrow as pa
import uvicorn

import refimpl
from refimpl.catalog.messages import SERVER_PUBLISHES_AFTER
from refimpl.protocol.commit_owner import MaintenancePolicy
from refimpl.protocol.commits import Conflict, Ratified, StagedProposal
from refimpl.server.scheduling import SideBySide
from refimpl.server.serving import Serving, bound, configuration
from refimpl.storage.log_store import LogStore
from spec_tests.benchmarks import measure, table
from spec_tests.support.serving import SERVE, started

DELTA = "/api/2.1/unity-catalog/delta/v1/catalogs/unity/schemas/default/tables"
CLIENTS = 8
SHARED = "shared"
START = 4_000_000_000_000
"""ms; later than any clock, so that a version's time depends only on the version."""


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
        name = self._log.stage("_staged_commits", version, attempt, table.one_add(START + version))
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
        self._path = f"{DELTA}/{name}"
        metadata = self._call("GET")[1]["metadata"]
        self._uuid = metadata["table-uuid"]
        self._folder = Path(urlsplit(metadata["location"]).path) / "_delta_log" / "_staged_commits"

    def _call(self, method: str, body: Any = None) -> tuple[int, Any]:
        headers = {"content-type": "application/json", "prefer": "return=representation"}
        self._connection.request(method, self._path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def latest(self) -> int:
        latest, self._latest = self._latest, None
        return self._call("GET")[1]["latest-table-version"] if latest is None else latest

    def turn(self) -> contextlib.AbstractContextManager[bool]:
        """The server orders the clients itself."""
        return contextlib.nullcontext(False)

    def propose(self, version: int) -> bool:
        content = table.one_add(START + version)
        name = f"{version:020d}.{uuid.uuid4()}.json"
        (self._folder / name).write_bytes(content)
        commit = {"version": version, "timestamp": START + version, "file-name": name, "file-size": len(content),
                  "file-modification-timestamp": START}  # fmt: skip
        body = {
            "requirements": [{"type": "assert-table-uuid", "uuid": self._uuid}],
            "updates": [{"action": "add-commit", "commit": commit}],
        }
        status, answer = self._call("POST", body)
        assert status in (200, 409), answer
        if status == 409:
            self._latest = answer["table"]["latest-table-version"]
        return status == 200


def client(kind: type[InProcess | OverHttp], address: str, name: str, seconds: float, ready: Any, results: Any) -> None:
    """Land as many commits as possible. A single writer does not queue."""
    proposer = kind(address, name)
    while not proposer.propose(proposer.latest() + 1):  # the other clients would wait for one that gave up
        pass
    ready.wait()
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
    results.put((landed, time.process_time() - used))


def run(
    kind: type[InProcess | OverHttp], addresses: list[str], names: list[str], seconds: float
) -> tuple[list[int], float]:
    """The number of commits of each client, and the seconds of processor time of all clients. The clients take the
    addresses in turn."""
    clients = [(kind, address, name) for address, name in zip(itertools.cycle(addresses), names)]
    commits = measure.at_once(client, seconds, clients)
    return [landed for landed, _ in commits], sum(used for _, used in commits)


def processor_seconds(server: int) -> tuple[float, float]:
    """The processor time of the server's event loop, and of all its other threads."""
    used = {thread.id: thread.user_time + thread.system_time for thread in psutil.Process(server).threads()}
    return used.pop(server), sum(used.values())


def syncs(directory: str, seconds: float) -> float:
    """How often per second the disk can do the syncs of a staged commit, one commit after the other."""
    folder, content, record = Path(directory) / "raw", table.one_add(START), bytes(4 * 4096)
    together = SideBySide()
    folder.mkdir()
    folder_fd = os.open(folder, os.O_RDONLY)
    log = os.open(Path(directory) / "raw-log", os.O_RDWR | os.O_CREAT)
    count, start = 0, time.perf_counter()
    while time.perf_counter() < start + seconds:
        staged = os.open(folder / str(count), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(staged, content)
        together(partial(os.fsync, staged), partial(os.fsync, folder_fd))
        os.close(staged)
        os.pwrite(log, record, count % 500 * len(record))  # the ledger's log starts again, too
        os.fdatasync(log)
        count += 1
    took = time.perf_counter() - start
    os.close(folder_fd)
    os.close(log)
    return count / took


ANSWER = bytes(1500)


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads a request and sends an empty answer."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})


def echo() -> None:
    """Serve `nothing` with the HTTP library and the settings of the server."""
    listener = bound("127.0.0.1", 0)
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    uvicorn.Server(configuration(nothing, Serving(warehouse=Path()))).run(sockets=[listener])


def requests(seconds: float) -> float:
    """How many requests per second a server that does nothing answers to one client, one after the other."""
    body = json.dumps({"updates": ["x" * 400]})
    with started("-c", "from spec_tests.benchmarks.server import echo; echo()") as (_, url):
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        count, start = 0, time.perf_counter()
        while time.perf_counter() < start + seconds:
            connection.request("POST", f"{DELTA}/t0", body, {"content-type": "application/json"})
            connection.getresponse().read()
            count += 1
        took = time.perf_counter() - start
        connection.close()
    return count / took


def main() -> int:
    options = measure.arguments(__doc__ or "", rounds=3, seconds=4)
    report = measure.Report("durable add-commit over HTTP")
    rate, used = dict[str, list[float]](), dict[str, list[float]]()
    limit, reached = dict[str, list[float]](), dict[str, list[float]]()
    starved, in_all = list[float](), list[float]()
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory() as directory:
            names = [f"t{index}" for index in range(CLIENTS)]
            with refimpl.open(directory, create=True) as warehouse:
                for name in (*names, SHARED):
                    policy = MaintenancePolicy(backfill_every=SERVER_PUBLISHES_AFTER, backlog_limit=10_000)
                    warehouse.create_table(name, pa.schema([("id", pa.int64())]), policy=policy)
            disk, echoed = syncs(directory, options.seconds / 2), requests(options.seconds / 2)
            limit.setdefault("the syncs of a commit, one after the other", []).append(disk)
            limit.setdefault("requests that do nothing, one after the other", []).append(echoed)
            with started(*SERVE, directory) as (server, url):
                tables_of = {"one client": names[:1], "8 tables": names, "one table": [SHARED] * CLIENTS}
                for label, tables in tables_of.items():
                    for kind, address in ((InProcess, directory), (OverHttp, url)):
                        before = processor_seconds(server.pid)
                        landed, by_clients = run(kind, [address], tables, options.seconds)
                        rate.setdefault(f"{label}, {kind.__name__}", []).append(sum(landed) / options.seconds)
                        after = processor_seconds(server.pid)
                        loop, threads = (now - then for now, then in zip(after, before, strict=True))
                        parts = {"clients": by_clients}
                        if kind is OverHttp:
                            parts |= {"the event loop": loop, "the owner's threads": threads}
                        for part, seconds in parts.items():
                            name = f"{label}, {kind.__name__}, processor time of {part}"
                            used.setdefault(name, []).append(seconds / sum(landed) * 1000)
                    if label == "one client":
                        of_http = sum(v[-1] for name, v in used.items() if OverHttp.__name__ in name)
                        direct = sum(v[-1] for name, v in used.items() if InProcess.__name__ in name)
                        in_all.append(of_http / direct)
                starved.append(min(landed) / max(landed))
                with started(*SERVE, directory) as (_, second):
                    landed, _ = run(OverHttp, [url, second], names, options.seconds)
                    rate.setdefault("8 tables, two servers", []).append(sum(landed) / options.seconds)
            for label in ("one client", "one table"):
                least = 1 / disk + 1 / echoed
                reached.setdefault(label, []).append(rate[f"{label}, OverHttp"][-1] * least)
        measure.progress(f"round {number + 1}: " + ", ".join(f"{name} {v[-1]:.0f}/s" for name, v in rate.items()))
    for name, values in rate.items():
        report.add(name, values, "commits/s", **({"at_least": 300} if name == "one table, OverHttp" else {}))
    for label, target in (("one client", 0.5), ("8 tables", 1.0)):
        over_http, in_process = rate[f"{label}, OverHttp"], rate[f"{label}, InProcess"]
        report.add_ratio(f"{label}, over HTTP / in process", over_http, in_process, at_least=target)
    report.add_ratio("8 tables, two servers / in process", rate["8 tables, two servers"], rate["8 tables, InProcess"])
    report.add_all(limit, "per s")
    report.add_all(reached, "x", "{}, over HTTP / bound")
    report.add_all(used, "ms/commit")
    report.add("one client, processor time over HTTP / in process", in_all, "x")
    report.add("one table, slowest / fastest client", starved, "x", at_least=0.2)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
