"""The commands that print the kit's catalogues: `list`, `requirements`, `schema` and `examples`."""

import json
import re
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

from conformance.command.output import JsonOption, argument, option, say, show_json, show_rows
from conformance.interface.results import UnusableError, matches
from conformance.requirements.catalogue import Freedom, Level, Profile, Requirement, Side, citation, load, place_of

KIT: Final = Path(__file__).parents[1]


class Listed(StrEnum):
    """The lists of `list`."""

    CHECKS = "checks"
    FAMILIES = "families"
    PROFILES = "profiles"
    MUTANTS = "mutants"
    SUBJECTS = "subjects"


def list_(
    what: Annotated[Listed, argument("WHAT", ", ".join(Listed))] = Listed.CHECKS,
    requirement: Annotated[
        list[str] | None,
        option("--requirement ID", "only entries about this requirement (repeatable; `*` matches any text)"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List checks, families, profiles, mutants, or the forms of a subject's name."""
    from conformance.running.plan import requirements_named

    if requirement and what not in _ABOUT:
        raise UnusableError(f"--requirement works only with {' and '.join(_ABOUT)}, not with {what}")
    rows = _LISTS[what]()
    if requirement:
        wanted = set(requirements_named(requirement))
        rows = [row for row in rows if not wanted.isdisjoint(row[_ABOUT[what]])]
    if not rows and not json:
        say(f"no {what.removesuffix('s')} is about {', '.join(requirement or ())}")
        return
    _show(rows, json=json)


def _show(rows: list[dict[str, Any]], *, json: bool) -> None:
    if json:
        show_json(rows)
        return
    shown = [{name: _text(value) for name, value in row.items()} for row in rows]
    show_rows(shown, wide=next(reversed(rows[0])))


def _text(value: Any) -> str:
    return (" ".join(value) or "-") if isinstance(value, list) else str(value)


def _checks() -> list[dict[str, Any]]:
    from conformance.checks import all_checks

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


def _families() -> list[dict[str, Any]]:
    from conformance.checks import all_checks
    from conformance.scenario.check import ABOUT, Family

    by_family: dict[Family, list[Any]] = {family: [] for family in Family}
    for check in all_checks():
        by_family[check.family].append(check)
    return [
        {
            "family": family.value,
            "checks": len(checks),
            "requirements": len({requirement for check in checks for requirement in check.requirements}),
            "about": ABOUT[family],
        }
        for family, checks in by_family.items()
    ]


def _profiles() -> list[dict[str, Any]]:
    from conformance.interface.results import Layer
    from conformance.running.plan import PROFILES, in_units

    return [
        {
            "profile": profile.name,
            "programs": profile.counts[Layer.MODEL],
            "rounds": profile.counts[Layer.PROCESSES],
            "budget": in_units(profile.budget_seconds),
            "about": profile.about,
        }
        for profile in PROFILES.values()
    ]


def _mutants() -> list[dict[str, Any]]:
    from conformance.mutants import all_mutants

    return [
        {
            "subject": f"{'mutant' if mutant.violates else 'good'}:{mutant.id}",
            "side": mutant.side,
            "violates": list(mutant.violates),
            "title": mutant.title,
        }
        for mutant in all_mutants().values()
    ]


def _subjects() -> list[dict[str, Any]]:
    from conformance.subjects.names import FORMS

    pairs = (re.split(r" {2,}", line.strip(), maxsplit=1) for line in FORMS.splitlines())
    return [{"form": form, "about": about} for form, about in pairs]


_ABOUT: Final = {Listed.CHECKS: "requirements", Listed.MUTANTS: "violates"}
"""For each list that `--requirement` filters, the column with the requirements."""
_LISTS: Final[dict[Listed, Callable[[], list[dict[str, Any]]]]] = {
    Listed.CHECKS: _checks,
    Listed.FAMILIES: _families,
    Listed.PROFILES: _profiles,
    Listed.MUTANTS: _mutants,
    Listed.SUBJECTS: _subjects,
}


def requirements(
    ids: Annotated[list[str] | None, argument("ID", "only requirements with this id (`*` matches any text)")] = None,
    side: Annotated[list[Side] | None, option("--side SIDE", f"only this side: {', '.join(Side)} (repeatable)")] = None,
    level: Annotated[
        list[Level] | None, option("--level LEVEL", f"only this level: {', '.join(Level)} (repeatable)")
    ] = None,
    profile: Annotated[
        list[Profile] | None, option("--profile PROFILE", "only this profile, such as idempotent-retry (repeatable)")
    ] = None,
    freedoms: Annotated[bool, option("--freedoms", "list the freedoms instead, which are never a violation")] = False,
    json: JsonOption = False,
) -> None:
    """List the requirements of the documents, or the freedoms that they grant, with their sources."""
    catalogue = load()
    entries: list[Requirement] | list[Freedom] = [
        requirement
        for requirement in catalogue.requirements
        if (not level or requirement.level in level) and (not profile or requirement.profile in profile)
    ]
    if freedoms:
        entries = [] if level or profile else list(catalogue.freedoms)  # a freedom has neither
    selected = [
        entry
        for entry in entries
        if (not side or entry.side in side) and (not ids or any(matches(pattern, entry.id) for pattern in ids))
    ]
    known = [entry.id for entry in (*catalogue.requirements, *catalogue.freedoms)]
    for pattern in ids or ():
        if not any(matches(pattern, name) for name in known):
            raise UnusableError(f"unknown requirement {pattern!r}; list all: delta-commit-conformance requirements")
    if not selected:
        raise UnusableError(
            "no entry of the catalogue matches all of these filters; list all: delta-commit-conformance requirements"
        )
    if json:
        show_json(selected)
    else:
        _show([_row(entry) for entry in selected], json=False)


def _row(entry: Requirement | Freedom) -> dict[str, str]:
    text, level = entry.paraphrase, "free"
    if isinstance(entry, Requirement):
        level = entry.level.value
        text += f" [{entry.profile}]" if entry.profile is not Profile.CORE else ""
        text += f" Untestable: {entry.untestable}" if entry.untestable else ""
    links = place_of(entry.source, entry.passage).links[:1]
    source = ": ".join([citation(entry.source, entry.passage), *(link.url for link in links)])
    return {"id": entry.id, "level": level, "side": entry.side.value, "text": f"{text} ({source})"}


class Format(StrEnum):
    """The formats with a JSON Schema."""

    INTERFACE = "interface"
    HISTORY = "history"
    RESULT = "result"
    FINDING = "finding"
    KNOWN_FAILURES = "known-failures"


def schema(
    of: Annotated[
        Format,
        argument(
            "FORMAT",
            "`interface`: messages between the kit and a subject; `history`: lines of a history; `result`, `finding`: "
            "the JSON files of reports; `known-failures`: the list of `run --known`",
        ),
    ],
    name: Annotated[str | None, argument("NAME", "only this message or line, for example `commit`")] = None,
) -> None:
    """Print the JSON Schema of the interface, a history, a report's file or known failures, or of one message."""
    from conformance.history import events
    from conformance.interface.messages import Answer, Request, name_of, schema_text

    if of is Format.INTERFACE:
        text = schema_text()
    elif of is Format.HISTORY:
        text = events.schema_text()
    else:
        from conformance.reports import stored

        text = stored.schema_text(of.value)
    if name is None:
        sys.stdout.write(text)
        return
    whole = json.loads(text)
    kinds = (*Request.__args__, *Answer.__args__) if of is Format.INTERFACE else ()
    message = {name_of(kind): kind.__name__ for kind in kinds}.get(name, name)
    if message not in whole["$defs"]:
        raise UnusableError(f"unknown message {name!r}; expected one of {', '.join(sorted(whole['$defs']))}")
    document = {"title": message, **whole["$defs"][message]}
    if name in whole.get("x-answers", {}):
        document["x-answers"] = whole["x-answers"][name]
    print(json.dumps(document, indent=2))


def files() -> dict[str, Path]:
    """The files that `examples` prints, by name."""
    pages = sorted((KIT / "requirements").glob("*.md"))
    examples = [KIT / "examples" / name for name in ("owner.py", "owner.mjs", "postgres_owner.py")]
    return {path.name: path for path in (*examples, KIT / "TEST_YOUR_OWNER.md", *pages)}


def examples(names: Annotated[list[str] | None, argument("NAME", "files to print")] = None) -> None:
    """Print an example owner or a page; without a name, list them."""
    known = files()
    for name in names or ():
        if name not in known:
            raise UnusableError(f"unknown example {name!r}; expected one of {', '.join(known)}")
        sys.stdout.write(known[name].read_text(encoding="utf-8"))
    if not names:
        show_rows([{"name": name, "file": str(path)} for name, path in known.items()], wide="file")
