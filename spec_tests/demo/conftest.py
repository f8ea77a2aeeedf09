"""Rows to ingest: three months, small enough to be counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

ROWS = """month,amount,price,note
1,10,0.5,a
1,20,NA,NA
2,5,1.5,b
3,7,2.5,c
3,8,,
3,-9,3.5,d
"""


@pytest.fixture
def small_file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    return path
