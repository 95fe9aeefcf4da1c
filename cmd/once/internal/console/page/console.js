// SPDX-License-Identifier: Apache-2.0

// The page of `once console`. Each value of the store becomes a text node or the
// value of a property, so no value is ever read as HTML.
import { RecordView, ageOf, cards, copyButton, el, moment, span, stateName, statePill, tickAges } from "./record.js";

const $ = (id) => document.getElementById(id);
const sessionKey = "once-session";
const refreshEvery = 60_000;
const lists = { unknown: "Unknown", exhausted: "Given up", resumable: "Resumable", due: "Due now", ended: "Lease ended", found: "Search result" };

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

const view = { list: "unknown", operation: "", within: "", order: "oldest", offset: 0, ahead: 0, allow: false, chosen: new Map() };

// now returns the time of the server, from which every age on the page counts.
const now = () => Date.now() + view.ahead;

async function refresh() {
  const overview = await api("api/overview");
  view.ahead = Date.parse(overview.at) - Date.now();
  view.allow = overview.allow_resolve;
  const before = view.overview?.unknown ?? overview.unknown;
  view.overview = overview;
  $("desk").hidden = false;
  $("store").textContent = overview.store;
  $("mode").textContent = overview.allow_resolve ? `changes allowed, as ${overview.operator}` : "read-only";
  $("as-of").textContent = `as of ${overview.at.slice(11, 19)} UTC`;
  drawTiles(overview);
  if (before !== overview.unknown) say(`${many(overview.unknown, overview.complete)} outcomes are unknown now.`);
  drawHours(overview);
  drawAges(overview.ages);
  if (!view.counted) drawGroups(overview);
  drawOperations(overview.groups);
  tickAges(document, now());
  await showList(false);
}

// partial reports whether runs may have been killed that the lists do not have.
const partial = ({ scans, scanned_at: scanned }) => scans && !scanned;

function drawTiles(o) {
  const read = o.scanned_at ? `, as read at ${moment(o.scanned_at, now())}` : "";
  const tile = (list, state, n, done, ...caption) => el("li", { "data-state": state }, el("a", { href: `#list=${list}` },
    el("span", { class: "label" }, lists[list]), el("strong", {}, many(n, done)), el("span", { class: "muted small" }, ...caption)));
  const held = $("tiles").contains(document.activeElement) && document.activeElement.hash;
  $("tiles").replaceChildren(
    tile("unknown", "unknown", o.unknown, o.complete, ...(o.oldest_unknown ? ["given up or not; the oldest for ", ageOf(o.oldest_unknown, now())] : ["no outcome is unknown"])),
    tile("exhausted", "unknown", o.exhausted, o.complete, "reconciliation no longer asks"),
    tile("resumable", "retryable", o.resumable, o.complete, "the next request continues them"),
    tile("due", "in_progress", o.due, o.complete, partial(o) ? "in the index, to be asked in the next run" : `to be asked in the next run${read}`),
    tile("ended", "in_progress", o.lease_ended, o.complete && !partial(o), partial(o) ? "in progress, and announced: only a read of the table finds the others" : `in progress without an outcome${read}`));
  if (held) [...$("tiles").querySelectorAll("a")].find((a) => a.hash === held)?.focus();
}

function drawOperations(groups) {
  const names = [...new Set(groups.map((g) => g.operation))];
  if (view.operation && !names.includes(view.operation)) names.push(view.operation);
  if (view.names === names.join("\n")) return;
  view.names = names.join("\n");
  $("operations").replaceChildren(...names.map((n) => el("option", { value: n })));
  $("operation").replaceChildren(el("option", { value: "" }, "all"), ...names.map((n) => el("option", { value: n, selected: n === view.operation }, n)));
}

