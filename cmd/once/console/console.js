// SPDX-License-Identifier: Apache-2.0

// The page of `once console`. Each value of the store becomes a text node or the
// value of a property, so no value is ever read as HTML.
import { RecordView, copyButton, el, span, stateName, statePill } from "./record.js";

const $ = (id) => document.getElementById(id);
const sessionKey = "once-session";
const refreshEvery = 60_000;

// api asks the server and returns its answer. A raw text is sent as it is: JSON that
// the operator wrote keeps its numbers.
async function api(path, body) {
  const options = { headers: { "Once-Session": sessionStorage.getItem(sessionKey) ?? "" }, cache: "no-store" };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  let reply;
  try {
    reply = await fetch(path, options);
  } catch {
    throw new Error("The console does not answer: it may have ended.");
  }
  const answer = await reply.json().catch(() => ({ error: `The console answered ${reply.status}.` }));
  if (!reply.ok) throw new Error([answer.error, answer.advice].filter(Boolean).join("\n"));
  return answer;
}

function say(text) {
  $("status").textContent = text;
}

function complain(where, error) {
  where.textContent = error ? error.message : "";
  where.hidden = !error;
}

const many = (n, complete = true) => `${complete ? "" : "at least "}${n.toLocaleString("en")}`;

// The session: the address has a ticket, which is exchanged once.

async function enter() {
  const ticket = location.hash.slice(1);
  if (!/^[A-Z2-7]{26}$/.test(ticket)) return;
  history.replaceState(null, "", location.pathname);
  const { session } = await api("api/session", { ticket });
  sessionStorage.setItem(sessionKey, session);
}

// The first screen.

const view = { list: "unknown", operation: "", offset: 0, now: Date.now(), allow: false, seen: [] };

async function refresh() {
  const overview = await api("api/overview");
  view.now = Date.parse(overview.at);
  view.allow = overview.allow_resolve;
  view.overview = overview;
  $("desk").hidden = false;
  $("store").textContent = overview.store;
  $("mode").textContent = overview.allow_resolve ? `changes allowed, as ${overview.operator}` : "read-only";
  $("as-of").textContent = `as of ${overview.at.slice(11, 19)} UTC`;
  const done = overview.complete;
  const tile = (state, label, n, more) => el("li", { "data-state": state }, el("span", { class: "label" }, label), el("strong", {}, many(n, done)), el("span", { class: "muted small" }, more));
  $("tiles").replaceChildren(
    tile("unknown", "Unknown", overview.unknown, overview.oldest_unknown ? `the oldest for ${span(view.now - Date.parse(overview.oldest_unknown))}` : "no outcome is unknown"),
    tile("unknown", "Given up", overview.exhausted, "reconciliation no longer asks"),
    tile("retryable", "Resumable", overview.resumable, "the next request continues"),
    tile("in_progress", "Due now", overview.due, "reconciliation asks in its next run"));
  if (view.seen.length && view.seen.at(-1)[1] !== overview.unknown) say(`${many(overview.unknown, done)} outcomes are unknown now.`);
  view.seen.push([view.now, overview.unknown]);
  if (view.seen.length > 500) view.seen = view.seen.filter((_, i) => i % 2 === 0);
  drawTime();
  drawAges(overview.ages);
  if (!view.counted) drawGroups(overview);
  drawOperations(overview.groups);
  await showList(false);
}

function drawOperations(groups) {
  const names = [...new Set(groups.map((g) => g.operation))];
  if (view.operation && !names.includes(view.operation)) names.push(view.operation);
  if (view.names === names.join("\n")) return;
  view.names = names.join("\n");
  $("operation").replaceChildren(el("option", { value: "" }, "all"), ...names.map((n) => el("option", { value: n, selected: n === view.operation }, n)));
}

function drawGroups({ groups, complete, unreadable }) {
  $("groups-note").textContent = `${complete ? "in the index" : "in the index, the first entries only"}${unreadable ? `; ${unreadable} cannot be read` : ""}`;
  $("groups-head").replaceChildren(headings("Operation", "State", "Records", "Given up", "Due now", "Oldest"));
  fillTable($("groups"), 6, groups.map((g) => el("tr", {}, el("th", { scope: "row", class: "break" }, g.operation), el("td", {}, statePill(stated(g.state))),
    amount(many(g.records, complete)), amount(many(g.exhausted, complete)), amount(many(g.due, complete)), amount(age(g.oldest)))));
}

