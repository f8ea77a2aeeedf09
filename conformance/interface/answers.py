"""Which answers a request can have. Another one means that the subject answered something else than it was asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from conformance.interface import messages as m

REFUSALS: Final[tuple[type[m.Answer], ...]] = (m.Rejected, m.NotFound, m.Unsupported, m.Unknown)
"""Any request may be answered so."""

_PROPOSAL: Final = (m.Ratified, m.Conflict, m.Gap)

ANSWERS: Final[Mapping[type[m.Request], tuple[type[m.Answer], ...]]] = {
    m.Hello: (m.Identity,),
    m.LoadTable: (m.Table,),
    m.CreateTable: (m.Ratified, m.Conflict),
    m.Commit: _PROPOSAL,
    m.AttemptOutcome: (m.Landed, m.NotLanded),
    m.GetCommits: (m.Commits,),
    m.BackfillToVersion: (m.Done,),
    m.DropTable: (m.Done,),
    m.TakeOver: _PROPOSAL,
    m.HandBack: _PROPOSAL,
    m.MaintenancePolicy: (m.Policy,),
    m.Observe: (m.Observation,),
    m.Plant: (m.Done, m.Conflict),
    m.Remove: (m.Done,),
    m.Crash: (m.Done,),
    m.Restart: (m.Done,),
    m.Snapshot: (m.SnapshotRead,),
    m.Transact: (m.Committed, m.Conflict),
    m.Checkpoint: (m.Done,),
    m.Compact: (m.Done,),
    m.Checksum: (m.Done,),
    m.Cleanup: (m.Done,),
    m.Maintain: (m.Done,),
}
"""Beside the refusals."""


def name_of(message: m.Request | m.Answer | type[m.Request] | type[m.Answer]) -> str:
    """Of a request its `op`, of an answer its `outcome`, as on the wire."""
    return str(message.__struct_config__.tag)


def answers_to(request: type[m.Request]) -> tuple[type[m.Answer], ...]:
    """All that a request can have, refusals last."""
    return (*ANSWERS[request], *REFUSALS)


def belongs(request: m.Request, answer: m.Answer) -> bool:
    """Whether such a request can have such an answer."""
    return isinstance(answer, answers_to(type(request)))
