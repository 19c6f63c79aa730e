// The last decisions as they happen, and how long the engine took for its answers.

import { gpuList, html, jobLink, table, time } from "./dom.js";
import { view } from "./store.js";

const WORDS = { use: "placed", wait: "postponed", pass: "left to Slurm", started: "started", shape: "shaped" };

export function decisions(main) {
  const latency = html("div", {});
  const list = html("div", {});
  const input = html("input", { id: "decision-text", autocomplete: "off", maxlength: "80", oninput: draw });
  main.append(html("h1", {}, "Decisions"), latency,
    html("p", {}, html("label", { for: "decision-text" }, "Only with these words "), input), list);

  function draw() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = Object.entries(view.decisions).sort(([a], [b]) => b - a).map(([, one]) => one).filter((one) => {
      const text = [one.job, one.decision, WORDS[one.decision], one.partition, one.policy, one.why, gpuList(one.gpus)].join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    list.replaceChildren(table("The last decisions, newest first", ["job", "when", "what", "partition", "policy", "GPUs", "GB/s", "why"],
      rows.map((one) => [
        jobLink(one.job), time(one.time), WORDS[one.decision] || one.decision, one.partition || "-", one.policy || "-", gpuList(one.gpus) || "-",
        speed(one), one.why || "-",
      ])));
  }

  return {
    title: "Decisions",
    update(changed) {
      if (changed.has("engine")) {
        const times = Object.entries(view.engine.answer_ms || {});
        latency.replaceChildren(times.length ? table("How long the engine's answers took, in milliseconds", ["question", "half of them within", "99 % within", "longest"],
          times.map(([verb, one]) => [verb, ...["p50", "p99", "max"].map((name) => (one[name] ?? 0).toFixed(2))])) : html("p", {}, "The engine has answered nothing yet."));
      }
      if (changed.has("decisions")) draw();
    },
  };
}

function speed(one) {
  if (!one.gbps) return "-";
  const slurm = one.slurm_gbps ? ` (Slurm ${one.slurm_gbps.toFixed(1)})` : "";
  return html("span", { class: "whole" }, `${one.gbps.toFixed(1)}${slurm}`);
}
