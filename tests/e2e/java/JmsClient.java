// Qpid JMS as it is. For each line "URI NAME SCENARIO" it prints "ok", or "failed" with the reason.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashSet;
import java.util.Set;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.Destination;
import javax.jms.InvalidDestinationException;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import javax.jms.TextMessage;
import javax.jms.Topic;
import org.apache.qpid.jms.JmsConnectionFactory;

public class JmsClient {
    static final long LIMIT_MS = 100_000;

    static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    public static void main(String[] arguments) throws Exception {
        for (String line = INPUT.readLine(); line != null; line = INPUT.readLine()) {
            String[] words = line.split(" ");
            try {
                run(words[0], words[1], words[2]);
                System.out.println("ok");
            } catch (Throwable failure) {
                System.out.println("failed: " + failure);
                failure.printStackTrace();
            }
        }
        System.exit(0);
    }

    static void run(String uri, String name, String scenario) throws Exception {
        Connection connection = new JmsConnectionFactory("guest", "guest", uri).createConnection();
        try {
            connection.setClientID(name);
            connection.start();
            Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            switch (scenario) {
                case "work" -> work(session, name);
                case "topics" -> topics(session, name);
                case "request" -> request(connection, session, name);
                case "transaction" -> transaction(connection, session, name);
                case "durable" -> durable(connection, connection.createSession(false, Session.AUTO_ACKNOWLEDGE), name);
                case "shared" -> shared(connection.createSession(false, Session.AUTO_ACKNOWLEDGE), name);
                case "selectors" -> selectors(session, connection.createSession(false, Session.AUTO_ACKNOWLEDGE), name);
                case "stream" -> stream(connection.createSession(false, Session.AUTO_ACKNOWLEDGE), name);
                case "delay" -> delay(session, name);
                case "restart" -> restart(session, name);
                default -> throw new IllegalArgumentException(scenario);
            }
        } finally {
            connection.close();
        }
    }

    static void send(Session session, MessageProducer producer, int first, int count) throws Exception {
        for (int i = first; i < first + count; i++) {
            TextMessage message = session.createTextMessage("" + i);
            message.setIntProperty("number", i);
            message.setJMSCorrelationID("c" + i);
            producer.send(message);
        }
    }

    static TextMessage take(MessageConsumer consumer) throws Exception {
        Message message = consumer.receive(LIMIT_MS);
        check(message instanceof TextMessage, "a text message, not " + message);
        return (TextMessage) message;
    }

    static void work(Session session, String name) throws Exception {
        Queue queue = session.createQueue(name);
        MessageProducer producer = session.createProducer(queue);
        producer.setPriority(7);
        MessageConsumer consumer = session.createConsumer(queue);
        send(session, producer, 0, 500);
        for (int i = 0; i < 500; i++) {
            TextMessage message = take(consumer);
            check(message.getText().equals("" + i) && message.getIntProperty("number") == i, "order at " + i);
            check(message.getJMSCorrelationID().equals("c" + i) && message.getJMSPriority() == 7, "fields");
            check(message.getJMSDestination().equals(queue), "destination " + message.getJMSDestination());
            check(message.getJMSDeliveryMode() == DeliveryMode.PERSISTENT, "durable");
            if (i % 100 == 99) message.acknowledge();
        }
        send(session, producer, 500, 2);
        take(consumer);
        session.recover();
        check(take(consumer).getJMSRedelivered(), "redelivered");
        take(consumer).acknowledge();
        check(consumer.receiveNoWait() == null, "nothing left");
    }

    static void topics(Session session, String name) throws Exception {
        Topic topic = session.createTopic(name);
        MessageConsumer[] consumers = {session.createConsumer(topic), session.createConsumer(topic)};
        MessageProducer producer = session.createProducer(topic);
        send(session, producer, 0, 10);
        for (MessageConsumer consumer : consumers) {
            for (int i = 0; i < 10; i++) {
                TextMessage message = take(consumer);
                check(message.getText().equals("" + i), "order");
                check(message.getJMSDestination().equals(topic), "destination " + message.getJMSDestination());
            }
        }
        MessageProducer anonymous = session.createProducer(null);
        anonymous.send(topic, session.createTextMessage("anonymous"));
        for (MessageConsumer consumer : consumers) check(take(consumer).getText().equals("anonymous"), "anonymous");
        anonymous.send(session.createTopic(name + ".nobody"), session.createTextMessage("unheard"));
    }

