"""What versions are said to say: the content of a commit is what was proposed, and stays it.

Digests are compared field by field, where both sides have it: bytes for commits that are files, actions for inline
ones, which their catalog may store and publish in another format (catalog-managed, "Terminology: Commits").
"""

from __future__ import annotations

from conformance.checkers.breaches import Breaches
from conformance.checkers.columns import NO_ATTEMPT, Sighting, TableColumns
from conformance.checkers.rules import Rule
from conformance.history.events import Content

_FIELDS = ("bytes", "actions")


def check(table: TableColumns, breaches: Breaches) -> None:
    """Every two observations of one version agree, and agree with the proposal of its attempt. Where bytes and actions
    differ between the same two, the bytes are reported."""
    reported: set[tuple[int, int, int]] = set()
    for clash in table.clashes:
        pair = (clash.version, clash.first, clash.second)
        if pair in reported:
            continue
        reported.add(pair)
        rule = Rule.VERSION_CHANGED if clash.field == "attempt" else Rule.CONTENT_CHANGED
        problem = (
            f"Version {clash.version} was two things: {{first}} returned {clash.field} {_short(clash.first_value)}, "
            f"{{second}} of {_short(clash.second_value)}."
        )
        breaches.add(rule, clash.version, problem, clash.first, clash.second)
    for version in sorted({version for version, _ in table.contents}):
        kept = table.log_contents.get(version)
        for field in _FIELDS:
            told = table.contents.get((version, field))
            if told is not None and _differs(breaches, version, field, told, _of(kept, field), None):
                break
    for index, attempt in enumerate(table.log if table.missing is None else ()):
        if attempt != NO_ATTEMPT and attempt in table.proposed:
            _check_proposal(table, breaches, table.base + index, table.proposed[attempt])


def _check_proposal(
    table: TableColumns, breaches: Breaches, version: int, proposals: list[tuple[Content, int]]
) -> None:
    kept = table.log_contents.get(version)
    for field in _FIELDS:
        proposed = [Sighting(value, number) for content, number in proposals if (value := _of(content, field))]
        if not proposed:
            continue
        values = {each.value for each in proposed}
        stands, told = _of(kept, field), table.contents.get((version, field))
        wrong = stands not in values and _differs(breaches, version, field, proposed[0], stands, None)
        if told is not None and told.value not in values:
            wrong |= _differs(breaches, version, field, proposed[0], told.value, told.id)
        if wrong:
            break


def _of(content: Content | None, field: str) -> str | None:
    return None if content is None else content.bytes if field == "bytes" else content.actions


def _differs(
    breaches: Breaches, version: int, field: str, told: Sighting, other: str | None, second: int | None
) -> bool:
    """Report it if it does. `second`: the operation that returned the other value; None: the final log."""
    if other is None or other == told.value:
        return False
    where = "the final log" if second is None else "{second}"
    problem = f"The {field} of version {version} are {_short(told.value)} in {{first}}, and {_short(other)} in {where}."
    breaches.add(Rule.CONTENT_CHANGED, version, problem, told.id, second)
    return True


def _short(value: str) -> str:
    return value if len(value) <= 16 else f"{value[:12]}..."
