"""Good owners: each one differs from the model in the freedom that it uses. `test_mutation_score.py` shows that no
check accuses them.
"""

from functools import cache
from typing import Final

import pytest

from conformance.adapters.in_process import InProcess
from conformance.interface import messages as m
from conformance.models import proposals
from conformance.models.owner import ModelOwner
from conformance.mutants import Mutant
from conformance.mutants.good_owners import NoServer, PlainModel
from conformance.scenario import ownership
from conformance.scenario.check import Variant
from conformance.scenario.scenario import Scenario, Stopped
from spec_tests.conformance import kills

INSIDE: Final = {PlainModel, NoServer}
"""Owners that use a freedom only inside: they answer as the model does."""


class Overheard(InProcess):
    """Keeps every answer, also those after which the kit sends the request again."""

    def __init__(self, owner: ModelOwner) -> None:
        self.answers: list[str] = []
        super().__init__(owner)

    def ask(self, client: str, request: m.Request) -> m.Answer:
        answer = super().ask(client, request)
        self.answers.append(str(answer))
        return answer


@cache
def transcript(make: type[ModelOwner], variant: Variant) -> str:
    """The answers and files of an owner after a scenario that uses every kind of request."""
    subject = Overheard(make())
    s = Scenario(subject, variant, name="a little of everything")
    try:
        table = s.create(backfill="subject")
        for request in (*(s.proposal(table, version) for version in (1, 2, 1, 5, 3, 4, 5, 6, 7)), s.proposal(table, 1)):
            s.ask("writer", request)
            s.ask("writer", request)
            s.ask("reader", m.GetCommits(table=table.reference))
            s.observe(table)
        s.ask("reader", m.LoadTable(name=s.physical("orders")))
        s.ask("creator", s.creation("Orders"))
        for version in (6, 70):
            s.ask("anybody", m.MaintenancePolicy(table=table.reference))
            s.ask("anybody", m.BackfillToVersion(table=table.reference, version=version))
            s.observe(table)
        table.versions = 8
        imported = ownership.filesystem_table(s, versions=2)
        s.ask("migrator", ownership.taking_over(s, imported), imported)
        s.ask("migrator", ownership.giving_back(s, table))
        s.observe(table)
        items = s.create("items")
        s.land(items)
        ownership.restart(s)
        s.subject.ask("operator", m.DropTable(table=items.reference))
        s.observe(items)
        late = s.create("late")
        for name, path in (("LATE", None), ("white space", None), ("a", "shared"), ("b", "shared")):
            where = {} if path is None else {"path": f"{s.identity.storage}/{path}"}
            s.ask("creator", s.creation(name, **where))
        s.commit(late, actions=(*proposals.append(s.attempt(), 0, ["x" * 100_000]),))
        wrong = proposals.append(attempt := s.attempt(), 0)
        s.commit(late, attempt=attempt, actions=wrong)
        s.commit(late, 2, attempt=s.attempt().upper())
        s.ask("reader", m.GetCommits(table=late.reference))
    except Stopped as stopped:
        subject.answers.append(str(stopped))
    return "\n".join(subject.answers)


@pytest.mark.parametrize(
    "owner",
    [
        subject
        for subject in kills.good()
        if subject.side == "owner" and subject.freedoms and subject.make not in INSIDE
    ],
    ids=lambda owner: owner.id,
)
def test_each_good_owner_differs_from_the_model(owner: Mutant) -> None:
    """If the owner equalled the model, its passed checks would prove nothing."""
    variants = [
        Variant(feature=feature, commit_mode=commit_mode)
        for feature, commit_mode in (
            ("managedCommit", "staged"), ("managedCommit", "direct"), ("catalogManaged", "staged"),
            ("catalogManaged", "inline"),
        )
    ]  # fmt: skip
    assert any(transcript(owner.make, variant) != transcript(ModelOwner, variant) for variant in variants)


def test_a_good_owner_keeps_no_state_in_memory() -> None:
    """It answers as the model does, and forgets everything between two requests."""
    variant = Variant(feature="managedCommit", commit_mode="staged")
    assert transcript(NoServer, variant) == transcript(ModelOwner, variant)
    stateless = NoServer()
    first = Scenario(InProcess(stateless), variant, name="stateless").create()
    assert stateless.tables[first.reference] is not stateless.tables[first.reference]