    static void request(Connection connection, Session session, String name) throws Exception {
        Queue queue = session.createQueue(name);
        Session other = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer requests = other.createConsumer(queue);
        for (Destination answers : new Destination[] {session.createTemporaryQueue(), session.createTemporaryTopic()}) {
            MessageConsumer consumer = session.createConsumer(answers);
            TextMessage question = session.createTextMessage("2+2");
            question.setJMSReplyTo(answers);
            session.createProducer(queue).send(question);
            TextMessage asked = take(requests);
            TextMessage answer = other.createTextMessage(asked.getText() + "=4");
            MessageProducer anonymous = other.createProducer(null);
            anonymous.send(asked.getJMSReplyTo(), answer);
            check(take(consumer).getText().equals("2+2=4"), "answer");
            consumer.close();
            anonymous.close();
        }
    }

    static void transaction(Connection connection, Session plain, String name) throws Exception {
        Queue queue = plain.createQueue(name);
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageProducer producer = session.createProducer(queue);
        send(session, producer, 0, 10);
        session.rollback();
        send(session, producer, 10, 10);
        MessageConsumer watcher = plain.createConsumer(queue);
        check(watcher.receiveNoWait() == null, "nothing before the commit");
        watcher.close();
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        for (int round = 0; round < 2; round++) {
            for (int i = 10; i < 20; i++) check(take(consumer).getText().equals("" + i), "order at " + i);
            if (round == 0) session.rollback();
        }
        send(session, producer, 20, 1);
        session.commit();
        check(take(consumer).getText().equals("20"), "the message of the last commit");
        session.commit();
        consumer.close();
        check(plain.createConsumer(queue).receiveNoWait() == null, "nothing left");
    }

    // A durable subscription keeps messages while nobody reads; another topic begins it anew.
    static void durable(Connection connection, Session session, String name) throws Exception {
        Topic topic = session.createTopic(name);
        session.createDurableSubscriber(topic, "mine").close();
        send(session, session.createProducer(topic), 0, 5);
        MessageConsumer consumer = session.createDurableSubscriber(topic, "mine");
        for (int i = 0; i < 5; i++) check(take(consumer).getText().equals("" + i), "order at " + i);
        try {
            connection.createSession(false, Session.AUTO_ACKNOWLEDGE).createDurableSubscriber(topic, "mine");
            check(false, "a second subscriber was let in");
        } catch (JMSException taken) {
            check(taken.getMessage().contains("mine") || taken.getMessage().contains("resource-locked"), "" + taken);
        }
        consumer.close();
        Topic other = session.createTopic(name + ".other");
        consumer = session.createDurableSubscriber(other, "mine");
        send(session, session.createProducer(topic), 5, 1);
        send(session, session.createProducer(other), 6, 1);
        check(take(consumer).getText().equals("6"), "the other topic's message");
        consumer.close();
        session.unsubscribe("mine");
        try {
            session.unsubscribe("mine");
            check(false, "a subscription that is not there was found");
        } catch (InvalidDestinationException notThere) {
            // as it should be
        }
    }

    static void shared(Session session, String name) throws Exception {
        Topic topic = session.createTopic(name);
        for (boolean lasting : new boolean[] {false, true}) {
            MessageConsumer[] consumers = new MessageConsumer[2];
            for (int i = 0; i < 2; i++) {
                consumers[i] = lasting ? session.createSharedDurableConsumer(topic, "ours")
                    : session.createSharedConsumer(topic, "ours");
            }
            MessageConsumer alone = session.createConsumer(topic);
            send(session, session.createProducer(topic), 0, 20);
            Set<String> seen = new HashSet<>();
            while (seen.size() < 20) {
                for (MessageConsumer consumer : consumers) {
                    Message message = consumer.receive(50);
                    if (message != null) check(seen.add(((TextMessage) message).getText()), "a second copy");
                }
            }
            for (int i = 0; i < 20; i++) check(take(alone).getText().equals("" + i), "order at " + i);
            alone.close();
            for (MessageConsumer consumer : consumers) consumer.close();
        }
        session.unsubscribe("ours");
    }

