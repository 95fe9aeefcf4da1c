// SPDX-License-Identifier: Apache-2.0

// Draws a record from the JSON of package view, the same that `once show --json`
// prints. Every value becomes a text node, so no value is ever read as HTML.

// el returns a new element with properties and children. A property whose name
// has a dash, and role, are set as attributes. Children are elements or texts;
// null and false are left out.
export function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "class") e.className = value;
    else if (name.includes("-") || name === "role" || name === "for") e.setAttribute(name, value);
    else e[name] = value;
  }
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

const day = 864e5;

// span returns a number of milliseconds in whole units, as the command line does: like
// 42 s, 3 min, 99 h or 5 d.
export function span(ms) {
  const n = Math.abs(ms);
  for (const [unit, size, next] of [["s", 1e3, 6e4], ["min", 6e4, 36e5], ["h", 36e5, 36e7], ["d", day, Infinity]]) {
    if (n < next) return `${Math.floor(n / size)} ${unit}`;
  }
  return "";
}

// clock returns the time of day of a stamp in UTC, with milliseconds.
export function clock(stamp) {
  return new Date(stamp).toISOString().slice(11, 23);
}

// moment returns the time of day of a stamp in UTC, with its date if it is not within a
// day of now, in milliseconds.
export function moment(stamp, now) {
  const text = new Date(stamp).toISOString();
  return Math.abs(now - Date.parse(text)) < day ? `${text.slice(11, 19)} UTC` : `${text.slice(0, 10)} ${text.slice(11, 16)} UTC`;
}

// ageOf returns an element with the time since a stamp. tickAges keeps it current.
export function ageOf(stamp, now) {
  return el("span", { class: "number", "data-since": stamp, title: moment(stamp, NaN) }, span(now - Date.parse(stamp)));
}

// tickAges updates the ages in an element to the time now, in milliseconds.
export function tickAges(root, now) {
  for (const e of root.querySelectorAll("[data-since]")) {
    const text = span(now - Date.parse(e.dataset.since));
    if (e.textContent !== text) e.textContent = text;
  }
}

// copyButton returns a button that copies a text. Its name for screen readers is
// "Copy " and the label.
export function copyButton(text, label) {
  const b = el("button", { type: "button", class: "quiet", "aria-label": `Copy ${label}` }, "Copy");
  b.addEventListener("click", async () => {
    let said = "Copied";
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      said = "Not allowed";
    }
    b.textContent = said;
    setTimeout(() => { b.textContent = "Copy"; }, 1500);
  });
  return b;
}

const names = {
  none: "no record", in_progress: "in progress", completed: "completed", retryable: "retryable", resumable: "resumable",
  unknown: "unknown",
};

// stateName returns the state of a record as people read it.
export function stateName(record) {
  if (!record) return names.none;
  return record.resumable ? names.resumable : names[record.state] ?? record.state;
}

// statePill returns a coloured label with the name of the state.
export function statePill(record) {
  return el("span", { class: "pill", "data-state": record?.state ?? "none" }, stateName(record));
}

const since = (stamp) => (stamp ? Date.parse(stamp) : NaN);

// sentenceOf returns what the state of a record means for its clients, at the time
// now in milliseconds.
export function sentenceOf(record, now) {
  if (!record) return "No request has used this key yet. The next one claims it and runs.";
  if (since(record.expires) <= now) return "It has expired and counts as missing. The next request with this key runs.";
  const more = record.exhausted ? " Reconciliation has given up: an operator has to settle it." : "";
  switch (record.state) {
    case "in_progress":
      if (now < since(record.lease_end)) return "A worker may be running this request. Until its lease ends, no other request runs this key.";
      return "The worker never reported an outcome, and its lease has ended. The next request or the reconciler decides.";
    case "completed":
      return "The outcome is stored. Every retry gets the stored answer, and nothing runs again.";
    case "retryable":
      if (record.resumable) return "The next request continues where the last one stopped, or evidence settles it." + more;
      return "The next request with this key runs." + more;
    case "unknown":
      return "The effect may have happened or not. Nothing runs again until evidence settles it." + more;
  }
  return `The record has the state ${record.state}, which this page does not know.`;
}

