// RabbitMQ's client for AMQP 1.0 as it is: rabbitmq URL NAME. It prints "restart", waits for a line while the
// broker restarts, and prints "ok", or an error.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/Azure/go-amqp"
	rmq "github.com/rabbitmq/rabbitmq-amqp-go-client/pkg/rabbitmqamqp"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 250*time.Second)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func run(ctx context.Context, url, name string) error {
	conn, err := rmq.Dial(ctx, url, &rmq.AmqpConnOptions{
		RecoveryConfiguration: &rmq.RecoveryConfiguration{
			ActiveRecovery: true, BackOffReconnectInterval: 2 * time.Second, MaxReconnectAttempts: 50,
		},
	})
	if err != nil {
		return err
	}
	for what, scenario := range map[string]func(context.Context, *rmq.AmqpConnection, string) error{
		"work": work, "topics": topics, "request": request, "stream": stream, "restart": restart,
	} {
		if err := scenario(ctx, conn, name+"-"+what); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return conn.Close(ctx)
}

func declare(ctx context.Context, conn *rmq.AmqpConnection, name, deadLetters string) error {
	specification := &rmq.QuorumQueueSpecification{Name: name}
	if deadLetters != "" {
		specification.DeadLetterExchange, specification.DeadLetterRoutingKey = deadLetters, name+"-dead"
	}
	_, err := conn.Management().DeclareQueue(ctx, specification)
	return err
}

func publish(ctx context.Context, publisher *rmq.Publisher, text string) error {
	result, err := publisher.Publish(ctx, rmq.NewMessage([]byte(text)))
	if err != nil {
		return err
	}
	if _, accepted := result.Outcome.(*rmq.StateAccepted); !accepted {
		return fmt.Errorf("%q was not accepted: %T", text, result.Outcome)
	}
	return nil
}

func take(ctx context.Context, consumer *rmq.Consumer, text string) (rmq.IDeliveryContext, error) {
	delivery, err := consumer.Receive(ctx)
	if err != nil {
		return nil, err
	}
	if got := string(delivery.Message().GetData()); got != text {
		return nil, fmt.Errorf("%q came, not %q", got, text)
	}
	return delivery, nil
}

func work(ctx context.Context, conn *rmq.AmqpConnection, name string) error {
	for queue, exchange := range map[string]string{name: "amq.direct", name + "-dead": ""} {
		if err := declare(ctx, conn, queue, exchange); err != nil {
			return err
		}
	}
	if _, err := conn.Management().Bind(ctx, &rmq.ExchangeToQueueBindingSpecification{
		SourceExchange: "amq.direct", DestinationQueue: name + "-dead", BindingKey: name + "-dead",
	}); err != nil {
		return err
	}
	publisher, err := conn.NewPublisher(ctx, &rmq.QueueAddress{Queue: name}, nil)
	if err != nil {
		return err
	}
	for i := 0; i < 100; i++ {
		if err := publish(ctx, publisher, fmt.Sprint(i)); err != nil {
			return err
		}
	}
	consumer, err := conn.NewConsumer(ctx, name, &rmq.ConsumerOptions{InitialCredits: 1})
	if err != nil {
		return err
	}
	delivery, err := take(ctx, consumer, "0")
	if err != nil {
		return err
	}
	if err := delivery.RequeueWithAnnotations(ctx, amqp.Annotations{"x-opt-reason": "later"}); err != nil {
		return err
	}
	if delivery, err = take(ctx, consumer, "0"); err != nil {
		return err
	}
	annotations := delivery.Message().Annotations
	if annotations["x-opt-reason"] != "later" || annotations["x-acquired-count"] != int64(1) {
		return fmt.Errorf("annotations of a message that came again: %v", annotations)
	}
	if err := delivery.DiscardWithAnnotations(ctx, amqp.Annotations{"x-opt-last": "bad"}); err != nil {
		return err
	}
	for i := 1; i < 100; i++ {
		if delivery, err = take(ctx, consumer, fmt.Sprint(i)); err != nil {
			return err
		}
		if err := delivery.Accept(ctx); err != nil {
			return err
		}
	}
	dead, err := conn.NewConsumer(ctx, name+"-dead", nil)
	if err != nil {
		return err
	}
	if delivery, err = take(ctx, dead, "0"); err != nil {
		return err
	}
	annotations = delivery.Message().Annotations
	if annotations["x-opt-reason"] != "later" || annotations["x-opt-last"] != "bad" {
		return fmt.Errorf("annotations of a dead letter: %v", annotations)
	}
	return delivery.Accept(ctx)
}

func topics(ctx context.Context, conn *rmq.AmqpConnection, name string) error {
	management := conn.Management()
	if _, err := management.DeclareExchange(ctx, &rmq.TopicExchangeSpecification{Name: name}); err != nil {
		return err
	}
	var consumers []*rmq.Consumer
	for _, key := range []string{"a.*", "#"} {
		queue := name + "-" + key
		if err := declare(ctx, conn, queue, ""); err != nil {
			return err
		}
		if _, err := management.Bind(ctx, &rmq.ExchangeToQueueBindingSpecification{
			SourceExchange: name, DestinationQueue: queue, BindingKey: key,
		}); err != nil {
			return err
		}
		consumer, err := conn.NewConsumer(ctx, queue, nil)
		if err != nil {
			return err
		}
		consumers = append(consumers, consumer)
	}
	for _, key := range []string{"a.b", "c"} {
		publisher, err := conn.NewPublisher(ctx, &rmq.ExchangeAddress{Exchange: name, Key: key}, nil)
		if err != nil {
			return err
		}
		if err := publish(ctx, publisher, key); err != nil {
			return err
		}
	}
	for i, keys := range [][]string{{"a.b"}, {"a.b", "c"}} {
		for _, key := range keys {
			delivery, err := take(ctx, consumers[i], key)
			if err != nil {
				return err
			}
			if err := delivery.Accept(ctx); err != nil {
				return err
			}
		}
	}
	return management.DeleteExchange(ctx, name)
}

// Answers come by a queue of the client's own. It would lose a direct reply that is here before the outcome of its request.
func request(ctx context.Context, conn *rmq.AmqpConnection, name string) error {
	if err := declare(ctx, conn, name, ""); err != nil {
		return err
	}
	responder, err := conn.NewResponder(ctx, rmq.ResponderOptions{
		RequestQueue: name,
		Handler: func(_ context.Context, request *amqp.Message) (*amqp.Message, error) {
			return amqp.NewMessage(append(request.GetData(), '!')), nil
		},
	})
	if err != nil {
		return err
	}
	requester, err := conn.NewRequester(ctx, &rmq.RequesterOptions{RequestQueueName: name})
	if err != nil {
		return err
	}
	for _, text := range []string{"a", "b"} {
		answers, err := requester.Publish(ctx, requester.Message([]byte(text)))
		if err != nil {
			return err
		}
		select {
		case answer := <-answers:
			if answer == nil || string(answer.GetData()) != text+"!" {
				return fmt.Errorf("the answer to %s is %v", text, answer)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.Join(requester.Close(ctx), responder.Close(ctx))
}

func stream(ctx context.Context, conn *rmq.AmqpConnection, name string) error {
	if _, err := conn.Management().DeclareQueue(ctx, &rmq.StreamQueueSpecification{Name: name}); err != nil {
		return err
	}
	publisher, err := conn.NewPublisher(ctx, &rmq.QueueAddress{Queue: name}, nil)
	if err != nil {
		return err
	}
	for i := 0; i < 20; i++ {
		message := rmq.NewMessage([]byte(fmt.Sprint(i)))
		message.ApplicationProperties = map[string]any{"number": int32(i)}
		if _, err := publisher.Publish(ctx, message); err != nil {
			return err
		}
	}
	consumer, err := conn.NewConsumer(ctx, name, &rmq.StreamConsumerOptions{
		InitialCredits:      10,
		Offset:              &rmq.OffsetFirst{},
		StreamFilterOptions: &rmq.StreamFilterOptions{SQL: "number % 5 = 0 AND number > 0"},
	})
	if err != nil {
		return err
	}
	for i := 5; i < 20; i += 5 {
		delivery, err := take(ctx, consumer, fmt.Sprint(i))
		if err != nil {
			return err
		}
		if err := delivery.Accept(ctx); err != nil {
			return err
		}
	}
	return consumer.Close(ctx)
}

// Publisher and consumer live through a restart of the broker.
func restart(ctx context.Context, conn *rmq.AmqpConnection, name string) error {
	if err := declare(ctx, conn, name, ""); err != nil {
		return err
	}
	changes := make(chan *rmq.StateChanged, 100)
	conn.NotifyStatusChange(changes)
	publisher, err := conn.NewPublisher(ctx, &rmq.QueueAddress{Queue: name}, nil)
	if err != nil {
		return err
	}
	consumer, err := conn.NewConsumer(ctx, name, nil)
	if err != nil {
		return err
	}
	if err := publish(ctx, publisher, "before"); err != nil {
		return err
	}
	fmt.Println("restart")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for open := false; !open; {
		select {
		case change := <-changes:
			_, open = change.To.(*rmq.StateOpen)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := publish(ctx, publisher, "after"); err != nil {
		return err
	}
	for _, text := range []string{"before", "after"} {
		delivery, err := take(ctx, consumer, text)
		if err != nil {
			return err
		}
		if err := delivery.Accept(ctx); err != nil {
			return err
		}
	}
	return nil
}
