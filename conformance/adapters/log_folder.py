"""The log of a table in a folder of this machine, listed by an external observer and changed by an external writer.

No request here goes to an owner. Files become visible atomically, by a link or a rename of a file that was written
beside the log folder. No file is synced, because there is no power cut here.
"""

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath, PurePosixPath

from conformance.interface import messages as m
from conformance.interface.log_names import LOG
from conformance.models import proposals


class OutsideError(Exception):
    """The path is not below the log folder."""


def content_of(actions: Iterable[str]) -> bytes:
    """The content of a log file with these actions: newline-delimited JSON."""
    return proposals.content(actions).encode("utf-8", "surrogatepass")


class LogAccess:
    """The requests by which the kit reads and changes the files of a log, for an owner whose logs are folders here."""

    def answered(self, ask: Callable[[], m.Answer]) -> m.Answer:
        """The answer of `ask`; the owner's errors become answers too."""
        raise NotImplementedError

    def log_of(self, table: m.TableRef) -> "LogFolder":
        """The log of a table of the owner, or of a filesystem table of the kit."""
        raise NotImplementedError

    def observe(self, _client: str, request: m.Observe) -> m.Answer:
        return self.answered(lambda: m.Observation(files=self.log_of(request.table).files(contents=request.contents)))

    def plant(self, _client: str, request: m.Plant) -> m.Answer:
        return self.answered(lambda: self.log_of(request.table).plant(request))

    def remove(self, _client: str, request: m.Remove) -> m.Answer:
        return self.answered(lambda: self.log_of(request.table).remove(request.file))


class LogFolder:
    """The log of the table at `location`. Files are named by their paths relative to the log folder; a path that leads
    outside raises `OutsideError`. Times are in ms since the epoch."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.folder = location / LOG

    def read(self, file: str) -> bytes | None:
        """None: the file is missing."""
        with suppress(FileNotFoundError):
            return self.path(file).read_bytes()
        return None

    def status(self, file: str) -> os.stat_result | None:
        """None: the file is missing."""
        with suppress(FileNotFoundError):
            return self.path(file).stat()
        return None

    def put(self, file: str, content: bytes, *, if_absent: bool = False, modified: int | None = None) -> bool:
        """Create or replace a file. Returns False if `if_absent` is true and the file existed."""
        target = self.path(file)
        with self._write(target, content, modified) as temporary:
            if not if_absent:
                temporary.replace(target)
                return True
            with suppress(FileExistsError):
                os.link(temporary, target)
                return True
        return False

    def plant(self, request: m.Plant) -> m.Done | m.Conflict:
        """Do what the request asks for."""
        content = request.content.encode("utf-8", "surrogateescape")
        done = self.put(request.file, content, if_absent=request.if_absent, modified=request.modified)
        return m.Done() if done else m.Conflict()

    def remove(self, file: str) -> m.Done:
        """Remove a file, if it exists."""
        self.path(file).unlink(missing_ok=True)
        return m.Done()

    def files(self, *, contents: bool) -> tuple[m.LogFile, ...]:
        """Every file below the log folder, sorted. Files that another process removes during the listing are left
        out."""
        files = []
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            with suppress(FileNotFoundError):
                status = path.stat()
                content = path.read_bytes().decode("utf-8", "surrogateescape") if contents else None
                name, modified = self.shown(path.relative_to(self.folder)), status.st_mtime_ns // 1_000_000
                files.append(m.LogFile(name=name, size=status.st_size, content=content, modified=modified))
        return tuple(sorted(files, key=lambda file: file.name))

    def shown(self, path: PurePath) -> str:
        """The name of a file in the kit's messages."""
        return path.as_posix()

    def path(self, file: str) -> Path:
        """The path of a file. Raises `OutsideError`."""
        parts = PurePosixPath(file).parts
        if not parts or file.startswith("/") or ".." in parts:
            raise OutsideError(f"{file!r} is not a path below the log folder")
        return self.folder.joinpath(*parts)

    @contextmanager
    def _write(self, target: Path, content: bytes, modified: int | None) -> Iterator[Path]:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.location / f".written-{uuid.uuid4()}"
        temporary.write_bytes(content)
        if modified is not None:
            os.utime(temporary, ns=(modified * 1_000_000, modified * 1_000_000))
        try:
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)
