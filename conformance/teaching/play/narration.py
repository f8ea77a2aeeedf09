"""A scenario as a story: run by the simulator, and run again with other choices. One sentence for each step, generated
from its effect and the change that it made, with its rule.

A rule is the id of a requirement of the catalogue. Sentences about the ledger compare its rows before and after the
step: no sentence is written by hand for a scenario.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final

from conformance.story import Happening, Rows, Step, Story, View
from conformance.teaching.play.world import OWNER, Scenario, World
from refimpl.protocol.table_feature import TableFeature

Sentence = tuple[str, str | None]
"""The text, and the id of its requirement."""

_COMMIT: Final = re.compile(r"(?:.*/)?(\d+)\.json$")
_STAGED: Final = re.compile(r"(?:.*/)?_(?:staged_)?commits/(\d+)\.(\w+)\.json$")
_LISTED: Final = re.compile(r"(?:^|(?<=; ))(?=\d)")
"""The position before the versions of the unpublished commits in an answer."""

_FILES: Final[dict[tuple[str, str], Sentence]] = {
    ("create", "staged"): ("{who} creates the staged file of attempt {attempt}, for version {version}", "CM-FILES-03"),
    ("write", "staged"): ("{who} writes the actions of attempt {attempt}", "CM-LOG-02"),
    ("fsync", "staged"): ("{who} syncs the staged file: a power cut no longer takes its bytes", None),
    ("unlink", "staged"): ("{who} deletes the staged file of attempt {attempt}, which {fate}", None),
    ("read", "staged"): ("{who} reads the staged file of attempt {attempt}", "CM-FILES-04"),
    ("replace", "commit"): ("{who} writes {target} again, with the same bytes", None),
    ("fsync", "commit"): ("{who} syncs {target}", None),
    ("read", "commit"): ("{who} reads {target}", None),
    ("unlink", "commit"): ("{who} deletes {target}", "CM-CLEANUP-04"),
    ("create", "temporary"): ("{who} creates a temporary file", None),
    ("write", "temporary"): ("{who} writes the whole content into it", None),
    ("fsync", "temporary"): ("{who} syncs it, before it gets its name", None),
    ("unlink", "temporary"): ("{who} removes the temporary name", None),
    ("replace", "checkpoint"): ("{who} gives the checkpoint its name, {target}", "CM-MAINT-01"),
    ("read", "checkpoint"): ("{who} reads the checkpoint {target}", None),
    ("unlink", "checkpoint"): ("{who} deletes {target}", "CM-CLEANUP-04"),
    ("read", "pointer"): ("{who} reads `_last_checkpoint`, if it exists", None),
    ("replace", "pointer"): ("{who} updates `_last_checkpoint` to the new checkpoint", "FIELD-01"),
}
_ANY: Final = {
    "list": "{who} lists {target}",
    "make-directory": "{who} creates the folder {target}, if it is missing",
    "remove-directory": "{who} removes the folder {target}",
    "fsync-directory": "{who} syncs the folder {target}: the names in it are durable now",
    "done": "{who} is done",
    "create": "{who} creates {target}",
    "write": "{who} writes {target}",
    "read": "{who} reads {target}",
    "stat": "{who} checks whether {target} exists",
    "link": "{who} puts {target} in place, if the name is free",
    "replace": "{who} replaces {target}",
    "unlink": "{who} deletes {target}",
    "acquire": "{who} takes the lock",
    "release": "{who} releases the lock",
    "begin": "{who} begins a transaction in the ledger",
    "query": "{who} reads the ledger",
    "rollback": "{who} rolls back its transaction in the ledger",
    "pause": "{who} waits before it tries again",
    "crash": "{who} is killed: it does nothing more, and its locks are released",
}

_REQUESTS: Final[dict[str, Sentence]] = {
    "resolve": ("{who} asks the owner for the table by its name", "CM-READ-08"),
    "get_commits": ("{who} asks the owner for the unpublished commits and the latest version", "CM-READ-01"),
    "commit": ("{who} proposes version {version}", "CM-WRITE-03"),
    "commit_group": ("{who} proposes one version of each table, as one group", "PROFILE-GROUP-01"),
    "resolve_together": ("{who} asks the owner for both tables, in one state", "PROFILE-GROUP-03"),
    "attempt_outcome": ("{who} asks the owner for the outcome of the attempt", "PROFILE-UNKNOWN-01"),
    "backfill_to_version": ("{who} asks the owner to publish the ratified commits", "CM-PUBLISH-04"),
    "stage_table": ("{who} asks the owner for a location for a new table", None),
    "register_table": ("{who} registers the table with its version 0", "CM-CREATE-02"),
    "drop_table": ("{who} asks the owner to drop the staged table: another table has the name", None),
    "take_over": ("{who} asks the owner to take the table over, as version {version}", "MC-CONVERT-02"),
    "hand_back": ("{who} asks the owner to hand the table back, as version {version}", "MC-RELEASE-01"),
}


def sentence(happening: Happening, before: View, after: View, feature: TableFeature) -> Sentence:
    """The step in a sentence, and its rule; `before` and `after` are the views around it."""
    text, rule = _sentence(happening, before, after)
    return text, _SAME_RULE.get(feature.name, {}).get(rule, rule) if rule else None


def _sentence(happening: Happening, before: View, after: View) -> Sentence:
    kind, target = happening.kind, happening.target
    who = "The owner" if happening.lane == OWNER else happening.client
    match kind:
        case "commit":
            return _transaction(who, before.ledger, after.ledger)
        case "send":
            request, _, version = target.partition(" v")
            text, rule = _REQUESTS[request]
            return text.format(who=who, version=version), rule
        case "answer":
            request, _, said = target.partition(": ")
            rule = _ANSWERS.get((request.split()[0], said.split(",")[0]))
            return f"{who} gets the answer: {_LISTED.sub('unpublished versions ', said)}", rule
        case "lost answer":
            return f'The answer to {who} is lost. It was "{happening.detail}"', "CM-COMMIT-06"
        case "work":
            return f"{who} {target}", "DELAYED-02" if target.startswith("sends") else None
        case "result":
            return f"{who}: {target}", None
        case "error":
            return f"{who} ends with {target}: {happening.detail}", None
        case "power cut":
            lost = f"Lost: {happening.detail}" if happening.detail else "No file of the log is lost"
            return f"The power fails: what was not synced is lost. {lost}", "PROFILE-DURABLE-01"
        case "unlink" if _COMMIT.match(target) and "/" in target and not _STAGED.match(target):
            return f"{who} deletes {target}: no table was created there", None
        case "link" if _COMMIT.match(target):
            return _put_if_absent(happening, who, before, after)
    staged = _STAGED.match(target)
    phrase = _FILES.get((kind, _sort(target)))
    if phrase is None:
        return _ANY[kind].format(who=who, target=target), None
    version, attempt = staged.groups() if staged else ("", "")
    landed = any(row[0] == "commit" and row[2] == attempt for row in after.ledger)
    fate = "is published" if landed else "has lost"
    return phrase[0].format(who=who, target=target, version=version, attempt=attempt, fate=fate), phrase[1]


def decides(happening: Happening) -> bool:
    """Whether the outcome can depend on this step: a decision, a put-if-absent, an answer, a fault or an end."""
    kind, target = happening.kind, happening.target
    if kind in ("send", "answer"):
        return target.split(" ")[0].split(":")[0] in _DECIDING
    return kind in ("commit", "lost answer", "crash", "power cut", "result", "error") or (
        kind == "link" and bool(_COMMIT.match(target))
    )


_DECIDING: Final = frozenset({"commit", "register_table", "take_over", "hand_back", "attempt_outcome"})


def _put_if_absent(happening: Happening, who: str, before: View, after: View) -> Sentence:
    target = happening.target
    old, new = ({name: content for name, _, content in view.log}.get(target) for view in (before, after))
    unowned = None if "/" in target else "MC-FILES-11"  # otherwise there is no table yet
    rule = "CM-FILES-06" if happening.lane == OWNER else unowned
    if old is None:
        decision = ". This is the decision" if _transfers(before.ledger, target) else ""
        return f"{who} puts {target} in place. The name was free{decision}", rule
    if old == new:
        return f"{who} tries to put {target} in place, but the file already exists", rule
    return f"{who} puts {target} in place. The store overwrites the existing file", rule


def _transfers(ledger: Rows, published: str) -> bool:
    """Whether the owner promised a take-over or a hand-back as this version; the first file decides it."""
    promised = {f"{kind} as version {PurePosixPath(published).stem}" for kind in ("take-over", "hand-back")}
    return any(row[0] == "promise" and row[1] in promised for row in ledger)


_ANSWERS: Final = {
    ("commit", "ratified"): "CM-COMMIT-01",
    ("commit", "conflict"): "CM-COMMIT-08",
    ("attempt_outcome", "landed"): "PROFILE-OUTCOME-01",
    ("attempt_outcome", "not landed"): "PROFILE-OUTCOME-02",
}


_SAME_RULE: Final = {"managedCommit": {
    "CM-FILES-03": "MC-FILES-03", "CM-LOG-02": "MC-LOG-05", "CM-FILES-04": "MC-FILES-05", "CM-READ-08": "MC-READ-05",
    "CM-READ-01": "MC-READ-05", "CM-WRITE-03": "MC-FILES-12", "CM-COMMIT-01": "MC-FEATURE-03",
    "CM-COMMIT-02": "MC-COMMIT-03", "CM-COMMIT-06": "MC-COMMIT-06", "CM-COMMIT-08": "MC-COMMIT-02",
    "CM-FILES-06": "MC-FILES-07", "CM-PUBLISH-04": "MC-BACKFILL-05", "CM-PUBLISH-06": "MC-BACKFILL-03",
}}  # fmt: skip
"""The rule in the document of each table feature."""


def _sort(target: str) -> str:
    name = target.rpartition("/")[2]
    if _STAGED.match(target):
        return "staged"
    if _COMMIT.match(target):
        return "commit"
    if name == ".tmp":
        return "temporary"
    if ".checkpoint." in name:
        return "checkpoint"
    return "pointer" if name == "_last_checkpoint" else ""


def _transaction(who: str, before: Rows, after: Rows) -> Sentence:
    """What a transaction changed in the ledger."""
    new = list((Counter(after) - Counter(before)).elements())
    decided = {row[1] for row in before if row[0] == "commit"}
    for what, version, attempt, _ in new:
        if what == "commit" and version not in decided:
            if _transfers(before, version.removeprefix("version ")):
                return f"{who} commits its transaction: {version} is attempt {attempt}, as promised", "MC-CONVERT-07"
            created = any(row[0] == "promise" and row[1] == f"create as {version}" for row in before)
            decision = ", as promised" if created else ". This is the decision"
            known = {row[2] for row in before} | {attempt}
            others = [f"{row[1]} is {row[2]}" for row in new if row[0] == "commit" and row[2] not in known]
            group = f", and in the other table {' and '.join(others)}" if others else ""
            return f"{who} commits its transaction: {version} is attempt {attempt}{group}{decision}", "CM-COMMIT-02"
    for what, text, attempt, _ in new:
        if what == "promise":
            said = f"{who} records its promise first: {text}, attempt {attempt}"
            if text.startswith("create"):
                return f"{said}. This is the decision: the name is this table's", None
            return said, "MC-CONVERT-07"
        if what == "resolved":
            return f"{who} records permanently that attempt {attempt} {text}", "PROFILE-OUTCOME-02"
    for row in new:
        if row[0] == "table":
            rule = "CM-PUBLISH-06" if row[3].startswith("published") else None
            return f"{who} records: the table is {row[1]}, {row[3]}", rule
    return f"{who} ends its transaction without a change to the ledger", None


# The story of a scenario


def story_of(scenario: Scenario) -> Story:
    return Story(
        name=scenario.name,
        title=scenario.title,
        about=scenario.about,
        ends=scenario.ends,
        clients=tuple(scenario.clients),
        others=(OWNER,),
        steps=tuple(steps_of(scenario)),
        forks=ScenarioForks(scenario),
    )


def steps_of(scenario: Scenario, choices: Sequence[str] | None = None) -> Iterator[Step]:
    """The steps of these choices, or of the scenario's own story."""
    with World(scenario) as world:
        yield from _steps(world, world.follow() if choices is None else map(world.choose, choices))


def _steps(world: World, made: Iterable[list[Happening]]) -> Iterator[Step]:
    before = world.view()
    for happenings in made:
        after = world.view()
        for happening in happenings:
            text, rule = sentence(happening, before, after, world.scenario.feature)
            yield Step(happening, text, rule, after, tuple(world.choices), decides(happening))
        before = after


class ScenarioForks:
    """Runs a scenario with other choices than its own."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    def options(self, choices: Sequence[str]) -> list[str]:
        """Every client that can take the next step, and every fault."""
        with self._after(choices) as world:
            return [*world.enabled(), *world.faults()]

    def follow(self, choices: Sequence[str], option: str) -> list[Step]:
        """Take the option, then run all remaining clients to their end."""
        with self._after(choices) as world:
            return list(_steps(world, _to_the_end(world, option)))

    @contextmanager
    def _after(self, choices: Sequence[str]) -> Iterator[World]:
        with World(self._scenario) as world:
            for choice in choices:
                world.choose(choice)
            yield world


def _to_the_end(world: World, choice: str) -> Iterator[list[Happening]]:
    """Run one client after the other, the chosen one first."""
    yield world.choose(choice)
    while enabled := world.enabled():
        yield world.choose(choice if choice in enabled else next(iter(enabled)))
