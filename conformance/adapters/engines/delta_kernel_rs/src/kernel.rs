//! Delta Kernel 0.30 or newer, with its Unity Catalog crates: reads, commits and maintenance.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use delta_kernel::arrow::array::{ArrayRef, RecordBatch, StringArray};
use delta_kernel::committer::{Committer, FileSystemCommitter};
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::engine_data::FilteredEngineData;
use delta_kernel::expressions::Scalar;
use delta_kernel::history_manager::{latest_version_as_of, HistoryCommitType};
use delta_kernel::object_store::local::LocalFileSystem;
use delta_kernel::schema::{DataType, StructType};
use delta_kernel::transaction::create_table::create_table;
use delta_kernel::transaction::data_layout::DataLayout;
use delta_kernel::transaction::{CommitResult, Transaction, UpdateTableOperation};
use delta_kernel::{Engine, Snapshot, SnapshotRef};
use delta_kernel_default_engine::executor::tokio::TokioMultiThreadExecutor;
use delta_kernel_default_engine::DefaultEngineBuilder;
use delta_kernel_unity_catalog::{
    build_uc_create_table_request, get_required_properties_for_disk, log_tail_from_commits,
    snapshot_builder_from_load_table, UCCommitter,
};
use serde_json::{json, Value};
use tokio::runtime::Runtime;
use unity_catalog_delta_client_api::{CreateStagingTableRequest, TableIdentifier};
use unity_catalog_delta_rest_client::UCUpdateTableRestClient;
use url::Url;

use crate::{as_text, decoded, files_and_applications, folder, strings, text, Answered, Owner, Refused, CATALOG};

const ENGINE: &str = "delta-commit-conformance/1";

/// The maximum number of proposals of one append.
const TRIES: usize = 100;

/// The outcome of one proposal.
enum Proposed {
    Done(Option<u64>),
    Lost,
    BacklogFull,
}

impl From<delta_kernel::KernelError> for Refused {
    fn from(error: delta_kernel::KernelError) -> Self {
        Refused::rejected(error)
    }
}

pub struct Subject {
    runtime: Runtime,
    engine: Arc<dyn Engine>,
    pub owner: Owner,
    /// The connection of each client for `update_table`.
    updates: HashMap<String, Arc<UCUpdateTableRestClient>>,
    /// The table's id and the client's newest snapshot, by client and table name.
    snapshots: HashMap<(String, String), (String, SnapshotRef)>,
    /// The argument `known` of `files_and_applications`.
    applications: BTreeSet<String>,
}

impl Subject {
    pub fn new(runtime: Runtime) -> Self {
        let executor = Arc::new(TokioMultiThreadExecutor::new(runtime.handle().clone()));
        let engine = DefaultEngineBuilder::new(Arc::new(LocalFileSystem::new())).with_task_executor(executor).build();
        Subject {
            runtime,
            engine: Arc::new(engine),
            owner: Owner::default(),
            updates: HashMap::new(),
            snapshots: HashMap::new(),
            applications: BTreeSet::new(),
        }
    }

    pub fn answer(&mut self, op: &str, client: &str, request: &Value) -> Answered<Value> {
        match op {
            "snapshot" => self.snapshot(client, request),
            "transact" => self.transact(client, request),
            "create_table" => self.create_table(client, request),
            "checkpoint" => self.checkpoint(client, request),
            "checksum" => self.checksum(client, request),
            "compact" => self.compact(client, request),
            "backfill_to_version" => self.publish(client, request),
            _ => Err(Refused::unsupported("")),
        }
    }

