// The form of the grouping in force, beside the comparison: one of those compared, or any other; try, then apply.

import { read } from "./api.js";
import { byId, element, show, write } from "./dom.js";
import { ratio, value } from "./format.js";
import { Trial } from "./trial.js";

export class GroupingForm {
  #select = byId("grouping-name");
  #choices = [];
  #shown = "";
  #grouping = null;
  #etag = null;
  #compared = [];
  #edited = false;
  #trial = new Trial("grouping", "PUT", {
    path: "grouping",
    change: () => this.#change(),
    etag: () => this.#etag,
    applied: () => this.#load(),
  });

  constructor() {
    byId("grouping").addEventListener("input", () => {
      this.#edited = true;
      this.#explain();
    });
    byId("grouping-reset").addEventListener("click", () => {
      this.#trial.forget();
      this.#load();
    });
  }

  /** `grouping` is the answer of /grouping; an edit stays, with the version that it was made from, unless `reload`. */
  update(grouping, etag, reload = false) {
    const same = this.#grouping && JSON.stringify(inForce(grouping)) === JSON.stringify(inForce(this.#grouping));
    if (this.#edited && !reload && !same) return;
    this.#grouping = grouping;
    this.#etag = etag;
    this.#edited &&= !reload;
    this.#offer();
  }

  /** `report` is the answer of /shadow. */
  compare(report) {
    this.#compared = report.groupings.filter((one) => !one.in_force).sort((a, b) => a.lambda - b.lambda);
    this.#offer();
  }

  #offer() {
    if (!this.#grouping) return;
    const { name, settings, available } = this.#grouping;
    const compared = this.#compared.filter((one) => one.name !== name || value(one.settings) !== value(settings));
    const others = available.filter((one) => one.name !== name && !compared.some((other) => other.name === one.name));
    this.#choices = [
      { name, settings, text: `${label(name, settings)}, in force` },
      ...compared.map((one) => ({ ...one, text: `${label(one.name, one.settings)}${one.events ? `, λ ${ratio(one.lambda)}` : ""}` })),
      ...others.map((one) => ({ name: one.name, settings: {}, text: one.name })),
    ];
    const signature = JSON.stringify(this.#choices.map((choice) => choice.text));
    if (signature !== this.#shown) {
      const chosen = this.#edited ? this.#select.value : null;
      const ids = this.#choices.map(identity);
      this.#select.replaceChildren(...this.#choices.map((choice, index) => element("option", { value: ids[index] }, choice.text)));
      this.#select.value = ids.includes(chosen) ? chosen : ids[0];
      this.#shown = signature;
    } else if (!this.#edited) this.#select.value = identity(this.#choices[0]);
    show(byId("grouping-observe-field"), this.#grouping.observe_only);
    if (!this.#edited) byId("grouping-observe").checked = this.#grouping.observe_only;
    this.#explain();
  }

  #explain() {
    const chosen = this.#chosen();
    write(byId("grouping-hint"), this.#grouping.available.find((one) => one.name === chosen.name)?.meaning ?? "");
  }

  #chosen() {
    return this.#choices.find((choice) => identity(choice) === this.#select.value) ?? this.#choices[0];
  }

  async #load() {
    try {
      const { data, etag } = await read("grouping");
      this.#edited = false;
      this.update(data, etag, true);
    } catch (problem) {
      this.#trial.say(problem.message, "bad");
    }
  }

  #change() {
    const { name, settings } = this.#chosen();
    const observe = this.#grouping.observe_only ? byId("grouping-observe").checked : false;
    const wanted = { name, settings, observe_only: observe };
    return JSON.stringify(wanted) === JSON.stringify(inForce(this.#grouping)) ? null : wanted;
  }
}

const inForce = ({ name, settings, observe_only }) => ({ name, settings, observe_only });
const identity = ({ name, settings }) => `${name} ${JSON.stringify(settings)}`;
const label = (name, settings) => (Object.keys(settings).length ? `${name} (${value(settings)})` : name);
