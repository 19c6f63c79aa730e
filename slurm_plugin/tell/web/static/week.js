// GPUs free, stranded, and the largest job that fits, over the last seven days, as the engine noted them.

import { WEEK_LINES, weekOfFree } from "./chart.js";
import { get, html, svg } from "./dom.js";

// The engine notes them every ten minutes.
const AGAIN_MS = 600000;

export function week() {
  const place = html("div", {});

  async function load() {
    try {
      const found = await get("api/week");
      place.replaceChildren(...parts(found));
    } catch (error) {
      place.replaceChildren(html("p", { class: "problem" }, error.message));
    }
    setTimeout(() => { if (place.isConnected) load(); }, AGAIN_MS);
  }

  load();
  return place;
}

function parts(found) {
  const said = found.problem ? [html("p", {}, found.problem)] : [];
  return found.points.length ? [...said, key(), weekOfFree(found)] : said;
}

function key() {
  return html("ul", { class: "key", "aria-label": "Lines" }, WEEK_LINES.map(([name, look]) => html("li", {},
    svg("svg", { viewBox: "0 0 24 12", class: "chart sample", "aria-hidden": "true" }, svg("path", { class: look, d: "M0 6h24" })), ` ${name}`)));
}
