"""The scenarios: the clients, their operations, and the order of their steps.

Clients run the reference's ordinary code. Two parts are wrong on purpose: a store that overwrites
(`OverwritingFiles`), and a reader that lists the log before it asks the owner (`lists_first`).
"""

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa

from conformance.simulation.disk import SimulatedFiles
from conformance.simulation.effects import Kind, happening
from conformance.teaching.play.world import LOCATION, START_MS, TABLE, Actor, Scenario
from refimpl.client.create import create_filesystem_table, create_table
from refimpl.client.group_transaction import GroupTransaction, read_together
from refimpl.client.maintenance import clean_up, write_checkpoint
from refimpl.client.ownership import hand_back, take_over
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.protocol.actions import Add
from refimpl.protocol.commit_owner import ALLOWED_BY_DEFAULT, Maintenance, MaintenancePolicy
from refimpl.protocol.log_path import FileKind
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode, TableFeature
from refimpl.rows.partition_values import FileLayout
from refimpl.schema.schema import from_arrow

OTHER: Final = "stock"
"""The second table of a transfer."""
SCHEMA: Final = pa.schema([("id", pa.int64()), ("note", pa.string())])
AT_ONCE: Final = MaintenancePolicy(backfill_every=1, allowed=ALLOWED_BY_DEFAULT | {Maintenance.METADATA_CLEANUP})
ON_REQUEST: Final = MaintenancePolicy(backfill_every=None)

Client = Callable[[Actor], object]


# Operations of clients


def data_file(name: str) -> Add:
    return Add(path=f"{name}.parquet", partition_values={}, size=1, modification_time=0, data_change=True)


def table(
    *,
    feature: TableFeature = CATALOG_MANAGED,
    commit_mode: CommitMode = CommitMode.STAGED,
    policy: MaintenancePolicy = AT_ONCE,
    commits: tuple[str, ...] = (),
) -> Client:
    """An owned table with one data file for each of `commits`."""

    def make(actor: Actor) -> None:
        create_table(
            actor.owner, actor.environment, TABLE, SCHEMA,
            feature=feature, commit_mode=commit_mode, policy=policy, location=LOCATION,
        )  # fmt: skip
        for name in commits:
            appends(name)(actor)

    return make


def filesystem_table(*commits: str) -> Client:
    def make(actor: Actor) -> None:
        assert actor.warehouse
        create_filesystem_table(LOCATION, actor.environment, SCHEMA)
        for name in commits:
            appends(name, by_path=True)(actor)

    return make


def an_owner(actor: Actor) -> None:
    assert actor.warehouse


def appends(name: str, *, by_path: bool = False) -> Client:
    def run(actor: Actor) -> None:
        transaction = (actor.by_path() if by_path else actor.table()).transaction(operation="WRITE")
        transaction.add(data_file(name))
        actor.says(f"{name}.parquet is in version {transaction.commit().version}")

    return run


def rewrites(name: str, new: str, operation: str) -> Client:
    """Replaces one data file by another one, as UPDATE and DELETE do."""

    def run(actor: Actor) -> None:
        transaction = actor.table().transaction(operation=operation)
        transaction.remove(*[file for file in transaction.read_files() if file.path == f"{name}.parquet"])
        transaction.add(data_file(new))
        actor.says(f"{operation} is version {transaction.commit().version}")

    return run


def creates(actor: Actor) -> None:
    made = create_table(actor.owner, actor.environment, TABLE, SCHEMA, commit_mode=CommitMode.STAGED, policy=AT_ONCE)
    actor.says(f"created the table {made.table_id}")


def reads(actor: Actor) -> None:
    _says_snapshot(actor, actor.table().snapshot())


def reads_by_path(actor: Actor) -> None:
    _says_snapshot(actor, actor.by_path().snapshot())


def _says_snapshot(actor: Actor, snapshot: Snapshot) -> None:
    files = ", ".join(sorted(file.path for file in snapshot.files.values()))
    actor.says(f"sees version {snapshot.version} with {files or 'no file'}")


def lists_first(actor: Actor) -> None:
    """Wrong on purpose: the listing is older than the owner's answer, and the reader does not list again."""
    listing = actor.by_path().log.listing()
    listed = {entry.version for entry in listing if entry.kind is FileKind.COMMIT}
    resolved = actor.warehouse.table(TABLE)
    assert resolved.table_id is not None
    answer = actor.owner.get_commits(resolved.table_id)
    known = listed | {commit.version for commit in answer.commits}
    missing = sorted(set(range(1 + (answer.latest_ratified_version or 0))) - known)
    actor.says(f"knows of versions {sorted(known)}; missing: {missing or 'none'}")


