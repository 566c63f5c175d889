/** Clients in the page, side by side: what one publishes, the others get. MQTT 5, AMQP terms over a WebSocket, HTTP. */

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { path, query as asQuery } from "../api.js";
import { Payload } from "../messages.js";
import { Mqtt } from "../mqtt.js";
import { Rows, Time, post } from "../parts.js";
import { useMayAt } from "../rights.js";
import { t } from "../words.js";
import { topicOf } from "./topics.js";

const TOPIC = "try/console";
const FILTER = "try/#";
const KEPT = 50;
/** Messages that a consumer holds before it acknowledges. */
const CREDIT = 10;

const dotted = (topic) => topic.replaceAll("/", ".");
const keyPattern = (filter) => dotted(filter).replaceAll("+", "*");

export default function TryIt({ user, query, vhosts }) {
  const vhost = query.vhost || vhosts[0];
  const may = { write: useMayAt(user, vhost, "write", "amq.topic"), read: useMayAt(user, vhost, "read", "amq.topic") };
  const [runs, setRuns] = useState(false);
  useEffect(() => setRuns(false), [vhost]);
  const props = { user, vhost, may, runs };
  return html`<div><h1>${vhost ? t("Try it in {vhost}", { vhost }) : t("Try it")}</h1>
    <p class="quiet">${t("Three clients run in this page, with your rights. They meet at the exchange amq.topic, where the MQTT topic a/b is the routing key a.b. Publish by one, and see it arrive at all.")}</p>
    ${!may.read && !may.write && html`<p class="notice">${t("You may neither read nor write amq.topic. An administrator can give you permissions.")}</p>`}
    ${(may.read || may.write) && html`
      <div class="actions"><button type="button" aria-pressed=${runs} onClick=${() => setRuns(!runs)}>${runs ? t("Disconnect all") : t("Connect all")}</button></div>
      <div class="panes" key=${vhost}><${OfMqtt} ...${props} /><${OfAmqp} ...${props} /><${OfHttp} ...${props} /></div>`}</div>`;
}

/** The last messages, the newest first, and why the client is not there. */
function useArrived() {
  const [rows, setRows] = useState(/** @type {any[]} */ ([]));
  const add = (one) => setRows((before) => [{ at: Date.now(), ...one }, ...before].slice(0, KEPT));
  return { rows, add, drop: (kept) => setRows((before) => before.filter(kept)) };
}

/** @param {{title: string, state: string, error: string, form: any, rows: any[], extra?: any[]}} props */
function Pane({ title, state, error, form, rows, extra = [] }) {
  return html`<section aria-label=${title}><h2>${title}</h2>
    <p class="quiet" role="status">${state}</p>
    ${error && html`<p class="notice bad" role="alert">${error}</p>`}
    ${form}
    <${Rows} label=${t("Arrived by {title}", { title })} rows=${rows} empty=${t("Nothing has arrived yet.")} file=${false} columns=${[
      [t("Time"), (one) => html`<${Time} at=${one.at} exact />`], [t("Topic or key"), (one) => one.place],
      [t("Payload"), (one) => html`<${Payload} of=${one} />`], ...extra,
    ]} /></section>`;
}

/** A form to publish by. @param {{label: string, value: string, off?: boolean, more?: any, publish: (place: string, payload: string, form: any) => unknown, told: (error: string) => void}} props */
function Publish({ label, value, off = false, more, publish, told }) {
  const submit = async (event) => {
    event.preventDefault();
    const form = event.target.elements;
    told("");
    try {
      await publish(form.place.value, form.payload.value, form);
    } catch (refusal) {
      told(refusal.message);
    }
  };
  return html`<form onSubmit=${submit}>
    <label><span>${label}</span><input name="place" required defaultValue=${value} autocomplete="off" /></label>
    <label><span>${t("Payload")}</span><input name="payload" defaultValue=${t("hello")} autocomplete="off" /></label>
    ${more}<button type="submit" disabled=${off}>${t("Publish")}</button></form>`;
}

const NOT_YET = t("not connected");

/** Bytes as `Payload` shows them. @param {Uint8Array} raw */
function asPayload(raw) {
  try {
    return { value: new TextDecoder("utf-8", { fatal: true }).decode(raw) };
  } catch {
    return { value_b64: btoa(String.fromCharCode(...raw)) };
  }
}

function OfMqtt({ user, vhost, may, runs }) {
  const { rows, add } = useArrived();
  const [state, setState] = useState(NOT_YET);
  const [isOpen, setIsOpen] = useState(false);
  const [error, setError] = useState("");
  const client = useRef(/** @type {Mqtt | null} */ (null));
  useEffect(() => {
    if (!runs) return undefined;
    setError("");
    let over = false, why = "";
    const clientId = `console-${Math.random().toString(36).slice(2, 10)}`;
    const mqtt = client.current = new Mqtt({
      vhost, user: user.name, clientId,
      opened: () => {
        setIsOpen(true);
        setState(t("connected as {client}", { client: clientId }));
        if (may.read) mqtt.subscribe(FILTER);
      },
      arrived: ({ topic, payload, qos, retain }) => add({ place: topic, qos, retain, ...asPayload(payload) }),
      refused: (what, code) => {
        why = t("{what} was refused with reason code {code}.", { what, code: `0x${code.toString(16)}` });
        setError(why);
      },
      closed: (reason) => {
        setIsOpen(false);
        setState(NOT_YET);
        if (!over) setError(why || reason || t("The connection has ended, or could not be made. Is mqtt.listen set?"));
      },
    });
    return () => {
      over = true;
      mqtt.close();
    };
  }, [runs, vhost]);
  const publish = (topic, payload, form) => client.current?.publish(topic, payload, { qos: Number(form.qos.value), retain: form.retain.checked });
  return html`<${Pane} title=${t("MQTT 5 over WebSocket")} state=${state} error=${error} rows=${rows}
    form=${may.write && html`<${Publish} label=${t("Topic")} value=${TOPIC} off=${!isOpen} publish=${publish} told=${setError} more=${html`
      <label><span>${t("QoS")}</span><select name="qos"><option>0</option><option selected>1</option></select></label>
      <label><input name="retain" type="checkbox" /> ${t("retain")}</label>`} />`}
    extra=${[[t("QoS"), (one) => one.qos, "number"], [t("Retained"), (one) => (one.retain ? t("yes") : t("no"))]]} />`;
}

