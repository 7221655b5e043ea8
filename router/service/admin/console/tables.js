// The tables of routes, containers and deliveries.

import { age, count, find, keep, make, octets, say, seconds, short, shown } from "./dom.js";

const PILLS = {
  stalled: "pill error",
  broken: "pill error",
  rejecting: "pill error",
  away: "pill error",
  paused: "pill warning",
  waiting: "pill warning",
  flowing: "pill good",
  idle: "pill none",
};

export const body = (id) => find(id).tBodies[0];

/** A row with so many cells; the first one heads it. */
export function row(cells) {
  const made = make("tr");
  for (const [index, className] of cells.entries()) {
    made.append(make(index ? "td" : "th", index ? { class: className } : { scope: "row" }));
  }
  return made;
}

function nothing(table, text) {
  const rows = body(table);
  const columns = find(table).tHead.rows[0].cells.length;
  if (rows.children.length) return;
  const cell = make("td", { class: "empty", colspan: columns }, text);
  const empty = make("tr", {}, cell);
  empty.dataset.key = "";
  rows.append(empty);
}

export function showRoutes(routes, act) {
  const create = () => {
    const made = row(["", "", ...Array(9).fill("number"), ""]);
    made.cells[0].append(make("span"), make("span", { class: "path" }), make("span", { class: "promise" }), make("span", { class: "reason" }));
    made.cells[1].append(make("span", { class: "pill" }));
    const button = make("button", { type: "button", class: "small", onclick: () => act(made.dataset.key) });
    made.cells[11].append(make("div", { class: "actions" }, button));
    return made;
  };
  keep(body("routes"), routes, (route) => route.name, create, updateRoute);
  nothing("routes", "No routes to show.");
}

function updateRoute(made, route) {
  const [name, path, promise, reason] = made.cells[0].children;
  say(name, route.name);
  say(path, describePath(route));
  say(promise, [route.distribution, route.guarantee].filter(Boolean).join(" · "));
  say(reason, troubleOf(route));
  say(made.cells[1].firstChild, route.state, PILLS[route.state]);
  const isHeldUp = route.blocked_senders && ["waiting", "stalled"].includes(route.state);
  const values = [
    route.rates ? short(route.rates.received) : "–",
    route.rates ? short(route.rates.sent) : "–",
    count(route.incoming_unsettled),
    count(route.queued),
    age(route.oldest_seconds),
    count(route.in_doubt),
    count(route.rejection?.count ?? 0),
    isHeldUp ? `${count(route.senders)} (${count(route.blocked_senders)} wait)` : count(route.senders),
    count(route.receivers),
  ];
  for (const [index, value] of values.entries()) say(made.cells[index + 2], value);
  made.cells[7].className = route.in_doubt ? "number bad" : "number";
  made.cells[8].className = route.state === "rejecting" ? "number bad" : "number";
  const button = made.cells[11].querySelector("button");
  say(button, route.state === "paused" ? "Resume" : "Pause");
  button.setAttribute("aria-label", shown(`${button.textContent} route ${route.name}`));
}

function describePath(route) {
  const address = route.name === route.address ? "" : `${route.address} `;
  const from = route.from ? `${route.from} → ` : "";
  const to = route.to.length ? `→ ${route.to.join(", ")}` : "";
  const path = route.from && route.to.length ? `${route.from} → ${route.to.join(", ")}` : from + to;
  return [address.trim(), path.trim()].filter(Boolean).join(" · ");
}

function troubleOf(route) {
  if (route.stall) {
    const where = route.stall.address === route.address ? "" : ` at ${route.stall.address}`;
    return `${route.stall.reason}${where}; nothing has moved for ${seconds(route.stall.seconds)}`;
  }
  if (route.state === "rejecting") {
    const { count: number, reason, peer, seconds: ago, by_router: isOurs } = route.rejection;
    const who = isOurs ? `the router, from ${peer}` : peer;
    return `${count(number)} rejected; the last one ${seconds(ago)} ago by ${who}: ${reason}`;
  }
  const uplink = route.uplinks.find((each) => each.step === "paused" || each.step === "away");
  if (!uplink || route.state !== "broken") return "";
  return uplink.step === "away"
    ? `container ${uplink.container} is not connected`
    : `${uplink.container} ends the link to ${uplink.address}: ${uplink.error ?? "the peer gave no reason"}`;
}

