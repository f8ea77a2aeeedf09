"""A damage test: damages one file of a warehouse at a time, and checks that each wrong answer is reported.

    python -m spec_tests.processes.damage --damages 5000 --seed 7
    python -m spec_tests.processes.damage --damages 500 --json

The warehouse has tables of every shape: partitions, column mapping, classic checkpoints, checkpoints of several parts,
V2 checkpoints with sidecars, checksums, staged commits that are not published, tables and deletion vectors
that Delta Spark wrote, and a ledger whose newest transactions are only in its write-ahead log. A damage flips a bit,
zeroes a block, cuts the end off, replaces the file by an older one or another one of its kind, empties or removes it.

After each damage another process opens the warehouse and reads the tables: all rows, selected rows, and older versions.
If the answers differ from those before, or are errors, it runs `verify`. The outcomes:

right    all answers are those of the undamaged warehouse
named    an error, a warning or a finding of `verify` names the file
unnamed  an error, but no message names the file
silent   a wrong answer, and no message names the file
limit    the same, from a data file of another writer, which has no checksum there: refimpl/client/DELTA.md#seals
ended    the reading process ended without an error

A file without a second copy and without a digest cannot be checked: commits from before a table had its owner.

Exit status: 0 each damage was right, named or a limit; 1 any other outcome; 2 usage.
"""

import argparse
import io
import itertools
import json
import logging
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pyarrow as pa

import refimpl
from refimpl.client import maintenance, ownership
from refimpl.client.table import Table
from refimpl.demo.workers import Ended, WorkerPool
from refimpl.log import checkpoint_format
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import Maintenance, MaintenancePolicy
from refimpl.protocol.errors import DeltaError
from refimpl.protocol.log_path import LOG_FOLDER, SIDECAR_FOLDER
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, TABLE_FEATURES, CommitMode
from refimpl.storage import parquet_seal
from refimpl.storage.environment import Environment
from refimpl.storage.locations import OWNER_FOLDER
from spec_tests.support.written_log import WatchedFiles

FIXTURES: Final = Path(__file__).parents[2] / "fixtures" / "delta_spark"
SPARK_TABLES: Final = ("v2_checkpoint", "deletion_vectors", "mapping_vectors", "type_widening")
"""Tables of Delta Spark that get an owner. Their own commits are not damaged."""
START: Final = 1_700_000_000_000
SECONDS_TO_ANSWER: Final = 60
PROGRESS_SECONDS: Final = 10
NEEDED: Final = 0.8
"""How often a damaged file is one that the reads need."""
OWNED: Final = MaintenancePolicy(allowed=frozenset(Maintenance), backfill_every=None, backlog_limit=1000)
LEDGER: Final = "ledger"
"""All messages about the files of the owner's folder name the ledger, which is one database for its reader."""
FAILED: Final = "error"

Answers = dict[str, Any]


def build(directory: Path) -> None:
    """Write the warehouse. The same names and rows each time."""
    ids, clock = itertools.count(1), itertools.count(START, 1000)
    environment = Environment(new_id=lambda: f"{next(ids):08x}-0000-4000-8000-000000000000", now=lambda: next(clock))
    with (
        refimpl.open(directory, create=True, environment=environment) as warehouse,
        mock.patch.object(checkpoint_format, "ACTIONS_OF_A_SIDECAR", 3),
    ):
        _tables_of_this_client(warehouse)
        _tables_of_spark(warehouse)
        with warehouse.owner.lock():
            warehouse.owner.ledger.fold()
        for name in ("classic", "v2", "parts"):  # only in the write-ahead log
            _append(warehouse.table(name), 900)
            _append(warehouse.table(name), 910)


