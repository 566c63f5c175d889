/** Messages as data: the payload is text or bytes, and never anything that a browser would run. */

import { html } from "./vendor/preact.js";
import { link } from "./location.js";
import { Data, Rows, Time, bytes, count } from "./parts.js";

/**
 * @param {{of: any[], vhost: string, empty?: string, past?: boolean, queue?: string}} props as `/v1` shows messages
 *   `past`: they are of the log, not of a queue; `queue`: they were found in it, whose reader may see them
 */
export function Messages({ of, vhost, empty = "Nothing is ready.", past = false, queue }) {
  return html`<${Rows} label="Messages" rows=${of} empty=${empty} columns=${[
    ["Position", (one) => html`<a href=${link("search", [vhost, one.id], { queue })}>${one.id}</a>`], ["Published", (one) => html`<${Time} at=${one.published_at} />`],
    ["Exchange", (one) => one.exchange || "(default exchange)"], ["Routing key", (one) => one.routing_key],
    ...(past ? [] : [["Delivered before", (one) => (one.deliveries ? `${count(one.deliveries)} times` : one.redelivered ? "yes" : "no")]]),
    ["Headers", (one) => html`<${Data} value=${one.headers} />`],
    ["Payload", (one) => html`<${Payload} of=${one} />`],
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
  return html`<div><p class="quiet">${bytes(raw.length)}, not text${raw.length > 1024 && "; the first 1024"}</p>
    <pre tabindex="0">${rows.join("\n")}</pre></div>`;
}