function drawGroups({ groups, complete, unreadable }) {
  $("groups-note").textContent = `${complete ? "in the lists" : "in the lists, the first entries only"}${unreadable ? `; ${unreadable} cannot be read` : ""}`;
  $("groups").replaceChildren(cards("Records by operation and state", [{ name: "Operation" }, { name: "State" }, number("Records"), number("Given up"), number("Due now"), number("Oldest, since (UTC)")],
    groups.map((g) => [g.operation, statePill(stated(g.state)), many(g.records, complete), many(g.exhausted, complete), many(g.due, complete), age(g.oldest)])));
}

const number = (name) => ({ name, number: true });
const stated = (state) => (state === "resumable" ? { state: "retryable", resumable: true } : { state });

// age returns the age of a stamp, and the stamp itself.
const age = (stamp) => (stamp ? el("span", { class: "age" }, ageOf(stamp, now()), " ", el("span", { class: "muted small" }, moment(stamp, now()).replace(" UTC", ""))) : "");

// The lists.

for (const [value, label] of Object.entries(lists)) {
  const input = el("input", { type: "radio", name: "list", value, checked: value === view.list });
  input.addEventListener("change", () => turn({ list: value, offset: 0 }));
  $("lists").append(el("label", { hidden: value === "found" }, input, label));
}
const filter = (id, name) => $(id).addEventListener("change", () => turn({ [name]: $(id).value, offset: 0 }));
filter("operation", "operation");
filter("within", "within");
filter("order", "order");
filter("from", "from");
filter("to", "to");
$("earlier").addEventListener("click", () => turn({ offset: Math.max(0, view.offset - view.page.per_page) }));
$("later").addEventListener("click", () => turn({ offset: view.offset + view.page.per_page }));

function turn(change) {
  Object.assign(view, change, { lastChosen: undefined });
  $("own").hidden = view.within !== "own";
  const radio = document.querySelector(`input[name="list"][value="${view.list}"]`);
  radio.checked = true;
  if (view.list === "found") radio.parentElement.hidden = false;
  return guarded(() => showList(true));
}

// range returns the times between which the records of the list entered their states.
function range() {
  const utc = (text) => (text ? `${text}:00Z`.replace(/(:\d\d:\d\d):00Z$/, "$1Z") : "");
  if (view.within === "own") return { from: utc(view.from), to: utc(view.to) };
  return { from: view.within ? new Date(now() - Number(view.within) * 36e5).toISOString() : "", to: "" };
}

// showList reads a page of the list, and shows it unless another page was asked for meanwhile. The control of a row that
// has the focus keeps it.
let asked = 0;
async function showList(announce) {
  const mine = ++asked;
  const page = await api(`api/list?${new URLSearchParams({ list: view.list, operation: view.operation, order: view.order, ...range(), offset: view.offset })}`);
  if (mine !== asked) return;
  if (view.offset > 0 && page.rows.length === 0) return turn({ offset: 0 });
  view.page = page;
  $("waiting-title").textContent = lists[view.list];
  drawRows();
  const first = page.total ? page.offset + 1 : 0, last = page.offset + page.rows.length;
  $("total").textContent = `${many(page.total, page.complete)} in this list${page.complete || view.list === "ended" ? "" : ": those that were due first"}`;
  $("range").textContent = `${first} to ${last} of ${many(page.total, page.complete)}`;
  $("earlier").disabled = page.offset === 0;
  $("later").disabled = last >= page.total;
  drawNote();
  const offer = view.allow && view.list === "exhausted" && page.total > 0;
  if (offer && !$("bulk").hasChildNodes()) $("bulk").append(requeueAll());
  if (!offer) $("bulk").replaceChildren();
  $("bulk").hidden = !offer;
  if (announce) say(`${$("range").textContent} records are shown.`);
}

