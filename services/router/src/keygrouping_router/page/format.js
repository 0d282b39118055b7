// Numbers, times and keys as people read them.

import { element } from "./dom.js";

const LOCALE = "en-GB";
const grouped = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 0 });
const compacted = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat(LOCALE, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minutes = new Intl.DateTimeFormat(LOCALE, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(LOCALE, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

export const NONE = "–";
const known = (value) => typeof value === "number" && Number.isFinite(value);

/** 12,345: whole numbers; those below 10 with a decimal if they have one. */
export function whole(value) {
  if (!known(value)) return NONE;
  return Math.abs(value) < 10 && !Number.isInteger(value) ? value.toFixed(1) : grouped.format(value);
}

/** 1.23M for large numbers, 9,876 below 10,000. */
export function compact(value) {
  if (!known(value)) return NONE;
  return Math.abs(value) < 10_000 ? whole(value) : compacted.format(value);
}

export function decimal(value, digits = 2) {
  return known(value) ? value.toFixed(digits) : NONE;
}

/** λ: three digits that tell, and none where there was no load. */
export function ratio(value) {
  return known(value) && value > 0 ? value.toFixed(value < 10 ? 2 : 1) : NONE;
}

/** A share (0 to 1) in per cent: 12.3 %, 0.42 %, < 0.01 %. */
export function percent(share) {
  if (!known(share)) return NONE;
  const value = share * 100;
  if (value > 0 && value < 0.01) return "< 0.01 %";
  return `${value === 0 || value === 100 ? value : value.toFixed(value < 1 ? 2 : 1)} %`;
}

/** 0.5 s, 42 s, 5 min, 2 h 5 min, 3 d 4 h. */
export function duration(seconds) {
  if (!known(seconds)) return NONE;
  if (seconds > 0 && seconds < 1) return `${seconds.toFixed(1)} s`;
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return pair(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return pair(Math.floor(s / 86_400), "d", Math.floor((s % 86_400) / 3600), "h");
}

const pair = (large, unit, small, smaller) => (small ? `${large} ${unit} ${small} ${smaller}` : `${large} ${unit}`);

/** Seconds between an ISO time and `now` (ms); NaN if there is none. */
export function age(iso, now = Date.now()) {
  return iso ? (now - Date.parse(iso)) / 1000 : NaN;
}

/** Time of day in the reader's zone, with the day if it is not today's. */
export function time(moment, now = new Date()) {
  const at = new Date(moment);
  if (Number.isNaN(at.getTime())) return NONE;
  return at.toDateString() === now.toDateString() ? clock.format(at) : day.format(at);
}

/** Time of day for an axis. */
export const shortTime = (moment, seconds) => (seconds ? clock : minutes).format(new Date(moment));

/** Any setting's value as text; a grouping with its settings by its name. */
export function value(given) {
  if (given === null || given === undefined) return "none";
  if (Array.isArray(given)) {
    const listed = given.slice(0, 8).map(value).join(", ") || "none";
    return given.length > 8 ? `${listed}, … (${given.length})` : listed;
  }
  if (typeof given !== "object") return String(given);
  const { name, settings, ...rest } = given;
  const pairs = Object.entries({ ...rest, ...settings }).map(([key, one]) => `${key} ${value(one)}`);
  return [name, pairs.length && name ? `(${pairs.join(", ")})` : pairs.join(", ")].filter(Boolean).join(" ") || "none";
}

/** "12 keys", "1 key". */
export const count = (n, noun) => `${whole(n)} ${noun}${n === 1 ? "" : "s"}`;

/** Workers of a key in short: "0, 3, 7", "all 12", or "0, 1, 2, 3, … 150 in all". */
export function workers(list, all = Infinity, most = 8) {
  if (!list?.length) return NONE;
  if (list.length === all && all > 2) return `all ${all}`;
  if (list.length <= most) return list.join(", ");
  return `${list.slice(0, 4).join(", ")}, … ${list.length} in all`;
}

// C0, DEL, C1, spaces that look like nothing, zero-width and bidirectional controls, lone surrogates.
const UNSEEN =
  // oxlint-disable-next-line no-control-regex, no-misleading-character-class -- it names what is not seen
  /[\u0000-\u001f\u007f-\u00a0\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]|\p{Surrogate}|^ +| +$/gu;

function visible(character) {
  const code = character.codePointAt(0);
  if (code === 0x20) return "·".repeat(character.length);
  const short = { 0: "\\0", 9: "\\t", 10: "\\n", 13: "\\r" }[code];
  return short ?? (code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`);
}

/** Puts a key into a node: control characters visible and marked, at most `most` characters of it. */
export function writeKey(node, key, most = 200) {
  const signature = `${most} ${key.id}`;
  if (node.dataset.shown === signature) return;
  node.dataset.shown = signature;
  node.replaceChildren(...keyNodes(key, most));
}

/** What to call a key that is no text: its base64url form or its hash. */
function keyNodes(key, most) {
  const mark = (text, title) => element("span", { class: "mark", title }, text);
  if (key.key === null || key.key === undefined) {
    if (key.key_base64 !== null && key.key_base64 !== undefined) {
      return [mark("base64", "not UTF-8"), ` ${shorten(key.key_base64, most)}`];
    }
    return [mark("hash", "its name is not known yet"), ` ${key.hash ?? key.id}`];
  }
  if (key.key === "") return [mark("empty", "a key of no characters")];
  return textNodes(shorten(key.key, most), key.key.length - most, mark);
}

function shorten(text, most) {
  const cut = text.slice(0, most);
  return text.length > most ? cut.replace(/[\ud800-\udbff]$/u, "") : cut;
}

function textNodes(text, left, mark) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(UNSEEN)) {
    nodes.push(text.slice(end, match.index), mark(visible(match[0]), name(match[0])));
    end = match.index + match[0].length;
  }
  nodes.push(text.slice(end));
  if (left > 0) nodes.push(mark(`… ${grouped.format(left)} more`, "the key is longer"));
  return nodes.filter((node) => node !== "");
}

const name = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** A key in one line of plain text, for labels. */
export function keyText(key, most = 80) {
  return keyNodes(key, most).map((node) => (typeof node === "string" ? node : node.textContent)).join("");
}
