"""Checks that the catalogue is consistent, and accounts for the sentences of the documents.

`inconsistencies` needs only the catalogue. The other functions also need the text of a document. They report:

- `uncovered`: a sentence, or a rule of a page, that the catalogue should account for but does not;
- `unfounded`: an entry whose sentence or rule is not in the document, or is in another section than the entry says;
- `quotations`: a paraphrase that repeats too many words of the document in a row.

Each finding is one line that says what to change.

The documents are not in this repository; the catalogue identifies their sentences by fingerprints. If
`spec_tests/conformance/test_catalogue.py` has a copy of a document, it splits the copy into sentences:

- Code in fences, rules (`---`), text struck out (`~~...~~`) and titles of admonitions are not text. A heading only
  names the section that follows it. A table cell is one sentence or more.
- A paragraph and a list item are blocks; a sentence ends at the end of its block at the latest.
- A block is divided after `.`, `!` or `?` before a capital, a digit, a quotation mark or a bracket, except after
  e.g., i.e., etc. and vs.; and at a middle dot that stands alone.
- With `flattened`, for a copy that lost its layout, every line is a block, and a full stop may touch the next capital.

A sentence is normative if it contains one of the `KEYWORDS`, or belongs to a list whose introduction (the sentence
before it, ending in a colon) contains one. A mere reference to another section is not normative. The keywords also
match sentences that are not binding; the catalogue lists these as asides, with the reason. It may also cite a sentence
without any keyword. Pages of this repository are not split, because each of their rules has an anchor.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import msgspec

from conformance.requirements.catalogue import (
    BINDING,
    FREEDOM_PREFIX,
    PROMISES,
    Aside,
    Catalogue,
    Document,
    Freedom,
    Level,
    Requirement,
    Restatement,
)

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
"""The keywords of normative sentences, by kind: regular expressions of whole words; upper and lower case are equal."""

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
        """A hash of the sentence. Spellings that differ only in markdown, white space or case have the same hash."""
        return hashlib.sha256(self.text.lower().encode()).hexdigest()[:FINGERPRINT_DIGITS]


class _Block(msgspec.Struct, kw_only=True):
    section: str
    depth: int
    """0 for a paragraph. A list item belongs to the less deep item before it."""
    text: str


def anchors(page: str) -> dict[str, str]:
    """The anchors of a page's rules, `<a id="overlap"></a>`, each with the heading of its chapter."""
    chapters: dict[str, str] = {}
    chapter = ""
    for line in page.splitlines():
        if heading := _CHAPTER.fullmatch(line):
            chapter = heading["title"]
        chapters |= dict.fromkeys(_ANCHOR.findall(line), chapter)
    return chapters


def sentences(markdown: str, *, flattened: bool = False) -> Iterator[Sentence]:
    """All sentences of a document, in order."""
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
    """Whether the sentence itself contains a keyword: it demands, advises, permits or states something."""
    return _NORMATIVE.search(sentence) is not None and _REFERENCE.fullmatch(sentence) is None


def plain(markdown: str) -> str:
    """The text of a piece of markdown, with each run of white space as one space."""
    text = _LINK.sub(r"\1", _TAG.sub("", markdown))
    pieces = _CODE.split(text)  # pieces with odd numbers are code, in which underscores are not markdown
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
    for end in (match.end() for match in boundary.finditer(text)):
        part = text[start:end].strip(" ·")
        if not _ABBREVIATION.search(part):
            yield part
            start = end
    if rest := text[start:].strip():
        yield rest


LONGEST_QUOTATION: Final = 6
"""A paraphrase may repeat at most so many words of a document in a row. Names and figures have only one wording."""

_ID: Final = re.compile(r"(?P<prefix>[A-Z]+)(?:-[A-Z0-9]+)?-\d\d")
_FINGERPRINT: Final = re.compile(rf"[0-9a-f]{{{FINGERPRINT_DIGITS}}}")
_WORD: Final = re.compile(r"\w+")

_Entry = Requirement | Freedom | Restatement | Aside


def inconsistencies(catalogue: Catalogue) -> Iterator[str]:
    """The errors in the catalogue itself."""
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
                yield f"{_name(restatement)} restates {identifier}, which is not a requirement"


def uncovered(catalogue: Catalogue, document: Document, markdown: str) -> Iterator[str]:
    """The sentences of a document that no entry of the catalogue accounts for."""
    if document.page:
        cited = {entry.rule for entry in catalogue.entries}
        for anchor, chapter in anchors(markdown).items():
            rule = f"{document.name}#{anchor}"
            if chapter in document.sections and rule not in cited:
                yield f"no entry cites {rule}; add a requirement, a freedom, a restatement or an aside for it"
        return
    known = {entry.fingerprint for entry in catalogue.entries if entry.place == document.name}
    for sentence in sentences(markdown, flattened=document.flattened):
        if sentence.fingerprint not in known and _needs_an_entry(document, sentence):
            yield (
                f'{document.name}, "{sentence.section}": no entry has the fingerprint {sentence.fingerprint}; add a '
                f"requirement, a restatement or an aside for: {sentence.text}"
            )


def unfounded(catalogue: Catalogue, document: Document, markdown: str) -> Iterator[str]:
    """The entries that cite a sentence which is not in the document, or is in another section."""
    if document.page:
        rules = {f"{document.name}#{anchor}" for anchor in anchors(markdown)}
        for entry in catalogue.entries:
            if entry.place == document.name and entry.rule not in rules:
                yield f"{_name(entry)} cites {entry.rule}, which has no anchor in {document.page}"
        return
    places: dict[str, list[Sentence]] = defaultdict(list)
    for sentence in sentences(markdown, flattened=document.flattened):
        places[sentence.fingerprint].append(sentence)
    for entry in catalogue.entries:
        if entry.place != document.name:
            continue
        quoted = places[entry.fingerprint]
        if not quoted:
            yield f"{_name(entry)} cites {entry.fingerprint}, which is not a sentence of {document.name}"
        elif entry.section not in {_section(document, sentence) for sentence in quoted}:
            yield f'{_name(entry)} is in the section "{quoted[0].section}", not in "{entry.section}"'


def quotations(catalogue: Catalogue, document: Document, markdown: str) -> Iterator[str]:
    """The paraphrases that repeat too many words of the document."""
    runs = {run for sentence in sentences(markdown, flattened=document.flattened) for run in _runs(sentence.text)}
    for entry in (*catalogue.requirements, *catalogue.freedoms):
        if copied := next((run for run in _runs(entry.paraphrase) if run in runs), None):
            yield f'{entry.id} repeats {document.name}: "{" ".join(copied)}"; say it in other words'


def _needs_an_entry(document: Document, sentence: Sentence) -> bool:
    return sentence.normative and (not document.sections or sentence.section in document.sections)


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
            yield f"invalid id {entry.id}; expected one like MC-BACKFILL-02 or LOG-07"
        elif matched["prefix"] not in allowed:
            yield f"{entry.id} begins with {matched['prefix']}, but {entry.source} has {' and '.join(allowed)}"
        if entry.id in seen:
            yield f"{entry.id} is used by two entries; expected a unique id"
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