function OfAmqp({ user, vhost, may, runs }) {
  const { rows, add, drop } = useArrived();
  const [state, setState] = useState(NOT_YET);
  const [isOpen, setIsOpen] = useState(false);
  const [error, setError] = useState("");
  const [queue, setQueue] = useState("");
  const mayRead = useMayAt(user, vhost, "read", queue || "amq.topic");
  const socket = useRef(/** @type {WebSocket | null} */ (null));
  const say = (fields) => socket.current?.send(JSON.stringify(fields));
  useEffect(() => {
    if (!runs) return undefined;
    setError("");
    let over = false, why = "";
    const opened = socket.current = new WebSocket(`${location.origin.replace(/^http/, "ws")}${path("/v1/vhosts", vhost)}/ws`, ["penstock.v1.json"]);
    opened.addEventListener("open", () => {
      setIsOpen(true);
      setState(queue ? t("consumes {queue}", { queue }) : t("follows amq.topic with {pattern}", { pattern: keyPattern(FILTER) }));
      if (queue) say({ do: "subscribe", id: 1, queue, credit: CREDIT });
      else if (may.read) say({ do: "subscribe", id: 1, exchange: "amq.topic", pattern: keyPattern(FILTER) });
    });
    opened.addEventListener("message", (event) => {
      const told = JSON.parse(event.data);
      if (told.type === "message") {
        const { message: { routing_key: place, value, value_b64, redelivered } } = told;
        add({ place, value, value_b64, redelivered, tag: told.tag });
      } else if (told.type === "error") setError(told.detail);
      else if (told.type === "ended") setError(told.reason);
      else if (told.type === "published" && told.results.some((one) => one.routed === false)) setError(t("No queue takes a message with this routing key. It was dropped."));
      else if (told.type === "published" && told.results.some((one) => one.error)) setError(told.results.find((one) => one.error).error.detail ?? "");
    });
    opened.addEventListener("close", (event) => {
      why = event.reason;
      setIsOpen(false);
      setState(NOT_YET);
      if (!over) setError(why || t("The connection has ended."));
    });
    return () => {
      over = true;
      opened.close();
      drop((one) => one.tag === undefined); // what it held went back
    };
  }, [runs, vhost, queue]);
  const settle = (one, how) => {
    say({ do: how, id: 1, tags: [one.tag] });
    say({ do: "credit", id: 1, messages: 1 });
    drop((other) => other !== one);
  };
  const publish = (key, payload, form) => say({ do: "publish", ref: 1, exchange: form.exchange.value, messages: [{ routing_key: key, value: payload }] });
  const choose = (event) => {
    event.preventDefault();
    setQueue(event.target.elements.queue.value);
  };
  return html`<${Pane} title=${t("AMQP terms over WebSocket")} state=${state} error=${error} rows=${rows}
    form=${html`<div>${may.write && html`<${Publish} label=${t("Routing key")} value=${dotted(TOPIC)} off=${!isOpen} publish=${publish} told=${setError} more=${html`
      <label><span>${t("Exchange")}</span><input name="exchange" required defaultValue="amq.topic" autocomplete="off" /></label>`} />`}
      <form class="row" onSubmit=${choose}><label><span>${t("Consume a queue instead")}</span><input name="queue" autocomplete="off" /><small class="quiet">${t("empty: follow the exchange")}</small></label>
        <button type="submit">${t("Consume")}</button></form></div>`}
    extra=${queue && mayRead ? [[t("Actions"), (one) => one.tag !== undefined && html`<div class="actions">
      <button type="button" onClick=${() => settle(one, "ack")}>${t("Acknowledge")}</button>
      <button type="button" onClick=${() => settle(one, "nack")}>${t("Give back")}</button></div>`]] : []} />`;
}

function OfHttp({ vhost, may, runs }) {
  const { rows, add } = useArrived();
  const [state, setState] = useState(NOT_YET);
  const [error, setError] = useState("");
  const base = path("/v1/vhosts", vhost);
  useEffect(() => {
    if (!runs || !may.read) return undefined;
    setError("");
    const source = new EventSource(`${base}/tail${asQuery({ topic: FILTER })}`);
    source.addEventListener("open", () => setState(t("follows {filter} by server-sent events", { filter: FILTER })));
    source.addEventListener("message", (event) => {
      const message = JSON.parse(event.data);
      add({ place: topicOf(message), value: message.value, value_b64: message.value_b64 });
    });
    source.addEventListener("end", (event) => {
      source.close();
      setError(t("It has ended: {reason}", { reason: JSON.parse(event.data).reason }));
    });
    return () => {
      source.close();
      setState(NOT_YET);
    };
  }, [runs, vhost]);
  const publish = (topic, value) => post(`${base}/mqtt/messages${asQuery({ topic })}`, { value });
  return html`<${Pane} title=${t("HTTP requests and events")} state=${state} error=${error} rows=${rows}
    form=${may.write && html`<${Publish} label=${t("Topic")} value=${TOPIC} publish=${publish} told=${setError} />`} />`;
}
