// All waiting jobs that the viewer may see, by what they wait for.

import { html, jobLink, plural, table, time } from "./dom.js";
import { view } from "./store.js";

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

export function queue(main) {
  const count = html("p", {});
  const groups = html("div", {});
  main.append(html("h1", {}, "Queue"), count, groups);
  return {
    title: "Queue",
    update(changed) {
      if (!changed.has("jobs") && !changed.has("figures")) return;
      const jobs = Object.entries(view.jobs).filter(([, job]) => job.state === "PENDING");
      const more = view.unlisted_waiting || 0;
      const others = (view.figures.waiting || 0) - jobs.length - more;
      count.textContent = `${plural(jobs.length, "waiting job")} that you may see`
        + (more > 0 ? ` and ${more} more that are not listed` : "")
        + (others > 0 ? `, ${others} of other users.` : ".");
      groups.replaceChildren(...byCause(jobs).map(([cause, some]) => section(cause, some)));
    },
  };
}

function byCause(jobs) {
  const found = new Map();
  for (const one of jobs.sort(([, a], [, b]) => a.place - b.place)) {
    const cause = one[1].cause || "slurm";
    if (!found.has(cause)) found.set(cause, []);
    found.get(cause).push(one);
  }
  return [...found].sort(([, a], [, b]) => b.length - a.length);
}

function asks(job) {
  if (!job.asked) return "no GPUs";
  return job.nodes > 1 ? `${job.asked} on ${job.nodes} nodes` : job.asked;
}

function section(cause, jobs) {
  const title = CAUSES[cause] || "What Slurm says";
  const rows = jobs.map(([id, job]) => [
    jobLink(id, job.name), String(job.place), job.user, job.partition, asks(job),
    job.sentence || `Slurm says ${job.reason}.`, time(job.submit),
  ]);
  return html("section", { class: "group" }, html("h2", {}, `${title} (${jobs.length})`),
    table(`Jobs that wait for: ${title}`, ["job", "place", "user", "partition", "asks for", "why it waits", "since"], rows, true));
}
