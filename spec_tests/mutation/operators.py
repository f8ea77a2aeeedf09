"""Edits of a module's syntax tree that take away what its durability, its order or its atomicity rests on.

| operator            | what it does |
|---------------------|--------------|
| `delete-effect`     | a statement that is only a call is left out |
| `swap-effects`      | two adjacent statements with effects change places |
| `drop-lock`         | a `with` no longer takes the lock |
| `leave-early`       | the last statement under a lock or in a transaction comes after it |
| `enter-late`        | the first one comes before it |
| `split-transaction` | a transaction ends between two of its statements, and another one begins |
| `weaken-sql`        | less durability, or a later lock, is asked of SQLite |
| `shift-comparison`  | `<` becomes `<=`, and so on; equality of versions and of states is negated |
| `drop-step`         | `+ 1` or `- 1` is left out |
| `drop-guard`        | an `if` that only returns or raises is left out |
| `drop-check`        | a call that is made for what it raises is left out |
| `drop-raise`        | any other `raise` is left out |
| `drop-rule`         | one operand of an `or` that is returned or assigned is left out |

To these come the operators of `careless`.

An edit that Python itself refuses at once (a name that is not bound yet) is not made. Nothing is tried on module
level, nor in a call of the logger. Left out because nobody could tell the difference: two writes of one transaction in
the other order, a call that only changes what this process remembers, a number in a message. Limits (of sizes, ages,
names and waits) are no versions.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from spec_tests.mutation import careless
from spec_tests.mutation.careless import put, text_of
from spec_tests.mutation.comparisons import SIGNS, in_messages, is_step, matters, other
from spec_tests.mutation.effects import (
    acts,
    binds,
    calls,
    ends,
    has_effect,
    is_check,
    is_effect,
    is_lock,
    names_in,
    only_writes,
    remembers,
    transaction_of,
    writes_with,
)

RULES: Final = ("drop-guard", "drop-check", "drop-raise", "drop-rule")
"""Who may do what, and what is told: the tests of each rule are a catalogue of their own. They run on request."""

Body = list[ast.stmt]
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One edit of one file."""

    file: str
    function: str
    """Qualified within the module."""
    operator: str
    source: str
    """The text that is changed: of a statement with a body, its first line."""
    occurrence: int
    """Of this text under this operator in the function, from 1 on."""
    line: int
    change: str
    number: int
    """Of the edit, in the order in which `edits` finds them."""
    point: int
    """The number of the statement before which it can be seen whether a test comes this way."""

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What stays the same while other code changes."""
        return self.file, self.function, self.operator, self.source, self.occurrence


@dataclass(slots=True, kw_only=True)
class Edit:
    """One change that could be made to the tree at hand."""

    function: str
    operator: str
    anchor: ast.stmt
    source: str
    change: str
    apply: Callable[[], None]
    matters: bool = True
    """False: it is counted and not made."""


def mutants(file: str, text: str) -> list[Mutant]:
    """Every mutant of a module."""
    tree = ast.parse(text)
    points: dict[int, int] = {}
    seen: Counter[tuple[str, str, str]] = Counter()
    found = []
    for number, edit in enumerate(edits(tree)):
        key = (edit.function, edit.operator, edit.source)
        seen[key] += 1
        point = points.setdefault(id(edit.anchor), len(points))
        if not edit.matters:
            continue
        found.append(
            Mutant(
                file=file,
                function=edit.function,
                operator=edit.operator,
                source=edit.source,
                occurrence=seen[key],
                line=edit.anchor.lineno,
                change=edit.change,
                number=number,
                point=point,
            )
        )
    return found


def mutated(text: str, number: int) -> ast.Module:
    """The module with one edit made; lines as before."""
    tree = ast.parse(text)
    for at, edit in enumerate(edits(tree)):
        if at == number:
            edit.apply()
            return ast.fix_missing_locations(tree)
    raise ValueError(f"there is no edit {number}: there are {at + 1}")


def instrumented(text: str, hit: str, first: int) -> ast.Module:
    """The module, which calls `hit` with `first` + point before every statement that a mutant changes."""
    tree = ast.parse(text)
    points: dict[int, int] = {}
    anchors: dict[int, ast.stmt] = {}
    for edit in edits(tree):
        points.setdefault(id(edit.anchor), len(points))
        anchors[id(edit.anchor)] = edit.anchor
    for body in list(_bodies(tree, whole=True)):
        for at in range(len(body) - 1, -1, -1):
            point = points.get(id(body[at]))
            if point is not None:
                call = ast.parse(f"{hit}({first + point})").body[0]
                body.insert(at, ast.copy_location(call, body[at]))
    return ast.fix_missing_locations(tree)


def edits(tree: ast.Module) -> Iterator[Edit]:
    """Everything that could be changed, always in the same order. Apply one of them only."""
    for scope, function in _functions(tree, ""):
        for body in _bodies(scope):
            for at, statement in enumerate(body):
                yield from _effects(function, body, at)
                if isinstance(statement, ast.With):
                    yield from _withs(function, body, at, statement)
                yield from _guards(function, body, at)
                for operator, source, change, apply in careless.statement_edits(body, at):
                    yield _careless(function, statement, operator, source, change, apply)
                yield from _expressions(function, statement)
        yield from _splits(function, scope)


def _functions(parent: ast.AST, prefix: str) -> Iterator[tuple[Scope, str]]:
    for child in ast.iter_child_nodes(parent):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, prefix + child.name
            yield from _functions(child, f"{prefix}{child.name}.")
        elif not isinstance(child, ast.expr):
            yield from _functions(child, prefix)


def _bodies(parent: ast.AST, *, whole: bool = False) -> Iterator[Body]:
    """Every list of statements below; those of inner functions and classes too, if `whole`."""
    for _, value in ast.iter_fields(parent):
        if not isinstance(value, list) or not value:
            continue
        if isinstance(value[0], ast.stmt):
            yield value
        for child in value:
            if isinstance(child, ast.ExceptHandler | ast.match_case | ast.stmt) and (
                whole or not isinstance(child, Scope)
            ):
                yield from _bodies(child, whole=whole)


# Effects


def _effects(function: str, body: Body, at: int) -> Iterator[Edit]:
    statement = body[at]
    if is_effect(statement):
        yield Edit(
            function=function,
            operator="drop-check" if is_check(statement) else "delete-effect",
            anchor=statement,
            source=text_of(statement),
            change="left out",
            apply=lambda: put(body, at, ast.Pass()),
            matters=not remembers(statement),
        )
    if at + 1 == len(body):
        return
    following = body[at + 1]
    if not (has_effect(statement) and has_effect(following)) or ends(statement) or ends(following):
        return
    if binds(statement) & names_in(following):
        return

    def swap() -> None:
        body[at], body[at + 1] = following, statement

    yield Edit(
        function=function,
        operator="swap-effects",
        anchor=statement,
        source=f"{text_of(statement)} ; {text_of(following)}",
        change="in the other order",
        apply=swap,
        matters=acts(statement) and acts(following) and not (only_writes(statement) and only_writes(following)),
    )


def _careless(
    function: str, anchor: ast.stmt, operator: str, source: ast.AST, change: str, apply: Callable[[], None]
) -> Edit:
    return Edit(function=function, operator=operator, anchor=anchor, source=text_of(source), change=change, apply=apply)


# Locks and transactions


def _withs(function: str, body: Body, at: int, statement: ast.With) -> Iterator[Edit]:
    for item in statement.items:
        if is_lock(item.context_expr):
            yield Edit(
                function=function,
                operator="drop-lock",
                anchor=statement,
                source=text_of(item.context_expr),
                change=f"not taken around line {statement.body[0].lineno}",
                apply=lambda item=item: _without(body, at, statement, item),  # type: ignore[misc]
            )
    if not any(is_lock(item.context_expr) or transaction_of(item) for item in statement.items):
        return
    if len(statement.body) == 1:
        return
    where = "; ".join(text_of(item.context_expr) for item in statement.items)
    bound = set().union(*(names_in(item.optional_vars) for item in statement.items if item.optional_vars))
    first, last = statement.body[0], statement.body[-1]
    if calls(first) and not ends(first) and not bound & names_in(first):
        yield Edit(
            function=function,
            operator="enter-late",
            anchor=statement,
            source=text_of(first),
            change=f"before `{where}`",
            apply=lambda: _moved(body, at, statement, 0),
        )
    if calls(last):
        yield Edit(
            function=function,
            operator="leave-early",
            anchor=statement,
            source=text_of(last),
            change=f"after `{where}`",
            apply=lambda: _moved(body, at, statement, -1),
        )


def _without(body: Body, at: int, statement: ast.With, item: ast.withitem) -> None:
    statement.items.remove(item)
    if not statement.items:
        put(body, at, *statement.body)


def _moved(body: Body, at: int, statement: ast.With, which: int) -> None:
    moved = statement.body.pop(which)
    body.insert(at + 1 if which else at, moved)


def _splits(function: str, scope: Scope) -> Iterator[Edit]:
    """A transaction that ends between two statements which both write in it, or both read in it."""
    for name, begin, bodies in _transactions(function, scope):
        for body in bodies:
            for at in range(1, len(body)):
                before, after = body[at - 1], body[at]
                if ends(before) or not all(writes_with(each, name, begin) for each in (before, after)):
                    continue

                def split(body: Body = body, at: int = at, name: str = name, begin: str = begin) -> None:
                    ended = ast.parse(f"{name}._db.execute('COMMIT')\n{name}._db.execute({begin!r})").body
                    body[at:at] = [ast.copy_location(each, body[at]) for each in ended]

                yield Edit(
                    function=function,
                    operator="split-transaction",
                    anchor=before,
                    source=f"{text_of(before)} ; {text_of(after)}",
                    change=f"with the end of the transaction of `{name}` between them",
                    apply=split,
                )


def _transactions(function: str, scope: Scope) -> Iterator[tuple[str, str, list[Body]]]:
    """Every name of a transaction with how one begins and the statements inside it."""
    if isinstance(scope, ast.FunctionDef):
        if function.startswith("Writer."):
            yield "self", "BEGIN IMMEDIATE", list(_bodies(scope))
        for argument in scope.args.args:
            kind = argument.annotation.id if isinstance(argument.annotation, ast.Name) else ""
            if kind in ("Writer", "View"):
                yield argument.arg, "BEGIN IMMEDIATE" if kind == "Writer" else "BEGIN", list(_bodies(scope))
    for body in _bodies(scope):
        for statement in body:
            for item in statement.items if isinstance(statement, ast.With) else ():
                found = transaction_of(item)
                if found is not None:
                    yield *found, list(_bodies(statement))


# Guards


def _guards(function: str, body: Body, at: int) -> Iterator[Edit]:
    statement = body[at]
    if isinstance(statement, ast.If) and not statement.orelse and len(statement.body) == 1 and ends(statement.body[0]):
        yield Edit(
            function=function,
            operator="drop-guard",
            anchor=statement,
            source=text_of(statement),
            change="left out",
            apply=lambda: put(body, at, ast.Pass()),
        )
    elif isinstance(statement, ast.Raise):
        yield Edit(
            function=function,
            operator="drop-raise",
            anchor=statement,
            source=text_of(statement),
            change="left out",
            apply=lambda: put(body, at, ast.Pass()),
        )


# Expressions

_SQL: Final = (
    ("synchronous=FULL", "synchronous=NORMAL"),
    ("BEGIN IMMEDIATE", "BEGIN"),
    ("wal_autocheckpoint=0", "wal_autocheckpoint=1"),
)


def _expressions(function: str, statement: ast.stmt) -> Iterator[Edit]:
    """What can be changed inside one statement, without the statements in it."""

    told = in_messages(statement)

    def edit(operator: str, source: ast.AST, change: str, apply: Callable[[], None]) -> Edit:
        counts = operator in ("shift-comparison", "drop-step")
        return Edit(
            function=function,
            operator=operator,
            anchor=statement,
            source=text_of(source),
            change=change,
            apply=apply,
            matters=not counts or (id(source) not in told and matters(text_of(source))),
        )

    if isinstance(statement, Scope):
        return
    if isinstance(statement, ast.Return | ast.Assign) and isinstance(statement.value, ast.BoolOp):
        whole = statement.value
        if isinstance(whole.op, ast.Or):
            for operand in whole.values:
                yield edit(
                    "drop-rule", operand, "left out of the `or`", lambda o=operand: _dropped(statement, whole, o)
                )  # type: ignore[misc]
    for node in _expression_nodes(statement):
        if isinstance(node, ast.Compare):
            for which, operator in enumerate(node.ops):
                wanted = other(node, which, operator)
                if wanted is not None:
                    yield edit(
                        "shift-comparison", node, f"`{SIGNS[type(operator)]}` as `{SIGNS[wanted]}`",
                        lambda n=node, w=which, o=wanted: n.ops.__setitem__(w, o()),  # type: ignore[misc]
                    )  # fmt: skip
        for operator, source, change, apply in careless.expression_edits(node):
            yield edit(operator, source, change, apply)
        for field, child in _children(node):
            if is_step(child):
                yield edit(
                    "drop-step", child, f"as `{text_of(child.left)}`",
                    lambda n=node, f=field, c=child: _replaced(n, f, c, c.left),  # type: ignore[misc]
                )  # fmt: skip
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for strong, weak in _SQL:
                if strong in node.value:
                    yield edit(
                        "weaken-sql", node, f"with {weak}",
                        lambda n=node, s=strong, w=weak: setattr(n, "value", n.value.replace(s, w)),  # type: ignore[misc]
                    )  # fmt: skip


def _dropped(statement: ast.Return | ast.Assign, whole: ast.BoolOp, operand: ast.expr) -> None:
    whole.values.remove(operand)
    if len(whole.values) == 1:
        statement.value = whole.values[0]


def _replaced(parent: ast.AST, field: str, old: ast.AST, new: ast.AST) -> None:
    value = getattr(parent, field)
    if isinstance(value, list):
        value[value.index(old)] = new
    else:
        setattr(parent, field, new)


def _expression_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The statement and the expressions of its own, outside in."""
    yield statement
    for _, child in _children(statement):
        yield from _below(child)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for _, child in _children(node):
        yield from _below(child)


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Each child with its field, statements and handlers left out."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, ast.AST) and not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                yield field, child
