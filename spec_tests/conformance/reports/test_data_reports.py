"""Reports for scripts and for CI: JSON, JUnit, Markdown and the badge, made from real violations."""

import html
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from conformance import reports
from conformance.command.application import application
from conformance.history_checkers.check import check_file
from conformance.interface.results import CaseResult, KnownFailure, RequirementVerdict, RunResult, Verdict, Violation
from conformance.interface.safe_text import escaped, one_line
from conformance.reports import folder as folders
from conformance.reports import stored
from conformance.reports.stored import bundle_name, finding_of_case
from conformance.reports.summary import Standing, Tone, standing, summarise
from conformance.reports.text import to_text
from conformance.running import verdicts
from spec_tests.conformance.reports import runs
from spec_tests.support.sampling import sampled

HOSTILE = "<script>alert(1)</script> & \"quotes\" 'n' `ticks` | {{7*7}} # @you \u202egnp.exe \x00\x1b[31m \ud800 ]]>"


def hostile() -> RunResult:
    """A run in which every text of the subject is malicious."""
    case = runs.failed(runs.histories("bad")[0])
    violation = msgspec.structs.replace(case.violations[0], message=HOSTILE, observed=HOSTILE)
    case = msgspec.structs.replace(case, title=HOSTILE, violations=(violation,))
    open_case = runs.without_verdict(Verdict.INCONCLUSIVE, HOSTILE)
    result = runs.run(case, open_case, stale=(KnownFailure(case=HOSTILE, reason=HOSTILE),), stopped=HOSTILE)
    subject = msgspec.structs.replace(result.subject, named=f"stdio:{HOSTILE}", name=HOSTILE, version=HOSTILE)
    return msgspec.structs.replace(result, subject=subject, selection=HOSTILE)


def advice() -> RunResult:
    """A run in which only advice is violated."""
    good = [runs.passed(path) for path in runs.histories("good")]
    results = runs.requirements(())
    should = next(
        result.requirement for result in results if result.level == "SHOULD" and result.requirement.startswith("CM-")
    )
    case = runs.failed(runs.histories("bad")[0])
    violation = msgspec.structs.replace(case.violations[0], requirements=(should,))
    return runs.run(*good, msgspec.structs.replace(case, violations=(violation,)), exit_code=0)


def nothing_passed() -> RunResult:
    return runs.run(runs.without_verdict(Verdict.SKIPPED, "not promised"), exit_code=0)


def all_known() -> RunResult:
    bad = runs.failed(runs.histories("bad")[0])
    good = runs.passed(runs.histories("good")[0])
    return runs.run(bad, good, known=(KnownFailure(case="*/backfill-*[*]", reason="ticket 17"),), exit_code=0)


SAMPLES = {
    "everything": runs.everything,
    "conformant": runs.conformant,
    "hostile": hostile,
    "advice": advice,
    "nothing passed": nothing_passed,
    "all known": all_known,
    "no case": lambda: runs.run(exit_code=2, complete=False, stopped="the subject does not answer hello"),
}


@pytest.mark.parametrize("name", runs.stored_reports())
def test_a_report_equals_the_stored_one(name: str) -> None:
    """After an intended change, run `python -m spec_tests.conformance.reports.runs`, and review the difference."""
    assert runs.stored_reports()[name] == (runs.STORED / name).read_text("utf-8")


# JSON


def test_the_schema_file_is_the_schema_of_the_types() -> None:
    """After a change of the types: `stored.SCHEMA_FILE.write_text(stored.schema_text())`."""
    assert stored.SCHEMA_FILE.read_text("utf-8") == stored.schema_text()


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_a_result_validates_against_the_schema(sample) -> None:
    schema = json.loads(stored.SCHEMA_FILE.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(reports.to_json(sample())), schema)


@pytest.mark.parametrize("name", stored.FORMATS)
def test_each_format_of_a_report_has_a_schema(name: str) -> None:
    printed = CliRunner().invoke(application, ["schema", name]).stdout
    assert printed == stored.schema_text(name)
    schema = json.loads(printed)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"].endswith("schema 1")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": "1"}, schema)


