"""A self-contained page from a template beside this module: its style, its data and its texts are put in."""

from __future__ import annotations

import html
from importlib.resources import files
from typing import Any

import msgspec


def filled(template: str, data: Any, **texts: str) -> str:
    """The HTML. `data` is for the script, as JSON; `texts` are shown as they are."""
    here = files("conformance.play")
    parts = {
        "style": (here / "page.css").read_text(encoding="utf-8"),
        "script": (here / "page.js").read_text(encoding="utf-8"),
        **{name: html.escape(text) for name, text in texts.items()},
        "data": msgspec.json.encode(data).decode().replace("</", "<\\/"),
    }
    page = (here / template).read_text(encoding="utf-8")
    for name, part in parts.items():
        page = page.replace(f"{{{{{name}}}}}", part)
    return page
