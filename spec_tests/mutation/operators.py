"""Edits of a module's syntax tree that break its durability, its order or its atomicity.

| operator            | what it does |
|---------------------|--------------|
| `delete-effect`     | a statement that is only a call is left out |
| `swap-effects`      | two adjacent statements with effects change places |
| `drop-lock`         | a `with` no longer takes the lock |
| `leave-early`       | the last statement under a lock or in a transaction comes after it |
| `enter-late`        | the first statement comes before it |
| `split-transaction` | a transaction ends between two of its statements, and another one begins |
| `weaken-sql`        | SQLite gives less durability, or locks later |
| `shift-comparison`  | `<` becomes `<=`, and so on; equality of versions and of states is negated |
| `drop-step`         | `+ 1` or `- 1` is left out |
| `drop-guard`        | an `if` that only returns or raises is left out |
| `drop-check`        | a call that is made for what it raises is left out |
| `drop-raise`        | any other `raise` is left out |
| `drop-rule`         | one operand of an `or` that is returned or assigned is left out |

Edits of a careless refactoring (`CARELESS`; `sabotages.toml` has examples of each):

| operator          | what it does |
|-------------------|--------------|
| `skip-last`       | a loop leaves its last turn out |
| `reverse-loop`    | a loop with effects runs from the end to the beginning |
| `leave-loop`      | the last statement of a loop, which has an effect, comes once after the loop |
| `swap-any-all`    | `any` becomes `all`, and `all` becomes `any` |
| `swap-first-last` | `[0]` becomes `[-1]`, and `[-1]` becomes `[0]` |
| `forget`          | a call that only changes an object in memory is left out |
| `begin-anew`      | `self._x or y` becomes `y` |
| `swallow-error`   | an `OSError` of an effect on files is swallowed |
| `catch-more`      | a handler of some errors catches all |
| `compare-size`    | contents and digests are compared by their size |

An edit is not made if Python would reject it at once, because a name is not bound yet. No edit is made at module level,
or in a call of the logger. Some edits are left out because no caller can observe them: two writes of one transaction in
the other order, a call that only changes the memory of this process, a number in a message. Comparisons with limits (of
sizes, ages, names and waits) are not changed.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

RULES: Final = ("drop-guard", "drop-check", "drop-raise", "drop-rule")
"""Edits of rules and answers, which other tests cover. They run on request."""

Body = list[ast.stmt]
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One edit of one file."""

    file: str
    function: str
    """The qualified name of the function in the module."""
    operator: str
    source: str
    """The changed text; of a statement with a body, its first line."""
    occurrence: int
    """The number of this edit among those with the same text and operator in the function, from 1."""
    line: int
    change: str
    number: int
    """The number of the edit, in the order of `edits`."""
    point: int
    """The number of the statement before which instrumented code reports a hit."""

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """Identifies the mutant, also after changes of other code."""
        return self.file, self.function, self.operator, self.source, self.occurrence


@dataclass(frozen=True, slots=True)
class Edit:
    """One possible change of a tree."""

    function: str
    anchor: ast.stmt
    operator: str
    source: str
    change: str
    apply: Callable[[], None]


Change = tuple[str, ast.AST | str, str, Callable[[], None]]
"""The operator, the changed node or its text, a description of the change, and the function that makes it."""


def mutants(file: str, text: str) -> list[Mutant]:
    """Every mutant of a module."""
    points: dict[int, int] = {}
    seen: Counter[tuple[str, str, str]] = Counter()
    listed = []
    for number, edit in enumerate(edits(ast.parse(text))):
        key = (edit.function, edit.operator, edit.source)
        seen[key] += 1
        mutant = Mutant(
            file=file,
            function=edit.function,
            operator=edit.operator,
            source=edit.source,
            occurrence=seen[key],
            line=edit.anchor.lineno,
            change=edit.change,
            number=number,
            point=points.setdefault(id(edit.anchor), len(points)),
        )
        listed.append(mutant)
    return listed


def mutated(text: str, number: int) -> ast.Module:
    """The module with one edit made; the line numbers stay."""
    tree = ast.parse(text)
    for at, edit in enumerate(edits(tree)):
        if at == number:
            edit.apply()
            return ast.fix_missing_locations(tree)
    raise ValueError(f"there is no edit {number}: there are {at + 1}")


