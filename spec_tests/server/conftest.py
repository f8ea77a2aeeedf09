"""Servers in this process: called through ASGI, or listening on a port; each on its own warehouse."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import uvicorn
from starlette.testclient import TestClient

import refimpl
from refimpl.client.table import Table
from refimpl.protocol.commit_owner import MaintenancePolicy
from refimpl.protocol.table_feature import CommitMode
from refimpl.server.application import Limits, Server
from refimpl.server.names import Names
from refimpl.server.serving import Serving, configuration, open_listener
from spec_tests.server.wire import WireTable
from spec_tests.support.faults import Faults

Serve = Callable[..., TestClient]
Listen = Callable[..., str]


SCHEMA = pa.schema({"id": pa.int64(), "day": pa.int32()})


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "day": pa.array([number % 2 for number in ids], pa.int32())}, schema=SCHEMA)


def ids_in(table: Any, **which: Any) -> list[int]:
    return sorted(table.snapshot(**which).to_arrow()["id"].to_pylist())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


def _server(
    stack: ExitStack, directory: Path, *, environment: Any = None, schemas: tuple[str, ...] = (),
    limits: Limits | None = None, always_token: bool = False, **policy: Any,
) -> Server:  # fmt: skip
    """A server on the warehouse; by default, it does not wait for the disk. Several servers may share the warehouse.
    Tables that the server creates are published only on request, unless the policy has another rule."""
    warehouse = refimpl.open(directory, environment=environment or Faults().environment(), create=True)
    rules = MaintenancePolicy(**{"backfill_every": None, **policy})
    server = Server(warehouse, Names("unity", schemas), policy=rules, limits=limits, always_token=always_token)
    stack.callback(server.close)
    return server


@pytest.fixture
def serve(directory: Path) -> Iterator[Serve]:
    """Makes a server, with the options of `_server`, and returns its client, which calls it through ASGI."""
    with ExitStack() as stack:

        def started(**options: Any) -> TestClient:
            server = _server(stack, directory, **options)
            client = TestClient(server.application, base_url="http://127.0.0.1", raise_server_exceptions=True)
            client.app_state["server"] = server
            return stack.enter_context(client)

        yield started


@pytest.fixture
def listen(directory: Path) -> Iterator[Listen]:
    """Starts a server, with the options of `_server`, that listens on a port of this host, and returns its URL."""
    with ExitStack() as stack:

        def started(directory: Path = directory, **options: Any) -> str:
            return stack.enter_context(_listening(_server(stack, directory, **options), directory))

        yield started


@contextmanager
def _listening(server: Server, directory: Path) -> Iterator[str]:
    socket = open_listener("127.0.0.1", 0)
    running = uvicorn.Server(
        configuration(server.application, Serving(warehouse=directory, log_level="error", stop_seconds=1))
    )
    thread = threading.Thread(target=running.run, kwargs={"sockets": [socket]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join()


@pytest.fixture
def http(serve: Serve) -> TestClient:
    return serve()


@pytest.fixture
def table(http: TestClient) -> WireTable:
    """A table with version 0, created over HTTP."""
    return WireTable(http).create()


def inline_table(warehouse: refimpl.Warehouse) -> Table:
    """`orders` with one unpublished inline commit, which the API cannot express."""
    table = warehouse.create_table(
        "orders",
        pa.schema([("id", pa.int64())]),
        commit_mode=CommitMode.INLINE,
        policy=MaintenancePolicy(backfill_every=None),
    )
    table.append(pa.table({"id": [1]}))
    return table


@pytest.fixture
def warehouse(directory: Path) -> Iterator[refimpl.Warehouse]:
    """The same warehouse for local use."""
    with refimpl.open(directory, create=True) as opened:
        yield opened
