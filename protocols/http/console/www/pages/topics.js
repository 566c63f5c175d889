/** The tree of MQTT topics that have retained messages, with their values; rates of what comes, while somebody looks. */

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { link } from "../location.js";
import { Loading, Rows, Time, bytes, count, tenths, useLoaded } from "../parts.js";
import { useMayAt } from "../rights.js";
import { many, t } from "../words.js";

const EACH_MS = 1000;
/** Seconds over which a rate is meant. */
const SPAN = 5;

export default function Topics({ user, query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const under = query.under ?? "";
  const mayRead = useMayAt(user, vhost, "read", "amq.topic");
  const found = useLoaded(vhost === undefined ? null : path("/api/topics", vhost) + asQuery({ under }), 5000);
  const [measures, setMeasures] = useState(false);
  const rates = useRates(measures && vhost !== undefined ? vhost : null, under);
  const { data } = found;
  const parts = under ? under.split("/") : [];
  const to = (topic) => link("topics", [], { vhost: query.vhost, under: topic });
  // A topic that has no retained message is in the tree while its messages are measured.
  const levels = new Map((data?.levels ?? []).map((one) => [one.name, one]));
  for (const name of rates.names) if (!levels.has(name)) levels.set(name, { name, topic: [...parts, name].join("/"), below: 0, retained: false });
  return html`<div><h1>${vhost ? t("Topics of {vhost}", { vhost }) : t("Topics")}</h1>
    <p class="quiet">${t("Topics that have a retained message, level by level. As a list, with all that can be done:")} <a href=${link("retained", [], { vhost: query.vhost, topic: under && `${under}/#` })}>${t("Retained")}</a></p>
    <nav class="actions" aria-label=${t("Levels above")}>
      <a href=${to("")} aria-current=${under ? undefined : "page"}>${t("All topics")}</a>
      ${parts.map((one, at) => html`<span>/ <a href=${to(parts.slice(0, at + 1).join("/"))} aria-current=${at === parts.length - 1 ? "page" : undefined}>${one || t("(empty)")}</a></span>`)}</nav>
    ${mayRead && html`<div class="actions"><button type="button" aria-pressed=${measures} onClick=${() => setMeasures(!measures)}>${measures ? t("Stop measuring") : t("Measure rates")}</button></div>`}
    ${rates.missed > 0 && html`<p class="notice" role="status">${many(rates.missed, "{n} message was too fast to be counted: the rates are at least these.", "{n} messages were too fast to be counted: the rates are at least these.")}</p>`}
    ${rates.ended && html`<p class="notice" role="alert">${rates.ended}</p>`}
    <${Loading} of=${found} />
    ${data?.more && html`<p class="notice">${t("There are more topics than are looked at. Open a level to see all of it.")}</p>`}
    ${data && html`<${Rows} label=${t("Topics")} rows=${[...levels.values()]} empty=${under ? t("No topic below this one has a retained message.") : t("No topic has a retained message.")} columns=${[
      [t("Level"), (one) => html`<a href=${to(one.topic)}>${one.name || t("(empty)")}</a>`],
      [t("Topics below"), (one) => count(one.below), "number"],
      ...(measures ? [[t("Messages per second"), (one) => tenths(rates.of.get(one.name) ?? 0), "number"]] : []),
      [t("Retained value"), (one) => one.retained ? html`<${Value} of=${one} />` : "–"],
      [t("Size"), (one) => bytes(one.size), "number"], [t("Published", {}, "at"), (one) => html`<${Time} at=${one.stored_at} />`],
    ]} />`}</div>`;
}

/** Bytes of a retained message that the gateway shows here. */
const SHOWN = 256;

function Value({ of }) {
  return html`<pre tabindex="0">${of.value}${of.size > SHOWN ? "…" : ""}</pre>${!of.is_text && html`<small class="quiet">${t("hexadecimal")}</small>`}`;
}

/**
 * Messages per second of each level below a topic, by a tail that is open while somebody looks.
 * @param {string | null} vhost null: nothing is followed @param {string} under
 */
function useRates(vhost, under) {
  const [state, setState] = useState(/** @type {{of: Map<string, number>, names: string[], missed: number, ended: string}} */ ({ of: new Map(), names: [], missed: 0, ended: "" }));
  const seen = useRef(/** @type {Map<string, number[]>} */ (new Map()));
  useEffect(() => {
    seen.current = new Map();
    setState({ of: new Map(), names: [], missed: 0, ended: "" });
    if (vhost === null) return undefined;
    const prefix = under ? `${under}/` : "";
    const source = new EventSource(`${path("/v1/vhosts", vhost)}/tail${asQuery({ topic: `${prefix}#` })}`);
    let missed = 0;
    source.addEventListener("message", (event) => {
      const topic = topicOf(JSON.parse(event.data));
      if (!topic.startsWith(prefix)) return;
      const name = topic.slice(prefix.length).split("/", 1)[0];
      const counts = seen.current.get(name) ?? new Array(SPAN).fill(0);
      counts[0] += 1;
      seen.current.set(name, counts);
    });
    source.addEventListener("lagging", (event) => { missed += JSON.parse(event.data).skipped; });
    source.addEventListener("end", (event) => {
      source.close();
      setState((before) => ({ ...before, ended: t("It has ended: {reason}", { reason: JSON.parse(event.data).reason }) }));
    });
    const drawn = setInterval(() => {
      const of = new Map();
      for (const [name, counts] of seen.current) {
        of.set(name, counts.reduce((sum, one) => sum + one, 0) / SPAN);
        counts.pop();
        counts.unshift(0);
      }
      setState((before) => ({ ...before, of, names: [...of.keys()].sort(), missed }));
    }, EACH_MS);
    return () => {
      clearInterval(drawn);
      source.close();
    };
  }, [vhost, under]);
  return state;
}

/** The topic of a message as `/v1` shows it; of one that did not come by MQTT its routing key stands for it. @param {any} message @returns {string} */
export const topicOf = (message) => message.topic ?? message.routing_key.replaceAll(".", "/");
