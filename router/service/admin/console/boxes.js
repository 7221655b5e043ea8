// Boxes of a picture, each with a name and a line of facts, in columns.

import { draw, say, shown } from "./dom.js";

const WIDE = { width: 250, height: 44, gap: 10, padding: 12, name: 13, facts: 12 };
const NARROW = { width: 0, height: 38, gap: 8, padding: 7, name: 12, facts: 11 };
const NARROW_LEAST = 74; // pixels, what a box needs for a short name
const MARGIN = 8;
const EDGES_LEAST = 22; // pixels between two columns
const NAME_MOST = 80; // characters, more than a box has room for
const FONT = "system-ui, sans-serif";

/** How many columns a picture of some width has room for. */
export function columnsIn(width) {
  return Math.max(2, Math.floor((width - 2 * MARGIN + EDGES_LEAST) / (NARROW_LEAST + EDGES_LEAST)));
}

/** The size of boxes in so many columns, with room between them for edges. */
export function sizeOf(width, columns, edges = EDGES_LEAST) {
  const room = Math.floor((width - 2 * MARGIN - (columns - 1) * edges) / columns);
  return room < WIDE.width ? { ...NARROW, width: room } : WIDE;
}

/** Where the boxes of a column begin. */
export function leftOf(column, columns, width, size) {
  return MARGIN + (column / Math.max(1, columns - 1)) * (width - size.width - 2 * MARGIN);
}

/** Shows what was drawn, in a picture of this size. */
export function show(svg, width, height, size, told, parts) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  svg.setAttribute("class", size === WIDE ? "picture" : "picture small");
  svg.setAttribute("aria-label", shown(told));
  svg.replaceChildren(...parts);
}

/** What a column has, above it. */
export function heading(text, x) {
  const label = draw("text", { class: "column", x: x + 2, y: 18 });
  label.textContent = text;
  return label;
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

/** A box: the name, whole when it is pointed at, and the facts below it. */
export function boxOf(name, facts, at, size, className) {
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
