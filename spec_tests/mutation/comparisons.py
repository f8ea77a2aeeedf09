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
_STATE: Final = re.compile(r"\b(TableState|PromiseKind|Way)\.[A-Z]")


SIGNS: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip


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
