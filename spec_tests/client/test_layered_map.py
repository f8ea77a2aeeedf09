"""An immutable mapping. A new version of it costs only the changed keys."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.client.table_state import LayeredMap

steady = settings(deadline=None, derandomize=True)
KEYS = st.integers(0, 30)
CHANGES = st.dictionaries(KEYS, st.none() | st.integers())


@steady
@given(st.lists(CHANGES), st.lists(st.booleans()))
def test_a_layered_map_equals_a_dictionary_at_each_version(
    steps: list[dict[int, int | None]], looks: list[bool]
) -> None:
    model: dict[int, int] = {}
    layered: LayeredMap[int, int] = LayeredMap()
    past: list[tuple[LayeredMap[int, int], dict[int, int]]] = []
    for number, changes in enumerate(steps):
        past.append((layered, dict(model)))
        layered = layered.updated(changes)
        for key, value in changes.items():
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value
        assert len(layered) == len(model)
        if looks[number : number + 1] == [True]:
            assert dict(layered) == model
        for key in range(31):
            assert layered.get(key) == model.get(key)
            assert (key in layered) == (key in model)
    for before, expected in [*past, (layered, model)]:
        assert dict(before.items()) == expected
        assert set(before) == set(before.keys()) == set(expected)
        assert sorted(before.values()) == sorted(expected.values())


def test_a_missing_key_is_a_key_error() -> None:
    layered: LayeredMap[str, int] = LayeredMap[str, int]().updated({"a": 1})
    assert layered["a"] == 1
    with pytest.raises(KeyError):
        layered.updated({"a": None})["a"]


def test_an_update_without_changes_returns_the_same_map() -> None:
    layered: LayeredMap[str, int] = LayeredMap[str, int]().updated({"a": 1})
    assert layered.updated({}) is layered
