// Effective bandwidth against Slurm's own choice, as `gputopo report` reckons it.

import { bars } from "./chart.js";
import { get, html, table } from "./dom.js";

const KEYS = [["week", "By week"], ["user", "By user"], ["partition", "By partition"], ["size", "By size of the job"]];

export function gain(main) {
  const body = html("div", {}, html("p", {}, "Reading the decision log ..."));
  main.append(html("h1", {}, "Gain"), body);
  load(body);
  return { title: "Gain", update() {} };
}

async function load(body) {
  try {
    const found = await get("api/gain");
    body.replaceChildren(...parts(found));
  } catch (error) {
    body.replaceChildren(html("p", { class: "problem" }, error.message));
  }
}

function parts(found) {
  const all = found.all;
  if (!all.compared) return [html("p", {}, "No job of several GPUs was placed yet, so there is nothing to compare.")];
  const said = `${all.compared} jobs of several GPUs got ${all.chosen_gbps_mean.toFixed(1)} GB/s effective on average;`
    + ` Slurm's own choice would have been ${all.slurm_gbps_mean.toFixed(1)} GB/s. Job by job that is`
    + ` ${all.ratio_mean.toFixed(2)} times as much on average.`;
  return [html("p", { class: "sentence" }, said), ...KEYS.filter(([key]) => found[key].length).map(([key, title]) => part(title, key, found[key]))];
}

function part(title, key, rows) {
  const most = Math.max(...rows.map((row) => Math.max(row.chosen_gbps_mean, row.slurm_gbps_mean)));
  return table(title, [key === "size" ? "GPUs" : key, "jobs", "ours, GB/s", "Slurm's, GB/s", "ratio by job", "ours above, Slurm's below"], rows.map((row) => [
    row.name, String(row.compared), row.chosen_gbps_mean.toFixed(1), row.slurm_gbps_mean.toFixed(1), row.ratio_mean.toFixed(2),
    bars(row.chosen_gbps_mean, row.slurm_gbps_mean, most),
  ]));
}
