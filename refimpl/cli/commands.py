"""The table of the commands. A command is a function of the opened warehouse, its arguments and its options; it returns
the `Result` to show. Its docstring is its help.

Parameters are declared in `options.PARAMETERS`. This module adds `--warehouse` and `--json`, which most commands have.
"""

import contextlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from refimpl.cli.options import PARAMETERS, open_folder, open_warehouse
from refimpl.cli.output import Result

if TYPE_CHECKING:
    from refimpl.warehouse import AnyWarehouse

commands: Final = typer.Typer()

Function = TypeVar("Function", bound=Callable[..., Result | None])


def command(
    panel: str | None,
    *examples: str,
    server: bool = False,
    json: bool = True,
    name: str | None = None,
    group: typer.Typer = commands,
) -> Callable[[Function], Function]:
    """Register a function as the command of its name, in this panel of the help, with examples of its arguments.

    A function with a parameter `warehouse` gets the one that the option, the environment variable or the current folder
    names; `server`: also a server. A function with a parameter `json` prints by itself and returns None. `json` false:
    the command has no JSON output.
    """

    def register(function: Function) -> Function:
        called = name or function.__name__.replace("_", "-")
        own = dict(inspect.signature(function).parameters)
        opens, prints = own.pop("warehouse", None) is not None, not json or "json" in own

        def run(**values: Any) -> None:
            as_json = not prints and values.pop("json")
            with contextlib.ExitStack() as stack:
                if opens:
                    reach: Callable[[str | None], AnyWarehouse] = open_warehouse if server else open_folder
                    values["warehouse"] = stack.enter_context(reach(values.pop("address")))
                result = function(**values)
            if result is not None:
                result.show(json=as_json)

        parameters = [_parameter(called, each.name, each.annotation, each.default) for each in own.values()]
        if opens:
            parameters.append(_parameter("server" if server else "folder", "address", str | None, None))
        if json and "json" not in own:
            parameters.append(_parameter(called, "json", bool, False))
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # typer reads it
        run.__doc__ = function.__doc__
        group.command(called, rich_help_panel=panel, epilog=epilog(*examples))(run)
        return function

    return register


def _parameter(command: str, name: str, kind: Any, default: object) -> inspect.Parameter:
    declared = PARAMETERS.get(f"{command} {name}") or PARAMETERS[name]
    annotation = Annotated[kind, declared]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def epilog(*examples: str) -> str:
    """The end of a help: the examples, each without the name of the program."""
    separator = "\n\n" if len(examples) > 1 else "  "
    return separator.join(("Examples:" if len(examples) > 1 else "Example:", *(f"commit-owner {x}" for x in examples)))
