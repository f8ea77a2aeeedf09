"""The files of a log folder: their kinds by name, their content, and checkpoints as the kit writes them.

Only files directly in the folder count. The staging folder is not read, because its files prove nothing.
"""

import base64
import io
import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from conformance.interface.log_names import version_in
from conformance.models.proposals import lines

SIDECARS: Final = "_sidecars"
HINT: Final = "_last_checkpoint"
_Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


class Unreadable(Exception):  # noqa: N818  # it says what a file is
    """A file does not have the content that its name implies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint: one file, or the parts of it that were found."""

    version: int
    files: tuple[Path, ...]
    parts: int = 1
    """The number of files of the complete checkpoint."""
    rank: int = 1
    """The preference among checkpoints of one version: V2 (2) before classic (1) before multi-part (0)."""

    @property
    def complete(self) -> bool:
        return len(self.files) == self.parts


@dataclass(slots=True, kw_only=True)
class Listing:
    """A listing of a log folder."""

    commits: dict[int, Path] = field(default_factory=dict)
    """Published commits, by version."""
    checkpoints: list[Checkpoint] = field(default_factory=list)
    """All checkpoints, including incomplete ones."""
    compactions: dict[tuple[int, int], Path] = field(default_factory=dict)
    """Compactions, by first and last version."""
    checksums: dict[int, Path] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The newest version that the files prove; -1 if none."""
        return max(
            [*self.commits, *(checkpoint.version for checkpoint in self.checkpoints if checkpoint.complete)], default=-1
        )


def listing_of(paths: Iterable[Path]) -> Listing:
    """Classify files by their names; files that no reader uses are omitted."""
    listing, parts = Listing(), dict[tuple[int, int], dict[int, Path]]()
    for path in paths:
        match path.name.split("."):
            case [stem, "json"] if version_in(stem) is not None:
                listing.commits[int(stem)] = path
            case [stem, "crc"] if version_in(stem) is not None:
                listing.checksums[int(stem)] = path
            case [start, end, "compacted", "json"] if version_in(start) is not None and version_in(end) is not None:
                listing.compactions[int(start), int(end)] = path
            case [stem, "checkpoint", "parquet"] if version_in(stem) is not None:
                listing.checkpoints.append(Checkpoint(version=int(stem), files=(path,)))
            case [stem, "checkpoint", part, of, "parquet"] if version_in(stem) is not None and part.isdecimal():
                parts.setdefault((int(stem), int(of)), {})[int(part)] = path
            case [stem, "checkpoint", _, "parquet" | "json"] if version_in(stem) is not None:
                listing.checkpoints.append(Checkpoint(version=int(stem), files=(path,), rank=2))
    for (version, count), files in parts.items():
        ordered = tuple(files[part] for part in sorted(files))
        listing.checkpoints.append(Checkpoint(version=version, files=ordered, parts=count, rank=0))
    return listing


def actions_in(path: Path) -> list[dict[str, Any]]:
    """The actions of a commit, a compaction or a V2 manifest: one JSON object on each line. Raises `Unreadable`, also
    for an empty file, and `FileNotFoundError`."""
    try:
        actions = [json.loads(line) for line in lines(path.read_text("utf-8"))]
    except ValueError as error:
        raise Unreadable(f"{path.name} cannot be read: {error}") from error
    if not actions or not all(isinstance(action, dict) for action in actions):
        raise Unreadable(f"{path.name} holds no actions")
    return actions


def vector_file(vector: dict[str, Any]) -> str | None:
    """Where a deletion vector is: a path relative to the table, or an absolute one; None: in the log."""
    text = vector["pathOrInlineDv"]
    if vector["storageType"] != "u":
        return text if vector["storageType"] == "p" else None
    name = uuid.UUID(bytes=base64.b85decode(text[-20:].encode().translate(bytes.maketrans(_Z85, _B85))))
    return f"{text[:-20]}/deletion_vector_{name}.bin".lstrip("/")


def vector_name(identifier: str, prefix: str = "") -> str:
    """What a log has for the file `<prefix>/deletion_vector_<identifier>.bin`."""
    encoded = base64.b85encode(uuid.UUID(identifier).bytes).translate(bytes.maketrans(_B85, _Z85))
    return prefix + encoded.decode()


def checkpoint_actions(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """All actions of a checkpoint, including those of its sidecars. Raises `Unreadable`."""
    actions = [action for path in checkpoint.files for action in rows_of(path)]
    for sidecar in [action["sidecar"] for action in actions if "sidecar" in action]:
        actions += rows_of(checkpoint.files[0].parent / SIDECARS / Path(sidecar["path"]).name)
    if not any("protocol" in action for action in actions) or not any("metaData" in action for action in actions):
        raise Unreadable(f"the checkpoint of version {checkpoint.version} has no protocol or no metadata")
    return actions


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The actions of one file. A row of Parquet has a column for each kind of action, all null but one. Raises
    `Unreadable`."""
    import pyarrow as pa  # slow to import, and needed only for Parquet

    try:
        if path.suffix == ".json":
            return actions_in(path)
        at = path.stat()
        rows = _columns_of(path, at.st_ino, at.st_ctime_ns).to_pylist(maps_as_pydicts="strict")
    except (OSError, pa.ArrowException) as error:
        raise Unreadable(f"{path.name} cannot be read: {error}") from error
    return [_present(row) for row in rows]