def _tables_of_this_client(warehouse: refimpl.Warehouse) -> None:
    schema = pa.schema([("id", pa.int64()), ("place", pa.string()), ("amount", pa.float64())])
    usual: dict[str, Any] = {"policy": OWNED, "commit_mode": CommitMode.STAGED}
    shapes: dict[str, dict[str, Any]] = {
        "classic": {"partition_columns": ["place"]},
        "v2": {"properties": {"delta.checkpointPolicy": "v2"}, "partition_columns": ["place"]},
        "parts": {"feature": MANAGED_COMMIT},
        "mapped": {"properties": {"delta.columnMapping.mode": "name"}, "commit_mode": CommitMode.INLINE},
    }
    for name, options in shapes.items():
        table = warehouse.create_table(name, schema, **(usual | options))
        for number in range(8):
            if number == 3:
                table.delete("id = 1")
            _append(table, 10 * number)
            warehouse.owner.backfill_to_version(str(table.table_id))
            if number in (3, 5):
                _checkpoint(table)
            if number in (2, 5):
                maintenance.write_checksum(table)


def _append(table: Table, first: int) -> None:
    ids = range(first, first + 4)
    table.append(pa.table({"id": ids, "place": [("Ulm", "Rom")[n % 2] for n in ids], "amount": [n / 4 for n in ids]}))


def _checkpoint(table: Table) -> None:
    """Write a checkpoint of the table `parts` in three parts, as another client does."""
    if not table.location.name.startswith("parts"):
        maintenance.write_checkpoint(table)
        return
    state = table.snapshot().state
    version = table.snapshot().version
    actions = [*checkpoint_format.small(state), *state.tombstones.values(), *state.files.values()]
    for part in range(1, 4):
        content, _ = checkpoint_format.classic_of(sorted(actions[part - 1 :: 3], key=lambda each: type(each).__name__))
        name = log_path.checkpoint_part(version, part, 3)
        table.log.overwrite(name, parquet_seal.sealed(content, name))


def _tables_of_spark(warehouse: refimpl.Warehouse) -> None:
    for name in SPARK_TABLES:
        if "vectors" in name:
            try:
                import pyroaring  # noqa: F401
            except ImportError:
                continue
        location = warehouse.directory / name
        shutil.copytree(FIXTURES / name, location)
        (location / "expected.json").unlink()
        if "vectors" not in name:
            table = Table.by_path(location, warehouse.environment)
            ownership.take_over(table, warehouse.owner, name, CATALOG_MANAGED, policy=OWNED)


# Reading


def answers(
    directory: Path, only: str | None = None, newest: bool = False, environment: Environment | None = None
) -> tuple[Answers, list[str]]:
    """The answer to each question, and the texts of errors and of warnings, logged ones too. `only`: the name of the
    folder of a table; `newest`: of its newest version."""
    found: Answers = {}
    texts: list[str] = []
    log = io.StringIO()
    logging.getLogger("refimpl").handlers = [logging.StreamHandler(log)]

    def ask(question: str, answer: Callable[[], Any]) -> Any:
        try:
            found[question] = answer()
        except (DeltaError, OSError, ImportError) as error:
            found[question] = f"error {type(error).__name__}"
            texts.append(str(error))
        except Exception:  # noqa: BLE001 - a bug, which the outcome shows
            found[question] = f"bug {traceback.format_exc()}"
        return found[question]

    def content(table: Table, where: str | None = None, version: int | None = None) -> Any:
        snapshot = table.snapshot(version=version)
        texts.extend(snapshot.warnings)
        rows = snapshot.to_arrow(where=where)
        configuration = sorted(snapshot.metadata.configuration.items())
        return snapshot.version, str(configuration), sorted(map(repr, rows.to_pylist()))

    try:
        with refimpl.open(directory, environment=environment) as warehouse:
            for location in sorted(path for path in directory.iterdir() if path.name != OWNER_FOLDER):
                name = location.name
                if only is not None and name != only:
                    continue
                try:
                    named = next(each for each in warehouse.owner.tables() if each.location == location)
                    table = warehouse.table(named.name or named.table_id)
                except StopIteration:
                    table = Table.by_path(location, environment)
                except DeltaError as error:
                    found[name] = f"error {type(error).__name__}"
                    texts.append(str(error))
                    continue
                ask(name, partial(content, table))
                if name not in SPARK_TABLES and not newest:
                    ask(f"{name} where", partial(content, table, "id >= 30 AND id < 50"))
                    for version in (5, 8):
                        ask(f"{name} at {version}", partial(content, table, version=version))
    except (DeltaError, OSError) as error:
        found["warehouse"] = f"error {type(error).__name__}"
        texts.append(str(error))
    return found, [*texts, *log.getvalue().splitlines()]


