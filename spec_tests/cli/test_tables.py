"""Commands about a table and its versions: `init`, `create` with columns in Spark's SQL, `show`, `drop`, `take-over`,
`hand-back`, `log`, `commits`, `resolve`. Commands that keep a warehouse in order: `backfill`, `checkpoint`,
`cleanup`, `policy`, `verify`, `repair`, `backup`.
"""

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import refimpl
from refimpl.care.verify import Finding, Severity
from refimpl.cli.application import application
from refimpl.cli.options import columns_of_sql
from refimpl.cli.output import ExitCode
from refimpl.client import ownership
from refimpl.client.create import create_filesystem_table
from refimpl.client.maintenance import write_checkpoint
from refimpl.client.table import Table
from refimpl.owner.local import LocalOwner
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import MaintenancePolicy, ResolvedTable, TableState
from refimpl.protocol.errors import InvalidRequestError, OwnerUnavailableError, TableNotFoundError
from refimpl.protocol.table_feature import COORDINATED_COMMITS
from refimpl.schema.schema import Struct
from refimpl.storage.environment import Environment
from refimpl.storage.log_store import LogStore
from refimpl.warehouse import Warehouse
from spec_tests.cli.conftest import CommandLine, commit_rows
from spec_tests.support.builders import first_version


def test_init_creates_or_keeps_a_warehouse(cli: CommandLine, tmp_path: Path) -> None:
    folder, root = tmp_path / "place", tmp_path / "root"
    root.mkdir()
    named = {"warehouse": str(folder), "name": "lake-2", "conf": {"warehouse": "w"}}
    first = cli("init", folder, "--name", "lake-2", "--conf", "warehouse=w", "--json")
    assert first.json == named | {"created": True, "roots": []}
    assert cli("create", "t", "-c", "id INT", "-w", folder).code == ExitCode.OK
    again = cli("init", folder, "--root", root, "--json")
    assert again.json == named | {"created": False, "roots": [str(root)]}
    for words in (("--name", "other"), ("--conf", "token=x"), ("--conf", "x")):
        assert cli("init", folder, *words).code == ExitCode.USAGE
    assert [table["name"] for table in cli("show", "-w", folder, "--json").json] == ["t"]


def test_create_makes_the_described_table(cli: CommandLine, warehouse: Warehouse) -> None:
    answer = cli(
        *("create", "shop.sales", "--columns", "id BIGINT NOT NULL, month INT, price DECIMAL(10,2)"),
        *("--partition-by", "month", "--feature", "managedcommit", "--commit-mode", "direct"),
        *("--property", "delta.appendOnly=true", "--json"),
    )
    assert answer.code == ExitCode.OK, answer.err
    made = answer.json
    assert (made["feature"], made["commit_mode"], made["latest_version"]) == ("managedCommit", "direct", 0)
    snapshot = warehouse.table("shop.sales").snapshot()
    assert str(snapshot.schema) == "struct<id:long,month:integer,price:decimal(10,2)>"
    assert not snapshot.schema["id"].nullable
    assert snapshot.partition_columns == ("month",)
    assert snapshot.metadata.configuration["delta.appendOnly"] == "true"


