/** One message of the log with its path: who published it, where it went, what happened to it there. */

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, path, query as asQuery } from "../api.js";
import { link } from "../location.js";
import { Action, Data, Facts, Loading, Rows, Time, count, put, useLoaded } from "../parts.js";
import { Payload } from "../messages.js";
import { t } from "../words.js";

const KINDS = ["publish", "deliver", "ack", "requeue", "dead_letter", "drop"];
const RECORD_S = 600;
const STATES = {
  ready: t("waits there"), out: t("delivered, not acknowledged yet"), done: t("done: acknowledged, dropped or moved on"), kept: t("kept"),
};
const KNOWN = ["id", "exchange", "routing_key", "topic", "protocol", "published_at", "expires_at", "headers", "value", "value_b64", "key"];

/** Everything known of a message; asked for piece by piece, as its events may be anywhere behind it. */
function usePath(target) {
  const [state, setState] = useState({ data: null, error: null, whole: false });
  useEffect(() => {
    const gone = new AbortController();
    setState({ data: null, error: null, whole: false });
    const load = async () => {
      let cursor;
      try {
        do {
          const told = await get(target + (cursor ? `${target.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(cursor)}` : ""), gone.signal);
          cursor = told.cursor;
          const whole = cursor === undefined;
          setState(({ data }) => ({
            error: null, whole,
            data: data ? { ...data, events: [...data.events, ...told.events], attempts: [...data.attempts, ...told.attempts] } : told,
          }));
        } while (cursor !== undefined);
      } catch (error) {
        if (!gone.signal.aborted) setState((before) => ({ ...before, error }));
      }
    };
    load();
    return () => gone.abort();
  }, [target]);
  return state;
}

/** Its deaths, the last one first, if it is a dead letter. */
const deathsOf = ({ headers }) => (Array.isArray(headers["x-death"]) ? headers["x-death"] : []);

/** The rows of the path, oldest first: [time, what, where, who, more] as an object. */
function stepsOf({ publisher, message, events, attempts }) {
  const rows = events.map((one) => ({
    at: one.at, what: WORDS[one.kind] ?? one.kind, where: one.queue, who: one.connection,
    more: [one.redelivered && t("again"), one.detail].filter(Boolean).join(", "),
  }));
  for (const one of attempts)
    rows.push({ at: one.at, what: t("Sent by webhook"), where: one.webhook, who: "",
      more: t("attempt {attempt}: {result}, status {status}, {ms} ms", one) + (one.answer ? `: ${one.answer}` : "") });
  rows.sort((one, other) => one.at - other.at);
  const [death] = deathsOf(message);
  const first = death
    ? { at: message.published_at, what: t("Dead-lettered"), where: t("from {queue}", { queue: death.queue }), who: "", more: death.reason }
    : { at: message.published_at, what: t("Published"), where: message.exchange || t("(default exchange)"), who: publisher?.connection ?? "",
      more: publisher ? t("by {names}", { names: [publisher.detail, publisher.user && t("user {name}", { name: publisher.user })].filter(Boolean).join(", ") }) : "" };
  return [first, ...rows];
}

const WORDS = { deliver: t("Delivered"), ack: t("Acknowledged"), requeue: t("Given back", {}, "requeue"), dead_letter: t("Dead-lettered"), drop: t("Dropped") };

const placeLink = (vhost, place) => (place.kind === "stream" ? link("streams", [vhost, place.name]) : link("queues", [vhost, place.name]));

