"""Reports for scripts and for CI: JSON, JUnit, Markdown and the badge, made from real violations."""

import html
import json
import re
import tomllib
from collections.abc import Callable
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
from conformance.interface.results import CaseResult, KnownFailure, RequirementVerdict, RunResult, Verdict, Violation
from conformance.interface.safe_text import escaped, one_line
from conformance.reports import stored
from conformance.reports.summary import Standing, Tone, standing, summarise
from conformance.reports.text import to_text
from conformance.running import verdicts
from spec_tests.conformance.reports import runs

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
