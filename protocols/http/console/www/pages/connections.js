/** Connections of all protocols; one of them with its channels. */

import { html } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { link } from "../location.js";
import { Action, Data, Facts, List, Loading, Rows, Time, YesNo, bytes, count, duration, rate, remove, useLoaded } from "../parts.js";
import { Plot, Range, samplesQuery } from "../plot.js";
import { t } from "../words.js";

export default function Connections(props) {
  if (props.names.length === 0) return html`<${All} ...${props} />`;
  return props.names[0] === CLOSED ? html`<${Closed} ...${props} />` : html`<${One} ...${props} />`;
}

/** The list of those that have ended; no connection has such a name. */
const CLOSED = "closed";
const Lists = ({ closed, query }) => html`<nav class="actions" aria-label=${t("Lists")}>
  <a href=${link("connections", [], { vhost: query.vhost })} aria-current=${closed ? undefined : "page"}>${t("Open")}</a>
  <a href=${link("connections", [CLOSED], { vhost: query.vhost })} aria-current=${closed ? "page" : undefined}>${t("Closed lately")}</a></nav>`;

const COLUMNS = [
  [t("Name"), (one) => html`<a href=${link("connections", [one.name])}>${one.user_provided_name ?? one.name}</a>`, "", "name"],
  [t("User"), (one) => one.user, "", "user"],
  [t("Virtual host"), (one) => one.vhost, "", "vhost"],
  [t("Protocol"), (one) => one.protocol, "", "protocol"],
  [t("Client"), (one) => one.variable_map?.client_id ?? one.client_properties?.product ?? "–"],
  [t("TLS"), (one) => html`<${YesNo} value=${one.ssl} />`, "", "ssl"],
  [t("State"), (one) => one.state, "", "state"],
  [t("Channels"), (one) => count(one.channels), "number", "channels"],
  [t("From client"), (one) => `${bytes(one.recv_oct_details?.rate ?? 0)}/s`, "number", "recv_oct_details.rate"],
  [t("To client"), (one) => `${bytes(one.send_oct_details?.rate ?? 0)}/s`, "number", "send_oct_details.rate"],
];

function All({ query }) {
  const target = query.vhost ? `${path("/api/vhosts", query.vhost)}/connections` : "/api/connections";
  return html`<div><h1>${t("Connections")}</h1><${Lists} query=${query} /><${List} label=${t("Connections")} target=${target} columns=${COLUMNS} /></div>`;
}

function Closed({ query }) {
  return html`<div><h1>${t("Connections")}</h1><${Lists} closed query=${query} />
    <p class="quiet">${t("The last connections that ended, each with the reason. The log of the gateway has all.")}</p>
    <${List} label=${t("Closed connections")} target="/api/closed-connections" empty=${t("None has ended since the start.")} columns=${[
      [t("Name"), (one) => one.name, "", "name"], [t("User"), (one) => one.user, "", "user"], [t("Virtual host"), (one) => one.vhost, "", null],
      [t("Protocol"), (one) => one.protocol, "", "protocol"], [t("Closed"), (one) => html`<${Time} at=${one.closed_at} exact />`, "", "closed_at"],
      [t("After"), (one) => duration(one.closed_at - one.connected_at), "number"], [t("Reason"), (one) => one.reason, "", "reason"],
    ]} /></div>`;
}

function One({ user, names: [name], query }) {
  const target = path("/api/connections", name);
  const found = useLoaded(target + asQuery(samplesQuery(query, "data_rates")));
  const channels = useLoaded(`${target}/channels`);
  const { data } = found;
  const close = ({ reason }) => remove(target + asQuery({ reason }));
  return html`<div><h1>${t("Connection {name}", { name })}</h1><${Loading} of=${found} />
    ${data && html`
      <${Facts} rows=${[
        [t("User"), data.user], [t("Virtual host"), data.vhost], [t("Protocol"), data.protocol], [t("State"), data.state],
        [t("Connected"), html`<${Time} at=${data.connected_at} />`], [t("Login by"), data.auth_mechanism],
        [t("TLS"), data.ssl ? `${data.ssl_protocol}, ${data.ssl_cipher}` : t("no")],
        [t("Client id"), data.variable_map?.client_id ?? "–"],
        [t("Heartbeat"), data.timeout ? `${data.timeout} ${t("s")}` : "–"],
        [t("Received"), `${bytes(data.recv_oct)}, ${bytes(data.recv_oct_details.rate)}/s`],
        [t("Sent"), `${bytes(data.send_oct)}, ${bytes(data.send_oct_details.rate)}/s`],
        [t("Said about itself"), html`<${Data} value=${data.client_properties} />`],
      ]} />
      <div class="actions"><${Range} longest=${600} />
        ${(data.user === user.name || user.tags.includes("administrator")) && html`<${Action} label=${t("Close connection")} danger fields=${[{ name: "reason", label: t("Reason, which the client is told") }]}
          run=${close} done=${() => { location.hash = link("connections"); }} />`}</div>
      <${Plot} title=${t("Bytes per second")} of=${data} names=${[["recv_oct", t("From the client")], ["send_oct", t("To the client")]]} rates />
      <h2>${t("Channels")}</h2>
      <${Loading} of=${channels} />
      ${channels.data && html`<${Rows} label=${t("Channels")} rows=${channels.data} columns=${[
        [t("Number"), (one) => html`<a href=${link("channels", [one.name])}>${one.number}</a>`],
        [t("Consumers"), (one) => count(one.consumer_count), "number"],
        [t("Unacknowledged"), (one) => count(one.messages_unacknowledged), "number"],
        [t("Prefetch"), (one) => count(one.prefetch_count), "number"],
        [t("Published"), (one) => rate(one.message_stats?.publish_details), "number"],
        [t("Delivered"), (one) => rate(one.message_stats?.deliver_get_details), "number"],
      ]} />`}`}</div>`;
}
