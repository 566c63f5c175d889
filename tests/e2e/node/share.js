// A member of a shared subscription: share.js URL FILTER...; prints "ready", then each payload on a line.
const mqtt = require("mqtt");

const [, , url, ...filters] = process.argv;
const client = mqtt.connect(url, { protocolVersion: 5, reconnectPeriod: 0 });
client.on("connect", () =>
  client.subscribe(filters, { qos: 1 }, (error) => console.log(error ? String(error) : "ready")),
);
client.on("message", (_topic, payload) => console.log(payload.toString()));
client.on("error", (error) => {
  console.log(String(error));
  process.exit(1);
});
