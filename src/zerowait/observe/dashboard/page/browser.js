// The sample browser: filters, pages of samples, a group's responses side by side, thumbs.

import { element, number } from "./charts.js";
import { address, asked, place, thumb } from "./address.js";

const FILTERS = [
  ...["text", "split", "step", "data_source", "component", "outcome", "least", "most"],
  ...["judge", "source", "opinion", "group"],
];
const WORDS = {
  abstain: "abstained (any kind)",
  score: "scored",
  skipped: "skipped",
  asked: "asked the judge",
  cache: "from the cache",
  joined: "joined a call in flight",
  refused: "refused without a request",
};
const PAGE = 50;
const TYPING_MS = 300;

/** Show the browser; the address holds the filter and the open sample. */
export async function showSamples(main, given) {
  const run = given.get("run") ?? "0";
  const choices = await asked(`/api/runs/${run}/choices`);
  const list = new SampleList(run);
  const panel = new GroupPanel(run);
  const form = filterForm(choices, given);
  const open = element("div", { class: "browser" }, list.element, panel.element);
  main.replaceChildren(element("h1", {}, "Samples"), form, open);
  const update = (now) => {
    if ((now.get("run") ?? "0") !== run) return false;
    fill(form, now);
    list.show(now);
    panel.show(now.get("row"));
    return true;
  };
  update(given);
  return { update, refresh: (_, fresh) => list.tell(fresh), close: () => list.close() };
}

// ---------------------------------------------------------------- the filter

function filterForm(choices, given) {
  const outcomes = ["abstain", ...choices.kinds, "score", ...(choices.skipped ? ["skipped"] : [])];
  const steps = choices.steps;
  const form = element(
    "form",
    { class: "filters", role: "search", "aria-label": "Filter the samples" },
    field("Text", "text", { type: "search", placeholder: "in prompt or response" }),
    choice("Split", "split", choices.splits),
    steps.first === null
      ? null
      : field("Step", "step", { type: "number", min: steps.first, max: steps.last }),
    choice("Data source", "data_source", choices.data_sources),
    choice("Component", "component", choices.components),
    choice("Outcome", "outcome", outcomes),
    field("At least", "least", { type: "number", step: "any" }),
    field("At most", "most", { type: "number", step: "any" }),
    choice("Judge", "judge", choices.judges),
    choice("Answered", "source", choices.sources),
    choice("Thumb", "opinion", ["any", "none", "up", "down"]),
    field("Group", "group", { type: "text" }),
    choice("Sort", "order", ["oldest", "highest", "lowest"], "newest"),
    element("button", { type: "reset" }, "Clear"),
  );
  let waiting = 0;
  const go = () => {
    const wanted = { run: given.get("run") ?? "0" };
    for (const [name, value] of new FormData(form)) wanted[name] = value.trim();
    location.hash = address("samples", wanted);
  };
  const soon = (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(go, event.target.matches("select") ? 0 : TYPING_MS);
  };
  form.addEventListener("input", soon);
  form.addEventListener("change", soon); // all that some tools send for a choice
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(waiting);
    go();
  });
  form.addEventListener("reset", () => setTimeout(go, 0));
  return form;
}

function field(label, name, attributes) {
  return element("label", { "data-field": name }, label, element("input", { name, ...attributes }));
}

function choice(label, name, values, first = "all") {
  if (values.length === 0) return null;
  const options = values.map((value) => element("option", { value }, WORDS[value] ?? value));
  const all = element("option", { value: "" }, first);
  return element("label", { "data-field": name }, label, element("select", { name }, all, options));
}

/** The filter as the address says; a field that is being edited is not set. */
function fill(form, given) {
  for (const input of form.elements) {
    if (input.name && input !== document.activeElement) input.value = given.get(input.name) ?? "";
  }
}

// ---------------------------------------------------------------- the list

