/** The palette: pages and objects of the gateway by a part of their names, and the way there by keyboard. */

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { get, path, query } from "./api.js";
import { link } from "./location.js";
import { count } from "./parts.js";
import { t } from "./words.js";

/** Objects of one kind that are shown; the list of the kind has the others. */
const SHOWN = 6;
/** Somebody who types on is waited for (ms). */
const TYPING_MS = 150;

/** @typedef {{title: string, kind: string, to: string}} Place */

const QUEUES = { queue: t("Queue"), session: t("Session"), subscription: t("Subscription") };

/** The place of what `/api/queues` lists: streams have a page of their own. */
function queueAt({ vhost, name, type, kind }) {
  const isStream = type === "stream" && kind === "queue";
  return {
    title: name, kind: `${isStream ? t("Stream") : QUEUES[kind] ?? kind} · ${vhost}`,
    to: link(isStream ? "streams" : "queues", [vhost, name]),
  };
}

/**
 * Kinds of objects that the API lists: [page of the list, target, place of one].
 * @param {string | undefined} vhost that the page shows
 * @returns {[string, string, (one: any) => Place][]}
 */
const kinds = (vhost) => [
  ["queues", "/api/queues", queueAt],
  ["exchanges", "/api/exchanges", ({ vhost: of, name }) => ({
    title: name || t("(default exchange)"), kind: `${t("Exchange")} · ${of}`, to: link("exchanges", [of, name || "amq.default"]) })],
  ["connections", "/api/connections", ({ name, user_provided_name: said, protocol }) => ({
    title: said ? `${said} (${name})` : name, kind: `${t("Connection")} · ${protocol}`, to: link("connections", [name]) })],
  ["vhosts", "/api/vhosts", ({ name }) => ({ title: name, kind: t("Virtual host"), to: link("queues", [], { vhost: name }) })],
  ["users", "/api/users", ({ name }) => ({ title: name, kind: t("User"), to: link("users", [name]) })],
  ["policies", "/api/policies", ({ vhost: of, name }) => ({
    title: name, kind: `${t("Policy")} · ${of}`, to: link("policies", [], { vhost: of, name }) })],
  ...(vhost === undefined ? [] : [/** @type {[string, string, (one: any) => Place]} */ (
    ["retained", path("/api/retained", vhost), ({ name }) => ({
      title: name, kind: `${t("Topic")} · ${vhost}`, to: link("retained", [], { vhost, name }) })])]),
];

/** Objects of a kind with the text in their names, and the way to the list if it has more. */
async function found(text, [page, target, place], title, vhost, signal) {
  const { items, filtered_count: total } = await get(`${target}${query({ name: text, page: 1, page_size: SHOWN })}`, signal);
  const fields = { name: text, vhost: page === "retained" ? vhost : "" };
  const all = { title: t("{title}: all {n} with this text", { title, n: count(total) }), kind: t("List"), to: link(page, [], fields) };
  return [...items.map(place), ...(total > items.length ? [all] : [])];
}

/**
 * @param {{pages: [string, string][], lists: boolean, vhost: string | undefined, typed: () => string, close: () => void}} props
 *   `pages`: name and title of those that the user sees; `lists`: whether it may ask for objects;
 *   `typed`: takes what was typed since its key was pressed
 */
export default function Palette({ pages, lists, vhost, typed, close }) {
  const dialog = useRef(null);
  const [text, setText] = useState(typed);
  const [objects, setObjects] = useState(/** @type {{of: string, places: Place[], error: string}} */ ({ of: "", places: [], error: "" }));
  const [at, setAt] = useState(0);
  useLayoutEffect(() => dialog.current.showModal(), []); // keys that follow at once are for it
  useEffect(() => {
    setAt(0);
    if (!lists || !text) return setObjects({ of: text, places: [], error: "" });
    const gone = new AbortController();
    const ask = async () => {
      const seen = kinds(vhost).filter(([page]) => pages.some(([name]) => name === page));
      const answers = await Promise.allSettled(seen.map((kind) =>
        found(text, kind, pages.find(([name]) => name === kind[0])[1], vhost, gone.signal)));
      if (gone.signal.aborted) return;
      setObjects({
        of: text, places: answers.flatMap((one) => (one.status === "fulfilled" ? one.value : [])),
        error: answers.find((one) => one.status === "rejected")?.reason.message ?? "",
      });
    };
    const timer = setTimeout(ask, TYPING_MS);
    return () => {
      clearTimeout(timer);
      gone.abort();
    };
  }, [text, lists, vhost]);
  const known = objects.of === text;
  const lower = text.toLowerCase();
  const shown = [
    ...pages.filter(([, title]) => title.toLowerCase().includes(lower)).map(([name, title]) => ({ title, kind: t("Page"), to: link(name) })),
    ...(known ? objects.places : []),
  ];
  const chosen = Math.min(at, shown.length - 1);
  const go = (/** @type {Place} */ place) => {
    dialog.current.close();
    location.hash = place.to;
    document.getElementById("main").focus();
  };
  const pressed = (event) => {
    if (event.isComposing) return; // an input method of Chinese uses the same keys
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && shown.length) setAt((chosen + step + shown.length) % shown.length);
    else if (event.key === "Enter") {
      if (shown[chosen]) go(shown[chosen]); // a page, before the gateway has answered
    } else return;
    event.preventDefault();
  };
  useEffect(() => document.getElementById(`found-${chosen}`)?.scrollIntoView({ block: "nearest" }), [chosen]);
  return html`<dialog ref=${dialog} class="palette" aria-label=${t("Find")} onClose=${close}>
    <label><span>${lists ? t("A part of the name of a page, queue, exchange, topic, connection, user …") : t("A part of the name of a page")}</span>
      <input role="combobox" aria-expanded=${shown.length > 0} aria-controls="found" aria-autocomplete="list" autocomplete="off" spellcheck=${false} value=${text}
        aria-activedescendant=${shown.length ? `found-${chosen}` : undefined} onInput=${(event) => setText(event.target.value)} onKeyDown=${pressed} /></label>
    ${objects.error && html`<p class="notice bad" role="alert">${objects.error}</p>`}
    ${shown.length > 0 && html`<ul id="found" role="listbox" aria-label=${t("Found")}>${shown.map((one, index) => html`
      <li id=${`found-${index}`} role="option" aria-selected=${index === chosen} onClick=${() => go(one)}><span>${one.title}</span> <small>${one.kind}</small></li>`)}</ul>`}
    <p class="quiet" role="status">${!known ? t("Looking …") : shown.length ? t("{n} found", { n: count(shown.length) }) : t("Nothing has this in its name.")}</p>
  </dialog>`;
}
