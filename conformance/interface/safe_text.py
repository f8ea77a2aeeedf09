"""Untrusted text of a subject: as JSON, visible on a console, and as plain text in Markdown."""

import re
from typing import Any, Final, Literal

import msgspec

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)
"""Characters that XML forbids, that UTF-8 cannot encode, or that make a text look like another one."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with invisible characters escaped, except line feeds and tabs."""
    return _HIDDEN.sub(_escaped, text)


def writable(text: str) -> str:
    """The text with lone surrogates escaped, because UTF-8 cannot encode them."""
    return _SURROGATE.sub(_escaped, text)


def one_line(text: str) -> str:
    """Visible, and without line breaks."""
    return " ".join(visible(text).split())


def to_json(value: Any, *, order: Literal["deterministic"] | None = None) -> bytes:
    """JSON without line breaks, from `writable` texts, because a subject in the kit's process may answer with a lone
    surrogate. `order`: the order of the fields of dictionaries."""
    try:
        return msgspec.json.encode(value, order=order)
    except UnicodeEncodeError:
        return msgspec.json.encode(_writable(msgspec.to_builtins(value)), order=order)


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return writable(value)
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(item) for item in value]
    return value


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


# Markdown: only markup is escaped, with a backslash or as a code span, so that the text stays readable on a terminal.

_CODE: Final = r"(?<!`)`(?P<code>[^`]*[^`\s][^`]*)`(?!`)"
_LIVE: Final = r"[\w.+-]*@[\w./-]+|(?<!\w)[#!]\d+|\w+://\S+|www\.\S+"
"""Characters that CI systems turn into mentions, references and links even after a backslash, but not in a code
span."""
_SPECIAL: Final = "|".join(
    (
        r"[\\`*<~]",
        r"&(?=#?\w+;)",  # an entity
        r"\](?=[(\[:])|\[(?=\[)",  # a link, a definition, a page of a wiki, but not `[1, 3]`
        r"(?<=\S)_(?![A-Za-z0-9])",  # may end an emphasis; without an end none begins
        r"^(?:>|#|[-+=](?=[-+=\s]|$))",  # a quotation, a heading, a list, a line
        r"(?:(?<=^\d)|(?<=^\d\d)|(?<=^\d\d\d)|(?<=^\d\d\d\d))[.)](?=\s|$)",  # a list with numbers
    )
)
_TOKENS: Final = re.compile(rf"{_CODE}|(?P<live>{_LIVE})|(?P<special>{_SPECIAL})")


def escaped(text: str) -> str:
    """The text on one line without headings, links, mentions or HTML. The following text must not begin with a bracket
    or a colon."""
    return _TOKENS.sub(_inert, one_line(text))


def _inert(match: re.Match[str]) -> str:
    if match["special"] is not None:
        return f"\\{match['special']}"
    return code(match["code"] or match["live"])


def code(text: str) -> str:
    """A code span, on one line."""
    text = one_line(text)
    fence = "`" * (1 + _longest_fence(text))
    space = " " if text[:1] == "`" or text[-1:] == "`" or not text else ""
    return f"{fence}{space}{text}{space}{fence}"


def block(text: str, language: str = "sh") -> str:
    """A block of shell commands, or of other text."""
    text = visible(text)
    fence = "`" * max(3, 1 + _longest_fence(text))
    return f"{fence}{language}\n{text}\n{fence}"


def _longest_fence(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


_MARKUP: Final = re.compile(
    r"(?P<fence>`+) ?(?P<code>.+?) ?(?P=fence)|\\(?P<char>[^\w\s]|_)|\[(?P<text>[^\]]+)\]\((?P<url>[^)]+)\)"
    r"|(?P<mark>\*\*|^#+ |^> |^\|[-|]+\|\n|^\| | \|$)|(?P<cell> \| )",
    re.MULTILINE,
)


def without_markup(text: str) -> str:
    """The kit's own Markdown as text for a terminal: the content of code spans, links with their addresses."""
    return _MARKUP.sub(_plain, text)


def _plain(match: re.Match[str]) -> str:
    if match["text"]:
        return f"{without_markup(match['text'])} ({match['url']})"
    return match["code"] or match["char"] or ("  " if match["cell"] else "")
