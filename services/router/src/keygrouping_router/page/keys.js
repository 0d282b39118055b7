// The table of keys: the hottest as they change, or any part of all keys, a page at a time.

import { read } from "./api.js";
import { Rows, byId, element, fill, set, show, write } from "./dom.js";
import { age, duration, keyText, percent, time, whole, workers, writeKey } from "./format.js";

const PAGE = 20;

export class Keys {
  #rows;
  #report = null;
  #wanted = { sort: "share", prefix: "", space: "", offset: 0 };
  #asked = 0;

  /** `explain(key)` is called when a key is clicked. */
  constructor(explain) {
    this.#rows = new Rows(byId("keys-rows"), () => keyRow(explain));
    byId("keys-head").addEventListener("click", (event) => this.#sort(event.target.closest("button")));
    byId("keys-filter").addEventListener("submit", (event) => event.preventDefault());
    byId("keys-prefix").addEventListener("input", (event) => this.#change({ prefix: event.target.value, offset: 0 }));
    byId("keys-space").addEventListener("change", (event) => this.#change({ space: event.target.value, offset: 0 }));
    byId("keys-previous").addEventListener("click", () => this.#change({ offset: Math.max(0, this.#wanted.offset - PAGE) }));
    byId("keys-next").addEventListener("click", () => this.#change({ offset: this.#wanted.offset + PAGE }));
  }

  /** Takes the last interval's report; what it doesn't hold is asked for. */
  update(report) {
    this.#report = report;
    this.#offerSpaces(report.spaces.map((space) => space.name));
    if (this.#live) this.#show(report.hot, report.tracked_keys);
    else this.#ask();
  }

  /** Shows the keys of one space. */
  choose(space) {
    byId("keys-space").value = space;
    this.#change({ space, offset: 0 });
    byId("keys").scrollIntoView({ block: "start" });
    byId("keys-space").focus({ preventScroll: true });
  }

  get #live() {
    const { sort, prefix, space, offset } = this.#wanted;
    return sort === "share" && !prefix && !space && !offset;
  }

  #change(wanted) {
    Object.assign(this.#wanted, wanted);
    this.#asked += 1;
    if (this.#live && this.#report) this.#show(this.#report.hot, this.#report.tracked_keys);
    else this.#ask();
  }

  #sort(button) {
    if (!button) return;
    for (const header of byId("keys-head").children) set(header, "aria-sort", null);
    set(button.closest("th"), "aria-sort", button.dataset.sort === "key" || button.dataset.sort === "hot_since" ? "ascending" : "descending");
    this.#change({ sort: button.dataset.sort, offset: 0 });
  }

  async #ask() {
    const asked = ++this.#asked;
    const { sort, prefix, space, offset } = this.#wanted;
    const query = new URLSearchParams({ limit: PAGE, offset, sort, ...(prefix && { prefix }), ...(space && { space }) });
    try {
      const { data } = await read(`keyspace?${query}`);
      if (asked === this.#asked) this.#show(data.keys, data.total);
    } catch (problem) {
      if (asked === this.#asked) this.#fail(problem.message);
    }
  }

  #show(keys, total) {
    const shown = keys.slice(0, PAGE);
    const most = this.#report ? Math.max(...this.#report.hot.map((key) => key.share ?? 0), 0) : 0;
    const scale = most || Math.max(...shown.map((key) => key.share ?? 0), 0);
    const now = Date.now();
    const all = this.#report?.workers;
    this.#rows.show(shown.map((key) => ({ key, scale, now, all })), (item) => item.key.id);
    const { offset } = this.#wanted;
    write(byId("keys-range"), shown.length ? `${whole(offset + 1)} to ${whole(offset + shown.length)} of ${whole(Math.max(total, offset + shown.length))}` : "");
    set(byId("keys-previous"), "disabled", offset === 0);
    set(byId("keys-next"), "disabled", offset + PAGE >= total);
    for (const part of ["previous", "next"]) show(byId(`keys-${part}`), offset > 0 || total > PAGE);
    show(byId("keys-scroll"), shown.length > 0);
    this.#say(shown);
  }

  #say(shown) {
    const cold = this.#live && shown.length && !shown.some((key) => key.hot);
    const text = cold ? "No key is hot now; these are the largest." : shown.length ? "" : this.#whyNone();
    write(byId("keys-title"), this.#live ? (cold ? "Largest keys" : "Hot keys") : "Keys");
    write(byId("keys-empty"), text);
    show(byId("keys-empty"), text !== "");
  }

  #whyNone() {
    if (!this.#live) return "No key fits.";
    return this.#report?.events ? "This grouping keeps no counts of keys." : "No keys yet: they come with the first events.";
  }

  #fail(message) {
    write(byId("keys-empty"), message);
    show(byId("keys-empty"), true);
  }

  #offerSpaces(names) {
    const select = byId("keys-space");
    if ([...select.options].slice(1).map((option) => option.value).join("\n") === names.join("\n")) return;
    const chosen = select.value;
    select.replaceChildren(new Option("all", ""), ...names.map((name) => new Option(name, name)));
    select.value = names.includes(chosen) ? chosen : "";
    if (select.value !== chosen) this.#wanted.space = "";
  }
}

function keyRow(explain) {
  const button = element("button", { type: "button", class: "key", dir: "auto" });
  const bar = element("i");
  const share = element("span", { class: "number" });
  const width = element("td", { class: "number" });
  const where = element("td", { class: "muted" });
  const since = element("td", { class: "number muted" });
  const shareCell = element("td", {}, element("span", { class: "measure" }, element("span", { class: "track", "aria-hidden": "true" }, bar), share));
  const node = element("tr", {}, element("th", { scope: "row" }, button), shareCell, width, where, since);
  let current = null;
  button.addEventListener("click", () => explain(current));
  return {
    node,
    update({ key, scale, now, all }) {
      current = key;
      writeKey(button, key);
      set(button, "title", `Why ${keyText(key)} goes where it goes`);
      set(node, "class", key.hot ? "hot" : null);
      fill(bar, scale ? (key.share ?? 0) / scale : 0);
      write(share, percent(key.share));
      set(share, "title", key.share_low === null ? null : `${percent(key.share_low)} to ${percent(key.share_high)}`);
      write(width, whole(key.width));
      write(where, workers(key.workers, all));
      write(since, key.hot_since ? duration(age(key.hot_since, now)) : key.hot ? "not known" : "–");
      set(since, "title", key.hot_since ? time(key.hot_since) : null);
    },
  };
}
