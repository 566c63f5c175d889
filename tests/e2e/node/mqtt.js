// MQTT.js against a broker: node mqtt.js URL NAME VERSION. Prints "ok" when every check has passed.
'use strict'

const mqtt = require('mqtt')
const assert = require('node:assert/strict')
const { once } = require('node:events')

// The next `count` messages; listens from the moment it is called.
function collect (client, count) {
  return new Promise((resolve) => {
    const got = []
    client.on('message', function take (topic, payload, packet) {
      got.push({ topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain })
      if (got.length < count) return
      client.off('message', take)
      resolve(got)
    })
  })
}

async function main (url, name, protocolVersion) {
  const lasting = protocolVersion === 5 ? { properties: { sessionExpiryInterval: 600 } } : {}
  const options = { protocolVersion, clean: false, clientId: name, reconnectPeriod: 0, ...lasting }
  let client = await mqtt.connectAsync(url, options)
  const publisher = await mqtt.connectAsync(url, { protocolVersion, reconnectPeriod: 0 })

  // Every quality of service, in one subscription with a wildcard.
  const granted = await client.subscribeAsync(`${name}/+`, { qos: 2 })
  assert.equal(granted[0].qos, 2)
  let coming = collect(client, 3)
  for (const qos of [0, 1, 2]) await publisher.publishAsync(`${name}/${qos}`, `m${qos}`, { qos })
  assert.deepEqual(await coming, [0, 1, 2].map((qos) =>
    ({ topic: `${name}/${qos}`, payload: `m${qos}`, qos, retain: false })))

  // A session that outlives its connection.
  await client.endAsync()
  for (const qos of [1, 2]) await publisher.publishAsync(`${name}/${qos}`, `away${qos}`, { qos })
  client = mqtt.connect(url, options)
  coming = collect(client, 2)
  const [connack] = await once(client, 'connect')
  assert.equal(connack.sessionPresent, true)
  assert.deepEqual((await coming).map((message) => message.payload), ['away1', 'away2'])

  // Retained: kept, delivered at subscription, deleted.
  await publisher.publishAsync(`${name}/kept/x`, 'kept', { qos: 1, retain: true })
  coming = collect(client, 1)
  await client.subscribeAsync(`${name}/kept/#`, { qos: 1 })
  assert.deepEqual(await coming, [{ topic: `${name}/kept/x`, payload: 'kept', qos: 1, retain: true }])
  await publisher.publishAsync(`${name}/kept/x`, '', { qos: 1, retain: true })

  // MQTT 5 properties.
  if (protocolVersion === 5) {
    await client.subscribeAsync(`${name}/p`, { qos: 1 })
    const arrived = new Promise((resolve) => client.on('message', (topic, payload, packet) => {
      if (topic === `${name}/p`) resolve(packet.properties)
    }))
    await publisher.publishAsync(`${name}/p`, '{}', {
      qos: 1,
      properties: { contentType: 'application/json', userProperties: { a: ['1', '2'] }, correlationData: Buffer.from('c') }
    })
    const properties = await arrived
    assert.equal(properties.contentType, 'application/json')
    assert.deepEqual({ ...properties.userProperties }, { a: ['1', '2'] })
    assert.equal(properties.correlationData.toString(), 'c')
  }

  // A will: of a client that is lost, and not of one that disconnects.
  await client.subscribeAsync(`${name}/will`, { qos: 1 })
  coming = collect(client, 1)
  const will = (payload) => ({ topic: `${name}/will`, payload, qos: 1, retain: false })
  const left = await mqtt.connectAsync(url, { protocolVersion, reconnectPeriod: 0, will: will('left') })
  await left.endAsync()
  const lost = await mqtt.connectAsync(url, { protocolVersion, reconnectPeriod: 0, will: will('lost') })
  lost.on('error', () => {})
  lost.stream.destroy()
  assert.deepEqual((await coming).map((message) => message.payload), ['lost'])

  await client.endAsync()
  await (await mqtt.connectAsync(url, { protocolVersion, clean: true, clientId: name })).endAsync()
  await publisher.endAsync()
  console.log('ok')
}

main(process.argv[2], process.argv[3], Number(process.argv[4])).catch((error) => {
  console.error(error)
  process.exit(1)
})
