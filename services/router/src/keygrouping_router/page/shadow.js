// Other groupings on the same traffic: a table beside the one in force, and the choice of which.

import { read, send } from "./api.js";
import { Rows, byId, element, fill, set, show, write } from "./dom.js";
import { compact, decimal, percent, ratio, value, whole } from "./format.js";

export class Shadow {
  #rows = new Rows(byId("shadow-rows"), shadowRow);
  #report = null;
  #edited = false;

  constructor() {
    for (const radio of document.getElementsByName("shadow-span")) radio.addEventListener("change", () => this.#draw());
    const form = byId("shadow-form");
    form.addEventListener("input", () => (this.#edited = true));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#save();
    });
  }

  /** `report` is the answer of /shadow. */
  update(report) {
    this.#report = report;
    this.#draw();
    if (!this.#edited) this.#fillForm();
  }

  /** Offers what is available (answer of /grouping). */
  offer(grouping) {
    const box = byId("shadow-choices");
    if (box.childElementCount === grouping.available.length) return;
    const choices = grouping.available.map(({ name, meaning }) =>
      element("label", { title: meaning }, element("input", { type: "checkbox", value: name }), ` ${name}`),
    );
    box.replaceChildren(...choices);
    if (this.#report) this.#fillForm();
  }

  #draw() {
    if (!this.#report) return;
    const span = document.querySelector("[name=shadow-span]:checked").value;
    const results = [...this.#report[span]].sort((a, b) => b.in_force - a.in_force || a.lambda - b.lambda);
    const any = results.some((result) => !result.in_force);
    show(byId("shadow-scroll"), any);
    show(byId("shadow-empty"), !any);
    const most = Math.max(1, ...results.map((result) => result.lambda));
    const least = Math.min(...results.filter((result) => result.events).map((result) => result.lambda));
    this.#rows.show(any ? results.map((result) => ({ result, most, least })) : [], ({ result }) => `${result.in_force} ${result.name} ${value(result.settings)}`);
    const { sampled_part: part, sampled_events: events } = this.#report;
    write(byId("shadow-words"), any ? `From ${part === 1 ? "all events" : `a sample of ${percent(part)} of the events`}, ${compact(events)} so far. Nothing is routed by them.` : "");
  }

  #fillForm() {
    const chosen = new Set(this.#report.groupings.filter((one) => !one.in_force).map((one) => one.name));
    for (const box of byId("shadow-choices").querySelectorAll("input")) box.checked = chosen.has(box.value);
    byId("shadow-sample").value = Number((this.#report.sample * 100).toPrecision(6));
  }

  async #save() {
    const names = [...byId("shadow-choices").querySelectorAll(":checked")].map((box) => box.value);
    const known = new Map((this.#report?.groupings ?? []).filter((one) => !one.in_force).map((one) => [one.name, one.settings]));
    const groupings = names.map((name) => ({ name, ...(known.has(name) && { settings: known.get(name) }) }));
    try {
      await send("PUT", "shadow", { groupings, sample: Number(byId("shadow-sample").value) / 100 });
      this.#edited = false;
      this.#say("Done: the figures come with the next interval.", "good");
      this.update((await read("shadow")).data);
    } catch (problem) {
      this.#say(problem.message, "bad");
    }
  }

  #say(text, kind) {
    write(byId("shadow-outcome"), text);
    byId("shadow-outcome").dataset.kind = kind;
  }
}

function shadowRow() {
  const name = element("b");
  const badge = element("span", { class: "badge" }, "in force");
  const settings = element("span", { class: "muted settings" });
  const bar = element("i");
  const lambda = element("span", { class: "number" });
  const cells = Array.from({ length: 4 }, () => element("td", { class: "number" }));
  const measure = element("td", {}, element("span", { class: "measure" }, element("span", { class: "track", "aria-hidden": "true" }, bar), lambda));
  return {
    node: element("tr", {}, element("th", { scope: "row" }, name, " ", badge, " ", settings), measure, ...cells),
    update({ result, most, least }) {
      write(name, result.name);
      show(badge, result.in_force);
      const text = Object.keys(result.settings).length && !result.in_force ? value(result.settings) : "";
      write(settings, text);
      fill(bar, result.events ? result.lambda / most : 0);
      set(bar, "class", result.in_force ? null : "before");
      write(lambda, result.events ? ratio(result.lambda) : "–");
      set(lambda, "class", result.events && result.lambda === least ? "number best" : "number");
      const texts = [decimal(result.std_dev), decimal(result.dist_cost), whole(result.hot_keys), compact(result.events)];
      texts.forEach((one, index) => write(cells[index], result.events || index > 1 ? one : "–"));
    },
  };
}
