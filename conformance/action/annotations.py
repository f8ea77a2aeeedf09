"""Print the failures of a JUnit file as annotations of GitHub Actions: `python annotations.py JUNIT.xml`.

Each check has one annotation, for all its cases: a failure is an error, a case without a verdict a warning. Escapes and
limit: GitHub's "Workflow commands for GitHub Actions", and 10 annotations of a kind in each step.
"""

import sys
from collections.abc import Iterator
from xml.etree import ElementTree

LIMIT = 10
KINDS = {"failure": "error", "error": "warning"}


def annotations(junit: ElementTree.Element) -> Iterator[str]:
    """The lines to print, errors first."""
    for tag, kind in KINDS.items():
        checks: dict[str, list[str]] = {}
        for case in junit.iter("testcase"):
            for problem in case.findall(tag):
                checks.setdefault(case.get("name", "").partition("[")[0], []).append(problem.get("message", ""))
        for number, (check, messages) in enumerate(checks.items(), 1):
            if number == LIMIT < len(checks):
                yield f"::{kind} title=conformance::{len(checks) - LIMIT + 1} more checks; the report has all"
                break
            more = f" (and in {len(messages) - 1} more cases)" if len(messages) > 1 else ""
            yield f"::{kind} title=conformance::{_escaped(f'{check}: {messages[0]}{more}')}"


def _escaped(text: str) -> str:
    return "".join(f"%{ord(letter):02X}" if letter in "%\r\n" else letter for letter in text)


if __name__ == "__main__":
    print(*annotations(ElementTree.parse(sys.argv[1]).getroot()), sep="\n")
