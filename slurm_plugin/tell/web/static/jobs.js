// The jobs that the viewer may see, those that run and those that wait, as one list.

import { asOf, gpuList, html, jobLink, places, since, span, time } from "./dom.js";
import { list } from "./lists.js";
import { isOperator, view } from "./store.js";

// Nodes of a large job that are named in its row.
const MAX_NODES = 4;

const CAUSES = {
  fragmentation: "Enough GPUs are free, but scattered",
  gpus: "GPUs",
  cpus: "CPUs beside free GPUs",
  memory: "Memory beside free GPUs",
  exclusive: "A node of its own",
  nodes: "Nodes that can take jobs",
  priority: "Jobs that come first",
  backfill: "Jobs that would be delayed",
  next: "Slurm's next look",
  limit: "A limit",
  policy: "Better GPUs",
  loan: "GPUs of other nodes",
  shape: "Its shape",
  dependency: "Another job",
  "begin time": "A time",
  held: "A release",
  reservation: "A reservation",
  licence: "A licence",
  array: "Tasks of its array",
  partition: "Its partition",
  impossible: "Nothing that can come",
};

// What every list of jobs begins with; the user where there are several.
export const NUMBER = { name: "job", head: "job", text: (job) => job.name, cell: (job) => jobLink(job.id, job.name) };
export const WHOSE = [
  { name: "name", head: "name", text: (job) => job.job_name },
  ...(isOperator ? [{ name: "user", head: "user", text: (job) => job.user, isChoice: true }] : []),
];
export const PARTITION = { name: "partition", head: "partition", text: (job) => job.partition, isChoice: true };
export const ASKS = { name: "asks", head: "asks for", text: asks, by: (job) => job.asked ? asks(job) : undefined };
// Since it runs, or else since it waits.
export const SINCE = { name: "since", head: "since", text: (job) => since(begun(job)), by: begun, cell: (job) => age(begun(job)) };

const COLUMNS = [
  NUMBER, ...WHOSE,
  { name: "state", head: "state", text: (job) => job.state, isChoice: true, cell: state },
  SINCE, PARTITION, ASKS,
  { name: "gpus", head: "nodes and GPUs", text: where, cell: linked, isLong: true },
  { name: "best", head: "share of best", text: (job) => (best(job) === undefined ? "" : `${Math.round(100 * best(job))} %`), by: best, isNumber: true },
  { name: "left", head: "time left", text: left, by: leftS, isNumber: true },
];

export function jobs(main) {
  const title = isOperator ? "Jobs" : "My jobs";
  const shown = list("jobs", { caption: title, noun: "job", columns: COLUMNS, sort: "-since", empty: "No job runs or waits." });
  const unlisted = html("p", { class: "soft" });
  main.append(html("h1", {}, title), shown.element, unlisted);
  return {
    title,
    update(changed) {
      if (!changed.has("jobs")) return;
      shown.draw(Object.entries(view.jobs).map(([id, job]) => [id, { id, ...job }]));
      unlisted.textContent = view.unlisted ? `${view.unlisted} more are not listed; each has its page by its number.` : "";
    },
  };
}

function asks(job) {
  if (!job.asked) return "no GPUs";
  return job.nodes > 1 ? `${job.asked} on ${job.nodes} nodes` : job.asked;
}

function state(job) {
  return html("span", { class: `state ${job.state === "RUNNING" ? "is-running" : ""}` }, job.state);
}

function begun(job) {
  return job.start || job.submit;
}

export function age(at) {
  return html("span", { class: "whole" }, `${span(asOf.at - at)} `, time(at));
}

export function causeOf(job) {
  return CAUSES[job.cause] || "What Slurm says";
}

function where(job) {
  if (job.state === "PENDING") return `waits for: ${causeOf(job)}`;
  return gpuList(job.gpus);
}

function linked(job) {
  return where(job) && job.state !== "PENDING" ? places(job.gpus, MAX_NODES) : where(job) || "-";
}

// One GPU has no links to be good or bad.
function best(job) {
  return job.gbps ? job.utility ?? undefined : undefined;
}

export function leftS(job) {
  if (job.state === "PENDING" || !job.time_limit_s || !job.end) return undefined;
  return Math.max(0, job.end - asOf.at);
}

function left(job) {
  if (job.state !== "PENDING" && !job.time_limit_s) return "no limit";
  return leftS(job) === undefined ? "" : span(leftS(job));
}
