/** The shell: signing in, navigation, the page that the address names, keys for all pages. */

import { html, render, useEffect, useLayoutEffect, useRef, useState, useErrorBoundary } from "./vendor/preact.js";
import { get, send, whenSignedOut } from "./api.js";
import { change, link, usePlace } from "./location.js";
import { useLoaded } from "./parts.js";
import { useEnters } from "./rights.js";
import { CHOICES, choice, choose, t } from "./words.js";

/** Tags that see more than the audit trail. */
const OF_API = ["management", "policymaker", "monitoring", "administrator"];

/**
 * Pages: [name in the address, title, its module, tags that see it or nothing: all of `OF_API`].
 * @type {[string, string, () => Promise<any>, string[]?][]}
 */
const PAGES = [
  ["overview", t("Overview"), () => import("./pages/overview.js")],
  ["connections", t("Connections"), () => import("./pages/connections.js")],
  ["channels", t("Channels"), () => import("./pages/channels.js")],
  ["queues", t("Queues"), () => import("./pages/queues.js")],
  ["exchanges", t("Exchanges"), () => import("./pages/exchanges.js")],
  ["streams", t("Streams"), () => import("./pages/streams.js")],
  ["dead-letters", t("Dead letters"), () => import("./pages/dead_letters.js")],
  ["delayed", t("Delayed"), () => import("./pages/delayed.js")],
  ["topics", t("Topics"), () => import("./pages/topics.js")],
  ["retained", t("Retained"), () => import("./pages/retained.js")],
  ["publishers", t("Publishers"), () => import("./pages/publishers.js")],
  ["search", t("Search"), () => import("./pages/search.js")],
  ["replay", t("Replay"), () => import("./pages/replay.js")],
  ["webhooks", t("Webhooks"), () => import("./pages/webhooks.js")],
  ["live", t("Live"), () => import("./pages/live.js")],
  ["try", t("Try it"), () => import("./pages/try_it.js")],
  ["policies", t("Policies"), () => import("./pages/policies.js")],
  ["vhosts", t("Virtual hosts"), () => import("./pages/vhosts.js")],
  ["users", t("Users"), () => import("./pages/users.js"), ["administrator"]],
  ["limits", t("Limits"), () => import("./pages/limits.js")],
  ["tokens", t("Tokens"), () => import("./pages/tokens.js")],
  ["definitions", t("Definitions"), () => import("./pages/definitions.js"), ["administrator"]],
  ["certificates", t("Certificates"), () => import("./pages/certificates.js"), ["administrator", "monitoring"]],
  ["feature-flags", t("Feature flags"), () => import("./pages/feature_flags.js")],
  ["audit", t("Audit"), () => import("./pages/audit.js"), ["administrator", "auditor"]],
];

/** Pages of messages of one virtual host: for who has permissions there. */
const OF_MESSAGES = ["streams", "dead-letters", "delayed", "search", "replay", "live", "try"];

/** Pages that begin a group in the navigation: the broker, its messages, what is done with it, its administration. */
const BEGIN_GROUPS = ["dead-letters", "webhooks", "policies"];

/** Loaded when it is opened first. */
const PALETTE = () => import("./palette.js");

/** Keys that lead to a page, after "g". */
const KEYS = { o: "overview", c: "connections", h: "channels", q: "queues", e: "exchanges", s: "streams", d: "dead-letters", y: "delayed", t: "retained", b: "publishers", l: "live", f: "search", r: "replay", p: "policies", w: "webhooks", a: "audit", v: "vhosts", u: "users", i: "try", m: "topics", k: "tokens", x: "limits", n: "definitions", z: "certificates" };

/** Why there was no login at the issuer of tokens, as the address of the page says. */
const NOT_SIGNED_IN = {
  refused: t("The issuer did not let you in."),
  unknown: t("The login took too long, or began in another browser. Sign in again."),
  unanswered: t("The issuer gave no token. The log of the gateway says more."),
  "no-right": t("Your token has no right to see the console."),
};

