"use strict";
const FOLD = 200; // rows of a list that are shown at first
const FOLD_GUARDS = 20; // they are sorted by cost, and seldom all read
const report = unpack(JSON.parse(document.getElementById("data").textContent));

// The counterpart of `pack` in packing.py: tables by column become lists of objects again.
function unpack(value) {
  if (Array.isArray(value)) return value.map(unpack);
  if (value === null || typeof value !== "object") return value;
  const keys = Object.keys(value);
  if (keys.length === 1 && keys[0] === "columns" && typeof value.columns === "object") {
    const columns = Object.entries(value.columns).map(([key, column]) => [key, cells(column)]);
    return columns[0][1].map((_, row) => Object.fromEntries(columns.map(([key, column]) => [key, column[row]])));
  }
  return Object.fromEntries(keys.map((key) => [key, unpack(value[key])]));
}

function cells(column) {
  if (Array.isArray(column)) return column.map(unpack);
  if ("lengths" in column) {
    const items = unpack(column.items);
    let end = 0;
    return cells(column.lengths).map((length) => items.slice(end, end += length));
  }
  const values = column.values.map(unpack);
  return column.at.map((at) => values[at]);
}

// The counterpart of `visible` in wording.py.
function visible(text) {
  const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
  const spelt = (each) => `<U+${each.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}>`;
  return (text.length > 2000 ? text.slice(0, 2000) + " …" : text).replace(hidden, spelt);
}

function element(name, content = "", attributes = {}) {
  const made = document.createElement(name);
  made.append(...(Array.isArray(content) ? content : [content]));
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function cell(value) {
  if (value === null || value === undefined) return element("td", element("span", "–"));
  if (typeof value !== "number") return element("td", element("code", visible(value)));
  const shown = element("data", value.toLocaleString("en"), { value });
  return element("td", shown, { class: "n" });
}

// A table of rows, only the first of them until the others are asked for; `columns` are [heading, row => value].
function table(columns, rows, fold = FOLD) {
  const body = element("tbody");
  const add = (some) => {
    for (const row of some) {
      const filled = columns.map(([heading, value]) => [heading, cell(value(row))]);
      for (const [heading, made] of filled) made.dataset.label = heading;
      body.append(element("tr", filled.map(([, made]) => made)));
    }
  };
  add(rows.slice(0, fold));
  const head = columns.map(([heading, value]) =>
    element("th", heading, rows.length && typeof value(rows[0]) === "number" ? { class: "n" } : {}));
  const many = columns.length > 4 ? { class: "stack" } : {}; // one below the other where the window is narrow
  const result = element("div", element("table", [element("thead", element("tr", head)), body], many));
  if (rows.length > fold) {
    const total = element("data", rows.length.toLocaleString("en"), { value: rows.length });
    const button = element("button", ["Show all ", total, " rows"], { type: "button" });
    button.addEventListener("click", () => {
      add(rows.slice(fold));
      button.parentNode.remove();
    });
    result.append(element("p", button, { class: "more" }));
  }
  return result;
}

const kinds = (guard) => Object.entries(guard.kinds).map(([kind, n]) => `${kind} ×${n}`).join(", ");
const GUARDS = [
  ["object", (row) => row.object],
  ["kinds", kinds],
  ["count", (row) => row.count],
  ["words to compare", (row) => row.words],
  ["line", (row) => row.line],
];

function showVersion(details) {
  const target = details.querySelector("[data-version]");
  if (!target || target.childNodes.length) return;
  const [at, index] = target.dataset.version.split(" ").map(Number);
  const version = report.functions[at].versions[index];
  const part = (title, columns, rows) => rows.length && target.append(element("h3", title), table(columns, rows));
  part("Inputs", [["name", (row) => row.name], ["type", (row) => row.type], ["is", (row) => row.source]], version.inputs);
  part("Symbols", [["name", (row) => row.name], ["is", (row) => row.source],
    ["at least", (row) => row.minimum], ["at most", (row) => row.maximum]], version.symbols);
  part("Operators", [["name", (row) => row.name], ["operator", (row) => row.operator],
    ["file", (row) => row.filename && row.filename.split(/[\\/]/).pop()], ["line", (row) => row.line]], version.nodes);
  part("Guards", GUARDS, version.guards);
}

function showGuards() {
  const wanted = document.getElementById("filter").value.toLowerCase();
  const all = report.functions.flatMap((each) =>
    each.versions.flatMap((version) => version.guards.map((guard) => ({ ...guard, graph: version.graph }))));
  const found = all.filter((row) => `${row.object} ${kinds(row)} ${row.graph}`.toLowerCase().includes(wanted));
  found.sort((a, b) => b.words - a.words);
  const columns = [...GUARDS, ["graph", (row) => row.graph]];
  const shown = found.length ? table(columns, found, FOLD_GUARDS) : element("p", "No guard.", { class: "none" });
  document.getElementById("guard-table").replaceChildren(shown);
}

// Show what an address of the page names: whatever it lies in is unfolded.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let each = target; each; each = each.parentElement) {
    each.hidden = false;
    if (each.tagName === "DETAILS") each.open = true;
  }
  target.scrollIntoView({ block: target.tagName === "SECTION" ? "start" : "center" });
}

