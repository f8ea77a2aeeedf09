"""A damage test: damages one file of a warehouse at a time, and checks that no wrong answer comes without a word.

    python -m spec_tests.processes.damage --damages 5000 --seed 7
    python -m spec_tests.processes.damage --damages 500 --json

The warehouse has tables of every shape: partitions, column mapping, classic checkpoints, checkpoints of several parts,
V2 checkpoints with sidecars, compactions, checksums, staged commits that are not published, tables and deletion vectors
that Delta Spark wrote, and a ledger whose newest transactions are only in its write-ahead log. A damage flips a bit,
zeroes a block, cuts the end off, replaces the file by an older one or another one of its kind, empties or removes it.

After each damage another process opens the warehouse and reads the tables: all rows, selected rows, and older versions.
If the answers differ from those before, or are errors, it runs `verify`. The outcomes:

right    all answers are those of the undamaged warehouse
named    an error, a warning or a finding of `verify` names the file
unnamed  an error, but no message names the file
silent   a wrong answer, and no message names the file
ended    the reading process ended without an error

A file without a second copy and without a digest cannot be checked: commits from before a table had its owner.

Exit status: 0 each damage was right or named; 1 any other outcome; 2 usage.
"""

import argparse
import itertools
import json
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec
import pyarrow as pa

import refimpl
from refimpl import log_path
from refimpl.client import checkpoint_format, maintenance, ownership, parquet_seal
from refimpl.client.table import Table
from refimpl.commit_owner import MaintenancePolicy
from refimpl.environment import Environment
from refimpl.errors import DeltaError
from refimpl.log_path import LOG_FOLDER, SIDECAR_FOLDER
from refimpl.owner.local import OWNER_FOLDER
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, TABLE_FEATURES, CommitMode
from spec_tests.support.written_log import WatchedFiles

FIXTURES: Final = Path(__file__).parents[2] / "fixtures" / "delta_spark"
SPARK_TABLES: Final = ("v2_checkpoint", "deletion_vectors", "mapping_vectors", "type_widening")
"""Tables of Delta Spark that get an owner. Their own commits are not damaged."""
START: Final = 1_700_000_000_000
SECONDS_TO_ANSWER: Final = 60
PROGRESS_SECONDS: Final = 10
NEEDED: Final = 0.8
"""How often a damaged file is one that the reads need."""
OWNED: Final = MaintenancePolicy(allowed=frozenset(maintenance.Maintenance), backfill_every=None, backlog_limit=1000)
LEDGER: Final = "ledger"
"""All messages about the files of the owner's folder name the ledger, which is one database for its reader."""

Answers = dict[str, Any]
Damage = Callable[[random.Random, bytes], bytes | None]


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
        with warehouse.owner.context.lock():
            warehouse.owner.ledger.fold()
        for name in ("classic", "v2", "parts"):  # only in the write-ahead log
            _append(warehouse.table(name), 900)
            _append(warehouse.table(name), 910)


def _tables_of_this_client(warehouse: refimpl.Warehouse) -> None:
    schema = pa.schema([("id", pa.int64()), ("place", pa.string()), ("amount", pa.float64())])
    shapes: dict[str, dict[str, Any]] = {
        "classic": {"partition_columns": ["place"]},
        "v2": {"properties": {"delta.checkpointPolicy": "v2"}, "partition_columns": ["place"]},
        "parts": {"feature": MANAGED_COMMIT},
        "mapped": {"properties": {"delta.columnMapping.mode": "name"}, "commit_mode": CommitMode.INLINE},
    }
    for name, options in shapes.items():
        table = warehouse.create_table(name, schema, **{"policy": OWNED, "commit_mode": CommitMode.STAGED} | options)
        for number in range(8):
            if number == 3:
                table.delete("id = 1")
            _append(table, 10 * number)
            warehouse.owner.backfill_to_version(str(table.table_id))
            if number in (3, 5):
                _checkpoint(table)
            if number in (2, 5):
                maintenance.write_checksum(table)
        maintenance.compact(table, 1, 3)
        maintenance.compact(table, 7, 8)


