// go-amqp as it is: amqp10 URL NAME. It prints "ok", or an error. NAME is a queue that is there, NAME-stream a stream.
// With a third word it prints "restart" between, and waits for a line while the broker restarts.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/Azure/go-amqp"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	for name, scenario := range map[string]func(context.Context, *amqp.Session, string) error{
		"work": work, "topics": topics, "request": request, "large": large, "released": released,
		"durable": durable, "shared": shared, "stream": stream, "restart": restart,
	} {
		if (name == "restart") != (len(os.Args) > 3) {
			continue
		}
		if err := run(ctx, scenario); err != nil {
			fmt.Println(name+":", err)
			os.Exit(1)
		}
	}
	fmt.Println("ok")
}

func run(ctx context.Context, scenario func(context.Context, *amqp.Session, string) error) error {
	conn, session, err := open(ctx, "")
	if err != nil {
		return err
	}
	defer conn.Close()
	return scenario(ctx, session, os.Args[2])
}

// A connection of the container of that name.
func open(ctx context.Context, container string) (*amqp.Conn, *amqp.Session, error) {
	conn, err := amqp.Dial(ctx, os.Args[1], &amqp.ConnOptions{ContainerID: container})
	if err != nil {
		return nil, nil, err
	}
	session, err := conn.NewSession(ctx, nil)
	return conn, session, err
}

func publish(ctx context.Context, session *amqp.Session, address string, messages ...*amqp.Message) error {
	sender, err := session.NewSender(ctx, address, nil)
	if err != nil {
		return err
	}
	for _, message := range messages {
		if err := sender.Send(ctx, message, nil); err != nil {
			return err
		}
	}
	return sender.Close(ctx)
}

func text(format string, values ...any) *amqp.Message {
	message := amqp.NewMessage([]byte(fmt.Sprintf(format, values...)))
	message.Header = &amqp.MessageHeader{Durable: true}
	return message
}

// The messages come in order; one that is rejected does not come again, one that is modified does.
func work(ctx context.Context, session *amqp.Session, queue string) error {
	var messages []*amqp.Message
	for i := 0; i < 500; i++ {
		messages = append(messages, text("m%d", i))
	}
	if err := publish(ctx, session, "/queues/"+queue, messages...); err != nil {
		return err
	}
	receiver, err := session.NewReceiver(ctx, "/queues/"+queue, &amqp.ReceiverOptions{Credit: 40})
	if err != nil {
		return err
	}
	for i := 0; i < 500; i++ {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			return err
		}
		if got := string(message.GetData()); got != fmt.Sprintf("m%d", i) {
			return fmt.Errorf("%s at %d", got, i)
		}
		if i == 7 {
			err = receiver.RejectMessage(ctx, message, nil)
		} else {
			err = receiver.AcceptMessage(ctx, message)
		}
		if err != nil {
			return err
		}
	}
	if err := publish(ctx, session, "/queues/"+queue, text("again")); err != nil {
		return err
	}
	for count := uint32(0); count < 3; count++ {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			return err
		}
		if message.Header.DeliveryCount != count {
			return fmt.Errorf("delivery count %d, not %d", message.Header.DeliveryCount, count)
		}
		if count == 2 {
			err = receiver.AcceptMessage(ctx, message)
		} else {
			err = receiver.ModifyMessage(ctx, message, &amqp.ModifyMessageOptions{DeliveryFailed: true})
		}
		if err != nil {
			return err
		}
	}
	return receiver.Close(ctx)
}

func topics(ctx context.Context, session *amqp.Session, name string) error {
	var receivers []*amqp.Receiver
	for i := 0; i < 3; i++ {
		receiver, err := session.NewReceiver(ctx, "/exchanges/amq.topic/"+name+".%23", nil)
		if err != nil {
			return err
		}
		receivers = append(receivers, receiver)
	}
	if err := publish(ctx, session, "/exchanges/amq.topic/"+name+".today", text("news")); err != nil {
		return err
	}
	for _, receiver := range receivers {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			return err
		}
		if string(message.GetData()) != "news" || message.Annotations["x-routing-key"] != name+".today" {
			return fmt.Errorf("%s by %v", message.GetData(), message.Annotations["x-routing-key"])
		}
		if err := receiver.AcceptMessage(ctx, message); err != nil {
			return err
		}
	}
	return nil
}

