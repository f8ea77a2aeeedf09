"""The catalogue of requirements is consistent, and accounts for every normative sentence of the documents.

The public documents are not in this repository. Given a directory that contains them, at any depth, these tests compare
them with the catalogue sentence by sentence. Pages of this repository are always compared, rule by rule:

    pytest spec_tests/conformance/test_catalogue.py --documents=DIR

The `=` is required: pytest treats a separate directory as one with tests. Without the option these tests are skipped,
and only the consistency of the catalogue is checked.
"""

import json
import re
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from conformance.command.application import application
from conformance.requirements.catalogue import (
    FILES,
    Aside,
    Catalogue,
    Document,
    Freedom,
    Kind,
    Level,
    Profile,
    Requirement,
    Restatement,
    Side,
    load,
    place_of,
)
from conformance.scenario.check import Family
from spec_tests.conformance.auditing import inconsistencies, quotations, sentences, uncovered, unfounded

DOCUMENTS = {document.name: document for document in load().documents}
PUBLIC = [name for name, document in DOCUMENTS.items() if not document.page]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def text_of(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The text of one of the documents."""
    directory: Path | None = request.config.getoption("--documents")

    def text(name: str) -> str:
        if page := DOCUMENTS[name].page:
            return (ROOT / page).read_text(encoding="utf-8")
        if directory is None:
            pytest.skip("the public documents are not in this repository; name their directory with --documents=DIR")
        files = sorted(directory.rglob(name))
        assert len(files) == 1, f"{directory} has {len(files)} files {name}, one is needed"
        return files[0].read_text(encoding="utf-8")

    return text


# With the documents; the pages are always available


@pytest.mark.parametrize(
    ("findings", "name"),
    [
        *((audit, name) for audit in (uncovered, unfounded) for name in DOCUMENTS),
        *((quotations, name) for name in PUBLIC),
    ],
)
def test_the_catalogue_fits_the_documents(
    findings: Callable[..., Iterable[object]], name: str, text_of: Callable[[str], str]
) -> None:
    assert list(findings(load(), DOCUMENTS[name], text_of(name))) == []


@pytest.mark.parametrize("profile", Profile)
def test_every_profile_describes_its_promises(profile: Profile, text_of: Callable[[str], str]) -> None:
    assert f'<a id="{profile}"></a>**`{profile}`**' in text_of("PROFILES.md")


@pytest.mark.parametrize("profile", [profile for profile in Profile if profile is not Profile.CORE])
def test_a_promise_cites_the_section_of_its_profile(profile: Profile) -> None:
    """Rules after an unknown outcome belong to several profiles. A profile may have a section for owners and one for
    clients."""
    promises = [entry for entry in load().requirements if entry.profile is profile and entry.source == "PROFILES.md"]
    rules = {entry.rule.removeprefix("PROFILES.md#").removeprefix("client-") for entry in promises}
    assert rules - {"unknown-outcome"} == {profile}


# Without the documents


def test_the_catalogue_is_consistent() -> None:
    assert list(inconsistencies(load())) == []


def test_every_file_of_the_catalogue_is_loaded() -> None:
    folder = resources.files("conformance.requirements")
    assert {entry.name for entry in folder.iterdir() if entry.name.endswith(".toml")} == set(FILES)


@pytest.mark.parametrize(
    ("name", "at_least"), [("managed-commits.md", 70), ("catalog-managed.md", 71), ("in-commit-timestamps.md", 18)]
)
def test_the_number_of_binding_sentences_equals_the_count_by_hand(name: str, at_least: int) -> None:
    """RULINGS.md#counts: about 78, 79 and 20, within a tenth."""
    catalogue = load()
    binding = {entry.fingerprint or entry.id for entry in catalogue.requirements if entry.source == name}
    binding |= {entry.fingerprint for entry in catalogue.restatements if entry.source == name}
    assert len(binding) >= at_least


def test_the_untestable_requirements_are_listed_here() -> None:
    """A new untestable requirement must be added to this list."""
    untestable = {entry.id for entry in load().requirements if entry.level is Level.MUST and entry.untestable}
    assert untestable == {"MC-API-02", "CM-API-01"}


def test_every_cited_requirement_can_be_read() -> None:
    """A requirement has a public address, or the text of its rule; a promise and a ruling have both."""
    for requirement in (requirement for requirement in load().requirements if requirement.level is not Level.MAY):
        cited = place_of(requirement.source, requirement.passage)
        assert all(link.url.startswith("https://") for link in cited.links), requirement.id
        assert bool(cited.text) == bool(requirement.rule), requirement.id
        assert "<a id" not in cited.text and "](" not in cited.text and len(cited.text) < 800, requirement.id
        assert cited.links or requirement.source == "PROFILES.md", requirement.id


# Damage to a small catalogue

DOCUMENT = Document(name="rules", prefixes=("R",))
FLAT = Document(name="flat", prefixes=("F",), flattened=True)

TEXT = """# First

An owner must be patient.

Writers should write, and
may **rest**. This is an [example](#example).

# Second

Owners must be patient, as was said. A writer cannot fly.
"""
PATIENT, WRITING, AGAIN, FLYING = (sentence.fingerprint for sentence in sentences(TEXT) if sentence.normative)

ONE = Requirement(
    id="R-PATIENCE-01",
    source="rules",
    section="First",
    level=Level.MUST,
    side=Side.OWNER,
    paraphrase="The owner has patience with everyone.",
    fingerprint=PATIENT,
)
TWO = Requirement(
    id="R-02",
    source="rules",
    section="First",
    level=Level.SHOULD,
    side=Side.WRITER,
    paraphrase="A writer continues to write.",
    fingerprint=WRITING,
    shared=True,
)
FREE = Freedom(
    id="FREE-01",
    source="rules",
    section="First",
    side=Side.WRITER,
    paraphrase="A writer takes a break whenever it likes.",
    fingerprint=WRITING,
    shared=True,
)
SAID_AGAIN = Restatement(source="rules", section="Second", fingerprint=AGAIN, of=("R-PATIENCE-01",))
ASIDE = Aside(source="rules", section="Second", fingerprint=FLYING, kind=Kind.EXAMPLE, about="It is an example.")


ENTRIES = {"requirements": (ONE, TWO), "freedoms": (FREE,), "restatements": (SAID_AGAIN,), "asides": (ASIDE,)}


def small_catalogue(**changes: tuple[Any, ...]) -> Catalogue:
    return Catalogue(documents=(DOCUMENT, FLAT), **{**ENTRIES, **changes})  # type: ignore[arg-type]


def damaged(entry: object, **fields: object) -> Catalogue:
    """The small catalogue with other fields of one entry."""
    other = msgspec.structs.replace(entry, **fields)  # type: ignore[type-var]
    return small_catalogue(
        **{kind: tuple(other if old is entry else old for old in entries) for kind, entries in ENTRIES.items()}
    )


def test_a_consistent_small_catalogue_has_no_findings() -> None:
    assert list(inconsistencies(small_catalogue())) == []
    for check in (uncovered, unfounded, quotations):
        assert list(check(small_catalogue(), DOCUMENT, TEXT)) == []


DAMAGE = {
    "two requirements with one id": (damaged(TWO, id=ONE.id), "R-PATIENCE-01 is used by two entries"),
    "two requirements with one paraphrase": (damaged(TWO, paraphrase=ONE.paraphrase), "R-02 says the same as R-PATI"),
    "an untestable requirement without a reason": (damaged(ONE, untestable=" "), "R-PATIENCE-01 is untestable without"),
    "a sentence that is both binding and put aside": (damaged(ASIDE, fingerprint=PATIENT), "R-PATIENCE-01, the aside"),
    "a restatement of an unknown requirement": (damaged(SAID_AGAIN, of=("R-99",)), "the restatement of"),
    "a rule of an unknown page": (
        damaged(ONE, rule="lost#patience", section="", fingerprint=""), "R-PATIENCE-01 cites lost",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_each_flaw_is_one_finding(damage: str) -> None:
    catalogue, beginning = DAMAGE[damage]
    findings = list(inconsistencies(catalogue))
    assert [finding for finding in findings if finding.startswith(beginning)] == findings[:1] == findings


def test_a_new_normative_sentence_is_uncovered_until_it_has_an_entry() -> None:
    longer = TEXT + "\nReaders must read.\n"
    (finding,) = uncovered(small_catalogue(), DOCUMENT, longer)
    fingerprint = next(sentence.fingerprint for sentence in sentences(longer) if sentence.text == "Readers must read.")
    assert fingerprint in finding
    covered = small_catalogue(asides=(ASIDE, msgspec.structs.replace(ASIDE, fingerprint=fingerprint)))
    assert list(uncovered(covered, DOCUMENT, longer)) == []


def test_a_changed_sentence_is_uncovered_and_its_entry_has_no_source() -> None:
    other = TEXT.replace("be patient.", "be very patient.")
    (lost,) = unfounded(small_catalogue(), DOCUMENT, other)
    (finding,) = uncovered(small_catalogue(), DOCUMENT, other)
    assert lost.startswith("R-PATIENCE-01 cites")
    assert "very patient" in finding


def test_a_moved_sentence_is_not_found_in_its_old_section() -> None:
    (finding,) = unfounded(
        small_catalogue(), DOCUMENT, TEXT.replace("# First", "# Zeroth", 1).replace("Writers", "# First\n\nWriters")
    )
    assert finding.startswith("R-PATIENCE-01 is in the section")


PAGE = Document(name="page", page="kit/page", prefixes=("D",), sections=("Patience",))


def cites_the_page(anchor: str) -> Catalogue:
    return damaged(ONE, rule=f"page#{anchor}", section="", fingerprint="")


def test_a_rule_of_a_page_is_cited_by_its_anchor() -> None:
    text = '# Page\n\n## Patience\n\n- <a id="owner"></a>Owners.\n\n## Other\n\n- <a id="other"></a>Others.\n'
    assert list(unfounded(cites_the_page("owner"), PAGE, text)) == []
    assert list(uncovered(cites_the_page("owner"), PAGE, text)) == []
    (lost,) = unfounded(cites_the_page("writer"), PAGE, text)
    (open_rule,) = uncovered(cites_the_page("writer"), PAGE, text)
    assert lost.startswith("R-PATIENCE-01 cites page#writer, which has no anchor")
    assert open_rule.startswith("no entry cites page#owner")


def test_a_paraphrase_repeats_no_phrase_of_its_document() -> None:
    text = "# First\n\nThe owner of every table has patience with all writers, always.\n"
    assert list(quotations(small_catalogue(), DOCUMENT, text)) == []
    copied = damaged(ONE, paraphrase="Every table has patience with all writers, it seems.")
    (finding,) = quotations(copied, DOCUMENT, text)
    assert finding.startswith("R-PATIENCE-01 repeats")


# The command


def listed(*words: str) -> str:
    ran = CliRunner().invoke(application, ["requirements", *words])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_the_listing_has_what_the_filters_select() -> None:
    chosen = [entry for entry in load().requirements if entry.profile is Profile.INLINE and entry.level is Level.MUST]
    chosen = [entry for entry in chosen if entry.side is Side.OWNER]
    rows = listed("--side", "owner", "--level", "MUST", "--profile", "inline").splitlines()[1:]
    assert [row.split()[0] for row in rows] == [entry.id for entry in chosen] != []
    (row,) = listed("MC-BACKFILL-03").splitlines()[1:]
    assert '(managed-commits, "Commit Backfills": https://github.com/delta-io/' in row
    assert len(listed("MC-BACKFILL-*").splitlines()) > 3


def test_the_listing_is_json_for_scripts() -> None:
    assert msgspec.convert(json.loads(listed("--json")), list[Requirement]) == list(load().requirements)
    freedoms = {entry["id"] for entry in json.loads(listed("--freedoms", "--json", "--side", "maintenance"))}
    assert freedoms == {freedom.id for freedom in load().freedoms if freedom.side is Side.MAINTENANCE} != set()


def test_the_page_names_every_family() -> None:
    page = (Path(__file__).parents[2] / "conformance" / "README.md").read_text("utf-8")
    families = page.partition("The families")[2].partition("\n- ")[0]
    assert set(re.findall(r"`([a-z0-9-]+)`", families)) == {family.value for family in Family}
