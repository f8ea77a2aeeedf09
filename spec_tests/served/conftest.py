"""The warehouse and the tables of the owner's tests."""

from spec_tests.owner.conftest import delayed, table, warehouse

__all__ = ["delayed", "table", "warehouse"]
