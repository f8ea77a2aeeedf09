"""A complete owner for the simulator: catalogManaged tables, inline commits, and one JSON file as its ledger.

    delta-commit-conformance simulate explore --subject python:conformance.simulation.example_owner:ExampleOwner

Copy it, and put your own owner behind the methods.
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.simulation.python_subject import STORAGE, Effects, LockTakenError

LEDGER: Final = Path(STORAGE) / "ledger.json"
LOG: Final = "_delta_log"
Ledger = dict[str, Any]


class ExampleOwner:
    """One process. Its whole state is in the ledger, which it replaces atomically while it holds the host's lock."""

    def __init__(self, effects: Effects) -> None:
        self._files = effects.files
        self._lock = effects.lock
        self._new_id = effects.new_id

    def hello(self, _client: str, _request: m.Hello) -> m.Identity:
        return m.Identity(
            name="example", version="1", interface_version=m.INTERFACE_VERSION, side="owner", storage=STORAGE,
            profiles=("core", "inline", "attempt-outcome", "durable-restart"),
            commit_modes={"catalogManaged": ("inline",)},
        )  # fmt: skip

    # Requests that change something: decided and stored under the lock

    def create_table(self, _client: str, request: m.CreateTable) -> m.Answer:
        def create(ledger: Ledger) -> m.Answer:
            for key, table in ledger.items():
                if table["name"] == request.name:
                    mine = table["commits"][0]["attempt"] == request.attempt
                    return m.Ratified(version=0, table=key) if mine else m.Conflict(winner_table=key)
            key, location = self._new_id(), Path(request.path or f"{STORAGE}/{request.name}")
            if any(table["place"] == str(location) for table in ledger.values()):
                return m.Conflict()
            for folder in (location, location / LOG):
                with contextlib.suppress(FileExistsError):
                    self._files.make_directory(folder)
                self._files.fsync_directory(folder.parent)
            first = {"attempt": request.attempt, "actions": request.actions}
            ledger[key] = {
                "name": request.name, "place": str(location), "commits": [first], "published": -1, "resolved": [],
            }  # fmt: skip
            return m.Ratified(version=0, table=key)

        return self._changed(create)

    def commit(self, _client: str, request: m.Commit) -> m.Answer:
        def commit(ledger: Ledger) -> m.Answer:
            table = ledger[request.table]
            for version, known in enumerate(table["commits"]):
                if known["attempt"] == request.attempt:
                    return m.Ratified(version=version)
            if request.attempt in table["resolved"]:
                return m.Rejected(reason="this attempt was resolved as not landed")
            latest = len(table["commits"]) - 1
            if request.version <= latest:
                return m.Conflict(latest=latest)
            if request.version > latest + 1:
                return m.Gap(latest=latest)
            table["commits"].append({"attempt": request.attempt, "actions": request.actions})
            return m.Ratified(version=request.version)

        return self._changed(commit)

    def attempt_outcome(self, _client: str, request: m.AttemptOutcome) -> m.Answer:
        def resolve(ledger: Ledger) -> m.Answer:
            table = ledger[request.table]
            for version, known in enumerate(table["commits"]):
                if known["attempt"] == request.attempt:
                    return m.Landed(version=version)
            if request.attempt not in table["resolved"]:
                table["resolved"].append(request.attempt)
            return m.NotLanded()

        return self._changed(resolve)

    def backfill_to_version(self, _client: str, request: m.BackfillToVersion) -> m.Answer:
        def publish(ledger: Ledger) -> m.Answer:
            table = ledger[request.table]
            last = min(request.version, len(table["commits"]) - 1)
            for version in range(table["published"] + 1, last + 1):
                self._publish(Path(table["place"]) / LOG, version, table["commits"][version]["actions"])
            table["published"] = max(table["published"], last)
            return m.Done()

        return self._changed(publish)

    # Requests that only read

    def load_table(self, _client: str, request: m.LoadTable) -> m.Answer:
        for key, table in self._ledger().items():
            if request.name in (table["name"], key) or request.path == table["place"]:
                latest = len(table["commits"]) - 1
                return m.Table(table=key, feature="catalogManaged", commit_mode="inline", latest=latest)
        return m.NotFound()

    def get_commits(self, _client: str, request: m.GetCommits) -> m.Answer:
        table = self._ledger().get(request.table)
        if table is None:
            return m.NotFound()
        kept = range(table["published"] + 1, len(table["commits"]))
        commits = (m.CommitEntry(version=v, actions=tuple(table["commits"][v]["actions"])) for v in kept)
        return m.Commits(commits=tuple(commits), latest=len(table["commits"]) - 1)

    def observe(self, _client: str, request: m.Observe) -> m.Answer:
        """The log, as an external observer lists it."""
        table = self._ledger().get(request.table)
        folder = Path(table["place"] if table else request.table) / LOG
        if not self._files.exists(str(folder)):
            return m.Observation(files=())
        names = sorted(entry.name for entry in self._files.list_directory(folder))
        contents = {name: self._files.read(folder / name) for name in names if name.endswith(".json")}
        files = (m.LogFile(name=n, size=len(c), content=c.decode()) for n, c in contents.items())
        return m.Observation(files=tuple(files))

    # Durability: a visible file is complete, and an answered request is durable

    def _publish(self, log: Path, version: int, actions: list[str]) -> None:
        temporary = log / f".tmp-{self._new_id()}"
        self._write(temporary, "".join(f"{action}\n" for action in actions))
        with contextlib.suppress(FileExistsError):
            self._files.link(temporary, log / commit_file(version))
        self._files.fsync_directory(log)
        self._files.unlink(temporary)

    def _ledger(self) -> Ledger:
        ledger: Ledger = json.loads(self._files.read(LEDGER)) if self._files.exists(str(LEDGER)) else {}
        return ledger

    def _changed(self, decide: Callable[[Ledger], m.Answer]) -> m.Answer:
        try:
            with self._lock():
                ledger = self._ledger()
                answer = decide(ledger)
                temporary = LEDGER.with_name(f"ledger-{self._new_id()}.new")
                self._write(temporary, json.dumps(ledger))
                self._files.replace(temporary, LEDGER)
                self._files.fsync_directory(LEDGER.parent)
                return answer
        except LockTakenError:
            return m.Rejected(reason="another process holds the lock", retryable=True)
        except OSError as error:  # it is unknown whether the change is stored
            return m.Unknown(reason=f"the disk failed: {error}")

    def _write(self, path: Path, content: str) -> None:
        with self._files.create(path) as file:
            file.write(content.encode())
            file.fsync()
