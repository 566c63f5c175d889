/** Messages of the past, found by time, place, header, id or text; a search says how far it is, stops and goes on. */

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { path } from "../api.js";
import { change } from "../location.js";
import { bytes, count, post } from "../parts.js";
import { Messages } from "../messages.js";
import { Message } from "./message.js";
import { many, t } from "../words.js";

/** [name in the address and of the input, label, help or nothing] */
const FIELDS = [
  ["from", t("From", {}, "start"), t("first, -1h, pos:4711, or a time")],
  ["to", t("To", {}, "end"), t("now, or as from")],
  ["queue", t("Queue or stream")],
  ["exchange", t("Exchange"), t("amq.default is the default one")],
  ["routing_key", t("Routing key"), t("* is one word, # any number")],
  ["topic", t("MQTT topic filter"), t("instead of exchange and key")],
  ["headers", t("Headers"), t("name=value; only name: any value; , between")],
  ["message_id", t("Message id")],
  ["correlation_id", t("Correlation id")],
  ["contains", t("Text in the body")],
];
const DEFAULTS = { from: "-1h", to: "now" };
/** Rows on the page: with more the search stops, and may be continued. */
const SHOWN_MAX = 500;

/** @param {string} text name=value, name */
function headersOf(text) {
  return Object.fromEntries(text.split(",").map((one) => one.trim()).filter(Boolean).map((one) => {
    const at = one.indexOf("=");
    return at < 0 ? [one, null] : [one.slice(0, at).trim(), one.slice(at + 1).trim()];
  }));
}

/** The body of the request, of the fields in the address. */
function wantedOf(query) {
  const { headers, contains, from = DEFAULTS.from, to = DEFAULTS.to } = query;
  const plain = ["queue", "exchange", "routing_key", "topic", "message_id", "correlation_id"];
  return {
    ...(from && from !== "first" && { from }), ...(to && to !== "now" && { to }),
    ...Object.fromEntries(plain.filter((name) => query[name]).map((name) => [name, query[name]])),
    ...(headers && { headers: headersOf(headers) }), ...(contains && { body: { contains } }),
  };
}

export default function Search(props) {
  return props.names.length === 2 ? html`<${Message} ...${props} />` : html`<${Past} ...${props} />`;
}

function Past({ query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const begin = (event) => {
    event.preventDefault();
    const { elements } = event.target;
    change({ ...Object.fromEntries(FIELDS.map(([name]) => [name, elements[name].value.trim()])), run: Date.now() });
  };
  return html`<div><h1>${vhost ? t("Search in {vhost}", { vhost }) : t("Search")}</h1>
    <p class="quiet">${t("All that you fill in must hold. Consumed messages are found, too, while the log still has them.")}</p>
    <form class="row" role="search" onSubmit=${begin}>
      ${FIELDS.map(([name, label, help], at) => html`<label><span>${label}</span>
        <input name=${name} data-search=${at === 0 || undefined} defaultValue=${query[name] ?? DEFAULTS[name] ?? ""} autocomplete="off" />
        ${help && html`<small class="quiet">${help}</small>`}</label>`)}
      <button type="submit">${t("Search")}</button>
    </form>
    ${vhost && query.run && html`<${Found} key=${vhost + query.run} vhost=${vhost} wanted=${wantedOf(query)} />`}
  </div>`;
}

function Found({ vhost, wanted }) {
  const [state, setState] = useState({ rows: [], progress: 0, scanned: 0, damaged: 0, cursor: undefined, over: false, error: "" });
  const [runs, setRuns] = useState(true);
  /** Where the next request goes on; rows that are to be shown before the search stops by itself. */
  const next = useRef({ cursor: undefined, upTo: SHOWN_MAX });
  useEffect(() => {
    if (!runs) return undefined;
    let wants = true;
    const ask = async () => {
      let shown = state.rows.length;
      while (wants) {
        try {
          const { cursor } = next.current;
          const told = await post(`${path("/v1/vhosts", vhost)}/log/search`, { ...wanted, ...(cursor && { cursor }), max: 100 });
          if (!wants) return;
          next.current.cursor = told.cursor;
          shown += told.messages.length;
          const over = told.cursor === undefined;
          setState((before) => ({
            rows: [...before.rows, ...told.messages], progress: told.progress, cursor: told.cursor, over, error: "",
            scanned: before.scanned + told.scanned_bytes, damaged: before.damaged + told.damaged,
          }));
          if (over || shown >= next.current.upTo) return setRuns(false);
        } catch (refusal) {
          if (!wants) return;
          setState((before) => ({ ...before, error: refusal.message }));
          return setRuns(false);
        }
      }
    };
    ask();
    return () => { wants = false; };
  }, [runs]);
  const goOn = () => {
    next.current.upTo = state.rows.length + SHOWN_MAX;
    setRuns(true);
  };
  const percent = Math.floor(state.progress * 100);
  return html`<div>
    <div class="actions">
      <label><span>${t("Searched")}</span><progress max="100" value=${percent}>${percent} %</progress></label>
      ${runs && html`<button type="button" onClick=${() => setRuns(false)}>${t("Stop")}</button>`}
      ${!runs && !state.over && html`<button type="button" onClick=${goOn}>${t("Continue")}</button>`}
    </div>
    <p class="quiet" role="status">${state.over ? t("Done") : runs ? t("Searching") : t("Stopped")}: ${percent} %, ${
      t("{n} found, {size} read", { n: count(state.rows.length), size: bytes(state.scanned) })}${
      state.damaged > 0 && many(state.damaged, ", {n} damaged place passed over", ", {n} damaged places passed over")}</p>
    ${state.error && html`<p class="notice bad" role="alert">${state.error}</p>`}
    <${Messages} of=${state.rows} empty=${state.over ? t("Nothing is found.") : t("Nothing is found yet.")} past vhost=${vhost} queue=${wanted.queue} />
  </div>`;
}
