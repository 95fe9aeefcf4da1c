// SPDX-License-Identifier: Apache-2.0

import { RecordView, clock, copyButton, el, statePill } from "./record.js";

const $ = (id) => document.getElementById(id);
const view = new RecordView($("record"), 4);

// The halves of the page: the function with once, and the same function without.
const halves = {
  with: { name: "With once", path: "", suffix: "" },
  without: { name: "Without once", path: "without-once/", suffix: "-without" },
};

let key = new URLSearchParams(location.hash.slice(1)).get("key") ?? "";
let sent; // the body of the first request with the key
let used = false; // whether a request has used the key
let shown = { exchanges: [] };
let stream;

// --- what the buttons do ------------------------------------------------------

const slow = "cus_slow";
const body = (changes = {}) => ({ amount: $("amount").valueAsNumber, currency: "usd", customer: $("customer").value, ...changes });
const again = () => sent ?? body();
const other = () => ({ ...again(), amount: again().amount + 4800 });
const hangUpAfter = 1; // seconds

// Each action begins with a new key if it is fresh and the key was used. run sends its
// requests to a half, and commands returns the commands that do the same.
const actions = {
  send: {
    label: "Send", fresh: body, text: "A new request with a new key.",
    run: (half) => [charge(half, body())], commands: (half) => charging(half, again()),
  },
  lose: {
    label: "Lose the reply", fresh: () => body({ customer: slow }), text: `A new request, whose client hangs up after ${hangUpAfter} s.`,
    run: (half) => [charge(half, sent, AbortSignal.timeout(hangUpAfter * 1000))],
    commands: (half) => charging(half, body({ customer: slow }), ` --max-time ${hangUpAfter}`),
  },
  retry: {
    label: "Retry", text: "The same request with the same key.",
    run: (half) => [charge(half, again())], commands: (half) => charging(half, again()),
  },
  kill: {
    label: "Kill the worker", fresh: () => body({ customer: slow }), text: "A new request, whose worker gets SIGKILL when the charge is booked.",
    run: (half) => [charge(half, sent), post(killing(half), { idempotency_key: key })],
    commands: (half) => `${charging(half, body({ customer: slow }))} &\n${posting(`/${killing(half)}`, { idempotency_key: key })}\nwait`,
  },
  reconcile: {
    label: "Reconcile", only: "with", text: "Settles the record by what is in the provider’s ledger.",
    run: () => [post("admin/resolve", { idempotency_key: key })],
    commands: () => posting("/admin/resolve", { idempotency_key: key }),
  },
  two: {
    label: "Two at once", fresh: body, text: "A new request, sent twice at the same time.",
    run: (half) => [charge(half, sent), charge(half, sent)],
    commands: (half) => `for i in 1 2; do\n${indented(charging(half, again()))} &\ndone; wait`,
  },
  other: {
    label: "Other amount", text: "The same key with another amount: a mistake of the client.",
    run: (half) => [charge(half, other())], commands: (half) => charging(half, other()),
  },
};

const killing = (half) => (half === "with" ? "playground/kill" : "without-once/kill");

let began = ""; // the newest action that began with a new key
let last = ""; // the newest action
let pressed = 0; // how many actions there were
let waiting = 0; // requests of the newest action that have no answer yet
let asked = 0; // requests with the key

function act(name) {
  if (!$("form").reportValidity()) return;
  const action = actions[name];
  if (action.fresh && used) renew();
  const press = ++pressed;
  if (action.fresh) {
    began = name;
    sent = action.fresh();
  }
  last = name;
  used = true;
  waiting = 0;
  showCommands();
  for (const [half, { suffix }] of Object.entries(halves)) {
    const requests = action.only && action.only !== half ? [] : action.run(half);
    const lines = requests.map(() => el("div", {}, el("span", { class: "pill", "data-state": "in_progress" }, "waiting")));
    $(`got${suffix}`).replaceChildren(...(lines.length > 0 ? lines : [el("p", { class: "says" }, "Nothing was sent: there is no record.")]));
    waiting += requests.length;
    asked += requests.length;
    requests.forEach(async (request, i) => {
      const got = await request;
      if (press !== pressed) return; // another button was pressed meanwhile
      waiting--;
      reveal(() => { lines[i].replaceChildren(...outcome(got)); showNext(); });
    });
  }
  showNext();
  unfold(document.querySelector(`[data-command="${name}"]`));
}

