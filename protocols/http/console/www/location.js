/** Where the page is: `#/PAGE/NAME/NAME?key=value`. All that is shown follows from it, so a link can be sent. */

import { useLayoutEffect, useState } from "./vendor/preact.js";

/** @typedef {{page: string, names: string[], query: Record<string, string>}} Place */

/** @returns {Place} */
export function place() {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [page, ...names] = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { page: page || "overview", names, query: Object.fromEntries(new URLSearchParams(search ?? "")) };
}

/** The link to a place. @param {string} page @param {string[]} [names] @param {Record<string, unknown>} [fields] */
export function link(page, names = [], fields = {}) {
  const known = Object.entries(fields).filter(([, value]) => value !== "" && value != null && value !== false);
  const search = new URLSearchParams(known.map(([name, value]) => [name, String(value)])).toString();
  return `#/${[page, ...names].map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

/** Change fields of the query; the page before stays in the browser's history unless `quietly`. */
export function change(/** @type {Record<string, unknown>} */ fields, quietly = false) {
  const { page, names, query } = place();
  const next = link(page, names, { ...query, ...fields });
  if (quietly) {
    history.replaceState(null, "", next);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = next;
}

/** The place, followed. @returns {Place} */
export function usePlace() {
  const [here, setHere] = useState(place);
  // Before the browser does anything else: a move between the first look and the listener would be missed.
  useLayoutEffect(() => {
    const moved = () => setHere(place());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return here;
}
