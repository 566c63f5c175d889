// rhea: a login by XOAUTH2, with a token and with one that is wrong, over AMQP 1.0.
// Usage: node amqp10_token.js PORT TOKEN
const assert = require('node:assert');
const rhea = require('rhea');

const [port, token] = process.argv.slice(2);
const container = rhea.create_container();
const place = { host: '127.0.0.1', port: Number(port), username: 'ann', reconnect: false };

const right = container.connect({ ...place, token });
right.on('connection_open', () => right.close());
right.on('connection_close', () => {
  const wrong = container.connect({ ...place, token: token.slice(0, -2) + 'xx' });
  wrong.on('connection_open', () => assert.fail('a wrong token logged in'));
  wrong.on('connection_error', ({ error }) => {
    assert.match(String(error.description || error), /authenticate/);
    process.stdout.write('ok\n', () => process.exit(0));
  });
});
