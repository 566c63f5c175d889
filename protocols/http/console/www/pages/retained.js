/** Retained messages of MQTT topics; clearing one. */

import { html } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { change } from "../location.js";
import { Action, List, Time, bytes, post } from "../parts.js";

/** The most topics that the gateway lists. */
const MOST = "10,000";

export default function Retained({ query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const choose = (event) => {
    event.preventDefault();
    change({ topic: event.target.elements.topic.value, page: "" });
  };
  const clear = (topic) => post(`${path("/v1/vhosts", vhost)}/mqtt/messages${asQuery({ topic, retain: true })}`, { value: "" });
  return html`<div><h1>Retained messages${vhost && ` of ${vhost}`}</h1>
    <p class="quiet">The last message of each topic that was published with RETAIN; new subscribers get it. At most ${MOST} topics are listed: a topic filter shows others.</p>
    <form class="row" onSubmit=${choose}>
      <label><span>Topic filter</span><input name="topic" defaultValue=${query.topic ?? "#"} autocomplete="off" required /><small class="quiet">with + and #</small></label>
      <button type="submit">Show</button>
    </form>
    ${vhost !== undefined && html`<${List} label="Retained messages" target=${path("/api/retained", vhost)} fields=${{ topic: query.topic }}
      search="Text in the topic" columns=${[
        ["Topic", (one) => one.name, "", "name"], ["Size", (one) => bytes(one.size), "number", "size"],
        ["Published", (one) => html`<${Time} at=${one.stored_at} />`, "", "stored_at"],
        ["Expires", (one) => html`<${Time} at=${one.expires_at} />`, "", "expires_at"],
        ["Actions", (one) => one.may_clear && html`<${Action} label="Clear" title="Clear the retained message" danger
          text=${`New subscribers to ${one.name} get nothing. Those who are there get an empty message, as MQTT says.`} run=${() => clear(one.name)} />`],
      ]} />`}</div>`;
}
