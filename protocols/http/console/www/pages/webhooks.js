/** Webhooks of a virtual host, and one of them: its state, its attempts, what may be done with it. */

import { html, useState } from "../vendor/preact.js";
import { path } from "../api.js";
import { link } from "../location.js";
import { Action, Cards, Data, Facts, Loading, Rows, Time, count, post, remove, tenths, useLoaded } from "../parts.js";
import { useMayAt } from "../rights.js";
import { many, t } from "../words.js";

const base = (vhost, ...names) => `${path("/v1/vhosts", vhost)}/${path("webhooks", ...names)}`.replace(/\/$/, "");
const ATTEMPTS = 100;

export default function Webhooks(props) {
  return props.names.length === 2 ? html`<${One} ...${props} />` : html`<${All} ...${props} />`;
}

/** The share of requests that the receiver took, since the start of the gateway. */
const success = (one) => (one.requests ? `${tenths(100 * one.results.done / one.requests)} %` : "–");
const took = (ms) => (ms === null ? "–" : `${tenths(ms)} ${t("ms")}`);
/** States in which the gateway sends nothing, so that it refuses to begin with something else. */
const RESTS = ["paused", "disabled", "pending", "broken"];
const TIME = t("-1h, -7D, pos:4711, or a time such as 2026-11-27T12:00:00Z");

