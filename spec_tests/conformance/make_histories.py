"""The histories in `fixtures/histories`: good ones that use a freedom, bad ones that violate one rule, each short.

    python -m spec_tests.conformance.make_histories           # write them
    python -m spec_tests.conformance.make_histories --check   # exit code 1 if they are not what would be written

Each is a case below: what happened, in words, and the rules that it violates. `index.json` lists them.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.checkers.rules import Rule
from conformance.history.files import write_events
from spec_tests.conformance.drafts import Draft
from spec_tests.conformance.histories import BAD, GOOD

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "histories"
INDEX = "index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One fixture. A good one violates nothing."""

    name: str
    about: str
    draft: Draft
    rules: tuple[Rule, ...] = ()

    @property
    def file(self) -> str:
        return f"{'bad' if self.rules else 'good'}/{self.name}.jsonl"

    def text(self) -> bytes:
        """The lines of the file."""
        self.draft.note = self.about
        stream = io.BytesIO()
        write_events(stream, self.draft.events())
        return stream.getvalue()


def cases() -> Iterator[Case]:
    """All fixtures, good ones first."""
    for make in GOOD:
        yield Case(name=_name(make), about=_about(make), draft=make())
    for rules, make in BAD:
        yield Case(name=_name(make), about=_about(make), draft=make(), rules=rules)


def _name(make: Callable[[], Draft]) -> str:
    return make.__name__.replace("_", "-")


def _about(make: Callable[[], Draft]) -> str:
    return " ".join((make.__doc__ or "").split())


def files() -> dict[str, bytes]:
    """What the folder shall hold, by path."""
    found = {case.file: case.text() for case in cases()}
    index = [
        {"file": case.file, "about": case.about, "violates": [rule.value for rule in case.rules]} for case in cases()
    ]
    found[INDEX] = (json.dumps(index, indent=1, ensure_ascii=False) + "\n").encode()
    return found


def differences() -> list[str]:
    """What is missing, changed, or too much."""
    wanted = files()
    there = {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in FOLDER.rglob("*") if path.is_file()}
    return sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))


def write() -> None:
    """Make the folder hold that, and nothing else."""
    wanted = files()
    for path in FOLDER.rglob("*"):
        if path.is_file() and path.relative_to(FOLDER).as_posix() not in wanted:
            path.unlink()
    for name, content in wanted.items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def main() -> int:
    parser = argparse.ArgumentParser(description="write the histories in fixtures/histories")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if something differs")
    options = parser.parse_args()
    if options.check:
        for name in differences():
            print(f"{name} is not what would be written")
        return 1 if differences() else 0
    write()
    print(f"{len(files())} files in {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