def test_findings_and_known_failures_validate() -> None:
    result = runs.everything()
    failed = [case for case in result.cases if case.violations]
    assert failed
    for case in failed:
        jsonschema.validate(json.loads(stored.bundle_files(result, case)[stored.FINDING]), stored.schema("finding"))
    known = tomllib.loads(verdicts.generate("model", failed, result.known))
    jsonschema.validate(known, stored.schema("known-failures"))
    assert known["known-failure"]


def test_a_result_is_read_back_as_it_was_written() -> None:
    result = runs.everything()
    assert reports.from_json(reports.to_json(result)) == result


def test_a_file_that_is_no_result_is_refused() -> None:
    for text in ("", "{}", "[]", "\x00", b"\xff", '{"schema":"1"}', "[" * 100_000):
        with pytest.raises(reports.ReportError):
            reports.from_json(text)


def test_a_result_of_a_later_schema_is_refused_with_both_numbers() -> None:
    later = msgspec.structs.replace(runs.conformant(), schema=99)
    with pytest.raises(reports.ReportError, match="99"):
        reports.from_json(reports.to_json(later))


# Several programs of one case


SPACE = "\n\n"


def in_junit(case: CaseResult) -> str:
    failure = ElementTree.fromstring(reports.to_junit(runs.run(case))).find(".//failure")
    assert failure is not None
    return failure.text or ""


def test_each_failing_program_is_explained_by_itself() -> None:
    """Its title, operations, violations, history and remark stand together; the command at the end repeats all."""
    case = runs.failed_twice(*map(runs.failed, runs.histories("bad")[:2]))
    first, second = map(in_junit, case.by_program())
    assert in_junit(case) == f"{first.rpartition(SPACE)[0]}{SPACE}{second}"
    assert all(part in second for part in ("Other.", "7 operations", case.violations[-1].message, "shown once"))
    assert case.violations[-1].message not in first and "shown once" not in first


# The verdict


STALE = KnownFailure(case="limits/gone*", reason="ticket 3")


def refused() -> RunResult:
    """The subject refused one request, as it may; another case shows that the requirement holds."""
    result = runs.conformant()
    case = runs.without_verdict(Verdict.INCONCLUSIVE, "a policy")
    return msgspec.structs.replace(result, cases=(*result.cases, case))


STOPPED = "the budget of 60 s expired"


@pytest.mark.parametrize(
    ("make", "changes", "tone", "says"),
    [
        (runs.conformant, {}, Tone.GOOD, r"^Conformant: \d+ requirements hold, none is violated\.$"),
        (runs.conformant, {"complete": False, "stopped": STOPPED, "exit_code": 3}, Tone.UNKNOWN, STOPPED),
        (runs.everything, {}, Tone.BAD, r" \d+ are violated"),
        (runs.everything, {"exit_code": 0}, Tone.BAD, " are violated"),
        (runs.everything, {"complete": False, "stopped": STOPPED}, Tone.BAD, f" are violated.*{STOPPED}"),
        (advice, {}, Tone.WARNING, "^Conformant: "),
        (all_known, {}, Tone.WARNING, r"^Only known failures: .* 1 case failed as listed\.$"),
        (all_known, {"known": (), "exit_code": 1}, Tone.BAD, "^Not conformant: "),
        (runs.conformant, {"stale": (STALE,), "exit_code": 1}, Tone.BAD, "^Outdated list of known failures: .* none"),
        (refused, {}, Tone.GOOD, "^Conformant: "),
    ],
)
def test_a_runs_verdict_has_its_tone_and_reason(
    make: Callable[[], RunResult], changes: dict[str, Any], tone: Tone, says: str
) -> None:
    summary = summarise(msgspec.structs.replace(make(), **changes))
    assert (summary.tone, bool(re.search(says, summary.sentence))) == (tone, True), summary.sentence
    held, violated = (summary.requirements[kind] for kind in (RequirementVerdict.HELD, RequirementVerdict.VIOLATED))
    assert f" {held} " in summary.sentence and re.search(rf" {violated or 'none'} (is|are) violated", summary.sentence)


