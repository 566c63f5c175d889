/** Users, and one of them with what it may do. */

import { html, useState } from "../vendor/preact.js";
import { get, path, query as asQuery } from "../api.js";
import { link } from "../location.js";
import { Action, Facts, List, Loading, Rows, put, remove, useLoaded } from "../parts.js";
import { t } from "../words.js";

const TAGS = t("administrator, monitoring, policymaker, management, auditor; empty: no console and no API");
const tagsOf = (one) => [one.tags].flat().join(", ");

export default function Users(props) {
  return props.names.length ? html`<${One} ...${props} />` : html`<${All} />`;
}

function All() {
  const add = ({ name, password, tags }) => put(path("/api/users", name), { password, tags });
  return html`<div><h1>${t("Users")}</h1>
    <div class="actions"><${Action} label=${t("Add a user")} run=${add} fields=${[
      { name: "name", label: t("Name"), required: true },
      { name: "password", label: t("Password"), type: "password", required: true },
      { name: "tags", label: t("Tags"), help: TAGS },
    ]} /></div>
    <${List} label=${t("Users")} target="/api/users" columns=${[
      [t("Name"), (one) => html`<a href=${link("users", [one.name])}>${one.name}</a>`, "", "name"],
      [t("Tags"), (one) => tagsOf(one) || "–"],
      [t("Password"), (one) => (one.password_hash ? t("yes") : t("none: no login by one")), ""],
    ]} /></div>`;
}

const ANY = ".*";
const MAY = {
  configure: t("May configure: a regular expression of names"), write: t("May write: a regular expression of names"),
  read: t("May read: a regular expression of names"),
};

const OPERATIONS = ["write", "read", "configure"];
const RULES = {
  vhost: t("It may not enter the virtual host: it has no permissions there."), permission: t("Permission"),
  "topic-permission": t("Topic permission"), "topic-guard": t("The guard of topics (an ACL file or a broker of tokens)"),
  token: t("Scopes of the token"),
};

/** Whether the user may do something, and which rule says so. */
function May({ name, vhosts }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  const ask = async (event) => {
    event.preventDefault();
    const { vhost, operation, of, key } = event.target.elements;
    const asked = { user: name, vhost: vhost.value, operation: operation.value, name: of.value, routing_key: key.value };
    setError("");
    try {
      setFound(await get(`/api/may${asQuery(asked)}`));
    } catch (refusal) {
      setFound(null);
      setError(refusal.message);
    }
  };
  return html`<h2>${t("May it?")}</h2>
    <form class="row" onSubmit=${ask}>
      <label><span>${t("Virtual host")}</span><select name="vhost">${vhosts.map((one) => html`<option value=${one}>${one}</option>`)}</select></label>
      <label><span>${t("Operation")}</span><select name="operation">${OPERATIONS.map((one) => html`<option value=${one}>${one}</option>`)}</select></label>
      <label><span>${t("Exchange or queue")}</span><input name="of" required autocomplete="off" /><small class="quiet">${t("amq.topic for MQTT topics")}</small></label>
      <label><span>${t("Key")}</span><input name="key" autocomplete="off" /><small class="quiet">${t("of a topic exchange; a.b for the topic a/b")}</small></label>
      <button type="submit">${t("Ask")}</button>
    </form>
    ${error && html`<p class="notice bad" role="alert">${error}</p>`}
    ${found && html`<div role="status"><p class=${found.allowed ? "good" : "bad"}>${found.allowed ? t("Allowed") : t("Refused")}</p>
      <ul>${found.rules.map((one) => html`<li>${RULES[one.rule]}${one.pattern !== null && html` <code>${one.pattern}</code>`}: ${
        one.allows ? t("allows it") : t("refuses it")}</li>`)}</ul></div>`}`;
}

