"""The file of every reported finding reproduces it, and every violated requirement of a run has a finding."""

import io
import json
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import jsonschema
import msgspec
import pytest
from typer.testing import CliRunner

from conformance.command.application import application
from conformance.findings import markdown, stored
from conformance.findings.stored import HOME, Stored
from conformance.history.files import read_events
from conformance.history_checkers.check import check_events
from conformance.interface.results import CaseResult, RequirementVerdict, RunResult, Verdict
from conformance.interface.safe_text import without_markup
from conformance.interface.subject import Subject
from conformance.programs.cases import run_case
from conformance.reports.stored import Finding, ReportError, from_json, read_finding, run_command, schema
from conformance.requirements.catalogue import load
from conformance.running.plan import case_seed, profile_named
from conformance.running.worker import check_named
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Variant
from conformance.subjects.names import engine_of, open_subject
from spec_tests.engines.prerequisites import needed_classpath
from spec_tests.support.sampling import sampled

ROOT = Path(__file__).parents[2]
FINDINGS = stored.findings()


Replay = Callable[[Finding], CaseResult]


@pytest.fixture(scope="module")
def replay_on_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replay]:
    """Replays findings about Delta Spark. Each engine is started once, because that takes longer than a replay."""
    host = ClientHost()
    with ExitStack() as opened:

        @cache
        def engine(name: str) -> Subject:
            return opened.enter_context(open_subject(name, directory=tmp_path_factory.mktemp("engine"), owner=host.ask))

        yield lambda finding: replayed(finding, engine(finding.subject.named), host)


def replayed(finding: Finding, subject: Subject, host: ClientHost | None = None) -> CaseResult:
    return run_case(
        check_named(finding.check),
        Variant(feature=finding.feature, commit_mode=finding.commit_mode),
        subject,
        seed=case_seed(finding.seed, finding.case),
        count=profile_named(finding.profile).counts[finding.layer],
        reproduction=finding.reproduction,
        host=host,
    )


@pytest.mark.engines
@pytest.mark.usefixtures("plain_py4j")
@pytest.mark.xdist_group("jvm")
@pytest.mark.parametrize("entry", sampled(FINDINGS, 3), ids=lambda entry: entry.id)
def test_the_file_of_a_finding_reproduces_it(entry: Stored, tmp_path: Path, replay_on_spark: Replay) -> None:
    """The test does what `delta-commit-conformance replay` does, but in this process. A finding about an engine that
    starts quickly is replayed by the command.
    """
    if entry.subject.startswith("engine:"):
        if problem := engine_of(entry.subject, entry.subject.removeprefix("engine:"))[0].missing(None):
            pytest.skip(problem)
        if entry.subject.startswith("engine:delta-spark"):
            violations = replay_on_spark(entry.finding).violations
            assert entry.about.requirements[0] in {name for violation in violations for name in violation.requirements}
            return
        shown = CliRunner().invoke(application, ["replay", str(entry.file)])
        advice = load().requirement(entry.about.requirements[0]).level == "SHOULD"
        assert shown.exit_code == (0 if advice and not entry.finding.strict else 1), shown.output
        assert entry.about.requirements[0] in shown.stdout
        return
    if not entry.subject.startswith("jvm:"):
        pytest.skip(f"{entry.subject} is a server, which is not here")
    needed_classpath("dynamodb", hadoop=True)
    finding = entry.finding
    with open_subject(entry.subject, directory=tmp_path, timeout=60) as subject:
        assert subject.identity.version == finding.subject.version
        result = replayed(finding, subject)
    assert result.verdict is Verdict.FAILED
    assert [violation.requirements for violation in result.violations] == [
        violation.requirements for violation in finding.violations
    ]
    assert result.operations == finding.operations


@pytest.mark.parametrize("entry", FINDINGS, ids=lambda entry: entry.id)
def test_a_finding_has_all_facts_that_its_maintainers_need(entry: Stored) -> None:
    shown = [requirement for violation in entry.finding.violations for requirement in violation.requirements]
    assert entry.about.requirements[0] in shown
    assert set(shown) <= set(entry.about.requirements)
    levels = {load().requirement(name).level for name in entry.about.requirements}
    assert entry.about.quotes or "MUST" not in levels
    for text in (entry.about.title, entry.about.versions, entry.about.cause, entry.about.consequence):
        assert text.strip()
    assert entry.finding.subject.version in entry.about.versions
    text = markdown.report(entry)
    assert f"replay conformance/findings/found/{entry.id}/finding.json" in text
    assert "\n1. " in text
    assert (ROOT / markdown.FOLDER / entry.id / "finding.json").is_file()


def test_a_finding_quotes_the_documents() -> None:
    (entry,) = [finding for finding in FINDINGS if finding.id == "delta-spark-reads-above-the-catalogs-latest-version"]
    assert "\n\n> Additionally, Delta clients must ignore any files" in markdown.report(entry)


def test_the_report_of_a_finding_is_complete_and_independent() -> None:
    """It has the violated sentence, the steps in the order of their effects, and letters for attempts."""
    (late,) = (entry for entry in FINDINGS if entry.id == "in-memory-ratifies-after-it-gave-the-table-back")
    text = markdown.report(late)
    assert "\n4. client 2: hand_back of version 2 as attempt D: ratified, version 2\n5. client 1: commit" in text
    assert "(sent before step 4 was answered)" in text
    assert "version 2 is D, version 3 is C." in text
    (landed,) = (entry for entry in FINDINGS if entry.id == "dynamodb-calls-a-hand-back-that-landed-failed")
    section = markdown.report(landed).split("## Requirements")[1].split("## Steps")[0]
    assert section.count("\n- ") == 1
    assert "MC-FEATURE-03, MUST" in section
    assert "fail for the same cause: PROFILE-TRANSFER-01." in section
    for entry in FINDINGS:
        assert "The same:" not in entry.about.cause, "the report must not refer to another report"


