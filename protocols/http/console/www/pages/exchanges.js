/** Exchanges, and one of them with its bindings both ways. */

import { html, useState } from "../vendor/preact.js";
import { path } from "../api.js";
import { link } from "../location.js";
import { Action, Data, Facts, List, Loading, Rows, YesNo, parsed, post, put, remove, useLoaded } from "../parts.js";
import { MESSAGE, publish } from "./queues.js";
import { useAllowed, useEntered, useMay, useMayAt } from "../rights.js";
import { t } from "../words.js";

const TYPES = ["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-delayed-message"];
const shownName = (name) => name || t("(default exchange)");
/** The name of an exchange in a path. */
const inPath = (name) => name || "amq.default";

export default function Exchanges(props) {
  return props.names.length === 2 ? html`<${One} ...${props} />` : html`<${All} ...${props} />`;
}

const COLUMNS = [
  [t("Virtual host"), (one) => one.vhost, "", "vhost"],
  [t("Name"), (one) => html`<a href=${link("exchanges", [one.vhost, inPath(one.name)])}>${shownName(one.name)}</a>`, "", "name"],
  [t("Type"), (one) => one.type, "", "type"],
  [t("Durable"), (one) => html`<${YesNo} value=${one.durable} />`, "", "durable"],
  [t("Internal"), (one) => html`<${YesNo} value=${one.internal} />`, "", "internal"],
  [t("Arguments"), (one) => html`<${Data} value=${one.arguments} />`],
];

function All({ user, query, vhosts }) {
  const entered = useEntered(user, vhosts);
  const vhost = entered.includes(query.vhost) ? query.vhost : query.vhost ? undefined : entered[0];
  const may = useMay(user, vhost, "configure");
  const target = query.vhost ? path("/api/exchanges", query.vhost) : "/api/exchanges";
  const declare = ({ vhost, name, type, durable, internal, args }) =>
    put(path("/api/exchanges", vhost, name), { type, durable, internal, auto_delete: false, arguments: parsed(args) });
  return html`<div><h1>${t("Exchanges")}</h1>
    ${vhost !== undefined && may && html`<div class="actions"><${Action} label=${t("Add an exchange")} run=${declare} fields=${[
      { name: "vhost", label: t("Virtual host"), options: entered, value: vhost },
      { name: "name", label: t("Name"), required: true },
      { name: "type", label: t("Type"), options: TYPES, value: "direct" },
      { name: "durable", label: t("Durable: it is there after a restart"), type: "checkbox", value: true },
      { name: "internal", label: t("Internal: only exchanges publish to it"), type: "checkbox" },
      { name: "args", label: t("Arguments, as JSON"), type: "textarea", help: '{"alternate-exchange": "unrouted"}' },
    ]} /></div>`}
    <${List} label=${t("Exchanges")} target=${target} columns=${COLUMNS} /></div>`;
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
  return html`<h2>${t("Where would a message go?")}</h2>
    <form class="row" onSubmit=${ask}>
      <label><span>${t("Routing key")}</span><input name="key" maxlength="255" autocomplete="off" /></label>
      <label><span>${t("Headers, as JSON")}</span><input name="headers" autocomplete="off" /></label>
      <button type="submit">${t("Try the route")}</button>
    </form>
    ${error && html`<p class="notice bad" role="alert">${error}</p>`}
    ${found && html`<div role="status">
      ${found.delayed_by.length > 0 && html`<p>${
        t("{names} would keep it until it is due, and route it then.", { names: found.delayed_by.join(", ") })}</p>`}
      <${Rows} label=${t("Places it would go to")} rows=${found.places} empty=${found.routed ? t("Nowhere before.") : t("Nowhere: it would be dropped.")} columns=${[
        [t("Name"), (one) => html`<a href=${link(one.kind === "stream" ? "streams" : "queues", [vhost, one.name])}>${one.name}</a>`],
        [t("Kind"), (one) => one.kind],
      ]} /></div>`}`;
}