function drawRows() {
  const held = $("table").contains(document.activeElement) && (document.activeElement.hash || document.activeElement.value);
  const columns = [{ name: "Record" }, { name: "Reference" }, { name: "State" }, number("Age, since (UTC)"), { name: "Next" }, { name: "Reason" }, number("Tries")];
  if (view.allow) columns.unshift({ name: "Select", bare: true, head: el("span", { class: "unseen" }, "Select") });
  const table = cards("Records of the list", columns, view.page.rows.map(cells), (i) => ({ "data-record": view.page.rows[i].record }));
  table.tBodies[0].id = "rows";
  $("table").replaceChildren(table);
  if (held) [...table.querySelectorAll("a, input")].find((e) => (e.hash || e.value) === held)?.focus();
  mark();
  drawSelection();
}

const nameOf = (r) => `${r.operation}#${r.key_hash}`;

function cells(r, i) {
  const list = [el("a", { href: `#r=${encodeURIComponent(r.record)}` }, r.operation, el("wbr"), `#${r.key_hash}`), r.ref ?? "", r.problem ? [statePill(stated(r.state)), " ", el("span", { class: "small" }, r.problem)] : statePill(stated(r.state)),
    age(r.since), next(r), (r.reason ?? "").replaceAll("_", " "), r.attempt ? String(r.attempt) : ""];
  if (!view.allow) return list;
  const box = el("input", { type: "checkbox", value: r.record, "aria-label": `Select ${nameOf(r)}`, checked: view.chosen.has(r.record), disabled: !r.version || !waits(r) });
  box.addEventListener("click", (event) => {
    // With Shift, all rows from the last one that was chosen.
    const from = event.shiftKey && view.lastChosen !== undefined ? Math.min(view.lastChosen, i) : i, to = event.shiftKey && view.lastChosen !== undefined ? Math.max(view.lastChosen, i) : i;
    choose(view.page.rows.slice(from, to + 1), box.checked);
    view.lastChosen = i;
  });
  return [box, ...list];
}

// waits reports whether evidence can settle the record of a row.
const waits = (r) => r.state === "unknown" || r.state === "resumable" || r.state === "in_progress" && Date.parse(r.lease_end) <= now();

function next(r) {
  const due = Date.parse(r.due), end = Date.parse(r.lease_end);
  if (r.state === "in_progress") return end > now() ? `lease ends in ${span(end - now())}` : `lease over for ${span(now() - end)}`;
  if (!r.due) return "";
  return r.exhausted ? `given up ${span(now() - due)} ago` : due > now() ? `due in ${span(due - now())}` : `due for ${span(now() - due)}`;
}

// drawNote explains what the list cannot have.
function drawNote() {
  const o = view.overview, parts = [];
  if (o.scans && (view.list === "ended" || view.list === "due" && partial(o))) {
    const reconciler = !o.scan_began ? "No reconciler has begun a scan." : o.scan_ended ? `The last scan of a reconciler ended at ${moment(o.scan_ended, now())}.` : "The first scan of a reconciler has not ended.";
    const own = o.scanned_at ? `This page read the table at ${moment(o.scanned_at, now())}.` : "A run that was killed without a warning is not in the index: only a read of the table finds it.";
    parts.push(el("p", { class: "muted small" }, `${own} ${reconciler}`), reader("ended-read", o.scanned_at ? "Read the table again" : "Read the table"));
  }
  if (view.list === "ended") {
    const killed = el("button", { type: "button", id: "killed" }, "Find killed runs that are unknown by now");
    killed.addEventListener("click", () => guarded(() => search({ reason: "lease_ended" }, $("nothing"))));
    parts.at(-1)?.append(killed);
    if (!parts.length) parts.push(el("div", { class: "row" }, killed));
  }
  const text = parts.map((p) => p.textContent).join("");
  if (view.noted !== text || !$("note").hasChildNodes()) $("note").replaceChildren(...parts);
  view.noted = text;
  $("note").hidden = parts.length === 0;
}

// Selected records keep the version and the token that the operator has seen.

