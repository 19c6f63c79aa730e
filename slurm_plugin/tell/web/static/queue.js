// The waiting jobs that the viewer may see, and what each waits for.

import { html, plural } from "./dom.js";
import { ASKS, NUMBER, PARTITION, SINCE, WHOSE, causeOf } from "./jobs.js";
import { list } from "./lists.js";
import { view } from "./store.js";

const COLUMNS = [
  NUMBER,
  { name: "place", head: "place", text: (job) => String(job.place), by: (job) => job.place, isNumber: true },
  ...WHOSE, PARTITION, ASKS,
  { name: "waits", head: "waits for", text: causeOf, isChoice: true },
  { name: "why", head: "why", text: (job) => job.sentence || `Slurm says ${job.reason}.`, isLong: true },
  SINCE,
];

export function queue(main) {
  const shown = list("queue", { caption: "Waiting jobs", noun: "waiting job", columns: COLUMNS, sort: "place", empty: "No job that you may see waits." });
  const others = html("p", { class: "soft" });
  main.append(html("h1", {}, "Queue"), shown.element, others);
  return {
    title: "Queue",
    update(changed) {
      if (!changed.has("jobs") && !changed.has("figures")) return;
      const jobs = Object.entries(view.jobs).filter(([, job]) => job.state === "PENDING");
      shown.draw(jobs.map(([id, job]) => [id, { id, ...job }]));
      const more = view.unlisted_waiting || 0;
      const hidden = (view.figures.waiting || 0) - jobs.length - more;
      others.textContent = [more > 0 && `${plural(more, "job")} more of yours ${more === 1 ? "is" : "are"} not listed.`,
        hidden > 0 && `${plural(hidden, "job")} of other users ${hidden === 1 ? "waits" : "wait"}, too; the places count them.`].filter(Boolean).join(" ");
    },
  };
}