    /// The newest version. If the client has a snapshot of the same table, the snapshot is updated.
    fn newest(&mut self, client: &str, table: &str) -> Answered<(SnapshotRef, String)> {
        if let Some(root) = folder(table) {
            let snapshot = Snapshot::builder_for(root).build(self.engine.as_ref())?;
            return Ok((snapshot, String::new()));
        }
        let response = self.owner.load(&self.runtime, client, table)?;
        let id = response.metadata.table_uuid.clone();
        let held = match self.snapshots.remove(&(client.to_string(), table.to_string())) {
            Some((of, snapshot)) if of == id => Some(snapshot),
            _ => None,
        };
        let snapshot = match (held, response.latest_table_version) {
            (Some(held), Some(latest)) if latest >= 0 => {
                let root = held.table_root().clone();
                Snapshot::builder_from(held)
                    .with_log_tail(log_tail_from_commits(&response.commits, root)?)
                    .with_max_catalog_version(latest as u64)
                    .build(self.engine.as_ref())?
            }
            _ => snapshot_builder_from_load_table(&response)?.build(self.engine.as_ref())?,
        };
        self.keep(client, table, &id, &snapshot);
        Ok((snapshot, id))
    }

    fn keep(&mut self, client: &str, table: &str, id: &str, snapshot: &SnapshotRef) {
        if folder(table).is_none() {
            let place = (client.to_string(), table.to_string());
            self.snapshots.insert(place, (id.to_string(), snapshot.clone()));
        }
    }

    fn at(&mut self, client: &str, table: &str, version: u64) -> Answered<(SnapshotRef, String)> {
        if let Some(root) = folder(table) {
            let snapshot = Snapshot::builder_for(root).at_version(version).build(self.engine.as_ref())?;
            return Ok((snapshot, String::new()));
        }
        let response = self.owner.load(&self.runtime, client, table)?;
        let snapshot = snapshot_builder_from_load_table(&response)?.at_version(version).build(self.engine.as_ref())?;
        Ok((snapshot, response.metadata.table_uuid))
    }

    fn found(&mut self, client: &str, table: &str, version: Option<u64>) -> Answered<(SnapshotRef, String)> {
        match version {
            Some(version) => self.at(client, table, version),
            None => self.newest(client, table),
        }
    }

    fn snapshot(&mut self, client: &str, request: &Value) -> Answered<Value> {
        let version = request["version"].as_u64();
        let table = match request["path"].as_str() {
            Some(path) => path,
            None => text(request, "table")?,
        };
        let (snapshot, _) = match request["timestamp"].as_i64() {
            None => self.found(client, table, version)?,
            Some(timestamp) => {
                let (newest, _) = self.newest(client, table)?;
                let engine = self.engine.as_ref();
                let kind = HistoryCommitType::Recreatable;
                let commit = latest_version_as_of(&newest, engine, timestamp, kind)?;
                self.at(client, table, commit.version)?
            }
        };
        self.read(&snapshot)
    }

    fn read(&mut self, snapshot: &SnapshotRef) -> Answered<Value> {
        let engine = self.engine.clone();
        let engine = engine.as_ref();
        let (partitions, applications) = files_and_applications(snapshot, engine, &mut self.applications)?;
        let domains: BTreeMap<String, String> = snapshot
            .get_domain_metadatas_internal(engine, None)?
            .into_iter()
            .map(|(name, domain)| (name, domain.configuration().to_string()))
            .collect();
        let (timestamp, warnings) = match snapshot.get_timestamp(engine) {
            Ok(timestamp) => (Some(timestamp), Vec::new()),
            Err(error) => (None, vec![error.to_string()]),
        };
        let mut answer = json!({
            "outcome": "snapshot_read",
            "version": snapshot.version(),
            "files": partitions.keys().collect::<Vec<_>>(),
            "properties": snapshot.metadata_configuration(),
            "partitions": partitions,
            "applications": applications,
            "domains": domains,
            "warnings": warnings,
        });
        if let Some(timestamp) = timestamp {
            answer["timestamp"] = json!(timestamp);
        }
        Ok(answer)
    }

    fn committer(&mut self, client: &str, table: &str, id: &str) -> Answered<Box<dyn Committer>> {
        if folder(table).is_some() {
            return Ok(Box::new(FileSystemCommitter::new()));
        }
        if !self.updates.contains_key(client) {
            let config = self.owner.config(client)?;
            let updates = UCUpdateTableRestClient::new(config).map_err(Refused::rejected)?;
            self.updates.insert(client.to_string(), Arc::new(updates));
        }
        let updates = self.updates[client].clone();
        let target = TableIdentifier::new(CATALOG, CATALOG, table);
        Ok(Box::new(UCCommitter::new(updates, id, target)))
    }

