// Plots of the last minutes. Each is an SVG with at most two curves and a crosshair. Incoming and
// outgoing deliveries are mostly equal, so they are drawn on two sides of one axis.

import { age, count, draw, make, say, seconds, short } from "./dom.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [46, 6, 6, 16];
const GAP_SECONDS = 30;
const SPANS = [120, 300, 900];

const PLOTS = [
  {
    title: "Deliveries per second",
    show: short,
    isMirrored: true,
    curves: [
      { name: "in", of: (sample) => sample.rates?.received },
      { name: "out", of: (sample) => sample.rates?.sent },
    ],
  },
  {
    title: "Mean time to outcome",
    show: seconds,
    curves: [{ name: "to outcome", of: (sample) => sample.rates?.outcome_seconds }],
  },
  {
    title: "Unsettled deliveries",
    show: count,
    curves: [
      { name: "unsettled", of: (sample) => sample.unsettled },
      { name: "queued", of: (sample) => sample.queued },
    ],
  },
  {
    title: "Oldest unsettled delivery",
    show: seconds,
    curves: [
      {
        name: "oldest",
        of: (sample) => sample.oldest_seconds ?? 0,
        tell: (sample) => age(sample.oldest_seconds),
      },
    ],
  },
];

export class Plots {
  constructor(parent) {
    this.samples = [];
    this.now = null;
    this.plots = PLOTS.map((plot) => new Plot(parent, plot));
  }

  /** The time of the last sample that is known, or another one; a whole number. */
  since(otherwise) {
    return Math.floor(this.samples.at(-1)?.at ?? otherwise);
  }

  /** Adds samples, and shows them with the present state behind them. */
  show(samples, status, spanSeconds) {
    const last = this.samples.at(-1)?.at ?? 0;
    this.samples.push(...samples.filter((each) => each.at > last));
    this.samples = this.samples.filter((each) => each.at > status.at - spanSeconds);
    this.now = status;
    this.render();
  }

  render() {
    if (!this.now) return;
    const samples = [...this.samples.filter((each) => each.at < this.now.at), this.now];
    const known = this.now.at - samples[0].at;
    const span = SPANS.find((each) => each >= known) ?? SPANS.at(-1);
    for (const plot of this.plots) plot.render(samples, span);
  }
}

class Plot {
  constructor(parent, plot) {
    Object.assign(this, plot);
    this.span = SPANS[0];
    this.samples = [];
    this.pointed = null;
    this.legend = make("div", { class: "legend" });
    for (const index of this.curves.keys()) {
      this.legend.append(make("span", { class: index ? "second" : "first" }));
    }
    this.svg = draw("svg", {
      role: "img",
      onpointermove: (event) => this.point(event),
      onpointerleave: () => this.point(null),
    });
    parent.append(
      make("div", { class: "card plot" }, make("h2", {}, this.title), this.legend, this.svg),
    );
  }

  point(event) {
    this.pointed = null;
    if (event && this.samples.length) {
      const x = event.clientX - this.svg.getBoundingClientRect().left;
      const distance = (sample) => Math.abs(this.x(sample) - x);
      this.pointed = this.samples.reduce((a, b) => (distance(b) < distance(a) ? b : a));
    }
    this.render(this.samples, this.span);
  }

  x(sample) {
    const ago = this.samples.at(-1).at - sample.at;
    return LEFT + (1 - ago / this.span) * (this.width - LEFT - RIGHT);
  }

  render(samples, span) {
    this.samples = samples;
    this.span = span;
    this.width = this.svg.clientWidth || 400;
    this.height = this.svg.clientHeight || 110;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    const values = samples.flatMap((sample) => this.curves.map((curve) => curve.of(sample)));
    const top = niceTop(Math.max(0, ...values.filter((value) => value != null)));
    const floor = this.height - BOTTOM;
    const zero = this.isMirrored ? (TOP + floor) / 2 : floor;
    const parts = this.axes(top, zero, floor);
    for (const [index, curve] of this.curves.entries()) {
      const isBelow = this.isMirrored && index > 0;
      const end = isBelow ? floor : TOP;
      const y = (value) => zero + (value / top) * (end - zero);
      for (const points of this.stretches(curve, y)) {
        const line = points.map(([px, py]) => `${px.toFixed(1)} ${py.toFixed(1)}`).join(" L");
        if (!index || isBelow) {
          const [first, last] = [points[0][0].toFixed(1), points.at(-1)[0].toFixed(1)];
          const d = `M${first} ${zero} L${line} L${last} ${zero}Z`;
          parts.push(draw("path", { class: isBelow ? "area second" : "area", d }));
        }
        const kind = index ? `curve second${isBelow ? "" : " dashed"}` : "curve";
        parts.push(draw("path", { class: kind, d: `M${line}` }));
      }
    }
    this.svg.replaceChildren(...parts);
    this.tell();
  }

  axes(top, zero, floor) {
    const right = this.width - RIGHT;
    const parts = [];
    const label = (text, x, at, anchor) => {
      const made = draw("text", { x, y: at, "text-anchor": anchor });
      made.textContent = text;
      parts.push(made);
    };
    const lines = this.isMirrored
      ? [[top, TOP], [0, zero], [top, floor]]
      : [[0, zero], [top / 2, (zero + TOP) / 2], [top, TOP]];
    for (const [value, at] of lines) {
      parts.push(draw("line", { class: "grid", x1: LEFT, x2: right, y1: at, y2: at }));
      label(value ? this.show(value) : "0", LEFT - 6, at + 4, "end");
    }
    label(`−${this.span / 60} min`, LEFT, this.height - 4, "start");
    label("now", right, this.height - 4, "end");
    if (this.pointed) {
      const x = this.x(this.pointed);
      parts.push(draw("line", { class: "cross", x1: x, x2: x, y1: TOP, y2: floor }));
    }
    return parts;
  }

  /** Points in a row; a new stretch begins where nothing is known, or samples are missing. */
  stretches(curve, y) {
    const found = [];
    let before = null;
    for (const sample of this.samples) {
      const value = curve.of(sample);
      if (value != null) {
        if (before === null || sample.at - before > GAP_SECONDS) found.push([]);
        found.at(-1).push([this.x(sample), y(value)]);
      }
      before = value == null ? null : sample.at;
    }
    return found;
  }

  tell() {
    const sample = this.pointed ?? this.samples.at(-1);
    const told = this.curves.map((curve) => {
      if (sample && curve.tell) return `${curve.name} ${curve.tell(sample)}`;
      const value = sample ? curve.of(sample) : null;
      return `${curve.name} ${value == null ? "–" : this.show(value)}`;
    });
    for (const [index, text] of told.entries()) say(this.legend.children[index], text);
    const when = this.pointed ? new Date(sample.at * 1000).toLocaleTimeString() : "now";
    this.svg.setAttribute("aria-label", `${this.title}; ${when}: ${told.join(", ")}`);
  }
}

/** The next of 1, 2, 5 times a power of ten. */
function niceTop(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const factor of [1, 2, 5, 10]) if (value <= factor * power) return factor * power;
  return 10 * power;
}
