"""The HTML pages of one run and of several subjects: their content, valid markup, escaped input, and accessibility."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import html5lib
import msgspec
import pytest
from typer.testing import CliRunner

from conformance import reports
from conformance.command.application import application
from conformance.reports.page import HERE, MOST_EXPLAINED, Column, slug, to_matrix
from conformance.results import RequirementVerdict, RunResult
from spec_tests.conformance.reports import runs
from spec_tests.conformance.reports.test_data_reports import HOSTILE, SAMPLES, hostile
from spec_tests.conformance.running.cases import budget_ends_soon

pytestmark = pytest.mark.xdist_group("page")
"""Each page is rendered once."""

HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
FOLDER = Path("a folder/report")
SOURCES = {link.url for each in runs.requirements(()) for link in each.links}
"""The public addresses of the documents. The page may link to them, but loads none of them."""


@cache
def page(name: str = "everything") -> ElementTree.Element:
    """Parse the page strictly: invalid markup is an error."""
    return parsed(reports.to_html(SAMPLES[name](), FOLDER))


def parsed(text: str) -> ElementTree.Element:
    return html5lib.HTMLParser(tree=html5lib.getTreeBuilder("etree"), strict=True).parse(text)


def text_of(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def of_class(root: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (each for each in root.iter() if name in each.attrib.get("class", "").split())


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_is_valid_html(name: str) -> None:
    root = page(name)
    ids = [each.attrib["id"] for each in root.iter() if "id" in each.attrib]
    assert len(ids) == len(set(ids))
    for each in root.iter():
        for attribute in ("aria-labelledby", "aria-describedby", "data-copy"):
            assert set(each.attrib.get(attribute, "").split()) <= set(ids)
        target = each.attrib.get("href", "")
        assert not target.startswith("#") or target[1:] in ids


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_loads_nothing(name: str) -> None:
    root = page(name)
    loading = {"link", "img", "iframe", "object", "embed", "audio", "video", "source", "base", "image", "use"}
    assert not [each.tag for each in root.iter() if each.tag.rpartition("}")[2] in loading]
    for each in root.iter():
        assert not {"src", "srcset", "style", "action", "onclick", "onload"} & set(each.attrib)
        link = each.attrib.get("href", "")
        assert link in SOURCES or not re.match(r"[a-z]+:|//", link)
    assert not re.search(r"@import|url\(|https?:", (HERE / "page.css").read_text("utf-8"))
    assert not re.search(r"fetch|XMLHttp|import\(|https?:", (HERE / "page.js").read_text("utf-8"))


def test_the_page_permits_only_its_own_script_and_style() -> None:
    text = reports.to_html(hostile())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src 'none'" in policy[1] and "unsafe" not in policy[1]
    assert policy[1].count("'sha256-") == 2
    assert len(re.findall("<script", text)) == 1 and len(re.findall("<style", text)) == 1


def test_text_of_a_hostile_subject_is_shown_escaped() -> None:
    root = page("hostile")
    assert [text_of(each)[:8] for each in root.iter(f"{HTML}script")] == ['"use str']
    heading = text_of(next(root.iter(f"{HTML}h1")))
    assert "<script>alert(1)</script>" in heading and "{{7*7}}" in heading
    assert r"\u202e" in heading and r"\x00" in heading and r"\ud800" in heading
    whole = "".join(root.itertext())
    assert not set("\x00\x1b\u202e") & set(whole)
    assert HOSTILE.count("`") == 2 and "ticks" in whole


def test_a_verdict_is_never_shown_by_colour_alone() -> None:
    for name in SAMPLES:
        for badge in of_class(page(name), "badge"):
            assert re.search("[a-z]{3}", text_of(badge)), text_of(badge)


def test_without_a_folder_the_command_runs_that_case_again() -> None:
    result = runs.run(runs.failed(runs.histories("bad")[0]))
    finding = next(of_class(parsed(reports.to_html(result)), "finding"))
    commands = [shlex.split(text_of(each[0])) for each in of_class(finding, "command")]
    assert commands == [
        ["delta-commit-conformance", "run", "--profile", "quick", "--seed", "7", "--check", result.cases[0].case,
         result.subject.named]
    ]  # fmt: skip
    assert not [each for each in finding.iter(f"{HTML}a") if "findings/" in each.attrib["href"]]


def test_many_checks_are_listed_and_few_explained() -> None:
    case = runs.failed(runs.histories("bad")[0])
    cases = [
        msgspec.structs.replace(case, case=f"limits/c{number}[x/y]", check=f"c{number}", operations=9 - number)
        for number in range(9)
    ]
    article = next(of_class(parsed(reports.to_html(runs.run(*cases), FOLDER)), "accused"))
    assert len([each for each in of_class(article, "finding") if each.attrib.get("id")]) == MOST_EXPLAINED
    assert all(each.case in text_of(article) for each in cases)
    assert text_of(article).index("limits/c8[") < text_of(article).index("limits/c0[")


@pytest.mark.parametrize("history", [None, "", "garbage", '{"event":"header"}\n'])
def test_an_unreadable_history_is_shown_without_a_drawing(history: str | None) -> None:
    case = msgspec.structs.replace(runs.failed(runs.histories("bad")[0]), history=history)
    root = parsed(reports.to_html(runs.run(case)))
    finding = next(of_class(root, "finding"))
    assert case.violations[0].message in text_of(finding)
    assert "No drawing: " in text_of(finding)
    assert not list(root.iter(f"{SVG}svg"))


def test_controls_have_names_and_keyboard_access() -> None:
    root = page()
    for each in of_class(root, "scroll"):
        assert each.attrib["tabindex"] == "0" and each.attrib["aria-label"]
    for field in (*root.iter(f"{HTML}input"), *root.iter(f"{HTML}select")):
        assert any(field in label.iter() and text_of(label) for label in root.iter(f"{HTML}label"))
    for button in root.iter(f"{HTML}button"):
        assert text_of(button)
    first_link = next(root.iter(f"{HTML}a"))
    assert first_link.attrib == {"class": "skip", "href": "#main"}


def test_controls_that_need_a_script_are_hidden_without_one() -> None:
    for each in (*page().iter(f"{HTML}form"), *page().iter(f"{HTML}button")):
        assert "hidden" in each.attrib


def test_no_heading_level_is_skipped() -> None:
    levels = [int(each.tag[-1]) for each in page().iter() if re.fullmatch(rf"{HTML}h[1-6]", each.tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_page_is_small() -> None:
    assert len(reports.to_html(runs.everything(), FOLDER).encode()) < 600_000
    assert len((HERE / "page.js").read_bytes()) < 8_000


# Colours


def palettes() -> Iterator[dict[str, str]]:
    css = (HERE / "page.css").read_text("utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    named = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", light))
    yield named
    yield {**named, **dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", dark))}


def luminance(colour: str) -> float:
    """WCAG 2.1, relative luminance."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_the_contrast_of_wcag_aa(scheme: str) -> None:
    colours = list(palettes())[scheme == "dark"]
    backs = [each for each in colours if each.endswith("-back")]
    assert len(backs) == 6
    for text in ("text", "muted", "link", "bad", "good", "warn", "open"):
        for back in ("page", "surface"):
            assert contrast(colours[text], colours[back]) >= 4.5, (text, back)
    for back in backs:
        assert contrast(colours[back.removesuffix("-back")], colours[back]) >= 4.5, back
        assert contrast(colours["text"], colours[back]) >= 4.5, back
    assert contrast(colours["muted"], colours["quiet-back"]) >= 4.5
    assert contrast(colours["page"], colours["bad"]) >= 4.5
    for line in ("focus", "muted", "bad", "good", "warn", "open", "state"):
        assert contrast(colours[line], colours["surface"]) >= 3, line


