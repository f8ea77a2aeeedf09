"""`python -m conformance.findings`: see the package."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import conformance.findings
from conformance.findings import clients, markdown, stored
from conformance.reports.as_json import ReportError


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 2 for what cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.findings",
        description=conformance.findings.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("id", nargs="?", help="of one finding")
    parser.add_argument("--record", type=Path, metavar="REPORT", help="a folder that `run --report` wrote")
    parser.add_argument("--keep", type=Path, metavar="BUNDLE", help="one of the folders below its `findings`")
    options = parser.parse_args(arguments)
    try:
        print(_asked(options.id, options.record, options.keep), end="")
    except ReportError as error:
        print(f"error: {error.problem}", file=sys.stderr)
        return 2
    return 0


def _asked(identifier: str | None, report: Path | None, bundle: Path | None) -> str:
    if report is not None:
        tested = stored.record(report / "result.json")
        return f"{tested.subject}: {len(tested.held)} held, {len(tested.violated)} violated\n"
    if bundle is not None:
        if not identifier:
            raise ReportError("--keep needs an ID: what the finding shall be called")
        return f"{stored.keep(bundle, identifier) / stored.ABOUT}\n"
    found, of_clients = stored.findings(), clients.deviations()
    if identifier is None:
        return markdown.page(stored.runs(), found, of_clients)
    for each in found:
        if each.id == identifier:
            return markdown.report(each)
    for deviation in of_clients:
        if deviation.id == identifier:
            return clients.report(deviation)
    known = ", ".join([*(each.id for each in found), *(each.id for each in of_clients)])
    raise ReportError(f"there is no finding {identifier!r}; there are {known}")


if __name__ == "__main__":
    sys.exit(main())
