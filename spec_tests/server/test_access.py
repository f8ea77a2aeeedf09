"""Tokens: the requests that they allow. No output shows a secret."""

import json
import logging
import os
import socket
import stat
from contextlib import nullcontext
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import refimpl
from refimpl.catalog.messages import is_loopback
from refimpl.cli.application import application
from refimpl.protocol.errors import InvalidRequestError, OwnerUnavailableError
from refimpl.server import serving
from refimpl.server.access import Scope, Tokens
from refimpl.server.serving import Serving, open_listener, serve
from refimpl.storage.environment import Environment, clock_ms
from spec_tests.server.conftest import Serve
from spec_tests.server.wire import CATALOG, DELTA, UNAVAILABLE, WireTable, refusal
from spec_tests.support.faults import Faults, Others, disk_is_broken

UNAUTHORIZED = (401, "NotAuthorizedException")


@pytest.fixture
def tokens(warehouse: refimpl.Warehouse) -> Tokens:
    return Tokens(warehouse)


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def test_requests_need_a_token_as_soon_as_there_is_one(table: WireTable, http: TestClient, tokens: Tokens) -> None:
    secret = tokens.add("pipeline", Scope.WRITE)
    staged = table.write_staged(1)
    for headers in (
        {},
        bearer(""),
        bearer("wrong"),
        bearer(secret + "x"),
        bearer(secret[:-1]),
        {"authorization": secret},
        {"authorization": f"Basic {secret}"},
        bearer("é".encode("latin-1").decode("latin-1")),
    ):
        answer = http.get(table.url, headers={k: v.encode("latin-1") for k, v in headers.items()})
        assert refusal(answer) == UNAUTHORIZED, headers
        assert answer.headers["www-authenticate"] == "Bearer"
    assert refusal(table.propose(staged)) == UNAUTHORIZED
    http.headers.update(bearer(secret))
    assert table.state()[0] == 0
    assert table.propose(staged).status_code == 200


def test_access_is_checked_before_anything_else(http: TestClient, tokens: Tokens) -> None:
    tokens.add("pipeline", Scope.WRITE)
    for method, path in (
        ("GET", "/nothing"),
        ("GET", f"{DELTA}/catalogs/nope/schemas/x/tables/y"),
        ("PUT", f"{DELTA}/catalogs/unity/schemas/default/tables"),
        ("GET", f"{CATALOG}/tables"),
    ):
        assert refusal(http.request(method, path)) == UNAUTHORIZED, path
    assert refusal(http.post(f"{WireTable(http).base}/tables", content=b"{")) == UNAUTHORIZED
    assert http.get("/health").status_code == 200


def test_added_or_removed_token_takes_effect_at_once_in_every_server(serve: Serve, tokens: Tokens) -> None:
    first, second = serve(), serve()
    secret = tokens.add("pipeline", Scope.WRITE)
    tokens.add("another", Scope.READ)
    for http in (first, second):
        assert http.get(f"{CATALOG}/catalogs", headers=bearer(secret)).status_code == 200
    tokens.remove("pipeline")
    for http in (first, second):
        assert refusal(http.get(f"{CATALOG}/catalogs", headers=bearer(secret))) == UNAUTHORIZED


def test_without_tokens_a_public_server_rejects_every_request(serve: Serve, tokens: Tokens) -> None:
    http = serve(always_token=True)
    secret = tokens.add("pipeline", Scope.WRITE)
    assert http.get(f"{CATALOG}/catalogs", headers=bearer(secret)).status_code == 200
    tokens.remove("pipeline")
    assert refusal(http.get(f"{CATALOG}/catalogs", headers=bearer(secret))) == UNAUTHORIZED
    tokens.path.unlink()
    assert refusal(http.get(f"{CATALOG}/catalogs")) == UNAUTHORIZED


