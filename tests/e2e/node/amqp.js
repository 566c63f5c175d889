// amqplib against a broker: node amqp.js URL NAME. Prints "ok" when every check has passed.
'use strict'

const amqp = require('amqplib')
const assert = require('node:assert/strict')
const { once } = require('node:events')

async function main (url, name) {
  const connection = await amqp.connect(url)
  const channel = await connection.createConfirmChannel()

  // Topology: many calls pipelined on one channel, answered in order.
  const [exchange, queue] = await Promise.all([
    channel.assertExchange(name, 'topic', { durable: false, autoDelete: true }),
    channel.assertQueue('', { exclusive: true }),
    channel.prefetch(10)
  ])
  assert.equal(exchange.exchange, name)
  assert.match(queue.queue, /^amq\.gen-/)
  await channel.bindQueue(queue.queue, name, 'a.*')

  // Confirmed publishes, consumed with acknowledgements, in order.
  const got = []
  const done = new Promise((resolve) => {
    channel.consume(queue.queue, (message) => {
      got.push(JSON.parse(message.content).i)
      assert.equal(message.properties.headers.n, got.length - 1)
      channel.ack(message)
      if (got.length === 100) resolve()
    })
  })
  for (let i = 0; i < 100; i++) {
    channel.publish(name, 'a.b', Buffer.from(JSON.stringify({ i })), { headers: { n: i }, persistent: true })
  }
  await channel.waitForConfirms()
  await done
  assert.deepEqual(got, [...Array(100).keys()])

  // A mandatory message without a queue comes back before its confirm.
  const returned = once(channel, 'return')
  channel.publish(name, 'nobody', Buffer.from('back'), { mandatory: true })
  await channel.waitForConfirms()
  const [message] = await returned
  assert.equal(message.fields.replyCode, 312)
  assert.equal(message.content.toString(), 'back')

  // get, nack with requeue, purge, delete.
  const work = (await channel.assertQueue(name, { durable: true })).queue
  channel.sendToQueue(work, Buffer.alloc(300000, 'x'))
  channel.sendToQueue(work, Buffer.from('second'))
  await channel.waitForConfirms()
  const first = await channel.get(work)
  assert.equal(first.content.length, 300000)
  channel.nack(first)
  const again = await channel.get(work)
  assert.equal(again.fields.redelivered, true)
  channel.ack(again)
  assert.equal((await channel.purgeQueue(work)).messageCount, 1)
  assert.equal(await channel.get(work), false)
  assert.equal((await channel.deleteQueue(work)).messageCount, 0)

  // An error closes the channel with its code, not the connection.
  const broken = await connection.createChannel()
  const error = once(broken, 'error')
  await assert.rejects(broken.checkQueue(name + '-missing'), /404/)
  assert.equal((await error)[0].code, 404)
  const other = await connection.createChannel()
  await other.checkExchange('amq.topic')
  await other.close()
  await connection.close()
  console.log('ok')
}

main(process.argv[2], process.argv[3]).catch((error) => {
  console.error(error)
  process.exit(1)
})