def asks_again(name: str) -> Client:
    """Looks up the outcome of an attempt whose writer crashed."""

    def run(actor: Actor) -> None:
        resolved = actor.table()
        assert resolved.table_id is not None
        attempt = actor.attempt_of(name)
        if attempt is None:
            actor.says(f"{name} proposed nothing")
            return
        outcome = actor.owner.attempt_outcome(resolved.table_id, attempt)
        actor.says(f"the attempt of {name}: {type(outcome).__name__}")

    return run


def backfills(actor: Actor) -> None:
    resolved = actor.table()
    assert resolved.table_id is not None
    done = actor.owner.backfill_to_version(resolved.table_id)
    actor.says(f"published through version {done.through}, {done.published} of them now")


def checkpoints(version: int) -> Client:
    def run(actor: Actor) -> None:
        actor.says(f"checkpoint {write_checkpoint(actor.table(), version).name}")

    return run


def cleans_up(actor: Actor) -> None:
    done = clean_up(actor.table(), older_than=0)
    actor.says(f"deleted {', '.join(done.deleted) or 'nothing'}")


def takes_over(feature: TableFeature) -> Client:
    def run(actor: Actor) -> None:
        taken = take_over(actor.by_path(), actor.owner, TABLE, feature, commit_mode=CommitMode.STAGED, policy=AT_ONCE)
        actor.says(f"the owner has the table since version {taken.snapshot().version}")

    return run


def hands_back(actor: Actor) -> None:
    actor.says(f"the table is a filesystem table since version {hand_back(actor.table()).snapshot().version}")


def tells_times(actor: Actor) -> None:
    for entry in reversed(actor.table().history()):
        actor.says(f"version {entry.version} has the timestamp {entry.timestamp - START_MS:+,} ms")


def task(number: int, attempt: int) -> Client:
    """One attempt of a task of a distributed write: data files first, then one message to the driver."""

    def run(actor: Actor) -> None:
        from refimpl.spark.commit_protocol import WriteTask

        with tempfile.TemporaryDirectory() as folder:
            layout = FileLayout(location=Path(folder), schema=from_arrow(SCHEMA))
            writer = WriteTask(layout=layout, indexed=frozenset())
            actor.does("writes", f"and syncs the data file of task {number}, attempt {attempt}")
            rows = pa.RecordBatch.from_pydict({"id": [number], "note": ["x"]}, schema=SCHEMA)
            message = writer.run(iter([rows]), split=number, attempt=attempt)
        actor.does("sends", f"the message of task {number}, attempt {attempt}, to the driver")
        actor.world.messages.append(message)

    return run


def two_accounts(actor: Actor) -> None:
    """Two tables, `orders` and `stock`, each with a version 0."""
    table()(actor)
    create_table(
        actor.owner, actor.environment, OTHER, SCHEMA, feature=CATALOG_MANAGED, commit_mode=CommitMode.STAGED,
        policy=AT_ONCE, location=LOCATION.with_name(OTHER),
    )  # fmt: skip


def moves_in_two_commits(name: str) -> Client:
    """Takes goods from the stock and writes the order, each as a commit of its own."""

    def run(actor: Actor) -> None:
        for account in (OTHER, TABLE):
            transaction = Table.resolve(account, actor.owner, actor.environment).transaction(operation="WRITE")
            transaction.add(data_file(name))
            actor.says(f"{name}.parquet is in version {transaction.commit().version} of {account}")

    return run


def moves_as_a_group(name: str) -> Client:
    """The same as one transaction over both tables."""

    def run(actor: Actor) -> None:
        with GroupTransaction(actor.owner, actor.environment, [OTHER, TABLE]) as both:
            for account in (OTHER, TABLE):
                transaction = both.table(account).transaction(operation="WRITE")
                transaction.add(data_file(name))
                transaction.commit()
        actor.says(f"{name}.parquet is in both tables")

    return run


def reads_both(actor: Actor) -> None:
    shown = []
    for read in read_together(actor.owner, actor.environment, [OTHER, TABLE]):
        files = ", ".join(sorted(file.path for file in read.snapshot.files.values()))
        shown.append(f"{read.table.name} has {files or 'no file'}")
    actor.says("; ".join(shown))


def drives(actor: Actor) -> None:
    """The driver: one transaction with the files of all tasks."""
    from refimpl.spark.commit_protocol import gather

    transaction = actor.table().transaction(operation="WRITE")
    files = gather(pa.Table.from_batches(actor.world.messages))
    transaction.add(*files.added)
    actor.says(f"{len(files.added)} data files are in version {transaction.commit().version}")


class OverwritingFiles(SimulatedFiles):
    """A store without put-if-absent: a new file replaces an existing one of that name."""

    def link(self, source: Path, target: Path) -> None:
        with happening(self._hook, Kind.LINK, target):
            with contextlib.suppress(FileNotFoundError):
                self.disk.unlink(target, now=0)
            self.disk.link(source, target, now=0)


