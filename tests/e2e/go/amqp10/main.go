// go-amqp as it is: amqp10 URL NAME. It prints "ok", or an error. NAME is a queue that is there.
package main

import (
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
	} {
		if err := run(ctx, scenario); err != nil {
			fmt.Println(name+":", err)
			os.Exit(1)
		}
	}
	fmt.Println("ok")
}

func run(ctx context.Context, scenario func(context.Context, *amqp.Session, string) error) error {
	conn, err := amqp.Dial(ctx, os.Args[1], nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	if err := scenario(ctx, session, os.Args[2]); err != nil {
		return err
	}
	return session.Close(ctx)
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
