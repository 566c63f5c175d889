/** Policies and operator policies. */

import { html } from "../vendor/preact.js";
import { path } from "../api.js";
import { Action, Data, List, count, parsed, put, remove } from "../parts.js";
import { useEntered } from "../rights.js";
import { t } from "../words.js";

const TARGETS = ["queues", "exchanges", "all", "classic_queues", "quorum_queues", "streams"];

export default function Policies({ user, query, vhosts, names: [kind = "policies"] }) {
  const isOperator = kind === "operator-policies";
  const isAdministrator = user.tags.includes("administrator");
  const entered = useEntered(user, vhosts);
  // Administrators need no permissions in a virtual host for that.
  const settable = isAdministrator ? vhosts : !isOperator && user.tags.includes("policymaker") ? entered : [];
  const may = settable.length > 0;
  const fields = (one = {}) => [
    ...(one.name === undefined ? [
      { name: "vhost", label: t("Virtual host"), options: settable, value: settable.includes(query.vhost) ? query.vhost : settable[0] },
      { name: "name", label: t("Name"), required: true },
    ] : []),
    { name: "pattern", label: t("Pattern of names"), required: true, value: one.pattern ?? "", help: t("a regular expression: {example}", { example: "^orders\\." }) },
    { name: "target", label: t("Applies to"), options: TARGETS, value: one["apply-to"] ?? "queues" },
    { name: "priority", label: t("Priority"), type: "number", value: one.priority ?? 0, help: t("of those that match, the highest counts") },
    { name: "definition", label: t("Rules, as JSON"), type: "textarea", required: true,
      value: one.definition ? JSON.stringify(one.definition, null, 2) : "", help: '{"message-ttl": 60000, "max-length": 1000}' },
  ];
  const save = ({ vhost, name, pattern, target, priority, definition }) => put(path(`/api/${kind}`, vhost, name), {
    pattern, "apply-to": target, priority: Number(priority), definition: parsed(definition),
  });
  const columns = [
    [t("Virtual host"), (one) => one.vhost, "", "vhost"], [t("Name"), (one) => one.name, "", "name"],
    [t("Pattern"), (one) => html`<code>${one.pattern}</code>`, "", "pattern"], [t("Applies to"), (one) => one["apply-to"], "", "apply-to"],
    [t("Priority"), (one) => count(one.priority), "number", "priority"], [t("Rules"), (one) => html`<${Data} value=${one.definition} />`],
    ...(may ? [[t("Actions"), (one) => settable.includes(one.vhost) && html`<div class="actions">
      <${Action} label=${t("Change")} title=${t("Change {name}", { name: one.name })} fields=${fields(one)} run=${(values) => save({ ...values, vhost: one.vhost, name: one.name })} />
      <${Action} label=${t("Delete")} danger title=${t("Delete {name}", { name: one.name })} text=${t("Its rules hold no more.")} run=${() => remove(path(`/api/${kind}`, one.vhost, one.name))} />
    </div>`]] : []),
  ];
  return html`<div><h1>${isOperator ? t("Operator policies") : t("Policies")}</h1>
    <p class="quiet">${isOperator
      ? html`${t("They narrow what policies allow.")} <a href="#/policies">${t("Policies")}</a>`
      : html`${t("They give rules to queues and exchanges by their names.")} <a href="#/policies/operator-policies">${t("Operator policies")}</a>`}</p>
    ${may && html`<div class="actions"><${Action} label=${t("Add a policy")} fields=${fields()} run=${save} /></div>`}
    <${List} label=${t("Policies")} target=${query.vhost ? path(`/api/${kind}`, query.vhost) : `/api/${kind}`} columns=${columns} /></div>`;
}
