"""The typer application: its commands, and the conversion of every error into a message and an exit code."""

import contextlib
import os
import sys
import traceback
from importlib import metadata
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from conformance.command import learning, listing, matrix, playing, reporting, running, serving, simulating
from conformance.command.output import examples, option, say
from conformance.interface.results import ExitCode, UnusableError
from conformance.interface.subject import how_to_install

COMMAND: Final = "delta-commit-conformance"
TRACEBACK_VARIABLE: Final = "CONFORMANCE_TRACEBACK"

_BROKEN_PIPE: Final = 141
"""The exit code that a shell reports after SIGPIPE: `... list checks | head` is not an error."""

_OPTIONAL: Final = ("greenlet", "jinja2")
"""Libraries of the extra `conformance`."""

EXIT_CODES: Final = (
    "Exit codes: 0 conformant · 1 a requirement is violated, or a known failure is stale · 2 usage error, a subject "
    "that does not implement the interface, or an empty selection · 3 incomplete: the budget expired, the run was "
    "interrupted, or a declared profile has no verdict"
)


class _Border(TyperGroup):
    """Converts every error into a message and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        standalone = kwargs.pop("standalone_mode", True)
        kwargs["standalone_mode"] = False
        with contextlib.suppress(AttributeError, ValueError):  # a subject's name may contain control characters
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        code = self._run(*args, **kwargs)
        if standalone:
            sys.exit(code)
        return code

    def _run(self, *args: Any, **kwargs: Any) -> int:
        try:
            try:
                code = super().main(*args, **kwargs)
                sys.stdout.flush()
                return int(code) if isinstance(code, int) else ExitCode.CONFORMANT
            except typer.Abort:
                return ExitCode.INCOMPLETE
            except BrokenPipeError:
                return _leave_broken_pipe()
            except Exception as error:  # noqa: BLE001 - this is the border
                return report(error)
        except BrokenPipeError:
            return _leave_broken_pipe()

    def invoke(self, ctx: Any) -> Any:
        """Handles two exceptions before typer, which would use other exit codes."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise typer.Exit(_leave_broken_pipe()) from None
        except KeyboardInterrupt:
            say("interrupted; there is no verdict")
            raise typer.Exit(ExitCode.INCOMPLETE) from None

    def get_params(self, ctx: Any) -> Any:
        return _without_type(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        for shown in () if command is None else (command, *getattr(command, "commands", {}).values()):
            _without_type(shown.get_params(ctx))
        return command


def _without_type(parameters: Any) -> Any:
    """The parameters. In a help, typer would show `<bool>` after a flag, as if it took a value."""
    for flag in parameters:
        if getattr(flag, "is_flag", False):
            flag.metavar = ""
    return parameters


def report(error: Exception) -> int:
    """Print the error message; returns the exit code."""
    if os.environ.get(TRACEBACK_VARIABLE):
        traceback.print_exc()
    usage = getattr(error, "format_message", None)
    if usage is not None:  # a usage error of typer, whose class moved between its releases
        return _report_usage(error, usage())
    problem = getattr(error, "problem", None)
    if problem is not None:  # an error of the kit's own
        say(f"error: {problem}")
        return error.exit_code if isinstance(error, UnusableError) else ExitCode.USAGE
    if isinstance(error, ModuleNotFoundError) and error.name in _OPTIONAL:
        say(f"error: the module {error.name} is missing; install it: {how_to_install('conformance')}")
        return ExitCode.USAGE
    if isinstance(error, OSError):
        file_name = f" {error.filename}" if error.filename else ""
        say(f"error: system error{file_name}: {error.strerror or error}; check the path and its permissions")
        return ExitCode.USAGE
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    say(
        f"error: internal error of the kit: {type(error).__name__}: {lines[0] if lines else ''}\n"
        f"set {TRACEBACK_VARIABLE}=1 to get the traceback, and report it; there is no verdict"
    )
    return ExitCode.INCOMPLETE


def _report_usage(error: Exception, what: str) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(what.rstrip() + "\n" if what else "")
        return ExitCode.USAGE
    command = getattr(getattr(error, "ctx", None), "command_path", None) or COMMAND
    cause: Any = error.__cause__
    if hasattr(cause, "errors"):
        what = _with_value(what, repr(cause.errors()[0]["input"]))
    what = " ".join(what.split()).replace(". Did you mean", "; did you mean").removesuffix(".")
    say(f"error: {what[:1].lower()}{what[1:]}\nsee: {command} --help")
    return ExitCode.USAGE


def _with_value(what: str, given: str) -> str:
    """Typer's message for an invalid number or choice, shortened, and with the value, which it leaves out."""
    for long, short in (
        ("Input should be", "expected"),
        (", unable to parse string as an integer", ""),
        (": Value error, ", ": "),
    ):
        what = what.replace(long, short)
    return what if given in what else f"{what}, not {given}"


def _leave_broken_pipe() -> int:
    """The reader closed the pipe: redirect stdout, so that its last flush does not fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _BROKEN_PIPE


application = typer.Typer(
    name=COMMAND,
    cls=_Border,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"{COMMAND} {metadata.version('delta-commit-owner')}\n")
        raise typer.Exit


@application.callback(epilog=EXIT_CODES)
def _conformance(
    version: Annotated[
        bool, option("--version", "show the version and exit", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Test a commit owner, or a client, against the documents of Delta's managed commits and catalog-managed tables.

    Start with:  delta-commit-conformance smoke SUBJECT
    """


for function, epilog in (
    (running.smoke, examples("smoke 'stdio:node my-owner.mjs'", "smoke http://127.0.0.1:8080 --json")),
    (
        running.run,
        examples(
            "run reference",
            "run 'stdio:node my-owner.mjs' --profile standard --report report -n 2",
            "run http://127.0.0.1:8080 --family backfill-ordering --programs 5000 --seed 7",
            "run python:my_owner:MyOwner --known known.toml --report report",
        ),
    ),
    (
        running.replay,
        examples(
            "replay report/findings/some-case/finding.json", "replay finding.json --subject 'stdio:./my-owner --debug'"
        ),
    ),
    (
        matrix.matrix,
        examples(
            "matrix",
            "matrix reference 'stdio:node my-owner.mjs' --output matrix",
            "matrix engine:duckdb report-of-yesterday --profile standard",
            "matrix conformance/implementations",
        ),
    ),
    (reporting.report, examples("report report/result.json", "report result.json --folder report")),
    (
        reporting.check,
        examples("check report/findings/some-case/history.jsonl", "check production.jsonl --json")
        + "\n\nThe format is JSON Lines: `delta-commit-conformance schema history` prints its schema.",
    ),
    (
        playing.play,
        examples(
            "play lost-race",
            "play lost-race --decisions",
            "play conflict --html conflict.html",
            "play --all --html course",
        ),
    ),
    (playing.puzzle, examples("puzzle", "puzzle 3", "puzzle 3 --operation 1 --rule 2", "puzzle --html puzzles.html")),
    (learning.new, examples("new my-owner --language rust", "new my-owner --language go")),
    (
        learning.learn,
        examples(
            "learn my-owner", "learn my-owner --language rust", "learn my-owner check", "learn my-owner hint --deeper"
        ),
    ),
    (reporting.findings, examples("findings", "findings duckdb-proposes-a-lost-version-again")),
    (
        listing.list_,
        examples("list", "list checks --json", "list mutants --requirement MC-BACKFILL-01", "list subjects"),
    ),
    (
        listing.requirements,
        examples(
            "requirements 'MC-BACKFILL-*'",
            "requirements --side owner --level MUST",
            "requirements --profile idempotent-retry --json",
            "requirements --freedoms",
        ),
    ),
    (listing.schema, examples("schema interface", "schema interface commit", "schema history", "schema result")),
    (listing.examples, examples("examples", "examples owner.py > owner.py", "examples PROFILES.md")),
    (serving.serve, examples("serve python:my_owner:MyOwner", "run 'stdio:delta-commit-conformance serve model'")),
    (serving.engines, examples("engines", "engines --fetch delta-kernel-rs", "engines --fetch delta-kernel-rs@0.30.0")),
    (serving.jars, examples("jars") + '\n\njava -cp "$(delta-commit-conformance jars --print)" ...'),
):
    application.command(function.__name__.rstrip("_"), epilog=epilog)(function)
simulating.register(application)
