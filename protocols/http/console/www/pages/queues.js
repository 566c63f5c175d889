/** Queues, and one of them: what waits, who consumes, what leads to it, its messages. */

import { html, useState } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { link } from "../location.js";
import { Action, Cards, Data, Facts, List, Loading, Rows, YesNo, count, parsed, post, put, rate, remove, useLoaded } from "../parts.js";
import { Plot, Range, samplesQuery } from "../plot.js";
import { Consumers } from "./channels.js";
import { Messages } from "../messages.js";

export default function Queues(props) {
  return props.names.length === 2 ? html`<${One} ...${props} />` : html`<${All} ...${props} />`;
}

const COLUMNS = [
  ["Virtual host", (one) => one.vhost, "", "vhost"],
  ["Name", (one) => html`<a href=${link("queues", [one.vhost, one.name])}>${one.name}</a>`, "", "name"],
  ["Type", (one) => one.type, "", "type"],
  ["Policy", (one) => one.policy ?? "–", "", "policy"],
  ["Ready", (one) => count(one.messages_ready), "number", "messages_ready"],
  ["Unacknowledged", (one) => count(one.messages_unacknowledged), "number", "messages_unacknowledged"],
  ["Consumers", (one) => count(one.consumers), "number", "consumers"],
  ["In", (one) => rate(one.message_stats?.publish_details), "number", "message_stats.publish_details.rate"],
  ["Out", (one) => rate(one.message_stats?.deliver_get_details), "number", "message_stats.deliver_get_details.rate"],
  ["Acknowledged", (one) => rate(one.message_stats?.ack_details), "number", "message_stats.ack_details.rate"],
];

function All({ query, vhosts }) {
  const target = query.vhost ? path("/api/queues", query.vhost) : "/api/queues";
  const declare = ({ vhost, name, type, durable, args }) =>
    put(path("/api/queues", vhost, name), { durable, arguments: { ...(type && { "x-queue-type": type }), ...parsed(args) } });
  return html`<div><h1>Queues</h1>
    <div class="actions"><${Action} label="Add a queue" run=${declare} fields=${[
      { name: "vhost", label: "Virtual host", options: vhosts, value: query.vhost || vhosts[0] },
      { name: "name", label: "Name", required: true },
      { name: "type", label: "Type", options: ["", "classic", "quorum", "stream"] },
      { name: "durable", label: "Durable: it is there after a restart", type: "checkbox", value: true },
      { name: "args", label: "Arguments, as JSON", type: "textarea", help: '{"x-message-ttl": 60000}' },
    ]} /></div>
    <${List} label="Queues" target=${target} columns=${COLUMNS} /></div>`;
}

function One({ names: [vhost, name], query }) {
  const target = path("/api/queues", vhost, name);
  const found = useLoaded(target + asQuery(samplesQuery(query, "msg_rates", "lengths")));
  const bindings = useLoaded(`${target}/bindings`);
  const { data } = found;
  if (!data) return html`<div><h1>Queue ${name}</h1><${Loading} of=${found} /></div>`;
  const { message_stats: moved } = data;
  const gone = () => { location.hash = link("queues"); };
  return html`<div><h1>Queue ${name}</h1><${Loading} of=${found} />
    <${Cards} rows=${[
      ["Ready", count(data.messages_ready)], ["Unacknowledged", count(data.messages_unacknowledged)],
      ["Consumers", count(data.consumers)],
      ["In", rate(moved.publish_details), `${count(moved.publish)} since the start`],
      ["Delivered", rate(moved.deliver_details), `${count(moved.deliver)} since the start`],
      ["Without acknowledgement", rate(moved.deliver_no_ack_details), `${count(moved.deliver_no_ack)} since the start`],
      ["Acknowledged", rate(moved.ack_details), `${count(moved.ack)} since the start`],
      ["Given back", rate(moved.redeliver_details), `${count(moved.redeliver)} since the start`],
    ]} />
    <div class="actions"><${Range} longest=${3600} />
      <${Action} label="Publish a message" run=${(values) => publish(vhost, "amq.default", { ...values, key: name })} fields=${MESSAGE} />
      <${Action} label="Purge" danger title=${`Purge ${name}`} text="All messages that are ready are dropped. Nobody gets them back."
        run=${() => remove(`${target}/contents`)} confirm=${name} />
      <${Action} label="Delete" danger title=${`Delete ${name}`} text=${`The queue and its ${count(data.messages)} messages are gone.`}
        run=${() => remove(target)} done=${gone} confirm=${name} /></div>
    <${Plot} title="Messages that wait" of=${data} names=${[["messages_ready", "Ready"], ["messages_unacknowledged", "Unacknowledged"]]} />
    <${Plot} title="Messages per second" of=${moved} rates names=${[["publish", "In"], ["deliver_get", "Out"], ["ack", "Acknowledged"], ["redeliver", "Given back"]]} />
    <${Facts} rows=${[
      ["Virtual host", data.vhost], ["Type", data.type], ["Durable", html`<${YesNo} value=${data.durable} />`],
      ["Exclusive", html`<${YesNo} value=${data.exclusive} />`], ["Deleted without consumers", html`<${YesNo} value=${data.auto_delete} />`],
      ["Arguments", html`<${Data} value=${data.arguments} />`],
      ["Policy", data.policy ?? "–"], ["Operator policy", data.operator_policy ?? "–"],
      ["Rules of its policies", html`<${Data} value=${data.effective_policy_definition} />`],
      ["Dropped by its limits", count(data.messages_dropped)],
    ]} />
    <h2>Consumers</h2><${Consumers} of=${data.consumer_details} />
    <h2>Bindings that lead here</h2>
    <${Loading} of=${bindings} />
    ${bindings.data && html`<${Rows} label="Bindings" rows=${bindings.data} columns=${[
      ["From", (one) => one.source === "" ? "(default exchange)" : html`<a href=${link("exchanges", [vhost, one.source])}>${one.source}</a>`],
      ["Routing key", (one) => one.routing_key], ["Arguments", (one) => html`<${Data} value=${one.arguments} />`],
    ]} />`}
    <h2>Messages</h2>
    <${Peek} vhost=${vhost} name=${name} /></div>`;
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
  return html`<div><p class="quiet">Looking takes nothing out of the queue and marks nothing.</p>
    <form class="row" onSubmit=${look}>
      <label><span>At most</span><input name="max" type="number" min="1" max="100" defaultValue="10" required /></label>
      <button type="submit">Look at messages</button>
    </form>
    ${error && html`<p class="notice bad" role="alert">${error}</p>`}
    ${shown && html`<${Messages} of=${shown} vhost=${vhost} queue=${name} />`}</div>`;
}

export const MESSAGE = [
  { name: "payload", label: "Payload", type: "textarea" },
  { name: "properties", label: "Properties, as JSON", type: "textarea", help: '{"content_type": "text/plain", "headers": {"k": "v"}}' },
  { name: "persistent", label: "Persistent", type: "checkbox", value: true },
];

/** Publish what the fields of `MESSAGE` say. Throws when no queue takes it. */
export async function publish(vhost, exchange, { key, payload, properties, persistent }) {
  const body = {
    routing_key: key, payload, payload_encoding: "string",
    properties: { delivery_mode: persistent ? 2 : 1, ...parsed(properties) },
  };
  const { routed } = await post(`${path("/api/exchanges", vhost, exchange)}/publish`, body);
  if (!routed) throw new Error("No queue takes a message with this routing key. It was dropped.");
}