class SampleList {
  constructor(run) {
    this.run = run;
    this.items = element("ol", { class: "samples" });
    this.status = element("p", { role: "status", class: "found" });
    this.more = element("button", { hidden: true, onclick: () => this.add() }, "Show more");
    this.news = element("button", { hidden: true, class: "news", onclick: () => this.restart() });
    this.element = element(
      "section",
      { "aria-label": "Samples found", class: "list" },
      this.status,
      this.news,
      this.items,
      this.more,
    );
    this.wanted = null;
  }

  show(given) {
    const wanted = new URLSearchParams();
    for (const name of [...FILTERS, "order"]) if (given.get(name)) wanted.set(name, given.get(name));
    this.row = given.get("row");
    if (this.wanted === wanted.toString()) return this.mark();
    this.wanted = wanted.toString();
    return this.restart();
  }

  restart() {
    this.close();
    this.stop = new AbortController();
    this.next = null;
    this.count = 0;
    this.matches = null;
    this.news.hidden = true;
    return this.add(true);
  }

  close() {
    this.stop?.abort();
  }

  tell(fresh) {
    const mine = fresh.find((run) => String(run.run) === this.run);
    if (!mine?.grown) return; // a thumb is new, too, and stands in the list already
    if (this.count === 0) this.restart();
    else {
      this.news.textContent = "The run has grown: show what is new";
      this.news.hidden = false;
    }
  }

  /** Read on until a page is full or nothing is left; the server answers in short pieces. */
  async add(anew = false) {
    const { signal } = this.stop;
    const goal = this.count + PAGE;
    this.more.hidden = true;
    try {
      do {
        const query = new URLSearchParams(this.wanted);
        query.set("limit", goal - this.count);
        if (this.next !== null) query.set("after", this.next);
        const page = await asked(`/api/runs/${this.run}/samples?${query}`, { signal });
        if (anew) this.items.replaceChildren();
        anew = false;
        this.matches = page.matches ?? this.matches;
        this.count += page.samples.length;
        this.items.append(...page.samples.map((sample) => this.item(sample)));
        this.next = page.next;
        this.status.textContent = this.said();
      } while (this.next !== null && this.count < goal);
      this.more.hidden = this.next === null;
      this.mark();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (anew) this.items.replaceChildren();
      this.status.textContent = error.message;
    }
  }

  said() {
    if (this.next === null) return this.count === 1 ? "1 sample" : `${this.count} samples`;
    const many = this.matches > 10000 ? "more than 10,000" : this.matches?.toLocaleString("en");
    if (many) return `${this.count} of ${many} samples`;
    return this.count < PAGE ? `${this.count} samples so far, searching…` : `${this.count} samples`;
  }

  item(sample) {
    const query = new URLSearchParams(this.wanted);
    query.set("run", this.run);
    query.set("row", sample.row);
    const where = [
      sample.step === null ? null : `step ${sample.step}`,
      sample.split === "train" ? null : sample.split,
      sample.data_source || null,
    ];
    return element(
      "li",
      { "data-row": sample.row },
      element(
        "a",
        { href: address("samples", query) },
        element(
          "span",
          { class: "facts" },
          rewardBadge(sample),
          element("span", {}, where.filter(Boolean).join(" · ")),
          thumbsOf(sample.opinions),
        ),
        element("span", { class: "head" }, sample.response ?? "(response not kept)"),
        element("span", { class: "outcomes" }, sample.components.map(outcomeBadge)),
      ),
    );
  }

  mark() {
    for (const item of this.items.children) {
      const here = item.dataset.row === this.row;
      item.firstChild.toggleAttribute("aria-current", here);
    }
  }
}

function rewardBadge(sample) {
  if (sample.value === null) return element("b", { class: "value abstained" }, "abstained");
  return element("b", { class: "value" }, number(sample.value));
}

function outcomeBadge(outcome) {
  const said = outcome.outcome === "score" ? number(outcome.value) : (outcome.kind ?? outcome.outcome);
  return element("span", { class: `badge ${outcome.outcome}` }, `${outcome.component} ${said}`);
}

