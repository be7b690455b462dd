// The page: reads the locks, follows their events, and shows both until it is closed.

import * as api from "./api.js";
import { Board, freeze } from "./board.js";
import * as cards from "./cards.js";
import { Detail } from "./detail.js";
import { $, command, el, mark, toast, write } from "./dom.js";
import { Link } from "./link.js";
import { Table } from "./table.js";
import * as theme from "./theme.js";
import { cycles, draw as drawWaits } from "./waits.js";

const TICK_MS = 250;
const SUMMARY_EVERY_MS = 2000;
const SCAN_EVERY_MS = 1500;
/** While the page is hidden. */
const HIDDEN_EVERY_MS = 15_000;
/** A scan may take up this part of the time at most. */
const SCAN_SHARE = 4;
/** More changed keys than this are read as a whole. */
const LOOKS_MAX = 12;
const AGAIN_MS = 2000;

const link = new Link();
const board = new Board();
let offset = 0;
let view = "locks";
let refreshing;
let changedKeys = new Set();

const openLock = (key) => { location.hash = `#/lock/${encodeURIComponent(key)}`; };
const table = new Table(board, openLock, empty);
const detail = new Detail(board, () => offset, changed);
/** Sleeps, but not through the moment in which the page is shown again. */
const sleep = (ms) => new Promise((wake) => {
  const timer = setTimeout(done, ms);
  document.addEventListener("visibilitychange", done);
  function done() {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", done);
    wake();
  }
});
const pace = (ms) => (document.hidden ? HIDDEN_EVERY_MS : ms);

/** Shows what the board knows, soon and not more often than the eye needs. */
function changed() {
  refreshing ??= setTimeout(() => {
    refreshing = undefined;
    table.refresh();
    const circles = cycles(board.locks.values()).length;
    $("cycles").hidden = circles === 0;
    write($("cycles"), String(circles));
    if (view === "waits") drawWaits($("waits"), board, table.open);
  }, 120);
}

/** What stands in the place of rows when there are none. */
function empty() {
  $("empty").hidden = table.shown.length > 0;
  const wanted = table.wanted;
  const why = board.scans === 0 ? "loading" : wanted || board.locks.size ? "filter"
    : board.listing ? "none" : "unlisted";
  const about = `${why} ${wanted}`;
  if ($("empty").hidden || $("empty").dataset.about === about) return;
  $("empty").dataset.about = about;
  $("empty").className = why === "loading" ? "loading" : "empty";
  $("empty").replaceChildren(...EMPTY[why](wanted));
}

const EMPTY = {
  loading: () => [el("p", {}, "Reading the locks…")],
  none: () => [el("h2", {}, "No locks yet"), el("p", {}, "Take one in a shell, and watch it here:"),
    command("distlock run demo -- sleep 30")],
  unlisted: () => [el("h2", {}, "This store cannot list its locks"),
    el("p", {}, "What happens from now on shows here. Type a key above to look at it.")],
  filter: (wanted) => [el("h2", {}, "No lock matches"), el("p", {}, "None is like this now."),
    wanted ? el("button.look", { type: "button", onclick: () => openLock(wanted) },
      `Look at the key ${wanted}`) : ""],
};

async function everSummary() {
  for (;;) {
    await guarded(async () => {
      const summary = await api.summary();
      offset = summary.atMs - Date.now();
      link.store(summary.backend, offset);
      board.listing = summary.listing !== false;
      cards.show(summary);
    });
    await sleep(pace(SUMMARY_EVERY_MS));
  }
}

async function everScan() {
  for (;;) {
    let took = 0;
    await guarded(async () => {
      took = await board.scan(changed);
      link.heard();
      changed();
    });
    await detail.refresh();
    await sleep(pace(Math.max(SCAN_EVERY_MS, took * SCAN_SHARE)));
  }
}

/** Runs something that may fail, and says how the link is after it. */
async function guarded(work) {
  try {
    await work();
  } catch (error) {
    const guessed = error.status === 429 && error.message.includes("wrong tokens");
    if (error.status === 401 || error.status === 403 || guessed) await letIn(error);
    else link.failed(error);
  }
}

async function everEvents() {
  let after;
  for (;;) {
    try {
      for await (const event of api.events(after)) {
        link.streaming = true;
        link.heard();
        after = event.id ?? after;
        if (event.data.key !== undefined) touched(event.data.key);
        if (event.name === "unreachable") link.failed({ status: 503 });
        if (event.name === "missed") after = undefined;
      }
    } catch (error) {
      // An id that the store has forgotten is of no use any more.
      if (error.status === 422) after = undefined;
    }
    // Without events the scans go on: that is the fallback.
    link.streaming = false;
    link.show();
    await sleep(pace(AGAIN_MS));
  }
}

function touched(key) {
  if (changedKeys.size === 0) setTimeout(lookAgain, 80);
  changedKeys.add(key);
}

async function lookAgain() {
  const keys = [...changedKeys];
  changedKeys = new Set();
  if (keys.length > LOOKS_MAX) return;
  await guarded(() => Promise.all(keys.map((key) => board.look(key))));
  if (keys.includes(detail.key)) detail.refresh();
  changed();
}

let asking;

/** Asks for a token, once however many requests were refused. */
function letIn(error) {
  asking ??= new Promise((done) => {
    write($("token-why"), whyAsked(error));
    $("token").showModal();
    $("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      api.token.set($("token-value").value.trim());
      $("token-value").value = "";
      $("token").close();
    }, { once: true });
    $("token").addEventListener("close", () => done(), { once: true });
  }).then(who).finally(() => { asking = undefined; });
  return asking;
}

function whyAsked({ status, message }) {
  if (status === 403) return `${message}. The dashboard needs the scope read or admin.`;
  if (status === 429) return "Too many wrong tokens came from this address: wait a minute.";
  if (api.token.get()) return "That token is not known here.";
  return "It is kept in this tab only, and forgotten with it.";
}

/** Learns what may be done here. */
async function who() {
  try {
    const me = await api.whoami();
    detail.mayBreak = me.mayBreak;
    $("token-open").hidden = !me.needsToken;
    write($("token-open"), me.mayBreak ? "Admin" : "Read only");
  } catch (error) {
    if (error.status === undefined) link.failed(error);
  }
}

function route() {
  const [, what, key] = location.hash.split("/");
  show(what === "waits" ? "waits" : "locks");
  if (what === "lock" && key) detail.open(decodeURIComponent(key));
  else detail.close();
}

function show(which) {
  view = which;
  for (const name of ["locks", "waits"]) {
    $(name).hidden = name !== which;
    mark($(`view-${name}`), "aria-pressed", String(name === which));
  }
  changed();
}

function keys(event) {
  if (document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (detail.key) detail.leave();
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    $("filter").focus();
  } else if (event.key === "w") {
    location.hash = view === "waits" ? "" : "#/waits";
  } else if (event.key === "ArrowDown" && event.target === document.body) {
    event.preventDefault();
    table.focus(0);
  }
}

theme.setUp();
cards.setUp();
empty();
$("view-locks").addEventListener("click", () => { location.hash = ""; });
$("view-waits").addEventListener("click", () => { location.hash = "#/waits"; });
$("token-open").addEventListener("click", () => {
  api.token.forget();
  letIn({ status: 401 }).then(() => toast("Token changed"));
});
addEventListener("hashchange", route);
addEventListener("keydown", keys);
setInterval(() => {
  link.show();
  freeze(["down", "reconnecting"].includes(link.state));
  table.tick();
}, TICK_MS);
await who();
route();
everSummary();
everScan();
everEvents();
