// What the views of the dashboard share: questions to the server, and the page's address.

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

/** A drawing of a thumb: not every machine has a font with one. */
export function thumb(up) {
  const NS = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(NS, "svg");
  picture.setAttribute("viewBox", "0 0 24 24");
  picture.setAttribute("class", up ? "thumb up" : "thumb down");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", up ? "thumb up" : "thumb down");
  const path = document.createElementNS(NS, "path");
  path.setAttribute("d", "M2 10h4.5v11H2zM8.5 20.5V10l4-8.2c1.7 0 2.8 1.2 2.8 2.9V9h5c1.3 0 2.2 1.2 2 2.4l-1.5 7.6c-.2 1.2-1.2 2-2.4 2h-7.5c-.9 0-1.7-.2-2.4-.5z");
  picture.append(path);
  return picture;
}

/** The address of a view; empty parameters are left out. */
export function address(view, given) {
  const kept = [...new URLSearchParams(given)].filter(([, value]) => value !== "");
  const query = new URLSearchParams(kept).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}
