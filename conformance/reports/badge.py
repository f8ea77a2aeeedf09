"""A badge: what a shields.io endpoint serves."""

from __future__ import annotations

import json
from typing import Final

from conformance.reports.summary import Tone, summarise
from conformance.results import RunResult

LABEL: Final = "delta conformance"
COLOURS: Final = {Tone.GOOD: "brightgreen", Tone.WARNING: "yellow", Tone.BAD: "red", Tone.UNKNOWN: "lightgrey"}


def to_badge(result: RunResult) -> str:
    """JSON of the endpoint schema, version 1. `isError` keeps a page from colouring a bad result by itself."""
    summary = summarise(result)
    badge = {
        "schemaVersion": 1,
        "label": LABEL,
        "message": summary.short,
        "color": COLOURS[summary.tone],
        "isError": summary.tone in (Tone.BAD, Tone.UNKNOWN),
    }
    return json.dumps(badge, indent=1) + "\n"
