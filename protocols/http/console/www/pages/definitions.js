/** Everything that was declared, as a file: taken out, and put in after a look at what would change. */

import { html, useState } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { Action, Data, Rows, count, post } from "../parts.js";
import { useEntered } from "../rights.js";
import { many, t } from "../words.js";

/** [name in the answer, what happens, its class] */
const EFFECTS = [
  ["create", t("would be made"), "good"], ["change", t("would be changed"), ""], ["conflict", t("is another one here: the import would be refused"), "bad"],
  ["kept", t("is another one here, and would stay"), ""],
];

const place = (base, vhost) => (vhost ? path(base, vhost) : base);

export default function Definitions({ user, vhosts }) {
  const [out, setOut] = useState("");
  return html`<div><h1>${t("Definitions")}</h1>
    <p class="quiet">${t("Users, virtual hosts, permissions, policies, queues, exchanges, bindings, sessions and webhooks, in one file that RabbitMQ reads, too. Messages are not in it.")}</p>
    <h2>${t("Export")}</h2>
    <form class="row" onSubmit=${(event) => event.preventDefault()}>
      <${Choice} label=${t("Contents")} value=${out} vhosts=${vhosts} choose=${setOut} />
      <a class="button" download href=${place("/api/definitions", out) + asQuery({ download: out ? `definitions-${out}.json` : "definitions.json" })}>${t("Download definitions")}</a>
    </form>
    <p class="quiet">${t("Hashes of passwords and the passwords of links are in it: keep it as you keep those.")}</p>
    <h2>${t("Import")}</h2>
    <${Import} entered=${useEntered(user, vhosts)} /></div>`;
}

function Choice({ label, value, vhosts, choose }) {
  return html`<label><span>${label}</span><select value=${value} onChange=${(event) => choose(event.target.value)}>
    <option value="">${t("everything")}</option>
    ${vhosts.map((one) => html`<option value=${one}>${t("virtual host {vhost}", { vhost: one })}</option>`)}
  </select></label>`;
}

function Import({ entered }) {
  const [vhost, setVhost] = useState("");
  const [file, setFile] = useState(/** @type {any} */ (null));
  const [effect, setEffect] = useState(/** @type {any} */ (null));
  const [state, setState] = useState({ error: "", done: "" });
  const forget = () => {
    setEffect(null);
    setState({ error: "", done: "" });
  };
  const look = async (event) => {
    event.preventDefault();
    forget();
    const [chosen] = event.target.elements.file.files;
    try {
      const body = JSON.parse(await chosen.text());
      setFile({ name: chosen.name, body });
      setEffect(await post(place("/api/definitions-dry-run", vhost), body));
    } catch (failure) {
      setState({ error: failure instanceof SyntaxError ? t("This is not JSON: {message}", { message: failure.message }) : failure.message, done: "" });
    }
  };
  const load = async () => {
    await post(place("/api/definitions", vhost), file.body);
    setState({ error: "", done: t("{file} was imported.", { file: file.name }) });
    setEffect(null);
  };
  const n = effect === null ? 0 : countOf(effect, "create") + countOf(effect, "change");
  return html`<form class="row" onSubmit=${look}>
      <label><span>${t("File")}</span><input name="file" type="file" accept=".json,application/json" required onChange=${forget} /></label>
      <${Choice} label=${t("Into")} value=${vhost} vhosts=${entered} choose=${(chosen) => { setVhost(chosen); forget(); }} />
      <button type="submit">${t("Show what would change")}</button>
    </form>
    ${state.error && html`<p class="notice bad" role="alert">${state.error}</p>`}
    ${state.done && html`<p class="notice" role="status">${state.done}</p>`}
    ${effect && html`<${Effect} effect=${effect} />
      ${countOf(effect, "conflict") === 0 && n > 0 && html`<div class="actions"><${Action} label=${t("Import definitions")} title=${t("Import {file}", { file: file.name })}
        text=${many(n, "{n} thing changes. Nothing is deleted.", "{n} things change. Nothing is deleted.")} run=${load} /></div>`}`}`;
}

const things = (effect, kind) => Object.entries(effect[kind]).flatMap(([list, found]) => found.map((one) => ({ list, one })));
const countOf = (effect, kind) => things(effect, kind).length;

function Effect({ effect }) {
  const rows = EFFECTS.flatMap(([kind, text, look]) => things(effect, kind).map((row) => ({ ...row, text, look })));
  return html`<div role="status"><p>${EFFECTS.filter(([kind]) => countOf(effect, kind) > 0).map(([kind, text]) => html`<span class="count">${count(countOf(effect, kind))} ${text}. </span>`)}</p>
    ${effect.unknown.length > 0 && html`<p class="notice">${t("Left out, as there is nothing like it here: {names}", { names: effect.unknown.join(", ") })}</p>`}
    <${Rows} label=${t("Changes")} rows=${rows} empty=${t("Nothing: all of it is here already.")} columns=${[
      [t("Effect"), (row) => html`<span class=${row.look}>${row.text}</span>`], [t("List"), (row) => row.list],
      [t("Object"), ({ one: { differs, ...keys } }) => html`<${Data} value=${keys} />`],
      [t("Differs in"), (row) => row.one.differs?.join(", ") ?? "–"],
    ]} /></div>`;
}
