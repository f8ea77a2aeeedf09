"""Tables that the kit writes for readers: other implementations read them, and nothing is left when a scenario ends."""

from __future__ import annotations

from collections.abc import Iterator

import deltalake
import pytest

from conformance.adapters.in_process import InProcess
from conformance.interface.log_names import commit_file
from conformance.models.client import ModelClient
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Variant
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, application, domain, file, gone, vector


def scenario(client: type, feature: str, commit_mode: str = "staged") -> ClientScenario:
    host = ClientHost()
    return ClientScenario(
        InProcess(client(host.ask)), Variant(feature=feature, commit_mode=commit_mode), host, name="fixture"
    )


@pytest.fixture(params=["managedCommit", "catalogManaged"])
def s(request: pytest.FixtureRequest) -> Iterator[ClientScenario]:
    made = scenario(ModelClient, request.param)
    yield made
    made.close()


def with_history(s: ClientScenario) -> LogBuilder:
    log = LogBuilder.create(s, properties={"kit.a": "1"})
    log.land(file("a"), file("b"), application("loader", 1), domain("d", "first"), domain("e", "kept"))
    log.land(gone("a"), file("x%20y"), application("loader", 2), domain("d", "first", removed=True))
    log.land(file("a"))
    log.backfill(2)
    return log


def test_the_expected_state_follows_from_the_commits(s: ClientScenario) -> None:
    log = with_history(s)
    assert [sorted(log.at(version).files) for version in range(4)] == [[], ["a", "b"], ["b", "x y"], ["a", "b", "x y"]]
    assert [log.at(version).applications for version in range(3)] == [{}, {"loader": 1}, {"loader": 2}]
    assert [log.at(version).domains for version in (1, 2)] == [{"d": "first", "e": "kept"}, {"e": "kept"}]
    assert log.at(3).timestamp == s.timestamp(3)
    assert log.at(3).properties == {"delta.enableInCommitTimestamps": "true", "kit.a": "1"}


def test_a_file_with_another_deletion_vector_is_another_file(s: ClientScenario) -> None:
    log = LogBuilder.create(s, reader_features=("deletionVectors",))
    log.land(file("a"))
    log.land(file("a", deletionVector=vector("one")), gone("a"))
    log.land(gone("a", deletionVector=vector("two")))
    assert sorted(log.at(3).files) == ["a"]
    log.land(gone("a", deletionVector=vector("one")))
    assert sorted(log.at(4).files) == []


@pytest.mark.parametrize("parts", [1, 2])
def test_another_implementation_reads_a_planted_checkpoint(parts: int) -> None:
    """Of a managedCommit table, whose published part any reader may read by its path."""
    s = scenario(ModelClient, "managedCommit")
    log = with_history(s)
    log.checkpoint(1, parts=parts)
    log.hide(commit_file(0))
    found = deltalake.DeltaTable(log.location)
    assert found.version() == 2
    assert sorted(path.rpartition("/")[2] for path in found.file_uris()) == ["b", "x y"]
    s.close()


def test_another_implementation_reads_a_planted_compaction() -> None:
    s = scenario(ModelClient, "managedCommit")
    log = with_history(s)
    log.compaction(1, 2)
    found = deltalake.DeltaTable(log.location)
    assert sorted(path.rpartition("/")[2] for path in found.file_uris()) == ["b", "x y"]
    s.close()


def test_files_are_as_before_when_a_scenario_ends(s: ClientScenario) -> None:
    log = with_history(s)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.folder.rglob("*") if path.is_file()}
    log.checkpoint(2, parts=2)
    log.v2_checkpoint(1)
    log.hint(2)
    log.checksum(2)
    log.plant(commit_file(1), b"")
    log.touch(2, 5)
    log.hide(commit_file(0), *log.staged())
    s.conclude()
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.folder.rglob("*") if path.is_file()}
    assert after == before
