/** The whole gateway: what waits, how fast it moves, what it needs, and what holds publishers up. */

import { html } from "../vendor/preact.js";
import { query as asQuery } from "../api.js";
import { Cards, Facts, Loading, Rows, bytes, count, duration, rate, useLoaded } from "../parts.js";
import { Plot, Range, samplesQuery } from "../plot.js";

const MOVES = [
  ["publish", "Published"], ["deliver_get", "Delivered"], ["ack", "Acknowledged"], ["redeliver", "Given back"],
];

export default function Overview({ user, query }) {
  const found = useLoaded(`/api/overview${asQuery(samplesQuery(query, "msg_rates", "lengths"))}`);
  const sees = user.tags.some((tag) => tag === "monitoring" || tag === "administrator");
  const nodes = useLoaded(sees ? "/api/nodes" : null);
  const { data } = found;
  if (!data) return html`<div><h1>Overview</h1><${Loading} of=${found} /></div>`;
  const { queue_totals: waiting, message_stats: moved, object_totals: objects, churn_rates: churn } = data;
  return html`<div><h1>${data.cluster_name}</h1>
    <${Loading} of=${found} />
    ${(nodes.data ?? []).map((node) => html`<${Alarms} node=${node} />`)}
    <${Cards} rows=${[
      ["Ready", count(waiting.messages_ready)],
      ["Unacknowledged", count(waiting.messages_unacknowledged)],
      ...MOVES.map(([name, title]) => [title, rate(moved[`${name}_details`]), `${count(moved[name])} since the start`]),
      ["Without acknowledgement", rate(moved.deliver_no_ack_details), `${count(moved.deliver_no_ack)} since the start`],
      ["Dropped unroutable", rate(moved.drop_unroutable_details), `${count(moved.drop_unroutable)} since the start`],
    ]} />
    <div class="actions"><${Range} /></div>
    <${Plot} title="Messages that wait" of=${waiting} names=${[["messages_ready", "Ready"], ["messages_unacknowledged", "Unacknowledged"]]} />
    <${Plot} title="Messages per second" of=${moved} names=${MOVES} rates />
    <h2>Objects</h2>
    <${Cards} rows=${[
      ["Connections", count(objects.connections)], ["Channels", count(objects.channels)],
      ["Consumers", count(objects.consumers)], ["Queues", count(objects.queues)],
      ["Exchanges", count(objects.exchanges)], ["Delayed messages", count(data.penstock.delayed)],
    ]} />
    <h2>Coming and going</h2>
    <${Cards} rows=${[
      ["Connections opened", rate(churn.connection_created_details)], ["Connections closed", rate(churn.connection_closed_details)],
      ["Channels opened", rate(churn.channel_created_details)], ["Channels closed", rate(churn.channel_closed_details)],
      ["Queues made", rate(churn.queue_created_details)], ["Queues deleted", rate(churn.queue_deleted_details)],
    ]} />
    ${(nodes.data ?? []).map((node) => html`<${Node} node=${node} />`)}
    <h2>Listeners</h2>
    <${Rows} label="Listeners" rows=${data.listeners} columns=${[
      ["Protocol", (one) => one.protocol], ["Address", (one) => one.ip_address], ["Port", (one) => one.port, "number"],
    ]} />
    <p class="quiet">${data.product_name} ${data.product_version}, API of RabbitMQ ${data.rabbitmq_version}</p></div>`;
}

function Alarms({ node }) {
  const why = [];
  if (node.mem_alarm) why.push(`memory: ${bytes(node.mem_used)} of ${bytes(node.mem_limit)} are in use`);
  if (node.disk_free_alarm) why.push(`disk: ${bytes(node.disk_free)} are free, ${bytes(node.disk_free_limit)} are needed`);
  return why.length === 0 ? null : html`<p class="notice bad" role="alert">
    Publishers of ${node.name} wait. Consumers go on. ${why.join("; ")}.</p>`;
}

function Node({ node }) {
  return html`<h2>${node.name}</h2><${Facts} rows=${[
    ["Running for", duration(node.uptime)],
    ["Memory", `${bytes(node.mem_used)}, publishers wait above ${node.mem_limit ? bytes(node.mem_limit) : "no limit"}`],
    ["Free disk", `${bytes(node.disk_free)}, publishers wait below ${bytes(node.disk_free_limit)}`],
    ["Open files", `${count(node.fd_used)} of ${count(node.fd_total)}`],
    ["Syncs of the disk", rate(node.io_sync_count_details)],
  ]} />`;
}
