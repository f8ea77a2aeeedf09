"""Errors of the API: a status, one of the documented types, a message.

UNITY_CATALOG.md#errors. The status is a promise to the client: 409 says that the commit has not landed and a rebase may
help, 400 that it never will, 429 and 503 that nothing landed and the same request may succeed later, 500 that the
outcome is unknown and the identical request may be sent again.
"""

from http import HTTPStatus
from typing import Final

import msgspec

from refimpl.catalog.messages import ErrorAnswer, ErrorBody, LoadedTable
from refimpl.catalog.owner import Precondition, PreconditionFailed
from refimpl.protocol import errors
from refimpl.protocol.commits import Rejected, RejectionReason


class ApiError(Exception):
    """A request that is answered with an error. Nothing was changed, unless the status is 500."""

    def __init__(self, status: HTTPStatus, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message

    @property
    def answer(self) -> ErrorAnswer:
        return ErrorAnswer(error=ErrorBody(message=self.message, type=self.kind, code=int(self.status)))


def bad_request(message: str) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, "InvalidParameterValueException", message)


def requirement_conflict(message: str) -> ApiError:
    return ApiError(HTTPStatus.CONFLICT, "UpdateRequirementConflictException", message)


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
        return ErrorAnswer(error=super().answer.error, table=self.table)


def already_exists(message: str) -> ApiError:
    return ApiError(HTTPStatus.CONFLICT, "AlreadyExistsException", message)


def no_such_catalog(name: str) -> ApiError:
    return ApiError(HTTPStatus.NOT_FOUND, "NoSuchCatalogException", f"Catalog not found: {name}")


def no_such_schema(name: str) -> ApiError:
    return ApiError(HTTPStatus.NOT_FOUND, "NoSuchSchemaException", f"Schema not found: {name}")


def no_such_table(name: str) -> ApiError:
    return ApiError(HTTPStatus.NOT_FOUND, "NoSuchTableException", f"Table not found: {name}")


def not_found(message: str) -> ApiError:
    return ApiError(HTTPStatus.NOT_FOUND, "NotFoundException", message)


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


def of_owner(error: errors.DeltaError) -> ApiError:
    """The answer for an error of the owner. Its text contains only paths, names and numbers."""
    match error:
        case errors.TableNotFoundError():
            return ApiError(HTTPStatus.NOT_FOUND, "NoSuchTableException", error.message)
        case errors.NameTakenError():
            return already_exists(error.message)
        case errors.InvalidRequestError():
            return bad_request(error.message)
        case errors.OutcomeUnknown():
            return ApiError(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "CommitStateUnknownException",
                f"{error.message}; or send the identical request again, which is safe",
            )
        case errors.OwnerUnavailableError():
            return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "InternalServerErrorException", error.message)
        case errors.CorruptionError():
            return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerErrorException", error.message)
    return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerErrorException", error.message)
