"""What the kit's owner tells the client under test, where an owner is free to tell it in another way.

An owner may list commits that are published, may not have noticed one that was published directly, and may have no
latest version to tell. Both of its answers, the resolution and the commits, say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from conformance.interface import messages as m
from conformance.scenario.adversary import MOST_REQUESTS
from conformance.scenario.client import ClientScenario

Entries = Sequence[m.CommitEntry]
CommitsAndLatest = tuple[Entries, int | None]
QUESTIONS: Final = (m.GetCommits, m.LoadTable)
"""By which a client learns of commits."""


def override_commits(s: ClientScenario, change: Callable[[Entries, int | None], CommitsAndLatest]) -> None:
    """From now on the owner tells what `change` makes of its commits and its latest version."""

    def changed(answer: m.Answer) -> m.Answer:
        if isinstance(answer, m.Commits):
            commits, latest = change(answer.commits, answer.latest)
            return m.Commits(commits=tuple(commits), latest=latest)
        if isinstance(answer, m.Table):
            commits, latest = change(answer.commits or (), answer.latest)
            listed = None if answer.commits is None else tuple(commits)
            return msgspec.structs.replace(answer, commits=listed, latest=latest)
        return answer

    for kind in QUESTIONS:
        s.owner.on(kind, change=changed, times=MOST_REQUESTS)


def drop_requests(s: ClientScenario, *kinds: type) -> None:
    """From now on the owner does not answer such requests."""
    for kind in kinds:
        s.owner.on(kind, lose_request=True, times=MOST_REQUESTS)


def after_commits_are_read(s: ClientScenario, happens: Callable[[], object]) -> None:
    """Once, after the client read the commits, and before it reads any file."""
    happened: list[bool] = []

    def once() -> None:
        if not happened:
            happened.append(True)
            happens()

    s.owner.on(m.GetCommits, after=once)
