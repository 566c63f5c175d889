// RabbitMQ's Java client for AMQP 1.0 as it is. For each line "URI NAME SCENARIO" it prints "ok", or "failed"
// with the reason.

import com.rabbitmq.client.amqp.AddressBuilder;
import com.rabbitmq.client.amqp.Connection;
import com.rabbitmq.client.amqp.Consumer;
import com.rabbitmq.client.amqp.ConsumerBuilder;
import com.rabbitmq.client.amqp.Environment;
import com.rabbitmq.client.amqp.Management;
import com.rabbitmq.client.amqp.Message;
import com.rabbitmq.client.amqp.Publisher;
import com.rabbitmq.client.amqp.RpcClient;
import com.rabbitmq.client.amqp.RpcServer;
import com.rabbitmq.client.amqp.impl.AmqpEnvironmentBuilder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

public class RabbitClient {
    static final int LIMIT_S = 100;

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
        try (Environment environment = new AmqpEnvironmentBuilder().connectionSettings().uri(uri)
                .environmentBuilder().build();
             Connection connection = environment.connectionBuilder()
                .recovery().backOffDelayPolicy(com.rabbitmq.client.amqp.BackOffDelayPolicy.fixed(Duration.ofMillis(200)))
                .connectionBuilder().build()) {
            switch (scenario) {
                case "work" -> work(connection, name);
                case "topics" -> topics(connection, name);
                case "request" -> request(connection, name);
                case "stream" -> stream(connection, name);
                case "priority" -> priority(connection, name);
                case "restart" -> restart(connection, name);
                default -> throw new IllegalArgumentException(scenario);
            }
        }
    }

    static void publish(Connection connection, String queue, int count, int first) throws Exception {
        CountDownLatch accepted = new CountDownLatch(count);
        Publisher publisher = connection.publisherBuilder().queue(queue).build();
        for (int i = 0; i < count; i++) {
            Message message = publisher.message(bytes("" + (first + i))).messageId((long) i).durable(true);
            publisher.publish(message, context -> {
                if (context.status() == Publisher.Status.ACCEPTED) accepted.countDown();
            });
        }
        await(accepted, "outcomes");
        publisher.close();
    }

    static void work(Connection connection, String queue) throws Exception {
        Management management = connection.management();
        Management.QueueInfo made = management.queue(queue).quorum().queue()
            .maxLength(10_000).deadLetterExchange("amq.fanout").declare();
        check(made.type() == Management.QueueType.QUORUM && made.messageCount() == 0, "declared " + made);
        String letters = queue + "-dead";
        management.queue(letters).exclusive(true).autoDelete(true).declare();
        management.binding().sourceExchange("amq.fanout").destinationQueue(letters).bind();
        publish(connection, queue, 1000, 0);
        check(management.queueInfo(queue).messageCount() == 1000, "messages");
        Set<String> seen = ConcurrentHashMap.newKeySet();
        CountDownLatch done = new CountDownLatch(1000);
        Consumer[] consumers = new Consumer[2];
        for (int i = 0; i < 2; i++) {
            consumers[i] = connection.consumerBuilder().queue(queue).initialCredits(50).messageHandler((context, message) -> {
                String body = text(message);
                if (body.equals("13") && seen.add("first 13")) {
                    context.requeue();
                } else if (body.equals("14")) {
                    context.discard();
                    if (seen.add(body)) done.countDown();
                } else {
                    context.accept();
                    if (seen.add(body)) done.countDown();
                }
            }).build();
        }
        await(done, "messages");
        CountDownLatch dead = new CountDownLatch(1);
        connection.consumerBuilder().queue(letters).messageHandler((context, message) -> {
            context.accept();
            if (text(message).equals("14") && message.annotation("x-first-death-queue").equals(queue)) dead.countDown();
        }).build();
        await(dead, "the dead letter");
        for (Consumer consumer : consumers) consumer.close();
        check(management.queuePurge(queue).messageCount() == 0, "left");
        management.queueDelete(queue);
    }

    static void topics(Connection connection, String name) throws Exception {
        Management management = connection.management();
        management.exchange(name).type(Management.ExchangeType.TOPIC).declare();
        CountDownLatch got = new CountDownLatch(3);
        for (String pattern : new String[] {"news.#", "news.*", "*.today"}) {
            String queue = management.queue().exclusive(true).declare().name();
            management.binding().sourceExchange(name).destinationQueue(queue).key(pattern)
                .argument("n", 1).bind();
            connection.consumerBuilder().queue(queue).messageHandler((context, message) -> {
                context.accept();
                if (message.property("k").equals(7L)) got.countDown();
            }).build();
        }
        Publisher publisher = connection.publisherBuilder().exchange(name).key("news.today").build();
        publisher.publish(publisher.message(bytes("n")).property("k", 7L), context -> {});
        await(got, "copies");
        String other = management.queue().exclusive(true).declare().name();
        management.binding().sourceExchange(name).destinationQueue(other).key("k").argument("n", 1).bind();
        management.unbind().sourceExchange(name).destinationQueue(other).key("k").argument("n", 1).unbind();
        CountDownLatch released = new CountDownLatch(1);
        Publisher nowhere = connection.publisherBuilder().exchange(name).key("k").build();
        nowhere.publish(nowhere.message(bytes("n")), context -> {
            if (context.status() == Publisher.Status.RELEASED) released.countDown();
        });
        await(released, "the outcome released");
        management.exchangeDelete(name);
    }

    static void request(Connection connection, String queue) throws Exception {
        connection.management().queue(queue).declare();
        RpcServer server = connection.rpcServerBuilder().requestQueue(queue)
            .handler((context, request) -> context.message(bytes(text(request) + "!"))).build();
        RpcClient client = connection.rpcClientBuilder().requestAddress().queue(queue).rpcClient().build();
        for (int i = 0; i < 20; i++) {
            Message answer = client.publish(client.message(bytes("q" + i))).get(LIMIT_S, TimeUnit.SECONDS);
            check(text(answer).equals("q" + i + "!"), "answer " + text(answer));
        }
        client.close();
        server.close();
    }

    static void stream(Connection connection, String name) throws Exception {
        connection.management().queue(name).stream().queue().declare();
        CountDownLatch accepted = new CountDownLatch(300);
        Publisher publisher = connection.publisherBuilder().queue(name).build();
        for (int i = 0; i < 300; i++) {
            Message message = publisher.message(bytes("" + i)).subject(i % 3 == 0 ? "third" : "other").property("n", (long) i);
            if (i >= 100) message.annotation("x-stream-filter-value", i >= 200 ? "late" : "middle");
            publisher.publish(message, context -> accepted.countDown());
        }
        await(accepted, "outcomes");
        read(connection, name, 300, 0, options -> options.offset(ConsumerBuilder.StreamOffsetSpecification.FIRST));
        read(connection, name, 50, 250, options -> options.offset(250L));
        read(connection, name, 300, 0, options -> options.offset(java.time.Instant.EPOCH));
        read(connection, name, 100, 200, options -> options.offset(0L).filterValues("late"));
        read(connection, name, 200, 0, options -> options.offset(0L).filterValues("late").filterMatchUnfiltered(true));
        read(connection, name, 100, 0, options -> options.offset(0L).filter().subject("&p:thi").stream());
        read(connection, name, 1, 299, options -> options.offset(0L).filter().property("n", 299L).stream());
    }

    static void read(Connection connection, String name, int count, int first,
            java.util.function.Consumer<ConsumerBuilder.StreamOptions> choose) throws Exception {
        CountDownLatch got = new CountDownLatch(count);
        Set<String> wrong = ConcurrentHashMap.newKeySet();
        ConsumerBuilder builder = connection.consumerBuilder().queue(name).initialCredits(30).messageHandler((context, message) -> {
            String body = text(message);
            if (got.getCount() == count && !body.equals("" + first)) wrong.add("begins with " + body);
            if (!body.equals("" + message.annotation("x-stream-offset"))) wrong.add(body + " at another offset");
            context.accept();
            got.countDown();
        });
        choose.accept(builder.stream());
        Consumer consumer = builder.build();
        await(got, "messages of the stream");
        consumer.close();
        check(wrong.isEmpty(), "" + wrong);
    }

    // The consumer of the higher priority gets everything; of a single active consumer, the other goes on.
    static void priority(Connection connection, String name) throws Exception {
        connection.management().queue(name).quorum().queue().singleActiveConsumer(true).declare();
        Set<String> low = ConcurrentHashMap.newKeySet();
        Set<String> high = ConcurrentHashMap.newKeySet();
        CountDownLatch first = new CountDownLatch(50);
        CountDownLatch second = new CountDownLatch(50);
        connection.consumerBuilder().queue(name).priority(1).messageHandler((context, message) -> {
            context.accept();
            if (low.add(text(message))) second.countDown();
        }).build();
        Consumer preferred = connection.consumerBuilder().queue(name).priority(5).messageHandler((context, message) -> {
            context.accept();
            if (high.add(text(message))) first.countDown();
        }).build();
        publish(connection, name, 50, 0);
        await(first, "messages of the preferred consumer");
        check(low.isEmpty(), "the other one got " + low);
        preferred.close();
        publish(connection, name, 50, 50);
        await(second, "messages of the other consumer");
    }

    static void restart(Connection connection, String queue) throws Exception {
        connection.management().queue(queue).declare();
        Set<String> seen = ConcurrentHashMap.newKeySet();
        CountDownLatch first = new CountDownLatch(100);
        CountDownLatch all = new CountDownLatch(200);
        connection.consumerBuilder().queue(queue).messageHandler((context, message) -> {
            context.accept();
            if (seen.add(text(message))) {
                first.countDown();
                all.countDown();
            }
        }).build();
        publish(connection, queue, 100, 0);
        await(first, "messages before the restart");
        System.out.println("restart");
        INPUT.readLine();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
        while (true) {
            try {
                publish(connection, queue, 100, 100);
                break;
            } catch (com.rabbitmq.client.amqp.AmqpException notYet) {
                if (System.nanoTime() > end) throw notYet;
            }
        }
        await(all, "messages after the restart");
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(Message message) {
        return new String(message.body(), StandardCharsets.UTF_8);
    }

    static void await(CountDownLatch latch, String what) throws Exception {
        check(latch.await(LIMIT_S, TimeUnit.SECONDS), latch.getCount() + " missing of the " + what);
    }

    static void check(boolean right, String what) {
        if (!right) throw new AssertionError(what);
    }
}
