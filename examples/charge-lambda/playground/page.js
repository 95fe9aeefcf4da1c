// SPDX-License-Identifier: Apache-2.0

import { RecordView, clock, copyButton, el, statePill } from "./record.js";

const $ = (id) => document.getElementById(id);
const view = new RecordView($("record"));

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

// Each action begins with a new key if it is fresh and the key was used. run does
// what the commands do.
const actions = {
  send: {
    label: "Send", kind: "primary", fresh: true, text: "One request with a new key.",
    run: () => charge(body()), commands: () => charging(again()),
  },
  retry: {
    label: "Retry", text: "The same request with the same key.",
    run: () => charge(again()), commands: () => charging(again()),
  },
  two: {
    label: "Two at once", fresh: true, text: "Two equal requests at the same time. Only one of them runs.",
    run: () => Promise.all([charge(body()), charge(body())]),
    commands: () => `for i in 1 2; do\n${indented(charging(again()))} &\ndone; wait`,
  },
  other: {
    label: "Other amount", text: "The same key with another amount: a mistake, and refused.",
    run: () => charge(other()), commands: () => charging(other()),
  },
  lose: {
    label: "Lose the reply", fresh: true, text: `The client hangs up after ${hangUpAfter} s, and the charge goes on. Then retry.`,
    run: () => charge(body({ customer: slow }), AbortSignal.timeout(hangUpAfter * 1000)),
    commands: () => charging(body({ customer: slow }), ` --max-time ${hangUpAfter}`),
  },
  kill: {
    label: "Kill the worker", kind: "danger", fresh: true, text: "SIGKILL for the worker’s process, after the provider has booked the charge.",
    run: () => Promise.all([charge(body({ customer: slow })), post("playground/kill", { idempotency_key: key })]),
    commands: () => `${charging(body({ customer: slow }))} &\n${posting("/playground/kill", { idempotency_key: key })}\nwait`,
  },
  reconcile: {
    label: "Reconcile", text: "Asks the provider what happened, and settles the record with its answer.",
    run: () => post("admin/resolve", { idempotency_key: key }),
    commands: () => posting("/admin/resolve", { idempotency_key: key }),
  },
};

async function act(name) {
  if (!$("form").reportValidity()) return;
  const action = actions[name];
  if (action.fresh && used) renew();
  if (action.fresh) sent = name === "send" || name === "two" ? body() : body({ customer: slow });
  used = true;
  showCommands();
  await action.run();
}

function charge(request, signal) {
  return send("charges", request, { "Idempotency-Key": spelled() }, signal);
}

function post(path, request) {
  return send(path, request, {});
}

// send sends a request. Its answer arrives with the stream, like those of requests
// from a terminal.
async function send(path, request, headers, signal) {
  try {
    const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(request), signal });
    await answer.text();
  } catch {
    // The client hung up, or the server is not there. The stream shows which.
  }
}

// spelled returns the key as the header of the profile has it.
function spelled() {
  return shown.profile === "ietf" ? `"${key}"` : key;
}

// --- the same in a terminal -----------------------------------------------------

