// The swim lanes of a key: one lane an owner, one bar a visit, the fence on the bar. Two holds of
// an exclusive lock at one time would be seen as bars that overlap.

import { el } from "./dom.js";
import { clock, fence, span } from "./format.js";

const LANES_MAX = 12;
const VISITS_MAX = 24;
const WINDOW_MIN_MS = 10_000;
/** A wait that is shorter than this was none. */
const WAIT_MIN_MS = 50;

const ENDS = {
  released: "released", lost: "lost", broken: "broken", "gave-up": "gave up",
  vanished: "vanished", held: "holds", waiting: "waits",
};

/** What is told of how a visit stands or ended. */
export const ending = (visit) => ENDS[visit.state] ?? visit.state;

/** True of a visit that neither holds nor waits. */
export const isOver = (visit) => !["held", "waiting"].includes(visit.state);

/** When the journal has no end of a hold, it ended at the latest when the next one began. */
function withEnds(visits) {
  const grants = visits.map((visit) => visit.grantedAtMs).filter((at) => at !== undefined);
  return visits.map((visit) => {
    if (visit.state !== "vanished" || visit.endedAtMs !== undefined) return visit;
    const later = grants.filter((at) => at > (visit.grantedAtMs ?? visit.beganAtMs));
    return later.length ? { ...visit, endedAtMs: Math.min(...later) } : visit;
  });
}

/** Visits of the journal, and those that only the snapshot knows: not everybody keeps a journal. */
export function visitsOf(lock, visits, nowMs) {
  const known = new Set(visits.map((visit) => visit.fence));
  const waiting = new Set(visits.filter((v) => v.state === "waiting").map((v) => v.owner));
  const holders = lock.holders.filter((holder) => !known.has(holder.fence)).map((holder) => ({
    ...holder, state: "held", beganAtMs: nowMs - holder.heldMs, grantedAtMs: nowMs - holder.heldMs,
  }));
  const waiters = lock.waiters.filter((waiter) => !waiting.has(waiter.owner)).map((waiter) => ({
    ...waiter, state: "waiting", beganAtMs: nowMs - waiter.waitedMs,
  }));
  const now = (state) => visits.filter((visit) => visit.state === state);
  return withEnds([...holders, ...now("held"), ...waiters, ...now("waiting").reverse(),
    ...visits.filter(isOver)]);
}

/** Draws the lanes. */
export function timeline(visits, nowMs) {
  const recent = [...visits].sort((a, b) => b.beganAtMs - a.beganAtMs).slice(0, VISITS_MAX);
  if (!recent.length) return el("p.soft", {}, "Nothing is known of its past.");
  const from = Math.min(nowMs - WINDOW_MIN_MS, ...recent.map((visit) => visit.beganAtMs));
  const at = (ms) => ((Math.min(ms, nowMs) - from) / (nowMs - from)) * 100;
  // A claim that is there now comes first, in the order in which they get in.
  const owners = [...new Set(visits.filter((visit) => recent.includes(visit))
    .map((visit) => visit.owner))];
  const lanes = owners.slice(0, LANES_MAX).map((owner) => {
    const bars = recent.filter((visit) => visit.owner === owner)
      .flatMap((visit) => barsOf(visit, at, nowMs));
    return el("div.lane", {},
      el("span.who", { title: owner }, owner), el("div.track", {}, ...bars));
  });
  const ago = (ms) => el("span", { title: clock(nowMs - ms) }, `${span(ms)} ago`);
  const axis = el("div.axis", {}, ago(nowMs - from), ago((nowMs - from) / 2),
    el("span", {}, "now"));
  const rest = owners.length - LANES_MAX;
  const label = `Timeline of ${recent.length} visits by ${owners.length} owners; the table of the `
    + "past below tells the same";
  return el("div.timeline", { role: "img", "aria-label": label }, ...lanes, axis,
    rest > 0 ? el("p.soft", {}, `and ${rest} more owners`) : null);
}

function barsOf(visit, at, nowMs) {
  const granted = visit.grantedAtMs;
  const end = visit.endedAtMs ?? nowMs;
  const bars = [];
  if (granted === undefined || granted - visit.beganAtMs > WAIT_MIN_MS) {
    const text = `${visit.owner} waited ${span((granted ?? end) - visit.beganAtMs)}`;
    bars.push(bar("waiting", at(visit.beganAtMs), at(granted ?? end), text));
  }
  if (granted !== undefined) {
    const held = (visit.state === "vanished" ? "at most " : "") + span(end - granted);
    const text = `${visit.owner} held ${held}, fence ${visit.fence}: ${ending(visit)}`;
    const kind = ["lost", "broken", "vanished"].includes(visit.state) ? "lost" : visit.state;
    bars.push(bar(kind, at(granted), at(end), text, fence(visit.fence)[1]));
  }
  return bars;
}

function bar(kind, from, to, title, label = "") {
  const node = el("span.visit", { "data-kind": kind, title },
    el("span.long", {}, label), el("span.short", {}, label.slice(-3)));
  node.style.left = `${from.toFixed(2)}%`;
  node.style.width = `${Math.max(0, to - from).toFixed(2)}%`;
  return node;
}
