// Every node as a tile: its GPUs by job, user or utility; what is free, stranded or closed.

import { line } from "./chart.js";
import { facts, html, plural, svg } from "./dom.js";
import { holders, view } from "./store.js";
import { week } from "./week.js";

const SIZE = 12;
let colourBy = "job";
let groupBy = "partition";

export function cluster(main) {
  const figures = html("div", { class: "figures" });
  const chart = html("div", {});
  const groups = html("div", { id: "groups" });
  const colours = html("div", {}, key());
  const tiles = new Map();
  let shape = "";
  main.append(
    html("h1", {}, "Cluster"), figures, choices(() => { shape = ""; colours.replaceChildren(key()); draw(); }), colours, groups,
    html("h2", {}, "Fragmentation since somebody looked"), chart,
    html("h2", {}, "Free GPUs of the last seven days"), week(),
  );

  function draw() {
    const names = Object.keys(view.nodes);
    const now = JSON.stringify([groupBy, colourBy, names.map((name) => placesOf(name))]);
    if (now !== shape) {
      shape = now;
      tiles.clear();
      groups.replaceChildren(...grouped(names).map(([title, some]) => group(title, some, tiles)));
    }
    for (const [name, some] of tiles) for (const tile of some) paint(tile, name);
  }

  return {
    title: "Cluster",
    update(changed) {
      if (changed.has("figures")) figures.replaceChildren(told(view.figures));
      if (changed.has("nodes") || changed.has("jobs")) draw();
      if (changed.has("history")) chart.replaceChildren(line(Object.values(view.history)));
    },
  };
}

function told(figures) {
  const [nodes, each] = figures.largest_over_nodes || [0, 0];
  return facts([
    ["GPUs free", `${figures.free} of ${figures.gpus}`],
    ["stranded", `${figures.stranded}`],
    ["fragmentation", `${Math.round(100 * figures.fragmentation)} %`],
    ["largest job that fits now, one node", plural(figures.largest, "GPU")],
    ["largest job that fits now, over nodes", nodes ? `${nodes * each} GPUs: ${plural(nodes, "node")} of ${each}` : "none"],
    ["jobs", `${figures.running} run, ${figures.waiting} wait`],
  ], true);
}

function choices(changed) {
  const chosen = (label, value, options, set) => {
    const id = `choose-${label.replace(" ", "-")}`;
    return html("p", {}, html("label", { for: id }, label), " ",
      html("select", { id, onchange: (event) => { set(event.target.value); changed(); } },
        options.map((one) => html("option", { value: one, selected: one === value }, one))));
  };
  return html("div", { class: "choices" },
    chosen("Colour by", colourBy, ["job", "user", "utility"], (one) => { colourBy = one; }),
    chosen("Group by", groupBy, ["partition", "switch", "nothing"], (one) => { groupBy = one; }));
}

function key() {
  const sample = (attributes, text) => html("li", {},
    svg("svg", { viewBox: "0 0 12 12", class: "sample", "aria-hidden": "true" }, svg("rect", { ...attributes, x: 1, y: 1, width: 10, height: 10 })),
    ` ${text}`);
  return html("ul", { class: "key", "aria-label": "Colours" },
    sample({ class: "free" }, "free"), sample({ class: "free stranded", fill: "url(#stranded)" }, "stranded: free, and of no use to any job that waits"),
    sample({ class: "free", fill: "url(#closed)" }, "free, but closed to jobs"),
    sample({ class: "busy" }, "busy"), colourBy === "utility"
      ? [0, 1, 2, 3, 4].map((at) => sample({ class: `u${at}` }, `${20 * at} to ${20 * at + 20} % of the best`))
      : html("li", {}, samples(), ` ${colourBy}s: seven colours, other ones on the same and neighbouring nodes where possible`));
}

function samples() {
  return svg("svg", { viewBox: "0 0 84 12", class: "samples", "aria-hidden": "true" },
    [0, 1, 2, 3, 4, 5, 6].map((at) => svg("rect", { class: `c${at}`, x: 12 * at + 1, y: 1, width: 10, height: 10 })));
}

