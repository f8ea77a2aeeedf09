"""Text in Markdown: as a renderer shows it, and as a terminal does."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from conformance.safe_text import code, escaped, one_line

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
PIECES = (
    *("`", "``", "*", "_", "__", "[", "]", "(", ")", "[a](/b)", "[a]: /b", "![", "<", ">", "<b>", "<!--", "&", "&lt;"),
    *("\\", "~", "~~", "#", "# ", "- ", "+ ", "1. ", "12) ", "---", "===", "|", "|-|", "@you", "#12", "!3", ":", " "),
    *("http://x.y", "www.x.y", "a", "1", "é", "\n", "\t", "{{", "$"),
)


def shown(text: str) -> str:
    """What is read of the rendered text: without the tags, and without what distinguishes code."""
    rendered = RENDERER.render(escaped(text)).strip()
    assert not set(re.findall(r"<\s*([^\s>]*)", rendered)) - {"p", "/p", "code", "/code"}, rendered
    return html.unescape(re.sub("<[^>]*>", "", rendered))


def bare(text: str) -> str:
    """Without backticks, which are markup in the kit's own texts, and without spaces, which code spans trim."""
    return "".join(one_line(text).replace("`", "").split())


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_a_text_is_nothing_but_text(text: str) -> None:
    assert bare(shown(text)) == bare(text)


@given(
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
)
def test_two_texts_in_one_paragraph_make_no_markup_together(one: str, other: str) -> None:
    rendered = RENDERER.render(f"Subject: {escaped(one)} ({escaped(other)}), named {code('x')}.")
    assert not set(re.findall(r"<\s*([^\s>]*)", rendered)) - {"p", "/p", "code", "/code"}, rendered


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
def test_an_ordinary_text_stays_as_a_terminal_shows_it(text: str) -> None:
    assert escaped(text).replace("\\<", "<") == text


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("@you broke #12", "`@you` broke `#12`"),
        ("see https://a.b/c", "see `https://a.b/c`"),
        ("[a](/b)", "[a\\](/b)"),
        ("# big", "\\# big"),
        ("2. two", "2\\. two"),
        ("*", "\\*"),
        ("&amp; and & alone", "\\&amp; and & alone"),
        ("``` sh", "\\`\\`\\` sh"),
    ],
)
def test_markup_is_escaped_minimally(text: str, markdown: str) -> None:
    assert escaped(text) == markdown
