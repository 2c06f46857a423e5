// The report's views of every run, side by side, drawn anew when a run has grown.

import { element } from "./elements.js";

export async function showOverview(main, given, runs) {
  main.replaceChildren(element("h1", {}, "Overview"));
  return {};
}
