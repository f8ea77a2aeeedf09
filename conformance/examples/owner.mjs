// A commit owner to start from, and to test: inline commits of catalogManaged tables, in memory. Node alone.
//
//     delta-commit-conformance smoke "stdio:node owner.mjs"
//
// One request at a time, in order of arrival. `versions` is the log as the owner knows it; `files` is what an external
// observer sees, who only lists the table's folder.

import { createInterface } from "node:readline";

const tables = new Map();
const fileOf = (version) => `${String(version).padStart(20, "0")}.json`;
const contentOf = (actions) => actions.map((action) => action + "\n").join("");
const notFound = { outcome: "not_found" };

function created(name, attempt, actions) {
  const table = { name, reference: `${name}-${tables.size}`, dropped: false, files: new Map(), versions: [] };
  table.versions.push({ attempt, actions });
  table.files.set(fileOf(0), contentOf(actions));
  table.backfilled = 0; // every version up to this one is published
  tables.set(table.reference, table);
  return table;
}

const locationOf = (table) => `memory:/${table.reference}`;
const found = (name, path) =>
  [...tables.values()].find((table) => !table.dropped && (table.name === name || locationOf(table) === path));
const latestOf = (table) => table.versions.length - 1;

/** The commits from `start` to `end` that are not published yet: those that are need not be listed. */
function entries(table, start, end) {
  const from = Math.max(start ?? 0, table.backfilled + 1);
  const to = Math.min(end ?? latestOf(table), latestOf(table));
  return table.versions
    .map(({ actions }, version) => ({ version, actions }))
    .filter(({ version }) => from <= version && version <= to);
}

/** The latest action of a kind. */
function newest(table, kind) {
  const all = table.versions.flatMap(({ actions }) => actions);
  return all.findLast((action) => kind in JSON.parse(action)) ?? null;
}

const operations = {
  hello: () => ({
    outcome: "identity", name: "example-node", version: "1", interface_version: 1, side: "owner",
    profiles: ["core", "version-0-by-owner", "inline", "idempotent-retry", "discovery", "maintenance-policy"],
    features: ["catalogManaged"], commit_modes: { catalogManaged: ["inline"] },
  }),

  create_table({ name, feature, commit_mode, attempt, actions }) {
    if (feature !== "catalogManaged" || commit_mode !== "inline") return { outcome: "unsupported", reason: "inline only" };
    // A repeated create request is idempotent: its answer was lost.
    const again = [...tables.values()].find((table) => table.versions[0].attempt === attempt);
    const other = found(name);
    if (!again && other) return { outcome: "conflict", latest: latestOf(other), winner_table: other.reference };
    return { outcome: "ratified", version: 0, table: (again ?? created(name, attempt, actions)).reference };
  },

  commit({ version, attempt, actions }, table) {
    const landed = table.versions.findIndex((commit) => commit.attempt === attempt);
    if (landed >= 0) { // its answer was lost, and it asks again
      return landed === version ? { outcome: "ratified", version } : { outcome: "rejected", reason: "used before" };
    }
    const latest = latestOf(table);
    if (version > latest + 1) return { outcome: "gap", latest };
    if (version <= latest) return { outcome: "conflict", latest, winners: entries(table, version) };
    if (!actions) return { outcome: "rejected", reason: "inline only" };
    table.versions.push({ attempt, actions }); // the commit point
    return { outcome: "ratified", version };
  },

  get_commits: ({ start, end }, table) => ({
    outcome: "commits", commits: entries(table, start, end), latest: latestOf(table),
  }),

  backfill_to_version({ version }, table) {
    while (table.backfilled < Math.min(version, latestOf(table))) { // in order, one after the other
      const next = table.backfilled + 1;
      table.files.set(fileOf(next), contentOf(table.versions[next].actions));
      table.backfilled = next;
    }
    return { outcome: "done" };
  },

  load_table({ name, path }) {
    const table = found(name, path);
    if (!table) return notFound;
    const latest = latestOf(table);
    return { outcome: "table", table: table.reference, feature: "catalogManaged", commit_mode: "inline", latest,
      location: locationOf(table), commits: entries(table), protocol: newest(table, "protocol"), metadata: newest(table, "metaData") };
  },

  drop_table(_request, table) {
    table.dropped = true;
    return { outcome: "done" };
  },

  maintenance_policy: () => ({ outcome: "policy", allowed: ["checkpoint", "log-compaction", "checksum"] }),

  observe: (_request, table) => ({
    outcome: "observation",
    files: [...table.files].map(([name, content]) => ({ name, size: Buffer.byteLength(content), content })),
  }),
};

function answer(request) {
  const operation = operations[request.op];
  if (!operation) return { outcome: "unsupported", reason: request.op };
  if (request.table === undefined) return operation(request);
  const table = tables.get(request.table);
  return table && !table.dropped ? operation(request, table) : notFound;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, request } = JSON.parse(line);
  process.stdout.write(JSON.stringify({ id, answer: answer(request) }) + "\n");
}