def test_unreadable_token_file_rejects_every_request(serve: Serve, tokens: Tokens) -> None:
    """For example, a file of another user. No answer claims that a commit may have landed."""
    secret = tokens.add("pipeline", Scope.WRITE)
    faults = Faults()
    table = WireTable(serve(environment=faults.environment()))
    kept = tokens.path.rename(tokens.path.with_name("kept"))
    tokens.path.mkdir()
    for headers in ({}, bearer(secret)):
        assert refusal(table.http.post(table.url, json={}, headers=headers)) == UNAVAILABLE
    tokens.path.rmdir()
    kept.rename(tokens.path)
    assert table.http.get(f"{CATALOG}/catalogs", headers=bearer(secret)).status_code == 200


def test_token_file_has_only_a_hash_and_only_its_user_reads_it(tokens: Tokens) -> None:
    secret = tokens.add("pipeline", Scope.WRITE)
    kept = tokens.path.read_bytes()
    assert secret.encode() not in kept
    assert secret.removeprefix("dco_").encode() not in kept
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    assert tokens.add("another", Scope.READ) != secret


@pytest.mark.parametrize("change", ["add", "remove"])
def test_change_of_tokens_is_durable_before_it_is_reported(change: str, directory: Path, tokens: Tokens) -> None:
    """If an effect fails, the change is reported as failed, and either the old or the new tokens are in place."""
    effects = ["create .tokens.json.new", "write .tokens.json.new", "fsync .tokens.json.new", "replace tokens.json"]
    faults = Faults(error=disk_is_broken)
    ids = (f"new-{number}" for number in count())
    with refimpl.open(directory, environment=faults.environment(new_id=ids.__next__)) as failing:
        changed = Tokens(failing)
        for number in range(len(effects) + 2):
            tokens.add(f"old{number}", Scope.READ)
            known = [token.name for token in tokens.all()]
            faults.fail(number, count=1, error=disk_is_broken)
            before = len(faults.seen)
            with pytest.raises(OwnerUnavailableError) if number <= len(effects) else nullcontext():
                changed.add(f"new{number}", Scope.READ) if change == "add" else changed.remove(f"old{number}")
            assert faults.seen[before:] == [*effects, "fsync _owner/"][: number + 1]
            new = [*known, f"new{number}"] if change == "add" else known[:-1]
            assert [token.name for token in tokens.all()] == (known if number < len(effects) else new)
    assert [path.name for path in tokens.path.parent.glob(".tokens*")] == []  # the next change removes the temporary


@pytest.mark.parametrize("change", ["add", "remove"])
def test_changes_of_tokens_by_two_processes_follow_each_other(change: str, directory: Path, tokens: Tokens) -> None:
    tokens.add("old", Scope.READ)
    others = Others(before=lambda: tokens.add("before", Scope.READ), after=lambda: tokens.add("after", Scope.READ))
    with refimpl.open(directory, environment=Faults().environment(host_lock=others.lock)) as opened:
        changed = Tokens(opened)
        changed.add("new", Scope.READ) if change == "add" else changed.remove("old")
    expected = ["old", "before", "new", "after"] if change == "add" else ["before", "after"]
    assert [token.name for token in tokens.all()] == expected


def test_a_token_expires(http: TestClient, warehouse: refimpl.Warehouse, tokens: Tokens) -> None:
    """An expired token still exists, so the server does not accept requests without a token."""
    now = clock_ms()
    past = Tokens(warehouse)
    past._environment = Environment(now=lambda: now - 60_000)
    expired, valid = past.add("old", Scope.WRITE, valid_ms=60_000), past.add("new", Scope.WRITE, valid_ms=3_600_000)
    answer = http.get(f"{CATALOG}/catalogs", headers=bearer(expired))
    assert refusal(answer) == UNAUTHORIZED
    assert "expired" in answer.json()["error"]["message"]
    assert http.get(f"{CATALOG}/catalogs", headers=bearer(valid)).status_code == 200
    tokens.remove("new")
    assert refusal(http.get(f"{CATALOG}/catalogs")) == UNAUTHORIZED


