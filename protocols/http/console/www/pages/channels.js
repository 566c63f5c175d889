/** Channels, and one of them with its consumers. */

import { html } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { link } from "../location.js";
import { Data, Facts, List, Loading, Rows, YesNo, count, rate, useLoaded } from "../parts.js";
import { Plot, Range, samplesQuery } from "../plot.js";

export default function Channels(props) {
  return props.names.length ? html`<${One} ...${props} />` : html`<${All} ...${props} />`;
}

const COLUMNS = [
  ["Name", (one) => html`<a href=${link("channels", [one.name])}>${one.name}</a>`, "", "name"],
  ["Virtual host", (one) => one.vhost, "", "vhost"],
  ["User", (one) => one.user, "", "user"],
  ["State", (one) => one.state, "", "state"],
  ["Consumers", (one) => count(one.consumer_count), "number", "consumer_count"],
  ["Unacknowledged", (one) => count(one.messages_unacknowledged), "number", "messages_unacknowledged"],
  ["Unconfirmed", (one) => count(one.messages_unconfirmed), "number", "messages_unconfirmed"],
  ["Prefetch", (one) => count(one.prefetch_count), "number", "prefetch_count"],
  ["Published", (one) => rate(one.message_stats?.publish_details), "number", "message_stats.publish_details.rate"],
  ["Delivered", (one) => rate(one.message_stats?.deliver_get_details), "number", "message_stats.deliver_get_details.rate"],
];

function All({ query }) {
  const target = query.vhost ? `${path("/api/vhosts", query.vhost)}/channels` : "/api/channels";
  return html`<div><h1>Channels</h1><${List} label="Channels" target=${target} columns=${COLUMNS} /></div>`;
}

function One({ names: [name], query }) {
  const found = useLoaded(path("/api/channels", name) + asQuery(samplesQuery(query, "msg_rates")));
  const { data } = found;
  return html`<div><h1>Channel ${name}</h1><${Loading} of=${found} />
    ${data && html`
      <${Facts} rows=${[
        ["Connection", html`<a href=${link("connections", [data.connection_details.name])}>${data.connection_details.name}</a>`],
        ["User", data.user], ["Virtual host", data.vhost], ["State", data.state],
        ["Mode", data.transactional ? "transactions" : data.confirm ? "confirms" : "neither confirms nor transactions"],
        ["Prefetch of a consumer", count(data.prefetch_count)], ["Prefetch of the channel", count(data.global_prefetch_count)],
        ["Unacknowledged", count(data.messages_unacknowledged)], ["Unconfirmed", count(data.messages_unconfirmed)],
      ]} />
      <div class="actions"><${Range} longest=${600} /></div>
      <${Plot} title="Messages per second" of=${data.message_stats} rates names=${[
        ["publish", "Published"], ["deliver", "Delivered"], ["deliver_no_ack", "Without acknowledgement"], ["ack", "Acknowledged"],
      ]} />
      <h2>Consumers</h2>
      <${Consumers} of=${data.consumer_details} />`}</div>`;
}

export function Consumers({ of }) {
  return html`<${Rows} label="Consumers" rows=${of} empty="Nobody consumes." columns=${[
    ["Tag", (one) => one.consumer_tag],
    ["Queue", (one) => html`<a href=${link("queues", [one.queue.vhost, one.queue.name])}>${one.queue.name}</a>`],
    ["Connection", (one) => html`<a href=${link("connections", [one.channel_details.connection_name])}>
      ${one.channel_details.connection_name}</a>`],
    ["Acknowledges", (one) => html`<${YesNo} value=${one.ack_required} />`],
    ["Prefetch", (one) => count(one.prefetch_count), "number"],
    ["State", (one) => one.activity_status],
    ["Arguments", (one) => html`<${Data} value=${one.arguments} />`],
  ]} />`;
}