func request(ctx context.Context, session *amqp.Session, queue string) error {
	answers, err := session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		return err
	}
	address := answers.Address()
	question := text("2+2")
	question.Properties = &amqp.MessageProperties{ReplyTo: &address, MessageID: uint64(7)}
	if err := publish(ctx, session, "/queues/"+queue, question); err != nil {
		return err
	}
	requests, err := session.NewReceiver(ctx, "/queues/"+queue, nil)
	if err != nil {
		return err
	}
	asked, err := requests.Receive(ctx, nil)
	if err != nil {
		return err
	}
	if err := requests.AcceptMessage(ctx, asked); err != nil {
		return err
	}
	answer := text("4")
	answer.Properties = &amqp.MessageProperties{To: asked.Properties.ReplyTo, CorrelationID: asked.Properties.MessageID}
	if err := publish(ctx, session, "", answer); err != nil {
		return err
	}
	came, err := answers.Receive(ctx, nil)
	if err != nil {
		return err
	}
	if string(came.GetData()) != "4" || came.Properties.CorrelationID != uint64(7) {
		return fmt.Errorf("%s for %v", came.GetData(), came.Properties.CorrelationID)
	}
	if err := answers.AcceptMessage(ctx, came); err != nil {
		return err
	}
	return requests.Close(ctx)
}

// Messages of many frames.
func large(ctx context.Context, session *amqp.Session, queue string) error {
	body := make([]byte, 3<<20)
	for i := range body {
		body[i] = byte(i * 7)
	}
	if err := publish(ctx, session, queue, amqp.NewMessage(body)); err != nil {
		return err
	}
	receiver, err := session.NewReceiver(ctx, queue, &amqp.ReceiverOptions{SettlementMode: amqp.ReceiverSettleModeFirst.Ptr()})
	if err != nil {
		return err
	}
	message, err := receiver.Receive(ctx, nil)
	if err != nil {
		return err
	}
	if string(message.GetData()) != string(body) {
		return errors.New("a large message is not as it was sent")
	}
	if err := receiver.AcceptMessage(ctx, message); err != nil {
		return err
	}
	return receiver.Close(ctx)
}

// A message that no queue takes has an outcome that is no error; a link to nothing is refused.
func released(ctx context.Context, session *amqp.Session, name string) error {
	sender, err := session.NewSender(ctx, "/exchanges/amq.direct/nobody-"+name, nil)
	if err != nil {
		return err
	}
	receipt, err := sender.SendWithReceipt(ctx, text("m"), nil)
	if err != nil {
		return err
	}
	state, err := receipt.Wait(ctx)
	if err != nil {
		return err
	}
	if _, ok := state.(*amqp.StateReleased); !ok {
		return fmt.Errorf("outcome %v", state)
	}
	_, err = session.NewReceiver(ctx, "/queues/nothing-"+name, nil)
	var refused *amqp.Error
	if !errors.As(err, &refused) || refused.Condition != amqp.ErrCondNotFound {
		return fmt.Errorf("a link to nothing: %v", err)
	}
	return nil
}

// Take messages with these bodies.
func take(ctx context.Context, receiver *amqp.Receiver, bodies ...string) error {
	for _, body := range bodies {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			return err
		}
		if got := string(message.GetData()); got != body {
			return fmt.Errorf("%s came, not %s", got, body)
		}
		if err := receiver.AcceptMessage(ctx, message); err != nil {
			return err
		}
	}
	return nil
}

