"""Delta Kernel (Rust) as a subject: what it violates on a slice of the quick profile is what is known."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from conformance.adapters.engines.delta_kernel_rs import DeltaKernelRs

pytestmark = pytest.mark.engines

ADVICE: Final = {"FIELD-05", "LOG-08", "LOG-21", "LOG-26", "LOG-38", "FIELD-03"}


def test_what_delta_kernel_violates_is_known(tmp_path: Path) -> None:
    if problem := DeltaKernelRs.missing(None):
        pytest.skip(problem)
    command = [
        sys.executable,
        "-m",
        "conformance",
        "run",
        "engine:delta-kernel-rs",
        "--report",
        str(tmp_path / "report"),
    ]
    slices = ["--family", "reading", "--family", "backfill-ordering", "--family", "limits"]
    done = subprocess.run([*command, *slices], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    cases = json.loads((tmp_path / "report" / "result.json").read_text())["cases"]
    violated = {name for case in cases for each in case.get("violations", ()) for name in each["requirements"]}
    assert violated == ADVICE
    assert sum(case["verdict"] == "passed" for case in cases) > len(cases) // 2
