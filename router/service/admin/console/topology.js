// Who sends to which routes, and who receives from them, as a picture in three columns.

import { draw, say, short, shown } from "./dom.js";

const BOX = { width: 230, height: 46, gap: 14 };
const PADDING = 12;
const WIDTH = 1000;
const TOP = 34;
const NAME_MOST = 60; // characters, more than a box has room for
const PEERS_MOST = 14;
const ROUTES_MOST = 14;
const COLUMNS = { senders: 10, routes: (WIDTH - BOX.width) / 2, receivers: WIDTH - BOX.width - 10 };

/** Draws an overview; `rates` gives deliveries per second of peers, by name. */
export function drawTopology(svg, overview, rates) {
  const routes = overview.routes.slice(0, ROUTES_MOST);
  const edges = findEdges(overview, routes);
  const senders = column(edges.senders, routes, PEERS_MOST);
  const receivers = column(edges.receivers, routes, PEERS_MOST);
  const rows = Math.max(1, senders.length, routes.length, receivers.length);
  const height = TOP + rows * (BOX.height + BOX.gap) + 4;
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
  const places = {
    senders: place(senders.map((peer) => peer.name), rows),
    routes: place(routes.map((route) => route.name), rows),
    receivers: place(receivers.map((peer) => peer.name), rows),
  };
  const parts = [
    heading("Senders", COLUMNS.senders),
    heading("Routes", COLUMNS.routes),
    heading("Receivers", COLUMNS.receivers),
  ];
  for (const route of routes) {
    for (const peer of senders.filter((each) => each.routes.has(route.name))) {
      const moved = Math.min(route.rates?.received ?? 0, rates.get(peer.name)?.received ?? 0);
      parts.push(edge("senders", peer, "routes", route, places, peer.isAway, moved));
    }
    for (const peer of receivers.filter((each) => each.routes.has(route.name))) {
      const moved = Math.min(route.rates?.sent ?? 0, rates.get(peer.name)?.sent ?? 0);
      parts.push(edge("routes", route, "receivers", peer, places, peer.isAway, moved));
    }
  }
  for (const peer of senders) {
    const rate = rates.get(peer.name)?.received ?? 0;
    parts.push(peerBox(peer, COLUMNS.senders, places.senders.get(peer.name), rate));
  }
  for (const route of routes) parts.push(routeBox(route, places.routes.get(route.name)));
  for (const peer of receivers) {
    const rate = rates.get(peer.name)?.sent ?? 0;
    parts.push(peerBox(peer, COLUMNS.receivers, places.receivers.get(peer.name), rate));
  }
  svg.replaceChildren(...parts);
  for (const label of svg.querySelectorAll("g text")) fit(label);
}

/** Shortens a text until it stays in its box. */
function fit(label) {
  const whole = label.textContent;
  for (let length = whole.length - 1; length > 1; length -= 1) {
    if (label.getComputedTextLength() <= BOX.width - 2 * PADDING) return;
    label.textContent = `${whole.slice(0, length).trimEnd()}…`;
  }
}

/** Finds which peers belong to which routes: by their links, and by what the file asks for. */
function findEdges(overview, routes) {
  const sides = { senders: new Map(), receivers: new Map() };
  const away = new Set(
    overview.containers.filter((each) => !each.is_connected).map((each) => each.name),
  );
  const join = (side, name, route, isConfigured) => {
    const peer = sides[side].get(name) ?? {
      name,
      isConfigured,
      isAway: isConfigured && away.has(name),
      routes: new Set(),
    };
    peer.routes.add(route);
    sides[side].set(name, peer);
  };
  for (const peer of overview.peers) {
    for (const [route, role] of peer.routes) {
      const side = role === "receiver" ? "senders" : "receivers";
      join(side, peer.container, route, peer.is_configured);
    }
  }
  for (const route of routes) {
    if (route.from) join("senders", containerOf(route.from), route.name, true);
    for (const to of route.to) join("receivers", containerOf(to), route.name, true);
  }
  return sides;
}

const containerOf = (endpoint) => endpoint.split("/", 1)[0];

/** Puts peers beside their routes, and the ones too many together. */
function column(peers, routes, most) {
  const index = new Map(routes.map((route, number) => [route.name, number]));
  const some = [...peers.values()].filter((peer) =>
    [...peer.routes].some((route) => index.has(route)),
  );
  const middle = (peer) => {
    const places = [...peer.routes].filter((route) => index.has(route)).map((r) => index.get(r));
    return places.reduce((sum, each) => sum + each, 0) / places.length;
  };
  some.sort((a, b) => middle(a) - middle(b) || a.name.localeCompare(b.name));
  if (some.length <= most) return some;
  const rest = some.splice(most - 1);
  const routesOfRest = new Set(rest.flatMap((peer) => [...peer.routes]));
  some.push({ name: `${rest.length} more`, routes: routesOfRest, isMany: true });
  return some;
}

function place(names, rows) {
  const step = BOX.height + BOX.gap;
  const first = TOP + ((rows - names.length) * step) / 2;
  return new Map(names.map((name, number) => [name, first + number * step]));
}

function edge(fromColumn, from, toColumn, to, places, isAway, rate) {
  const x1 = COLUMNS[fromColumn] + BOX.width;
  const x2 = COLUMNS[toColumn];
  const y1 = places[fromColumn].get(from.name) + BOX.height / 2;
  const y2 = places[toColumn].get(to.name) + BOX.height / 2;
  const bend = (x2 - x1) / 2;
  return draw("path", {
    class: isAway ? "bad" : rate > 0 ? "live" : "",
    d: `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
    "stroke-width": rate > 0 ? (1.3 + Math.log10(1 + rate) * 0.55).toFixed(1) : 1.3,
  });
}

function heading(text, x) {
  const label = draw("text", { class: "column", x: x + 2, y: 20 });
  label.textContent = text;
  return label;
}

function peerBox(peer, x, y, rate) {
  const state = peer.isAway ? "bad off" : "";
  const facts = peer.isAway ? "not connected" : `${short(rate)}/s`;
  return box(peer.name, peer.isMany ? "" : facts, x, y, state);
}

function routeBox(route, y) {
  const rates = route.rates;
  const moved = rates ? `${short(rates.received)}/s in · ${short(rates.sent)}/s out` : "";
  const state =
    { stalled: "bad", broken: "bad", paused: "warn", waiting: "warn" }[route.state] ?? "";
  const made = box(
    route.name,
    [state || !moved ? route.state : "", moved].filter(Boolean).join(" · "),
    COLUMNS.routes,
    y,
    `route ${state}`,
  );
  return draw("a", { href: "#routes", "aria-label": shown(`route ${route.name}, ${route.state}`) }, made);
}

function box(name, facts, x, y, className) {
  const title = draw("title");
  say(title, name);
  const label = draw("text", { x: x + PADDING, y: y + 19 });
  label.textContent = shown(name, NAME_MOST);
  const sub = draw("text", { class: "sub", x: x + PADDING, y: y + 36 });
  say(sub, facts);
  const rect = draw("rect", { x, y, width: BOX.width, height: BOX.height, rx: 8 });
  return draw("g", { class: className }, title, rect, label, sub);
}
