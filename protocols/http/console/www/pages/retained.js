/** Retained messages of MQTT topics; clearing one. */

import { html } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { change } from "../location.js";
import { Action, List, Time, bytes, count, post } from "../parts.js";
import { t } from "../words.js";

/** The most topics that the gateway lists. */
const MOST = 10000;

export default function Retained({ query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const choose = (event) => {
    event.preventDefault();
    change({ topic: event.target.elements.topic.value, page: "" });
  };
  const clear = (topic) => post(`${path("/v1/vhosts", vhost)}/mqtt/messages${asQuery({ topic, retain: true })}`, { value: "" });
  return html`<div><h1>${vhost ? t("Retained messages of {vhost}", { vhost }) : t("Retained messages")}</h1>
    <p class="quiet">${
      t("The last message of each topic that was published with RETAIN; new subscribers get it. At most {most} topics are listed: a topic filter shows others.", { most: count(MOST) })}</p>
    <form class="row" onSubmit=${choose}>
      <label><span>${t("Topic filter")}</span><input name="topic" defaultValue=${query.topic ?? "#"} autocomplete="off" required /><small class="quiet">${t("with + and #")}</small></label>
      <button type="submit">${t("Show")}</button>
    </form>
    ${vhost !== undefined && html`<${List} label=${t("Retained messages")} target=${path("/api/retained", vhost)} fields=${{ topic: query.topic }}
      search=${t("Text in the topic")} columns=${[
        [t("Topic"), (one) => one.name, "", "name"], [t("Size"), (one) => bytes(one.size), "number", "size"],
        [t("Published", {}, "at"), (one) => html`<${Time} at=${one.stored_at} />`, "", "stored_at"],
        [t("Expires"), (one) => html`<${Time} at=${one.expires_at} />`, "", "expires_at"],
        [t("Actions"), (one) => one.may_clear && html`<${Action} label=${t("Clear")} title=${t("Clear the retained message")} danger
          text=${t("New subscribers to {name} get nothing. Those who are there get an empty message, as MQTT says.", { name: one.name })} run=${() => clear(one.name)} />`],
      ]} />`}</div>`;
}
