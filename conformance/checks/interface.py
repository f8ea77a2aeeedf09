"""The interface itself: `hello` is constant, every request gets an answer, and the kit can read and write files.

PROFILES.md#every-subject: the requirements without which the kit cannot judge a subject's other answers.

Unity Catalog's Delta API: programs of requests that no client of Delta would send, and sequences of requests.

Why examples: they test what the oracle takes for granted: the adapter, `hello` and what `observe` shows; and for the
API, calls that an owner does not have, such as a rename, and whole documents.
"""

import json
from functools import partial
from typing import Any, Final

import msgspec

from conformance.adapters.identity import contradictions
from conformance.adapters.uc.api import ApiCommit
from conformance.adapters.uc.api import Loaded as Before
from conformance.adapters.uc.owner import updates_of
from conformance.checks import check, families
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.programs.delta_api import (
    EXISTS,
    INVALID,
    NO_ID,
    NO_SCHEMA,
    NO_TABLE,
    ROWS,
    SCHEMA,
    TABLES,
    Api,
    ApiTable,
    CompleteLoaded,
    CompleteStagedTable,
    Config,
    Credentials,
    Loaded,
    Permitted,
    report,
)
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.scenario import Scenario


@check(Family.INTERFACE, "PROFILE-CORE-01")
def hello_is_constant_and_consistent(s: Scenario) -> None:
    """`hello` returns the same to several clients, before and after a commit, and its profiles and commit modes do not
    contradict each other."""
    table = s.create()
    for client in ("first", "second"):
        call = s.ask(client, m.Hello())
        identity = s.expect(call, m.Identity, "PROFILE-CORE-01", expected="the identity of the subject")
        wrong = contradictions(identity)
        s.require(not wrong, "PROFILE-CORE-01", evidence=(call,),
                  expected="the declarations of a subject do not contradict each other",
                  observed="; ".join(wrong))  # fmt: skip
        s.require(identity == s.identity, "PROFILE-CORE-01", evidence=(call,),
                  expected="`hello` always returns the same",
                  observed=f"`hello` changed between calls: was {s.identity}, is {identity}"[:900])  # fmt: skip
        s.land(table, client=client)


api_check = partial(check, Family.INTERFACE, needs=(Profile.UC_DELTA_API,), features=("catalogManaged",),
                    commit_modes=("staged",))  # fmt: skip


@api_check(
    *dict.fromkeys(row.requirement for row in ROWS), "UC-UPDATE-10", "UC-ERROR-01", *families.COMMITTING,
    layer=Layer.MODEL,
)  # fmt: skip
def any_sequence_of_api_requests(g: Generation) -> None:
    """Generated requests of the Delta API, most of them wrong, between commits: each gets an answer that the API
    permits, and a rejected one changes nothing."""
    g.run(OwnerFamily(name=g.check.family, factors={"api_call": 500}, calls=True))


# Several requests


@api_check("UC-CONFIG-01", "UC-CONFIG-02", "PROFILE-API-01")
def delta_api_configuration(s: Scenario) -> None:
    """The configuration names its version, one that the client supports, and its calls as `METHOD /v1/path`. A rejected
    negotiation names the versions of the server."""
    api = Api(s)
    for versions in ("1.0", "1.7,99.3"):
        exchange = api.call("GET", f"/v1/config?catalog={{catalog}}&protocol-versions={versions}")
        config = api.got(exchange, Config, "UC-CONFIG-01")
        api.demand(config.protocol_version.startswith("1."), "UC-CONFIG-01", exchange,
                   "a version of those that the client supports", config.protocol_version)  # fmt: skip
        wrong = [text for text in config.endpoints if not text.partition(" ")[2].startswith("/v1/")]
        needed = {f"GET {TABLES}/{{table}}", f"POST {TABLES}/{{table}}", f"POST {TABLES}",
                  f"POST {SCHEMA}/staging-tables"}  # fmt: skip
        api.demand(not wrong and needed <= set(config.endpoints), "UC-CONFIG-01", exchange,
                   "the calls of managed tables, as METHOD /v1/path", config.endpoints)  # fmt: skip
    rejected = api.call("GET", "/v1/config?catalog={catalog}&protocol-versions=99.0")
    api.demand("1." in str(rejected.answer), "UC-CONFIG-02", rejected,
               "the error names the versions that the server supports", rejected.answer)  # fmt: skip


