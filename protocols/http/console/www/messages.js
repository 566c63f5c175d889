/** Messages as data: the payload is text or bytes, and never anything that a browser would run. */

import { html } from "./vendor/preact.js";
import { link } from "./location.js";
import { Data, Rows, Time, bytes } from "./parts.js";
import { many, t } from "./words.js";

/**
 * @param {{of: any[], vhost: string, empty?: string, past?: boolean, queue?: string}} props as `/v1` shows messages
 *   `past`: they are of the log, not of a queue; `queue`: they were found in it, whose reader may see them
 */
export function Messages({ of, vhost, empty = t("Nothing is ready."), past = false, queue }) {
  return html`<${Rows} label=${t("Messages")} rows=${of} empty=${empty} columns=${[
    [t("Position"), (one) => html`<a href=${link("search", [vhost, one.id], { queue })}>${one.id}</a>`], [t("Published", {}, "at"), (one) => html`<${Time} at=${one.published_at} />`],
    [t("Exchange"), (one) => one.exchange || t("(default exchange)")], [t("Routing key"), (one) => one.routing_key],
    ...(past ? [] : [[t("Delivered before"), (one) => (one.deliveries ? many(one.deliveries, "{n} time", "{n} times") : one.redelivered ? t("yes") : t("no"))]]),
    [t("Headers"), (one) => html`<${Data} value=${one.headers} />`],
    [t("Payload"), (one) => html`<${Payload} of=${one} />`],
  ]} />`;
}

export function Payload({ of }) {
  if (of.value !== undefined) return html`<pre tabindex="0">${of.value}</pre>`;
  const raw = atob(of.value_b64 ?? "");
  const rows = [];
  for (let at = 0; at < Math.min(raw.length, 1024); at += 16) {
    const part = [...raw.slice(at, at + 16)];
    const hex = part.map((one) => one.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
    const text = part.map((one) => (one >= " " && one <= "~" ? one : ".")).join("");
    rows.push(`${at.toString(16).padStart(4, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return html`<div><p class="quiet">${t("{size}, not text", { size: bytes(raw.length) })}${raw.length > 1024 && t("; the first 1024")}</p>
    <pre tabindex="0">${rows.join("\n")}</pre></div>`;
}
