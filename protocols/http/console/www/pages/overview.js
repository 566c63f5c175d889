/** The whole gateway: what waits, how fast it moves, what it needs, and what holds publishers up. */

import { html } from "../vendor/preact.js";
import { query as asQuery } from "../api.js";
import { link } from "../location.js";
import { Cards, Facts, Loading, Rows, bytes, count, duration, rate, tenths, useLoaded } from "../parts.js";
import { useLive, withLive } from "../live.js";
import { Plot, Range, isLive, samplesQuery } from "../plot.js";
import { many, t } from "../words.js";

const MOVES = [
  ["publish", t("Published")], ["deliver_get", t("Delivered")], ["ack", t("Acknowledged")], ["redeliver", t("Given back")],
];

const FINDINGS_MS = 30000;

export default function Overview({ user, query }) {
  const found = useLoaded(`/api/overview${asQuery(samplesQuery(query, "msg_rates", "lengths"))}`);
  const sees = user.tags.some((tag) => tag === "monitoring" || tag === "administrator");
  const nodes = useLoaded(sees ? "/api/nodes" : null);
  const findings = useLoaded(sees ? "/api/findings" : null, FINDINGS_MS);
  const samples = useLive(isLive(query) ? "overview" : null);
  const { data } = found;
  if (!data) return html`<div><h1>${t("Overview")}</h1><${Loading} of=${found} /></div>`;
  const { object_totals: objects, churn_rates: churn } = data;
  const waiting = withLive(data.queue_totals, samples, (totals) => totals);
  const moved = withLive(data.message_stats, samples, (totals) => totals.message_stats);
  return html`<div><h1>${data.cluster_name}</h1>
    <${Loading} of=${found} />
    <${Blocked} of=${data.penstock.blocked} nodes=${nodes.data ?? []} />
    <${Findings} of=${findings.data ?? []} />
    <${Cards} rows=${[
      [t("Ready"), count(waiting.messages_ready)],
      [t("Unacknowledged"), count(waiting.messages_unacknowledged)],
      ...MOVES.map(([name, title]) => [title, rate(moved[`${name}_details`]), t("{n} since the start", { n: count(moved[name]) })]),
      [t("Without acknowledgement"), rate(moved.deliver_no_ack_details), t("{n} since the start", { n: count(moved.deliver_no_ack) })],
      [t("Dropped unroutable"), rate(moved.drop_unroutable_details), t("{n} since the start", { n: count(moved.drop_unroutable) })],
    ]} />
    <div class="actions"><${Range} live /></div>
    <${Plot} title=${t("Messages that wait")} of=${waiting} names=${[["messages_ready", t("Ready")], ["messages_unacknowledged", t("Unacknowledged")]]} />
    <${Plot} title=${t("Messages per second")} of=${moved} names=${MOVES} rates />
    <h2>${t("Objects")}</h2>
    <${Cards} rows=${[
      [t("Connections"), count(objects.connections)], [t("Channels"), count(objects.channels)],
      ...(objects.consumers === undefined ? [] : [[t("Consumers"), count(objects.consumers)]]), [t("Queues"), count(objects.queues)],
      [t("Exchanges"), count(objects.exchanges)], [t("Delayed messages"), count(data.penstock.delayed)],
    ]} />
    <h2>${t("Log")}</h2>
    <${Cards} rows=${[
      [t("Kept"), bytes(data.penstock.log.bytes)], [t("Not on the disk yet"), bytes(data.penstock.log.backlog_bytes)],
      [t("A sync takes"), data.penstock.log.sync_us === null ? "–" : `${tenths(data.penstock.log.sync_us / 1000)} ${t("ms")}`, t("on average since the start")],
    ]} />
    <h2>${t("Clients by protocol")}</h2>
    ${Object.keys(data.penstock.clients).length === 0 ? html`<p class="quiet">${t("Nobody is connected.")}</p>` : html`<${Cards}
      rows=${Object.entries(data.penstock.clients).sort(([, a], [, b]) => b - a).map(([protocol, n]) => [protocol, count(n)])} />`}
    <h2>${t("Coming and going")}</h2>
    <${Cards} rows=${[
      [t("Connections opened"), rate(churn.connection_created_details)], [t("Connections closed"), rate(churn.connection_closed_details)],
      [t("Channels opened"), rate(churn.channel_created_details)], [t("Channels closed"), rate(churn.channel_closed_details)],
      [t("Queues made"), rate(churn.queue_created_details)], [t("Queues deleted"), rate(churn.queue_deleted_details)],
    ]} />
    ${(nodes.data ?? []).map((node) => html`<${Node} node=${node} />`)}
    <h2>${t("Listeners")}</h2>
    <${Rows} label=${t("Listeners")} rows=${data.listeners} columns=${[
      [t("Protocol"), (one) => one.protocol], [t("Address"), (one) => one.ip_address], [t("Port"), (one) => one.port, "number"],
    ]} />
    <p class="quiet">${t("{product} {version}, API of RabbitMQ {rabbitmq}", {
      product: data.product_name, version: data.product_version, rabbitmq: data.rabbitmq_version })}</p></div>`;
}