@pytest.mark.parametrize("code", [0, 2, 3])
def test_a_run_in_which_nothing_passed_is_never_green(code: int) -> None:
    result = msgspec.structs.replace(nothing_passed(), exit_code=code)
    assert summarise(result).tone is Tone.UNKNOWN
    assert json.loads(reports.to_badge(result))["color"] == "lightgrey"
    assert int(ElementTree.fromstring(reports.to_junit(result)).attrib["errors"]) > 0


def test_violated_advice_is_a_warning_and_in_strict_mode_a_failure() -> None:
    result = advice()
    case = result.cases[-1]
    assert standing(result, case) is Standing.WARNED
    assert standing(msgspec.structs.replace(result, strict=True), case) is Standing.FAILED


# Markdown and badge


def test_markdown_has_no_markup_of_a_subject() -> None:
    text = reports.to_markdown(hostile())
    rendered = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)
    assert set(re.findall(r"<(\w+)", rendered)) == {"h1", "pre", "code"}
    outside = re.sub("<(code)[^>]*>.*?</code>", "", rendered, flags=re.DOTALL)
    assert "&lt;script&gt;" in outside
    assert "@you" not in outside and "@you" in text
    assert "\u202e" not in text and "\x1b" not in text


# Hostile input


@pytest.mark.parametrize("make", [reports.to_json, reports.to_junit, reports.to_markdown, reports.to_badge])
def test_a_hostile_subject_breaks_no_report(make) -> None:
    text = make(hostile())
    text.encode("utf-8")
    if make is reports.to_junit:
        ElementTree.fromstring(text)
    if make is not reports.to_markdown and make is not reports.to_junit:
        json.loads(text)


def test_a_violation_without_a_requirement_is_reported() -> None:
    case = msgspec.structs.replace(
        runs.failed(runs.histories("bad")[0]), violations=(Violation(requirements=(), message="it broke"),)
    )
    result = runs.run(case)
    assert summarise(result).tone is Tone.BAD
    for make in (reports.to_markdown, reports.to_junit, reports.to_html):
        assert "it broke" in make(result)


# On the console


STORY = (
    "the adapter is broken:\nadapter  commit: expected `ratified`\n           request: commit\n           answer: [1]"
)


def test_an_error_of_the_adapter_is_explained_once() -> None:
    cases = [runs.without_verdict(Verdict.NOT_RUN, STORY, number) for number in range(4)]
    text = to_text(runs.run(*cases, complete=False, stopped=STORY, exit_code=2), None)
    assert text.count("the adapter is broken") == text.count("request: commit") == 1
    assert STORY in text
    assert "not run:" not in text and "4 cases were not run" in text
    assert "No verdict: " in text
    assert "no case was about" not in text


@pytest.mark.parametrize(
    ("stale", "failing", "meaning"),
    [
        (False, True, "exit code 1: a requirement is violated"),
        (True, True, "exit code 1: a requirement is violated, and a known failure is no longer true"),
        (True, False, "exit code 1: a known failure is no longer true"),
    ],
)
def test_the_exit_code_mentions_stale_known_failures(stale: bool, failing: bool, meaning: str) -> None:
    case = runs.failed(runs.histories("bad")[0]) if failing else runs.passed(runs.histories("good")[0])
    entry = KnownFailure(case="limits/gone*", reason="ticket 3")
    result = msgspec.structs.replace(runs.run(case), exit_code=1, stale=(entry,) if stale else ())
    text = to_text(result, None)
    assert text.endswith(meaning)
    assert ("limits/gone*: there is no such case" in text) is stale


# Text in Markdown: as a renderer shows it, and as a terminal shows it


RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
PIECES = (
    *("`", "``", "*", "_", "__", "[", "]", "(", ")", "[a](/b)", "[a]: /b", "![", "<", ">", "<b>", "<!--", "&", "&lt;"),
    *("\\", "~", "~~", "#", "# ", "- ", "+ ", "1. ", "12) ", "---", "===", "|", "|-|", "@you", "#12", "!3", ":", " "),
    *("http://x.y", "www.x.y", "a", "1", "é", "\n", "\t", "{{", "$"),
)