/** Subscriptions of MQTT sessions are listed as bindings, and only their clients end them. */
const isBound = (one) => !one.destination.startsWith("mqtt-subscription-");
const destination = (one) => link(one.destination_type === "queue" ? "queues" : "exchanges", [one.vhost, one.destination]);

function One({ user, names: [vhost, name] }) {
  const mayPublish = useMayAt(user, vhost, "write", name);
  const mayRead = useMayAt(user, vhost, "read", name);
  const mayBind = [mayRead, useMay(user, vhost, "write")].every(Boolean);
  const mayWrite = useAllowed(user, vhost, "write");
  const mayDelete = useMayAt(user, vhost, "configure", name);
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
  if (!data) return html`<div><h1>${t("Exchange {name}", { name })}</h1><${Loading} of=${found} /></div>`;
  return html`<div><h1>${t("Exchange {name}", { name: shownName(data.name) })}</h1><${Loading} of=${found} />
    <${Facts} rows=${[
      [t("Virtual host"), data.vhost], [t("Type"), data.type], [t("Durable"), html`<${YesNo} value=${data.durable} />`],
      [t("Deleted without bindings"), html`<${YesNo} value=${data.auto_delete} />`], [t("Internal"), html`<${YesNo} value=${data.internal} />`],
      [t("Arguments"), html`<${Data} value=${data.arguments} />`],
    ]} />
    <div class="actions">
      ${mayPublish && !data.internal && html`<${Action} label=${t("Publish a message")} run=${(values) => publish(vhost, name, values)}
        fields=${[{ name: "key", label: t("Routing key") }, ...MESSAGE]} />`}
      ${mayBind && !isDefault && html`<${Action} label=${t("Bind")} title=${t("Bind to {name}", { name })} run=${bind} fields=${[
        { name: "kind", label: t("To a"), options: ["queue", "exchange"], value: "queue" },
        { name: "other", label: t("Its name"), required: true },
        { name: "key", label: t("Routing key") },
        { name: "args", label: t("Arguments, as JSON"), type: "textarea" },
      ]} />`}
      ${mayDelete && !data.name.startsWith("amq.") && !isDefault && html`<${Action} label=${t("Delete")} danger title=${t("Delete {name}", { name })}
        text=${t("Its bindings go with it. Messages to it are refused afterwards.")} confirm=${name}
        run=${() => remove(target)} done=${() => { location.hash = link("exchanges"); }} />`}
    </div>
    <${Routing} target=${`${target}/route`} vhost=${vhost} />
    <h2>${t("Bindings from here")}</h2>
    <${Loading} of=${from} />
    ${from.data && html`<${Rows} label=${t("Bindings from here")} rows=${from.data} columns=${[
      [t("To"), (one) => html`<a href=${destination(one)}>${one.destination}</a>`], [t("Kind"), (one) => one.destination_type],
      [t("Routing key"), (one) => one.routing_key], [t("Arguments"), (one) => html`<${Data} value=${one.arguments} />`],
      ...(mayRead && !isDefault ? [[t("Actions"), (one) => isBound(one) && mayWrite(one.destination) && html`<${Action} label=${t("Unbind")} danger
        title=${t("Unbind {destination}", { destination: one.destination })}
        text=${t("Messages with the routing key {key} reach it no more by this binding.", { key: one.routing_key || '""' })}
        run=${() => unbind(one)} />`]] : []),
    ]} />`}
    <h2>${t("Bindings that lead here")}</h2>
    <${Loading} of=${to} />
    ${to.data && html`<${Rows} label=${t("Bindings that lead here")} rows=${to.data} columns=${[
      [t("From"), (one) => html`<a href=${link("exchanges", [vhost, inPath(one.source)])}>${shownName(one.source)}</a>`],
      [t("Routing key"), (one) => one.routing_key], [t("Arguments"), (one) => html`<${Data} value=${one.arguments} />`],
    ]} />`}</div>`;
}
