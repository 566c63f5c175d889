/** One message of the log with its path: who published it, where it went, what happened to it there. */

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, path, query as asQuery } from "../api.js";
import { link } from "../location.js";
import { Action, Data, Facts, Loading, Rows, Time, count, put, useLoaded } from "../parts.js";
import { Payload } from "../messages.js";

const KINDS = ["publish", "deliver", "ack", "requeue", "dead_letter", "drop"];
const RECORD_S = 600;
const STATES = {
  ready: "waits there", out: "delivered, not acknowledged yet", done: "done: acknowledged, dropped or moved on", kept: "kept",
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
    more: [one.redelivered && "again", one.detail].filter(Boolean).join(", "),
  }));
  for (const one of attempts)
    rows.push({ at: one.at, what: "Sent by webhook", where: one.webhook, who: "",
      more: `attempt ${one.attempt}: ${one.result}, status ${one.status}, ${one.ms} ms${one.answer ? `: ${one.answer}` : ""}` });
  rows.sort((one, other) => one.at - other.at);
  const [death] = deathsOf(message);
  const first = death
    ? { at: message.published_at, what: "Dead-lettered", where: `from ${death.queue}`, who: "", more: death.reason }
    : { at: message.published_at, what: "Published", where: message.exchange || "(default exchange)", who: publisher?.connection ?? "",
      more: publisher ? `by ${[publisher.detail, publisher.user && `user ${publisher.user}`].filter(Boolean).join(", ")}` : "" };
  return [first, ...rows];
}

const WORDS = { deliver: "Delivered", ack: "Acknowledged", requeue: "Given back", dead_letter: "Dead-lettered", drop: "Dropped" };

const placeLink = (vhost, place) => (place.kind === "stream" ? link("streams", [vhost, place.name]) : link("queues", [vhost, place.name]));

/** @param {{names: string[], query: Record<string, string>, user: any}} props */
export function Message({ names: [vhost, id], query, user }) {
  const found = usePath(`${path("/v1/vhosts", vhost, "log", "messages", id)}${asQuery({ queue: query.queue })}`);
  const recording = useLoaded("/api/recording");
  const { data } = found;
  if (!data) return html`<div><h1>Message ${id}</h1><${Loading} of=${found} /></div>`;
  const { message } = data;
  const deaths = deathsOf(message);
  const moved = data.places.some((place) => place.state === "out" || place.state === "done");
  const unknown = [
    !data.publisher && deaths.length === 0 && "who published it", moved && data.events.length === 0 && "deliveries and acknowledgements",
  ].filter(Boolean);
  const letters = data.events.find((one) => one.kind === "dead_letter");
  const properties = Object.fromEntries(Object.entries(message).filter(([name]) => !KNOWN.includes(name)));
  return html`<div><h1>Message ${id}</h1>
    ${found.error && html`<p class="notice bad" role="alert">${found.error.message}</p>`}
    <p class="quiet" role="status">${found.whole ? "This is all that the log knows." : "Looking for what happened later …"}</p>
    <h2>Path</h2>
    <${Rows} label="Path" rows=${stepsOf(data)} columns=${[
      ["Time", (one) => html`<${Time} at=${one.at} exact />`], ["What", (one) => one.what], ["Where", (one) => one.where],
      ["Connection", (one) => one.who || "–"], ["More", (one) => one.more || "–"],
    ]} />
    ${found.whole && unknown.length > 0 && html`<p class="notice">Not known: ${unknown.join("; ")}. The gateway did not record it.</p>`}
    ${letters && html`<p><a href=${link("search", [], {
      vhost, from: `pos:${id.split(":")[1]}`, headers: `x-last-death-queue=${letters.queue}`, contains: message.value?.slice(0, 100), run: 1,
    })}>Find its dead letter</a></p>`}
    ${recording.data && html`<${Recording} of=${recording.data} mayChange=${user.tags.includes("administrator")} />`}
    <h2>Places</h2>
    <${Rows} label="Places" rows=${data.places} empty="No queue or stream that is there now got it." columns=${[
      ["Name", (one) => (one.kind === "subscription" ? one.name : html`<a href=${placeLink(vhost, one)}>${one.name}</a>`)],
      ["Kind", (one) => one.kind], ["State", (one) => STATES[one.state]],
    ]} />
    ${deaths.length > 0 && html`<h2>It was dead-lettered before</h2>
      <${Rows} label="Deaths" rows=${deaths} columns=${[
        ["Queue", (one) => one.queue], ["Why", (one) => one.reason], ["Times", (one) => count(one.count), "number"],
        ["Exchange", (one) => one.exchange || "(default exchange)"], ["Routing keys", (one) => html`<${Data} value=${one["routing-keys"]} />`],
      ]} />`}
    <h2>Content</h2>
    <${Facts} rows=${[
      ["Virtual host", vhost], ["Protocol", message.protocol.toUpperCase()],
      ...(message.topic === undefined ? [] : [["Topic", message.topic]]),
      ["Exchange", message.exchange || "(default exchange)"], ["Routing key", message.routing_key],
      ...(message.expires_at ? [["Expires", html`<${Time} at=${message.expires_at} />`]] : []),
      ["Headers", html`<${Data} value=${message.headers} />`], ["Properties", html`<${Data} value=${properties} />`],
    ]} />
    <h2>Payload</h2><${Payload} of=${message} /></div>`;
}

/** Events are off by default: a button keeps them for a while. */
function Recording({ of, mayChange }) {
  const record = () => put("/api/recording", { kinds: KINDS, for_s: RECORD_S });
  if (of.kinds.length > 0)
    return html`<p class="quiet">The gateway records: ${of.kinds.join(", ")}${of.until && html`, until <${Time} at=${of.until} />`}.</p>`;
  if (!mayChange) return html`<p class="quiet">The gateway does not record what happens to messages.</p>`;
  return html`<div class="actions"><${Action} label="Record for 10 minutes" title="Record what happens to messages"
    text="For messages from now on, the path has publishers, deliveries and acknowledgements. Each message costs the gateway a little more meanwhile. The audit trail has this."
    run=${record} /></div>`;
}
