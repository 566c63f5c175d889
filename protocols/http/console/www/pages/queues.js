/** Queues, and one of them: what waits, who consumes, what leads to it, its messages. */

import { html, useState } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { link } from "../location.js";
import { Action, Cards, Data, Facts, List, Loading, Rows, YesNo, count, duration, parsed, post, put, rate, remove, useLoaded } from "../parts.js";
import { queueOf, useLive, withLive } from "../live.js";
import { Plot, Range, isLive, samplesQuery } from "../plot.js";
import { useAllowed, useEntered, useEnters, useMay, useMayAt } from "../rights.js";
import { Selection, isSelectable, keyOf, subscriptionOf } from "../selection.js";
import { Consumers } from "./channels.js";
import { Messages } from "../messages.js";
import { many, t } from "../words.js";

export default function Queues(props) {
  return props.names.length === 2 ? html`<${One} ...${props} />` : html`<${All} ...${props} />`;
}

/** For how long the oldest message of a queue has waited. */
const waited = (/** @type {any} */ { head_published_ms: at }) => duration(typeof at === "number" ? Math.max(Date.now() - at, 0) : null);

const COLUMNS = [
  [t("Virtual host"), (one) => one.vhost, "", "vhost"],
  [t("Name"), (one) => html`<a href=${link("queues", [one.vhost, one.name])}>${one.name}</a>`, "", "name"],
  [t("Type"), (one) => one.type, "", "type"],
  [t("Policy"), (one) => one.policy ?? "–", "", "policy"],
  [t("Ready"), (one) => count(one.messages_ready), "number", "messages_ready"],
  [t("Unacknowledged"), (one) => count(one.messages_unacknowledged), "number", "messages_unacknowledged"],
  // The gateway reads the heads of the rows that are shown, so it sorts by neither.
  [t("Oldest waits"), waited, "number"],
  [t("Lag"), (one) => count(one.subscription?.lag), "number"],
  [t("Consumers"), (one) => count(one.consumers), "number", "consumers"],
  [t("In"), (one) => rate(one.message_stats?.publish_details), "number", "message_stats.publish_details.rate"],
  [t("Out"), (one) => rate(one.message_stats?.deliver_get_details), "number", "message_stats.deliver_get_details.rate"],
  [t("Acknowledged"), (one) => rate(one.message_stats?.ack_details), "number", "message_stats.ack_details.rate"],
];

function All({ user, query, vhosts }) {
  const entered = useEntered(user, vhosts);
  const vhost = entered.includes(query.vhost) ? query.vhost : query.vhost ? undefined : entered[0];
  const may = useMay(user, vhost, "configure");
  const target = query.vhost ? path("/api/queues", query.vhost) : "/api/queues";
  // Rights are those of one virtual host, so rows of several are not selected together.
  const selects = vhost !== undefined && (query.vhost === vhost || vhosts.length === 1);
  const rights = { read: useAllowed(user, vhost, "read"), configure: useAllowed(user, vhost, "configure") };
  const [chosen, setChosen] = useState(/** @type {Set<string>} */ (new Set()));
  // Keys may come faster than the page is drawn.
  const turn = (key) => setChosen((before) => {
    const next = new Set(before);
    if (!next.delete(key)) next.add(key);
    return next;
  });
  const box = (one) => isSelectable(one, rights) && html`<input type="checkbox" aria-label=${t("Select {name}", { name: one.name })}
    checked=${chosen.has(keyOf(one))} onChange=${() => turn(keyOf(one))} />`;
  const columns = selects ? [[t("Select"), box, "", null], ...COLUMNS] : COLUMNS;
  const declare = ({ vhost, name, type, durable, args }) =>
    put(path("/api/queues", vhost, name), { durable, arguments: { ...(type && { "x-queue-type": type }), ...parsed(args) } });
  return html`<div><h1>${t("Queues")}</h1>
    ${vhost !== undefined && may && html`<div class="actions"><${Action} label=${t("Add a queue")} run=${declare} fields=${[
      { name: "vhost", label: t("Virtual host"), options: entered, value: vhost },
      { name: "name", label: t("Name"), required: true },
      { name: "type", label: t("Type"), options: ["", "classic", "quorum", "stream"] },
      { name: "durable", label: t("Durable: it is there after a restart"), type: "checkbox", value: true },
      { name: "args", label: t("Arguments, as JSON"), type: "textarea", help: '{"x-message-ttl": 60000}' },
    ]} /></div>`}
    ${!selects && entered.length > 1 && html`<p class="quiet">${t("Choose a virtual host to select several queues.")}</p>`}
    <${List} label=${t("Queues")} target=${target} columns=${columns} above=${selects ? (rows) => html`
      <${Selection} key=${vhost} rows=${rows} chosen=${chosen} choose=${(keys) => setChosen(new Set(keys))} may=${rights} />` : undefined} /></div>`;
}

