/** A table as a file of comma-separated values (RFC 4180). */

import { html, render } from "./vendor/preact.js";
import { get, query } from "./api.js";

/** Rows of a file, at most; a table with more says so. */
const MOST = 10_000;
/** The longest page of a list that the gateway makes. */
const PAGE_SIZE = 500;
/** A spreadsheet takes a text that begins so for a formula, and a name may be anybody's. */
const FORMULA = /^[=+\-@\t\r]/;

/** A value of a row by its name in the API, as `a.b.c`. */
const plain = (row, name) => name?.split(".").reduce((value, part) => value?.[part], row);

/** The text of a cell; times in UTC, and numbers without units as the API has them. */
function text(row, [, value, kind, name]) {
  const known = kind === "number" ? plain(row, name) : undefined;
  if (typeof known === "number") return String(known);
  const shown = value(row);
  if (typeof shown === "string" || typeof shown === "number") return guarded(String(shown));
  const place = document.createElement("div");
  render(html`<div>${shown}</div>`, place);
  const found = place.querySelector("time")?.getAttribute("datetime") ?? place.textContent;
  render(null, place);
  return guarded(found);
}

const guarded = (value) => (FORMULA.test(value) && value !== "–" ? `'${value}` : value);
const quoted = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

/**
 * All rows of a list that its filter has, in its order, up to `MOST`.
 * @param {string} target @param {Record<string, unknown>} fields of the query, without the page
 */
export async function allRows(target, fields) {
  const rows = [];
  for (let page = 1, pages = 1; page <= pages && rows.length < MOST; page += 1) {
    const answer = await get(target + query({ ...fields, page, page_size: PAGE_SIZE }));
    rows.push(...answer.items);
    pages = answer.page_count;
  }
  return rows.slice(0, MOST);
}

/** Give rows to the browser as a file. @param {string} name of the file @param {any[]} columns as of a table @param {any[]} rows */
export function download(name, columns, rows) {
  const lines = [columns.map(([title]) => quoted(title)), ...rows.map((row) => columns.map((one) => quoted(text(row, one))))];
  const file = new Blob([`\ufeff${lines.map((line) => `${line.join(",")}\r\n`).join("")}`], { type: "text/csv" });
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(file);
  anchor.download = `${name}.csv`;
  anchor.click();
  URL.revokeObjectURL(anchor.href);
}