function charge(half, request, signal) {
  return send(`${halves[half].path}charges`, request, { "Idempotency-Key": spelled() }, signal);
}

function post(path, request) {
  return send(path, request, {});
}

// send sends a request, and returns what its client gets. The stream has what the
// server knows of it, as of requests from a terminal.
async function send(path, request, headers, signal) {
  try {
    const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(request), signal });
    return { status: answer.status, header: { "Idempotent-Replayed": answer.headers.get("Idempotent-Replayed") }, response: await answer.text() };
  } catch {
    return { status: 0, lost: signal?.aborted };
  }
}

// spelled returns the key as the header of the profile has it.
function spelled() {
  return shown.profile === "ietf" ? `"${key}"` : key;
}

// --- the same in a terminal -----------------------------------------------------

function charging(half, request, options = "") {
  return curl(`/${halves[half].path}charges`, request, [`Idempotency-Key: ${spelled()}`], options);
}

function posting(path, request) {
  return curl(path, request, [], "");
}

function curl(path, request, headers, options) {
  return [`curl -i${options} ${location.origin}${path}`, ...headers.map((h) => `-H ${quoted(h)}`), "-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(request))}`].join(" \\\n  ");
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function indented(text) {
  return text.replace(/^/gm, "  ");
}

// --- the answer, and what to do next ------------------------------------------------

// unfold puts the outcome below an element. The button above it stays where it is, as
// far as the page can scroll.
function unfold(below) {
  const button = below.parentElement.querySelector("button"), before = button.getBoundingClientRect().top;
  below.before($("outcome"));
  $("outcome-halves").hidden = false;
  scrollBy(0, button.getBoundingClientRect().top - before);
  below.parentElement.scrollIntoView({ block: "nearest" });
}

// reveal changes the outcome, and keeps it in view, unless its reader has scrolled away.
function reveal(change) {
  const at = $("outcome").getBoundingClientRect(), seen = at.top >= 0 && at.bottom <= innerHeight;
  change();
  if (seen && pressed > 0) $("outcome").parentElement.scrollIntoView({ block: "nearest" });
}

// outcome returns what the client of a request got.
function outcome(got) {
  const pill = got.status ? `${got.status} ${names[got.status] ?? ""}` : "no answer";
  return [el("span", { class: "pill", "data-state": got.status ? hue(got) : "retryable" }, pill), replayed(got) ? el("span", { class: "pill plain" }, "replayed") : "", el("p", { class: "says" }, brief(got))];
}

// brief is meaning, in a few words.
function brief(got) {
  const said = parsed(got.response);
  if (got.lost) return "The client hung up.";
  if (!got.status) return "The server is gone.";
  if (replayed(got)) return "The stored answer.";
  if (said?.id) return "A new charge.";
  if (said?.resolution === "completed") return "The provider has the charge.";
  if (got.status === 409 && !said?.resolution) return "Refused: how the first request ends is not known yet.";
  if (got.status === 422) return "Refused: the key belongs to another request.";
  return meaning(got);
}

const number = (n) => ["no charge", "one charge", "two charges", "three charges"][n] ?? `${n} charges`;

// advice returns the action to try next, if there is one, and a sentence about it.
function advice() {
  const record = shown.record?.state, open = record === "in_progress" || record === "unknown";
  const score = shown.with?.ledger ? `${number(shown.with.of_key)} with once, ${number(shown.without.of_key)} without.`.replace(/^./, (c) => c.toUpperCase()) : "";
  if (!used) return ["send", "Start here: send a request to both."];
  switch (last) {
    case "send":
      return ["lose", "Now lose the reply: the client hangs up, and does not know whether it was charged."];
    case "lose":
      return ["retry", "The charge was made, but the client does not know. Send it again, as a client would."];
    case "kill":
      return ["retry", "The customer was charged, and the client got an error. Send it again, as a client would."];
    case "two":
      return ["other", `${score} Now send another amount with the same key.`];
    case "other":
      return ["send", `${score} That was the last button. Start again, or try to get a second charge with once.`];
  }
  if (open && leaseLeft() > 0) return ["", `${score} The worker could still be running, so wait for the end of the lease. Then reconcile.`];
  if (open) return ["reconcile", `${score} Reconcile: the provider’s ledger shows what became of the first request.`];
  if (last === "reconcile") return ["retry", "The record has the outcome. Send the request again: the client gets its answer."];
  if (began === "kill") return ["two", `${score} Every retry gets the stored answer. Now send two requests at once.`];
  return ["kill", `${score} Now kill the worker in the middle of a charge.`];
}

// remembered is how many exchanges of a key the server remembers.
const remembered = 30;

let suggested; // what is shown
let leaseTimer;

// showNext shows the advice, once every request is answered.
function showNext() {
  clearTimeout(leaseTimer);
  const left = leaseLeft();
  if (left > 0) leaseTimer = setTimeout(showNext, left);
  const busy = waiting > 0 || shown.exchanges.length < Math.min(asked, remembered) || shown.exchanges.some((e) => !e.status);
  const [action, text] = busy ? ["", ""] : advice();
  if (suggested === action + text) return;
  suggested = action + text;
  for (const [name, a] of Object.entries(actions)) {
    a.row.classList.toggle("suggested", name === action);
    a.row.querySelector(".tag").hidden = name !== action;
  }
  reveal(() => { $("next").textContent = text || "Waiting for the answers."; });
  if (text) $("announce-next").textContent = `${text}${action ? ` Next: ${actions[action].label}.` : ""}`;
}

// leaseLeft returns how long the record is in progress at least, in milliseconds.
function leaseLeft() {
  return shown.record?.state === "in_progress" ? shown.leaseEnd - performance.now() : 0;
}

// --- the page --------------------------------------------------------------------

function build() {
  $("actions").append(...Object.entries(actions).map(([name, a]) => {
    const button = el("button", { type: name === "send" ? "submit" : "button", "data-action": name, "aria-describedby": `about-${name}` }, a.label);
    if (name !== "send") button.addEventListener("click", () => act(name));
    const details = el("details", { "data-command": name }, el("summary", {}, "curl", el("span", { class: "unseen" }, ` for ${a.label}`)));
    for (const [half, { name: title }] of Object.entries(halves)) {
      if (a.only && a.only !== half) continue;
      const pre = el("pre", { tabIndex: 0, role: "region", "aria-label": `curl command for ${a.label}, ${title.toLowerCase()}` });
      details.append(el("div", { class: "command", "data-half": half }, el("span", { class: "label" }, title), pre));
    }
    a.row = el("li", {}, el("div", { class: "row" }, button, el("p", { id: `about-${name}` }, el("strong", { class: "tag", hidden: true }, "Next"), a.text)), details);
    return a.row;
  }));
  $("form").addEventListener("submit", (e) => { e.preventDefault(); act("send"); });
  $("form").addEventListener("input", () => { if (!used) showCommands(); });
  $("new-key").addEventListener("click", () => {
    renew();
    $("actions").before($("outcome"));
    $("outcome-halves").hidden = true;
    showCommands();
    showNext();
  });
  if (!/^[0-9a-f-]{16,64}$/.test(key)) key = crypto.randomUUID();
  follow();
}

function renew() {
  key = crypto.randomUUID();
  sent = undefined;
  shown = { profile: shown.profile, exchanges: [] };
  used = false;
  asked = waiting = 0;
  pressed++; // what is still answered belongs to the old key
  follow();
}

function showCommands() {
  for (const [name, a] of Object.entries(actions)) {
    for (const box of a.row.querySelectorAll(".command")) {
      const text = a.commands(box.dataset.half), pre = box.querySelector("pre");
      if (pre.textContent === text) continue;
      pre.textContent = text;
      box.querySelector("button")?.remove();
      pre.before(copyButton(text, pre.getAttribute("aria-label")));
    }
  }
}

// follow shows what becomes of the key.
function follow() {
  history.replaceState(null, "", `#key=${key}`);
  $("key").textContent = key;
  stream?.close();
  stream = new EventSource(`playground/watch?idempotency_key=${encodeURIComponent(key)}`);
  stream.onmessage = (e) => show(JSON.parse(e.data));
  stream.onopen = () => problem("");
  stream.onerror = () => problem("The server does not answer. Start it again with make run: the record and the ledger are in files.");
}

function problem(text) {
  $("problem").hidden = !text;
  if ($("problem").textContent !== text) $("problem").textContent = text;
}

const isWithout = (e) => e.path.startsWith("/without-once/");

function show(now) {
  now.exchanges ??= [];
  const charges = now.exchanges.filter((e) => e.path.endsWith("/charges"));
  used ||= charges.length > 0 || now.record !== null;
  if (!sent && charges.length > 0) sent = parsed(charges[0].request) ?? undefined;
  announce(now);
  shown = now;
  shown.leaseEnd = performance.now() + Date.parse(now.record?.lease_end) - Date.parse(now.now);
  view.show(now.record, { now: Date.parse(now.now), history: now.history ?? undefined });
  for (const [half, { suffix }] of Object.entries(halves)) {
    showSide($(`side-${half}`), now[half]);
    showLedger(now[half], suffix);
    showAnswers(`answers${suffix}`, now.exchanges.filter((e) => isWithout(e) === (half === "without")));
    $(`workers${suffix}`).replaceChildren(...workers(now[half].workers ?? []));
  }
  showEvidence(now);
  showCommands();
  showNext();
  if (now.problem) problem(now.problem);
  document.querySelector("main").hidden = false;
}

const money = (amount, currency) => `${(amount / 100).toFixed(2)} ${currency}`;

// showSide shows what a half has charged.
function showSide(side, { ledger, of_key: n, amounts }) {
  const verdicts = ["Not charged", "✓ Charged once", "✕ Charged twice"];
  const verdict = ledger ? verdicts[n] ?? `✕ Charged ${n} times` : "At PROVIDER_URL, not shown here";
  const sums = Object.entries(amounts).map(([currency, amount]) => money(amount, currency)).join(" + ");
  for (const [part, text] of [["count", ledger ? `${n}` : "–"], ["unit", n === 1 ? "charge" : "charges"], ["money", sums || "0.00 usd"], ["verdict", verdict]]) {
    const e = side.querySelector(`.${part}`);
    if (e.textContent !== text) e.textContent = text;
  }
  side.dataset.state = ["none", "completed"][n] ?? "unknown";
}

function workers(list) {
  if (list.length === 0) return [el("span", { class: "muted" }, "none: the next request starts one")];
  return list.map((w) => el("span", { class: "pill", "data-state": w.mine ? "in_progress" : "none" }, `${w.pid} ${w.busy ? "works" : "idle"}`));
}

// announce says the newest change to screen readers.
function announce(now) {
  const before = shown.exchanges.filter((e) => e.status).length, answered = now.exchanges.filter((e) => e.status);
  const texts = answered.slice(before).map((e) => `${e.path} was answered with ${e.status}${replayed(e) ? ", replayed" : ""}.`);
  if (shown.record !== undefined && (shown.record?.state ?? "") !== (now.record?.state ?? "")) texts.push(`The record is ${statePill(now.record).textContent}.`);
  if (texts.length > 0) $("announce").textContent = texts.join(" ");
}

function showLedger({ ledger, booked }, suffix) {
  $(`booked${suffix}`).textContent = ledger ? `${booked} in all` : "at PROVIDER_URL, not shown here";
  $(`ledger${suffix}`).replaceChildren(...(ledger?.length ? ledger.map((c, i) => {
    const more = i < ledger.length - 1; // the oldest is the last
    return el("tr", { class: more ? "more" : "first" }, el("td", {}, el("code", {}, `${c.id.slice(0, 13)}…`), more ? el("div", { class: "small" }, "✕ charged again") : null),
      el("td", {}, c.customer), el("td", { class: "amount" }, money(c.amount, c.currency)));
  }) : [el("tr", {}, el("td", { colSpan: 3, class: "muted" }, ledger ? "Nothing was charged for this key." : ""))]));
}

// showEvidence says what the ledgers mean for the record, and for the customer.
function showEvidence(now) {
  const evidence = $("evidence"), doubled = $("doubled"), n = now.without.of_key;
  evidence.hidden = !now.with.ledger || !now.record || now.record.state === "completed";
  evidence.dataset.state = now.with.of_key > 0 ? "completed" : "none";
  const found = now.with.of_key > 0 ? "Evidence: the ledger has a charge under the key of this record. The charge was made." : "The ledger has no charge under the key of this record.";
  if (evidence.textContent !== found) evidence.textContent = found;
  doubled.hidden = n < 2;
  const twice = `The customer was charged ${n === 2 ? "twice" : `${n} times`} for one key. Only a search of the ledger shows it.`;
  if (doubled.textContent !== twice) doubled.textContent = twice;
}

const rows = new Map();

// showAnswers updates a list in place, so that what is open stays open.
function showAnswers(list, exchanges) {
  $(list).previousElementSibling.hidden = exchanges.length > 0;
  const seen = new Set();
  exchanges.forEach((e, i) => {
    const id = `${list} ${key} ${e.at} ${e.path} ${i}`, version = JSON.stringify(e);
    seen.add(id);
    let row = rows.get(id);
    if (!row) {
      row = { li: el("li"), list };
      rows.set(id, row);
      $(list).prepend(row.li);
    }
    if (row.version === version) return;
    row.version = version;
    const open = row.li.querySelector("details")?.open ?? false;
    row.li.replaceChildren(...answer(e, open));
  });
  for (const [id, row] of rows) {
    if (row.list !== list || seen.has(id)) continue;
    row.li.remove();
    rows.delete(id);
  }
}

function answer(e, open) {
  const line = el("div", { class: "line" },
    el("span", { class: "pill", "data-state": hue(e) }, e.status ? `${e.status} ${names[e.status] ?? ""}` : "waiting"),
    el("code", {}, `${e.method} ${e.path}`),
    replayed(e) ? el("span", { class: "pill plain" }, "replayed") : null,
    e.lost ? el("span", { class: "pill plain", "data-state": "retryable" }, "client had gone") : null,
    el("span", { class: "ms number" }, e.status || e.ms >= 100 ? `${e.ms} ms` : ""));
  const says = meaning(e);
  const details = el("details", { open }, el("summary", {}, "Request and answer", el("span", { class: "unseen" }, ` at ${clock(e.at)}`)),
    el("pre", { tabIndex: 0, role: "region", "aria-label": `Request at ${clock(e.at)}` }, `${e.method} ${e.path}\n\n${e.request}`),
    e.status ? el("pre", { tabIndex: 0, role: "region", "aria-label": `Answer to the request at ${clock(e.at)}` }, `${e.status} ${names[e.status] ?? ""}\n${headers(e)}\n\n${e.response ?? ""}`) : null);
  return [line, says ? el("p", { class: "says" }, says) : null, details].filter(Boolean);
}

const names = { 200: "OK", 201: "Created", 400: "Bad Request", 402: "Payment Required", 404: "Not Found", 409: "Conflict", 422: "Unprocessable Content", 500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout" };

function hue(e) {
  if (!e.status) return "in_progress";
  if (e.status < 300) return "completed";
  return e.status < 500 ? "retryable" : "unknown";
}

const replayed = (e) => e.header?.["Idempotent-Replayed"] === "true";

// meaning returns what an answer says, in a sentence.
function meaning(e) {
  const said = parsed(e.response);
  if (!e.status) return "";
  if (said?.killed) return `Process ${said.killed} got SIGKILL.`;
  if (said?.resolution) return said.resolution === "completed" ? "The provider has the charge. The record is completed with it." : "The provider has no charge. The next request with this key runs.";
  if (said?.id) return `Charge ${said.id.slice(0, 13)}…${replayed(e) ? ", the stored answer." : ""}`;
  if (e.status === 502 && !said?.detail) return "The worker died with the request.";
  return said?.detail ?? said?.error?.message ?? "";
}

function headers(e) {
  return Object.entries(e.header ?? {}).map(([name, value]) => `${name}: ${value}`).join("\n");
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

build();