/** They change seldom, and after an action they are asked for at once. */
const BINDINGS_MS = 30000;

function One({ user, names: [vhost, name], query }) {
  const mayPublish = useMayAt(user, vhost, "write", "amq.default");
  const mayDelete = useMayAt(user, vhost, "configure", name);
  const enters = useEnters(user, vhost);
  const target = path("/api/queues", vhost, name);
  const found = useLoaded(target + asQuery(samplesQuery(query, "msg_rates", "lengths")));
  /** Its state as a subscription to a stream, whose reader may pause it. */
  const subscription = found.data?.subscription;
  const mayRead = useMayAt(user, vhost, "read", subscription?.stream ?? name);
  const bindings = useLoaded(`${target}/bindings`, BINDINGS_MS);
  const samples = useLive(isLive(query) ? queueOf(vhost, name) : null);
  if (!found.data) return html`<div><h1>${t("Queue {name}", { name })}</h1><${Loading} of=${found} /></div>`;
  const data = withLive(found.data, samples, (totals) => totals);
  const moved = withLive(data.message_stats, samples, (totals) => totals.message_stats);
  const gone = () => { location.hash = link("queues"); };
  const isQueue = data.kind === "queue", isStream = data.type === "stream";
  // Nobody but its connection reads a queue that is exclusive; MQTT and streams have ways of their own.
  const isOpen = isQueue && !isStream && !data.exclusive;
  return html`<div><h1>${t("Queue {name}", { name })}</h1><${Loading} of=${found} />
    <${Cards} rows=${[
      [t("Ready"), count(data.messages_ready)], [t("Unacknowledged"), count(data.messages_unacknowledged)],
      [t("Oldest waits"), waited(data)], [t("Consumers"), count(data.consumers)],
      ...(subscription ? [[t("State"), subscription.paused ? t("paused") : t("runs")], [t("Lag"), count(subscription.lag)]] : []),
      [t("In"), rate(moved.publish_details), t("{n} since the start", { n: count(moved.publish) })],
      [t("Delivered"), rate(moved.deliver_details), t("{n} since the start", { n: count(moved.deliver) })],
      [t("Without acknowledgement"), rate(moved.deliver_no_ack_details), t("{n} since the start", { n: count(moved.deliver_no_ack) })],
      [t("Acknowledged"), rate(moved.ack_details), t("{n} since the start", { n: count(moved.ack) })],
      [t("Given back"), rate(moved.redeliver_details), t("{n} since the start", { n: count(moved.redeliver) })],
    ]} />
    <div class="actions"><${Range} longest=${3600} live />
      ${mayPublish && isQueue && html`<${Action} label=${t("Publish a message")} run=${(values) => publish(vhost, "amq.default", { ...values, key: name })} fields=${MESSAGE} />`}
      ${mayRead && subscription && html`<${Action} label=${subscription.paused ? t("Resume") : t("Pause")}
        title=${subscription.paused ? t("Resume {name}", { name }) : t("Pause {name}", { name })}
        text=${subscription.paused ? t("Its consumers get messages again.") : t("Nobody gets anything until it is resumed.")}
        run=${() => post(`${subscriptionOf(data)}/${subscription.paused ? "resume" : "pause"}`, {})} />`}
      ${mayRead && isOpen && html`<${Action} label=${t("Purge")} danger title=${t("Purge {name}", { name })} text=${t("All messages that are ready are dropped. Nobody gets them back.")}
        run=${() => remove(`${target}/contents`)} confirm=${name} />`}
      ${(isQueue ? mayDelete && !data.exclusive : data.kind === "session" && enters && user.tags.includes("administrator")) && html`<${Action} label=${t("Delete")} danger title=${t("Delete {name}", { name })} text=${many(data.messages, "The queue and its message are gone.", "The queue and its {n} messages are gone.")}
        run=${() => remove(target)} done=${gone} confirm=${name} />`}</div>
    <${Plot} title=${t("Messages that wait")} of=${data} names=${[["messages_ready", t("Ready")], ["messages_unacknowledged", t("Unacknowledged")]]} />
    <${Plot} title=${t("Messages per second")} of=${moved} rates names=${[["publish", t("In")], ["deliver_get", t("Out")], ["ack", t("Acknowledged")], ["redeliver", t("Given back")]]} />
    <${Facts} rows=${[
      [t("Virtual host"), data.vhost], [t("Type"), data.type], [t("Durable"), html`<${YesNo} value=${data.durable} />`],
      [t("Exclusive"), html`<${YesNo} value=${data.exclusive} />`], [t("Deleted without consumers"), html`<${YesNo} value=${data.auto_delete} />`],
      [t("Arguments"), html`<${Data} value=${data.arguments} />`],
      [t("Policy"), data.policy ?? "–"], [t("Operator policy"), data.operator_policy ?? "–"],
      [t("Rules of its policies"), html`<${Data} value=${data.effective_policy_definition} />`],
      [t("Dropped by its limits"), count(data.messages_dropped)],
    ]} />
    <h2>${t("Consumers")}</h2><${Consumers} of=${data.consumer_details} />
    <h2>${t("Bindings that lead here")}</h2>
    <${Loading} of=${bindings} />
    ${bindings.data && html`<${Rows} label=${t("Bindings")} rows=${bindings.data} columns=${[
      [t("From"), (one) => one.source === "" ? t("(default exchange)") : html`<a href=${link("exchanges", [vhost, one.source])}>${one.source}</a>`],
      [t("Routing key"), (one) => one.routing_key], [t("Arguments"), (one) => html`<${Data} value=${one.arguments} />`],
    ]} />`}
    ${mayRead && isOpen && html`<h2>${t("Messages")}</h2>
      <${Peek} vhost=${vhost} name=${name} />`}</div>`;
}

