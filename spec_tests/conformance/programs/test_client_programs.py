"""Generated programs for clients: drawn from a seed, judged, shrunk, and replayed from JSON."""

import json
from pathlib import Path
from random import Random

import pytest

from conformance.adapters.in_process import InProcess
from conformance.interface import messages as m
from conformance.interface.log_names import LOG
from conformance.interface.results import CaseResult, Verdict
from conformance.models.client import ModelClient
from conformance.models.log_files import Listing, rows_of
from conformance.models.reader import Refused, Resolved, State
from conformance.mutants import all_mutants
from conformance.programs.cases import run_case
from conformance.programs.client_steps import (
    Again,
    Backfill,
    By,
    Checkpoint,
    Clean,
    ClientProgram,
    Compaction,
    Form,
    Free,
    Freedom,
    Harm,
    Hint,
    Job,
    Land,
    Maintain,
    Read,
    Step,
    Transact,
)
from conformance.programs.client_words import ClientFamily
from conformance.programs.program import FORMAT, decode, encode
from conformance.programs.running import smallest
from conformance.running.plan import case_seed
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Variant
from spec_tests.conformance import kills

NAMES = ("any-log-is-read", "any-transaction-against-any-winners", "any-maintenance-of-any-log")
STAGED = Variant(feature="catalogManaged", commit_mode="staged")
INLINE = Variant(feature="catalogManaged", commit_mode="inline")
DIRECT = Variant(feature="managedCommit", commit_mode="direct")


def run(name: str, check: str, *, count: int, reproduction: str | None = None, variant: Variant = STAGED) -> CaseResult:
    subject, host = kills.opened(name)
    [case] = [case for case in kills.all_checks() if case.name == check]
    with subject:
        return run_case(
            case, variant, subject, seed=case_seed(0, check), count=count, host=host, reproduction=reproduction
        )


