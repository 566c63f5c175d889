// A client from docs/reference/native.md alone, without packages: publishes three messages, consumes and settles them.
const net = require("net");
const [, , port] = process.argv;
const s = net.connect(+port, "127.0.0.1");
let buf = Buffer.alloc(0), handlers = {};
function send(type, id, payload) {
  const h = Buffer.alloc(12);
  h.writeUInt32BE(payload.length + 8, 0); h[4] = type; h.writeUInt32BE(id, 8);
  s.write(Buffer.concat([h, payload]));
}
const json = (v) => Buffer.from(JSON.stringify(v));
const wait = (type) => new Promise((done) => { handlers[type] = done; });
s.on("data", (d) => {
  buf = Buffer.concat([buf, d]);
  while (buf.length >= 4 && buf.length >= 4 + buf.readUInt32BE(0)) {
    const size = buf.readUInt32BE(0), type = buf[4], payload = buf.subarray(12, 4 + size);
    buf = buf.subarray(4 + size);
    if (type === 0x07) send(0x08, 0, Buffer.alloc(0));
    else if (type === 0x0f) { console.error(payload.toString()); process.exit(1); }
    else if (handlers[type]) { const f = handlers[type]; delete handlers[type]; f(payload); }
  }
});
(async () => {
  s.write("PENSTOCK");
  send(0x01, 0, json({ versions: [1], client: "node/1", capabilities: [] }));
  let got = wait(0x04);
  send(0x03, 0, json({ mechanism: "PLAIN", user: "guest", password: "guest", vhost: "/" }));
  console.log("ready", (await got).toString());
  got = wait(0x06); send(0x05, 1, json({ do: "open_producer", handle: 1, topic: "orders", create: true }));
  await got;
  const bodies = ["one", "two", "three"].map((b) => Buffer.from(b)), props = Buffer.from([0x10, 0, 2]);
  const records = bodies.map((b) => { const h = Buffer.alloc(8); h.writeUInt32BE(props.length, 0); h.writeUInt32BE(b.length, 4); return Buffer.concat([h, props, b]); });
  const head = Buffer.alloc(16); head[8] = 2; head.writeUInt32BE(3, 12);
  got = wait(0x12); send(0x10, 1, Buffer.concat([head, ...records]));
  const confirm = await got; console.log("confirmed", confirm.readUInt32BE(16));
  got = wait(0x06); send(0x05, 2, json({ do: "subscribe", handle: 2, topic: "orders", subscription: "s", start: "earliest" }));
  await got;
  const credit = Buffer.alloc(8); credit.writeUInt32BE(100, 0); credit.writeUInt32BE(1 << 20, 4);
  got = wait(0x21); send(0x20, 2, credit);
  const d = await got; const first = d.readBigUInt64BE(0), count = d.readUInt32BE(8);
  let at = 16;
  for (let i = 0; i < count; i++) {
    const key = d.readUInt16BE(at + 16), p = d.readUInt32BE(at + 20), b = d.readUInt32BE(at + 24);
    console.log(d.subarray(at + 28 + key + p, at + 28 + key + p + b).toString()); at += 28 + key + p + b;
  }
  const ack = Buffer.alloc(24); ack.writeUInt32BE(9, 0); ack.writeBigUInt64BE(first, 8); ack.writeBigUInt64BE(first + BigInt(count) - 1n, 16);
  got = wait(0x06); send(0x22, 2, ack); await got; console.log("settled");
  s.end();
})();
