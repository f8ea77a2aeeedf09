"""The typer application: its commands, and the handler that turns every exception into a message."""

import contextlib
import os
import sys
import traceback
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from refimpl.cli import demonstration, history, rows, serving, tables, upkeep
from refimpl.cli.commands import commands
from refimpl.cli.output import DOCUMENTED, ExitCode, exit_code, message, show_error
from refimpl.protocol.release import __version__

TRACEBACK_VARIABLE = "COMMIT_OWNER_TRACEBACK"


class _ErrorHandler(TyperGroup):
    """Turns every failure into a message of one or two lines and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        standalone = kwargs.pop("standalone_mode", True)
        kwargs["standalone_mode"] = False
        code = self._run(*args, **kwargs)
        if standalone:
            sys.exit(code)
        return code

    def _run(self, *args: Any, **kwargs: Any) -> int:
        try:
            try:
                code = super().main(*args, **kwargs)
                sys.stdout.flush()
                return code if isinstance(code, int) else ExitCode.OK
            except typer.Abort:
                return ExitCode.INTERRUPTED
            except BrokenPipeError:
                return _leave_broken_pipe()
            except Exception as error:  # noqa: BLE001 - no traceback at the command line
                return _report(error)
        except BrokenPipeError:
            return _leave_broken_pipe()

    def invoke(self, ctx: Any) -> Any:
        """Handle a closed pipe and Ctrl-C here: typer would exit with other codes."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise typer.Exit(_leave_broken_pipe()) from None
        except KeyboardInterrupt:
            show_error("interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None

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


def _report(error: Exception) -> int:
    if os.environ.get(TRACEBACK_VARIABLE):
        traceback.print_exc()
    usage = getattr(error, "format_message", None)
    if usage is not None:  # a usage error of typer; the module of its class depends on typer's version
        return _report_usage(error, usage())
    show_error(message(error))
    return exit_code(error)


def _report_usage(error: Exception, what: str) -> int:
    context = getattr(error, "ctx", None)
    cause: Any = error.__cause__
    if hasattr(cause, "errors"):
        what = _with_value(what, repr(cause.errors()[0]["input"]))
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(what.rstrip() + "\n" if what else "")
        return ExitCode.USAGE
    command = getattr(context, "command_path", None) or "commit-owner"
    what = " ".join(what.split()).replace(". Did you mean", "; did you mean").removesuffix(".")
    show_error(f"{what[:1].lower()}{what[1:]}\nsee: {command} --help")
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
    """The reader closed the output. Redirect the standard output to the null device, so that its last flush is
    silent."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.CLOSED_PIPE


application = typer.Typer(
    name="commit-owner",
    cls=_ErrorHandler,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"commit-owner {__version__}\n")
        raise typer.Exit


@application.callback(epilog=DOCUMENTED)
def _commit_owner(
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="show the version and exit")
    ] = False,
) -> None:
    """The reference commit owner for Delta Lake's managed commits and catalog-managed tables.

    Start with:  commit-owner demo
    """


MODULES = (demonstration, tables, rows, history, upkeep, serving)
"""The modules with commands. Their import fills the table."""
PANELS = ("Start here", "Tables", "Rows", "Versions", "Maintenance", "Ownership", "Server")
"""The panels of the help, in this order."""
application.registered_commands = sorted(
    commands.registered_commands, key=lambda each: PANELS.index(each.rich_help_panel or "")
)
application.registered_groups = commands.registered_groups