@api_check("UC-STAGE-01", "UC-STAGE-03", "UC-STAGE-04", "UC-CRED-01")
def delta_api_staged_tables(s: Scenario) -> None:
    """Each request stages another table, also for one name. A staged table cannot be loaded. Its credentials, like
    those of a table, are for the operation that the client asks for."""
    api = Api(s)
    first, second = api.stage(), api.stage()
    api.got(first[0], CompleteStagedTable, "UC-STAGE-01")
    api.demand(first[1].table_id != second[1].table_id and first[1].location != second[1].location, "UC-STAGE-01",
               second[0], "another id and another location for each staged table", second[1])  # fmt: skip
    loaded = api.call("GET", f"{TABLES}/{first[2]}")
    api.wants(loaded, "UC-STAGE-03", NO_TABLE, "a staged table cannot be loaded: 404")
    table = api.create()
    for path, operation, requirement in (
        (f"/v1/staging-tables/{second[1].table_id}/credentials", "READ_WRITE", "UC-STAGE-04"),
        (f"{table.path}/credentials?operation=READ", "READ", "UC-CRED-01"),
        (f"{table.path}/credentials?operation=READ_WRITE", "READ_WRITE", "UC-CRED-01"),
    ):
        exchange = api.call("GET", path)
        credentials = api.got(exchange, Credentials, requirement).storage_credentials
        api.demand({credential.operation for credential in credentials} <= {operation}, requirement, exchange,
                   f"credentials for {operation}", credentials)  # fmt: skip


@api_check("UC-CREATE-02", "UC-CREATE-03", "UC-CREATE-04", "UC-CREATE-05", "UC-CREATE-06", "UC-CREATE-07",
           "UC-COLUMNS-01", "UC-NAMES-01")  # fmt: skip
def delta_api_creations(s: Scenario) -> None:
    """A creation must fit its staged table and the server's requirements, and happens at most once."""
    api = Api(s)
    exchange, staged, name = api.stage()
    good = api.creation(exchange, staged, name)
    fields = good["columns"]["fields"]
    doubled = {**good["columns"], "fields": [*fields, {**fields[0], "name": fields[0]["name"].upper()}]}
    bare = {**good["protocol"], "reader-features": [], "writer-features": []}
    attempts: list[tuple[str, dict[str, Any], Permitted, str]] = [
        ("UC-CREATE-02", {**good, "location": f"{good['location'].rpartition('/')[0]}/{NO_ID}"}, NO_TABLE,
         "no table was staged at the location: 404"),
        ("UC-CREATE-03", {**good, "properties": {**good["properties"], "io.unitycatalog.tableId": NO_ID}}, INVALID,
         "the property with the table's id is another one: 400"),
        ("UC-CREATE-04", {**good, "protocol": bare}, INVALID, "the protocol lacks required features: 400"),
        ("UC-COLUMNS-01", {**good, "columns": doubled}, INVALID, "two column names differ only in case: 400"),
        *(("UC-CREATE-07", {key: value for key, value in good.items() if key != field}, INVALID,
           f"the required field {field} is missing: 400")
          for field in ("location", "table-type", "columns", "protocol", "properties", "last-commit-timestamp-ms")),
    ]  # fmt: skip
    for requirement, body, permitted, expected in attempts:
        api.wants(api.call("POST", TABLES, body), requirement, permitted, expected)
    elsewhere = api.call("POST", TABLES.replace("{schema}", "no_such_schema"), good)
    api.wants(elsewhere, "UC-NAMES-01", NO_SCHEMA, "the schema does not exist: 404")
    api.got(api.call("POST", TABLES, good), Loaded, "UC-CREATE-01")
    rejected: Permitted = ((400, ()), (409, ()), (404, ()), (500, ("CommitStateUnknownException",)))
    again = api.call("POST", TABLES, {**good, "name": f"{name}_2"})
    api.wants(again, "UC-CREATE-05", rejected, "the staged table was created already: rejected")
    exchange, staged, _ = api.stage("other")
    taken = api.call("POST", TABLES, api.creation(exchange, staged, name))
    api.wants(taken, "UC-CREATE-06", EXISTS, "another table has the name: 409")


@api_check("UC-CREATE-01", "UC-LOAD-01", "UC-LOAD-02", "UC-LOAD-03", "UC-LOAD-04", "UC-LOAD-05", "UC-COMMIT-01",
           "UC-COMMIT-02", "UC-BACKFILL-02", "UC-BACKFILL-04")  # fmt: skip
