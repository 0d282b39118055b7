// The numbers of this moment: λ before and after, rate, cost, keys, lag; and what the header says of the router.

import { byId, fill, set, write } from "./dom.js";
import { NONE, compact, count, decimal, duration, ratio, whole } from "./format.js";

/** `report` is the last interval, `previous` the one before it, `workers` the last answer of /workers; each may be null. */
export function updateNow(report, previous, workers, grouping) {
  if (report) {
    updateLambda(report);
    updateTiles(report, previous);
    updateFacts(report, grouping);
  }
  updateLag(workers);
}

function updateLambda(report) {
  const { lambda: now, lambda_before: before, least_share: least } = report;
  const most = Math.max(now ?? 1, before ?? 1);
  write(byId("lambda"), ratio(now));
  write(byId("after-name"), report.grouping);
  write(byId("after-value"), ratio(now));
  write(byId("least-value"), decimal(least));
  write(byId("before-value"), ratio(before));
  fill(byId("after-bar"), now / most);
  fill(byId("least-bar"), least / most);
  fill(byId("before-bar"), before / most);
  write(byId("lambda-words"), now === null ? "No traffic yet: λ needs events." : lambdaWords(report.workers, now, before));
}

function lambdaWords(workers, now, before) {
  if (workers === 1) return "One worker: λ is always 1.";
  const more = Math.round((now - 1) * 100);
  const first = more > 0 ? `The fullest worker has ${whole(more)} % more than its due share.` : "All workers have about their due share.";
  const saved = Math.round((1 - now / before) * 100);
  if (saved >= 2) return `${first} By key hashing it would have ${ratio(before / now)} times as much.`;
  return `${first} Key hashing would give the same.`;
}

function updateTiles(report, previous) {
  const seconds = previous ? (Date.parse(report.at) - Date.parse(previous.at)) / 1000 : 0;
  const events = previous ? report.events - previous.events : -1;
  write(byId("rate"), seconds > 0 && events >= 0 ? compact(events / seconds) : NONE);
  write(byId("rate-words"), `${compact(report.events)} since the start`);
  write(byId("dist-cost"), decimal(report.dist_cost));
  write(byId("total-keys"), compact(report.total_keys));
  write(byId("keys-words"), `about; ${compact(report.tracked_keys)} of them counted`);
}

function updateFacts(report, grouping) {
  const parts = [report.grouping, count(report.workers, "worker"), `epoch ${whole(report.epoch)}`, count(report.replicas.length, "replica")];
  if (grouping?.observe_only) parts.push("observe only");
  write(byId("facts"), parts.join(" · "));
  set(byId("facts"), "title", `Replicas: ${report.replicas.join(", ")}`);
  write(byId("foot"), `Loads are sums over intervals of ${duration(report.interval_seconds)}.`);
}

function updateLag(workers) {
  write(byId("lag"), compact(workers?.total_lag ?? null));
  write(byId("lag-words"), workers && workers.total_lag === null ? "not known" : "routed, not yet processed");
}
