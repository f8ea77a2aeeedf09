"""Access control: bearer tokens, each with a scope; only their hashes are stored.

The server reads the file `_owner/tokens.json` for every request, so adding or removing a token takes effect at once
in every server of the warehouse. A token has 256 random bits, so its plain hash cannot be reversed by a search.
"""

import hashlib
import hmac
import re
import secrets
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import msgspec

from refimpl.catalog.messages import is_loopback
from refimpl.protocol.errors import InvalidRequestError, OwnerUnavailableError
from refimpl.server.errors import ApiError
from refimpl.storage.locations import OWNER_FOLDER
from refimpl.warehouse import Warehouse

FILE_NAME: Final = "tokens.json"
PREFIX: Final = "dco_"
"""The prefix by which people and secret scanners recognize a token."""


_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class Scope(Enum):
    """What a token allows. Write includes read."""

    READ = "read"
    WRITE = "write"

    def allows(self, wanted: "Scope") -> bool:
        return self is Scope.WRITE or wanted is Scope.READ


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """The stored data of a token. Times in ms since the epoch; `expires_at` None: never."""

    name: str
    sha256: str
    scope: Scope
    added_at: int
    expires_at: int | None = None


class Tokens:
    """The tokens of one warehouse, in the owner's folder."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.path = warehouse.directory / OWNER_FOLDER / FILE_NAME
        self._lock = warehouse.lock
        self._environment = warehouse.environment

    def all(self) -> tuple[Token, ...]:
        """The tokens that are in the file now. `OwnerUnavailableError` for an invalid or unreadable file, so that every
        request is rejected."""
        try:
            content = self._environment.files.read(self.path)
        except FileNotFoundError:
            return ()
        except OSError as error:
            message = (
                f"{FILE_NAME} cannot be read ({error.strerror}): the server rejects every request until it is readable"
            )
            raise OwnerUnavailableError(message) from error
        try:
            return _decoded(content)
        except msgspec.DecodeError as error:
            raise OwnerUnavailableError(f"{FILE_NAME} is not a valid token file; restore or remove it") from error

    def add(self, name: str, scope: Scope, *, valid_ms: int | None = None) -> str:
        """Create a token of this name and return it; only its hash is stored. `valid_ms`: its lifetime.

        Raises `InvalidRequestError` for a name that is taken or invalid.
        """
        if _NAME.fullmatch(name) is None:
            raise InvalidRequestError(
                f"invalid token name {name!r}; expected at most 64 letters, digits, - and _", name=name
            )
        with self._lock():
            known = self.all()
            if any(token.name == name for token in known):
                raise InvalidRequestError(f"a token {name!r} already exists; remove it first, or choose another name")
            secret = PREFIX + secrets.token_urlsafe(32)
            now = self._environment.now()
            expires_at = None if valid_ms is None else now + valid_ms
            added = Token(name=name, sha256=_digest(secret), scope=scope, added_at=now, expires_at=expires_at)
            self._store((*known, added))
        return secret

    def remove(self, name: str) -> None:
        """Reject this token from now on. `InvalidRequestError` for an unknown name."""
        with self._lock():
            known = self.all()
            kept = tuple(token for token in known if token.name != name)
            if len(kept) == len(known):
                names = ", ".join(token.name for token in known) or "none"
                raise InvalidRequestError(f"unknown token {name!r}; existing tokens: {names}", name=name)
            self._store(kept)

    def _store(self, tokens: tuple[Token, ...]) -> None:
        """Order: remove the temporary files of processes that died, write a temporary file that only its owner reads,
        fsync it, rename it, fsync the directory. The caller holds the lock."""
        files = self._environment.files
        temporary = self.path.with_name(f".{FILE_NAME}.{self._environment.new_id()}")
        try:
            for entry in files.list_directory(self.path.parent):
                if entry.name.startswith(f".{FILE_NAME}."):
                    files.unlink(self.path.with_name(entry.name))
            with files.create(temporary) as file:
                temporary.chmod(0o600)
                file.write(msgspec.json.encode(tokens))
                file.fsync()
            files.replace(temporary, self.path)
            files.fsync_directory(self.path.parent)
        except OSError as error:
            raise OwnerUnavailableError(
                f"cannot store tokens in {self.path}: {error}; the change may be lost: see commit-owner token list"
            ) from error

    def has_expired(self, token: Token) -> bool:
        return token.expires_at is not None and token.expires_at <= self._environment.now()

    def holder(self, presented: str) -> Token | None:
        """The stored token that matches, or None. Takes equally long for a valid and an invalid one."""
        digest = _digest(presented)
        match: Token | None = None
        for token in self.all():
            if hmac.compare_digest(token.sha256, digest):
                match = token
        return match


@lru_cache(maxsize=16)
def _decoded(content: bytes) -> tuple[Token, ...]:
    return msgspec.json.decode(content, type=tuple[Token, ...])


def authorize(tokens: Tokens, authorization: str | None, wanted: Scope, *, always: bool) -> str | None:
    """The name of the caller's token; None if the warehouse has no tokens and accepts all callers.

    `always`: require a token even then, because other machines can reach the server.
    Raises `ApiError`: 401 for a missing, unknown or expired token, 403 for one that does not allow this.
    """
    if not always and not tokens.all():
        return None
    scheme, _, presented = (authorization or "").partition(" ")
    token = tokens.holder(presented.strip()) if scheme.lower() == "bearer" else None
    if token is None:
        raise ApiError(HTTPStatus.UNAUTHORIZED, "NotAuthorizedException", "a valid bearer token is required")
    if tokens.has_expired(token):
        message = f"the token {token.name!r} has expired; create another one: commit-owner token add NAME"
        raise ApiError(HTTPStatus.UNAUTHORIZED, "NotAuthorizedException", message)
    if not token.scope.allows(wanted):
        raise ApiError(
            HTTPStatus.FORBIDDEN,
            "PermissionDeniedException",
            f"the token {token.name!r} may {token.scope.value}; this call needs {wanted.value}",
        )
    return token.name


def refuse_foreign_page(host: str | None, origin: str | None) -> None:
    """403 for a request that only a browser sends, on behalf of a foreign web page.

    Without tokens the server trusts every client on this machine, so also its browser, and any page can make the
    browser send requests here: with the page's name in `Host` (once that name resolves to this machine), or in
    `Origin`.
    """
    for named in (host, None if origin is None else origin.partition("://")[2] or origin):
        if named is None:
            continue
        try:
            name = urlsplit(f"//{named}").hostname
        except ValueError:
            name = None
        if name is None or not is_loopback(name):
            raise ApiError(
                HTTPStatus.FORBIDDEN,
                "PermissionDeniedException",
                "without a token the server accepts only requests to a loopback address; use "
                "http://127.0.0.1, or create a token: commit-owner token add NAME",
            )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
