"""Scenarios for clients: a reader, a writer or a maintenance job under test, driven against the kit's own owner.

    table = s.create()
    s.land(table)                                  # the kit's other writers, by the owner's ordinary interface
    s.owner.on(m.GetCommits, before=lambda: s.backfill(table, 1))
    read = s.read(table)                           # the client under test
    s.require(read.version == 1, "MC-READ-07", "CM-READ-05", expected=...)

The owner is correct: every violation is the client's. Its storage is a real folder, which the client reads itself.
"""

import json
import shutil
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote, unquote_plus

import msgspec

from conformance.history import digests, events
from conformance.interface import messages as m
from conformance.interface.log_names import FILESYSTEM, LOG, STAGED_TABLES, STAGING, commit_file
from conformance.interface.messages import name_of
from conformance.interface.results import STRAYS, Violation, headline
from conformance.interface.subject import Subject
from conformance.models import proposals
from conformance.models.client_owner import ClientOwner
from conformance.models.storage import FolderStorage
from conformance.oracle import groups
from conformance.scenario import api_requests
from conformance.scenario.adversary import Adversary, ClientHost, OwnerExchange
from conformance.scenario.audit import (
    Before,
    Problem,
    Proposed,
    after,
    data_files,
    of_a_commit,
    of_all,
    of_data_files,
    of_one,
)
from conformance.scenario.check import Variant, applies
from conformance.scenario.formatting import NO_SUCH_JOB, different_action
from conformance.scenario.recording import final_contents
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle

A = TypeVar("A", bound=m.Message)
PROPOSALS: Final = "proposals"
"""The identity's limit of proposals of one transaction; 1: the client gives up after a lost race."""


def _spelled(name: str) -> str:
    """What all spellings of a file name have in common: encoded or not, in either case, in any Unicode form."""
    while (plain := unquote_plus(name)) != name:
        name = plain
    return unicodedata.normalize("NFC", name).casefold()