const headings = (...names) => el("tr", {}, ...names.map((n, i) => el("th", { scope: "col", class: i > 1 ? "amount" : "" }, n)));
const amount = (text) => el("td", { class: "amount" }, text);
const age = (stamp) => (stamp ? span(view.now - Date.parse(stamp)) : "");
const stated = (state) => (state === "resumable" ? { state: "retryable", resumable: true } : { state });

function fillTable(body, columns, rows) {
  body.replaceChildren(...(rows.length ? rows : [el("tr", {}, el("td", { colSpan: columns, class: "muted" }, "None."))]));
}

// The lists.

for (const [value, label] of [["unknown", "Unknown"], ["exhausted", "Given up"], ["resumable", "Resumable"]]) {
  const input = el("input", { type: "radio", name: "list", value, checked: value === view.list });
  input.addEventListener("change", () => turn({ list: value, offset: 0 }));
  $("lists").append(el("label", {}, input, label));
}
$("operation").addEventListener("change", () => turn({ operation: $("operation").value, offset: 0 }));
$("earlier").addEventListener("click", () => turn({ offset: Math.max(0, view.offset - view.page.per_page) }));
$("later").addEventListener("click", () => turn({ offset: view.offset + view.page.per_page }));

function turn(change) {
  Object.assign(view, change);
  return guarded(() => showList(true));
}

// showList reads a page of the list, and shows it unless another page was asked for meanwhile. The link that has the
// focus keeps it.
let lists = 0;
async function showList(announce) {
  const list = ++lists;
  const page = await api(`api/list?${new URLSearchParams({ list: view.list, operation: view.operation, offset: view.offset })}`);
  if (list !== lists) return;
  if (view.offset > 0 && page.rows.length === 0) return turn({ offset: 0 });
  view.page = page;
  const held = document.activeElement.closest("#rows a")?.hash;
  fillTable($("rows"), 4, page.rows.map(row));
  if (held) [...$("rows").querySelectorAll("a")].find((a) => a.hash === held)?.focus();
  const first = page.total ? page.offset + 1 : 0, last = page.offset + page.rows.length;
  $("total").textContent = `${many(page.total, page.complete)} in this list${page.complete ? "" : ": those that were due first"}`;
  $("range").textContent = `${first} to ${last} of ${many(page.total, page.complete)}`;
  $("earlier").disabled = page.offset === 0;
  $("later").disabled = last >= page.total;
  const offer = view.allow && view.list === "exhausted" && page.total > 0;
  if (offer && !$("bulk").hasChildNodes()) $("bulk").append(requeueAll());
  if (!offer) $("bulk").replaceChildren();
  $("bulk").hidden = !offer;
  if (announce) say(`${$("range").textContent} records are shown.`);
}

function row(r) {
  const due = Date.parse(r.due);
  let next = "";
  if (r.due) next = r.exhausted ? `given up ${span(view.now - due)} ago` : due > view.now ? `due in ${span(due - view.now)}` : `due for ${span(view.now - due)}`;
  const tr = el("tr", {}, el("th", { scope: "row" }, el("a", { href: `#r=${encodeURIComponent(r.record)}` }, `${r.operation}#${r.key_hash}`)),
    el("td", {}, statePill(stated(r.state))), amount(age(r.since)), el("td", {}, next));
  if (view.record?.record.record === r.record) tr.setAttribute("aria-current", "true");
  return tr;
}

// One record.

const drawing = new RecordView($("record"));

function selected() {
  return location.hash.startsWith("#r=") ? decodeURIComponent(location.hash.slice(3)) : "";
}

addEventListener("hashchange", () => guarded(() => showRecord(true)));
$("close").addEventListener("click", () => {
  location.hash = "";
  $("main").focus();
});

async function showRecord(move) {
  const id = selected();
  $("shown").hidden = $("close").hidden = true;
  $("no-record").hidden = id !== "";
  view.record = undefined;
  mark();
  if (!id) return drawing.show(null);
  const read = await api(`api/record?${new URLSearchParams({ id })}`);
  if (id !== selected()) return;
  view.record = read;
  const { record, now } = view.record;
  $("record-id").textContent = record.record;
  $("copy-id").replaceChildren(copyButton(record.record, "the record id"));
  drawing.show(record, { now: Date.parse(now) });
  $("results").replaceChildren(resultButton());
  $("changes").replaceChildren(...changes(view.record));
  $("shown").hidden = $("close").hidden = false;
  mark();
  say(`The record is ${stateName(record)}.`);
  if (move) $("record-title").focus();
}

