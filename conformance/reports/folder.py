"""A folder of reports. One run claims it, and writes each file atomically.

    result.json  junit.xml  summary.md  badge.json  index.html
    findings/<case>/finding.json  history.jsonl  README.md

The run removes findings of earlier runs from the folder, but no other files.
"""

import fcntl
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from conformance.interface.results import RunResult
from conformance.interface.subject import Closing, how_to_install
from conformance.reports.ci import to_badge, to_junit
from conformance.reports.stored import (
    FILES,
    FINDING,
    UNFINISHED,
    FolderInUseError,
    ReportError,
    bundle_name,
    to_json,
    write_bundle,
    write_file,
)
from conformance.reports.summary import failing_cases
from conformance.reports.text import to_markdown

LOCK: Final = ".delta-commit-conformance.lock"
FINDINGS: Final = "findings"


class ReportFolder(Closing):
    """A context manager. Entering it claims the folder for this run.

    Claim it before the run, so that a second run in the same folder fails at its start, not at its end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def __enter__(self) -> Self:
        """Claim the folder. Raises `FolderInUseError`, or `ReportError` for a folder that cannot be written."""
        if importlib.util.find_spec("jinja2") is None:
            raise ReportError(f"the HTML report needs jinja2: {how_to_install('conformance')}")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unwritable(self.path, error) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise FolderInUseError(
                f"another run is writing its reports to {self.path}; wait for its end, or name another folder"
            ) from None
        except OSError as error:
            self.close()
            raise _unwritable(self.path, error) from None
        return self

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)  # this releases the claim; the file stays, because all claims must lock the same file
            self._lock = None

    def write(self, result: RunResult) -> list[Path]:
        """Write all reports, `result.json` last: when it exists, all other reports exist. Raises `ReportError`."""
        if self._lock is None:
            raise RuntimeError("claim the folder first: `with ReportFolder(path) as folder`")
        from conformance.reports.page import to_html  # it needs an optional library

        reports: dict[str, Callable[[], str]] = {
            "junit.xml": lambda: to_junit(result),
            "summary.md": lambda: to_markdown(result, self.path),
            "badge.json": lambda: to_badge(result),
            "index.html": lambda: to_html(result, self.path),
            "result.json": lambda: to_json(result),
        }
        try:
            self._sweep()
            written = self._write_findings(result)
            for name, make in reports.items():
                write_file(self.path / name, make())
                written.append(self.path / name)
        except OSError as error:
            raise _unwritable(self.path, error) from None
        return written

    def _write_findings(self, result: RunResult) -> list[Path]:
        written: list[Path] = []
        names = set()
        for case in failing_cases(result):
            name = bundle_name(case)
            names.add(name)
            written += write_bundle(result, case, self.path / FINDINGS / name)
        for folder in self._bundles():
            if folder.name not in names:
                _remove(folder)
        return written

    def _bundles(self) -> list[Path]:
        return sorted(file.parent for file in (self.path / FINDINGS).glob(f"*/{FINDING}"))

    def _sweep(self) -> None:
        """Remove the incomplete files of a killed run."""
        for folder in (self.path, *self._bundles()):
            for file in folder.glob(f"{UNFINISHED}*"):
                file.unlink(missing_ok=True)


def write(result: RunResult, folder: Path) -> list[Path]:
    """Write all reports of a run, and return their paths. Raises `ReportError`, or `FolderInUseError` if another
    process writes to the folder."""
    with ReportFolder(folder) as claimed:
        return claimed.write(result)


def _remove(bundle: Path) -> None:
    """Remove a bundle, except files that the user put there."""
    for name in FILES:
        (bundle / name).unlink(missing_ok=True)
    if not any(bundle.iterdir()):
        bundle.rmdir()


def _unwritable(folder: Path, error: OSError) -> ReportError:
    if isinstance(error, FileExistsError):
        return ReportError(f"reports cannot be written to {folder}: it is a file; expected a folder")
    file = error.filename2 or error.filename
    where = "" if file is None else f" ({file})"
    return ReportError(
        f"reports cannot be written to {folder}: {error.strerror or error}{where}; choose another folder"
    )
