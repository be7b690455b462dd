// How the page stands to the service and the service to its store, and what is said about it.

import { $, write } from "./dom.js";
import { clock, span } from "./format.js";

const TEXTS = {
  connecting: "connecting", live: "live", polling: "polling", reconnecting: "reconnecting",
  down: "store down",
};

export class Link {
  /** Since when the service does not answer, and since when its store does not. */
  lostSince = undefined;
  downSince = undefined;
  streaming = false;
  answered = false;

  get state() {
    if (this.lostSince) return "reconnecting";
    if (this.downSince) return "down";
    if (!this.answered) return "connecting";
    return this.streaming ? "live" : "polling";
  }

  /** The service answered. */
  heard() {
    this.answered = true;
    this.lostSince = undefined;
    this.show();
  }

  /** A request failed. A refusal is an answer: only those about the store matter here. */
  failed(error) {
    if (error.status === undefined) this.lostSince ??= Date.now();
    else if (error.status >= 500 && error.status !== 501) {
      this.heard();
      this.downSince ??= Date.now();
    }
    this.show();
  }

  /** What a summary says about the store. */
  store(backend, offset) {
    this.downSince = backend.ok ? undefined : (backend.downSinceMs ?? Date.now()) - offset;
    this.heard();
  }

  show() {
    const { state } = this;
    document.body.dataset.state = state;
    write($("link-text"), TEXTS[state]);
    const since = { reconnecting: this.lostSince, down: this.downSince }[state];
    $("banner").hidden = since === undefined;
    if (since === undefined) return;
    write($("banner-title"), state === "down"
      ? "The store does not answer." : "The service does not answer.");
    write($("banner-text"), `Since ${clock(since)}, ${span(Math.max(0, Date.now() - since))} ago. `
      + "Below is what was seen last; it comes back by itself.");
  }
}
