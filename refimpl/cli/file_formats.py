"""Which format a file of rows has, by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from refimpl.errors import InvalidRequestError

CSV: Final = ".csv"
PARQUET: Final = ".parquet"
_COMPRESSED: Final = ".gz"


def format_of(path: Path) -> str:
    """`CSV` or `PARQUET`: the last suffix, of a CSV file that before `.gz`; `InvalidRequestError` for any other."""
    suffix = path.suffix.lower()
    if suffix == PARQUET:
        return PARQUET
    if suffix == CSV or (suffix == _COMPRESSED and Path(path.stem).suffix.lower() == CSV):
        return CSV
    raise InvalidRequestError(
        f"unsupported file type {str(path)!r}; expected *{CSV}, *{CSV}{_COMPRESSED} or *{PARQUET}"
    )
