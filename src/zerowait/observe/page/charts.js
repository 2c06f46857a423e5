// Draws each view of a run from its JSON document (data.py has their fields).
//
// Every function takes an element and a document, and replaces what the element holds. Texts of a
// record only ever become text nodes. A chart is a canvas by uPlot, with its numbers as a table
// beside it; on a chart by step a click, or the arrow keys and Enter, choose a step.

const ROLES = {
  rollout: "--c1", "log-probabilities": "--c3", "gradients, update": "--c4",
  "weights to rollout": "--c6", "waits for rewards": "--bad", other: "--c7",
};
const SERIES = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];
const TABLE_ROWS = 400;
const drawn = new Set();
const below = []; // charts below the screen that are not drawn yet
const whenIdle = globalThis.requestIdleCallback ?? ((work) => setTimeout(work, 1)); // Safari has none

// --- small parts -----------------------------------------------------------------------------

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined).map(
    (child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
  return made;
}

export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1e6 || (size < 1e-4 && size > 0)) return value.toExponential(2);
  return value.toFixed(size >= 100 ? 1 : digits);
}

function isKnown(value) {
  return value !== null && value !== undefined;
}

export function percent(share) {
  return share === null || share === undefined ? "–" : `${number(100 * share, 1)} %`;
}

export function table(head, rows, caption) {
  const isNumber = (cell) => typeof cell === "number" || cell === null || cell === undefined || /^(–|[-\d.,%$ s]+)$/.test(String(cell));
  const numeric = head.map((_, index) => rows.length > 0 && rows.every((row) => isNumber(row[index])));
  const cells = (row, tag) => element("tr", {}, ...row.map((cell, index) =>
    element(tag, {
      class: numeric[index] ? "n" : null,
      scope: tag === "th" ? "col" : null,
    }, cell instanceof Node ? cell : typeof cell === "number" ? number(cell) : cell ?? "–")));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {}, element("caption", {}, caption), element("thead", {}, cells(head, "th")),
      element("tbody", {}, ...rows.map((row) => cells(row, "td")))));
}

function nothing(into, words) {
  into.replaceChildren(element("p", { class: "none" }, words));
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888";
}

