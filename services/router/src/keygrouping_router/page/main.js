// Puts the page together: what comes from the router goes into one state, and each frame draws what has changed.

import { askForToken, read, readiness, renewToken } from "./api.js";
import { updateChanges } from "./changes.js";
import { Explain } from "./explain.js";
import { Filling } from "./filling.js";
import { GroupingForm } from "./grouping.js";
import { Keys } from "./keys.js";
import { Loads } from "./loads.js";
import { updateNow } from "./now.js";
import { Overrides } from "./overrides.js";
import { Scale } from "./scale.js";
import { Shadow } from "./shadow.js";
import { Spaces } from "./spaces.js";
import { Status } from "./status.js";
import { Stream } from "./stream.js";
import { Thresholds } from "./thresholds.js";
import { Timeline } from "./timeline.js";
import { enterToken } from "./token.js";

const KEPT = 500;
const SLOW = 2000; // ms between two questions for what no event brings
const state = { report: null, previous: null, workers: null, plan: null, grouping: null, plans: [], controls: [] };

const loads = new Loads();
const timeline = new Timeline();
const overrides = new Overrides();
const explain = new Explain((key) => overrides.choose(key));
const keys = new Keys((key) => explain.open(key));
const filling = new Filling((key) => explain.open(key));
const spaces = new Spaces((space) => keys.choose(space));
const shadow = new Shadow();
const groupingForm = new GroupingForm();
const thresholds = new Thresholds();
const scale = new Scale();
const status = new Status(token);
askForToken(enterToken);

let drawing = false;

/** Draws once in the next frame, however much has come until then. */
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    const begin = performance.now();
    update();
    performance.measure("update", { start: begin });
  });
}

function update() {
  const { report, previous, workers, plan, grouping, plans, controls } = state;
  updateNow(report, previous, workers, grouping);
  loads.update(report, workers);
  filling.update(plan);
  timeline.update(plans, controls);
  spaces.update(report);
  updateChanges(plans, controls);
  if (state.fresh) {
    state.fresh = false;
    keys.update(report);
  }
  status.draw();
}

const handlers = {
  interval(report) {
    state.previous = state.report;
    state.report = report;
    state.fresh = true;
    timeline.add(report);
    status.report(report);
    poll();
    draw();
  },
  plan(plan) {
    state.plans = [plan, ...state.plans.filter((one) => one.epoch !== plan.epoch)].slice(0, KEPT);
    draw();
  },
  control(entry) {
    state.controls = [entry, ...state.controls.filter((one) => one.version !== entry.version)].slice(0, KEPT);
    reload();
    draw();
  },
};

const stream = new Stream(
  "events",
  (name, data) => handlers[name]?.(data),
  (connection, detail) => {
    status.connection(connection, detail);
    if (connection === "open") reload();
    else poll();
  },
);

async function token() {
  if (await renewToken()) stream.hurry();
}

/** Asks for a path and hands on the answer; what can't be had now is asked for again later. */
async function ask(path, take) {
  try {
    const { data, etag } = await read(path);
    take(data, etag);
    draw();
  } catch {
    // The state of the connection says it.
  }
}

/** Asks for a history, newest first, and keeps in front of it what the stream has brought since. */
function askHistory(path, name, number) {
  const before = new Set(state[name]);
  ask(path, ({ entries }) => {
    const told = new Set(entries.map((entry) => entry[number]));
    const since = state[name].filter((entry) => !before.has(entry) && !told.has(entry[number]));
    state[name] = [...since, ...entries].slice(0, KEPT);
  });
}

/** All that changes only when somebody changes it, or when another router answers. */
function reload() {
  ask("grouping", (data, etag) => {
    state.grouping = data;
    groupingForm.update(data, etag);
    status.grouping(data);
    shadow.offer(data);
  });
  askHistory("plan/history?limit=100", "plans", "epoch");
  askHistory("thresholds/history", "controls", "version");
  thresholds.load();
  poll(true);
}

let polled = 0;

/** What changes by itself and comes with no event: lag, readiness, shadow. */
function poll(now = false) {
  if (!now && performance.now() - polled < SLOW) return;
  polled = performance.now();
  ask("workers", (data, etag) => {
    state.workers = data;
    scale.update(data, etag);
  });
  ask("overrides", (data, etag) => overrides.update(data, etag, state.workers));
  ask("plan", (data) => (state.plan = data));
  ask("shadow", (data) => {
    shadow.update(data);
    groupingForm.compare(data);
  });
  explain.refresh();
  readiness().then(
    (report) => {
      status.readiness(report);
      status.draw();
    },
    () => {},
  );
}

setInterval(() => {
  status.draw();
  if (performance.now() - polled > 5000 && !document.hidden) poll();
}, 1000);