// reasons are the codes of the transitions, see driver.Reason.
const reasons = {
  claimed: "A request claimed the key.", taken_over: "A later request took over the record.", result: "The handler returned its result.",
  final: "The handler returned a final error.", omitted: "The handler returned, but its result could not be stored.",
  not_executed: "The handler declared that nothing happened.", no_time: "Too little time was left to run the handler.",
  released: "A claim without a reply from the store was given up.", handler_error: "The handler returned an error.",
  panic: "The handler panicked.", unknown: "The handler does not know the outcome.",
  lease_ended: "The worker reported no outcome before its lease ended.", resolved: "Evidence settled it.",
  committed: "The handler's transaction stored the outcome.", keys_forgotten: "The provider may have forgotten the key of an open step.",
  predecessor: "Another system had begun the work or done it, and did not send the keys of this record.",
  shadow: "A guard in shadow mode wrote it: nothing has to settle it, and the provider got other keys.",
  forgotten: "An operator discarded the stored outcome.", interrupted: "A step that may run only once began and did not finish.",
};

// RecordView draws records into an element, one at a time.
export class RecordView {
  #heading;
  #work; // whether an operator works on the record
  #parts;
  #record;
  #history;
  #shown = "";
  #last; // state of the record that was shown before, under the same key
  #offset = 0;
  #timer;

