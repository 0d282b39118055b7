// The form of the grouping's settings, made of their descriptions: try, then apply.

import { read } from "./api.js";
import { byId, element, set, show, write } from "./dom.js";
import { value as asText } from "./format.js";
import { Trial } from "./trial.js";

export class Thresholds {
  #fields = [];
  #grouping = null;
  #etag = null;
  #trial = new Trial("thresholds", "PATCH", {
    path: "thresholds",
    change: () => this.#change(),
    etag: () => this.#etag,
    applied: () => this.load(true),
  });

  constructor() {
    byId("thresholds-reset").addEventListener("click", () => {
      this.#trial.forget();
      this.load(true);
    });
    byId("thresholds").addEventListener("input", () => this.#fields.forEach((field) => field.mark()));
  }

  /** Asks for the values in force; edits stay unless `reload`. */
  async load(reload = false) {
    try {
      const { data, etag } = await read("thresholds");
      const edited = this.#grouping === data.grouping && this.#fields.some((field) => field.edited);
      if (edited && !reload) {
        // The version is one for all that can be set: edits stand as long as these values are the same.
        if (data.settings.every((setting, index) => this.#fields[index]?.shows(setting))) this.#etag = etag;
        return;
      }
      this.#etag = etag;
      this.#show(data);
    } catch (problem) {
      this.#trial.say(problem.message, "bad");
    }
  }

  #show({ grouping, settings }) {
    const names = this.#fields.map((field) => field.name).join();
    if (grouping !== this.#grouping || names !== settings.map((setting) => setting.name).join()) {
      this.#grouping = grouping;
      this.#trial.forget();
      this.#fields = settings.map((setting) => new Field(setting));
      byId("thresholds-fields").replaceChildren(...this.#fields.map((field) => field.node));
    }
    this.#fields.forEach((field, index) => field.take(settings[index]));
    write(byId("thresholds-title"), `Thresholds of ${grouping}`);
    write(byId("thresholds-empty"), `${grouping} has nothing to set.`);
    show(byId("thresholds-empty"), settings.length === 0);
    for (const part of ["try", "apply", "reset"]) show(byId(`thresholds-${part}`), settings.length > 0);
  }

  #change() {
    const edited = this.#fields.filter((field) => field.edited);
    return edited.length ? Object.fromEntries(edited.map((field) => [field.name, field.parsed()])) : null;
  }
}

/** One setting: a control that fits its kind, with meaning, range and default below it. */
class Field {
  #control;
  #kind;
  #hint;
  #shown = "";

  constructor({ name, kind, unit }) {
    this.name = name;
    this.#kind = kind;
    const id = `setting-${name}`;
    this.#control = control(kind);
    set(this.#control, "id", id);
    set(this.#control, "aria-describedby", `${id}-hint`);
    this.#hint = element("p", { class: "hint", id: `${id}-hint` });
    const input = element("div", { class: "input" }, this.#control, ...(unit ? [element("span", { class: "unit" }, unit)] : []));
    this.node = element("div", { class: "field" }, element("label", { for: id }, name), input, this.#hint);
  }

  get edited() {
    return this.#control.value !== this.#shown;
  }

  /** Whether this is the value that was edited. */
  shows({ name, value }) {
    return name === this.name && this.#text(value) === this.#shown;
  }

  /** Shows the value in force. */
  take({ value, meaning, range, default: standard }) {
    this.#shown = this.#text(value);
    this.#control.value = this.#shown;
    const limits = [range, nullable(this.#kind) ? "empty: none" : "", `default ${asText(standard)}`];
    write(this.#hint, `${meaning} (${limits.filter(Boolean).join("; ")})`);
    this.mark();
  }

  /** Marks it if it differs from what is in force. */
  mark() {
    this.node.classList.toggle("edited", this.edited);
    set(this.#control, "aria-invalid", null);
  }

  /** The value as JSON data; throws an Error if it is no value of this kind. */
  parsed() {
    try {
      return parse(this.#control.value.trim(), this.#kind);
    } catch (fault) {
      set(this.#control, "aria-invalid", "true");
      this.#control.focus();
      throw new Error(`${this.name} ${fault.message}`, { cause: fault });
    }
  }

  #text(value) {
    if (value === null) return "";
    return Array.isArray(value) ? value.join(", ") : String(value);
  }
}

const nullable = (kind) => kind.split(" or ").includes("null");
const choices = (kind) => {
  if (kind.startsWith("true or false")) return ["true", "false"];
  return kind.startsWith("one of ") ? kind.replace(/^one of /, "").replace(/ or null$/, "").split(", ") : null;
};

function control(kind) {
  const options = choices(kind);
  if (!options) return element("input", { type: "text", autocomplete: "off", spellcheck: "false", ...(/number|integer/.test(kind) && { inputmode: "decimal" }) });
  const none = nullable(kind) ? [new Option("none", "")] : [];
  return element("select", {}, ...none, ...options.map((option) => new Option(option, option)));
}

/** A value of a kind such as "a number or null" from its text. */
export function parse(text, kind) {
  if (text === "" && nullable(kind)) return null;
  if (choices(kind)) return kind.startsWith("true") ? text === "true" : text;
  if (kind.startsWith("a list")) return text === "" ? [] : text.split(/[\s,;]+/).filter(Boolean).map((one) => number(one, "must be a list of numbers"));
  if (kind.includes("integer")) {
    const value = number(text, "must be a whole number");
    if (!Number.isInteger(value)) throw new Error("must be a whole number");
    return value;
  }
  return kind.includes("number") ? number(text, "must be a number") : text;
}

function number(text, message) {
  const value = text === "" ? NaN : Number(text);
  if (!Number.isFinite(value)) throw new Error(message);
  return value;
}
