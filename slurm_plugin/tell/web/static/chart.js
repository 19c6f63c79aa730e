// Charts of a line or of bars, each with a name and its figures in words.

import { html, moment, svg } from "./dom.js";

const WIDTH = 600;
const HEIGHT = 120;
const LEFT = 56;
// Points further apart than this (seconds) are not joined: in between nobody looked.
const APART = 180;

export function line(points) {
  if (points.length < 2) return html("p", {}, "The chart begins with the second minute.");
  const last = points.at(-1);
  const label = `Fragmentation from ${moment(points[0][0])} to ${moment(last[0])}; now ${Math.round(100 * last[1])} %,`
    + ` ${last[2]} of ${last[3]} free GPUs stranded`;
  return plot(label, [["line", points]], {
    from: points[0][0], to: last[0], apart: APART, grid: [0, 0.5, 1], named: (share) => `${100 * share} %`,
  });
}

// The lines of a week's chart: name, look, and which of a point's numbers.
export const WEEK_LINES = [["free", "line", 2], ["largest job that fits", "line largest", 4], ["stranded", "line stranded", 3]];

export function weekOfFree(week) {
  const all = Math.max(...week.points.map((point) => point[1]));
  const last = week.points.at(-1);
  const label = `GPUs from ${moment(week.from)} to ${moment(week.to)}; of ${last[1]} at ${moment(last[0])} ${last[2]} free,`
    + ` ${last[3]} stranded, ${last[4]} in the largest job that fits`;
  return plot(label, WEEK_LINES.map(([, look, number]) => [look, week.points.map((point) => [point[0], point[number]])]), {
    from: week.from, to: week.to, apart: week.apart_s, grid: [0, Math.round(all / 2), all], named: String,
  });
}

// Each line has a look (classes) and points of a time and a value; `grid` are the values that are named, the highest last.
function plot(label, lines, { from, to, apart, grid, named }) {
  const span = Math.max(1, to - from);
  const x = (at) => LEFT + ((WIDTH - LEFT - 4) * (at - from)) / span;
  const y = (value) => 8 + (HEIGHT - 30) * (1 - value / grid.at(-1));
  const path = (points) => points.map(([at, value], place) => {
    // A point with none beside it is a dot.
    const isFirst = !place || at - points[place - 1][0] > apart;
    return `${isFirst ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}${isFirst ? "h.1" : ""}`;
  }).join("");
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": label },
    svg("title", {}, label),
    grid.flatMap((value) => [
      svg("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, named(value)),
    ]),
    lines.map(([look, points]) => svg("path", { class: look, d: path(points) })),
    svg("text", { x: LEFT, y: HEIGHT - 4 }, moment(from)),
    svg("text", { x: WIDTH, y: HEIGHT - 4, "text-anchor": "end" }, moment(to)));
}

export function bars(ours, theirs, most) {
  const width = (value) => Math.max(1, (140 * (value || 0)) / (most || 1)).toFixed(1);
  return svg("svg", { viewBox: "0 0 142 18", class: "bars", "aria-hidden": "true" },
    svg("rect", { class: "ours", x: 0, y: 1, height: 7, width: width(ours) }),
    svg("rect", { class: "theirs", x: 0, y: 10, height: 7, width: width(theirs) }));
}
