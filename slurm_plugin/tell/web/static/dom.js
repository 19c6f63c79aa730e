// Small pieces that every view is made of. Texts go in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined));
  return element;
}

export function html(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

// A picture that the server drew; it may hold no script, and the page's policy would run none.
export function picture(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  return document.importNode(parsed, true);
}

// The same in a frame: on a narrow window it is scrolled sideways, by keyboard as well, and stays readable.
export function framed(text) {
  const drawn = picture(text);
  const label = drawn.getAttribute("aria-label") || "a drawing";
  return html("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label }, drawn);
}

// Of when the view is: when Slurm was read, in seconds by its own clock, and in milliseconds by this one.
export const asOf = { at: Date.now() / 1000, here: Date.now() };

export function moment(at) {
  if (!at) return "-";
  const date = typeof at === "number" ? new Date(at * 1000) : new Date(at);
  if (Number.isNaN(date.getTime())) return String(at);
  // Of the view's own day the time is enough; a recorded day has one of its own.
  const today = new Date(asOf.at * 1000);
  if (date.toDateString() === today.toDateString()) return date.toLocaleTimeString();
  const year = date.getFullYear() === today.getFullYear() ? undefined : "numeric";
  return date.toLocaleString(undefined, { year, month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });
}

export function time(at) {
  return html("time", {}, moment(at));
}

export function duration(seconds) {
  if (!seconds) return "none";
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  return minutes < 2880 ? `${Math.round(minutes / 6) / 10} h` : `${Math.round(minutes / 144) / 10} d`;
}

// How long something has lasted.
export function span(seconds) {
  return seconds < 60 ? `${Math.max(0, Math.floor(seconds))} s` : duration(seconds);
}

// How long before the view a moment was, and the moment.
export function since(at) {
  return at ? `${span(asOf.at - at)} ${moment(at)}` : "";
}

export function gpuList(gpus) {
  return Object.entries(gpus || {}).map(([node, some]) => `${node}: ${some.join(",")}`).join("; ");
}

export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

// The GPUs of a job, each node with a link to its page; of many nodes the first.
export function places(gpus, most = Infinity) {
  const nodes = Object.entries(gpus || {});
  const named = nodes.slice(0, most).flatMap(([node, some], at) => [at ? "; " : "", nodeLink(node), `: ${some.join(",")}`]);
  return html("span", {}, named, nodes.length > most ? ` and ${nodes.length - most} nodes more` : null);
}

export function nodeLink(name) {
  return html("a", { href: `#/node/${encodeURIComponent(name)}` }, name);
}

export function jobLink(id, name) {
  return html("a", { href: `#/job/${id}` }, name || String(id));
}

// `isNamed`: its heading says the same already, and only those who cannot see it need the caption.
export function table(caption, heads, rows, isNamed = false) {
  const head = html("tr", {}, heads.map((text) => html("th", { scope: "col" }, text)));
  const body = rows.map((cells) =>
    html("tr", {}, cells.map((cell, at) => (at ? html("td", { "data-head": heads[at] }, cell)
      : html("th", { scope: "row" }, cell)))));
  // Wide tables scroll by themselves, by keyboard as well.
  const look = heads.length > 4 ? "wide" : "wide is-narrow";
  return html("div", { class: look, tabindex: "0", role: "region", "aria-label": caption },
    html("table", {}, html("caption", isNamed ? { class: "unseen" } : {}, caption), html("thead", {}, head), html("tbody", {}, body)));
}

// `isLine`: one behind the other, each with its title, in place of two columns.
export function facts(pairs, isLine = false) {
  const rows = pairs.map(([title, text]) => [html("dt", {}, title), html("dd", {}, text)]);
  return html("dl", { class: isLine && "line" }, isLine ? rows.map((row) => html("div", {}, row)) : rows);
}

// Whether the server did not answer at all: what was asked for is asked for again once it does.
export function isUnanswered(error) {
  return error instanceof TypeError;
}

export async function get(path) {
  const response = await fetch(path, { headers: { Accept: "application/json" } });
  if (!response.ok) throw new Error((await response.text()).trim() || response.statusText);
  return response.json();
}
