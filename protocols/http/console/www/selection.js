/** Several queues of a list at once: what would happen to each, one confirmation, and a result for each. */

import { html, useState } from "./vendor/preact.js";
import { path } from "./api.js";
import { Action, Rows, count, post, remove } from "./parts.js";
import { many, t } from "./words.js";

/** The name of a row among those that are chosen. */
export const keyOf = ({ vhost, name }) => JSON.stringify([vhost, name]);

/** The path in `/v1` of the subscription that a row is. @param {any} one */
export const subscriptionOf = ({ vhost, name, subscription: { stream } }) =>
  `${path("/v1/vhosts", vhost)}/${path("streams", stream)}/${path("subscriptions", name.slice(`subscription-${stream}/`.length))}`;

/**
 * An action on several rows, for each of those that it is possible for.
 * @typedef {{name: string, label: string, text: string, danger?: boolean, fits: (one: any, may: May) => boolean, run: (one: any) => Promise<unknown>}} Deed
 * @typedef {{read: (name: string) => boolean, configure: (name: string) => boolean}} May
 * @type {Deed[]}
 */
const DEEDS = [
  { name: "purge", label: t("Purge selected"), text: t("All messages that are ready are dropped. Nobody gets them back."), danger: true,
    fits: ({ kind, type, exclusive, name }, may) => kind === "queue" && type !== "stream" && !exclusive && may.read(name),
    run: ({ vhost, name }) => remove(`${path("/api/queues", vhost, name)}/contents`) },
  { name: "delete", label: t("Delete selected"), text: t("The queues and their messages are gone."), danger: true,
    fits: ({ kind, exclusive, name }, may) => kind === "queue" && !exclusive && may.configure(name),
    run: ({ vhost, name }) => remove(path("/api/queues", vhost, name)) },
  { name: "pause", label: t("Pause selected"), text: t("Nobody gets anything of these subscriptions until they are resumed."),
    fits: ({ subscription: of }, may) => Boolean(of) && !of.paused && may.read(of.stream), run: (one) => post(`${subscriptionOf(one)}/pause`, {}) },
  { name: "resume", label: t("Resume selected"), text: t("Consumers of these subscriptions get messages again."),
    fits: ({ subscription: of }, may) => Boolean(of) && of.paused && may.read(of.stream), run: (one) => post(`${subscriptionOf(one)}/resume`, {}) },
];

/** Whether anything may be done with a row. @param {any} one @param {May} may */
export const isSelectable = (one, may) => DEEDS.some(({ fits }) => fits(one, may));

const COUNTS = [
  [t("Name"), (one) => one.name],
  [t("Ready"), (one) => count(one.messages_ready), "number", "messages_ready"],
  [t("Unacknowledged"), (one) => count(one.messages_unacknowledged), "number", "messages_unacknowledged"],
  [t("Consumers"), (one) => count(one.consumers), "number", "consumers"],
];

/**
 * Buttons for the rows of the shown page that are chosen.
 * @param {{rows: any[], chosen: Set<string>, choose: (keys: string[]) => void, may: May}} props
 */
export function Selection({ rows, chosen, choose, may }) {
  const [results, setResults] = useState(/** @type {{name: string, result: string}[]} */ ([]));
  const possible = rows.filter((one) => isSelectable(one, may));
  const selected = possible.filter((one) => chosen.has(keyOf(one)));
  if (possible.length === 0 && results.length === 0) return null;
  /** One after the other: a refusal keeps no other from its turn. */
  const each = async (/** @type {Deed} */ deed, /** @type {any[]} */ fitting) => {
    const said = [];
    for (const one of fitting) {
      const result = await deed.run(one).then(() => t("done"), (refusal) => t("refused: {reason}", { reason: refusal.message }));
      said.push({ name: one.name, result });
    }
    setResults(said);
    choose([]);
  };
  return html`<div class="actions" role="group" aria-label=${t("Several queues")}>
      <button type="button" onClick=${() => choose(selected.length === possible.length ? [] : possible.map(keyOf))}>${
        selected.length && selected.length === possible.length ? t("Select none") : t("Select all")}</button>
      ${DEEDS.map((deed) => ({ deed, fitting: selected.filter((one) => deed.fits(one, may)) })).filter(({ fitting }) => fitting.length > 0).map(({ deed, fitting }) => html`
        <${Action} key=${deed.name} label=${deed.label} danger=${deed.danger} text=${deed.text} confirm=${deed.danger ? String(fitting.length) : undefined}
          more=${html`<p>${many(fitting.length, "{n} of {all} that are selected; it has {messages}.", "{n} of {all} that are selected; they have {messages}.", {
            all: count(selected.length), messages: messages(fitting) })}</p>
            <${Rows} label=${t("Selected queues")} rows=${fitting} columns=${COUNTS} file=${false} />`}
          command=${false} run=${() => each(deed, fitting)} />`)}
      ${selected.length > 0 && html`<span class="quiet">${t("{n} selected", { n: count(selected.length) })}</span>`}</div>
    ${results.length > 0 && html`<div role="status" aria-label=${t("Results")}><${Rows} label=${t("Results")} rows=${results} columns=${[
      [t("Name"), (one) => one.name], [t("Result"), (one) => one.result]]} /></div>`}`;
}

const messages = (of) => {
  const n = of.reduce((sum, one) => sum + one.messages_ready + one.messages_unacknowledged, 0);
  return many(n, "{n} message", "{n} messages");
};