# The scenarios


_ALL: Final = (
    Scenario(
        name="lost-write",
        title="Two writers, and a store without put-if-absent",
        about="A filesystem table on a store that overwrites. Both writers read version 0 and commit version 1.",
        clients={"A": appends("a", by_path=True), "B": appends("b", by_path=True)},
        story=("A to link .*1.json", "B to link .*1.json", "A", "B"),
        setup=filesystem_table(),
        files=OverwritingFiles,
        ends="Both writers report that they committed version 1. A's file is in no version.",
    ),
    Scenario(
        name="commit",
        title="A commit through the owner",
        about="One writer stages its commit, proposes it, and the owner ratifies and publishes it.",
        clients={"A": appends("a"), "R": reads},
        story=("A", "R"),
        setup=table(),
        ends="Version 1 is ratified and published; the reader sees it.",
    ),
    Scenario(
        name="version-0",
        title="A race on version 0",
        about="Two clients create one table at the same time. Registration decides.",
        clients={"A": creates, "B": creates},
        story=("A to send register", "B to send register", "B", "A"),
        setup=an_owner,
        ends="B created the table. A's creation fails, and leaves no file.",
    ),
    Scenario(
        name="lost-race",
        title="A lost race, and a rebase",
        about="Both writers propose version 1. The loser checks the winner and proposes the same change as version 2.",
        clients={"A": appends("a"), "B": appends("b")},
        story=("A to send commit", "B to send commit", "A", "B"),
        setup=table(),
        ends="Both changes are in the table, one after the other.",
    ),
    Scenario(
        name="conflict",
        title="A conflict that a rebase cannot solve",
        about="An UPDATE and a DELETE rewrite the same data file. Only one of them may land.",
        clients={"A": rewrites("x", "x-updated", "UPDATE"), "B": rewrites("x", "x-without-rows", "DELETE")},
        story=("A to send commit", "B to send commit", "A", "B"),
        setup=table(commits=("x",)),
        ends="UPDATE is version 2. DELETE ends with an error.",
    ),
    Scenario(
        name="lost-answer",
        title="The answer is lost",
        about="The owner ratifies, and its answer does not arrive. The writer asks for the outcome of its attempt.",
        clients={"A": appends("a")},
        story=("A to ^answer commit", "drop the answer for A", "A"),
        setup=table(),
        ends="The writer knows that it committed version 1, and wrote nothing twice.",
    ),
    Scenario(
        name="dies-before-the-decision",
        title="A writer dies before the decision",
        about="The staged file is durable, but the owner has recorded nothing yet.",
        clients={"A": appends("a"), "R": asks_again("A"), "B": appends("b")},
        story=("A to ^commit ledger", "crash A", "R", "B"),
        setup=table(),
        ends="A's attempt did not land and never will. Version 1 is B's.",
    ),
    Scenario(
        name="dies-after-the-decision",
        title="A writer dies after the decision",
        about="The owner's transaction is durable; the version is neither published nor answered.",
        clients={"A": appends("a"), "R": asks_again("A"), "B": appends("b")},
        story=("A past ^commit ledger", "A to .", "crash A", "R", "B"),
        setup=table(),
        ends="Version 1 is A's, although A never learned it. B's change is version 2.",
    ),
    Scenario(
        name="stale-reader",
        title="A reader by path is stale",
        about="A managedCommit table may be read without its owner. Such a reader sees what is published.",
        clients={"A": appends("a"), "P": reads_by_path, "R": reads, "M": backfills, "Q": reads_by_path},
        story=("A", "P", "R", "M", "Q"),
        setup=table(feature=MANAGED_COMMIT, policy=ON_REQUEST),
        feature=MANAGED_COMMIT,
        ends="By path version 1 was visible only after the backfill; through the owner it was at once.",
    ),
    Scenario(
        name="lists-before-it-asks",
        title="A reader lists the log before it asks the owner",
        about="L is wrong on purpose. Between its listing and its request a version is ratified and published.",
        clients={"L": lists_first, "A": appends("a"), "R": reads},
        story=("L past list", "A", "L", "R"),
        setup=table(),
        ends="L misses version 1: neither its listing nor the answer has it. R asks first.",
    ),
    Scenario(
        name="two-backfillers",
        title="Two backfillers at once",
        about="Both publish versions 1 to 3. The log grows in order, in any order of their steps.",
        clients={"A": backfills, "B": backfills},
        story=("A past ^link .*1.json", "B to acquire", "A", "B"),
        setup=table(policy=ON_REQUEST, commits=("a", "b", "c")),
        ends="Versions 1, 2 and 3 are published.",
    ),
    Scenario(
        name="checkpoint-too-early",
        title="A checkpoint beyond the published prefix",
        about="Version 2 is ratified and not published. A checkpoint of it would be read without its commits.",
        clients={"A": checkpoints(2), "M": backfills, "B": checkpoints(2)},
        story=("A", "M", "B"),
        setup=table(policy=ON_REQUEST, commits=("a", "b")),
        ends="The checkpoint came after the backfill.",
    ),
    Scenario(
        name="cleanup-under-a-reader",
        title="Cleanup during a slow read",
        about="The reader knows which files it needs. Then a checkpoint is written, and old commits are deleted.",
        clients={"R": reads, "C": checkpoints(2), "D": cleans_up},
        story=("R past list", "C", "D", "R"),
        setup=table(commits=("a", "b")),
        ends="The reader sees a whole version.",
    ),
    Scenario(
        name="take-over",
        title="A take-over, and a writer that does not know yet",
        about="W wants to create version 1 in the file system while the owner takes the table over as version 1.",
        clients={"T": takes_over(CATALOG_MANAGED), "W": appends("w", by_path=True)},
        story=("W to ^link .*1.json", "T", "W"),
        setup=filesystem_table(),
        ends="The take-over is version 1. W lost, found that the table has an owner, and ended with an error.",
    ),
    Scenario(
        name="hand-back",
        title="A hand-back",
        about="The owner publishes everything and ends its ownership with one last commit.",
        clients={"H": hands_back, "W": appends("w", by_path=True)},
        story=("H", "W"),
        setup=table(policy=ON_REQUEST, commits=("a",)),
        ends="W writes by path, as before the ownership.",
    ),
    Scenario(
        name="clock-goes-back",
        title="A clock that is behind",
        about="B's clock is an hour behind. In-commit timestamps must still increase.",
        clients={"A": appends("a"), "B": appends("b"), "R": tells_times},
        story=("A", "B", "R"),
        setup=table(),
        clocks={"B": -3600000},
        ends="Version 2 is 1 ms later than version 1.",
    ),
    Scenario(
        name="time-travel-across-enablement",
        title="Time travel across the enablement of in-commit timestamps",
        about="Versions 0 and 1 have the times of their files, later ones the times in their commits.",
        clients={"T": takes_over(CATALOG_MANAGED), "A": appends("b"), "R": tells_times},
        story=("T", "A", "R"),
        setup=filesystem_table("a"),
        ends="The times increase from version to version across the change.",
    ),
    Scenario(
        name="power-before-the-sync",
        title="The power fails before a sync",
        about="The staged file is written and not synced yet: it is in memory only.",
        clients={"A": appends("a"), "R": reads},
        story=("A to ^fsync _staged", "cut the power", "R"),
        setup=table(),
        ends="Nothing was acknowledged, and the staged file is lost. Version 0 is the latest.",
    ),
    Scenario(
        name="power-after-the-decision",
        title="The power fails after the decision",
        about="The owner has committed its transaction. SQLite synced it; nothing is published yet.",
        clients={"A": appends("a"), "R": reads},
        story=("A past ^commit ledger", "A to .", "cut the power", "R"),
        setup=table(),
        ends="Version 1 exists: the owner's decision is durable.",
    ),
    Scenario(
        name="delayed-commit",
        title="The delayed commit protocol: a failed and a doubled task",
        about="Task 0 runs twice; Spark takes one message and kills the other attempt. Task 1 fails and is retried.",
        clients={"T0": task(0, 0), "T0b": task(0, 3), "T1": task(1, 1), "T1b": task(1, 2), "D": drives, "R": reads},
        story=("T0b to sends", "T0", "crash T0b", "T1 to sends", "crash T1", "T1b", "D", "R"),
        setup=table(),
        ends="One version has one file of each task. The files of the two dead attempts are in no version.",
    ),
    Scenario(
        name="transfer",
        title="A transfer between two tables, with and without a group",
        about="A file in stock records goods that leave, and the file of the same name in orders records their order. "
        "A writes the two in two commits, G and H in one group. A crashes between its commits, G just before the "
        "owner's decision, H just after it.",
        clients={
            "A": moves_in_two_commits("a"),
            "R": reads_both,
            "G": moves_as_a_group("g"),
            "Q": reads_both,
            "H": moves_as_a_group("h"),
            "S": reads_both,
        },
        story=(
            "A past ^result",
            "crash A",
            "R",
            "G to ^commit ledger",
            "crash G",
            "Q",
            "H past ^commit ledger",
            "crash H",
            "S",
        ),
        setup=two_accounts,
        ends="A's transfer is in the stock alone. G's is in neither table, because G crashed before the owner's "
        "transaction. H's is in both, although H crashed just after it.",
    ),
)

SCENARIOS: Final = {scenario.name: scenario for scenario in _ALL}
"""All scenarios by name, in the order of the course."""