def test_show_lists_the_tables(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    commit_rows(warehouse, sales, {"id": 1, "month": 1})
    header, row = cli("show").out.splitlines()
    assert header.split() == ["name", "feature", "mode", "state", "version", "unpublished", "location"]
    assert row.split()[:6] == ["sales", "catalogManaged", "staged", "active", "1", "1"]
    assert [(table["name"], table["unbackfilled"]) for table in cli("show", "--json").json] == [("sales", 1)]


def test_show_of_an_empty_warehouse_names_the_next_step(cli: CommandLine, warehouse: Warehouse) -> None:
    assert "commit-owner create" in cli("show").out
    assert cli("show", "--json").json == []


def test_show_describes_state_and_columns(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    commit_rows(warehouse, sales, {"id": 1, "month": 1}, {"id": None, "month": 2})
    shown = cli("show", sales, "--json").json
    assert shown["owner"]["latest_version"] == 1
    assert shown["owner"]["state"] == TableState.ACTIVE.value
    assert shown["snapshot"]["rows"] == 2
    assert shown["snapshot"]["files"] == 2
    assert [column["name"] for column in shown["snapshot"]["columns"]] == ["id", "month"]
    assert "month integer" in cli("show", sales).out


def test_properties_and_types_are_changed(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    """In one commit, or not at all. DELTA.md#type-changes, DELTA.md#mapping-mode."""
    before = warehouse.table(sales).snapshot()
    wide = ("--property", "delta.enableTypeWidening=true", "--type", "month = DECIMAL(12, 2)")
    assert cli("alter", sales, *wide, "--json").json == {"table": sales, "version": before.version + 1}
    mapped = cli("alter", sales, "--property", "delta.columnMapping.mode=name")
    assert f"committed version {before.version + 2}" in mapped.out
    shown = cli("show", sales, "--json").json["snapshot"]
    assert {column["name"]: column["type"] for column in shown["columns"]}["month"] == "decimal(12,2)"
    assert shown["properties"]["delta.columnMapping.mode"] == "name"


def test_drop_forgets_the_name_and_keeps_the_files(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    """catalog-managed, "Creating and Dropping": a soft delete."""
    location = warehouse.table(sales).location
    answer = cli("drop", sales, "--yes", "--json")
    assert answer.json["location"] == str(location)
    assert (location / "_delta_log" / f"{0:020d}.json").is_file()
    with pytest.raises(TableNotFoundError):
        warehouse.owner.resolve(sales)
    assert cli("drop", sales, "--yes").code == ExitCode.USAGE


@pytest.mark.parametrize(("typed", "code", "left"), [("n", ExitCode.REFUSED, ["sales"]), ("y", ExitCode.OK, [])])
def test_drop_follows_the_answer(
    warehouse: Warehouse, sales: str, monkeypatch: pytest.MonkeyPatch, typed: str, code: ExitCode, left: list[str]
) -> None:
    monkeypatch.setattr("refimpl.cli.tables.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    result = CliRunner().invoke(application, ["drop", sales], input=f"{typed}\n")
    assert result.exit_code == code
    assert ("nothing was changed" in result.stderr) == bool(left)
    assert warehouse.tables() == left


def test_dropped_table_can_be_undropped(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    cli("drop", sales, "--yes")
    assert f"restored {sales}, at version" in cli("undrop", sales).out
    assert warehouse.tables() == [sales]
    assert "--yes" in cli("drop", sales).err
    assert cli("undrop", sales).code == ExitCode.USAGE


# The warehouse of a command: the option, otherwise the variable, otherwise the current directory


def _with_table(directory: Path, name: str) -> Path:
    with refimpl.open(directory, create=True) as warehouse:
        warehouse.create_table(name, columns_of_sql("id INT"))
    return directory


def test_current_directory_is_used_if_it_is_a_warehouse(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(_with_table(tmp_path / "here", "c"))
    assert [table["name"] for table in cli("show", "--json").json] == ["c"]


def test_without_a_warehouse_nothing_is_created(cli: CommandLine) -> None:
    assert cli("show").refuses("commit-owner init")
    assert list(Path.cwd().iterdir()) == []


# take-over and hand-back


COLUMNS = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


@pytest.mark.parametrize("feature", ["managedCommit", "catalogManaged"])
def test_a_filesystem_table_is_taken_over_and_handed_back(
    cli: CommandLine, warehouse: Warehouse, tmp_path: Path, feature: str
) -> None:
    """managed-commits, "Converting an existing filesystem based table to managed-commit table" and the reverse."""
    location = tmp_path / "lake" / "orders"
    create_filesystem_table(location, Environment(), COLUMNS)
    taken = cli("take-over", location, "orders", "--feature", feature, "--json")
    assert taken.code == ExitCode.OK, taken.err
    assert (taken.json["version"], taken.json["feature"]) == (1, feature)
    assert cli("show", "orders", "--json").json["owner"]["feature"] == feature
    back = cli("hand-back", "orders", "--json")
    assert back.json == {"location": str(location), "version": 2}
    assert Table.by_path(location).snapshot().feature is None
    assert cli("show", "orders").code == ExitCode.USAGE
    assert "a catalogManaged table from version 3" in cli("take-over", location, "orders").out
    assert "version 4" in cli("hand-back", "orders").out


@pytest.mark.parametrize("command", ["create", "take-over", "hand-back"])
def test_a_change_that_landed_is_not_reported_as_failed(
    cli: CommandLine, warehouse: Warehouse, sales: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Exit code 3 says that nothing landed, and that the same call may succeed later."""
    busy = Mock(side_effect=OwnerUnavailableError("busy"))
    words: list[object] = [sales]
    if command == "create":
        words = ["other", "-c", "id INT"]
        monkeypatch.setattr(LocalOwner, "resolve", busy)
    else:
        done = ownership.hand_back
        if command == "take-over":
            create_filesystem_table(tmp_path / "lake" / "orders", Environment(), COLUMNS)
            words, done = [tmp_path / "lake" / "orders", "orders"], ownership.take_over

        def then_busy(*args: Any, **options: Any) -> Any:
            return Mock(location=done(*args, **options).location, snapshot=busy)

        monkeypatch.setattr(ownership, command.replace("-", "_"), then_busy)
    answer = cli(command, *words)
    monkeypatch.undo()
    assert (answer.code, "busy" in answer.err) == (ExitCode.OUTCOME_UNKNOWN, True)
    assert "whether it landed" not in answer.err
    assert warehouse.tables() == {"create": ["other", sales], "take-over": ["orders", sales]}.get(command, [])


# Columns in Spark's SQL


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("BIGINT", "long"),
        ("LONG", "long"),
        ("INT", "integer"),
        ("INTEGER", "integer"),
        ("SMALLINT", "short"),
        ("TINYINT", "byte"),
        ("FLOAT", "float"),
        ("DOUBLE", "double"),
        ("STRING", "string"),
        ("BINARY", "binary"),
        ("boolean", "boolean"),
        ("REAL", "float"),
        ("NUMERIC(4, 2)", "decimal(4,2)"),
        ("TIMESTAMP_LTZ", "timestamp"),
        ("STRUCT<text: INT, blob: ARRAY<STRING>>", "struct<text:integer,blob:array<string>>"),
        ("DATE", "date"),
        ("TIMESTAMP", "timestamp"),
        ("TIMESTAMP_NTZ", "timestamp_ntz"),
        ("DECIMAL", "decimal(10,0)"),
        ("DECIMAL(12)", "decimal(12,0)"),
        ("DECIMAL(38, 18)", "decimal(38,18)"),
        ("ARRAY<INT>", "array<integer>"),
        ("MAP<STRING, ARRAY<DATE>>", "map<string,array<date>>"),
        ("STRUCT<a: INT, b: STRUCT<c: STRING>>", "struct<a:integer,b:struct<c:string>>"),
    ],
)
def test_each_spark_type_has_its_delta_type(sql: str, kind: str) -> None:
    (column,) = columns_of_sql(f"c {sql}").fields
    assert (column.name, str(column.type), column.nullable) == ("c", kind, True)


@pytest.mark.parametrize(
    "columns",
    [
        "",
        "id",
        "id INT,",
        "id INT PRIMARY KEY",
        "id INT); DROP TABLE t; --",
        "id SOMETHING",
        "id VARCHAR(10)",
        "id DECIMAL(99,1)",
        "c INTERVAL",
        "c STRUCT<a: INT COMMENT 'x'>",
        "(",
    ],
)
def test_an_invalid_list_of_columns_is_rejected(columns: str) -> None:
    with pytest.raises(InvalidRequestError):
        columns_of_sql(columns)


def test_not_null_of_the_members_of_a_struct_is_kept() -> None:
    (column,) = columns_of_sql("s STRUCT<a: INT NOT NULL, b: STRING, c: STRUCT<`d e`: DATE NOT NULL>>").fields
    assert isinstance(column.type, Struct)
    first, second, third = column.type.fields
    assert (column.nullable, first.nullable, second.nullable, third.nullable) == (True, False, True, True)
    assert isinstance(third.type, Struct)
    assert not third.type["d e"].nullable


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("BLOB", "BLOB"),
        ("text NOT NULL", "text"),
        ("BYTEA", "BYTEA"),
        ("VARCHAR", "VARCHAR"),
        ("INT8", "INT8"),
        ("BOOL", "BOOL"),
        ("LIST<INT>", "LIST"),
        ("INT[]", "ARRAY<INT>"),
        ("DOUBLE PRECISION", "PRECISION"),
        ("TIMESTAMP WITH TIME ZONE", "ZONE"),
        ("MAP<TEXT, INT>", "TEXT"),
        ("STRUCT<a: BLOB>", "BLOB"),
    ],
)
def test_error_names_a_type_that_spark_does_not_have(kind: str, word: str) -> None:
    with pytest.raises(InvalidRequestError, match=word):
        columns_of_sql(f"`first` INT, blob {kind}, text STRING")
    assert columns_of_sql("`first` INT, blob BINARY, text STRING").names == ("first", "blob", "text")


def test_error_for_a_limited_text_says_how_to_limit_it() -> None:
    with pytest.raises(InvalidRequestError, match=r"type VARCHAR\(5\); use STRING; .*delta.constraints.NAME=length"):
        columns_of_sql("code VARCHAR(5)")


# `log`, `commits`, `resolve`


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


@pytest.fixture
def busy(warehouse: Warehouse, sales: str) -> str:
    """A table with the versions 0 to 3, of which only 0 is published."""
    for number in range(3):
        commit_rows(warehouse, sales, {"id": number, "month": 1})
    return sales


def _log(warehouse: Warehouse, table: str) -> Path:
    return warehouse.table(table).location / "_delta_log"


def test_cleanup_needs_permission_and_an_old_checkpoint(cli: CommandLine, warehouse: Warehouse, busy: str) -> None:
    """catalog-managed, "Maintenance Operations" and "Metadata Cleanup"."""
    assert cli("cleanup", busy, "--older-than", "0s").refuses("metadata-cleanup", ExitCode.REFUSED)
    cli("policy", busy, "--allow", "metadata-cleanup")
    assert cli("cleanup", busy, "--older-than", "0s", "--json").json == {"cut_off": None, "deleted": []}
    cli("backfill", busy)
    cli("checkpoint", busy)
    done = cli("cleanup", busy, "--older-than", "0s", "--json").json
    assert done["cut_off"] == 3
    assert f"{0:020d}.json" in done["deleted"]
    assert not (_log(warehouse, busy) / f"{0:020d}.json").exists()
    assert cli("show", busy, "--json").json["snapshot"]["rows"] == 3
    assert cli("verify").code == ExitCode.OK
    assert cli("cleanup", busy, "--older-than", "soon").code == ExitCode.USAGE


def test_vacuum_deletes_only_with_the_option(cli: CommandLine, warehouse: Warehouse, busy: str) -> None:
    cli("policy", busy, "--allow", "optimize,vacuum")
    cli("optimize", busy)
    assert "no file to delete; " in cli("vacuum", busy).out
    assert cli("vacuum", busy, "--older-than", "0s").refuses("deletedFileRetentionDuration", ExitCode.REFUSED)
    listed = cli("vacuum", busy, "--older-than", "0s", "--force", "--json").json
    assert (len(listed["files"]), listed["deleted"]) == (3, False)
    folder = warehouse.table(busy).location
    assert all((folder / path).exists() for path in listed["files"])
    assert "deleted 3 files" in cli("vacuum", busy, "--older-than", "0s", "--force", "--delete").out
    assert not any((folder / path).exists() for path in listed["files"])
    assert cli("show", busy, "--json").json["snapshot"]["rows"] == 3


def test_policy_shows_and_changes_what_the_owner_allows(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    assert cli("policy", sales, "--json").json["backfill_every"] is None
    changed = cli(
        *("policy", sales, "--allow", "vacuum", "--backfill-every", "4", "--backlog-limit", "8", "--json")
    ).json
    assert (changed["backfill_every"], changed["backlog_limit"]) == (4, 8)
    assert "vacuum" in changed["allowed"]
    assert changed["allowed"] == sorted(changed["allowed"])
    assert "vacuum" not in cli("policy", sales, "--forbid", "vacuum", "--json").json["allowed"]
    assert "after every 4 commits" in cli("policy", sales).out
    for wrong in (["--allow", "vacum"], ["--forbid", "vacum"], ["--allow", "vacuum", "--forbid", "vacuum"]):
        assert "vacu" in cli("policy", "no-such-table", *wrong).err, "job names are checked before the table is found"


def test_two_changes_of_a_policy_at_once_are_both_kept(
    cli: CommandLine, warehouse: Warehouse, sales: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve, others = LocalOwner.resolve, [MaintenancePolicy(backlog_limit=7)]

    def then_another(owner: LocalOwner, reference: str) -> ResolvedTable:
        table = resolve(owner, reference)
        if others:
            warehouse.owner.set_policy(table.table_id, others.pop())
        return table

    monkeypatch.setattr(LocalOwner, "resolve", then_another)
    changed = cli("policy", sales, "--allow", "vacuum", "--json").json
    assert (changed["backlog_limit"], "vacuum" in changed["allowed"]) == (7, True)


def test_policy_forbids_checkpoints_and_hand_backs(cli: CommandLine, warehouse: Warehouse, busy: str) -> None:
    """catalog-managed, "Maintenance Operations": the policy covers checkpoints and checksums too."""
    cli("backfill", busy)
    cli("create", "items", "--columns", "id BIGINT")
    cli("policy", "items", "--forbid", "checkpoint", "--no-hand-back")
    jobs = {"checkpoint": (), "checksum": ("--checksum",)}
    after = cli("policy", busy, "--forbid", ",".join([*jobs, "log-compaction"]), "--no-hand-back", "--json").json
    assert (after["allowed"], after["hand_back"]) == ([], False)
    for job, words in jobs.items():
        assert cli("checkpoint", busy, *words).refuses(f"does not allow {job}", ExitCode.REFUSED)
        assert cli("policy", busy, "--allow", job, "--json").json["allowed"] == [job]
        assert cli("checkpoint", busy, *words).code == ExitCode.OK
        cli("policy", busy, "--forbid", job)
    for table, rest in ((busy, []), ("items", ["checksum", "log-compaction"])):
        assert warehouse.owner.resolve(table).policy.hand_back is False
        assert cli("policy", table, "--json").json["allowed"] == rest
        assert cli("hand-back", table).code == ExitCode.REFUSED
    assert cli("policy", busy, "--hand-back", "--json").json["hand_back"] is True
    assert cli("hand-back", busy).code == ExitCode.OK


def test_verify_reads_the_checkpoints(cli: CommandLine, warehouse: Warehouse, busy: str) -> None:
    """An unreadable checkpoint is a warning if older files have its content; otherwise it is an error."""

    def unreadable() -> list[Finding]:
        return [finding for finding in warehouse.verify() if finding.code == "checkpoint-unreadable"]

    table = warehouse.table(busy)
    table.publish()
    path = _log(warehouse, busy) / write_checkpoint(table).name
    whole = path.read_bytes()
    assert unreadable() == []
    for content in (b"", whole[: len(whole) // 2]):
        path.write_bytes(content)
        (finding,) = unreadable()
        assert (finding.table, finding.severity) == (busy, Severity.WARNING)
        assert f"remove {path.name}, then write it again: commit-owner checkpoint {busy} --version 3" in finding.message
    pq.write_table(pq.read_table(_log(warehouse, busy) / write_checkpoint(table, 2).name), path)
    (finding,) = (finding for finding in warehouse.verify() if finding.severity is Severity.ERROR)
    assert (finding.code, path.name in finding.message) == ("checkpoint-differs", True), "an older one in its place"
    path.unlink()
    (_log(warehouse, busy) / log_path.classic_checkpoint(2)).unlink()
    write_checkpoint(table, 3)
    assert unreadable() == []

    path.write_bytes(b"PAR1")
    (_log(warehouse, busy) / f"{0:020d}.json").unlink()
    (finding,) = unreadable()
    assert finding.severity is Severity.ERROR
    answer = cli("verify", "--json")
    assert answer.code == ExitCode.REFUSED
    assert "checkpoint-unreadable" in {entry["code"] for entry in answer.json["findings"]}


def test_verify_finds_a_missing_data_file(cli: CommandLine, warehouse: Warehouse, busy: str) -> None:
    (_, path, _) = warehouse.table(busy).location.rglob("*.parquet")
    path.unlink()
    answer = cli("verify", "--json")
    assert answer.code == ExitCode.REFUSED
    (finding,) = (finding for finding in answer.json["findings"] if finding["severity"] == "error")
    assert (finding["table"], finding["code"], finding["repairable"]) == (busy, "data-file-missing", False)
    assert path.name in finding["message"]
    warehouse.table(busy).delete("month = 1")  # the remedy of the message
    assert cli("verify").code == ExitCode.OK


def test_verify_does_not_adopt_an_announced_table(cli: CommandLine, warehouse: Warehouse) -> None:
    """It changes nothing."""
    table = warehouse.owner.announce(warehouse.directory / "orders", "orders", COORDINATED_COMMITS, None)
    log = LogStore(table.location, warehouse.environment)
    log.put_if_absent(log_path.commit(0), first_version(COORDINATED_COMMITS))
    assert cli("verify").code == ExitCode.OK
    with warehouse.owner.ledger.read() as view:
        assert [table.state for table in view.tables()] == [TableState.STAGING]


def test_repair_counts_the_left_over_files_that_it_keeps(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    warehouse.table(sales).append(pa.table({"id": [1], "month": pa.array([1], pa.int32())}))
    assert "1 commit is not published yet" in cli("verify").out
    cli("backfill", sales)
    assert " of a published version is left over; repair removes it when" in cli("verify").out
    assert cli("repair").out == "nothing to repair; 1 left-over staged file is younger than 24h (--older-than)\n"
    assert cli("repair", "--json").json == {"ok": True, "actions": [], "kept": 1}
    assert cli("commits", sales).out == "latest ratified version 1; no unpublished commits\n"
    assert "removed 1 old file\n" in cli("repair", "--older-than", "0ms").out


def test_repair_that_cannot_help_exits_with_1(cli: CommandLine, warehouse: Warehouse, busy: str) -> None:
    (_log(warehouse, busy) / f"{1:020d}.json").write_text('{"commitInfo":{}}\n')
    answer = cli("repair", "--json")
    assert answer.code == ExitCode.REFUSED
    assert [action["done"] for action in answer.json["actions"]] == [False]


def test_a_backup_never_replaces_a_file(cli: CommandLine, warehouse: Warehouse, tmp_path: Path) -> None:
    taken = tmp_path / "taken.db"
    taken.write_text("mine")
    assert cli("backup", taken).code == ExitCode.USAGE
    assert taken.read_text() == "mine"
    assert "wrote" in cli("backup", tmp_path / "free.db").out
