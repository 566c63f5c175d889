/** Limits of virtual hosts and of users: connections, queues, channels, rates, backlog. */

import { html } from "../vendor/preact.js";
import { path } from "../api.js";
import { link } from "../location.js";
import { Action, List, count, put, remove } from "../parts.js";
import { t } from "../words.js";

/** [name in the API, unit] of what a virtual host can be limited in. */
const OF_VHOSTS = [
  "max-connections", "max-queues", "max-backlog-bytes", "max-backlog-bytes-reject", "max-backlog-bytes-evict",
  "traffic-retention-bytes", "traffic-retention-seconds", "max-message-rate", "max-byte-rate",
];
const OF_USERS = ["max-connections", "max-channels", "max-message-rate", "max-byte-rate"];

const MEANS = {
  "max-connections": t("connections at once"),
  "max-channels": t("channels at once"),
  "max-queues": t("queues, with the sessions of MQTT"),
  "max-backlog-bytes": t("bytes that wait: above it publishers wait"),
  "max-backlog-bytes-reject": t("bytes that wait: above it what they publish is refused"),
  "max-backlog-bytes-evict": t("bytes that wait: above it the oldest go"),
  "traffic-retention-bytes": t("bytes of the log that are kept"),
  "traffic-retention-seconds": t("seconds that the log goes back"),
  "max-message-rate": t("messages per second"),
  "max-byte-rate": t("bytes per second"),
};

/** [the name in the address, the title, of what] @type {[string, string, string][]} */
const LISTS = [["", t("Of virtual hosts"), "vhost"], ["users", t("Of users"), "user"]];

export default function Limits({ user, names, query, vhosts }) {
  const may = user.tags.includes("administrator");
  const [shown, , kind] = LISTS.find(([name]) => name === (names[0] ?? "")) ?? LISTS[0];
  const targets = {
    vhost: query.vhost ? path("/api/vhost-limits", query.vhost) : "/api/vhost-limits",
    user: may ? "/api/user-limits" : path("/api/user-limits", user.name),
  };
  return html`<div><h1>${t("Limits")}</h1>
    <nav class="actions" aria-label=${t("Lists")}>
      ${LISTS.map(([name, title]) => html`<a href=${link("limits", name ? [name] : [], { vhost: query.vhost })}
        aria-current=${name === shown ? "page" : undefined}>${title}</a>`)}</nav>
    <p class="quiet">${t("A limit holds for what comes from now on: nothing that is there is closed or deleted by it. Without a limit there is none, or the one of the configuration.")}</p>
    ${may && (kind === "vhost"
      ? html`<${Add} kind="vhost" label=${t("Limit a virtual host")} limits=${OF_VHOSTS} whose=${{ label: t("Virtual host"), options: vhosts, value: query.vhost || vhosts[0] }} />`
      : html`<${Add} kind="user" label=${t("Limit a user")} limits=${OF_USERS} whose=${{ label: t("User"), required: true }} />`)}
    ${kind === "user" && !may && !user.is_internal_user && html`<p class="notice">${t("You have logged in at an issuer of tokens: the gateway has no limits of yours.")}</p>`}
    ${(kind === "vhost" || may || user.is_internal_user) && html`<${Table} key=${kind} kind=${kind} title=${kind === "vhost" ? t("Virtual host") : t("User")} may=${may} target=${targets[kind]} />`}
  </div>`;
}

function Add({ kind, label, limits, whose }) {
  const set = ({ name, limit, value }) => put(path(`/api/${kind}-limits`, name, limit), { value: Number(value) });
  return html`<div class="actions"><${Action} label=${label} run=${set} fields=${[
    { name: "name", ...whose }, { name: "limit", label: t("Limit"), options: limits, value: limits[0] }, VALUE,
  ]} more=${html`<dl class="terms">${limits.map((one) => html`<dt><code>${one}</code></dt><dd>${MEANS[one]}</dd>`)}</dl>`} /></div>`;
}

const VALUE = { name: "value", label: t("At most"), type: "number", required: true, min: 0, help: t("0 allows nothing more") };

/** One row for whom it limits, with each of the limits. */
function Table({ kind, title, may, target }) {
  const of = (one) => one[kind];
  return html`<${List} label=${t("Limits")} target=${target} empty=${t("There are none.")} columns=${[
    [title, of, "", kind],
    [t("Limits"), (one) => html`<ul class="plain">${Object.entries(one.value).map(([limit, value]) => html`<li class="actions">
      <span><code>${limit}</code>: ${count(value)} <small class="quiet">${MEANS[limit]}</small></span>
      ${may && html`<${Action} label=${t("Change")} title=${t("Change {limit} of {name}", { limit, name: of(one) })} fields=${[{ ...VALUE, value }]}
          run=${(typed) => put(path(`/api/${kind}-limits`, of(one), limit), { value: Number(typed.value) })} />
        <${Action} label=${t("Clear")} danger title=${t("Clear {limit} of {name}", { limit, name: of(one) })} text=${t("Nothing limits it any more, but for the configuration.")}
          run=${() => remove(path(`/api/${kind}-limits`, of(one), limit))} />`}</li>`)}</ul>`],
  ]} />`;
}
