// What every section needs of the document. Text gets in by textContent only, so no key can become markup.

export const byId = (id) => document.getElementById(id);

/** A new element; `attributes` by name (`class`, `data-x`, ...), children are nodes or text. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** A new SVG element. */
export function shape(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) set(node, name, value);
  node.append(...children);
  return node;
}

/** Sets an attribute if it differs; null or false removes it, true sets it empty. */
export function set(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

/** Sets the text if it differs, so that an update touches only what changed. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function show(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
}

/** Sets the width of a bar, 0 to 1. */
export function fill(bar, part) {
  const width = `${(Math.max(0, Math.min(1, part || 0)) * 100).toFixed(1)}%`;
  if (bar.style.width !== width) bar.style.width = width;
}

/**
 * Rows of a table or list by their id: a row that stays is updated, not replaced, and one that has the focus is never
 * moved (moving would lose the focus): the others are moved around it.
 */
export class Rows {
  #body;
  #make;
  #rows = new Map();

  /** `make()` gives a row as {node, update(item)}. */
  constructor(body, make) {
    this.#body = body;
    this.#make = make;
  }

  /** Shows these items in this order; `id(item)` must be unique. */
  show(items, id) {
    const wanted = new Map(items.map((item) => [id(item), item]));
    for (const [key, row] of this.#rows) {
      if (wanted.has(key)) continue;
      row.node.remove();
      this.#rows.delete(key);
    }
    const ordered = [...wanted].map(([key, item]) => this.#row(key, item).node);
    const focused = ordered.findIndex((node) => node.contains(document.activeElement));
    this.#place(ordered.slice(0, Math.max(focused, 0)), ordered[focused] ?? null);
    this.#place(ordered.slice(focused + 1), null);
  }

  #row(key, item) {
    let row = this.#rows.get(key);
    if (!row) {
      row = this.#make();
      this.#rows.set(key, row);
    }
    row.update(item);
    return row;
  }

  #place(nodes, before) {
    let next = before;
    for (const node of nodes.reverse()) {
      if (node.parentNode !== this.#body || node.nextElementSibling !== next) this.#body.insertBefore(node, next);
      next = node;
    }
  }
}
