// Load of each worker as bars with the ideal line, and the same as a table.

import { Chart, ticks, writeLabels } from "./chart.js";
import { Rows, byId, element, set, shape, write } from "./dom.js";
import { compact, count, duration, percent, ratio, whole } from "./format.js";

const HEIGHT = 230;
const LEFT = 46;
const TOP = 34;
const BOTTOM = 24;

export class Loads {
  #chart = new Chart(byId("load-chart"), HEIGHT, "Load of the workers", () => this.#draw());
  #grid = shape("path", { class: "grid" });
  #within = shape("path", { class: "within" });
  #over = shape("path", { class: "over" });
  #ideal = shape("path", { class: "ideal" });
  #numbers = shape("g", { class: "labels" });
  #values = shape("g", { class: "labels strong" });
  #scale = shape("g", { class: "labels" });
  #rows = new Rows(byId("load-rows"), workerRow);
  #details = byId("load-details");
  #seconds = null;
  #items = [];
  #idle = [];
  #place = null;
  #pointed = null;

  constructor() {
    this.#chart.svg.append(this.#grid, this.#within, this.#over, this.#ideal, this.#numbers, this.#values, this.#scale);
    this.#chart.point((x) => this.#point(x));
    this.#details.addEventListener("toggle", () => this.#list());
  }

  /** `report` is the last interval or null, `workers` the last answer of /workers or null. */
  update(report, workers) {
    const all = itemsOf(report, workers);
    this.#seconds = report?.interval_seconds ?? this.#seconds;
    this.#items = all.filter((item) => item.state === "active");
    this.#idle = all.filter((item) => item.state === "draining");
    this.#draw();
    this.#list();
  }

