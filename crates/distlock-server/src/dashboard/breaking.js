// Breaking a hold: the operator types the key, says why, and hits only the hold that was seen.

import * as api from "./api.js";
import { $, el, mark, toast, write } from "./dom.js";
import { span } from "./format.js";

let asked;

/** Asks whether to break a hold. */
export function ask(lock, holder, done) {
  const dialog = $("break");
  const typed = el("input", { id: "break-key", autocomplete: "off", spellcheck: "false" });
  const reason = el("input", { id: "break-reason", autocomplete: "off", maxlength: 200 });
  const refusal = el("p.refusal", { role: "alert", id: "break-refusal" });
  const go = el("button.danger", { type: "submit", id: "break-go", disabled: true },
    "Break the lock");
  const cancel = el("button", { type: "button", onclick: () => dialog.close() }, "Keep it");
  const check = () => mark(go, "disabled",
    !(typed.value === lock.key && reason.value.trim()) || asked?.moved);
  typed.addEventListener("input", check);
  reason.addEventListener("input", check);
  const submit = async (event) => {
    event.preventDefault();
    if (go.disabled) return;
    mark(go, "disabled", true);
    try {
      await api.breakHold(lock.key, holder.fence, reason.value.trim());
      dialog.close();
      toast(`Broken: ${lock.key}`);
      done();
    } catch (error) {
      write(refusal, `It was not broken: ${error.message}`);
      check();
    }
  };
  asked = { key: lock.key, fence: holder.fence, refusal, check, moved: false };
  dialog.replaceChildren(el("form.form", { onsubmit: submit },
    el("h2", { id: "break-title" }, "Break this lock?"),
    el("p", {}, el("strong", {}, holder.owner), " has held it for ", span(holder.heldMs),
      ". It may still be at work, and learns this only when it next renews. What it writes under "
      + "fence ", el("code", {}, String(holder.fence)), " must be refused from then on."),
    el("label", {}, "Type the key to confirm ", el("code.confirm", {}, lock.key), typed),
    el("label", {}, "Reason, for the record", reason),
    refusal,
    el("div.actions", {}, cancel, go)));
  dialog.addEventListener("close", () => { asked = undefined; }, { once: true });
  dialog.showModal();
  typed.focus();
}

/** The lock was seen again: if another client holds it by now, there is nothing to confirm. */
export function seen(lock) {
  if (!asked || lock.key !== asked.key) return;
  if (lock.holders.some((holder) => holder.fence === asked.fence)) return;
  asked.moved = true;
  write(asked.refusal, "The holder has changed since you looked: close this and look again.");
  asked.check();
}
