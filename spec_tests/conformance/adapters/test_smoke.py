"""`smoke`: it distinguishes a broken adapter from a broken owner, and accuses no correct subject."""

import shlex
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from conformance.adapters.in_process import InProcess
from conformance.command.application import application
from conformance.interface import messages as m
from conformance.interface.results import ExitCode
from conformance.models.client import ModelClient
from conformance.models.owner import ModelOwner
from conformance.mutants import all_mutants
from conformance.scenario.adversary import ClientHost
from conformance.subjects.names import open_subject
from conformance.subjects.smoke import Outcome, SmokeReport, Step, smoke
from spec_tests.support.sampling import sampled

GOOD = ModelOwner().hello("kit", m.Hello())


class Altered(ModelOwner):
    """The model with changed answers, as a broken adapter would give them."""

    def __init__(self, **changes: Callable[[Any], m.Answer]) -> None:
        super().__init__()
        for operation, change in changes.items():
            honest = getattr(self, operation)
            setattr(self, operation, lambda client, request, h=honest, c=change: c(h(client, request)))


def tried(**changes: Callable[[Any], m.Answer]) -> SmokeReport:
    return smoke(InProcess(Altered(**changes)))


def failed(report: SmokeReport) -> Step:
    """The first failed step of the report."""
    return next(step for step in report.steps if step.outcome in (Outcome.ADAPTER, Outcome.OWNER))


INTERFACE = {"PROFILE-CORE-01", "PROFILE-CORE-02", "PROFILE-CORE-03"}
MUTANTS = [i for i, entry in all_mutants().items() if entry.side == "owner" and not set(entry.violates) <= INTERFACE]
GOOD_OWNERS = [f"good:{i}" for i, entry in all_mutants().items() if not entry.violates and entry.side == "owner"]


@pytest.mark.parametrize("name", ["model", "reference", *sampled(GOOD_OWNERS, 5)])
def test_a_good_owner_passes_all_steps(name: str, tmp_path: Path) -> None:
    with open_subject(name, directory=tmp_path) as subject:
        report = smoke(subject)
    assert report.ok, str(report)
    assert {step.outcome for step in report.steps} == {Outcome.OK}
    assert len(report.steps) > 1


@pytest.mark.parametrize("identifier", sampled(MUTANTS, 40))
def test_no_mutant_is_reported_as_a_broken_adapter(identifier: str) -> None:
    """A mutant's answers are valid messages with a wrong content, which the checks find. Mutants of the interface are
    excluded: they break what an adapter is responsible for.
    """
    with open_subject(f"mutant:{identifier}") as subject:
        assert smoke(subject).adapter == ""


def hello(**changes: Any) -> dict[str, Callable[[Any], Any]]:
    return {"hello": lambda answer: msgspec.structs.replace(answer, **changes)}


def files(**changes: Any) -> dict[str, Callable[[Any], Any]]:
    def changed(answer: m.Observation) -> m.Observation:
        return msgspec.structs.replace(answer, files=tuple(msgspec.structs.replace(f, **changes) for f in answer.files))

    return {"observe": changed}


BROKEN: list[tuple[dict[str, Callable[[Any], Any]], str]] = [
    ({"hello": lambda answer: msgspec.structs.replace(answer, version=str(uuid.uuid4()))}, "by the same `identity`"),
    (hello(interface_version=2), "`interface_version` is 2, but this kit implements 1"),
    (hello(side="owners"), "`side` is 'owners'; did you mean 'owner'?"),
    (hello(name=" "), "`name` is empty"),
    (hello(profiles=(*GOOD.profiles, "idempotent-retries")), "did you mean 'idempotent-retry'?"),
    (hello(profiles=GOOD.profiles[1:]), "`profiles` lacks `core`"),
    (hello(promises=("freshness",)), "'freshness' is not a promise"),
    (hello(commit_modes={"managedCommit": ("staged", "direct")}), "`commit_modes` lacks 'catalogManaged'"),
    (hello(features=("catalogManaged",)), "`commit_modes` names 'managedCommit'"),
    (hello(commit_modes=dict.fromkeys(GOOD.features, ("staged", "inline"))), "'direct' for no feature"),
    (hello(limits={"inline_bytes": 0}), "the limit 'inline_bytes' is 0"),
    ({"create_table": lambda answer: m.Ratified(version=0)}, "must name the table, in `table`"),
    ({"commit": lambda answer: m.Unknown(reason="no answer within 10 s")}, "10 s; expected `ratified`"),
    ({"get_commits": lambda answer: {"outcome": "commits"}}, "it must be an answer of the interface"),
    (files(name="/t/_delta_log/1.json"), "expected a name relative to the log folder: '1.json'"),
    (files(content=None), "no content of"),
]
WRONG: list[tuple[dict[str, Callable[[Any], Any]], str]] = [
    ({"create_table": lambda answer: m.Rejected()}, "expected `ratified` for the only"),
    ({"commit": lambda answer: m.Gap(latest=0)}, "expected `ratified`: version 1 follows"),
    ({"commit": lambda answer: m.Ratified(version=1)}, "expected `conflict`: another attempt is version 1"),
    ({"get_commits": lambda answer: m.Unsupported()}, "every owner needs this operation"),
    ({"backfill_to_version": lambda answer: 1 / 0}, "expected `done`"),
]


