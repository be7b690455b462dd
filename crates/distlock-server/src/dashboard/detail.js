// One lock in full: its holders, its queue, its past, and what to type in a shell.

import * as api from "./api.js";
import { age, left } from "./board.js";
import * as breaking from "./breaking.js";
import { $, command, el, mark } from "./dom.js";
import { clock, count, median, shell, span } from "./format.js";
import { ending, isOver, timeline, visitsOf } from "./timeline.js";

const VISITS = 50;
const QUEUE_MAX = 30;

export class Detail {
  key = undefined;

  constructor(board, clockOffset, changed) {
    this.board = board;
    this.clockOffset = clockOffset;
    this.changed = changed;
    this.mayBreak = false;
  }

  /** Shows a key, and goes on showing it. */
  async open(key) {
    if (this.key !== key) {
      this.came ??= document.activeElement;
      this.key = key;
      this.past = undefined;
      this.lock = this.board.locks.get(key);
      this.frame();
    }
    await this.refresh();
  }

  close() {
    if (!this.key) return;
    this.key = undefined;
    $("detail").hidden = true;
    document.body.classList.remove("with-detail");
    this.came?.focus?.({ preventScroll: true });
    this.came = undefined;
  }

  /** Reads the key again. What cannot be had stays as it was. */
  async refresh() {
    const { key } = this;
    if (!key) return;
    const [lock, past] = await Promise.allSettled([api.one(key), api.history(key, VISITS)]);
    if (this.key !== key) return;
    if (lock.status === "fulfilled") {
      this.lock = { ...lock.value, seenAt: performance.now() };
      this.board.put(lock.value);
      breaking.seen(lock.value);
      this.changed();
    }
    if (past.status === "fulfilled") this.past = past.value.visits;
    else if (past.reason.status === 501) this.past = null;
    this.draw();
  }

  /** What stays while the key does, so that the focus is not lost. */
  frame() {
    const { key } = this;
    const close = el("button.quiet.close", { type: "button", "aria-label": "Close",
      onclick: () => this.leave() }, "✕");
    this.state = el("p.standing", { role: "status" });
    this.body = el("div.body", {});
    $("detail").replaceChildren(
      el("header", {}, el("div", {}, el("h2", { id: "detail-key" }, key), this.state), close),
      this.body);
    $("detail").hidden = false;
    document.body.classList.add("with-detail");
    $("detail").focus({ preventScroll: true });
    this.draw();
  }

  leave() {
    location.hash = "";
  }

  draw() {
    const { lock } = this;
    if (!lock) return;
    // A selection would be lost: what is new can wait for the next look.
    const selection = getSelection();
    if (!selection.isCollapsed && this.body.contains(selection.anchorNode)) return;
    const focused = [...this.body.querySelectorAll("button")].indexOf(document.activeElement);
    const now = Date.now() + this.clockOffset();
    const words = { free: "free", held: "held", contended: "held, and waited for" };
    const state = lock.holdersTotal || lock.state === "free" ? words[lock.state] : "waited for";
    this.state.textContent = state;
    mark(this.state, "data-state", lock.state);
    const past = this.past ?? [];
    const visits = visitsOf(lock, past, now - age(lock));
    this.body.replaceChildren(...[
      this.holders(lock),
      section("Timeline", timeline(visits, now), legend()),
      queue(lock, past),
      history(this.past),
      commands(lock),
    ].filter(Boolean));
    this.body.querySelectorAll("button")[focused]?.focus({ preventScroll: true });
  }

  holders(lock) {
    if (!lock.holders.length) return null;
    const items = lock.holders.map((holder) => {
      const broke = () => this.refresh();
      const hit = this.mayBreak ? el("button.danger.small", { type: "button",
        onclick: () => breaking.ask(lock, holder, broke) }, "Break…") : null;
      const remaining = left(lock, holder);
      return el("li.holder", {},
        el("div", {}, el("strong", {}, holder.owner),
          holder.reason ? el("span.reason", {}, holder.reason) : null,
          el("span.soft", {}, [
            `${holder.mode}${holder.weight > 1 ? ` × ${holder.weight}` : ""}`,
            `held ${span(holder.heldMs)}`,
            remaining === undefined ? "no end" : `${span(remaining)} left`,
          ].join(" · ")),
          el("span.soft", {}, "fence ", el("code", {}, String(holder.fence)))), hit);
    });
    const more = lock.holdersTotal - items.length;
    return section(items.length > 1 ? `Holders, ${count(lock.holdersTotal)}` : "Holder",
      el("ul.plain", {}, ...items), more > 0 ? el("p.soft", {}, `and ${count(more)} more`) : null);
  }
}

function section(title, ...children) {
  return el("section", {}, el("h3", {}, title), ...children);
}

function legend() {
  const item = (kind, text) => el("span", {}, el("i.visit", { "data-kind": kind }), text);
  return el("p.legend", { "aria-hidden": "true" },
    item("waiting", "waiting"), item("held", "holding"),
    item("released", "released"), item("lost", "lost or broken"));
}

/** Who waits, where, and about how long: by how long the last holds took. */
function queue(lock, past) {
  if (!lock.waitersTotal) return null;
  const hold = median(past.map((visit) => visit.heldMs).filter((ms) => ms !== undefined));
  const held = lock.holders[0]?.heldMs ?? 0;
  const rows = lock.waiters.slice(0, QUEUE_MAX).map((waiter) => {
    return el("tr", {}, el("td", {}, String(waiter.position)),
      el("td.wrap", {}, waiter.owner,
        waiter.reason ? el("span.reason", {}, waiter.reason) : null),
      el("td", {}, span(waiter.waitedMs)),
      el("td", {}, estimate(waiter.position - 1, hold, held)));
  });
  const more = lock.waitersTotal - rows.length;
  return section(`Queue, ${count(lock.waitersTotal)}`,
    list(["#", "Owner", "Has waited", "Still"], rows, "Who waits, in order"),
    more > 0 ? el("p.soft", {}, `and ${count(more)} more`) : null);
}

function estimate(ahead, hold, held) {
  if (hold === undefined) return "–";
  if (held < hold) return `about ${span(hold - held + ahead * hold)}`;
  // The holder takes longer than holders usually do: its end cannot be estimated.
  return ahead ? `${span(ahead * hold)} after #1` : "overdue";
}

function history(past) {
  if (past === null) return section("Past", el("p.soft", {}, "This store keeps no journal."));
  const over = (past ?? []).filter(isOver);
  if (!over.length) return null;
  const rows = over.map((visit) => el("tr", {},
    el("td", {}, clock(visit.grantedAtMs ?? visit.beganAtMs)),
    el("td.wrap", {}, visit.owner,
      visit.why || visit.by ? el("span.reason", {}, [visit.why, visit.by && `by ${visit.by}`]
        .filter(Boolean).join(", ")) : null),
    el("td", {}, span(visit.waitedMs)), el("td", {}, span(visit.heldMs)),
    el("td", {}, el("span.end", { "data-end": visit.state }, ending(visit)))));
  return section("Past", list(["At", "Owner", "Waited", "Held", "End"], rows, "The last visits"));
}

function list(heads, rows, caption) {
  return el("table.list", {}, el("caption.unseen", {}, caption),
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows));
}

function commands(lock) {
  const key = shell(lock.key);
  const lines = [`distlock status ${key}`, `distlock history ${key}`];
  const holder = lock.holders[0];
  if (holder) lines.push(`distlock break ${key} --fence ${holder.fence} --reason '…'`);
  return section("In a shell", ...lines.map(command));
}
