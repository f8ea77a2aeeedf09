"""The offsets and files of a stream: it reads each file once, whatever the limits, and the same files after a
restart.
"""

from collections.abc import Callable, Sequence
from itertools import chain

import msgspec
import pyarrow as pa
import pytest

from refimpl.client import data_maintenance
from refimpl.client.change_feed import FeedReader
from refimpl.client.maintenance import write_checkpoint
from refimpl.client.table import Table
from refimpl.client.table_stream import Offset, StreamOptions, TableStream
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import Maintenance, MaintenancePolicy
from refimpl.protocol.errors import InvalidRequestError, NotFoundInHistoryError
from refimpl.protocol.table_feature import MANAGED_COMMIT
from refimpl.rows.data_files import read_file
from refimpl.schema.schema import Field, Primitive, Struct
from refimpl.warehouse import Warehouse
from spec_tests.support.builders import commit, redefine

POLICY = MaintenancePolicy(backfill_every=None, allowed=frozenset(Maintenance))
"""The owner publishes a commit only when a test asks for it, and permits every maintenance job."""
SCHEMA = pa.schema([("id", pa.int64())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=SCHEMA)


@pytest.fixture
def table(warehouse: Warehouse) -> Table:
    """Versions 1 to 3 append the ids 1 to 3. No version is published."""
    made = warehouse.create_table("stream", SCHEMA, policy=POLICY)
    for number in (1, 2, 3):
        made.append(rows(number))
    return made


def ids(table: Table, stream: TableStream, start: Offset, end: Offset) -> list[int]:
    files, layout = stream.files(start, end), table.snapshot().layout
    return [number for file in files for number in read_file(layout, file.file)["id"].to_pylist()]


def drained(table: Table, stream: TableStream, start: Offset | None = None, **limits: int) -> list[list[int]]:
    """The ids of all batches, read as Spark reads them: each offset is converted to JSON and back."""
    batches, start = [], start or stream.initial()
    while (end := stream.end(start, **limits)) != start:
        end = msgspec.convert(msgspec.json.decode(msgspec.json.encode(end)), Offset)
        batches.append(ids(table, stream, start, end))
        start = end
    return batches


@pytest.mark.parametrize(
    ("limits", "batches"),
    [
        ({"max_files": 1}, [[1], [2], [3], [4], [5]]),
        ({"max_files": 2}, [[1, 2], [3, 4], [5]]),
        ({"max_files": 9}, [[1, 2, 3, 4, 5]]),
        ({"max_bytes": 1}, [[1], [2], [3], [4], [5]]),
        ({"max_files": 3, "max_bytes": 10**6}, [[1, 2, 3], [4, 5]]),
        ({"until": 4}, [[1, 2, 3, 4]]),
    ],
)
def test_a_batch_ends_at_its_limits(table: Table, limits: dict[str, int], batches: list[list[int]]) -> None:
    stream = TableStream(table)
    start = stream.initial()
    table.append(rows(4))
    table.append(rows(5))
    read = drained(table, stream, start, **limits)
    assert [len(batch) for batch in read] == [len(batch) for batch in batches]
    assert sorted(chain(*read)) == list(chain(*batches))  # files of one millisecond have no order in the first version


@pytest.mark.parametrize("options", [StreamOptions(), StreamOptions(starting_version=1)], ids=["rows", "commits"])
def test_a_publication_between_two_batches_repeats_no_row(
    table: Table, warehouse: Warehouse, options: StreamOptions
) -> None:
    """The staged files of the commits that the second batch reads are gone; the offset does not name files."""
    stream = TableStream(table, options)
    start = stream.initial()
    end = stream.end(start, max_files=1)
    first = ids(table, stream, start, end)
    assert table.table_id is not None
    warehouse.owner.backfill_to_version(table.table_id)
    for path in table.log.folder.rglob("_*commits/*.json"):
        path.unlink()
    for later in (stream, TableStream(table, options)):
        rest = drained(table, later, end, max_files=1)
        assert sorted([*first, *(number for batch in rest for number in batch)]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"starting_version": 2}, [2, 3]),
        ({"starting_version": 4}, []),
        ({"starting_version": "latest"}, []),
        ({"starting_timestamp": 0}, [1, 2, 3]),
    ],
)
def test_the_first_version_of_each_start_option(table: Table, options: dict[str, object], expected: list[int]) -> None:
    stream = TableStream(table, StreamOptions(**options))  # type: ignore[arg-type]
    start = stream.initial()
    table.append(rows(9))
    assert drained(table, stream, start) == [[*expected, 9]]