def rendered(text: str) -> str:
    """The text that a reader of the rendered page sees, without tags and code markers."""
    rendered = RENDERER.render(escaped(text)).strip()
    assert not set(re.findall(r"<\s*([^\s>]*)", rendered)) - {"p", "/p", "code", "/code"}, rendered
    return html.unescape(re.sub("<[^>]*>", "", rendered))


def bare(text: str) -> str:
    """The text without backticks, which are markup in the kit's own texts, and without spaces, which code spans
    trim.
    """
    return "".join(one_line(text).replace("`", "").split())


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_escaped_text_has_no_markup(text: str) -> None:
    assert bare(rendered(text)) == bare(text)


@pytest.mark.parametrize(
    "text",
    [
        "the list is [1, 3], and `latest` is 3",
        "Observed: the list is [1, 3]",
        "`ratified` was answered, 2 < 3 is not",
        "a.json of _delta_log/_staged_commits is missing",
        "expected one of (1) and (2): 50% > 40%; 7 | 8 & 9!",
    ],
)
def test_an_ordinary_text_is_not_changed(text: str) -> None:
    assert escaped(text).replace("\\<", "<") == text


# Reports on disk


NAMES = {"result.json", "junit.xml", "summary.md", "badge.json", "index.html"}
BUNDLE = {"finding.json", "history.jsonl", "README.md"}


def result(number: int = 3) -> RunResult:
    bad = [runs.failed(path) for path in runs.histories("bad")[:number]]
    return runs.run(*bad, runs.passed(runs.histories("good")[0]))


