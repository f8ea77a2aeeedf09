"""Splits a document of the protocol into sentences, tells which are normative, and gives each a fingerprint.

The documents themselves are not in this repository: the catalogue knows their sentences by fingerprint alone, and
`spec_tests/conformance/test_catalogue.py` walks them where somebody has them. Pages of this repository are not split:
each of their rules has an anchor.

What counts as a sentence:

- Code in fences, rules (`---`), text struck out (`~~...~~`) and titles of admonitions are not text. A heading only
  names the section of what follows it. A table is one sentence or more for each cell.
- A paragraph and a list item are blocks, and no sentence reaches over the end of its block.
- A block is divided after `.`, `!` or `?` before a capital, a digit, a quotation mark or a bracket, except after
  e.g., i.e., etc. and vs.; and at a middle dot that stands alone.
- With `flattened`, for a copy that lost its layout, every line is a block, and a full stop may touch the next capital.

A sentence is normative if it holds one of the `KEYWORDS`, or belongs to a list whose introduction (the sentence
before it, ending in a colon) holds one; except that a mere reference to another section never is. The list is closed
and generous: what it catches without need is put aside in the catalogue, with the reason. A sentence that demands
something without any of these words may be cited by the catalogue all the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Final

import msgspec

KEYWORDS: Final = {
    "demand": (
        r"must|shall|requir(?:e|es|ed|ing)|responsib(?:le|ility|ilities)|needs?|ha(?:s|ve) to|ensures?|guarantees?",
        r"never|only|always|cannot|do not|does not|won't|refuses?|rejects?|prohibit(?:s|ed)?|(?:not |un)supported",
        r"delete|preserve|identify|atomic|atomically|sequential|in order|invalid|immutable",
    ),
    "advice": (r"should|encourage[sd]?|expected|recommend(?:s|ed)?|prefer(?:s|ably)?",),
    "permission": (r"may|can|could|allow(?:s|ed)?|free to|acceptable|optional(?:ly)?",),
    "truth": (r"source of truth|authoritative|proves|will|supported and active",),
}
"""What makes a sentence normative, by kind: regular expressions of whole words, in any case of letters."""

FINGERPRINT_DIGITS: Final = 12

_NORMATIVE: Final = re.compile(
    rf"\b(?:{'|'.join(expression for group in KEYWORDS.values() for expression in group)})\b", re.IGNORECASE
)
_REFERENCE: Final = re.compile(
    r"(?:refer to|see|this is explained in detail in)\b.*\b(?:details|section)\.?", re.IGNORECASE
)

_STRUCK_OUT: Final = re.compile(r"~~.*?~~", re.DOTALL)
_HEADING: Final = re.compile(r"\s*#{1,6}\s+(?P<title>.*)")
_CHAPTER: Final = re.compile(r"## (?P<title>.*)")
_ANCHOR: Final = re.compile(r'<a id="([a-z0-9-]+)"></a>')
_NOT_TEXT: Final = re.compile(r"(?:-{3,}|[!?]{3}.*)")
_ITEM: Final = re.compile(r"(?P<indent>\s*)(?:<ins>)?(?:[-*]|\d+\.)\s+(?P<text>.*)")
_ATTRIBUTES: Final = re.compile(r"\s*\{.*\}\s*$")

_CODE: Final = re.compile(r"`([^`]*)`")
_TAG: Final = re.compile(r"</?(?:ins|span|a|br)\b[^<>]*>")
_LINK: Final = re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\([^()]*(?:\([^()]*\)[^()]*)*\)")
_EMPHASIS: Final = re.compile(r"(?<![\w*])([*_]{1,3})(?=\S)([^*_]+)(?<=\S)\1(?![\w*])")
_BOUNDARY: Final = re.compile(r"[.!?][)\"']*\s+(?=[A-Z0-9\"'(<\[_])|\s·\s")
_TOUCHING: Final = re.compile(rf"{_BOUNDARY.pattern}|(?<=[a-z])\.(?=[A-Z])")
_ABBREVIATION: Final = re.compile(r"\b(?:e\.g|i\.e|etc|vs)\.$", re.IGNORECASE)


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence of a document, without its markdown."""

    section: str
    text: str
    normative: bool

    @property
    def fingerprint(self) -> str:
        """The same for every spelling of the sentence that differs in markdown, white space or case only."""
        return hashlib.sha256(self.text.lower().encode()).hexdigest()[:FINGERPRINT_DIGITS]


