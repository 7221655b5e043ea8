// Who sends to which routes, and who receives from them, as a picture in three columns: containers
// by the names of the file or the container-ids that they gave, routes by their names in the file.

import { draw, say, short, shown } from "./dom.js";

const WIDE = { width: 250, height: 44, gap: 10, padding: 12, name: 13, facts: 12 };
const NARROW = { width: 0, height: 38, gap: 8, padding: 7, name: 12, facts: 11 };
const NARROW_MOST = 760; // pixels
const EDGES_LEAST = 22; // pixels between two columns
const TOP = 28;
const NAME_MOST = 80; // characters, more than a box has room for
const PEERS_MOST = 10;
const ROUTES_MOST = 10;
const TROUBLED_MOST = 6; // of these, if others have traffic
const FONT = "system-ui, sans-serif";

/**
 * Draws an overview as wide as its place; what is idle is left out.
 *
 * Returns how many routes are drawn, and of how many.
 */
export function drawTopology(svg, overview, width) {
  const active = overview.routes.filter((route) => isActive(route, overview.peers));
  const routes = chosen(active);
  const box = sizeOf(width);
  const edges = findEdges(overview, routes);
  const picture = {
    box,
    senders: column(edges.senders, routes, PEERS_MOST),
    routes,
    receivers: column(edges.receivers, routes, PEERS_MOST),
    x: { senders: 8, routes: (width - box.width) / 2, receivers: width - box.width - 8 },
    y: {},
  };
  const rows = Math.max(picture.senders.length, routes.length, picture.receivers.length);
  for (const name of ["senders", "routes", "receivers"]) {
    picture.y[name] = place(picture[name].map((each) => each.name), rows, box);
  }
  const height = TOP + rows * (box.height + box.gap) + 4;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  const told = routes.map((route) => `${route.name} ${route.state}`).join(", ");
  svg.setAttribute("aria-label", shown(`Senders, routes and receivers: ${told}`));
  svg.replaceChildren(...paint(picture));
  const { idle = 0 } = overview.route_counts;
  const busy = overview.status.routes - idle;
  return { drawn: routes.length, of: Math.max(active.length, busy) };
}

/** The worst routes, and room for traffic beside them; both are in order already. */
function chosen(active) {
  const troubled = active.filter((route) => ROUTE_CLASSES[route.state]);
  const others = active.filter((route) => !ROUTE_CLASSES[route.state]);
  const room = Math.max(TROUBLED_MOST, ROUTES_MOST - others.length);
  const worst = troubled.slice(0, room);
  return [...worst, ...others.slice(0, ROUTES_MOST - worst.length)];
}

function isActive(route, peers) {
  return route.state !== "idle" || peers.some((peer) => peer.routes.some(([name]) => name === route.name));
}

function sizeOf(width) {
  if (width >= NARROW_MOST) return WIDE;
  return { ...NARROW, width: Math.floor((width - 16 - 2 * EDGES_LEAST) / 3) };
}

function paint({ box, senders, routes, receivers, x, y }) {
  const parts = [heading("Senders", x.senders), heading("Routes", x.routes), heading("Receivers", x.receivers)];
  const edge = (from, to, isAway, rate) => {
    const start = { x: x[from.column] + box.width, y: y[from.column].get(from.name) + box.height / 2 };
    const end = { x: x[to.column], y: y[to.column].get(to.name) + box.height / 2 };
    parts.push(curve(start, end, isAway, rate));
  };
  for (const route of routes) {
    const middle = { column: "routes", name: route.name };
    for (const peer of senders.filter((each) => each.routes.has(route.name))) {
      const moved = Math.min(route.rates?.received ?? 0, peer.received);
      edge({ column: "senders", name: peer.name }, middle, peer.isAway, moved);
    }
    for (const peer of receivers.filter((each) => each.routes.has(route.name))) {
      const moved = Math.min(route.rates?.sent ?? 0, peer.sent);
      edge(middle, { column: "receivers", name: peer.name }, peer.isAway, moved);
    }
  }
  for (const peer of senders) {
    parts.push(peerBox(peer, peer.received, { x: x.senders, y: y.senders.get(peer.name) }, box));
  }
  for (const route of routes) parts.push(routeBox(route, { x: x.routes, y: y.routes.get(route.name) }, box));
  for (const peer of receivers) {
    parts.push(peerBox(peer, peer.sent, { x: x.receivers, y: y.receivers.get(peer.name) }, box));
  }
  return parts;
}

const measure = document.createElement("canvas").getContext("2d");

