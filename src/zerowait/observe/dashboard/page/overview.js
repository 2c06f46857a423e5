// The report's views of every run, side by side, drawn anew when a run has grown.

import { VIEWS, chart, element, onto, questions, redraw, step } from "./charts.js";
import { address, asked } from "./address.js";

const SECTIONS = [
  ["Summary", "overview", "overview"],
  ["Alarms", "alarms", "alarms"],
  ["Reward", "rewards", "rewards"],
  ["Components", "components", "components"],
  ["Abstentions", "abstentions", "abstentions"],
  ["Why components abstained", "failures", "overview"],
  ["Judges", "judges", "judges"],
  ["Time that the trainer waited", "waits", "waits"],
  ["Groups without variance", "groups", "groups"],
  ["Judge against rule", "agreement", "agreement"],
  ["Length against reward", "length", "length"],
];
const SERIES = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];
const REST = 4; // a summary that took a second is made again after four, so that one core is free

export async function showOverview(main, given, runs) {
  const together = element("div");
  const columns = runs.map((run) => new Column(run, () => drawTogether(together, columns)));
  main.replaceChildren(
    element("h1", {}, runs.length === 1 ? runs[0].name : `${runs.length} runs`),
    runs.length > 1 ? together : "",
    element("div", { class: runs.length === 1 ? "columns single" : "columns" }, columns.map((column) => column.element)),
  );
  for (const [index, column] of columns.entries()) column.show(runs[index]);
  return {
    update: () => true,
    refresh: (_, fresh) => fresh.forEach((run) => columns[run.run].show(run)),
    close: () => columns.forEach((column) => column.close()),
  };
}

/** The rewards of all runs in one chart, by step. */
function drawTogether(into, columns) {
  const known = columns.filter((column) => column.documents.rewards);
  if (known.length < 2) return;
  const bands = known.map((column) => column.documents.rewards.train);
  const x = [...new Set(bands.flatMap((band) => band.points))].sort((a, b) => a - b);
  chart(into, {
    title: "Reward of the runs (mean)",
    x,
    xLabel: "step",
    height: 280,
    series: known.map((column, index) => ({
      label: column.name,
      values: onto(x, bands[index].points, bands[index].mean),
      colour: SERIES[index % SERIES.length],
    })),
  });
}

/** One run's views; each is drawn as soon as its document is here. */
class Column {
  constructor(run, drawn) {
    this.run = run.run;
    this.name = run.name;
    this.drawn = drawn;
    this.documents = {};
    this.versions = {};
    this.chosen = null;
    this.panel = element("div", { class: "panel", "aria-live": "polite", hidden: true });
    this.picker = element("div", { class: "pick" });
    this.boxes = SECTIONS.map(() => element("div"));
    this.status = element("p", { class: "note", role: "status" });
    this.element = element(
      "section",
      { "aria-label": run.name },
      element("h2", {}, run.name),
      this.status,
      SECTIONS.map(([title, name], index) => [
        element("h3", {}, title),
        this.boxes[index],
        name === "rewards" ? [this.picker, this.panel] : [],
      ]).flat(2),
    );
  }

  close() {
    this.stop?.abort();
    clearTimeout(this.later);
  }

  /** Show the run as it is now; while the last reading of it goes on, once more afterwards. */
  async show(run) {
    this.wanted = run;
    if (this.reading) return;
    if (run.state !== "ready") {
      this.status.textContent = run.why;
      return;
    }
    this.reading = true;
    this.stop = new AbortController();
    const began = performance.now();
    try {
      if (!this.documents.overview) await this.recall(run);
      await this.read(run);
      this.status.textContent = "";
    } catch (error) {
      if (error.name === "AbortError") return;
      this.status.textContent = error.message;
    }
    const rest = REST * (performance.now() - began);
    this.later = setTimeout(() => {
      this.reading = false;
      if (this.wanted.version !== run.version) this.show(this.wanted);
    }, rest);
  }

  /** Show what was made last, in an earlier state of the run: a long one takes seconds. */
  async recall(run) {
    const { versions, documents } = await this.ask("views");
    if (!documents.overview || !documents.rewards) return;
    this.documents = documents;
    this.versions = versions;
    SECTIONS.forEach(([, , of], index) => documents[of] && this.draw(index));
    if (this.isOld(run)) this.status.textContent = "Of an earlier state of the run; reading on…";
  }

  isOld(run) {
    return SECTIONS.some(([, , of]) => this.versions[of] !== run.version);
  }

  async read(run) {
    for (const [index, [, name, of]] of SECTIONS.entries()) {
      if (name === of && this.versions[of] === run.version) continue;
      if (name === of) {
        this.documents[of] = await this.ask(`views/${of}`);
        this.versions[of] = run.version;
      }
      this.draw(index);
    }
  }

  draw(index) {
    const [, name, of] = SECTIONS[index];
    VIEWS[name](this.boxes[index], this.documents[of], {
      overview: this.documents.overview,
      onPick: (at) => this.pick(at),
      chosen: () => this.chosen,
    });
    if (name !== "rewards") return;
    this.drawPicker();
    this.drawn();
  }

  ask(path) {
    return asked(`/api/runs/${this.run}/${path}`, { signal: this.stop?.signal });
  }

  unit() {
    return this.documents.overview.axis.kind === "rows" ? "rows from" : "step";
  }

  drawPicker() {
    const { train } = this.documents.rewards;
    const name = `pick-${this.run}`;
    const select = element(
      "select",
      { id: name, onchange: () => select.value !== "" && this.pick(Number(select.value)) },
      element("option", { value: "" }, "choose…"),
      train.points.map((at) =>
        element("option", { value: at, selected: at === this.chosen }, `${this.unit()} ${at}`),
      ),
    );
    if (this.picker.contains(document.activeElement)) return; // somebody is choosing
    this.picker.replaceChildren(
      element("label", { for: name }, `Explain ${this.unit()}`),
      select,
      ...questions(this.documents.rewards, this.unit()).map(([at, words]) =>
        element("button", { type: "button", onclick: () => this.pick(at) }, words),
      ),
    );
  }

  /** Show what changed at a point of the reward curve, and where its samples are. */
  async pick(at) {
    const points = this.documents.rewards.train.points;
    const nearest = points.reduce((best, each) => (Math.abs(each - at) < Math.abs(best - at) ? each : best));
    this.chosen = nearest;
    try {
      step(this.panel, await this.ask(`points/${nearest}`), this.documents);
    } catch (error) {
      this.panel.replaceChildren(element("p", { role: "alert" }, error.message));
    }
    if (this.documents.overview.axis.kind === "step" && this.documents.overview.axis.width === 1) {
      const samples = address("samples", { run: this.run, step: nearest });
      this.panel.append(element("p", {}, element("a", { href: samples }, `All samples of step ${nearest}`)));
    }
    this.panel.hidden = false;
    this.panel.querySelector("#chosen")?.focus({ preventScroll: true });
    this.panel.scrollIntoView({ block: "nearest" });
    redraw();
  }
}