function faded(name, alpha) {
  const hex = colour(name).replace("#", "");
  const [r, g, b] = [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${r}, ${g}, ${b}, ${alpha})`;
}

// --- one chart -------------------------------------------------------------------------------

// A series: {label, values, colour (a CSS variable), band: [low, high], dash, dots, bars, format}
export function chart(into, { title, x, xLabel, series, format = number, onPick, chosen, height = 220,
  range = null, describe = "", kind = "line", xFormat = null }) {
  const shown = series.filter((each) => each.values.some(isKnown));
  if (!x.length || !shown.length) return nothing(into, `${title}: nothing was recorded.`);
  const figure = element("figure", { class: "chart" });
  const canvas = element("div", {
    class: "canvas", role: "img", tabindex: onPick ? "0" : null,
    "aria-label": `${title}. ${describe || summary(x, shown, format)}${onPick ? " Arrow keys move, Enter chooses." : ""}`,
  });
  const numbers = element("details", { class: "numbers" }, element("summary", {}, `Numbers: ${title}`));
  numbers.addEventListener("toggle", () => { // the tables of a long run take longer than its charts
    const rows = x.slice(0, TABLE_ROWS).map((at, index) =>
      [xFormat ? xFormat(at) : String(at), ...shown.map((each) => (each.format ?? format)(each.values[index]))]);
    const more = x.length > TABLE_ROWS ? ` (the first ${TABLE_ROWS} of ${x.length})` : "";
    numbers.append(table([xLabel, ...shown.map((each) => each.label)], rows, title + more));
  }, { once: true });
  figure.append(element("figcaption", {}, title), canvas, numbers);
  into.replaceChildren(figure);

  const draw = () => {
    canvas.replaceChildren();
    const width = Math.max(canvas.clientWidth, 240);
    const data = [x], lines = [{ label: xLabel, value: (_, at) => (at === null ? "–" : xFormat ? xFormat(at) : String(at)) }], bands = [];
    const single = x.length === 1;
    for (const each of shown) {
      const stroke = colour(each.colour);
      if (each.band) {
        const place = data.length;
        data.push(each.band[1], each.band[0]);
        lines.push(hidden(`${each.label} p90`), hidden(`${each.label} p10`));
        bands.push({ series: [place, place + 1], fill: faded(each.colour, 0.18) });
      }
      data.push(each.values);
      lines.push({
        label: each.label, stroke, width: kind === "bars" || (each.dots && !each.dash) ? 0 : 2,
        dash: each.dash ? [6, 4] : undefined,
        fill: kind === "bars" ? stroke : undefined,
        paths: kind === "bars" ? uPlot.paths.bars({ size: [0.8, 28] }) : each.dots && !each.dash ? () => null : undefined,
        points: { show: kind !== "bars" && (single || each.dots || x.length <= 30 || each.values.includes(null)), size: each.dots ? 6 : 5, fill: stroke, stroke },
        value: (_, value) => (each.format ?? format)(value),
      });
    }
    const axis = { stroke: colour("--lesser"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--grid"), width: 1 } };
    const plot = new uPlot({
      width, height,
      scales: { x: { time: false, range: (_, low, high) => (low === high ? [low - 1, high + 1] : kind === "bars" ? [low - 0.5 * gap(x), high + 0.5 * gap(x)] : [low, high]) }, y: range ? { range } : { range: padded } },
      axes: [
        { ...axis, size: 34, values: (_, ticks) => ticks.map((tick) => (xFormat ? xFormat(tick) : Number.isInteger(tick) ? String(tick) : "")) },
        { ...axis, size: 58, values: (_, ticks) => ticks.map((tick) => format(tick)) },
      ],
      series: lines, bands,
      legend: { live: true },
      cursor: { drag: { x: false, y: false }, points: { size: 7 } },
      hooks: { draw: [(u) => mark(u, chosen?.())] },
    }, data, canvas);
    canvas.plot = plot;
    if (onPick) plot.over.addEventListener("click", () => { if (plot.cursor.idx !== null) onPick(x[plot.cursor.idx]); });
  };
  if (onPick) canvas.addEventListener("keydown", (event) => {
    if (!canvas.plot) draw();
    const plot = canvas.plot;
    const at = canvas.at ?? Math.max(x.indexOf(chosen?.()), 0);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: x.length - 1 }[event.key];
    if (event.key === "Enter") onPick(x[at]);
    else if (to !== undefined) {
      canvas.at = Math.min(Math.max(to, 0), x.length - 1);
      plot.setCursor({ left: plot.valToPos(x[canvas.at], "x"), top: height / 3 });
      event.preventDefault();
    }
  });
  keep({ figure, canvas, draw, height });
}

function hidden(label) {
  return { label, stroke: "transparent", width: 0, points: { show: false }, class: "band" };
}

function padded(_, low, high) {
  if (low === null) return [0, 1];
  const pad = high === low ? Math.max(Math.abs(high) * 0.1, 0.1) : (high - low) * 0.06;
  return [low >= 0 && low - pad < 0 ? 0 : low - pad, high + pad];
}

function gap(x) {
  return x.length > 1 ? Math.min(...x.slice(1).map((at, index) => at - x[index])) : 1;
}

function mark(u, at) {
  if (at === null || at === undefined) return;
  const left = Math.round(u.valToPos(at, "x", true));
  if (left < u.bbox.left || left > u.bbox.left + u.bbox.width) return;
  u.ctx.save();
  u.ctx.strokeStyle = colour("--text");
  u.ctx.setLineDash([3, 3]);
  u.ctx.beginPath();
  u.ctx.moveTo(left, u.bbox.top);
  u.ctx.lineTo(left, u.bbox.top + u.bbox.height);
  u.ctx.stroke();
  u.ctx.restore();
}

function summary(x, series, format) {
  return series.map((each) => {
    const known = each.values.filter(isKnown);
    return `${each.label}: ${known.length} values from ${format(known[0])} to ${format(known.at(-1))}.`;
  }).join(" ");
}

// Draws what is on the screen at once, and what is below it one by one when nothing else is to do.
function keep(part) {
  drawn.add(part);
  if (part.figure.getBoundingClientRect().top < innerHeight) return show(part);
  part.canvas.style.minHeight = `${part.height}px`; // what is below it stays where it is
  if (below.push(part) === 1) whenIdle(drawBelow);
}

function drawBelow() {
  const part = below.shift();
  if (part.figure.isConnected && part.width === undefined) show(part);
  if (below.length) whenIdle(drawBelow);
}

function show(part) {
  part.draw();
  part.width = part.canvas.clientWidth;
}

// Draws every chart that is still on the page again: after a change of size, colours or choice.
export function redraw() {
  for (const part of drawn) {
    if (!part.figure.isConnected) drawn.delete(part);
    else show(part);
  }
}

export function watchPage() {
  let waiting = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => {
      if ([...drawn].some((part) => part.figure.isConnected && part.canvas.clientWidth !== part.width)) redraw();
    });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  const printing = (is) => () => {
    document.documentElement.toggleAttribute("data-print", is);
    redraw();
  };
  addEventListener("beforeprint", printing(true));
  addEventListener("afterprint", printing(false));
}

// --- views -----------------------------------------------------------------------------------

const quantile = (band, place) => band.quantiles.map((each) => (each ? each[place] : null));

function xName(overview) {
  return overview?.axis?.kind === "rows" ? "row" : "step";
}

// Puts the values of some points onto an axis that has more: null stays a gap in the line, where no
// row has a value; undefined is a point that the series does not have, which the line passes over.
export function onto(x, points, values) {
  const by = new Map(points.map((at, index) => [at, values[index]]));
  return x.map((at) => by.get(at));
}

// Puts series with points of their own onto one axis.
function joined(bands) {
  const x = [...new Set(bands.flatMap((band) => band.points))].sort((a, b) => a - b);
  const on = (points, values) => onto(x, points, values);
  return { x, on };
}

export const VIEWS = {
  overview(into, doc) {
    const c = doc.counters;
    const judged = (c.asked ?? 0) + (c.cached ?? 0) + (c.joined ?? 0);
    const tiles = [
      ["reward", `${number(doc.first)} → ${number(doc.last)}`, "mean of the first and the last point"],
      ["rows", number(doc.rows), Object.entries(doc.splits).map(([name, n]) => `${name} ${number(n)}`).join(", ")],
      ["without a value", percent(doc.rows ? doc.abstained / doc.rows : null), `${number(doc.abstained)} rows; ${number(doc.abstentions)} components abstained`],
      ["judgements", number(judged), judged ? `${percent(((c.cached ?? 0) + (c.joined ?? 0)) / judged)} needed no request` : "no judge was asked"],
      ["cost", c.spent_usd ? `$${c.spent_usd.toFixed(4)}` : "–", c.spent_usd ? `${number(c.prompt_tokens)} + ${number(c.completion_tokens)} tokens` : "nothing that has a price"],
      ["trainer waited", doc.exposed_s === null ? "–" : `${number(doc.exposed_s, 1)} s`, doc.exposed_s === null ? "not measured in this run" : "for rewards, all steps"],
    ];
    into.replaceChildren(element("dl", { class: "tiles" }, ...tiles.map(([name, value, more]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, element("b", {}, value), element("span", {}, more))))));
    if (doc.failures.length) into.append(
      element("p", { class: "failure" }, element("b", {}, "Commonest failure: "),
        `${doc.failures[0].why || doc.failures[0].kind} (${doc.failures[0].kind}, ${number(doc.failures[0].count)} times)`));
    for (const note of doc.notes) into.append(element("p", { class: "note" }, note));
  },

  rewards(into, doc, { overview, onPick, chosen } = {}) {
    const others = Object.entries(doc.held_out);
    const { x, on } = joined([doc.train, ...others.map(([, band]) => band)]);
    const name = overview?.axis?.split ?? "train";
    const on10 = quantile(doc.train, 0), on90 = quantile(doc.train, 4);
    chart(into, {
      title: "Reward (mean, and the range of the middle 80 %)", x, xLabel: xName(overview), onPick, chosen, height: 280,
      series: [
        { label: name, values: on(doc.train.points, doc.train.mean), colour: "--c1", band: [on(doc.train.points, on10), on(doc.train.points, on90)] },
        ...others.map(([split, band], index) => ({ label: split, values: on(band.points, band.mean), colour: SERIES[(index + 1) % SERIES.length], dash: true, dots: true })),
      ],
    });
    for (const note of doc.notes ?? []) into.append(element("p", { class: "failure" }, note));
  },

  components(into, doc, { overview, onPick, chosen } = {}) {
    const boxes = Object.entries(doc.components).map(([name, band], index) => {
      const box = element("div");
      box.paint = () => chart(box, {
        title: name, x: band.points, xLabel: xName(overview), onPick, chosen, height: 170,
        series: [{ label: "mean", values: band.mean, colour: SERIES[index % SERIES.length], band: [quantile(band, 0), quantile(band, 4)] }],
      });
      return box;
    });
    if (!boxes.length) return nothing(into, "No components were recorded.");
    into.replaceChildren(element("div", { class: "grid" }, ...boxes));
    for (const box of boxes) box.paint();
  },

  abstentions(into, doc, { overview, onPick, chosen } = {}) {
    const kinds = Object.entries(doc.kinds);
    if (!kinds.length) return nothing(into, "No component abstained: every judgement was reached.");
    // stacked: each bar reaches up to the sum so far, drawn from the tallest to the lowest
    const total = doc.points.map(() => 0);
    const stacked = kinds.map(([label, counts], index) => {
      const tops = counts.map((count, at) => (total[at] += count / Math.max(doc.rows[at], 1)));
      return { label, colour: SERIES[index % SERIES.length], values: [...tops], counts };
    }).reverse();
    chart(into, {
      title: "Abstained components, as a share of the rows (stacked by kind)", x: doc.points, xLabel: xName(overview), kind: "bars", onPick, chosen,
      format: percent, range: (_, low, high) => [0, Math.max(high * 1.05, 0.01)], series: stacked,
    });
    into.append(table(["component/kind", "rows"], kinds.map(([name, counts]) => [name, counts.reduce((a, b) => a + b, 0)]), "Abstentions by kind"));
  },

  failures(into, overview) {
    if (!overview.failures.length) return nothing(into, "");
    into.replaceChildren(table(["times", "kind", "why, in the words of who failed"],
      overview.failures.map((each) => [each.count, each.kind, each.why]), "Why components abstained"));
  },

  judges(into, doc) {
    const began = doc.at[0] ?? 0;
    const x = doc.at.map((at) => at - began);
    const clock = (s) => (s >= 7200 ? `${(s / 3600).toFixed(1)} h` : s >= 120 ? `${(s / 60).toFixed(1)} min` : `${number(s, 1)} s`);
    const boxes = Array.from({ length: 4 }, () => element("div"));
    into.replaceChildren(element("div", { class: "grid" }, ...boxes));
    const common = { x, xLabel: "since the start", xFormat: clock, height: 190 };
    chart(boxes[0], { ...common, title: "Latency of judges' answers (s)", series: [
      { label: "p50", values: doc.p50_s, colour: "--c1" }, { label: "p95", values: doc.p95_s, colour: "--c2" }, { label: "p99", values: doc.p99_s, colour: "--c5" }] });
    chart(boxes[1], { ...common, title: "Requests in flight", series: [
      { label: "limit", values: doc.limit, colour: "--c4", dash: true }, { label: "in flight", values: doc.in_flight, colour: "--c1" }] });
    chart(boxes[2], { ...common, title: "Judgements that needed no request, so far", format: percent, range: () => [0, 1], series: [
      { label: "hit rate", values: doc.hit_rate, colour: "--c3" }] });
    const spent = doc.spent_usd.some((usd) => usd > 0) ? doc.spent_usd : doc.spent_usd.map(() => null);
    chart(boxes[3], { ...common, title: "Spent so far (USD)", format: (usd) => (usd === null ? "–" : `$${usd.toFixed(usd < 1 ? 4 : 2)}`), series: [
      { label: "spent", values: spent, colour: "--c2" }] });
    if (doc.judges.length) into.append(table(
      ["judge", "judgements", "asked", "cache", "joined", "abstained", "USD", "models"],
      doc.judges.map((each) => [each.judge, each.judgements, each.asked, each.cached, each.joined, each.abstained, each.spent_usd ? each.spent_usd.toFixed(4) : "–", (each.models ?? "").split(",").slice(0, 4).join(", ")]), "Judges"));
    if (doc.events.length) into.append(element("details", {}, element("summary", {}, `What happened to endpoints, models and limits (${doc.events.length})`),
      table(["since the start", "event", "judge", "endpoint", "why"], doc.events.map((each) => [clock(each.at - began), each.kind, each.judge ?? "", each.endpoint ?? "", each.why ?? ""]), "Events, oldest first")));
  },

  waits(into, doc, { onPick, chosen } = {}) {
    if (!doc.points.length) return nothing(into, "The trainer did not measure how long it waited for rewards: zerowait's trainer modes do.");
    chart(into, { title: "Seconds that the trainer waited for rewards and did nothing else", x: doc.points, xLabel: "step", kind: "bars", onPick, chosen,
      height: 180, range: (_, low, high) => [0, Math.max(high * 1.05, 0.1)], series: [{ label: "exposed seconds", values: doc.exposed_s, colour: "--c2" }] });
  },

  groups(into, doc, { overview, onPick, chosen } = {}) {
    if (!doc.points.length) return nothing(into, "No prompt has several rewarded responses, so that there are no groups.");
    chart(into, { title: "Groups whose rewards are all the same: nothing is learned from them", x: doc.points, xLabel: xName(overview), onPick, chosen,
      height: 180, format: percent, range: () => [0, 1], series: [{ label: "share of groups", values: doc.groups.map((n, at) => doc.equal[at] / n), colour: "--c4" }] });
  },

  length(into, doc) { relations(into, doc, "No response was rewarded, so that there is nothing to compare with its length."); },

  agreement(into, doc) { relations(into, doc, "No rows are scored by both a judge and a rule."); },

  alarms(into, doc) {
    if (!doc.alarms.length) return nothing(into, "No alarm was raised.");
    into.replaceChildren(element("ul", { class: "alarms" }, ...doc.alarms.map((each) => element("li", {},
      element("b", {}, `${each.step === null ? "" : `Step ${each.step}: `}${each.kind}${each.component ? ` (${each.component})` : ""}`),
      element("p", {}, `${each.meaning}: ${each.why}`), element("p", { class: "advice" }, each.advice)))));
  },
};

function relations(into, doc, none) {
  if (!doc.relations.length) return nothing(into, none);
  const boxes = doc.relations.map((each) => {
    const box = element("div");
    box.paint = () => scatter(box, each);
    return box;
  });
  into.replaceChildren(element("div", { class: "grid" }, ...boxes));
  for (const box of boxes) box.paint();
}

function scatter(into, doc) {
  const all = [...doc.dots.map(([x, y]) => [x, y, null]), ...doc.means.map(([x, y]) => [x, null, y])].sort((a, b) => a[0] - b[0]);
  const rho = doc.rho === null ? "" : `, rank correlation ${doc.rho.toFixed(2)}`;
  chart(into, {
    title: `${doc.y} against ${doc.x}${rho}`, x: all.map((each) => each[0]), xLabel: doc.x, height: 210, xFormat: (at) => number(at, 2),
    describe: `${doc.rows} rows, of which ${doc.dots.length} are drawn.`,
    series: [
      { label: "a row", values: all.map((each) => each[1]), colour: "--c7", dots: true },
      { label: `mean ${doc.y}`, values: all.map((each) => each[2]), colour: "--c1" },
    ],
  });
}

// --- one step --------------------------------------------------------------------------------

// The panel of one step: what changed, why, its groups and its times.
// The steps worth asking about, as [step, question].
export function questions(rewards, unit) {
  const slow = rewards.slow ? [[rewards.slow[1], `Why did it fall slowly from ${unit} ${rewards.slow[0]} to ${rewards.slow[1]}?`]] : [];
  return [...slow, ...rewards.falls.map((at) => [at, `Why did it fall at ${unit} ${at}?`]),
    ...rewards.changed.map((at) => [at, `What changed at ${unit} ${at}?`])];
}

export function step(into, doc, { overview } = {}) {
  const name = xName(overview) === "row" ? `Rows from ${doc.point}` : `Step ${doc.point}`;
  const asked = doc.slow ? `why did the reward fall slowly, from step ${doc.slow.since} on?` : doc.fall.fell ? "why did the reward fall?" : "what changed?";
  const parts = [element("h3", { tabindex: "-1", id: "chosen" }, `${name}: ${asked}`)];
  if (doc.slow) parts.push(...comparison(doc.slow, `steps to ${doc.point}`), element("h4", {}, `${name} alone`));
  parts.push(...comparison(doc.fall, "here"));
  into.replaceChildren(...parts);
  if (doc.timeline) {
    const box = element("div");
    into.append(box);
    timeline(box, doc.timeline, name);
  }
  for (const [title, groups] of [["Worst groups", doc.worst], ["Best groups", doc.best]])
    if (groups.length) into.append(element("h4", {}, title), ...groups.map(group));
}

// One window of steps against an earlier one: in words, by causes, and in figures.
function comparison(fall, here) {
  const parts = [element("p", { class: "words" }, fall.words)];
  if (fall.causes.length) parts.push(element("ol", { class: "causes" }, ...fall.causes.map((cause, index) =>
    element("li", {}, element("details", { open: index === 0 },
      element("summary", {}, element("b", {}, cause.title), " ", element("span", { class: "strength" }, strength(cause.strength))),
      element("ul", {}, ...cause.evidence.map((words) => element("li", {}, words))),
      element("p", { class: "advice" }, cause.advice))))));
  else if (fall.fell) parts.push(element("p", {}, "No single cause stands out: see the figures, and read the worst groups."));
  if (fall.changes.length) parts.push(element("details", { open: !fall.causes.length }, element("summary", {}, "All figures, the most surprising first"),
    table(["", fall.before ? `steps ${fall.before[0]} to ${fall.before[1]}` : "before", here, "standard errors"],
      fall.changes.map((each) => [each.name, withUnit(each.before, each.unit), withUnit(each.now, each.unit), each.z === null ? "–" : each.z.toFixed(1)]), "This step against the steps before")));
  return parts;
}

function strength(value) {
  const words = value >= 0.75 ? "strong evidence" : value >= 0.4 ? "some evidence" : "weak evidence";
  return `${words} (${value.toFixed(2)})`;
}

function withUnit(value, of) {
  return of === "%" ? percent(value) : number(value);
}

export function group(doc) {
  const range = doc.mean === null ? "no value" : `mean ${number(doc.mean)}, ${number(doc.lowest)} to ${number(doc.highest)}`;
  return element("details", { class: "group" },
    element("summary", {}, element("b", {}, doc.prompt === null ? doc.group : firstLine(doc.prompt)), ` ${range}, ${doc.scored} of ${doc.rows} responses scored${doc.data_source ? `, ${doc.data_source}` : ""}`),
    element("h5", {}, "Prompt"), text(doc.prompt), ...doc.responses.map((each) => response(each)));
}

export function response(doc) {
  return element("div", { class: "response" },
    element("h5", {}, `Response of row ${doc.row}: ${doc.value === null ? "no value" : number(doc.value)}${doc.tokens === null ? "" : `, ${doc.tokens} tokens`}`),
    doc.why ? element("p", { class: "why" }, doc.why) : null,
    text(doc.text),
    doc.components.length ? table(["component", "outcome", "value", "why"], doc.components.map((each) => [each.component, each.kind || each.outcome, each.value, each.why ?? ""]), "Components") : null,
    ...doc.judgements.map((each) => element("details", {},
      element("summary", {}, `Judge ${each.judge} (${each.component}): ${each.value === null ? each.kind || "no verdict" : number(each.value)}${each.model ? `, ${each.model}` : ""}`),
      each.why ? element("p", {}, each.why) : null, text(each.reply))));
}

function text(words) {
  return words === null ? element("p", { class: "none" }, "not kept in this record") : element("pre", { tabindex: "0" }, words);
}

function firstLine(words) {
  const line = words.trim().split("\n")[0] || "(empty prompt)";
  return line.length > 90 ? `${line.slice(0, 90)}…` : line;
}

function timeline(into, doc, name) {
  const NS = "http://www.w3.org/2000/svg";
  const width = 760, left = 70, top = 8, bar = 24;
  const lines = Math.min(8, 170 / Math.max(doc.groups.length, 1));
  const bottom = top + bar + 14 + lines * doc.groups.length + 8;
  const x = (s) => left + (Math.min(Math.max(s, 0), doc.lasted_s) / Math.max(doc.lasted_s, 1e-9)) * (width - left - 16);
  const svg = document.createElementNS(NS, "svg");
  const put = (tag, attributes, words) => {
    const made = document.createElementNS(NS, tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (words !== undefined) made.textContent = words;
    svg.append(made);
  };
  svg.setAttribute("viewBox", `0 0 ${width} ${bottom + 22}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${name} lasted ${number(doc.lasted_s, 1)} s, of which the trainer waited ${number(doc.waited_s, 1)} s for rewards.`);
  put("text", { x: 4, y: top + 16, class: "t" }, "GPU");
  if (doc.groups.length) put("text", { x: 4, y: top + bar + 24, class: "t" }, "rewards");
  for (const [kind, began, ended] of doc.phases) put("rect", { x: x(began), y: top, width: Math.max(x(ended) - x(began), 0.3), height: bar, style: `fill: var(${ROLES[kind] ?? "--c7"})` });
  doc.groups.forEach(([asked, known], at) => put("rect", { x: x(asked), y: top + bar + 14 + at * lines, width: Math.max(x(known) - x(asked), 0.6), height: lines * 0.75, style: "fill: var(--c2)" }));
  const every = [0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 600, 3600].find((s) => doc.lasted_s / s <= 8) ?? 36000;
  for (let s = 0; s <= doc.lasted_s; s += every) put("text", { x: x(s), y: bottom + 14, class: "t", "text-anchor": "middle" }, `${number(s, 1)} s`);
  const kinds = [...new Set(doc.phases.map(([kind]) => kind))];
  const seconds = (kind) => doc.phases.filter((each) => each[0] === kind).reduce((sum, each) => sum + each[2] - each[1], 0);
  const key = (variable, words) => element("li", {}, element("i", { style: `background: var(${variable})` }), words);
  into.replaceChildren(element("figure", { class: "chart" },
    element("figcaption", {}, `${name}: ${number(doc.lasted_s, 1)} s, of which ${number(doc.waited_s, 1)} s waited for rewards`), svg,
    element("ul", { class: "key" }, ...kinds.map((kind) => key(ROLES[kind] ?? "--c7", `${kind} ${number(seconds(kind), 1)} s`)), key("--c2", "the rewards of a prompt"))));
}
