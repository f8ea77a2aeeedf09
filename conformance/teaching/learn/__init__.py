"""The course "build your own commit owner": its stages, the exercise folder that a learner works in, and the judge.

A stage is a page, the profiles that `hello` promises from then on, and the checks of the kit that judge it. The owner
commits staged files of managedCommit tables. Each stage builds on earlier ones: a race needs a second version, a replay
must survive a restart, and a hand-back needs publication.

The judge runs the checks of the stages in order against the learner's owner, until one fails. After one timeout it
sends the owner no further requests of the check.
"""

import re
import shlex
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.adapters import wire
from conformance.adapters.stdio import StdioSubject
from conformance.checks import all_checks
from conformance.interface.messages import Answer, Crash, Identity, Request, Restart, Unknown, name_of
from conformance.interface.results import CaseResult, UnusableError, Verdict, headline
from conformance.interface.subject import GONE, AdapterError, Closing
from conformance.programs import pinned
from conformance.programs.cases import run_case
from conformance.requirements.catalogue import load
from conformance.scenario.check import Check, Variant
from conformance.scenario.running import BrokenInCaseError
from conformance.teaching import scaffold
from conformance.teaching.scaffold import PROJECTS, Language

MARKER: Final = "exercise.json"
"""The file that makes a folder an exercise."""
LAST_PAGE: Final = "14-where-to-go-on.md"
HINT: Final = "\n## Hint\n"
DEEPER: Final = "\n## Deeper hint\n"
"""The headings of the hints in a stored page. Hints are not written to the exercise folder."""


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stage, as `stages.toml` describes it."""

    number: int
    page: str
    """File name."""
    title: str
    profiles: tuple[str, ...] = ()
    """The profiles that the owner promises from this stage on."""
    checks: tuple[str, ...]
    """Names of checks, and titles of pinned programs."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The profiles that `hello` promises at this stage."""
        return tuple(profile for stage in STAGES[: self.number] for profile in stage.profiles)


def _data(name: str) -> str:
    return (files("conformance.teaching.learn") / name).read_text(encoding="utf-8")


STAGES: Final = msgspec.toml.decode(_data("stages.toml"), type=dict[str, tuple[Stage, ...]])["stage"]


# The pages


@cache
def _parts(stage: Stage) -> tuple[str, str, str]:
    """The page, the hint, and the deeper hint."""
    page, _, hints = _data(f"pages/{stage.page}").partition(HINT)
    hint, _, deeper = hints.partition(DEEPER)
    return page, hint.strip(), deeper.strip()


def hint(stage: Stage, *, deeper: bool = False) -> str:
    return _parts(stage)[2 if deeper else 1]


def pages(language: Language, folder: str) -> dict[str, str]:
    """The text of every page of an exercise folder, by file name."""
    stored = {stage.page: _parts(stage)[0] for stage in STAGES}
    stored |= {name: _data(f"pages/{name}") for name in ("README.md", LAST_PAGE)}
    project = PROJECTS[language]
    words = {"FOLDER": folder, "OWNER": project.owner, "TYPES": project.types, "RUN": project.program}
    for word, value in words.items():
        stored = {name: text.replace(f"{{{word}}}", value) for name, text in stored.items()}
    return stored


# The exercise folder


class Exercise(msgspec.Struct, frozen=True, kw_only=True):
    """An exercise folder; `exercise.json` holds the language."""

    language: Language
    folder: Path = Path()

    @property
    def owner(self) -> Path:
        return self.folder / PROJECTS[self.language].owner


def create(folder: Path, language: Language) -> Exercise:
    """Create the folder. Raises `UnusableError` if it is not empty."""
    if (folder / MARKER).exists():
        raise UnusableError(
            f"{folder} is already an exercise, and is not overwritten; to continue: "
            f"delta-commit-conformance learn {shlex.quote(str(folder))} check"
        )
    marker = {MARKER: msgspec.json.encode({"language": language}).decode() + "\n"}
    scaffold.write(folder, scaffold.files_of(language) | pages(language, shlex.quote(str(folder))) | marker)
    return Exercise(language=language, folder=folder)