def instrumented(text: str, hit: str, first: int) -> ast.Module:
    """The module with a call of `hit` with `first` + point before every statement that a mutant changes."""
    tree = ast.parse(text)
    points: dict[int, int] = {}
    for edit in edits(tree):
        points.setdefault(id(edit.anchor), len(points))
    for body in list(_bodies(tree, whole=True)):
        for at in range(len(body) - 1, -1, -1):
            point = points.get(id(body[at]))
            if point is not None:
                call = ast.parse(f"{hit}({first + point})").body[0]
                body.insert(at, ast.copy_location(call, body[at]))
    return ast.fix_missing_locations(tree)


def edits(tree: ast.Module) -> Iterator[Edit]:
    """All possible edits, always in the same order. Apply only one of them."""
    for scope, function in _functions(tree, ""):
        for anchor, (operator, source, change, apply) in _changes(scope, function):
            text = source if isinstance(source, str) else text_of(source)
            yield Edit(function, anchor, operator, text, change, apply)


def _changes(scope: Scope, function: str) -> Iterator[tuple[ast.stmt, Change]]:
    """Each possible change of a function, with its statement."""
    suppressed = _suppressed(scope)
    for body in _bodies(scope):
        for at, statement in enumerate(body):
            for changes in (
                _effects(body, at),
                _withs(body, at),
                _guards(body, at),
                _careless_statement_edits(body, at, quiet=id(statement) in suppressed),
                _expressions(statement),
            ):
                yield from ((statement, change) for change in changes)
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
    """Every list of statements below `parent`. `whole`: also those of inner functions and classes."""
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


def _effects(body: Body, at: int) -> Iterator[Change]:
    statement = body[at]
    if is_effect(statement) and not remembers(statement):
        operator = "drop-check" if is_check(statement) else "delete-effect"
        yield operator, statement, "left out", lambda: put(body, at, _nothing_of(statement))
    if at + 1 == len(body):
        return
    following = body[at + 1]
    if not (acts(statement) and acts(following)) or (only_writes(statement) and only_writes(following)):
        return
    if ends(statement) or ends(following) or binds(statement) & names_in(following):
        return

    def swap() -> None:
        body[at], body[at + 1] = following, statement

    yield "swap-effects", f"{text_of(statement)} ; {text_of(following)}", "in the other order", swap


def _nothing_of(statement: ast.stmt) -> ast.stmt:
    """The replacement of a statement that is left out. A function that calls `super` keeps the closure variable
    `__class__`; otherwise its code could not be replaced."""
    if any(called(call) == "super" for call in calls(statement)):
        return ast.Expr(ast.Name("__class__", ast.Load()))
    return ast.Pass()


# Locks and transactions


def _withs(body: Body, at: int) -> Iterator[Change]:
    statement = body[at]
    if not isinstance(statement, ast.With):
        return
    locks = [item for item in statement.items if is_lock(item.context_expr)]
    for item in locks:
        change = f"not taken around line {statement.body[0].lineno}"
        yield "drop-lock", item.context_expr, change, lambda item=item: _without(body, at, statement, item)  # type: ignore[misc]
    if len(statement.body) == 1 or not (locks or any(transaction_of(item) for item in statement.items)):
        return
    where = "; ".join(text_of(item.context_expr) for item in statement.items)
    bound = set().union(*(names_in(item.optional_vars) for item in statement.items if item.optional_vars))
    first, last = statement.body[0], statement.body[-1]
    if calls(first) and not ends(first) and not bound & names_in(first):
        yield "enter-late", first, f"before `{where}`", lambda: _moved(body, at, statement, 0)
    if calls(last):
        yield "leave-early", last, f"after `{where}`", lambda: _moved(body, at, statement, -1)


def _without(body: Body, at: int, statement: ast.With, item: ast.withitem) -> None:
    statement.items.remove(item)
    if not statement.items:
        put(body, at, *statement.body)


def _moved(body: Body, at: int, statement: ast.With, which: int) -> None:
    moved = statement.body.pop(which)
    body.insert(at + 1 if which else at, moved)


def _splits(function: str, scope: Scope) -> Iterator[tuple[ast.stmt, Change]]:
    """Splits of a transaction between two statements that both write in it, or both read in it."""
    for name, begin, bodies in _transactions(function, scope):
        for body in bodies:
            for at in range(1, len(body)):
                before, after = body[at - 1], body[at]
                if ends(before) or not all(writes_with(statement, name, begin) for statement in (before, after)):
                    continue

                def split(body: Body = body, at: int = at, name: str = name, begin: str = begin) -> None:
                    ended = ast.parse(f"{name}._db.execute('COMMIT')\n{name}._db.execute({begin!r})").body
                    body[at:at] = [ast.copy_location(statement, body[at]) for statement in ended]

                source = f"{text_of(before)} ; {text_of(after)}"
                change = f"with the end of the transaction of `{name}` between them"
                yield before, ("split-transaction", source, change, split)


