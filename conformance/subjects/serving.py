"""Serve a subject of this process to another one, over standard input and output."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from conformance.adapters import wire
from conformance.adapters.http import HttpSubject
from conformance.adapters.in_process import Handler, InProcess
from conformance.interface.messages import Answer, Call, Hello, Reply, Request, Restart
from conformance.interface.subject import TIMEOUT, AdapterError, Ask
from conformance.models.storage import FaultControl, FolderStorage, SavedFiles
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
    model.saved = SavedFiles(FolderStorage(saved))
    if model.saved:
        model.restart("kit", Restart())


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
