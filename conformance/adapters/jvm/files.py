"""A table's log as the kit sees and changes it, behind the coordinator's back, with the document's names for files."""

from __future__ import annotations

import contextlib
from pathlib import Path, PurePosixPath
from typing import Final

from conformance.adapters.jvm import delta
from conformance.adapters.planting import planted
from conformance.interface import messages as m

LOG: Final = "_delta_log"


class OutsideError(Exception):
    """The path is not below the log folder."""


class Log:
    """The files of one table. What a staged file is called is decided when it is first seen, for the kit may change its
    content; it stays so, unless another file of the same attempt turns out to be the commit."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.folder = location / LOG
        self._shown: dict[str, str] = {}
        """By the real name of a staged file."""
        self._of_attempt: dict[str, str] = {}
        """By the real name of a staged file, the name that the document gives to the commit of its attempt."""

    def make(self) -> None:
        """As Delta's client does it before the first commit."""
        (self.folder / delta.STAGING).mkdir(parents=True, exist_ok=True)

    def published(self, version: int) -> Path:
        return self.folder / delta.published_name(version)

    def read(self, version: int) -> list[str] | None:
        """The actions of a published commit."""
        try:
            return self.published(version).read_text("utf-8").splitlines()
        except FileNotFoundError:
            return None

    def actions(self) -> list[str]:
        """Of all published commits, in order."""
        return [line for path in sorted(self.folder.glob("*.json")) for line in path.read_text("utf-8").splitlines()]

    # Names

    def shown(self, real: str) -> str:
        """What the kit is told that a staged file is called: `<version>.<attempt>.json`. Of several files of one
        attempt the commit has that name, the first as long as none is known to be, and the others keep their own."""
        self.meet()
        return self._shown.get(real, real)

    def ratified(self, real: str) -> None:
        """That file is a commit. Its attempt may have been staged before: each time it is sent, a coordinator makes a
        file of it, and what it refuses stays there."""
        self.meet()
        wanted = self._of_attempt.get(real)
        if wanted is not None and self._shown[real] != wanted:
            self._shown = {name: name if shown == wanted else shown for name, shown in self._shown.items()}
            self._shown[real] = wanted

    def meet(self) -> None:
        """Name the staged files that are new. Called after each commit, when their contents are as they were staged."""
        folder = self.folder / delta.STAGING
        with contextlib.suppress(FileNotFoundError):
            for name in sorted({path.name for path in folder.iterdir()} - self._shown.keys()):
                version, _, rest = name.partition(".")
                if not rest.endswith(".json"):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    content = (folder / name).read_bytes().decode("utf-8", "surrogateescape")
                    attempt = delta.attempt_in(content)
                    wanted = f"{version}.{attempt}.json"
                    free = attempt is not None and wanted not in self._shown.values()
                    self._shown[name] = wanted if free else name
                    if attempt is not None:
                        self._of_attempt[name] = wanted

    def _real(self, file: str) -> Path:
        """Where a file is that the kit names. Raises `OutsideError`."""
        path = PurePosixPath(file)
        if not path.parts or file.startswith("/") or ".." in path.parts:
            raise OutsideError(f"{file!r} is no path below the log folder")
        if path.parts[0] != delta.STAGING_OF_THE_DOCUMENT:
            return self.folder.joinpath(*path.parts)
        self.meet()
        name = next((real for real, shown in self._shown.items() if shown == path.name), path.name)
        return self.folder.joinpath(delta.STAGING, *path.parts[1:-1], name)

    # Eyes and hands

    def listed(self, *, contents: bool) -> tuple[m.LogFile, ...]:
        """Every file, by its path relative to the log folder. What goes away meanwhile is left out."""
        found = []
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            parts = path.relative_to(self.folder).parts
            if parts[0] == delta.STAGING:
                parts = (delta.STAGING_OF_THE_DOCUMENT, *parts[1:-1], self.shown(parts[-1]))
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                content = path.read_bytes().decode("utf-8", "surrogateescape") if contents else None
                modified = status.st_mtime_ns // 1_000_000
                found.append(m.LogFile(name="/".join(parts), size=status.st_size, content=content, modified=modified))
        return tuple(sorted(found, key=lambda file: file.name))

    def plant(self, file: str, content: str, *, if_absent: bool, modified: int | None) -> bool:
        """Create or replace a file, whole at once; False if `if_absent` and it was there. Raises `OutsideError`."""
        return planted(self._real(file), content, beside=self.location, if_absent=if_absent, modified=modified)

    def remove(self, file: str) -> None:
        """Nothing happens if it is not there. Raises `OutsideError`."""
        self._real(file).unlink(missing_ok=True)