def opened(folder: Path) -> Exercise:
    """The exercise in a folder. Raises `UnusableError` if the folder is not an exercise."""
    try:
        exercise = msgspec.json.decode((folder / MARKER).read_bytes(), type=Exercise)
    except (FileNotFoundError, NotADirectoryError):
        advice = f"to create one: delta-commit-conformance learn {folder}"
        if Path(MARKER).is_file():
            advice = "the current folder is one: name it `.`"
        elif folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
            advice = "to create one in a new folder: delta-commit-conformance learn NEW-FOLDER"
        raise UnusableError(f"{folder} is not an exercise: it has no {MARKER}; {advice}") from None
    except msgspec.DecodeError as error:
        raise UnusableError(
            f'invalid {folder / MARKER}: {error}; expected {{"language": NAME}}, NAME one of {", ".join(Language)}'
        ) from None
    return msgspec.structs.replace(exercise, folder=folder)


def command(exercise: Exercise) -> tuple[str, ...]:
    """The command that starts the learner's owner, which is built first. Raises `UnusableError` if the language is not
    installed, or the owner is missing or does not compile."""
    scaffold.require_tools(exercise.language)
    if not exercise.owner.is_file():
        raise UnusableError(f"{exercise.owner} is missing; the owner of this exercise is expected in that file")
    scaffold.build(exercise.folder, exercise.language)
    return scaffold.program(exercise.folder, exercise.language)


# The judge


