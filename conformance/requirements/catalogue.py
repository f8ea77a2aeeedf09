"""The requirements as typed values, loaded from the TOML files beside this module: one file for each document.

A document is public (an RFC, an article; SOURCES.md links them all) or a page of this repository. A file describes
its document, and then has an entry for each relevant sentence, or for each rule of the page:

- `[[requirement]]`: a demand, a piece of advice or a permission, for one side. If one sentence holds several, each of
them says `shared`.
- `[[freedom]]`: behaviour that is never a violation, because the documents leave it open.
- `[[restatement]]`: the sentence repeats the requirements in `of`.
- `[[aside]]`: the sentence sounds normative, but is not binding; `about` says why.

Sentences are never quoted. `fingerprint` identifies a sentence (see `spec_tests/conformance/auditing.py`);
`paraphrase` gives its meaning in our own words. A rule of a page is cited by its anchor: `DELTA.md#overlap`. Ids are
stable, because reports, lists of known failures and checks use them.

Each requirement has its source. For a public document, it is the address of the section, from SOURCES.md. For a rule of
a page, it is the rule's text, and the public addresses that the rule, or else its section, names.
"""

import functools
import re
import tomllib
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

PROMISES: Final = "PROFILES.md"
"""The page whose rules bind the subjects that declare their profiles."""

FREEDOM_PREFIX: Final = "FREE"

FILES: Final = (
    "managed-commits.toml",
    "catalog-managed.toml",
    "in-commit-timestamps.toml",
    "delta.toml",
    "delta-commits-and-conflicts.toml",
    "delayed-commit-protocol.toml",
    "uc-delta-api.toml",
    "profiles.toml",
    "rulings.toml",
    "field_bugs.toml",
)
"""The files, in the order of the list of requirements."""


class Level(StrEnum):
    """How binding a requirement is. The level does not follow from the words of its sentence alone."""

    MUST = "MUST"
    """A violation is a failure. Plain statements of the documents have this level too."""
    PROMISE = "PROMISE"
    """A violation is a failure. No document demands it, but the subject promises it by declaring a profile."""
    SHOULD = "SHOULD"
    """A violation is a warning."""
    MAY = "MAY"
    """A permission. Only the other side can violate it, by not granting it."""


BINDING: Final = frozenset({Level.MUST, Level.PROMISE})
"""The levels whose violation is a failure."""


class Side(StrEnum):
    """The side that has to meet a requirement, or may use a permission."""

    OWNER = "owner"
    WRITER = "writer"
    READER = "reader"
    MAINTENANCE = "maintenance"


class Profile(StrEnum):
    """A set of promises. A subject that declares a profile has to meet its requirements."""

    CORE = "core"
    VERSION_0_BY_OWNER = "version-0-by-owner"
    VERSION_0_BY_FILESYSTEM = "version-0-by-filesystem"
    STAGED = "staged"
    INLINE = "inline"
    DIRECT_PUBLISH = "direct-publish"
    IDEMPOTENT_RETRY = "idempotent-retry"
    ATTEMPT_OUTCOME = "attempt-outcome"
    OWNERSHIP_TRANSFER = "ownership-transfer"
    DURABLE_RESTART = "durable-restart"
    MAINTENANCE_POLICY = "maintenance-policy"
    BACKLOG_LIMIT = "backlog-limit"
    DISCOVERY = "discovery"
    STORAGE_ACCESS = "storage-access"
    HARNESS_CONTROL = "harness-control"
    UC_DELTA_API = "uc-delta-api"
    CHANGE_DATA = "change-data"
    ROW_TRACKING = "row-tracking"
    TRANSACTION_GROUP = "transaction-group"


class Kind(StrEnum):
    """Why a sentence that sounds normative is not binding."""

    MOTIVATION = "motivation"
    """Says why the feature exists."""
    EXPLANATION = "explanation"
    """Says why a rule exists, or what follows from it."""
    DEFINITION = "definition"
    """Defines a word or a thing."""
    EXAMPLE = "example"
    INTRODUCTION = "introduction"
    """Announces rules that have entries of their own."""
    INTERNAL = "internal"
    """Describes the inside of one implementation."""
    SAMPLE_API = "sample-api"
    NARRATIVE = "narrative"
    """Guides the reader through the text."""
    KIT = "kit"
    """Binds the kit, not its subjects."""


class _Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Document(_Value, frozen=True, kw_only=True):
    """A document that the kit takes requirements from: of a page, each rule with an anchor; of any other document, the
    sentences that `auditing` finds normative."""

    name: str
    """The end of the document's path."""
    page: str = ""
    """For a page of this repository: its path."""
    title: str = ""
    """For a page: its title in reports."""
    prefixes: tuple[str, ...]
    """The beginnings of its requirements' ids."""
    sections: tuple[str, ...] = ()
    """The sections whose sentences need entries; empty: all sections."""
    flattened: bool = False
    """Whether the copy lost its layout and its headings. Then its sections are empty."""


