"""The command `list`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from conformance.checks.registry import all_checks
from conformance.command.options import JsonOption
from conformance.command.output import say, show, show_json, show_rows
from conformance.mutants.registry import all_mutants
from conformance.requirements.catalogue import load
from conformance.results import Layer
from conformance.running.errors import UnusableError
from conformance.running.plan import requirements_named
from conformance.running.profiles import PROFILES
from conformance.scenario.check import Family
from conformance.subjects.names import FORMS

_EPILOG: Final = """Examples:

delta-commit-conformance list

delta-commit-conformance list checks --json

delta-commit-conformance list mutants --requirement MC-BACKFILL-01

delta-commit-conformance list requirements | grep BACKFILL"""


def register(application: typer.Typer) -> None:
    application.command("list", epilog=_EPILOG)(list_)


def list_(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="checks, requirements, families, profiles, mutants or subjects")
    ] = "checks",
    requirement: Annotated[
        list[str] | None,
        typer.Option(
            "--requirement", metavar="ID", help="only entries about this requirement (repeatable; `*` matches any text)"
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List checks, requirements, families, profiles, mutants, or the forms of a subject's name."""
    if what not in _LISTS:
        raise UnusableError(f"unknown list {what!r}; choose one of {', '.join(_LISTS)}")
    if requirement and what not in _ABOUT:
        raise UnusableError(f"--requirement works only with {', '.join(_ABOUT)}, not with {what}")
    if what == "subjects" and not json:
        show(FORMS)
        return
    rows = _LISTS[what]()
    if requirement:
        wanted = set(requirements_named(requirement))
        rows = [row for row in rows if not wanted.isdisjoint(_words(row[_ABOUT[what]]))]
    if json:
        show_json(rows)
        return
    if not rows:
        say(f"no {what.removesuffix('s').replace('familie', 'family')} is about {', '.join(requirement or ())}")
        return
    wide = next(reversed(rows[0]))
    show_rows([{name: _text(value) for name, value in row.items()} for row in rows], wide=wide)


def _words(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(value) or "-"
    return str(value)


def _checks() -> list[dict[str, Any]]:
    return [
        {
            "check": f"{check.family}/{check.name}",
            "side": check.side,
            "layer": check.layer.value,
            "needs": sorted(profile.value for profile in check.needs),
            "requirements": list(check.requirements),
            "title": check.title,
        }
        for check in all_checks()
    ]


def _requirements() -> list[dict[str, Any]]:
    checks: dict[str, list[str]] = {}
    for check in all_checks():
        for requirement in check.requirements:
            checks.setdefault(requirement, []).append(check.name)
    return [
        {
            "requirement": each.id,
            "level": each.level.value,
            "side": each.side.value,
            "profile": each.profile.value,
            "checks": len(checks.get(each.id, [])),
            "untestable": "yes" if each.untestable else "no",
            "paraphrase": each.paraphrase,
        }
        for each in load().requirements
    ]


def _families() -> list[dict[str, Any]]:
    return [
        {
            "family": family.value,
            "checks": sum(check.family is family for check in all_checks()),
            "requirements": len(
                {each for check in all_checks() if check.family is family for each in check.requirements}
            ),
        }
        for family in Family
    ]


def _profiles() -> list[dict[str, Any]]:
    return [
        {
            "profile": profile.name,
            "budget_seconds": f"{profile.budget_seconds:g}",
            **{layer.value: profile.counts[layer] for layer in Layer},
            "about": profile.about,
        }
        for profile in PROFILES.values()
    ]


def _mutants() -> list[dict[str, Any]]:
    return [
        {
            "subject": f"{'mutant' if each.violates else 'good'}:{each.id}",
            "side": each.side,
            "violates": list(each.violates),
            "title": each.title,
        }
        for each in all_mutants().values()
    ]


def _subjects() -> list[dict[str, Any]]:
    return [{"form": line.strip()} for line in FORMS.splitlines() if line.strip()]


_ABOUT: Final = {"checks": "requirements", "mutants": "violates", "requirements": "requirement"}
"""By list that can be narrowed to requirements: the column that names them."""

_LISTS: Final[dict[str, Callable[[], list[dict[str, Any]]]]] = {
    "checks": _checks,
    "requirements": _requirements,
    "families": _families,
    "profiles": _profiles,
    "mutants": _mutants,
    "subjects": _subjects,
}