# The page of several subjects


GO, OTHER = "stdio:go-owner", "stdio:other <owner>"
UNKNOWN = "engine:delta-kernel"


@cache
def matrix() -> ElementTree.Element:
    columns = [
        Column(subject=GO, result=runs.everything()),
        Column(subject=OTHER, result=runs.conformant()),
        Column(subject=UNKNOWN, reason="no Java was found; install a JDK 17"),
    ]
    return parsed(to_matrix(columns, Path("matrix")))


def cells_of_column(column: int) -> dict[str, ElementTree.Element]:
    """The cells of the column, by requirement."""
    return {
        text_of(next(of_class(row, "id"))): row.findall(f"{HTML}td")[column]
        for row in of_class(matrix(), "row")
        if row.tag == f"{HTML}tr"
    }


def verdicts(result: RunResult) -> dict[str, RequirementVerdict]:
    return {each.requirement: each.verdict for each in result.requirements}


@pytest.mark.parametrize(("column", "make"), [(0, runs.everything), (1, runs.conformant)])
def test_each_cell_is_the_verdict_of_its_run(column: int, make: object) -> None:
    expected = verdicts(make())  # type: ignore[operator]
    assert cells_of_column(column)
    for requirement, cell in cells_of_column(column).items():
        assert cell.attrib["class"] == (f"is-{expected[requirement]}" if requirement in expected else "")


