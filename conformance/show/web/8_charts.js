// Charts over the steps or the requests of a run: lines in inline SVG, and the values in words.

const WIDE = 600, HIGH = 90, MOST_POINTS = 600;

class ChartView {
  /**
   * @param {any} chart {title, unit, lines, over_groups}
   * @param {function(number): number} xOf the place of a step among the values
   * @param {function(number): number} stepOf the step of a place
   */
  constructor(chart, xOf, stepOf, seek) {
    this.chart = chart;
    this.xOf = xOf;
    this.names = Object.keys(chart.lines);
    const lines = Object.values(chart.lines);
    this.length = Math.max(...lines.map((line) => line.length));
    this.highest = Math.max(chart.unit === "%" ? 100 : 1, ...lines.map((line) =>
      line.reduce((most, value) => Math.max(most, value), 0)));
    this.cursor = draw("line", { class: "show-cursor", y1: 0, y2: HIGH });
    this.values = make("ul", { class: "show-values" });
    const svg = draw("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none",
      "aria-hidden": "true", onclick: (event) => {
        const box = svg.getBoundingClientRect();
        seek(stepOf(Math.round((event.clientX - box.left) / box.width * (this.length - 1))));
      } },
    ...lines.map((line, at) => this.line(line, at)), this.cursor);
    this.element = make("figure", { class: "show-chart" },
      make("figcaption", {}, `${chart.title}${chart.unit ? `, ${chart.unit}` : ""}`,
        make("span", { class: "soft" }, ` (top ${round(this.highest)})`)),
      svg, this.values);
  }

  /** A line of at most so many points; of the values between two points, the least and the most. */
  line(values, number) {
    const bucket = Math.max(1, Math.ceil(values.length / MOST_POINTS));
    const points = [];
    for (let at = 0; at < values.length; at += bucket) {
      const some = values.slice(at, at + bucket);
      const x = at / Math.max(1, this.length - 1) * WIDE;
      for (const value of bucket === 1 ? some : [Math.min(...some), Math.max(...some)]) {
        points.push(`${x.toFixed(1)},${(HIGH - 2 - value / this.highest * (HIGH - 4)).toFixed(1)}`);
      }
    }
    return draw("polyline", { points: points.join(" "), class: `show-line-${number % 6}` });
  }

  /** Moves the cursor to a step. */
  show(step) {
    const at = Math.min(this.length - 1, Math.max(0, this.xOf(step)));
    const x = at / Math.max(1, this.length - 1) * WIDE;
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    this.values.replaceChildren(...this.names.map((name, number) => make("li", {},
      make("span", { class: `show-key show-line-${number % 6}`, "aria-hidden": "true" }),
      `${name} ${round(this.chart.lines[name][at] ?? 0)}${this.chart.unit}`)));
  }
}

function round(value) {
  return Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(1);
}
