// How the plan fills the workers: light keys below, hot keys poured on top of them up to one level.

import { Chart, ticks, writeLabels } from "./chart.js";
import { Rows, byId, element, set, shape, show, write } from "./dom.js";
import { count, keyText, percent, ratio, writeKey } from "./format.js";

const HEIGHT = 230;
const LEFT = 52;
const TOP = 12;
const BOTTOM = 24;
const MOST_MEMBERS = 6;

export class Filling {
  #chart = new Chart(byId("filling-chart"), HEIGHT, "Plan of the workers' loads", () => this.#draw());
  #grid = shape("path", { class: "grid" });
  #light = shape("path", { class: "light" });
  #poured = shape("path", { class: "poured" });
  #level = shape("path", { class: "ideal" });
  #numbers = shape("g", { class: "labels" });
  #scale = shape("g", { class: "labels" });
  #keys;
  #workers = new Rows(byId("filling-rows"), workerRow);
  #details = byId("filling-details");
  #plan = null;
  #pitch = 0;
  #pointed = null;

  /** `explain(key)` is called when a key is clicked. */
  constructor(explain) {
    this.#keys = new Rows(byId("filling-keys"), () => keyRow(explain));
    this.#chart.svg.append(this.#grid, this.#light, this.#poured, this.#level, this.#numbers, this.#scale);
    this.#chart.point((x) => this.#point(x));
    this.#details.addEventListener("toggle", () => this.#list());
  }

  /** `plan` is the last answer of /plan or null; it has no filling if the grouping fills nothing. */
  update(plan) {
    if (plan === this.#plan) return;
    this.#plan = plan;
    const filling = plan?.filling ?? null;
    for (const part of [byId("filling"), byId("filling-link")]) show(part, filling !== null);
    if (!filling) return;
    write(byId("filling-words"), words(filling));
    show(byId("filling-scroll"), filling.keys.length > 0);
    this.#keys.show(filling.keys, (key) => key.id);
    this.#draw();
    this.#list();
  }

  #draw() {
    const { width, svg } = this.#chart;
    const filling = this.#plan?.filling;
    if (!width || !filling) return;
    const { workers } = filling;
    const marks = ticks(Math.max(...workers.map((worker) => Math.max(worker.light + worker.hot, worker.fair))));
    const pitch = (width - LEFT) / workers.length;
    const y = (share) => HEIGHT - BOTTOM - (share / marks.at(-1)) * (HEIGHT - TOP - BOTTOM);
    this.#pitch = pitch;
    this.#bars(workers, pitch, y);
    this.#frame(filling, pitch, y, marks, width);
    set(svg, "aria-label", words(filling));
    this.#read();
  }

  #bars(workers, pitch, y) {
    const bar = pitch >= 5 ? Math.min(64, pitch * 0.74) : pitch * 0.9;
    const box = (index, from, to) =>
      `M${(LEFT + index * pitch + (pitch - bar) / 2).toFixed(2)} ${y(from).toFixed(1)}h${bar.toFixed(2)}V${y(to).toFixed(1)}h${(-bar).toFixed(2)}z`;
    set(this.#light, "d", workers.map((worker, index) => box(index, 0, worker.light)).join(""));
    const poured = workers.map((worker, index) => (worker.hot > 0 ? box(index, worker.light, worker.light + worker.hot) : ""));
    set(this.#poured, "d", poured.join("") || "M0 0");
  }

  #frame({ workers, level }, pitch, y, marks, width) {
    set(this.#grid, "d", marks.map((mark) => `M${LEFT} ${Math.round(y(mark)) + 0.5}H${width}`).join(""));
    const height = (worker) => y((level ?? 1) * worker.fair).toFixed(1);
    const line = workers.map((worker, index) => `${index ? "V" : `M${LEFT} `}${height(worker)}H${(LEFT + (index + 1) * pitch).toFixed(1)}`);
    set(this.#level, "d", line.join(""));
    writeLabels(this.#scale, marks.map((mark) => ({ x: LEFT - 8, y: y(mark) + 4, text: percent(mark), anchor: "end" })));
    const each = [1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000].find((step) => step * pitch >= 30) ?? 2000;
    const numbered = workers.filter((worker) => worker.worker % each === 0);
    writeLabels(this.#numbers, numbered.map(({ worker }) => ({ x: LEFT + (worker + 0.5) * pitch, y: HEIGHT - 7, text: String(worker) })));
  }

  #point(x) {
    this.#pointed = x === null || !this.#pitch ? null : Math.floor((x - LEFT) / this.#pitch);
    this.#read();
  }

  #read() {
    const worker = this.#plan.filling.workers[this.#pointed];
    write(byId("filling-readout"), worker ? describe(worker, this.#plan.filling.keys) : "");
  }

  #list() {
    if (this.#details.open && this.#plan?.filling) this.#workers.show(this.#plan.filling.workers, (worker) => worker.worker);
  }
}

function words({ level, hot_keys, workers }) {
  const all = count(workers.length, "worker");
  if (!hot_keys) return `No key is hot: each of ${all} gets whole keys of about its fair share.`;
  const poured = percent(workers.reduce((sum, worker) => sum + worker.hot, 0));
  const to = level === null ? "" : `, up to ${ratio(level)} of the fair share on each`;
  return `${count(hot_keys, "hot key")} with ${poured} of the weight ${hot_keys === 1 ? "is" : "are"} poured over ${all} above the light keys${to}.`;
}

function describe(worker, keys) {
  const own = keys.flatMap((key) => key.members.filter((member) => member.worker === worker.worker).map((member) => `${keyText(key, 20)} ${percent(member.share)}`));
  const most = own.length > 3 ? `${own.slice(0, 3).join(", ")} and ${own.length - 3} more` : own.join(", ");
  return (
    `worker ${worker.worker}: ${percent(worker.light)} light keys, ${percent(worker.hot)} hot ones${most ? ` (${most})` : ""}; ` +
    `${percent(worker.room)} were free for them; now at ${ratio(worker.filled)} of the level.`
  );
}

function keyRow(explain) {
  const button = element("button", { type: "button", class: "key", dir: "auto" });
  const share = element("td", { class: "number" });
  const members = element("td", { class: "muted" });
  let current = null;
  button.addEventListener("click", () => explain(current));
  return {
    node: element("tr", {}, element("th", { scope: "row" }, button), share, members),
    update(key) {
      current = key;
      writeKey(button, key);
      write(share, percent(key.share));
      const shown = key.members.slice(0, MOST_MEMBERS).map((member) => `${member.worker}: ${percent(member.share)}`);
      const rest = key.members.length - shown.length;
      write(members, shown.join(", ") + (rest ? ` and ${rest} more` : ""));
    },
  };
}

function workerRow() {
  const cells = Array.from({ length: 6 }, (_, index) => (index ? element("td", { class: "number" }) : element("th", { scope: "row" })));
  return {
    node: element("tr", {}, ...cells),
    update(worker) {
      const shares = [worker.fair, worker.light, worker.hot, worker.room].map(percent);
      [String(worker.worker), ...shares, ratio(worker.filled)].forEach((text, index) => write(cells[index], text));
    },
  };
}
