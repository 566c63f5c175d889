/** Virtual hosts. */

import { html } from "../vendor/preact.js";
import { path } from "../api.js";
import { link } from "../location.js";
import { Action, List, bytes, count, put, rate, remove } from "../parts.js";
import { t } from "../words.js";

export default function Vhosts({ user }) {
  const may = user.tags.includes("administrator");
  const columns = [
    [t("Name"), (one) => html`<a href=${link("queues", [], { vhost: one.name })}>${one.name}</a>`, "", "name"],
    [t("Description"), (one) => one.description || "–", "", "description"],
    [t("Ready"), (one) => count(one.messages_ready), "number", "messages_ready"],
    [t("Unacknowledged"), (one) => count(one.messages_unacknowledged), "number", "messages_unacknowledged"],
    [t("In"), (one) => rate(one.message_stats.publish_details), "number", "message_stats.publish_details.rate"],
    [t("Out"), (one) => rate(one.message_stats.deliver_get_details), "number", "message_stats.deliver_get_details.rate"],
    [t("Log"), (one) => bytes(one.log_bytes), "number", "log_bytes"],
    [t("Worker"), (one) => count(one.worker), "number", "worker"],
    ...(may ? [[t("Actions"), (one) => html`<${Action} label=${t("Delete")} danger title=${t("Delete {name}", { name: one.name })} confirm=${one.name}
      text=${t("Its queues, exchanges, policies and messages are gone.")} run=${() => remove(path("/api/vhosts", one.name))} />`]] : []),
  ];
  return html`<div><h1>${t("Virtual hosts")}</h1>
    ${may && html`<div class="actions"><${Action} label=${t("Add a virtual host")}
      run=${({ name, description }) => put(path("/api/vhosts", name), { description })}
      fields=${[{ name: "name", label: t("Name"), required: true }, { name: "description", label: t("Description") }]} /></div>`}
    <${List} label=${t("Virtual hosts")} target="/api/vhosts" columns=${columns} /></div>`;
}
