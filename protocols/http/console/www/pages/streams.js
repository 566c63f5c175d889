/** Streams of a virtual host, and one of them with its subscriptions: where each stands, and moving it. */

import { html } from "../vendor/preact.js";
import { path } from "../api.js";
import { link } from "../location.js";
import { Action, Cards, Facts, Loading, Rows, bytes, count, duration, post, put, remove, useLoaded } from "../parts.js";

const base = (vhost, ...names) => `${path("/v1/vhosts", vhost)}/${path("streams", ...names)}`;

export default function Streams(props) {
  return props.names.length === 2 ? html`<${One} ...${props} />` : html`<${All} ...${props} />`;
}

function All({ query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const found = useLoaded(vhost === undefined ? null : base(vhost).replace(/\/$/, ""));
  const make = ({ name, age, size }) => put(base(vhost, name), { max_age: age || null, max_bytes: size ? Number(size) : null });
  return html`<div><h1>Streams of ${vhost}</h1>
    <p class="quiet">A stream keeps messages after they are read. Each subscription has a place of its own in it.</p>
    <div class="actions"><${Action} label="Add a stream" run=${make} fields=${[
      { name: "name", label: "Name", required: true },
      { name: "age", label: "Keep messages for", help: "7D, 12h; empty: by size only" },
      { name: "size", label: "Keep so many bytes", type: "number", help: "empty: any number" },
    ]} /></div>
    <${Loading} of=${found} />
    ${found.data && html`<${Rows} label="Streams" rows=${found.data.streams} columns=${[
      ["Name", (one) => html`<a href=${link("streams", [vhost, one.name])}>${one.name}</a>`],
      ["Messages", (one) => count(one.messages), "number"],
      ["First", (one) => count(one.first_offset), "number"], ["Next", (one) => count(one.next_offset), "number"],
      ["Kept for", (one) => one.max_age ?? "–"], ["Kept bytes", (one) => bytes(one.max_bytes), "number"],
    ]} />
    ${found.data.next_page_token && html`<p class="notice">There are more than 1000; the others are not shown here. The page of
      queues has all of them.</p>`}`}</div>`;
}

function One({ names: [vhost, name] }) {
  const target = base(vhost, name);
  const found = useLoaded(target);
  const subscriptions = useLoaded(`${target}/subscriptions`);
  const of = (one) => `${target}/${path("subscriptions", one.name)}`;
  const add = ({ subscription, kind, start, limit, dead }) => put(`${target}/${path("subscriptions", subscription)}`, {
    kind, start, max_deliveries: limit ? Number(limit) : null, dead_letter: dead || null,
  });
  const { data } = found;
  return html`<div><h1>Stream ${name}</h1><${Loading} of=${found} />
    ${data && html`<${Cards} rows=${[["Messages", count(data.messages)], ["First", count(data.first_offset)], ["Next", count(data.next_offset)]]} />
      <${Facts} rows=${[["Virtual host", vhost], ["Kept for", data.max_age ?? "by size only"], ["Kept bytes", data.max_bytes == null ? "any number" : bytes(data.max_bytes)]]} />
      <div class="actions">
        <${Action} label="Add a subscription" run=${add} fields=${[
          { name: "subscription", label: "Name", required: true },
          { name: "kind", label: "Kind", options: ["shared", "key_shared", "exclusive", "failover"], value: "shared" },
          START,
          { name: "limit", label: "Deliveries of a message at most", type: "number", help: "empty: any number" },
          { name: "dead", label: "Queue for what is given up" },
        ]} />
        <${Action} label="Delete" danger title=${`Delete ${name}`} text="Its messages and its subscriptions are gone."
          confirm=${name} run=${() => remove(target)} done=${() => { location.hash = link("streams", [], { vhost }); }} />
      </div>`}
    <h2>Subscriptions</h2>
    <${Loading} of=${subscriptions} />
    ${subscriptions.data && html`<${Rows} label="Subscriptions" rows=${subscriptions.data.subscriptions} columns=${[
      ["Name", (one) => one.name], ["Kind", (one) => one.kind],
      ["Lag", (one) => count(one.lag), "number"], ["Unacknowledged", (one) => count(one.unacked), "number"],
      ["Consumers", (one) => count(one.consumers), "number"],
      ["Oldest waits", (one) => duration(one.head_age_ms), "number"],
      ["State", (one) => (one.paused ? "paused" : "runs")],
      ["Actions", (one) => html`<div class="actions">
        <${Action} label=${one.paused ? "Resume" : "Pause"} title=${`${one.paused ? "Resume" : "Pause"} ${one.name}`}
          text=${one.paused ? "Its consumers get messages again." : "Nobody gets anything until it is resumed."}
          run=${() => post(`${of(one)}/${one.paused ? "resume" : "pause"}`, {})} />
        <${Action} label="Move" title=${`Move ${one.name}`} text="Deliveries that its consumers hold are void. They get the messages behind the new place."
          fields=${[START]} run=${({ start }) => post(`${of(one)}/seek`, { to: start })} />
        <${Action} label="Delete" danger title=${`Delete ${one.name}`} text="Its place in the stream is forgotten." confirm=${one.name}
          run=${() => remove(of(one))} />
      </div>`],
    ]} />
    ${subscriptions.data.next_page_token && html`<p class="notice">There are more than 1000; the others are not shown here. The page
      of queues has all of them.</p>`}`}</div>`;
}

const START = {
  name: "start", label: "Begin at", value: "earliest", required: true,
  help: "earliest, latest, -1h, pos:4711, or a time such as 2026-11-27T12:00:00Z",
};
