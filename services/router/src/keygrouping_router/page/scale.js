// The form of W: a fixed number of workers, or as many as are running.

import { read } from "./api.js";
import { byId, set, write } from "./dom.js";
import { count } from "./format.js";
import { Trial } from "./trial.js";

export class Scale {
  #report = null;
  #etag = null;
  #trial = new Trial("scale", "PUT", {
    path: "workers",
    change: () => this.#change(),
    etag: () => this.#etag,
    applied: () => this.#load(),
  });
  #edited = false;

  constructor() {
    byId("scale").addEventListener("input", () => {
      this.#edited = true;
      this.#enable();
    });
    byId("scale-reset").addEventListener("click", () => {
      this.#trial.forget();
      this.#edited = false;
      this.#load();
    });
  }

  /** Takes the answer of /workers; edits stay unless `reload`, with the version of W that they were made from. */
  update(report, etag, reload = false) {
    const same = report.mode === this.#report?.mode && report.workers === this.#report.workers;
    if (this.#report && this.#edited && !reload && !same) return;
    this.#report = report;
    this.#etag = etag;
    if (this.#edited && !reload) return;
    this.#edited = false;
    byId("scale-fixed").checked = report.mode === "fixed";
    byId("scale-auto").checked = report.mode === "auto";
    byId("scale-count").value = report.workers;
    set(byId("scale-count"), "max", report.max_workers);
    write(byId("scale-hint"), `now ${count(report.workers, "worker")}${report.mode === "auto" ? ", automatic" : ""}; at most ${report.max_workers}, the partitions of the routed topic`);
    this.#enable();
  }

  async #load() {
    try {
      const { data, etag } = await read("workers");
      this.update(data, etag, true);
    } catch (problem) {
      this.#trial.say(problem.message, "bad");
    }
  }

  #enable() {
    set(byId("scale-count"), "disabled", byId("scale-auto").checked);
  }

  #change() {
    if (byId("scale-auto").checked) return this.#report?.mode === "auto" ? null : { workers: "auto" };
    const workers = Number(byId("scale-count").value);
    const most = this.#report?.max_workers ?? Infinity;
    if (!Number.isInteger(workers) || workers < 1 || workers > most) throw new Error(`The number of workers must be from 1 to ${most}.`);
    return this.#report?.mode === "fixed" && this.#report.workers === workers ? null : { workers };
  }
}
