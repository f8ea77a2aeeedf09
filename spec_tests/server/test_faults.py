"""Failing disks, killed servers, two servers on one directory, and events between two steps of one request: nothing
acknowledged is lost, nothing lands twice."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx2
import psutil
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import refimpl
from refimpl.owner import decide
from refimpl.protocol.commit_owner import TableState
from refimpl.protocol.commits import Landed, StagedProposal
from refimpl.protocol.errors import OutcomeUnknown, OwnerUnavailableError
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode
from refimpl.served.catalog_requests import CatalogRequests
from refimpl.server import scheduling
from refimpl.server.application import Server
from refimpl.storage.environment import Environment
from spec_tests.server.conftest import Serve
from spec_tests.server.wire import BAD, NO_TABLE, UNAVAILABLE, UNKNOWN, VERSION_CONFLICT, Staged, WireTable, refusal
from spec_tests.support import faults as disk
from spec_tests.support.builders import START, append, create
from spec_tests.support.faults import disk_is_broken, disk_is_full, read_only
from spec_tests.support.serving import SERVE, started

# The disk


class Faults(disk.Faults):
    """The effects of requests, without the sync when a thread of the server opens the ledger for its first request."""

    def effect(self, name: str, act: Callable[[], Any], torn: Callable[[], object] | None = None) -> Any:
        return act() if name == "fsync _owner/" else super().effect(name, act, torn)


@pytest.mark.parametrize("error", [read_only, disk_is_full], ids=lambda error: error.__name__)
def test_read_only_warehouse_still_answers_readers(serve: Serve, error: Any, warehouse: refimpl.Warehouse) -> None:
    table = WireTable(serve()).create()
    table.land(1)
    before = table.state()
    faults = Faults()
    failing = serve(environment=faults.environment())
    failing.get(table.url)  # opens the thread's connection
    faults.fail(0, error=error)
    staged = table.write_staged(2)
    table.http = failing
    for _ in range(3):
        assert refusal(table.propose(staged)) == UNAVAILABLE
    assert refusal(failing.post(f"{table.base}/staging-tables", json={"name": "more"})) == UNAVAILABLE
    faults.fail(None)
    assert table.state() == before
    assert table.propose(staged).status_code == 200


def test_commit_succeeds_on_resend_after_any_failed_effect(serve: Serve) -> None:
    """After any failed effect, and whether or not the commit landed, the identical request succeeds."""
    statuses: set[int] = set()
    for number in range(1, 8):
        faults = Faults()
        table = WireTable(serve(environment=faults.environment()), f"t{number}").create()
        staged = table.write_staged(1)
        faults.fail(number - 1, count=1, error=disk_is_broken)
        first = table.propose(staged)
        statuses.add(first.status_code)
        faults.fail(None)
        assert table.propose(staged).status_code == 200
        assert table.state()[0] == 1
        assert refusal(table.propose(table.write_staged(1))) == VERSION_CONFLICT
    assert {200, 503} <= statuses


def test_folders_of_a_new_table_are_durable_before_it_has_its_name(serve: Serve) -> None:
    """The creator created the folders without a sync."""
    folders = ["mkdir t/", "fsync warehouse/", "mkdir _delta_log/", "fsync t/", "mkdir _staged_commits/",
               "fsync _delta_log/"]  # fmt: skip
    faults = Faults()
    http = serve(environment=faults.environment())
    for number in range(len(folders) + 1):
        table = WireTable(http, f"t{number}").prepared()
        before = len(faults.seen)
        faults.fail(number, count=int(number < len(folders)), error=disk_is_broken)
        answer = table.register()
        seen = [effect.replace(table.name, "t") for effect in faults.seen[before:]]
        if number < len(folders):
            assert refusal(answer) == UNAVAILABLE
            assert seen == folders[: number + 1]
            answer = table.register()
        else:
            assert seen[: number + 1] == [*folders, "commit"]
        assert answer.status_code == 200


def test_staged_file_is_rewritten_after_a_failed_fsync(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client repeats its request. A second fsync of the same file could succeed without writing. The file has the
    maximum size."""
    faults = Faults()
    table = WireTable(serve(environment=faults.environment())).create()
    staged = table.write_staged(1)
    monkeypatch.setattr(decide, "size_limit", lambda _: len(staged.content))
    faults.fail(0, count=1, error=disk_is_broken)
    assert refusal(table.propose(staged)) == UNAVAILABLE
    assert faults.seen[-2:] == ["fsync staged", "create temporary"]
    before = len(faults.seen)
    assert table.propose(staged).status_code == 200
    assert faults.seen[before:] == [
        "create temporary", "write temporary", "fsync temporary", "replace staged", "fsync _staged_commits/",
        "unlink temporary", "commit",
    ]  # fmt: skip
    assert staged.path.read_bytes() == staged.content
    monkeypatch.undo()
    table.land(2)


