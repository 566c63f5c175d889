// The ordinary program of amqp091-go: topology, confirms, mandatory, consume, nack, get, transactions, and
// tables with every field type there and back. Prints "ok"; anything else is a failure that says what.
//
// Usage: amqp URL PREFIX
package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"reflect"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func check(err error, what string) {
	if err != nil {
		fmt.Printf("%s: %v\n", what, err)
		os.Exit(1)
	}
}

func expect(got, wanted interface{}, what string) {
	if !reflect.DeepEqual(got, wanted) {
		fmt.Printf("%s: got %#v, wanted %#v\n", what, got, wanted)
		os.Exit(1)
	}
}

func next(deliveries <-chan amqp.Delivery, what string) amqp.Delivery {
	select {
	case delivery, open := <-deliveries:
		if open {
			return delivery
		}
		fmt.Printf("%s: the consumer was closed\n", what)
	case <-time.After(10 * time.Second):
		fmt.Printf("%s: nothing came\n", what)
	}
	os.Exit(1)
	panic("unreachable")
}

func main() {
	url, prefix := os.Args[1], os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	connection, err := amqp.DialConfig(url, amqp.Config{Properties: amqp.Table{"connection_name": prefix}})
	check(err, "dial")
	channel, err := connection.Channel()
	check(err, "channel")

	check(connection.UpdateSecret("another", "rotated"), "connection.update-secret")

	exchange, name := prefix+".x", prefix+".q"
	check(channel.ExchangeDeclare(exchange, "topic", true, false, false, false, nil), "exchange.declare")
	check(channel.ExchangeDeclare(prefix+".in", "fanout", false, true, true, false, nil), "internal exchange")
	check(channel.ExchangeBind(prefix+".in", "in.#", exchange, false, nil), "exchange.bind")
	queue, err := channel.QueueDeclare(name, true, false, false, false, amqp.Table{"x-max-priority": int32(5)})
	check(err, "queue.declare")
	expect(queue.Name, name, "queue name")
	check(channel.QueueBind(name, "key.*", exchange, false, nil), "queue.bind")
	check(channel.QueueBind(name, "", prefix+".in", false, nil), "queue.bind to the internal exchange")

	// Confirms: deferred, one by one, and a mandatory message that comes back first.
	check(channel.Confirm(false), "confirm.select")
	returns := channel.NotifyReturn(make(chan amqp.Return, 1))
	for index := 0; index < 100; index++ {
		message := amqp.Publishing{Body: []byte{byte(index)}, DeliveryMode: amqp.Persistent}
		confirm, err := channel.PublishWithDeferredConfirmWithContext(ctx, exchange, "key.a", true, false, message)
		check(err, "publish")
		acked, err := confirm.WaitContext(ctx)
		check(err, "confirm")
		expect(acked, true, "ack")
	}
	confirm, err := channel.PublishWithDeferredConfirmWithContext(
		ctx, exchange, "nobody", true, false, amqp.Publishing{Body: []byte("back"), MessageId: "m"})
	check(err, "publish to nobody")
	returned := <-returns
	expect([]interface{}{returned.ReplyCode, returned.ReplyText, returned.RoutingKey, string(returned.Body), returned.MessageId},
		[]interface{}{uint16(312), "NO_ROUTE", "nobody", "back", "m"}, "basic.return")
	acked, err := confirm.WaitContext(ctx)
	check(err, "confirm of the returned one")
	expect(acked, true, "ack of the returned one")

	// Consuming: prefetch, order, nack with requeue, reject, multiple.
	check(channel.Qos(10, 0, false), "basic.qos")
	deliveries, err := channel.Consume(name, "consumer", false, false, false, false, nil)
	check(err, "basic.consume")
	for index := 0; index < 10; index++ {
		delivery := next(deliveries, "delivery")
		expect([]interface{}{delivery.Body[0], delivery.Redelivered, delivery.Exchange, delivery.RoutingKey},
			[]interface{}{byte(index), false, exchange, "key.a"}, "delivery")
		if index == 9 {
			check(delivery.Nack(true, true), "basic.nack")
		}
	}
	for index := 0; index < 100; index++ {
		delivery := next(deliveries, "redelivery")
		expect([]interface{}{delivery.Body[0], delivery.Redelivered}, []interface{}{byte(index), index < 10}, "redelivery")
		switch {
		case index%10 == 9:
			check(delivery.Ack(true), "basic.ack")
		case index == 50:
			check(delivery.Reject(false), "basic.reject")
		}
	}
	check(channel.Cancel("consumer", false), "basic.cancel")

	// Every field type, there and back.
	headers := amqp.Table{
		"bool": true, "byte": byte(200), "int8": int8(-8), "int16": int16(-1600), "int32": int32(-320000),
		"int64": int64(math.MinInt64), "float32": float32(1.5), "float64": math.Pi, "string": "text \x00 \u00e9",
		"bytes": []byte{0, 255}, "decimal": amqp.Decimal{Scale: 2, Value: 12345},
		"time": time.Unix(1234567890, 0), "nil": nil,
		"table": amqp.Table{"inner": amqp.Table{"deep": []interface{}{int32(1), "two", nil, amqp.Table{"x": true}}}},
		"array": []interface{}{int64(1) << 40, []interface{}(nil), amqp.Table{}, false},
	}
	message := amqp.Publishing{
		Headers: headers, ContentType: "text/plain", ContentEncoding: "utf-8", DeliveryMode: amqp.Transient, Priority: 3,
		CorrelationId: "c", ReplyTo: "r", Expiration: "60000", MessageId: "m", Timestamp: time.Unix(1600000000, 0),
		Type: "t", UserId: "guest", AppId: "a", Body: []byte("all"),
	}
	confirm, err = channel.PublishWithDeferredConfirmWithContext(ctx, exchange, "in.x", true, false, message)
	check(err, "publish with headers")
	_, err = confirm.WaitContext(ctx)
	check(err, "confirm with headers")
	got, ok, err := channel.Get(name, true)
	check(err, "basic.get")
	expect(ok, true, "basic.get")
	expect(got.Headers, headers, "headers")
	expect([]interface{}{got.ContentType, got.ContentEncoding, got.DeliveryMode, got.Priority, got.CorrelationId, got.ReplyTo,
		got.Expiration, got.MessageId, got.Timestamp, got.Type, got.UserId, got.AppId, string(got.Body)},
		[]interface{}{message.ContentType, message.ContentEncoding, message.DeliveryMode, message.Priority, message.CorrelationId,
			message.ReplyTo, message.Expiration, message.MessageId, message.Timestamp, message.Type, message.UserId, message.AppId, "all"},
		"properties")
	_, ok, err = channel.Get(name, true)
	check(err, "basic.get of nothing")
	expect(ok, false, "basic.get of nothing")

	// Transactions on a channel of their own.
	transactional, err := connection.Channel()
	check(err, "second channel")
	check(transactional.Tx(), "tx.select")
	publish := func(body string) {
		check(transactional.PublishWithContext(ctx, "", name, false, false, amqp.Publishing{Body: []byte(body)}), "publish in tx")
	}
	publish("rolled back")
	check(transactional.TxRollback(), "tx.rollback")
	publish("committed")
	check(transactional.TxCommit(), "tx.commit")
	got, _, err = channel.Get(name, true)
	check(err, "basic.get after the commit")
	expect(string(got.Body), "committed", "the committed message")

	// A channel error leaves the connection; many channels come and go.
	closed := transactional.NotifyClose(make(chan *amqp.Error, 1))
	_, err = transactional.QueueDeclarePassive(prefix+".nobody", true, false, false, false, nil)
	expect(err.(*amqp.Error).Code, 404, "a passive declare of nothing")
	expect((<-closed).Reason, fmt.Sprintf("NOT_FOUND - no queue '%s.nobody' in vhost '/'", prefix), "its reason")
	for index := 0; index < 200; index++ {
		short, err := connection.Channel()
		check(err, "a channel of many")
		check(short.Close(), "its close")
	}

	purged, err := channel.QueueDelete(name, false, false, false)
	check(err, "queue.delete")
	expect(purged, 0, "what was left")
	check(channel.ExchangeDelete(exchange, false, false), "exchange.delete")
	check(connection.Close(), "connection.close")
	fmt.Println("ok")
}