def test_a_requirement_judged_in_any_run_has_a_row() -> None:
    silent = (RequirementVerdict.NOT_APPLICABLE, RequirementVerdict.NOT_CHECKED)
    both = [*runs.everything().requirements, *runs.conformant().requirements]
    assert set(cells_of_column(0)) == {each.requirement for each in both if each.verdict not in silent}


def test_a_violated_cell_links_to_the_drawing_of_such_a_case() -> None:
    there = {each.attrib["id"]: each for each in matrix().iter() if "id" in each.attrib}
    violated = {name: cell for name, cell in cells_of_column(0).items() if cell.attrib["class"] == "is-violated"}
    assert violated
    drawn = 0
    for requirement, cell in violated.items():
        link = cell.find(f"{HTML}a")
        assert link is not None
        finding = there[link.attrib["href"].removeprefix("#")]
        text = text_of(finding)
        cases = [case for case in runs.everything().cases if case.case in text]
        assert any(requirement in violation.requirements for case in cases for violation in case.violations)
        drawn += any(each.tag.endswith("svg") for each in finding.iter())
    assert drawn


def test_ids_are_unique_and_links_have_targets() -> None:
    ids = [each.attrib["id"] for each in matrix().iter() if "id" in each.attrib]
    assert len(ids) == len(set(ids))
    links = {each.attrib["href"] for each in matrix().iter(f"{HTML}a")}
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)


def test_a_subject_that_was_not_run_is_listed_with_the_reason() -> None:
    (term,) = (each for each in matrix().iter(f"{HTML}div") if UNKNOWN in text_of(each))
    assert "no Java was found; install a JDK 17" in text_of(term)


def test_reports_are_combined_without_a_new_run(tmp_path: Path) -> None:
    """Exit code 3 says that the page lacks one subject."""
    for name, result in (("go", runs.everything()), ("other", runs.conformant())):
        reports.write(result, tmp_path / name)
    output = tmp_path / "matrix"
    words = [*(str(tmp_path / name) for name in ("go", "other")), "stdio:no-such-command", "-o", str(output)]
    ran = CliRunner().invoke(application, ["matrix", *words, "--json"])
    assert ran.exit_code == 3
    go, other, missing = json.loads(ran.stdout)
    assert go["requirements"] == verdicts(runs.everything())
    assert (go["exit_code"], other["exit_code"]) == (runs.everything().exit_code, 0)
    assert set(missing) == {"subject", "reason"}
    assert (output / "index.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    again = reports.from_json((output / "go" / "result.json").read_bytes())
    assert msgspec.structs.replace(again, causes=()) == msgspec.structs.replace(runs.everything(), causes=())
    shutil.rmtree(tmp_path / "go")
    ran = CliRunner().invoke(application, ["matrix", str(output / "go"), "-o", str(tmp_path / "second")])
    assert (ran.exit_code, "page: " in ran.stdout) == (0, True)


def test_an_unknown_subject_is_an_error_before_the_first_run(tmp_path: Path) -> None:
    output = tmp_path / "matrix"
    ran = CliRunner().invoke(application, ["matrix", "reference", "referense", "-o", str(output)])
    assert (ran.exit_code, output.exists()) == (2, False)
    assert "unknown subject 'referense'" in ran.stderr
    ran = CliRunner().invoke(application, ["matrix", "model", "engine:duckbd", "-o", str(output)])
    assert (ran.exit_code, output.exists()) == (2, False)
    assert "unknown engine 'duckbd'" in ran.stderr


def test_each_subject_has_its_own_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget_ends_soon(monkeypatch)
    output = tmp_path / "matrix"
    words = ["matrix", "model", "-o", str(output), "-n", "1", "--budget", "1h", "--timeout", "2h"]
    ran = CliRunner().invoke(application, words)
    result = reports.from_json((output / "model" / "result.json").read_bytes())
    assert (result.complete, result.stopped) == (False, "the budget of 3600 s expired"), ran.stderr


def test_two_subjects_with_one_folder_are_an_error(tmp_path: Path) -> None:
    ran = CliRunner().invoke(application, ["matrix", "good:a", "good:a.", "-o", str(tmp_path / "matrix")])
    assert ran.exit_code == 2
    assert slug("good:a") == slug("good:a.") == "good-a"
