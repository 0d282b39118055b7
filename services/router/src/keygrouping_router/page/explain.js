// One key: where it goes and why. Kept fresh while it is open.

import { read } from "./api.js";
import { byId, element, write } from "./dom.js";
import { NONE, age, count, duration, percent, time, whole, writeKey } from "./format.js";

const LONGEST = 4096;

export class Explain {
  #dialog = byId("explain");
  #key = null;

  /** `override(key)` is called when somebody wants to say where the key goes. */
  constructor(override) {
    byId("explain-override").addEventListener("click", () => {
      const key = this.#key;
      this.#dialog.close();
      override(key);
    });
    byId("explain-close").addEventListener("click", () => this.#dialog.close());
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
    this.#dialog.addEventListener("close", () => (this.#key = null));
  }

  /** Opens the panel for a key of the table. */
  open(key) {
    this.#key = key;
    writeKey(byId("explain-key"), key, LONGEST);
    write(byId("explain-why"), "Asking the router …");
    byId("explain-facts").replaceChildren();
    this.#dialog.showModal();
    this.refresh();
  }

  /** Asks again, if a key is shown. */
  async refresh() {
    const wanted = this.#key;
    if (!wanted) return;
    try {
      const { data } = await read(`keyspace/${wanted.id}`);
      if (this.#key === wanted) this.#show(data);
    } catch (problem) {
      if (this.#key === wanted) write(byId("explain-why"), problem.message);
    }
  }

  #show(key) {
    writeKey(byId("explain-key"), key, LONGEST);
    write(byId("explain-why"), key.why);
    const items = facts(key);
    const list = byId("explain-facts");
    while (list.children.length > items.length) list.lastElementChild.remove();
    items.forEach(([name, text], index) => {
      const item = list.children[index] ?? list.appendChild(element("div", {}, element("dt"), element("dd")));
      write(item.firstElementChild, name);
      write(item.lastElementChild, text);
    });
  }
}

function facts(key) {
  const seen = (moment) => (moment ? `${time(moment)}, ${duration(age(moment))} ago` : NONE);
  const list = (numbers) => (numbers.length ? numbers.join(", ") : NONE);
  const bounds = key.share_low === null ? "" : `, surely ${percent(key.share_low)} to ${percent(key.share_high)}`;
  return [
    ["Share", key.share === null ? NONE : percent(key.share) + bounds],
    ["Count", key.count === null ? NONE : `${whole(key.count)}${key.error ? `, at most ${whole(key.error)} too high` : ""}`],
    ["Fan-out", `${count(key.width, "worker")}${key.hot ? ", hot" : ""}`],
    ["Hot since", key.hot_since ? seen(key.hot_since) : key.hot ? "not known" : "not hot"],
    ["Workers", list(key.workers)],
    ["Next event goes to", key.candidates.length > 1 ? `one of ${list(key.candidates)}` : list(key.candidates)],
    ["Worker of its hash", key.home === null ? NONE : String(key.home)],
    ["Space", key.space ?? NONE],
    ["First seen", seen(key.first_seen)],
    ["Last seen", seen(key.last_seen)],
  ];
}