function thumbsOf(opinions) {
  if (!opinions?.length) return null;
  return element("span", {}, opinions.map((opinion) => thumb(opinion.up)));
}

// ---------------------------------------------------------------- a group, side by side

class GroupPanel {
  constructor(run) {
    this.run = run;
    this.element = element("section", { class: "sample", "aria-label": "Sample", hidden: true });
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.leave();
    });
  }

  async show(row) {
    if (row === this.row) return;
    this.row = row;
    if (!row) {
      this.element.hidden = true;
      return;
    }
    try {
      const group = await asked(`/api/runs/${this.run}/samples/${row}/group`);
      if (row !== this.row) return; // another one was opened meanwhile
      this.draw(group, Number(row));
    } catch (error) {
      this.element.replaceChildren(element("p", { role: "alert" }, error.message));
    }
    this.element.hidden = false;
    const narrow = matchMedia("(max-width: 800px)").matches;
    this.element.querySelector("h2")?.focus({ preventScroll: !narrow });
    const chosen = this.element.querySelector("article.chosen");
    if (chosen) chosen.parentElement.scrollLeft = chosen.offsetLeft - chosen.parentElement.offsetLeft;
  }

  leave() {
    const { view, given } = place();
    const row = this.row;
    given.delete("row");
    location.hash = address(view, given);
    document.querySelector(`li[data-row="${row}"] a`)?.focus();
  }

  draw(group, row) {
    const one = group.samples.find((sample) => sample.row === row) ?? group.samples[0];
    const several = group.samples.length > 1;
    const title = several ? `Group of ${group.samples.length + group.left_out}` : `Sample ${row}`;
    const where = [
      one.step === null ? null : `step ${one.step}`,
      one.split,
      one.data_source || null,
      one.group === null ? null : `group ${one.group}`,
    ];
    this.element.replaceChildren(
      element(
        "header",
        {},
        element("h2", { tabindex: "-1" }, title),
        element("p", {}, where.filter(Boolean).join(" · ")),
        element("label", {}, "Your name ", nameInput(() => this.draw(group, row))),
        blindChoice(() => this.draw(group, row)),
        element("button", { class: "close", onclick: () => this.leave() }, "Close"),
      ),
      block("Prompt", one.prompt),
      one.ground_truth === null ? "" : block("Ground truth", one.ground_truth),
      element(
        "div",
        { class: "responses", tabindex: several ? "0" : null, role: "group", "aria-label": "Responses" },
        group.samples.map((sample) => new Response(this.run, sample, sample.row === row).element),
      ),
      group.left_out ? element("p", {}, `${group.left_out} more are not shown.`) : "",
    );
  }
}

/** Whether verdicts are hidden from a person until the sample is rated: they sway who sees them. */
function isBlind() {
  return localStorage.getItem("zerowait-blind") === "yes";
}

function blindChoice(redraw) {
  const box = element("input", {
    type: "checkbox",
    checked: isBlind(),
    onchange: (event) => {
      localStorage.setItem("zerowait-blind", event.target.checked ? "yes" : "no");
      redraw();
    },
  });
  return element("label", { class: "blind" }, box, " Hide verdicts until I have rated");
}

/** Who rates: opinions of several people on one sample are kept apart. */
function myName() {
  return localStorage.getItem("zerowait-who") ?? "";
}

function nameInput(redraw) {
  const input = element("input", { name: "who", maxlength: "100", autocomplete: "nickname" });
  input.value = myName();
  input.addEventListener("change", () => {
    localStorage.setItem("zerowait-who", input.value.trim());
    redraw();
  });
  return input;
}

class Response {
  constructor(run, sample, chosen) {
    this.run = run;
    this.sample = sample;
    const name = `response-${sample.row}`;
    this.element = element("article", { class: chosen ? "chosen" : "", "aria-labelledby": name });
    this.heading = element("h3", { id: name }, `Response ${sample.row}`);
    this.note = element("input", { name: "note", maxlength: "2000", placeholder: "optional" });
    this.said = element("p", { role: "status" });
    this.draw();
  }