    // Topics have selectors, and so have durable subscriptions; queues refuse them.
    static void selectors(Session session, Session automatic, String name) throws Exception {
        Topic topic = session.createTopic(name);
        String odd = "number % 2 = 1 AND JMSCorrelationID LIKE 'c%' AND JMSDeliveryMode = 'PERSISTENT'";
        MessageConsumer some = automatic.createConsumer(topic, odd);
        MessageConsumer none = automatic.createConsumer(topic, "number > 100");
        automatic.createDurableConsumer(topic, "picky", "number BETWEEN 3 AND 5", false).close();
        send(session, session.createProducer(topic), 0, 8);
        for (int i = 1; i < 8; i += 2) check(take(some).getText().equals("" + i), "the odd ones");
        check(some.receiveNoWait() == null && none.receiveNoWait() == null, "no others");
        MessageConsumer picky = automatic.createDurableConsumer(topic, "picky", "number BETWEEN 3 AND 5", false);
        for (int i = 3; i < 6; i++) check(take(picky).getText().equals("" + i), "those between");
        picky.close();
        send(session, session.createProducer(topic), 3, 1);
        picky = automatic.createDurableConsumer(topic, "picky", "number = 9", false);
        send(session, session.createProducer(topic), 9, 1);
        check(take(picky).getText().equals("9"), "another selector begins the subscription anew");
        picky.close();
        automatic.unsubscribe("picky");
        for (Destination refused : new Destination[] {topic, session.createQueue(name)}) {
            try {
                automatic.createConsumer(refused, refused == topic ? "number BETWEEN" : "number = 1");
                check(false, "a consumer was let in");
            } catch (JMSException expected) {
                // as it should be
            }
        }
    }

    // JMS has no word for an offset: a consumer gets what comes from then on, and each consumer gets all of it.
    static void stream(Session session, String name) throws Exception {
        Queue stream = session.createQueue(name);
        MessageProducer producer = session.createProducer(stream);
        send(session, producer, 0, 5);
        MessageConsumer all = session.createConsumer(stream);
        MessageConsumer some = session.createConsumer(stream, "number > 7");
        send(session, producer, 5, 5);
        for (int i = 5; i < 10; i++) check(take(all).getText().equals("" + i), "order at " + i);
        for (int i = 8; i < 10; i++) check(take(some).getText().equals("" + i), "those that pass, at " + i);
    }

    static void delay(Session session, String name) throws Exception {
        Queue queue = session.createQueue(name);
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryDelay(1500);
        long sent = System.currentTimeMillis();
        send(session, producer, 0, 1);
        producer.setDeliveryDelay(0);
        send(session, producer, 1, 1);
        MessageConsumer consumer = session.createConsumer(queue);
        check(take(consumer).getText().equals("1"), "the message without a delay comes first");
        TextMessage late = take(consumer);
        check(late.getText().equals("0") && System.currentTimeMillis() >= sent + 1500, "the delay");
        late.acknowledge();
    }

    static void restart(Session session, String name) throws Exception {
        Queue queue = session.createQueue(name);
        MessageProducer producer = session.createProducer(queue);
        MessageConsumer consumer = session.createConsumer(queue);
        send(session, producer, 0, 10);
        Set<String> seen = new HashSet<>();
        while (seen.size() < 10) seen.add(take(consumer).getText());
        System.out.println("restart");
        INPUT.readLine();
        send(session, producer, 10, 10);
        while (seen.size() < 20) {
            TextMessage message = take(consumer);
            seen.add(message.getText());
            message.acknowledge();
        }
    }

    static void check(boolean right, String what) {
        if (!right) throw new AssertionError(what);
    }
}
