"""How long a table keeps removed files in its checkpoints, and old log files: two of its properties."""

from __future__ import annotations

import re
from typing import Final

from refimpl.actions import Metadata
from refimpl.errors import InvalidTableError

DELETED_FILES: Final = "delta.deletedFileRetentionDuration"
LOG: Final = "delta.logRetentionDuration"

_MILLISECONDS: Final = {
    "week": 604_800_000,
    "day": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1_000,
    "millisecond": 1,
}
"""Months and years have no fixed length; Delta refuses them too."""
_DEFAULTS: Final = {DELETED_FILES: 7 * _MILLISECONDS["day"], LOG: 30 * _MILLISECONDS["day"]}
_PART: Final = re.compile(r"\s*(\d+)\s+(week|day|hour|minute|second|millisecond)s?(?=\s|$)", re.IGNORECASE | re.ASCII)


def retention(metadata: Metadata, property_name: str) -> int:
    """The duration in ms; Delta's default where the table says nothing. Raises `InvalidTableError`."""
    text = metadata.configuration.get(property_name)
    return _DEFAULTS[property_name] if text is None else duration(property_name, text)


def duration(property_name: str, text: str) -> int:
    """ms. Raises `InvalidTableError` for a text that is no interval such as `interval 2 days 12 hours`."""
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    total, position = 0, 0
    for part in _PART.finditer(rest):
        if part.start() != position:
            break
        total += int(part[1]) * _MILLISECONDS[part[2].lower()]
        position = part.end()
    if position == 0 or rest[position:].strip():
        raise InvalidTableError(
            f"invalid {property_name} {text!r}; expected a duration such as 'interval 7 days'", property=property_name
        )
    return total
