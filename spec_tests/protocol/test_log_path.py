"""File names of a log: DELTA.md#file-names; managed-commits, "Commit Files"; catalog-managed, "Staged commit"."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.protocol import log_path
from refimpl.protocol.errors import InvalidRequestError
from refimpl.protocol.log_path import MAX_VERSION, FileKind

UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"
ZEROS = "0" * 20

versions = st.integers(min_value=0, max_value=MAX_VERSION)


@given(versions)
def test_every_written_name_is_parsed_to_its_version(version: int) -> None:
    for name, kind in (
        (log_path.commit(version), FileKind.COMMIT),
        (log_path.checksum(version), FileKind.CHECKSUM),
        (log_path.classic_checkpoint(version), FileKind.CLASSIC_CHECKPOINT),
    ):
        parsed = log_path.parse(name, size=7, modified=9)
        assert parsed is not None
        assert (parsed.kind, parsed.version, parsed.name, parsed.size, parsed.modified) == (kind, version, name, 7, 9)
        assert len(name.split(".")[0]) == 20


@given(st.text(max_size=60))
def test_parsing_any_text_never_fails(name: str) -> None:
    for parsed in (log_path.parse(name), log_path.parse_staged(name)):
        assert parsed is None or (parsed.name == name and name.isascii() and 0 <= parsed.version <= MAX_VERSION)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{ZEROS}.json", FileKind.COMMIT),
        (f"{MAX_VERSION:020d}.json", FileKind.COMMIT),
        (f"{ZEROS}.checkpoint.parquet", FileKind.CLASSIC_CHECKPOINT),
        (f"{ZEROS}.checkpoint.0000000001.0000000002.parquet", FileKind.CHECKPOINT_PART),
        (f"{ZEROS}.checkpoint.{UUID}.json", FileKind.V2_CHECKPOINT),
        (f"{ZEROS}.checkpoint.{UUID}.parquet", FileKind.V2_CHECKPOINT),
        (f"{ZEROS}.checkpoint.{UUID.upper()}.parquet", FileKind.V2_CHECKPOINT),
        (f"{ZEROS}.{ZEROS}.compacted.json", FileKind.COMPACTION),
        (f"{ZEROS}.crc", FileKind.CHECKSUM),
    ],
)
def test_each_documented_name_has_its_kind(name: str, kind: FileKind) -> None:
    parsed = log_path.parse(name)
    assert parsed is not None
    assert parsed.kind is kind


@pytest.mark.parametrize(
    "name",
    [
        "0.json",
        f"{ZEROS}0.json",
        f"{ZEROS}.json\n",
        f"{ZEROS}.JSON",
        f" {ZEROS}.json",
        f"../{ZEROS}.json",
        f"_staged_commits/{ZEROS}.{UUID}.json",
        f"{ZEROS}.json/../{ZEROS}.json",
        f"{ZEROS}.json\0",
        "٠" * 20 + ".json",  # digits, but not ASCII digits
        "9" * 20 + ".json",  # twenty digits, but no long
        f"{MAX_VERSION + 1:020d}.json",
        "-0000000000000000001.json",
        f"{ZEROS}.CHECKPOINT.{UUID}.json",
        f"{ZEROS}.checkpoint.0000000000.0000000002.parquet",
        f"{ZEROS}.checkpoint.0000000003.0000000002.parquet",
        f"{ZEROS}.checkpoint.1.2.parquet",
        f"{1:020d}.{ZEROS}.compacted.json",
        f"{ZEROS}.{'9' * 20}.compacted.json",
        ".tmp-" + UUID,
        "_last_checkpoint",
    ],
)
def test_other_names_are_invalid(name: str) -> None:
    assert log_path.parse(name) is None


@pytest.mark.parametrize(
    "name",
    [
        f"{ZEROS}.{UUID}.JSON",
        f"{ZEROS}.{UUID}.json.tmp",
        f"{ZEROS}.{UUID[:-1]}.json",
        f"{ZEROS}.{UUID}x.json",
        f"../{ZEROS}.{UUID}.json",
        f"{'9' * 20}.{UUID}.json",
        f"{ZEROS}.{UUID.replace('-', '_')}.json",
    ],
)
def test_names_close_to_a_staged_one_are_invalid(name: str) -> None:
    assert log_path.parse_staged(f"{ZEROS}.{UUID}.json") is not None
    assert log_path.parse_staged(name) is None


@pytest.mark.parametrize("version", [-1, MAX_VERSION + 1, 2**100, True, False, 1.0, "1", None])
def test_invalid_version_is_rejected_in_a_name(version: object) -> None:
    for build in (log_path.commit, log_path.checksum, log_path.classic_checkpoint):
        with pytest.raises(InvalidRequestError):
            build(version)  # type: ignore[arg-type]


@pytest.mark.parametrize("attempt", ["", "../../evil", f"{UUID}/..", UUID[:-1], UUID + "\n", "attempt-1"])
def test_an_invalid_uuid_has_no_staged_name(attempt: str) -> None:
    assert log_path.staged_commit(0, UUID) == f"{ZEROS}.{UUID}.json"
    with pytest.raises(InvalidRequestError):
        log_path.staged_commit(0, attempt)
