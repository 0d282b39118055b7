// Server-sent events by fetch: unlike EventSource it can send the token, asks for what was kept from before the page was
// opened, comes back after any error, and notices a connection that died without a word.

import { authorization, problemOf } from "./api.js";

const SILENCE = 40_000; // the router sends a heartbeat each 15 s
const SLOWEST = 15_000;

/**
 * Follows the events at `path` for as long as the page lives.
 * `onEvent(name, data)` gets each event; `onState("open" | "lost" | "refused", detail)` each change of the connection,
 * with what the router says of it, if it says anything.
 */
export class Stream {
  #path;
  #onEvent;
  #onState;
  #lastId = "0";
  #retry = 2000;
  #failures = 0;
  #wake = () => {};

  constructor(path, onEvent, onState) {
    this.#path = path;
    this.#onEvent = onEvent;
    this.#onState = onState;
    addEventListener("online", () => this.hurry());
    this.#run();
  }

  /** Try again at once. */
  hurry() {
    this.#wake();
  }

  async #run() {
    for (;;) {
      const [outcome, detail] = await this.#once().catch(() => ["lost"]);
      this.#onState(outcome, detail);
      const pause = Math.min(this.#retry * 1.5 ** this.#failures, SLOWEST);
      this.#failures += 1;
      await new Promise((resume) => {
        this.#wake = resume;
        setTimeout(resume, pause * (0.8 + 0.4 * Math.random()));
      });
    }
  }

  async #once() {
    const abort = new AbortController();
    let silence = setTimeout(() => abort.abort(), SILENCE);
    try {
      const headers = { Accept: "text/event-stream", "Last-Event-ID": this.#lastId, ...authorization() };
      const response = await fetch(this.#path, { headers, cache: "no-store", signal: abort.signal });
      if (!response.ok) return [response.status === 401 ? "refused" : "lost", (await problemOf(response)).message];
      this.#failures = 0;
      this.#onState("open");
      const take = parser((event) => this.#take(event));
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return ["lost"];
        clearTimeout(silence);
        silence = setTimeout(() => abort.abort(), SILENCE);
        take(value);
      }
    } finally {
      clearTimeout(silence);
      abort.abort();
    }
  }

  #take({ event, data, id, retry }) {
    if (retry !== null) this.#retry = retry;
    if (id !== null) this.#lastId = id;
    if (data !== null) this.#onEvent(event, JSON.parse(data));
  }
}

/** Gives a function that takes pieces of an event stream and calls `emit` for each block in it. */
export function parser(emit) {
  let rest = "";
  let block = empty();
  return (piece) => {
    const lines = (rest + piece).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line !== "") {
        absorb(block, line);
      } else {
        emit(block);
        block = empty();
      }
    }
  };
}

const empty = () => ({ event: "message", data: null, id: null, retry: null });

function absorb(block, line) {
  const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
  if (field === "event") block.event = value;
  if (field === "data") block.data = block.data === null ? value : `${block.data}\n${value}`;
  if (field === "id") block.id = value;
  if (field === "retry" && /^\d+$/.test(value)) block.retry = Number(value);
}
