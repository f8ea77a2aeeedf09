"""Does the catalogue make sense, and does it account for the documents?

`inconsistencies` needs the catalogue alone. The others also need the text of a document, and report about that one:

- `uncovered`: a sentence, or a rule of a page, that the catalogue ought to account for, and does not;
- `unfounded`: an entry whose sentence or rule is not in the document, or not where the entry says;
- `quotations`: a paraphrase that repeats too many words of the document in a row.

Each finding is one line that says what to change.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from conformance.requirements.catalogue import (
    BINDING,
    FREEDOM_PREFIX,
    PROMISES,
    Aside,
    Catalogue,
    Coverage,
    Document,
    Freedom,
    Level,
    Requirement,
    Restatement,
)
from conformance.requirements.walk import FINGERPRINT_DIGITS, Sentence, anchors, sentences

LONGEST_QUOTATION: Final = 6
"""So many words of a document in a row may stand in a paraphrase: names and figures have only one wording."""

_ID: Final = re.compile(r"(?P<prefix>[A-Z]+)(?:-[A-Z0-9]+)?-\d\d")
_FINGERPRINT: Final = re.compile(rf"[0-9a-f]{{{FINGERPRINT_DIGITS}}}")
_WORD: Final = re.compile(r"\w+")

_Entry = Requirement | Freedom | Restatement | Aside


def inconsistencies(catalogue: Catalogue) -> Iterator[str]:
    """What is wrong with the catalogue in itself."""
    yield from _wrong_levels(catalogue)
    yield from _wrong_ids(catalogue)
    yield from _wrong_texts(catalogue)
    yield from _wrong_sections(catalogue)
    yield from _wrong_sharing(catalogue)
    known = {requirement.id for requirement in catalogue.requirements}
    for restatement in catalogue.restatements:
        if not restatement.of:
            yield f"{_name(restatement)} restates nothing; name the requirements in `of`"
        for identifier in restatement.of:
            if identifier not in known:
                yield f"{_name(restatement)} restates {identifier}, which is no requirement"


def uncovered(catalogue: Catalogue, document: Document, markdown: str) -> Iterator[str]:
    """The sentences of a document that nothing in the catalogue accounts for."""
    if document.page:
        cited = {entry.rule for entry in catalogue.entries}
        for anchor, chapter in anchors(markdown).items():
            rule = f"{document.name}#{anchor}"
            if chapter in document.sections and rule not in cited:
                yield f"no entry cites {rule}; add a requirement, a freedom, a restatement or an aside for it"
        return
    known = {entry.fingerprint for entry in catalogue.entries if entry.place == document.name}
    for sentence in sentences_of(document, markdown):
        if sentence.fingerprint not in known and _needs_an_entry(document, sentence):
            yield (
                f'{document.name}, "{sentence.section}": no entry has the fingerprint {sentence.fingerprint}; add a '
                f"requirement, a restatement or an aside for: {sentence.text}"
            )


def unfounded(catalogue: Catalogue, document: Document, markdown: str) -> Iterator[str]:
    """The entries that cite a sentence which is not in the document, or stands elsewhere in it."""
    if document.page:
        rules = {f"{document.name}#{anchor}" for anchor in anchors(markdown)}
        for entry in catalogue.entries:
            if entry.place == document.name and entry.rule not in rules:
                yield f"{_name(entry)} cites {entry.rule}, which has no anchor in {document.page}"
        return
    places: dict[str, list[Sentence]] = defaultdict(list)
    for sentence in sentences_of(document, markdown):
        places[sentence.fingerprint].append(sentence)
    for entry in catalogue.entries:
        if entry.place != document.name:
            continue
        found = places[entry.fingerprint]
        if not found:
            yield f"{_name(entry)} cites {entry.fingerprint}, which is no sentence of {document.name}"
        elif entry.section not in {_section(document, sentence) for sentence in found}:
            yield f'{_name(entry)} stands in the section "{found[0].section}", not in "{entry.section}"'


def quotations(catalogue: Catalogue, document: Document, markdown: str) -> Iterator[str]:
    """The paraphrases that are too close to the words of the document."""
    runs = {run for sentence in sentences_of(document, markdown) for run in _runs(sentence.text)}
    for entry in (*catalogue.requirements, *catalogue.freedoms):
        if copied := next((run for run in _runs(entry.paraphrase) if run in runs), None):
            yield f'{entry.id} repeats {document.name}: "{" ".join(copied)}"; say it in other words'


def sentences_of(document: Document, markdown: str) -> Iterable[Sentence]:
    """The sentences of a document, split as its file in the catalogue says."""
    return sentences(markdown, flattened=document.flattened)


def _needs_an_entry(document: Document, sentence: Sentence) -> bool:
    if document.sections and sentence.section not in document.sections:
        return False
    return document.coverage is Coverage.KEYWORDS and sentence.normative


def _wrong_levels(catalogue: Catalogue) -> Iterator[str]:
    for requirement in catalogue.requirements:
        binding = Level.PROMISE if requirement.source == PROMISES else Level.MUST
        if requirement.level in BINDING - {binding}:
            yield f"{requirement.id} is {requirement.level}, but {requirement.source} makes it {binding}"


def _wrong_ids(catalogue: Catalogue) -> Iterator[str]:
    prefixes = {document.name: document.prefixes for document in catalogue.documents}
    seen: set[str] = set()
    for entry in (*catalogue.requirements, *catalogue.freedoms):
        allowed = (FREEDOM_PREFIX,) if isinstance(entry, Freedom) else prefixes[entry.source]
        matched = _ID.fullmatch(entry.id)
        if not matched:
            yield f"{entry.id} is no id: write it like MC-BACKFILL-02 or LOG-07"
        elif matched["prefix"] not in allowed:
            yield f"{entry.id} begins with {matched['prefix']}, but {entry.source} has {' and '.join(allowed)}"
        if entry.id in seen:
            yield f"{entry.id} stands twice; ids are unique"
        seen.add(entry.id)


def _wrong_texts(catalogue: Catalogue) -> Iterator[str]:
    seen: dict[tuple[str, str], str] = {}
    for entry in (*catalogue.requirements, *catalogue.freedoms):
        if not entry.paraphrase.endswith(".") or len(entry.paraphrase.split()) < 4:
            yield f"{entry.id} needs a paraphrase that is a whole sentence, not {entry.paraphrase!r}"
        if first := seen.get((entry.source, entry.paraphrase)):
            yield f"{entry.id} says the same as {first}; make one of them a restatement"
        seen.setdefault((entry.source, entry.paraphrase), entry.id)
    for requirement in catalogue.requirements:
        if requirement.untestable is not None and not requirement.untestable.strip():
            yield f"{requirement.id} is untestable without a reason; say why nothing could show a violation"
    for aside in catalogue.asides:
        if not aside.about.strip():
            yield f"{_name(aside)} is put aside without a reason; say why it is not binding"
    for cited in catalogue.entries:
        if bool(cited.fingerprint) == bool(cited.rule):
            yield f"{_name(cited)} cites a sentence by its fingerprint, or a rule of a page: one of the two"
        elif cited.fingerprint and not _FINGERPRINT.fullmatch(cited.fingerprint):
            yield f"{_name(cited)} has the fingerprint {cited.fingerprint!r}, not {FINGERPRINT_DIGITS} hex digits"


def _wrong_sections(catalogue: Catalogue) -> Iterator[str]:
    documents = {document.name: document for document in catalogue.documents}
    for entry in catalogue.entries:
        source = documents[entry.source]
        if entry.place not in documents:
            yield f"{_name(entry)} cites {entry.place}, which no file of the catalogue describes"
        elif source.page and not entry.rule:
            yield f"{_name(entry)} is in the file of a page, and cites no rule of it"
        elif bool(source.flattened or entry.rule) == bool(entry.section):
            yield f'{_name(entry)} has the section "{entry.section}": only a document with headings has sections'


def _wrong_sharing(catalogue: Catalogue) -> Iterator[str]:
    citing: dict[tuple[str, str], list[_Entry]] = defaultdict(list)
    for entry in catalogue.entries:
        citing[entry.place, entry.fingerprint or entry.rule].append(entry)
    for entries in citing.values():
        names = ", ".join(_name(entry) for entry in entries)
        stated = [entry for entry in entries if isinstance(entry, (Requirement, Freedom))]
        if len(entries) > 1 and len(stated) < len(entries):
            yield f"{names} cite the same; what is restated or put aside has no other entry"
        elif len(entries) > 1 and entries[0].fingerprint and not all(entry.shared for entry in stated):
            yield f"{names} have the same fingerprint; if they come from one sentence, all of them say `shared`"
        elif len(entries) == 1 and any(entry.shared for entry in stated):
            yield f"{names} says `shared`, but its sentence has no other requirement"


def _section(document: Document, sentence: Sentence) -> str:
    return "" if document.flattened else sentence.section


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = _WORD.findall(text.lower())
    for start in range(len(words) - LONGEST_QUOTATION):
        yield tuple(words[start : start + LONGEST_QUOTATION + 1])


def _name(entry: _Entry) -> str:
    if isinstance(entry, (Requirement, Freedom)):
        return entry.id
    return f"the {type(entry).__name__.lower()} of {entry.fingerprint or entry.rule} ({entry.source})"