    /// Creates a table as the kernel's documentation tells connectors: request a staging table from the catalog, write
    /// version 0 at its location, and register the table.
    fn create_table(&mut self, client: &str, request: &Value) -> Answered<Value> {
        let name = text(request, "name")?;
        let actions = strings(&request["actions"]);
        let metadata = actions
            .iter()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find_map(|action| action.get("metaData").cloned())
            .ok_or_else(|| Refused::rejected("expected metaData among the actions"))?;
        let schema: StructType = serde_json::from_str(text(&metadata, "schemaString")?).map_err(Refused::rejected)?;
        let place = CreateStagingTableRequest { name: name.to_string() };
        let place =
            self.runtime.block_on(self.owner.tables(client)?.create_staging_table(CATALOG, CATALOG, place))?;
        let mut root = Url::parse(&place.location).map_err(Refused::rejected)?;
        root.set_path(&format!("{}/", root.path().trim_end_matches('/')));
        let mut properties = get_required_properties_for_disk(&place.table_id);
        for (key, value) in metadata["configuration"].as_object().into_iter().flatten() {
            if key != "delta.enableInCommitTimestamps" {
                properties.insert(key.clone(), as_text(value));
            }
        }
        let committer = self.committer(client, name, &place.table_id)?;
        let engine = self.engine.clone();
        let engine = engine.as_ref();
        let mut builder = create_table(root.as_str(), Arc::new(schema), ENGINE, false).with_table_properties(properties);
        let columns = strings(&metadata["partitionColumns"]);
        if !columns.is_empty() {
            builder = builder.with_data_layout(DataLayout::partitioned(columns));
        }
        let guard = self.runtime.enter();
        let result = builder.build(engine, committer)?.commit(engine);
        drop(guard);
        match result? {
            CommitResult::Committed(_) => {}
            CommitResult::Conflicted(_) => return Ok(json!({"outcome": "conflict"})),
            CommitResult::Retryable(retryable) => return Err(Refused::rejected(retryable.error)),
        }
        let snapshot = Snapshot::builder_for(root).with_max_catalog_version(0).build(engine)?;
        let table = build_uc_create_table_request(&snapshot, engine, name)?;
        self.runtime.block_on(self.owner.tables(client)?.create_table(CATALOG, CATALOG, table))?;
        Ok(json!({"outcome": "ratified", "version": 0, "table": place.table_id}))
    }

    /// The kernel proposes a transaction once. After a lost race this function proposes an append again on a newer
    /// snapshot, as a connector does. It does not repeat other transactions: the kernel cannot check them for conflicts
    /// with the winning commits.
    fn transact(&mut self, client: &str, request: &Value) -> Answered<Value> {
        let table = text(request, "table")?;
        let appends = ["reads", "removes", "domain", "application"].iter().all(|field| request[*field].is_null());
        let mut version = request["read_version"].as_u64();
        let (read, _) = self.found(client, table, version)?;
        for attempt in 0..TRIES {
            if attempt > 0 {
                let (newest, _) = self.newest(client, table)?;
                let (now, then) = (newest.table_configuration(), read.table_configuration());
                if now.metadata() != then.metadata() || now.protocol() != then.protocol() {
                    return Ok(json!({"outcome": "conflict"}));
                }
            }
            match self.propose(client, table, version, request)? {
                Proposed::Done(version) => return Ok(json!({"outcome": "committed", "version": version})),
                Proposed::Lost if !appends => {
                    return Err(Refused::unsupported(
                        "Delta Kernel does not check a transaction that lost its version against the winners",
                    ));
                }
                Proposed::Lost => {}
                Proposed::BacklogFull => {
                    let (newest, id) = self.newest(client, table)?;
                    let committer = self.committer(client, table, &id)?;
                    let published = newest.publish(self.engine.as_ref(), committer.as_ref())?;
                    self.keep(client, table, &id, &published);
                }
            }
            version = None;
        }
        Ok(json!({"outcome": "conflict"}))
    }

