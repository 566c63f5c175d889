/** Messages that wait for their time: how many are due in each hour; the first due first; sending one now, and deleting it. */

import { html } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { change, link } from "../location.js";
import { Action, Loading, Rows, Time, bytes, count, post, remove, useLoaded } from "../parts.js";
import { many, t, timeLocale } from "../words.js";

/** Messages of all virtual hosts that the gateway looks at for a page. */
const LOOKED_AT = 500;
/** They are read from the disk. */
const EVERY_MS = 30000;
const COUNTED_MS = 300000;
const HOUR_MS = 3600e3;
/** Those that `/api/delayed-hours` counts at most. */
const ALL_COUNTED = 5e6;
const SEES_ALL = ["monitoring", "administrator"];

export default function Delayed({ query, vhosts, user }) {
  const vhost = query.vhost || vhosts[0];
  const base = path("/v1/vhosts", vhost ?? "");
  const target = `${base}/delayed`;
  const found = useLoaded(vhost === undefined ? null : target + asQuery({ max: LOOKED_AT, cursor: query.cursor }), EVERY_MS);
  const hours = useLoaded(vhost === undefined ? null : `${base}/delayed-hours`, COUNTED_MS);
  // More wait than were counted for the virtual host: who sees all of them gets the counts of all.
  const all = useLoaded(hours.data?.cursor && user.tags.some((tag) => SEES_ALL.includes(tag)) ? "/api/delayed-hours" : null, COUNTED_MS);
  const calendar = all.data ?? hours.data;
  const { data } = found;
  const place = (one) => one.topic ?? (one.routing_key || one.exchange);
  return html`<div><h1>${vhost ? t("Delayed messages of {vhost}", { vhost }) : t("Delayed messages")}</h1>
    <p class="quiet">${t("These messages wait for their time. Where each goes is decided then, by the bindings of that moment.")}</p>
    <${Loading} of=${hours} />
    ${calendar?.hours.length > 0 && html`<h2>${all.data ? t("Due by hour, of all virtual hosts") : t("Due by hour")}</h2>
      <${Calendar} hours=${calendar.hours} whole=${!calendar.cursor && !calendar.more} counted=${all.data ? ALL_COUNTED : 10 * LOOKED_AT} query=${query} />`}
    <${Loading} of=${found} />
    ${data && html`<h2>${query.cursor ? t("Messages from there on") : t("Messages, the first due first")}</h2>
      <${Rows} label=${t("Delayed messages")} rows=${data.messages} empty=${data.cursor ? t("There are none among those looked at.") : t("There are none.")} columns=${[
        [t("Due"), (one) => html`<${Time} at=${one.due_at} exact />`],
        [t("Exchange"), (one) => one.exchange || t("(default exchange)")], [t("Routing key or topic"), (one) => one.topic ?? one.routing_key],
        [t("Protocol"), (one) => one.protocol], [t("Size"), (one) => bytes(one.size), "number"],
        [t("Published", {}, "at"), (one) => html`<${Time} at=${one.scheduled_at} />`],
        [t("Actions"), (one) => one.may_cancel && html`<div class="actions">
          <${Action} label=${t("Send now")} title=${t("Send the delayed message now")}
            text=${t("The message to {place} is published at once, and not again at its time.", { place: place(one) })} run=${() => post(`${path(target, one.id)}/send`, {})} />
          <${Action} label=${t("Delete")} title=${t("Delete the delayed message")} danger
            text=${t("The message to {place} never comes.", { place: place(one) })} run=${() => remove(path(target, one.id))} /></div>`],
      ]} />
      ${(query.cursor || data.cursor) && html`<nav class="actions" aria-label=${t("Pagination")}>
        <button type="button" disabled=${!query.cursor} onClick=${() => change({ cursor: "" })}>${t("First", {}, "page")}</button>
        <button type="button" disabled=${!data.cursor} onClick=${() => change({ cursor: data.cursor })}>${t("Next", {}, "page")}</button></nav>`}`}</div>`;
}

/** A bar for each hour in which messages are due; a click shows them. Days have a heading. */
function Calendar({ hours, whole, counted, query }) {
  const most = Math.max(...hours.map((one) => one.messages));
  const days = /** @type {Map<string, any[]>} */ (new Map());
  for (const one of hours) {
    const day = new Date(one.at).toLocaleDateString(timeLocale, { weekday: "short", year: "numeric", month: "short", day: "numeric" });
    days.set(day, [...(days.get(day) ?? []), one]);
  }
  return html`<div class="hours" tabindex="0" role="region" aria-label=${t("Due by hour")}>
    ${[...days].map(([day, found]) => html`<section><h3>${day}</h3><ul class="plain">${found.map((one) => html`<li>
      <a href=${link("delayed", [], { ...query, cursor: `${one.at}-0` })}>${clock(one.at)}–${clock(one.at + HOUR_MS)}</a>
      <meter min="0" max=${most} value=${one.messages} aria-hidden="true"></meter> ${many(one.messages, "{n} message", "{n} messages")}</li>`)}</ul></section>`)}
    ${!whole && html`<p class="quiet">${t("Only the first {n} of all virtual hosts are counted.", { n: count(counted) })}</p>`}</div>`;
}

const clock = (at) => new Date(at).toLocaleTimeString(timeLocale, { hour: "numeric", minute: "2-digit" });