def verified(directory: Path) -> list[str]:
    """The messages of `verify --data`."""
    try:
        with refimpl.open(directory) as warehouse:
            return [finding.message for finding in warehouse.verify(data=True)]
    except (DeltaError, OSError) as error:
        return [str(error)]


class Reader:
    """A process that reads. Another one follows if it ends."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._pool = WorkerPool()
        self._worker = self._pool.start("reader", _answer)

    def ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """The answer; None if the process ended or did not answer."""
        self._worker.send((question, arguments))
        for _, answer in self._pool.receive(SECONDS_TO_ANSWER):
            if not isinstance(answer, Ended):
                return answer
        self.end()
        self._start()
        return None

    def end(self) -> None:
        self._pool.__exit__()


def _answer(connection: Connection) -> None:
    while True:
        question, arguments = connection.recv()
        connection.send(question(*arguments))


# Damaging


def damaged(randomness: random.Random, damage: str, content: bytes) -> bytes:
    """The content with a damage."""
    at = randomness.randrange(len(content))
    if damage == "flip":
        return content[:at] + bytes([content[at] ^ 1 << randomness.randrange(8)]) + content[at + 1 :]
    if damage == "zero":
        size = randomness.choice((8, 64, 512, 4096))
        at = at // size * size
        return content[:at] + bytes(min(size, len(content) - at)) + content[at + size :]
    return content[:at] if damage == "cut" else b""


DAMAGES: Final = ("flip",) * 6 + ("zero", "cut", "other", "other", "empty", "remove")


def kind_of(path: Path) -> str:
    """Files of one kind may take each other's place."""
    if OWNER_FOLDER in path.parts:
        return path.name.partition("-0")[0]
    if path.parent.name == SIDECAR_FOLDER:
        return "sidecar"
    if LOG_FOLDER in path.parts:
        parsed = log_path.parse(path.name)
        return parsed.kind.name if parsed is not None else "staged" if path.parent.name != LOG_FOLDER else path.name
    return "data" if path.suffix == ".parquet" else path.suffix


