"""Serve a subject of this process to another one, over standard input and output."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, MutableMapping
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, unquote

import msgspec

from conformance.adapters import wire
from conformance.adapters.http import HttpSubject
from conformance.adapters.in_process import Handler, InProcess
from conformance.interface.messages import Answer, Call, Hello, Reply, Request, Restart
from conformance.interface.subject import TIMEOUT, AdapterError, Ask
from conformance.models.storage import FaultControl, FolderStorage
from conformance.subjects.names import handler_of


def serve_stdio(ask: Ask, calls: BinaryIO, replies: BinaryIO) -> None:
    """Answer calls, one after the other, until the input ends. Raises `AdapterError` for a line that is no call."""
    for line in calls:
        if line.strip():
            try:
                call = wire.decode(line, Call)
            except msgspec.DecodeError as error:
                raise AdapterError(f"{wire.shown(line)} is not a call of the interface: {error}") from error
            replies.write(wire.encode(Reply(id=call.id, answer=ask(call.client, call.request))) + b"\n")
            replies.flush()


class Served:
    """A subject of this process that serves other processes. For each owner that `hello` names, a client is created
    anew."""

    def __init__(self, handler: Handler, directory: Path) -> None:
        """Raises `UsageError` or `AdapterError` if the subject cannot be made."""
        self._handler = handler
        self._directory = directory
        self._url: str | None = None
        self._owner: HttpSubject | None = None
        self._subject: InProcess | None = None if handler.takes_owner else InProcess(self._made(None))

    def _made(self, owner: Ask | None) -> Any:
        made = self._handler.made(owner=owner, directory=self._directory)
        if isinstance(made, FaultControl):
            make_durable(made, self._directory)
        return made

    def ask(self, client: str, request: Request) -> Answer:
        if isinstance(request, Hello) and self._handler.takes_owner:
            self._connect(request.owner_url)
        if self._subject is None:
            raise AdapterError("the first request is `hello`; to a client it names its owner")
        return self._subject.ask(client, request)

    def _connect(self, url: str | None) -> None:
        if url is None:
            raise AdapterError(f"{self._handler.name} is a client: `hello` must name its owner in `owner_url`")
        if url != self._url:
            self.close()
            self._owner = HttpSubject(url, timeout=TIMEOUT)
            self._subject = InProcess(self._made(self._owner.ask))
            self._url = url

    def close(self) -> None:
        if self._subject is not None:
            self._subject.close()
        if self._owner is not None:
            self._owner.close()


# Durable state for the models, which otherwise keep it in memory: as processes they can be killed


def make_durable(model: FaultControl, directory: Path) -> None:
    """Let a model keep its state in the folder, and load it from there after a restart."""
    files, saved = directory / "files", directory / "saved"
    for folder in (files, saved):
        folder.mkdir(parents=True, exist_ok=True)
    model.storage = FolderStorage(files)
    model.saved = _SavedFiles(saved)
    if model.saved:
        model.restart("kit", Restart())


class _SavedFiles(MutableMapping[str, bytes]):
    """A mapping with a file for each name, which may be longer than a file's name: it is the file's first line. A new
    content replaces the old file atomically."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __setitem__(self, name: str, content: bytes) -> None:
        temporary = self._folder / "new"
        temporary.write_bytes(quote(name).encode() + b"\n" + content)
        temporary.replace(self._path(name))

    def __getitem__(self, name: str) -> bytes:
        try:
            return self._path(name).read_bytes().partition(b"\n")[2]
        except FileNotFoundError:
            raise KeyError(name) from None

    def __delitem__(self, name: str) -> None:
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        files = [path.read_bytes() for path in self._folder.glob("table-*")]
        return iter(sorted(unquote(file.partition(b"\n")[0].decode()) for file in files))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, name: str) -> Path:
        return self._folder / f"table-{sha256(name.encode()).hexdigest()}"


# The command


def serve(name: str) -> int:
    """Serve the subject until its input ends, or it is interrupted.

    Raises `UsageError` for an invalid name, `AdapterError` if the subject or the caller does not speak the interface.
    """
    handler = handler_of(name)
    with contextlib.ExitStack() as made:
        named = os.environ.get(wire.DIRECTORY_VARIABLE)
        if not named:
            named = made.enter_context(tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True))
        directory = Path(named)
        # Output of the subject must not mix with the replies.
        with os.fdopen(os.dup(1), "wb") as replies, contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
            os.dup2(2, 1)
            served = Served(handler, directory)
            made.callback(served.close)
            serve_stdio(served.ask, sys.stdin.buffer, replies)
    return 0
