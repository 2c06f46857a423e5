// Elements of the page, made without HTML: every text of a record is a text node, and stays text.

/** An element; attributes that begin with "on" are listeners, null and false ones are left out. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "value") made.value = value;
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return made;
}

/** A number as people read it; a dash for none, which is never 0. */
export function shown(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  return Number.isInteger(value) ? String(value) : Number(value).toFixed(digits);
}

/** The server's answer as JSON; an Error with the server's own words otherwise. */
export async function asked(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the dashboard's command does not answer: is it still running?");
  }
  if (answer.ok) return answer.json();
  const words = await answer.json().catch(() => ({ error: answer.statusText }));
  throw new Error(words.error);
}

/** The view and its parameters as the address says, so that a reload shows the same. */
export function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: path || "overview", given: new URLSearchParams(query) };
}

/** The address of a view; empty parameters are left out. */
export function address(view, given) {
  const kept = [...new URLSearchParams(given)].filter(([, value]) => value !== "");
  const query = new URLSearchParams(kept).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}
