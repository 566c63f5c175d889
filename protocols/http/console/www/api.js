/** Requests to the gateway. The browser sends the session's cookie by itself; no script sees it. */

import { t } from "./words.js";

/**
 * An answer of so many seconds ago will do where a page looks again and again: the gateway then makes one for all
 * pages that look.
 */
const SHARED = { "cache-control": "max-age=2" };

/** The answer to a request was a refusal: what the API says of it. */
export class Refused extends Error {
  /** @param {number} status @param {string} reason */
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

/** Called when the session has ended. */
let onSignedOut = () => {};

/** @param {() => void} told */
export function whenSignedOut(told) {
  onSignedOut = told;
}

/** @type {{method: string, target: string, body: any}[] | null} */
let notes = null;

/**
 * The first request that an action would send, which is not sent.
 * @param {() => Promise<unknown>} act asks for nothing else before it
 */
export function requestOf(act) {
  notes = [];
  try {
    act().catch(() => {}); // it never ends, unless it sends nothing
    return notes[0];
  } finally {
    notes = null;
  }
}

/** A path of names, each of them one segment whatever is in it. @param {string} base @param {...string} names */
export function path(base, ...names) {
  return [base, ...names.map(encodeURIComponent)].join("/");
}

/** A query of what is not empty. @param {Record<string, unknown>} fields */
export function query(fields) {
  const known = Object.entries(fields).filter(([, value]) => value !== "" && value != null && value !== false);
  return known.length ? `?${new URLSearchParams(known.map(([name, value]) => [name, String(value)]))}` : "";
}

/**
 * Send a request and read its answer.
 * @param {string} method @param {string} target @param {unknown} [body] sent as JSON
 * @param {{signal?: AbortSignal, again?: boolean}} [options] `again`: it was asked before, for the same page
 * @returns {Promise<any>} the JSON of the answer, null without one
 */
export async function send(method, target, body, { signal, again = false } = {}) {
  if (notes) {
    notes.push({ method, target, body });
    return new Promise(() => {});
  }
  let response;
  try {
    response = await fetch(target, {
      method, signal, credentials: "same-origin",
      ...(again && { headers: SHARED }),
      ...(body !== undefined && { headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0, t("The gateway does not answer. The page goes on when it does."));
  }
  const text = await response.text();
  let answer = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    throw new Refused(response.status, t("The answer cannot be read."));
  }
  if (response.ok) return answer;
  // Only a login that failed or has ended brings a challenge; a right that is missing does not.
  if (response.status === 401 && response.headers.has("www-authenticate") && !target.startsWith("/api/login"))
    onSignedOut();
  throw new Refused(response.status, String(answer?.detail ?? answer?.reason ?? response.statusText));
}

/** @param {string} target @param {AbortSignal} [signal] @param {boolean} [again] */
export const get = (target, signal, again) => send("GET", target, undefined, { signal, again });
