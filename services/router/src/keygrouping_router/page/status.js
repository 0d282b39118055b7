// Says plainly whether the numbers can be believed: fresh or stale, connected or not, starting, or without the store.

import { Rows, byId, element, set, write } from "./dom.js";
import { age, count, duration, ratio, time } from "./format.js";

const UNEVEN = 1.5; // λ from which the busiest worker holds the others back, as the alert has it
const FEW = 100; // events per worker and interval below which λ is mostly chance

export class Status {
  #connection = "waiting";
  #lostAt = null;
  #detail = "";
  #report = null;
  #arrived = null;
  #readiness = null;
  #grouping = null;
  #banners;
  #announced = "";

  /** `enter()` is called when a token is to be entered. */
  constructor(enter) {
    this.#banners = new Rows(byId("banners"), () => bannerRow(enter));
  }

  /** "open", "lost" or "refused", and what the router says of it. */
  connection(state, detail) {
    if (state === "lost" && this.#connection !== "lost") this.#lostAt = Date.now();
    this.#connection = state;
    this.#detail = detail ?? "";
    this.draw();
  }

  report(report) {
    this.#report = report;
    this.#arrived = Date.now();
  }

  readiness(readiness) {
    this.#readiness = readiness;
  }

  grouping(grouping) {
    this.#grouping = grouping;
  }

  /** Called each second and whenever something changes. */
  draw() {
    const { state, text } = this.#pill();
    byId("pill").dataset.state = state;
    write(byId("pill-text"), text);
    set(document.body, "data-stale", ["live", "limited", "uneven"].includes(state) ? null : true);
    const banners = this.#facts();
    this.#banners.show(banners, (banner) => banner.id);
    this.#announce(state, banners);
  }

  /** Reads out what has changed in kind; the seconds that pass are not news. */
  #announce(state, banners) {
    const news = [state, ...banners.map((banner) => banner.id)].join();
    if (news === this.#announced) return;
    const first = this.#announced === "";
    this.#announced = news;
    if (!first) write(byId("announcer"), banners.length ? banners.map((banner) => banner.text).join(" ") : state === "live" ? "Live again." : "");
  }

  #pill() {
    if (this.#connection === "lost") return { state: "lost", text: "No connection" };
    if (this.#connection === "refused") return { state: "lost", text: "Token wanted" };
    if (this.#connection === "waiting" || !this.#report) return { state: "waiting", text: this.#connection === "open" ? "Waiting" : "Connecting" };
    if (this.#stale) return { state: "stale", text: "Stale" };
    if (this.#readiness?.store.state === "degraded") return { state: "limited", text: "Live, store away" };
    if (this.#readiness?.status === "starting") return { state: "limited", text: "Starting" };
    return this.#uneven ? { state: "uneven", text: `Live, λ ${ratio(this.#report.lambda)}` } : { state: "live", text: "Live" };
  }

  /** No interval came for two and a half of them (and at least 5 s). */
  get #stale() {
    return Date.now() - this.#arrived > Math.max(2500 * this.#report.interval_seconds, 5000);
  }

  /** One worker has so much more than its due that adding workers hardly helps. */
  get #uneven() {
    if (!this.#report || !(this.#report.lambda >= UNEVEN)) return false;
    const { loads } = this.#report;
    return loads.reduce((sum, load) => sum + load, 0) >= FEW * loads.length;
  }

  #facts() {
    return [...this.#connectionFacts(), ...this.#replicaFacts(), ...this.#loadFacts()];
  }

  #loadFacts() {
    if (!this.#uneven || this.#stale || this.#connection !== "open") return [];
    const text = `The busiest worker has ${ratio(this.#report.lambda)} times its due share (λ): it holds the others back. Compare other groupings below, and route by one that is even.`;
    return [{ id: "uneven", kind: "warn", text }];
  }

  #connectionFacts() {
    const shown = this.#report ? ` What you see is from ${time(this.#report.at)}.` : "";
    if (this.#connection === "refused") {
      return [{ id: "refused", kind: "warn", text: "This router shows its numbers only with a token.", action: "Enter token" }];
    }
    if (this.#connection === "lost") {
      const said = this.#detail && ` The router says: ${this.#detail}.`;
      return [{ id: "lost", kind: "bad", text: `No connection to the router since ${time(this.#lostAt)}; trying again.${said}${shown}`.replace("..", ".") }];
    }
    if (this.#report && this.#stale) {
      return [{ id: "stale", kind: "warn", text: `No new numbers for ${duration(age(this.#report.at))}, though one interval is ${duration(this.#report.interval_seconds)}.${shown}` }];
    }
    return [];
  }

  #replicaFacts() {
    const facts = [];
    const { status, assigned, lag, store } = this.#readiness ?? {};
    if (status === "starting") {
      const why = assigned.length ? `it is catching up${lag === null ? "" : ` (${count(lag, "event")} to go)`}` : "it has no partitions yet";
      facts.push({ id: "starting", kind: "warn", text: `This replica is starting: ${why}. Its numbers are not complete.` });
    }
    if (store?.state === "degraded") {
      const since = store.since ? ` since ${time(store.since)}` : "";
      const detail = store.detail ? ` ${store.detail}.` : "";
      facts.push({ id: "store", kind: "bad", text: `The shared store (${store.name}) can't be reached${since}: routing goes on with the last plan, changes can't be saved.${detail}`.replace("..", ".") });
    }
    if (this.#grouping?.observe_only) {
      facts.push({ id: "observe", kind: "info", text: "Observe only: events go by the hash of their key, and nothing is split." });
    }
    return facts;
  }
}

function bannerRow(enter) {
  const text = element("span");
  const button = element("button", { type: "button" });
  button.addEventListener("click", enter);
  const node = element("p", { class: "banner" }, text, button);
  return {
    node,
    update(banner) {
      node.dataset.kind = banner.kind;
      write(text, banner.text);
      write(button, banner.action ?? "");
      button.hidden = !banner.action;
    },
  };
}
