"""The commands `learn` and `new`: build your own commit owner, with the kit as the judge or without a course."""

import re
import textwrap
from enum import StrEnum
from itertools import groupby
from json import dumps as encode_json
from json import loads as decode_json
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from conformance.command.output import PROGRAM, argument, option, say, show
from conformance.interface.results import ExitCode, UnusableError, counted
from conformance.interface.safe_text import one_line
from conformance.running.plan import seconds

if TYPE_CHECKING:
    from conformance.teaching.learn import Exercise, Failure, Judgement, Sent

WIDTH: Final = 79
SHOWN_EXCHANGES: Final = 3
"""The number of exchanges shown: the last ones of the check that failed."""
_SHORT_ID: Final = re.compile(r"\b[0-9a-f]{4}\.\.\.")
LONGEST: Final = 700
"""The maximum length of a headline, which may contain the end of an owner's standard error."""
LONGEST_STRING: Final = 48
"""The maximum length of a string in a shown exchange."""
_UUID: Final = re.compile(r"\b([0-9a-f]{4})[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


class Action(StrEnum):
    CHECK = "check"
    HINT = "hint"


def learn(
    directory: Annotated[Path, argument("FOLDER", "exercise folder", show_default=False)],
    action: Annotated[
        str | None,
        argument(
            "check|hint",
            "`check`: judge the owner; `hint`: show a hint for the current stage (default: create the exercise folder)",
            show_default=False,
        ),
    ] = None,
    language: Annotated[
        str | None, option("--language NAME", "of a new folder: python (default), javascript, rust, go or java")
    ] = None,
    stage: Annotated[
        int | None, option("--stage N", "last stage to judge; with hint: its stage", show_default=False)
    ] = None,
    deeper: Annotated[bool, option("--deeper", "show the deeper hint (only with hint)")] = False,
    timeout: Annotated[str, option("--timeout TIME", "timeout of one answer, for example `3s` or `500ms`")] = "3s",
) -> None:
    """Learn the protocol: build your own commit owner in thirteen stages, in about an hour.

    Without an action, the command creates the exercise folder: a small owner to extend, and a page for each stage.
    `check` judges your owner, names the stage that you have reached, and shows what failed first.

    Exit code 0: all stages (with --stage: all up to it) pass; 1: a stage is open; 2: usage error, or an owner that does
    not start or does not answer in the format of the interface.
    """
    from conformance.teaching import learn

    if action is not None and action not in list(Action):
        raise UnusableError(f"unknown action {action!r}; expected {', '.join(Action)}")
    _consistent(action, language=language, stage=stage, deeper=deeper)
    if action is None:
        _create(directory, language)
        return
    exercise = learn.opened(directory)
    patience = seconds(timeout, "--timeout")
    if action == Action.HINT:
        _hint(exercise, stage, patience, deeper=deeper)
        return
    raise typer.Exit(_check(exercise, stage, patience))


def _consistent(action: str | None, *, language: str | None, stage: int | None, deeper: bool) -> None:
    """Check the combination of options. Raises `UnusableError` for an option that the action does not have."""
    from conformance.teaching.learn import STAGES

    if language is not None and action is not None:
        raise UnusableError(f"--language is only for a new folder, not for {action}; exercise.json holds the language")
    if deeper and action != Action.HINT:
        raise UnusableError("--deeper works only with the action hint")
    if stage is not None and action is None:
        raise UnusableError("--stage needs an action: check or hint")
    if stage is not None and not 1 <= stage <= len(STAGES):
        raise UnusableError(f"invalid --stage {stage}; expected 1 to {len(STAGES)}")


def _create(directory: Path, language: str | None) -> None:
    from conformance.teaching import learn, scaffold

    chosen = scaffold.language_named(language or "python")
    scaffold.require_tools(chosen)
    exercise = learn.create(directory, chosen)
    owner = exercise.owner.relative_to(directory)
    show(f"{directory}: {owner} is your owner; README.md and a page for each stage are the course")
    show(f"read {directory / 'README.md'}, then: delta-commit-conformance learn {quote(str(directory))} check")


# Judging


def _check(exercise: "Exercise", stage: int | None, timeout: float) -> int:
    """Print the judgement; returns the exit code."""
    from conformance.teaching import learn

    last = stage or len(learn.STAGES)
    judgement = learn.judge(_built(exercise), last=last, timeout=timeout)
    _show(exercise, judgement, last)
    if judgement.failure is None:
        return ExitCode.CONFORMANT
    return ExitCode.USAGE if judgement.failure.broken else ExitCode.VIOLATION


def _built(exercise: "Exercise") -> tuple[str, ...]:
    """The command of the owner, which is built first. The first build can take minutes."""
    from conformance.teaching import learn, scaffold

    if build := scaffold.PROJECTS[exercise.language].build:
        say(f"building: {build}")
    return learn.command(exercise)


def _show(exercise: "Exercise", judgement: "Judgement", last: int) -> None:
    from conformance.teaching.learn import LAST_PAGE, STAGES

    failure = judgement.failure
    if failure is not None:
        _show_failure(exercise, failure)
    bar = "#" * judgement.passed + "-" * (last - judgement.passed)
    done = f"{judgement.passed} of {last} stages {bar}"
    show(f"{done}  {counted(judgement.checks, 'check')} passed in {judgement.seconds:.1f} s")
    if failure is None and last == len(STAGES):
        show(f"Your owner is complete. Read {exercise.folder / LAST_PAGE}.")
    elif failure is None:
        show(f"Next: {exercise.folder / STAGES[last].page}")


def _show_failure(exercise: "Exercise", failure: "Failure") -> None:
    stage = failure.stage
    starts = bool(failure.check) or not failure.broken
    show(f"Stage {stage.number}, {stage.title}: not yet\n" if starts else "The owner does not answer `hello`\n")
    if failure.check:
        _wrapped("tried:    ", failure.about)
    _wrapped("observed: ", failure.headline)
    if failure.expected:
        _wrapped("expected: ", failure.expected)
    if failure.rule:
        _wrapped("rule:     ", failure.rule)
    if failure.printed:
        _wrapped("printed:  ", failure.printed)
    if failure.exchange:
        _show_exchanges(failure.exchange)
    show(f"\nread {exercise.folder / (stage.page if starts else 'README.md')}")
    if starts:
        show(f"a hint: delta-commit-conformance learn {quote(str(exercise.folder))} hint")
    show()


def _wrapped(name: str, text: str, *, indent: int | None = None) -> None:
    line = one_line(text)
    if len(line) > LONGEST:
        line = f"{line[:LONGEST]} ..."
    show(
        textwrap.fill(
            line, WIDTH, initial_indent=name, subsequent_indent=" " * (len(name) if indent is None else indent)
        )
    )


def _show_exchanges(exchanges: "tuple[Sent, ...]") -> None:
    """Show the last exchanges. Repetitions that differ only in the attempt are counted."""
    shown = [(sent.client, _shortened(sent.request), _shortened(sent.answer)) for sent in exchanges]
    alike = groupby(shown, lambda sent: _SHORT_ID.sub("", " ".join(sent)))
    runs = [(run[-1], len(run)) for _, group in alike if (run := list(group))]
    hidden = len(exchanges) - sum(count for _, count in runs[-SHOWN_EXCHANGES:])
    show("\nexchange" + (f" ({hidden} earlier)" if hidden else "") + ":")
    for (client, request, answer), times in runs[-SHOWN_EXCHANGES:]:
        _wrapped(f"  {client}: ", request, indent=6)
        _wrapped("    -> ", answer + (f" ({times} times)" if times > 1 else ""), indent=7)


def _shortened(message: str) -> str:
    """The JSON of a message, without long fields that do not matter here."""
    try:
        return encode_json(_short(decode_json(message)))
    except ValueError:
        return message


def _short(value: Any, field: str = "") -> Any:
    if field == "actions":
        return f"({counted(len(value), 'action')})"
    if field == "files":
        return [_short(file["name"]) for file in value]
    if isinstance(value, dict):
        return {name: _short(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_short(item) for item in value]
    if isinstance(value, str):
        text = _UUID.sub(r"\1...", value)
        return text if len(text) <= LONGEST_STRING else f"{text[: LONGEST_STRING - 3]}..."
    return value


# Hints


def _hint(exercise: "Exercise", number: int | None, timeout: float, *, deeper: bool) -> None:
    from conformance.teaching import learn

    if number is None:
        number = learn.judge(_built(exercise), timeout=timeout).passed + 1
    if number > len(learn.STAGES):
        show(f"all stages pass; read {exercise.folder / learn.LAST_PAGE}")
        return
    stage = learn.STAGES[number - 1]
    show(f"Stage {stage.number}, {stage.title}\n")
    show(learn.hint(stage, deeper=deeper))
    if not deeper:
        show(f"\nmore: delta-commit-conformance learn {quote(str(exercise.folder))} hint --deeper")


def new(
    directory: Annotated[Path, argument("FOLDER", "new folder", show_default=False)],
    language: Annotated[
        str, option("--language NAME", "python, javascript, rust, go or java (required)", show_default=False)
    ],
) -> None:
    """Create the project of a new commit owner, in any of five languages: a complete adapter without the owner.

    The program reads calls and writes replies (a line of JSON each), and has the types of all messages. It answers
    `hello`, and shows the kit the log of a table. Every other operation is answered `unsupported`, with the section of
    the page TEST_YOUR_OWNER.md that describes it.

    Exit code 0: created; 2: usage error, a folder that is not empty, or a missing toolchain; nothing is written then.
    """
    from conformance.teaching import scaffold

    chosen = scaffold.language_named(language)
    scaffold.require_tools(chosen)
    project = scaffold.PROJECTS[chosen]
    scaffold.write(directory, scaffold.files_of(chosen))
    subject = f"stdio:{project.program}"
    show(f"{directory}: {project.owner} is your owner; README.md says how to go on. Next:")
    steps = [f"cd {quote(str(directory))}", project.build, f'{PROGRAM} smoke "{subject}"']
    for step in (*filter(None, steps), f'{PROGRAM} run "{subject}" --report report'):
        show(f"  {step}")
