/** Queues that dead letters go to; what a redrive would move, and moving just that. */

import { html, useState } from "../vendor/preact.js";
import { path } from "../api.js";
import { link } from "../location.js";
import { Action, List, Rows, count, post } from "../parts.js";
import { Payload } from "../messages.js";
import { useMayAt } from "../rights.js";
import { many, t } from "../words.js";

const REASONS = ["", "rejected", "expired", "maxlen", "delivery_limit"];
const MOST = 1000;

export default function DeadLetters(props) {
  return props.names.length === 2 ? html`<${One} ...${props} />` : html`<${All} ...${props} />`;
}

const sourcesOf = (one) => [
  ...one.from, ...(one.sources > one.from.length ? [t("{n} more", { n: count(one.sources - one.from.length) })] : []),
  ...one.webhooks.map((name) => t("webhook {name}", { name })),
].join(", ");

function All({ query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  return html`<div><h1>${vhost ? t("Dead letters of {vhost}", { vhost }) : t("Dead letters")}</h1>
    <p class="quiet">${t("These queues get what other queues give up: messages that were rejected, expired, or too many.")}</p>
    ${vhost !== undefined && html`<${List} label=${t("Queues of dead letters")} target=${path("/api/dead-letters", vhost)}
      empty=${t("No queue of this virtual host has a dead-letter exchange that leads to a queue.")} columns=${[
      [t("Name"), (one) => html`<a href=${link("dead-letters", [vhost, one.name])}>${one.name}</a>`, "", "name"],
      [t("Messages"), (one) => count(one.messages), "number", "messages"],
      [t("From"), sourcesOf, "", "sources"],
    ]} />`}</div>`;
}

function One({ user, names: [vhost, name] }) {
  const mayRead = useMayAt(user, vhost, "read", name);
  const mayMove = useMayAt(user, vhost, "write", "amq.default");
  const target = `${path("/v1/vhosts", vhost)}/${path("queues", name)}`;
  const [preview, setPreview] = useState(null);
  const [moved, setMoved] = useState(null);
  const [error, setError] = useState("");
  const ask = async (event) => {
    event.preventDefault();
    const { reason, to, max } = event.target.elements;
    const wanted = { max: Number(max.value), ...(reason.value && { reason: reason.value }), ...(to.value && { to: to.value }) };
    setError("");
    setMoved(null);
    try {
      const [would, seen] = await Promise.all([
        post(`${target}/redrive`, { ...wanted, dry_run: true }),
        post(`${target}/peek`, { max: Math.min(wanted.max, 100) }),
      ]);
      setPreview({ wanted, would: would.messages, seen: new Map(seen.messages.map((one) => [one.id, one])) });
    } catch (refusal) {
      setError(refusal.message);
      setPreview(null);
    }
  };
  const move = async () => {
    // Only what is listed moves; messages that came back meanwhile may be before it, so more are looked at.
    const ids = preview.would.map((one) => one.id);
    const done = await post(`${target}/redrive`, { ...preview.wanted, max: MOST, ids });
    setMoved({ moved: done.messages.length, gone: ids.length - done.messages.length });
    setPreview(null);
  };
  return html`<div><h1>${t("Dead letters in {name}", { name })}</h1>
    <p><a href=${link("queues", [vhost, name])}>${t("The queue itself")}</a></p>
    ${!mayRead && html`<p class="notice">${t("You may not read the messages of this queue.")}</p>`}
    ${mayRead && html`<form class="row" onSubmit=${ask}>
      <label><span>${t("Reason")}</span><select name="reason">${REASONS.map((one) => html`<option value=${one}>${one || t("any")}</option>`)}</select></label>
      <label><span>${t("To, instead of where each died")}</span><input name="to" autocomplete="off" /></label>
      <label><span>${t("Look at so many messages")}</span><input name="max" type="number" min="1" max=${MOST} defaultValue="100" required /></label>
      <button type="submit">${t("Preview")}</button>
    </form>`}
    ${error && html`<p class="notice bad" role="alert">${error}</p>`}
    ${moved && html`<p class="notice" role="status">${
      t("{n} moved.", { n: count(moved.moved) })}${
      moved.gone > 0 && many(moved.gone, " {n} of those listed was gone from the queue.", " {n} of those listed were gone from the queue.")}</p>`}
    ${preview && html`
      <h2>${t("Messages that would move")}</h2>
      <${Rows} label=${t("Messages that would move")} rows=${preview.would} empty=${t("Nothing: no message here is such a dead letter.")} columns=${[
        [t("Position"), (one) => html`<a href=${link("search", [vhost, one.id], { queue: name })}>${one.id}</a>`], [t("To"), (one) => one.to], [t("Reason"), (one) => one.reason],
        [t("Routing key"), (one) => preview.seen.get(one.id)?.routing_key ?? "–"],
        [t("Payload"), (one) => preview.seen.has(one.id) ? html`<${Payload} of=${preview.seen.get(one.id)} />` : "–"],
      ]} />
      ${preview.would.length > 0 && mayMove && html`<div class="actions"><${Action} label=${many(preview.would.length, "Move {n} message", "Move {n} messages")}
        text=${many(preview.would.length, "It goes back, or stays where it is.", "They go back together or not at all.")}
        run=${move} /></div>`}`}</div>`;
}
