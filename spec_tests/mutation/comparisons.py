"""Which comparisons and steps of versions and states are changed, and into what."""

from __future__ import annotations

import ast
import re
from typing import Final

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
"""What is ordered besides: timestamps, turns. Limits of sizes, ages, names and waits are not."""
_STATE: Final = re.compile(r"\b(TableState|PromiseKind|CommitMode)\.[A-Z]")


SIGNS: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip


def matters(source: str) -> bool:
    """Whether a comparison or a step of this text is of versions, or of what is ordered like them."""
    return _ORDER.search(source) is not None or _STATE.search(source) is not None


def in_messages(statement: ast.stmt) -> set[int]:
    """The ids of the nodes in its formatted texts: what is only told there is nobody's version."""
    texts = [node for node in ast.walk(statement) if isinstance(node, ast.JoinedStr)]
    return {id(node) for text in texts for node in ast.walk(text)}


def other(node: ast.Compare, which: int, operator: ast.cmpop) -> type[ast.cmpop] | None:
    """What the comparison becomes; None: it is not one of those that matter."""
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