function Peek({ vhost, name }) {
  const [shown, setShown] = useState(null);
  const [error, setError] = useState("");
  const look = async (event) => {
    event.preventDefault();
    setError("");
    try {
      const max = Number(event.target.elements.max.value);
      setShown((await post(`${path("/v1/vhosts", vhost)}/${path("queues", name)}/peek`, { max })).messages);
    } catch (refusal) {
      setError(refusal.message);
    }
  };
  return html`<div><p class="quiet">${t("Looking takes nothing out of the queue and marks nothing.")}</p>
    <form class="row" onSubmit=${look}>
      <label><span>${t("At most")}</span><input name="max" type="number" min="1" max="100" defaultValue="10" required /></label>
      <button type="submit">${t("Look at messages")}</button>
    </form>
    ${error && html`<p class="notice bad" role="alert">${error}</p>`}
    ${shown && html`<${Messages} of=${shown} vhost=${vhost} queue=${name} />`}</div>`;
}

export const MESSAGE = [
  { name: "payload", label: t("Payload"), type: "textarea" },
  { name: "properties", label: t("Properties, as JSON"), type: "textarea", help: '{"content_type": "text/plain", "headers": {"k": "v"}}' },
  { name: "persistent", label: t("Persistent"), type: "checkbox", value: true },
];

/** Publish what the fields of `MESSAGE` say. Throws when no queue takes it. */
export async function publish(vhost, exchange, { key, payload, properties, persistent }) {
  const body = {
    routing_key: key, payload, payload_encoding: "string",
    properties: { delivery_mode: persistent ? 2 : 1, ...parsed(properties) },
  };
  const { routed } = await post(`${path("/api/exchanges", vhost, exchange)}/publish`, body);
  if (!routed) throw new Error(t("No queue takes a message with this routing key. It was dropped."));
}
