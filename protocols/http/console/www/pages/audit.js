/** The audit trail: who administered what, newest first. */

import { html } from "../vendor/preact.js";
import { get, query as asQuery } from "../api.js";
import { change } from "../location.js";
import { Action, Data, Loading, Rows, Time, useLoaded } from "../parts.js";
import { many, t } from "../words.js";

const RESULTS = ["", "done", "refused"];

export default function Audit({ query }) {
  const asked = { user: query.user, action: query.action, result: query.result, from: query.from ?? "-1D" };
  const page = Number(query.page ?? 1);
  const found = useLoaded(`/api/audit${asQuery({ ...asked, page, page_size: 100, sort: "at", sort_reverse: "true" })}`);
  const { data } = found;
  const choose = (event) => {
    event.preventDefault();
    const { user, action, result, from } = event.target.elements;
    change({ user: user.value, action: action.value, result: result.value, from: from.value, page: "" });
  };
  const verify = async () => {
    const broken = (await get("/api/audit/verify")).filter((one) => !one.whole);
    if (broken.length) throw new Error(t("The chain is broken: {entries}", { entries: JSON.stringify(broken) }));
  };
  return html`<div><h1>${t("Audit trail")}</h1>
    <form class="row" role="search" onSubmit=${choose}>
      <label><span>${t("User")}</span><input name="user" data-search defaultValue=${query.user ?? ""} autocomplete="off" /></label>
      <label><span>${t("Action")}</span><input name="action" defaultValue=${query.action ?? ""} autocomplete="off" />
        <small class="quiet">user, queue.delete</small></label>
      <label><span>${t("Result")}</span><select name="result">${RESULTS.map((one) => html`<option value=${one} selected=${one === (query.result ?? "")}>${one || t("any")}</option>`)}</select></label>
      <label><span>${t("Since")}</span><input name="from" defaultValue=${asked.from} /><small class="quiet">${t("-1h, -7D, or a time")}</small></label>
      <button type="submit">${t("Show")}</button>
    </form>
    <div class="actions"><${Action} label=${t("Verify the chain")} text=${t("Each entry has the hash of the one before. It is good if this ends without an error.")} run=${verify} /></div>
    <${Loading} of=${found} />
    ${data && html`<p class="quiet" role="status">${many(data.filtered_count, "{n} entry", "{n} entries")}${data.page_count > 1 && t(", page {page} of {pages}", { page: data.page, pages: data.page_count })}</p>
      <${Rows} label=${t("Entries")} rows=${data.items} columns=${[
        [t("Time"), (one) => html`<${Time} at=${one.at} />`], [t("User"), (one) => one.user], [t("Action"), (one) => one.action],
        [t("Of"), (one) => html`<${Data} value=${one.target} />`], [t("Result"), (one) => one.result], [t("From"), (one) => one.peer ?? "–"],
        [t("More"), (one) => html`<${Data} value=${more(one)} />`],
      ]} />
      ${data.page_count > 1 && html`<nav class="actions" aria-label=${t("Pagination")}>
        <button type="button" disabled=${page <= 1} onClick=${() => change({ page: page - 1 })}>${t("Previous")}</button>
        <button type="button" disabled=${page >= data.page_count} onClick=${() => change({ page: page + 1 })}>${t("Next", {}, "page")}</button></nav>`}`}</div>`;
}

const SHOWN = ["at", "user", "action", "result", "peer", "hash", "prev", "seq", "worker", "target", "protocol"];
const more = (one) => Object.fromEntries(Object.entries(one).filter(([name, value]) => !SHOWN.includes(name) && value));