/** Shortens a text in its middle until it has room: names differ at both ends. */
function fit(text, room, font) {
  measure.font = font;
  const isTooWide = (some) => measure.measureText(some).width > room;
  if (!isTooWide(text)) return text;
  const cut = (length) => `${text.slice(0, Math.ceil(length / 2))}…${text.slice(text.length - Math.floor(length / 2))}`;
  let [least, most] = [1, text.length - 1];
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (isTooWide(cut(middle))) most = middle - 1;
    else least = middle;
  }
  return cut(least);
}

/** Finds which peers belong to which routes: by their links, and by what the file asks for. */
function findEdges(overview, routes) {
  const sides = { senders: new Map(), receivers: new Map() };
  const away = new Set(
    overview.containers.filter((each) => !each.is_connected).map((each) => each.name),
  );
  const rates = new Map(overview.peers.map((peer) => [peer.container, peer.rates]));
  const join = (side, name, route, isConfigured) => {
    const peer = sides[side].get(name) ?? {
      name,
      isAway: isConfigured && away.has(name),
      received: rates.get(name)?.received ?? 0,
      sent: rates.get(name)?.sent ?? 0,
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
  const order = (a, b) => middle(a) - middle(b) || a.name.localeCompare(b.name);
  if (some.length <= most) return some.sort(order);
  some.sort((a, b) => b.isAway - a.isAway || b.received + b.sent - a.received - a.sent || order(a, b));
  const rest = some.splice(most - 1);
  const sum = (name) => rest.reduce((total, peer) => total + peer[name], 0);
  const routesOfRest = new Set(rest.flatMap((peer) => [...peer.routes]));
  const others = { name: `${rest.length} more`, routes: routesOfRest, received: sum("received"), sent: sum("sent") };
  return [...some.sort(order), others];
}

function place(names, rows, box) {
  const step = box.height + box.gap;
  const first = TOP + ((rows - names.length) * step) / 2;
  return new Map(names.map((name, number) => [name, first + number * step]));
}

function curve(start, end, isAway, rate) {
  const bend = (end.x - start.x) / 2;
  return draw("path", {
    class: isAway ? "bad" : rate > 0 ? "live" : "",
    d: `M${start.x} ${start.y} C${start.x + bend} ${start.y} ${end.x - bend} ${end.y} ${end.x} ${end.y}`,
    "stroke-width": rate > 0 ? (1.3 + Math.log10(1 + rate) * 0.45).toFixed(1) : 1.3,
  });
}

function heading(text, x) {
  const label = draw("text", { class: "column", x: x + 2, y: 18 });
  label.textContent = text;
  return label;
}

/** The name that a client gave, without what the router appends to tell it from its like. */
const nameGiven = (container) => container.replace(/#[0-9a-f]{8}\.([0-9]+)$/, " #$1");

function peerBox(peer, rate, at, size) {
  return boxOf(nameGiven(peer.name), peer.isAway ? "not connected" : `${short(rate)}/s`, at, size, peer.isAway ? "bad off" : "");
}

const ROUTE_CLASSES = {
  stalled: "bad",
  broken: "bad",
  rejecting: "bad",
  away: "bad off",
  paused: "warn",
  waiting: "warn",
};

function routeBox(route, at, size) {
  const trouble = ROUTE_CLASSES[route.state];
  const moved = route.rates ? `${short(route.rates.received)}/s in, ${short(route.rates.sent)}/s out` : "";
  const facts = trouble || !moved ? route.state : moved;
  return boxOf(route.name, facts, at, size, `route ${trouble ?? ""}`);
}

function boxOf(name, facts, at, size, className) {
  const room = size.width - 2 * size.padding;
  const title = draw("title");
  say(title, name);
  const text = (what, class_, y, font) => {
    const label = draw("text", { class: class_, x: at.x + size.padding, y: at.y + y });
    label.textContent = fit(what, room, font);
    return label;
  };
  const whole = shown(name, NAME_MOST);
  const label = text(whole, "name", size.height * 0.42, `600 ${size.name}px ${FONT}`);
  const short = facts.replace("/s in, ", " in, ").replace("/s out", " out");
  const isTight = fit(facts, room, `${size.facts}px ${FONT}`) !== facts;
  const sub = text(isTight ? short : facts, "sub", size.height * 0.81, `${size.facts}px ${FONT}`);
  const rect = draw("rect", { ...at, width: size.width, height: size.height, rx: 8 });
  return draw("g", { class: className }, title, rect, label, sub);
}