TIMEOUT: Final = 3.0
"""Seconds that one answer may take, including the start of the owner."""
VARIANT: Final = Variant(feature="managedCommit", commit_mode="staged")
MEMORY: Final = Path("/dev/shm")
"""The preferred parent of the owner's folder: memory, because no check of the course needs a durable disk."""
CLOCKS: Final = 9
"""The stage from which on the times in the owner's answers are judged."""
NO_ANSWER: Final = "no answer within"
"""The beginning of the reason after a timeout."""
UNSUPPORTED: Final = "PROFILE-CORE-07"
"""The requirement that a missing operation violates."""
_NUMBERED: Final = re.compile(r"^operation \d+:? ?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request as the owner got it, and its answer."""

    client: str
    request: str
    answer: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The first failure."""

    stage: Stage
    check: str = ""
    """Empty if the owner answered no request at all."""
    about: str = ""
    """The title of the check."""
    headline: str
    expected: str = ""
    rule: str = ""
    exchange: tuple[Sent, ...] = ()
    printed: str = ""
    """The end of the owner's standard error, if the headline does not contain it."""
    broken: bool = False
    """Whether the owner does not start, or writes invalid answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    passed: int
    """The number of judged stages, from the first one on."""
    checks: int
    """The number of passed stages."""
    failure: Failure | None
    """None if all judged stages passed."""
    seconds: float


def judge(command: Sequence[str], *, last: int = len(STAGES), timeout: float = TIMEOUT) -> Judgement:
    """Judge the stages 1 to `last`."""
    started = time.monotonic()
    passed = checks = 0
    failure: Failure | None = None
    memory = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="learn-", dir=memory, ignore_cleanup_errors=True) as folder:
        try:
            with _Recorded(StdioSubject(command, timeout=timeout, directory=Path(folder))) as subject:
                for stage in STAGES[:last]:
                    failure = _unpromised(stage, subject.identity)
                    for name in () if failure else stage.checks:
                        failure = _judged(stage, name, subject)
                        if failure is not None:
                            break
                        checks += 1
                    if failure is not None:
                        break
                    passed += 1
        except AdapterError as error:  # it never answered `hello`
            failure = Failure(
                stage=STAGES[0], headline=error.problem, broken=True,
                expected="the owner starts, reads a call from each line of its standard input, and writes its reply as "
                "one line to its standard output",
            )  # fmt: skip
    return Judgement(passed=passed, checks=checks, failure=failure, seconds=time.monotonic() - started)


@cache
def judges() -> dict[str, tuple[Check, str | None]]:
    """All checks by name, and all pinned programs for owners by title: the check and the program's text."""
    known: dict[str, tuple[Check, str | None]] = {check.name: (check, None) for check in all_checks()}
    for check in all_checks():
        for text in pinned.texts(check.family, "owner") if pinned.is_of_pinned(check.name) else ():
            if check.side == "owner" and (label := pinned.labelled(text)) is not None:
                known[label.title] = (check, text)
    return known


def _unpromised(stage: Stage, identity: Identity) -> Failure | None:
    missing = [profile for profile in stage.needs if profile not in identity.profiles]
    if "staged" not in identity.commit_modes.get("managedCommit", ()):
        missing.append("staged")
    if not missing:
        return None
    return Failure(
        stage=stage,
        headline=f"`hello` does not promise {' and '.join(f'`{profile}`' for profile in missing)}",
        expected="the answer to `hello` lists what the owner promises; the kit does not test what it does not promise",
    )


def _judged(stage: Stage, name: str, subject: "_Recorded") -> Failure | None:
    """The failure of a check, or of a pinned program; None if it passed."""
    check, program = judges()[name]
    subject.has_clock = stage.number < CLOCKS
    salt = f"{stage.number}_{stage.checks.index(name)}"
    subject.exchanges.clear()
    broken: AdapterError | None = None
    result: CaseResult | None = None
    try:
        result = run_case(check, VARIANT, subject, salt=salt, reproduction=program)
    except BrokenInCaseError as error:
        broken, result = error, error.result
    except AdapterError as error:
        broken = error
    if broken is None and result is not None and result.verdict is Verdict.PASSED:
        return None
    more: dict[str, Any] = {
        "stage": stage, "check": check.name, "about": check.title if program is None else name,
        "exchange": tuple(subject.exchanges),
        "printed": subject.printed(),
    }  # fmt: skip
    if broken is not None:
        expected = broken.expected or "each line that the owner writes to its standard output is the reply to a call"
        observed = re.sub(rf"[:;.] {re.escape(expected)}", "", broken.problem)
        return Failure(headline=observed, expected=expected, broken=True, **more)
    assert result is not None
    if result.verdict is not Verdict.FAILED:
        reason = subject.silent or _NUMBERED.sub("", result.reason)
        expected = "an answer with which the check can continue"
        if NO_ANSWER in subject.silent:
            expected = "an answer in time: look for an endless loop or a wait, or pass a longer --timeout"
        return Failure(headline=reason, expected=expected, **more)
    first = result.violations[0]
    if first.requirements[0] == UNSUPPORTED:
        name = next((word for word in first.message.split("`") if word), "the operation")
        return Failure(
            headline=f"`{name}` was answered `unsupported`",
            expected=f"an implementation of `{name}`, as the page describes it",
            **more,
        )
    composed = headline(first.expected, first.observed)
    text = first.observed[:1].upper() + first.observed[1:] if first.message == composed else first.message
    return Failure(headline=text or first.message, expected=first.expected, rule=_rule(first.requirements[0]), **more)


def _rule(requirement: str) -> str:
    return f"{requirement}: {load().requirement(requirement).paraphrase}"


class _Recorded(Closing):
    """The owner, with a record of all requests. After one timeout it gets no further
    requests."""

    def __init__(self, subject: StdioSubject) -> None:
        self._subject = subject
        self.identity: Identity = subject.identity
        self.exchanges: list[Sent] = []
        self.silent = ""
        """The request that it did not answer."""
        self.has_clock = False
        """Whether the times in its answers are those of its own clock, and are not judged."""
        self._crashed = False
        """Whether the kit crashed the owner, which then need not answer."""

    def ask(self, client: str, request: Request) -> Answer:
        if self.silent:
            return Unknown(reason=self.silent)
        try:
            answer = self._subject.ask(client, request)
        except AdapterError as error:
            self._record(client, request, error.received or "(invalid reply)")
            raise
        self._crashed = isinstance(request, Crash) or (self._crashed and not isinstance(request, Restart))
        text = wire.encode(answer).decode("utf-8", "replace")
        if isinstance(answer, Unknown) and answer.reason.startswith((GONE, NO_ANSWER)) and not self._crashed:
            text = "(no answer)"
            self.silent = f"`{name_of(request)}` was not answered: {answer.reason.removeprefix(f'{GONE}: ')}"
        self._record(client, request, text)
        for kind in ("commits", "winners") if self.has_clock else ():
            if entries := getattr(answer, kind, None):
                timeless = tuple(msgspec.structs.replace(entry, in_commit_timestamp=None) for entry in entries)
                answer = msgspec.structs.replace(answer, **{kind: timeless})
        return answer

    def printed(self) -> str:
        """The last lines of the standard error of an owner that still answers."""
        _, separator, lines = self._subject.last_words().partition("the end of its standard error: ")
        return lines if separator and not self.silent else ""

    def _record(self, client: str, request: Request, answer: str) -> None:
        if client != "kit":  # the kit reads the final log at the end of every check
            text = wire.encode(request).decode("utf-8", "replace")
            self.exchanges.append(Sent(client=client, request=text, answer=answer))

    def close(self) -> None:
        self._subject.close()