def _transactions(function: str, scope: Scope) -> Iterator[tuple[str, str, list[Body]]]:
    """The name of every transaction, its SQL to begin, and the statements inside it."""
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
                transaction = transaction_of(item)
                if transaction is not None:
                    yield *transaction, list(_bodies(statement))


# Guards


def _guards(body: Body, at: int) -> Iterator[Change]:
    statement = body[at]
    if isinstance(statement, ast.If) and not statement.orelse and len(statement.body) == 1 and ends(statement.body[0]):
        yield "drop-guard", statement, "left out", lambda: put(body, at, ast.Pass())
    elif isinstance(statement, ast.Raise):
        yield "drop-raise", statement, "left out", lambda: put(body, at, ast.Pass())


# Expressions

_SQL: Final = (
    ("synchronous=FULL", "synchronous=NORMAL"),
    ("BEGIN IMMEDIATE", "BEGIN"),
    ("wal_autocheckpoint=0", "wal_autocheckpoint=1"),
)


def _expressions(statement: ast.stmt) -> Iterator[Change]:
    """The changes inside one statement, without its inner statements, of which a caller can observe something."""
    if isinstance(statement, Scope):
        return
    in_message = in_messages(statement)
    for operator, source, change, apply in _expression_edits(statement):
        observed = operator == "weaken-sql" or id(source) not in in_message
        if observed and (operator not in ("shift-comparison", "drop-step") or matters(text_of(source))):
            yield operator, source, change, apply


