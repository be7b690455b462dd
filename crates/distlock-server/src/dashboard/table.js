// The table of locks. Only the rows on the screen exist, so that thousands of locks are no more
// work than thirty.

import { age, heldFor, left, part, STATES } from "./board.js";
import { $, el, mark, write } from "./dom.js";
import { count, fence, span } from "./format.js";

/** Rows made beyond the edges of the screen. */
const SPARE = 6;

const text = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
const first = (lock) => lock.holders[0];
const COLUMNS = [
  { id: "key", label: "Key", by: (a, b) => text(a.key, b.key) },
  { id: "holder", label: "Holder",
    by: (a, b) => text(first(a)?.owner ?? "", first(b)?.owner ?? "") },
  { id: "held", label: "Held for", down: true,
    by: (a, b) => (first(a) ? heldFor(a, first(a)) : -1) - (first(b) ? heldFor(b, first(b)) : -1) },
  { id: "lease", label: "Lease", by: (a, b) => confirmed(a) - confirmed(b) },
  { id: "queue", label: "Queue", down: true, by: (a, b) => a.waitersTotal - b.waitersTotal },
  { id: "fence", label: "Fence", down: true,
    by: (a, b) => (first(a)?.fence ?? 0) - (first(b)?.fence ?? 0) },
];

/** The part of the lease that was left when it was seen: it does not run down between looks. */
function confirmed(lock) {
  const holder = first(lock);
  return holder?.ttlMs ? holder.remainingMs / holder.ttlMs : 2;
}

export class Table {
  sort = { id: "key", down: false };
  state = "all";
  filter = "";
  shown = [];
  rows = new Map();
  /** The key that the keyboard is at. */
  at = undefined;

  constructor(board, open, chosen) {
    this.board = board;
    this.open = open;
    this.chosen = chosen;
    this.head();
    this.segments();
    $("filter").addEventListener("input", () => {
      this.filter = $("filter").value.trim().toLowerCase();
      this.refresh();
    });
    addEventListener("scroll", () => this.draw(), { passive: true });
    addEventListener("resize", () => this.draw());
    $("filter").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && this.wanted) this.open(this.wanted);
    });
    $("rows").addEventListener("keydown", (event) => this.key(event));
  }

  /** The key that was typed, if none that is shown is like it. */
  get wanted() {
    return this.shown.length === 0 ? $("filter").value.trim() : "";
  }

  head() {
    for (const column of COLUMNS) {
      const sort = () => this.by(column.id);
      const button = el("button", { type: "button", onclick: sort }, column.label);
      const cell = el("th", { scope: "col", "data-column": column.id, role: "columnheader" },
        button);
      $("head").append(cell);
      $("sort").append(el("option", { value: column.id }, `Sort: ${column.label.toLowerCase()}`));
    }
    $("sort").addEventListener("change", () => this.by($("sort").value));
    this.heads();
  }

  by(id) {
    const column = COLUMNS.find((each) => each.id === id);
    const down = this.sort.id === id ? !this.sort.down : Boolean(column.down);
    this.sort = { id, down };
    this.heads();
    this.refresh();
  }

  heads() {
    for (const cell of $("head").children) {
      const here = cell.dataset.column === this.sort.id;
      mark(cell, "aria-sort", here ? (this.sort.down ? "descending" : "ascending") : null);
    }
    $("sort").value = this.sort.id;
  }

  segments() {
    for (const [id, { label }] of Object.entries(STATES)) {
      const pick = () => {
        this.state = id;
        this.refresh();
      };
      const badge = el("span.number", {});
      $("states").append(
        el("button", { type: "button", "data-state": id, onclick: pick }, label, badge));
    }
  }

  /** Chooses and orders what is shown. */
  refresh() {
    const found = [];
    const counts = { all: 0, held: 0, contended: 0, risk: 0 };
    for (const lock of this.board.locks.values()) {
      if (this.filter && !lock.text.includes(this.filter)) continue;
      for (const id in STATES) if (STATES[id].has(lock)) counts[id] += 1;
      if (STATES[this.state].has(lock)) found.push(lock);
    }
    const { by } = COLUMNS.find((column) => column.id === this.sort.id);
    const sign = this.sort.down ? -1 : 1;
    found.sort((a, b) => sign * by(a, b) || text(a.key, b.key));
    this.shown = found;
    for (const button of $("states").children) {
      const { state } = button.dataset;
      mark(button, "aria-pressed", String(state === this.state));
      write(button.querySelector(".number"), count(counts[state]));
    }
    mark($("table"), "aria-rowcount", found.length + 1);
    const whole = this.board.locks.size;
    const more = this.board.truncated ? "+" : "";
    const locks = whole === 1 ? "lock" : "locks";
    write($("count"), found.length === whole ? `${count(whole)}${more} ${locks}`
      : `${count(found.length)} of ${count(whole)}${more}`);
    this.draw();
    this.chosen();
  }

  /** Makes the rows that are on the screen, and drops the others. */
  draw() {
    const body = $("rows");
    const height = parseFloat(getComputedStyle($("table")).getPropertyValue("--row")) || 56;
    const top = $("above").getBoundingClientRect().top;
    const from = Math.max(0, Math.floor(-top / height) - SPARE);
    const to = Math.min(this.shown.length, Math.ceil((innerHeight - top) / height) + SPARE);
    const begin = Math.min(from, Math.max(0, to - 1));
    this.gap("above", begin * height);
    this.gap("below", (this.shown.length - Math.max(begin, to)) * height);
    const kept = new Map();
    let before = null;
    for (let index = begin; index < to; index += 1) {
      const lock = this.shown[index];
      const row = this.rows.get(lock.key) ?? make(lock.key, () => this.open(lock.key));
      kept.set(lock.key, row);
      const place = before ? before.nextSibling : body.firstChild;
      if (place !== row.node) body.insertBefore(row.node, place);
      mark(row.node, "aria-rowindex", index + 2);
      fill(row, lock);
      before = row.node;
    }
    for (const [key, row] of this.rows) if (!kept.has(key)) row.node.remove();
    this.rows = kept;
    $("table").hidden = this.shown.length === 0;
  }

  gap(id, height) {
    $(id).firstElementChild.firstElementChild.style.height = `${height}px`;
    $(id).hidden = height === 0 && id === "below";
  }

  /** Moves the clocks and bars on. */
  tick() {
    for (const [key, row] of this.rows) {
      const lock = this.board.locks.get(key);
      if (lock) move(row, lock);
    }
  }

  /** Arrows, Home and End go from row to row, also to rows that are not made yet. */
  key(event) {
    const row = event.target.closest("tr");
    const here = this.shown.findIndex((lock) => lock.key === row?.dataset.key);
    const last = this.shown.length - 1;
    const to = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: last }[event.key];
    if (to === undefined || here < 0) return;
    event.preventDefault();
    this.focus(Math.max(0, Math.min(last, to)));
  }

  focus(index) {
    const lock = this.shown[index];
    if (!lock) return;
    if (!this.rows.has(lock.key)) {
      const height = parseFloat(getComputedStyle($("table")).getPropertyValue("--row")) || 56;
      scrollTo(0, scrollY + $("above").getBoundingClientRect().top + index * height - 200);
      this.draw();
    }
    this.rows.get(lock.key)?.button.focus();
  }
}

