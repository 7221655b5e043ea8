// The sites of the mesh as this router knows them: a picture, each column as many lines away from
// here as its number, and a table.

import { boxOf, columnsIn, heading, leftOf, show, sizeOf } from "./boxes.js";
import { count, draw, find, keep, make, say } from "./dom.js";
import { body, row } from "./tables.js";

const TOP = 28;
const DRAWN_MOST = 40;
const COLUMNS_MOST = 6;
const LINES = 70; // pixels between columns for lines with costs, where there is room
const LINES_ROOM = 150; // pixels for a column and its lines
const LISTED_MOST = 6; // prefixes, or lines, of one site

/** Shows the mesh; without one the section is not there. */
export function showSites(mesh, hidden, width) {
  find("sites-section").hidden = mesh === null;
  if (mesh === null) return;
  const sites = mesh.is_edge ? aroundEdge(mesh) : mesh.sites;
  const lost = sites.filter((each) => each.cost === null).length;
  say(find("sites-state"), lost ? `${count(lost)} not reached` : "all are reached", `pill ${lost ? "error" : "good"}`);
  const lines = linesOf(mesh, sites);
  drawSites(find("sites-picture"), mesh.router, sites.slice(0, DRAWN_MOST), lines, width);
  showTable(mesh, sites, lines);
  say(find("sites-more"), hidden ? `and ${count(hidden)} more` : "");
}

/** An edge knows its hubs alone. */
function aroundEdge(mesh) {
  const of = (router, cost, hop) => ({ router, cost, hop, links: [], prefixes: [], addresses: 0 });
  const hubs = mesh.links.map((link) => of(link.router, link.is_up ? link.cost : null, link.is_up ? link.router : ""));
  return [of(mesh.router, 0, ""), ...hubs];
}

/**
 * The lines between sites, each once: what both ends say, and those of the file that are down.
 *
 * `costs` are those of the two directions; `isWay`: the shortest way to one of the ends takes it.
 */
function linesOf(mesh, sites) {
  const known = new Map(sites.map((site) => [site.router, site]));
  const lines = new Map();
  const add = (from, to, cost, isUp) => {
    if (!known.has(to) || from === to) return;
    const [a, b] = from < to ? [from, to] : [to, from];
    const line = lines.get(`${a} ${b}`) ?? { a, b, costs: new Map(), isUp: true };
    line.costs.set(from, cost);
    line.isUp = line.isUp && isUp;
    lines.set(`${a} ${b}`, line);
  };
  for (const site of sites) for (const [to, cost] of site.links) add(site.router, to, cost, true);
  for (const link of mesh.links) add(mesh.router, link.router, link.cost, link.is_up);
  const isStep = (from, to, costs) =>
    known.get(from).cost !== null && known.get(from).cost + (costs.get(from) ?? NaN) === known.get(to).cost;
  return [...lines.values()].map((line) => ({
    ...line,
    isWay: line.isUp && (isStep(line.a, line.b, line.costs) || isStep(line.b, line.a, line.costs)),
  }));
}

// The picture

function drawSites(svg, here, sites, lines, width) {
  const columns = columnsOf(here, sites, lines, Math.min(COLUMNS_MOST, columnsIn(width)));
  const isWide = width >= columns.length * LINES_ROOM;
  const box = sizeOf(width, Math.max(2, columns.length), isWide ? LINES : undefined);
  const step = box.height + box.gap;
  const rows = Math.max(...columns.map((column) => column.sites.length));
  const at = new Map();
  for (const [number, column] of columns.entries()) {
    const first = TOP + ((rows - column.sites.length) * step) / 2;
    const x = leftOf(number, columns.length, width, box);
    for (const [place, site] of column.sites.entries()) at.set(site.router, { x, y: first + place * step });
  }
  const drawn = lines.filter((line) => at.has(line.a) && at.has(line.b));
  const parts = [
    ...columns.map((column, number) => heading(column.title, leftOf(number, columns.length, width, box))),
    ...drawn.map((line) => path(at.get(line.a), at.get(line.b), line, box)),
    ...drawn.map((line) => costOf(at.get(line.a), at.get(line.b), line, box)),
    ...sites.map((site) => siteBox(site, here, at.get(site.router), box)),
  ];
  const told = sites.map((site) => `${site.router} ${stateOf(site, here)[0]}`).join(", ");
  show(svg, width, TOP + rows * step + 4, box, `Sites of the mesh: ${told}`, parts);
}

