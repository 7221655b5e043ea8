// The console: asks the router every other second while it is looked at, and shows what it says.

import { ask, Refused, setToken } from "./api.js";
import { count, find, keep, make, octets, say, seconds, short, shown } from "./dom.js";
import { Plots } from "./plots.js";
import { showContainers, showDeliveries, showRoutes } from "./tables.js";
import { drawTopology } from "./topology.js";

const POLL_SECONDS = 2;
const SPAN_SECONDS = 900;
const SAMPLE_SECONDS = 5;

const plots = new Plots(find("plots"));
let last = null;
let lastPeers = new Map();
let sampledAt = 0;
let answeredAt = 0;
let isAsking = false;

async function poll() {
  if (isAsking || document.hidden) return;
  isAsking = true;
  try {
    if (!last) plots.load((await ask(`/api/v1/history?seconds=${SPAN_SECONDS}`)).samples);
    const overview = await ask("/api/v1/overview?most=100");
    answeredAt = Date.now();
    show(overview);
    await pollDeliveries();
  } catch (error) {
    await fail(error);
  } finally {
    isAsking = false;
    showFreshness();
  }
}

async function pollDeliveries() {
  const isInDoubt = document.querySelector("input[name=deliveries]:checked").value === "in-doubt";
  const page = await ask(`/api/v1/deliveries?limit=25&in_doubt=${isInDoubt}`);
  showDeliveries(page, isInDoubt, decide);
}

async function fail(error) {
  if (error instanceof Refused && error.status === 401) {
    const token = await askForToken();
    if (token) setToken(token);
    return;
  }
  say(find("state"), error instanceof Refused ? "refused" : "no answer", "pill error");
  if (error instanceof Refused) tell(error.message);
}

// What is shown

function show(overview) {
  const { status } = overview;
  document.title = `${status.problems.some((each) => each.severity === "error") ? "⚠ " : ""}${shown(status.id)} · router`;
  say(find("router-id"), status.id);
  const [state, kind] = stateOf(status);
  say(find("state"), state, `pill ${kind}`);
  say(find("facts"), describe(status));
  showProblems(status);
  showTiles(status);
  const rates = peerRates(overview);
  drawTopology(find("topology"), overview, rates);
  showRoutes(overview.routes, overview.hidden_routes, toggle);
  showContainers(overview.containers, overview.hidden_containers);
  sample(status);
  find("drain").disabled = status.is_draining;
  find("reload").disabled = status.is_draining;
  last = overview;
}

function stateOf(status) {
  if (status.is_draining) return ["draining", "warning"];
  return status.is_ready ? ["ready", "good"] : [`not ready: ${status.reasons.join("; ")}`, "error"];
}

function describe(status) {
  const workers = status.workers.length === 1 ? "1 worker" : `${status.workers.length} workers`;
  return `version ${status.version} · up ${seconds(status.uptime_seconds)} · ${workers}`;
}

function showProblems(status) {
  const create = () => {
    const text = make("span", {}, make("span"), make("strong"), make("span"));
    return make("li", {}, make("span", { class: "severity" }), text, make("span", { class: "advice" }));
  };
  const problems = status.problems.map((each, index) => ({ ...each, index }));
  const key = (each) => `${each.subject} ${each.name} ${each.index}`;
  keep(find("problems"), problems, key, create, (item, each) => {
    item.className = each.severity;
    const [severity, text, advice] = item.children;
    say(severity, each.severity);
    say(text.children[0], `${each.subject} `);
    say(text.children[1], each.name);
    say(text.children[2], ` ${each.text}`);
    say(advice, each.advice);
  });
  if (!problems.length) {
    const good = make("li", { class: "good" }, "Nothing is wrong.");
    good.dataset.key = "good";
    find("problems").replaceChildren(good);
  }
}

function showTiles(status) {
  const rates = status.rates;
  const memory = status.workers.reduce((sum, worker) => sum + worker.resident_octets, 0);
  const lag = Math.max(0, ...status.workers.map((worker) => worker.lag_seconds));
  const tiles = [
    ["In", rates ? `${short(rates.received)}/s` : "–"],
    ["Out", rates ? `${short(rates.sent)}/s` : "–"],
    ["To outcome", seconds(rates?.outcome_seconds)],
    ["Unsettled", count(status.unsettled)],
    ["Oldest", seconds(status.oldest_seconds)],
    ["In doubt", count(status.in_doubt), status.in_doubt > 0],
    ["Connections", count(status.connections)],
    ["Memory", octets(memory)],
    ["Loop lag", seconds(lag), lag > 0.1],
  ];
  const create = () => make("div", {}, make("dt"), make("dd"));
  keep(find("tiles"), tiles, (tile) => tile[0], create, (tile, [name, value, isBad]) => {
    say(tile.children[0], name);
    say(tile.children[1], value, isBad ? "bad" : "");
  });
}

