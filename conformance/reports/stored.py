"""What a run leaves behind, for scripts and for issues.

The whole run is one JSON document. One finding is a folder, to attach to an issue:

history.jsonl   the history, for `delta-commit-conformance check`
finding.json    for `delta-commit-conformance replay`
README.md       the explanation
"""

import hashlib
import json
import re
import secrets
import shlex
from pathlib import Path, PurePath
from typing import Any, Final

import msgspec

from conformance.interface import safe_text
from conformance.interface.results import (
    RESULT_SCHEMA_VERSION,
    CaseResult,
    Cause,
    Layer,
    RunResult,
    SubjectFacts,
    Violation,
    size_in_words,
    size_options,
)
from conformance.interface.safe_text import block, code, escaped
from conformance.reports.recorded import contradiction
from conformance.reports.summary import beyond_message, direct_first

SCHEMA_FILE: Final = Path(__file__).with_name("result.schema.json")


class ReportError(Exception):
    """A report cannot be written or read. `problem` names the file and the error, and says what to do."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class FolderInUseError(ReportError):
    """Another run writes its reports into the same folder."""


def to_json(result: RunResult) -> str:
    """The JSON that `result.schema.json` describes, indented, with a final line feed. Keys of dictionaries are
    sorted."""
    from conformance.reports.causes import causes  # slow to import, because it reads histories

    summaries = tuple(
        Cause(
            headline=cause.headline,
            hints=cause.hints,
            requirements=tuple(requirement.requirement for requirement in cause.requirements),
            cases=tuple(case.case for case in cause.cases),
            warning=cause.warning,
        )
        for cause in causes(result)
    )
    return encoded(msgspec.structs.replace(result, causes=summaries))


def encoded(value: msgspec.Struct) -> str:
    """Any value of the kit as JSON. Characters that UTF-8 cannot encode are escaped; only names of the host have
    them."""
    return msgspec.json.format(safe_text.to_json(value, order="deterministic"), indent=1).decode("utf-8") + "\n"


def from_json(text: str | bytes) -> RunResult:
    """Read a run back, without its causes, which follow from the rest. Raises `ReportError` for any other text, and for
    a later schema."""
    require_version(text, RESULT_SCHEMA_VERSION, "the result")
    try:
        result = msgspec.json.decode(text, type=RunResult)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReportError(f"not the result of a run: {error}") from None
    return msgspec.structs.replace(result, causes=())


def require_version(text: str | bytes, version: int, what: str) -> None:
    """Raises `ReportError` for the JSON of another schema, whose other fields may differ. The caller decodes the text,
    and rejects one that is not JSON."""
    try:
        found = msgspec.json.decode(text, type=_Versioned).schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if (found or 1) != version:  # the first reports did not write it
        advice = "read it with the version that wrote it, or run the kit again"
        raise ReportError(f"{what} has schema {found}; this version of the kit reads {version}; {advice}")


class _Versioned(msgspec.Struct):
    schema: int | None = None


FINDING_SCHEMA_VERSION: Final = 1
FINDING: Final = "finding.json"
HISTORY: Final = "history.jsonl"
README: Final = "README.md"
FILES: Final = (HISTORY, README, FINDING)
"""All files that a bundle can hold, in the order in which they are written."""

_LONGEST_NAME: Final = 80
_OTHER: Final = re.compile(r"[^A-Za-z0-9]+")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `finding.json`. It is enough to run the case again, on this subject or another."""

    schema: int = FINDING_SCHEMA_VERSION
    kit_version: str
    interface_version: int
    subject: SubjectFacts
    profile: str
    seed: int
    """The seed of the run. The seed of the case follows from it and from the case's name."""
    strict: bool = False
    case: str
    check: str
    title: str
    layer: Layer
    feature: str
    commit_mode: str
    requirements: tuple[str, ...]
    """All requirements that the case is evidence for."""
    violations: tuple[Violation, ...]
    """The violations that the case showed."""
    operations: int
    reproduction: str | None = None
    """For a generated case: the failing sequence or schedule, as JSON."""
    history: str | None = None
    """The name of the history's file, in the same folder."""


