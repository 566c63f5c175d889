// rhea: topics, subscriptions, a stream, and a gateway that comes back, over AMQP 1.0.
// Usage: node amqp10_sources.js PORT NAME STREAM SCENARIO. STREAM is a stream that is there. "restart" says so, and waits for
// a line; NAME is a queue then.
const assert = require('node:assert');
const rhea = require('rhea');

const [port, name, stream, scenario] = process.argv.slice(2);

function connect(id, options = {}) {
  const container = rhea.create_container({ id });
  const login = { username: 'guest', password: 'guest', port: Number(port), host: '127.0.0.1', reconnect: false };
  return container.connect({ ...login, ...options });
}

const once = (emitter, event) => new Promise((resolve) => emitter.once(event, resolve));

async function receiver(connection, options) {
  const opened = connection.open_receiver({ credit_window: 0, ...options });
  opened.bodies = [];
  opened.on('message', ({ message }) => { opened.bodies.push(message.body); opened.emit('came'); });
  await once(opened, 'receiver_open');
  opened.add_credit(100);
  return opened;
}

async function take(from, count) {
  while (from.bodies.length < count) await once(from, 'came');
  return from.bodies.splice(0, count);
}

async function send(connection, address, messages) {
  const sender = connection.open_sender(address);
  await once(sender, 'sendable');
  let outcomes = 0;
  const done = new Promise((resolve) => sender.on('accepted', () => { if (++outcomes === messages.length) resolve(); }));
  for (const message of messages) sender.send(message);
  await done;
  sender.close();
}

async function end(link, how = 'close') {
  const over = once(link, 'receiver_close');
  link[how]();
  await over;
}

async function closed(connection) {
  const over = once(connection, 'connection_close');
  connection.close();
  await over;
}

const bodies = (first, count) => Array.from({ length: count }, (_, i) => ({ body: first + i, durable: true }));
const numbers = (first, count) => bodies(first, count).map(({ body }) => body);
const other = connect(`${name}-other`);

const scenarios = {
  async topics() {
    const connection = connect(name);
    const some = await receiver(connection, { source: `topic://${name}.a.*` });
    const all = await receiver(connection, { source: `topic://${name}.#` });
    await send(other, `topic://${name}.a.b`, bodies(0, 2));
    await send(other, `topic://${name}.c`, bodies(2, 1));
    assert.deepStrictEqual([await take(some, 2), await take(all, 3)], [[0, 1], [0, 1, 2]]);
    await closed(connection);
  },

  async durable() {
    const options = { name: 'mine', source: { address: `topic://${name}`, durable: 2, expiry_policy: 'never' } };
    let connection = connect(name);
    await end(await receiver(connection, options), 'detach');
    await closed(connection);
    await send(other, `topic://${name}`, bodies(0, 5));
    connection = connect(name);
    const again = await receiver(connection, options);
    assert.deepStrictEqual(await take(again, 5), numbers(0, 5));
    await end(again);
    await closed(connection);
  },

  async shared() {
    const connection = connect(name);
    const source = { address: `topic://${name}`, capabilities: ['shared'] };
    const ours = [await receiver(connection, { name: 'ours|1', source }), await receiver(connection, { name: 'ours|2', source })];
    const alone = await receiver(connection, { source: `topic://${name}` });
    await send(other, `topic://${name}`, bodies(0, 10));
    assert.deepStrictEqual(await take(alone, 10), numbers(0, 10));
    while (ours[0].bodies.length + ours[1].bodies.length < 10) await Promise.race(ours.map((one) => once(one, 'came')));
    const all = ours.flatMap((one) => one.bodies).sort((a, b) => a - b);
    assert.deepStrictEqual(all, numbers(0, 10));
    await closed(connection);
  },

  async stream() {
    const connection = connect(name);
    await send(other, `/queues/${stream}`, bodies(0, 12).map((one) => ({ ...one, application_properties: { number: one.body } })));
    const described = (value, filter) => rhea.types.wrap_described(value, filter);
    const filters = { offset: described('first', 'rabbitmq:stream-offset-spec') };
    const all = await receiver(connection, { source: { address: `/queues/${stream}`, filter: filters } });
    assert.deepStrictEqual(await take(all, 12), numbers(0, 12));
    const late = {
      offset: described(rhea.types.wrap_ulong(4), 'rabbitmq:stream-offset-spec'),
      ...rhea.filter.selector('number % 3 = 0'),
    };
    const some = await receiver(connection, { source: { address: `/queues/${stream}`, filter: late } });
    assert.deepStrictEqual(await take(some, 2), [6, 9]);
    await closed(connection);
  },

  // rhea connects again by itself, and opens its links anew.
  async restart() {
    const connection = connect(name, { reconnect: 100, max_reconnect_delay: 500, reconnect_limit: 1000 });
    const queue = await receiver(connection, { source: `/queues/${name}` });
    queue.on('receiver_open', () => queue.add_credit(100));
    await send(connection, `/queues/${name}`, bodies(0, 1));
    assert.deepStrictEqual(await take(queue, 1), [0]);
    const back = once(connection, 'connection_open');
    console.log('restart');
    await once(process.stdin, 'data');
    process.stdin.pause();
    await back;
    await send(connection, `/queues/${name}`, bodies(1, 1));
    let came = await take(queue, 1);
    if (came[0] === 0) came = await take(queue, 1); // its outcome was lost
    assert.deepStrictEqual(came, [1]);
    await closed(connection);
  },
};

other.on('disconnected', () => {});
once(other, 'connection_open').then(scenarios[scenario]).then(() => {
  if (scenario !== 'restart') other.close();
  console.log('ok');
}).catch((error) => { console.error(error); process.exit(1); });
