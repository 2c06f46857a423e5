// The dashboard's frame: which view of which runs is shown, and what is new in them.

import { element, watchPage } from "./charts.js";
import { address, asked, place } from "./address.js";
import { showPeople, showSamples } from "./browser.js";
import { showOverview } from "./overview.js";

const EVERY_MS = 2000;
const SOON_MS = 100; // at first, while a run is opened
const VIEWS = {
  overview: { name: "Overview", show: showOverview },
  samples: { name: "Samples", show: showSamples },
  people: { name: "Judges and people", show: showPeople },
};

const main = document.getElementById("main");
const live = document.getElementById("live");
let runs = [];
let current = null; // the view that is shown: {refresh, update}

function showFrame() {
  const { view, given } = place();
  const number = given.get("run") ?? "0";
  document.getElementById("views").replaceChildren(
    ...Object.entries(VIEWS).map(([key, { name }]) =>
      element(
        "a",
        { href: address(key, { run: number }), "aria-current": key === view ? "page" : null },
        name,
      ),
    ),
  );
  document.getElementById("runs").replaceChildren(...runChoice(view, number));
}

/** The choice of a run, where there are several and the view shows one. */
function runChoice(view, number) {
  if (runs.length < 2 || view === "overview") return [];
  const choose = (event) => {
    location.hash = address(view, { run: event.target.value });
  };
  const options = runs.map((run) =>
    element("option", { value: run.run, selected: String(run.run) === number }, run.name),
  );
  return [element("label", {}, "Run ", element("select", { id: "run", onchange: choose }, options))];
}

async function showPlace() {
  const { view, given } = place();
  const chosen = VIEWS[view] ?? VIEWS.overview;
  showFrame();
  if (current?.view === chosen && !current.failed && current.update?.(given)) return;
  current?.close?.();
  document.title = `${chosen.name} · zerowait`;
  current = { view: chosen };
  try {
    Object.assign(current, await chosen.show(main, given, runs));
  } catch (error) {
    current.failed = true; // and tried again when the run has changed
    main.replaceChildren(element("p", { role: "alert" }, error.message));
  }
}

/** Ask what is new, now and then; a page that is not seen waits. */
async function watch() {
  for (let wait = SOON_MS; ; ) {
    if (!document.hidden) await look();
    const opening = runs.some((run) => run.state === "reading");
    wait = opening ? Math.min(2 * wait, EVERY_MS) : EVERY_MS;
    await new Promise((done) => setTimeout(done, wait));
  }
}

async function look() {
  try {
    const before = runs;
    runs = await asked("/api/runs");
    live.textContent = said(runs);
    const fresh = runs.filter((run) => isOther(run, before[run.run]));
    for (const run of fresh) run.grown = run.samples !== before[run.run]?.samples;
    if (current === null || (current.failed && fresh.length)) await showPlace();
    else if (fresh.length) await current.refresh?.(runs, fresh);
  } catch (error) {
    live.textContent = error.message;
  }
}

function isOther(run, before) {
  return run.version !== before?.version || run.state !== before?.state;
}

function said(all) {
  return all
    .map((run) => {
      const name = all.length > 1 ? `${run.name}: ` : "";
      if (run.state !== "ready") return `${name}${run.why}`;
      return `${name}${run.samples.toLocaleString("en")} samples`;
    })
    .join(" · ");
}

addEventListener("hashchange", showPlace);
watchPage();
watch();
