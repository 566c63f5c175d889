/** Messages of an exchange, an MQTT topic, a queue or a stream as they come, what the gateway says, and its state: findings, slow consumers. */

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { path, query as asQuery, send } from "../api.js";
import { change, link } from "../location.js";
import { Data, Loading, Rows, Time, bytes, count, duration, useLoaded } from "../parts.js";
import { Messages } from "../messages.js";
import { useMay, useMayAt } from "../rights.js";
import { many, t } from "../words.js";

/**
 * [name in the address, title, tags that see it or nothing: all]
 * @type {[string, string, string[]?][]}
 */
const SOURCES = [
  ["exchange", t("messages through an exchange")],
  ["default", t("messages through the default exchange")],
  ["topic", t("messages to MQTT topics")],
  ["queue", t("messages to a queue")],
  ["stream", t("messages of a stream")],
  ["webhooks", t("attempts of webhooks")],
  ["log", t("lines of the gateway's log"), ["administrator", "monitoring"]],
  ["audit", t("the audit trail"), ["administrator", "auditor"]],
  ["findings", t("findings about the gateway"), ["administrator", "monitoring"]],
  ["slow", t("slow consumers"), ["administrator", "monitoring", "policymaker", "management"]],
];
const LEVELS = { error: t("error"), warning: t("warning"), info: t("note") };
/** By what the gateway calls it: the word, and the sentence. @type {Record<string, [string, string]>} */
const SLOW = {
  stuck: [t("stuck"), t("Its prefetch window is full and it acknowledges nothing, while messages wait.")],
  stalled: [t("not reading"), t("The client takes none of its output.")],
  unacknowledged: [t("not acknowledging"), t("It has settled none of its messages for a minute or longer.")],
  behind: [t("too slow"), t("Its prefetch window is always full, and the backlog does not shrink.")],
  output: [t("reading slowly"), t("The client reads slower than messages come.")],
};
/** Tables that are asked for again and again, by the name in the address. */
const TABLES = {
  findings: {
    target: "/api/findings", label: t("Findings"), empty: t("All is well: there are no findings."),
    columns: [
      [t("Level"), (one) => LEVELS[one.level] ?? one.level], [t("About"), (one) => html`<code>${one.what}</code>`],
      [t("Finding"), (one) => one.text], [t("Remedy"), (one) => one.remedy],
    ],
  },
  slow: {
    target: "/api/slow-consumers", label: t("Slow consumers"), empty: t("All is well: no consumer is slow."),
    columns: [
      [t("Reason"), (one) => html`<strong>${SLOW[one.reason]?.[0] ?? one.reason}</strong>`], [t("Explanation"), (one) => SLOW[one.reason]?.[1] ?? one.text],
      [t("For", {}, "time"), (one) => duration(one.for_ms), "number"], [t("Virtual host"), (one) => one.vhost],
      [t("Queue"), (one) => one.queue && html`<a href=${link("queues", [one.vhost, one.queue])}>${one.queue}</a>`],
      [t("Consumer"), (one) => one.consumer && html`<code>${one.consumer}</code>`],
      [t("Connection"), (one) => html`<a href=${link("connections", [one.connection])}>${one.connection}</a>`], [t("User"), (one) => one.user],
      [t("Ready"), (one) => count(one.messages_ready), "number"], [t("Unacknowledged"), (one) => count(one.unacknowledged), "number"],
      [t("Prefetch"), (one) => count(one.prefetch), "number"], [t("Output that waits"), (one) => bytes(one.waiting_bytes), "number"],
    ],
  },
};
const EVENTS = {
  log: [
    [t("Time"), (one) => html`<${Time} at=${one.time} />`], [t("Level"), (one) => one.level], [t("Of", {}, "logger"), (one) => one.logger], [t("Line"), (one) => one.message],
    [t("With"), (one) => html`<${Data} value=${without(one, "time", "level", "logger", "message")} />`],
  ],
  audit: [
    [t("Time"), (one) => html`<${Time} at=${one.at} />`], [t("User"), (one) => one.user], [t("Action"), (one) => one.action], [t("Result"), (one) => one.result],
    [t("With"), (one) => html`<${Data} value=${without(one, "at", "user", "action", "result")} />`],
  ],
  webhooks: [[t("Attempt"), (one) => html`<${Data} value=${one} />`]],
};
const SHOWN_MAX = 200;
const DRAW_MS = 250;

const without = (one, ...names) => Object.fromEntries(Object.entries(one).filter(([name]) => !names.includes(name)));

/** The stream of events that the page's address asks for; null: it asks for none yet. */
function targetOf(vhost, { of, name, pattern, from }) {
  const base = path("/v1/vhosts", vhost);
  const exchange = of === "default" ? "amq.default" : name;
  if (of === "exchange" || of === "default") return exchange ? `${base}/${path("exchanges", exchange, "tail")}${asQuery({ pattern, from })}` : null;
  if (of === "queue") return name ? `${base}/tail${asQuery({ queue: name, from })}` : null;
  if (of === "topic") return name ? `${base}/tail${asQuery({ topic: name, from })}` : null;
  if (of === "stream") return name ? `${base}/${path("streams", name, "tail")}${asQuery({ from })}` : null;
  return of in EVENTS ? `${base}/tail${asQuery({ events: of })}` : null;
}

