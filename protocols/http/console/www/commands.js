/** A request as a line for a shell: by curl, and by the command penstock. No line has a credential. */

/** @typedef {{method: string, target: string, body: any}} Noted */

const CREDENTIAL = /password|secret|token|authorization/i;
/** The address that the command has without --url: [protocol, host and port]. */
const DEFAULT_ADDRESS = ["http:", "127.0.0.1:15672"];

const DAY_S = 86400;

/** A word of a shell. @param {unknown} text */
const word = (text) => (/^[\w@%+=:,./-]+$/.test(String(text)) ? String(text) : `'${String(text).replaceAll("'", "'\\''")}'`);

/** A body with the names of credentials in the places of their values. */
const bare = (body) => JSON.stringify(body, (key, value) => (CREDENTIAL.test(key) && value && typeof value !== "object" ? key.toUpperCase() : value));

/** Whether the body is a file of the user's. @param {string} target */
const isFile = (target) => target.startsWith("/api/definitions");

/** The line for curl; a shell that has PENSTOCK_USER and PENSTOCK_PASSWORD runs it. @param {Noted} noted */
export function curl({ method, target, body }) {
  const data = isFile(target) ? "--data-binary @FILE" : `--data-raw ${word(bare(body))}`;
  const sent = body === undefined ? [] : ["-H 'content-type: application/json'", data];
  return ["curl -f", '-u "$PENSTOCK_USER:$PENSTOCK_PASSWORD"', `-X ${method}`, ...sent, word(location.origin + target)].join(" ");
}

/** Verbs that have only the name of one thing in a virtual host: [method, path with V and N, verb]. */
const OF_ONE = [
  ["DELETE", "api/queues/V/N", "queues delete"], ["DELETE", "api/queues/V/N/contents", "queues purge"],
  ["DELETE", "api/exchanges/V/N", "exchanges delete"], ["DELETE", "api/policies/V/N", "policies delete"],
  ["DELETE", "api/permissions/V/N", "users revoke"], ["DELETE", "api/users/N", "users delete"], ["DELETE", "api/vhosts/N", "vhosts delete"],
  ["DELETE", "v1/vhosts/V/streams/N", "topics delete"], ["DELETE", "v1/vhosts/V/webhooks/N", "webhooks delete"],
  ...["pause", "resume", "test"].map((verb) => ["POST", `v1/vhosts/V/webhooks/N/${verb}`, `webhooks ${verb}`]),
];

/** The names of V, N and M in a path; null: it is another path. @param {string[]} parts @param {string} pattern */
function names(parts, pattern) {
  const wanted = pattern.split("/");
  if (wanted.length !== parts.length) return null;
  const found = /** @type {Record<string, string>} */ ({});
  for (const [at, part] of wanted.entries()) {
    if (/^[VNM]$/.test(part)) found[part] = parts[at];
    else if (part !== parts[at]) return null;
  }
  return found;
}

/**
 * Verb, options and names of the command; null: there is none that does the same.
 * @param {string} method @param {string[]} parts @param {URLSearchParams} search @param {any} body
 * @returns {[string, Record<string, any>, string[]] | null}
 */
function verb(method, parts, search, body) {
  const at = (pattern) => names(parts, pattern);
  for (const [of, pattern, name] of OF_ONE) {
    const found = of === method && Object.keys(body ?? {}).length === 0 ? at(pattern) : null;
    if (found) return [name, { vhost: found.V }, [found.N]];
  }
  let found = null;
  if (method === "DELETE") {
    if ((found = at("api/connections/N"))) return ["connections close", { reason: search.get("reason") }, [found.N]];
    if ((found = at("v1/vhosts/V/streams/N/subscriptions/M"))) return ["subs delete", { vhost: found.V }, [`${found.N}/${found.M}`]];
  }
  for (const one of ["pause", "resume"])
    if (method === "POST" && (found = at(`v1/vhosts/V/streams/N/subscriptions/M/${one}`))) return [`subs ${one}`, { vhost: found.V }, [`${found.N}/${found.M}`]];
  if (method === "POST" && (found = at("v1/vhosts/V/webhooks/N/replay"))) return ["webhooks replay", { vhost: found.V, to: body.to }, [found.N, body.from]];
  if (method === "POST" && (found = at("v1/vhosts/V/webhooks/N/redrive"))) return ["webhooks redrive", { vhost: found.V, max: body.max }, [found.N]];
  if (method === "POST" && at("api/definitions")) return ["definitions import", {}, ["FILE"]];
  if (method === "POST" && at("api/certificates/reload")) return ["certificates reload", {}, []];
  if (method === "POST" && at("v1/tokens")) return ["tokens create", { user: body.user, days: body.ttl_s / DAY_S }, [body.name]];
  if (method === "DELETE" && (found = at("v1/tokens/N"))) return ["tokens revoke", { user: search.get("user") }, [found.N]];
  for (const one of ["vhost", "user"]) {
    if (method === "PUT" && (found = at(`api/${one}-limits/N/M`))) return [`${one}s limit`, {}, [found.N, found.M, body.value]];
    if (method === "DELETE" && (found = at(`api/${one}-limits/N/M`))) return [`${one}s unlimit`, {}, [found.N, found.M]];
  }
  if (method !== "PUT") return null;
  if ((found = at("api/queues/V/N")) && body.durable) {
    const { "x-queue-type": type, ...rest } = body.arguments;
    return ["queues create", { vhost: found.V, type, arguments: Object.keys(rest).length ? JSON.stringify(rest) : "" }, [found.N]];
  }
  if ((found = at("api/vhosts/N"))) return ["vhosts create", { description: body.description }, [found.N]];
  if ((found = at("api/permissions/V/N"))) return ["users grant", { vhost: found.V }, [found.N, body.configure, body.write, body.read]];
  if ((found = at("api/users/N")) && body.password) return ["users create", { tags: body.tags, password: "PASSWORD" }, [found.N]];
  if ((found = at("v1/vhosts/V/streams/N"))) return ["topics create", { vhost: found.V, "max-age": body.max_age, "max-bytes": body.max_bytes }, [found.N]];
  return null;
}

const isDefault = () => location.protocol === DEFAULT_ADDRESS[0] && location.host === DEFAULT_ADDRESS[1];

/** The line for the command penstock; null: it has no verb that does the same. @param {Noted} noted */
export function penstock({ method, target, body }) {
  const [path, search] = target.split("?", 2);
  const found = verb(method, path.slice(1).split("/").map(decodeURIComponent), new URLSearchParams(search), body);
  if (!found) return null;
  const [name, options, words] = found;
  const set = Object.entries({ url: isDefault() ? "" : location.origin, ...options }).filter(([, value]) => value);
  // One word each, as a value or a name may begin with "-".
  return [`penstock ${name}`, ...set.map(([option, value]) => word(`--${option}=${value}`)), ...(words.some((one) => String(one).startsWith("-")) ? ["--"] : []),
    ...words.map(word)].join(" ");
}
