// Making elements without ever parsing text as HTML, showing names that peers chose, and writing
// numbers for people.

const SVG = "http://www.w3.org/2000/svg";

/** Makes an element; `class` and other attributes by name, `on…` are listeners. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Makes an SVG element. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  const given = children.filter((child) => child != null);
  element.append(...given.map((child) => (typeof child === "string" ? shown(child) : child)));
  return element;
}

const SHOWN_MOST = 1000;
const UNPRINTED = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const SHORT_ESCAPES = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** As `shown` of router/model/text.py: one line, without controls and marks of direction, cut. */
export function shown(text, most = SHOWN_MOST) {
  const whole = String(text);
  const made = whole.slice(0, most).replace(UNPRINTED, escaped);
  if (whole.length <= most && made.length <= most) return made;
  return `${made.slice(0, most)}… (${whole.length.toLocaleString("en")} characters)`;
}

function escaped(character) {
  const code = character.codePointAt(0);
  const digits = code.toString(16);
  if (code < 0x100) return SHORT_ESCAPES[character] ?? `\\x${digits.padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
}

export const find = (id) => document.getElementById(id);

/** Sets a text only where it differs, so that selections and screen readers are left alone. */
export function say(element, text, className) {
  const made = shown(text);
  if (element.textContent !== made) element.textContent = made;
  if (className !== undefined && element.className !== className) element.className = className;
}

/**
 * Keeps one child per item, in order, by key: what stays is updated in place and keeps its focus.
 */
export function keep(parent, items, key, create, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let child = before.get(name);
    before.delete(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    update(child, item);
    if (child !== place) parent.insertBefore(child, place);
    else place = place.nextElementSibling;
  }
  for (const child of before.values()) child.remove();
}

const whole = new Intl.NumberFormat("en");

export const count = (number) => (number < 100000 ? whole.format(number) : short(number));

/** 0, 3.2, 41, 1,234, 56.7k, 1.2M */
export function short(number) {
  if (number === 0) return "0";
  if (number < 10) return number < 0.05 ? "<0.1" : number.toFixed(1);
  if (number < 10000) return whole.format(Math.round(number));
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (number >= size) return `${(number / size).toFixed(number / size < 100 ? 1 : 0)}${unit}`;
  }
  return String(number);
}

/** 80 µs, 1.2 ms, 12 ms, 1.5 s, 32 s, 5 min, 3.5 h, 2 d; nothing known: – */
export function seconds(number) {
  if (number == null) return "–";
  if (number < 0.001) return number === 0 ? "0 s" : `${Math.max(1, Math.round(number * 1e6))} µs`;
  if (number < 1) return `${(number * 1000).toFixed(number < 0.01 ? 1 : 0)} ms`;
  if (number < 10) return `${number.toFixed(1)} s`;
  if (number < 120) return `${Math.round(number)} s`;
  if (number < 7200) return `${Math.round(number / 60)} min`;
  if (number < 172800) return `${(number / 3600).toFixed(1)} h`;
  return `${Math.round(number / 86400)} d`;
}

/** The age of a delivery; the router does not look closer at those younger than 0.1 s. */
export const age = (number) => (number === 0 ? "<0.1 s" : seconds(number));

/** 512 B, 3.4 KiB, 12 MiB */
export function octets(number) {
  let unit = "B";
  for (const next of ["KiB", "MiB", "GiB", "TiB"]) {
    if (number < 1024) break;
    number /= 1024;
    unit = next;
  }
  return `${unit === "B" || number >= 100 ? Math.round(number) : number.toFixed(1)} ${unit}`;
}
