// A stream as amqplib's users read it, from each kind of offset: node stream.js URL NAME. Prints "ok" when every check has passed.
'use strict';

const assert = require('assert');
const amqp = require('amqplib');

const [url, name] = process.argv.slice(2);
const COUNT = 30;

async function read(connection, offset, count) {
  const channel = await connection.createChannel();
  await channel.prefetch(5);
  const got = [];
  await new Promise((resolve, reject) => {
    channel.on('error', reject);
    channel.consume(
      name,
      (message) => {
        got.push([message.properties.headers['x-stream-offset'], message.content.toString()]);
        channel.ack(message);
        if (got.length === count) resolve();
      },
      { noAck: false, arguments: offset === undefined ? {} : { 'x-stream-offset': offset } },
    ).catch(reject);
  });
  await channel.close();
  return got;
}

function expected(first) {
  return Array.from({ length: COUNT - first }, (_, i) => [first + i, String(first + i)]);
}

(async () => {
  const connection = await amqp.connect(url);
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue(name, {
    durable: true,
    arguments: { 'x-queue-type': 'stream', 'x-max-length-bytes': 2_000_000_000, 'x-max-age': '1D' },
  });
  for (let i = 0; i < COUNT; i++) channel.sendToQueue(name, Buffer.from(String(i)));
  await channel.waitForConfirms();
  assert.deepStrictEqual(await read(connection, 'first', COUNT), expected(0));
  assert.deepStrictEqual(await read(connection, 12, COUNT - 12), expected(12));
  assert.deepStrictEqual(await read(connection, 'last', 1), expected(COUNT - 1));
  assert.deepStrictEqual(await read(connection, '1h', COUNT), expected(0));
  const yesterday = { '!': 'timestamp', value: Math.floor(Date.now() / 1000) - 86400 };
  assert.deepStrictEqual(await read(connection, yesterday, COUNT), expected(0));
  await channel.deleteQueue(name);
  await connection.close();
  console.log('ok');
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