/** Sites by how many lines they are away; those without a way are the last column. */
function columnsOf(here, sites, lines, most) {
  const steps = new Map([[here, 0]]);
  for (let front = [here]; front.length; ) {
    const next = [];
    for (const line of lines.filter((each) => each.isUp)) {
      for (const [from, to] of [[line.a, line.b], [line.b, line.a]]) {
        if (front.includes(from) && !steps.has(to)) {
          steps.set(to, steps.get(from) + 1);
          next.push(to);
        }
      }
    }
    front = next;
  }
  const reached = sites.filter((site) => site.cost !== null);
  const lost = sites.filter((site) => site.cost === null);
  const deepest = most - (lost.length ? 2 : 1);
  const depth = (site) => Math.min(deepest, steps.get(site.router) ?? 1);
  const columns = [];
  for (const site of reached) (columns[depth(site)] ??= []).push(site);
  const isCut = reached.some((site) => (steps.get(site.router) ?? 1) > deepest);
  const titled = [...columns.entries()].map(([number, some]) => ({
    title: titleOf(number, isCut && number === deepest),
    sites: some ?? [],
  }));
  return lost.length ? [...titled, { title: "Not reached", sites: lost }] : titled;
}

function titleOf(number, hasFarther) {
  if (number === 0) return "Here";
  if (hasFarther) return `${number} or more`;
  return number === 1 ? "1 line away" : `${number} lines away`;
}

function path(from, to, line, box) {
  const [left, right] = from.x <= to.x ? [from, to] : [to, from];
  const start = { x: left.x + box.width, y: left.y + box.height / 2 };
  const end = { x: right.x, y: right.y + box.height / 2 };
  const isBeside = left.x === right.x;
  const d = isBeside
    ? `M${start.x} ${start.y} C${start.x + 20} ${start.y} ${start.x + 20} ${end.y} ${start.x} ${end.y}`
    : `M${start.x} ${start.y} C${(start.x + end.x) / 2} ${start.y} ${(start.x + end.x) / 2} ${end.y} ${end.x} ${end.y}`;
  return draw("path", { class: line.isUp ? (line.isWay ? "way" : "") : "bad", d });
}

function costOf(from, to, line, box) {
  const [left, right] = from.x <= to.x ? [from, to] : [to, from];
  const x = left.x === right.x ? left.x + box.width + 15 : (left.x + box.width + right.x) / 2;
  const label = draw("text", { class: "cost", x, y: (from.y + to.y + box.height) / 2 + 4 });
  say(label, costText(line));
  return label;
}

const costText = ({ costs }) => [...new Set(costs.values())].map(String).join(" / ");

function siteBox(site, here, at, box) {
  const [state] = stateOf(site, here);
  const facts = site.cost ? `cost ${site.cost}` : state;
  return boxOf(site.router, facts, at, box, site.cost === null ? "bad off" : site.router === here ? "route" : "");
}

// The table

function showTable(mesh, sites, lines) {
  const create = () => {
    const made = row(["", "", "number", "", "wrap", "wrap"]);
    made.cells[1].append(make("span", { class: "pill" }));
    return made;
  };
  keep(body("sites"), sites, (each) => each.router, create, (made, site) => {
    const [state, className] = stateOf(site, mesh.router);
    say(made.cells[0], site.router);
    say(made.cells[1].firstChild, state, className);
    say(made.cells[2], site.cost === null ? "–" : String(site.cost));
    say(made.cells[3], site.hop);
    say(made.cells[4], served(site));
    const own = lines.filter((line) => line.a === site.router || line.b === site.router);
    say(made.cells[5], listed(own.map((line) => lineText(line, site.router))));
  });
}

function lineText(line, router) {
  const other = line.a === router ? line.b : line.a;
  return `${other} ${line.costs.get(router) ?? costText(line)}${line.isUp ? "" : " (down)"}`;
}

function served(site) {
  const single = site.addresses ? [`${count(site.addresses)} single address${site.addresses === 1 ? "" : "es"}`] : [];
  return listed([...site.prefixes, ...single]);
}

function listed(texts) {
  const rest = texts.length - LISTED_MOST;
  return rest > 0 ? `${texts.slice(0, LISTED_MOST).join(", ")} and ${count(rest)} more` : texts.join(", ");
}

function stateOf(site, here) {
  if (site.router === here) return ["this router", "pill none"];
  return site.cost === null ? ["not reached", "pill error"] : ["reached", "pill good"];
}