  // level is that of its headings: 3 if the record is below an h2. slot is an element
  // with which an operator works on the record: it comes before the keys at the provider
  // and the diagram, and after why the record is not settled.
  constructor(root, level = 3, slot = null) {
    this.#heading = `h${level}`;
    root.classList.add("record");
    this.#parts = {
      head: el("div", { class: "head" }), sentence: el("p", { class: "sentence" }),
      why: el("div", { class: "stack" }), diagram: diagram(), lease: lease(), details: el("div", { class: "stack" }), keys: el("div", { class: "stack" }),
    };
    const p = this.#parts;
    this.#work = slot !== null;
    const drawn = [p.diagram.figure, p.lease.box, p.details];
    root.replaceChildren(p.head, p.sentence, p.why, ...(slot ? [slot, p.keys, ...drawn] : [...drawn, p.keys]));
    this.show(null);
  }

  // show draws a record, or null for a key without one. Options: now, the time of the server
  // in milliseconds; history, the writes of the record as {at, state, attempt,
  // reason, by}, of which only at and state are required.
  show(record, { now = Date.now(), history } = {}) {
    this.#offset = now - Date.now();
    const same = record && this.#record && record.record === this.#record.record;
    const before = this.#record === undefined ? undefined : this.#record?.state ?? "none";
    const state = record?.state ?? "none";
    const version = JSON.stringify([record, history]);
    const isNew = version !== this.#shown;
    if (isNew && before !== state) this.#last = same || before === "none" ? before : undefined;
    this.#record = record;
    this.#history = history;
    this.#shown = version;
    if (isNew) {
      const p = this.#parts;
      p.head.replaceChildren(...(this.#work && record ? workHead(record, this.#now()) : head(record)));
      p.why.replaceChildren(...(this.#work ? why(this.#heading, record, this.#now()) : []));
      p.why.hidden = !p.why.hasChildNodes();
      p.keys.replaceChildren(...(record ? [keys(this.#heading, record)] : []));
      p.diagram.show(state, this.#last, before !== undefined && before !== state);
      p.details.replaceChildren(...details(this.#heading, record, history, this.#now()));
    }
    this.#tick();
    clearInterval(this.#timer);
    if (record?.state === "in_progress") this.#timer = setInterval(() => this.#tick(), 100);
  }

  // stop ends the countdown. Call it before the element is removed.
  stop() {
    clearInterval(this.#timer);
  }

  #now() {
    return Date.now() + this.#offset;
  }

  #tick() {
    const now = this.#now(), text = sentenceOf(this.#record, now), p = this.#parts;
    if (p.sentence.textContent !== text) p.sentence.textContent = text;
    p.lease.show(this.#record, now);
    tickAges(p.head, now);
  }
}

function workHead(record, now) {
  return [
    ...head(record).slice(0, -1),
    waits(record) ? el("span", {}, "for ", ageOf(record.since ?? record.created, now)) : null,
    record.ref ? el("span", { class: "break" }, `reference ${record.ref}`) : null,
  ].filter(Boolean);
}

function head(record) {
  if (!record) return [statePill(null)];
  return [
    statePill(record),
    record.exhausted ? el("span", { class: "pill", "data-state": "unknown" }, "given up") : null,
    el("span", {}, `attempt ${record.attempt}`),
    el("code", { class: "muted break" }, `${record.operation}#${record.key_hash}`),
  ].filter(Boolean);
}

function lease() {
  const left = el("span", { class: "number" }), bar = el("progress", { "aria-label": "Time left of the lease" });
  const box = el("div", { class: "lease", hidden: true }, el("div", { class: "row" }, el("span", { class: "label" }, "Lease"), left), bar);
  return {
    box,
    show(record, now) {
      box.hidden = record?.state !== "in_progress" || !record.lease_end;
      if (box.hidden) return;
      const begun = since(record.since ?? record.created), end = since(record.lease_end);
      bar.max = Math.max(1, end - begun);
      bar.value = Math.max(0, end - now);
      left.textContent = end > now ? `ends in ${((end - now) / 1000).toFixed(1)} s` : `ended ${span(now - end)} ago`;
    },
  };
}

function details(h, record, history, now) {
  const parts = [];
  if (history?.length || record) parts.push(section(h, "Timeline", timeline(record, history, now)));
  if (!record) return parts;
  parts.push(facts(record));
  if (record.steps?.length) parts.push(section(h, "Steps", steps(record.steps, now)));
  return parts;
}

const waits = (record) => record?.state === "unknown" || record?.resumable;

// why explains a record that waits for evidence.
function why(h, record, now) {
  if (!waits(record)) return [];
  const asked = record.reconcile_attempts ? `Reconciliation has asked ${record.reconcile_attempts} times and got no answer.` : "Reconciliation has not asked yet.";
  const due = since(record.due);
  const next = record.exhausted ? "It has given up and asks no more: settle the record, or let it ask again."
    : due > now ? `It asks ${record.reconcile_attempts ? "again " : ""}in ${span(due - now)}.` : `It has been due for ${span(now - due)}: check that a reconciler runs, if that is long.`;
  const open = (record.steps ?? []).filter((s) => s.state === "begun").map((s) => `Step ${s.name} began and has no recorded result.`);
  return [section(h, "Why it is not settled", el("ul", { class: "why" }, ...[reasons[record.reason] ?? record.reason, ...open, asked, next].filter(Boolean).map((text) => el("li", {}, text))))];
}

function section(h, title, ...content) {
  return el("section", { class: "stack" }, el(h, { class: "label" }, title), ...content);
}

// timeline lists what happened and what will, in the order of time.
function timeline(record, history, now) {
  const entries = (history ?? []).map((h) => ({ at: since(h.at), state: h.state, what: names[h.state] ?? h.state, more: h.attempt ? `attempt ${h.attempt}` : "", why: reasons[h.reason] ?? h.reason, by: h.by }));
  const add = (stamp, state, what, why) => { if (stamp) entries.push({ at: since(stamp), state, what, why }); };
  if (record && !history?.length) {
    add(record.created, "in_progress", "created", reasons.claimed);
    if (record.since !== record.created) add(record.since, record.state, stateName(record), reasons[record.reason] ?? record.reason);
  }
  if (record) {
    add(record.open_since, "unknown", "open steps since", "A step may have had its effect without a recorded result.");
    if (record.state === "in_progress") add(record.lease_end, "none", "lease ends");
    else add(record.due, "none", record.exhausted ? "reconciliation gave up" : "reconciliation is due");
    add(record.expires, "none", "expires");
  }
  entries.sort((a, b) => a.at - b.at);
  return el("ol", { class: "timeline" }, ...entries.map((e) => el("li", { class: e.at > now ? "future" : "", "data-state": e.state },
    el("span", {}, el("strong", {}, e.what), e.more ? `, ${e.more}` : ""),
    el("time", { dateTime: new Date(e.at).toISOString() }, e.at - now > 6e4 ? `in ${span(e.at - now)}` : now - e.at < day ? `${clock(e.at)} UTC` : moment(e.at, now)),
    e.why || e.by ? el("span", { class: "why" }, [e.why, e.by].filter(Boolean).join(" ")) : null)));
}

const ids = ["Reference", "Request", "Trace", "Token of the attempt"];

function facts(record) {
  const rows = [["Recovery", record.recovery], ["Retention", record.retention], ["Reason", record.reason], ["Reference", record.ref],
    ["Result", record.state === "completed" ? (record.sealed ? `${record.result_bytes ?? 0} bytes, sealed` : `${record.result_bytes ?? 0} bytes as ${record.encoding}`) : ""],
    ["Reconciled", record.reconcile_attempts ? `${record.reconcile_attempts} times without an answer` : ""],
    ["Announced", record.announced ? "its handler was still at work shortly before its deadline" : ""],
    ["Predecessor", record.predecessor_answered ? "has answered and is not asked again" : ""],
    ["Request", record.request_id], ["Trace", record.trace_parent], ["Token of the attempt", record.token]];
  return el("dl", { class: "facts" }, ...rows.filter(([, value]) => value).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { class: ids.includes(name) ? "mono" : "" }, String(value)))));
}

function steps(list, now) {
  const states = { finished: "completed", begun: "in_progress", not_recorded: "none" };
  return cards("Steps", [{ name: "Step" }, { name: "State" }, { name: "Mode" }, { name: "At", number: true }], list.map((s) => [s.name,
    el("span", {}, el("span", { class: "pill", "data-state": states[s.state] ?? "none" }, s.state.replace("_", " ")), s.finished_by ? ` by ${s.finished_by}` : ""),
    (s.mode ?? "").replaceAll("_", " "), s.at ? moment(s.at, now) : ""]));
}

// cards returns a table that becomes a list of cards on a narrow screen, with the name of
// its column before each cell. The first column is the heading of the row. The roles keep
// it a table for screen readers.
export function cards(label, columns, rows, props = () => ({})) {
  const cell = (row) => (content, i) => {
    const c = columns[i], parts = [content].flat();
    return el(i === row ? "th" : "td", { role: i === row ? "rowheader" : "cell", class: c.number ? "amount" : "", "data-label": c.name, ...(i === row ? { scope: "row" } : {}) }, ...parts);
  };
  const heading = Math.max(0, columns.findIndex((c) => !c.bare));
  return el("table", { class: "cards", role: "table", "aria-label": label },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...columns.map((c) => el("th", { scope: "col", role: "columnheader", class: c.number ? "amount" : "" }, c.head ?? c.name)))),
    el("tbody", { role: "rowgroup" }, ...rows.map((r, i) => el("tr", { role: "row", ...props(i) }, ...r.map(cell(heading)))),
      rows.length ? null : el("tr", { role: "row" }, el("td", { role: "cell", class: "muted", colSpan: columns.length }, "None."))));
}

function keys(h, record) {
  const rows = [["the handler", record.downstream_key, record.downstream_uuid], ...(record.steps ?? []).map((s) => [`step ${s.name}`, s.downstream_key, s.downstream_uuid])];
  return section(h, "Keys at the provider", el("ul", { class: "keys" }, ...rows.flatMap(([of, key, uuid]) => [[`Key of ${of}`, key, `the key of ${of}`], ["The same as a UUID", uuid, `the UUID of ${of}`]]).map(([what, value, label]) =>
    el("li", {}, el("span", {}, el("span", { class: "muted small" }, what), el("code", {}, value)), copyButton(value, label)))));
}

// The diagram: four states, and the transitions that a newcomer meets.
const nodes = { in_progress: [44, 24], completed: [266, 24], retryable: [44, 142], unknown: [266, 142] };
const edges = [
  ["none", "in_progress", "M-2 46H36", "44,46 36,42 36,50", "claim", 18, 39, "middle"],
  ["in_progress", "completed", "M168 46H258", "266,46 258,42 258,50", "result", 216, 39, "middle"],
  ["in_progress", "unknown", "M150 68L277.5 137.8", "284,142 275.2,141.3 279.2,134.2", "no outcome", 222, 98, "start"],
  ["in_progress", "retryable", "M80 68V134", "80,142 76,134 84,134", "error", 74, 108, "end"],
  ["retryable", "in_progress", "M118 142V76", "118,68 114,76 122,76", "next request", 124, 120, "start"],
  ["unknown", "completed", "M328 142V76", "328,68 324,76 332,76", "evidence", 335, 108, "start"],
  ["unknown", "retryable", "M266 164H176", "168,164 176,160 176,168", "not executed", 217, 157, "middle"],
];

function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

function diagram() {
  const label = svg("title"), box = svg("svg", { viewBox: "-20 14 420 184", role: "img" }, label, svg("circle", { class: "start", cx: -8, cy: 46, r: 6 }));
  const drawn = edges.map(([from, to, path, tip, text, x, y, anchor]) => {
    const g = svg("g", { class: "edge" }, svg("path", { d: path, pathLength: 100 }), svg("polygon", { points: tip }), svg("text", { x, y, "text-anchor": anchor }, text));
    box.append(g);
    return { from, to, g };
  });
  const boxes = Object.entries(nodes).map(([state, [x, y]]) => {
    const g = svg("g", { class: "node", "data-state": state }, svg("rect", { x, y, width: 124, height: 44, rx: 8 }), svg("text", { x: x + 62, y: y + 26.5, "text-anchor": "middle" }, names[state]));
    box.append(g);
    return { state, g };
  });
  return {
    figure: el("figure", { class: "diagram" }, box),
    show(state, last, changed) {
      label.textContent = `States of a record. The present one is: ${names[state] ?? state}.`;
      for (const n of boxes) mark(n.g, "lit", n.state === state, changed);
      for (const e of drawn) mark(e.g, "taken", e.from === last && e.to === state, changed);
    },
  };
}

function mark(g, name, on, changed) {
  g.classList.toggle(name, on);
  g.classList.toggle("changed", on && changed);
}