@pytest.mark.parametrize("marked", [True, False], ids=["another server", "the disk is full"])
def test_a_failed_fsync_is_known_to_every_server(serve: Serve, marked: bool) -> None:
    """The repeated request may reach another server, or the same one after a restart. If the disk does not take the
    mark, only the process knows."""
    faults = [Faults(), Faults()]
    table = WireTable(serve(environment=faults[0].environment())).create()
    other = serve(environment=faults[1].environment())
    staged = table.write_staged(1)
    faults[0].fail(0, count=1 if marked else 2, error=disk_is_broken)
    assert refusal(table.propose(staged)) == UNAVAILABLE
    repeated, before = faults[1 if marked else 0], [len(fault.seen) for fault in faults]
    if marked:
        table.http = other
    assert table.propose(staged).status_code == 200
    assert "replace staged" in repeated.seen[before[faults.index(repeated)] :]
    assert list((table.location / "_delta_log").glob(".tmp-*")) == []


def test_request_repeated_during_a_failing_fsync_rewrites_the_file(tmp_path: Path) -> None:
    """The client does not wait for a disk that takes long to fail. Its second request must not trust a second fsync."""
    files = disk.FailingFiles()
    with refimpl.open(tmp_path / "w", environment=Environment(files=files), create=True) as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
        staged = table.propose(1, append(START + 1))
        assert isinstance(staged, StagedProposal)
        syncs: list[Path] = []

        def fails(operation: str, path: Path) -> bool:
            if operation == "fsync" and path.name == staged.file_name:
                syncs.append(path)
                if len(syncs) == 1:
                    warehouse.owner.make_staged_durable(table.table_id, staged.file_name)
                    return True
            return False

        files.fail_when = fails
        with pytest.raises(OwnerUnavailableError):
            warehouse.owner.make_staged_durable(table.table_id, staged.file_name)
        assert ("replace", syncs[0]) in files.done
        assert len(syncs) == 1
        for _ in range(2):
            warehouse.owner.make_staged_durable(table.table_id, staged.file_name)
        assert len(syncs) == 2, "the file is durable again, so it need not be written again"


def test_a_staged_file_is_durable_before_it_is_ratified(serve: Serve) -> None:
    """Clients write the file without a sync."""
    faults = Faults()
    table = WireTable(serve(environment=faults.environment())).create()
    staged = table.write_staged(1)
    before = len(faults.seen)
    assert table.propose(staged).status_code == 200
    assert faults.seen[before:] == ["fsync staged", "fsync _staged_commits/", "commit"]


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "not marked"])
def test_every_staged_file_with_a_failed_fsync_is_rewritten(serve: Serve, marked: bool) -> None:
    """Rewriting one file does not count for another file."""
    faults = Faults()
    table = WireTable(serve(environment=faults.environment())).create()
    first, second = table.write_staged(1), table.write_staged(2)
    for staged in (second, first):  # `second` is a gap, which another commit may fill
        faults.fail(0, count=1 if marked else 2, error=disk_is_broken)
        assert refusal(table.propose(staged)) == UNAVAILABLE
    for staged in (first, second):
        before = len(faults.seen)
        assert table.propose(staged).status_code == 200
        assert "replace staged" in faults.seen[before:]