def test_a_program_is_drawn_from_its_seed_alone() -> None:
    subject, _ = kills.opened("model-client")
    family = ClientFamily(name="any")
    with subject:
        drawn = [[family.draw(seed, n, subject.identity, STAGED) for n in range(12)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(decode(encode(program), ClientProgram, "client") == program for program in drawn[0])


@pytest.mark.parametrize(
    ("mutant", "check", "requirement"),
    [
        ("rebases-blindly", NAMES[1], "CONFLICT-ORDER-01"),
        pytest.param("never-lists", NAMES[0], "LOG-18", marks=pytest.mark.longer),
        pytest.param("overwrites-checksums", NAMES[2], "LOG-45", marks=pytest.mark.longer),
    ],
)
def test_a_bad_client_fails_a_small_program(mutant: str, check: str, requirement: str) -> None:
    found = run(f"mutant:{mutant}", check, count=150)
    assert found.verdict is Verdict.FAILED
    assert requirement in found.violations[0].requirements
    assert found.reproduction is not None
    assert len(decode(found.reproduction, ClientProgram, "client").steps) <= 6
    again = run(f"mutant:{mutant}", check, count=1, reproduction=found.reproduction)
    assert again.violations[0].requirements == found.violations[0].requirements


@pytest.mark.parametrize("seed", range(3))
def test_each_step_is_valid_after_any_others(seed: int) -> None:
    """Any part of a program is a program."""
    subject, _ = kills.opened("model-client")
    random = Random(seed)
    with subject:
        program = ClientFamily(name="any").draw(seed, 100, subject.identity, STAGED)
        part = tuple(step for step in program.steps if random.random() < 0.5)
    text = encode(ClientProgram(format=2, side="client", family="any", seed=seed, steps=part))
    assert run("model-client", NAMES[0], count=1, reproduction=text).verdict is not Verdict.FAILED


@pytest.mark.parametrize(
    ("step", "part"),
    [
        (Checkpoint(behind=1, form=Form.PARTS), Backfill(behind=1)),
        (Compaction(behind=1), Backfill(behind=1)),
        (Again(), Land()),
    ],
)
def test_no_step_is_blamed_if_a_part_of_its_effects_is_enough(step: Step, part: Step) -> None:
    def fails(candidate: ClientProgram) -> bool | None:
        return step in candidate.steps or part in candidate.steps or None

    program = ClientProgram(format=FORMAT, side="client", family="any", seed=1, steps=(Hint(), step, Read()))
    assert smallest(program, True, fails)[0].steps == (part,)


class TrustsHints(ModelClient):
    """Refuses to read a table whose `_last_checkpoint` is damaged, or does not describe its checkpoint, as engines
    do."""

    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        read = super().snapshot(client, request)
        table = self.owner(client, m.LoadTable(name=request.table or ""))
        assert isinstance(table, m.Table)
        try:
            hint = json.loads((Path(table.location or "") / LOG / "_last_checkpoint").read_text())
        except FileNotFoundError:
            return read
        except ValueError:
            return m.Rejected(reason="the hint is damaged")
        parts = len(list((Path(table.location or "") / LOG).glob(f"{hint['version']:020}.checkpoint*")))
        return read if parts == hint.get("parts", 1) else m.Rejected(reason=f"{parts} parts")


class RefusesAll(ModelClient):
    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        return m.Rejected(reason="no")


class RefusesChanges(ModelClient):
    """Refuses to read if the log changes during the read."""

    def _ask(self, client: str, table: Resolved) -> None:
        before = sorted(table.log.iterdir())
        super()._ask(client, table)
        if sorted(table.log.iterdir()) != before:
            raise Refused("the log changes")


class RefusesDamagedCheckpoints(ModelClient):
    """Ignores a wrong hint, and refuses to read a table with an empty or truncated checkpoint."""

    def _list(self, table: Resolved) -> Listing:
        for path in table.log.glob("*.checkpoint.parquet"):
            rows_of(path)
        return super()._list(table)


class RefusesCleanedVersions(ModelClient):
    """Refuses to read a version whose commit a cleanup deleted, even if an old checkpoint still has its state."""

    def _read(self, client: str, table: Resolved, version: int | None, timestamp: int | None) -> State:
        if version is not None and version < min(self._list(table).commits):
            raise Refused(f"the oldest version is {min(self._list(table).commits)}")
        return super()._read(client, table, version, timestamp)


class TakesAnyFile(ModelClient):
    """Takes each file with the name of a version for the published commit."""

    def _check_published(self, published: Path, content: bytes) -> None:
        pass


class ComparesAtTheEnd(ModelClient):
    """Publishes in order, and compares the existing files with the commits after that."""

    def _publish_all(self, client: str, table: Resolved, version: int) -> None:
        self.found: list[tuple[Path, bytes]] = []
        super()._publish_all(client, table, version)
        for published, content in self.found:
            super()._check_published(published, content)

    def _check_published(self, published: Path, content: bytes) -> None:
        self.found.append((published, content))


def judged(client: type[ModelClient], check: str, steps: list[Step], variant: Variant = STAGED) -> CaseResult:
    """The result of the program."""
    program = ClientProgram(format=FORMAT, side="client", family="any", seed=1, steps=tuple(steps))
    host = ClientHost()
    [found] = [known for known in kills.all_checks() if known.name == check]
    return run_case(found, variant, InProcess(client(host.ask)), host=host, reproduction=encode(program))


def violated_by(
    client: type[ModelClient], check: str, steps: list[Step], variant: Variant = STAGED
) -> list[tuple[str, ...]]:
    """The requirements of each violation that the program shows."""
    result = judged(client, check, steps, variant)
    assert result.verdict in (Verdict.PASSED, Verdict.FAILED), result.reason
    return [violation.requirements for violation in result.violations]


class AnswersLate(ModelClient):
    def transact(self, client: str, request: m.Transact) -> m.Answer:
        super().transact(client, request)
        return m.Unknown(reason="no answer within 60 s")


def test_a_slow_client_is_not_a_wrong_one() -> None:
    found = judged(AnswersLate, NAMES[1], [Transact()])
    assert (found.verdict, found.violations) == (Verdict.INCONCLUSIVE, ())
    assert "no answer within" in found.reason


PUBLISHED_MEANWHILE = Free(what=Freedom.PUBLISH, after=True)
DAMAGED = Checkpoint(harm=Harm.TRUNCATED)


@pytest.mark.parametrize(
    ("reader", "words", "advice"),
    [
        (TrustsHints, [Land(), Checkpoint(form=Form.PARTS, hint=True), Transact(), Read()], None),
        (TrustsHints, [Land(), Checkpoint(hint=True), Transact(), Read()], None),
        (TrustsHints, [Hint(), Read()], ("LOG-21",)),
        (TrustsHints, [Hint(truncated=True), Land(), Read()], ("LOG-21",)),
        (RefusesDamagedCheckpoints, [Land(), Hint(), DAMAGED, Land(), Read()], ("FIELD-03",)),
    ],
)
def test_a_reader_that_refuses_only_damaged_files_does_not_follow_the_advice_about_them(
    reader: type[ModelClient], words: list[Step], advice: tuple[str, ...] | None
) -> None:
    """It violates no requirement: the documents do not say that a reader must survive a wrong hint. The hint of a whole
    checkpoint is right."""
    assert violated_by(reader, NAMES[0], words) == ([] if advice is None else [advice])


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        (RefusesAll, [Hint(), Read()]),
        (RefusesChanges, [Land(), Land(), PUBLISHED_MEANWHILE, Read()]),
        (RefusesChanges, [Land(), Hint(), Land(), PUBLISHED_MEANWHILE, Read()]),
        (RefusesChanges, [Land(), DAMAGED, Land(), PUBLISHED_MEANWHILE, Read()]),
    ],
)
def test_a_damaged_file_excuses_no_other_refusal(reader: type[ModelClient], words: list[Step]) -> None:
    [violated] = violated_by(reader, NAMES[0], words)
    assert "CM-READ-05" in violated