def delta_api_commits_and_loads(s: Scenario) -> None:
    """A load has all commits that are not reported as published, newest first, as they were proposed. Commits of data
    change neither the etag nor `last-commit-version`. A repeated report changes nothing."""
    api = Api(s)
    table = api.create()
    exchange, created = api.seen(table)
    api.got(exchange, CompleteLoaded, "UC-LOAD-01")
    api.demand((created.latest_table_version, created.commits, created.metadata.last_commit_version) == (0, (), 0),
               "UC-CREATE-01", exchange, "a new table has version 0 and no commits", created)  # fmt: skip
    sent = [api.commit(table)]
    api.land(table, commit=sent[0])
    for _ in range(3):
        sent.append(api.commit(table))
        api.land(table, commit=sent[-1])
    lost = api.update(table, api.commit(table, version=2))
    api.wants(lost, "UC-COMMIT-02", ((409, ("CommitVersionConflictException",)),), "version 2 is taken: 409")
    gap = api.update(table, api.commit(table, version=6))
    api.wants(gap, "UC-COMMIT-01", ((400, ()), (409, ())), "version 5 is missing, so version 6 is rejected")
    listed = _listed(api, table, 0)
    by_version = {update["commit"]["version"]: update["commit"] for update in sent}
    for commit in listed.commits:
        api.demand(commit == msgspec.convert(by_version[commit.version], ApiCommit), "UC-LOAD-03", exchange,
                   f"the commit as it was proposed: {by_version[commit.version]}", commit)  # fmt: skip
    before, now = created.metadata, listed.metadata
    api.demand(now.last_commit_version == 0, "UC-LOAD-04", exchange,
               "no commit has changed the metadata since version 0", now.last_commit_version)  # fmt: skip
    api.demand(now.etag == before.etag, "UC-LOAD-05", exchange, f"the etag stays {before.etag}", now.etag)
    api.publish(table, *(commit for commit in listed.commits if commit.version <= 2))
    for version in (2, 2, 1):
        reported = api.update(table, report(version))
        api.got(reported, Loaded, "UC-BACKFILL-02", f"version {version} is published: reporting it is accepted")
        kept = _listed(api, table, 2)
        api.demand(kept.metadata.etag == before.etag, "UC-LOAD-05", reported, "a report changes no etag", kept)


def _listed(api: Api, table: ApiTable, published: int) -> Loaded:
    """The load. Its commits are those above some version up to `published`, without gaps. A server may publish too."""
    exchange, loaded = api.seen(table)
    while (table.log / commit_file(published + 1)).exists():
        published += 1
    versions = [commit.version for commit in loaded.commits]
    api.demand(loaded.latest_table_version == table.latest, "UC-LOAD-02", exchange,
               f"the latest version is {table.latest}", loaded.latest_table_version)  # fmt: skip
    expected = list(range(table.latest, table.latest - len(versions), -1))
    requirement = "UC-BACKFILL-04" if published else "UC-LOAD-02"
    api.demand(versions == expected and len(versions) >= table.latest - published, requirement, exchange,
               f"all versions above {published}, newest first", versions)  # fmt: skip
    return loaded


@api_check("UC-COMMIT-05", "UC-COMMIT-06", "UC-UPDATE-09")
def delta_api_retries(s: Scenario) -> None:
    """The identical request is answered 200 with the newest state, also after later commits. After the commit was
    published and reported, the server may say that it does not know. The order of a request's parts has no meaning."""
    api = Api(s)
    table = api.create()
    commit = api.commit(table)
    first = api.land(table, commit=commit)
    api.land(table)
    body = api.body(table, commit, report(0))
    etag = api.load(table).metadata.etag
    for expected in ("the commit landed, and the identical request is answered 200",) * 2:
        again = api.call("POST", table.path, api.body(table, commit))
        known = api.got(again, Loaded, "UC-COMMIT-05", expected)
        api.demand(known.latest_table_version == table.latest, "UC-COMMIT-05", again,
                   f"the newest state of the table: version {table.latest}", known.latest_table_version)  # fmt: skip
        api.land(table)
    api.publish(table, *api.load(table).commits)
    api.got(api.update(table, report(table.latest)), Loaded, "UC-BACKFILL-02")
    late = api.call("POST", table.path, api.body(table, commit))
    api.wants(late, "UC-COMMIT-06", ((200, ()), (500, ("CommitStateUnknownException",))),
              f"operation {first.number} landed: 200, or the outcome is unknown")  # fmt: skip
    body = api.body(table, api.commit(table), report(table.latest), etag=etag)
    turned = {key: list(reversed(parts)) for key, parts in body.items()}
    api.got(api.call("POST", table.path, turned), Loaded, "UC-UPDATE-09", "the order of the parts has no meaning")