function make(key, open) {
  const cell = (column, ...children) =>
    el("td", { "data-column": column, role: "cell" }, ...children);
  const parts = {
    button: el("button.key", { type: "button", title: key }, key),
    owner: el("span.owner", {}), reason: el("span.reason", {}), held: el("span", {}),
    fill: el("span.fill", {}), left: el("span.left", {}), mark: el("span.late", {}),
    queue: el("span.queue", {}), dim: el("span.dim", {}), fence: el("span", {}),
  };
  const lease = el("span.lease", { "aria-hidden": "true" }, parts.fill);
  const node = el("tr", { "data-key": key, role: "row", onclick: open },
    cell("key", parts.button),
    cell("holder", parts.owner, parts.reason),
    cell("held", parts.held),
    cell("lease", lease, el("span.under", {}, parts.left, parts.mark)),
    cell("queue", parts.queue),
    cell("fence", parts.dim, parts.fence));
  return { node, ...parts };
}

function fill(row, lock) {
  const holder = first(lock);
  const others = lock.holdersTotal - 1;
  const owner = holder ? holder.owner + (others > 0 ? ` and ${count(others)} more` : "") : "none";
  write(row.owner, owner);
  mark(row.owner, "title", holder?.owner);
  const reason = holder?.reason ?? (holder?.mode === "shared" ? "shared" : "");
  write(row.reason, reason);
  mark(row.reason, "title", reason || null);
  write(row.queue, lock.waitersTotal ? count(lock.waitersTotal) : "–");
  mark(row.queue, "data-waiting", lock.waitersTotal ? "" : null);
  mark(row.queue, "title", lock.waitersTotal ? `next: ${lock.waiters[0]?.owner}` : null);
  const [dim, end] = holder ? fence(holder.fence) : ["", "–"];
  write(row.dim, dim);
  write(row.fence, end);
  move(row, lock);
}

const HEALTH = { ok: "", late: "renewal late", risk: "about to end", over: "not renewed" };

function move(row, lock) {
  const holder = first(lock);
  write(row.held, holder ? span(heldFor(lock, holder)) : "–");
  const remaining = holder && left(lock, holder);
  const end = remaining === undefined ? "no end" : remaining ? `${span(remaining)} left` : "over";
  write(row.left, holder ? end : "free");
  const health = remaining === 0 ? "over" : lock.health;
  mark(row.node, "data-health", health);
  write(row.mark, HEALTH[health]);
  const scale = holder ? part(lock, holder) : 0;
  row.fill.style.transform = `scaleX(${scale.toFixed(4)})`;
  mark(row.node, "data-age", age(lock) > 15_000 ? "old" : null);
}
