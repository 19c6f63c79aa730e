// One box that finds jobs, arrays, users and nodes, of those that the viewer may see, and offers them while one types.

import { html, plural } from "./dom.js";
import { isOperator, view } from "./store.js";

const MAX_OFFERED = 10;
// How well something fits: as it is, as an array's number, by its beginning, by a part.
const EXACT = 0;
const ARRAY = 1;
const BEGINS = 2;
const HAS = 3;

export function search(form) {
  const input = form.elements.text;
  const box = form.querySelector("[role=listbox]");
  const said = form.querySelector("[role=status]");
  let offered = [];
  let active = -1;

  function offer() {
    const text = input.value.trim();
    offered = text ? found(text) : [];
    active = -1;
    box.replaceChildren(...offered.map((one, at) => html("li", {
      role: "option", id: `found-${at}`, "aria-selected": "false", onpointerdown: (event) => { event.preventDefault(); go(one); },
    }, html("span", { class: "kind" }, one.kind), html("b", {}, one.title), html("span", { class: "about" }, html("bdi", {}, one.about)))));
    open(offered.length > 0);
    const none = text && !offered.length ? "Nothing that you may see is called that." : "";
    said.textContent = offered.length ? plural(offered.length, "suggestion") : none;
    said.classList.toggle("unseen", !none);
  }

  function open(isOpen) {
    box.hidden = !isOpen;
    input.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) mark(-1);
  }

  function close() {
    open(false);
    said.textContent = "";
    said.classList.add("unseen");
  }

  function mark(at) {
    active = at;
    [...box.children].forEach((one, place) => one.setAttribute("aria-selected", String(place === at)));
    if (at < 0) input.removeAttribute("aria-activedescendant");
    else input.setAttribute("aria-activedescendant", `found-${at}`);
    box.children[at]?.scrollIntoView({ block: "nearest" });
  }

  function go(one) {
    input.value = "";
    close();
    location.hash = one.hash;
  }

  input.addEventListener("input", offer);
  input.addEventListener("focus", offer);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      if (box.hidden) offer();
      // Beyond either end lies the box itself.
      const places = offered.length + 1;
      if (offered.length) mark(((active + 1 + step + places) % places) - 1);
    } else if (event.key === "Escape") {
      event.preventDefault();
      if (box.hidden) input.value = "";
      close();
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input.value.trim();
    const chosen = offered[active];
    // What is on the page may have changed since it was offered.
    if (!chosen) offer();
    const one = chosen || offered[0];
    if (text && one) go(one);
  });
}

// What fits a text, best first: each with `kind`, `title`, `about`, and the `hash` it leads to.
export function found(text) {
  const sought = text.toLowerCase().replace(/^#/, "");
  const all = [...jobs(sought), ...arrays(sought), ...past(sought), ...(isOperator ? users(sought) : []), ...nodes(sought)];
  return all.filter((one) => one.fit !== undefined).sort((a, b) => a.fit - b.fit).slice(0, MAX_OFFERED);
}

function fit(name, sought) {
  const text = name.toLowerCase();
  if (text === sought) return EXACT;
  if (text.startsWith(sought)) return BEGINS;
  return text.includes(sought) ? HAS : undefined;
}

function jobs(sought) {
  return Object.entries(view.jobs).map(([id, job]) => ({
    fit: jobFit(id, job, sought), kind: "job", title: job.name, hash: `#/job/${id}`,
    about: [job.job_name, isOperator && job.user, job.state.toLowerCase()].filter(Boolean).join(", "),
  }));
}

function jobFit(id, job, sought) {
  if (id === sought || holds(job.name, sought)) return EXACT;
  const fits = [fit(job.name, sought), fit(job.job_name, sought)].filter((one) => one !== undefined);
  return fits.length ? Math.min(...fits) : undefined;
}

// Is a task, `12_3`, one of those that wait together, `12_[1-9:2,20%4]`?
export function holds(name, sought) {
  const tasks = /^(\d+)_\[([^\]%]*)/.exec(name);
  const one = /^(\d+)_(\d+)$/.exec(sought);
  if (!tasks || !one || tasks[1] !== one[1]) return false;
  return tasks[2].split(",").some((part) => {
    const range = /^(\d+)(?:-(\d+)(?::(\d+))?)?$/.exec(part);
    // Slurm ends a long list with dots: any task may be among those.
    if (!range) return part.includes("...");
    const [first, last, step] = [Number(range[1]), Number(range[2] ?? range[1]), Number(range[3] ?? 1)];
    return one[2] >= first && one[2] <= last && (one[2] - first) % step === 0;
  });
}

function arrays(sought) {
  if (!/^\d+_?$/.test(sought)) return [];
  const begins = `${sought.replace("_", "")}_`;
  const rows = Object.values(view.jobs).filter((job) => job.name.startsWith(begins)).length;
  if (!rows) return [];
  return [{ fit: ARRAY, kind: "array", title: begins.slice(0, -1), about: `${plural(rows, "row")} of the list`, hash: `#/jobs?text=${begins}` }];
}

// Jobs of the decision log that are over; the server knows of more than the last ones, and tells whoever may see them.
function past(sought) {
  if (!/^[1-9]\d{0,9}$/.test(sought)) return [];
  const numbers = new Set(Object.values(view.decisions).map((one) => String(one.job)));
  numbers.add(sought);
  return [...numbers].filter((number) => !view.jobs[number]).map((number) => ({
    fit: fit(number, sought), kind: "job", title: number, about: "not in the queue", hash: `#/job/${number}`,
  }));
}

function users(sought) {
  const counts = new Map();
  for (const job of Object.values(view.jobs)) counts.set(job.user, (counts.get(job.user) || 0) + 1);
  return [...counts].map(([user, count]) => ({
    fit: fit(user, sought), kind: "user", title: user, about: plural(count, "job"), hash: `#/jobs?${new URLSearchParams({ user })}`,
  }));
}

function nodes(sought) {
  return Object.entries(view.nodes).map(([name, node]) => ({
    fit: fit(name, sought), kind: "node", title: name, about: node.model, hash: `#/node/${encodeURIComponent(name)}`,
  }));
}
