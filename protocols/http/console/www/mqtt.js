/**
 * A client of MQTT 5 over a WebSocket of this origin: as much of it as the page for trying needs (QoS 0 and 1).
 * The gateway lets it in by the session of the page, so it has no password.
 *
 * Source: MQTT 5.0, sections 2 and 3.
 */

import { path } from "./api.js";

const CONNECT = 1, CONNACK = 2, PUBLISH = 3, PUBACK = 4, SUBSCRIBE = 8, SUBACK = 9, PINGREQ = 12, DISCONNECT = 14;
const KEEP_ALIVE_S = 60;
/** The first reason code that is a refusal (2.4). */
const REFUSED = 0x80;
const LARGEST_ID = 0xffff;
const CONTENT_TYPE = 3, USER_PROPERTY = 0x26;
/** The width of each property's value (2.2.2.2): a number of bytes, or "v" varint, "s" text or bytes, "p" pair of texts. */
const WIDTHS = { 1: 1, 2: 4, 3: "s", 8: "s", 9: "s", 11: "v", 17: 4, 18: "s", 19: 2, 21: "s", 22: "s", 23: 1, 24: 4, 25: 1, 26: "s", 28: "s", 31: "s", 33: 2, 34: 2, 35: 2, 36: 1, 37: 1, 38: "p", 39: 4, 40: 1, 41: 1, 42: 1 };

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** @param {number} n @returns {number[]} */
function varint(n) {
  const found = [];
  do {
    found.push((n % 128) | (n > 127 ? 128 : 0));
    n = Math.floor(n / 128);
  } while (n > 0);
  return found;
}

const u16 = (/** @type {number} */ n) => [n >> 8, n & 255];

/** A text or bytes with the length in front. @param {string} text */
function sized(text) {
  const raw = encoder.encode(text);
  return [...u16(raw.length), ...raw];
}

/** @param {number} kind @param {number} flags @param {Iterable<number>} rest */
function packet(kind, flags, rest) {
  const body = [...rest];
  return new Uint8Array([(kind << 4) | flags, ...varint(body.length), ...body]);
}

/** Reads the parts of one packet. */
class Reader {
  /** @param {Uint8Array} data */
  constructor(data) {
    this.data = data;
    this.at = 0;
  }

  byte() {
    return this.data[this.at++];
  }

  u16() {
    return this.byte() * 256 + this.byte();
  }

  varint() {
    let found = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = this.byte();
      found += (byte & 127) * scale;
      if (byte < 128) return found;
    }
  }

  /** @param {number} n */
  bytes(n) {
    this.at += n;
    return this.data.subarray(this.at - n, this.at);
  }

  text() {
    return decoder.decode(this.bytes(this.u16()));
  }

  /** The content type and the user properties; others are passed over. */
  properties() {
    const found = { contentType: "", user: /** @type {Record<string, string>} */ ({}) };
    const end = this.varint() + this.at;
    while (this.at < end) {
      const id = this.varint();
      const width = WIDTHS[id];
      if (id === CONTENT_TYPE) found.contentType = this.text();
      else if (id === USER_PROPERTY) {
        const name = this.text();
        found.user[name] = this.text();
      } else if (width === "s") this.text();
      else if (width === "v") this.varint();
      else this.bytes(width);
    }
    return found;
  }
}

/** @typedef {{topic: string, payload: Uint8Array, qos: number, retain: boolean, user: Record<string, string>}} Arrived */

export class Mqtt {
  /**
   * @param {{vhost: string, user: string, clientId: string, opened: () => void, arrived: (message: Arrived) => void,
   *   refused: (what: string, code: number) => void, closed: (reason: string) => void}} host
   */
  constructor(host) {
    this.host = host;
    this.isOpen = false;
    this.rest = new Uint8Array();
    this.lastId = 0;
    this.pings = 0;
    const socket = this.socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}${path("/v1/vhosts", host.vhost)}/mqtt`, ["mqtt"]);
    socket.binaryType = "arraybuffer";
    socket.addEventListener("open", () => {
      // Protocol name and level, user name and clean start, keep alive, no properties.
      socket.send(packet(CONNECT, 0, [...sized("MQTT"), 5, 0x82, ...u16(KEEP_ALIVE_S), 0, ...sized(host.clientId), ...sized(`${host.vhost}:${host.user}`)]));
      this.pings = setInterval(() => socket.send(packet(PINGREQ, 0, [])), KEEP_ALIVE_S * 500);
    });
    socket.addEventListener("message", (event) => this.take(new Uint8Array(event.data)));
    socket.addEventListener("close", (event) => {
      clearInterval(this.pings);
      this.isOpen = false;
      host.closed(event.reason);
    });
  }

  close() {
    if (this.isOpen) this.socket.send(packet(DISCONNECT, 0, []));
    this.socket.close();
  }

  /** @param {string} filter */
  subscribe(filter) {
    this.socket.send(packet(SUBSCRIBE, 2, [...u16(this.nextId()), 0, ...sized(filter), 1]));
  }

  /** @param {string} topic @param {string} payload @param {{qos: number, retain: boolean}} how */
  publish(topic, payload, { qos, retain }) {
    this.socket.send(packet(PUBLISH, (qos << 1) | (retain ? 1 : 0), [...sized(topic), ...(qos ? u16(this.nextId()) : []), 0, ...encoder.encode(payload)]));
  }

  nextId() {
    this.lastId = this.lastId % LARGEST_ID + 1;
    return this.lastId;
  }

  /** Bytes came; packets may span frames. @param {Uint8Array} data */
  take(data) {
    const all = new Uint8Array(this.rest.length + data.length);
    all.set(this.rest);
    all.set(data, this.rest.length);
    let at = 0;
    for (let next = sizeOf(all, at); next !== null && at + next.head + next.size <= all.length; next = sizeOf(all, at)) {
      const begin = at + next.head;
      this.handle(all[at] >> 4, all[at] & 15, new Reader(all.subarray(begin, begin + next.size)));
      at = begin + next.size;
    }
    this.rest = all.slice(at);
  }

  /** @param {number} kind @param {number} flags @param {Reader} of */
  handle(kind, flags, of) {
    const { host } = this;
    if (kind === CONNACK) {
      of.byte();
      const code = of.byte();
      if (code >= REFUSED) return host.refused("CONNECT", code);
      this.isOpen = true;
      host.opened();
    } else if (kind === PUBLISH) {
      const topic = of.text(), qos = (flags >> 1) & 3, id = qos ? of.u16() : 0, { user } = of.properties();
      if (qos) this.socket.send(packet(PUBACK, 0, u16(id)));
      host.arrived({ topic, payload: of.data.slice(of.at), qos, retain: Boolean(flags & 1), user });
    } else if (kind === PUBACK && of.data.length > 2 && of.data[2] >= REFUSED) host.refused("PUBLISH", of.data[2]);
    else if (kind === SUBACK && of.data[of.data.length - 1] >= REFUSED) host.refused("SUBSCRIBE", of.data[of.data.length - 1]);
    else if (kind === DISCONNECT) host.refused("DISCONNECT", of.data[0] ?? 0);
  }
}

/** The sizes of the fixed header and of the rest of the packet that begins there; null: not all of it has come. */
function sizeOf(data, at) {
  let size = 0;
  for (let head = 1, scale = 1; at + head < data.length; head += 1, scale *= 128) {
    const byte = data[at + head];
    size += (byte & 127) * scale;
    if (byte < 128) return { head: head + 1, size };
  }
  return null;
}