/** @param {{names: string[], query: Record<string, string>, user: any}} props */
export function Message({ names: [vhost, id], query, user }) {
  const found = usePath(`${path("/v1/vhosts", vhost, "log", "messages", id)}${asQuery({ queue: query.queue })}`);
  const recording = useLoaded("/api/recording");
  const { data } = found;
  if (!data) return html`<div><h1>${t("Message {id}", { id })}</h1><${Loading} of=${found} /></div>`;
  const { message } = data;
  const deaths = deathsOf(message);
  const moved = data.places.some((place) => place.state === "out" || place.state === "done");
  const unknown = [
    !data.publisher && deaths.length === 0 && t("who published it"), moved && data.events.length === 0 && t("deliveries and acknowledgements"),
  ].filter(Boolean);
  const letters = data.events.find((one) => one.kind === "dead_letter");
  const properties = Object.fromEntries(Object.entries(message).filter(([name]) => !KNOWN.includes(name)));
  return html`<div><h1>${t("Message {id}", { id })}</h1>
    ${found.error && html`<p class="notice bad" role="alert">${found.error.message}</p>`}
    <p class="quiet" role="status">${found.whole ? t("This is all that the log knows.") : t("Looking for what happened later …")}</p>
    <h2>${t("Path")}</h2>
    <${Rows} label=${t("Path")} rows=${stepsOf(data)} columns=${[
      [t("Time"), (one) => html`<${Time} at=${one.at} exact />`], [t("What"), (one) => one.what], [t("Where"), (one) => one.where],
      [t("Connection"), (one) => one.who || "–"], [t("More"), (one) => one.more || "–"],
    ]} />
    ${found.whole && unknown.length > 0 && html`<p class="notice">${t("Not known: {facts}. The gateway did not record it.", { facts: unknown.join("; ") })}</p>`}
    ${letters && html`<p><a href=${link("search", [], {
      vhost, from: `pos:${id.split(":")[1]}`, headers: `x-last-death-queue=${letters.queue}`, contains: message.value?.slice(0, 100), run: 1,
    })}>${t("Find its dead letter")}</a></p>`}
    ${recording.data && html`<${Recording} of=${recording.data} mayChange=${user.tags.includes("administrator")} />`}
    <h2>${t("Places")}</h2>
    <${Rows} label=${t("Places")} rows=${data.places} empty=${t("No queue or stream that is there now got it.")} columns=${[
      [t("Name"), (one) => (one.kind === "subscription" ? one.name : html`<a href=${placeLink(vhost, one)}>${one.name}</a>`)],
      [t("Kind"), (one) => one.kind], [t("State"), (one) => STATES[one.state]],
    ]} />
    ${deaths.length > 0 && html`<h2>${t("It was dead-lettered before")}</h2>
      <${Rows} label=${t("Deaths")} rows=${deaths} columns=${[
        [t("Queue"), (one) => one.queue], [t("Why"), (one) => one.reason], [t("Times"), (one) => count(one.count), "number"],
        [t("Exchange"), (one) => one.exchange || t("(default exchange)")], [t("Routing keys"), (one) => html`<${Data} value=${one["routing-keys"]} />`],
      ]} />`}
    <h2>${t("Content")}</h2>
    <${Facts} rows=${[
      [t("Virtual host"), vhost], [t("Protocol"), message.protocol.toUpperCase()],
      ...(message.topic === undefined ? [] : [[t("Topic"), message.topic]]),
      [t("Exchange"), message.exchange || t("(default exchange)")], [t("Routing key"), message.routing_key],
      ...(message.expires_at ? [[t("Expires"), html`<${Time} at=${message.expires_at} />`]] : []),
      [t("Headers"), html`<${Data} value=${message.headers} />`], [t("Properties"), html`<${Data} value=${properties} />`],
    ]} />
    <h2>${t("Payload")}</h2><${Payload} of=${message} /></div>`;
}

/** Events are off by default: a button keeps them for a while. */
function Recording({ of, mayChange }) {
  const record = () => put("/api/recording", { kinds: KINDS, for_s: RECORD_S });
  if (of.kinds.length > 0)
    return html`<p class="quiet">${of.until
      ? t("The gateway records: {kinds}, until {time}.", { kinds: of.kinds.join(", "), time: html`<${Time} at=${of.until} />` })
      : t("The gateway records: {kinds}.", { kinds: of.kinds.join(", ") })}</p>`;
  if (!mayChange) return html`<p class="quiet">${t("The gateway does not record what happens to messages.")}</p>`;
  return html`<div class="actions"><${Action} label=${t("Record for 10 minutes")} title=${t("Record what happens to messages")}
    text=${t("For messages from now on, the path has publishers, deliveries and acknowledgements. Each message costs the gateway a little more meanwhile. The audit trail has this.")}
    run=${record} /></div>`;
}
