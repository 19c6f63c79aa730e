// Chooses the view by what stands behind # in the address, and says what is wrong.

import { cluster } from "./cluster.js";
import { decisions } from "./decisions.js";
import { html } from "./dom.js";
import { gain } from "./gain.js";
import { job } from "./job.js";
import { node } from "./node.js";
import { queue } from "./queue.js";
import { connect, link, onChange, view } from "./store.js";

const VIEWS = { cluster, queue, job, node, decisions, gain };
const main = document.getElementById("view");
const problems = document.getElementById("problems");
// Each has `name`, `title`, and update(changed), which is called with the keys that changed.
let shown = null;
let hasData = false;

function route() {
  const [, name, ...rest] = location.hash.split("/");
  return [VIEWS[name] ? name : "cluster", decodeURIComponent(rest.join("/"))];
}

function show() {
  // Nothing but the link to the content changes there.
  if (location.hash === "#view") return main.focus();
  const [name, what] = route();
  main.replaceChildren();
  shown = VIEWS[name](main, what);
  document.title = `${shown.title} - GPUs of this site`;
  for (const anchor of document.querySelectorAll("nav a")) {
    if (anchor.getAttribute("href") === `#/${name}`) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
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
document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = event.target.elements.text.value.trim();
  const named = Object.entries(view.jobs).find(([, one]) => one.name === text);
  if (named) location.hash = `#/job/${named[0]}`;
  else if (/^[1-9]\d*$/.test(text)) location.hash = `#/job/${text}`;
  else if (text) location.hash = `#/node/${encodeURIComponent(text)}`;
});
connect();
