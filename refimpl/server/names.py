"""The mapping between the API's three-part names and the owner's names.

The server has one catalog. Its schema `default` holds the owner's tables with one-part names, and the schema `s`
those called `s.<table>`. Tables with three-part names, or with two-part names that begin with `default`, are not in the
API: they are for local use.
"""

import re
from collections.abc import Iterable
from typing import Final

from refimpl.catalog.messages import DEFAULT_SCHEMA
from refimpl.protocol.errors import InvalidRequestError
from refimpl.server.errors import bad_request, no_such_catalog, no_such_schema, no_such_table

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
MAX_LENGTH: Final = 255


class Names:
    """The names of one server. `schemas`: those that exist even without tables.

    `InvalidRequestError` for an invalid name of a catalog or schema.
    """

    def __init__(self, catalog: str, schemas: Iterable[str] = ()) -> None:
        for name in (catalog, *schemas):
            if not is_identifier(name):
                raise InvalidRequestError(f"invalid name {name!r}; expected at most {MAX_LENGTH} letters, digits and _")
        self.catalog = catalog
        self.declared = frozenset({DEFAULT_SCHEMA, *schemas})

    def check_catalog(self, catalog: str) -> None:
        if catalog != self.catalog:
            raise no_such_catalog(catalog)

    def schemas(self, tables: Iterable[str]) -> list[str]:
        """All schemas, given the owner's names of its tables."""
        return sorted(self.declared | {parts[0] for name in tables if (parts := parts_of(name)) is not None})

    def check_schema(self, catalog: str, schema: str, tables: Iterable[str]) -> None:
        self.check_catalog(catalog)
        if schema not in self.declared and schema not in self.schemas(tables):
            raise no_such_schema(f"{catalog}.{schema}")

    def owner_name(self, catalog: str, schema: str, table: str) -> str:
        """The owner's name of an existing table; 404 for a name that no table can have."""
        self.check_catalog(catalog)
        if not is_identifier(schema):
            raise no_such_schema(f"{catalog}.{schema}")
        if not is_identifier(table):
            raise no_such_table(f"{catalog}.{schema}.{table}")
        return table if schema == DEFAULT_SCHEMA else f"{schema}.{table}"

    def new_owner_name(self, schema: str, table: str) -> str:
        """The owner's name of a new table."""
        if not is_identifier(table):
            raise bad_request(
                f"invalid table name {table!r}; expected letters, digits and _, at most {MAX_LENGTH} characters"
            )
        return table if schema == DEFAULT_SCHEMA else f"{schema}.{table}"


def parts_of(owner_name: str) -> tuple[str, str] | None:
    """Schema and table of an owner's name, or None for one that the API cannot express."""
    match owner_name.split("."):
        case [table]:
            return DEFAULT_SCHEMA, table
        case [schema, table] if schema != DEFAULT_SCHEMA:
            return schema, table
    return None


def is_identifier(name: str) -> bool:
    return len(name) <= MAX_LENGTH and _IDENTIFIER.fullmatch(name) is not None
