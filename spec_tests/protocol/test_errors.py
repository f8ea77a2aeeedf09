"""Errors have facts, and can be sent to another process without loss."""

import copy
import pickle

import pytest

from refimpl.protocol import errors
from refimpl.protocol.errors import DeltaError

KINDS = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DeltaError)),
    key=lambda kind: kind.__name__,
)


def test_every_error_can_be_pickled() -> None:
    made = [kind("version 3 is taken", version=3, path="a/b") for kind in KINDS]
    twins = [twin for error in made for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error))]  # noqa: S301
    for number, twin in enumerate(twins):
        assert type(twin) is KINDS[number // 2]
        assert str(twin) == "version 3 is taken"
        assert (twin.version, twin.path, twin.facts) == (3, "a/b", {"version": 3, "path": "a/b"})


def test_missing_fact_is_no_attribute() -> None:
    error = DeltaError("x", version=3)
    assert error.version == 3
    with pytest.raises(AttributeError):
        _ = error.attempt


def test_error_classes_differ_by_the_reaction_of_the_caller() -> None:
    """As in the table of the module: each reaction is one branch of the hierarchy, and no error is in two branches."""
    branches = (
        errors.InvalidRequestError,
        errors.LostRaceError,
        errors.ConcurrentModificationError,
        errors.OutcomeUnknown,
        errors.OwnerUnavailableError,
        errors.CorruptionError,
    )
    for kind in KINDS:
        if kind is not DeltaError:
            assert sum(issubclass(kind, branch) for branch in branches) == 1, kind
