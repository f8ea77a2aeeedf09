"""The requirements as typed values, loaded from the TOML files beside this module: one file for each document.

A document is public (an RFC, an article; SOURCES.md links them all) or a page of this repository. A file describes
its document, and then has an entry for each relevant sentence, or for each rule of the page:

- `[[requirement]]`: a demand, a piece of advice or a permission, for one side. If one sentence holds several, each of
them says `shared`.
- `[[freedom]]`: behaviour that is never a violation, because the documents leave it open.
- `[[restatement]]`: the sentence repeats the requirements in `of`.
- `[[aside]]`: the sentence sounds normative, but is not binding; `about` says why.

Sentences are never quoted. `fingerprint` identifies a sentence (see `auditing`); `paraphrase` gives its meaning in our
own words. A rule of a page is cited by its anchor: `DELTA.md#overlap`. Ids are stable, because reports, lists of known
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
"""The page whose rules bind the subjects that declare their profiles."""

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
    CHANGE_DATA = "change-data"
    ROW_TRACKING = "row-tracking"


class Coverage(StrEnum):
    """Which sentences of a document need an entry in the catalogue."""

    KEYWORDS = "keywords"
    """The sentences that `auditing` finds normative."""
    EVERY_RULE = "every-rule"
    """For a page: all rules with an anchor."""
    CITED = "cited"
    """Only the sentences that the catalogue cites."""


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
    """A document that the kit takes requirements from. `auditing` explains how its text is split."""

    name: str
    """The end of the document's path."""
    page: str = ""
    """For a page of this repository: its path."""
    title: str = ""
    """For a page: its title in reports."""
    prefixes: tuple[str, ...]
    """The beginnings of its requirements' ids."""
    coverage: Coverage
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
