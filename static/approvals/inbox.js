/**
 * The inbox keeps itself fresh: a hint from the socket, or a slow re-reading, fetches the lists again. A request that
 * somebody is reading or writing a reason for is never replaced under their hands; only new ones are added and closed
 * ones are marked. Without this script the page works as plain forms.
 */

import { connect } from "../helix/helix.js";

const REREAD_MS = 15000;
const OUTCOME_MS = 8000;
const RECONNECT_MS = { first: 500, most: 30000 };
const root = document.querySelector("[data-list]");
const lists = document.getElementById("inbox-lists");
const state = document.getElementById("inbox-state");
const link = connect();

const requestsOf = (place) => [...place.querySelectorAll("[data-requests] > [data-key]")];

async function refresh() {
  try {
    const answer = await fetch(root.dataset.list, { credentials: "same-origin", redirect: "error" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    merge(new DOMParser().parseFromString(await answer.text(), "text/html"));
    state.hidden = true;
  } catch {
    state.textContent = "The list could not be refreshed; it may be stale. It is tried again by itself.";
    state.hidden = false;
  }
}

function merge(fresh) {
  const list = lists.querySelector("[data-requests]");
  const known = new Map(requestsOf(lists).map((item) => [item.dataset.key, item]));
  const wanted = requestsOf(fresh);
  const keys = new Set(wanted.map((item) => item.dataset.key));
  for (const [key, item] of known) if (!keys.has(key)) close(item, "This request is closed.");
  let before = list.firstElementChild;
  for (const item of wanted) {
    const mine = known.get(item.dataset.key);
    if (mine) before = mine.nextElementSibling;
    else list.insertBefore(item, before);
  }
  lists.querySelector("[data-count]").textContent = fresh.querySelector("[data-count]").textContent;
  lists.querySelector("[data-empty]").hidden = list.children.length > 0;
  lists.querySelector("[data-conversations]").replaceWith(fresh.querySelector("[data-conversations]"));
  countDown();
}

/** Removes a closed request, or leaves its outcome to be read when somebody is or was at work on it. */
function close(item, text) {
  const isInUse = item.contains(document.activeElement);
  if (item.classList.contains("decided")) {
    if (!isInUse && Date.now() - item.decidedAt > OUTCOME_MS) item.remove();
  } else if (isInUse || item.querySelector('[name="reason"]').value) settle(item, text);
  else item.remove();
}

function settle(item, text) {
  item.classList.add("decided");
  item.decidedAt = Date.now();
  const outcome = Object.assign(document.createElement("p"), { className: "notice", tabIndex: -1, textContent: text });
  outcome.setAttribute("role", "status");
  // A pressed button that was disabled has lost its focus to the body; a person who is elsewhere keeps theirs.
  const isHere = document.activeElement === document.body || item.contains(document.activeElement);
  item.querySelector("form").replaceWith(outcome);
  if (isHere) outcome.focus();
}

lists.addEventListener("submit", async (event) => {
  if (!event.target.matches("[data-decide]")) return;
  event.preventDefault();
  const form = event.target;
  const refusal = form.querySelector("[data-refusal]");
  const buttons = form.querySelectorAll("button");
  const body = new FormData(form, event.submitter);
  buttons.forEach((button) => (button.disabled = true));
  refusal.hidden = true;
  try {
    const answer = await fetch(form.action, { method: "POST", body, headers: { Accept: "application/json" } });
    const { text } = await answer.json();
    if (answer.ok || answer.status === 404) settle(form.closest("[data-key]"), text);
    else show(text);
  } catch {
    show("The server could not be reached; press again. A verdict counts once, however often it is sent.");
  }
  buttons.forEach((button) => (button.disabled = false));
  await refresh();

  function show(text) {
    refusal.textContent = text;
    refusal.hidden = false;
  }
});

function countDown() {
  const inWords = new Intl.RelativeTimeFormat("en", { numeric: "always" });
  for (const time of lists.querySelectorAll("[data-countdown]")) {
    time.title = new Date(time.dateTime).toLocaleString();
    const seconds = Math.round((new Date(time.dateTime) - Date.now()) / 1000);
    const [size, unit] = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]]
      .find(([least]) => Math.abs(seconds) >= least) ?? [1, "second"];
    time.textContent = inWords.format(Math.round(seconds / size), unit);
  }
}

let failures = 0;
function listen() {
  link.listen("inbox/", {
    onFrame() {
      failures = 0;
      refresh();
    },
    onClose() {
      const wait = Math.min(RECONNECT_MS.first * 2 ** failures++, RECONNECT_MS.most);
      setTimeout(listen, wait * (0.5 + Math.random() / 2));
    },
  });
}

listen();
countDown();
setInterval(countDown, 1000);
setInterval(refresh, REREAD_MS);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