  mine() {
    return this.sample.opinions.find((opinion) => (opinion.who ?? "") === myName());
  }

  draw() {
    const { sample } = this;
    const mine = this.mine();
    const hidden = isBlind() && !mine;
    this.note.value = mine?.note ?? this.note.value;
    this.element.replaceChildren(
      element("header", {}, this.heading, hidden ? "" : rewardBadge(sample)),
      textOf(sample.response ?? "(response not kept)"),
      element("p", { class: "facts" }, lengthOf(sample)),
      this.thumbs(mine),
      ...(hidden ? [element("p", {}, "Verdicts are shown when you have rated.")] : verdicts(sample)),
    );
  }

  thumbs(mine) {
    const button = (up, name) =>
      element(
        "button",
        {
          type: "button",
          class: up ? "up" : "down",
          "aria-pressed": String(mine?.up === up),
          "aria-label": `${name}, response ${this.sample.row}`,
          onclick: () => this.rate(mine?.up === up ? null : up),
        },
        thumb(up),
      );
    const save = element("button", { disabled: !mine }, "Save note");
    return element(
      "form",
      {
        class: "thumbs",
        onsubmit: (event) => {
          event.preventDefault();
          if (mine) this.rate(mine.up);
        },
      },
      button(true, "Thumb up"),
      button(false, "Thumb down"),
      element("label", {}, "Note ", this.note),
      save,
      this.said,
      this.others(),
    );
  }

  others() {
    const all = this.sample.opinions.map((opinion) => {
      const who = opinion.who ? `${opinion.who}: ` : "";
      const note = opinion.note ? ` ${opinion.note}` : "";
      return element("li", {}, who, thumb(opinion.up), note);
    });
    return all.length ? element("ul", { "aria-label": "Opinions" }, all) : null;
  }

  async rate(up) {
    const pressed = document.activeElement?.className;
    try {
      const answer = await asked(`/api/runs/${this.run}/opinions`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({
          row: this.sample.row,
          up,
          note: up === null ? "" : this.note.value,
          who: myName(),
        }),
      });
      this.sample.opinions = answer.opinions;
      if (up === null) this.note.value = "";
      this.said.textContent = up === null ? "Taken back." : "Saved.";
      this.draw();
      if (pressed) this.element.querySelector(`button.${pressed}`)?.focus();
    } catch (error) {
      this.said.textContent = `Not saved: ${error.message}`;
    }
  }
}

function lengthOf(sample) {
  const tokens = sample.response_tokens === null ? "" : `${sample.response_tokens} tokens, `;
  return `${tokens}${sample.response_chars} characters`;
}

/** The outcomes of a sample, and what each judge read and replied. */
function verdicts(sample) {
  // the reason below the outcome: beside it, it would be a word wide on a phone
  const rows = sample.components.flatMap((each) => [
    element(
      "tr",
      { class: each.outcome },
      element("th", { scope: "rowgroup", rowspan: each.why ? 2 : 1 }, each.component),
      element("td", {}, each.outcome === "score" ? number(each.value) : (each.kind ?? each.outcome)),
    ),
    each.why ? element("tr", { class: `reason ${each.outcome}` }, element("td", {}, each.why)) : null,
  ]);
  const head = ["component", "outcome, and why"].map((name) => element("th", { scope: "col" }, name));
  return [
    sample.why ? element("p", { class: "why" }, sample.why) : "",
    element(
      "table",
      {},
      element("thead", {}, element("tr", {}, head)),
      element("tbody", {}, rows),
    ),
    sample.trained_on !== null && sample.trained_on !== sample.value
      ? element("p", {}, `Trained on ${number(sample.trained_on)}, a substitute.`)
      : "",
    ...sample.judgements.map(judgementDetails),
    sample.extra && sample.extra !== "{}" ? folded("Further columns", textOf(pretty(sample.extra))) : "",
  ];
}

