"""Values as JSON, also those that hold half a character: a subject in the kit's own process may answer with one."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

_HALF: Final = re.compile("[\ud800-\udfff]")


def encode(value: Any) -> bytes:
    """JSON without line breaks. What UTF-8 cannot write, a lone surrogate, becomes the text of its escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_whole(msgspec.to_builtins(value)))


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return _HALF.sub(lambda found: f"\\u{ord(found[0]):04x}", value)
    if isinstance(value, dict):
        return {_whole(key): _whole(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(each) for each in value]
    return value