    fn propose(&mut self, client: &str, table: &str, version: Option<u64>, request: &Value) -> Answered<Proposed> {
        let (snapshot, id) = self.found(client, table, version)?;
        let committer = self.committer(client, table, &id)?;
        let engine = self.engine.clone();
        let engine = engine.as_ref();
        let application = request["application"]
            .as_array()
            .and_then(|pair| Some((pair.first()?.as_str()?.to_string(), pair.get(1)?.as_i64()?)));
        if let Some((name, version)) = &application {
            if snapshot.get_app_id_version(name, engine)?.is_some_and(|known| known >= *version) {
                return Ok(Proposed::Done(None));
            }
        }
        let removes: BTreeSet<&str> = strings(&request["removes"]);
        let adds = request["adds"].as_array().cloned().unwrap_or_default();
        let domain = request["domain"].as_array();
        let empty = adds.is_empty() && removes.is_empty() && domain.is_none() && application.is_none();
        if empty && request["if_needed"] == json!(true) {
            return Ok(Proposed::Done(None));
        }
        let data_change = request["data_change"] != json!(false);
        let mut builder = snapshot.clone().update_table(UpdateTableOperation::Write, ENGINE, data_change);
        if !adds.is_empty() && removes.is_empty() && request["reads"].is_null() && data_change {
            builder = builder.with_blind_append();
        }
        if let Some((name, version)) = application {
            builder = builder.with_transaction_id(name, version);
        }
        if let Some([name, configuration]) = domain.map(Vec::as_slice) {
            builder = builder.with_domain_metadata(as_text(name), as_text(configuration));
        }
        let mut transaction = builder.build(engine, committer)?;
        if !adds.is_empty() {
            let rows = adds
                .iter()
                .map(|add| added(&transaction, snapshot.table_root(), add))
                .collect::<Answered<Vec<String>>>()?;
            let column: ArrayRef = Arc::new(StringArray::from(rows));
            let batch = RecordBatch::try_from_iter([("json", column)]).map_err(Refused::rejected)?;
            let lines = Box::new(ArrowEngineData::new(batch));
            let schema = transaction.add_files_schema().clone();
            transaction.add_files(engine.json_handler().parse_json(lines, schema)?);
        }
        if !removes.is_empty() {
            for batch in snapshot.clone().scan_builder().build()?.scan_metadata(engine)? {
                if let Some(selected) = selected(batch?.scan_files, &removes)? {
                    transaction.remove_files(selected);
                }
            }
        }
        let guard = self.runtime.enter();
        let result = transaction.commit(engine);
        drop(guard);
        match result {
            Ok(CommitResult::Committed(committed)) => {
                let version = committed.commit_version();
                if let Some(after) = committed.post_commit_snapshot() {
                    let committer = self.committer(client, table, &id)?;
                    // The commit has landed, so a failed publication does not change the answer.
                    let published = after.publish(engine, committer.as_ref()).unwrap_or_else(|error| {
                        eprintln!("version {version} is committed, and not published: {error}");
                        after.clone()
                    });
                    self.keep(client, table, &id, &published);
                }
                Ok(Proposed::Done(Some(version)))
            }
            Ok(CommitResult::Conflicted(_)) => Ok(Proposed::Lost),
            Ok(CommitResult::Retryable(retryable)) => Err(Refused::unknown(retryable.error)),
            Err(error) => failed(error.to_string()),
        }
    }

    fn checkpoint(&mut self, client: &str, request: &Value) -> Answered<Value> {
        let snapshot = self.versioned(client, request, "version")?;
        snapshot.checkpoint(self.engine.as_ref(), None)?;
        Ok(json!({"outcome": "done"}))
    }

    fn checksum(&mut self, client: &str, request: &Value) -> Answered<Value> {
        let snapshot = self.versioned(client, request, "version")?;
        snapshot.write_checksum(self.engine.as_ref())?;
        Ok(json!({"outcome": "done"}))
    }

