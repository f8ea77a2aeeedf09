"""Times as people write them."""

from __future__ import annotations

import re
from typing import Final

from conformance.running.errors import UnusableError

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str, option: str) -> float:
    """`90`, `90s`, `1.5m`, `2h`. Raises `UnusableError`, which names the option."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not (value := float(found[1]) * _SECONDS[found[2]]):
        raise UnusableError(f"invalid {option} {text!r}; expected a time above zero, such as 60s, 500ms, 5m or 2h")
    return value
