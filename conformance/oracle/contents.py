"""What a commit may contain: what was proposed, and in a table's first commits what the owner may add.

managed-commits, "Delta Log Entries", "Commit Files", "Managed Commit Enablement"; catalog-managed, "Delta Log
Entries", "Publishing Commits".
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from conformance.history import digests
from conformance.interface import messages as m
from conformance.interface.log_names import STAGING, commit_file
from conformance.models import proposals
from conformance.oracle.owner import Facts, Wrong

OWNER: Final = "delta.managedCommit.commitOwner"
CONFIGURATION: Final = "delta.managedCommit.commitOwnerConf"
OF_WRITERS: Final = "kit."
"""The beginning of the names of properties that only writers set."""
_COMMIT_NAME: Final = re.compile(r"(?:.*/)?(\d+)\.json")
"""The name of a published commit, in any folder."""
_UUID_NAME: Final = re.compile(r"\d+\.[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\.json")
_DERIVED_NAME: Final = re.compile(r"(?:\d+\.)?(\d+)\.(?:checkpoint\..+|compacted\.json)")
_STAGED_NAME: Final = re.compile(r"(\d+)\.[^./]+\.json")

Proposal = m.Commit | m.CreateTable | m.TakeOver | m.HandBack


def without_additions(proposed: Sequence[str], stored: Sequence[str]) -> str | None:
    """The digest of a commit without properties and features that were not proposed; None if it is not a commit."""
    try:
        parsed = [json.loads(line) for line in stored]
        wanted = [json.loads(line) for line in proposed]
        own = next(action["metaData"]["configuration"] for action in wanted if "metaData" in action)
        protocol = next(action["protocol"] for action in wanted if "protocol" in action)
        for action in parsed:
            if "metaData" in action:
                found = action["metaData"]["configuration"]
                action["metaData"]["configuration"] = {key: found[key] for key in found if key in own}
            if "protocol" in action:
                for kind in ("readerFeatures", "writerFeatures"):
                    kept = [name for name in protocol.get(kind, ()) if name in action["protocol"].get(kind, ())]
                    action["protocol"] |= {kind: kept} if kind in protocol else {}
        return digests.of_actions(json.dumps(action) for action in parsed)
    except (ValueError, KeyError, TypeError, StopIteration):
        return None


def commit(proposal: Proposal, actions: Sequence[str], version: m.Version, facts: Facts) -> Wrong | None:
    """ "Delta Log Entries": a commit is all of the proposed actions, one on each line, and no other."""
    proposed = proposal.actions or ()
    first = isinstance(proposal, m.CreateTable | m.TakeOver)
    if first and without_additions(proposed, actions) == digests.of_actions(proposed):
        return _enablement(proposal, actions, version)
    same = list(actions) == list(proposed) or digests.same_actions(proposed, actions)
    if not first and same and [*map(_members, actions)] == [*map(_members, proposed)]:
        return None
    found = [line for line in proposed if digests.same_actions([line], [line]) and line in actions]
    partly = ("MC-LOG-01", "CM-LOG-01") if 0 < len(found) < len(proposed) else ()
    lines = () if all(_is_an_action(line) for line in actions) else ("MC-LOG-05", "CM-LOG-02")
    kept = ("PROFILE-DURABLE-01",) if facts.restarted else ()
    leaving = ("MC-RELEASE-05",) if isinstance(proposal, m.HandBack) else ()
    return Wrong(
        (*leaving, "MC-API-03", "CM-CATALOG-03", *partly, *lines, "MC-COMMIT-04", "CM-COMMIT-04", *kept),
        f"version {version} is the {len(proposed)} actions that were proposed", version, f"it has {len(actions)} "
        f"actions, other ones",
    )  # fmt: skip


def _enablement(proposal: Proposal, actions: Sequence[str], version: m.Version) -> Wrong | None:
    """ "Managed Commit Enablement": the metadata names the owner; its configuration is a map of strings."""
    if getattr(proposal, "feature", "") != "managedCommit":
        return None
    properties = (proposals.body_of(proposals.content(actions), "metaData") or {}).get("configuration", {})
    name, configuration = properties.get(OWNER), properties.get(CONFIGURATION)
    if not isinstance(name, str) or not name:
        what = f"the owner adds its name to the metadata of version {version}, as `{OWNER}`"
        return Wrong(("MC-ENABLE-10",), what, version, f"it is {name!r}")
    if configuration is not None and not _is_a_map_of_strings(configuration):
        return Wrong(("MC-ENABLE-05",), f"`{CONFIGURATION}` is a JSON object of strings", version,
                     f"it is {str(configuration)[:200]}")  # fmt: skip
    return None


def _members(line: str) -> int:
    """The number of members of all objects; a parser keeps one of those with the same name."""
    count = 0

    def counted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal count
        count += len(pairs)
        return dict(pairs)

    json.loads(line, object_pairs_hook=counted)
    return count


def _is_an_action(line: str) -> bool:
    try:
        action = json.loads(line)
    except ValueError:
        return False
    return isinstance(action, dict) and len(action) == 1


def _is_a_map_of_strings(text: object) -> bool:
    try:
        parsed = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return False
    return isinstance(parsed, dict) and all(isinstance(value, str) for value in parsed.values())


def published(content: str, staged: str | None, version: m.Version, wrong: Wrong | None) -> Wrong | None:
    """ "Publishing Commits": a published commit has exactly the bytes of the ratified staged file. `wrong`: why
    it is not the proposal."""
    if wrong is not None:
        first = ("MC-BACKFILL-01", "CM-PUBLISH-01", "CM-PUBLISH-02", "CM-PUBLISH-03")
        return wrong._replace(requirements=(*wrong.requirements, *first))
    if staged is None or staged == content:
        return None
    what = f"version {version} is published with the bytes of its staged file"
    seen = f"{len(content.encode(errors='replace'))} bytes are published, {len(staged.encode(errors='replace'))} staged"
    form = () if all(map(_is_an_action, proposals.lines(staged))) else ("MC-LOG-05", "CM-FILES-01")
    return Wrong(("MC-BACKFILL-01", "CM-PUBLISH-01", "CM-PUBLISH-03", *form), what, version, seen)


def names(
    files: Iterable[m.LogFile], sent: Mapping[m.AttemptId, Proposal], feature: str, commit_mode: str
) -> Wrong | None:
    """ "Commit Files": published commits are in `_delta_log`, staged ones in the feature's folder, each under its
    version in 20 digits; the catalog has inline ones."""
    folder = f"{STAGING[feature]}/"
    for file in files:
        attempt = proposals.attempt_of(file.content or "")
        proposal = sent.get(attempt or "")
        if proposal is None:
            continue
        version = getattr(proposal, "version", 0)
        where, _, name = file.name.rpartition("/")
        named, staged = _COMMIT_NAME.fullmatch(file.name), _STAGED_NAME.fullmatch(name)
        if named is not None and file.name != commit_file(version) and not where.startswith(tuple(STAGING.values())):
            what = f"a published commit is named by its version in 20 digits, in `_delta_log`: {commit_file(version)}"
            return Wrong(("MC-FILES-07", "CM-FILES-06", "LOG-01"), what, version, f"it is {file.name}")
        if staged is not None and where and not file.name.startswith(folder):
            what = f"staged files are in {folder}"
            return Wrong(("LOG-03", "MC-FILES-01", "CM-FILES-02"), what, version, f"a staged file is {file.name}")
        if commit_mode == "inline" and file.name.startswith(folder):
            return Wrong(
                ("CM-INLINE-01",), "the catalog has an inline commit: it is not staged", version, f"{name} is staged"
            )
        if staged is not None and file.name.startswith(folder) and staged[1] != f"{version:020}":
            what = f"a staged file of version {version} begins with it in 20 digits"
            return Wrong(("MC-FILES-04", "CM-FILES-02"), what, version, f"it is {name}")
    return None


def sizes(files: Iterable[m.LogFile]) -> Wrong | None:
    """`observe` shows the size of each file in bytes."""
    for file in files:
        size = len((file.content or "").encode("utf-8", "surrogateescape"))
        if file.content is not None and file.size != size:
            return Wrong(("PROFILE-CORE-02",), f"{size} as the size of {file.name}", None, f"it is {file.size}")
    return None


def derived(files: Iterable[m.LogFile], newest: m.Version) -> Wrong | None:
    """ "Checkpoints", "Log Compaction Files": both are made of published versions; `newest` is the newest one. (A
    checksum may come earlier: CM-MAINT-03.)"""
    for file in files:
        found = _DERIVED_NAME.fullmatch(file.name)
        if found is not None and int(found[1]) > newest:
            compaction = file.name.endswith("compacted.json")
            ids = ("MC-COMPACTION-01", "CM-MAINT-02") if compaction else ("MC-CHECKPOINT-03", "CM-MAINT-01")
            what = f"version {int(found[1])} is published before {file.name} is written"
            return Wrong(ids, what, int(found[1]), f"the newest published version is {newest}")
    return None


def listed(entry: m.CommitEntry) -> Wrong | None:
    """ "Commit Files": the name of a staged file is its version and a UUID, of any version of that standard. A commit
    that is published may be listed by the name of its published file."""
    name = (entry.file_name or "").rpartition("/")[2]
    if not name or name == commit_file(entry.version).rpartition("/")[2] or _UUID_NAME.fullmatch(name) is not None:
        return None
    what = f"the staged file of version {entry.version} is named `<version>.<uuid>.json`"
    return Wrong(("MC-FILES-02", "CM-FILES-02"), what, entry.version, f"it is {name}")


def newest_of(kind: str, log: Iterable[Sequence[str]]) -> dict[str, Any] | None:
    """The last action of a kind in the commits of a log."""
    found = None
    for actions in log:
        found = proposals.body_of(proposals.content(actions), kind) or found
    return found


def resolution(kind: str, returned: str | None, expected: dict[str, Any] | None, version: m.Version) -> Wrong | None:
    """ "Table Discovery": protocol and metadata of a resolution are those of its latest version. The owner may add
    properties and features, and omit fields: Unity Catalog's API states neither the id of the metadata nor which
    features are reader features."""
    if returned is None or expected is None:
        return None
    body = proposals.body_of(returned, kind)
    own = {name for name in (body or {}).get("configuration", ()) if name.startswith(OF_WRITERS)}
    stated = {key: value for key, value in expected.items() if key in (body or {})}
    if stated and _contains(body, stated) and own <= set(expected.get("configuration", ())):
        return None
    what = f"the {kind} of version {version}"
    return Wrong(("PROFILE-DISCOVERY-03", "CM-CATALOG-05"), what, version, f"it is {returned[:200]}")


def _contains(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(key in found and _contains(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(found, list):
        return all(item in found for item in wanted)
    return bool(found == wanted) or (_schema(found) is not None and _schema(found) == _schema(wanted))


def _schema(text: object) -> object:
    """The content of a schema, which is JSON in a string; None for other values."""
    try:
        return json.loads(text) if isinstance(text, str) and text.startswith("{") else None
    except ValueError:
        return None
