"""Engines that are Python wheels: versions beside the installed one, each in a folder of its own.

Pip installs them into the user's cache, only on request: `delta-commit-conformance engines --fetch delta-rs@0.17.3`.
They use the environment's copies of their large dependencies (Arrow).
"""

import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import ClassVar, Final

from conformance.adapters.engines.engine import EngineClient
from conformance.adapters.jvm import jars
from conformance.interface.subject import Ask, UsageError

BESIDE: Final = {
    "deltalake": ("pyarrow-hotfix", "arro3-core", "deprecated", "wrapt", "typing-extensions"),
    "pysail": ("grpcio", "grpcio-status", "googleapis-common-protos", "protobuf", "zstandard"),
}
"""For each wheel, small dependencies of some of its versions."""
PARTS: Final = {"duckdb": ("duckdb-extension-httpfs", "duckdb-extension-delta", "duckdb-extension-unity-catalog")}
"""For each wheel, other wheels that it needs in the same version."""
SECONDS: Final = 300
"""The timeout of pip, in seconds."""
_VERSION: Final = re.compile(r"\d+(\.\d+){1,3}((a|b|rc)\d+)?")


def installed(wheel: str) -> str | None:
    """The wheel's version in this environment; None: it is not installed."""
    try:
        return metadata.version(wheel)
    except metadata.PackageNotFoundError:
        return None


def folder(wheel: str, version: str) -> Path:
    """The folder of that version, installed or not."""
    return jars.cache() / f"{wheel}-{version}"


def missing(wheel: str, version: str | None, engine: str) -> str:
    """What to install for that version, and how; empty: nothing is missing."""
    here = installed(wheel)
    if version is None:
        absent = [name for name in (wheel, *PARTS.get(wheel, ())) if installed(name) is None]
        return f"the wheel {absent[0]} is not installed; run: pip install {' '.join(absent)}" if absent else ""
    if not _VERSION.fullmatch(version):
        return _invalid(version)
    if version == here and all(installed(name) == here for name in PARTS.get(wheel, ())):
        return ""
    if (folder(wheel, version) / wheel).is_dir():
        return ""
    return f"{wheel} {version} is not installed; run: delta-commit-conformance engines --fetch {engine}@{version}"


def is_before(version: str, other: str) -> bool:
    """Whether `version` is an older release than `other`; false for a text that is no version."""
    if not _VERSION.fullmatch(version):
        return False
    return [int(part) for part in re.findall(r"\d+", version)] < [int(part) for part in re.findall(r"\d+", other)]


class WheelClient(EngineClient):
    """An engine that is a wheel. The adapter imports it after `__init__`, so that it gets the version it asked for."""

    wheel: ClassVar[str]
    oldest: ClassVar[str] = "0"
    """The oldest supported version."""
    too_old: ClassVar[str] = ""
    """Why an older one is not supported."""

    def __init__(self, owner: Ask, directory: Path, version: str | None = None) -> None:
        super().__init__(owner, directory, version)
        if version is not None and folder(self.wheel, version).is_dir():
            sys.path.insert(0, str(folder(self.wheel, version)))

    @classmethod
    def missing(cls, version: str | None) -> str:
        if version is not None and is_before(version, cls.oldest):
            return f"{cls.title} {version} {cls.too_old}; expected {cls.oldest} or newer"
        return missing(cls.wheel, version, cls.engine)

    @classmethod
    def fetch(cls, version: str | None) -> str:
        """Install a version that the environment does not have."""
        if version is None or not cls.missing(version) or is_before(version, cls.oldest):
            return super().fetch(version)
        return f"{cls.wheel} {version} is in {fetch(cls.wheel, version)}"

    @property
    def engine_version(self) -> str:
        return self.version or installed(self.wheel) or ""


def fetch(wheel: str, version: str) -> Path:
    """Install that version, completely or not at all. Raises `UsageError`."""
    if not _VERSION.fullmatch(version):
        raise UsageError(_invalid(version))
    target = folder(wheel, version)
    if (target / wheel).is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".installing-", dir=target.parent) as scratch:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check",
                   "--root-user-action=ignore", "--only-binary=:all:", "--target", f"{scratch}/wheel",
                   *(f"{part}=={version}" for part in (wheel, *PARTS.get(wheel, ()))),
                   *BESIDE.get(wheel, ())]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"pip cannot install {wheel} {version}: {error}") from error
        if done.returncode != 0:
            raise UsageError(f"pip cannot install {wheel} {version}: {_reason(done.stderr)}")
        Path(scratch, "wheel").replace(target)
    return target


def _invalid(version: str) -> str:
    return f"invalid version {version!r}; expected for example 1.2.1"


def _reason(output: str) -> str:
    """Why pip failed. Without a network, the last line of its output wrongly says that there is no such version."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if any("connection broken by" in line for line in lines):
        return "cannot reach the package index; check the network"
    return lines[-1] if lines else "no message"