function mark() {
  for (const tr of $("rows").children) {
    const current = view.record && tr.querySelector("a")?.hash === `#r=${encodeURIComponent(view.record.record.record)}`;
    if (current) tr.setAttribute("aria-current", "true");
    else tr.removeAttribute("aria-current");
  }
}

function resultButton() {
  const { record } = view.record;
  if (!record.result_bytes && !record.steps?.some((s) => s.result_bytes)) return "";
  const button = el("button", { type: "button" }, "Show stored results");
  button.addEventListener("click", () => guarded(async () => {
    const { record: full } = await api(`api/record?${new URLSearchParams({ id: record.record, results: "true" })}`);
    const parts = [];
    const add = (title, text) => parts.push(el("h3", {}, title), el("pre", { tabIndex: 0, role: "region", "aria-label": title }, text));
    if (full.response) {
      const { status, header = {}, body = "", body_base64: binary } = full.response;
      add("Result", [`status ${status}`, ...Object.entries(header).flatMap(([n, values]) => values.map((v) => `${n}: ${v}`)), "", binary ? `${binary} (base64)` : body].join("\n"));
    } else if (full.final) add("Result", `${full.final.code}: ${full.final.message}`);
    else if (full.result !== undefined) add("Result", JSON.stringify(full.result, null, 2));
    else if (full.result_base64) add("Result", `${full.result_base64} (base64)`);
    else if (full.sealed) parts.push(el("p", { class: "muted" }, "The result is sealed: only a program that has the operation's key can read it."));
    for (const s of full.steps ?? []) if (s.result !== undefined) add(`Result of step ${s.name}`, JSON.stringify(s.result, null, 2));
    $("results").replaceChildren(...(parts.length ? parts : [el("p", { class: "muted" }, "No result is stored.")]));
    say("The results are shown.");
  }));
  return button;
}

// Changes.

function changes(shown) {
  const { record } = shown;
  if (!view.allow) return [el("p", { class: "muted small" }, "This console is read-only. To settle records here, run it with --allow-resolve.")];
  if (record.state === "completed") return [forgetForm(shown)];
  return [evidenceForm(shown), record.due ? requeueForm(shown) : ""].filter(Boolean);
}

let labels = 0;

// field returns a control with a label above it.
function field(label, control, help) {
  control.id = `field-${labels++}`;
  const parts = [el("label", { for: control.id }, label), control];
  if (help) {
    parts.push(el("p", { class: "muted small", id: `${control.id}-help` }, help));
    control.setAttribute("aria-describedby", `${control.id}-help`);
  }
  return el("div", {}, ...parts);
}

const input = (props = {}) => el("input", { autocomplete: "off", spellcheck: false, ...props });
const textarea = (props = {}) => el("textarea", { autocomplete: "off", spellcheck: false, ...props });

// form returns a form for a change. order returns the members of the request, as
// texts of JSON; it may throw.
function form(title, path, { fields = [], button, reason, order, confirm = true }) {
  const why = input({ required: true, name: "reason" });
  const problem = el("p", { class: "notice", "data-state": "unknown", role: "alert", hidden: true });
  const below = el("div", {});
  const f = el("form", { class: "form", autocomplete: "off" }, el("h3", {}, title), ...fields, field("Reason", why, reason), el("div", { class: "row" }, el("button", { class: confirm ? "" : "primary" }, button)), problem, below);
  f.addEventListener("submit", async (event) => {
    event.preventDefault();
    complain(problem, null);
    below.replaceChildren();
    await attempt(problem, async () => {
      const members = { ...(await order()), reason: JSON.stringify(why.value) };
      const send = (more = {}) => api(path, `{${Object.entries({ ...members, ...more }).map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(",")}}`);
      if (confirm) below.replaceChildren(question(await send(), (word) => send({ confirm: JSON.stringify(word) }), () => below.replaceChildren()));
      else await done(await send());
    });
    below.querySelector("input")?.focus();
  });
  return f;
}

// attempt calls f, and shows an error of it.
async function attempt(problem, f) {
  try {
    await f();
    complain(problem, null);
  } catch (error) {
    complain(problem, error);
  }
}

