"""Short scripts of an owner during a power cut, each about one operation, for every table feature and commit mode.

A script's setup is long over when the power goes: everything of it is durable. Its attempts are the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from conformance.interface import messages as m
from conformance.models import proposals
from conformance.simulation.power_run import Ask, Unfit

TABLE: Final = "orders"
FEATURES: Final = ("managedCommit", "catalogManaged")
COMMIT_MODES: Final = (
    ("managedCommit", "staged"), ("managedCommit", "direct"),
    ("catalogManaged", "staged"), ("catalogManaged", "inline"), ("catalogManaged", "direct"),
)  # fmt: skip
FOLDING: Final = "fold"
"""The operation during which the database moves its write-ahead log into itself after every commit."""


def attempt(number: int) -> str:
    """A lower-case uuid. Versions use theirs as numbers; whatever is no version, some from 900 on."""
    return str(UUID(int=(0xA << 124) | (4 << 76) | (2 << 62) | number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One operation, on a table of one table feature and commit mode."""

    operation: str
    feature: str
    commit_mode: str
    setup: Callable[[Scope, Ask], None] | None
    """None: the power may go from the very first start on."""
    script: Callable[[Scope, Ask], None]
    path: str | None = None
    """Of a table that was there before its owner."""

    @property
    def name(self) -> str:
        return f"{self.operation}/{self.feature}/{self.commit_mode}"

    @property
    def versions_before(self) -> int:
        """So many versions stood in the log before anybody asked the owner."""
        return FILESYSTEM_VERSIONS if self.path is not None else 0

    def made(self, own: str | None = None) -> m.CreateTable | m.TakeOver:
        """The request that makes the owner the table's. `own`: the attempt, of somebody else's."""
        own = own or attempt(self.versions_before)
        if self.path is not None:
            return m.TakeOver(
                path=self.path,
                name=TABLE,
                feature=self.feature,
                commit_mode=self.commit_mode,
                version=self.versions_before,
                attempt=own,
                actions=_all_actions(self.feature, self.versions_before, own),
            )
        actions = _all_actions(self.feature, 0, own)
        return m.CreateTable(
            name=TABLE, feature=self.feature, commit_mode=self.commit_mode, attempt=own, actions=actions
        )


FILESYSTEM_VERSIONS: Final = 2


def _time(version: int) -> int:
    return proposals.BASE_TIME + version


def _all_actions(feature: str | None, version: int, own: str | None = None) -> tuple[str, ...]:
    return proposals.version_0(feature, own or attempt(version), TABLE, timestamp=_time(version))


def append(table: str, version: int, own: str | None = None) -> m.Commit:
    own = own or attempt(version)
    return m.Commit(table=table, version=version, attempt=own, actions=proposals.append(own, _time(version)))


def _must(ask: Ask, request: m.Request, kind: type[m.Answer]) -> m.Answer:
    told = ask(request)
    if not isinstance(told, kind):
        raise Unfit(f"`{request.__struct_config__.tag}` was answered by {told}; with the power on it must succeed")
    return told


def _make(scope: Scope, ask: Ask) -> str:
    told = _must(ask, scope.made(), m.Ratified)
    assert isinstance(told, m.Ratified)
    if told.table is None:
        raise Unfit("the answer to the creation names no table")
    return told.table


def _table(ask: Ask) -> str:
    told = _must(ask, m.LoadTable(name=TABLE), m.Table)
    assert isinstance(told, m.Table)
    return told.table


def _made_with(versions: int) -> Callable[[Scope, Ask], None]:
    """A table with so many versions after the first."""

    def setup(scope: Scope, ask: Ask) -> None:
        table = _make(scope, ask)
        for version in range(1, versions + 1):
            _must(ask, append(table, version), m.Ratified)

    return setup


def _nothing(_: Scope, __: Ask) -> None:
    """The host is started, and nobody asked anything."""


def _filesystem_table(scope: Scope, ask: Ask) -> None:
    assert scope.path is not None
    for version in range(scope.versions_before):
        actions = proposals.append(attempt(version), _time(version)) if version else _all_actions(None, 0)
        name = f"{version:020}.json"
        _must(ask, m.Plant(table=scope.path, file=name, content=proposals.content(actions)), m.Done)


def _create(scope: Scope, ask: Ask) -> None:
    _make(scope, ask)


def _commit(_: Scope, ask: Ask) -> None:
    table = _table(ask)
    for version in (2, 3):
        _must(ask, append(table, version), m.Ratified)


def _fold(_: Scope, ask: Ask) -> None:
    table = _table(ask)
    for version in (2, 3, 4):
        _must(ask, append(table, version), m.Ratified)


def _backfill(_: Scope, ask: Ask) -> None:
    table = _table(ask)
    _must(ask, m.BackfillToVersion(table=table, version=1), m.Done)
    _must(ask, m.BackfillToVersion(table=table, version=3), m.Done)


def _hand_back(_: Scope, ask: Ask) -> None:
    request = m.HandBack(table=_table(ask), version=3, attempt=attempt(3), actions=_all_actions(None, 3))
    _must(ask, request, m.Ratified)


def _drop(_: Scope, ask: Ask) -> None:
    _must(ask, m.DropTable(table=_table(ask)), m.Done)


def _read(_: Scope, ask: Ask) -> None:
    table = _table(ask)
    _must(ask, m.GetCommits(table=table), m.Commits)


def _resolve(_: Scope, ask: Ask) -> None:
    """Somebody resolves an attempt; then it arrives after all, and another one lands."""
    table, late = _table(ask), attempt(900)
    _must(ask, m.AttemptOutcome(table=table, attempt=late), m.NotLanded)
    ask(append(table, 2, late))
    _must(ask, append(table, 2), m.Ratified)


def scopes(storage: str) -> Iterator[Scope]:
    """All of them. `storage`: the folder below which filesystem tables may be."""
    yield Scope(operation="first-start", feature="catalogManaged", commit_mode="inline", setup=None, script=_create)
    for feature in FEATURES:
        yield Scope(operation="create", feature=feature, commit_mode="staged", setup=_nothing, script=_create)
    for feature, commit_mode in COMMIT_MODES:
        yield Scope(operation="commit", feature=feature, commit_mode=commit_mode, setup=_made_with(1), script=_commit)
    for feature, commit_mode in COMMIT_MODES:
        if commit_mode != "direct":
            yield Scope(
                operation="backfill", feature=feature, commit_mode=commit_mode, setup=_made_with(3), script=_backfill
            )
    for feature in FEATURES:
        place = f"{storage}/imports"
        yield Scope(
            operation="take-over",
            feature=feature,
            commit_mode="staged",
            setup=_filesystem_table,
            script=_create,
            path=place,
        )
        yield Scope(
            operation="hand-back", feature=feature, commit_mode="staged", setup=_made_with(2), script=_hand_back
        )
        yield Scope(operation="drop", feature=feature, commit_mode="staged", setup=_made_with(2), script=_drop)
        yield Scope(operation="resolve", feature=feature, commit_mode="staged", setup=_made_with(1), script=_resolve)
        yield Scope(operation="read", feature=feature, commit_mode="staged", setup=_made_with(2), script=_read)
    yield Scope(operation=FOLDING, feature="catalogManaged", commit_mode="inline", setup=_made_with(1), script=_fold)
