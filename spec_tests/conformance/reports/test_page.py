"""The HTML page: what it says, that it is sound, that nothing of a subject's is obeyed, and that it can be read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import html5lib
import msgspec
import pytest

from conformance import reports
from conformance.reports.page import HERE, MOST_EXPLAINED
from spec_tests.conformance.reports import runs
from spec_tests.conformance.reports.test_data_reports import HOSTILE, SAMPLES, hostile

pytestmark = pytest.mark.xdist_group("page")
"""It is rendered once."""

HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
FOLDER = Path("a folder/report")
SOURCES = {link.url for each in runs.requirements(()) for link in each.links}
"""The documents' public addresses: a reader may follow them; the page loads none of them."""


@cache
def page(name: str = "everything") -> ElementTree.Element:
    """Parsed strictly: an error of the page's is an error here."""
    return parsed(reports.to_html(SAMPLES[name](), FOLDER))


def parsed(text: str) -> ElementTree.Element:
    return html5lib.HTMLParser(tree=html5lib.getTreeBuilder("etree"), strict=True).parse(text)


def text_of(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def of_class(root: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (each for each in root.iter() if name in each.attrib.get("class", "").split())


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_is_sound_html(name: str) -> None:
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


def test_the_page_permits_its_own_script_and_style_only() -> None:
    text = reports.to_html(hostile())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src 'none'" in policy[1] and "unsafe" not in policy[1]
    assert policy[1].count("'sha256-") == 2
    assert len(re.findall("<script", text)) == 1 and len(re.findall("<style", text)) == 1


def test_a_hostile_subject_is_shown_and_not_obeyed() -> None:
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


def test_without_a_folder_the_command_is_a_run_of_that_case() -> None:
    result = runs.run(runs.failed(runs.histories("bad")[0]))
    finding = next(of_class(parsed(reports.to_html(result)), "finding"))
    commands = [shlex.split(text_of(each[0])) for each in of_class(finding, "command")]
    assert commands == [
        ["delta-commit-conformance", "run", "--profile", "quick", "--seed", "7", "--check", result.cases[0].case,
         result.subject.named]
    ]  # fmt: skip
    assert not [each for each in finding.iter(f"{HTML}a") if "findings/" in each.attrib["href"]]


def test_many_checks_are_named_and_few_explained() -> None:
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


def test_without_a_script_nothing_is_offered_that_needs_one() -> None:
    for each in (*page().iter(f"{HTML}form"), *page().iter(f"{HTML}button")):
        assert "hidden" in each.attrib


def test_headings_leave_out_no_level() -> None:
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
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
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
