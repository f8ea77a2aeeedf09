"""Errors of the API: a status, one of the documented types, a message.

UNITY_CATALOG.md#errors. The status is a promise to the client: 409 says that the commit has not landed and a rebase may
help, 400 that it never will, 429 and 503 that nothing landed and the same request may succeed later, 500 that the
outcome is unknown and the identical request may be sent again.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from refimpl.catalog.messages import UNSUPPORTED_FORMAT, ErrorAnswer, ErrorBody, LoadedTable
from refimpl.catalog.owner import Precondition, PreconditionFailed
from refimpl.protocol import errors
from refimpl.protocol.commits import Rejected, RejectionReason

_HEADERS: Final = {
    HTTPStatus.UNAUTHORIZED: {"www-authenticate": "Bearer"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"retry-after": "1"},
    HTTPStatus.TOO_MANY_REQUESTS: {"retry-after": "1"},
}


class ApiError(Exception):
    """A request that is answered with an error. Nothing was changed, unless the status is 500."""

    def __init__(self, status: HTTPStatus, kind: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.headers = _HEADERS.get(status, {}) if headers is None else headers
        self.member: int | msgspec.UnsetType = msgspec.UNSET
        """The index of the table change that decided a transaction."""

    @property
    def answer(self) -> ErrorAnswer:
        body = ErrorBody(message=self.message, type=self.kind, code=int(self.status))
        return ErrorAnswer(error=body, member=self.member)


def _kind(status: HTTPStatus, kind: str, text: str = "{}") -> Callable[[str], ApiError]:
    return lambda what: ApiError(status, kind, text.format(what))


bad_request = _kind(HTTPStatus.BAD_REQUEST, "InvalidParameterValueException")
requirement_conflict = _kind(HTTPStatus.CONFLICT, "UpdateRequirementConflictException")
already_exists = _kind(HTTPStatus.CONFLICT, "AlreadyExistsException")
no_such_catalog = _kind(HTTPStatus.NOT_FOUND, "NoSuchCatalogException", "Catalog not found: {}")
no_such_schema = _kind(HTTPStatus.NOT_FOUND, "NoSuchSchemaException", "Schema not found: {}")
no_such_table = _kind(HTTPStatus.NOT_FOUND, "NoSuchTableException", "Table not found: {}")
unsupported_format = _kind(HTTPStatus.BAD_REQUEST, UNSUPPORTED_FORMAT, "{}; this API serves catalog-managed tables")
not_found = _kind(HTTPStatus.NOT_FOUND, "NotFoundException")


class VersionConflictError(ApiError):
    """409: the proposed version is taken; `latest` is the table's latest one. `table`: the answer to a load now."""

    def __init__(self, latest: int, table: LoadedTable | msgspec.UnsetType = msgspec.UNSET) -> None:
        super().__init__(
            HTTPStatus.CONFLICT,
            "CommitVersionConflictException",
            f"Commit version already accepted. Current table version is {latest}",
        )
        self.latest = latest
        self.table = table

    @property
    def answer(self) -> ErrorAnswer:
        return msgspec.structs.replace(super().answer, table=self.table)


_REJECTIONS: Final = {
    RejectionReason.BACKLOG_FULL: (HTTPStatus.TOO_MANY_REQUESTS, "ResourceExhaustedException"),
    RejectionReason.ATTEMPT_RESOLVED: (HTTPStatus.CONFLICT, "UpdateRequirementConflictException"),
    RejectionReason.NOT_ACTIVE: (HTTPStatus.NOT_FOUND, "NoSuchTableException"),
}


def of_rejection(rejected: Rejected) -> ApiError:
    """The error for a rejection other than a lost race: 400, unless the client can react to another status."""
    status, kind = _REJECTIONS.get(rejected.reason, (HTTPStatus.BAD_REQUEST, "InvalidParameterValueException"))
    return ApiError(status, kind, rejected.detail)


def of_failed_precondition(failed: PreconditionFailed) -> ApiError:
    return (
        requirement_conflict(failed.detail) if failed.precondition is Precondition.ETAG else bad_request(failed.detail)
    )


_OF_OWNER: Final = (
    (errors.TableNotFoundError, HTTPStatus.NOT_FOUND, "NoSuchTableException"),
    (errors.NameTakenError, HTTPStatus.CONFLICT, "AlreadyExistsException"),
    (errors.InvalidRequestError, HTTPStatus.BAD_REQUEST, "InvalidParameterValueException"),
    (errors.OutcomeUnknown, HTTPStatus.INTERNAL_SERVER_ERROR, "CommitStateUnknownException"),
    (errors.OwnerUnavailableError, HTTPStatus.SERVICE_UNAVAILABLE, "InternalServerErrorException"),
    (errors.DeltaError, HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerErrorException"),
)


def of_owner(error: errors.DeltaError) -> ApiError:
    """The answer for an error of the owner. Its text contains only paths, names and numbers."""
    status, kind = next((status, kind) for known, status, kind in _OF_OWNER if isinstance(error, known))
    advice = "; or send the identical request again, which is safe" if isinstance(error, errors.OutcomeUnknown) else ""
    return ApiError(status, kind, error.message + advice)
