/** Policies and operator policies. */

import { html } from "../vendor/preact.js";
import { path } from "../api.js";
import { Action, Data, List, count, parsed, put, remove } from "../parts.js";

const TARGETS = ["queues", "exchanges", "all", "classic_queues", "quorum_queues", "streams"];

export default function Policies({ user, query, vhosts, names: [kind = "policies"] }) {
  const isOperator = kind === "operator-policies";
  const may = user.tags.includes("administrator") || (!isOperator && user.tags.includes("policymaker"));
  const fields = (one = {}) => [
    ...(one.name === undefined ? [
      { name: "vhost", label: "Virtual host", options: vhosts, value: query.vhost || vhosts[0] },
      { name: "name", label: "Name", required: true },
    ] : []),
    { name: "pattern", label: "Pattern of names", required: true, value: one.pattern ?? "", help: "a regular expression: ^orders\\." },
    { name: "target", label: "Applies to", options: TARGETS, value: one["apply-to"] ?? "queues" },
    { name: "priority", label: "Priority", type: "number", value: one.priority ?? 0, help: "of those that match, the highest counts" },
    { name: "definition", label: "Rules, as JSON", type: "textarea", required: true,
      value: one.definition ? JSON.stringify(one.definition, null, 2) : "", help: '{"message-ttl": 60000, "max-length": 1000}' },
  ];
  const save = ({ vhost, name, pattern, target, priority, definition }) => put(path(`/api/${kind}`, vhost, name), {
    pattern, "apply-to": target, priority: Number(priority), definition: parsed(definition),
  });
  const columns = [
    ["Virtual host", (one) => one.vhost, "", "vhost"], ["Name", (one) => one.name, "", "name"],
    ["Pattern", (one) => html`<code>${one.pattern}</code>`, "", "pattern"], ["Applies to", (one) => one["apply-to"], "", "apply-to"],
    ["Priority", (one) => count(one.priority), "number", "priority"], ["Rules", (one) => html`<${Data} value=${one.definition} />`],
    ...(may ? [["Actions", (one) => html`<div class="actions">
      <${Action} label="Change" title=${`Change ${one.name}`} fields=${fields(one)} run=${(values) => save({ ...values, vhost: one.vhost, name: one.name })} />
      <${Action} label="Delete" danger title=${`Delete ${one.name}`} text="Its rules hold no more." run=${() => remove(path(`/api/${kind}`, one.vhost, one.name))} />
    </div>`]] : []),
  ];
  return html`<div><h1>${isOperator ? "Operator policies" : "Policies"}</h1>
    <p class="quiet">${isOperator
      ? html`They narrow what policies allow. <a href="#/policies">Policies</a>`
      : html`They give rules to queues and exchanges by their names. <a href="#/policies/operator-policies">Operator policies</a>`}</p>
    ${may && html`<div class="actions"><${Action} label="Add a policy" fields=${fields()} run=${save} /></div>`}
    <${List} label="Policies" target=${query.vhost ? path(`/api/${kind}`, query.vhost) : `/api/${kind}`} columns=${columns} /></div>`;
}
