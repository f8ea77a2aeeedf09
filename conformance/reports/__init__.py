"""All reports of a run, for persons and scripts, made only from `conformance.interface.results.RunResult`.

    from conformance import reports

    with reports.ReportFolder(Path("report")) as folder:  # claim it first: a second run then fails at its start
        result = ...
        folder.write(result)

`to_json`, `to_junit`, `to_markdown`, `to_badge` and `to_html` are pure. Equal results give equal bytes. Values that
differ from run to run are in `RunResult.environment`, which `comparable` removes.
"""

from pathlib import Path

from conformance.interface.results import RunResult
from conformance.reports.ci import to_badge, to_junit
from conformance.reports.folder import ReportFolder, write
from conformance.reports.stored import (
    Finding,
    FolderInUseError,
    ReportError,
    from_json,
    read_finding,
    to_json,
    write_bundle,
)
from conformance.reports.summary import Summary, comparable, summarise
from conformance.reports.text import to_markdown

__all__ = [
    "Finding",
    "FolderInUseError",
    "ReportError",
    "ReportFolder",
    "Summary",
    "comparable",
    "from_json",
    "read_finding",
    "summarise",
    "to_badge",
    "to_html",
    "to_json",
    "to_junit",
    "to_markdown",
    "write",
    "write_bundle",
]


def to_html(result: RunResult, folder: Path | None = None) -> str:
    """One page that needs no network. `folder`: the folder of the reports, for the commands that replay a finding.

    Raises `ReportError` without the extra `conformance`."""
    from conformance.reports.page import to_html as make  # jinja2 is optional, and slow to import

    return make(result, folder)