def test_a_stale_path_waits_for_the_start_version(warehouse: Warehouse) -> None:
    """The owner has ratified version 3; by path, only version 0 is visible until the publication."""
    owned = warehouse.create_table("lagging", SCHEMA, policy=POLICY, feature=MANAGED_COMMIT)
    for number in (1, 2, 3):
        owned.append(rows(number))
    table = Table.by_path(owned.location)
    stream = TableStream(table, StreamOptions(starting_version=3))
    start = stream.initial()
    assert stream.end(start) == start
    warehouse.owner.backfill_to_version(owned.table_id or "")
    assert drained(table, stream, start) == [[3]]


def test_a_start_is_inclusive_and_validated(table: Table) -> None:
    second = table.snapshot(version=2).timestamp
    assert drained(table, TableStream(table, StreamOptions(starting_timestamp=second))) == [[2, 3]]
    with pytest.raises(NotFoundInHistoryError):
        TableStream(table, StreamOptions(starting_timestamp=table.snapshot().timestamp + 1)).initial()
    with pytest.raises(NotFoundInHistoryError, match=r"startingVersion 5 .* is 3; expected at most 4"):
        TableStream(table, StreamOptions(starting_version=5)).initial()
    with pytest.raises(InvalidRequestError):
        StreamOptions(starting_version=1, starting_timestamp=1)


@pytest.mark.parametrize("options", [StreamOptions(), StreamOptions(starting_version="latest")])
def test_a_restart_during_the_first_batch_repeats_it(table: Table, options: StreamOptions) -> None:
    """Spark stores the end of each batch, but not the start of the first batch."""
    stream = TableStream(table, options)
    start = stream.initial()
    table.append(rows(4))
    end = stream.end(start, max_files=4)
    first = ids(table, stream, start, end)
    table.append(rows(5))
    again = TableStream(table, options)
    again.end(again.initial())  # lists the newest version
    assert ids(table, again, again.initial(), end) == first != []
    assert drained(table, again, end) == [[5]]


IGNORE, SKIP = {"ignore_deletes": True}, {"skip_change_commits": True}


@pytest.mark.parametrize(
    ("change", "options", "allowed"),
    [
        (lambda table: table.overwrite(rows(7)), {}, False),
        (lambda table: table.overwrite(rows(7)), IGNORE, False),
        (lambda table: table.overwrite(rows(7)), SKIP, True),
        (Table.delete, {}, False),
        (Table.delete, IGNORE, True),
        (Table.delete, SKIP, True),
        (data_maintenance.optimize, {}, True),
    ],
)
def test_a_removal_of_rows_is_skipped_only_with_an_option(
    table: Table, change: Callable[[Table], object], options: dict[str, bool], allowed: bool
) -> None:
    stream = TableStream(table, StreamOptions(starting_version="latest", **options))  # type: ignore[arg-type]
    start = stream.initial()
    change(table)
    table.append(rows(9))
    if allowed:
        assert drained(table, stream, start) == [[9]]
    else:
        with pytest.raises(InvalidRequestError, match=r"skipChangeCommits|ignoreDeletes") as caught:
            stream.end(start)
        assert caught.value.version == 4


def with_columns(table: Table, *names: str) -> None:
    more = (Field(name=name, type=Primitive(name="long")) for name in names)
    schema = Struct(fields=(*table.snapshot().schema.fields, *more)).to_json()
    commit(table, lambda t: redefine(t, schema_string=schema))


def test_a_schema_change_stops_the_stream(table: Table) -> None:
    stream = TableStream(table)
    start = stream.initial()
    before = stream.end(start)
    with_columns(table, "more")
    table.append(pa.table({"id": [4], "more": [1]}))
    with pytest.raises(InvalidRequestError, match=r"version 4 .*more.*restart the stream") as caught:
        stream.end(before)
    assert caught.value.version == 4
    again = TableStream(table)
    assert drained(table, again, before) == [[4]], "rows at older offsets get the newest schema"
    assert drained(table, again, start) == [[1, 2, 3, 4]]


def test_a_protocol_hides_no_earlier_schema_change(table: Table) -> None:
    """The last commit before the rows changes the protocol alone; a stream of the old schema stops at any of them."""
    stream = TableStream(table)
    before = stream.end(stream.initial())
    with_columns(table, "more")
    commit(table, lambda t: t.add_feature("domainMetadata"))
    table.append(pa.table({"id": [4], "more": [1]}))
    for version in (4, 5, 6):
        start = msgspec.structs.replace(before.at(version), read_at=None)
        for started in (stream, TableStream(table, of=table.snapshot(version=3))):
            with pytest.raises(InvalidRequestError, match=f"version {version} .*more") as caught:
                started.end(start)
            assert caught.value.version == version


