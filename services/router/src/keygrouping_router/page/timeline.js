// λ over time, beside what key hashing would have given, with the plans and changes marked where they happened.

import { Chart, writeLabels } from "./chart.js";
import { byId, set, shape, write } from "./dom.js";
import { count, ratio, shortTime, time } from "./format.js";

const HEIGHT = 240;
const LEFT = 38;
const RIGHT = 10;
const TOP = 14;
const BOTTOM = 26;
const FOOT = 10; // below λ = 1, for the marks of plans
const MARKS = [1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000];
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400];
const LONGEST = 720;

export class Timeline {
  #chart = new Chart(byId("timeline-chart"), HEIGHT, "Imbalance over time", () => this.#draw());
  #grid = shape("path", { class: "grid" });
  #plans = shape("path", { class: "plan" });
  #controls = shape("path", { class: "control" });
  #before = shape("path", { class: "line before" });
  #after = shape("path", { class: "line after" });
  #dot = shape("circle", { class: "dot after", r: 3.5 });
  #scale = shape("g", { class: "labels" });
  #times = shape("g", { class: "labels" });
  #points = [];
  #marks = { plans: [], controls: [] };
  #axis = null;
  #pointed = null;

  constructor() {
    this.#chart.svg.append(this.#grid, this.#plans, this.#controls, this.#before, this.#after, this.#dot, this.#scale, this.#times);
    this.#chart.point((x) => {
      this.#pointed = x;
      this.#read();
    });
  }

  /** Takes an interval's report; one that is not newer than the last is known already. */
  add(report) {
    const at = Date.parse(report.at);
    if (this.#points.length && at <= this.#points.at(-1).at) return;
    const value = (given) => (given === null ? NaN : Math.max(1, given));
    this.#points.push({ at, after: value(report.lambda), before: value(report.lambda_before), seconds: report.interval_seconds });
    if (this.#points.length > LONGEST) this.#points.shift();
  }

  /** `plans` and `controls` have a time `at` each. */
  update(plans, controls) {
    this.#marks = { plans: plans.filter((plan) => plan.at), controls };
    this.#draw();
  }

  #draw() {
    const { width, svg } = this.#chart;
    const points = this.#points.filter((point) => Number.isFinite(point.after));
    if (!width) return;
    this.#chart.say(points.length > 1 ? null : "The line begins with the second interval that has events.");
    if (points.length < 2) {
      this.#axis = null;
      this.#read();
      return;
    }
    const from = this.#points[0].at;
    const to = this.#points.at(-1).at;
    const most = points.reduce((top, point) => Math.max(top, point.after, point.before), 1.2);
    const top = MARKS.find((mark) => mark >= most) ?? most;
    const x = (at) => LEFT + ((at - from) / (to - from)) * (width - LEFT - RIGHT);
    const y = (lambda) => HEIGHT - BOTTOM - FOOT - (Math.log(lambda) / Math.log(top)) * (HEIGHT - TOP - BOTTOM - FOOT);
    this.#axis = { from, to, x };
    this.#frame(width, top, x, y);
    this.#lines(x, y);
    set(svg, "aria-label", summary(points));
    this.#read();
  }

  #frame(width, top, x, y) {
    const { from, to } = this.#axis;
    const marks = MARKS.filter((mark) => mark <= top).filter((mark, _, all) => top <= 20 || ![1.2, 1.5, 3].includes(mark) || all.length < 6);
    set(this.#grid, "d", marks.map((mark) => `M${LEFT} ${Math.round(y(mark)) + 0.5}H${width - RIGHT}`).join(""));
    writeLabels(this.#scale, marks.map((mark) => ({ x: LEFT - 8, y: y(mark) + 4, text: String(mark), anchor: "end" })));
    const seconds = (to - from) / 1000;
    const step = STEPS.find((one) => (seconds / one) * 74 <= width - LEFT - RIGHT) ?? Math.ceil(seconds / 4);
    const offset = new Date(from).getTimezoneOffset() * 60;
    const first = Math.ceil((from / 1000 - offset) / step) * step + offset;
    const times = [];
    for (let at = first * 1000; at <= to; at += step * 1000) {
      if (x(at) > LEFT + 12 && x(at) < width - RIGHT - 16) times.push({ x: x(at), y: HEIGHT - 7, text: shortTime(at, step < 60) });
    }
    writeLabels(this.#times, times);
  }

  #lines(x, y) {
    set(this.#after, "d", path(this.#points, "after", x, y));
    set(this.#before, "d", path(this.#points, "before", x, y));
    const last = this.#points.at(-1);
    set(this.#dot, "visibility", Number.isFinite(last.after) ? null : "hidden");
    if (Number.isFinite(last.after)) {
      set(this.#dot, "cx", x(last.at).toFixed(1));
      set(this.#dot, "cy", y(last.after).toFixed(1));
    }
    const low = HEIGHT - BOTTOM;
    const places = (marks) => [...new Set(this.#visible(marks).map((mark) => x(Date.parse(mark.at)).toFixed(1)))];
    set(this.#plans, "d", places(this.#marks.plans).map((at) => `M${at} ${low - 6}l-4 6h8z`).join("") || "M0 0");
    const controls = places(this.#marks.controls).map((at) => `M${at} ${TOP + 6}V${low}M${at} ${TOP - 4}l5 5l-5 5l-5 -5z`);
    set(this.#controls, "d", controls.join("") || "M0 0");
  }

  #visible(marks) {
    return marks.filter((mark) => Date.parse(mark.at) >= this.#axis.from && Date.parse(mark.at) <= this.#axis.to);
  }

  #read() {
    write(byId("timeline-readout"), this.#axis ? this.#reading() : "");
  }

  #reading() {
    const { from, to, x } = this.#axis;
    if (this.#pointed === null) {
      const marked = [count(this.#visible(this.#marks.plans).length, "plan"), count(this.#visible(this.#marks.controls).length, "change")];
      return `${time(from)} to ${time(to)}: ${marked.join(", ")}.`;
    }
    const nearest = (items, at) => items.reduce((best, item) => (Math.abs(x(at(item)) - this.#pointed) < Math.abs(x(at(best)) - this.#pointed) ? item : best));
    const point = nearest(this.#points, (one) => one.at);
    const numbers = Number.isFinite(point.after) ? `λ ${ratio(point.after)}, key hashing ${ratio(point.before)}` : "no events";
    const near = (marks) => this.#visible(marks).filter((mark) => Math.abs(x(Date.parse(mark.at)) - this.#pointed) < 5);
    const plan = near(this.#marks.plans)[0];
    const control = near(this.#marks.controls)[0];
    return `${time(point.at)}: ${numbers}${plan ? `, plan of epoch ${plan.epoch}` : ""}${control ? `, ${control.what} changed` : ""}.`;
  }
}

/** A line through the points; intervals that are missing or had no events break it. */
function path(points, name, x, y) {
  let pen = "M";
  let last = null;
  return points
    .map((point) => {
      const missing = last !== null && point.at - last > 3500 * point.seconds;
      last = point.at;
      if (!Number.isFinite(point[name])) {
        pen = "M";
        return "";
      }
      const piece = `${missing ? "M" : pen}${x(point.at).toFixed(1)} ${y(point[name]).toFixed(1)}`;
      pen = "L";
      return piece;
    })
    .join("");
}

function summary(points) {
  const last = points.at(-1);
  const highest = Math.max(...points.map((point) => point.after));
  return `Imbalance from ${time(points[0].at)} to ${time(last.at)}: λ is now ${ratio(last.after)}, at most it was ${ratio(highest)}; key hashing would give ${ratio(last.before)}.`;
}
