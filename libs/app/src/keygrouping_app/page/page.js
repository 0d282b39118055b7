// What this member tells at /keys, every two seconds. Keys are texts of others: they only ever become text nodes.

const EVERY = 2000;
const TIMEOUT = 10000;
const ROWS = 10;
const WAITS = { lane: "a lane", key: "its call", try: "its next try", rate: "its rate" };
const ratio = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const find = (selector, parent = document) => parent.querySelector(selector);

export const visible = (text) =>
  text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);

export function time(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 100 ? `${seconds.toFixed(1)} s` : `${number.format(seconds / 60)} min`;
}

const percent = (part, of) => (of ? `${number.format((100 * part) / of)} %` : "–");

function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = className;
  return made;
}

function cell(label, text, className = "") {
  const made = element("td", text, className);
  made.dataset.label = label;
  return made;
}

function shares(sharing) {
  if (!sharing) return {};
  const { before, after } = sharing.imbalance;
  return {
    "Given to others": number.format(sharing.written),
    "Load of its slots": time(sharing.slot_seconds),
    "λ of whole keys": ratio.format(before),
    "λ as shared": ratio.format(after),
  };
}

function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = count < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(count) / 3));
  return `${number.format(count / 1000 ** power)} ${units[power]}`;
}

function balance({ grouping, plan, imbalance: { before, after, now } }) {
  if (grouping === "ordered" && !plan && now === null) return {};
  const keys = plan && `${number.format(plan.keys)} ${plan.keys === 1 ? "key" : "keys"}`;
  return {
    "Last plan": plan ? `${keys}, ${time(plan.age)} ago` : "–",
    "λ before it": plan ? ratio.format(before) : "–",
    "λ as planned": plan ? ratio.format(after) : "–",
    "λ now": now === null ? "–" : ratio.format(now),
  };
}

function moves(told) {
  if (!told) return {};
  return {
    "Planned by": told.grouping === "ordered" ? "–" : visible(told.grouping),
    "Keys handed over": number.format(told.done),
    "States sent": bytes(told.bytes),
    "Held on average": told.done ? time(told.seconds / told.done) : "–",
    "Keys at slots": number.format(told.away),
    "On their way": number.format(told.under_way),
    "Events held": number.format(told.held_events),
    "Held longest now": told.oldest ? time(told.oldest) : "–",
    ...balance(told),
  };
}

function refused(told) {
  const found = Object.entries(told).map(([partition, why]) => `${partition}: ${visible(why)}`);
  return found.length ? { "Not committed": found.join("; ") } : {};
}

function restoring(told) {
  if (!told) return {};
  const words = `${number.format(told.partitions)} ${told.partitions === 1 ? "partition" : "partitions"}`;
  return { "Restoring": told.left ? `${words}, ${percent(told.done, told.done + told.left)}` : words };
}

function tiles(handler) {
  const gap = Math.max(0, ...Object.values(handler.gaps));
  const figures = {
    "Events/s": number.format(handler.rate),
    "Lanes busy": `${number.format(handler.busy)} of ${number.format(handler.lanes)}`,
    "In memory": number.format(handler.held_events),
    "Oldest": handler.oldest_event_age ? time(handler.oldest_event_age) : "–",
    "Largest gap": number.format(gap),
    "Retries": number.format(handler.retries),
    "Dead letters": number.format(handler.dead_letters),
    "Breaker": handler.breaker,
    ...shares(handler.sharing),
    ...moves(handler.moves),
    ...restoring(handler.restoring),
    ...refused(handler.refused),
  };
  return Object.entries(figures).map(([name, value]) => {
    const tile = element("div");
    const alarming = (name === "Breaker" && value !== "closed") || name === "Not committed";
    tile.append(element("dt", name), element("dd", value, alarming ? "alarming" : ""));
    return tile;
  });
}

function row(key, rank, handler) {
  const made = element("tr");
  const name = element("th", "", "key");
  name.scope = "row";
  name.append(key.key !== null ? element("bdi", visible(key.key)) : element("i", "without order"));
  const share = cell("share", "", "share");
  const track = element("span", "", "track");
  const bar = element("i");
  bar.style.width = `${100 * Math.min(1, key.share)}%`;
  track.append(bar);
  share.append(track, element("span", `${number.format(100 * key.share)} %`));
  made.append(
    cell("rank", `${rank}`, "number"), name, cell("waiting", number.format(key.waiting), "number"),
    cell("oldest wait", key.waiting ? time(key.wait) : "–", "number"), cell("waits for", WAITS[key.for] ?? "–"),
    share, cell("of a lane", key.ordered ? percent(key.needs, handler.span) : "–", "number"),
  );
  return made;
}

function card(handler) {
  const made = find("#handler").content.cloneNode(true);
  find("h2", made).textContent = `${visible(handler.topic)} · ${visible(handler.handler)}`;
  find("dl", made).append(...tiles(handler));
  find(".words", made).textContent = handler.keys.length ? handler.split.words : "No events yet.";
  find(".words", made).dataset.hot = handler.split.now > handler.span && handler.split.gain >= 1.05;
  find(".scroll", made).ariaLabel = `Keys of ${handler.topic}`;
  find(".scroll", made).hidden = !handler.keys.length;
  find("tbody", made).append(...handler.keys.slice(0, ROWS).map((key, index) => row(key, index + 1, handler)));
  return made;
}

function say(state, words, banner = "") {
  find("#pill").dataset.state = state;
  if (find("#pill-text").textContent !== words) find("#pill-text").textContent = words;
  find("#banner").hidden = !banner;
  find("#banner").textContent = banner;
}

let shown = null;

async function look() {
  try {
    const answer = await fetch("keys", { signal: AbortSignal.timeout(TIMEOUT) });
    if (!answer.ok) throw new Error(`the member answers ${answer.status}`);
    const told = await answer.json();
    shown = new Date();
    document.title = `${told.app} – keygrouping`;
    find("#app").textContent = visible(told.app);
    find("#handlers").replaceChildren(...told.handlers.map(card));
    if (told.ready) say("live", "Live");
    else say("stale", "Starting", "The group has not given this member its partitions yet.");
  } catch (error) {
    const since = shown ? ` The figures are those of ${shown.toLocaleTimeString()}.` : "";
    say("lost", "No connection", `${error.message}.${since}`);
  }
  setTimeout(look, EVERY);
}

look();