# The page


def test_a_known_finding_is_not_called_new() -> None:
    about = msgspec.structs.replace(FINDINGS[0].about, title="It forgets | everything", known="")
    new = msgspec.structs.replace(FINDINGS[0], about=about)
    assert "- **It forgets | everything.**" in markdown.page([], [new]) and "**New.**" in markdown.page([], [new])
    known = msgspec.structs.replace(new, about=msgspec.structs.replace(about, known="FB42"))
    assert "**New.**" not in markdown.page([], [known]) and "Known: FB42." in markdown.page([], [known])


def test_a_misspelt_field_of_a_finding_is_rejected(tmp_path: Path) -> None:
    shutil.copytree(FINDINGS[0].folder, tmp_path / "found" / "one")
    about = tmp_path / "found" / "one" / stored.ABOUT
    about.write_text(about.read_text() + 'titel = "misspelt"\n')
    with pytest.raises(ReportError):
        stored.findings(tmp_path)


def test_a_terminal_shows_the_text_of_a_page_without_markup() -> None:
    for text in (markdown.page(stored.runs(), FINDINGS), *map(markdown.report, FINDINGS)):
        shown = without_markup(text)
        assert not re.search(r"\*\*|`|^#|^\||\]\(|\\[*_<]", shown, re.MULTILINE)
        assert all(command in shown for command in re.findall(r"`(delta-commit-conformance [^`]+)`", text))


def test_the_command_prints_the_page_and_one_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = CliRunner().invoke(application, ["findings"]).output
    assert all(entry.id in page for entry in FINDINGS)
    assert CliRunner().invoke(application, ["findings", FINDINGS[0].id]).output == markdown.report(FINDINGS[0])
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(tmp_path)
        away = CliRunner().invoke(application, ["findings"]).output
        files = re.findall(r"replay (\S+finding.json)", away)
        assert len(files) == len(FINDINGS) and all(Path(file).is_file() for file in files)
    result = CliRunner().invoke(application, ["findings", "nothing"])
    assert (result.exit_code, result.output.startswith("error: ")) == (2, True)


@pytest.mark.parametrize("requirement", ["CM-COMMIT-07", "CM-LOG-05"])
def test_a_history_of_unity_catalogs_server_shows_its_violation(requirement: str) -> None:
    """A gap in the log is visible in the history alone; the name of a staged file only in the check."""
    folders = [path.parent for path in (HOME / "unity_catalog").glob("*/finding.json")]
    (folder,) = [path for path in folders if requirement in (path / "finding.json").read_text(encoding="utf-8")]
    finding = read_finding(folder / "finding.json")
    assert finding.requirements == (requirement,)
    assert {name for violation in finding.violations for name in violation.requirements} == {requirement}
    verdict = check_events(list(read_events(io.BytesIO((folder / "history.jsonl").read_bytes()))))
    assert [violation.rule.value for violation in verdict.violations] == (
        ["log-has-gap"] if requirement == "CM-COMMIT-07" else []
    )


# Stored reports of implementations


ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "conformance" / "implementations"
PAGE = (FOLDER / "README.md").read_text("utf-8")
REPORTS = sorted(FOLDER.glob("*/result.json"))
COUNTED = (
    RequirementVerdict.HELD, RequirementVerdict.VIOLATED, RequirementVerdict.WARNED, RequirementVerdict.INCONCLUSIVE,
)  # fmt: skip


def row(folder: str, result: RunResult) -> str:
    """The row of the page, without its last column, the contact."""
    counts = Counter(entry.verdict for entry in result.requirements)
    verdicts = " | ".join(str(counts[verdict]) for verdict in COUNTED)
    named, version, date = result.subject.named, result.subject.version, result.environment.started[:10]
    return f"| [`{named}`]({folder}) | {version} | {date} | {verdicts} | `{run_command(result)}` | "


@pytest.mark.parametrize("file", REPORTS, ids=lambda file: file.parent.name)
def test_a_report_is_whole_and_in_the_table(file: Path) -> None:
    text = file.read_bytes()
    jsonschema.validate(json.loads(text), schema("result"))
    result = from_json(text)
    assert (result.complete, result.selection, result.known, result.exit_code in (0, 1)) == (True, "", (), True)
    assert re.search(re.escape(row(file.parent.name, result)) + r"\[[^]]+\]\(https://\S+\) \|\n", PAGE)

    explained = {
        name
        for entry in stored.findings()
        if entry.subject == result.subject.named
        for name in entry.about.requirements
    }
    assert {entry.requirement for entry in result.requirements if entry.verdict == "violated"} <= explained


def test_the_table_has_no_other_row() -> None:
    assert set(re.findall(r"^\| \[`[^`]+`\]\(([\w-]+)\)", PAGE, re.MULTILINE)) == {file.parent.name for file in REPORTS}


@pytest.mark.longer
def test_the_command_of_the_page_writes_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conformance").symlink_to(ROOT / "conformance")
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(r"`delta-commit-conformance (matrix [^`]*)`", PAGE)
    ran = CliRunner().invoke(application, shlex.split(command))
    assert ran.exit_code == 0, ran.output
    *lines, _ = ran.stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [file.parent.name for file in REPORTS]
    html = (tmp_path / "matrix" / "index.html").read_text("utf-8")
    assert html.count('<span class="name">') == len(REPORTS)
