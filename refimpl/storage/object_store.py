"""Tables of a warehouse whose files are objects of an S3-compatible store.

A file `NAME.store` in the owner's folder holds the URL of a store: `s3://bucket/prefix`. Its objects have paths below
`NAME.store` in the warehouse: `NAME.store/orders/_delta_log/0.json` is `s3://bucket/prefix/orders/_delta_log/0.json`.
Every process that opens the warehouse finds the store. `NAME.store` in the warehouse is a file, too, so that code
without support for stores cannot create a file below it.

A store must reject a conditional put (`If-None-Match: *`) of an object that exists: `add_store` tests this. After the
answer to a put, the object is complete and durable. So nothing is synced, and no object is temporary: instead of a link
or a rename of a temporary file to its name, this module puts an object under the name.
"""

import contextlib
import dataclasses
import errno
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final, Self
from urllib.parse import unquote

from refimpl.protocol.errors import InvalidRequestError, OwnerUnavailableError
from refimpl.protocol.release import how_to_install
from refimpl.storage.environment import Environment, random_uuid
from refimpl.storage.files import Files, FileStatus, NewFile, PosixFiles, UncertainError

SUFFIX: Final = ".store"
"""Of the files that name a store."""
_SCHEME: Final = "s3://"
_SCHEMES: Final = ("s3", "s3a", "s3n")
"""How engines spell it."""
LONGEST_KEY: Final = 1024
"""Bytes of UTF-8: S3 rejects a longer key."""
_TIMEOUTS: Final = {"timeout": "30s", "connect_timeout": "5s"}
_RETRIES: Final[Any] = {"max_retries": 3, "retry_timeout": timedelta(seconds=60)}
"""The owner's lock may be held meanwhile."""
_used_in: Final[dict[str, int]] = {}
"""The process whose threads send the requests to stores."""


def check_store(name: str, url: str) -> None:
    """Raise `InvalidRequestError` for an invalid name, and for a store that cannot be used.

    Credentials and the endpoint are taken from the environment: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ...
    """
    if not (isinstance(name, str) and name.isascii() and name.isidentifier() and isinstance(url, str)):
        raise InvalidRequestError(f"invalid store {name!r}: {url!r}; expected letters, digits and _; and a URL")
    try:
        _ObjectStore(url).try_conditional_put()
    except OSError as error:
        problem = (error.strerror or str(error)).partition("\n")[0]  # the library's debugging output follows
        raise InvalidRequestError(
            f"the store {url} cannot be used: {problem}; check the URL and the environment variables "
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL"
        ) from error


def record_stores(owner_folder: Path, stores: Mapping[str, str]) -> None:
    """Record stores that were checked, by name. The same call again changes nothing; `InvalidRequestError` for a name
    that is taken, and for a store inside another one, before any store is recorded. The caller holds the owner's lock.

    Order, for each store: first the file that keeps others from writing at that path, then the record of the store.
    """
    records = [
        (folder / f"{name}{SUFFIX}", f"{url}\n")
        for name, url in stores.items()
        for folder in (owner_folder.parent, owner_folder)
    ]
    for path, text in records:
        if path.exists() and (path.is_dir() or path.read_text(encoding="utf-8") != text):
            raise InvalidRequestError(f"{path} exists; choose another name")
    known = {path.name: path.read_text(encoding="utf-8").strip() for path in owner_folder.glob(f"*{SUFFIX}")}
    known |= {f"{name}{SUFFIX}": url for name, url in stores.items()}
    _check_apart(known.values())
    for path, text in records:
        _write_durably(path, text)


def _check_apart(urls: Iterable[str]) -> None:
    """An object has one path, so that locations that overlap are seen."""
    for one, other in itertools.permutations(urls, 2):
        if PurePosixPath(one.removeprefix(_SCHEME)).is_relative_to(other.removeprefix(_SCHEME)):
            raise InvalidRequestError(f"the store {one} is inside the store {other}; expected stores apart")