function One({ names: [name], vhosts, user }) {
  const target = path("/api/users", name);
  const found = useLoaded(target);
  const rights = useLoaded(`${target}/permissions`);
  const topics = useLoaded(`${target}/topic-permissions`);
  const { data } = found;
  if (!data) return html`<div><h1>${t("User {name}", { name })}</h1><${Loading} of=${found} /></div>`;
  // A request with neither keeps no password, so the hash that there is goes with the tags.
  const setTags = ({ tags }) => put(target, { password_hash: data.password_hash, hashing_algorithm: data.hashing_algorithm, tags });
  const setPassword = ({ password }) => put(target, { password, tags: tagsOf(data).replaceAll(" ", "") });
  const grant = ({ vhost, configure, write, read }) => put(path("/api/permissions", vhost, name), { configure, write, read });
  const grantTopics = ({ vhost, exchange, write, read }) => put(path("/api/topic-permissions", vhost, name), { exchange, write, read });
  const rules = (one = {}) => Object.keys(MAY).map((right) => (
    { name: right, label: MAY[right], value: one[right] ?? ANY }));
  return html`<div><h1>${t("User {name}", { name })}</h1><${Loading} of=${found} />
    <${Facts} rows=${[[t("Tags"), tagsOf(data) || "–"], [t("Password"), data.password_hash ? t("yes, {algorithm}", { algorithm: data.hashing_algorithm }) : t("none")]]} />
    ${name === user.name && html`<p class="notice">${t("This is you. Another password or other tags end your session.")}</p>`}
    <div class="actions">
      <${Action} label=${t("Set password")} title=${t("Set the password of {name}", { name })} run=${setPassword}
        fields=${[{ name: "password", label: t("Password"), type: "password", required: true }]} />
      <${Action} label=${t("Set tags")} title=${t("Set the tags of {name}", { name })} run=${setTags}
        fields=${[{ name: "tags", label: t("Tags"), value: tagsOf(data), help: TAGS }]} />
      <${Action} label=${t("Delete")} danger title=${t("Delete {name}", { name })} text=${t("Its connections are closed, and its tokens end.")} confirm=${name}
        run=${() => remove(target)} done=${() => { location.hash = link("users"); }} />
    </div>
    <h2>${t("Permissions")}</h2>
    <div class="actions"><${Action} label=${t("Set permissions")} run=${grant}
      fields=${[{ name: "vhost", label: t("Virtual host"), options: vhosts, value: vhosts[0] }, ...rules()]} /></div>
    <${Loading} of=${rights} />
    ${rights.data && html`<${Rows} label=${t("Permissions")} rows=${rights.data} empty=${t("It may enter no virtual host.")} columns=${[
      [t("Virtual host"), (one) => one.vhost],
      ...[["configure", t("Configure")], ["write", t("Write")], ["read", t("Read")]].map(([right, title]) => [title, (one) => html`<code>${one[right]}</code>`]),
      [t("Actions"), (one) => html`<div class="actions">
        <${Action} label=${t("Change")} title=${t("Change the permissions in {vhost}", { vhost: one.vhost })} fields=${rules(one)}
          run=${(values) => grant({ ...values, vhost: one.vhost })} />
        <${Action} label=${t("Clear")} danger title=${t("Clear the permissions in {vhost}", { vhost: one.vhost })} text=${t("The user may not enter it any more.")}
          run=${() => remove(path("/api/permissions", one.vhost, name))} /></div>`],
    ]} />`}
    <${May} name=${name} vhosts=${vhosts} />
    <h2>${t("Permissions for routing keys of topic exchanges, and for MQTT topics")}</h2>
    <div class="actions"><${Action} label=${t("Set topic permissions")} run=${grantTopics} fields=${[
      { name: "vhost", label: t("Virtual host"), options: vhosts, value: vhosts[0] },
      { name: "exchange", label: t("Topic exchange"), value: "amq.topic", required: true, help: t("MQTT topics are keys of amq.topic, with . for /") },
      { name: "write", label: t("May write: a regular expression of keys"), value: ANY },
      { name: "read", label: t("May read: a regular expression of keys"), value: ANY },
    ]} /></div>
    <${Loading} of=${topics} />
    ${topics.data && html`<${Rows} label=${t("Topic permissions")} rows=${topics.data} empty=${t("Every key is allowed where the exchange is.")} columns=${[
      [t("Virtual host"), (one) => one.vhost], [t("Exchange"), (one) => one.exchange],
      [t("Write"), (one) => html`<code>${one.write}</code>`], [t("Read"), (one) => html`<code>${one.read}</code>`],
      [t("Actions"), (one) => html`<${Action} label=${t("Clear")} danger title=${t("Clear the rule for {exchange} in {vhost}", { exchange: one.exchange, vhost: one.vhost })}
        text=${t("Every key is allowed there again.")}
        run=${() => remove(path("/api/topic-permissions", one.vhost, name, one.exchange))} />`],
    ]} />`}</div>`;
}
