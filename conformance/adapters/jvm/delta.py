"""Delta's names for what the kit calls by the documents' names. Behaviour is never translated, only names.

Delta 4 ships managed commits as the feature `coordinatedCommits-preview`: the owner is named by properties of its own,
and staged files lie in `_staged_commits`, under a uuid that the coordinator chooses. The kit knows a commit by its
attempt, the `txnId` of its commitInfo, and a file by the name that the document gives it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

OWNER: Final = "delta.managedCommit.commitOwner"
NAME: Final = "delta.coordinatedCommits.commitCoordinator-preview"
CONF: Final = "delta.coordinatedCommits.commitCoordinatorConf-preview"
TABLE_CONF: Final = "delta.coordinatedCommits.tableConf-preview"
STAGING: Final = "_staged_commits"
STAGING_OF_THE_DOCUMENT: Final = "_commits"
DIGITS: Final = 20


def published_name(version: int) -> str:
    return f"{version:0{DIGITS}}.json"


def owned(action: str, coordinator: str, table_conf: Mapping[str, str]) -> str:
    """A metaData action with the properties that make the coordinator the owner; another action as it is. Raises
    `ValueError` for what is no action."""
    parsed = _parsed(action)
    if "metaData" not in parsed:
        return action
    configuration = parsed["metaData"].setdefault("configuration", {})
    configuration.update(
        {OWNER: coordinator, NAME: coordinator, CONF: "{}", TABLE_CONF: json.dumps(dict(table_conf), sort_keys=True)}
    )
    return json.dumps(parsed, separators=(",", ":"))


def table_conf(actions: Iterable[str]) -> dict[str, str]:
    """What the newest metaData of these says that registering the table answered. Raises `ValueError`."""
    found: dict[str, str] = {}
    for action in actions:
        configuration = (_parsed(action).get("metaData") or {}).get("configuration") or {}
        if TABLE_CONF in configuration:
            found = json.loads(configuration[TABLE_CONF])
    return found


def has_owner(actions: Iterable[str]) -> bool:
    """Whether the newest metaData of these names a coordinator. Raises `ValueError`."""
    newest = of_kind(actions, "metaData")
    return newest is not None and NAME in (_parsed(newest)["metaData"].get("configuration") or {})


def of_kind(actions: Iterable[str], kind: str) -> str | None:
    """The last action of that kind. Raises `ValueError`."""
    return next((action for action in reversed(list(actions)) if kind in _parsed(action)), None)


def attempt_in(content: str) -> str | None:
    """The attempt whose commit this is; None: it does not say."""
    try:
        info = _parsed(content.partition("\n")[0]).get("commitInfo")
    except ValueError:
        return None
    found = info.get("txnId") if isinstance(info, dict) else None
    return found if isinstance(found, str) and found else None


def _parsed(action: str) -> dict[str, Any]:
    found = json.loads(action)
    if not isinstance(found, dict):
        raise ValueError(f"{action[:60]!r} is no action")  # noqa: TRY004 - the content is wrong, not the call
    return found