// question shows what will be written, and writes it when the word is typed.
function question(asked, write, cancel) {
  const word = input({ required: true });
  const problem = el("p", { class: "notice", "data-state": "unknown", role: "alert", hidden: true });
  const back = el("button", { type: "button" }, "Cancel");
  back.addEventListener("click", cancel);
  const facts = el("dl", { class: "facts" }, ...asked.facts.map((f) => el("div", {}, el("dt", {}, f.label || "of"), el("dd", {}, f.text))));
  const notes = (asked.notes ?? []).map((n) => el("p", { class: "muted small" }, n));
  if (asked.outcome === "unchanged") notes.push(el("p", {}, "The record already holds this: nothing will be written."));
  const f = el("form", { class: "question", autocomplete: "off", "aria-label": "Confirm the change" }, el("h3", {}, "This will be written"), facts, ...notes, el("p", {}, asked.warning),
    field(`Type ${asked.word} to write it`, word), el("div", { class: "row" }, el("button", { class: "danger" }, "Write"), back), problem);
  f.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = f.querySelector(".danger");
    button.disabled = true;
    await attempt(problem, async () => done(await write(word.value)));
    button.disabled = false;
  });
  return f;
}

// done shows what was written, and reads everything again.
async function done(written) {
  let text = written.outcome === "unchanged" ? "Nothing was written: the record already has this outcome." : `Written: the record was ${written.from} and is ${written.to}.`;
  if (written.summary) {
    const s = written.summary;
    text = `${many(s.written)} of ${many(s.records)} records were requeued. Refused: ${many(s.refused)}; failed: ${many(s.failed)}; not tried: ${many(s.not_tried)}.`;
    for (const p of written.problems ?? []) text += `\n${p.record}: ${p.error}`;
    $("bulk").replaceChildren();
  }
  await showRecord(false);
  await refresh();
  $("problem").dataset.state = "completed";
  complain($("problem"), { message: text });
  $("record-title").focus();
}

const quoted = (v) => JSON.stringify(v);

// json returns a text if it is JSON, as it is: numbers keep their digits.
function json(text, what) {
  try {
    JSON.parse(text);
  } catch {
    throw new Error(`${what} is not valid JSON.`);
  }
  return text;
}

const named = ({ record, version }) => ({ record: quoted(record.record), version: quoted(version) });

function evidenceForm(shown) {
  const { record } = shown;
  const fields = el("div", { class: "stack" });
  const choices = el("fieldset", { class: "stack" }, el("legend", { class: "label" }, "What do you know?"));
  let evidence;
  for (const kind of kinds(record)) {
    const radio = el("input", { type: "radio", name: "kind", value: kind.name, required: true });
    radio.addEventListener("change", () => {
      const made = kind.fields(record);
      evidence = made.evidence;
      fields.replaceChildren(...made.fields);
    });
    choices.append(el("label", { class: "row inline" }, radio, el("span", {}, kind.label)));
  }
  const version = input({ name: "result_version" }), force = el("input", { type: "checkbox", name: "force" });
  const more = el("details", {}, el("summary", {}, "More options"), el("div", { class: "stack" }, field("Result version that the handler expects now", version, "Only if it is not that of the record."),
    el("label", { class: "row inline" }, force, el("span", {}, "Store a result whose shape differs from stored ones"))));
  return form("Settle this record by evidence", "api/resolve", {
    fields: [choices, fields, more], button: "Review", reason: "How you know. It is stored in the audit.",
    order: async () => ({ ...named(shown), evidence: `{${await evidence()}}`, result_version: quoted(version.value), force: String(force.checked) }),
  });
}

// kinds returns the kinds of evidence that the record can use.
function kinds(record) {
  const list = [];
  if (!record.seals) {
    list.push({ name: "completed", label: "It was done, and this is the result", fields: resultFields });
    list.push({ name: "final", label: "It ended in a business outcome", fields: () => {
      const code = input({ required: true }), message = input({ required: true });
      return { fields: [el("div", { class: "fields" }, field("Code", code), field("Message for callers", message))], evidence: () => `"final":${quoted({ code: code.value, message: message.value })}` };
    } });
  }
  list.push({ name: "without_result", label: "It was done, and its result is lost", fields: () => ({ fields: [el("p", { class: "muted small" }, "Retries get an error that says so. Nothing runs.")], evidence: () => `"without_result":true` }) });
  if (!record.seals && (record.steps?.length || record.declared_steps?.length)) {
    list.push({ name: "step", label: "One step was done", fields: (r) => stepFields(r, "step") });
    if (record.steps?.some((s) => s.state === "finished")) list.push({ name: "corrected_step", label: "The stored result of a step is wrong", fields: (r) => stepFields(r, "corrected_step") });
  }
  list.push({ name: "not_executed", label: "Nothing happened, and nothing can happen any more", fields: (r) => ({
    fields: [el("p", { class: "notice", "data-state": "unknown" }, "The attempt has to be dead, not merely late. The next request runs: if the effect did happen, it happens twice. Only if you asked the provider after you had opened this record."),
      el("p", { class: "muted small" }, "Token of the attempt: ", el("code", { class: "break" }, r.token))],
    evidence: () => `"not_executed":${quoted(r.token)}`,
  }) });
  return list;
}

