"""Take-overs and hand-backs, writers of files beside the owner, drops, and crashes and restarts of the owner."""

import os
from pathlib import Path
from typing import Any

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, commit_file
from conformance.models import proposals
from conformance.scenario.recording import witnesses
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle


def as_commit(answer: m.Answer, version: m.Version) -> m.Answer:
    """The answer to a put-if-absent of `<version>.json`, as that to the commit that it is."""
    if isinstance(answer, m.Done):
        return m.Ratified(version=version)
    return m.Conflict() if isinstance(answer, m.Conflict) else answer


def is_local(path: str) -> bool:
    """Whether a table's log is in a local folder, to which the kit can write directly."""
    return os.path.isdir(f"{path}/{LOG}")  # noqa: PTH112  # which takes names of any length


def put_beside(s: Scenario, plant: m.Plant) -> m.Answer:
    """Put-if-absent of a file while the subject is crashed or busy, or of one that is not text (its bytes are lone
    surrogates). If the kit cannot write to the folder, it requests that from the subject."""
    if not is_local(plant.table):
        return s.answer("filesystem writer", plant)
    path = Path(plant.table) / LOG / plant.file
    temporary = Path(plant.table) / f"{plant.file}.tmp"
    try:
        temporary.write_bytes(plant.content.encode("utf-8", "surrogateescape"))
        os.link(temporary, path)
    except FileExistsError:
        return m.Conflict()
    except OSError:
        return s.answer("filesystem writer", plant)
    finally:
        temporary.unlink(missing_ok=True)
    return m.Done()


def taking_over(s: Scenario, table: TableHandle, version: int | None = None, **options: Any) -> m.TakeOver:
    """The proposal of an ownership change, as a new attempt."""
    number = table.versions if version is None else version
    attempt = s.attempt()
    actions = proposals.ownership_change(attempt, s.timestamp(number), s.feature, table.id or s.attempt())
    fields: dict[str, Any] = {
        "path": table.path, "name": s.physical(table.name), "feature": s.feature, "commit_mode": s.commit_mode,
        "version": number, "attempt": attempt, "actions": actions,
    }  # fmt: skip
    return m.TakeOver(**{**fields, **options})


def giving_back(s: Scenario, table: TableHandle, version: int | None = None) -> m.HandBack:
    """The proposal to end the ownership, as a new attempt: it removes the feature and the owner."""
    number = table.versions if version is None else version
    attempt = s.attempt()
    actions = proposals.ownership_change(attempt, s.timestamp(number), None, table.id or s.attempt())
    return m.HandBack(table=table.reference, version=number, attempt=attempt, actions=actions)


def given_back(s: Scenario, table: TableHandle, exchange: Exchange) -> None:
    """Require that the commit that ends the ownership is published, at the latest on request. If the owner rejects the
    request, it may publish the commit later (RULINGS.md#staged-hand-back), and the scenario is inconclusive."""
    assert isinstance(exchange.request, m.HandBack)
    version = exchange.request.version
    table.versions = version + 1
    content = s.published(table).get(version)
    if content is None:
        backfill = s.ask("publisher", m.BackfillToVersion(table=table.reference, version=version))
        files = s.observe(table)
        content = next((file.content for file in files if file.name == commit_file(version)), None)
        staged = [file for file in files if proposals.attempt_of(file.content or "") == exchange.request.attempt]
        if content is None and staged and not isinstance(backfill.answer, m.Done):
            entry = m.CommitEntry(version=version, file_name=staged[0].name.rpartition("/")[2])
            table.final = witnesses(
                table.name, files, (entry,), commit_mode=s.commit_mode, before=table.before, ownership=table.ownership
            )
            raise Inconclusive(f"operation {exchange.number}: the hand-back is staged, and not published yet")
    else:
        table.ownership.append(exchange.request.attempt)
    attempt = proposals.attempt_of(content or "")
    s.require(
        attempt == exchange.request.attempt, "MC-RELEASE-05", "PROFILE-TRANSFER-01", evidence=(exchange,), table=table,
        version=version, expected=f"version {version} is the commit that ends the ownership, and is published",
        observed=f"it is {'not published' if content is None else f'attempt {attempt}'}",
    )  # fmt: skip


def drop(s: Scenario, table: TableHandle, client: str = "operator") -> Exchange:
    """Drop the table. Its final log is recorded before, because the owner may forget it afterwards."""
    table.final = s.log_of(table)
    exchange = s.ask(client, m.DropTable(table=table.reference))
    s.expect(exchange, m.Done, "PROFILE-DISCOVERY-01", may_refuse=True, expected="the table is dropped")
    return exchange


def crash(s: Scenario, point: str | None = None) -> None:
    """Crash the subject: now, or when it reaches a point."""
    s.mortal = True
    exchange = s.ask("operator", m.Crash(point=point))
    s.recording.writer.fault("crash", note="" if point is None else f"at {point}")
    if not isinstance(exchange.answer, m.Unknown):  # a subject that crashes at once may not answer
        s.expect(exchange, m.Done, "PROFILE-HARNESS-01", expected="the subject crashes as requested")


def restart(s: Scenario) -> None:
    """Restart the subject."""
    exchange = s.ask("operator", m.Restart())
    s.recording.writer.fault("restart")
    if isinstance(exchange.answer, m.Unknown):
        s.fail("PROFILE-DURABLE-03", "PROFILE-HARNESS-01", evidence=(exchange,), expected="the subject starts again",
               observed=f"it does not answer: {exchange.answer.reason}")  # fmt: skip
    s.expect(exchange, m.Done, "PROFILE-DURABLE-03", "PROFILE-HARNESS-01", expected="the subject starts again")
