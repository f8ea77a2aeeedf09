"""Finds the source of a requirement: its public addresses, and the text of a rule in this project's own pages.

A requirement from a public document has the address of its section, from SOURCES.md. A rule of a page has its text, and
the public addresses that the rule, or the section around it, names as its sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from conformance.requirements.catalogue import load

ROOT: Final = Path(__file__).parents[2]
"""The root of the repository or of the installed packages, which have the pages too."""
SOURCES: Final = "conformance/requirements/SOURCES.md"
FIELD_BUGS: Final = "conformance/requirements/FIELD_BUGS.md"

_ANCHOR: Final = re.compile(r'<a id="([a-z0-9-]+)"></a>')
_DOCUMENT: Final = re.compile(r"^### (.+)$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\[\]]+)\](?:\((\S+?)\)|\[([^\[\]]*)\])")
_DEFINITION: Final = re.compile(r"^\[([^\]]+)\]: (\S+)$", re.MULTILINE)
_CITED: Final = re.compile(r'([a-z]+(?:-[a-z]+)+), "([^"]+)"')
_BUG: Final = re.compile(r"\bFB\d\d\b")
_NEXT: Final = re.compile(r"^(?:#{1,6} |- |\s*<a id=|\[[^\]]+\]: )|\n\n(?=\S)", re.MULTILINE)
_ROW: Final = re.compile(r"^\s*\|(.+)\|\s*$", re.MULTILINE)


class Link(NamedTuple):
    """A public address."""

    title: str
    url: str


class Place(NamedTuple):
    """The text of a requirement's source, and its addresses."""

    text: str
    """The text of a page's rule, without markdown except code; empty for a public document, which only has a link."""
    links: tuple[Link, ...]


def place_of(source: str, passage: str) -> Place:
    """The place of a requirement from that document, in that section or rule (`DELTA.md#overlap`)."""
    page, _, anchor = passage.partition("#")
    if anchor:
        text, links = _rule(page, anchor)
        return Place(text, _distinct((*links, *(_section(source, "") if page != source else ()))))
    return Place("", _section(source, passage))


@cache
def _section(source: str, section: str) -> tuple[Link, ...]:
    """The address of a section of a public document, or of the whole document."""
    name = source.removesuffix(".md")
    parts = _DOCUMENT.split(_text(SOURCES))
    part = dict(zip(parts[1::2], parts[2::2], strict=True)).get(name, "")
    links = [Link(match[1], match[2]) for match in _LINK.finditer(part) if (match[2] or "").startswith("http")]
    found = next((link for link in links if link.title.casefold() == section.casefold()), None)
    if found is not None:
        return (Link(f'{name}, "{found.title}"', found.url),)
    return (Link(name, links[0].url),) if links else ()


@cache
def _rule(page: str, anchor: str) -> tuple[str, tuple[Link, ...]]:
    """The text and the public sources of a rule."""
    path = next(document.page for document in load().documents if document.name == page)
    text = _text(path)
    definitions = dict(_DEFINITION.findall(text))
    begin = text.index(f'<a id="{anchor}"></a>')
    rest = text[begin:]
    rule = rest[: end.start()] if (end := _NEXT.search(rest, 1)) else rest
    linked = _links(rule, definitions)
    above = text[:begin]
    while not linked and (heading := above.rfind("\n#")) >= 0:  # the rule's section, then the next outer one
        linked = _links(text[heading : _first_anchor(text, heading)], definitions)
        above = above[:heading]
    return _plain(rule), linked or (_seen_in(rule) if path == FIELD_BUGS else ())


def _first_anchor(text: str, begin: int) -> int:
    match = _ANCHOR.search(text, begin)
    return len(text) if match is None else match.start()


def _links(markdown: str, definitions: dict[str, str]) -> tuple[Link, ...]:
    """The sections of public documents that the text cites, then the public addresses in it."""
    cited = _CITED.findall(" ".join(markdown.split()))
    links = [link for document, section in cited for link in _section(document, section)]
    for title, target, name in _LINK.findall(markdown):
        url = target or definitions.get(name or title, "")
        links += [Link(title, url)] if url.startswith("https://") else []
    return _distinct(links)


def _seen_in(rule: str) -> tuple[Link, ...]:
    """The public reports of the bugs that a rule names."""
    bugs = _text(FIELD_BUGS)
    return _distinct(
        link
        for bug in _BUG.findall(rule)
        for link in _links(bugs.partition(f'<a id="{bug.lower()}"></a>')[2].partition("- Requirements:")[0], {})
    )


def _distinct(links: Iterable[Link]) -> tuple[Link, ...]:
    return tuple({link.url: link for link in links}.values())


def _plain(rule: str) -> str:
    text = _LINK.sub(lambda match: match[1], _ANCHOR.sub("", rule)).replace("**", "")
    rows = _ROW.sub(lambda row: "; " + ": ".join(cell.strip() for cell in row[1].split("|")), text)
    return re.sub(r": (?:; )+", ": ", " ".join(re.sub(r"; -+(?:: -+)*", "", rows).split())).replace(" ;", ";")


@cache
def _text(path: str) -> str:
    return (ROOT / path).read_text("utf-8")
