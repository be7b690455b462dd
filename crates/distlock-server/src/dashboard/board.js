// What is known of the locks, and how sure that is. Everything shown is read from here.

import * as api from "./api.js";

/** How many pages are read at most; a page has up to 100 locks. */
const PAGES_MAX = 200;

/** How many keys are looked at one by one, where there is no list, and how many at once. */
const KNOWN_MAX = 200;
const LOOKS_AT_ONCE = 8;

/** Below this part of a lease its renewal is late, and below this part it is about to be lost. */
const LATE = 0.5;
const RISK = 0.25;

export class Board {
  locks = new Map();
  /** More locks than are shown. */
  truncated = false;
  /** How many times the whole was read. */
  scans = 0;
  /** False where the store cannot say which locks there are, as a quorum cannot. */
  listing = true;

  /** Reads all locks, page by page, and forgets those that are gone. */
  async scan(progress) {
    const begun = performance.now();
    if (!this.listing) {
      await this.lookAgain();
      return performance.now() - begun;
    }
    let cursor;
    for (let read = 0; read < PAGES_MAX; read += 1) {
      const page = await api.page(cursor);
      page.locks.forEach((lock) => this.put(lock));
      cursor = page.next;
      if (!cursor) break;
      // The first reading shows what it has; later ones replace the whole at once.
      if (this.scans === 0 && read % 5 === 0) progress();
    }
    this.truncated = Boolean(cursor);
    for (const [key, lock] of this.locks) if (lock.seenAt < begun) this.locks.delete(key);
    this.scans += 1;
    return performance.now() - begun;
  }

  /** Looks at the keys that are known again: there is no list of the others. */
  async lookAgain() {
    const keys = [...this.locks.keys()].slice(0, KNOWN_MAX);
    for (let at = 0; at < keys.length; at += LOOKS_AT_ONCE) {
      await Promise.all(keys.slice(at, at + LOOKS_AT_ONCE).map((key) => this.look(key)));
    }
    this.scans += 1;
  }

  /** Looks at one key again. */
  async look(key) {
    this.put(await api.one(key));
  }

  put(lock) {
    if (lock.state === "free") {
      this.locks.delete(lock.key);
      return;
    }
    const holder = lock.holders[0];
    this.locks.set(lock.key, {
      ...lock,
      seenAt: performance.now(),
      health: health(lock.holders),
      text: [lock.key, holder?.owner, holder?.reason, ...lock.waiters.map((w) => w.owner)]
        .join("\n").toLowerCase(),
    });
  }
}

/** `ok`, `late` or `risk`, by the holder that is worst off, as it was when it was seen. */
function health(holders) {
  const parts = holders.filter((holder) => holder.ttlMs > 0)
    .map((holder) => holder.remainingMs / holder.ttlMs);
  const least = Math.min(1, ...parts);
  return least < RISK ? "risk" : least < LATE ? "late" : "ok";
}

let frozenAt;

/** Stops the clocks while nothing can be known, or lets them go on. */
export function freeze(on) {
  frozenAt = on ? frozenAt ?? performance.now() : undefined;
}

/** How long ago a lock was seen. */
export const age = (lock) => Math.max(0, (frozenAt ?? performance.now()) - lock.seenAt);

/** How long a holder has held by now. */
export const heldFor = (lock, holder) => holder.heldMs + age(lock);

/** What is left of a lease by now; none for a holder whose lease never ends. */
export function left(lock, holder) {
  if (holder.remainingMs === undefined) return undefined;
  return Math.max(0, holder.remainingMs - age(lock));
}

/** The part of a lease that is left by now. */
export function part(lock, holder) {
  const remaining = left(lock, holder);
  if (remaining === undefined || !holder.ttlMs) return 1;
  return Math.min(1, remaining / holder.ttlMs);
}

export const STATES = {
  all: { label: "All", has: () => true },
  held: { label: "Held", has: (lock) => lock.holdersTotal > 0 },
  contended: { label: "Contended", has: (lock) => lock.waitersTotal > 0 },
  risk: { label: "At risk", has: (lock) => lock.health !== "ok" },
};
