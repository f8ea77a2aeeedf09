"""What a careless refactoring does to a statement or an expression; `sabotages.toml` has examples of each.

| operator          | what it does |
|-------------------|--------------|
| `skip-last`       | a loop leaves its last turn out |
| `reverse-loop`    | a loop with effects runs from the end to the beginning |
| `leave-loop`      | the last statement of a loop, which has an effect, comes once after the loop |
| `swap-any-all`    | `any` becomes `all`, and `all` becomes `any` |
| `swap-first-last` | `[0]` becomes `[-1]`, and `[-1]` becomes `[0]` |
| `forget`          | a call that only changes what an object remembers is left out |
| `begin-anew`      | of `self._x or y` only `y` is left |
| `swallow-error`   | an `OSError` of an effect on files is swallowed |
| `catch-more`      | a handler of some errors catches all |
| `compare-size`    | contents and digests are compared by their size |
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Final

from spec_tests.mutation.effects import FILES, acts, called, calls, ends, is_effect, remembers

CARELESS: Final = (
    "skip-last", "reverse-loop", "leave-loop", "swap-any-all", "swap-first-last", "forget", "begin-anew",
    "swallow-error", "catch-more", "compare-size",
)  # fmt: skip

Change = tuple[str, ast.AST, str, Callable[[], None]]
"""Operator, what is changed, how, and the edit."""

_CONTENT: Final = re.compile(r"\b(content|digest|found|bytes)\b")


def statement_edits(body: list[ast.stmt], at: int) -> Iterator[Change]:
    """The edits of one statement."""
    statement = body[at]

    def edit(operator: str, change: str, apply: Callable[[], None], source: ast.AST = statement) -> Change:
        return operator, source, change, apply

    if isinstance(statement, ast.For):
        yield edit("skip-last", "without its last turn", lambda: _over(statement, "list({})[:-1]"))
        if any(acts(each) for each in statement.body):
            yield edit("reverse-loop", "from the end on", lambda: _over(statement, "reversed(list({}))"))
        last = statement.body[-1]
        if acts(last) and not ends(last) and len(statement.body) > 1:
            yield edit("leave-loop", f"`{text_of(last)}` once after it", lambda: _out_of_loop(body, at, statement))
    if is_effect(statement) and isinstance(statement, ast.Expr):
        if remembers(statement) and ast.unparse(statement).startswith("self."):
            yield edit("forget", "left out", lambda: put(body, at, ast.Pass()))
        if any(called(call) in FILES for call in calls(statement)[:1]):
            yield edit("swallow-error", "an OSError of it is swallowed", lambda: _swallowed(body, at))
    for handler in statement.handlers if isinstance(statement, ast.Try) else ():
        raises = any(isinstance(node, ast.Raise) for node in ast.walk(handler))
        if not raises and handler.type is not None and not text_of(handler.type).endswith("Exception"):
            everything = ast.Name("Exception", ast.Load())
            yield edit(
                "catch-more", "catches every Exception",
                lambda h=handler, e=everything: setattr(h, "type", e), handler,  # type: ignore[misc]
            )  # fmt: skip
    for item in statement.items if isinstance(statement, ast.With) else ():
        call = item.context_expr
        if isinstance(call, ast.Call) and called(call) == "suppress" and text_of(call.args[0]) != "Exception":
            yield edit(
                "catch-more", "suppresses every Exception",
                lambda c=call: setattr(c, "args", [ast.Name("Exception", ast.Load())]), call,  # type: ignore[misc]
            )  # fmt: skip


def _over(statement: ast.For, shape: str) -> None:
    made = ast.parse(shape.format("None"), mode="eval").body
    for node in ast.walk(made):
        if isinstance(node, ast.Call) and isinstance(node.args[0], ast.Constant):
            node.args[0] = statement.iter
    statement.iter = ast.copy_location(made, statement.iter)


def _out_of_loop(body: list[ast.stmt], at: int, statement: ast.For) -> None:
    body.insert(at + 1, statement.body.pop())


def _swallowed(body: list[ast.stmt], at: int) -> None:
    handler = ast.ExceptHandler(ast.Name("OSError", ast.Load()), None, [ast.Pass()])
    put(body, at, ast.Try(body=[body[at]], handlers=[handler], orelse=[], finalbody=[]))


def expression_edits(node: ast.AST) -> Iterator[Change]:
    """The edits of one expression."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("any", "all"):
        name, other_name = node.func, "all" if node.func.id == "any" else "any"
        yield "swap-any-all", node, f"as `{other_name}`", lambda: setattr(name, "id", other_name)
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and text_of(node.slice) in ("0", "-1"):
        wanted = 0 if text_of(node.slice) == "-1" else -1
        yield "swap-first-last", node, f"as `[{wanted}]`", lambda: setattr(node, "slice", ast.Constant(wanted))
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and isinstance(node.values[0], ast.Attribute):
        first, last = node.values[0], node.values[-1]
        if text_of(first).startswith("self._"):
            yield "begin-anew", node, f"as `{text_of(last)}`", lambda: node.values.__setitem__(0, last)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq):
        sides = (node.left, node.comparators[0])
        if all(_CONTENT.search(text_of(side)) for side in sides) and "len(" not in text_of(node):
            yield "compare-size", node, "by size", lambda: _by_size(node)


def _by_size(node: ast.Compare) -> None:
    size = ast.Name("len", ast.Load())
    node.left, node.comparators = ast.Call(size, [node.left], []), [ast.Call(size, node.comparators, [])]


def put(body: list[ast.stmt], at: int, *statements: ast.stmt) -> None:
    """Replace a statement; the new ones stand in its line."""
    old = body[at]
    body[at : at + 1] = [ast.copy_location(statement, old) for statement in statements]


def text_of(node: ast.AST) -> str:
    """How reports and the list of explained mutants call it: the first line of its source, spelled one way."""
    return ast.unparse(node).partition("\n")[0]