def there(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {folders.LOCK}


def test_all_reports_and_a_bundle_for_each_finding_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "report"
    written = reports.write(result(), folder)
    assert {path.relative_to(folder).as_posix() for path in written} == there(folder)
    failing = [case for case in result().cases if case.verdict is Verdict.FAILED]
    bundles = {f"findings/{bundle_name(case)}/{name}" for case in failing for name in BUNDLE}
    assert there(folder) == NAMES | bundles
    assert reports.from_json((folder / "result.json").read_bytes()) == result()


def test_a_bundle_is_enough_to_reproduce_the_failure(tmp_path: Path) -> None:
    run = result(1)
    case = run.cases[0]
    written = reports.write_bundle(run, case, tmp_path / "bundle")
    assert {path.name for path in written} == BUNDLE
    finding = reports.read_finding(tmp_path / "bundle" / "finding.json")
    assert finding == finding_of_case(run, case)
    assert (finding.case, finding.seed, finding.profile) == (case.case, 7, "quick")
    assert finding.subject == run.subject
    verdict = check_file(tmp_path / "bundle" / "history.jsonl")
    assert [violation.message for violation in verdict.violations] == [
        violation.message for violation in case.violations
    ]
    readme = (tmp_path / "bundle" / "README.md").read_text("utf-8")
    assert "delta-commit-conformance replay FOLDER/finding.json" in readme
    assert case.violations[0].requirements[0] in readme


def test_each_failing_program_of_a_case_has_its_own_bundle(tmp_path: Path) -> None:
    one, other = result(2).cases[:2]
    assert one.history and other.history
    case = runs.failed_twice(one, other)
    further = case.violations[len(one.violations) :]
    run = runs.run(case)
    reports.write(run, tmp_path)
    assert reports.from_json((tmp_path / "result.json").read_bytes()) == run
    folders_ = {path.name for path in (tmp_path / "findings").iterdir()}
    assert folders_ == {bundle_name(one), f"{bundle_name(one)}-1"}
    page = (tmp_path / "index.html").read_text("utf-8")
    assert all(f"play {tmp_path}/findings/{name}/finding.json" in page for name in folders_)
    finding = reports.read_finding(tmp_path / "findings" / f"{bundle_name(one)}-1" / "finding.json")
    assert (finding.title, finding.operations, finding.reproduction) == ("Other.", 7, '{"seed":2}')
    assert finding.violations == further
    verdict = check_file(tmp_path / "findings" / f"{bundle_name(one)}-1" / "history.jsonl")
    assert [shown.message for shown in verdict.violations] == [shown.message for shown in further]


def test_a_case_without_a_history_has_a_bundle_without_one(tmp_path: Path) -> None:
    run = result(1)
    reports.write_bundle(run, run.cases[0], tmp_path)
    bare = msgspec.structs.replace(run.cases[0], history=None)
    reports.write_bundle(run, bare, tmp_path)
    assert there(tmp_path) == {"finding.json", "README.md"}
    assert reports.read_finding(tmp_path / "finding.json").history is None


def test_a_history_is_not_accepted_as_a_finding(tmp_path: Path) -> None:
    run = result(1)
    reports.write_bundle(run, run.cases[0], tmp_path)
    with pytest.raises(reports.ReportError) as raised:
        reports.read_finding(tmp_path / "history.jsonl")
    assert "check" in raised.value.problem
    for content in (b"", b"{}", b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "other.json").write_bytes(content)
        with pytest.raises(reports.ReportError, match="is not a finding"):
            reports.read_finding(tmp_path / "other.json")
    with pytest.raises(reports.ReportError):
        reports.read_finding(tmp_path / "nothing.json")


def test_bundle_names_are_valid_and_distinct(tmp_path: Path) -> None:
    case = result(1).cases[0]
    names = ["a/b[c/d]", "a/B[c/d]", "a/b[c-d]", "../../etc/passwd", "x" * 500, "x" * 501, "\x00\ud800", "", "."]
    names_in_lower_case = {bundle_name(msgspec.structs.replace(case, case=name)).lower() for name in names}
    assert len(names_in_lower_case) == len(names)
    for name in names_in_lower_case:
        assert Path(name).name == name and len(name) < 100
        (tmp_path / name).mkdir()


def test_findings_of_an_earlier_run_are_deleted_and_other_files_kept(tmp_path: Path) -> None:
    reports.write(result(3), tmp_path)
    gone = tmp_path / "findings" / bundle_name(result(3).cases[2])
    kept = tmp_path / "findings" / bundle_name(result(3).cases[1])
    for path in (tmp_path / "mine.txt", kept / "notes.txt", tmp_path / "findings" / "mine" / "a.txt"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (tmp_path / ".unfinished-report-1").write_text("left by a killed run")
    reports.write(result(1), tmp_path)
    assert not gone.exists()
    assert {path.name for path in kept.iterdir()} == {"notes.txt"}
    assert (tmp_path / "mine.txt").exists() and (tmp_path / "findings" / "mine" / "a.txt").exists()
    assert not (tmp_path / ".unfinished-report-1").exists()


def test_two_writes_of_one_result_give_the_same_bytes(tmp_path: Path) -> None:
    reports.write(hostile(), tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in there(tmp_path)}
    reports.write(hostile(), tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in there(tmp_path)} == before


def test_another_process_is_kept_out_until_the_first_ends(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from conformance import reports\n"
        "with reports.ReportFolder(pathlib.Path(sys.argv[1])):\n"
        "    print('mine', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"mine\n"
        with pytest.raises(reports.FolderInUseError):
            reports.write(result(), tmp_path)
        other.kill()
    assert reports.write(result(), tmp_path)


def test_an_unwritable_folder_is_an_error_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(reports.ReportError, match=re.escape(str(path))):
            reports.write(result(), path)


@pytest.mark.parametrize("at", sampled(range(8), 3))
def test_an_interrupt_leaves_only_complete_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Ctrl-C arrives just before the n-th file is renamed."""
    reports.write(result(1), tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in there(tmp_path)}
    reports.write(result(3), tmp_path / "after")
    replace, calls = Path.replace, iter(range(100))

    def interrupted(self: Path, target: Path) -> Path:
        if next(calls) == at:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reports.write(result(3), tmp_path)
    monkeypatch.undo()
    for name in there(tmp_path):
        if not name.startswith("after/"):
            assert not Path(name).name.startswith(".unfinished")
            after = tmp_path / "after" / name
            whole = {before.get(name), *([after.read_bytes()] if after.exists() else [])}
            written = (tmp_path / name).read_bytes()
            assert nameless(written, tmp_path) in {nameless(content, tmp_path) for content in whole if content}


def nameless(content: bytes, folder: Path) -> bytes:
    """The content without the name of its own folder, which some reports contain."""
    return content.replace(os.fsencode(folder / "after"), b"").replace(os.fsencode(folder), b"")