def with_stores(environment: Environment, owner_folder: Path) -> Environment:
    """The environment of a warehouse: with its stores, where it has some. Raises `InvalidRequestError` if one is inside
    another."""
    files = environment.files
    try:
        names = [entry.name for entry in files.list_directory(owner_folder) if entry.name.endswith(SUFFIX)]
    except FileNotFoundError:
        return environment
    urls = {owner_folder.parent / name: files.read(owner_folder / name).decode().strip() for name in names}
    _check_apart(urls.values())
    return dataclasses.replace(environment, files=ObjectFiles(files, urls)) if urls else environment


def objects_at(environment: Environment, location: Path) -> "ObjectFiles | None":
    """None for a table whose files are this host's."""
    files = environment.files
    return files if isinstance(files, ObjectFiles) and files.holds(location) else None


def _write_durably(path: Path, text: str) -> None:
    """Order: write a temporary file, fsync it, rename it over the name, fsync the directory."""
    files, temporary = PosixFiles(), path.with_name(f".tmp-{random_uuid()}")
    with files.create(temporary) as file:
        file.write(text.encode())
        file.fsync()
    files.replace(temporary, path)
    files.fsync_directory(path.parent)


class StoreError(UncertainError):
    """A store did not answer, or rejected the request. That says nothing about its objects."""


