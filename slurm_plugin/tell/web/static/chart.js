// Charts of a line or of bars, each with a name and its figures in words.

import { html, moment, svg } from "./dom.js";

const WIDTH = 600;
const HEIGHT = 120;
const LEFT = 56;
// Points further apart than this (seconds) are not joined: in between nobody looked.
const APART = 180;

export function line(points) {
  if (points.length < 2) return html("p", {}, "The chart begins with the second minute.");
  const first = points[0][0];
  const span = Math.max(1, points.at(-1)[0] - first);
  const x = (at) => LEFT + ((WIDTH - LEFT - 4) * (at - first)) / span;
  const y = (share) => 8 + (HEIGHT - 30) * (1 - share);
  const isFirst = (place) => !place || points[place][0] - points[place - 1][0] > APART;
  // A point with none beside it is a dot.
  const path = points.map(([at, share], place) => `${isFirst(place) ? "M" : "L"}${x(at).toFixed(1)} ${y(share).toFixed(1)}`
    + (isFirst(place) ? "h.1" : "")).join("");
  const last = points.at(-1);
  const label = `Fragmentation from ${moment(first)} to ${moment(last[0])}; now ${Math.round(100 * last[1])} %,`
    + ` ${last[2]} of ${last[3]} free GPUs stranded`;
  const grid = [0, 0.5, 1].flatMap((share) => [
    svg("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: y(share), y2: y(share) }),
    svg("text", { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`),
  ]);
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": label },
    svg("title", {}, label), grid, svg("path", { class: "line", d: path }),
    svg("text", { x: LEFT, y: HEIGHT - 4 }, moment(first)),
    svg("text", { x: WIDTH, y: HEIGHT - 4, "text-anchor": "end" }, moment(last[0])));
}

export function bars(ours, theirs, most) {
  const width = (value) => Math.max(1, (140 * (value || 0)) / (most || 1)).toFixed(1);
  return svg("svg", { viewBox: "0 0 142 18", class: "bars", "aria-hidden": "true" },
    svg("rect", { class: "ours", x: 0, y: 1, height: 7, width: width(ours) }),
    svg("rect", { class: "theirs", x: 0, y: 10, height: 7, width: width(theirs) }));
}