def test_only_its_user_reads_the_owners_folder_and_ledger(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with refimpl.open(tmp_path / "warehouse", create=True) as warehouse:
            warehouse.create_table("t", pa.schema([("id", pa.int64())]))
            warehouse.owner.ledger.back_up(tmp_path / "copy")
            folder = warehouse.owner.ledger.path.parent
            ledger = [path for path in folder.iterdir() if path.name.startswith("ledger")]
            assert len(ledger) == 3
            for path in (*ledger, tmp_path / "copy"):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert stat.S_IMODE(warehouse.directory.stat().st_mode) == 0o777
    finally:
        os.umask(before)


def test_names_of_tokens_are_unique_and_plain(tokens: Tokens) -> None:
    tokens.add("pipeline", Scope.WRITE)
    for name in ("pipeline", "", "a b", "x" * 65, "a\nb"):
        with pytest.raises(InvalidRequestError):
            tokens.add(name, Scope.READ)
    with pytest.raises(InvalidRequestError):
        tokens.remove("unknown")
    assert [token.name for token in tokens.all()] == ["pipeline"]


def test_no_secret_gets_into_logs_or_errors(
    table: WireTable, http: TestClient, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tokens.add("pipeline", Scope.WRITE)
    seen: list[str] = []
    with caplog.at_level(logging.DEBUG, logger="refimpl"):
        for sent in (secret, "dco_wrong-secret"):
            http.headers.update(bearer(sent))
            answers = (http.get(table.url), http.get("/nothing"), table.send({"updates": []}))
            seen += [answer.text + str(answer.headers) for answer in answers]
    output = "".join((*seen, caplog.text))
    assert "pipeline" in caplog.text
    assert secret not in output
    assert "dco_wrong-secret" not in output


# Addresses


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True),
        ("0.0.0.0", False), ("::", False), ("192.168.1.5", False), ("example.org", False), ("", False),
    ],
)  # fmt: skip
def test_only_loopback_addresses_count_as_local(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_a_server_beyond_loopback_warns_of_plain_http(
    host: str, directory: Path, tokens: Tokens, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def run(_process: object, sockets: list[socket.socket]) -> None:
        for listener in sockets:
            listener.close()

    tokens.add("pipeline", Scope.WRITE)
    monkeypatch.setattr(serving, "open_listener", lambda _host, port: open_listener("127.0.0.1", port))
    monkeypatch.setattr(serving, "configure_logs", lambda level: None)
    monkeypatch.setattr(serving._Process, "run", run)
    serve(Serving(warehouse=directory, host=host))
    assert ("TLS" in caplog.text) is (host == "0.0.0.0")


# The commands


def test_commands_add_list_and_remove_tokens(directory: Path, warehouse: refimpl.Warehouse) -> None:
    def call(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(application, ["token", *words, "-w", str(directory)], prog_name="commit-owner")
        return result.exit_code, result.stdout

    code, secret = call("add", "pipeline", "--scope", "write")
    assert (code, secret[:4]) == (0, "dco_")
    code, output = call("add", "dashboard", "--json")
    assert (code, json.loads(output)["scope"]) == (0, "read")
    code, output = call("list", "--json")
    assert [(token["name"], token["scope"]) for token in json.loads(output)] == [
        ("pipeline", "write"),
        ("dashboard", "read"),
    ]
    assert secret.strip() not in output
    assert call("add", "brief", "--expires-in", "1h")[0] == 0
    brief = json.loads(call("list", "--json")[1])[-1]
    assert brief["expires_at"] - brief["added_at"] == 3_600_000
    assert call("add", "never", "--expires-in", "soon")[0] == 2
    assert call("remove", "pipeline")[0] == 0
    assert "pipeline" not in call("list")[1]
    assert call("remove", "pipeline")[0] == 2
    assert call("add", "x", "--scope", "all")[0] == 2
