// Try first, then apply: what the forms of thresholds and of W have in common.

import { send } from "./api.js";
import { byId, element, set, show, write } from "./dom.js";
import { count, decimal, keyText, ratio, whole, writeKey } from "./format.js";

const LONGEST = 20;

export class Trial {
  #name;
  #method;
  #change;
  #etag;
  #applied;
  #form;
  #tried = null;
  #edits = 0;
  #last = Promise.resolve();

  /**
   * `name`: of the form, whose parts are called `name-try`, `name-apply`, `name-outcome`, `name-result`;
   * `path`: where it is sent to, or a function that says so; `change()`: what is to be sent, null if it is the same as now, or throws an Error that says what is wrong;
   * `etag()`: of the state that the change was made from; `applied()`: called when it is in force.
   */
  constructor(name, method, { path, change, etag, applied }) {
    this.#name = name;
    const where = () => (typeof path === "function" ? path() : path);
    this.#method = (dry) => [method, dry ? `${where()}?dry_run=true` : where()];
    this.#change = change;
    this.#etag = etag;
    this.#applied = applied;
    this.#form = byId(name);
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#run(true);
    });
    this.#form.addEventListener("input", () => {
      this.#edits += 1;
      this.forget();
    });
    this.#part("apply").addEventListener("click", () => this.#run(false));
  }

  /** What was tried is no longer what the form says. */
  forget() {
    this.#tried = null;
    set(this.#part("apply"), "disabled", true);
    show(this.#part("result"), false);
    this.say("");
  }

  /** The sentence below the buttons; it is read out. */
  say(text, kind = "") {
    write(this.#part("outcome"), text);
    this.#part("outcome").dataset.kind = kind;
  }

  #part(part) {
    return byId(`${this.#name}-${part}`);
  }

  /** A click while another one is answered waits for that answer. */
  #run(dry) {
    this.#last = this.#last.then(() => this.#once(dry));
  }

  async #once(dry) {
    if (!dry && !this.#tried) return;
    let body;
    try {
      body = dry ? this.#change() : this.#tried;
    } catch (fault) {
      this.say(fault.message, "bad");
      return;
    }
    if (body === null) {
      this.say("Nothing differs from the settings in force.");
      return;
    }
    const edits = this.#edits;
    this.say(dry ? "Trying on current traffic …" : "Applying …");
    // What is in force is shown at the end of it, and would take the place of an edit.
    this.#form.inert = !dry;
    try {
      const { data } = await send(...this.#method(dry), body, this.#etag());
      if (!dry) await this.#done();
      else if (edits === this.#edits) this.#show(body, data);
    } catch (problem) {
      this.say(problem.status === 412 ? "Somebody else has changed it meanwhile. Undo edits to see the values in force, and try again." : problem.message, "bad");
    } finally {
      this.#form.inert = false;
    }
  }

  #show(body, { changes }) {
    this.#tried = body;
    set(this.#part("apply"), "disabled", null);
    show(this.#part("result"), true);
    this.#part("result").replaceChildren(...resultNodes(changes));
    this.say(verdict(changes));
  }

  async #done() {
    this.forget();
    await this.#applied();
    this.say("In force now.", "good");
  }
}

function verdict({ lambda, widths, sampled_events: events }) {
  if (!events || lambda.after === null) return "It is valid, but there is no traffic yet to try it on.";
  const better = lambda.before - lambda.after;
  const words = Math.abs(better) < 0.005 ? "λ would stay the same" : `λ would ${better > 0 ? "fall" : "rise"} from ${ratio(lambda.before)} to ${ratio(lambda.after)}`;
  return `${words}, and ${count(widths.length, "key")} would change fan-out. Nothing is changed yet.`;
}

function resultNodes({ lambda, dist_cost: cost, hot_keys: hot, cold_width: cold, widths, sampled_events: events }) {
  const row = (name, change, format) =>
    element("tr", {}, element("th", { scope: "row" }, name), element("td", { class: "number" }, format(change.before)), element("td", { class: "number" }, format(change.after)));
  const table = element(
    "table",
    {},
    element("caption", {}, `On a sample of ${count(events, "event")}`),
    element("thead", {}, element("tr", {}, element("td"), element("th", { scope: "col", class: "number" }, "now"), element("th", { scope: "col", class: "number" }, "then"))),
    element("tbody", {}, row("λ", lambda, ratio), row("Workers per key", cost, decimal), row("Hot keys", hot, whole), row("Fan-out of all others", cold, whole)),
  );
  if (!widths.length) return [table];
  const shown = widths.slice(0, LONGEST).map((change) => {
    const key = element("bdi", { class: "key", title: keyText(change) });
    writeKey(key, change, 80);
    return element("li", {}, key, element("span", { class: "number" }, `${change.before} → ${change.after}`));
  });
  const more = widths.length > LONGEST ? [element("p", { class: "muted" }, `and ${count(widths.length - LONGEST, "other key")}`)] : [];
  return [table, element("h4", {}, "Fan-out"), element("ul", { class: "widths" }, ...shown), ...more];
}