function placesOf(name) {
  const node = view.nodes[name];
  if (groupBy === "partition") return node.partitions.length ? node.partitions : ["in no partition"];
  if (groupBy === "switch") return [node.switches[0] || "below no known switch"];
  return [""];
}

function grouped(names) {
  const found = new Map();
  for (const name of names) {
    for (const place of placesOf(name)) {
      if (!found.has(place)) found.set(place, []);
      found.get(place).push(name);
    }
  }
  return [...found].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true }));
}

function group(title, names, tiles) {
  names.sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  const list = html("ul", { class: "tiles" }, names.map((name) => html("li", {}, tile(name, tiles))));
  return html("section", { class: "group" }, title ? html("h2", {}, title) : null, list);
}

function tile(name, tiles) {
  const count = view.nodes[name].gpus.length;
  const columns = count <= 8 ? Math.min(4, count) : 8;
  const cells = Array.from({ length: count }, (_, gpu) => svg("rect", {
    x: (gpu % columns) * SIZE + 1, y: Math.floor(gpu / columns) * SIZE + 1, width: SIZE - 2, height: SIZE - 2, rx: 2,
  }));
  const rows = Math.ceil(count / columns);
  const drawing = svg("svg", { viewBox: `0 0 ${columns * SIZE} ${rows * SIZE}`, class: "gpus", "aria-hidden": "true" }, cells);
  const anchor = html("a", { class: "tile", href: `#/node/${encodeURIComponent(name)}` }, html("span", { class: "name" }, name), drawing);
  const made = { anchor, cells, was: "" };
  if (!tiles.has(name)) tiles.set(name, []);
  tiles.get(name).push(made);
  return anchor;
}

function paint(made, name) {
  const node = view.nodes[name];
  if (!node) return;
  const mine = holders[name] || {};
  const looks = [...node.gpus].map((letter, gpu) => look(letter, mine[gpu]));
  const label = describe(name, node, mine);
  const now = `${looks.join()} ${label}`;
  if (now === made.was) return;
  made.was = now;
  looks.forEach((name_, gpu) => {
    const cell = made.cells[gpu];
    cell.setAttribute("class", name_ === "closed" || name_ === "stranded" ? `free ${name_}` : name_);
    if (name_ === "closed" || name_ === "stranded") cell.setAttribute("fill", `url(#${name_})`);
    else cell.removeAttribute("fill");
  });
  made.anchor.setAttribute("aria-label", label);
  made.anchor.setAttribute("title", label);
  made.anchor.classList.toggle("is-stranded", node.gpus.includes("s"));
  made.anchor.classList.toggle("is-closed", Boolean(node.closed));
}

function look(letter, id) {
  if (letter === "f") return "free";
  if (letter === "s") return "stranded";
  if (letter === "x") return "closed";
  const job = view.jobs[id];
  if (!job?.colours) return "busy";
  // One GPU has no links to be good or bad.
  if (colourBy === "utility" && !job.gbps) return "busy";
  if (colourBy === "utility") return job.utility === undefined || job.utility === null ? "busy" : `u${Math.min(4, Math.floor(job.utility * 5))}`;
  return `c${job.colours[colourBy === "user" ? 1 : 0]}`;
}

function describe(name, node, mine) {
  const free = [...node.gpus].filter((letter) => letter !== "b").length;
  const jobs = [...new Set(Object.values(mine))];
  const parts = [`${name}: ${free} of ${plural(node.gpus.length, "GPU")} free`];
  if (node.gpus.includes("s")) parts.push("stranded");
  if (node.closed) parts.push(node.closed);
  if (jobs.length) parts.push(`jobs ${jobs.map((id) => `${view.jobs[id].name} of ${view.jobs[id].user}`).join(", ")}`);
  else if (free < node.gpus.length) parts.push("the others are busy");
  return parts.join("; ");
}
