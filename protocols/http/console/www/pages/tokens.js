/** Access tokens: programs log in with one instead of a password. */

import { html, useState } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { change } from "../location.js";
import { Action, Loading, Rows, Time, post, remove, useLoaded } from "../parts.js";
import { t } from "../words.js";

const DAY_S = 86400;
const LONGEST_DAYS = 366;

export default function Tokens({ user, query }) {
  const isAdministrator = user.tags.includes("administrator");
  const whose = isAdministrator && query.user ? query.user : user.name;
  const of = whose === user.name ? {} : { user: whose };
  const found = useLoaded(`/v1/tokens${asQuery({ ...of, max: 1000 })}`);
  const [made, setMade] = useState(/** @type {any} */ (null));
  const make = async ({ name, days }) => setMade(await post("/v1/tokens", { name, ttl_s: Number(days) * DAY_S, ...of }));
  const choose = (event) => {
    event.preventDefault();
    setMade(null);
    change({ user: event.target.elements.user.value });
  };
  return html`<div><h1>${t("Tokens of {user}", { user: whose })}</h1>
    <p class="quiet">${t("A program sends a token to the HTTP APIs instead of a name and a password (Authorization: Bearer), and may do what its user may. Only its hash is kept.")}</p>
    ${isAdministrator && html`<form class="row" role="search" onSubmit=${choose}>
      <label><span>${t("User")}</span><input name="user" data-search key=${whose} defaultValue=${whose} autocomplete="off" required /></label>
      <button type="submit">${t("Show")}</button></form>`}
    ${whose === user.name && !user.is_internal_user && html`<p class="notice">${t("You have logged in at an issuer of tokens, so the gateway makes none for you: programs get theirs there.")}</p>`}
    ${(whose !== user.name || user.is_internal_user) && html`<div class="actions"><${Action} label=${t("Make a token")} title=${t("Make a token of {user}", { user: whose })} run=${make} fields=${[
      { name: "name", label: t("Name"), required: true, help: t("says what uses it; one of the same name is replaced") },
      { name: "days", label: t("Good for so many days"), type: "number", value: 30, min: 1, max: LONGEST_DAYS, required: true },
    ]} /></div>`}
    ${made && html`<div class="notice" role="status"><p>${t("This is the token {name}. Copy it now: it is shown once.", { name: made.name })}</p>
      <div class="line"><pre tabindex="0" aria-label=${t("Token")}>${made.token}</pre>
        ${navigator.clipboard && html`<button type="button" onClick=${() => navigator.clipboard.writeText(made.token)}>${t("Copy")}</button>`}
        <button type="button" onClick=${() => setMade(null)}>${t("Hide")}</button></div></div>`}
    <${Loading} of=${found} />
    ${found.data && html`<${Rows} label=${t("Tokens")} rows=${found.data.tokens} columns=${[
      [t("Name"), (one) => one.name], [t("Made"), (one) => html`<${Time} at=${one.made_at} />`], [t("Ends"), (one) => html`<${Time} at=${one.expires_at} />`],
      [t("Actions"), (one) => html`<${Action} label=${t("Revoke")} danger title=${t("Revoke {name}", { name: one.name })}
        text=${t("Nobody logs in with it any more. Requests by HTTP that go on with it are ended.")} run=${() => remove(path("/v1/tokens", one.name) + asQuery(of))} />`],
    ]} />`}</div>`;
}
