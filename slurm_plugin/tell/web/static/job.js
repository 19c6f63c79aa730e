// One job: why it has these GPUs, what it waited for, its ranks, a loan; or why it still waits.

import { duration, facts, framed, get, gpuList, html, isUnanswered, moment, picture, places, since, span, table, time } from "./dom.js";
import { leftS } from "./jobs.js";
import { view } from "./store.js";
import { inUse } from "./use.js";

export function job(main, asks) {
  // Whatever a link says: jobs have numbers.
  const id = /^[0-9]{1,10}$/.test(asks) ? asks : "0";
  const summary = html("div", {});
  const more = html("div", {});
  let asked = "";
  main.append(html("h1", {}, `Job ${view.jobs[id]?.name || id}`), summary, inUse("job", id), more);

  async function load() {
    try {
      const found = await get(`api/job/${encodeURIComponent(id)}`);
      more.replaceChildren(...parts(found));
    } catch (error) {
      if (isUnanswered(error)) asked = "";
      more.replaceChildren(html("p", { class: "problem" }, error.message));
    }
  }

  return {
    title: `Job ${id}`,
    update(changed) {
      const row = view.jobs[id];
      if (changed.has("jobs")) summary.replaceChildren(...(row ? [inShort(row)] : []));
      // A waiting job's answer goes by all that runs: it is asked for again when something changed.
      const now = JSON.stringify(row || {}) + (row?.state === "PENDING" ? view.number : "");
      if (now !== asked) {
        asked = now;
        load();
      }
    },
  };
}

function inShort(row) {
  const pairs = [
    ["name", row.job_name || "-"], ["state", `${row.state}, ${since(row.start || row.submit)}`], ["user", `${row.user}, account ${row.account || "-"}`],
    ["asked", `${row.asked || "no GPUs"}${row.nodes > 1 ? ` on ${row.nodes} nodes` : ""} in ${row.partition}`], ["submitted", moment(row.submit)],
    ["time limit", `${duration(row.time_limit_s)}${leftOf(row) && `, ${leftOf(row)} left`}`],
  ];
  if (row.gpus && Object.keys(row.gpus).length) pairs.push(["runs on", places(row.gpus)]);
  if (row.gbps) pairs.push(["effective bandwidth", `${row.gbps.toFixed(1)} GB/s${row.nodes > 1 ? " inside its worst node" : ""}`
    + (row.slurm_gbps ? `, Slurm's own choice ${row.slurm_gbps.toFixed(1)} GB/s` : "")]);
  if (row.comment) pairs.push(["comment", row.comment]);
  return facts(pairs);
}

function leftOf(row) {
  return leftS(row) === undefined ? "" : span(leftS(row));
}

function parts(found) {
  const shown = [];
  if (found.is_over) shown.push(html("p", { class: "sentence" }, "This job is over: it is no longer in Slurm's queue."));
  if (found.why) shown.push(html("h2", {}, "Why it waits"), ...answer(found.why));
  if (found.pictures.length) {
    shown.push(html("h2", {}, "Its GPUs"), html("div", { class: "pictures" }, found.pictures.map((one) => framed(one.svg))));
  }
  if (found.facts.length) shown.push(html("h2", {}, "Why these GPUs"), html("p", {}, inLocalTime(found.headline)), facts(found.facts));
  if (found.ranks.length > 1) {
    shown.push(table("Rank order of the launch", ["rank", "node", "GPU"],
      found.ranks.map(([node, gpu], rank) => [String(rank), node, String(gpu)])));
  }
  if (found.candidates.length) shown.push(html("h2", {}, "Candidates"), html("ul", { class: "candidates" }, found.candidates.map(candidate)));
  if (found.timeline.length) shown.push(html("h2", {}, "What happened"), html("ol", { class: "timeline" }, found.timeline.map(step)));
  return shown;
}

// The log's times are in UTC, the page's in the reader's own zone.
function inLocalTime(text) {
  return text.replace(/\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)/g, moment);
}

function answer(why) {
  const pairs = why.evidence.map(([title, text]) => [title, text]);
  if (why.slurm_start) pairs.push(["starts", `${moment(why.slurm_start)} as Slurm plans it`]);
  if (why.our_start) pairs.push(["starts", `${moment(why.our_start)} if all jobs run to their time limits`]);
  for (const change of why.sooner) pairs.push(["sooner", change]);
  return [html("p", { class: "sentence" }, why.sentence), facts(pairs)];
}

function candidate(one) {
  const speed = typeof one.effbw_gbps === "number" ? `${one.effbw_gbps.toFixed(1)} GB/s` : "";
  return html("li", {}, one.pictures.map((some) => picture(some.svg)),
    html("p", {}, [gpuList(one.gpus), speed].filter(Boolean).join(", ")));
}

function step(one) {
  return html("li", {}, time(one.at), " ", one.what, one.why ? `: ${one.why}` : "");
}
