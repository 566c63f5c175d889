/** Webhooks of a virtual host, and one of them: its state, its attempts, what may be done with it. */

import { html } from "../vendor/preact.js";
import { path } from "../api.js";
import { link } from "../location.js";
import { Action, Cards, Data, Facts, Loading, Rows, Time, count, post, remove, useLoaded } from "../parts.js";

const base = (vhost, ...names) => `${path("/v1/vhosts", vhost)}/${path("webhooks", ...names)}`.replace(/\/$/, "");
const ATTEMPTS = 100;

export default function Webhooks(props) {
  return props.names.length === 2 ? html`<${One} ...${props} />` : html`<${All} ...${props} />`;
}

function All({ query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const found = useLoaded(vhost === undefined ? null : path("/api/webhooks", vhost));
  return html`<div><h1>Webhooks${vhost && ` of ${vhost}`}</h1>
    <p class="quiet">A webhook sends messages of a queue, an exchange, a topic or a stream to a URL. The command penstock webhooks makes one.</p>
    <${Loading} of=${found} />
    ${found.data && html`<${Rows} label="Webhooks" rows=${found.data} columns=${[
      ["Name", (one) => html`<a href=${link("webhooks", [vhost, one.name])}>${one.name}</a>`], ["State", (one) => one.state],
      ["From", (one) => html`<${Data} value=${one.source} />`], ["To", (one) => one.url],
      ["Waiting", (one) => count(one.backlog), "number"], ["Delivered", (one) => count(one.delivered), "number"],
    ]} />`}</div>`;
}

function One({ names: [vhost, name] }) {
  const target = base(vhost, name);
  const found = useLoaded(target);
  const { data: end } = useLoaded(`${target}/attempts?from=next&max=1`);
  const first = end && Math.max(end.first_offset, end.next_offset - ATTEMPTS);
  const attempts = useLoaded(end && `${target}/attempts?from=${first}&max=${ATTEMPTS}`);
  const { data } = found;
  if (!data) return html`<div><h1>Webhook ${name}</h1><${Loading} of=${found} /></div>`;
  const paused = data.state === "paused";
  const rows = (attempts.data?.messages ?? []).map((one) => JSON.parse(one.value)).reverse();
  const known = new Set(["name", "vhost", "state", "backlog", "delivered", "url", "source"]);
  return html`<div><h1>Webhook ${name}</h1><${Loading} of=${found} />
    <${Cards} rows=${[["State", data.state], ["Waiting", count(data.backlog)], ["Delivered", count(data.delivered)]]} />
    <div class="actions">
      <${Action} label=${paused ? "Resume" : "Pause"} title=${`${paused ? "Resume" : "Pause"} ${name}`}
        text=${paused ? "Messages are sent again." : "Nothing is sent until it is resumed. Messages wait."} run=${() => post(`${target}/${paused ? "resume" : "pause"}`, {})} />
      <${Action} label="Send a test" title=${`Send a test to ${name}`} text=${`A test message is sent to ${data.url}.`} run=${() => post(`${target}/test`, {})} />
      <${Action} label="Delete" danger title=${`Delete ${name}`} text="Nothing is sent any more, and its attempts are forgotten." confirm=${name}
        run=${() => remove(target)} done=${() => { location.hash = link("webhooks", [], { vhost }); }} />
    </div>
    <${Facts} rows=${[["Virtual host", vhost], ["From", html`<${Data} value=${data.source} />`], ["To", data.url],
      ...Object.entries(data).filter(([field, value]) => !known.has(field) && value !== null && value !== "").map(([field, value]) => [
        field.replaceAll("_", " "), html`<${Data} value=${typeof value === "object" ? value : String(value)} />`])]} />
    <h2>The last attempts</h2>
    <${Loading} of=${attempts} />
    ${attempts.data && html`<${Rows} label="Attempts" rows=${rows} empty="There are none." columns=${[
      ["Time", (one) => html`<${Time} at=${one.at} exact />`], ["Result", (one) => one.result], ["Status", (one) => one.status || "–", "number"],
      ["Attempt", (one) => count(one.attempt), "number"], ["Took", (one) => `${one.ms} ms`, "number"],
      ["Messages", (one) => one.positions.map((position) => html`<a href=${link("search", [vhost, `0:${position}`])}>0:${position}</a> `)],
      ["Answer", (one) => one.answer || "–"],
    ]} />`}</div>`;
}
