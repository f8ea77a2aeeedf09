"""Where the server is, and which of its schemas the kit may fill with tables."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

TOKEN_VARIABLE: Final = "UC_TOKEN"
FORM: Final = "uc:URL?catalog=C&schema=S"
BASE: Final = "/api/2.1/unity-catalog/delta/v1"
"""Where the Delta API begins."""

_OPTIONS: Final = ("catalog", "schema", "name", "version", "without")


class AddressError(Exception):
    """The name of the subject says no server. `problem` tells why, and nothing that may be a token."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __reduce__(self) -> tuple[type[AddressError], tuple[str]]:
        return type(self), (self.problem,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A schema of a catalog of a server. The token is in no text of it."""

    server: str
    catalog: str
    schema: str
    token: str | None = field(default=None, repr=False)
    name: str = "uc-delta-api"
    """What reports call the subject."""
    version: str | None = None
    """Of the server, for reports; None: the version of the protocol, which is all that a server tells."""
    without: tuple[str, ...] = ()
    """Profiles that the server does not promise."""

    @property
    def tables(self) -> str:
        """The path of the schema's tables in the Delta API."""
        return f"{self.schema_path}/tables"

    @property
    def schema_path(self) -> str:
        catalog, schema = quote(self.catalog, safe=""), quote(self.schema, safe="")
        return f"{urlsplit(self.server).path.rstrip('/')}{BASE}/catalogs/{catalog}/schemas/{schema}"

    @property
    def config(self) -> str:
        path = urlsplit(self.server).path.rstrip("/")
        return f"{path}{BASE}/config?catalog={quote(self.catalog, safe='')}&protocol-versions=1.0"


def address_of(rest: str) -> Address:
    """What stands behind `uc:`. Raises `AddressError`."""
    try:
        parts = urlsplit(rest if "://" in rest else f"http://{rest.removeprefix('//')}")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise AddressError(f"this is no URL of a server: {str(error).lower()}; a subject is {FORM}") from error
    if "@" in parts.netloc:
        raise AddressError(f"a subject's name is in reports: the token is given in ${TOKEN_VARIABLE}, not in the URL")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "token" in given:
        raise AddressError(f"a subject's name is in reports: the token is given in ${TOKEN_VARIABLE}, not in an option")
    if not usable:
        server = rest.partition("?")[0]
        raise AddressError(f"{server!r} is no URL of a server; a subject is {FORM}, with http://127.0.0.1:8080 as URL")
    unknown = [name for name in given if name not in _OPTIONS]
    if unknown:
        raise AddressError(f"{unknown[0]!r} is no option of {FORM}; options are {', '.join(_OPTIONS)}")
    missing = [name for name in ("catalog", "schema") if not given.get(name)]
    if missing:
        raise AddressError(f"`{missing[0]}` is missing: a subject is {FORM}")
    return Address(
        server=urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", "")),
        catalog=given["catalog"],
        schema=given["schema"],
        token=os.environ.get(TOKEN_VARIABLE) or None,
        name=given.get("name") or "uc-delta-api",
        version=given.get("version") or None,
        without=tuple(each for each in given.get("without", "").split(",") if each),
    )