/** Where errors and warnings about the gateway are. */
function Findings({ of }) {
  const errors = of.filter((one) => one.level === "error").length;
  const told = errors || of.filter((one) => one.level === "warning").length;
  if (told === 0) return null;
  return html`<p class=${`notice${errors ? " bad" : ""}`}><a href=${link("live", [], { of: "findings" })}>${errors
    ? many(told, "The gateway has found {n} error about itself.", "The gateway has found {n} errors about itself.")
    : many(told, "The gateway has found {n} warning about itself.", "The gateway has found {n} warnings about itself.")}</a></p>`;
}

const EFFECTS = { waits: t("publishers wait"), refused: t("what publishers send is refused") };
const KINDS = { gateway: t("The whole gateway"), vhost: t("Virtual host"), connection: t("Connection") };

/** Publishers that are blocked, and why, with the figures of the alarm where the user sees those of the node. */
function Blocked({ of, nodes }) {
  if (of.length === 0) return null;
  const figures = nodes.flatMap((node) => [
    ...(node.mem_alarm ? [t("memory: {used} of {limit} are in use", { used: bytes(node.mem_used), limit: bytes(node.mem_limit) })] : []),
    ...(node.disk_free_alarm ? [t("disk: {free} are free, {needed} are needed", { free: bytes(node.disk_free), needed: bytes(node.disk_free_limit) })] : []),
  ]);
  return html`<section class="notice bad" role="alert"><h2>${t("Blocked")}</h2><p>${t("Consumers go on.")} ${figures.join("; ")}</p>
    <ul class="plain">${of.map((one) => html`<li>${KINDS[one.what]} <strong>${one.what === "connection"
      ? html`<a href=${link("connections", [one.name])}>${one.name}</a>` : one.what === "vhost"
        ? html`<a href=${link("limits", [], { vhost: one.name })}>${one.name}</a>` : one.name}</strong>: ${EFFECTS[one.effect]}. <code>${one.reason}</code></li>`)}</ul></section>`;
}

function Node({ node }) {
  return html`<h2>${node.name}</h2><${Facts} rows=${[
    [t("Running for"), duration(node.uptime)],
    [t("Memory"), t("{used}, publishers wait above {limit}", { used: bytes(node.mem_used), limit: node.mem_limit ? bytes(node.mem_limit) : t("no limit") })],
    [t("Free disk"), t("{free}, publishers wait below {limit}", { free: bytes(node.disk_free), limit: bytes(node.disk_free_limit) })],
    [t("Open files"), t("{n} of {total}", { n: count(node.fd_used), total: count(node.fd_total) })],
    [t("Syncs of the disk"), rate(node.io_sync_count_details)],
  ]} />`;
}
