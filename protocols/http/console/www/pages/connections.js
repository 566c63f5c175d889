/** Connections of all protocols; one of them with its channels. */

import { html } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { link } from "../location.js";
import { Action, Data, Facts, List, Loading, Rows, Time, YesNo, bytes, count, rate, remove, useLoaded } from "../parts.js";
import { Plot, Range, samplesQuery } from "../plot.js";

export default function Connections(props) {
  return props.names.length ? html`<${One} ...${props} />` : html`<${All} ...${props} />`;
}

const COLUMNS = [
  ["Name", (one) => html`<a href=${link("connections", [one.name])}>${one.user_provided_name ?? one.name}</a>`, "", "name"],
  ["User", (one) => one.user, "", "user"],
  ["Virtual host", (one) => one.vhost, "", "vhost"],
  ["Protocol", (one) => one.protocol, "", "protocol"],
  ["Client", (one) => one.variable_map?.client_id ?? one.client_properties?.product ?? "–"],
  ["TLS", (one) => html`<${YesNo} value=${one.ssl} />`, "", "ssl"],
  ["State", (one) => one.state, "", "state"],
  ["Channels", (one) => count(one.channels), "number", "channels"],
  ["From client", (one) => `${bytes(one.recv_oct_details?.rate ?? 0)}/s`, "number", "recv_oct_details.rate"],
  ["To client", (one) => `${bytes(one.send_oct_details?.rate ?? 0)}/s`, "number", "send_oct_details.rate"],
];

function All({ query }) {
  const target = query.vhost ? `${path("/api/vhosts", query.vhost)}/connections` : "/api/connections";
  return html`<div><h1>Connections</h1><${List} label="Connections" target=${target} columns=${COLUMNS} /></div>`;
}

function One({ names: [name], query }) {
  const target = path("/api/connections", name);
  const found = useLoaded(target + asQuery(samplesQuery(query, "data_rates")));
  const channels = useLoaded(`${target}/channels`);
  const { data } = found;
  const close = ({ reason }) => remove(target, { headers: reason ? { "x-reason": encodeURI(reason) } : {} });
  return html`<div><h1>Connection ${name}</h1><${Loading} of=${found} />
    ${data && html`
      <${Facts} rows=${[
        ["User", data.user], ["Virtual host", data.vhost], ["Protocol", data.protocol], ["State", data.state],
        ["Connected", html`<${Time} at=${data.connected_at} />`], ["Login by", data.auth_mechanism],
        ["TLS", data.ssl ? `${data.ssl_protocol}, ${data.ssl_cipher}` : "no"],
        ["Client id", data.variable_map?.client_id ?? "–"],
        ["Heartbeat", data.timeout ? `${data.timeout} s` : "–"],
        ["Received", `${bytes(data.recv_oct)}, ${bytes(data.recv_oct_details.rate)}/s`],
        ["Sent", `${bytes(data.send_oct)}, ${bytes(data.send_oct_details.rate)}/s`],
        ["Said about itself", html`<${Data} value=${data.client_properties} />`],
      ]} />
      <div class="actions"><${Range} longest=${600} />
        <${Action} label="Close connection" danger fields=${[{ name: "reason", label: "Reason, which the client is told" }]}
          run=${close} done=${() => { location.hash = link("connections"); }} /></div>
      <${Plot} title="Bytes per second" of=${data} names=${[["recv_oct", "From the client"], ["send_oct", "To the client"]]} rates />
      <h2>Channels</h2>
      <${Loading} of=${channels} />
      ${channels.data && html`<${Rows} label="Channels" rows=${channels.data} columns=${[
        ["Number", (one) => html`<a href=${link("channels", [one.name])}>${one.number}</a>`],
        ["Consumers", (one) => count(one.consumer_count), "number"],
        ["Unacknowledged", (one) => count(one.messages_unacknowledged), "number"],
        ["Prefetch", (one) => count(one.prefetch_count), "number"],
        ["Published", (one) => rate(one.message_stats?.publish_details), "number"],
        ["Delivered", (one) => rate(one.message_stats?.deliver_get_details), "number"],
      ]} />`}`}</div>`;
}
