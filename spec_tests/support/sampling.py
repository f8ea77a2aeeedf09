"""Samples of slow cases. The other cases have the mark `longer`."""

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet


def sampled(values: Iterable[object], every: int) -> list[ParameterSet]:
    """The values as parameters; all except every so many of them have the mark `longer`."""
    return [
        pytest.param(value, marks=() if number % every == 0 else pytest.mark.longer)
        for number, value in enumerate(values)
    ]