FORMATS: Final = ("result", "finding", "known-failures")


def schema(name: str = "result") -> dict[str, Any]:
    """JSON Schema 2020-12 of one of `FORMATS`, made from its types."""
    from conformance.running.verdicts import KNOWN_SCHEMA_VERSION, KnownFailures  # slow to import

    kind, title, version = {
        "result": (RunResult, "A run of the conformance kit", RESULT_SCHEMA_VERSION),
        "finding": (Finding, f"A {FINDING} of the conformance kit", FINDING_SCHEMA_VERSION),
        "known-failures": (KnownFailures, "A list of known failures, after TOML was read", KNOWN_SCHEMA_VERSION),
    }[name]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{title}, schema {version}",
        **msgspec.json.schema(kind),
    }


def schema_text(name: str = "result") -> str:
    """The text that `delta-commit-conformance schema NAME` prints; `result` is also the released schema file."""
    return json.dumps(schema(name), indent=1) + "\n"


def finding_of_case(result: RunResult, case: CaseResult) -> Finding:
    """The finding of a case."""
    values = {
        name: getattr(of, name) for of in (result, case) for name in Finding.__struct_fields__ if hasattr(of, name)
    }
    values |= {"schema": FINDING_SCHEMA_VERSION, "history": None if case.history is None else HISTORY}
    return Finding(**values)


def read_finding(file: Path) -> Finding:
    """The finding in a file. Raises `ReportError`, with one message for a history, and another for any other file."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ReportError(
            f"{file} cannot be read: {error.strerror or error}; expected the {FINDING} of a report"
        ) from None
    require_version(content, FINDING_SCHEMA_VERSION, str(file))
    try:
        finding = msgspec.json.decode(content, type=Finding)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if content.lstrip()[:200].replace(b" ", b"").startswith(b'{"event":"header"'):
            raise ReportError(
                f"{file} is a history, which cannot be replayed; judge it with `{COMMAND} check {file}`, or name the "
                f"{FINDING} beside it"
            ) from None
        raise ReportError(f"{file} is not a finding ({error}); expected the {FINDING} of a report") from None
    return finding


def bundle_name(case: CaseResult) -> str:
    """The name of the case's folder: a valid file name on every system, and different from that of any other case, or
    of another program of the case."""
    readable = _OTHER.sub("-", case.case).strip("-")[:_LONGEST_NAME].rstrip("-")
    digest = hashlib.sha256(case.case.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    other = next((f"-{violation.program}" for violation in case.violations if violation.program), "")
    return f"{readable}-{digest}{other}"


def bundle_files(result: RunResult, case: CaseResult) -> dict[str, str]:
    """The content of each file in a case's bundle."""
    files = {FINDING: encoded(finding_of_case(result, case)), README: _readme(result, case)}
    if case.history is not None:
        files[HISTORY] = case.history
    return files


