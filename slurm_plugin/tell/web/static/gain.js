// How many times the effective bandwidth of Slurm's own choice jobs got, as `gputopo report` reckons it.

import { bars } from "./chart.js";
import { asOf, get, html, isUnanswered, moment, table } from "./dom.js";

const KEYS = [["week", "By week"], ["user", "By user"], ["partition", "By partition"], ["size", "By size of the job"]];

export function gain(main) {
  const body = html("div", {}, html("p", {}, "Reading the decision log ..."));
  // Of when the log was read and of which days it tells, in place of when Slurm was.
  const ofWhen = html("p", { class: "as-of" });
  let isToAsk = true;
  main.append(html("h1", {}, "Gain"), body);

  async function load() {
    isToAsk = false;
    try {
      const found = await get("api/gain");
      body.replaceChildren(...parts(found));
      ofWhen.textContent = daysOf(found);
    } catch (error) {
      isToAsk = isUnanswered(error);
      body.replaceChildren(html("p", { class: "problem" }, error.message));
    }
  }

  load();
  return { title: "Gain", ofWhen, update() { if (isToAsk) load(); } };
}

function parts(found) {
  const all = found.all;
  if (!all.compared) return [html("p", {}, "No job of several GPUs was placed yet, so there is nothing to compare.")];
  const sure = all.ratio_interval ? ` (${all.ratio_interval.map((one) => one.toFixed(2)).join(" to ")} with 95 % certainty)` : "";
  const said = `A job of several GPUs got ${all.ratio_mean.toFixed(2)} times the effective bandwidth of the GPUs that Slurm would have`
    + ` taken${sure}: the mean over ${all.compared} jobs, of which each counts alike. ${all.ratio_more} got more, ${all.ratio_less} less,`
    + ` ${all.compared - all.ratio_more - all.ratio_less} as much.`;
  return [html("p", { class: "sentence" }, said), ...KEYS.filter(([key]) => found[key].length).map(([key, title]) => part(title, key, found[key]))];
}

function daysOf(found) {
  const [first, last] = found.days.map((day) => new Date(`${day}T12:00:00`).toLocaleDateString(undefined, { dateStyle: "medium" }));
  const days = first && (first === last ? `decisions of ${first}, ` : `decisions of ${first} to ${last}, `);
  return `${days || ""}as of ${moment(asOf.at - found.ago_s)}`;
}

function part(title, key, rows) {
  const most = Math.max(1, ...rows.map((row) => row.ratio_mean));
  const sure = (one) => (one ? `${one[0].toFixed(2)} to ${one[1].toFixed(2)}` : "too few jobs");
  return table(title, [key === "size" ? "GPUs" : key, "jobs", "more", "less", "times Slurm's", "with 95 % certainty", "ours above, Slurm's below"], rows.map((row) => [
    row.name, String(row.compared), String(row.ratio_more), String(row.ratio_less), row.ratio_mean.toFixed(2), sure(row.ratio_interval), bars(row.ratio_mean, 1, most),
  ]));
}
