"""The pinned programs: short titled programs for what random programs rarely reach, in a file for each family.

    [{"format": 2, "side": "owner", "family": "content-of-commits", "seed": 9, "title": "load_table returns the newest
      metadata", "requirements": ["PROFILE-DISCOVERY-03"], "words": ["load"], "steps": [{"type": "create"}]}]

They contain no answers: the oracle judges them like any other program. `words` are the kinds of steps whose profiles a
subject needs.
"""

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import msgspec

FOLDER: Final = files(__name__)
CHECKS: Final = "pinned_programs_of_"
"""The beginning of the names of their checks."""


def is_of_pinned(check: str) -> bool:
    """Whether the check of that name runs pinned programs."""
    return check.startswith(CHECKS.replace("_", "-"))


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """What the catalogue of checks needs to know about a pinned program. Its steps are read when it is run."""

    side: str
    title: str
    requirements: tuple[str, ...]
    words: tuple[str, ...] = ()


def texts(family: str, side: str, folder: Traversable = FOLDER) -> Iterator[str]:
    """The texts of the family's programs for that side, and of whatever else its file contains."""
    file = folder / f"{family}.json"
    if not file.is_file():
        return
    try:
        entries = msgspec.json.decode(file.read_bytes(), type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError):
        yield f"{file.name} is not a list of programs"
        return
    for entry in entries:
        text = bytes(entry).decode()
        label = labelled(text)
        if label is None or label.side == side:
            yield text


def labelled(text: str) -> Label | None:
    """None if the text is not a program."""
    try:
        return msgspec.json.decode(text, type=Label)
    except msgspec.DecodeError:
        return None
