/** Exchanges, and one of them with its bindings both ways. */

import { html, useState } from "../vendor/preact.js";
import { path } from "../api.js";
import { link } from "../location.js";
import { Action, Data, Facts, List, Loading, Rows, YesNo, parsed, post, put, remove, useLoaded } from "../parts.js";
import { MESSAGE, publish } from "./queues.js";

const TYPES = ["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-delayed-message"];
const shownName = (name) => name || "(default exchange)";
/** The name of an exchange in a path. */
const inPath = (name) => name || "amq.default";

export default function Exchanges(props) {
  return props.names.length === 2 ? html`<${One} ...${props} />` : html`<${All} ...${props} />`;
}

const COLUMNS = [
  ["Virtual host", (one) => one.vhost, "", "vhost"],
  ["Name", (one) => html`<a href=${link("exchanges", [one.vhost, inPath(one.name)])}>${shownName(one.name)}</a>`, "", "name"],
  ["Type", (one) => one.type, "", "type"],
  ["Durable", (one) => html`<${YesNo} value=${one.durable} />`, "", "durable"],
  ["Internal", (one) => html`<${YesNo} value=${one.internal} />`, "", "internal"],
  ["Arguments", (one) => html`<${Data} value=${one.arguments} />`],
];

function All({ query, vhosts }) {
  const target = query.vhost ? path("/api/exchanges", query.vhost) : "/api/exchanges";
  const declare = ({ vhost, name, type, durable, internal, args }) =>
    put(path("/api/exchanges", vhost, name), { type, durable, internal, auto_delete: false, arguments: parsed(args) });
  return html`<div><h1>Exchanges</h1>
    <div class="actions"><${Action} label="Add an exchange" run=${declare} fields=${[
      { name: "vhost", label: "Virtual host", options: vhosts, value: query.vhost || vhosts[0] },
      { name: "name", label: "Name", required: true },
      { name: "type", label: "Type", options: TYPES, value: "direct" },
      { name: "durable", label: "Durable: it is there after a restart", type: "checkbox", value: true },
      { name: "internal", label: "Internal: only exchanges publish to it", type: "checkbox" },
      { name: "args", label: "Arguments, as JSON", type: "textarea", help: '{"alternate-exchange": "unrouted"}' },
    ]} /></div>
    <${List} label="Exchanges" target=${target} columns=${COLUMNS} /></div>`;
}

/** Where a message would go, without publishing one. */
function Routing({ target, vhost }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  const ask = async (event) => {
    event.preventDefault();
    const { key, headers } = event.target.elements;
    setError("");
    try {
      setFound({ key: key.value, ...(await post(target, { routing_key: key.value, headers: parsed(headers.value) })) });
    } catch (refusal) {
      setFound(null);
      setError(refusal.message);
    }
  };
  return html`<h2>Where would a message go?</h2>
    <form class="row" onSubmit=${ask}>
      <label><span>Routing key</span><input name="key" maxlength="255" autocomplete="off" /></label>
      <label><span>Headers, as JSON</span><input name="headers" autocomplete="off" /></label>
      <button type="submit">Try the route</button>
    </form>
    ${error && html`<p class="notice bad" role="alert">${error}</p>`}
    ${found && html`<div role="status">
      ${found.delayed_by.length > 0 && html`<p>${found.delayed_by.join(", ")} would keep it until it is due, and route it then.</p>`}
      <${Rows} label="Places it would go to" rows=${found.places} empty=${found.routed ? "Nowhere before." : "Nowhere: it would be dropped."} columns=${[
        ["Name", (one) => html`<a href=${link(one.kind === "stream" ? "streams" : "queues", [vhost, one.name])}>${one.name}</a>`],
        ["Kind", (one) => one.kind],
      ]} /></div>`}`;
}

const destination = (one) => link(one.destination_type === "queue" ? "queues" : "exchanges", [one.vhost, one.destination]);

function One({ names: [vhost, name] }) {
  const target = path("/api/exchanges", vhost, name);
  const found = useLoaded(target);
  const from = useLoaded(`${target}/bindings/source`);
  const to = useLoaded(`${target}/bindings/destination`);
  const { data } = found;
  const isDefault = data?.name === "";
  const between = (kind, other) => `${path("/api/bindings", vhost, "e", name, kind)}/${encodeURIComponent(other)}`;
  const bind = ({ kind, other, key, args }) =>
    post(between(kind === "queue" ? "q" : "e", other), { routing_key: key, arguments: parsed(args) });
  const unbind = (one) =>
    remove(`${between(one.destination_type === "queue" ? "q" : "e", one.destination)}/${encodeURIComponent(one.properties_key)}`);
  if (!data) return html`<div><h1>Exchange ${name}</h1><${Loading} of=${found} /></div>`;
  return html`<div><h1>Exchange ${shownName(data.name)}</h1><${Loading} of=${found} />
    <${Facts} rows=${[
      ["Virtual host", data.vhost], ["Type", data.type], ["Durable", html`<${YesNo} value=${data.durable} />`],
      ["Deleted without bindings", html`<${YesNo} value=${data.auto_delete} />`], ["Internal", html`<${YesNo} value=${data.internal} />`],
      ["Arguments", html`<${Data} value=${data.arguments} />`],
    ]} />
    <div class="actions">
      ${!data.internal && html`<${Action} label="Publish a message" run=${(values) => publish(vhost, name, values)}
        fields=${[{ name: "key", label: "Routing key" }, ...MESSAGE]} />`}
      ${!isDefault && html`<${Action} label="Bind" title=${`Bind to ${name}`} run=${bind} fields=${[
        { name: "kind", label: "To a", options: ["queue", "exchange"], value: "queue" },
        { name: "other", label: "Its name", required: true },
        { name: "key", label: "Routing key" },
        { name: "args", label: "Arguments, as JSON", type: "textarea" },
      ]} />`}
      ${!data.name.startsWith("amq.") && !isDefault && html`<${Action} label="Delete" danger title=${`Delete ${name}`}
        text="Its bindings go with it. Messages to it are refused afterwards." confirm=${name}
        run=${() => remove(target)} done=${() => { location.hash = link("exchanges"); }} />`}
    </div>
    <${Routing} target=${`${target}/route`} vhost=${vhost} />
    <h2>Bindings from here</h2>
    <${Loading} of=${from} />
    ${from.data && html`<${Rows} label="Bindings from here" rows=${from.data} columns=${[
      ["To", (one) => html`<a href=${destination(one)}>${one.destination}</a>`], ["Kind", (one) => one.destination_type],
      ["Routing key", (one) => one.routing_key], ["Arguments", (one) => html`<${Data} value=${one.arguments} />`],
      ["Actions", (one) => !isDefault && html`<${Action} label="Unbind" danger title=${`Unbind ${one.destination}`}
        text=${`Messages with the routing key ${one.routing_key || '""'} reach it no more by this binding.`}
        run=${() => unbind(one)} />`],
    ]} />`}
    <h2>Bindings that lead here</h2>
    <${Loading} of=${to} />
    ${to.data && html`<${Rows} label="Bindings that lead here" rows=${to.data} columns=${[
      ["From", (one) => html`<a href=${link("exchanges", [vhost, inPath(one.source)])}>${shownName(one.source)}</a>`],
      ["Routing key", (one) => one.routing_key], ["Arguments", (one) => html`<${Data} value=${one.arguments} />`],
    ]} />`}</div>`;
}
