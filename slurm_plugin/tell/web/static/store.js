// What the page knows: the whole view once, then what changed, row by row.

import { asOf } from "./dom.js";

const TABLES = new Set(["nodes", "history", "jobs", "decisions"]);
const SILENCE_MS = 25000;
const RETRY_MS = 2000;

export const view = { nodes: {}, history: {}, jobs: {}, decisions: {}, figures: {}, engine: { is_up: true } };
export const link = { isUp: false, problem: "" };
// Whether the viewer sees all jobs.
export const isOperator = "operator" in document.body.dataset;
// Node -> GPU -> the job that holds it, of those that the viewer may see.
export let holders = {};

const listeners = new Set();
let source = null;
let heardAt = 0;

export function onChange(listener) {
  listeners.add(listener);
}

function tell(changed) {
  if (changed.has("jobs")) holders = holdersOf(view.jobs);
  for (const listener of listeners) listener(changed);
}

function holdersOf(jobs) {
  const found = {};
  for (const [id, job] of Object.entries(jobs)) {
    for (const [node, gpus] of Object.entries(job.gpus || {})) {
      for (const gpu of gpus) (found[node] ||= {})[gpu] = id;
    }
  }
  return found;
}

function takeWhole(event) {
  const whole = JSON.parse(event.data);
  for (const key of TABLES) view[key] = {};
  Object.assign(view, whole);
  up(event);
  tell(new Set(Object.keys(whole)));
}

function takeChanges(event) {
  const changes = JSON.parse(event.data);
  for (const [key, change] of Object.entries(changes)) {
    if (!TABLES.has(key)) {
      view[key] = change;
      continue;
    }
    Object.assign(view[key], change.set);
    for (const name of change.gone) delete view[key][name];
  }
  up(event);
  tell(new Set(Object.keys(changes)));
}

function up(event) {
  heardAt = Date.now();
  // The clocks of the two hosts may differ: so the server says how long ago it was as well.
  const [at, ago_s] = event.lastEventId.split(" ").map(Number);
  if (at) Object.assign(asOf, { at, here: heardAt - 1000 * ago_s });
  link.isUp = true;
  link.problem = "";
}

async function lost() {
  link.isUp = false;
  tell(new Set(["link"]));
  if (source && source.readyState !== EventSource.CLOSED) return;
  // The browser gives up after an error of the server; what it said is asked for by itself.
  source = null;
  try {
    const response = await fetch("api/state", { method: "HEAD" });
    if (!response.ok) link.problem = response.status === 503 ? "Slurm does not answer" : response.statusText;
  } catch {
    link.problem = "";
  }
  tell(new Set(["link"]));
  setTimeout(connect, RETRY_MS);
}

export function connect() {
  if (source) source.close();
  heardAt = Date.now();
  source = new EventSource("api/events");
  source.addEventListener("whole", takeWhole);
  source.addEventListener("changes", takeChanges);
  source.addEventListener("alive", up);
  source.addEventListener("error", lost);
}

// A connection that a proxy keeps open although nobody is behind it any more.
setInterval(() => {
  if (source && Date.now() - heardAt > SILENCE_MS) connect();
}, 5000);
