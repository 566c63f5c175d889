/** Totals of what is on the screen, as the gateway sends them; see `/v1/live`. */

import { useEffect, useState } from "./vendor/preact.js";
import { query } from "./api.js";

const EACH_MS = 1000;
/** Samples of a plot. */
const KEPT = 120;

/** @typedef {{at: number, totals: Record<string, any>}} Sample */

/** The name of a queue in `/v1/live`. @param {string} vhost @param {string} name */
export const queueOf = (vhost, name) => `queue:${encodeURIComponent(vhost)}/${encodeURIComponent(name)}`;

/**
 * The last samples of an object, the newest first, while it is looked at. A browser that loses the gateway begins
 * again by itself; without a stream the page goes on with what it asks for.
 * @param {string | null} name as `/v1/live` names it; null: nothing is followed
 * @returns {Sample[]}
 */
export function useLive(name) {
  const [samples, setSamples] = useState(/** @type {Sample[]} */ ([]));
  useEffect(() => {
    setSamples([]);
    if (name === null) return undefined;
    let source = /** @type {EventSource | null} */ (null);
    let last = null;
    const take = (event) => {
      const { at, of } = JSON.parse(event.data);
      if (name in of) last = of[name];
      if (last !== null) setSamples((before) => [{ at, totals: last }, ...before].slice(0, KEPT));
    };
    const follow = () => {
      source?.close();
      source = null;
      if (document.hidden) return;
      const opened = source = new EventSource(`/v1/live${query({ of: name, each_ms: EACH_MS })}`);
      opened.addEventListener("totals", take);
      opened.addEventListener("end", () => opened.close());
    };
    document.addEventListener("visibilitychange", follow);
    follow();
    return () => {
      document.removeEventListener("visibilitychange", follow);
      source?.close();
    };
  }, [name]);
  return samples;
}

/**
 * An answer of the API with the totals, rates and samples of the stream in their places.
 * @param {Record<string, any>} answered the object, or its `message_stats` @param {Sample[]} samples
 * @param {(totals: Record<string, any>) => Record<string, any>} pick the same part of a sample
 */
export function withLive(answered, samples, pick) {
  if (samples.length === 0) return answered;
  const merged = { ...answered };
  const [newest, before] = samples;
  for (const [name, value] of Object.entries(pick(newest.totals))) {
    if (typeof value !== "number") continue;
    merged[name] = value;
    merged[`${name}_details`] = {
      rate: before ? (value - pick(before.totals)[name]) / ((newest.at - before.at) / 1000) : 0,
      samples: samples.map(({ at, totals }) => ({ sample: pick(totals)[name], timestamp: at })),
    };
  }
  return merged;
}