def test_two_servers_on_a_warehouse_ratify_each_version_once(serve: Serve) -> None:
    """Four clients on two servers race for ten versions. A loser loads the table, and tries the next version."""
    servers = [serve(), serve()]
    first = WireTable(servers[0]).create()
    landed: list[tuple[int, str]] = []

    def client(number: int) -> None:
        mine = WireTable(servers[number % 2])
        mine.table_id, mine.location = first.table_id, first.location
        while (version := mine.state()[0] + 1) <= 10:
            staged = mine.write_staged(version)
            answer = mine.propose(staged)
            if answer.status_code == 200:
                landed.append((version, staged.name))
            else:
                assert refusal(answer) == VERSION_CONFLICT, answer.text

    with ThreadPoolExecutor(4) as clients:
        list(clients.map(client, range(4)))
    assert sorted(version for version, _ in landed) == list(range(1, 11))
    listed = first.load()["commits"]
    assert [(c["version"], c["file-name"]) for c in reversed(listed)] == sorted(landed)
    assert servers[1].delete(first.url).status_code == 204
    assert servers[0].get(first.url).status_code == 404


# Several servers


def test_closing_server_finishes_running_calls(directory: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve) -> None:
    """It finishes them before it closes the ledger, and reports whether all ended in time."""
    table = WireTable(serve()).create()
    staged = table.write_staged(1)
    server: Server = table.http.app_state["server"]
    entered, leave, steps = threading.Event(), threading.Event(), list[str]()
    commit, close_reads = server._warehouse.owner.commit_if, server._reads.close

    def slow(*words: Any) -> Any:
        entered.set()
        assert leave.wait(120)
        outcome = commit(*words)
        steps.append("committed")
        return outcome

    def close_and_let_go_on(seconds: float) -> bool:
        leave.set()
        return close_reads(seconds)

    monkeypatch.setattr(server._warehouse.owner, "commit_if", slow)
    soon = scheduling.GRACE_SECONDS
    monkeypatch.setattr(
        server._warehouse, "close", lambda: steps.append("closed" if scheduling._seconds_left() <= soon else "waits")
    )
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(table.propose, staged)
        assert entered.wait(120)
        assert not server.close(0.0)
        monkeypatch.setattr(server._reads, "close", close_and_let_go_on)
        assert server.close(20.0)
        assert steps == ["closed", "committed", "closed"]
        assert asking.result().status_code == 200
    with refimpl.open(directory, create=True) as warehouse:
        assert warehouse.owner.get_commits(table.table_id).latest_ratified_version == 1


# Events between two steps of one request


def server_of(http: TestClient) -> Server:
    server: Server = http.app_state["server"]
    return server


def between(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, act: Callable[[], object]) -> None:
    """Run `act` once, right after the next call of `place.name`."""
    original = getattr(target, name)
    acted: list[bool] = []

    def called(*words: Any, **more: Any) -> Any:
        result = original(*words, **more)
        if not acted:
            acted.append(True)
            act()
        return result

    monkeypatch.setattr(target, name, called)


# A commit whose predecessor lands while the owner decides on it