class ClientScenario(Scenario):
    """As `Scenario`, whose requests go to the kit's owner; `act` asks the client under test."""

    def __init__(
        self, client: Subject, variant: Variant, host: ClientHost, *, name: str, seed: int = 0, salt: str = ""
    ) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="conformance-"))
        """The owner of this scenario alone."""
        self.folder = self.place / "tables"
        self.folder.mkdir()
        self.owner = Adversary(ClientOwner(FolderStorage(self.folder)))
        super().__init__(self.owner.subject, variant, name=name, seed=seed, salt=salt, judged=client.identity)
        self.client = client
        self.host = host
        self.acting = 0
        """The number of the client's operation; of one on several tables, that on the first."""
        self.parts: dict[str, int] = {}
        """Of an operation on several tables, the number of that on each one, by reference."""
        self.newest: Exchange | None = None
        """The newest operation that ended."""
        self.archive: dict[str, dict[int, events.Witness]] = {}
        """The log before a cleanup may have removed parts of it, by table."""
        self.cleaned: dict[str, dict[int, tuple[str | None, str | None]]] = {}
        """The same with contents, by reference."""
        self.markers: dict[int, str] = {}
        """The marker of the client's transaction, by operation."""
        self.attempts: set[str] = set()
        """All ids that the kit assigned: attempts of its own writers, and markers of the client's transactions."""
        self.reported: dict[tuple[str, int], str] = {}
        """The marker of the transaction that the client reported, by table and version."""
        self.requested: dict[int, tuple[str, ...]] = {}
        """The files that the client's transaction adds, by operation."""
        self.renamed: dict[str, tuple[str, ...]] = {}
        """If the client chose the names of its files: the requested files that a file in the log contains, by
        path."""
        self.free: dict[str, int] = {}
        """The version that was free when the client's operation began, by table."""
        self.proposed: list[Proposed] = []
        """The proposals of the client under test to the owner, in order."""
        self.informed: set[int] = set()
        """Operations in which the client asked its owner."""
        self.unsupported: dict[type[m.Request], str] = {}
        """The reason that the client gave for not supporting a kind of request."""
        self.strays: list[tuple[int, Path]] = []
        """Files and folders that the client created outside the table's folder, by operation."""
        self.found: list[tuple[int, Problem]] = []
        """Findings about commits that the client published, and about its requests to a catalog, by operation."""
        self.calls: list[api_requests.Sent] = []
        """The creations and updates that the client sent to a catalog with the Delta API, in order."""
        self.undo: list[Callable[[], object]] = []
        """Undo operations that restore the files before the final log is read."""
        self.owner.listener = self._heard
        host.current = self.owner

    def attempt(self) -> m.AttemptId:
        given = super().attempt()
        self.attempts.add(given)
        return given

    def act(self, client: str, request: m.Request, table: TableHandle | None = None) -> Exchange:
        """Send a request to the client under test, and record it."""
        self.owner.begin()
        if isinstance(request, m.Cleanup | m.Checkpoint | m.Transact):
            self.archive = {table.name: {entry.version: entry for entry in self.log_of(table)} for table in self.tables}
            self.cleaned = {reference: self._log(reference) for reference in self.owner.owner.tables}
        about = request
        if isinstance(request, m.TakeOver | m.HandBack):
            # The client finds the version itself, so the history records a transaction.
            about = m.Transact(table="", marker=request.attempt)
        number = self.acting = self._begun(client, about, self._name(request) if table is None else table.name)
        answer = self._asked(client, request)
        if about is not request and isinstance(answer, m.Ratified):
            self.recording.ended(number, about, m.Committed(version=answer.version))
            self.newest = Exchange(number=number, request=request, answer=answer)
            return self.newest
        if isinstance(about, m.Transact) and isinstance(answer, m.Committed) and answer.version is not None:
            self.reported[about.table, answer.version] = about.marker
        self.newest = exchange = self._ended(number, about, answer)
        self._check_end(request, exchange)
        return exchange

    def act_together(
        self, client: str, request: m.TransactGroup | m.Snapshots, tables: Sequence[TableHandle]
    ) -> tuple[m.Answer, list[Exchange]]:  # fmt: skip
        """Send a request about several tables to the client under test. The history records one for each table, all
        with the same beginning and end."""
        self.owner.begin()
        parts = groups.requests_of(request)
        numbers = [self._begun(client, part, table.name) for part, table in zip(parts, tables, strict=True)]
        self.acting, self.parts = numbers[0], {t.reference: n for t, n in zip(tables, numbers, strict=True)}
        answer = self._asked(client, request)
        answers = groups.answers_of(request, answer) if m.belongs(request, answer) else None
        exchanges = [
            self._ended(number, part, said)
            for number, part, said in zip(numbers, parts, answers or [m.Unknown()] * len(parts), strict=True)
        ]
        self.newest, self.parts = exchanges[0], {}
        if answers is None:
            self.fail(
                "PROFILE-CORE-03", evidence=exchanges[:1], expected=f"an answer about {len(parts)} tables",
                message=f"`{name_of(request)}` about {len(parts)} tables was answered `{name_of(answer)}`.",
            )  # fmt: skip
        self._check_end(request, exchanges[0])
        return answer, exchanges

    def _begun(self, client: str, request: m.Request, name: str) -> int:
        """Record a request, just before it is sent. Returns its number."""
        number = self.recording.invoke(client, name, request)
        if isinstance(request, m.CreateTable):
            self.markers[number] = request.attempt
        if isinstance(request, m.Transact):
            self.markers[number] = request.marker
            self.requested[number] = tuple(add.path for add in request.adds)
            self.free = {reference: owned.latest + 1 for reference, owned in self.owner.owner.tables.items()}
        return number

    def _asked(self, client: str, request: m.Request) -> m.Answer:
        """The client's answer. Notes what it published, and files that it created in other folders."""
        others = self._others(request)
        before, visible = self._outside(others), self._visible()
        sent = len(self.proposed)
        answer = self.client.ask(client, request)
        for proposed in self.proposed[sent:]:
            proposed.late = tuple(path for path in proposed.late if path.is_file())
        self.found += [(self.acting, problem) for problem in self._of_publishing(visible)]
        self.strays += [(self.acting, path) for path in sorted(self._outside(others) - before - self._places())]
        return answer

    def _check_end(self, request: m.Request, exchange: Exchange) -> None:
        """The client supports the request, and ended it by itself."""
        answer = exchange.answer
        if isinstance(answer, m.Unsupported):
            why = f": {answer.reason}" if answer.reason else ""
            unsupported = f"{NO_SUCH_JOB}: `{name_of(request)}` is unsupported{why}"
            self.unsupported[type(request)] = unsupported
            raise Inconclusive(unsupported)
        reading = ("PROFILE-CLIENT-01",) if isinstance(exchange.request, m.Snapshot) else ()
        self.require(
            not self.owner.endless, "CONFLICT-RETRY-06", "FIELD-04", *reading, evidence=(exchange,),
            expected="a client ends its operation, with success or with an error",
            observed=f"it sent the owner more than {len(self.owner.exchanges)} requests",
        )  # fmt: skip

    def transact(self, table: TableHandle, client: str = "writer", **changes: Any) -> Exchange:
        """A transaction of the client under test. `changes`: fields of the request, for example `adds`."""
        marker = self.attempt()
        return self.act(client, m.Transact(table=self.name_of(table), marker=marker, **changes), table)

    def read(self, table: TableHandle, *requirements: str, client: str = "reader", **options: Any) -> m.SnapshotRead:
        """A snapshot by the client under test, which must succeed."""
        exchange = self.act(client, m.Snapshot(table=self.name_of(table), **options))
        return self.expect(
            exchange, m.SnapshotRead, *requirements, "PROFILE-CLIENT-01", expected="a snapshot of the table"
        )

    def expect(
        self, exchange: Exchange, kinds: type[A] | tuple[type[A], ...], *requirements: str, expected: str,
        may_refuse: bool = False, because: Sequence[Exchange] = (), what: str = "",
    ) -> A:  # fmt: skip
        """As for an owner. A client that declares that it does not rebase may give up after a lost race; it did not
        lose one if its version was taken before its transaction began."""
        if self.gave_up(exchange) and not isinstance(exchange.answer, kinds):
            raise Inconclusive(f"operation {exchange.number} lost a race, and the client does not rebase")
        return super().expect(
            exchange, kinds, *requirements, expected=expected, may_refuse=may_refuse, because=because, what=what
        )

    def gave_up(self, exchange: Exchange) -> bool:
        """Whether the client's newest transaction lost a race, and the client declares that it proposes only once."""
        if not isinstance(exchange.answer, m.Conflict) or self.identity.limits.get(PROPOSALS) != 1:
            return False
        mine = [proposal.request for proposal in self.proposed if proposal.operation == exchange.number]
        commits = [request for request in mine if isinstance(request, m.Commit)]
        return bool(commits) and all(commit.version >= self.free.get(commit.table, 0) for commit in commits)

    def commits_as(self, call: Exchange, version: int, *requirements: str, expected: str) -> None:
        """Require that the transaction was committed as this version."""
        done = self.expect(call, m.Committed, *requirements, expected=expected)
        self.require(done.version == version, *requirements, evidence=(call,), expected=expected)

    def not_answered_as_failed(self, call: Exchange) -> None:
        """Require that the client did not report a failure: its attempt landed, and the answer was lost."""
        self.require(
            not isinstance(call.answer, m.Rejected | m.Conflict), "PROFILE-UNKNOWN-01", evidence=(call,),
            expected="the attempt landed, and its answer was lost: the outcome is unknown, not a failure",
        )  # fmt: skip

    def name_of(self, table: TableHandle | None) -> str:
        """The table's name in requests to the client; for a plain table its path."""
        if table is not None and self.feature == FILESYSTEM:
            return self.location(table)
        return self.physical("" if table is None else table.name)

    def location(self, table: TableHandle) -> str:
        """The table's folder."""
        if table.path is not None:
            return table.path
        return self.owner.owner.tables[table.reference].location

    def actions_of(self, table: TableHandle, version: int, kind: str) -> list[dict[str, Any]]:
        """The bodies of a commit's actions of this kind, published or not. A file that the client renamed is replaced
        by the requested files."""
        parsed = [json.loads(line) for line in proposals.lines(self.content_of(table, version))]
        bodies = [action[kind] for action in parsed if kind in action]
        if kind not in ("add", "remove"):
            return bodies
        return [
            {**body, "path": name} for body in bodies for name in self._requested(self._relative(table, body["path"]))
        ]

    def action_of(self, table: TableHandle, version: int, kind: str, call: Exchange) -> dict[str, Any]:
        """The body of the only action of this kind, which the client's commit must have."""
        bodies = self.actions_of(table, version, kind)
        self.require(
            len(bodies) == 1, "PROFILE-CLIENT-02", evidence=(call,), table=table, version=version,
            expected=f"version {version} has one action `{kind}`", observed=f"version {version} has {len(bodies)}",
        )  # fmt: skip
        return bodies[0]

    def _relative(self, table: TableHandle, path: str) -> str:
        """A path in an action may be an absolute URI: relative to the table's folder, if it is below that."""
        folder = quote(self.location(table))
        return path.removeprefix(f"file://{folder}/").removeprefix(f"{folder}/")

    def _requested(self, path: str) -> tuple[str, ...]:
        renamed = self.renamed.get(self.decoded(path))
        return (path,) if renamed is None else tuple(quote(name) for name in renamed)

    def decoded(self, path: str) -> str:
        """A path in an action is a URL-encoded URI."""
        return unquote(path)

    # Tables without an owner

    def filesystem_table(self, name: str) -> TableHandle:
        """A table with version 0 and no owner."""
        path = str(self.folder / self.physical(name))
        table = TableHandle(name=name, reference=path, versions=1, before=1, path=path)
        self.tables.append(table)
        plain = FILESYSTEM if self.feature == FILESYSTEM else None
        actions = proposals.version_0(plain, self.attempt(), self.attempt())
        self.answer("kit", m.Plant(table=path, file=commit_file(0), content=proposals.content(actions)))
        return table

    def write_file(self, table: TableHandle, client: str = "filesystem writer") -> str:
        """Another writer commits the next version by creating its file. Returns its content."""
        content = proposals.content(proposals.append(self.attempt(), self.timestamp(table.versions)))
        request = m.Transact(table=table.reference, marker=proposals.attempt_of(content) or "")
        number = self.recording.invoke(client, table.name, request)
        plant = m.Plant(table=table.reference, file=commit_file(table.versions), content=content, if_absent=True)
        self.answer("kit", plant)
        self.recording.ended(number, request, m.Committed(version=table.versions))
        table.versions += 1
        return content

    def content_of(self, table: TableHandle, version: int) -> str:
        """The content of a commit, published or not."""
        return self._log(table.reference).get(version, (None, None))[1] or ""

    def listed(self, table: TableHandle | None) -> tuple[m.CommitEntry, ...]:
        """The commits that the owner lists; the history does not record this request."""
        reply = self.answer("kit", m.GetCommits(table="" if table is None else table.reference))
        return reply.commits if isinstance(reply, m.Commits) else ()

    def asked(self, kind: type[m.Message]) -> Sequence[OwnerExchange]:
        """The requests of this kind from the client under test to the owner."""
        return [heard for heard in self.owner.exchanges if isinstance(heard.request, kind)]

    def conclude(self) -> str:
        for undo in self.undo:
            undo()
        return super().conclude()

    def close(self) -> None:
        """Remove the folder; further requests are answered `Unknown`."""
        self.host.current = None
        shutil.rmtree(self.place, ignore_errors=True)

    def log_of(self, table: TableHandle) -> list[events.Witness]:
        """The final log, in which commits of the client have the markers of its transactions instead of their
        txnIds."""
        tables = self.owner.owner.tables
        owned = tables.get(table.reference)
        markers = self._own_files(table) or {
            table.landed[proposed.request.attempt]: self.markers[proposed.operation]
            for table in tables.values()
            if owned is not None and table.location == owned.location
            for proposed in self.proposed
            if proposed.request.attempt in table.landed and proposed.operation in self.markers
        }
        current = {
            entry.version: msgspec.structs.replace(entry, attempt=markers.get(entry.version, entry.attempt))
            for entry in super().log_of(table)
        }
        return [entry for _, entry in sorted({**self.archive.get(table.name, {}), **current}.items())]

    def _own_files(self, table: TableHandle) -> dict[int, str]:
        """The versions of a plain table that the client under test created, with the markers of its transactions. A
        file without a `txnId`, or with the client's own, belongs to the transaction reported as that version."""
        if self.feature != FILESYSTEM:
            return {}
        known, own = set(self.markers.values()), {}
        for version, (_, content) in self._log(table.reference).items():
            marker = (proposals.body_of(content or "", "commitInfo") or {}).get("txnId")
            if marker not in self.attempts:
                marker = self.reported.get((self.location(table), version))
            if marker in known:
                own[version] = marker
        return own

    def _outside(self, others: set[Path]) -> set[Path]:
        """Files and folders next to the tables' folders, and in the folders of other tables."""
        files = {*self.place.iterdir(), *self.folder.iterdir()}
        return files.union(*(folder.rglob("*") for folder in others))

    def _others(self, request: m.Request) -> set[Path]:
        """The folders of other tables than that of the request. None while a rule lets other writers write there."""
        references = {getattr(request, "table", None), getattr(request, "path", None)}
        own = {self._place_of(table) for table in self.tables if references & self._names_of(table)}
        if not own or any(rule.times > 0 for rule in self.owner.rules):
            return set()
        return {self._place_of(table) for table in self.tables} - own

    def _names_of(self, table: TableHandle) -> set[str]:
        """All names and references by which requests may name the table."""
        known = self.owner.owner.tables.get(table.reference)
        names = {self.name_of(table), table.reference, str(self._place_of(table))}
        return names if known is None else {*names, known.name}

    def _places(self) -> set[Path]:
        """The folders of tables, and the folder in which clients create tables."""
        known = {Path(table.location) for table in self.owner.owner.tables.values()}
        return {*known, *map(self._place_of, self.tables), self.folder / STAGED_TABLES}

    def _place_of(self, table: TableHandle) -> Path:
        known = self.owner.owner.tables.get(table.reference)
        return Path(self.folder, (table.path or table.reference) if known is None else known.location)

    def audit(self) -> list[Violation]:
        """Violations in the proposals of the client under test, and files that it wrote to other folders."""
        return [*self._of_proposals(), *self._of_findings(), *self._of_strays()]

    def _visible(self) -> set[Path]:
        """The published commits of all tables."""
        return {path for folder in self._places() for path in (folder / LOG).glob("*.json")}

    def _of_publishing(self, before: Set[Path]) -> Iterator[Problem]:
        """Findings about the commits that the client published, and that the catalog still lists. `before`: the
        published commits before its operation. catalog-managed, "Publishing Commits"."""
        for table in self.owner.owner.tables.values():
            for version in sorted(table.unbackfilled) if table.feature == "catalogManaged" else ():
                path = Path(table.location, LOG, commit_file(version))
                if path in before or not path.exists():
                    continue
                if version - 1 in table.unbackfilled and not path.with_name(commit_file(version - 1)).exists():
                    yield Problem(
                        ("CM-PUBLISH-08",), f"version {version - 1} is published before version {version}",
                        f"the client published version {version}, and version {version - 1} is not published",
                    )  # fmt: skip
                content = self.owner.owner.listed_content(table, version)
                if content is None:
                    continue
                listed, copy = (digests.of_file(data) for data in (content.encode(), path.read_bytes()))
                inline = table.unbackfilled[version].actions is not None  # it may be published in any layout
                if copy.actions != listed.actions if inline else copy.bytes != listed.bytes:
                    text = path.read_text("utf-8", "replace")
                    differs = different_action("the catalog has", content.split("\n"), "the file", text.split("\n"))
                    yield Problem(
                        ("CM-PUBLISH-07",), f"{path.name} is a copy of the commit that the catalog lists",
                        f"the client published {path.name} with other {'actions' if inline else 'bytes'}: {differs}",
                    )  # fmt: skip

    def _of_findings(self) -> Iterator[Violation]:
        for number, problem in self.found:
            if held := tuple(
                requirement for requirement in problem.requirements if applies(requirement, self.identity, self.variant)
            ):
                yield Violation(
                    requirements=held, message=headline(problem.expected, problem.observed), expected=problem.expected,
                    observed=problem.observed, operations=(number,),
                )  # fmt: skip

    def _of_strays(self) -> Iterator[Violation]:
        expected = "a client creates files only in the folder of the requested table, and in its own folders"
        for number, path in self.strays:
            observed = f"operation {number} created {str(path.relative_to(self.place))!r}, outside its table's folder"
            yield Violation(
                requirements=STRAYS, message=headline(expected, observed), expected=expected,
                observed=observed, operations=(number,),
            )  # fmt: skip

    def _of_proposals(self) -> list[Violation]:
        problems = list(self._audited())
        return [
            Violation(
                requirements=held,
                message=headline(problem.expected, problem.observed),
                expected=problem.expected,
                observed=problem.observed,
                operations=(proposed.operation,),
                version=proposed.version,
            )
            for proposed, problem in problems
            if (
                held := tuple(
                    requirement
                    for requirement in problem.requirements
                    if applies(requirement, self.identity, self.variant)
                )
            )
        ]

    def _audited(self) -> Iterator[tuple[Proposed, Problem]]:
        for proposed in self.proposed:
            yield from ((proposed, problem) for problem in of_one(proposed, self.feature, self.commit_mode))
        yield from of_all(self.proposed)
        yield from self._written_past_the_owner()
        operations = {marker: number for number, marker in self.markers.items()}
        for plain in self.tables:
            for version, marker in self._own_files(plain).items():
                lines = tuple(proposals.lines(self.content_of(plain, version)))
                request = m.Commit(table=plain.reference, version=version, attempt=marker, actions=lines)
                proposed = Proposed(operation=operations[marker], request=request, lines=lines)
                yield from ((proposed, problem) for problem in of_one(proposed, self.feature, self.commit_mode))
        for reference, table in self.owner.owner.tables.items():
            landed = {table.landed[sent.request.attempt]: sent for sent in self._proposed_for(reference, table.landed)}
            before, lost = Before(), {proposal.operation for proposal in self.proposed if proposal.refused}
            versions = sorted(self._log(reference).items())
            contents = [(version, line) for version, (_, text) in versions for line in proposals.lines(text or "")]
            for version, (_, content) in versions:
                if version in landed:
                    later = [line for other, line in contents if other > version]
                    removed = data_files(later, ("remove",), Path(table.location))
                    yield from ((landed[version], flaw) for flaw in of_data_files(landed[version], removed))
                    before.lost = landed[version].operation in lost
                    yield from ((landed[version], flaw) for flaw in of_a_commit(landed[version], before, self.feature))
                    yield from ((landed[version], flaw) for flaw in self._of_its_request(landed[version], before))
                mine = landed.get(version)
                before = after(before, content or "", None if mine is None else mine.operation)

    def _written_past_the_owner(self) -> Iterator[tuple[Proposed, Problem]]:
        """Commits of the client under test that bypassed its owner."""
        heard = {proposal.request.attempt for proposal in self.proposed}
        transactions = {marker: number for number, marker in self.markers.items()}
        tables = self.owner.owner.tables
        for reference, table in tables.items():
            same_log = [other for other in tables.values() if other.location == table.location]
            ratified = {version for other in same_log for attempt, version in other.landed.items() if attempt in heard}
            for version, (attempt, content) in self._log(reference).items():
                if attempt in transactions and version not in ratified:
                    lines = tuple((content or "").splitlines())
                    request = m.Commit(table=reference, version=version, attempt=attempt or "", actions=lines)
                    yield (
                        Proposed(operation=transactions[attempt or ""], request=request, lines=lines),
                        Problem(
                            ("MC-WRITE-03", "CM-WRITE-04", "MC-FILES-12"),
                            "a commit to an owned table is a proposal to the owner, never the creation of a file",
                            f"version {version} was created as a file, without a proposal to the owner",
                        ),
                    )

    def _proposed_for(self, reference: str, landed: dict[str, int]) -> list[Proposed]:
        here = (None, reference)
        return [
            proposal
            for proposal in self.proposed
            if proposal.request.attempt in landed and getattr(proposal.request, "table", None) in here
        ]

    def _log(self, reference: str) -> dict[int, tuple[str | None, str | None]]:
        seen = self.answer("kit", m.Observe(table=reference))
        listed = self.answer("kit", m.GetCommits(table=reference))
        files = seen.files if isinstance(seen, m.Observation) else ()
        contents = final_contents(files, listed.commits if isinstance(listed, m.Commits) else ())
        return {**self.cleaned.get(reference, {}), **contents}

    def _heard(self, heard: OwnerExchange) -> None:
        """Store the proposals, and record the client's requests to its owner in the history."""
        self.informed.add(self.acting)
        if isinstance(heard.request, m.CallApi):
            self._of_request(api_requests.Sent.of(self.acting, heard.request))
            return
        if isinstance(heard.request, m.CommitGroup):
            answer = heard.answer
            for index, commit in enumerate(groups.commits_of(heard.request)):
                # The others of a refused group may be proposed again.
                decided = answer.answer if isinstance(answer, m.GroupRefused) and answer.decided_by == index else None
                self._propose(commit, decided or (m.Unknown() if isinstance(answer, m.GroupRefused) else answer))
        if isinstance(heard.request, m.Commit | m.CreateTable | m.TakeOver | m.HandBack):
            lines = self._propose(heard.request, heard.answer)
            if self.calls:
                self._of_meaning(self.calls[-1], heard, lines)
        version = getattr(heard.request, "version", None)
        what = name_of(heard.request) + ("" if version is None else f" {version}")
        note = f"{what} -> {name_of(heard.answer)}"
        self.recording.writer.fault("asks the owner", client=heard.client, note=note)

    def _propose(
        self, request: m.Commit | m.CreateTable | m.TakeOver | m.HandBack, reply: m.Answer
    ) -> Sequence[str] | None:  # fmt: skip
        """Store a proposal of the client. Returns its actions."""
        refused = isinstance(reply, m.Conflict | m.Gap) or (isinstance(reply, m.Rejected) and not reply.retryable)
        lines, operation = self._lines(request), self.parts.get(getattr(request, "table", ""), self.acting)
        adds = (add for line in lines or () if (add := proposals.body_of(line, "add")) is not None)
        self.note_names(adds, operation)
        named = sorted(self._data_files(request, lines))
        files = tuple(path for path in named if path.is_file())
        late = tuple(path for path in named if path not in files)
        self.proposed.append(
            Proposed(operation=operation, request=request, lines=lines, refused=refused, files=files, late=late)
        )
        return lines

    # Requests to a catalog with the Delta API

    def _of_request(self, sent: api_requests.Sent) -> None:
        if not sent.path.endswith("/tables"):
            table = self.owner.owner.tables.get((sent.update and sent.update.table_id) or "")
            problems = api_requests.of_an_update(sent, self.calls, table)
            self.found += [(self.acting, problem) for problem in problems]
        self.calls.append(sent)

    def _of_meaning(self, sent: api_requests.Sent, heard: OwnerExchange, lines: Sequence[str] | None) -> None:
        """The catalog sent the owner this proposal for the client's request."""
        sent.outcome_unknown = isinstance(heard.answer, m.Unknown)
        if isinstance(heard.request, m.CreateTable) and sent.path.endswith("/tables"):
            self.found += [(self.acting, problem) for problem in api_requests.of_a_creation(sent, lines or ())]

    def _of_its_request(self, proposed: Proposed, before: Before) -> Iterator[Problem]:
        name = getattr(proposed.request, "staged_file", None)
        sent = next((sent for sent in self.calls if sent.file_name == name is not None), None)
        return iter(()) if sent is None else api_requests.of_a_commit(sent, proposed.lines or (), before)

    def _data_files(self, request: m.Request, lines: Sequence[str] | None) -> set[Path]:
        """The data files that a proposal adds to its table."""
        table = self.owner.owner.tables.get(getattr(request, "table", ""))
        return set() if table is None else data_files(lines or (), ("add", "cdc"), Path(table.location))

    def note_names(self, adds: Iterable[dict[str, Any]], operation: int) -> None:
        """Map the files that the client renamed to the requested ones: one to one if their number is equal, otherwise
        all to the first. A name that is another spelling of a requested one is no new name."""
        wanted = self.requested.get(operation, ())
        paths = [self.decoded(str(add.get("path"))) for add in adds]
        kept = {_spelled(name) for name in wanted} & {_spelled(path) for path in paths}
        new = [path for path in paths if _spelled(path) not in kept]
        names = tuple(name for name in wanted if _spelled(name) not in kept)
        if len(new) == len(names):
            self.renamed.update((path, (name,)) for path, name in zip(new, names, strict=True))
        elif new and names:
            self.renamed[new[0]] = names

    def _lines(self, request: m.Commit | m.CreateTable | m.TakeOver | m.HandBack) -> tuple[str, ...] | None:
        """The actions of a proposal, inline or from its staged file."""
        if request.actions is not None:
            return request.actions
        staged = getattr(request, "staged_file", None)
        if staged is None or not isinstance(request, m.Commit) or request.table not in self.owner.owner.tables:
            return None
        table = self.owner.owner.tables[request.table]
        file = self.owner.owner.storage.read(f"{table.location}/{LOG}/{STAGING[table.feature]}/{staged}")
        return None if file is None else tuple(proposals.lines(file.content))

    def _name(self, request: m.Request) -> str:
        named = getattr(request, "table", None)
        for table in self.tables:
            if named is not None and named == self.name_of(table):
                return table.name
        return super()._name(request)
