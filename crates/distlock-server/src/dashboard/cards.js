// The cards: all locks at a glance, and how it was lately.

import { $, el, mark, svg, write } from "./dom.js";
import { count, span } from "./format.js";

const CARDS = [
  { id: "held", label: "Held" },
  { id: "waiting", label: "Waiting" },
  { id: "oldest", label: "Oldest wait" },
  { id: "lost", label: "Lost in 24 h" },
  { id: "p95", label: "p95 wait, 1 h" },
  { id: "nodes", label: "Nodes up" },
];
const LINES = [
  { id: "rate", label: "Acquires per second", of: (point) => point.acquiresPerSecond },
  { id: "waiters", label: "Waiters", of: (point) => point.waiting },
];

const cards = {};
const dots = el("div.dots", { "aria-hidden": "true" });

/** Puts the cards up, empty. */
export function setUp() {
  for (const { id, label } of CARDS) {
    const value = el("p.value", {}, "–");
    const note = el("p.note", {});
    const card = el("div.card", { "data-card": id }, el("h2", {}, label), value, note);
    cards[id] = { card, value, note };
  }
  cards.nodes.card.hidden = true;
  cards.nodes.card.append(dots);
  for (const { id, label } of LINES) {
    const value = el("p.value", {}, "–");
    const base = svg("path", { class: "base", d: "M0 39.5H150",
      "vector-effect": "non-scaling-stroke" });
    const line = svg("path", { class: "line", "vector-effect": "non-scaling-stroke" });
    const area = svg("path", { class: "area" });
    const chart = svg("svg", { viewBox: "0 0 150 40", preserveAspectRatio: "none", class: "spark",
      role: "img", "aria-label": label }, base, area, line);
    const title = el("h2", {}, label, el("small", {}, "5 min"));
    const card = el("div.card.wide", { "data-card": id }, title, value, chart);
    cards[id] = { card, value, line, area, chart };
  }
  $("cards").append(...Object.values(cards).map(({ card }) => card));
}

/** Shows a summary. */
export function show(summary) {
  const plus = summary.truncated ? "+" : "";
  if (summary.listing === false) {
    // What cannot be listed cannot be counted.
    set("held", "–", "not listed");
    set("waiting", "–", "not listed");
    set("oldest", "–", "not listed");
  } else {
    counted(summary, plus);
  }
  past(summary);
  nodes(summary.backend, summary.redlock);
  LINES.forEach((line) => draw(line, summary.points));
  document.title = summary.listing === false ? "distlock"
    : `${count(summary.held)} held · ${count(summary.waiting)} waiting · distlock`;
}

function counted(summary, plus) {
  set("held", count(summary.held) + plus, summary.held === 1 ? "key" : "keys");
  set("waiting", count(summary.waiting) + plus, summary.contended
    ? `for ${count(summary.contended)} ${summary.contended === 1 ? "key" : "keys"}` : "none",
  summary.waiting > 0 ? "busy" : "");
  set("oldest", span(summary.oldestWaitMs),
    summary.oldestWaitMs === undefined ? "no client waits" : "and waiting");
}

function past(summary) {
  const { lost24h } = summary;
  set("lost", lost24h === undefined ? "–" : count(lost24h),
    lost24h === undefined ? "no journal here" : lost24h ? "holds" : "none",
    lost24h ? "bad" : "");
  set("p95", span(summary.waitP95Ms),
    summary.waitP95Ms === undefined ? "no grants seen" : "of all grants");
}

/**
 * The nodes of a quorum, which is the store of the locks or that of the pattern redlock: a dot
 * each. By name those that do not vote, and what else to fix in either store.
 */
function nodes(backend, redlock) {
  const { nodes: all = [], nodesUp: up = 0 } = redlock ?? backend;
  const warnings = [...backend.warnings ?? [], ...(redlock?.warnings ?? [])];
  if (redlock && !redlock.ok) warnings.push("redlock has no majority of its nodes");
  write(cards.nodes.card.querySelector("h2"), redlock ? "Redlock nodes up" : "Nodes up");
  cards.nodes.card.hidden = all.length === 0;
  const majority = Math.floor(all.length / 2) + 1;
  const idle = all.filter((node) => node.state !== "up");
  if (all.length) {
    const voting = all.length - idle.length;
    set("nodes", `${up} of ${all.length}`, `${majority} are enough`,
      voting < majority ? "bad" : idle.length ? "busy" : "");
    dots.replaceChildren(...all.map((node) =>
      el("i", { "data-state": node.state, title: `${node.name}: ${node.state}` })));
  }
  const silent = idle.map((node) => ({ state: node.state, text: node.state === "quarantined"
    ? `${node.name} lost its memory and abstains for ${span(node.quarantinedMs)}`
    : `${node.name} is down` }));
  const others = warnings.filter((text) => !all.some((node) => text.startsWith(node.name)));
  const told = [...silent, ...others.map((text) => ({ state: "warning", text }))];
  $("nodes").hidden = told.length === 0;
  const before = [...$("nodes").children].map((item) => item.textContent);
  if (told.map(({ text }) => text).join() === before.join()) return;
  $("nodes").replaceChildren(...told.map(({ state, text }) =>
    el("li", { "data-state": state }, text)));
}

function set(id, value, note, tone = "") {
  write(cards[id].value, value);
  write(cards[id].note, note);
  mark(cards[id].card, "data-tone", tone || null);
}

/** Draws the last five minutes; a line that has just begun grows in from the right. */
function draw({ id, label, of }, points) {
  const { value, line, area, chart } = cards[id];
  const values = points.map(of);
  const last = values.at(-1) ?? 0;
  write(value, id === "rate" ? last.toFixed(last < 10 ? 1 : 0) : count(last));
  const most = Math.max(...values, id === "rate" ? 0.5 : 1);
  mark(chart, "aria-label", `${label}: now ${value.textContent}, at most ${most.toFixed(1)}`);
  if (values.length < 2) return;
  const x = (at) => 150 - (values.length - 1 - at) * (150 / 149);
  const y = (v) => 37 - (v / most) * 33;
  const path = values.map((v, at) => `${at ? "L" : "M"}${x(at).toFixed(1)} ${y(v).toFixed(1)}`);
  line.setAttribute("d", path.join(""));
  area.setAttribute("d", `${path.join("")}L150 40L${x(0).toFixed(1)} 40Z`);
}