function All({ query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const found = useLoaded(vhost === undefined ? null : path("/api/webhooks", vhost));
  return html`<div><h1>${vhost ? t("Webhooks of {vhost}", { vhost }) : t("Webhooks")}</h1>
    <p class="quiet">${t("A webhook sends messages of a queue, an exchange, a topic or a stream to a URL. The command penstock webhooks makes one.")}</p>
    <${Loading} of=${found} />
    ${found.data && html`<${Rows} label=${t("Webhooks")} rows=${found.data} columns=${[
      [t("Name"), (one) => html`<a href=${link("webhooks", [vhost, one.name])}>${one.name}</a>`], [t("State"), (one) => one.state],
      [t("From"), (one) => html`<${Data} value=${one.source} />`], [t("To"), (one) => one.url],
      [t("Waiting"), (one) => count(one.backlog), "number"], [t("Delivered"), (one) => count(one.delivered), "number"],
      [t("Success"), success, "number"], [t("p99"), (one) => took(one.p99_ms), "number"], [t("Dead letters"), (one) => count(one.dead), "number"],
    ]} />`}</div>`;
}

function One({ user, names: [vhost, name] }) {
  const target = base(vhost, name);
  // Who may not configure it sees it as the list does.
  const may = useMayAt(user, vhost, "configure", `webhook.${name}`);
  const found = useLoaded(path("/api/webhooks", vhost, name));
  const { data: end } = useLoaded(may ? `${target}/attempts?from=next&max=1` : null);
  const first = end && Math.max(end.first_offset, end.next_offset - ATTEMPTS);
  const attempts = useLoaded(end && `${target}/attempts?from=${first}&max=${ATTEMPTS}`);
  const [secret, setSecret] = useState(/** @type {any} */ (null));
  const { data } = found;
  if (!data) return html`<div><h1>${t("Webhook {name}", { name })}</h1><${Loading} of=${found} /></div>`;
  const paused = data.state === "paused" || data.state === "disabled";
  const rests = RESTS.includes(data.state);
  const rows = (attempts.data?.messages ?? []).map((one) => JSON.parse(one.value)).reverse();
  const known = new Set(["name", "vhost", "state", "backlog", "delivered", "url", "source", "p50_ms", "p99_ms", "dead", "reason", "last_error", "last_at"]);
  return html`<div><h1>${t("Webhook {name}", { name })}</h1><${Loading} of=${found} />
    ${data.reason && html`<p class="notice bad" role="status">${t("It sends nothing: {why}", { why: data.reason })}</p>`}
    ${data.last_error && html`<p class="notice" role="status">${t("The last error: {why}", { why: data.last_error })}</p>`}
    <${Cards} rows=${[[t("State"), data.state], [t("Waiting"), count(data.backlog)], [t("Delivered"), count(data.delivered)],
      [t("Success"), success(data), many(data.requests, "of {n} request since the start", "of {n} requests since the start")],
      [t("Half took at most"), took(data.p50_ms)], [t("99 % took at most"), took(data.p99_ms), t("of the last 500 requests")],
      [t("Dead letters"), count(data.dead)]]} />
    ${may && html`<div class="actions">
      <${Action} label=${paused ? t("Resume") : t("Pause")} title=${paused ? t("Resume {name}", { name }) : t("Pause {name}", { name })}
        text=${paused ? t("Messages are sent again.") : t("Nothing is sent until it is resumed. Messages wait.")} run=${() => post(`${target}/${paused ? "resume" : "pause"}`, {})} />
      <${Action} label=${t("Send a test")} title=${t("Send a test to {name}", { name })} text=${t("A test message is sent to {url}.", { url: data.url })} run=${() => post(`${target}/test`, {})} />
      ${!rests && html`<${Action} label=${t("Replay")} title=${t("Replay to {name}", { name })} text=${t("Messages that its source had in this time are sent again, beside those that come.")}
        fields=${[{ name: "from", label: t("From", {}, "start"), required: true, help: TIME }, { name: "to", label: t("To", {}, "end"), help: t("empty: now") }]}
        run=${({ from, to }) => post(`${target}/replay`, { from, ...(to && { to }) })} />`}
      ${!rests && data.dead > 0 && html`<${Action} label=${t("Redrive")} title=${t("Redrive the dead letters of {name}", { name })}
        text=${many(data.dead, "{n} message that it gave up is sent again.", "{n} messages that it gave up are sent again.")} run=${() => post(`${target}/redrive`, { max: data.dead })} />`}
      ${data.signing !== "none" && html`<${Action} label=${t("Rotate the secret")} title=${t("Rotate the secret of {name}", { name })}
        text=${t("Requests are signed with a new secret, which is shown once, and for a while with the old one, too. Have the receiver accept both before.")}
        fields=${[{ name: "hours", label: t("The old one signs for so many hours"), type: "number", value: 24, min: 0, max: 720, required: true }]}
        run=${async ({ hours }) => setSecret(await post(`${target}/rotate-secret`, { overlap_ms: Number(hours) * 3600e3 }))} />`}
      <${Action} label=${t("Delete")} danger title=${t("Delete {name}", { name })} text=${t("Nothing is sent any more, and its attempts are forgotten.")} confirm=${name}
        run=${() => remove(target)} done=${() => { location.hash = link("webhooks", [], { vhost }); }} />
    </div>`}
    ${secret && html`<div class="notice" role="status"><p>${t("This is the new secret. Copy it now: it is shown once.")}</p>
      <div class="line"><pre tabindex="0" aria-label=${t("Secret")}>${secret.secret}</pre>
        ${navigator.clipboard && html`<button type="button" onClick=${() => navigator.clipboard.writeText(secret.secret)}>${t("Copy")}</button>`}
        <button type="button" onClick=${() => setSecret(null)}>${t("Hide")}</button></div>
      ${secret.public_key && html`<p>${t("The receiver verifies with the public key")} <code>${secret.public_key}</code></p>`}</div>`}
    <${Facts} rows=${[[t("Virtual host"), vhost], [t("From"), html`<${Data} value=${data.source} />`], [t("To"), data.url],
      ...Object.entries(data).filter(([field, value]) => !known.has(field) && value !== null && value !== "").map(([field, value]) => [
        field.replaceAll("_", " "), html`<${Data} value=${typeof value === "object" ? value : String(value)} />`])]} />
    ${may && html`<h2>${t("The last attempts")}</h2>
    <${Loading} of=${attempts} />`}
    ${attempts.data && html`<${Rows} label=${t("Attempts")} rows=${rows} empty=${t("There are none.")} columns=${[
      [t("Time"), (one) => html`<${Time} at=${one.at} exact />`], [t("Result"), (one) => one.result], [t("Status"), (one) => one.status || "–", "number"],
      [t("Attempt"), (one) => count(one.attempt), "number"], [t("Took"), (one) => `${one.ms} ${t("ms")}`, "number"],
      [t("Messages"), (one) => one.positions.map((position) => html`<a href=${link("search", [vhost, `0:${position}`])}>0:${position}</a> `)],
      [t("Answer"), (one) => one.answer || "–"],
    ]} />`}</div>`;
}
