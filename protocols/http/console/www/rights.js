/** Rights of the user, so that a page shows no control that the gateway would refuse. */

import { path, query } from "./api.js";
import { useLoaded } from "./parts.js";

/** Patterns of permissions that allow no name. */
const NO_NAME = ["", "^$"];
const RIGHTS_MS = 60000;

function useRules(user, vhost, operation, name) {
  return useLoaded(vhost === undefined ? null : `/api/may${query({ user: user.name, vhost, operation, name })}`, RIGHTS_MS);
}

/** Whether the permission of a user allows an operation for some name; `unknown` until that is known. */
export function useMay(user, vhost, operation, unknown = false) {
  const found = useRules(user, vhost, operation, "");
  // Users of tokens are not known to the gateway: it decides when they ask.
  if (found.data === null) return found.error !== null || unknown;
  const [{ pattern }] = found.data.rules;
  return pattern !== null && !NO_NAME.includes(pattern);
}

/**
 * For which names the permission of a user allows an operation, for lists of them. The pattern is one of RE2;
 * where JavaScript does not know it, the gateway decides.
 * @returns {(name: string) => boolean}
 */
export function useAllowed(user, vhost, operation) {
  const found = useRules(user, vhost, operation, "");
  if (found.data === null) return () => found.error !== null;
  const [{ rule, pattern }] = found.data.rules;
  if (pattern === null || NO_NAME.includes(pattern)) return () => false;
  if (rule !== "permission") return () => true;
  try {
    const compiled = new RegExp(pattern, "u");
    return (name) => compiled.test(name);
  } catch {
    return () => true;
  }
}

/**
 * The virtual hosts in which the user has permissions: others can be looked at, and nothing can be made there.
 * @param {{name: string, tags: string[]}} user @param {string[]} vhosts that the user sees
 */
export function useEntered(user, vhosts) {
  const seesAll = user.tags.some((tag) => tag === "administrator" || tag === "monitoring");
  const found = useLoaded(seesAll ? path("/api/users", user.name, "permissions") : null, RIGHTS_MS);
  if (!seesAll || found.data === null) return seesAll && found.error === null ? [] : vhosts;
  const entered = found.data.map((one) => one.vhost);
  return vhosts.filter((one) => entered.includes(one));
}

/** Whether the user has permissions in a virtual host, which who may see all need not have; null: not known yet. */
export function useEnters(user, vhost) {
  const found = useRules(user, vhost, "read", "");
  if (found.data === null) return found.error === null ? null : true;
  return found.data.rules[0].rule !== "vhost";
}

/** `useMay` for one exchange or queue; rules for routing keys are not asked, as no key is known yet. */
export function useMayAt(user, vhost, operation, name, unknown = false) {
  const found = useRules(user, vhost, operation, name);
  return found.data === null ? found.error !== null || unknown : found.data.rules[0].allows;
}
