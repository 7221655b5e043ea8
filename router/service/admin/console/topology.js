// Who sends to which routes, and who receives from them, as a picture in three columns: containers
// by the names of the file or the container-ids that they gave, routes by their names in the file.

import { boxOf, heading, leftOf, show, sizeOf } from "./boxes.js";
import { draw, short } from "./dom.js";

const TOP = 28;
const PEERS_MOST = 10;
const ROUTES_MOST = 10;
const TROUBLED_MOST = 6; // of these, if others have traffic

/**
 * Draws an overview as wide as its place; what is idle is left out.
 *
 * Returns how many routes are drawn, and of how many.
 */
export function drawTopology(svg, overview, width) {
  const active = overview.routes.filter((route) => isActive(route, overview.peers));
  const routes = chosen(active);
  const box = sizeOf(width, 3);
  const edges = findEdges(overview, routes);
  const picture = {
    box,
    senders: column(edges.senders, routes, PEERS_MOST),
    routes,
    receivers: column(edges.receivers, routes, PEERS_MOST),
    x: { senders: leftOf(0, 3, width, box), routes: leftOf(1, 3, width, box), receivers: leftOf(2, 3, width, box) },
    y: {},
  };
  const rows = Math.max(picture.senders.length, routes.length, picture.receivers.length);
  for (const name of ["senders", "routes", "receivers"]) {
    picture.y[name] = place(picture[name].map((each) => each.name), rows, box);
  }
  const height = TOP + rows * (box.height + box.gap) + 4;
  const told = routes.map((route) => `${route.name} ${route.state}`).join(", ");
  show(svg, width, height, box, `Senders, routes and receivers: ${told}`, paint(picture));
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
