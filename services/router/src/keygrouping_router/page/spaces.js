// The spaces of the KeySpace: counted keys in each, how full it is, and what it is for. Choosing one shows its keys.

import { Rows, byId, element, fill, set, show, write } from "./dom.js";
import { count, whole } from "./format.js";

export class Spaces {
  #rows;

  /** `chosen(name)` is called with a space's name when its keys are wanted. */
  constructor(chosen) {
    this.#rows = new Rows(byId("spaces"), () => spaceRow(chosen));
  }

  update(report) {
    const spaces = report?.spaces ?? [];
    this.#rows.show(spaces, (space) => space.name);
    show(byId("spaces-empty"), spaces.length === 0);
    write(byId("spaces-empty"), report ? `${report.grouping} keeps no spaces of keys.` : "Waiting for the first interval.");
  }
}

function spaceRow(chosen) {
  const button = element("button", { type: "button", class: "link" });
  const size = element("span", { class: "number" });
  const bar = element("i");
  const track = element("span", { class: "track", "aria-hidden": "true" }, bar);
  const meaning = element("p", { class: "muted" });
  button.addEventListener("click", () => chosen(button.textContent));
  return {
    node: element("li", {}, element("p", { class: "head" }, button, size), track, meaning),
    update(space) {
      write(button, space.name);
      set(button, "title", `Show the keys of ${space.name}`);
      write(size, count(space.size, "key"));
      show(track, space.capacity !== null);
      fill(bar, space.capacity ? space.kept / space.capacity : 0);
      write(meaning, space.capacity === null ? space.meaning : `${space.meaning}; it holds ${whole(space.kept)} of ${whole(space.capacity)}`);
    },
  };
}