function charging(request, options = "") {
  return curl("/charges", request, [`Idempotency-Key: ${spelled()}`], options);
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

// --- the page --------------------------------------------------------------------

function build() {
  $("actions").append(...Object.entries(actions).map(([name, a]) => {
    const button = el("button", { type: name === "send" ? "submit" : "button", class: a.kind ?? "", "data-action": name, "aria-describedby": `about-${name}` }, a.label);
    if (name !== "send") button.addEventListener("click", () => act(name));
    const pre = el("pre", { tabIndex: 0, role: "region", "aria-label": `curl command for ${a.label}` }), box = el("div", { class: "command" }, pre);
    const details = el("details", { "data-command": name }, el("summary", {}, "curl", el("span", { class: "unseen" }, ` for ${a.label}`)), box);
    return el("li", {}, el("div", { class: "row" }, button, el("div", { class: "text" }, el("p", { id: `about-${name}` }, a.text), details)));
  }));
  $("form").addEventListener("submit", (e) => { e.preventDefault(); act("send"); });
  $("form").addEventListener("input", () => { if (!used) showCommands(); });
  $("new-key").addEventListener("click", () => { renew(); showCommands(); });
  if (!/^[0-9a-f-]{16,64}$/.test(key)) key = crypto.randomUUID();
  follow();
}

function renew() {
  key = crypto.randomUUID();
  sent = undefined;
  shown = { profile: shown.profile, exchanges: [] };
  used = false;
  follow();
}

function showCommands() {
  for (const [name, a] of Object.entries(actions)) {
    const box = document.querySelector(`[data-command="${name}"] .command`), text = a.commands();
    if (box.firstChild.textContent === text) continue;
    box.firstChild.textContent = text;
    box.replaceChildren(box.firstChild, copyButton(text, `the curl command for ${a.label}`));
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

function show(now) {
  now.exchanges ??= [];
  const charges = now.exchanges.filter((e) => e.path === "/charges");
  used ||= charges.length > 0 || now.record !== null;
  if (!sent && charges.length > 0) sent = parsed(charges[0].request) ?? undefined;
  announce(now);
  shown = now;
  view.show(now.record, { now: Date.parse(now.now), history: now.history ?? undefined });
  $("requests").textContent = charges.length;
  $("of-key").textContent = now.ledger ? now.of_key : "–";
  $("state").replaceChildren(statePill(now.record));
  $("workers").replaceChildren(...workers(now.workers ?? []));
  showLedger(now);
  showAnswers(now.exchanges);
  showCommands();
  if (now.problem) problem(now.problem);
  document.querySelector("main").hidden = false;
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

function showLedger(now) {
  const mine = now.record?.downstream_key;
  if (!now.ledger) {
    $("booked").textContent = "at PROVIDER_URL, not shown here";
    return;
  }
  $("booked").textContent = `${now.booked} in all`;
  $("ledger").replaceChildren(...(now.ledger.length === 0 ? [el("tr", {}, el("td", { colSpan: 3, class: "muted" }, "Nothing was charged yet."))] : now.ledger.map((c) => el("tr", { class: c.idempotency_key === mine ? "mine" : "" },
    el("td", {}, el("code", {}, `${c.id.slice(0, 13)}…`), c.idempotency_key === mine ? el("div", { class: "small" }, "of this key") : null),
    el("td", {}, c.customer), el("td", { class: "amount" }, `${(c.amount / 100).toFixed(2)} ${c.currency}`)))));
  const evidence = $("evidence"), open = now.record && now.record.state !== "completed";
  evidence.hidden = !open;
  if (!open) return;
  const booked = now.ledger.find((c) => c.idempotency_key === mine);
  evidence.dataset.state = booked ? "completed" : "none";
  const text = now.of_key > 0 ? "Evidence: the ledger has a charge under the key of this record. The charge was made." : "The ledger has no charge under the key of this record.";
  if (evidence.textContent !== text) evidence.textContent = text;
}

const rows = new Map();

// showAnswers updates the list in place, so that what is open stays open.
function showAnswers(list) {
  $("no-answers").hidden = list.length > 0;
  const seen = new Set();
  list.forEach((e, i) => {
    const id = `${key} ${e.at} ${e.path} ${i}`, version = JSON.stringify(e);
    seen.add(id);
    let row = rows.get(id);
    if (!row) {
      row = { li: el("li"), open: false };
      rows.set(id, row);
      $("answers").prepend(row.li);
    }
    if (row.version === version) return;
    row.version = version;
    const open = row.li.querySelector("details")?.open ?? false;
    row.li.replaceChildren(...answer(e, open));
  });
  for (const [id, row] of rows) {
    if (seen.has(id)) continue;
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
