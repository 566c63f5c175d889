/** The parts of pages: loading, tables, forms, dialogs, values. Every text is a text node. */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { get, query, requestOf, send } from "./api.js";
import { change, usePlace } from "./location.js";
import { language, t, timeLocale } from "./words.js";

const REFRESH_MS = 5000;
const PAGE_SIZE = 100;
const NOT_FOUND = 404;
/** Rows of a file, at most: `MOST` of `csv.js`, which is loaded with the first file. */
const CSV_MOST = 10_000;

/** Said after an action, so that what is shown is asked for again. */
const CHANGED = "penstock-changed";

/** Pages that look at the same ask within so many ms, so that one answer is made for all of them. */
const SPREAD_MS = 1000;

/** The time until a page asks again (ms): all pages ask at the same moments, about `everyMs` from each other. */
function wait(everyMs) {
  const rest = everyMs - Date.now() % everyMs;
  return rest + (rest < everyMs / 2 ? everyMs : 0) + Math.random() * SPREAD_MS;
}

/**
 * The answer of the gateway at a target, asked again while the page is looked at, and after each action.
 * @param {string | null} target null: nothing is asked
 * @returns {{target: string | null, data: any, error: Error | null}}
 */
export function useLoaded(target, everyMs = REFRESH_MS) {
  const [state, setState] = useState({ target, data: null, error: null });
  useEffect(() => {
    if (target === null) return undefined;
    const gone = new AbortController();
    let timer = 0;
    const load = async (asked = false) => {
      if (!document.hidden) {
        try {
          const data = await get(target, gone.signal, asked);
          setState({ target, data, error: null });
        } catch (error) {
          if (gone.signal.aborted) return;
          // What is gone is not shown any more; it comes back if somebody makes it again.
          const stays = error.status !== NOT_FOUND;
          setState((before) => ({ target, data: stays && before.target === target ? before.data : null, error }));
        }
      }
      if (!gone.signal.aborted) timer = setTimeout(load, wait(everyMs), true);
    };
    const again = () => {
      clearTimeout(timer);
      load();
    };
    addEventListener(CHANGED, again);
    document.addEventListener("visibilitychange", again);
    load();
    return () => {
      gone.abort();
      clearTimeout(timer);
      removeEventListener(CHANGED, again);
      document.removeEventListener("visibilitychange", again);
    };
  }, [target, everyMs]);
  return state.target === target ? state : { target, data: null, error: null };
}

/** The state of what is loaded, where it is not shown yet or not up to date. */
export function Loading({ of }) {
  if (of.error?.status === NOT_FOUND)
    return html`<p class="notice" role="alert">${t("There is nothing of this name, or it was deleted. This page shows it when it comes back.")}</p>`;
  if (of.error) return html`<p class="notice bad" role="alert">${of.error.message}</p>`;
  return of.data === null && of.target !== null ? html`<p class="quiet">${t("Loading …")}</p>` : null;
}

// Values