  #draw() {
    const { width, svg } = this.#chart;
    if (!width) return;
    const items = this.#items;
    const total = items.reduce((sum, item) => sum + item.load, 0);
    this.#chart.say(total > 0 ? null : items.length ? "No events in the last interval." : "Waiting for the first interval.");
    if (!(total > 0)) {
      this.#place = null;
      this.#read();
      return;
    }
    const marks = ticks(Math.max(...items.map((item) => Math.max(item.load, item.ideal))));
    const top = marks.at(-1);
    const pitch = (width - LEFT) / items.length;
    const y = (load) => HEIGHT - BOTTOM - (load / top) * (HEIGHT - TOP - BOTTOM);
    this.#place = { pitch };
    this.#bars(items, pitch, y);
    this.#frame(items, pitch, y, marks, width);
    set(svg, "aria-label", summary(items));
    this.#read();
  }

  #bars(items, pitch, y) {
    const bar = pitch >= 5 ? Math.min(64, pitch * 0.74) : pitch * 0.9;
    const box = (left, from, to) => `M${left.toFixed(2)} ${y(from).toFixed(1)}h${bar.toFixed(2)}V${y(to).toFixed(1)}h${(-bar).toFixed(2)}z`;
    const left = (index) => LEFT + index * pitch + (pitch - bar) / 2;
    set(this.#within, "d", items.map((item, index) => box(left(index), 0, Math.min(item.load, item.ideal))).join(""));
    const over = items.map((item, index) => (item.load > item.ideal ? box(left(index), item.ideal, item.load) : ""));
    set(this.#over, "d", over.join("") || "M0 0");
  }

  #frame(items, pitch, y, marks, width) {
    const right = LEFT + pitch * items.length;
    set(this.#grid, "d", marks.map((mark) => `M${LEFT} ${Math.round(y(mark)) + 0.5}H${width}`).join(""));
    const line = items.map((item, index) => `${index ? "V" : `M${LEFT} `}${y(item.ideal).toFixed(1)}H${(LEFT + (index + 1) * pitch).toFixed(1)}`);
    set(this.#ideal, "d", line.join("") + `H${right.toFixed(1)}`);
    const scale = marks.map((mark) => ({ x: LEFT - 8, y: y(mark) + 4, text: compact(mark), anchor: "end" }));
    const unit = { x: 2, y: 11, text: this.#seconds ? `weight per ${duration(this.#seconds)}` : "weight", anchor: "start" };
    writeLabels(this.#scale, [...scale, unit]);
    const middle = (index) => LEFT + (index + 0.5) * pitch;
    const each = [1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000].find((step) => step * pitch >= 30) ?? 2000;
    const numbered = items.filter((item) => item.worker % each === 0);
    writeLabels(this.#numbers, numbered.map((item) => ({ x: middle(items.indexOf(item)), y: HEIGHT - 7, text: String(item.worker) })));
    const values = pitch >= 52 ? items : [];
    const crosses = (item) => y(item.load) - 22 < y(item.ideal) && item.load < item.ideal;
    const above = (item) => y(crosses(item) ? item.ideal : item.load) - 6;
    writeLabels(this.#values, values.map((item, index) => ({ x: middle(index), y: above(item), text: percent(item.share) })));
  }

  #point(x) {
    const index = x === null || !this.#place ? -1 : Math.floor((x - LEFT) / this.#place.pitch);
    this.#pointed = this.#items[index]?.worker ?? null;
    this.#read();
  }

  #read() {
    const item = this.#items.find((one) => one.worker === this.#pointed);
    write(byId("load-readout"), item ? describe(item) : this.#rest());
  }

  #rest() {
    if (!this.#place) return "";
    const fullest = this.#items.reduce((most, item) => (item.ofIdeal > most.ofIdeal ? item : most));
    const draining = this.#idle.map((item) => `${item.worker} (lag ${whole(item.lag)})`);
    const only = this.#items.length === 1;
    const parts = [only ? "One worker: it gets everything, so there is nothing to balance" : `Fullest: ${describe(fullest)}`];
    if (draining.length) parts.push(`draining: ${draining.slice(0, 6).join(", ")}${draining.length > 6 ? ` and ${draining.length - 6} more` : ""}`);
    return `${parts.join("; ")}.`;
  }

  #list() {
    if (this.#details.open) this.#rows.show([...this.#items, ...this.#idle], (item) => item.worker);
  }
}

/** Workers with their load and what would be their due; lag and capacities come from /workers, a moment older. */
function itemsOf(report, workers) {
  const known = new Map((workers?.items ?? []).map((item) => [item.worker, item]));
  const loads = report?.loads ?? (workers?.items ?? []).filter((item) => item.state === "active").map((item) => item.load);
  const total = loads.reduce((sum, load) => sum + load, 0);
  const capacity = (worker) => known.get(worker)?.capacity ?? 1;
  const capacities = loads.reduce((sum, _, worker) => sum + capacity(worker), 0);
  const active = loads.map((load, worker) => {
    const ideal = (total * capacity(worker)) / capacities;
    const share = total ? load / total : 0;
    return { worker, load, share, ideal, ofIdeal: ideal ? load / ideal : 0, lag: known.get(worker)?.lag ?? null, state: "active" };
  });
  const rest = (workers?.items ?? []).filter((item) => item.state === "draining" && item.worker >= loads.length);
  return [...active, ...rest.map((item) => ({ ...item, ideal: 0, ofIdeal: 0 }))];
}

const describe = (item) =>
  `worker ${item.worker} with a weight of ${whole(item.load)}, ${percent(item.share)} of all, ${ratio(item.ofIdeal)} × ideal` +
  (item.lag === null ? "" : `, lag ${whole(item.lag)}`);

function summary(items) {
  const fullest = items.reduce((most, item) => (item.ofIdeal > most.ofIdeal ? item : most));
  const emptiest = items.reduce((least, item) => (item.ofIdeal < least.ofIdeal ? item : least));
  return `Load of ${count(items.length, "worker")}. Fullest: ${describe(fullest)}. Emptiest: ${describe(emptiest)}.`;
}

function workerRow() {
  const cells = ["", "number", "number", "number", "number", ""].map((kind, index) =>
    index ? element("td", { class: kind }) : element("th", { scope: "row" }),
  );
  return {
    node: element("tr", {}, ...cells),
    update(item) {
      const texts = [item.worker, whole(item.load), percent(item.share), ratio(item.ofIdeal), whole(item.lag), item.state];
      texts.forEach((text, index) => write(cells[index], String(text)));
    },
  };
}