function resultFields(record) {
  if (record.codec === "http1") {
    const status = input({ type: "number", min: 200, max: 599, value: "200", required: true }), headers = textarea({ rows: 2 }), body = textarea({ rows: 4 });
    return {
      fields: [field("Status", status), field("Headers", headers, "One per line, as Location: /charges/ch_5. A JSON body gets its Content-Type."), field("Body", body)],
      evidence: () => {
        const header = {};
        for (const line of headers.value.split("\n").map((l) => l.trim()).filter(Boolean)) {
          const at = line.indexOf(":");
          if (at < 1) throw new Error(`The header "${line}" has no colon.`);
          (header[line.slice(0, at).trim()] ??= []).push(line.slice(at + 1).trim());
        }
        return `"response":${quoted({ status: Number(status.value), header, body: body.value })}`;
      },
    };
  }
  if (record.codec === "json") {
    const result = textarea({ rows: 4, required: true });
    return { fields: [field("Result", result, "As JSON, in the form that the handler returns.")], evidence: () => `"completed":${json(result.value, "The result")}` };
  }
  const file = input({ type: "file", required: true });
  return {
    fields: [field(`Result, encoded by the codec ${record.codec}`, file, "A file with the bytes that the codec makes of the result.")],
    evidence: async () => {
      const bytes = new Uint8Array(await file.files[0].arrayBuffer());
      let text = "";
      for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
      return `"completed_base64":${quoted(btoa(text))}`;
    },
  };
}

function stepFields(record, kind) {
  const names = (record.steps ?? []).filter((s) => (s.state === "finished") === (kind === "corrected_step")).map((s) => s.name);
  const name = names.length ? el("select", {}, ...names.map((n) => el("option", { value: n }, n))) : input({ required: true });
  const result = textarea({ rows: 3, required: true });
  return {
    fields: [field("Step", name), field("Result of the step", result, "As JSON. The next attempt gets it and does not repeat the step.")],
    evidence: () => `${quoted(kind)}:{"name":${quoted(name.value)},"result":${json(result.value, "The result of the step")}}`,
  };
}

function requeueForm(shown) {
  return form("Let reconciliation ask again", "api/requeue", { button: "Requeue", reason: "Why. It is stored in the audit. Nothing runs, and nothing is settled.", order: () => named(shown), confirm: false });
}

function requeueAll() {
  return form("Requeue all that were given up", "api/requeue", {
    button: "Review", reason: "Why. It is stored in the audit. With an operation selected above, only its records.",
    order: () => ({ exhausted: "true", operations: quoted(view.operation ? [view.operation] : []) }),
  });
}

function forgetForm(shown) {
  return form("Discard this outcome, because it is wrong", "api/forget", {
    button: "Review", reason: "How you know that it is wrong. Undo the effect at the provider first: the next request runs.",
    order: () => ({ ...named(shown), token: quoted(shown.record.token) }),
  });
}

// Finding a record. The key leaves the page once, in the body of the request.

$("find").addEventListener("submit", async (event) => {
  event.preventDefault();
  const f = event.target, data = new FormData(f);
  await attempt(f.querySelector(".notice"), async () => {
    const wanted = { record: data.get("record"), scope: data.get("scope"), global: data.has("global"), key: data.get("key"), path: data.get("path") };
    f.elements.key.value = "";
    const { record } = await api("api/find", wanted);
    const hash = `#r=${encodeURIComponent(record)}`;
    if (location.hash === hash) await showRecord(true);
    else location.hash = hash;
  });
});

// Counting everything, which has a price.