function SignIn({ ended, signedIn }) {
  const first = useRef(null);
  const here = usePlace();
  const why = here.page === "sign-in" && NOT_SIGNED_IN[here.names[0]];
  const auth = useLoaded("/api/auth", 3600e3).data;
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => first.current.focus(), []);
  const submit = async (event) => {
    event.preventDefault();
    const { username, password } = event.target.elements;
    setBusy(true);
    setError("");
    try {
      signedIn(await send("POST", "/api/login", { username: username.value, password: password.value }));
    } catch (refusal) {
      setError(refusal.message);
      password.value = "";
      password.focus();
    } finally {
      setBusy(false);
    }
  };
  return html`<main><form class="sign-in" onSubmit=${submit}>
    <h1>penstock</h1>
    ${ended && !error && html`<p class="notice" role="status">${t("The session has ended. Sign in again.")}</p>`}
    <label><span>${t("User name")}</span><input ref=${first} name="username" autocomplete="username" required /></label>
    <label><span>${t("Password")}</span><input name="password" type="password" autocomplete="current-password" required /></label>
    ${error && html`<p class="notice bad" role="alert">${error}</p>`}
    ${why && !error && html`<p class="notice bad" role="alert">${why}</p>`}
    <div class="actions"><button type="submit" disabled=${busy}>${t("Sign in")}</button>
      ${auth?.oauth_enabled && html`<a href="/sign-in/oauth">${t("Sign in with {issuer}", { issuer: auth.oauth_provider_url })}</a>`}</div>
    <${Language} />
  </form></main>`;
}

function Page({ module, ...props }) {
  const [error, forget] = useErrorBoundary((failure) => console.error(failure));
  const [loaded, setLoaded] = useState(null);
  useEffect(() => {
    let wanted = true;
    forget();
    module().then((found) => wanted && setLoaded(found), (failure) => wanted && setLoaded({ failure }));
    return () => { wanted = false; };
  }, [module]);
  if (error) return html`<p class="notice bad" role="alert">${t("The page failed: {error}", { error: error.message })}</p>`;
  if (loaded?.failure) return html`<p class="notice bad" role="alert">${t("The page cannot be loaded. Reload it.")}</p>`;
  return loaded ? html`<${loaded.default} ...${props} />` : html`<p class="quiet">${t("Loading …")}</p>`;
}

function Help({ close, seen }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return html`<dialog ref=${dialog} aria-label=${t("Keys")} onClose=${close}><h2>${t("Keys")}</h2>
    <table><tbody>
      <tr><th scope="row">Ctrl+K</th><td>${t("find a page or an object by its name")}</td></tr>
      <tr><th scope="row">/</th><td>${t("the filter of a list; elsewhere the same as Ctrl+K")}</td></tr>
      ${Object.entries(KEYS).filter(([, name]) => seen.some(([page]) => page === name)).map(([key, name]) => html`<tr>
        <th scope="row">g ${key}</th><td>${seen.find(([page]) => page === name)[1]}</td></tr>`)}
      <tr><th scope="row">?</th><td>${t("this help")}</td></tr>
    </tbody></table>
    <form method="dialog" class="actions"><button>${t("Close")}</button></form>
  </dialog>`;
}

/** The choice of the language; another one loads the page again, as every text changes. */
function Language() {
  return html`<label><span>${t("Language")}</span><select value=${choice} onChange=${(event) => choose(event.target.value)}>
    <option value="">${t("as the browser")}</option>
    ${CHOICES.map(([value, name]) => html`<option value=${value} lang=${value}>${name}</option>`)}
  </select></label>`;
}

function Scheme() {
  const [scheme, setScheme] = useState(localStorage.getItem("scheme") ?? "");
  useEffect(() => {
    if (scheme) localStorage.setItem("scheme", scheme);
    else localStorage.removeItem("scheme");
    document.documentElement.dataset.scheme = scheme;
    dispatchEvent(new HashChangeEvent("hashchange"));
  }, [scheme]);
  return html`<label><span>${t("Colours")}</span><select value=${scheme} onChange=${(event) => setScheme(event.target.value)}>
    <option value="">${t("as the system")}</option><option value="light">${t("light")}</option><option value="dark">${t("dark")}</option>
  </select></label>`;
}

/**
 * A dialog: its number, or 0 when there is none; a function that opens it; one that its close event calls.
 * The browser reports a close later. A key in between opens the next dialog, which stays.
 * @returns {[number, () => void, () => void]}
 */
function useDialog() {
  const [number, setNumber] = useState(0);
  return [number, () => setNumber((now) => now + 1), () => setNumber((now) => (now === number ? 0 : now))];
}

