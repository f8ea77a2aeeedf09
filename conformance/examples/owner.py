"""A commit owner to start from: staged commits, both table features, its state in a folder, no library needed.

    delta-commit-conformance smoke "stdio:python owner.py"

`journal.jsonl` holds the owner's state, one fact per line. The commit point is the moment at which a commit's line is
on the disk: then the commit is ratified. After a restart the owner needs only this file.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HOME = Path(os.environ.get("CONFORMANCE_DIRECTORY") or tempfile.mkdtemp())
STAGING = {"managedCommit": "_commits", "catalogManaged": "_staged_commits"}
Message = dict[str, Any]


class Table:
    """The state of a table, from the facts in the journal."""

    def __init__(self, fact: Message) -> None:
        self.name, self.feature, self.dropped = fact["name"], fact["feature"], False
        self.log: Path = HOME / "tables" / fact["table"] / "_delta_log"
        self.ratified: list[str] = [fact["attempt"]]  # the attempt of every version
        self.backfilled = 0  # every version up to this one is published
        self.never: set[str] = set()  # attempts that were resolved as not landed

    def staged(self, version: int) -> Path:
        return self.log / STAGING[self.feature] / f"{version:020}.{self.ratified[version]}.json"


class Owner:
    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        HOME.mkdir(parents=True, exist_ok=True)
        self.journal = (HOME / "journal.jsonl").open("ab+")
        self.journal.seek(0)
        whole = 0
        for line in self.journal:
            if line.endswith(b"\n"):  # otherwise the owner died while writing; it never acknowledged this fact
                self.remember(json.loads(line))
                whole += len(line)
        self.journal.truncate(whole)

    def record(self, **fact: Any) -> None:
        """Make the fact durable first, then apply it."""
        self.journal.write(json.dumps(fact).encode() + b"\n")
        self.journal.flush()
        os.fsync(self.journal.fileno())
        self.remember(fact)

    def remember(self, fact: Message) -> None:
        if fact["fact"] == "created":
            self.tables[fact["table"]] = Table(fact)
            return
        table = self.tables[fact["table"]]
        if fact["fact"] == "ratified":
            table.ratified.append(fact["attempt"])
        elif fact["fact"] == "backfilled":
            table.backfilled = fact["version"]
        elif fact["fact"] == "never":
            table.never.add(fact["attempt"])
        elif fact["fact"] == "dropped":
            table.dropped = True

    def answer(self, request: Message) -> Message:
        operation = getattr(self, f"do_{request['op']}", None)
        if operation is None:
            return {"outcome": "unsupported", "reason": request["op"]}
        table = self.tables.get(request["table"]) if "table" in request else None
        if "table" in request and (table is None or table.dropped):
            return {"outcome": "not_found"}
        try:
            return operation(request, table) if table else operation(request)  # type: ignore[no-any-return]
        except FileExistsError as taken:
            return {"outcome": "rejected", "reason": str(taken)}

    def do_hello(self, request: Message) -> Message:
        return {
            "outcome": "identity", "name": "example-python", "version": "1", "interface_version": 1, "side": "owner",
            "profiles": ["core", "version-0-by-owner", "staged", "idempotent-retry", "attempt-outcome", "discovery",
                         "durable-restart"],
            "commit_modes": {"managedCommit": ["staged"], "catalogManaged": ["staged"]},
        }  # fmt: skip

    def do_create_table(self, request: Message) -> Message:
        reference = request["attempt"]  # the table's own folder, which no other creator uses
        if reference in self.tables:  # the answer was lost, and the client asks again
            return {"outcome": "ratified", "version": 0, "table": reference}
        for other, table in self.tables.items():
            if table.name == request["name"] and not table.dropped:
                return {"outcome": "conflict", "latest": len(table.ratified) - 1, "winner_table": other}
        if request["feature"] not in STAGING or request["commit_mode"] != "staged":
            return {"outcome": "unsupported", "reason": "staged commits only"}
        actions = [with_owner(json.loads(action)) for action in request["actions"]]
        log = HOME / "tables" / reference / "_delta_log"
        put_if_absent(log / f"{0:020}.json", "".join(json.dumps(action) + "\n" for action in actions))
        self.record(fact="created", table=reference, name=request["name"], feature=request["feature"],
                    attempt=request["attempt"])  # fmt: skip
        return {"outcome": "ratified", "version": 0, "table": reference}

    def do_commit(self, request: Message, table: Table) -> Message:
        version, attempt, latest = request["version"], request["attempt"], len(table.ratified) - 1
        if attempt in table.ratified:
            landed = table.ratified.index(attempt)
            return {"outcome": "ratified", "version": landed} if landed == version else {"outcome": "rejected"}
        if attempt in table.never or "actions" not in request:
            return {"outcome": "rejected", "reason": "resolved as not landed, or without actions"}
        if version > latest + 1:
            return {"outcome": "gap", "latest": latest}
        if version <= latest:
            return {"outcome": "conflict", "latest": latest, "winners": self.entries(table, version, latest)}
        staged = table.log / STAGING[table.feature] / f"{version:020}.{attempt}.json"
        put_if_absent(staged, "".join(f"{action}\n" for action in request["actions"]))
        self.record(fact="ratified", table=request["table"], attempt=attempt)
        return {"outcome": "ratified", "version": version}

    def do_attempt_outcome(self, request: Message, table: Table) -> Message:
        if request["attempt"] in table.ratified:
            return {"outcome": "landed", "version": table.ratified.index(request["attempt"])}
        self.record(fact="never", table=request["table"], attempt=request["attempt"])
        return {"outcome": "not_landed"}

    def do_get_commits(self, request: Message, table: Table) -> Message:
        latest = len(table.ratified) - 1
        first, last = request.get("start"), request.get("end")
        commits = self.entries(table, first or 0, latest if last is None else min(last, latest))
        return {"outcome": "commits", "commits": commits, "latest": latest}

    def entries(self, table: Table, first: int, last: int) -> list[Message]:
        """Published commits need not be listed."""
        versions = range(max(first, table.backfilled + 1), last + 1)
        return [{"version": version, "file_name": table.staged(version).name} for version in versions]

    def do_backfill_to_version(self, request: Message, table: Table) -> Message:
        for version in range(table.backfilled + 1, min(request["version"], len(table.ratified) - 1) + 1):
            put_if_absent(table.log / f"{version:020}.json", table.staged(version).read_text())
            self.record(fact="backfilled", table=request["table"], version=version)
        return {"outcome": "done"}

    def do_load_table(self, request: Message) -> Message:
        for reference, table in self.tables.items():
            location, latest = str(table.log.parent), len(table.ratified) - 1
            if not table.dropped and (request.get("name") == table.name or request.get("path") == location):
                return {"outcome": "table", "table": reference, "feature": table.feature, "commit_mode": "staged",
                        "latest": latest, "location": location, "commits": self.entries(table, 0, latest),
                        "protocol": newest(table, "protocol"), "metadata": newest(table, "metaData")}  # fmt: skip
        return {"outcome": "not_found"}

    def do_drop_table(self, request: Message, table: Table) -> Message:
        self.record(fact="dropped", table=request["table"])
        return {"outcome": "done"}

    def do_observe(self, request: Message, table: Table) -> Message:
        """The log as an external observer lists it."""
        files = []
        for path in sorted(path for path in table.log.rglob("*.json") if path.is_file()):
            text, status = path.read_text(), path.stat()
            files.append({"name": path.relative_to(table.log).as_posix(), "size": status.st_size, "content": text,
                          "modified": status.st_mtime_ns // 1_000_000})  # fmt: skip
        return {"outcome": "observation", "files": files}


def newest(table: Table, kind: str) -> str | None:
    """The latest action of a kind. Searches from the newest version back."""
    for version in reversed(range(len(table.ratified))):
        published = version <= table.backfilled
        path = table.log / f"{version:020}.json" if published else table.staged(version)
        for action in path.read_text().strip().split("\n"):
            if kind in json.loads(action):
                return action
    return None


def with_owner(action: Message) -> Message:
    """Write the owner's name into the table's properties, as managed-commits requires."""
    if "metaData" in action:
        action["metaData"]["configuration"]["delta.managedCommit.commitOwner"] = "example-python"
    return action


def put_if_absent(path: Path, text: str) -> None:
    """Write a durable file atomically. Raises `FileExistsError` if the file exists with another content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)  # fails if the file exists
    except FileExistsError:
        if path.read_text() != text:
            raise FileExistsError(f"{path.name} exists with another content") from None
    finally:
        temporary.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


if __name__ == "__main__":
    owner = Owner()
    for line in sys.stdin:
        call = json.loads(line)
        print(json.dumps({"id": call["id"], "answer": owner.answer(call["request"])}), flush=True)