def _append(table: Table, first: int) -> None:
    ids = range(first, first + 4)
    table.append(pa.table({"id": ids, "place": [("Ulm", "Rom")[n % 2] for n in ids], "amount": [n / 4 for n in ids]}))


def _checkpoint(table: Table) -> None:
    """Of the table `parts`: in three parts, as another client writes it."""
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
    """The answer to each question, and the texts of errors and warnings. `only`: the name of the folder of a table;
    `newest`: of its newest version."""
    found: Answers = {}
    texts: list[str] = []

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
                    found[name], _ = f"error {type(error).__name__}", texts.append(str(error))
                    continue
                ask(name, partial(content, table))
                if name not in SPARK_TABLES and not newest:
                    ask(f"{name} where", partial(content, table, "id >= 30 AND id < 50"))
                    for version in (5, 8):
                        ask(f"{name} at {version}", partial(content, table, version=version))
    except (DeltaError, OSError) as error:
        found["warehouse"] = f"error {type(error).__name__}"
        texts.append(str(error))
    return found, texts


def verified(directory: Path) -> list[str]:
    """The messages of `verify`."""
    try:
        with refimpl.open(directory) as warehouse:
            return [finding.message for finding in warehouse.verify()]
    except (DeltaError, OSError) as error:
        return [str(error)]


def _serve(pipe: Any) -> None:
    """The reading process: answers until it is ended. Arrow may end it."""
    while True:
        question, arguments = pipe.recv()
        pipe.send({"answers": answers, "verified": verified}[question](*arguments))


class Reader:
    """A process that reads. It starts again after it ended."""

    def __init__(self) -> None:
        self._process: Any = None

    def ask(self, question: str, *arguments: Any) -> Any:
        """The answer; None if the process ended or did not answer."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        try:
            self._pipe.send((question, arguments))
            if self._pipe.poll(SECONDS_TO_ANSWER):
                return self._pipe.recv()
        except (EOFError, OSError):
            pass
        self.end()
        return None

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


# Damaging


def _flip(randomness: random.Random, content: bytes) -> bytes | None:
    if not content:
        return None
    at = randomness.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << randomness.randrange(8)]) + content[at + 1 :]


def _zero(randomness: random.Random, content: bytes) -> bytes | None:
    size = randomness.choice((8, 64, 512, 4096))
    at = randomness.randrange(max(len(content), 1)) // size * size
    return content[:at] + bytes(min(size, len(content) - at)) + content[at + size :]


def _cut(randomness: random.Random, content: bytes) -> bytes | None:
    return content[: randomness.randrange(len(content))] if content else None


DAMAGES: Final[dict[str, Damage]] = {"flip": _flip, "zero": _zero, "cut": _cut, "empty": lambda _, content: b""}
KINDS: Final = ("flip",) * 6 + ("zero", "cut", "other", "other", "empty", "remove")


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


def damaged_by(directory: Path) -> list[Path]:
    """The files that are damaged, relative to the warehouse, in a fixed order."""
    staging = {feature.staging_folder for feature in TABLE_FEATURES.values()}
    files = sorted(path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    return [
        path
        for path in files
        if (directory / path).stat().st_size
        and not (path.parts[0] in SPARK_TABLES and (kind_of(path) == "COMMIT" or path.parent.name in staging))
    ]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One damage and its outcome."""

    number: int
    file: str
    kind: str
    damage: str
    outcome: str
    detail: str = ""


