/** Channels, and one of them with its consumers. */

import { html } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { link } from "../location.js";
import { Data, Facts, List, Loading, Rows, YesNo, count, rate, useLoaded } from "../parts.js";
import { Plot, Range, samplesQuery } from "../plot.js";
import { t } from "../words.js";

export default function Channels(props) {
  return props.names.length ? html`<${One} ...${props} />` : html`<${All} ...${props} />`;
}

const COLUMNS = [
  [t("Name"), (one) => html`<a href=${link("channels", [one.name])}>${one.name}</a>`, "", "name"],
  [t("Virtual host"), (one) => one.vhost, "", "vhost"],
  [t("User"), (one) => one.user, "", "user"],
  [t("State"), (one) => one.state, "", "state"],
  [t("Consumers"), (one) => count(one.consumer_count), "number", "consumer_count"],
  [t("Unacknowledged"), (one) => count(one.messages_unacknowledged), "number", "messages_unacknowledged"],
  [t("Unconfirmed"), (one) => count(one.messages_unconfirmed), "number", "messages_unconfirmed"],
  [t("Prefetch"), (one) => count(one.prefetch_count), "number", "prefetch_count"],
  [t("Published"), (one) => rate(one.message_stats?.publish_details), "number", "message_stats.publish_details.rate"],
  [t("Delivered"), (one) => rate(one.message_stats?.deliver_get_details), "number", "message_stats.deliver_get_details.rate"],
];

function All({ query }) {
  const target = query.vhost ? `${path("/api/vhosts", query.vhost)}/channels` : "/api/channels";
  return html`<div><h1>${t("Channels")}</h1><${List} label=${t("Channels")} target=${target} columns=${COLUMNS} /></div>`;
}

function One({ names: [name], query }) {
  const found = useLoaded(path("/api/channels", name) + asQuery(samplesQuery(query, "msg_rates")));
  const { data } = found;
  return html`<div><h1>${t("Channel {name}", { name })}</h1><${Loading} of=${found} />
    ${data && html`
      <${Facts} rows=${[
        [t("Connection"), html`<a href=${link("connections", [data.connection_details.name])}>${data.connection_details.name}</a>`],
        [t("User"), data.user], [t("Virtual host"), data.vhost], [t("State"), data.state],
        [t("Mode"), data.transactional ? t("transactions") : data.confirm ? t("confirms") : t("neither confirms nor transactions")],
        [t("Prefetch of a consumer"), count(data.prefetch_count)], [t("Prefetch of the channel"), count(data.global_prefetch_count)],
        [t("Unacknowledged"), count(data.messages_unacknowledged)], [t("Unconfirmed"), count(data.messages_unconfirmed)],
      ]} />
      <div class="actions"><${Range} longest=${600} /></div>
      <${Plot} title=${t("Messages per second")} of=${data.message_stats} rates names=${[
        ["publish", t("Published")], ["deliver", t("Delivered")], ["deliver_no_ack", t("Without acknowledgement")], ["ack", t("Acknowledged")],
      ]} />
      <h2>${t("Consumers")}</h2>
      <${Consumers} of=${data.consumer_details} />`}</div>`;
}

export function Consumers({ of }) {
  return html`<${Rows} label=${t("Consumers")} rows=${of} empty=${t("Nobody consumes.")} columns=${[
    [t("Tag"), (one) => one.consumer_tag],
    [t("Queue"), (one) => html`<a href=${link("queues", [one.queue.vhost, one.queue.name])}>${one.queue.name}</a>`],
    [t("Connection"), (one) => html`<a href=${link("connections", [one.channel_details.connection_name])}>
      ${one.channel_details.connection_name}</a>`],
    [t("Acknowledges"), (one) => html`<${YesNo} value=${one.ack_required} />`],
    [t("Prefetch"), (one) => count(one.prefetch_count), "number"],
    [t("State"), (one) => one.activity_status],
    [t("Arguments"), (one) => html`<${Data} value=${one.arguments} />`],
  ]} />`;
}