class _Entry(_Value, frozen=True, kw_only=True):
    source: str
    """The name of the document."""
    section: str = ""
    """The heading above the sentence, without markdown."""
    fingerprint: str = ""
    """The fingerprint of the sentence."""
    rule: str = ""
    """A rule of a page, instead of a sentence: `DELTA.md#overlap`."""

    @property
    def place(self) -> str:
        """The document that has the sentence or the rule."""
        return self.rule.partition("#")[0] or self.source

    @property
    def passage(self) -> str:
        """The section of the source, or the rule."""
        return self.rule or self.section


class _Statement(_Entry, frozen=True, kw_only=True):
    id: str
    side: Side
    paraphrase: str
    shared: bool = False
    """Whether other requirements or freedoms come from the same sentence."""


class Contract(_Value, frozen=True, kw_only=True):
    """A public document that demands what is otherwise a promise. It binds subjects that name it in their
    `promises`."""

    promise: str
    document: str
    section: str
    paraphrase: str


class Requirement(_Statement, frozen=True, kw_only=True):
    """One demand, or one piece of advice or permission, for one side."""

    level: Level
    profile: Profile = Profile.CORE
    """The requirement binds only subjects that declare this profile."""
    plain: bool = False
    """Whether it is about tables without a table feature of an owner; it binds clients that know managedCommit."""
    contract: Contract | None = None
    untestable: str | None = None
    """Why no observation would show a violation."""


class Freedom(_Statement, frozen=True, kw_only=True):
    """A behaviour that is never a violation. A good subject in the kit's own tests shows it."""


class Restatement(_Entry, frozen=True, kw_only=True):
    """A sentence that repeats requirements with entries of their own."""

    of: tuple[str, ...]
    """Ids of requirements."""


class Aside(_Entry, frozen=True, kw_only=True):
    """A sentence that sounds normative, but is not binding."""

    kind: Kind
    about: str


class Catalogue(_Value, frozen=True, kw_only=True, dict=True):
    """Everything that the kit knows about its documents."""

    documents: tuple[Document, ...]
    requirements: tuple[Requirement, ...]
    freedoms: tuple[Freedom, ...]
    restatements: tuple[Restatement, ...]
    asides: tuple[Aside, ...]

    @property
    def entries(self) -> tuple[Requirement | Freedom | Restatement | Aside, ...]:
        return (*self.requirements, *self.freedoms, *self.restatements, *self.asides)

    def requirement(self, identifier: str) -> Requirement:
        """The requirement of that id. Raises `KeyError`."""
        return self._by_id[identifier]

    @functools.cached_property
    def _by_id(self) -> dict[str, Requirement]:
        return {requirement.id: requirement for requirement in self.requirements}


class DocumentFile(_Value, frozen=True, kw_only=True):
    """The content of one TOML file."""

    document: Document
    requirement: tuple[Requirement, ...] = ()
    freedom: tuple[Freedom, ...] = ()
    restatement: tuple[Restatement, ...] = ()
    aside: tuple[Aside, ...] = ()


def citation(source: str, passage: str) -> str:
    """The source of a requirement, as text for people.

    `managed-commits, "Commit Backfills"`; `DELTA.md#overlap`; for a promise of the subject itself,
    `promised by the subject's profile inline: PROFILES.md#inline`.
    """
    page, _, anchor = passage.partition("#")
    name = source.removesuffix(".md")
    if page == PROMISES:
        how = f"the subject's profile {anchor}" if anchor in set(Profile) else "every subject"
        return f"promised by {how}: {passage}"
    if anchor:
        return passage if page == source else f"{name}; {passage}"
    return f'{name}, "{passage}"' if passage else name


def origin(level: Level, source: str, passage: str) -> str:
    """The level and the source: `MUST; managed-commits, "Commit Backfills"`. The source of a promise includes its
    level."""
    cited = citation(source, passage)
    return cited if level is Level.PROMISE else f"{level}; {cited}"


@functools.cache
def load() -> Catalogue:
    """The catalogue of this version of the kit."""
    folder = resources.files(__package__)
    return catalogue_of([read_document((folder / name).read_text("utf-8")) for name in FILES])


def read_document(text: str) -> DocumentFile:
    """One TOML file. Raises `tomllib.TOMLDecodeError` or `msgspec.ValidationError`, which name the place."""
    tables: dict[str, Any] = tomllib.loads(text)
    for name, table in tables.items():
        if name != "document":
            for entry in table:
                entry["source"] = tables["document"]["name"]
    return msgspec.convert(tables, DocumentFile)


def catalogue_of(files: Sequence[DocumentFile]) -> Catalogue:
    """The catalogue of these files. `auditing` checks whether it is consistent."""
    return Catalogue(
        documents=tuple(file.document for file in files),
        requirements=tuple(entry for file in files for entry in file.requirement),
        freedoms=tuple(entry for file in files for entry in file.freedom),
        restatements=tuple(entry for file in files for entry in file.restatement),
        asides=tuple(entry for file in files for entry in file.aside),
    )


# The sources of requirements


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


class Link(msgspec.Struct, frozen=True):
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
    link = next((link for link in links if link.title.casefold() == section.casefold()), None)
    if link is not None:
        return (Link(f'{name}, "{link.title}"', link.url),)
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
