"""Text that a subject may have chosen: written as JSON, and shown without being obeyed."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)
"""Characters that XML forbids, that cannot be written as UTF-8, or that make a text look like another one."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with an escape in the place of every character that cannot be seen. New lines and tabs are kept."""
    return _HIDDEN.sub(_escaped, text)


def writable(text: str) -> str:
    """The text with an escape in the place of what UTF-8 cannot write, a lone surrogate."""
    return _SURROGATE.sub(_escaped, text)


def one_line(text: str) -> str:
    """Visible, and without line breaks."""
    return " ".join(visible(text).split())


def to_json(value: Any) -> bytes:
    """JSON without line breaks, of `writable` texts: a subject in the kit's own process may answer with half a
    character."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_writable(msgspec.to_builtins(value)))


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return writable(value)
    if isinstance(value, dict):
        return {_writable(key): _writable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(each) for each in value]
    return value


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