export default function Live({ user, query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const mayRead = useMay(user, vhost, "read", true);
  const mayTopics = useMayAt(user, vhost, "read", "amq.topic", true);
  const mayDefault = useMayAt(user, vhost, "read", "amq.default", true);
  /** Whether sources of messages are offered. @type {Record<string, boolean>} */
  const rights = { exchange: mayRead, default: mayDefault, topic: mayTopics, queue: mayRead, stream: mayRead };
  const seen = SOURCES.filter(([kind, , tags]) => (rights[kind] ?? true) && (!tags || tags.some((tag) => user.tags.includes(tag))));
  // An address may ask for something that this user may not follow.
  const asks = seen.some(([kind]) => kind === query.of);
  const of = asks ? query.of : seen[0][0];
  const begin = (event) => {
    event.preventDefault();
    const { name, pattern, from } = event.target.elements;
    change({ name: name?.value, pattern: pattern?.value, from: from?.value, run: Date.now() });
  };
  const target = vhost === undefined ? null : targetOf(vhost, { ...query, of });
  return html`<div><h1>${vhost && !TABLES[of] ? t("Live in {vhost}", { vhost }) : t("Live")}</h1>
    <form class="row" onSubmit=${begin}>
      <label><span>${t("Follow")}</span><select value=${of} onChange=${(event) => change({ of: event.target.value, name: "", pattern: "", from: "", run: "" })}>
        ${seen.map(([kind, title]) => html`<option value=${kind}>${title}</option>`)}</select></label>
      ${of === "exchange" && html`<label><span>${t("Exchange")}</span><input name="name" required defaultValue=${query.name ?? (mayTopics ? "amq.topic" : "")} /></label>`}
      ${(of === "exchange" || of === "default") && html`<label><span>${t("Routing keys")}</span><input name="pattern" defaultValue=${query.pattern ?? "#"} /></label>`}
      ${of === "queue" && html`<label><span>${t("Queue")}</span><input name="name" required defaultValue=${query.name ?? ""} /></label>`}
      ${of === "topic" && html`<label><span>${t("Topic filter")}</span><input name="name" required defaultValue=${query.name ?? "#"} /></label>`}
      ${of === "stream" && html`<label><span>${t("Stream")}</span><input name="name" required defaultValue=${query.name ?? ""} /></label>`}
      ${of in rights && html`<label><span>${t("From", {}, "start")}</span><input name="from" defaultValue=${query.from ?? "next"} />
        <small class="quiet">${t("next, first, -1h, or a time")}</small></label>`}
      ${!TABLES[of] && html`<button type="submit">${t("Follow")}</button>`}
    </form>
    ${TABLES[of] && html`<${Looked} key=${of} ...${TABLES[of]} />`}
    ${target && query.run && (asks || !query.of) && html`<${Followed} key=${target + query.run} target=${target} columns=${EVENTS[of]} vhost=${vhost} />`}
  </div>`;
}

function Looked({ target, label, empty, columns }) {
  const found = useLoaded(target);
  return html`<div><${Loading} of=${found} />
    ${found.data && html`<${Rows} label=${label} rows=${found.data} empty=${empty} columns=${columns} />`}</div>`;
}

function Followed({ target, columns, vhost }) {
  const [state, setState] = useState({ rows: [], total: 0, missed: 0, ended: "" });
  const [paused, setPaused] = useState(false);
  const waiting = useRef([]);
  const holds = useRef(false);
  holds.current = paused;
  useEffect(() => {
    const source = new EventSource(target);
    const asked = new AbortController();
    const take = (event) => waiting.current.push(JSON.parse(event.data));
    const end = (why) => {
      source.close();
      setState((before) => ({ ...before, ended: why }));
    };
    for (const kind of ["message", ...Object.keys(EVENTS)]) source.addEventListener(kind, take);
    source.addEventListener("lagging", (event) => {
      setState((before) => ({ ...before, missed: before.missed + JSON.parse(event.data).skipped }));
    });
    source.addEventListener("end", (event) => end(t("It has ended: {reason}", { reason: JSON.parse(event.data).reason })));
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) return;
      // A browser does not tell why, so the same is asked for once more.
      send("GET", target, undefined, { signal: asked.signal }).catch((refusal) => {
        if (!asked.signal.aborted) end(refusal.message);
      });
    };
    const drawn = setInterval(() => {
      if (holds.current || waiting.current.length === 0) return;
      const fresh = waiting.current.splice(0).reverse();
      setState((before) => ({
        ...before, total: before.total + fresh.length, rows: [...fresh, ...before.rows].slice(0, SHOWN_MAX),
      }));
    }, DRAW_MS);
    return () => {
      clearInterval(drawn);
      source.close();
      asked.abort();
    };
  }, [target]);
  return html`<div>
    <div class="actions"><button type="button" aria-pressed=${paused} onClick=${() => setPaused(!paused)}>${paused ? t("Go on") : t("Pause")}</button></div>
    <p class="quiet" role="status">${t("{n} so far", { n: count(state.total) })}${state.total > SHOWN_MAX && t(", the last {n} are shown", { n: SHOWN_MAX })}${
      state.missed > 0 && many(state.missed, ", {n} was too fast and is missing", ", {n} were too fast and are missing")}</p>
    ${state.ended && html`<p class="notice" role="alert">${state.ended}</p>`}
    ${columns
      ? html`<${Rows} label=${t("Events")} rows=${state.rows} empty=${t("Nothing yet.")} columns=${columns} />`
      : html`<${Messages} of=${state.rows} vhost=${vhost} empty=${t("Nothing yet.")} />`}
  </div>`;
}
