// rhea: a work queue with redelivery, and a request with its answer, over AMQP 1.0.
// Usage: node amqp10.js PORT QUEUE [URL]; with a URL it connects there over WebSocket.
const assert = require('node:assert');
const rhea = require('rhea');

const [port, queue, url] = process.argv.slice(2);
const container = rhea.create_container();
const login = { username: 'guest', password: 'guest', reconnect: false };
const connection = url
  ? container.connect({ connection_details: container.websocket_connect(require('ws'))(url, ['amqp'], {}), ...login })
  : container.connect({ port: Number(port), host: '127.0.0.1', ...login });
const accepted = [];
let released = false;
let receiver;

connection.on('connection_open', () => {
  const sender = connection.open_sender(`/queues/${queue}`);
  sender.once('sendable', () => {
    for (let i = 0; i < 100; i++) {
      sender.send({ message_id: `m${i}`, body: { i }, durable: true, application_properties: { i } });
    }
  });
  sender.on('rejected', () => assert.fail('rejected'));
  let outcomes = 0;
  sender.on('accepted', () => {
    if (++outcomes === 100) {
      receiver = connection.open_receiver({ source: `/queues/${queue}`, autoaccept: false, credit_window: 10 });
      receiver.on('message', take);
    }
  });
});

function take({ message, delivery }) {
  if (message.body.i === 50 && !released) {
    released = true;
    delivery.release();
    return;
  }
  assert.strictEqual(message.application_properties.i, message.body.i);
  if (message.body.i === 50) assert.deepStrictEqual([message.delivery_count, message.first_acquirer], [0, false]);
  accepted.push(message.body.i);
  delivery.accept();
  if (accepted.length === 100) {
    assert.deepStrictEqual([...accepted].sort((a, b) => a - b), [...Array(100).keys()]);
    receiver.close();
    ask();
  }
}

function ask() {
  const answers = connection.open_receiver({ source: { dynamic: true } });
  answers.on('receiver_open', () => {
    const server = connection.open_receiver(`/queues/${queue}`);
    server.on('message', ({ message }) => {
      connection.send({ to: message.reply_to, correlation_id: message.correlation_id, body: message.body.toUpperCase() });
    });
    connection.send({ to: `/queues/${queue}`, reply_to: answers.source.address, correlation_id: 'c', body: 'question' });
  });
  answers.on('message', ({ message }) => {
    assert.strictEqual(message.body, 'QUESTION');
    assert.strictEqual(message.correlation_id, 'c');
    connection.close();
  });
}

connection.on('disconnected', ({ error }) => { if (error) throw error; });
connection.on('connection_close', () => console.log('ok'));
connection.on('connection_error', ({ connection: c }) => assert.fail(String(c.error)));