/** Deliveries per second of each peer, from two answers in a row. */
function peerRates(overview) {
  const at = overview.status.at;
  const rates = new Map();
  const now = new Map();
  for (const peer of overview.peers) {
    const before = lastPeers.get(peer.container);
    const counts = { at, received: peer.received.deliveries, sent: peer.sent.deliveries };
    if (before && at - before.at < 0.9) {
      now.set(peer.container, before);
      rates.set(peer.container, before.rates ?? { received: 0, sent: 0 });
      continue;
    }
    const passed = before ? at - before.at : 0;
    const rate = (name) => (passed ? Math.max(0, counts[name] - before[name]) / passed : 0);
    counts.rates = { received: rate("received"), sent: rate("sent") };
    rates.set(peer.container, counts.rates);
    now.set(peer.container, counts);
  }
  lastPeers = now;
  return rates;
}

function sample(status) {
  if (!status.rates || status.at - sampledAt < SAMPLE_SECONDS) return;
  sampledAt = status.at;
  const { at, rates, unsettled, queued, in_doubt, oldest_seconds } = status;
  plots.add({ at, rates, unsettled, queued, in_doubt, oldest_seconds });
}

function showFreshness() {
  const ago = (Date.now() - answeredAt) / 1000;
  const text = answeredAt && ago > 2.5 * POLL_SECONDS ? `last answer ${seconds(ago)} ago` : "live";
  say(find("freshness"), answeredAt ? text : "");
}

// What can be done

async function toggle(name) {
  const route = last.routes.find((each) => each.name === name);
  const verb = route.state === "paused" ? "resume" : "pause";
  if (verb === "pause") {
    const text = "Its senders get no credit until it is resumed. Nothing is lost or detached.";
    if (!(await confirm(`Pause route ${name}?`, text, "Pause"))) return;
  }
  await order(`/api/v1/routes/${encodeURIComponent(name)}/${verb}`);
}

async function decide(tag, link, decision) {
  const texts = {
    resend: "It is sent again, and may arrive twice.",
    discard: "It is not sent again; its sender gets the outcome rejected.",
    accept: "It is not sent again; its sender gets the outcome accepted.",
  };
  if (!(await confirm(`${decision} delivery ${tag}?`, texts[decision], decision))) return;
  await order(`/api/v1/deliveries/${tag}/resolve`, { decision, link });
}

find("reload").addEventListener("click", async () => {
  const done = await order("/api/v1/reload");
  if (!done) return;
  const lines = done.differences.map(
    (each) =>
      `${each.section} ${each.name ?? ""} ${each.change} ${each.options.join(", ")}` +
      (each.waits_for_restart ? " (waits for a restart)" : "") +
      (each.kept ? ` (${each.kept} unsettled deliveries are kept until it is back)` : ""),
  );
  tell(...(lines.length ? lines : ["The configuration file has not changed."]));
});

find("drain").addEventListener("click", async () => {
  const text = "It finishes deliveries under way, accepts nothing new, and ends.";
  if (await confirm(`Drain ${last?.status.id ?? "the router"}?`, text, "Drain")) {
    await order("/api/v1/drain");
  }
});

for (const choice of document.querySelectorAll("input[name=deliveries]")) {
  choice.addEventListener("change", () => pollDeliveries().catch(fail));
}

async function order(path, body) {
  try {
    const done = await ask(path, { method: "POST", body });
    poll();
    return done;
  } catch (error) {
    tell(...error.message.split("\n"));
    return null;
  }
}

// Asking and telling the reader

function confirm(title, text, yes) {
  return openDialog(title, text, yes, false).then((answer) => answer !== null);
}

function askForToken() {
  return openDialog("Token", "This router requires the token of router.admin.token.", "Use it", true);
}

function openDialog(title, text, yes, wantsToken) {
  const dialog = find("ask");
  if (dialog.open) return Promise.resolve(null);
  say(find("ask-title"), title);
  say(find("ask-text"), text);
  say(find("ask-yes"), yes);
  find("ask-field").hidden = !wantsToken;
  find("ask-token").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener(
      "close",
      () => resolve(dialog.returnValue === "yes" ? find("ask-token").value : null),
      { once: true },
    );
  });
}

let untell = 0;

function tell(...lines) {
  find("told").replaceChildren(...lines.map((line) => make("div", {}, line)));
  find("told").className = "told shown";
  clearTimeout(untell);
  untell = setTimeout(() => say(find("told"), "", "told"), 8000);
}

document.addEventListener("visibilitychange", poll);
setInterval(poll, POLL_SECONDS * 1000);
setInterval(showFreshness, 1000);
poll();
