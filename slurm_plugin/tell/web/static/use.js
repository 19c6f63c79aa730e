// How much of GPUs is in use, by the site's Prometheus: of a node, or of a job with the mean of its GPUs.

import { get, html, isUnanswered, jobLink, table } from "./dom.js";

// The server asks no more often than that.
const EVERY_MS = 15000;

export function inUse(what, name) {
  const place = html("div", {});
  let shown = "";

  async function load() {
    let isAsked = true;
    try {
      // Nobody looks at a page in the background.
      if (!document.hidden) {
        const found = await get(`api/use/${what}/${encodeURIComponent(name)}`);
        isAsked = found.is_asked;
        // A table that stays the same keeps its focus.
        if (JSON.stringify(found) !== shown) place.replaceChildren(...(isAsked ? parts(found, what) : []));
        shown = JSON.stringify(found);
      }
    } catch (error) {
      // Of a node or job that is gone the view itself says so.
      if (!isUnanswered(error)) place.replaceChildren();
      shown = "";
    }
    if (isAsked) setTimeout(() => { if (place.isConnected) load(); }, EVERY_MS);
  }

  load();
  return place;
}

function parts(found, what) {
  const problem = found.problem ? [html("p", { class: "problem" }, found.problem)] : [];
  if (!found.gpus.length) return problem;
  const mean = typeof found.mean_percent === "number" && found.gpus.length > 1
    ? [html("p", {}, `Utilisation of its ${found.gpus.length} GPUs, their mean: ${percent(found.mean_percent)}`)] : [];
  const isJob = what === "job";
  const rows = found.gpus.map((gpu) => [...(isJob ? [gpu.node, String(gpu.gpu)] : [String(gpu.gpu), jobs(gpu)]), ...figures(gpu)]);
  const heads = [...(isJob ? ["node", "GPU"] : ["GPU", "job"]), "utilisation", "memory"];
  return [html("h2", {}, "Utilisation and memory"), ...problem, ...mean, table("GPUs in use", heads, rows, true)];
}

function jobs(gpu) {
  const links = Object.entries(gpu.jobs).map(([id, name]) => jobLink(id, name));
  return links.length ? html("span", {}, links.flatMap((link, at) => [at ? ", " : "", link])) : "free";
}

function figures(gpu) {
  const memory = gpu.used_mib === null ? "not known" : `${(gpu.used_mib / 1024).toFixed(1)} of ${(gpu.total_mib / 1024).toFixed(1)} GiB`;
  return [gpu.busy_percent === null ? "not known" : percent(gpu.busy_percent), memory];
}

function percent(value) {
  return `${Math.round(value)} %`;
}
