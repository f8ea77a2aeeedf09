"""`backfill`, `checkpoint`, `cleanup`, `policy`, `verify`, `repair`, `backup`."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refimpl.care.verify import Finding, Severity
from refimpl.cli.output import ExitCode
from refimpl.client.maintenance import write_checkpoint
from refimpl.owner.local import LocalOwner
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import MaintenancePolicy, ResolvedTable, TableState
from refimpl.protocol.table_feature import COORDINATED_COMMITS
from refimpl.storage.log_store import LogStore
from refimpl.warehouse import Warehouse
from spec_tests.cli.conftest import CommandLine, commit_rows
from spec_tests.support.builders import first_version


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
