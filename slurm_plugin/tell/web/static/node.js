// One node: its GPUs with their links, who holds them, and each job's ring.

import { facts, framed, get, html, isUnanswered, jobLink } from "./dom.js";
import { holders, view } from "./store.js";
import { inUse } from "./use.js";

export function node(main, name) {
  const summary = html("div", {});
  const more = html("div", {});
  let asked = "";
  main.append(html("h1", {}, `Node ${name}`), summary, more, inUse("node", name));

  async function load() {
    try {
      const found = await get(`api/node/${encodeURIComponent(name)}`);
      const parts = found.problem ? [html("p", {}, `Its links are not known: ${found.problem}.`)] : [];
      more.replaceChildren(...parts, html("div", { class: "pictures" }, found.pictures.map((one) => framed(one.svg))));
    } catch (error) {
      if (isUnanswered(error)) asked = "";
      more.replaceChildren(html("p", { class: "problem" }, error.message));
    }
  }

  return {
    title: `Node ${name}`,
    update() {
      const row = Object.hasOwn(view.nodes, name) ? view.nodes[name] : undefined;
      const now = JSON.stringify([row, holders[name]]);
      if (now === asked) return;
      asked = now;
      summary.replaceChildren(...(row ? [inShort(row, name)] : []));
      load();
    },
  };
}

function inShort(row, name) {
  const letters = [...row.gpus];
  const jobs = [...new Set(Object.values(holders[name] || {}))];
  const pairs = [
    ["GPUs", `${letters.length} ${row.model}, ${letters.filter((one) => one !== "b").length} free`
      + (row.gpus.includes("s") ? ", all of them stranded" : "")],
    ["partitions", row.partitions.join(", ") || "none"],
    ["CPUs", `${row.cpus[0]} of ${row.cpus[1]} free`],
    ["memory", `${row.memory_mb[0]} of ${row.memory_mb[1]} MB free`],
  ];
  if (row.closed) pairs.push(["closed", row.closed]);
  if (row.switches.length) pairs.push(["switches", row.switches.join(", ")]);
  if (jobs.length) {
    pairs.push(["jobs", html("span", {}, jobs.flatMap((id, at) => [at ? ", " : "", jobLink(id, view.jobs[id].name)]))]);
  }
  return facts(pairs);
}
