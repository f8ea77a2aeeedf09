"""What a statement does, as far as its text tells: effects, locks, transactions, names."""

from __future__ import annotations

import ast
from typing import Final

FILES: Final = frozenset({
    "create", "write", "fsync", "fsync_directory", "make_directory", "link", "unlink", "remove_directory", "delete",
    "sync", "make_durable", "overwrite", "publish", "put_if_absent", "stage", "create_folders", "_write_durably",
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
    """The last name of what is called."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def calls(node: ast.AST) -> list[ast.Call]:
    """Every call in it, those of functions that it only defines left out."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
        return []
    found = [node] if isinstance(node, ast.Call) else []
    for child in ast.iter_child_nodes(node):
        found += calls(child)
    return found


def is_effect(statement: ast.stmt) -> bool:
    """Whether it is a call and nothing else: made for what it does. What is only logged is none."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    return not ast.unparse(statement.value.func).startswith("logger.")


def has_effect(statement: ast.stmt) -> bool:
    return is_effect(statement) or acts(statement)


def acts(statement: ast.stmt) -> bool:
    """Whether it does something outside of this process's memory."""
    return any(called(call) in EFFECTS or _replaces_a_file(call) for call in calls(statement))


def is_check(statement: ast.Expr) -> bool:
    """Whether it is called for what it raises: a guard, by another name."""
    return any(called(call).lstrip("_").startswith(("check", "refuse")) for call in calls(statement)[:1])


def remembers(statement: ast.Expr) -> bool:
    """Whether it changes only what this process remembers."""
    return any(called(call) in MEMORY for call in calls(statement)[:1])


def only_writes(statement: ast.stmt) -> bool:
    """Whether all that it does is to write in a transaction that others have begun."""
    if any(isinstance(node, ast.With) for node in ast.walk(statement)):
        return False
    return all(called(call) in WRITES for call in calls(statement) if called(call) in EFFECTS or is_lock(call))


def _replaces_a_file(call: ast.Call) -> bool:
    return called(call) == "replace" and ast.unparse(call.func).endswith(("files.replace", "source.replace"))


def ends(statement: ast.stmt) -> bool:
    """Whether nothing after it in its body is reached."""
    return isinstance(statement, ast.Return | ast.Raise | ast.Break | ast.Continue)


def binds(statement: ast.stmt) -> set[str]:
    """Local names that get a value in it."""
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def is_lock(expression: ast.expr) -> bool:
    """Whether a `with` of this takes a lock."""
    return isinstance(expression, ast.Call) and called(expression).endswith("lock")


def transaction_of(item: ast.withitem) -> tuple[str, str] | None:
    """The name of the transaction that a `with` begins, and how SQLite begins one; None: it begins none."""
    if not isinstance(item.context_expr, ast.Call) or item.optional_vars is None:
        return None
    kind = called(item.context_expr)
    bound = item.optional_vars.elts[0] if isinstance(item.optional_vars, ast.Tuple) else item.optional_vars
    if kind not in ("read", "write", "changing") or not isinstance(bound, ast.Name):
        return None
    return bound.id, "BEGIN" if kind == "read" else "BEGIN IMMEDIATE"


def writes_with(statement: ast.stmt, name: str, begin: str) -> bool:
    """Whether it writes in the transaction of this name; where one only reads (`begin` tells), whether it reads."""
    for call in calls(statement):
        uses = name in names_in(call.func) or any(name in names_in(each) for each in call.args)
        if uses and (begin == "BEGIN" or called(call) in WRITES or (name == "self" and called(call) == "execute")):
            return True
    return False
