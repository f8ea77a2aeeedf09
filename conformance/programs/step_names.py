"""Names of the kinds of steps in programs, for readers. Results and stored programs have the raw words."""

from collections.abc import Mapping
from typing import Final

NAMES: Final[Mapping[str, str]] = {
    "again": "table replaced",
    "audit": "all attempts repeated",
    "backfill": "backfill",
    "block": "foreign file at the next version",
    "checkpoint": "checkpoint",
    "checksum": "version checksum",
    "clean": "log cleanup",
    "commit": "commit",
    "compaction": "log compaction",
    "contend": "proposal of a taken version",
    "crash": "crash",
    "create": "create_table",
    "deliver": "late delivery",
    "disturbance": "interrupted requests",
    "drop": "drop_table",
    "filesystem": "filesystem table",
    "free": "freedom of the owner",
    "hand_back": "hand_back",
    "hint": "wrong _last_checkpoint",
    "land": "commits",
    "leftover": "left-over staged file",
    "load": "load_table",
    "look": "list files",
    "maintain": "maintenance",
    "make": "new table",
    "many": "several commits",
    "metadata": "metadata change",
    "misplace": "staged file missing",
    "policy": "maintenance_policy",
    "publish": "publication by a client",
    "read": "read",
    "recreate": "drop and create",
    "resend": "repeated request",
    "resolve": "attempt_outcome",
    "restart": "restart",
    "stray": "unrelated file",
    "take_over": "take_over",
    "together": "concurrent requests",
    "touch": "changed file times",
    "transact": "transaction",
    "transfer": "take-over or hand-back",
    "unknown": "request for an unknown table",
    "win": "another writer commits",
    "write": "filesystem commit",
}
LONG: Final = "heavy: "
"""The beginning of a word that takes long, before its title."""


def step_name(word: str) -> str:
    """The name of a word; a word of another version of the kit names itself."""
    return NAMES.get(word, word.removeprefix(LONG))