@dataclass
class Run:
    """The damages of one seed on one warehouse."""

    directory: Path
    seed: int

    def __post_init__(self) -> None:
        self.pristine, self.copy = self.directory / "pristine" / "w", self.directory / "damaged" / "w"
        build(self.pristine)
        shutil.copytree(self.pristine, self.copy)
        self.files = damaged_by(self.pristine)
        self.reader = Reader()
        self.expected, texts = self.reader.ask("answers", self.copy)
        watched = WatchedFiles()
        answers(self.copy, environment=Environment(files=watched))
        self.needed = [path for path in self.files if path.name in watched.reads or LOG_FOLDER not in path.parts]
        wrong = [answer for answer in self.expected.values() if isinstance(answer, str)]
        if wrong or texts:
            raise RuntimeError(f"the undamaged warehouse cannot be read: {wrong} {texts}")
        self._restore(self.files[0])

    def case(self, number: int) -> Case:
        """Make this damage, read, judge, and restore the file."""
        randomness = random.Random(f"{self.seed} {number}")
        kinds = sorted({kind_of(path) for path in self.files})
        chosen = randomness.choice(kinds)  # few files are of a rare kind
        alike = [path for path in self.files if kind_of(path) == chosen]
        needed = [path for path in self.needed if kind_of(path) == chosen]
        path = randomness.choice(needed if needed and randomness.random() < NEEDED else alike)
        damage = randomness.choice(KINDS)
        content = (self.pristine / path).read_bytes()
        if damage == "other":
            others = [other for other in alike if other != path]
            own = [other for other in others if other.parts[0] == path.parts[0]]
            changed = (self.pristine / randomness.choice(own or others or [path])).read_bytes()
        elif damage == "remove":
            changed = None
        else:
            changed = DAMAGES[damage](randomness, content)
        if changed is None:
            (self.copy / path).unlink()
        else:
            (self.copy / path).write_bytes(changed)
        try:
            outcome, detail = self._judged(path)
        finally:
            self._restore(path)
        return Case(number=number, file=str(path), kind=chosen, damage=damage, outcome=outcome, detail=detail)

    def _judged(self, path: Path) -> tuple[str, str]:
        only = None if path.parts[0] == OWNER_FOLDER else path.parts[0]
        read = self.reader.ask("answers", self.copy, only, only is not None and LOG_FOLDER not in path.parts)
        if read is None:
            return "ended", "the process that reads"
        found, texts = read
        differing = {key for key, value in found.items() if value != self.expected.get(key)}
        if only is None:
            differing |= self.expected.keys() - found.keys()
        if not differing:
            return "right", ""
        name = LEDGER if only is None else path.name
        if any(name in text for text in texts):
            return "named", ""
        messages = self.reader.ask("verified", self.copy)
        if messages is None:
            return "ended", "verify"
        if any(name in text for text in messages):
            return "named", ""
        first = min(differing)
        failed = all(isinstance(found.get(key), str) and found[key].startswith("error") for key in differing)
        return "unnamed" if failed else "silent", f"{first}: {str(found.get(first))[-600:]}; {texts[:2]} {messages[:3]}"

    def _restore(self, path: Path) -> None:
        shutil.copy2(self.pristine / path, self.copy / path)
        if path.parts[0] != OWNER_FOLDER:  # reading does not change the ledger
            return
        shutil.rmtree(self.copy / OWNER_FOLDER)
        shutil.copytree(self.pristine / OWNER_FOLDER, self.copy / OWNER_FOLDER)


def cases(run: Run, numbers: range) -> Iterator[Case]:
    started = last = time.monotonic()
    for number in numbers:
        yield run.case(number)
        if time.monotonic() - last > PROGRESS_SECONDS:
            last = time.monotonic()
            done = number - numbers.start + 1
            print(f"{(last - started) / 60:.1f} min: {done} of {len(numbers)} damages", file=sys.stderr, flush=True)


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
    with tempfile.TemporaryDirectory(prefix="damage-") as folder:
        run = Run(Path(folder).resolve(), options.seed)
        done = list(cases(run, numbers))
        run.reader.end()
    bad = [case for case in done if case.outcome not in ("right", "named")]
    for case in bad:
        command = f"python -m spec_tests.processes.damage --seed {options.seed} --only {case.number}"
        print(f"{case.outcome}: {case.damage} {case.file}\n  {case.detail}\n  {command}", file=sys.stderr)
    outcomes = Counter(case.outcome for case in done)
    by_kind = {kind: Counter(case.outcome for case in done if case.kind == kind) for kind in {c.kind for c in done}}
    if options.json:
        print(json.dumps({"damages": len(done), "files": len(run.files), "outcomes": outcomes, "kinds": by_kind}))
    else:
        print(f"{len(done)} damages of {len(run.files)} files: {dict(outcomes)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