@lru_cache(maxsize=256)
def _columns_of(path: Path, _inode: int, _changed: int) -> Any:
    """A Parquet file, which is read again only if it changed."""
    import pyarrow.parquet as pq  # slow to import, and needed only for Parquet

    return pq.read_table(path, use_threads=False)


def _present(value: Any) -> Any:
    """The action without null members; nulls in maps are kept, because they have a meaning."""
    if not isinstance(value, dict):
        return value
    return {
        key: member if key in ("partitionValues", "configuration") else _present(member)
        for key, member in value.items()
        if member is not None
    }


@cache
def _schema() -> Any:
    """The schema of all columns: a function, because the import of Arrow is slow and most processes do not need it."""
    import pyarrow as pa

    texts = pa.list_(pa.field("element", pa.string()))
    rows = {"baseRowId": pa.int64(), "defaultRowCommitVersion": pa.int64()}
    strings = pa.map_(pa.string(), pa.string())
    vector = pa.struct(
        {
            "storageType": pa.string(),
            "pathOrInlineDv": pa.string(),
            "offset": pa.int32(),
            "sizeInBytes": pa.int32(),
            "cardinality": pa.int64(),
        }
    )

    return pa.schema(
        {
            "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
            "add": pa.struct(
                {
                    "path": pa.string(),
                    "partitionValues": strings,
                    "size": pa.int64(),
                    "modificationTime": pa.int64(),
                    "dataChange": pa.bool_(),
                    "stats": pa.string(),
                    "deletionVector": vector,
                    **rows,
                }
            ),
            "remove": pa.struct(
                {
                    "path": pa.string(),
                    "deletionTimestamp": pa.int64(),
                    "dataChange": pa.bool_(),
                    "deletionVector": vector,
                    **rows,
                }
            ),
            "metaData": pa.struct(
                {
                    "id": pa.string(),
                    "name": pa.string(),
                    "description": pa.string(),
                    "format": pa.struct({"provider": pa.string(), "options": strings}),
                    "schemaString": pa.string(),
                    "partitionColumns": texts,
                    "configuration": strings,
                    "createdTime": pa.int64(),
                }
            ),
            "protocol": pa.struct(
                {
                    "minReaderVersion": pa.int32(),
                    "minWriterVersion": pa.int32(),
                    "readerFeatures": texts,
                    "writerFeatures": texts,
                }
            ),
            "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
            "checkpointMetadata": pa.struct({"version": pa.int64()}),
            "sidecar": pa.struct({"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64()}),
        }
    )


def checkpoint_parquet(actions: Sequence[dict[str, Any]]) -> bytes:
    """A checkpoint file with these actions, in two row groups. Only V2 checkpoints get the columns specific to them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {kind for action in actions for kind in action}
    schema = _schema()
    for kind in ("checkpointMetadata", "sidecar"):
        if kind not in kinds:
            schema = schema.remove(schema.get_field_index(kind))
    position = schema.get_field_index("add")
    for name in ("stats_parsed", "partitionValues_parsed"):  # their members are the table's columns
        typed = [action["add"][name] for action in actions if name in action.get("add", {})]
        if typed:
            members = [*schema.field(position).type, pa.field(name, pa.array(typed).type)]
            schema = schema.set(position, pa.field("add", pa.struct(members)))
    rows = [{kind: _in_pairs(body) for kind, body in action.items()} for action in actions]
    written = io.BytesIO()
    halves = {"row_group_size": (len(rows) + 1) // 2 or 1}
    pq.write_table(
        pa.Table.from_pylist(rows, schema=schema), written, compression="none", use_dictionary=False, **halves
    )
    return written.getvalue()


def _in_pairs(body: Any) -> Any:
    """Maps as lists of pairs, which Arrow requires."""
    if not isinstance(body, dict):
        return body
    maps = ("partitionValues", "configuration", "options")
    return {
        key: list(value.items()) if key in maps and isinstance(value, dict) else _in_pairs(value)
        for key, value in body.items()
    }