function offerCount() {
  const button = el("button", { type: "button" }, "Count all records");
  button.addEventListener("click", () => guarded(async () => {
    const price = await api("api/price");
    const start = el("button", { type: "button", class: "primary" }, "Read the table"), back = el("button", { type: "button" }, "Cancel");
    const cost = price.read_units ? `This reads the whole table: about ${many(price.items)} items, ${many(Math.ceil(price.read_units))} read units, $${price.usd.toFixed(6)} (on demand, us-east-1).` : "This reads everything. Its size is not known, or the store is a file.";
    back.addEventListener("click", offerCount);
    start.addEventListener("click", () => guarded(async () => {
      start.disabled = true;
      say("Counting.");
      try {
        drawStats(await api("api/count", {}));
      } finally {
        offerCount();
      }
    }));
    $("count").replaceChildren(el("p", {}, cost), el("div", { class: "row" }, start, back));
    start.focus();
  }));
  $("count").replaceChildren(el("div", { class: "row" }, button));
}

function drawStats(stats) {
  view.counted = true; // until the operator refreshes
  $("groups-note").textContent = `all ${many(stats.records)} records${stats.read_units ? `, for ${stats.read_units.toFixed(1)} read units` : ""}`;
  $("groups-head").replaceChildren(headings("Operation", "State", "Records", "Oldest", "Bytes of results"));
  fillTable($("groups"), 5, stats.groups.map((g) => el("tr", {}, el("th", { scope: "row", class: "break" }, g.operation), el("td", {}, statePill(stated(g.state))),
    amount(many(g.records)), amount(age(g.oldest_created)), amount(many(g.result_bytes)))));
  say(`${many(stats.records)} records were counted.`);
}

// Charts, as SVG without inline styles.

function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

function drawAges(ages) {
  const width = 480, height = 130, base = 104, most = Math.max(1, ...ages.map((a) => a.records)), step = width / ages.length;
  const bounds = ages.map((a, i) => (i === 0 ? `under ${a.under}` : a.under ? `${ages[i - 1].under} to ${a.under}` : `over ${ages[i - 1].under}`));
  const label = `Unknown outcomes by age: ${ages.map((a, i) => `${bounds[i]}: ${a.records}`).join(", ")}.`;
  const bars = ages.flatMap((a, i) => {
    const h = (a.records / most) * 80, x = i * step;
    return [svg("rect", { class: "bar", x: x + 8, y: base - h, width: step - 16, height: h }), svg("text", { x: x + step / 2, y: base - h - 5, "text-anchor": "middle" }, String(a.records)),
      svg("text", { x: x + step / 2, y: base + 16, "text-anchor": "middle" }, bounds[i])];
  });
  $("ages").replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...bars, svg("line", { class: "axis", x1: 0, x2: width, y1: base, y2: base })));
}

function drawTime() {
  const width = 480, height = 130, left = 34, base = 104, seen = view.seen;
  const from = seen[0][0], to = seen.at(-1)[0], most = Math.max(1, ...seen.map(([, n]) => n));
  const x = (at) => (to === from ? left : left + ((at - from) / (to - from)) * (width - left - 8)), y = (n) => base - (n / most) * 88;
  const label = `Unknown outcomes since this page was opened: ${seen[0][1]} at first, ${seen.at(-1)[1]} now, at most ${Math.max(...seen.map(([, n]) => n))}.`;
  $("time").replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    svg("line", { class: "axis", x1: left, x2: width, y1: base, y2: base }),
    svg("text", { x: left - 6, y: 20, "text-anchor": "end" }, String(most)), svg("text", { x: left - 6, y: base + 4, "text-anchor": "end" }, "0"),
    svg("text", { x: left, y: base + 18 }, new Date(from).toISOString().slice(11, 16)), svg("text", { x: width - 8, y: base + 18, "text-anchor": "end" }, `${new Date(to).toISOString().slice(11, 16)} UTC`),
    svg("polyline", { class: "line", points: seen.map(([at, n]) => `${x(at)},${y(n)}`).join(" ") }), svg("circle", { class: "dot", cx: x(to), cy: y(seen.at(-1)[1]), r: 3.5 })));
}

// guarded calls f, and shows an error of it at the top of the page.
async function guarded(f) {
  $("problem").dataset.state = "unknown";
  await attempt($("problem"), f);
}

$("refresh").addEventListener("click", () => {
  view.counted = false;
  guarded(refresh);
});
// keepUp reads the first screen again while the operator can see it.
function keepUp() {
  if (!document.hidden && !$("desk").hidden) refresh().catch((error) => complain($("problem"), error));
}
setInterval(keepUp, refreshEvery);
document.addEventListener("visibilitychange", keepUp);

offerCount();
guarded(async () => {
  await enter();
  await refresh();
  if (selected()) await showRecord(false);
});
