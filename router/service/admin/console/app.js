// The console: asks the router every other second while it is looked at, and shows the answer.
// One answer is of one moment: whatever the page shows at a time comes from the same overview.

import { ask, Refused, setToken } from "./api.js";
import { count, find, make, say, seconds } from "./dom.js";
import { Plots } from "./plots.js";
import { showSites } from "./sites.js";
import { showSilence, showSummary, toggleProblems } from "./summary.js";
import { showContainers, showDeliveries, showRoutes, showStores } from "./tables.js";
import { drawTopology } from "./topology.js";

const POLL_SECONDS = 2;
const SPAN_SECONDS = 900;
const ROUTES_MOST = 30;
const ROUTES_MOST_UNFOLDED = 500;
const IDLE_MOST = 12; // more idle routes than this are folded
const ANY_NUMBER = 1000000;
const LEAST_WIDTH = 300; // pixels; while the page is laid out there may be none

const plots = new Plots(find("plots"));
let last = null;
let answeredAt = 0;
let isAsking = false;
let mustAskAgain = false;
let isIdleShown = false;
let isAllShown = false;

async function poll() {
  if (document.hidden) return;
  mustAskAgain = isAsking;
  if (isAsking) return;
  isAsking = true;
  try {
    show(await ask(`/api/v1/overview?${wanted()}`));
    await pollDeliveries();
  } catch (error) {
    await fail(error);
  } finally {
    isAsking = false;
    showFreshness();
    if (mustAskAgain) poll();
  }
}

/** What the overview should hold: by default what is not idle. */
function wanted() {
  const match = find("routes-match").value.trim();
  const isUnfolded = isIdleShown || match !== "";
  const query = new URLSearchParams({
    most: isUnfolded || isAllShown ? ROUTES_MOST_UNFOLDED : ROUTES_MOST,
    idle: isUnfolded ? ANY_NUMBER : IDLE_MOST,
    since: plots.since(Date.now() / 1000 - SPAN_SECONDS),
  });
  if (match) query.set("match", match);
  return query;
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
  showSilence(error instanceof Refused ? "refused" : "no answer");
  if (error instanceof Refused) tell(error.message);
}

function show(overview) {
  const { status } = overview;
  answeredAt = Date.now();
  last = overview;
  showSummary(overview);
  plots.show(overview.samples, status, SPAN_SECONDS);
  showTopology();
  showSites(overview.mesh, overview.hidden_sites, widthIn("sites-section"));
  showRoutes(overview.routes, toggle);
  showFold(overview);
  showContainers(overview.containers, overview.hidden_containers);
  showStores(overview.store, overview.hidden_stores);
  find("drain").disabled = status.is_draining;
  find("reload").disabled = status.is_draining;
}

function showTopology() {
  const card = find("topology-card");
  const { drawn, of } = drawTopology(find("topology"), last, widthIn("topology-section"));
  card.hidden = !drawn;
  const nothing = of ? "" : "Nothing is under way: no route has traffic, links or trouble to show here.";
  say(find("topology-more"), drawn < of ? `${drawn} of ${count(of)} routes that are not idle, the worst first` : nothing);
}

/** The width of the cards in a section, without their borders. */
function widthIn(section) {
  return Math.max(LEAST_WIDTH, find(section).clientWidth) - 2;
}

/** Says which routes there are, and what is left out of the table. */
function showFold({ status, route_counts: counts, routes, hidden_routes: hidden }) {
  const texts = Object.entries(counts).map(([state, number]) => `${count(number)} ${state}`);
  const total = texts.length > 1 ? `${count(status.routes)}: ` : "";
  say(find("routes-states"), total + texts.join(", "));
  const isSearch = find("routes-match").value.trim() !== "";
  const fold = find("routes-idle");
  const idle = counts.idle ?? 0;
  fold.hidden = isSearch || idle <= IDLE_MOST;
  fold.setAttribute("aria-expanded", String(isIdleShown));
  say(fold, isIdleShown ? "Hide idle routes" : `Show ${count(idle)} idle routes`);
  const rest = hidden - (fold.hidden || isIdleShown ? 0 : idle);
  const isFull = isIdleShown || isAllShown;
  const all = find("routes-all");
  all.hidden = isSearch || !(isAllShown || (rest > 0 && !isFull));
  all.setAttribute("aria-expanded", String(isAllShown));
  say(all, isAllShown ? `Show ${ROUTES_MOST} only` : `Show ${count(rest)} more`);
  const more = rest > 0 && isFull ? `and ${count(rest)} more; find them by name` : "";
  say(find("routes-more"), isSearch ? `${count(routes.length)} found` : more);
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
  if (done.total > lines.length) lines.push(`and ${done.total - lines.length} more`);
  tell(...(lines.length ? lines : ["The configuration file has not changed."]));
});

find("drain").addEventListener("click", async () => {
  const text = "It finishes deliveries under way, accepts nothing new, and ends.";
  if (await confirm(`Drain ${last?.status.id ?? "the router"}?`, text, "Drain")) {
    await order("/api/v1/drain");
  }
});

find("problems-all").addEventListener("click", toggleProblems);

find("routes-idle").addEventListener("click", () => {
  isIdleShown = !isIdleShown;
  poll();
});

find("routes-all").addEventListener("click", () => {
  isAllShown = !isAllShown;
  poll();
});

find("routes-match").addEventListener("input", poll);

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
addEventListener("resize", () => {
  if (!last) return;
  plots.render();
  showTopology();
});
setInterval(poll, POLL_SECONDS * 1000);
setInterval(showFreshness, 1000);
poll();