@pytest.mark.parametrize(("changes", "words"), BROKEN)
def test_an_invalid_answer_is_shown_with_what_was_expected(
    changes: dict[str, Callable[[Any], Any]], words: str
) -> None:
    report = tried(**changes)
    step = failed(report)
    assert step.outcome is Outcome.ADAPTER
    assert words in step.detail
    assert step.see.endswith(f"#{next(iter(changes))}")
    assert step.request.startswith('`{"op":')
    assert "outcome" in step.answer
    assert not report.ok
    assert "the adapter is broken" in str(report)


@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_a_broken_owner_is_not_reported_as_a_broken_adapter(
    changes: dict[str, Callable[[Any], Any]], words: str
) -> None:
    report = tried(**changes)
    assert failed(report).outcome is Outcome.OWNER
    assert words in failed(report).detail
    assert (report.adapter, report.ok) == ("", False)
    assert "the adapter works" in str(report)


@pytest.mark.parametrize("name", ["model-client", "reference-client", "reference-client-remote", *(
    f"good:{i}" for i, e in all_mutants().items() if not e.violates and e.side == "client")])  # fmt: skip
def test_a_good_client_reads_and_writes_a_table_of_the_kits_owner(name: str) -> None:
    host = ClientHost()
    with open_subject(name, owner=host.ask) as subject:
        report = smoke(subject, host)
    assert report.ok, str(report)
    assert {step.outcome for step in report.steps} <= {Outcome.OK, Outcome.SKIPPED}


def test_a_wrong_read_of_a_client_is_reported() -> None:
    host = ClientHost()
    client = ModelClient(host.ask)
    client.snapshot = lambda asker, request: m.NotFound()  # type: ignore[method-assign]
    step = failed(smoke(InProcess(client), host))
    assert step.outcome is Outcome.OWNER
    assert "`snapshot_read` of version 0" in step.detail
    client.snapshot = lambda asker, request: m.Unknown(reason="no answer")  # type: ignore[method-assign]
    assert failed(smoke(InProcess(client), host)).outcome is Outcome.ADAPTER


def test_an_invalid_answer_to_hello_is_a_step_with_an_explanation(tmp_path: Path) -> None:
    """A run reports the same: the request, the answer, and the page that describes the answer."""
    program = tmp_path / "owner.py"
    program.write_text(
        "import json, sys\n"
        "call = json.loads(sys.stdin.readline())\n"
        "who = {'outcome': 'identity', 'name': 'x', 'versoin': '1', 'interface_version': 1, 'side': 'owner'}\n"
        "print(json.dumps({'id': call['id'], 'answer': {**who, 'profiles': ['core']}}), flush=True)\n"
        "sys.stdin.read()\n",
        "utf-8",
    )
    named = f"stdio:{shlex.join([sys.executable, str(program)])}"
    for arguments in (["smoke", named], ["smoke", named, "--json"], ["run", named]):
        result = CliRunner().invoke(application, arguments)
        assert result.exit_code == ExitCode.USAGE
        printed = result.output
        for fact in (
            "adapter  hello: ",
            "did you mean 'version'?",
            "TEST_YOUR_OWNER.md#hello",
            "answer: ",
            "request: ",
        ):
            assert fact in printed, (arguments, printed)