const whole = new Intl.NumberFormat(language, { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat(language, { maximumFractionDigits: 1 });

export const count = (value) => (typeof value === "number" ? whole.format(value) : "–");
export const tenths = (value) => (typeof value === "number" ? fine.format(value) : "–");
export const rate = (details) => `${tenths(details?.rate ?? 0)}/s`;

export function bytes(value) {
  if (typeof value !== "number") return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; value >= 1024 && at < units.length - 1; at += 1) value /= 1024;
  return `${fine.format(value)} ${units[at]}`;
}

/** @type {[string, number][]} */
const DURATIONS = [[t("d"), 86400e3], [t("h"), 3600e3], [t("min"), 60e3], [t("s"), 1e3]];

export function duration(ms) {
  if (typeof ms !== "number") return "–";
  for (const [unit, size] of DURATIONS)
    if (ms >= size) return `${fine.format(ms / size)} ${unit}`;
  return `${ms} ${t("ms")}`;
}

/** @type {Intl.DateTimeFormatOptions} */
const EXACT = {
  year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3,
};

/** A time in the reader's zone; its title has it in UTC. @param {{at: any, exact?: boolean}} props `exact`: with ms */
export function Time({ at, exact = false }) {
  if (!at) return "–";
  const date = new Date(at);
  const shown = date.toLocaleString(timeLocale, exact ? EXACT : undefined);
  return html`<time datetime=${date.toISOString()} title=${date.toISOString()}>${shown}</time>`;
}

export const YesNo = ({ value }) => (value ? t("yes") : t("no"));

/** Data as it is; empty maps of the API are sometimes lists. */
export function Data({ value }) {
  if (value == null || (typeof value === "object" && Object.keys(value).length === 0)) return "–";
  return html`<code>${typeof value === "string" ? value : JSON.stringify(value)}</code>`;
}

/** Names and values, one below the other. @param {{rows: [string, any][]}} props */
export function Facts({ rows }) {
  return html`<div class="scroll"><table class="facts"><tbody>
    ${rows.map(([name, value]) => html`<tr><th scope="row">${name}</th><td>${value}</td></tr>`)}
  </tbody></table></div>`;
}

export function Cards({ rows }) {
  return html`<dl class="cards">
    ${rows.map(([name, value, more]) => html`<div>
      <dt>${name}</dt><dd>${value}${more && html`<div><small>${more}</small></div>`}</dd>
    </div>`)}
  </dl>`;
}

/** Keys that move between the rows of a table: the number of the next row, of so many. */
const MOVES = {
  ArrowDown: (/** @type {number} */ at) => at + 1, ArrowUp: (/** @type {number} */ at) => at - 1, Home: () => 0, End: (_, /** @type {number} */ n) => n - 1,
};

/** Arrow keys go from row to row, Enter opens the row's object, and the space bar selects it where rows are selected. */
function moved(event) {
  const { target, currentTarget, key } = event;
  if (target.closest("dialog, input, select, textarea, pre, thead")) return;
  const row = target.closest("tr");
  if (key === "Enter" && target === row) row.querySelector("a")?.click();
  else if (key === " " && target === row) row.querySelector("input[type=checkbox]")?.click();
  else if (MOVES[key]) {
    const rows = [...currentTarget.querySelectorAll("tbody > tr")];
    rows[Math.max(0, Math.min(rows.length - 1, MOVES[key](rows.indexOf(row), rows.length)))].focus();
  } else return;
  event.preventDefault();
}

/**
 * A table and its file. A column is [title, value of a row, "number" or nothing, name of the value in the API or nothing].
 * @param {{label: string, columns: any[], rows: any[], total?: number, first?: number, head?: (column: any) => any,
 *   all?: () => Promise<any[]>, file?: boolean}} props
 *   `total`, `first`: rows of the whole list, and before those that are here; `all`: the whole list; `head`: a title's cell
 */
function Table({ label, columns, rows, total = rows.length, first = 0, all = async () => rows, file = true,
  head = ([title, , kind]) => html`<th scope="col" class=${kind}>${title}</th>` }) {
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const save = async () => {
    setBusy(true);
    setError("");
    try {
      const { download } = await import("./csv.js");
      download(label, columns.filter(([title, , , name]) => title !== t("Actions") && name !== null), await all());
    } catch (refusal) {
      setError(refusal.message);
    } finally {
      setBusy(false);
    }
  };
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label} onKeyDown=${moved}><table aria-rowcount=${total + 1}>
    <thead><tr aria-rowindex="1">${columns.map(head)}</tr></thead>
    <tbody>${rows.map((row, at) => html`<tr tabindex="-1" aria-rowindex=${first + at + 2}>
      ${columns.map(([, value, kind]) => html`<td class=${kind}>${value(row)}</td>`)}
    </tr>`)}</tbody>
  </table></div>
  ${file && html`<p class="file"><button type="button" disabled=${busy} onClick=${save}>${t("Download as CSV")}</button>
    ${total > CSV_MOST && html` <small class="quiet">${t("the first {n} rows", { n: count(CSV_MOST) })}</small>`}</p>`}
  ${error && html`<p class="notice bad" role="alert">${error}</p>`}`;
}

/**
 * A table of rows that are here; columns as of `Table`.
 * @param {{label: string, columns: any[], rows: any[], empty?: string, file?: boolean}} props `file`: it can be saved
 */
export function Rows({ label, columns, rows, empty = t("There are none."), file = true }) {
  if (rows.length === 0) return html`<p class="quiet">${empty}</p>`;
  return html`<${Table} label=${label} columns=${columns} rows=${rows} file=${file} />`;
}

/**
 * A list of the API, a page at a time; filter, order and page are in the page's address. A column is
 * [title, value of a row, "number" or nothing, name to sort by or nothing].
 * @param {{label: string, target: string, columns: any[], search?: string, fields?: Record<string, unknown>, empty?: string, above?: (rows: any[]) => any}} props
 *   `fields`: of the query, besides those of every list; `empty`: said if there is nothing, filtered or not;
 *   `above`: shown above the rows of the page
 */
export function List({ label, target, columns, search = t("Filter by name"), fields = {}, empty = "", above }) {
  const { query: here } = usePlace();
  const asked = {
    ...fields, page: here.page ?? 1, page_size: PAGE_SIZE, name: here.name, use_regex: here.use_regex,
    sort: here.sort, sort_reverse: here.sort_reverse,
  };
  const found = useLoaded(target + query(asked));
  const { data } = found;
  const order = (name) => {
    if (here.sort !== name) return change({ sort: name, sort_reverse: "", page: "" });
    return change({ sort: name, sort_reverse: here.sort_reverse ? "" : "true", page: "" });
  };
  const sorted = (name) => (here.sort !== name ? "none" : here.sort_reverse ? "descending" : "ascending");
  const arrow = { none: "", ascending: " ▲", descending: " ▼" };
  return html`<div><form class="row" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label><span>${search}</span><input type="search" data-search value=${here.name ?? ""}
        onInput=${(event) => change({ name: event.target.value, page: "" }, true)} /></label>
      <label><input type="checkbox" checked=${here.use_regex === "true"}
        onChange=${(event) => change({ use_regex: event.target.checked ? "true" : "", page: "" })} />
        ${t("regular expression")}</label>
    </form>
    <${Loading} of=${found} />
    ${data && html`
      <p class="quiet" role="status">${t("{n} of {total}", { n: count(data.filtered_count), total: count(data.total_count) })}
        ${data.page_count > 1 && t(", page {page} of {pages}", { page: data.page, pages: data.page_count })}</p>
      ${data.total_count === 0 && empty && html`<p class="quiet">${empty}</p>`}
      ${above?.(data.items)}
      ${data.items.length > 0 && html`
        <${Table} label=${label} columns=${columns} rows=${data.items} total=${data.filtered_count} first=${(data.page - 1) * PAGE_SIZE}
          all=${async () => (await import("./csv.js")).allRows(target, asked)}
          head=${([title, , kind, name]) => name == null
            ? html`<th scope="col" class=${kind}>${title}</th>`
            : html`<th scope="col" class=${kind} aria-sort=${sorted(name)}>
                <button type="button" class="plain" onClick=${() => order(name)}>${title}${arrow[sorted(name)]}</button>
              </th>`} />`}
      ${data.page_count > 1 && html`<nav class="actions" aria-label=${t("Pagination")}>
        <button type="button" disabled=${data.page <= 1} onClick=${() => change({ page: data.page - 1 })}>${t("Previous")}</button>
        <button type="button" disabled=${data.page >= data.page_count}
          onClick=${() => change({ page: data.page + 1 })}>${t("Next", {}, "page")}</button>
      </nav>`}`}</div>`;
}

// Doing something

/**
 * A button that asks for what it needs in a dialog, and then does it. A field is
 * {name, label, value, type, options, help, required, min, max}; without fields it asks for a confirmation.
 * @param {{label: string, title?: string, text?: string, more?: any, fields?: any[], danger?: boolean,
 *   confirm?: string, run: (values: Record<string, any>) => Promise<unknown>, done?: () => void, command?: boolean}} props
 *   `more`: shown below the text; `confirm`: a name that must be typed. `done`: instead of asking again for what is shown;
 *   `command`: it is one request, which is shown as a line for a shell
 */
export function Action({ label, title = label, text, more, fields = [], danger = false, confirm, run, done, command = true }) {
  const dialog = useRef(null);
  const [open, setOpen] = useState(false);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  const typed = (form) => Object.fromEntries(fields.map((field) => [
    field.name, field.type === "checkbox" ? form.elements[field.name].checked : form.elements[field.name].value,
  ]));
  const submit = async (event) => {
    event.preventDefault();
    const values = typed(event.target);
    setBusy(true);
    setError("");
    try {
      await run(values);
      dialog.current?.close();
      if (done) done();
      else dispatchEvent(new Event(CHANGED));
    } catch (refusal) {
      setError(refusal.message);
    } finally {
      setBusy(false);
    }
  };
  return html`<div><button type="button" class=${danger ? "danger" : ""} onClick=${() => setOpen(true)}>${label}</button>
    ${open && html`<dialog ref=${dialog} aria-label=${title} onClose=${() => { setOpen(false); setError(""); }}>
      <form onSubmit=${submit}>
        <h2>${title}</h2>
        ${text && html`<p>${text}</p>`}
        ${more}
        ${fields.map((field) => html`<${Field} ...${field} />`)}
        ${confirm !== undefined && html`<${Field} name="confirm" label=${t("Type {confirm} to confirm", { confirm })} required autofocus
          pattern=${escaped(confirm)} />`}
        ${error && html`<p class="notice bad" role="alert">${error}</p>`}
        <div class="actions">
          <button type="submit" class=${danger ? "danger" : ""} disabled=${busy}>${label}</button>
          <button type="button" onClick=${() => dialog.current?.close()}>${t("Cancel")}</button>
        </div>
        ${command && html`<${Command} request=${(form) => {
          const values = typed(form);
          for (const { name, type } of fields) if (type === "password") values[name] = "PASSWORD";
          return requestOf(async () => run(values));
        }} />`}
      </form>
    </dialog>`}</div>`;
}

/** The request of a dialog as lines for a shell. @param {{request: (form: HTMLFormElement) => any}} props */
function Command({ request }) {
  const [lines, setLines] = useState(/** @type {string[] | null} */ (null));
  const place = useRef(null);
  const show = async () => {
    if (!place.current.open) return setLines(null);
    const form = place.current.closest("form");
    const isReady = [...form.elements].every((one) => one.name === "confirm" || one.validity.valid);
    const noted = isReady && request(form);
    const { curl, penstock } = await import("./commands.js");
    setLines(noted ? [curl(noted), penstock(noted)].filter(Boolean) : []);
  };
  useEffect(() => {
    const form = place.current.closest("form");
    form.addEventListener("input", show);
    return () => form.removeEventListener("input", show);
  });
  return html`<details ref=${place} onToggle=${show}><summary>${t("As a command")}</summary>
    ${lines?.length === 0 && html`<p class="quiet">${t("Fill in the fields first.")}</p>`}
    ${lines?.map((line) => html`<div class="line"><pre tabindex="0">${line}</pre>
      ${navigator.clipboard && html`<button type="button" onClick=${() => navigator.clipboard.writeText(line)}>${t("Copy")}</button>`}</div>`)}
    ${lines?.length > 0 && html`<p class="quiet">${t("PENSTOCK_USER and PENSTOCK_PASSWORD are variables of your shell. Credentials are not in the line: words in capitals stand for them.")}</p>`}
  </details>`;
}

const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|/&\-~!#%,:;<=>@`'"]/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

function Field({ name, label, value = "", type = "text", options, help, required = false, pattern, min, max, autofocus = false }) {
  const common = { name, required };
  // Only defaults: a page that is drawn again while somebody types must not take back what was typed.
  const input = options
    ? html`<select ...${common}>${options.map((one) => html`<option value=${one} selected=${one === value}>${one || "–"}</option>`)}</select>`
    : type === "textarea"
      ? html`<textarea ...${common} rows="4" spellcheck=${false} defaultValue=${value}></textarea>`
      : type === "checkbox"
        ? html`<input ...${common} type="checkbox" defaultChecked=${Boolean(value)} />`
        : html`<input ...${common} type=${type} defaultValue=${value} pattern=${pattern} min=${min} max=${max} autofocus=${autofocus} autocomplete=${type === "password" ? "new-password" : "off"} />`;
  return html`<label><span>${label}</span>${input}${help && html`<small class="quiet">${help}</small>`}</label>`;
}

/** JSON that somebody typed; "" is an empty object. @param {string} text */
export function parsed(text) {
  if (!text.trim()) return {};
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(t("This is not JSON: {message}", { message: error.message }));
  }
}

export const put = (target, body) => send("PUT", target, body);
export const post = (target, body) => send("POST", target, body);
export const remove = (target) => send("DELETE", target);
