"""`log`, `commits`, `explain`, `resolve`."""

import uuid

import pytest

from refimpl.cli.output import ExitCode
from refimpl.warehouse import Warehouse
from spec_tests.cli.conftest import CommandLine, commit_rows


def test_log_shows_each_version_newest_first(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    commit_rows(warehouse, sales, {"id": 1, "month": 1})
    printed = cli("log", sales, "--json").json
    assert [(entry["version"], entry["stored"]) for entry in printed] == [(1, "staged"), (0, "published")]
    assert printed[0]["commit_info"]["operationParameters"] == {"mode": "Append"}
    assert printed[0]["timestamp"] == printed[0]["commit_info"]["inCommitTimestamp"]
    assert [entry["version"] for entry in cli("log", sales, "--limit", "1", "--json").json] == [1]
    lines = cli("log", sales).out.splitlines()
    assert lines[1].split()[0] == "1"
    assert "mode=Append" in lines[1]


def test_log_limit_below_one_is_a_usage_error(cli: CommandLine, sales: str) -> None:
    assert cli("log", sales, "--limit", "0").code == ExitCode.USAGE


def test_commits_shows_what_the_owner_still_stores(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    """managed-commits, "Getting Un-backfilled Commits"; catalog-managed, "Getting Ratified Commits"."""
    attempts = [commit_rows(warehouse, sales, {"id": number, "month": 1}).attempt for number in range(3)]
    printed = cli("commits", sales, "--json").json
    assert printed["latest_ratified_version"] == 3
    assert [commit["attempt"] for commit in printed["commits"]] == attempts
    assert [commit["file_name"] for commit in printed["commits"]] == [
        f"{version:020d}.{attempt}.json" for version, attempt in enumerate(attempts, start=1)
    ]
    middle = cli("commits", sales, "--start", "2", "--end", "2", "--json").json
    assert [commit["version"] for commit in middle["commits"]] == [2]
    cli("backfill", sales)
    assert cli("commits", sales, "--json").json == {"latest_ratified_version": 3, "commits": []}


def test_an_inline_commit_is_marked_as_one(cli: CommandLine, warehouse: Warehouse) -> None:
    cli("create", "inline", "-c", "id INT", "--commit-mode", "inline", "--backfill-every", "never")
    commit_rows(warehouse, "inline", {"id": 1})
    (commit,) = cli("commits", "inline", "--json").json["commits"]
    assert (commit["commit_mode"], commit["inline"], commit["file_name"]) == ("inline", True, None)


@pytest.mark.parametrize("words", [("--start", "-1"), ("--start", "3", "--end", "1"), ("--start", "x")])
def test_a_range_without_versions_is_a_usage_error(cli: CommandLine, sales: str, words: tuple[str, ...]) -> None:
    assert cli("commits", sales, *words).code == ExitCode.USAGE


def test_explain_shows_each_step_with_its_rule(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    committed = commit_rows(warehouse, sales, {"id": 1, "month": 1})
    printed = cli("explain", sales, "1", "--json").json
    assert (printed["version"], printed["attempt"], printed["commit_mode"]) == (1, committed.attempt, "staged")
    assert printed["in_commit_timestamp"] == committed.in_commit_timestamp
    assert printed["published_at"] is None
    assert all(step["why"] and step["source"] for step in printed["steps"])
    text = cli("explain", sales, "1").out
    for step in printed["steps"]:
        assert step["title"] in text
        assert step["source"] in text
    cli("backfill", sales)
    assert cli("explain", sales, "1", "--json").json["published_at"] is not None


def test_a_version_that_is_not_ratified_cannot_be_explained(cli: CommandLine, sales: str) -> None:
    answer = cli("explain", sales, "1")
    assert answer.code == ExitCode.USAGE
    assert "latest is 0" in answer.err


def test_resolve_reports_a_landed_attempt(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    committed = commit_rows(warehouse, sales, {"id": 1, "month": 1})
    answer = cli("resolve", sales, committed.attempt, "--json")
    assert answer.code == ExitCode.OK
    assert (answer.json["landed"], answer.json["commit"]["version"]) == (True, 1)
    assert "version 1" in cli("resolve", sales, committed.attempt).out


def test_resolve_makes_not_landed_final(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    attempt = str(uuid.uuid4())
    answer = cli("resolve", sales, attempt, "--json")
    assert answer.code == ExitCode.REFUSED
    assert answer.json == {"attempt": attempt, "landed": False, "commit": None}
    assert "never will" in cli("resolve", sales, attempt).out
    assert warehouse.owner.resolve(sales).commits.latest_ratified_version == 0


def test_an_invalid_attempt_id_is_an_error(cli: CommandLine, sales: str) -> None:
    assert cli("resolve", sales, "7").code == ExitCode.USAGE
