// Single keys that go where people say: the form that is tried before it is applied, and those in force.

import { read, send } from "./api.js";
import { Rows, byId, element, set, show, write } from "./dom.js";
import { keyText, time, workers, writeKey } from "./format.js";
import { Trial } from "./trial.js";

const LONGEST = 80;
const WORDS = {
  pin: "pinned to one worker",
  split: "split",
  whole: "never split",
  "quarantine-worker": "on a worker of its own",
  "quarantine-topic": "to the quarantine topic",
};
/** Browsers take these out of a path. */
const DOTS = { "": "base64url:", ".": "base64url:Lg", "..": "base64url:Li4" };

export class Overrides {
  #rows = new Rows(byId("override-list"), () => overrideRow((item) => this.#end(item)));
  #etag = null;
  #id = null;
  #trial = new Trial("override", "PUT", {
    path: () => `overrides/${this.#wanted()}`,
    change: () => this.#change(),
    etag: () => null,
    applied: () => this.#load(),
  });

  constructor() {
    byId("override-key").addEventListener("input", () => (this.#id = null));
    byId("override-action").addEventListener("change", () => this.#fit());
    byId("override-reset").addEventListener("click", () => {
      byId("override").reset();
      this.#id = null;
      this.#fit();
      this.#trial.forget();
    });
    this.#fit();
  }

  /** Takes the answer of /overrides; `all` is that of /workers, null as long as it is not known. */
  update(report, etag, all) {
    this.#etag = etag;
    this.#rows.show(report.items.map((item) => ({ item, all: all?.workers })), ({ item }) => item.id);
    show(byId("override-empty"), report.items.length === 0);
    show(byId("override-list-title"), report.items.length > 0);
    if (!all) return;
    set(byId("override-worker"), "max", all.workers - 1);
    write(byId("override-hint"), `from 0 to ${all.workers - 1}`);
  }

  /** Offers the form for a key of a table. */
  choose(key) {
    this.#trial.forget();
    byId("override-key").value = keyText(key);
    this.#id = key.id;
    byId("override").scrollIntoView({ block: "start" });
    byId("override-action").focus({ preventScroll: true });
  }

  /** The id of the key that the form is about. */
  #wanted() {
    const text = byId("override-key").value;
    return this.#id ?? DOTS[text] ?? (text.startsWith("base64url:") ? text : encodeURIComponent(text));
  }

  #fit() {
    const action = byId("override-action").value;
    show(byId("override-worker-field"), action === "pin" || action === "quarantine-worker");
    show(byId("override-width-field"), action === "split");
  }

  #change() {
    const action = byId("override-action").value;
    if (!byId("override-key").value && this.#id === null) throw new Error("Name the key.");
    const minutes = Number(byId("override-minutes").value);
    if (!(minutes > 0)) throw new Error("Enter in how many minutes it ends.");
    const worker = number("override-worker", "The worker", 0);
    if (action === "pin" && worker === null) throw new Error("Say to which worker.");
    return {
      action,
      seconds: minutes * 60,
      ...((action === "pin" || action === "quarantine-worker") && worker !== null && { worker }),
      ...(action === "split" && splitOver()),
    };
  }

  async #load() {
    const { data, etag } = await read("overrides");
    this.update(data, etag, null);
  }

  async #end(item) {
    try {
      await send("DELETE", `overrides/${item.id}`, undefined, this.#etag);
      await this.#load();
      this.#trial.say("Returned to the grouping.", "good");
    } catch (problem) {
      this.#trial.say(problem.status === 412 ? "Somebody else has changed something meanwhile: try again." : problem.message, "bad");
    }
  }
}

function splitOver() {
  const width = number("override-width", "The number of workers", 2);
  return width === null ? {} : { width };
}

/** The whole number in a field, null if it is empty. */
function number(id, what, least) {
  const text = byId(id).value.trim();
  const found = Number(text);
  if (text !== "" && !(Number.isInteger(found) && found >= least)) throw new Error(`${what} must be a whole number from ${least} on.`);
  return text === "" ? null : found;
}

function overrideRow(end) {
  const key = element("bdi", { class: "key" });
  const words = element("span", { class: "muted" });
  const button = element("button", { type: "button", class: "quiet" }, "End");
  let current = null;
  button.addEventListener("click", () => end(current));
  return {
    node: element("li", {}, element("p", {}, key, " ", words), button),
    update({ item, all }) {
      current = item;
      writeKey(key, item, LONGEST);
      set(button, "aria-label", `End the override of ${keyText(item)}`);
      const where = item.resting ?? (item.workers.length ? workers(item.workers, all) : "");
      write(words, `${WORDS[item.action]}${where ? ` (${where})` : ""}, until ${time(item.until)}`);
    },
  };
}
