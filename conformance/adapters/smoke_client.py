"""What a client is asked first: to read a table of the kit's own owner, with one commit that is published."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from conformance.interface import messages as m
from conformance.models import proposals
from conformance.models.owner import COMMIT_MODES, ModelOwner
from conformance.models.storage import FolderStorage
from conformance.scenario.adversary import Adversary, ClientHost

FILE = "part-00000-smoke.snappy.parquet"


class ReadableTable:
    """Published, so that a reader that does without its owner finds it too. Its owner is `host`'s for the while."""

    version = 1
    files = (FILE,)

    def __init__(self, host: ClientHost, feature: str) -> None:
        self._host = host
        self._folder = Path(tempfile.mkdtemp(prefix="conformance-"))
        self._owner = ModelOwner(FolderStorage(self._folder))
        self.name = f"smoke-{feature}"
        first, second = str(uuid.uuid4()), str(uuid.uuid4())
        created = self._owner.create_table(
            "kit",
            m.CreateTable(
                name=self.name, feature=feature, commit_mode=COMMIT_MODES[feature][0], attempt=first,
                actions=proposals.version_0(feature, first, str(uuid.uuid4())),
            ),
        )  # fmt: skip
        assert isinstance(created, m.Ratified)
        reference = created.table or ""
        actions = proposals.append(second, proposals.BASE_TIME + 1000, self.files)
        self._owner.commit("kit", m.Commit(table=reference, version=1, attempt=second, actions=actions))
        self._owner.backfill_to_version("kit", m.BackfillToVersion(table=reference, version=1))

    def __enter__(self) -> Self:
        self._host.current = Adversary(self._owner)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._host.current = None
        shutil.rmtree(self._folder, ignore_errors=True)
