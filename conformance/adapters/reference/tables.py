"""Creating tables and finding them again, as clients of the reference do it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

import refimpl
from conformance.adapters.reference import translation
from conformance.interface import messages as m
from refimpl.actions import Metadata, Protocol
from refimpl.commit_owner import MaintenancePolicy, NameTaken, Registered, ResolvedTable, TableState
from refimpl.commits import Conflict, DirectProposal, is_attempt_id
from refimpl.errors import InvalidRequestError, LocationError, NameTakenError, TableNotFoundError
from refimpl.log_store import LogStore
from refimpl.owner.records import TableRecord
from refimpl.owner.statements import View
from refimpl.table_feature import DOCUMENTED_FEATURES, CommitMode, TableFeature

BACKFILL_EVERY: Final = 3
"""Commits, where the kit leaves backfilling to the subject."""


def create(warehouse: refimpl.Warehouse, request: m.CreateTable) -> m.Answer:
    """catalog-managed, "Creating and Dropping": a location, version 0 there, then the name. Whoever finds the name
    taken registers his version 0 with the table that has it: an owner recognises it if it is that table's."""
    feature, owner = feature_named(request.feature), warehouse.owner
    actions = translation.with_owner(request.actions, feature, owner.name)
    proposal = DirectProposal(attempt=request.attempt, content=translation.content_of(actions))
    table_id = _place(warehouse, request, feature)
    if table_id is None:
        return m.Conflict()
    told = owner.register_table(table_id, proposal)
    if isinstance(told, NameTaken):  # between the two steps
        table_id = told.winner.table_id
        told = owner.register_table(table_id, proposal)
    match told:
        case Registered(commit=commit):
            return m.Ratified(version=commit.version, table=table_id)
        case NameTaken(winner=winner):
            return m.Conflict(latest=winner.commits.latest_ratified_version, winner_table=winner.table_id)
        case Conflict(latest_ratified_version=latest):
            return m.Conflict(latest=latest, winner_table=table_id)
        case _:
            return translation.outcome(told, table_id)


def load(warehouse: refimpl.Warehouse, request: m.LoadTable) -> m.Answer:
    if (request.name is None) == (request.path is None):
        return m.Rejected(reason="a table is looked for either by name or by path")
    table_id = owned(warehouse, _reference(request)).table_id
    table, described = _described(warehouse, table_id)
    return m.Table(
        table=table_id,
        feature=table.feature_name,
        commit_mode=table.commit_mode.value,
        latest=table.commits.latest_ratified_version,
        location=str(table.location),
        commits=translation.entries(table.commits.commits),
        protocol=translation.action("protocol", described and described[0]),
        metadata=translation.action("metaData", described and described[1]),
    )


def feature_named(name: str) -> TableFeature:
    found = DOCUMENTED_FEATURES.get(name)
    if found is None:
        raise InvalidRequestError(f"{name!r} is no table feature: give {' or '.join(DOCUMENTED_FEATURES)}")
    return found


def commit_mode_named(name: str) -> CommitMode:
    try:
        return CommitMode(name)
    except ValueError:
        known = ", ".join(commit_mode.value for commit_mode in CommitMode)
        raise InvalidRequestError(f"{name!r} is no commit mode: give one of {known}") from None


def _place(warehouse: refimpl.Warehouse, request: m.CreateTable, feature: TableFeature) -> str | None:
    """The id of a new table with a location, or of the one that has the name, or of the one that this very request
    made or began before: a client of the reference remembers that one, and the kit asks a new client each time.

    None: somebody else's version 0 stands at the place that was asked for.
    """
    owner, commit_mode = warehouse.owner, commit_mode_named(request.commit_mode)
    name = translation.table_name(request.name)
    location = None if request.path is None else Path(request.path)
    with owner.ledger.read() as view:
        known = view.created_by(name, request.attempt)
        begun = None if location is None else view.table_at(location)
    if known is not None:
        return known.table_id
    wanted = (TableState.STAGING, name, feature, commit_mode)
    if begun is not None and (begun.state, begun.name, begun.feature, begun.commit_mode) == wanted:
        return begun.table_id
    try:
        staged = owner.stage_table(name, feature, commit_mode=commit_mode, location=location, policy=_policy(request))
    except NameTakenError as taken:
        holder: ResolvedTable = taken.winner
        return holder.table_id
    except LocationError:
        if location is None or not LogStore(location, warehouse.environment).published(0):
            raise
        return None
    return staged.table_id


def _policy(request: m.CreateTable) -> MaintenancePolicy:
    """`subject`: the owner publishes several commits at once, so that others see published and unpublished ones."""
    policy = MaintenancePolicy()
    limit = policy.backlog_limit if request.backlog_limit is None else request.backlog_limit
    every = min(BACKFILL_EVERY, limit) if request.backfill == "subject" else None
    return msgspec.structs.replace(policy, backlog_limit=limit, backfill_every=every)


def _reference(request: m.LoadTable) -> str | Path:
    if request.path is not None:
        return Path(request.path)
    name = request.name or ""
    return name if is_attempt_id(name) else translation.table_name(name)


def owned(warehouse: refimpl.Warehouse, reference: str | Path) -> ResolvedTable:
    """The table, if this owner acts as its owner. Raises `TableNotFoundError`.

    A take-over that was interrupted is completed or forgotten by the next request that writes: a backfill is one that
    writes nothing else.
    """
    found = warehouse.owner.resolve(reference)
    if found.state is TableState.TAKING_OVER:
        warehouse.owner.backfill_to_version(found.table_id)
        found = warehouse.owner.resolve(reference)
    if found.state is not TableState.ACTIVE:
        raise TableNotFoundError(f"{found.table_id} is {found.state.value}", table_id=found.table_id)
    return found


def _described(warehouse: refimpl.Warehouse, table_id: str) -> tuple[ResolvedTable, tuple[Protocol, Metadata] | None]:
    """The table with its latest protocol and metadata, from one read state.

    catalog-managed, "Catalog Responsibilities", encourages owners to tell them; the ledger has them.
    """
    context = warehouse.owner.context
    described: list[tuple[Protocol, Metadata] | None] = []

    def find(view: View) -> TableRecord:
        record = context.required(view, table_id)
        described.append(view.protocol_and_metadata(record.key))
        return record

    return context.resolve(find), described[-1]
