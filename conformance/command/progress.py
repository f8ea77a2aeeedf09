"""What is seen of a run while it goes on, on the standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from conformance.command.output import counted, say
from conformance.interface.messages import Identity
from conformance.reports.summary import direct_first
from conformance.results import CaseResult, Verdict
from conformance.running.execution import Watcher
from conformance.running.plan import Plan
from conformance.safe_text import one_line

LINE_SECONDS: Final = 5.0
"""Between two plain lines that only say how far the run is."""
_LONGEST: Final = 240


@contextmanager
def progress() -> Iterator[Watcher]:
    """The watcher for the standard error as it is."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    with _Bar() as bar:
        yield bar


class Lines:
    """A line for each failure, and now and then one that says how far it is."""

    def __init__(self) -> None:
        self.total = 0
        self.done = 0
        self.failed = 0
        self._last = time.monotonic()

    def begins(self, identity: Identity, planned: Plan, workers: int) -> None:
        self.total = len(planned.cases)
        skipped = f", {len(planned.skipped)} skipped" if planned.skipped else ""
        self._line(
            f"{one_line(identity.name)} {one_line(identity.version)}, {identity.side}: "
            f"{counted(self.total, 'case')}{skipped}, {counted(workers, 'worker')}"
        )

    def case(self, result: CaseResult, *, fails: bool, known: bool, seconds: float) -> None:
        self.done += 1
        if fails and not known:
            first = ", the first failure" if not self.failed else ""
            self.failed += 1
            self._line(f"FAILED after {seconds:.1f} s{first}: {_failure(result)}")
        elif result.verdict is Verdict.FAILED:
            self._line(f"{'known failure' if known else 'warning'}: {_failure(result)}")
        self._moved()

    def note(self, text: str) -> None:
        self._line(f"note: {text}")

    def _moved(self) -> None:
        if self.done == self.total or time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            self._line(f"{self.done} of {counted(self.total, 'case')}, {self.failed} failed")

    def _line(self, text: str) -> None:
        say(text)


class _Bar(Lines):
    """The same lines, above a bar that moves."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress: Any = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False, soft_wrap=True),
            transient=True,
        )
        self._task: Any = None

    def __enter__(self) -> _Bar:
        self._progress.start()
        self._task = self._progress.add_task("starting", total=None)
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def begins(self, identity: Identity, planned: Plan, workers: int) -> None:
        super().begins(identity, planned, workers)
        self._progress.update(self._task, total=self.total, description="0 failed")

    def _moved(self) -> None:
        description = f"[bold red]{self.failed} failed[/]" if self.failed else "0 failed"
        self._progress.update(self._task, completed=self.done, description=description)

    def _line(self, text: str) -> None:
        from rich.text import Text

        self._progress.console.print(Text(text, style="red" if text.startswith("FAILED") else ""))


def _failure(result: CaseResult) -> str:
    first = direct_first(result.violations)[0]
    message = one_line(first.message)
    cut = message if len(message) <= _LONGEST else f"{message[:_LONGEST]} ..."
    return f"{result.case}: {', '.join(first.requirements)}: {cut}"
