/** Streams of a virtual host, and one of them with its subscriptions: where each stands, and moving it. */

import { html } from "../vendor/preact.js";
import { path } from "../api.js";
import { link } from "../location.js";
import { Action, Cards, Facts, Loading, Rows, bytes, count, duration, post, put, remove, useLoaded } from "../parts.js";
import { useMay, useMayAt } from "../rights.js";
import { t } from "../words.js";

const base = (vhost, ...names) => `${path("/v1/vhosts", vhost)}/${path("streams", ...names)}`;

export default function Streams(props) {
  return props.names.length === 2 ? html`<${One} ...${props} />` : html`<${All} ...${props} />`;
}

function All({ user, query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const may = useMay(user, vhost, "configure");
  const found = useLoaded(vhost === undefined ? null : base(vhost).replace(/\/$/, ""));
  const make = ({ name, age, size }) => put(base(vhost, name), { max_age: age || null, max_bytes: size ? Number(size) : null });
  return html`<div><h1>${t("Streams of {vhost}", { vhost })}</h1>
    <p class="quiet">${t("A stream keeps messages after they are read. Each subscription has a place of its own in it.")}</p>
    ${may && html`<div class="actions"><${Action} label=${t("Add a stream")} run=${make} fields=${[
      { name: "name", label: t("Name"), required: true },
      { name: "age", label: t("Keep messages for"), help: t("7D, 12h; empty: by size only") },
      { name: "size", label: t("Keep so many bytes"), type: "number", help: t("empty: any number") },
    ]} /></div>`}
    <${Loading} of=${found} />
    ${found.data && html`<${Rows} label=${t("Streams")} rows=${found.data.streams} columns=${[
      [t("Name"), (one) => html`<a href=${link("streams", [vhost, one.name])}>${one.name}</a>`],
      [t("Messages"), (one) => count(one.messages), "number"],
      [t("First"), (one) => count(one.first_offset), "number"], [t("Next"), (one) => count(one.next_offset), "number"],
      [t("Kept for"), (one) => one.max_age ?? "–"], [t("Kept bytes"), (one) => bytes(one.max_bytes), "number"],
    ]} />
    ${found.data.next_page_token && html`<p class="notice">${MORE}</p>`}`}</div>`;
}

function One({ user, names: [vhost, name] }) {
  const mayRead = useMayAt(user, vhost, "read", name);
  const mayDelete = useMayAt(user, vhost, "configure", name);
  const target = base(vhost, name);
  const found = useLoaded(target);
  const subscriptions = useLoaded(`${target}/subscriptions`);
  const of = (one) => `${target}/${path("subscriptions", one.name)}`;
  const add = ({ subscription, kind, start, limit, dead }) => put(`${target}/${path("subscriptions", subscription)}`, {
    kind, start, max_deliveries: limit ? Number(limit) : null, dead_letter: dead || null,
  });
  const { data } = found;
  if (!data) return html`<div><h1>${t("Stream {name}", { name })}</h1><${Loading} of=${found} /></div>`;
  return html`<div><h1>${t("Stream {name}", { name })}</h1><${Loading} of=${found} />
    <${Cards} rows=${[[t("Messages"), count(data.messages)], [t("First"), count(data.first_offset)], [t("Next"), count(data.next_offset)]]} />
      <${Facts} rows=${[[t("Virtual host"), vhost], [t("Kept for"), data.max_age ?? t("by size only")], [t("Kept bytes"), data.max_bytes == null ? t("any number") : bytes(data.max_bytes)]]} />
      <div class="actions">
        ${mayRead && html`<${Action} label=${t("Add a subscription")} run=${add} fields=${[
          { name: "subscription", label: t("Name"), required: true },
          { name: "kind", label: t("Kind"), options: ["shared", "key_shared", "exclusive", "failover"], value: "shared" },
          START,
          { name: "limit", label: t("Deliveries of a message at most"), type: "number", help: t("empty: any number") },
          { name: "dead", label: t("Queue for what is given up") },
        ]} />`}
        ${mayDelete && html`<${Action} label=${t("Delete")} danger title=${t("Delete {name}", { name })} text=${t("Its messages and its subscriptions are gone.")}
          confirm=${name} run=${() => remove(target)} done=${() => { location.hash = link("streams", [], { vhost }); }} />`}
      </div>
    <h2>${t("Subscriptions")}</h2>
    <${Loading} of=${subscriptions} />
    ${subscriptions.data && html`<${Rows} label=${t("Subscriptions")} rows=${subscriptions.data.subscriptions} columns=${[
      [t("Name"), (one) => one.name], [t("Kind"), (one) => one.kind],
      [t("Lag"), (one) => count(one.lag), "number"], [t("Unacknowledged"), (one) => count(one.unacked), "number"],
      [t("Consumers"), (one) => count(one.consumers), "number"],
      [t("Oldest waits"), (one) => duration(one.head_age_ms), "number"],
      [t("State"), (one) => (one.paused ? t("paused") : t("runs"))],
      [t("Actions"), (one) => mayRead && html`<div class="actions">
        <${Action} label=${one.paused ? t("Resume") : t("Pause")} title=${one.paused ? t("Resume {name}", one) : t("Pause {name}", one)}
          text=${one.paused ? t("Its consumers get messages again.") : t("Nobody gets anything until it is resumed.")}
          run=${() => post(`${of(one)}/${one.paused ? "resume" : "pause"}`, {})} />
        <${Action} label=${t("Move")} title=${t("Move {name}", { name: one.name })} text=${t("Deliveries that its consumers hold are void. They get the messages behind the new place.")}
          fields=${[START]} run=${({ start }) => post(`${of(one)}/seek`, { to: start })} />
        <${Action} label=${t("Delete")} danger title=${t("Delete {name}", { name: one.name })} text=${t("Its place in the stream is forgotten.")} confirm=${one.name}
          run=${() => remove(of(one))} />
      </div>`],
    ]} />
    ${subscriptions.data.next_page_token && html`<p class="notice">${MORE}</p>`}`}</div>`;
}

const MORE = t("There are more than 1000; the others are not shown here. The page of queues has all of them.");

const START = {
  name: "start", label: t("Begin at"), value: "earliest", required: true,
  help: t("earliest, latest, -1h, pos:4711, or a time such as 2026-11-27T12:00:00Z"),
};
