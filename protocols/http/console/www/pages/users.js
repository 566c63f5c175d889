/** Users, and one of them with what it may do. */

import { html, useState } from "../vendor/preact.js";
import { get, path, query as asQuery } from "../api.js";
import { link } from "../location.js";
import { Action, Facts, List, Loading, Rows, put, remove, useLoaded } from "../parts.js";

const TAGS = "administrator, monitoring, policymaker, management, auditor; empty: no console and no API";
const tagsOf = (one) => [one.tags].flat().join(", ");

export default function Users(props) {
  return props.names.length ? html`<${One} ...${props} />` : html`<${All} />`;
}

function All() {
  const add = ({ name, password, tags }) => put(path("/api/users", name), { password, tags });
  return html`<div><h1>Users</h1>
    <div class="actions"><${Action} label="Add a user" run=${add} fields=${[
      { name: "name", label: "Name", required: true },
      { name: "password", label: "Password", type: "password", required: true },
      { name: "tags", label: "Tags", help: TAGS },
    ]} /></div>
    <${List} label="Users" target="/api/users" columns=${[
      ["Name", (one) => html`<a href=${link("users", [one.name])}>${one.name}</a>`, "", "name"],
      ["Tags", (one) => tagsOf(one) || "–"],
      ["Password", (one) => (one.password_hash ? "yes" : "none: no login by one"), ""],
    ]} /></div>`;
}

const ANY = ".*";

const OPERATIONS = ["write", "read", "configure"];
const RULES = {
  vhost: "It may not enter the virtual host: it has no permissions there.", permission: "Permission",
  "topic-permission": "Topic permission", "topic-guard": "The guard of topics (an ACL file or a broker of tokens)",
  token: "Scopes of the token",
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
  return html`<h2>May it?</h2>
    <form class="row" onSubmit=${ask}>
      <label><span>Virtual host</span><select name="vhost">${vhosts.map((one) => html`<option value=${one}>${one}</option>`)}</select></label>
      <label><span>Operation</span><select name="operation">${OPERATIONS.map((one) => html`<option value=${one}>${one}</option>`)}</select></label>
      <label><span>Exchange or queue</span><input name="of" required autocomplete="off" /><small class="quiet">amq.topic for MQTT topics</small></label>
      <label><span>Key</span><input name="key" autocomplete="off" /><small class="quiet">of a topic exchange; a.b for the topic a/b</small></label>
      <button type="submit">Ask</button>
    </form>
    ${error && html`<p class="notice bad" role="alert">${error}</p>`}
    ${found && html`<div role="status"><p class=${found.allowed ? "good" : "bad"}>${found.allowed ? "Allowed" : "Refused"}</p>
      <ul>${found.rules.map((one) => html`<li>${RULES[one.rule]}${one.pattern !== null && html` <code>${one.pattern}</code>`}: ${
        one.allows ? "allows it" : "refuses it"}</li>`)}</ul></div>`}`;
}

function One({ names: [name], vhosts, user }) {
  const target = path("/api/users", name);
  const found = useLoaded(target);
  const rights = useLoaded(`${target}/permissions`);
  const topics = useLoaded(`${target}/topic-permissions`);
  const { data } = found;
  if (!data) return html`<div><h1>User ${name}</h1><${Loading} of=${found} /></div>`;
  // A request with neither keeps no password, so the hash that there is goes with the tags.
  const setTags = ({ tags }) => put(target, { password_hash: data.password_hash, hashing_algorithm: data.hashing_algorithm, tags });
  const setPassword = ({ password }) => put(target, { password, tags: tagsOf(data).replaceAll(" ", "") });
  const grant = ({ vhost, configure, write, read }) => put(path("/api/permissions", vhost, name), { configure, write, read });
  const grantTopics = ({ vhost, exchange, write, read }) => put(path("/api/topic-permissions", vhost, name), { exchange, write, read });
  const rules = (one = {}) => ["configure", "write", "read"].map((right) => (
    { name: right, label: `May ${right}: a regular expression of names`, value: one[right] ?? ANY }));
  return html`<div><h1>User ${name}</h1><${Loading} of=${found} />
    <${Facts} rows=${[["Tags", tagsOf(data) || "–"], ["Password", data.password_hash ? `yes, ${data.hashing_algorithm}` : "none"]]} />
    ${name === user.name && html`<p class="notice">This is you. Another password or other tags end your session.</p>`}
    <div class="actions">
      <${Action} label="Set password" title=${`Set the password of ${name}`} run=${setPassword}
        fields=${[{ name: "password", label: "Password", type: "password", required: true }]} />
      <${Action} label="Set tags" title=${`Set the tags of ${name}`} run=${setTags}
        fields=${[{ name: "tags", label: "Tags", value: tagsOf(data), help: TAGS }]} />
      <${Action} label="Delete" danger title=${`Delete ${name}`} text="Its connections are closed, and its tokens end." confirm=${name}
        run=${() => remove(target)} done=${() => { location.hash = link("users"); }} />
    </div>
    <h2>Permissions</h2>
    <div class="actions"><${Action} label="Set permissions" run=${grant}
      fields=${[{ name: "vhost", label: "Virtual host", options: vhosts, value: vhosts[0] }, ...rules()]} /></div>
    <${Loading} of=${rights} />
    ${rights.data && html`<${Rows} label="Permissions" rows=${rights.data} empty="It may enter no virtual host." columns=${[
      ["Virtual host", (one) => one.vhost],
      ...["configure", "write", "read"].map((right) => [right[0].toUpperCase() + right.slice(1), (one) => html`<code>${one[right]}</code>`]),
      ["Actions", (one) => html`<div class="actions">
        <${Action} label="Change" title=${`Change the permissions in ${one.vhost}`} fields=${rules(one)}
          run=${(values) => grant({ ...values, vhost: one.vhost })} />
        <${Action} label="Clear" danger title=${`Clear the permissions in ${one.vhost}`} text="The user may not enter it any more."
          run=${() => remove(path("/api/permissions", one.vhost, name))} /></div>`],
    ]} />`}
    <${May} name=${name} vhosts=${vhosts} />
    <h2>Permissions for routing keys of topic exchanges, and for MQTT topics</h2>
    <div class="actions"><${Action} label="Set topic permissions" run=${grantTopics} fields=${[
      { name: "vhost", label: "Virtual host", options: vhosts, value: vhosts[0] },
      { name: "exchange", label: "Topic exchange", value: "amq.topic", required: true, help: "MQTT topics are keys of amq.topic, with . for /" },
      { name: "write", label: "May write: a regular expression of keys", value: ANY },
      { name: "read", label: "May read: a regular expression of keys", value: ANY },
    ]} /></div>
    <${Loading} of=${topics} />
    ${topics.data && html`<${Rows} label="Topic permissions" rows=${topics.data} empty="Every key is allowed where the exchange is." columns=${[
      ["Virtual host", (one) => one.vhost], ["Exchange", (one) => one.exchange],
      ["Write", (one) => html`<code>${one.write}</code>`], ["Read", (one) => html`<code>${one.read}</code>`],
      ["Actions", (one) => html`<${Action} label="Clear" danger title=${`Clear the rule for ${one.exchange} in ${one.vhost}`}
        text="Every key is allowed there again."
        run=${() => remove(path("/api/topic-permissions", one.vhost, name, one.exchange))} />`],
    ]} />`}</div>`;
}