@api_check("UC-LIMIT-01", "UC-BACKFILL-03")
def delta_api_a_full_backlog(s: Scenario) -> None:
    """A server that limits the commits that are not reported as published answers 429 `ResourceExhaustedException`.
    Any client may publish and report them, and then the next commit is ratified."""
    api = Api(s)
    table = api.create()
    for _ in range(MANY):
        exchange = api.update(table, commit := api.commit(table))
        status = getattr(exchange.answer, "status", 0)
        if status != 200:
            break
        table.latest += 1
    if table.latest < MANY:
        api.wants(exchange, "UC-LIMIT-01", ((429, ("ResourceExhaustedException",)),), "a full backlog: 429")
    loaded = _listed(api, table, 0)
    api.publish(table, *loaded.commits)
    reported = api.update(table, report(table.latest), client="another")
    api.got(reported, Loaded, "UC-BACKFILL-03", "any client may report commits as published")
    commit = commit if table.latest < MANY else api.commit(table)
    api.got(api.update(table, commit), Loaded, "UC-BACKFILL-03", "the backlog has room for the next commit")


MANY: Final = 16
"""More commits than Unity Catalog lets wait."""


@api_check("UC-META-01", "UC-META-03", "UC-LOAD-04", "UC-LOAD-05", "UC-LOAD-06", "UC-COLUMNS-01")
def delta_api_changes_of_metadata(s: Scenario) -> None:
    """A load shows the columns, properties and domains that a commit set, the properties that it did not remove, and
    the keys that the server derives. The etag and `last-commit-version` change."""
    api = Api(s)
    table = api.create()
    exchange, before = api.seen(table)
    had = before.metadata.properties
    derived = ("delta.minReaderVersion", "delta.minWriterVersion", "delta.feature.catalogManaged",
               "delta.lastUpdateVersion", "delta.lastCommitTimestamp", "io.unitycatalog.tableId")  # fmt: skip
    api.demand(set(derived) <= set(had) and had["io.unitycatalog.tableId"] == table.id, "UC-LOAD-06", exchange,
               f"the properties {', '.join(derived)}", had)  # fmt: skip
    configuration = (proposals.body_of((table.log / commit_file(0)).read_text(), "metaData") or {})["configuration"]
    changed = {**configuration, "delta.logRetentionDuration": "interval 60 days"}
    fields = [*before.metadata.columns["fields"],
              {"name": "color", "type": "string", "nullable": True, "metadata": {}}]  # fmt: skip
    schema = json.dumps({"type": "struct", "fields": fields})
    for wanted in (changed, configuration):
        etag = api.load(table).metadata.etag
        commit, updates = api.change(table, configuration=wanted, schemaString=schema)
        api.land(table, *updates, commit=commit)
        exchange, now = api.seen(table)
        shown = {key: value for key, value in now.metadata.properties.items() if key in {**changed, **had}}
        names = [field["name"] for field in now.metadata.columns["fields"]]
        expected = {key: now.metadata.properties.get(key) if key in derived else wanted.get(key) for key in changed}
        api.demand(all(shown.get(key) == value for key, value in expected.items()) and "color" in names, "UC-META-01",
                   exchange, f"the properties {wanted} and the column `color`", now.metadata)  # fmt: skip
        api.demand(now.metadata.last_commit_version == table.latest, "UC-LOAD-04", exchange,
                   f"version {table.latest} changed the metadata", now.metadata.last_commit_version)  # fmt: skip
        api.demand(now.metadata.etag != etag, "UC-LOAD-05", exchange, "another etag", now.metadata.etag)
    repeated = {**now.metadata.columns, "fields": [*fields, {**fields[0], "name": fields[0]["name"].upper()}]}
    rejected = api.update(table, api.commit(table), {"action": "set-columns", "columns": repeated})
    api.wants(rejected, "UC-COLUMNS-01", INVALID, "two column names differ only in case: 400")
    features = {**(proposals.body_of((table.log / commit_file(0)).read_text(), "protocol") or {})}
    features["writerFeatures"] = sorted({*features["writerFeatures"], "clustering", "domainMetadata"})
    domain = {"domainMetadata": {"domain": "delta.clustering", "removed": False,
                                 "configuration": json.dumps({"clusteringColumns": [["id"]]})}}  # fmt: skip
    actions = [{"protocol": features}, domain]
    commit = api.commit(table, *map(json.dumps, actions))
    known = msgspec.json.decode(api.call("GET", table.path).answer.body, type=Before)  # type: ignore[union-attr]
    api.land(table, *updates_of(actions, known), commit=commit)
    exchange, now = api.seen(table)
    columns = now.metadata.properties.get("delta.clusteringColumns")
    api.demand(columns is not None and json.loads(columns) == [["id"]], "UC-META-03", exchange,
               "`delta.clusteringColumns` is derived from the metadata domain", columns)  # fmt: skip