class _ObjectStore:
    """The objects below one URL. Errors are `OSError`s with their usual kinds."""

    def __init__(self, url: str) -> None:
        if "@" in url:  # not shown: a password may be in it
            raise InvalidRequestError(
                "invalid URL of a store: it has an @; expected s3://bucket/prefix, and credentials in the environment "
                "variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        try:
            import obstore
            from obstore import exceptions
            from obstore.store import from_url
        except ImportError as error:
            raise InvalidRequestError(
                f"{url} needs the package obstore; install it with: {how_to_install('object-stores')}"
            ) from error
        if not url.startswith(_SCHEME):
            raise InvalidRequestError(f"invalid URL of a store {url!r}; expected s3://bucket/prefix")
        self.url = url
        self._api: Any = obstore
        self._exists, self._error = exceptions.AlreadyExistsError, exceptions.BaseError
        try:
            http = os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"  # options replace those of the environment
            options: Any = {**_TIMEOUTS, "allow_http": http}
            self._store = from_url(url, client_options=options, retry_config=_RETRIES)
        except exceptions.BaseError as error:
            problem = str(error).partition("\n")[0]
            raise InvalidRequestError(f"invalid store {url}: {problem}") from error
        meant = "/".join(filter(None, (self._store.config["bucket"], self._store.prefix)))
        if meant != url.removeprefix(_SCHEME).removesuffix("/"):  # a store inside another one is known by its spelling
            raise InvalidRequestError(f"invalid URL of a store {url!r}; it means {_SCHEME}{meant}: pass that")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raises `OwnerUnavailableError` in a forked child: the threads of the library are its parent's, and a request
        would never end."""
        if _used_in.setdefault("process", os.getpid()) != os.getpid():
            raise OwnerUnavailableError(
                f"this process was forked from one that used {self.url}, and obstore does not work after a "
                f"fork; start the process with spawn"
            )
        try:
            yield
        except self._error as error:
            text = str(error).partition("\n")[0]  # the library's debugging output follows
            raise StoreError(errno.EIO, f"{self.url}: {text}") from error

    def read(self, key: str) -> bytes:
        with self._errors():
            return bytes(self._api.get(self._store, key).bytes())

    def put(self, key: str, content: bytes) -> None:
        with self._errors():
            self._api.put(self._store, key, content)

    def create(self, key: str, content: bytes) -> None:
        """Put an object only if no other object has this name; otherwise raises `FileExistsError`.

        An object with the same bytes counts as created by this call: after a lost answer the library repeats the put,
        and the store answers that the object exists. S3 answers 409 while another conditional put of the name is under
        way, which may be this put, sent before; the object may appear later. So a conflict without an object is a
        `StoreError`.
        """
        try:
            with self._errors():
                self._api.put(self._store, key, content, mode="create", use_multipart=False)
        except OSError as error:
            if not isinstance(error.__cause__, self._exists):
                raise
            try:
                existing = self.read(key)
            except FileNotFoundError:
                raise error from error.__cause__
            if existing != content:
                raise FileExistsError(errno.EEXIST, f"{self.url}: {key} exists") from error

    def delete(self, key: str) -> None:
        with self._errors():
            self._api.delete(self._store, key)

    def status(self, key: str) -> FileStatus | None:
        """None for an object that is not there, and no prefix of another."""
        with self._errors():
            with contextlib.suppress(FileNotFoundError):
                return _status(self._api.head(self._store, key))
            return FileStatus(key.rpartition("/")[2], 0, 0, is_directory=True) if self._has(f"{key}/") else None

    def _has(self, prefix: str) -> bool:
        return any(True for _ in self._api.list(self._store, prefix, chunk_size=1))

    def list(self, prefix: str) -> list[FileStatus]:
        with self._errors():
            listing = self._api.list_with_delimiter(self._store, prefix or None)
        folders = [FileStatus(path.rpartition("/")[2], 0, 0, is_directory=True) for path in listing["common_prefixes"]]
        return folders + [_status(entry) for entry in listing["objects"]]

    def below(self, prefix: str) -> Iterator[tuple[str, FileStatus]]:
        """Every object below a prefix, at any depth, by its name without the prefix."""
        with self._errors():
            for page in self._api.list(self._store, prefix or None):
                for entry in page:
                    yield entry["path"][len(prefix) + 1 if prefix else 0 :], _status(entry)

    def try_conditional_put(self) -> None:
        """`InvalidRequestError` for a store that overwrites an object where it must not; `OSError` if it cannot be
        written."""
        key = f"_tried-{random_uuid()}"
        self.create(key, b"first")
        try:
            self.create(key, b"second")
        except FileExistsError:
            return
        finally:
            self.delete(key)
        raise InvalidRequestError(
            f"the store {self.url} cannot be used: it ignores `If-None-Match: *`, so that one writer's commit would "
            "replace another's; use a store with conditional puts"
        )


def _status(entry: Mapping[str, Any]) -> FileStatus:
    modified = int(entry["last_modified"].timestamp()) * 1000  # whole seconds: a HEAD has no more, a list may have
    return FileStatus(entry["path"].rpartition("/")[2], entry["size"], modified, is_directory=False)


class ObjectFiles:
    """The files of a host, and objects for the paths below the stores of a warehouse. Safe to share between threads."""

    def __init__(self, host: Files, stores: Mapping[Path, str]) -> None:
        self._host = host
        self._urls = dict(stores)
        self._store_at = cache(lambda root: _ObjectStore(self._urls[root]))
        self._unnamed: dict[Path, bytes] = {}
        """Temporary files below a store: only here, until they get their name."""

    def __reduce__(self) -> tuple[object, ...]:
        """For tasks of Spark: where the stores are. Credentials are those of the other process."""
        return ObjectFiles, (self._host, self._urls)

    def _object(self, path: Path | str) -> tuple[_ObjectStore, str] | None:
        path = Path(path)
        for root in self._urls:
            if path.is_relative_to(root):
                return self._store_at(root), "" if path == root else path.relative_to(root).as_posix()
        return None

    def holds(self, path: Path) -> bool:
        """Whether this is the path of an object."""
        return any(path.is_relative_to(root) for root in self._urls)

    def key_size(self, path: Path) -> int:
        """Bytes of the key that the object has in its bucket."""
        address = self._object(path)
        assert address is not None
        store, key = address
        return len(f"{store.url.rstrip('/')}/{key}".removeprefix(_SCHEME).partition("/")[2].encode())

    def path_of(self, url: str) -> Path | None:
        """The path of an object below a store, by its URL-encoded URL; None for any other text."""
        scheme, _, name = url.partition("://")
        if scheme.lower() not in _SCHEMES:
            return None
        for root, store in self._urls.items():
            prefix = store.removeprefix(_SCHEME).rstrip("/") + "/"
            if unquote(name).startswith(prefix):
                return root / unquote(name).removeprefix(prefix)
        return None

    def below(self, directory: Path) -> Iterator[tuple[str, FileStatus]]:
        """Every object below a path of a store, at any depth, by its name relative to the path."""
        address = self._object(directory)
        assert address is not None
        return address[0].below(address[1])

    def create(self, path: Path) -> NewFile:
        return _NewObject(self, path) if self.holds(path) else self._host.create(path)

    def write(self, path: Path, content: bytes) -> None:
        """Make a new object; `FileExistsError` if its name is taken. A temporary one is stored when it gets a name."""
        address = self._object(path)
        assert address is not None
        if path.name.startswith("."):
            self._unnamed[path] = content
        else:
            address[0].create(address[1], content)

    def fsync(self, path: Path) -> None:
        """An object that is visible is durable."""
        if not self.holds(path):
            self._host.fsync(path)

    def fsync_directory(self, path: Path) -> None:
        if not self.holds(path):
            self._host.fsync_directory(path)

    def make_directory(self, path: Path, mode: int = 0o777) -> None:
        """An object needs none."""
        if not self.holds(path):
            self._host.make_directory(path, mode)

    def link(self, source: Path, target: Path) -> None:
        address = self._object(target)
        if address is None:
            self._host.link(source, target)
        else:
            address[0].create(address[1], self.read(source))

    def replace(self, source: Path, target: Path) -> None:
        address = self._object(target)
        if address is None:
            self._host.replace(source, target)
            return
        address[0].put(address[1], self.read(source))
        self.unlink(source)

    def unlink(self, path: Path) -> None:
        address = self._object(path)
        if address is None:
            self._host.unlink(path)
        elif self._unnamed.pop(path, None) is None:
            address[0].delete(address[1])

    def remove_directory(self, path: Path) -> None:
        if not self.holds(path):
            self._host.remove_directory(path)

    def list_directory(self, directory: Path) -> list[FileStatus]:
        address = self._object(directory)
        if address is None:
            return self._host.list_directory(directory)
        entries = address[0].list(address[1])
        if not entries and address[1]:
            raise FileNotFoundError(errno.ENOENT, "no object is below", str(directory))
        return entries

    def read(self, path: Path) -> bytes:
        address = self._object(path)
        if address is None:
            return self._host.read(path)
        content = self._unnamed.get(path)
        return address[0].read(address[1]) if content is None else content

    def stat(self, path: Path) -> FileStatus | None:
        address = self._object(path)
        if address is None:
            return self._host.stat(path)
        store, key = address
        return store.status(key) if key else FileStatus(path.name, 0, 0, is_directory=True)

    def exists(self, path: str) -> bool:
        if self._object(path) is None:
            return self._host.exists(path)
        hidden = Path(path).name.startswith(".")  # `write` never stores it
        return Path(path) in self._unnamed if hidden else self.stat(Path(path)) is not None

    def identity(self, path: str) -> object:
        return self._host.identity(path)

    def hold_shared(self, path: str, start: int, length: int) -> object:
        return self._host.hold_shared(path, start, length)

    def opening(self) -> AbstractContextManager[None]:
        return self._host.opening()


class _NewObject:
    """Stored by its `fsync`, or at the end."""

    def __init__(self, files: ObjectFiles, path: Path) -> None:
        self._files, self._path = files, path
        self._content = bytearray()
        self._stored = False

    def write(self, content: bytes) -> None:
        self._content += content

    def fsync(self) -> None:
        if not self._stored:
            self._files.write(self._path, bytes(self._content))
            self._stored = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        kind, *_ = error
        if kind is None:
            self.fsync()
