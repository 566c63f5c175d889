/** Webhooks of a virtual host, and one of them: its state, its attempts, what may be done with it. */

import { html } from "../vendor/preact.js";
import { path } from "../api.js";
import { link } from "../location.js";
import { Action, Cards, Data, Facts, Loading, Rows, Time, count, post, remove, useLoaded } from "../parts.js";
import { useMayAt } from "../rights.js";
import { t } from "../words.js";

const base = (vhost, ...names) => `${path("/v1/vhosts", vhost)}/${path("webhooks", ...names)}`.replace(/\/$/, "");
const ATTEMPTS = 100;

export default function Webhooks(props) {
  return props.names.length === 2 ? html`<${One} ...${props} />` : html`<${All} ...${props} />`;
}

function All({ query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const found = useLoaded(vhost === undefined ? null : path("/api/webhooks", vhost));
  return html`<div><h1>${vhost ? t("Webhooks of {vhost}", { vhost }) : t("Webhooks")}</h1>
    <p class="quiet">${t("A webhook sends messages of a queue, an exchange, a topic or a stream to a URL. The command penstock webhooks makes one.")}</p>
    <${Loading} of=${found} />
    ${found.data && html`<${Rows} label=${t("Webhooks")} rows=${found.data} columns=${[
      [t("Name"), (one) => html`<a href=${link("webhooks", [vhost, one.name])}>${one.name}</a>`], [t("State"), (one) => one.state],
      [t("From"), (one) => html`<${Data} value=${one.source} />`], [t("To"), (one) => one.url],
      [t("Waiting"), (one) => count(one.backlog), "number"], [t("Delivered"), (one) => count(one.delivered), "number"],
    ]} />`}</div>`;
}

function One({ user, names: [vhost, name] }) {
  const target = base(vhost, name);
  // Who may not configure it sees it as the list does.
  const may = useMayAt(user, vhost, "configure", `webhook.${name}`);
  const found = useLoaded(path("/api/webhooks", vhost, name));
  const { data: end } = useLoaded(may ? `${target}/attempts?from=next&max=1` : null);
  const first = end && Math.max(end.first_offset, end.next_offset - ATTEMPTS);
  const attempts = useLoaded(end && `${target}/attempts?from=${first}&max=${ATTEMPTS}`);
  const { data } = found;
  if (!data) return html`<div><h1>${t("Webhook {name}", { name })}</h1><${Loading} of=${found} /></div>`;
  const paused = data.state === "paused";
  const rows = (attempts.data?.messages ?? []).map((one) => JSON.parse(one.value)).reverse();
  const known = new Set(["name", "vhost", "state", "backlog", "delivered", "url", "source"]);
  return html`<div><h1>${t("Webhook {name}", { name })}</h1><${Loading} of=${found} />
    <${Cards} rows=${[[t("State"), data.state], [t("Waiting"), count(data.backlog)], [t("Delivered"), count(data.delivered)]]} />
    ${may && html`<div class="actions">
      <${Action} label=${paused ? t("Resume") : t("Pause")} title=${paused ? t("Resume {name}", { name }) : t("Pause {name}", { name })}
        text=${paused ? t("Messages are sent again.") : t("Nothing is sent until it is resumed. Messages wait.")} run=${() => post(`${target}/${paused ? "resume" : "pause"}`, {})} />
      <${Action} label=${t("Send a test")} title=${t("Send a test to {name}", { name })} text=${t("A test message is sent to {url}.", { url: data.url })} run=${() => post(`${target}/test`, {})} />
      <${Action} label=${t("Delete")} danger title=${t("Delete {name}", { name })} text=${t("Nothing is sent any more, and its attempts are forgotten.")} confirm=${name}
        run=${() => remove(target)} done=${() => { location.hash = link("webhooks", [], { vhost }); }} />
    </div>`}
    <${Facts} rows=${[[t("Virtual host"), vhost], [t("From"), html`<${Data} value=${data.source} />`], [t("To"), data.url],
      ...Object.entries(data).filter(([field, value]) => !known.has(field) && value !== null && value !== "").map(([field, value]) => [
        field.replaceAll("_", " "), html`<${Data} value=${typeof value === "object" ? value : String(value)} />`])]} />
    ${may && html`<h2>${t("The last attempts")}</h2>
    <${Loading} of=${attempts} />`}
    ${attempts.data && html`<${Rows} label=${t("Attempts")} rows=${rows} empty=${t("There are none.")} columns=${[
      [t("Time"), (one) => html`<${Time} at=${one.at} exact />`], [t("Result"), (one) => one.result], [t("Status"), (one) => one.status || "–", "number"],
      [t("Attempt"), (one) => count(one.attempt), "number"], [t("Took"), (one) => `${one.ms} ${t("ms")}`, "number"],
      [t("Messages"), (one) => one.positions.map((position) => html`<a href=${link("search", [vhost, `0:${position}`])}>0:${position}</a> `)],
      [t("Answer"), (one) => one.answer || "–"],
    ]} />`}</div>`;
}
