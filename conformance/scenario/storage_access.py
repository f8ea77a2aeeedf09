"""A check's own changes to a table's files. Profile `storage-access`.

The kit accounts for planted files: a commit that an external writer publishes is recorded as a request whose answer was
lost, and a file that no owner could have written must be removed before the scenario ends.
"""

from conformance.interface import messages as m
from conformance.interface.log_names import STAGING, commit_file, staged_file
from conformance.models import proposals
from conformance.scenario.scenario import Exchange, Scenario, TableHandle


def plant(
    s: Scenario,
    table: TableHandle,
    file: str,
    content: str,
    *,
    if_absent: bool = False,
    client: str = "external writer",
) -> Exchange:
    """Write a file below the log folder. `if_absent`: the answer may be a conflict."""
    exchange = s.ask(client, m.Plant(table=table.reference, file=file, content=content, if_absent=if_absent))
    kinds = (m.Done, m.Conflict) if if_absent else m.Done
    s.expect(exchange, kinds, "PROFILE-STORAGE-01", expected=f"`done`: {file} is written")
    return exchange


def remove(s: Scenario, table: TableHandle, file: str, client: str = "external writer") -> Exchange:
    exchange = s.ask(client, m.Remove(table=table.reference, file=file))
    s.expect(exchange, m.Done, "PROFILE-STORAGE-01", expected=f"`done`: {file} is deleted")
    return exchange


def stage(
    s: Scenario, table: TableHandle, version: int | None = None, *, content: str | None = None,
    attempt: str | None = None, client: str = "writer",
) -> m.Commit:  # fmt: skip
    """Write a staged file. Returns the proposal of it. `content`: the content of the commit, in any layout."""
    number = table.versions if version is None else version
    own = attempt or s.attempt()
    text = proposals.content(proposals.append(own, s.timestamp(number))) if content is None else content
    name = staged_file(number, own)
    plant(s, table, f"{STAGING[s.feature]}/{name}", text, client=client)
    return m.Commit(table=table.reference, version=number, attempt=own, staged_file=name)


def publish(s: Scenario, table: TableHandle, proposal: m.Commit, client: str) -> None:
    """A commit by put-if-absent without notification of the owner."""
    content = proposals.content(proposal.actions or ())
    number = s.recording.invoke(client, table.name, proposal)
    s.recording.writer.fault("a commit by put-if-absent without the owner", client=client)
    file = commit_file(proposal.version)
    s.answer(client, m.Plant(table=table.reference, file=file, content=content, if_absent=True))
    s.recording.lost(number, "the owner was not notified")