    fn compact(&mut self, client: &str, request: &Value) -> Answered<Value> {
        let (Some(start), Some(end)) = (request["start"].as_u64(), request["end"].as_u64()) else {
            return Err(Refused::rejected("expected `start` and `end`"));
        };
        let snapshot = self.versioned(client, request, "end")?;
        match snapshot.log_compaction_writer(start, end) {
            Err(error) => Err(Refused::unsupported(error)),
            Ok(_) => Err(Refused::unsupported("this program has no code that writes a compaction")),
        }
    }

    fn publish(&mut self, client: &str, request: &Value) -> Answered<Value> {
        let table = text(request, "table")?;
        let version = request["version"].as_u64();
        let (snapshot, id) = self.found(client, table, version)?;
        let committer = self.committer(client, table, &id)?;
        snapshot.publish(self.engine.as_ref(), committer.as_ref())?;
        Ok(json!({"outcome": "done"}))
    }

    fn versioned(&mut self, client: &str, request: &Value, field: &str) -> Answered<SnapshotRef> {
        let table = text(request, "table")?;
        Ok(self.found(client, table, request[field].as_u64())?.0)
    }
}

/// The outcome of a failed commit. `UCUpdateTableRestClient` sends `update_table` once, and `UCCommitter` returns the
/// same kind of error for every failure. Only the error's text says whether the server answered. After a 4xx answer
/// nothing has landed.
fn failed(error: String) -> Answered<Proposed> {
    let status = error
        .split_once("HTTP error (status ")
        .and_then(|(_, rest)| rest.split_once(')'))
        .and_then(|(status, _)| status.parse::<u16>().ok());
    match status {
        Some(409) => Ok(Proposed::Lost),
        Some(429) => Ok(Proposed::BacklogFull),
        Some(400..=499) => Err(Refused::rejected(error)),
        Some(_) => Err(Refused::unknown(error)),
        None if error.contains("UC update_table error") => Err(Refused::unknown(error)),
        None => Err(Refused::rejected(error)),
    }
}

/// The metadata of an added file. The kernel encodes the path and the partition value.
fn added(transaction: &Transaction, root: &Url, add: &Value) -> Answered<String> {
    let path = as_text(&add["path"]);
    let mut location = root.clone();
    if let Ok(elsewhere) = Url::from_file_path(&path) {
        location = elsewhere;
    } else if let Ok(mut segments) = location.path_segments_mut() {
        segments.pop_if_empty().extend(path.split('/'));
    }
    let mut builder = transaction.write_state()?.write_context_builder();
    if !transaction.logical_partition_columns().is_empty() {
        let value = match add["partition"].as_str() {
            Some(value) => Scalar::from(value.to_string()),
            None => Scalar::Null(DataType::STRING),
        };
        builder = builder.with_partition_values(HashMap::from([("part".to_string(), value)]));
    }
    let context = builder.build()?;
    let metadata = json!({
        "path": context.resolve_file_path(&location)?,
        "partitionValues": context.physical_partition_values(),
        "size": 1,
        "modificationTime": 1_700_000_000_000_i64,
        "stats": {"numRecords": 1},
    });
    Ok(metadata.to_string())
}

/// The rows of a scan's batch whose path is in `paths`; `None` if there are none.
fn selected(files: FilteredEngineData, paths: &BTreeSet<&str>) -> Answered<Option<FilteredEngineData>> {
    let (data, mut selection) = files.into_parts();
    let batch = ArrowEngineData::try_from_engine_data(data)?;
    let batch = batch.record_batch();
    let column = batch
        .column_by_name("path")
        .and_then(|column| column.as_any().downcast_ref::<StringArray>())
        .ok_or_else(|| Refused::rejected("a scan's rows have no path"))?;
    selection.resize(batch.num_rows(), true);
    for (row, chosen) in selection.iter_mut().enumerate() {
        *chosen = *chosen && paths.contains(decoded(column.value(row)).as_str());
    }
    if !selection.contains(&true) {
        return Ok(None);
    }
    let data = Box::new(ArrowEngineData::new(batch.clone()));
    Ok(Some(FilteredEngineData::try_new(data, selection)?))
}
