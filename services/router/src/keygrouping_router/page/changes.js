// The last plans and changes as a list: what happened when, in words.

import { Rows, byId, element, show, write } from "./dom.js";
import { count, time, value, whole } from "./format.js";

const LONGEST = 8;
const rows = new Rows(byId("changes"), changeRow);

/** Both newest first, as the histories are. */
export function updateChanges(plans, controls) {
  const telling = withoutIdle(plans);
  const entries = [
    ...telling.slice(0, LONGEST).map((plan) => ({ at: plan.at, kind: "plan", head: `Plan of epoch ${whole(plan.epoch)}`, text: planWords(plan) })),
    ...controls.slice(0, LONGEST).map((entry) => ({ at: entry.at, kind: "control", head: titles[entry.what] ?? entry.what, text: controlWords(entry) })),
  ];
  const newest = entries.sort((a, b) => String(b.at ?? "").localeCompare(String(a.at ?? ""))).slice(0, LONGEST);
  show(byId("changes-empty"), newest.length === 0);
  rows.show(newest, (entry) => `${entry.at} ${entry.head} ${entry.text}`);
}

/** Without plans that moved no key; of those in a row of which nobody knows what they moved, only the newest. */
function withoutIdle(plans) {
  const known = plans.filter((plan) => plan.moved_keys !== 0);
  return known.filter((plan, index) => plan.moved_keys !== null || known[index - 1]?.moved_keys !== null || index === 0);
}

const titles = { thresholds: "Thresholds", grouping: "Grouping", workers: "Workers", shadow: "Comparison", overrides: "Single keys" };

function planWords(plan) {
  const parts = [];
  if (plan.hot_keys !== null) parts.push(count(plan.hot_keys, "hot key"));
  if (plan.moved_keys !== null) parts.push(`${whole(plan.moved_keys)} moved`);
  if (plan.part) parts.push("made inside an interval");
  if (plan.feasible === false) parts.push("not within what was asked");
  return parts.join(", ") || `${plan.grouping} for ${count(plan.workers, "worker")}`;
}

function controlWords(entry) {
  const names = Object.keys({ ...entry.before, ...entry.after });
  const changed = names.filter((name) => JSON.stringify(entry.before[name]) !== JSON.stringify(entry.after[name]));
  const words = changed.slice(0, 4).map((name) => `${name} ${value(entry.before[name])} → ${value(entry.after[name])}`);
  if (changed.length > 4) words.push(`and ${changed.length - 4} more`);
  return `${words.join("; ") || "set again"} (by ${entry.by})`;
}

function changeRow() {
  const when = element("time", { class: "muted" });
  const head = element("b");
  const text = element("span");
  const node = element("li", {}, element("p", {}, head, " ", when), element("p", { class: "muted" }, text));
  return {
    node,
    update(entry) {
      node.dataset.kind = entry.kind;
      write(when, entry.at ? time(entry.at) : "");
      write(head, entry.head);
      write(text, entry.text);
    },
  };
}
