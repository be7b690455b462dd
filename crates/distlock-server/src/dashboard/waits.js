// Who waits for whom: from owner over key to owner. A circle is a deadlock, as far as owners are
// told apart by their names.

import { el } from "./dom.js";
import { count, span } from "./format.js";

const KEYS_MAX = 100;
const NAMES_MAX = 4;

/** The circles among the locks: each a list of owner, key, owner, key and so on. */
export function cycles(locks) {
  const edges = new Map();
  for (const lock of locks) {
    if (!lock.waitersTotal || !lock.holders.length) continue;
    for (const waiter of lock.waiters) {
      for (const holder of lock.holders) {
        // One name for both may be two programs: that is no proof of anything.
        if (waiter.owner === holder.owner) continue;
        if (!edges.has(waiter.owner)) edges.set(waiter.owner, []);
        edges.get(waiter.owner).push({ key: lock.key, to: holder.owner });
      }
    }
  }
  const found = [];
  const done = new Set();
  for (const start of edges.keys()) if (!done.has(start)) walk(start, edges, done, found);
  return found;
}

/** Walks in depth, without recursion: queues may be long. */
function walk(start, edges, done, found) {
  const path = [{ owner: start, next: 0 }];
  const on = new Map([[start, 0]]);
  while (path.length) {
    const top = path.at(-1);
    const edge = edges.get(top.owner)?.[top.next];
    if (!edge) {
      done.add(top.owner);
      on.delete(top.owner);
      path.pop();
      continue;
    }
    top.next += 1;
    top.key = edge.key;
    if (on.has(edge.to)) {
      const circle = path.slice(on.get(edge.to));
      found.push(circle.flatMap((step) => [step.owner, step.key]));
    } else if (!done.has(edge.to)) {
      on.set(edge.to, path.length);
      path.push({ owner: edge.to, next: 0 });
    }
  }
}

/** Draws the view. */
export function draw(into, board, open) {
  const locks = [...board.locks.values()];
  const circles = cycles(locks);
  const caught = new Set(circles.flatMap((circle) => circle.filter((_, at) => at % 2)));
  const contended = locks.filter((lock) => lock.waitersTotal > 0)
    .sort((a, b) => caught.has(b.key) - caught.has(a.key) || b.waitersTotal - a.waitersTotal
      || (a.key < b.key ? -1 : 1));
  const parts = circles.map((circle) => deadlock(circle, open));
  if (!contended.length) {
    parts.push(el("div.empty", {}, el("h2", {}, "No client waits"),
      el("p", {}, "Waiters appear here with the holders that they wait for.")));
  } else {
    parts.push(el("ol.chains", {}, ...contended.slice(0, KEYS_MAX)
      .map((lock) => chain(lock, caught.has(lock.key), open))));
  }
  if (contended.length > KEYS_MAX) {
    parts.push(el("p.soft", {}, `and ${count(contended.length - KEYS_MAX)} more keys`));
  }
  const focused = [...into.querySelectorAll("button")].indexOf(document.activeElement);
  into.replaceChildren(...parts);
  into.querySelectorAll("button")[focused]?.focus({ preventScroll: true });
}

function deadlock(circle, open) {
  const steps = circle.map((name, at) => (at % 2
    ? el("button.key.chip", { type: "button", onclick: () => open(name) }, name)
    : el("span.name.chip", {}, name)));
  const words = steps.flatMap((step, at) =>
    [step, el("span.verb", {}, at % 2 ? "held by" : "waits for")]);
  return el("div.deadlock", {}, el("h2", {}, "These wait for each other"),
    el("p", {}, ...words, el("span.name.chip", {}, circle[0])));
}

function chain(lock, caught, open) {
  const names = (list, total, none) => {
    const shown = list.slice(0, NAMES_MAX).map((each) => el("span.name.chip", {}, each.owner,
      each.waitedMs === undefined ? null : el("small", {}, span(each.waitedMs))));
    const more = total - shown.length;
    if (more > 0) shown.push(el("span.more", {}, `and ${count(more)} more`));
    return el("div.names", {}, ...(shown.length ? shown : [el("span.soft", {}, none)]));
  };
  return el("li.chain", { "data-caught": caught },
    names(lock.waiters, lock.waitersTotal, "none"), el("span.arrow", {}, "waits for"),
    el("button.key.chip", { type: "button", onclick: () => open(lock.key) }, lock.key),
    el("span.arrow", {}, "held by"), names(lock.holders.map((h) => ({ owner: h.owner })),
      lock.holdersTotal, "none yet"));
}
