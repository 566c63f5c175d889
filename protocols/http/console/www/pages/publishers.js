/** Work that publishers have under way: half messages, open transactions, and producers that number their messages. */

import { html } from "../vendor/preact.js";
import { path } from "../api.js";
import { link } from "../location.js";
import { Action, List, Time, bytes, count, duration, post } from "../parts.js";
import { t } from "../words.js";

/** [the name in the address, the title, the list] @type {[string, string, (props: {vhost: string}) => any][]} */
const LISTS = [
  ["", t("Half messages"), Half],
  ["transactions", t("Transactions"), Transactions],
  ["producers", t("Producers"), Producers],
];

export default function Publishers({ names, query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const shown = LISTS.find(([name]) => name === (names[0] ?? "")) ?? LISTS[0];
  return html`<div><h1>${vhost ? t("Publishers of {vhost}", { vhost }) : t("Publishers")}</h1>
    <nav class="actions" aria-label=${t("Lists")}>
      ${LISTS.map(([name, title]) => html`<a href=${link("publishers", name ? [name] : [], { vhost: query.vhost })}
        aria-current=${name === shown[0] ? "page" : undefined}>${title}</a>`)}</nav>
    ${vhost !== undefined && html`<${shown[2]} vhost=${vhost} />`}</div>`;
}

function Half({ vhost }) {
  const decide = (one, how) => post(path("/v1/vhosts", vhost, "half", one.name, how), {});
  return html`<div><p class="quiet">${
      t("These messages are kept, but not published yet. Their senders commit them or roll them back, and are asked if they stay silent.")}</p>
    <${List} label=${t("Half messages")} target=${path("/api/half", vhost)} columns=${[
      [t("Name"), (one) => one.name || "–", "", "name"], [t("User"), (one) => one.user, "", "user"],
      [t("Exchange"), (one) => one.exchange || t("(default exchange)")], [t("Routing key"), (one) => one.routing_key],
      [t("Size"), (one) => bytes(one.size), "number", "size"],
      [t("Prepared"), (one) => html`<${Time} at=${one.prepared_at} />`, "", "prepared_at"],
      [t("Questions"), (one) => t("{n} of {total}", { n: count(one.checks), total: count(one.max_checks) }), "number", "checks"],
      [t("Asks at"), (one) => one.asks_at ?? t("its producers")],
      [t("Given up"), (one) => html`<${Time} at=${one.expires_at} />`],
      [t("Actions"), (one) => one.may_decide && html`<div class="actions">
        <${Action} label=${t("Commit")} title=${t("Commit the half message")}
          text=${t("The message {name} is published now.", { name: one.name })} run=${() => decide(one, "commit")} />
        <${Action} label=${t("Roll back")} title=${t("Roll back the half message")} danger
          text=${t("The message {name} never comes.", { name: one.name })} run=${() => decide(one, "rollback")} /></div>`],
    ]} /></div>`;
}

function Transactions({ vhost }) {
  const end = (one) => post(path("/v1/vhosts", vhost, "transactions", one.name, "rollback"), {});
  return html`<div><p class="quiet">${
      t("Nobody sees what is in an open transaction before its commit. Those of AMQP 0-9-1 are channels with messages that wait for it.")}</p>
    <${List} label=${t("Transactions")} target=${path("/api/transactions", vhost)} columns=${[
      [t("Name"), (one) => (one.channel ? html`<a href=${link("channels", [one.channel])}>${one.name}</a>` : html`<code>${one.name}</code>`), "", "name"],
      [t("User"), (one) => one.user, "", "user"], [t("Protocol"), (one) => one.protocol, "", "protocol"],
      [t("Messages"), (one) => count(one.messages), "number", "messages"], [t("Settled"), (one) => count(one.settled), "number", "settled"],
      [t("Size"), (one) => bytes(one.bytes), "number", "bytes"], [t("Age"), (one) => duration(one.age_ms), "number", "age_ms"],
      [t("Ends in"), (one) => duration(one.left_ms), "number", "left_ms"],
      [t("Actions"), (one) => one.may_end && html`<${Action} label=${t("Roll back")} title=${t("Roll back the transaction")} danger
        text=${t("Nothing of it happens.")} run=${() => end(one)} />`],
    ]} /></div>`;
}

function Producers({ vhost }) {
  return html`<div><p class="quiet">${
      t("These producers number their messages, so that one sent again is kept once. A producer that sent nothing for a day is forgotten.")}</p>
    <${List} label=${t("Producers")} target=${path("/api/producers", vhost)} columns=${[
      [t("Name"), (one) => one.name, "", "name"], [t("User"), (one) => one.user, "", "user"], [t("Protocol"), (one) => one.protocol, "", "protocol"],
      [t("Epoch"), (one) => count(one.epoch), "number"], [t("Last number"), (one) => count(one.last_sequence), "number"],
      [t("Last used"), (one) => html`<${Time} at=${one.last_at} />`, "", "last_at"],
      [t("Position"), (one) => (one.last_id ? html`<a href=${link("search", [vhost, one.last_id])}>${one.last_id}</a>` : "–")],
    ]} /></div>`;
}