class _Block(msgspec.Struct, kw_only=True):
    section: str
    depth: int
    """0 for a paragraph; list items deeper than another belong to it."""
    text: str


def anchors(page: str) -> dict[str, str]:
    """The anchors of a page's rules, `<a id="overlap"></a>`, each with the heading of the chapter that it is in."""
    found: dict[str, str] = {}
    chapter = ""
    for line in page.splitlines():
        if heading := _CHAPTER.fullmatch(line):
            chapter = heading["title"]
        found |= dict.fromkeys(_ANCHOR.findall(line), chapter)
    return found


def sentences(markdown: str, *, flattened: bool = False) -> Iterator[Sentence]:
    """All sentences of a document, in its order."""
    boundary = _TOUCHING if flattened else _BOUNDARY
    introductions: list[tuple[int, bool]] = []
    for block in _blocks(_STRUCK_OUT.sub("", _without_fences(markdown)), every_line=flattened):
        while introductions and introductions[-1][0] >= block.depth:
            introductions.pop()
        inherited = any(normative for _, normative in introductions)
        text = plain(block.text)
        for part in _parts(text, boundary):
            normative = is_normative(part) or (inherited and not _REFERENCE.fullmatch(part))
            yield Sentence(section=block.section, text=part, normative=normative)
            if part.endswith(":"):
                introductions.append((block.depth, is_normative(part)))


def is_normative(sentence: str) -> bool:
    """Whether the sentence by itself demands, advises, permits or settles something, by the closed list of words."""
    return _NORMATIVE.search(sentence) is not None and _REFERENCE.fullmatch(sentence) is None


def plain(markdown: str) -> str:
    """The words of a piece of markdown, with its white space folded."""
    text = _LINK.sub(r"\1", _TAG.sub("", markdown))
    pieces = _CODE.split(text)  # the odd ones are code, where an underscore is an underscore
    pieces[::2] = [_without_emphasis(piece) for piece in pieces[::2]]
    return " ".join("".join(pieces).split())


def _without_emphasis(text: str) -> str:
    while (shorter := _EMPHASIS.sub(r"\2", text)) != text:
        text = shorter
    return text.replace("**", "")


def _without_fences(markdown: str) -> str:
    kept = []
    inside = False
    for line in markdown.splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
            kept.append("")
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def _blocks(markdown: str, *, every_line: bool) -> Iterator[_Block]:
    section = ""
    block: _Block | None = None
    for line in markdown.splitlines():
        heading, item, text = _HEADING.fullmatch(line), _ITEM.fullmatch(line), line.strip().lstrip("> ")
        starts_anew = heading or item or not text or text.startswith("|") or _NOT_TEXT.fullmatch(text) or every_line
        if block and starts_anew:
            yield block
            block = None
        if heading:
            section = plain(_ATTRIBUTES.sub("", heading["title"]))
        elif item:
            block = _Block(section=section, depth=len(item["indent"]) + 1, text=item["text"])
        elif text.startswith("|"):
            yield from (_Block(section=section, depth=0, text=cell) for cell in text.split("|") if cell.strip(" -"))
        elif block:
            block.text += f" {text}"
        elif text and not _NOT_TEXT.fullmatch(text):
            block = _Block(section=section, depth=0, text=text)
    if block:
        yield block


def _parts(text: str, boundary: re.Pattern[str]) -> Iterator[str]:
    start = 0
    for end in (found.end() for found in boundary.finditer(text)):
        part = text[start:end].strip(" ·")
        if not _ABBREVIATION.search(part):
            yield part
            start = end
    if rest := text[start:].strip():
        yield rest
