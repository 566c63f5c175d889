/** Curves over time, from the samples of the API; the same numbers as a table, for who sees no curves. */

import { html, useEffect, useRef } from "./vendor/preact.js";
import { change, usePlace } from "./location.js";
import { count, tenths } from "./parts.js";
import { language, t, timeLocale } from "./words.js";

/**
 * The histories that the API keeps: [name, seconds back, seconds between samples].
 * @type {[string, number, number][]}
 */
const RANGES = [
  [t("Live, each second"), 0, 1],
  [t("1 minute"), 60, 5], [t("10 minutes"), 600, 5], [t("1 hour"), 3600, 60], [t("8 hours"), 28800, 600], [t("24 hours"), 86400, 1800],
];
const DASHES = [[], [6, 3], [2, 2], [9, 3, 2, 3]];

/** The range that the page's address asks for. @param {string} asked */
function rangeOf(asked) {
  return RANGES.find(([, age]) => String(age) === asked) ?? RANGES[2];
}

/** Whether the plots follow the gateway, instead of its history. @param {Record<string, string>} here */
export const isLive = (here) => here.range === "0";

/** The query that asks for samples of these groups. @param {Record<string, string>} here @param {...string} groups */
export function samplesQuery(here, ...groups) {
  const [, age, step] = rangeOf(here.range);
  if (age === 0) return {};
  return Object.fromEntries(groups.flatMap((group) => [[`${group}_age`, age], [`${group}_incr`, step]]));
}

/**
 * @param {{longest?: number, live?: boolean}} props
 *   `longest`: seconds that the object's history goes back; `live`: the page can follow the gateway
 */
export function Range({ longest = 86400, live = false }) {
  const { query } = usePlace();
  const [, now] = rangeOf(query.range);
  return html`<label><span>${t("Range")}</span>
    <select value=${now} onChange=${(event) => change({ range: event.target.value })}>
      ${RANGES.filter(([, age]) => age <= longest && (live || age > 0)).map(([name, age]) => html`<option value=${age}>${name}</option>`)}
    </select></label>`;
}

/** A time of the day. @param {number} at in seconds */
const clock = (at) => new Date(at * 1000).toLocaleTimeString(timeLocale);

/** Samples, oldest first, as levels or as rates per second. */
function columnOf(details, asRate) {
  const samples = [...(details?.samples ?? [])].reverse();
  if (!asRate) return samples.map((one) => one.sample);
  return samples.map((one, at) => {
    const before = samples[at - 1];
    if (before === undefined) return null;
    return Math.max(one.sample - before.sample, 0) / ((one.timestamp - before.timestamp) / 1000);
  });
}

/**
 * @param {{title: string, of: Record<string, any>, names: [string, string][], rates?: boolean}} props
 *   `names`: [counter, label], at most four; `rates`: shown per second
 */
export function Plot({ title, of, names, rates = false }) {
  const box = useRef(null);
  const plot = useRef(null);
  const times = [...(of[`${names[0][0]}_details`]?.samples ?? [])].reverse().map((one) => one.timestamp / 1000);
  const columns = names.map(([name]) => columnOf(of[`${name}_details`], rates));
  const data = [times, ...columns];
  useEffect(() => {
    const probe = document.createElement("i");
    box.current.append(probe);
    const resolved = (name) => {
      probe.style.color = `var(${name})`;
      return getComputedStyle(probe).color;
    };
    const axis = { stroke: resolved("--quiet"), grid: { stroke: resolved("--line"), width: 1 }, ticks: { show: false } };
    const { uPlot } = /** @type {any} */ (window);
    plot.current = new uPlot({
      width: box.current.clientWidth || 600, height: 200, cursor: { show: false }, legend: { show: false },
      axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 60, values: (_, ticks) => ticks.map((one) => Intl.NumberFormat(language, { notation: "compact" }).format(one)) }],
      scales: { y: { range: (_, low, high) => [0, Math.max(high ?? 0, 1) * 1.1] } },
      series: [{}, ...names.map((_, at) => ({
        stroke: resolved(`--curve-${at + 1}`), width: 2, dash: DASHES[at], points: { show: false },
      }))],
    }, data, box.current);
    probe.remove();
    const follow = new ResizeObserver(() => plot.current?.setSize({ width: box.current.clientWidth, height: 200 }));
    follow.observe(box.current);
    return () => {
      follow.disconnect();
      plot.current.destroy();
    };
  }, [document.documentElement.dataset.scheme, names.length]);
  useEffect(() => plot.current.setData(data), [times.at(-1), times[0]]);
  return html`<figure>
    <figcaption>${title}
      <div class="legend">${names.map(([, label], at) => html`<span>
        <svg aria-hidden="true" viewBox="0 0 32 8"><line class=${`curve-${at + 1}`} x1="0" y1="4" x2="32" y2="4" stroke-width="2" /></svg>
        ${label}</span>`)}</div>
    </figcaption>
    <div class="plot" ref=${box} aria-hidden="true"></div>
    <details><summary>${t("As a table")}</summary><div class="scroll"><table>
      <thead><tr><th scope="col">${t("Time")}</th>${names.map(([, label]) => html`<th scope="col" class="number">${label}</th>`)}</tr></thead>
      <tbody>${times.map((time, row) => html`<tr><td>${clock(time)}</td>
        ${columns.map((column) => html`<td class="number">${rates ? tenths(column[row]) : count(column[row])}</td>`)}</tr>`)}
      </tbody>
    </table></div></details>
  </figure>`;
}