def damaged_files(directory: Path) -> list[Path]:
    """The files that are damaged, relative to the warehouse, in a fixed order."""
    staging = {feature.staging_folder for feature in TABLE_FEATURES.values()}
    files = sorted(path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    return [
        path
        for path in files
        if (directory / path).stat().st_size
        and not (path.parts[0] in SPARK_TABLES and (kind_of(path) == "COMMIT" or path.parent.name in staging))
    ]


class Run:
    """The damages of one seed on one warehouse."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.seed = seed
        self.pristine, self.copy = directory / "pristine" / "w", directory / "damaged" / "w"
        build(self.pristine)
        shutil.copytree(self.pristine, self.copy)
        self.reader = Reader()
        self.expected, texts = answers(self.copy)
        if texts or any(isinstance(answer, str) for answer in self.expected.values()):
            raise RuntimeError(f"the undamaged warehouse cannot be read: {texts} {self.expected}")
        watched = WatchedFiles()
        answers(self.copy, environment=Environment(files=watched))
        self.files: dict[str, list[Path]] = defaultdict(list)
        self.needed: dict[str, list[Path]] = defaultdict(list)
        for path in damaged_files(self.pristine):
            self.files[kind_of(path)].append(path)
            if path.name in watched.reads or LOG_FOLDER not in path.parts:
                self.needed[kind_of(path)].append(path)
        self._restore(Path(OWNER_FOLDER) / "lock")

    def case(self, number: int) -> tuple[str, str, str]:
        """Make this damage, read, judge, and restore the file. Returns the kind of file, the outcome and details."""
        randomness = random.Random(f"{self.seed} {number}")
        kind = randomness.choice(sorted(self.files))  # few files are of a rare kind
        alike, needed = self.files[kind], self.needed[kind]
        path = randomness.choice(needed if needed and randomness.random() < NEEDED else alike)
        damage = randomness.choice(DAMAGES)
        content = (self.pristine / path).read_bytes()
        if damage == "other":
            others = [other for other in alike if other != path]
            own = [other for other in others if other.parts[0] == path.parts[0]]
            content = (self.pristine / randomness.choice(own or others or [path])).read_bytes()
        elif damage != "remove":
            content = damaged(randomness, damage, content)
        (self.copy / path).write_bytes(content)
        if damage == "remove":
            (self.copy / path).unlink()
        try:
            outcome, detail = self._judged(path)
        finally:
            self._restore(path)
        return kind, outcome, f"{outcome}: {damage} {path}: {detail}"

    def _judged(self, path: Path) -> tuple[str, str]:
        only = None if path.parts[0] == OWNER_FOLDER else path.parts[0]
        read = self.reader.ask(answers, self.copy, only, only is not None and LOG_FOLDER not in path.parts)
        if read is None:
            return "ended", "the process that reads"
        found, texts = read
        differing = {key for key, value in found.items() if value != self.expected.get(key)}
        if only is None:
            differing |= self.expected.keys() - found.keys()
        name = LEDGER if only is None else path.name
        if not differing:
            return "right", ""
        if any(name in text for text in texts):
            return "named", ""
        messages = self.reader.ask(verified, self.copy)
        if messages is None:
            return "ended", "verify"
        if any(name in text for text in messages):
            return "named", ""
        failed = all(str(found.get(key, FAILED)).startswith(FAILED) for key in differing)
        first = str(found.get(min(differing)))[-600:]
        wrong = "limit" if path.parts[0] in SPARK_TABLES and kind_of(path) == "data" else "silent"
        return "unnamed" if failed else wrong, f"{min(differing)}: {first}; {texts[:2]} {messages[:3]}"

    def _restore(self, path: Path) -> None:
        if path.parts[0] != OWNER_FOLDER:  # reading does not change the ledger
            shutil.copy2(self.pristine / path, self.copy / path)
            return
        shutil.rmtree(self.copy / OWNER_FOLDER)
        shutil.copytree(self.pristine / OWNER_FOLDER, self.copy / OWNER_FOLDER)


def main(arguments: list[str] | None = None) -> int:
    description, _, epilog = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="damage", description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--damages", type=int, default=500, help="number of damages (default: 500)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the damages (default: 1)")
    parser.add_argument("--only", type=int, help="make only the damage with this number")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(arguments)
    numbers = range(options.damages) if options.only is None else range(options.only, options.only + 1)
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    started = last = time.monotonic()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="damage-") as folder:
        run = Run(Path(folder).resolve(), options.seed)
        for number in numbers:
            kind, outcome, detail = run.case(number)
            outcomes[kind][outcome] += 1
            if outcome not in ("right", "named"):
                bad += outcome != "limit"
                again = f"python -m spec_tests.processes.damage --seed {options.seed} --only {number}"
                print(f"{detail}\n  {again}", file=sys.stderr, flush=True)
            if time.monotonic() - last > PROGRESS_SECONDS:
                last = time.monotonic()
                done = f"{number - numbers.start + 1} of {len(numbers)} damages, {bad} neither right nor named"
                print(f"{(last - started) / 60:.1f} min: {done}", file=sys.stderr, flush=True)
        run.reader.end()
    total = sum(outcomes.values(), Counter[str]())
    if options.json:
        print(json.dumps({"damages": total.total(), "outcomes": total, "kinds": outcomes}))
    else:
        print(f"{total.total()} damages: " + ", ".join(f"{total[outcome]} {outcome}" for outcome in sorted(total)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
