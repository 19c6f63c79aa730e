// A list of rows with a filter and a sort, both of which stand in the address, so that a link can be passed on.

import { html } from "./dom.js";

// How many rows are drawn at a time.
const PAGE = 25;
// A link may ask for so many rows at most: thousands take a browser seconds.
const MOST = 1000;
const MAX_TEXT = 80;
const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

// What is asked for behind the ? of the address.
function asked() {
  return new URLSearchParams(location.hash.split("?")[1] || "");
}

// `columns`: each has `name` (in the address), `head`, and `text(row)`, by which rows are filtered. It may have `by(row)`, by
// which they are sorted in place of the text (undefined: last), `cell(row)`, elements in place of the text, which are made anew
// where the text changed, `isChoice`, one of few words to filter by, `isNumber`, and `isLong`, on a narrow window a line of its own.
// `sort`: the name of a column, with a minus the other way round. `noun`: one row. draw(rows) takes pairs of a key and a row.
export function list(path, { caption, noun, columns, sort, empty }) {
  const byName = new Map(columns.map((column) => [column.name, column]));
  const choices = new Map(columns.filter((column) => column.isChoice).map((column) => [column.name, choice(column)]));
  const state = { text: "", sort, shown: PAGE };
  const lines = new Map();
  let rows = [];
  read();

  const input = html("input", { id: "filter-text", type: "search", autocomplete: "off", maxlength: MAX_TEXT, oninput: filter });
  input.value = state.text;
  const order = html("select", { id: "filter-sort", onchange: () => sortBy(order.value) },
    columns.flatMap((column) => [[column.name, "\u2191"], [`-${column.name}`, "\u2193"]].map(([value, way]) => html("option", { value }, `${column.head} ${way}`))));
  const clear = html("a", { class: "clear", href: `#/${path}` }, "Clear");
  const count = html("p", { class: "count", role: "status" });
  const heads = columns.map((column) => html("th", { scope: "col", class: column.isNumber && "number" },
    html("button", { type: "button", onclick: () => sortBy(state.sort === column.name ? `-${column.name}` : column.name) }, column.head)));
  const body = html("tbody", {});
  const frame = html("div", { class: "wide list", tabindex: "0", role: "region", "aria-label": caption },
    html("table", {}, html("caption", { class: "unseen" }, caption), html("thead", {}, html("tr", {}, heads)), body));
  const more = html("button", { type: "button", class: "more", onclick: showMore });
  const element = html("div", {},
    html("div", { class: "filters", role: "group", "aria-label": `Filter: ${caption}` },
      field("Filter", input), [...choices.values()].map((one) => one.field), html("span", { class: "sort" }, field("Sort by", order)), clear, count),
    frame, more);

  function choice(column) {
    const select = html("select", { id: `filter-${column.name}`, onchange: filter });
    return { column, select, value: "", was: "", field: field(column.head, select) };
  }

  function read() {
    const found = asked();
    state.text = (found.get("text") || "").slice(0, MAX_TEXT);
    if (byName.has((found.get("sort") || "").replace(/^-/, ""))) state.sort = found.get("sort");
    state.shown = Math.min(MOST, Math.max(PAGE, Number.parseInt(found.get("shown"), 10) || 0));
    for (const [name, one] of choices) one.value = (found.get(name) || "").slice(0, MAX_TEXT);
  }

  function write() {
    const said = new URLSearchParams();
    if (state.text) said.set("text", state.text);
    for (const [name, one] of choices) if (one.value) said.set(name, one.value);
    clear.hidden = !isFiltered();
    if (state.sort !== sort) said.set("sort", state.sort);
    if (state.shown > PAGE) said.set("shown", state.shown);
    // In place of the entry there is: one step back leads to the view before.
    history.replaceState(null, "", `#/${path}${String(said) && `?${said}`}`);
  }

  function isFiltered() {
    return Boolean(state.text || [...choices.values()].some((one) => one.value));
  }

  function filter() {
    state.text = input.value;
    for (const one of choices.values()) one.value = one.select.value;
    state.shown = PAGE;
    write();
    redraw();
  }

  function sortBy(name) {
    state.sort = name;
    write();
    redraw();
  }

  function showMore() {
    const next = state.shown;
    state.shown += PAGE;
    write();
    redraw();
    // Who came here by keyboard goes on where the new rows begin.
    body.rows[next]?.querySelector("a")?.focus();
  }

  function redraw() {
    for (const one of choices.values()) offer(one, rows);
    const found = sorted(matching());
    const shown = found.slice(0, state.shown);
    place(shown);
    heads.forEach((head, at) => {
      const way = { [columns[at].name]: "ascending", [`-${columns[at].name}`]: "descending" }[state.sort];
      if (way) head.setAttribute("aria-sort", way);
      else head.removeAttribute("aria-sort");
    });
    order.value = state.sort;
    const all = `${rows.length} ${noun}${rows.length === 1 ? "" : "s"}`;
    const said = found.length ? (found.length < rows.length ? `${found.length} of ${all}` : all) : (rows.length ? `None of ${all}` : empty);
    if (count.textContent !== said) count.textContent = said;
    frame.hidden = !found.length;
    more.hidden = found.length <= shown.length;
    more.textContent = `Show ${Math.min(PAGE, found.length - shown.length)} of ${found.length - shown.length} more`;
  }

  function matching() {
    const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = [...choices.values()].filter((one) => one.value);
    if (!words.length && !chosen.length) return rows;
    return rows.filter(([, row]) => {
      if (!chosen.every((one) => one.column.text(row) === one.value)) return false;
      const text = words.length ? columns.map((column) => column.text(row)).join(" ").toLowerCase() : "";
      return words.every((word) => text.includes(word));
    });
  }

  function sorted(some) {
    const way = state.sort.startsWith("-") ? -1 : 1;
    const column = byName.get(state.sort.replace(/^-/, ""));
    const by = column.by || column.text;
    const keyed = some.map((one) => [by(one[1]), one]);
    keyed.sort(([a], [b]) => {
      // What is not known is last either way.
      if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
      return way * (typeof a === "number" ? a - b : collator.compare(a, b));
    });
    return keyed.map(([, one]) => one);
  }

  // Rows stay where they are as long as they are shown, so that an update takes the focus from no link.
  function place(shown) {
    const kept = new Map(shown.map(([key, row]) => [key, painted(lines.get(key) || made(), row)]));
    for (const [key, line] of lines) if (kept.get(key) !== line) line.tr.remove();
    lines.clear();
    let next = body.firstElementChild;
    for (const [key, line] of kept) {
      lines.set(key, line);
      if (line.tr === next) next = next.nextElementSibling;
      else body.insertBefore(line.tr, next);
    }
  }

  function made() {
    const cells = columns.map((column, at) => html(at ? "td" : "th", {
      scope: at ? null : "row", "data-head": column.head, class: [column.isNumber && "number", column.isLong && "long"].filter(Boolean).join(" ") || null,
    }));
    return { tr: html("tr", {}, cells), cells, texts: [] };
  }

  function painted(line, row) {
    columns.forEach((column, at) => {
      const text = column.text(row);
      if (line.texts[at] === text) return;
      line.texts[at] = text;
      const cell = line.cells[at];
      cell.replaceChildren(column.cell ? column.cell(row) : text || "-");
      cell.classList.toggle("is-empty", !text);
    });
    return line;
  }

  return {
    element,
    draw(some) {
      rows = some;
      clear.hidden = !isFiltered();
      redraw();
    },
  };
}

function field(title, control) {
  return html("span", { class: "field" }, html("label", { for: control.id }, title), control);
}

// The words there are, and the chosen one even where none has it any more. A list that may be open stays as it is.
function offer(one, rows) {
  if (one.was && document.activeElement === one.select) return;
  const found = new Set(rows.map(([, row]) => one.column.text(row)).concat(one.value));
  found.delete("");
  const words = [...found].sort(collator.compare);
  const now = JSON.stringify([one.value, words]);
  if (now === one.was) return;
  one.was = now;
  one.select.replaceChildren(html("option", { value: "" }, "any"), ...words.map((text) => html("option", { value: text }, text)));
  one.select.value = one.value;
}
