// The page of `zerowait report`: all sections, from the documents that are in the page.
import { VIEWS, element, questions, redraw, step, watchPage } from "./charts.js";

const documents = JSON.parse(document.getElementById("documents").textContent);
const { views, points } = documents;
const overview = views.overview;
const byPoint = new Map(points.map((each) => [each.point, each]));
const unit = overview.axis.kind === "rows" ? "rows from" : "step";
let chosen = null;

const SECTIONS = [
  ["summary", "Summary", [["overview", "overview"]]],
  ["alarms", "Alarms", [["alarms", "alarms"]]],
  ["reward", "Reward", [["rewards", "rewards"]]],
  ["components", "Components", [["components", "components"]]],
  ["abstentions", "Abstentions", [["abstentions", "abstentions"], ["failures", "overview"]]],
  ["judges", "Judges", [["judges", "judges"]]],
  ["waits", "Time that the trainer waited", [["waits", "waits"]]],
  ["groups", "Groups without variance", [["groups", "groups"]]],
  ["agreement", "Judge against rule", [["agreement", "agreement"]]],
  ["length", "Length against reward", [["length", "length"]]],
];

const panel = element("div", { class: "panel", "aria-live": "polite" });

function choose(at) {
  if (!byPoint.has(at)) return;
  chosen = at;
  step(panel, byPoint.get(at), { overview });
  panel.hidden = false;
  for (const option of document.querySelectorAll("#pick option")) option.selected = Number(option.value) === at;
  redraw();
  if (decodeURIComponent(location.hash) !== `#step=${at}`) history.replaceState(null, "", `#step=${at}`);
}

function nearest(at) {
  const known = [...byPoint.keys()];
  return known.reduce((best, each) => (Math.abs(each - at) < Math.abs(best - at) ? each : best), known[0]);
}

// A click on any chart by step: the panel below the reward curve shows that step.
function pick(at) {
  if (!byPoint.size) return;
  choose(nearest(at));
  const reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
  panel.scrollIntoView({ behavior: reduced ? "auto" : "smooth", block: "nearest" });
  panel.querySelector("#chosen")?.focus({ preventScroll: true });
}

function picker() {
  const select = element("select", { id: "pick" }, element("option", { value: "" }, "choose…"),
    ...[...byPoint.keys()].map((at) => element("option", { value: at }, `${unit} ${at}${byPoint.get(at).fall.fell ? " (fell)" : ""}`)));
  select.addEventListener("change", () => { if (select.value !== "") pick(Number(select.value)); });
  const asking = questions(views.rewards, unit).map(([at, words]) => element("button", { type: "button", onclick: () => pick(at) }, words));
  return element("div", { class: "pick" }, element("label", { for: "pick" }, `Explain ${unit}`), select, ...asking);
}

const main = document.getElementById("main");
main.replaceChildren();
for (const [id, title, parts] of SECTIONS) {
  const section = element("section", { id, "aria-labelledby": `${id}-title` }, element("h2", { id: `${id}-title` }, title));
  main.append(section);
  document.getElementById("sections").append(element("li", {}, element("a", { href: `#${id}` }, title)));
  for (const [name, of] of parts) {
    const box = element("div");
    section.append(box);
    VIEWS[name](box, views[of], { overview, onPick: pick, chosen: () => chosen });
  }
  if (id === "reward" && byPoint.size) {
    panel.hidden = true;
    section.append(element("p", { class: "note" }, "Click a point of the curve, or choose it here, to see what changed against the steps before.", documents.note ? ` ${documents.note}` : ""), picker(), panel);
  }
}
watchPage();
const asked = /^#step=(-?\d+)$/.exec(decodeURIComponent(location.hash));
if (asked && byPoint.size) pick(Number(asked[1]));
