"""Who may call: bearer tokens, of which only a hash is kept, with a scope each.

The file `_owner/tokens.json` is read for every request, so that a token that is added or removed counts at once
in every server of the warehouse. A token has 256 random bits: a plain hash of it cannot be searched.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec

from refimpl.environment import Environment
from refimpl.errors import InvalidRequestError
from refimpl.server.errors import ApiError

FILE_NAME: Final = "tokens.json"
PREFIX: Final = "dco_"
"""So that people and scanners see what it is."""


class Scope(Enum):
    """What a token allows. Whoever may write may read."""

    READ = "read"
    WRITE = "write"

    def allows(self, wanted: Scope) -> bool:
        return self is Scope.WRITE or wanted is Scope.READ


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a token. `added_at` in ms since the epoch."""

    name: str
    sha256: str
    scope: Scope
    added_at: int


class Tokens:
    """The tokens of one warehouse, in the owner's folder."""

    def __init__(self, folder: Path, environment: Environment) -> None:
        self.path = folder / FILE_NAME
        self._environment = environment
        self._seen: bytes | None = None
        self._loaded: tuple[Token, ...] = ()

    def all(self) -> tuple[Token, ...]:
        """The tokens as the file has them now. `InvalidRequestError` for a file that is none: nobody gets in by it."""
        try:
            content = self._environment.files.read(self.path)
        except FileNotFoundError:
            return ()
        if content != self._seen:
            try:
                self._loaded = msgspec.json.decode(content, type=tuple[Token, ...])
            except msgspec.DecodeError as error:
                raise InvalidRequestError(f"{self.path} does not hold tokens; restore or remove it") from error
            self._seen = content
        return self._loaded

    def holder(self, presented: str) -> Token | None:
        """Whose token this is. Takes as long for a wrong one as for a right one."""
        digest = hashlib.sha256(presented.encode("utf-8", "surrogatepass")).hexdigest()
        found: Token | None = None
        for token in self.all():
            if hmac.compare_digest(token.sha256, digest):
                found = token
        return found


def authorized(tokens: Tokens, authorization: str | None, wanted: Scope) -> str | None:
    """The name of the caller's token; None where the warehouse has none and everybody may call.

    Raises `ApiError`: 401 for no token or an unknown one, 403 for one that does not allow this.
    """
    if not tokens.all():
        return None
    scheme, _, presented = (authorization or "").partition(" ")
    token = tokens.holder(presented.strip()) if scheme.lower() == "bearer" else None
    if token is None:
        raise ApiError(HTTPStatus.UNAUTHORIZED, "NotAuthorizedException", "a valid bearer token is needed")
    if not token.scope.allows(wanted):
        raise ApiError(
            HTTPStatus.FORBIDDEN,
            "PermissionDeniedException",
            f"the token {token.name!r} may {token.scope.value}; this call needs {wanted.value}",
        )
    return token.name


def new_secret() -> str:
    """A token as its holder keeps it: shown once, stored nowhere."""
    return PREFIX + secrets.token_urlsafe(32)
