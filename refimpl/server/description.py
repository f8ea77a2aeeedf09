"""The server's OpenAPI document, made from its routes and the shapes of its messages."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from refimpl import __version__
from refimpl.server.errors import ErrorAnswer
from refimpl.server.routes import DELTA_BASE, DELTA_ROUTES, LEGACY_BASE, LEGACY_ROUTES, ApiRoute

_REFERENCE: Final = "#/components/schemas/{name}"
_COMMON: Final = (400, 401, 403, 405, 500, 503)
_WITH_BODY: Final = (408, 413, 429)
_TEXTS: Final = {
    400: "Rejected: a retry cannot succeed",
    401: "A token is needed",
    403: "The token does not allow this",
    404: "No such catalog, schema or table",
    405: "No such method here",
    408: "The body came too slowly",
    409: "Somebody else was first: load the table again",
    413: "The body is too large",
    429: "Too many commits wait to be published",
    500: "The outcome is not known: the identical request may be sent again",
    503: "Not now; nothing was changed",
}


def description() -> dict[str, Any]:
    """The document. Every call that the API has is in it, with every status that it answers."""
    routes = [(DELTA_BASE, route) for route in DELTA_ROUTES] + [(LEGACY_BASE, route) for route in LEGACY_ROUTES]
    shapes = [route.body for _, route in routes if route.body is not None]
    _, components = msgspec.json.schema_components([*shapes, ErrorAnswer], ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for base, route in routes:
        paths.setdefault(base + route.path, {})[route.method.lower()] = _operation(base, route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "A commit owner that speaks Unity Catalog's Delta API",
            "version": __version__,
            "description": "The calls that Delta clients make to commit to catalog-managed tables.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(base: str, route: ApiRoute) -> dict[str, Any]:
    parts = re.findall(r"\{(\w+)\}", route.path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in parts]
    parameters += [
        {
            "name": name,
            "in": "query",
            "required": name in route.required,
            "schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999}
            if name == "max_results"
            else {"type": "string"},
        }
        for name in route.query
    ]
    operation: dict[str, Any] = {
        "operationId": ("" if base == DELTA_BASE else "legacy-") + route.name,
        "summary": route.summary,
        "parameters": parameters,
        "responses": _responses(route),
    }
    if route.body is not None:
        schema = {"$ref": _REFERENCE.format(name=route.body.__name__)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _responses(route: ApiRoute) -> dict[str, Any]:
    done: dict[str, Any] = {"description": "Done"}
    if route.status != 204:
        done["content"] = {"application/json": {"schema": {"type": "object"}}}
    refusals = {*_COMMON, *route.refusals, *(_WITH_BODY if route.body is not None else ())}
    error: dict[str, Any] = {"application/json": {"schema": {"$ref": _REFERENCE.format(name="ErrorAnswer")}}}
    return {str(route.status): done} | {
        str(code): {"description": _TEXTS[code]} | ({} if route.method == "HEAD" else {"content": error})
        for code in sorted(refusals)
    }