def test_the_error_names_a_cleaned_up_version(table: Table, warehouse: Warehouse) -> None:
    stream = TableStream(table, StreamOptions(starting_version=1))
    start = stream.initial()
    initial = TableStream(table).initial()
    table.append(rows(4))
    assert table.table_id is not None
    warehouse.owner.backfill_to_version(table.table_id)
    write_checkpoint(table)
    for version in range(4):
        (table.log.folder / log_path.commit(version)).unlink()
    again = TableStream(table)
    for offset, version in ((start, 1), (initial, 3)):
        with pytest.raises(NotFoundInHistoryError, match=f"continues with version {version} ") as caught:
            again.end(offset)
        assert caught.value.version == version


def test_another_table_is_refused(table: Table, warehouse: Warehouse) -> None:
    start = TableStream(table).initial()
    other = warehouse.create_table("other", SCHEMA)
    with pytest.raises(InvalidRequestError, match="has read another table"):
        TableStream(other).end(start)


def test_a_stream_of_a_rolled_back_table_ends_with_an_error(table: Table) -> None:
    """An offset just above the newest version waits for the next version. A higher offset is an error."""
    stream = TableStream(table)
    begun = stream.initial()
    after = begun.at(4)
    assert stream.end(after) == after
    for offset, reached in (
        (begun.at(5), 4),
        (begun.at(4, index=1), 4),
        (begun.at(9), 8),
        (msgspec.structs.replace(begun, version=4), 4),
    ):
        for use in (stream.end, lambda end: stream.files(begun, end)):
            with pytest.raises(
                NotFoundInHistoryError, match=f"has reached version {reached} .*newest version is 3"
            ) as caught:
                use(offset)
            assert (caught.value.version, caught.value.latest) == (reached, 3)


@pytest.mark.parametrize("limits", [{}, {"max_files": 1}])
@pytest.mark.parametrize("start", [None, 1])
def test_other_commits_in_place_of_those_that_were_read_end_the_stream(
    table: Table, warehouse: Warehouse, start: int | None, limits: dict[str, int]
) -> None:
    """An older state was restored, and new commits have passed the stream's offset since."""
    stream = TableStream(table, StreamOptions(starting_version=start))
    begun = stream.initial()
    end = stream.end(begun, **limits)
    restored = warehouse.create_table("restored", SCHEMA, policy=POLICY)
    for number in (4, 5, 6):
        restored.append(rows(number))
    end = msgspec.structs.replace(end, table_id=restored.snapshot().metadata.id)
    again = TableStream(restored)
    for _ in range(2):  # the newest version is the last one that was read, or a later one
        for use in (again.end, lambda end: again.files(begun, end)):
            with pytest.raises(NotFoundInHistoryError, match="is another commit than the one that the stream has read"):
                use(end)
        restored.append(rows(7))
    assert drained(table, stream, begun, **limits)


def feed_of(table: Table, stream: TableStream, **limits: int) -> list[Sequence[tuple[str, int, int]]]:
    reader, batches = FeedReader(layout=table.snapshot().layout), []
    start = stream.initial()
    while (end := stream.end(start, **limits)) != start:
        changes = [row for batch in reader.read(stream.files(start, end)) for row in batch.to_pylist()]
        batches.append([(row["_change_type"], row["id"], row["_commit_version"]) for row in changes])
        start = end
    return [batch for batch in batches if batch]


def test_the_change_feed_is_read_by_whole_commits(warehouse: Warehouse) -> None:
    table = warehouse.create_table("fed", SCHEMA, properties={"delta.enableChangeDataFeed": "true"})
    table.append(rows(1, 2))
    stream = TableStream(table, StreamOptions(feed=True))
    start = stream.initial()
    assert stream.end(start).version == 2
    from_one = TableStream(table, StreamOptions(feed=True, starting_version=1))
    table.update({"id": "id + 10"}, where="id = 2")
    updated = [("update_preimage", 2, 2), ("update_postimage", 12, 2)]
    table.overwrite(rows(7))
    replaced = [("delete", 1, 3), ("delete", 12, 3), ("insert", 7, 3)]
    assert feed_of(table, from_one, max_files=1) == [[("insert", 1, 1), ("insert", 2, 1)], updated, replaced]
    whole = TableStream(table, StreamOptions(feed=True))
    assert feed_of(table, whole) == [[("insert", 7, 3)]]


def test_a_stream_of_a_disabled_feed_is_refused(table: Table) -> None:
    stream = TableStream(table, StreamOptions(feed=True))
    with pytest.raises(InvalidRequestError, match="was off at version 3"):
        stream.end(stream.initial())