def write_bundle(result: RunResult, case: CaseResult, folder: Path) -> list[Path]:
    """Write the case's bundle into `folder`, each file atomically. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = bundle_files(result, case)
    for name in FILES:
        if name in files:
            write_file(folder / name, files[name])
        else:
            (folder / name).unlink(missing_ok=True)  # left by an earlier run
    return [folder / name for name in FILES if name in files]


def _readme(result: RunResult, case: CaseResult) -> str:
    subject = result.subject
    parts = [
        f"# Check: {escaped(case.title)}",
        code(case.case),
        f"Subject: {escaped(subject.name)} {escaped(subject.version)}, named {code(subject.named)}, side "
        f"{escaped(subject.side)}. Kit {result.kit_version}, interface {result.interface_version}, "
        f"{escaped(size_in_words(result.profile))}, seed {result.seed}.",
        *(_violation(violation, number) for number, violation in enumerate(direct_first(case.violations), 1)),
        "## Replay",
        "From the folder in which `run` was started, with `FOLDER` for the path to this one:",
        block(replay_command(PurePath("FOLDER", FINDING))),
        "Without it, from the names alone:",
        block(run_command(result, case)),
    ]
    if case.history is not None:
        parts.append(
            f"`{HISTORY}` records requests, answers and faults. To judge it without the subject, from this folder; a "
            "broken promise of a profile may not be visible in it:"
        )
        parts.append(block(f"{COMMAND} check {HISTORY}"))
    return "\n\n".join(parts) + "\n"


def _violation(violation: Violation, number: int) -> str:
    names = ", ".join(map(escaped, violation.requirements)) or "No requirement is named"
    parts = [f"## {number}. {names}", escaped(violation.message)]
    parts += [f"{name}: {escaped(text)}" for name, text in beyond_message(violation).items()]
    if violation.operations:
        parts.append(_operations(violation))
    return "\n\n".join(parts)


def _operations(violation: Violation) -> str:
    """The numbers of the operations that contradict each other, and of related ones."""
    *contradictory, last = sorted(contradiction(violation))
    related = violation.operations[len(contradictory) + 1 :]
    word = "operations" if contradictory else "operation"
    numbers = f"{', '.join(map(str, contradictory))} and {last}" if contradictory else last
    more = f" Related: {', '.join(map(str, sorted(related)))}." if related else ""
    return f"Contradictory {word} in {HISTORY}: {numbers}.{more}"


# The shell command that reproduces a failure

COMMAND: Final = "delta-commit-conformance"

_SPECIAL_IN_DOUBLE: Final = re.compile(r"[\"$`\\!]")


def replay_command(finding: PurePath) -> str:
    """The command that replays a bundle's `finding.json`. It has the path as given, so a relative path is valid in the
    folder in which the run was started."""
    return joined(COMMAND, "replay", *_operand(str(finding)))


def run_command(result: RunResult, case: CaseResult | None = None) -> str:
    """The command that repeats the run, or one case of it, without a bundle. The seed of a case does not depend on the
    other cases of the run."""
    options = [*size_options(result.profile), "--seed", str(result.seed)]
    options += ["--check", case.case] if case is not None else _words(result.selection)
    if result.strict:
        options.append("--strict")
    return joined(COMMAND, "run", *options, *_operand(result.subject.named))


def _words(selection: str) -> list[str]:
    """The options that selected the cases of the run. A result from elsewhere may have any text there."""
    try:
        return shlex.split(selection)
    except ValueError:
        return [selection]


def joined(*words: str) -> str:
    """A command line for a POSIX shell, with only the necessary quotes."""
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    """A quoted word. Commands in subjects' names often hold single quotes, which stay readable within double quotes."""
    if "'" in word and not _SPECIAL_IN_DOUBLE.search(word):
        return f'"{word}"'
    return shlex.quote(word)


def _operand(text: str) -> list[str]:
    """The arguments for an operand that may look like an option."""
    return ["--", text] if text.startswith("-") else [text]


def finding_of(folder: Path, name: str) -> Path:
    """The file for `replay` in the bundle of that name, in a folder of reports."""
    return folder / "findings" / name / "finding.json"


# Atomic writes: a reader finds the old file or the new one

UNFINISHED: Final = ".unfinished-report-"
"""The prefix of an incomplete file's name. Files that a killed run left may be deleted."""


def write_file(path: Path, text: str) -> None:
    """Write a file atomically. Lone surrogates are escaped; only names of the host have them. Raises `OSError`."""
    unfinished = path.with_name(f"{UNFINISHED}{secrets.token_hex(6)}")
    try:
        with unfinished.open("xb") as stream:
            stream.write(text.encode("utf-8", "backslashreplace"))
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