function go(to) {
  if (!to) return;
  if (location.hash === `#${to}`) reveal();
  else location.hash = to;
}

document.addEventListener("toggle", (event) => {
  if (event.target.classList.contains("version") && event.target.open) showVersion(event.target);
}, true);

document.addEventListener("click", (event) => {
  const bar = event.target.closest("rect[data-to]");
  if (bar) {
    event.preventDefault();
    bar.focus();
    go(bar.dataset.to);
  }
  const button = event.target.closest("button");
  if (!button) return;
  if ("more" in button.dataset) {
    for (const each of button.closest("section, details").querySelectorAll("[hidden]")) each.hidden = false;
    button.parentNode.remove();
  } else if ("copy" in button.dataset) {
    const hint = button.parentNode.querySelector(".hint");
    getSelection().selectAllChildren(hint);
    if (navigator.clipboard) {
      navigator.clipboard.writeText(hint.textContent).then(() => { button.textContent = "copied"; }, () => {});
    }
  } else if ("zoom" in button.dataset) {
    const svg = button.closest("figure").querySelector("svg");
    const zoom = Math.min(64, Math.max(1, Number(svg.dataset.zoom || 1) * Number(button.dataset.zoom)));
    svg.dataset.zoom = zoom;
    svg.style.width = `${zoom * 100}%`;
  }
});

for (const scroll of document.querySelectorAll(".scroll")) {
  const bars = [...scroll.querySelectorAll("rect")];
  for (const bar of bars) bar.tabIndex = -1;
  scroll.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const now = bars.indexOf(document.activeElement);
    if (step) {
      event.preventDefault();
      bars[Math.min(bars.length - 1, Math.max(0, now + step))].focus();
    } else if (event.key === "Enter" && now >= 0) {
      go(bars[now].dataset.to);
    }
  });
  const tell = (event) => {
    const title = event.target.querySelector("title");
    if (title) scroll.closest("figure").querySelector("output").textContent = title.textContent;
  };
  scroll.addEventListener("focusin", tell);
  scroll.addEventListener("mouseover", tell);
}

document.getElementById("json").addEventListener("click", () => {
  const address = URL.createObjectURL(new Blob([JSON.stringify(report, null, 1)], { type: "application/json" }));
  element("a", "", { href: address, download: "report.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
});
document.getElementById("print").addEventListener("click", () => print());
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
document.getElementById("filter").addEventListener("input", showGuards);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && event.target.tagName !== "INPUT") {
    event.preventDefault();
    document.getElementById("filter").focus();
  }
});
addEventListener("hashchange", reveal);
showGuards();
for (const each of document.querySelectorAll("details.version[open]")) showVersion(each);
reveal();