def test_former_gap_is_made_durable_before_it_lands(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults()
    table = WireTable(serve(environment=faults.environment())).create()
    first, second = table.write_staged(1), table.write_staged(2)
    between(monkeypatch, CatalogRequests, "look_up", lambda: table.propose(first))
    before = len(faults.seen)
    assert table.propose(second).status_code == 200
    assert faults.seen[before:].count("fsync staged") == 2
    assert table.state()[0] == 2


def test_link_is_no_staged_file_of_a_former_gap(table: WireTable, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = table.write_staged(1), table.write_staged(2)
    elsewhere = table.location.parent / "elsewhere.json"
    second.path.rename(elsewhere)
    second.path.symlink_to(elsewhere)
    between(monkeypatch, CatalogRequests, "look_up", lambda: table.propose(first))
    assert refusal(table.propose(second)) == BAD
    assert table.state()[0] == 1


# A landed commit or creation is never reported as failed


@pytest.mark.parametrize("fate", ["unavailable", "dropped", "created"])
def test_commit_that_cannot_be_described_is_unknown(
    http: TestClient, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    """503 would mean that nothing changed, and 404 that the table does not exist."""
    table, api = WireTable(http).prepared(), server_of(http)._delta
    staged = None
    if fate != "created":
        assert table.register().status_code == 200
        staged = table.write_staged(1)

    def send() -> Any:
        return table.register() if staged is None else table.propose(staged)

    def spoil() -> None:
        if fate == "dropped":
            warehouse.owner.drop_table(table.table_id)
        else:
            patched.setattr(api.owner, "describe", Mock(side_effect=OwnerUnavailableError("the disk does not answer")))

    with monkeypatch.context() as patched:
        between(patched, api.owner, "register_table" if staged is None else "commit_if", spoil)
        assert refusal(send()) == UNKNOWN
    with warehouse.owner.ledger.read() as view:
        record = view.table(table.table_id)
        assert record is not None
        assert record.latest == (0 if staged is None else 1)
    assert (send().status_code == 200) is (fate != "dropped")


def test_commit_to_a_table_that_is_renamed_meanwhile_is_answered_with_it(
    table: WireTable, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, staged = server_of(table.http)._delta, table.write_staged(1)
    between(
        monkeypatch, api.owner, "commit_if",
        lambda: warehouse.owner.rename_table(table.table_id, "sales", before="orders"),
    )  # fmt: skip
    answer = table.propose(staged)
    assert (answer.status_code, answer.json().get("latest-table-version")) == (200, 1)
    assert refusal(table.propose(staged)) == UNKNOWN


def test_published_version_that_the_ledger_lacks_is_in_the_answer(table: WireTable) -> None:
    staged = table.land(1)
    foreign = table.location / "_delta_log" / f"{2:020d}.json"
    foreign.write_bytes(staged.content)
    assert table.state()[:2] == (2, [1])
    foreign.unlink()
    assert table.state()[:2] == (1, [1])


# Dropped tables, and tables that do not exist yet


@pytest.mark.parametrize("by_full_name", [False, True])
def test_the_second_of_two_drops_finds_no_table(
    table: WireTable, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch, by_full_name: bool
) -> None:
    api = server_of(table.http)._delta
    between(monkeypatch, api, "describe", lambda: warehouse.owner.drop_table(table.table_id))
    url = "/api/2.1/unity-catalog/tables/unity.default.orders" if by_full_name else table.url
    assert refusal(table.http.delete(url)) == NO_TABLE
    assert refusal(table.http.get(table.url)) == NO_TABLE


def test_unfinished_take_over_is_not_found(table: WireTable, warehouse: refimpl.Warehouse) -> None:
    """Its name is taken, but it has no version until the owner keeps its promise."""
    other = WireTable(table.http, "invoices")
    other.stage()
    owner = warehouse.owner
    with owner.lock(), owner.ledger.write() as writer:
        record = writer.table(other.table_id)
        assert record is not None
        writer.set(record, state=TableState.TAKING_OVER)
    assert refusal(other.http.get(other.url)) == NO_TABLE
    assert other.http.head(other.url).status_code == 404
    assert refusal(other.propose(other.staged_nowhere(1))) == NO_TABLE
    assert table.state()[0] == 0


# Real processes


KILLED = """
import os, signal, sys
from pathlib import Path
from refimpl.protocol.commits import Ratified
from refimpl.served.catalog_requests import CatalogRequests
from refimpl.server.serving import Serving, serve

original, fatal = CatalogRequests.commit_if, int(sys.argv[2])

def commit_if(self, table_id, version, *more):
    outcome = original(self, table_id, version, *more)
    if version == fatal and isinstance(outcome, Ratified):
        os.kill(os.getpid(), signal.SIGKILL)
    return outcome

CatalogRequests.commit_if = commit_if
serve(Serving(warehouse=Path(sys.argv[1]), log_level="error"))
"""
"""A server that kills itself after it has ratified one given version, before it answers."""


@pytest.mark.processes
def test_commit_of_a_killed_server_is_resolved_at_the_next_one(tmp_path: Path) -> None:
    """A client without an answer sends the request again, or resolves it, as another process does that knows only the
    attempt id. The rows stay."""
    directory = tmp_path / "warehouse"
    refimpl.open(directory, create=True).close()
    impatient = Environment(pause=lambda seconds: None)
    with started("-c", KILLED, directory, "2") as (server, url):
        with refimpl.open(url, environment=impatient) as remote:
            table = remote.create_table("orders", pa.schema({"id": pa.int64()}))
            table.append(pa.table({"id": [1]}))
            with pytest.raises(OutcomeUnknown) as unknown:
                table.append(pa.table({"id": [2]}))
            with pytest.raises(OutcomeUnknown, match="ask again"):
                remote.owner.attempt_outcome(table.table_id or "", unknown.value.attempt)
        assert server.wait(120) == -signal.SIGKILL
    with started(*SERVE, directory) as (_, url), refimpl.open(url) as remote:
        outcome = remote.owner.attempt_outcome(table.table_id or "", unknown.value.attempt)
        assert isinstance(outcome, Landed)
        assert outcome.commit.version == 2
        (content,) = table.log.read_staged("_staged_commits", outcome.commit.file_name or "").splitlines()[:1]
        repeated = Staged(
            version=2, name=outcome.commit.file_name or "", path=Path(), content=b"x" * outcome.commit.size,
            timestamp=json.loads(content)["commitInfo"]["inCommitTimestamp"],
        )  # fmt: skip
        with httpx2.Client(base_url=url, timeout=120) as client:
            wire = WireTable(client)
            wire.table_id, wire.location = table.table_id or "", table.location
            assert wire.propose(repeated).status_code == 200
            assert refusal(wire.propose(wire.write_staged(2))) == VERSION_CONFLICT
        handle = remote.table("orders")
        handle.append(pa.table({"id": [3]}))
        assert sorted(handle.snapshot().to_arrow()["id"].to_pylist()) == [1, 2, 3]


def workers(server: subprocess.Popen[str]) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(server.pid).children():
        with suppress(psutil.Error):  # it has just ended
            if "resource_tracker" not in "".join(child.cmdline()):
                found.append(child)
    return found


@pytest.mark.processes
@pytest.mark.parametrize("end, status", [("terminate", 0), ("kill", -signal.SIGKILL)])
def test_workers_that_end_are_replaced_and_end_with_the_server(tmp_path: Path, end: str, status: int) -> None:
    directory = tmp_path / "warehouse"
    refimpl.open(directory, create=True).close()
    with started(*SERVE, directory, "--workers", "2") as (server, url):
        with refimpl.open(url) as remote:
            remote.create_table("orders", pa.schema({"id": pa.int64()})).append(pa.table({"id": [1]}))
        first, second = workers(server)
        first.kill()
        second.terminate()
        psutil.wait_procs((first, second), timeout=120)
        with refimpl.open(url) as remote:
            remote.table("orders").append(pa.table({"id": [2]}))
            assert sorted(remote.table("orders").snapshot().to_arrow()["id"].to_pylist()) == [1, 2]
        left = workers(server)
        assert left
        getattr(server, end)()
        assert server.wait(120) == status
        assert psutil.wait_procs(left, timeout=120)[1] == []


@pytest.mark.processes
def test_server_that_cannot_announce_itself_ends_its_workers(tmp_path: Path) -> None:
    directory = tmp_path / "warehouse"
    refimpl.open(directory, create=True).close()
    command = [sys.executable, *SERVE, str(directory), "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        server.stdout.close()
        assert server.wait(120) != 0
