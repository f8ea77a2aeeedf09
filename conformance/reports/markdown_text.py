"""Markdown in which a text is nothing but text, whatever it holds."""

from __future__ import annotations

import re
from typing import Final

from conformance.reports.visible import one_line, visible

_SPECIAL: Final = re.compile(r"[\\`*\[\]<>|~#&@!]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""An underscore between letters is one, in every dialect that CI systems read."""


def escaped(text: str) -> str:
    """On one line: no heading, no link, no mention, no HTML."""
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", one_line(text))


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
