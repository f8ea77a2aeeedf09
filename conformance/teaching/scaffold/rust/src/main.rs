//! My commit owner.
//!
//! What is here at the beginning: the loop, the answer to `hello`, the file tools, and `observe`, `plant` and `remove`,
//! by which the kit sees and changes the log. Everything else is yours to write: one function of `impl Operations` for
//! each operation, which returns the answer. An operation that is not here is answered `unsupported`.

#![allow(dead_code)] // the tools that are not used yet

mod messages;

use messages::*;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;

const NAME: &str = "my-owner";

/// What the owner promises: see "Profiles" on the page TEST_YOUR_OWNER.md.
const PROFILES: [&str; 3] = ["core", "version-0-by-owner", "staged"];

/// What the owner knows of one table.
struct TableState {
    /// What clients call it.
    name: String,
    /// Its folder `_delta_log`.
    log: PathBuf,
}

#[derive(Default)]
struct Owner {
    /// By the table's reference, which is `table` in later requests.
    tables: HashMap<String, TableState>,
}

impl Operations for Owner {
    fn hello(&mut self, _request: Hello) -> Answer {
        Answer::Identity(Identity {
            name: NAME.to_string(),
            version: "1".to_string(),
            interface_version: 1,
            side: "owner".to_string(),
            profiles: PROFILES.map(String::from).to_vec(),
            features: Some(vec!["managedCommit".to_string()]),
            commit_modes: [("managedCommit".to_string(), vec!["staged".to_string()])].into(),
            ..Default::default()
        })
    }

    // The eyes and hands of the kit, for tables in a folder of this machine

    /// The log as an external observer lists it.
    fn observe(&mut self, request: Observe) -> Answer {
        let log = self.log_of(&request.table);
        let mut files = Vec::new();
        list(&log, &log, &mut files).expect("cannot list the log");
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Answer::Observation(Observation { files })
    }

    /// Write a file past the owner, as another process would.
    fn plant(&mut self, request: Plant) -> Answer {
        let file = self.log_of(&request.table).join(&request.file);
        if !request.if_absent {
            remove_if_present(&file).expect("cannot remove the file");
        }
        match put_if_absent(&file, &request.content).expect("cannot write the file") {
            true => Answer::Done,
            false => Answer::Conflict(Conflict::default()),
        }
    }

    fn remove(&mut self, request: Remove) -> Answer {
        remove_if_present(&self.log_of(&request.table).join(&request.file)).expect("cannot remove the file");
        Answer::Done
    }
}

impl Owner {
    /// Of a table of this owner, or of one that the kit makes at a path.
    fn log_of(&self, reference: &str) -> PathBuf {
        match self.tables.get(reference) {
            Some(table) => table.log.clone(),
            None => Path::new(reference).join("_delta_log"),
        }
    }
}

// Tools

/// The folder for everything that must survive a restart.
fn home() -> PathBuf {
    env::var_os("CONFORMANCE_DIRECTORY").map_or_else(|| env::temp_dir().join(format!("{NAME}-{}", process::id())), PathBuf::from)
}

/// A version in the name of a file.
fn digits(version: i64) -> String {
    format!("{version:020}")
}

/// Create a whole, durable file. False: there is one already, and it stays as it is.
fn put_if_absent(path: &Path, text: &str) -> io::Result<bool> {
    let folder = path.parent().expect("a file in a folder");
    fs::create_dir_all(folder)?;
    let temporary = PathBuf::from(format!("{}.tmp", path.display()));
    remove_if_present(&temporary)?; // of a crash; it may be a link to the file
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    let linked = fs::hard_link(&temporary, path); // fails if the file exists: the one atomic step
    fs::remove_file(&temporary)?;
    match linked {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        other => other?,
    }
    File::open(folder)?.sync_all()?;
    Ok(true)
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The content of a commit's file: one action, already JSON, on each line.
fn content_of(actions: &[String]) -> String {
    actions.iter().map(|action| format!("{action}\n")).collect()
}

/// The same actions; the metadata names this owner, so that writers know where to send requests.
fn with_owner(actions: &[String]) -> Vec<String> {
    let named = |text: &String| {
        let mut action: serde_json::Value = serde_json::from_str(text).expect("an action is JSON");
        let Some(metadata) = action.get_mut("metaData") else { return text.clone() };
        metadata["configuration"]["delta.managedCommit.commitOwner"] = NAME.into();
        action.to_string()
    };
    actions.iter().map(named).collect()
}

/// Add every file below `folder`, by its path relative to `log`. A file that is not text has no content.
fn list(log: &Path, folder: &Path, files: &mut Vec<LogFile>) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(log, &path, files)?;
            continue;
        }
        let bytes = fs::read(&path)?;
        let name = path.strip_prefix(log).expect("a file below the log").to_string_lossy().into_owned();
        let size = bytes.len() as i64;
        files.push(LogFile { name, size, content: String::from_utf8(bytes).ok(), ..Default::default() });
    }
    Ok(())
}

// The loop: a call on each line of the standard input, a reply on each line of the standard output

#[derive(Deserialize)]
struct Call {
    id: i64,
    request: Request,
}

#[derive(Deserialize)]
struct Numbered {
    id: i64,
}

#[derive(Serialize)]
struct Reply {
    id: i64,
    answer: Answer,
}

fn main() -> io::Result<()> {
    let mut owner = Owner::default();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let reply = match serde_json::from_str::<Call>(&line) {
            Ok(call) => Reply { id: call.id, answer: owner.answer(call.request) },
            Err(error) => {
                // half of a surrogate pair, for example, which no String holds
                let Numbered { id } = serde_json::from_str(&line)?;
                let reason = format!("invalid request: {error}");
                Reply { id, answer: Answer::Rejected(Rejected { reason, ..Default::default() }) }
            }
        };
        let mut output = io::stdout().lock();
        writeln!(output, "{}", serde_json::to_string(&reply)?)?;
        output.flush()?;
    }
    Ok(())
}
