// Chooses the view by what stands behind # in the address, and says what is wrong.

import { cluster } from "./cluster.js";
import { decisions } from "./decisions.js";
import { asOf, html, moment, span } from "./dom.js";
import { gain } from "./gain.js";
import { job } from "./job.js";
import { jobs } from "./jobs.js";
import { node } from "./node.js";
import { queue } from "./queue.js";
import { search } from "./search.js";
import { connect, link, onChange, view } from "./store.js";

const VIEWS = new Map(Object.entries({ cluster, jobs, queue, job, node, decisions, gain }));
// Older than this (seconds) nobody should take the view for the present.
const OLD_S = 20;
const main = document.getElementById("view");
const problems = document.getElementById("problems");
// Each has `name`, `title`, and update(changed), which is called with the keys that changed.
let shown = null;
let hasData = false;
const ofWhen = html("p", { class: "as-of" });

// The view's name and what it is about; behind the ? stands what a list is filtered by.
function route() {
  const [, name, ...rest] = location.hash.split("?")[0].split("/");
  return [VIEWS.has(name) ? name : "cluster", decoded(rest.join("/"))];
}

// A link may have been cut short.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function show() {
  // Nothing but the link to the content changes there.
  if (location.hash === "#view") return main.focus();
  const [name, what] = route();
  main.replaceChildren();
  shown = VIEWS.get(name)(main, what);
  main.prepend(html("div", { class: "title" }, main.querySelector("h1"), shown.ofWhen || ofWhen));
  document.title = `${shown.title} - GPUs of this site`;
  for (const anchor of document.querySelectorAll("nav a")) {
    if (anchor.getAttribute("href") === `#/${name}`) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
}

function sayOfWhen() {
  const ago_s = Math.max(0, (Date.now() - asOf.here) / 1000);
  ofWhen.textContent = `as of ${moment(asOf.at)}, ${span(ago_s)} ago`;
  ofWhen.classList.toggle("is-old", ago_s > OLD_S);
}

function say() {
  const said = [];
  if (!link.isUp && hasData) said.push("No connection to the page's server; it is tried again.");
  if (link.problem) said.push(`${link.problem}.`);
  if (view.slurm?.problem) said.push(view.slurm.problem);
  if (view.engine.is_up === false && view.engine.problem) {
    said.push(`The engine does not answer, Slurm goes on by itself: ${view.engine.problem}`);
  }
  if (view.log_problem) said.push(`The decision log: ${view.log_problem}`);
  const texts = [...problems.children].map((one) => one.textContent);
  if (texts.join("\n") !== said.join("\n")) {
    problems.replaceChildren(...said.map((text) => html("p", { class: "problem" }, text)));
  }
}

onChange((changed) => {
  say();
  sayOfWhen();
  if (changed.has("link")) return;
  if (!hasData) {
    hasData = true;
    show();
  }
  const began = performance.now();
  shown.update(changed);
  // What a test measures: how long the last update took, in milliseconds.
  document.body.dataset.updateMs = (performance.now() - began).toFixed(1);
});
window.addEventListener("hashchange", () => {
  if (!hasData) return;
  show();
  shown.update(new Set(Object.keys(view)));
  if (location.hash !== "#view") main.focus({ preventScroll: true });
});
search(document.getElementById("find"));
setInterval(sayOfWhen, 1000);
connect();
