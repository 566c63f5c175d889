/** Rights of the user, so that a page shows no control that the gateway would refuse. */

import { query } from "./api.js";
import { useLoaded } from "./parts.js";

/** Patterns of permissions that allow no name. */
const NO_NAME = ["", "^$"];
const RIGHTS_MS = 60000;

function useRules(user, vhost, operation, name) {
  return useLoaded(vhost === undefined ? null : `/api/may${query({ user: user.name, vhost, operation, name })}`, RIGHTS_MS);
}

/** Whether the permission of a user allows an operation for some name; false until it is known. */
export function useMay(user, vhost, operation) {
  const found = useRules(user, vhost, operation, "");
  // Users of tokens are not known to the gateway: it decides when they ask.
  if (found.data === null) return found.error !== null;
  const [{ pattern }] = found.data.rules;
  return pattern !== null && !NO_NAME.includes(pattern);
}

/** Whether the user has permissions in a virtual host, which who may see all need not have; null: not known yet. */
export function useEnters(user, vhost) {
  const found = useRules(user, vhost, "read", "");
  if (found.data === null) return found.error === null ? null : true;
  return found.data.rules[0].rule !== "vhost";
}

/** `useMay` for one exchange or queue; rules for routing keys are not asked, as no key is known yet. */
export function useMayAt(user, vhost, operation, name) {
  const found = useRules(user, vhost, operation, name);
  return found.data === null ? found.error !== null : found.data.rules[0].allows;
}