def _expression_edits(statement: ast.stmt) -> Iterator[tuple[str, ast.AST, str, Callable[[], None]]]:
    if isinstance(statement, ast.Return | ast.Assign) and isinstance(statement.value, ast.BoolOp):
        whole = statement.value
        for operand in whole.values if isinstance(whole.op, ast.Or) else ():
            yield "drop-rule", operand, "left out of the `or`", lambda o=operand: _dropped(statement, whole, o)  # type: ignore[misc]
    for node in _expression_nodes(statement):
        if isinstance(node, ast.Compare):
            for which, operator in enumerate(node.ops):
                wanted = other(node, which, operator)
                if wanted is not None:
                    yield (
                        "shift-comparison", node, f"`{SIGNS[type(operator)]}` as `{SIGNS[wanted]}`",
                        lambda n=node, w=which, o=wanted: n.ops.__setitem__(w, o()),  # type: ignore[misc]
                    )  # fmt: skip
        yield from _careless_expression_edits(node)
        for field, child in _children(node):
            if is_step(child):
                yield (
                    "drop-step", child, f"as `{text_of(child.left)}`",
                    lambda n=node, f=field, c=child: _replaced(n, f, c, c.left),  # type: ignore[misc]
                )  # fmt: skip
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for strong, weak in _SQL:
                if strong in node.value:
                    yield (
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
    """The statement, and its own expressions, from the outside in."""
    yield statement
    for _, child in _children(statement):
        yield from _below(child)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for _, child in _children(node):
        yield from _below(child)


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Each child with its field, without statements and handlers."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, ast.AST) and not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                yield field, child


CARELESS: Final = (
    "skip-last", "reverse-loop", "leave-loop", "swap-any-all", "swap-first-last", "forget", "begin-anew",
    "swallow-error", "catch-more", "compare-size",
)  # fmt: skip

_NUMBER_OF_TRIES: Final = re.compile(r"range\([A-Z_]+\)")
"""A limit, so one try fewer breaks no rule."""
_CONTENT: Final = re.compile(r"\b(content|digest|found|bytes)\b")


def _only_touches_files(body: list[ast.stmt]) -> bool:
    """Whether the body is one call that can raise only an `OSError`, so that catching more changes nothing."""
    return len(body) == 1 and is_effect(body[0]) and called(calls(body[0])[0]) in FILES


def _suppressed(scope: Scope) -> set[int]:
    """The ids of the statements whose `OSError` is already suppressed."""
    return {
        id(statement)
        for block in ast.walk(scope)
        if isinstance(block, ast.With)
        and re.search(r"suppress\((OSError|Exception)\)", text_of(block.items[0].context_expr))
        for statement in block.body
    }


def _careless_statement_edits(body: list[ast.stmt], at: int, *, quiet: bool) -> Iterator[Change]:
    """The edits of one statement. `quiet`: its `OSError` is already suppressed."""
    statement = body[at]
    if isinstance(statement, ast.For):
        if not _NUMBER_OF_TRIES.fullmatch(text_of(statement.iter)):
            yield "skip-last", statement, "without its last turn", lambda: _over(statement, "list({})[:-1]")
        if any(acts(inner) for inner in statement.body):
            yield "reverse-loop", statement, "from the end on", lambda: _over(statement, "reversed(list({}))")
        last = statement.body[-1]
        if acts(last) and not ends(last) and len(statement.body) > 1:
            yield "leave-loop", statement, f"`{text_of(last)}` once after it", lambda: _out_of_loop(body, at, statement)
    if is_effect(statement) and isinstance(statement, ast.Expr):
        if remembers(statement) and ast.unparse(statement).startswith("self."):
            yield "forget", statement, "left out", lambda: put(body, at, ast.Pass())
        if any(called(call) in FILES for call in calls(statement)[:1]) and not quiet:
            yield "swallow-error", statement, "an OSError of it is swallowed", lambda: _swallowed(body, at)
    everything = ast.Name("Exception", ast.Load())
    for handler in statement.handlers if isinstance(statement, ast.Try) else ():
        raises = any(isinstance(node, ast.Raise) for node in ast.walk(handler))
        known = handler.type is None or text_of(handler.type).endswith("Exception")
        if not (raises or known or (text_of(handler.type) == "OSError" and _only_touches_files(statement.body))):
            yield "catch-more", handler, "catches every Exception", lambda h=handler: setattr(h, "type", everything)  # type: ignore[misc]
    for item in statement.items if isinstance(statement, ast.With) else ():
        call = item.context_expr
        if not isinstance(call, ast.Call) or called(call) != "suppress" or text_of(call.args[0]) == "Exception":
            continue
        if not (text_of(call.args[0]) == "OSError" and _only_touches_files(statement.body)):
            yield "catch-more", call, "suppresses every Exception", lambda c=call: setattr(c, "args", [everything])  # type: ignore[misc]


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


def _careless_expression_edits(node: ast.AST) -> Iterator[tuple[str, ast.AST, str, Callable[[], None]]]:
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
    """Replace a statement; the new statements have its line number."""
    old = body[at]
    body[at : at + 1] = [ast.copy_location(statement, old) for statement in statements]


def text_of(node: ast.AST) -> str:
    """The text of a node in reports and in `equivalent.toml`: the first line of its normalized source."""
    return ast.unparse(node).partition("\n")[0]


_ORDERS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
_EQUALITIES: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_VERSION: Final = re.compile(
    r"version|latest|target|backfilled|published|backlog|\bnext\b|first|last|through|start|end\b|below|above"
)
_ORDER: Final = re.compile(
    _VERSION.pattern + r"|stamp|previous|earlier|later|before|after|unknown|ticket|following|low\b|count"
)
"""Names of other ordered values, such as timestamps and turns; not limits of sizes, ages, names and waits."""
_STATE: Final = re.compile(r"\b(TableState|PromiseKind|CommitMode)\.[A-Z]")


SIGNS: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip


def matters(source: str) -> bool:
    """Whether a comparison or a step with this text is about versions, or about other ordered values."""
    return _ORDER.search(source) is not None or _STATE.search(source) is not None


def in_messages(statement: ast.stmt) -> set[int]:
    """The ids of the nodes in the statement's f-strings: a version in a message decides nothing."""
    texts = [node for node in ast.walk(statement) if isinstance(node, ast.JoinedStr)]
    return {id(node) for text in texts for node in ast.walk(text)}


def other(node: ast.Compare, which: int, operator: ast.cmpop) -> type[ast.cmpop] | None:
    """The new operator of the comparison; None: the comparison does not matter."""
    shifted = _ORDERS.get(type(operator))
    if shifted is not None:
        return shifted
    left = node.left if which == 0 else node.comparators[which - 1]
    sides = f"{ast.unparse(left)} {ast.unparse(node.comparators[which])}"
    if isinstance(operator, ast.Eq | ast.NotEq) and _VERSION.search(sides):
        return _EQUALITIES[type(operator)]
    if isinstance(operator, ast.Is | ast.IsNot) and _STATE.search(sides):
        return _EQUALITIES[type(operator)]
    return None


def is_step(node: object) -> bool:
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add | ast.Sub)
        and isinstance(node.right, ast.Constant)
        and node.right.value == 1
    )