function choose(rows, on) {
  for (const r of rows) {
    if (!r.version || !waits(r)) continue;
    if (on) view.chosen.set(r.record, view.chosen.get(r.record) ?? r);
    else view.chosen.delete(r.record);
  }
  for (const box of $("table").querySelectorAll('input[type="checkbox"]')) box.checked = view.chosen.has(box.value);
  drawSelection();
}

function drawSelection() {
  const can = view.page.rows.filter((r) => r.version && waits(r)), n = view.chosen.size;
  $("selection").hidden = !view.allow || can.length === 0 && n === 0;
  $("all").checked = can.length > 0 && can.every((r) => view.chosen.has(r.record));
  $("all").indeterminate = !$("all").checked && can.some((r) => view.chosen.has(r.record));
  $("selected").textContent = n > 100 ? `${n} selected; at most 100 can be settled at once` : n ? `${n} selected` : "";
  $("settle").textContent = n ? `Settle ${n} ${n === 1 ? "record" : "records"}` : "Settle";
  $("settle").disabled = n === 0 || n > 100;
  $("none").disabled = n === 0;
}

$("all").addEventListener("change", () => choose(view.page.rows, $("all").checked));
$("none").addEventListener("click", () => {
  view.chosen.clear();
  choose([], false);
});
$("settle").addEventListener("click", () => guarded(async () => openBatch([...view.chosen.values()])));
$("batch-back").addEventListener("click", closeBatch);

// One record.

const links = el("p", { class: "row", hidden: true }), changeForms = el("div", { class: "stack", id: "changes" });
const drawing = new RecordView($("record"), 3, el("div", { class: "stack" }, links, changeForms));

const shownID = () => (location.hash.startsWith("#r=") ? decodeURIComponent(location.hash.slice(3)) : "");

addEventListener("hashchange", () => guarded(async () => {
  const list = location.hash.startsWith("#list=") && location.hash.slice(6);
  if (Object.hasOwn(lists, list)) {
    closeBatch();
    await turn({ list, offset: 0 });
    $("waiting-title").focus();
  }
  await showRecord(true);
}));
$("close").addEventListener("click", () => {
  location.hash = "";
  $("main").focus();
});

async function showRecord(move) {
  const id = shownID();
  $("record-panel").hidden = true;
  view.record = undefined;
  mark();
  if (!id) return drawing.show(null);
  const read = await api(`api/record?${new URLSearchParams({ id })}`);
  if (id !== shownID()) return;
  view.record = read;
  const { record } = read;
  $("record-id").textContent = record.record;
  $("copy-id").replaceChildren(copyButton(record.record, "the record id"));
  links.replaceChildren(...(read.links ?? []).map(anchor));
  links.hidden = !read.links;
  drawing.show(record, { now: now() });
  $("results").replaceChildren(resultButton());
  changeForms.replaceChildren(...changes(read));
  $("record-panel").hidden = false;
  mark();
  say(`The record is ${stateName(record)}.`);
  if (move) $("record-title").focus();
}

// anchor returns a link to a page elsewhere. The server has checked its scheme and host.
const anchor = ({ name, url }) => el("a", { class: "button", href: url, target: "_blank", rel: "noopener noreferrer" }, name, el("span", { "aria-hidden": "true" }, "\u2197"));

