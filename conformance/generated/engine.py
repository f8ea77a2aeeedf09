"""How Hypothesis draws, for the kit: from the seed alone.

Its own way prefers, among others, numbers that it finds in the source of whatever modules are loaded, keeps them in a
folder `.hypothesis` where the kit was started, and makes every other program out of an earlier one. A run must not
depend on what else is loaded nor leave anything behind, and has few programs to spare. Alternative backends are an
extension point that Hypothesis documents and calls unstable; the kit's tests hold it to both.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

NAME: Final = "delta-commit-conformance"


class SeedAlone(HypothesisProvider):
    """Draws as Hypothesis does, without constants."""

    def _maybe_draw_constant(self, *_: Any, **__: Any) -> None:
        return None


def register() -> str:
    """The name under which settings find it."""
    AVAILABLE_PROVIDERS[NAME] = f"{SeedAlone.__module__}.{SeedAlone.__name__}"
    return NAME