FILES: Final = frozenset({
    "create", "write", "fsync", "fsync_directory", "make_directory", "link", "unlink", "remove_directory", "delete",
    "sync", "overwrite", "publish", "put_if_absent", "stage", "create_folders", "_write_durably",
    "_publish", "pwrite", "open", "close",
})  # fmt: skip
LEDGER: Final = frozenset({
    "execute", "fold", "backup", "step", "wal_checkpoint", "_commit", "_begin", "_end", "_migrate", "_roll_back",
    "_keep_write_ahead_log", "_make_name_durable", "_make_durable_what_is_seen", "_refuse_foreign_log",
})  # fmt: skip
WRITES: Final = frozenset({
    "add_table", "add_promise", "add_tombstone", "add_lost", "set_state", "set_policy", "set_roots", "halt",
    "forget_table", "forget_promise", "forget", "ratify", "mark_published", "record", "settle", "keep",
    "_record_lost", "_set", "set_name", "set_catalog_properties",
})  # fmt: skip
OTHERS: Final = frozenset({
    "acquire", "release", "finish", "backfill", "_lock", "_unlock", "_draw", "_await", "_hand_back", "callback",
})  # fmt: skip
MEMORY: Final = frozenset({"append", "extend", "update", "sort", "add", "discard", "remember_lost"})
EFFECTS: Final = FILES | LEDGER | WRITES | OTHERS


def called(call: ast.Call) -> str:
    """The last part of the called function's name."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def calls(node: ast.AST) -> list[ast.Call]:
    """Every call in the node, without calls in functions that it only defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
        return []
    inner = [node] if isinstance(node, ast.Call) else []
    for child in ast.iter_child_nodes(node):
        inner += calls(child)
    return inner


def is_effect(statement: ast.stmt) -> bool:
    """Whether the statement is only a call, made for its effect. A call of the logger does not count."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    return not ast.unparse(statement.value.func).startswith("logger.")


def acts(statement: ast.stmt) -> bool:
    """Whether the statement has an effect outside the memory of this process."""
    return any(called(call) in EFFECTS or _replaces_a_file(call) for call in calls(statement))


def is_check(statement: ast.Expr) -> bool:
    """Whether the statement is a call that is made for its exceptions, like a guard."""
    return any(called(call).lstrip("_").startswith(("check", "refuse")) for call in calls(statement)[:1])


def remembers(statement: ast.Expr) -> bool:
    """Whether the statement changes only the memory of this process."""
    return any(called(call) in MEMORY for call in calls(statement)[:1])


def only_writes(statement: ast.stmt) -> bool:
    """Whether the statement only writes in a transaction that began elsewhere."""
    if any(isinstance(node, ast.With) for node in ast.walk(statement)):
        return False
    return all(called(call) in WRITES for call in calls(statement) if called(call) in EFFECTS or is_lock(call))


def _replaces_a_file(call: ast.Call) -> bool:
    return called(call) == "replace" and ast.unparse(call.func).endswith(("files.replace", "source.replace"))


def ends(statement: ast.stmt) -> bool:
    """Whether no later statement of the same body is reached."""
    return isinstance(statement, ast.Return | ast.Raise | ast.Break | ast.Continue)


def binds(statement: ast.stmt) -> set[str]:
    """Local names that get a value in the statement."""
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def is_lock(expression: ast.expr) -> bool:
    """Whether a `with` of this expression takes a lock."""
    return isinstance(expression, ast.Call) and called(expression).endswith("lock")


def transaction_of(item: ast.withitem) -> tuple[str, str] | None:
    """The name of the transaction that a `with` begins, and the SQL to begin it; None: it begins no transaction."""
    if not isinstance(item.context_expr, ast.Call) or item.optional_vars is None:
        return None
    kind = called(item.context_expr)
    bound = item.optional_vars.elts[0] if isinstance(item.optional_vars, ast.Tuple) else item.optional_vars
    if kind not in ("read", "write", "changing") or not isinstance(bound, ast.Name):
        return None
    return bound.id, "BEGIN" if kind == "read" else "BEGIN IMMEDIATE"


def writes_with(statement: ast.stmt, name: str, begin: str) -> bool:
    """Whether the statement writes in the transaction of this name. For a read transaction (by `begin`): whether it
    reads."""
    for call in calls(statement):
        uses = name in names_in(call.func) or any(name in names_in(arg) for arg in call.args)
        if uses and (begin == "BEGIN" or called(call) in WRITES or (name == "self" and called(call) == "execute")):
            return True
    return False