// A subscription keeps messages while its container is away. Closing its link ends it.
func durable(ctx context.Context, session *amqp.Session, name string) error {
	address := "topic://" + name + ".durable"
	options := &amqp.ReceiverOptions{
		Name: "mine", SourceDurability: amqp.DurabilityUnsettledState, SourceExpiryPolicy: amqp.ExpiryPolicyNever,
	}
	for round := 0; round < 2; round++ {
		conn, own, err := open(ctx, name)
		if err != nil {
			return err
		}
		receiver, err := own.NewReceiver(ctx, address, options)
		if err != nil {
			return err
		}
		if round == 1 {
			if err := take(ctx, receiver, "a", "b"); err != nil {
				return err
			}
			return errors.Join(receiver.Close(ctx), conn.Close())
		}
		if err := conn.Close(); err != nil {
			return err
		}
		if err := publish(ctx, session, address, text("a"), text("b")); err != nil {
			return err
		}
	}
	return nil
}

// Receivers of one name share a subscription: each message goes to one of them.
func shared(ctx context.Context, session *amqp.Session, name string) error {
	address := "topic://" + name + ".shared"
	var receivers []*amqp.Receiver
	for i := 0; i < 2; i++ {
		receiver, err := session.NewReceiver(ctx, address, &amqp.ReceiverOptions{
			Name: fmt.Sprintf("ours|%d", i), SourceCapabilities: []string{"shared"}, Credit: 1,
		})
		if err != nil {
			return err
		}
		receivers = append(receivers, receiver)
	}
	if err := publish(ctx, session, address, text("a"), text("b")); err != nil {
		return err
	}
	return errors.Join(take(ctx, receivers[0], "a"), take(ctx, receivers[1], "b"))
}

func stream(ctx context.Context, session *amqp.Session, name string) error {
	var messages []*amqp.Message
	for i := int32(0); i < 12; i++ {
		message := text("%d", i)
		message.ApplicationProperties = map[string]any{"number": i}
		messages = append(messages, message)
	}
	address := "/queues/" + name + "-stream"
	if err := publish(ctx, session, address, messages...); err != nil {
		return err
	}
	for bodies, filters := range map[[3]string][]amqp.LinkFilter{
		{"0", "1", "2"}: {amqp.NewLinkFilter("rabbitmq:stream-offset-spec", 0, "first")},
		{"6", "9", ""}: {
			amqp.NewLinkFilter("rabbitmq:stream-offset-spec", 0, uint64(4)), amqp.NewSelectorFilter("number % 3 = 0"),
		},
		{"7", "", ""}: {
			amqp.NewLinkFilter("rabbitmq:stream-offset-spec", 0, "first"),
			amqp.NewLinkFilter("amqp:application-properties-filter", 0, map[string]any{"number": int64(7)}),
		},
	} {
		receiver, err := session.NewReceiver(ctx, address, &amqp.ReceiverOptions{Filters: filters, Credit: 20})
		if err != nil {
			return err
		}
		for _, body := range bodies {
			if body != "" {
				if err := take(ctx, receiver, body); err != nil {
					return err
				}
			}
		}
		if err := receiver.Close(ctx); err != nil {
			return err
		}
	}
	return nil
}

// The client does not connect again by itself: the program does.
func restart(ctx context.Context, session *amqp.Session, queue string) error {
	if err := publish(ctx, session, "/queues/"+queue, text("before")); err != nil {
		return err
	}
	fmt.Println("restart")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if err := publish(ctx, session, "/queues/"+queue, text("lost")); err == nil {
		return errors.New("a connection of before took a message")
	}
	conn, again, err := open(ctx, "")
	if err != nil {
		return err
	}
	if err := publish(ctx, again, "/queues/"+queue, text("after")); err != nil {
		return err
	}
	receiver, err := again.NewReceiver(ctx, "/queues/"+queue, nil)
	if err != nil {
		return err
	}
	return errors.Join(take(ctx, receiver, "before", "after"), conn.Close())
}
