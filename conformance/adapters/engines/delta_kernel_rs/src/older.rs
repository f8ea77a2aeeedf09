//! Delta Kernel older than 0.29, which has no Unity Catalog crates: reads and maintenance. This code passes the log
//! tail to the kernel.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use delta_kernel::engine::default::executor::tokio::TokioMultiThreadExecutor;
use delta_kernel::engine::default::storage::store_from_url;
use delta_kernel::engine::default::DefaultEngineBuilder;
use delta_kernel::snapshot::{Snapshot, SnapshotBuilder, SnapshotRef};
use delta_kernel::{Engine, Error, LogPath};
use serde_json::{json, Value};
use tokio::runtime::Runtime;
use url::Url;

use crate::{files_and_applications, folder, text, Answered, Owner, Refused};

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::rejected(error)
    }
}

pub struct Subject {
    runtime: Runtime,
    engine: Arc<dyn Engine>,
    pub owner: Owner,
    /// The table's id and the client's newest snapshot, by client and table name.
    snapshots: HashMap<(String, String), (String, SnapshotRef)>,
    /// The argument `known` of `files_and_applications`.
    applications: BTreeSet<String>,
}

impl Subject {
    pub fn new(runtime: Runtime) -> Self {
        let executor = Arc::new(TokioMultiThreadExecutor::new(runtime.handle().clone()));
        let root = Url::parse("file:///").expect("a URL");
        let store = store_from_url(&root).expect("the local file system");
        let engine = DefaultEngineBuilder::new(store).with_task_executor(executor).build();
        Subject {
            runtime,
            engine: Arc::new(engine),
            owner: Owner::default(),
            snapshots: HashMap::new(),
            applications: BTreeSet::new(),
        }
    }

    pub fn answer(&mut self, op: &str, client: &str, request: &Value) -> Answered<Value> {
        match op {
            "snapshot" => self.snapshot(client, request),
            "checkpoint" => {
                let snapshot = self.versioned(client, request)?;
                #[cfg(feature = "catalog-limit")]
                snapshot.checkpoint(self.engine.as_ref(), None)?;
                #[cfg(not(feature = "catalog-limit"))]
                snapshot.checkpoint(self.engine.as_ref())?;
                Ok(json!({"outcome": "done"}))
            }
            #[cfg(feature = "catalog-limit")]
            "checksum" => {
                self.versioned(client, request)?.write_checksum(self.engine.as_ref())?;
                Ok(json!({"outcome": "done"}))
            }
            _ => Err(Refused::unsupported("")),
        }
    }

    /// The given version, or the newest. If the client has a snapshot of the same table, the snapshot is updated.
    fn found(&mut self, client: &str, table: &str, version: Option<u64>) -> Answered<SnapshotRef> {
        if let Some(root) = folder(table) {
            return Ok(at(Snapshot::builder_for(root), version).build(self.engine.as_ref())?);
        }
        let response = self.owner.load(&self.runtime, client, table)?;
        let mut root = Url::parse(&response.metadata.location).map_err(Refused::rejected)?;
        root.set_path(&format!("{}/", root.path().trim_end_matches('/')));
        let mut commits = response.commits;
        commits.sort_by_key(|commit| commit.version);
        let tail = commits
            .iter()
            .map(|commit| {
                let (modified, size) = (commit.file_modification_timestamp, commit.file_size as u64);
                LogPath::staged_commit(root.clone(), &commit.file_name, modified, size)
            })
            .collect::<Result<Vec<LogPath>, Error>>()?;
        let place = (client.to_string(), table.to_string());
        let held = match self.snapshots.get(&place) {
            Some((id, held)) if version.is_none() && *id == response.metadata.table_uuid => Some(held.clone()),
            _ => None,
        };
        let builder = match held {
            Some(held) => Snapshot::builder_from(held),
            None => Snapshot::builder_for(root),
        };
        let builder = at(builder.with_log_tail(tail), version);
        #[cfg(feature = "catalog-limit")]
        let builder = match response.latest_table_version {
            Some(latest) if latest >= 0 => builder.with_max_catalog_version(latest as u64),
            _ => builder,
        };
        let snapshot = builder.build(self.engine.as_ref())?;
        if version.is_none() {
            self.snapshots.insert(place, (response.metadata.table_uuid, snapshot.clone()));
        }
        Ok(snapshot)
    }

    fn versioned(&mut self, client: &str, request: &Value) -> Answered<SnapshotRef> {
        let table = text(request, "table")?;
        self.found(client, table, request["version"].as_u64())
    }

    fn snapshot(&mut self, client: &str, request: &Value) -> Answered<Value> {
        let table = match request["path"].as_str() {
            Some(path) => path,
            None => text(request, "table")?,
        };
        let snapshot = match request["timestamp"].as_i64() {
            None => self.found(client, table, request["version"].as_u64())?,
            #[cfg(feature = "catalog-limit")]
            Some(timestamp) => {
                let newest = self.found(client, table, None)?;
                let engine = self.engine.as_ref();
                let version = delta_kernel::history_manager::latest_version_as_of(&newest, engine, timestamp)?;
                self.found(client, table, Some(version))?
            }
            #[cfg(not(feature = "catalog-limit"))]
            Some(_) => return Err(Refused::unsupported("this version of Delta Kernel has no time travel by time")),
        };
        self.read(&snapshot)
    }

    fn read(&mut self, snapshot: &SnapshotRef) -> Answered<Value> {
        let engine = self.engine.clone();
        let engine = engine.as_ref();
        let (partitions, applications) = files_and_applications(snapshot, engine, &mut self.applications)?;
        let domains: BTreeMap<String, String> = snapshot
            .get_all_domain_metadata(engine)?
            .into_iter()
            .map(|domain| (domain.domain().to_string(), domain.configuration().to_string()))
            .collect();
        #[allow(unused_mut)]
        let mut answer = json!({
            "outcome": "snapshot_read",
            "version": snapshot.version(),
            "files": partitions.keys().collect::<Vec<_>>(),
            "properties": snapshot.table_configuration().metadata().configuration(),
            "partitions": partitions,
            "applications": applications,
            "domains": domains,
        });
        #[cfg(feature = "catalog-limit")]
        if let Ok(timestamp) = snapshot.get_timestamp(engine) {
            answer["timestamp"] = json!(timestamp);
        }
        Ok(answer)
    }
}

fn at(builder: SnapshotBuilder, version: Option<u64>) -> SnapshotBuilder {
    match version {
        Some(version) => builder.at_version(version),
        None => builder,
    }
}
