//! Delta Kernel (Rust) as a client under test: the client side of the shared interface on standard input and output.
//!
//! Each line is a call `{"id", "client", "request": {"op", ...}}`; the reply is `{"id", "answer": {"outcome", ...}}`.
//! `owner_url` of a `hello` request is the Delta API of the kit's owner. The name of a simulated client is its bearer
//! token. Like a separate process, each client keeps its own snapshot of each table, and its next read updates the
//! snapshot. A table whose name is an absolute path is used without the owner.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, Write};
use std::time::Duration;

use delta_kernel::scan::state::ScanFile;
use delta_kernel::snapshot::SnapshotRef;
use delta_kernel::Engine;
use serde_json::{json, Map, Value};
use tokio::runtime::Runtime;
use unity_catalog_delta_client_api::{Error as ApiError, LoadTableResponse};
use unity_catalog_delta_rest_client::{ClientConfig, Error as RestError, UCDeltaTableClient};
use url::Url;

mod kernel;

pub const CATALOG: &str = "kit";
/// Delay between the client's own retries, as short as its configuration permits: the kit's owner injects the faults.
const RETRY_DELAY: Duration = Duration::from_millis(1);

/// An answer that ends an operation early.
pub struct Refused(pub Value);

pub type Answered<T> = Result<T, Refused>;

impl Refused {
    pub fn rejected(reason: impl std::fmt::Display) -> Self {
        Refused(json!({"outcome": "rejected", "reason": reason.to_string()}))
    }

    pub fn unknown(reason: impl std::fmt::Display) -> Self {
        Refused(json!({"outcome": "unknown", "reason": reason.to_string()}))
    }

    pub fn unsupported(reason: impl std::fmt::Display) -> Self {
        Refused(json!({"outcome": "unsupported", "reason": reason.to_string()}))
    }
}

/// The Delta API of the kit's owner. Each simulated client has its own connection.
#[derive(Default)]
pub struct Owner {
    url: Option<String>,
    tables: HashMap<String, UCDeltaTableClient>,
}

impl Owner {
    pub fn config(&self, client: &str) -> Answered<ClientConfig> {
        let url = self.url.clone();
        let url = url.ok_or_else(|| Refused::rejected("`hello` must name the owner's Delta API as `owner_url`"))?;
        ClientConfig::build(url, client).with_retry_delays(RETRY_DELAY, RETRY_DELAY).build().map_err(Refused::rejected)
    }

    pub fn tables(&mut self, client: &str) -> Answered<&UCDeltaTableClient> {
        if !self.tables.contains_key(client) {
            let tables = UCDeltaTableClient::new(self.config(client)?).map_err(Refused::rejected)?;
            self.tables.insert(client.to_string(), tables);
        }
        Ok(&self.tables[client])
    }

    pub fn load(&mut self, runtime: &Runtime, client: &str, table: &str) -> Answered<LoadTableResponse> {
        Ok(runtime.block_on(self.tables(client)?.load_table(CATALOG, CATALOG, table))?)
    }
}

impl From<RestError> for Refused {
    fn from(error: RestError) -> Self {
        match error {
            RestError::Api(ApiError::TableNotFound(_)) => Refused(json!({"outcome": "not_found"})),
            RestError::HttpStatusError { status: 409, .. } => Refused(json!({"outcome": "conflict"})),
            RestError::HttpStatusError { status, .. } if status < 500 => Refused::rejected(error),
            _ => Refused::unknown(error),
        }
    }
}

fn identity() -> Value {
    json!({
        "outcome": "identity",
        "name": "delta-kernel-rs",
        "version": env!("DELTA_KERNEL_VERSION"),
        "interface_version": 1,
        "side": "client",
        "profiles": ["core", "staged", "backlog-limit", "discovery"],
        "features": ["catalogManaged"],
        "commit_modes": {"catalogManaged": ["staged"]},
    })
}

pub fn text<'a>(request: &'a Value, field: &str) -> Answered<&'a str> {
    request[field].as_str().ok_or_else(|| Refused::rejected(format!("expected `{field}`")))
}

pub fn as_text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

pub fn strings(value: &Value) -> BTreeSet<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The URL of the table's folder, if the table's name is an absolute path.
pub fn folder(table: &str) -> Option<Url> {
    Url::from_directory_path(table).ok()
}

/// Decodes a path in an action, which is a URL-encoded URI.
pub fn decoded(path: &str) -> String {
    percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned()
}

/// The files of a snapshot with their values of the partition column, and the versions of its applications.
/// `known`: all application names so far, because a cleanup may remove the log files that contain them.
pub fn files_and_applications(
    snapshot: &SnapshotRef,
    engine: &dyn Engine,
    known: &mut BTreeSet<String>,
) -> Answered<(Map<String, Value>, BTreeMap<String, i64>)> {
    let mut files: Vec<ScanFile> = Vec::new();
    for batch in snapshot.clone().scan_builder().build()?.scan_metadata(engine)? {
        files = batch?.visit_scan_files(files, |files, file| files.push(file))?;
    }
    let mut partitions = Map::new();
    for file in &files {
        let value = file.partition_values.get("part").filter(|value| !value.is_empty());
        partitions.insert(decoded(&file.path), json!(value));
    }
    known.extend(application_names(snapshot.table_root()));
    let mut applications = BTreeMap::new();
    for name in known.iter() {
        if let Some(version) = snapshot.get_app_id_version(name, engine)? {
            applications.insert(name.clone(), version);
        }
    }
    Ok((partitions, applications))
}

/// The application names in the log's files. Delta Kernel looks up one application by its name, and lists none.
fn application_names(root: &Url) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let Ok(root) = root.to_file_path() else { return names };
    for folder in ["_delta_log", "_delta_log/_staged_commits"] {
        for entry in std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
            let content = std::fs::read_to_string(entry.path()).unwrap_or_default();
            for line in content.lines().filter(|line| line.contains("\"txn\"")) {
                let action: Value = serde_json::from_str(line).unwrap_or_default();
                names.extend(action["txn"]["appId"].as_str().map(str::to_string));
            }
        }
    }
    names
}

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a tokio runtime");
    let mut subject = kernel::Subject::new(runtime);
    let mut output = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let call: Value = match serde_json::from_str(&line) {
            Ok(call) => call,
            Err(error) => {
                eprintln!("no call: {error}");
                continue;
            }
        };
        let client = call["client"].as_str().unwrap_or_default();
        let request = &call["request"];
        let answer = match request["op"].as_str().unwrap_or_default() {
            "hello" => {
                subject.owner.url = request["owner_url"].as_str().map(str::to_string);
                identity()
            }
            op => subject.answer(op, client, request).unwrap_or_else(|Refused(answer)| answer),
        };
        let reply = json!({"id": call["id"], "answer": answer});
        if writeln!(output, "{reply}").and_then(|()| output.flush()).is_err() {
            break;
        }
    }
}
