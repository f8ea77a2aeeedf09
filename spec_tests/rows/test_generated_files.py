"""Generated input files: the client's reader gives the rows that the generator wrote.

    python -m spec_tests.rows.test_generated_files --files 20000 --seed 7

Exit status: 0 no difference; 1 a difference, which is printed with its file.
"""

import argparse
import csv
import datetime
import io
import random
import sys
import tempfile
import zoneinfo
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from refimpl.protocol.errors import InvalidRequestError
from refimpl.rows.input_files import Dialect, InputFiles
from refimpl.schema.schema import Field, Struct, type_named

REFUSED: Final = "refused"
_PROBLEM: Final = "a fault in a CSV file"
_UTC: Final = zoneinfo.ZoneInfo("UTC")
VALUES: Final[dict[str, list[tuple[str, Any]]]] = {
    "long": [
        ("12", 12), ("-0", 0), ("007", 7), (" 5\t", 5), ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", REFUSED), ("1.0", REFUSED), ("0x1F", REFUSED), ("1_0", REFUSED), ("x", REFUSED),
    ],
    "byte": [("127", 127), ("-128", -128), ("128", REFUSED)],
    "double": [("1.5", 1.5), ("-2e3", -2000.0), ("Infinity", float("inf")), ("1e999", REFUSED), ("1,5", REFUSED)],
    "decimal(5,2)": [
        ("1.23", Decimal("1.23")), ("1.2300", Decimal("1.23")), ("-999.99", Decimal("-999.99")), ("1.239", REFUSED),
        ("1000", REFUSED),
    ],
    "date": [
        ("2024-02-29", datetime.date(2024, 2, 29)), ("0001-01-01", datetime.date(1, 1, 1)), ("2023-02-29", REFUSED),
        ("10000-01-01", REFUSED), ("1/2/2024", REFUSED),
    ],
    "timestamp": [
        ("2024-02-29 01:02:03", datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=_UTC)),
        ("2024-02-29T01:02:03.5+01:00", datetime.datetime(2024, 2, 29, 0, 2, 3, 500000, tzinfo=_UTC)),
        ("2024-02-29", datetime.datetime(2024, 2, 29, tzinfo=_UTC)),
        ("2024-02-29 01:02:03.1234560", datetime.datetime(2024, 2, 29, 1, 2, 3, 123456, tzinfo=_UTC)),
        ("2024-02-29 01:02:03.1234567", REFUSED), ("2024-02-29 24:00:00", REFUSED),
    ],
    "timestamp_ntz": [
        ("2024-02-29 01:02:03", datetime.datetime(2024, 2, 29, 1, 2, 3)),  # noqa: DTZ001
        ("2024-02-29 01:02:03Z", REFUSED),
    ],
    "binary": [("", b""), ("00fF", b"\0\xff"), ("0", REFUSED), ("0g", REFUSED), ("00 ff", REFUSED)],
    "boolean": [("true", True), ("FALSE", False), ("1", REFUSED), ("yes", REFUSED)],
}  # fmt: skip
"""Texts, and their values in columns of the type."""
_LETTERS: Final = ["a", "b", '"', ",", ";", "\n", "\r\n", "\r", "\\", "é", "€", " ", "0x1", "\0"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    files: InputFiles | str
    """Or the error of their headers."""
    expected: list[str] | str
    """The rows, each by its `repr`, with which NaN equals itself; or a part of the error."""
    text: str = ""
    """For a file of texts in the dialect of Python's `csv`: its content."""


def generated(draw: random.Random, path: Path) -> Case:
    faults = draw.random() < 0.4
    dialect = Dialect(delimiter=draw.choice(",,,;\t|"), null=draw.choice(["", "", "NA"]))
    typed = draw.random() < 0.7
    kinds = [draw.choice(["string", *VALUES]) if typed else "string" for _ in range(draw.randint(1, 4))]
    names = [draw.choice([f"c{number}", f"C{number}"]) for number in range(len(kinds))]
    mixed = [["\n", "\r\n", "\r"]] if len(kinds) > 1 else []  # in one column, "\n" after "\r" could be an empty row
    ends = draw.choice([["\n"], ["\r\n"], ["\r"], *mixed])
    text = dialect.delimiter.join(names) + draw.choice(ends)
    rows: list[str] = []
    problem = ""
    for _ in range(draw.choice([0, 1, 3, 12])):
        pairs = [_value(draw, kind, dialect, faults=faults) for kind in kinds]
        written, values = [text for text, _ in pairs], tuple(value for _, value in pairs)
        wide = faults and draw.random() < 0.05
        written += ["surplus"] if wide else []
        problem = problem or (_PROBLEM if wide or REFUSED in values else "")
        text += dialect.delimiter.join(written) + draw.choice(ends)
        rows.append(repr(values))
        if draw.random() < 0.1 and (len(kinds) > 1 or not dialect.null):
            text += draw.choice(ends)
            rows += ["(None,)"] if len(kinds) == 1 else []
    content = (draw.choice(["", "\ufeff"]) + text).encode()
    if draw.random() < 0.3 and len(kinds) > 1:
        content = content.rstrip(b"\r\n")
    elif faults and rows and draw.random() < 0.1:
        content += draw.choice([b"\xe9", b'"x'])
        problem = problem or _PROBLEM
    path.write_bytes(content)
    compared = not typed and dialect == Dialect() and len(kinds) > 1
    files = _opened(path, dialect, _struct([name.lower() for name in names], kinds))
    return Case(files=files, expected=problem or rows, text=text if compared else "")


def _value(draw: random.Random, kind: str, dialect: Dialect, *, faults: bool) -> tuple[str, Any]:
    """A value as it is written, and what it is."""
    if draw.random() < 0.15:
        bare = kind in ("string", "binary") or draw.random() < 0.5
        return (dialect.null if bare else _quoted(dialect.null)), None
    if kind == "string":
        text = "".join(draw.choice(_LETTERS) for _ in range(draw.choice([0, 1, 3, 30])))
        value: Any = text
    else:
        text, value = draw.choice([pair for pair in VALUES[kind] if faults or pair[1] is not REFUSED])
    special = {dialect.delimiter, '"', "\n", "\r"} & set(text) or text in ("", dialect.null)
    return (_quoted(text) if special or draw.random() < 0.2 else text), value


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _struct(names: Sequence[str], kinds: Sequence[str]) -> Struct:
    return Struct(fields=tuple(Field(name=n, type=type_named(k)) for n, k in zip(names, kinds, strict=True)))


def _opened(path: Path, dialect: Dialect, schema: Struct) -> InputFiles | str:
    try:
        return InputFiles.of([path], dialect).typed(schema)
    except InvalidRequestError as error:
        return error.message


def _rows(batches: Iterable[pa.RecordBatch]) -> list[str]:
    return [repr(tuple(row.values())) for batch in batches for row in batch.to_pylist()]


def read(files: InputFiles | str) -> list[str] | str:
    """The rows, or the error."""
    if isinstance(files, str):
        return files
    try:
        return _rows(files.batches())
    except InvalidRequestError as error:
        return error.message


def difference(case: Case, outcome: list[str] | str) -> str:
    """What is wrong with an outcome; empty if nothing is."""
    if isinstance(case.expected, str) and isinstance(outcome, str):
        wrong = case.expected != _PROBLEM and case.expected not in outcome
        return f"refused with {outcome!r}, expected {case.expected!r}" if wrong else ""
    if case.expected != outcome:
        return f"{outcome!r}, expected {case.expected!r}"
    if case.text:
        _, *read_by_csv = (row for row in csv.reader(io.StringIO(case.text, newline=""), strict=True) if row)
        rows = [repr(tuple(value or None for value in row)) for row in read_by_csv]
        if rows != [row.replace("''", "None") for row in case.expected]:
            return f"{outcome!r}, Python's csv reads {rows!r}"
    return ""


def run(folder: Path, files: int, seed: int) -> Iterator[str]:
    """The differences in generated files."""
    for number in range(files):
        case = generated(random.Random(f"{seed} {number}"), folder / f"f{number}.csv")
        if problem := difference(case, read(case.files)):
            (path,) = folder.glob(f"f{number}.*")
            yield f"file {number} of seed {seed}: {path.read_bytes()!r}: {problem}"
        for path in folder.iterdir():
            path.unlink()


def test_generated_files_have_the_rows_that_were_written(tmp_path: Path) -> None:
    assert list(run(tmp_path, 200, seed=1)) == []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1000, help="number of files (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the files (default: 1)")
    options = parser.parse_args()
    problems = 0
    with tempfile.TemporaryDirectory() as folder:
        for problem in run(Path(folder), options.files, options.seed):
            print(problem, flush=True)
            problems += 1
    print(f"{options.files} files, {problems} differences (seed {options.seed})")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
