"""What became of a writer that was killed: the owner is asked by attempt id, and nobody guesses.

managed-commits and catalog-managed leave a client whose answer was lost in doubt; this owner's answer is
final. So the very same proposal is sent once more, as if it had been on its way all the time: one that
landed is answered as before, and one that had not landed is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refimpl import actions
from refimpl.actions import Add
from refimpl.client.partition_values import local_path
from refimpl.commits import Landed, Ratified, Rejected, RejectionReason, StagedProposal
from refimpl.demo.stage import Stage, counted
from refimpl.log_path import Version


def resolve(stage: Stage, name: str, proposal: Mapping[str, Any], part: str) -> tuple[Version | None, str]:
    """The version that the dead writer's last proposal became, None if it became none; and its staged file."""
    owner = stage.warehouse.owner
    table_id = owner.resolve(stage.table).table_id
    attempt, version, staged_file = (proposal[fact] for fact in ("attempt", "version", "staged_file"))
    outcome = owner.attempt_outcome(table_id, attempt)
    again = owner.commit(table_id, version, StagedProposal(attempt=attempt, file_name=staged_file))
    if isinstance(outcome, Landed):
        landed = outcome.commit.version
        stage.check(
            "killed after the owner's decision",
            f"attempt {attempt[:8]} of {name} landed as version {landed}; sent again it is answered the same, "
            f"and {part} is not written twice",
            ok=isinstance(again, Ratified) and again.replayed and again.commit.version == landed,
            attempt=attempt,
            version=landed,
        )
        return landed, staged_file
    answer = again.reason.value if isinstance(again, Rejected) else type(again).__name__
    stage.check(
        "killed before the owner was asked",
        f"attempt {attempt[:8]} of {name} has not landed and never will: sent late, it is refused ({answer}); "
        f"{part} is written anew",
        ok=isinstance(again, Rejected) and again.reason is RejectionReason.ATTEMPT_RESOLVED,
        attempt=attempt,
    )
    return None, staged_file


def check_leftovers(stage: Stage, never_landed: Sequence[str]) -> None:
    """Data files that the staged files `never_landed` name: they are there, and no version names them."""
    table = stage.warehouse.table(stage.table)
    feature = stage.warehouse.owner.resolve(stage.table).feature
    active = {add.path for add in table.snapshot().files.values()}
    left = [
        action.path
        for name in never_landed
        for action in actions.decode(table.log.read_staged(feature.staging_folder, name), source=name)
        if isinstance(action, Add)
    ]
    there = [path for path in left if local_path(table.location, path).exists()]
    stage.check(
        "what never landed is invisible",
        f"the killed writer left {counted(len(there), 'data file')} beside the {len(active)} of the table; "
        f"the newest version names {len(active & set(left))} of them",
        ok=bool(there) and there == left and active.isdisjoint(left),
    )
