"""The core of the owner is an owner: without the packages around it, and without the client, it passes the kit."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ("protocol", "storage", "owner")
SUBJECT = """
from pathlib import Path
from types import SimpleNamespace

import msgspec
from conformance.adapters.reference.owner import ReferenceOwner
from refimpl.owner.local import LocalOwner
from refimpl.storage.locations import OWNER_FOLDER


class Core(ReferenceOwner):
    @staticmethod
    def opened(directory, environment):
        (directory / OWNER_FOLDER).mkdir(parents=True, exist_ok=True)
        owner = LocalOwner(directory, environment)
        owner.ledger.create()
        owner.ledger.open()
        return SimpleNamespace(owner=owner, environment=environment, close=owner.close)

    def hello(self, client, request):
        identity = super().hello(client, request)
        profiles = tuple(profile for profile in identity.profiles if profile != "transaction-group")
        return msgspec.structs.replace(identity, profiles=profiles)  # a room of its own: refimpl.groups
"""

PATIENT = ("--budget", "1h")  # on a loaded machine a run must not end before its last case


@pytest.mark.longer
def test_the_core_alone_is_conformant(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "conformance", tmp_path / "conformance", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "refimpl/client").mkdir(parents=True)
    for file in ("__init__.py", "client/DELTA.md"):  # the kit quotes that page
        shutil.copy(ROOT / "refimpl" / file, tmp_path / "refimpl" / file)
    for room in CORE:
        shutil.copytree(ROOT / "refimpl" / room, tmp_path / "refimpl" / room)
    (tmp_path / "core.py").write_text(SUBJECT, encoding="utf-8")
    command = [sys.executable, "-m", "conformance", "run", "python:core:Core", "--seed", "1", "-n", "1", *PATIENT]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Conformant" in ran.stdout
