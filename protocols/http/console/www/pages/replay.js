/** Messages since a moment, chosen by a slider: how many there are, and putting them into a new queue. */

import { html, useEffect, useState } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { change, link } from "../location.js";
import { Action, Time, duration, post, useLoaded } from "../parts.js";
import { useMay, useMayAt } from "../rights.js";
import { many, t } from "../words.js";

/** Steps of the slider, in ms before now: finer where it is nearer. */
const AGES = [
  ...[1, 2, 5, 10, 15, 20, 30, 45].map((one) => one * 60e3), ...[1, 1.5, 2, 3, 4, 6, 8, 12, 16, 20].map((one) => one * 3600e3),
  ...[1, 2, 3, 5, 7, 14, 30].map((one) => one * 86400e3),
].reverse();
const AT_FIRST = AGES.indexOf(3600e3);

/** How many messages came since a moment; counted in pieces. */
function useCount(vhost, wanted) {
  const asked = wanted && JSON.stringify(wanted);
  const [state, setState] = useState({ asked: null, count: 0, progress: 0, error: "" });
  useEffect(() => {
    if (!asked) return undefined;
    const gone = new AbortController();
    const ask = async () => {
      let cursor, total = 0;
      try {
        do {
          const body = { ...JSON.parse(asked), count: true, ...(cursor && { cursor }) };
          const told = await post(`${path("/v1/vhosts", vhost)}/log/search`, body);
          if (gone.signal.aborted) return;
          total += told.count;
          cursor = told.cursor;
          setState({ asked, count: total, progress: told.progress, error: "" });
        } while (cursor !== undefined);
      } catch (refusal) {
        if (!gone.signal.aborted) setState({ asked, count: 0, progress: 0, error: refusal.message });
      }
    };
    ask();
    return () => gone.abort();
  }, [vhost, asked]);
  return state.asked === asked ? state : { count: 0, progress: 0, error: "" };
}

export default function Replay({ user, query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const of = query.of ?? "topic";
  const source = of === "topic" ? "amq.topic" : query.exchange || "amq.direct";
  const may = [
    useMay(user, vhost, "configure"), useMay(user, vhost, "write"), useMayAt(user, vhost, "read", source),
  ].every(Boolean);
  const step = Number(query.step ?? AT_FIRST);
  const age = AGES[step] ?? AGES[AT_FIRST];
  // The moment stays while the slider does: what is previewed is what is replayed.
  const [now, setNow] = useState(Date.now());
  const [moved, setMoved] = useState(step);
  const place = of === "topic" ? { topic: query.topic || "#" } : { exchange: source, routing_key: query.key || "" };
  const from = now - age;
  const found = useCount(vhost, vhost === undefined ? null : { ...place, from });
  const choose = (event) => {
    event.preventDefault();
    const { topic, exchange, key } = event.target.elements;
    setNow(Date.now());
    change({ topic: topic?.value, exchange: exchange?.value, key: key?.value });
  };
  const slide = (event) => {
    setNow(Date.now());
    change({ step: event.target.value }, true);
  };
  const replay = ({ queue }) =>
    post(`${path("/v1/vhosts", vhost)}/${path("queues", queue)}/replay`, { ...place, from: new Date(from).toISOString() })
      .then(() => { location.hash = link("queues", [vhost, queue]); });
  const done = found.progress >= 1;
  return html`<div><h1>${vhost ? t("Replay in {vhost}", { vhost }) : t("Replay")}</h1>
    <p class="quiet">${t("Messages that were published since a moment go into a new queue, consumed ones too, as far as the log keeps them.")}</p>
    <form class="row" onSubmit=${choose}>
      <label><span>${t("Of", {}, "replay")}</span><select value=${of} onChange=${(event) => change({ of: event.target.value })}>
        <option value="topic">${t("MQTT topics")}</option><option value="exchange">${t("an exchange")}</option></select></label>
      ${of === "topic" && html`<label><span>${t("Topic filter")}</span><input name="topic" required defaultValue=${place.topic} /></label>`}
      ${of === "exchange" && html`<label><span>${t("Exchange")}</span><input name="exchange" required defaultValue=${place.exchange} /></label>
        <label><span>${t("Routing key")}</span><input name="key" defaultValue=${place.routing_key} /><small class="quiet">${t("of a topic exchange with * and #")}</small></label>`}
      <button type="submit">${t("Count")}</button>
    </form>
    <label class="slider"><span>${t("Since")}</span><input type="range" min="0" max=${AGES.length - 1} value=${moved}
      aria-valuetext=${t("{age} ago", { age: duration(AGES[moved]) })} onInput=${(event) => setMoved(Number(event.target.value))} onChange=${slide} /></label>
    <p>${t("{age} ago: since {time}", { age: duration(AGES[moved]), time: html`<${Time} at=${now - AGES[moved]} />` })}</p>
    ${found.error
      ? html`<p class="notice bad" role="alert">${found.error}</p>`
      : html`<p role="status">${done
        ? many(found.count, "{n} message", "{n} messages")
        : many(found.count, "{n} message so far, {percent} % counted", "{n} messages so far, {percent} % counted", { percent: Math.floor(found.progress * 100) })}</p>`}
    ${!found.error && may && html`<div class="actions"><${Action} label=${t("Replay into a new queue")} command=${false} run=${replay} done=${() => {}}
      text=${done
        ? many(found.count, "It gets {n} message, and nothing more afterwards. Nothing is taken from other queues.", "It gets {n} messages, and nothing more afterwards. Nothing is taken from other queues.")
        : many(found.count, "It gets {n} message or more, and nothing more afterwards. Nothing is taken from other queues.", "It gets {n} messages or more, and nothing more afterwards. Nothing is taken from other queues.")}
      fields=${[{ name: "queue", label: t("Name of the queue"), required: true }]} /></div>`}
  </div>`;
}