function judgementDetails(judgement) {
  const verdict = judgement.outcome === "score" ? number(judgement.value) : judgement.kind;
  const facts = [
    WORDS[judgement.source] ?? judgement.source,
    judgement.model,
    judgement.latency_s ? `${number(judgement.latency_s, 2)} s` : null,
    judgement.queue_s ? `${number(judgement.queue_s, 2)} s in the queue` : null,
    judgement.attempts > 1 ? `${judgement.attempts} attempts` : null,
    judgement.hedges ? `${judgement.hedges} hedged` : null,
    judgement.cost_usd ? `$${judgement.cost_usd.toPrecision(3)}` : null,
    judgement.endpoint,
  ];
  return element(
    "details",
    { class: "judgement" },
    element("summary", {}, `${judgement.judge}: ${verdict}`),
    element("p", { class: "facts" }, facts.filter(Boolean).join(" · ")),
    judgement.why ? element("p", { class: "why" }, judgement.why) : "",
    ...requestBlocks(judgement.request_text),
    judgement.reply_text === null
      ? element("p", {}, "The reply was not kept.")
      : block("The judge's reply, as it came", readable(judgement.reply_text)),
    ...judgement.attempts_failed.map((attempt) =>
      block(
        `Attempt ${attempt.number} failed: ${attempt.why ?? attempt.status}`,
        attempt.reply_text ?? "(no body)",
      ),
    ),
  );
}

/** The messages that the judge read; a request in another form as it was sent. */
function requestBlocks(request) {
  if (request === null || request === undefined) return [element("p", {}, "The request was not kept.")];
  const sent = parsed(request);
  const messages = Array.isArray(sent) ? sent : (sent?.messages ?? sent?.input);
  if (!Array.isArray(messages)) return [block("What the judge was sent", pretty(request))];
  return messages.map((message) =>
    block(`To the judge (${message?.role ?? "message"})`, contentOf(message?.content ?? message)),
  );
}

function contentOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return JSON.stringify(content, null, 2);
  return content.map((part) => part?.text ?? JSON.stringify(part)).join("\n");
}

/** A reply's own text before its envelope: a body of chat completions is mostly counters. */
function readable(reply) {
  const body = parsed(reply);
  const text = body?.choices?.[0]?.message?.content;
  return typeof text === "string" ? `${text}\n\n${JSON.stringify(body, null, 2)}` : pretty(reply);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function pretty(text) {
  const value = parsed(text);
  return value === undefined || typeof value === "string" ? text : JSON.stringify(value, null, 2);
}

function textOf(text) {
  return element("pre", { class: "text", tabindex: text.length > 400 ? "0" : null }, text);
}

function block(title, text) {
  if (text === null || text === undefined) return element("p", {}, `${title}: not kept`);
  return element("div", { class: "block" }, element("h4", {}, title), textOf(String(text)));
}

function folded(title, inside) {
  return element("details", {}, element("summary", {}, title), inside);
}

// ---------------------------------------------------------------- judges and people

/** Show how far the scores agree with the people who rated samples. */
export async function showPeople(main, given) {
  const run = given.get("run") ?? "0";
  const choices = await asked(`/api/runs/${run}/choices`);
  const result = element("div", { role: "status" });
  const measure = choice("Score of", "component", choices.components, "the reward");
  const threshold = field("Good from", "threshold", { type: "number", step: "any" });
  const form = element("form", { class: "filters" }, measure, threshold);
  let latest = null;
  const refresh = async () => {
    const query = (latest = new URLSearchParams(new FormData(form)));
    const found = await asked(`/api/runs/${run}/agreement?${query}`);
    if (query !== latest) return; // somebody typed on
    const input = threshold.querySelector("input");
    input.placeholder = number(found.threshold);
    result.replaceChildren(...agreementOf(run, found));
  };
  const tried = () => refresh().catch((error) => result.replaceChildren(error.message));
  form.addEventListener("input", tried);
  form.addEventListener("change", tried);
  form.addEventListener("submit", (event) => event.preventDefault());
  main.replaceChildren(
    element("h1", {}, "Judges and people"),
    element(
      "p",
      {},
      "Thumbs from the sample browser against a score: a score of at least the threshold counts as good.",
    ),
    form,
    result,
    anchorsForm(run, choices),
  );
  await tried();
  return { refresh: tried };
}

function agreementOf(run, found) {
  const { confusion } = found;
  const total = Object.values(confusion).reduce((sum, count) => sum + count, 0);
  if (total === 0) {
    return [element("p", {}, "No rated sample has this score yet: give thumbs in the sample browser.")];
  }
  const row = (name, good, bad) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, name),
      element("td", {}, String(good)),
      element("td", {}, String(bad)),
    );
  const head = ["", "score: good", "score: bad"].map((name) => element("th", { scope: "col" }, name));
  return [
    element(
      "dl",
      { class: "figures" },
      figure("Opinions", total),
      figure("Accuracy", number(found.accuracy)),
      figure("Cohen's kappa", number(found.kappa)),
      figure("Threshold", number(found.threshold)),
      figure("Without a score", found.without_score),
    ),
    element(
      "table",
      { class: "confusion" },
      element("caption", {}, "People against the score"),
      element("thead", {}, element("tr", {}, head)),
      element(
        "tbody",
        {},
        row([thumb(true), " person"], confusion.both_good, confusion.only_person),
        row([thumb(false), " person"], confusion.only_score, confusion.both_bad),
      ),
    ),
    found.disagreements.length ? element("h2", {}, "Where they differ") : "",
    element(
      "ul",
      { class: "disagreements" },
      found.disagreements.map((each) =>
        element(
          "li",
          {},
          element(
            "a",
            { href: address("samples", { run, row: each.row }) },
            `row ${each.row}: `,
            thumb(each.up),
            `, score ${number(each.value)}`,
          ),
        ),
      ),
    ),
  ];
}