function Shell({ user, signOut }) {
  const here = usePlace();
  const [help, openHelp, closeHelp] = useDialog();
  const [finds, openFinds, closeFinds] = useDialog();
  const has = (tags) => tags.some((tag) => user.tags.includes(tag));
  const known = useLoaded(has(OF_API) ? "/api/vhosts?columns=name" : null, 30000).data;
  const vhosts = known ?? [];
  const seen = PAGES.filter(([, , , tags]) => has(tags ?? OF_API));
  const page = seen.find(([name]) => name === here.page) ?? (here.page === "overview" ? seen[0] : undefined);
  const vhost = here.query.vhost ?? "";
  const place = OF_MESSAGES.includes(here.page) ? here.names[0] ?? (vhost || vhosts[0]?.name) : undefined;
  const enters = useEnters(user, place);
  useEffect(() => {
    document.title = page ? `${[...here.names, page[1]].join(" · ")} · penstock` : "penstock";
  });
  // Another page begins at its top; a reload stays where it was.
  const shown = useRef("");
  useEffect(() => {
    const place = [here.page, ...here.names].join("/");
    if (shown.current && shown.current !== place) scrollTo(0, 0);
    shown.current = place;
  });
  // Letters that are typed before the palette is loaded are its first ones; null: it is not awaited.
  const early = useRef(/** @type {string | null} */ (null));
  const typed = () => {
    const text = early.current ?? "";
    early.current = null;
    return text;
  };
  // Before the page is painted: a key that is pressed at once counts.
  useLayoutEffect(() => {
    let leading = false;
    const find = () => {
      early.current = "";
      openFinds();
    };
    const pressed = (event) => {
      if (document.querySelector("dialog[open]")) return;
      if ((event.ctrlKey || event.metaKey) && event.key === "k") {
        event.preventDefault();
        find();
      }
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (early.current !== null && event.key.length === 1) {
        event.preventDefault();
        early.current += event.key;
        return;
      }
      if (event.target.closest?.("input, select, textarea")) return;
      const search = /** @type {HTMLInputElement | null} */ (document.querySelector("[data-search]"));
      if (event.key === "/") {
        event.preventDefault();
        if (search) search.focus();
        else find();
      } else if (event.key === "?") openHelp();
      else if (leading && seen.some(([name]) => name === KEYS[event.key])) location.hash = link(KEYS[event.key]);
      leading = event.key === "g";
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  const skip = (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  };
  return html`<div><a class="skip" href="#main" onClick=${skip}>${t("To the content")}</a>
    <div class="shell">
      <header class="side">
        <strong>penstock</strong>
        <button type="button" onClick=${openFinds}>${t("Find (Ctrl+K)")}</button>
        <nav aria-label=${t("Pages")}><ul>
          ${seen.map(([name, title]) => html`<li class=${BEGIN_GROUPS.includes(name) ? "begins" : ""}><a href=${link(name, [], { vhost })}
            aria-current=${name === page?.[0] ? "page" : undefined}>${title}</a></li>`)}
        </ul></nav>
        ${has(OF_API) && html`<label><span>${t("Virtual host")}</span>
          <select value=${vhost} onChange=${(event) => change({ vhost: event.target.value, page: "" })}>
            <option value="">${t("all")}</option>
            ${vhosts.map((one) => html`<option value=${one.name}>${one.name}</option>`)}
          </select></label>`}
        <${Scheme} />
        <${Language} />
        <p class="who">${user.name}</p>
        <button type="button" onClick=${signOut}>${t("Sign out")}</button>
        <button type="button" onClick=${openHelp}>${t("Keys (?)")}</button>
      </header>
      <main id="main" tabindex="-1">
        ${known?.length === 0 && html`<p class="notice">${t("You may enter no virtual host. An administrator can give you permissions in one.")}</p>`}
        ${page && place !== undefined && enters === null && html`<p class="quiet">${t("Loading …")}</p>`}
        ${page && place !== undefined && enters === false && html`<h1>${page[1]}</h1>
          <p class="notice">${t("Messages of {vhost} are for users who have permissions there.", { vhost: place })}</p>`}
        ${page
          ? (place === undefined || enters) && html`<${Page} key=${`${here.page}/${here.names.length}`} module=${page[2]} user=${user} names=${here.names}
              query=${here.query} vhosts=${vhosts.map((one) => one.name)} />`
          : html`<p class="notice">${t("There is no such page, or your user may not see it.")}</p>`}
      </main>
    </div>
    ${finds > 0 && html`<${Page} key=${finds} module=${PALETTE} pages=${seen} lists=${has(OF_API)} vhost=${vhost || vhosts[0]?.name} typed=${typed} close=${closeFinds} />`}
    ${help > 0 && html`<${Help} key=${help} close=${closeHelp} seen=${seen} />`}</div>`;
}

function App() {
  const [user, setUser] = useState(undefined);
  const [ended, setEnded] = useState(false);
  useEffect(() => {
    whenSignedOut(() => {
      setUser((before) => {
        setEnded(Boolean(before));
        return null;
      });
    });
    get("/api/whoami").then(setUser, () => setUser(null));
  }, []);
  const signOut = async () => {
    setUser(undefined); // what the page still asks for would be refused
    await send("DELETE", "/api/login").catch(() => {});
    setEnded(false);
    setUser(null);
  };
  if (user === undefined) return null;
  return user ? html`<${Shell} user=${user} signOut=${signOut} />` : html`<${SignIn} ended=${ended} signedIn=${setUser} />`;
}

render(html`<${App} />`, document.body);
