"""Markdown in which a text is nothing but text, whatever it holds, and that can still be read in a terminal.

Only what would be markup is escaped, and only with a backslash or as a code span: a list in brackets stays a list in
brackets, and words in backticks stay code.
"""

from __future__ import annotations

import re
from typing import Final

from conformance.safe_text import one_line, visible

_CODE: Final = r"(?<!`)`(?P<code>[^`]*[^`\s][^`]*)`(?!`)"
_LIVE: Final = r"[\w.+-]*@[\w./-]+|(?<!\w)[#!]\d+|\w+://\S+|www\.\S+"
"""What CI systems make mentions, references and links of even behind a backslash, but not in a code span."""
_SPECIAL: Final = "|".join(
    (
        r"[\\`*<~]",
        r"&(?=#?\w+;)",  # an entity
        r"\](?=[(\[:])|\[(?=\[)",  # a link, a definition, a page of a wiki; `[1, 3]` is none
        r"(?<=\S)_(?![A-Za-z0-9])",  # may end an emphasis, without which none begins
        r"^(?:>|#|[-+=](?=[-+=\s]|$))",  # a quotation, a heading, a list, a line
        r"(?:(?<=^\d)|(?<=^\d\d)|(?<=^\d\d\d)|(?<=^\d\d\d\d))[.)](?=\s|$)",  # a list with numbers
    )
)
_TOKENS: Final = re.compile(rf"{_CODE}|(?P<live>{_LIVE})|(?P<special>{_SPECIAL})")


def escaped(text: str) -> str:
    """On one line: no heading, no link, no mention, no HTML. Whatever follows it begins with no bracket or colon."""
    return _TOKENS.sub(_inert, one_line(text))


def _inert(found: re.Match[str]) -> str:
    if found["special"] is not None:
        return f"\\{found['special']}"
    return code(found["code"] or found["live"])


def code(text: str) -> str:
    """A code span, on one line."""
    text = one_line(text)
    fence = "`" * (1 + _longest_fence(text))
    space = " " if text[:1] == "`" or text[-1:] == "`" or not text else ""
    return f"{fence}{space}{text}{space}{fence}"


def block(text: str) -> str:
    """A block of shell commands."""
    text = visible(text)
    fence = "`" * max(3, 1 + _longest_fence(text))
    return f"{fence}sh\n{text}\n{fence}"


def _longest_fence(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
