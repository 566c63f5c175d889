/** The certificates that listeners show, when they end, and reading their files again. */

import { html } from "../vendor/preact.js";
import { Action, Loading, Rows, Time, count, post, useLoaded } from "../parts.js";
import { many, t } from "../words.js";

const DAY_MS = 86400e3;
/** Days before the end of a certificate at which the page warns. */
const WARNS = 30;

const daysLeft = (one) => Math.floor((one.not_after - Date.now()) / DAY_MS);

export default function Certificates({ user }) {
  const found = useLoaded("/api/certificates", 30000);
  const { data } = found;
  return html`<div><h1>${t("Certificates")}</h1><${Loading} of=${found} />
    ${data && html`
      ${data.fault && html`<p class="notice bad" role="alert">${t("The files were changed and cannot be used, so the old certificates hold: {why}", { why: data.fault })}</p>`}
      ${data.chains.length === 0
        ? html`<p class="notice">${t("No listener has TLS. Set tls.cert_file and a tls_listen in the configuration to have some.")}</p>`
        : html`<p class="quiet">${t("New connections get these. The gateway looks at the files every two seconds, and reads them again when they change.")}</p>`}
      ${user.tags.includes("administrator") && data.chains.length > 0 && html`<div class="actions">
        <${Action} label=${t("Reload")} title=${t("Reload the certificates")} text=${t("The files are read now. If they cannot be used, the old certificates hold, and you are told why.")}
          run=${() => post("/api/certificates/reload", {})} /></div>`}
      ${data.chains.map((chain) => html`<${Chain} chain=${chain} />`)}
      ${data.chains.length > 0 && html`<h2>${t("Listeners with TLS")}</h2>
        <${Rows} label=${t("Listeners with TLS")} rows=${data.listeners} columns=${[[t("Protocol"), (one) => one.protocol], [t("Address"), (one) => one.address]]} />`}`}</div>`;
}

function Chain({ chain }) {
  const name = chain.name;
  return html`<h2>${name ? t("For clients that ask for {name}", { name }) : t("For all other clients")}</h2>
    <p class="quiet"><code>${chain.file}</code></p>
    ${chain.fault && html`<p class="notice bad" role="alert">${t("They are served, and cannot be described: {why}", { why: chain.fault })}</p>`}
    ${chain.certificates.map((one) => html`<${Warning} one=${one} />`)}
    ${chain.certificates.length > 0 && html`<${Rows} label=${name || t("Certificates")} rows=${chain.certificates} columns=${[
      [t("Subject"), (one) => one.subject || "–"], [t("Names"), (one) => one.names.join(", ") || "–"], [t("Issuer"), (one) => one.issuer],
      [t("From", {}, "start"), (one) => html`<${Time} at=${one.not_before} />`], [t("Ends"), (one) => html`<${Time} at=${one.not_after} />`],
      [t("Days left"), (one) => count(daysLeft(one)), "number"],
      [t("Fingerprint (SHA-256)"), (one) => html`<code>${one.sha256}</code>`],
    ]} />`}`;
}

function Warning({ one }) {
  const days = daysLeft(one);
  if (days >= WARNS) return null;
  return html`<p class="notice bad" role="alert">${days < 0
    ? t("{subject} has ended. Clients that verify it are refused. Put another certificate into the file.", { subject: one.subject })
    : many(days, "{subject} ends in {n} day. Put another certificate into the file.", "{subject} ends in {n} days. Put another certificate into the file.", { subject: one.subject })}</p>`;
}
