/** Messages that wait for their time, the first due first; deleting one. */

import { html } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { change } from "../location.js";
import { Action, Loading, Rows, Time, bytes, remove, useLoaded } from "../parts.js";

/** Messages of all virtual hosts that the gateway looks at for a page. */
const LOOKED_AT = 500;
/** They are read from the disk. */
const EVERY_MS = 30000;

export default function Delayed({ query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const target = `${path("/v1/vhosts", vhost ?? "")}/delayed`;
  const found = useLoaded(vhost === undefined ? null : target + asQuery({ max: LOOKED_AT, cursor: query.cursor }), EVERY_MS);
  const { data } = found;
  return html`<div><h1>Delayed messages${vhost && ` of ${vhost}`}</h1>
    <p class="quiet">These messages wait for their time. Where each goes is decided then, by the bindings of that moment.</p>
    <${Loading} of=${found} />
    ${data && html`
      <${Rows} label="Delayed messages" rows=${data.messages} empty=${data.cursor ? "There are none among those looked at." : "There are none."} columns=${[
        ["Due", (one) => html`<${Time} at=${one.due_at} exact />`],
        ["Exchange", (one) => one.exchange || "(default exchange)"], ["Routing key or topic", (one) => one.topic ?? one.routing_key],
        ["Protocol", (one) => one.protocol], ["Size", (one) => bytes(one.size), "number"],
        ["Published", (one) => html`<${Time} at=${one.scheduled_at} />`],
        ["Actions", (one) => one.may_cancel && html`<${Action} label="Delete" title="Delete the delayed message" danger
          text=${`The message to ${one.topic ?? (one.routing_key || one.exchange)} never comes.`} run=${() => remove(path(target, one.id))} />`],
      ]} />
      ${(query.cursor || data.cursor) && html`<nav class="actions" aria-label="Pagination">
        <button type="button" disabled=${!query.cursor} onClick=${() => change({ cursor: "" })}>First</button>
        <button type="button" disabled=${!data.cursor} onClick=${() => change({ cursor: data.cursor })}>Next</button></nav>`}`}</div>`;
}