def test_no_reader_must_read_a_version_whose_commit_was_cleaned_up() -> None:
    words = [Land(times=2), Checkpoint(behind=1), Checkpoint(), Clean()]
    old, kept = (Read(by=By.VERSION, behind=behind) for behind in (1, 0))
    assert violated_by(RefusesCleanedVersions, NAMES[0], [*words, old, Transact()]) == []
    assert violated_by(RefusesAll, NAMES[0], [*words, kept])


class DeletesCommits(ModelClient):
    """Deletes all earlier commits after each of its own."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        answer = super().transact(client, request)
        for file in sorted((Path(request.table) / LOG).glob("*.json"))[:-1]:
            file.unlink()
        return answer


def test_a_commit_that_cleans_up_deletes_nothing_that_no_checkpoint_has() -> None:
    plain = Variant(feature="filesystem", commit_mode="direct")
    assert violated_by(DeletesCommits, NAMES[1], [Land(), Land(), Transact()], plain) == [("LOG-36",)]


FOREIGN = [Transact(), Land(times=3), Free(what=Freedom.FOREIGN_COPY), Maintain(job=Job.PUBLISH)]


@pytest.mark.parametrize("client", [TakesAnyFile, ComparesAtTheEnd])
def test_a_client_that_publishes_after_a_foreign_file_does_not_follow_advice(client: type[ModelClient]) -> None:
    """The foreign file is the mistake of another writer. Where the advice does not apply, the client is not
    accused."""
    assert violated_by(client, NAMES[2], FOREIGN) == [("FIELD-05",)]
    assert violated_by(client, NAMES[2], FOREIGN, INLINE) == []


@pytest.mark.parametrize("variant", [STAGED, INLINE, DIRECT])
def test_only_a_client_that_did_not_read_the_new_table_commits_to_it(variant: Variant) -> None:
    """The new table gets the name of the old one after the first `get_commits`, which may be a probe."""
    words = [Land(), Transact(), Again(during="get_commits"), Read()]
    bad, good = (
        violated_by(all_mutants()[name].make, NAMES[1], words, variant)
        for name in ("resolves-the-name-before-each-proposal", "probes-before-it-transacts")
    )
    assert "PROFILE-CLIENT-02" in bad[0]
    assert good == []


FREEDOMS = {
    "a final rejection of a version that is taken": (
        "reference-client-remote", STAGED, [Transact(), Free(what=Freedom.REFUSE), Transact(behind=1)],
    ),
    "a commit is published again": (
        "reference-client-remote", STAGED,
        [Land(), Backfill(), Free(what=Freedom.LIST_PUBLISHED), Maintain(job=Job.PUBLISH)],
    ),
    "a copy is completed": (
        "reference-client-remote", STAGED,
        [Land(), Free(what=Freedom.TRUNCATED_COPY), Maintain(job=Job.PUBLISH), Read(), Transact()],
    ),
    "files are read by the names that the client chose": (
        "good:renames-files-with-blanks", STAGED, [Land(path=3), Transact(path=3), Transact(), Read(fresh=True)],
    ),
    "a version lands during the read of it": (
        "reference-client", STAGED,
        [Free(what=Freedom.LAND, after=True), Read(by=By.VERSION, behind=-1, fresh=True)],
    ),
    "a hint that names an incomplete checkpoint is replaced": (
        "reference-client", DIRECT,
        [Land(), Checkpoint(form=Form.PARTS, hint=True, harm=Harm.HALF), Maintain(behind=1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "variant", "drawn"), FREEDOMS.values(), ids=FREEDOMS)
def test_a_freedom_is_used_and_not_accused(name: str, variant: Variant, drawn: list[Step]) -> None:
    program = ClientProgram(format=FORMAT, side="client", family="any", seed=1, steps=tuple(drawn))
    result = run(name, NAMES[2], count=1, reproduction=encode(program), variant=variant)
    assert result.verdict is not Verdict.FAILED, result.violations
