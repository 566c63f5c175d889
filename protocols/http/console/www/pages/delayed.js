/** Messages that wait for their time, the first due first; deleting one. */

import { html } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { change } from "../location.js";
import { Action, Loading, Rows, Time, bytes, remove, useLoaded } from "../parts.js";
import { t } from "../words.js";

/** Messages of all virtual hosts that the gateway looks at for a page. */
const LOOKED_AT = 500;
/** They are read from the disk. */
const EVERY_MS = 30000;

export default function Delayed({ query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const target = `${path("/v1/vhosts", vhost ?? "")}/delayed`;
  const found = useLoaded(vhost === undefined ? null : target + asQuery({ max: LOOKED_AT, cursor: query.cursor }), EVERY_MS);
  const { data } = found;
  return html`<div><h1>${vhost ? t("Delayed messages of {vhost}", { vhost }) : t("Delayed messages")}</h1>
    <p class="quiet">${t("These messages wait for their time. Where each goes is decided then, by the bindings of that moment.")}</p>
    <${Loading} of=${found} />
    ${data && html`
      <${Rows} label=${t("Delayed messages")} rows=${data.messages} empty=${data.cursor ? t("There are none among those looked at.") : t("There are none.")} columns=${[
        [t("Due"), (one) => html`<${Time} at=${one.due_at} exact />`],
        [t("Exchange"), (one) => one.exchange || t("(default exchange)")], [t("Routing key or topic"), (one) => one.topic ?? one.routing_key],
        [t("Protocol"), (one) => one.protocol], [t("Size"), (one) => bytes(one.size), "number"],
        [t("Published", {}, "at"), (one) => html`<${Time} at=${one.scheduled_at} />`],
        [t("Actions"), (one) => one.may_cancel && html`<${Action} label=${t("Delete")} title=${t("Delete the delayed message")} danger
          text=${t("The message to {place} never comes.", { place: one.topic ?? (one.routing_key || one.exchange) })} run=${() => remove(path(target, one.id))} />`],
      ]} />
      ${(query.cursor || data.cursor) && html`<nav class="actions" aria-label=${t("Pagination")}>
        <button type="button" disabled=${!query.cursor} onClick=${() => change({ cursor: "" })}>${t("First", {}, "page")}</button>
        <button type="button" disabled=${!data.cursor} onClick=${() => change({ cursor: data.cursor })}>${t("Next", {}, "page")}</button></nav>`}`}</div>`;
}