export function showContainers(containers, hidden) {
  const create = () => {
    const made = row(["", "", "", "wrap", "code", "number", "number"]);
    made.cells[1].append(make("span", { class: "pill" }));
    return made;
  };
  keep(body("containers"), containers, (each) => each.name, create, (made, each) => {
    say(made.cells[0], each.name);
    const state = each.is_connected ? "connected" : "not connected";
    say(made.cells[1].firstChild, state, each.is_connected ? "pill good" : "pill error");
    say(made.cells[2], seconds(each.seconds));
    const error = each.error ?? "";
    say(made.cells[3], each.is_connected && error ? `earlier: ${error}` : error, each.is_connected ? "wrap quiet" : "wrap");
    say(made.cells[4], each.address ?? (each.urls.join(", ") || "dials in"));
    say(made.cells[5], count(each.opened));
    say(made.cells[6], count(each.failed));
  });
  nothing("containers", "No containers are configured.");
  say(find("containers-more"), hidden ? `and ${hidden} more` : "");
}

/** What stored routes hold; without any the section is not there. */
export function showStores(store, hidden) {
  find("stores-section").hidden = store.is_connected === null && !store.routes.length;
  const isAway = store.is_connected === false;
  const trouble = isAway ? "does not answer" : store.trouble ? `cannot write: ${store.trouble}`
    : store.unreadable ? `cannot read ${store.unreadable}` : "";
  say(find("stores-state"), trouble || "answers", trouble ? "pill error" : "pill good");
  const create = () => {
    const made = row(["", "", ...Array(8).fill("number"), "wrap"]);
    made.cells[1].append(make("span", { class: "pill" }));
    return made;
  };
  keep(body("stores"), store.routes, (each) => each.route ?? "", create, (made, each) => {
    const [state, className] = stateOf(each);
    say(made.cells[0], each.route ?? "no route of the file");
    say(made.cells[1].firstChild, state, className);
    const values = [
      count(each.messages),
      octets(each.octets),
      seconds(each.oldest_seconds),
      each.stored_rate == null ? "–" : short(each.stored_rate),
      each.forwarded_rate == null ? "–" : short(each.forwarded_rate),
      each.messages ? seconds(each.drain_seconds) : "–",
      each.share == null ? "–" : `${Math.floor(each.share * 100)} %`,
      count(each.dead),
      each.waits_for.join("; "),
    ];
    for (const [index, value] of values.entries()) say(made.cells[index + 2], value);
    made.cells[9].className = each.dead ? "number bad" : "number";
  });
  nothing("stores", "Nothing is stored.");
  say(find("stores-more"), hidden ? `and ${hidden} more` : "");
}

function stateOf({ is_full: isFull, messages, waits_for: reasons }) {
  if (isFull) return ["full", PILLS.broken];
  if (!messages) return ["empty", PILLS.idle];
  return reasons.length ? ["waiting", PILLS.waiting] : ["forwarding", PILLS.flowing];
}

export function showDeliveries(page, isInDoubt, decide) {
  const create = () => {
    const made = row(["code", "number", "", "", "", "", "number", "number", ""]);
    made.cells[0].className = "code";
    const actions = make("div", { class: "actions" });
    for (const decision of ["resend", "discard", "accept"]) {
      const click = () => decide(made.dataset.tag, made.dataset.link, decision);
      actions.append(make("button", { type: "button", class: "small", onclick: click }, decision));
    }
    made.cells[8].append(actions);
    return made;
  };
  const key = (each) => `${each.worker} ${each.container} ${each.link} ${each.tag} ${each.age_seconds > 0 ? "" : "0"}`;
  keep(body("deliveries"), unique(page.deliveries, key), key, create, (made, each) => {
    made.dataset.tag = each.tag;
    made.dataset.link = each.link;
    const target = each.to_container ? `${each.to_container} · ${each.to_link}` : "–";
    const values = [
      each.tag,
      seconds(each.age_seconds),
      each.state,
      each.route === each.address ? each.route : `${each.route} · ${each.address}`,
      `${each.container} · ${each.link}`,
      target,
      octets(each.octets),
      count(each.attempts),
    ];
    for (const [index, value] of values.entries()) say(made.cells[index], value);
    made.cells[8].firstChild.hidden = each.state !== "in doubt";
  });
  nothing("deliveries", isInDoubt ? "Nothing is in doubt." : "Nothing is listed as unsettled.");
  const gaps = page.gaps.map((gap) => `the journal has a gap: ${gap}; deliveries recorded only there are not listed`);
  const lane = `and ${count(page.on_lane)} in flight on the express lane, which are not listed one by one`;
  say(find("deliveries-more"), [...gaps, ...(page.on_lane ? [lane] : [])].join("; "));
}

function unique(items, key) {
  return [...new Map(items.map((item) => [key(item), item])).values()];
}