@api_check("UC-REPLACE-01")
def delta_api_replace_is_one_commit(s: Scenario) -> None:
    """REPLACE TABLE is one commit with the new columns and partition columns: the table keeps its id and history."""
    api = Api(s)
    table = api.create()
    api.land(table)
    schema = json.dumps({"type": "struct", "fields": [
        {"name": "day", "type": "string", "nullable": True, "metadata": {}},
        {"name": "total", "type": "long", "nullable": True, "metadata": {}}]})  # fmt: skip
    commit, updates = api.change(table, schemaString=schema, partitionColumns=["day"])
    before = api.load(table)
    exchange = api.update(table, commit, *updates, etag=before.metadata.etag)
    now = api.got(exchange, Loaded, "UC-REPLACE-01", "a REPLACE in one commit is ratified")
    names = [field["name"] for field in now.metadata.columns["fields"]]
    same = (now.metadata.table_uuid, now.metadata.location) == (before.metadata.table_uuid, before.metadata.location)
    api.demand(same and now.latest_table_version == 2 and names == ["day", "total"]
               and now.metadata.partition_columns == ("day",), "UC-REPLACE-01", exchange,
               "version 2 of the same table, with the new columns and partition columns", now)  # fmt: skip


@api_check("UC-NOTABLE-01", "UC-HEAD-01", "UC-DROP-01", "UC-RENAME-01")
def delta_api_names_of_tables(s: Scenario) -> None:
    """A renamed table has the same content under its new name only. After a drop, and before a creation, each call
    about the table is answered 404."""
    api = Api(s)
    table = api.create()
    api.land(table)
    before = api.load(table)
    old, new = table.path, f"{table.name}_new"
    exists = api.call("HEAD", old)
    api.wants(exists, "UC-HEAD-01", ((204, ()),), "the table exists: 204")
    renamed = api.call("POST", f"{old}/rename", {"new-name": new})
    api.wants(renamed, "UC-RENAME-01", ((204, ()),), "the table is renamed: 204")
    gone = api.call("GET", old)
    api.wants(gone, "UC-RENAME-01", NO_TABLE, "the old name has no table: 404")
    table.name = new
    exchange, now = api.seen(table)
    api.demand((now.metadata.table_uuid, now.commits) == (before.metadata.table_uuid, before.commits), "UC-RENAME-01",
               exchange, "the same table under the new name", now)  # fmt: skip
    dropped = api.call("DELETE", table.path)
    api.wants(dropped, "UC-DROP-01", ((204, ()),), "the table is dropped: 204")
    missing = api.call("GET", table.path)
    api.wants(missing, "UC-DROP-01", NO_TABLE, "a dropped table is not found: 404")
    head = api.call("HEAD", table.path)
    api.wants(head, "UC-HEAD-01", ((404, ()),), "the table does not exist: 404")
    for method, path, body in (
        ("DELETE", table.path, None),
        ("POST", table.path, api.body(table, api.commit(table))),
        ("GET", f"{table.path}/credentials?operation=READ", None),
        ("POST", f"{table.path}/metrics", {"table-id": table.id}),
        ("POST", f"{table.path}/rename", {"new-name": f"{new}er"}),
    ):
        exchange = api.call(method, path, body)
        api.wants(exchange, "UC-NOTABLE-01", NO_TABLE, f"there is no such table: {method} is answered 404")
