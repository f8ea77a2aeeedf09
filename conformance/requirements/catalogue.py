"""The requirements as typed values, loaded from the TOML files beside this module: one file for each document.

A document is public (an RFC, an article; SOURCES.md links them all) or a page of this repository. A file describes
its document and then says of each of its sentences, or of each rule of the page, that matters what became of it:

- `[[requirement]]`: a demand, a piece of advice or a permission, for one side. One
  sentence may hold several; all of them say so with `shared`.
- `[[freedom]]`: something that must never be held against a subject, because the documents leave it open.
- `[[restatement]]`: the sentence says again what the requirements in `of` say.
- `[[aside]]`: the sentence sounds normative and is not binding; `about` says why.

Sentences are never quoted. `fingerprint` identifies them (see `walk`), `paraphrase` says in our own words what
they mean. A rule of a page is cited by its anchor: `DELTA.md#overlap`. Ids are stable: reports, lists of known
failures and checks use them.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from enum import StrEnum
from importlib import resources
from typing import Any, Final

import msgspec

PROMISES: Final = "PROFILES.md"
"""The page whose rules bind a subject because it declared a profile."""

FREEDOM_PREFIX: Final = "FREE"

FILES: Final = (
    "managed-commits.toml",
    "catalog-managed.toml",
    "in-commit-timestamps.toml",
    "delta.toml",
    "delta-commits-and-conflicts.toml",
    "delayed-commit-protocol.toml",
    "profiles.toml",
    "rulings.toml",
    "field_bugs.toml",
)
"""In the order in which requirements are listed."""


class Level(StrEnum):
    """How binding a requirement is, whatever words its sentence uses."""

    MUST = "MUST"
    """A violation is a failure. Also what the documents simply state to be so."""
    PROMISE = "PROMISE"
    """A violation is a failure: no document demands it, but the subject promised it by declaring a profile."""
    SHOULD = "SHOULD"
    """A violation is a warning."""
    MAY = "MAY"
    """A freedom: there is nothing to violate, except by those who do not grant it."""


BINDING: Final = frozenset({Level.MUST, Level.PROMISE})
"""A violation of one of these is a failure."""


class Side(StrEnum):
    """Who has to meet a requirement, or may use a permission."""

    OWNER = "owner"
    WRITER = "writer"
    READER = "reader"
    MAINTENANCE = "maintenance"


class Profile(StrEnum):
    """What a subject declares, and is then held to."""

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
    CHANGE_DATA = "change-data"
    ROW_TRACKING = "row-tracking"


class Coverage(StrEnum):
    """Which sentences of a document the catalogue has to account for."""

    KEYWORDS = "keywords"
    """Those that `auditing` finds normative."""
    EVERY_RULE = "every-rule"
    """Of a page: all that have an anchor."""
    CITED = "cited"
    """None but those that it cites."""


class Kind(StrEnum):
    """Why a sentence that sounds normative is not binding."""

    MOTIVATION = "motivation"
    """Why there is such a feature."""
    EXPLANATION = "explanation"
    """Why there is such a rule, or what follows from one."""
    DEFINITION = "definition"
    """What a word means, or what a thing is."""
    EXAMPLE = "example"
    INTRODUCTION = "introduction"
    """Announces rules that are accounted for one by one."""
    INTERNAL = "internal"
    """How the inside of one implementation is arranged."""
    SAMPLE_API = "sample-api"
    NARRATIVE = "narrative"
    """Leads the reader through the text."""
    KIT = "kit"
    """Binds the kit, not its subjects."""


class _Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Document(_Value, frozen=True, kw_only=True):
    """A document that the kit takes requirements from. How its text is split is explained in `auditing`."""

    name: str
    """How its path ends."""
    page: str = ""
    """Where it is in this repository, if it is a page of it."""
    title: str = ""
    """Of a page: what reports call it."""
    prefixes: tuple[str, ...]
    """What the ids of its requirements begin with."""
    coverage: Coverage
    sections: tuple[str, ...] = ()
    """The only sections that have to be accounted for; without any, all of them."""
    flattened: bool = False
    """The copy lost its layout, its headings included: its sections are empty."""


class _Entry(_Value, frozen=True, kw_only=True):
    source: str
    """The name of the document."""
    section: str = ""
    """The heading above the sentence, without markdown."""
    fingerprint: str = ""
    """Of the sentence."""
    rule: str = ""
    """Instead of a sentence, a rule of a page: `DELTA.md#overlap`."""

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
    """A public document that demands what is a promise otherwise, of the subjects that say so in their `promises`."""

    promise: str
    document: str
    section: str
    paraphrase: str


class Requirement(_Statement, frozen=True, kw_only=True):
    """One thing that one side is held to."""

    level: Level
    profile: Profile = Profile.CORE
    """A subject that does not declare it is not held to this."""
    contract: Contract | None = None
    untestable: str | None = None
    """Why nothing that can be observed would show a violation."""


class Freedom(_Statement, frozen=True, kw_only=True):
    """One thing that is never a violation, and that a good subject of the kit's own tests does."""


class Restatement(_Entry, frozen=True, kw_only=True):
    """A sentence that says again what is catalogued elsewhere."""

    of: tuple[str, ...]
    """Ids of requirements."""


class Aside(_Entry, frozen=True, kw_only=True):
    """A sentence that sounds normative and is not binding."""

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
    """What one TOML file says."""

    document: Document
    requirement: tuple[Requirement, ...] = ()
    freedom: tuple[Freedom, ...] = ()
    restatement: tuple[Restatement, ...] = ()
    aside: tuple[Aside, ...] = ()


def citation(source: str, passage: str) -> str:
    """Where a requirement comes from, for people.

    `managed-commits, "Commit Backfills"`; `DELTA.md#overlap`; for what the subject itself promised,
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
    """How binding it is, and by what: `MUST; managed-commits, "Commit Backfills"`; a promise says so itself."""
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
    """The catalogue of these files. Whether it makes sense is a question for `auditing`."""
    return Catalogue(
        documents=tuple(file.document for file in files),
        requirements=tuple(entry for file in files for entry in file.requirement),
        freedoms=tuple(entry for file in files for entry in file.freedom),
        restatements=tuple(entry for file in files for entry in file.restatement),
        asides=tuple(entry for file in files for entry in file.aside),
    )