function figure(name, value) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, String(value)));
}

function anchorsForm(run, choices) {
  if (choices.judges.length === 0) return "";
  const said = element("p", { role: "status" });
  const range = {};
  const judge = element(
    "select",
    { name: "judge" },
    choices.judges.map((name) => element("option", { value: name }, name)),
  );
  const up = element("input", { name: "up", type: "number", step: "any", required: true });
  const down = element("input", { name: "down", type: "number", step: "any", required: true });
  // the lowest and highest verdict so far; a judge that never gave its best needs another number
  const fillRange = async () => {
    range[judge.value] ??= await asked(`/api/runs/${run}/verdicts?judge=${encodeURIComponent(judge.value)}`);
    [down.value, up.value] = [range[judge.value].lowest ?? "", range[judge.value].highest ?? ""];
  };
  judge.addEventListener("change", fillRange);
  fillRange().catch((error) => said.replaceChildren(error.message));
  const form = element(
    "form",
    { class: "anchors" },
    element("h2", {}, "Anchors from your thumbs"),
    element(
      "p",
      {},
      "A file for judges.NAME.anchors: the rated samples with the verdict they should get, by which the judge's drift is measured from then on.",
    ),
    element("label", {}, "Judge ", judge),
    element("label", {}, "Verdict for a thumb up ", up),
    element("label", {}, "Verdict for a thumb down ", down),
    element("button", {}, "Download anchors"),
    said,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const query = new URLSearchParams(new FormData(form));
    said.textContent = await download(`/api/runs/${run}/anchors?${query}`);
  });
  return form;
}

async function download(path) {
  const answer = await fetch(path, { credentials: "same-origin" });
  if (!answer.ok) return (await answer.json()).error;
  const left = Number(answer.headers.get("X-Left-Out"));
  const link = element("a", { download: "anchors.jsonl", href: URL.createObjectURL(await answer.blob()) });
  link.click();
  URL.revokeObjectURL(link.href);
  const made = answer.headers.get("X-Anchors");
  return `${made} anchors${left ? `; ${left} rated samples left out` : ""}`;
}