function mark() {
  $("work").classList.toggle("two", !$("record-panel").hidden);
  for (const tr of $("table").querySelectorAll("#rows tr")) {
    if (view.record?.record.record === tr.dataset.record) tr.setAttribute("aria-current", "true");
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
  if (record.state === "completed") return [evidenceForm(shown), forgetForm(shown)];
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
  const f = el("form", { class: "form", autocomplete: "off" }, el("h3", {}, title), ...fields, field("Reason", why, reason), el("div", { class: "row" }, el("button", {}, button)), problem, below);
  f.addEventListener("submit", async (event) => {
    event.preventDefault();
    complain(problem, null);
    below.replaceChildren();
    await attempt(problem, async () => {
      const members = { ...(await order()), reason: JSON.stringify(why.value) };
      const send = (more = {}) => api(path, `{${Object.entries({ ...members, ...more }).map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(",")}}`);
      if (confirm) below.replaceChildren(question(await send(), async (word) => done(await send({ confirm: JSON.stringify(word) })), () => below.replaceChildren()));
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
    await attempt(problem, () => write(word.value));
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
  $(shownID() ? "record-title" : "waiting-title").focus();
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

// evidenceForm returns the form that settles a record, or that corrects its stored outcome.
function evidenceForm(shown) {
  const { record } = shown, correct = record.state === "completed";
  const fields = el("div", { class: "stack" });
  const choices = el("fieldset", { class: "stack" }, el("legend", { class: "label" }, correct ? "What is right?" : "What do you know?"));
  let evidence;
  for (const kind of kinds(record).filter((k) => !correct || k.outcome)) {
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
  return form(correct ? "Correct this outcome, because it is wrong" : "Settle this record by evidence", "api/resolve", {
    fields: [choices, fields, more], button: "Review", reason: correct ? "How you know that it is wrong. It is stored in the audit. Nothing runs." : "How you know. It is stored in the audit.",
    order: async () => ({ ...named(shown), evidence: `{${await evidence()}}`, result_version: quoted(version.value), force: String(force.checked), ...(correct ? { instead_of: quoted(record.token) } : {}) }),
  });
}

// kinds returns the kinds of evidence that the record can use.
function kinds(record) {
  const list = [];
  if (!record.seals) {
    list.push({ name: "completed", outcome: true, label: "It was done, and this is the result", fields: resultFields });
    list.push({ name: "final", outcome: true, label: "It ended in a business outcome", fields: () => {
      const code = input({ required: true }), message = input({ required: true });
      return { fields: [el("div", { class: "fields" }, field("Code", code), field("Message for callers", message))], evidence: () => `"final":${quoted({ code: code.value, message: message.value })}` };
    } });
  }
  list.push({ name: "without_result", outcome: true, label: "It was done, and its result is lost", fields: () => ({ fields: [el("p", { class: "muted small" }, "Retries get an error that says so. Nothing runs.")], evidence: () => `"without_result":true` }) });
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
  return form("Discard this outcome, so that the work runs again", "api/forget", {
    button: "Review", reason: "How you know that it is wrong. Undo the effect at the provider first: the next request runs.",
    order: () => ({ ...named(shown), token: quoted(shown.record.token) }),
  });
}

// Many records, with one review and one result for each.

const kindsOfMany = [
  ["without_result", "They were done, and their results are lost"],
  ["completed", "They were done, and these are the results"],
  ["final", "They ended in one business outcome"],
  ["not_executed", "Nothing happened, and nothing can happen any more"],
];

function openBatch(rows) {
  let kind = "";
  const code = input({ required: true }), message = input({ required: true }), why = input({ required: true, name: "reason" });
  const more = el("div", { class: "stack" }), table = el("div", {}), below = el("div", {});
  const problem = el("p", { class: "notice", "data-state": "unknown", role: "alert", hidden: true });
  const results = new Map(rows.map((r) => [r.record, resultOf(r)]));
  const draw = () => table.replaceChildren(cards("The selected records", [{ name: "Record" }, { name: "Reference" }, { name: "State" }, number("Age, since (UTC)"), { name: "Key at the provider" }, ...(kind === "completed" ? [{ name: "Result" }] : [])],
    rows.map((r) => [nameOf(r), r.ref ?? "", statePill(stated(r.state)), age(r.since),
      el("span", { class: "row" }, el("code", { class: "break" }, r.downstream_key), copyButton(r.downstream_key, `the key of ${nameOf(r)}`), ...(r.links ?? []).map(anchor)),
      ...(kind === "completed" ? [results.get(r.record).field] : [])])));
  const choices = el("fieldset", { class: "stack" }, el("legend", { class: "label" }, `What do you know of these ${many(rows.length)} records?`));
  for (const [name, label] of kindsOfMany) {
    const radio = el("input", { type: "radio", name: "many", value: name, required: true });
    radio.addEventListener("change", () => {
      kind = name;
      more.replaceChildren(...(kind === "final" ? [el("div", { class: "fields" }, field("Code", code), field("Message for callers", message))]
        : kind === "not_executed" ? [el("p", { class: "notice", "data-state": "unknown" }, "Each attempt has to be dead, not merely late. The next requests run: an effect that did happen happens twice. Only if you asked the provider after you had selected the records.")] : []));
      draw();
    });
    choices.append(el("label", { class: "row inline" }, radio, el("span", {}, label)));
  }
  const evidence = (r) => ({ without_result: () => '"without_result":true', completed: () => results.get(r.record).evidence(), final: () => `"final":${quoted({ code: code.value, message: message.value })}`, not_executed: () => `"not_executed":${quoted(r.token)}` })[kind]();
  const f = el("form", { class: "stack", autocomplete: "off" }, choices, more, table, field("Reason", why, "How you know. It is stored in the audit, in one line for each record."), el("div", { class: "row" }, el("button", { class: "primary" }, "Review")), problem, below);
  f.addEventListener("submit", async (event) => {
    event.preventDefault();
    below.replaceChildren();
    await attempt(problem, async () => {
      const items = new Map(rows.map((r) => [r.record, `{"record":${quoted(r.record)},"version":${quoted(r.version)},"evidence":{${evidence(r)}}}`])), reason = quoted(why.value);
      const send = (ids, confirm = "") => api("api/settle", `{"reason":${reason},"items":[${ids.map((id) => items.get(id)).join(",")}]${confirm}}`);
      const review = await send([...items.keys()]);
      const write = review.results.filter((r) => r.outcome === "would_write").map((r) => r.record);
      below.replaceChildren(el("h3", {}, "Review"), outcomes(review.results, rows),
        write.length ? question({ ...review, outcome: "" }, async (word) => settled(await send(write, `,"confirm":${quoted(word)}`), rows), () => below.replaceChildren()) : el("p", {}, "Nothing can be written."));
    });
    (below.querySelector(".question input") ?? below.querySelector("h3"))?.focus();
  });
  draw();
  $("batch-title").textContent = `Settle ${many(rows.length)} ${rows.length === 1 ? "record" : "records"}`;
  $("batch-body").replaceChildren(f);
  $("batch").hidden = false;
  $("work").hidden = true;
  $("batch-title").focus();
}

// resultOf returns the field for the result of one of many records.
function resultOf(r) {
  const label = `Result of ${nameOf(r)}`;
  if (r.seals || r.codec !== "json" && r.codec !== "http1") return { field: "Settle this record by itself.", evidence: () => { throw new Error(`${nameOf(r)} has to be settled by itself.`); } };
  const text = textarea({ rows: 2, required: true, "aria-label": label });
  if (r.codec === "json") return { field: text, evidence: () => `"completed":${json(text.value, label)}` };
  const status = input({ type: "number", min: 200, max: 599, value: "200", required: true, "aria-label": `Status of ${nameOf(r)}` });
  return { field: el("div", { class: "stack" }, status, text), evidence: () => `"response":${quoted({ status: Number(status.value), body: text.value })}` };
}

const said = { would_write: "will be written", written: "written", unchanged: "held this already", refused: "refused", failed: "failed", not_tried: "not tried" };
const hues = { would_write: "completed", written: "completed", refused: "unknown", failed: "unknown", not_tried: "retryable" };

// outcomes returns a table with the result of each record.
function outcomes(results, rows) {
  const row = new Map(rows.map((r) => [r.record, r]));
  return cards("The result of each record", [{ name: "Record" }, { name: "Reference" }, { name: "Result" }, { name: "State" }, { name: "Why" }], results.map((r) => [nameOf(row.get(r.record)), row.get(r.record).ref ?? "",
    el("span", { class: "pill", "data-state": hues[r.outcome] ?? "none" }, said[r.outcome] ?? r.outcome), r.to && r.to !== r.from ? `${r.from} \u2192 ${r.to}` : r.from ?? "", r.error ?? ""]));
}

// settled shows what was written of each record.
async function settled(answer, rows) {
  view.chosen.clear();
  const s = answer.summary, title = el("h3", { tabIndex: -1 }, `${many(s.written)} of ${many(s.records)} records were written. Refused: ${many(s.refused)}; failed: ${many(s.failed)}; not tried: ${many(s.not_tried)}.`);
  $("batch-title").textContent = "Settled records";
  $("batch-body").replaceChildren(title, ...(answer.notes ?? []).map((n) => el("p", { class: "notice", "data-state": "unknown" }, n)), outcomes(answer.results, rows));
  title.focus();
  await refresh();
}

function closeBatch() {
  if ($("batch").hidden) return;
  $("batch").hidden = true;
  $("work").hidden = false;
  $("batch-body").replaceChildren();
  $("waiting-title").focus();
}

// Finding a record. The key leaves the page once, in the body of the request.

$("find").addEventListener("submit", async (event) => {
  event.preventDefault();
  const f = event.target, data = new FormData(f);
  shut();
  await attempt(f.querySelector(".notice"), async () => {
    const text = data.get("record").trim(), byKey = data.get("key") || data.get("scope") || data.get("path") || data.has("global");
    if (!byKey && !/#[\w-]{12,43}$/.test(text)) return search({ ref: text }, $("nothing"));
    const wanted = { record: text, scope: data.get("scope"), global: data.has("global"), key: data.get("key"), path: data.get("path") };
    f.elements.key.value = "";
    const mine = ++searches, { record } = await api("api/find", wanted);
    if (mine === searches) await open(record);
  });
});

// shut closes what was open before a search: a record that stays would look like its result.
function shut() {
  closeBatch();
  $("nothing").hidden = true;
  if (!shownID()) return;
  history.replaceState(null, "", location.pathname);
  return showRecord(false);
}

async function open(record) {
  closeBatch();
  const hash = `#r=${encodeURIComponent(record)}`;
  if (location.hash === hash) await showRecord(true);
  else location.hash = hash;
}

// search finds records by their reference or the reason of their state: first those that
// wait, and if there is none, all of them, which has a price.
// The answer to an earlier search is not shown.
let searches = 0;
async function search(wanted, where) {
  shut();
  say("Searching.");
  const mine = ++searches, found = await api("api/search", wanted);
  if (mine !== searches) return;
  if (found.found > 0) {
    await turn({ list: "found", operation: "", within: "", offset: 0 });
    $("operation").value = $("within").value = "";
    if (found.record) return open(found.record);
    $("waiting-title").focus();
    return say(`${many(found.found, found.complete)} records were found.`);
  }
  where.hidden = false;
  const of = wanted.ref ? `has a reference with "${wanted.ref}"` : "was killed and is unknown";
  const damaged = found.unreadable ? ` ${many(found.unreadable)} could not be read.` : "", first = found.complete ? "" : " The first ones were searched.";
  if (wanted.whole) return where.replaceChildren(el("p", {}, `No record of the whole table ${of}.${damaged}`));
  const more = el("div", { class: "stack" });
  where.replaceChildren(el("p", { tabIndex: -1 }, `No record that waits ${of}.${first}${damaged}`), more);
  if (!wanted.ref) return where.firstChild.focus();
  await offer(more, "Search the whole table", () => search({ ...wanted, whole: true }, where));
}

// Reading everything, which has a price.

// offer shows the price of a read of the whole table, and begins it.
async function offer(where, label, begin, cancel = () => where.replaceChildren()) {
  const price = await api("api/price");
  const start = el("button", { type: "button", class: "primary" }, label), back = el("button", { type: "button" }, "Cancel");
  const cost = price.read_units ? `This reads the whole table: about ${many(price.items)} items, ${many(Math.ceil(price.read_units))} read units, $${price.usd.toFixed(6)} (on demand, us-east-1).` : "This reads everything. Its size is not known, or the store is a file.";
  back.addEventListener("click", cancel);
  start.addEventListener("click", () => guarded(async () => {
    start.disabled = true;
    say("Reading the table.");
    try {
      await begin();
    } finally {
      start.disabled = false;
    }
  }));
  where.replaceChildren(el("p", {}, cost), el("div", { class: "row" }, start, back));
  start.focus();
}

// reader returns a button that counts all records after it has shown the price.
function reader(id, label) {
  const box = el("div", { class: "stack" });
  const show = () => {
    const button = el("button", { type: "button", id }, label);
    button.addEventListener("click", () => guarded(() => offer(box, "Read the table", async () => {
      const stats = await api("api/count", {});
      show();
      drawStats(stats);
      await refresh();
    }, show)));
    box.replaceChildren(el("div", { class: "row" }, button));
  };
  show();
  return box;
}

function drawStats(stats) {
  view.counted = true; // until the operator refreshes
  $("groups-note").textContent = `all ${many(stats.records)} records${stats.read_units ? `, for ${stats.read_units.toFixed(1)} read units` : ""}`;
  $("groups").replaceChildren(cards("All records by operation and state", [{ name: "Operation" }, { name: "State" }, number("Records"), number("Created first"), number("Bytes of results")],
    stats.groups.map((g) => [g.operation, statePill(stated(g.state)), many(g.records), moment(g.oldest_created, now()), many(g.result_bytes)])));
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

// drawHours draws how many of the unknown outcomes became unknown in each hour.
function drawHours({ at, hours, earlier }) {
  const width = 480, height = 130, base = 104, bars = [earlier, ...hours], most = Math.max(1, ...hours), step = (width - 14) / bars.length;
  const begin = (i) => new Date(Date.parse(at) - (hours.length - i + 1) * 36e5).toISOString().slice(11, 16);
  const label = `Unknown outcomes by the hour in which they became unknown: ${bars.map((n, i) => n && `${i ? `from ${begin(i)}` : "earlier"}: ${n}`).filter(Boolean).join(", ") || "none"}.`;
  const x = (i) => i * step + (i ? 14 : 0);
  $("time").replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    ...bars.flatMap((n, i) => {
      const h = Math.min(1, n / most) * 80; // the hours have the scale: more that is earlier does not flatten them
      return n ? [svg("rect", { class: n > most ? "bar cut" : "bar", x: x(i) + 2, y: base - h, width: step - 4, height: h }), n * 4 >= most ? svg("text", { x: x(i) + step / 2, y: base - h - 5, "text-anchor": i ? "middle" : "start" }, String(n)) : ""] : [];
    }),
    svg("text", { x: 0, y: base + 16 }, "earlier"), ...[7, 13, 19].map((i) => svg("text", { x: x(i), y: base + 16, "text-anchor": "middle" }, begin(i))), svg("text", { x: width, y: base + 16, "text-anchor": "end" }, "now, UTC"),
    svg("line", { class: "axis", x1: 0, x2: step, y1: base, y2: base }), svg("line", { class: "axis", x1: step + 14, x2: width, y1: base, y2: base })));
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

setInterval(() => {
  if (!document.hidden) tickAges(document, now());
}, 1000);

$("count").append(reader("count-all", "Count all records"));
guarded(async () => {
  await enter();
  await refresh();
  if (shownID()) await showRecord(false);
});
