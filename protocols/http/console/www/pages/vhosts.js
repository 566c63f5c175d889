/** Virtual hosts. */

import { html } from "../vendor/preact.js";
import { path } from "../api.js";
import { link } from "../location.js";
import { Action, List, bytes, count, put, rate, remove } from "../parts.js";

export default function Vhosts({ user }) {
  const may = user.tags.includes("administrator");
  const columns = [
    ["Name", (one) => html`<a href=${link("queues", [], { vhost: one.name })}>${one.name}</a>`, "", "name"],
    ["Description", (one) => one.description || "–", "", "description"],
    ["Ready", (one) => count(one.messages_ready), "number", "messages_ready"],
    ["Unacknowledged", (one) => count(one.messages_unacknowledged), "number", "messages_unacknowledged"],
    ["In", (one) => rate(one.message_stats.publish_details), "number", "message_stats.publish_details.rate"],
    ["Out", (one) => rate(one.message_stats.deliver_get_details), "number", "message_stats.deliver_get_details.rate"],
    ["Log", (one) => bytes(one.log_bytes), "number", "log_bytes"],
    ["Worker", (one) => count(one.worker), "number", "worker"],
    ...(may ? [["Actions", (one) => html`<${Action} label="Delete" danger title=${`Delete ${one.name}`} confirm=${one.name}
      text="Its queues, exchanges, policies and messages are gone." run=${() => remove(path("/api/vhosts", one.name))} />`]] : []),
  ];
  return html`<div><h1>Virtual hosts</h1>
    ${may && html`<div class="actions"><${Action} label="Add a virtual host"
      run=${({ name, description }) => put(path("/api/vhosts", name), { description })}
      fields=${[{ name: "name", label: "Name", required: true }, { name: "description", label: "Description" }]} /></div>`}
    <${List} label="Virtual hosts" target="/api/vhosts" columns=${columns} /></div>`;
}
