// The last decisions as they happen, and how long the engine took for its answers.

import { facts, gpuList, html, jobLink, since } from "./dom.js";
import { PARTITION, age } from "./jobs.js";
import { list } from "./lists.js";
import { view } from "./store.js";

const WORDS = { use: "placed", wait: "postponed", pass: "left to Slurm", started: "started", shape: "shaped" };

const COLUMNS = [
  { name: "job", head: "job", text: nameOf, cell: (one) => jobLink(one.job, nameOf(one)) },
  { name: "when", head: "when", text: (one) => since(when(one)), by: when, cell: (one) => age(when(one)) },
  { name: "what", head: "what", text: (one) => WORDS[one.decision] || one.decision, isChoice: true },
  PARTITION,
  { name: "policy", head: "policy", text: (one) => one.policy, isChoice: true },
  { name: "gpus", head: "GPUs", text: (one) => gpuList(one.gpus), isLong: true },
  { name: "gbps", head: "GB/s", text: (one) => (one.gbps ? one.gbps.toFixed(1) : ""), by: (one) => one.gbps || undefined, isNumber: true },
  { name: "slurm", head: "Slurm's", text: (one) => (one.gbps && one.slurm_gbps ? one.slurm_gbps.toFixed(1) : ""),
    by: (one) => (one.gbps && one.slurm_gbps) || undefined, isNumber: true },
  { name: "why", head: "why", text: (one) => one.why, isLong: true },
];

export function decisions(main) {
  const answers = html("div", { class: "soft" });
  const shown = list("decisions", { caption: "The last decisions", noun: "decision", columns: COLUMNS, sort: "-when", empty: "Nothing was decided yet." });
  main.append(html("h1", {}, "Decisions"), answers, shown.element);
  return {
    title: "Decisions",
    update(changed) {
      if (changed.has("engine")) answers.replaceChildren(answered(view.engine));
      if (changed.has("decisions")) shown.draw(Object.entries(view.decisions).reverse());
    },
  };
}

// As Slurm calls the job, where it still knows it: a task of an array by both its numbers.
function nameOf(one) {
  return view.jobs[one.job]?.name || String(one.job);
}

function when(one) {
  return Date.parse(one.time) / 1000 || undefined;
}

function answered(engine) {
  const times = Object.entries(engine.answer_ms || {});
  if (!times.length) return html("p", {}, engine.is_up ? "The engine has answered nothing yet." : "How fast the engine answers is not known.");
  const ms = (value) => `${(value ?? 0).toFixed(2)} ms`;
  return facts(times.map(([verb, one]) => [`engine's answers to ${verb}`, `${ms(one.p50)} in the median, ${ms(one.p99)} at the 99th percentile, ${ms(one.max)} at most`]), true);
}
