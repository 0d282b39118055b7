// The few pieces that both charts are made of: an SVG as wide as its place, ticks, a pointer that reads values off.

import { element, set, shape } from "./dom.js";

/** An SVG that fills its holder; `draw(width)` is called when the width changes. */
export class Chart {
  /** `at(x)` gives the text for a pointer at x, or null; it is written below the chart by `read`. */
  constructor(holder, height, label, draw) {
    this.height = height;
    this.width = 0;
    this.svg = shape("svg", { role: "img", height, "aria-label": label });
    this.note = element("p", { class: "empty over-chart" });
    this.note.hidden = true;
    holder.append(this.svg, this.note);
    new ResizeObserver(() => {
      const width = Math.floor(holder.clientWidth);
      if (width === this.width || width === 0) return;
      this.width = width;
      set(this.svg, "width", width);
      set(this.svg, "viewBox", `0 0 ${width} ${height}`);
      draw();
    }).observe(holder);
  }

  /** Calls `moved(x)` with the pointer's place, and null when it leaves. */
  point(moved) {
    this.svg.addEventListener("pointermove", (event) => moved(event.clientX - this.svg.getBoundingClientRect().left));
    this.svg.addEventListener("pointerleave", () => moved(null));
  }

  /** Says something in place of the chart, or nothing (null). */
  say(text) {
    this.note.hidden = text === null;
    this.note.textContent = text ?? "";
    this.svg.classList.toggle("blank", text !== null);
  }
}

/** Reuses the text elements of a group: `labels` are {x, y, text, anchor}. */
export function writeLabels(group, labels) {
  while (group.children.length > labels.length) group.lastElementChild.remove();
  labels.forEach(({ x, y, text, anchor = "middle" }, index) => {
    const node = group.children[index] ?? group.appendChild(shape("text"));
    set(node, "x", x.toFixed(1));
    set(node, "y", y.toFixed(1));
    set(node, "text-anchor", anchor);
    if (node.textContent !== text) node.textContent = text;
  });
}

/** Round numbers from 0 to at least `top`, about `count` of them. */
export function ticks(top, count = 4) {
  if (!(top > 0)) return [0, 1];
  const rough = top / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 2.5, 5, 10].find((factor) => factor * unit >= rough);
  return Array.from({ length: Math.ceil(top / step) + 1 }, (_, index) => index * step);
}
