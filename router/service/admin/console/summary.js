// The first screen: the verdict, the worst problems, and the numbers of the whole router.

import { age, count, find, keep, make, octets, say, seconds, short, shown } from "./dom.js";

const FEW_PROBLEMS = 3;
const FEW_PROBLEMS_NARROW = 2;
const NARROW = matchMedia("(max-width: 700px)");
const LAG_SECONDS = 0.1;

let isUnfolded = false;
let last = null;

/** Shows the summary of an overview. */
export function showSummary(overview) {
  const { status } = overview;
  last = overview;
  const isBad = overview.problem_counts.error > 0 || !status.is_ready;
  document.title = `${isBad ? "⚠ " : ""}${shown(status.id)} · router`;
  say(find("router-id"), status.id);
  find("router-id").title = shown(status.id);
  const [state, kind] = stateOf(status);
  say(find("state"), state, `pill ${kind}`);
  say(find("facts"), describe(status));
  const [verdict, severity] = verdictOf(overview);
  say(find("verdict"), verdict, `verdict ${severity}`);
  showProblems(overview);
  showTiles(status);
}

/** Shows that the router does not answer, or refuses to; its numbers are of the past. */
export function showSilence(text) {
  say(find("state"), text, "pill error");
  say(find("verdict"), `The router gives ${text === "refused" ? "a refusal" : "no answer"}.`, "verdict error");
  document.title = `⚠ ${shown(last?.status.id ?? "")} · router`;
}

function stateOf(status) {
  if (status.is_draining) return ["draining", "warning"];
  if (status.is_standby) return ["standby", "good"];
  return status.is_ready ? ["ready", "good"] : ["not ready", "error"];
}

function describe(status) {
  const workers = status.workers.length === 1 ? "1 worker" : `${status.workers.length} workers`;
  return `version ${status.version} · up ${seconds(status.uptime_seconds)} · ${workers}`;
}

/** The state of the router in a sentence, and the worst severity. */
function verdictOf({ status, problem_counts: counts }) {
  const total = counts.error + counts.warning + counts.note;
  const waits = status.is_standby ? "Standby" : "Not ready";
  const state = status.is_draining ? "Draining" : status.is_ready ? "Ready" : waits;
  if (!total && status.is_ready) return [`${state}, nothing is wrong.`, "good"];
  const parts = [];
  for (const severity of ["error", "warning", "note"]) {
    const number = counts[severity];
    if (number) parts.push(`${count(number)} ${severity}${number === 1 ? "" : "s"}`);
  }
  const problems = `${count(total)} problem${total === 1 ? "" : "s"}`;
  const why = status.is_ready ? "" : `: ${status.reasons.join("; ")}`;
  const is_away = !status.is_ready && !status.is_standby;
  const worst = counts.error || is_away ? "error" : counts.warning ? "warning" : "note";
  return [`${state}, ${problems}${total > 0 ? ` (${parts.join(", ")})` : ""}${why}`, worst];
}

function showProblems({ status, hidden_problems: hidden }) {
  const few = NARROW.matches ? FEW_PROBLEMS_NARROW : FEW_PROBLEMS;
  const problems = numbered(isUnfolded ? status.problems : status.problems.slice(0, few));
  const create = () => {
    const text = make("span", {}, make("span"), make("strong"), make("span"));
    const severity = make("span", { class: "severity" });
    return make("li", {}, severity, make("div", { class: "text" }, text, make("span", { class: "advice" })));
  };
  keep(find("problems"), problems, (each) => each.key, create, (item, each) => {
    item.className = each.severity;
    const [severity, body] = item.children;
    const [text, advice] = body.children;
    say(severity, each.severity);
    say(text.children[0], `${each.subject} `);
    say(text.children[1], each.name);
    say(text.children[2], ` ${each.text}`);
    say(advice, each.advice);
  });
  find("problems").classList.toggle("folded", !isUnfolded);
  const more = find("problems-all");
  const rest = status.problems.length - few + hidden;
  more.hidden = rest <= 0;
  more.setAttribute("aria-expanded", String(isUnfolded));
  const listed = hidden ? `; ${count(hidden)} more are not listed` : "";
  say(more, isUnfolded ? `Show the worst ${few} only${listed}` : `Show ${count(rest)} more`);
}

/** Gives each problem a key that stays the same while others come and go. */
function numbered(problems) {
  const seen = new Map();
  return problems.map((each) => {
    const name = `${each.severity} ${each.subject} ${each.name}`;
    const number = (seen.get(name) ?? 0) + 1;
    seen.set(name, number);
    return { ...each, key: `${name} ${number}` };
  });
}

export function toggleProblems() {
  isUnfolded = !isUnfolded;
  if (last) showProblems(last);
}

NARROW.addEventListener("change", () => last && showProblems(last));

function showTiles(status) {
  const rates = status.rates;
  const memory = status.workers.reduce((sum, worker) => sum + worker.resident_octets, 0);
  const lag = Math.max(0, ...status.workers.map((worker) => worker.lag_seconds));
  const tiles = [
    ["Incoming", rates ? `${short(rates.received)}/s` : "–", "first"],
    ["Outgoing", rates ? `${short(rates.sent)}/s` : "–", "second"],
    ["To outcome", seconds(rates?.outcome_seconds)],
    ["Unsettled", count(status.unsettled)],
    ["Queued", count(status.queued)],
    ["Oldest", age(status.oldest_seconds)],
    ["In doubt", count(status.in_doubt), status.in_doubt > 0 ? "bad" : ""],
    ["Connections", count(status.connections)],
    ["Memory", octets(memory)],
    ["Loop lag", seconds(lag), lag > LAG_SECONDS ? "bad" : ""],
  ];
  const create = () => make("div", {}, make("dt"), make("dd"));
  keep(find("tiles"), tiles, (tile) => tile[0], create, (tile, [name, value, className]) => {
    say(tile.children[0], name);
    say(tile.children[1], value);
    tile.className = className ?? "";
  });
}
