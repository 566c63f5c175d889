//! fe2o3-amqp as it is: amqp10 URL QUEUE. It prints "restart", waits for a line while the broker restarts, and
//! prints "ok", or an error. QUEUE is a queue that is there, and QUEUE-numbers a stream.

use std::error::Error;
use std::time::Duration;

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::delivery::Delivery;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::{
    Controller, Transaction, TransactionDischarge, TransactionPosting, TransactionRetirement,
};
use fe2o3_amqp::types::messaging::{
    ApplicationProperties, Body, Data, Header, Message, Outcome, Properties, Source, TerminusDurability,
    TerminusExpiryPolicy,
};
use fe2o3_amqp::types::primitives::{Symbol, Value};
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use serde_amqp::described::Described;
use serde_amqp::descriptor::Descriptor;

type Failed = Box<dyn Error + Send + Sync>;

/// Of every wait for a message; it says nothing of how fast the broker is.
const WAIT: Duration = Duration::from_secs(120);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let words: Vec<String> = std::env::args().collect();
    let (url, queue) = (words[1].as_str(), format!("/queues/{}", words[2]));
    let (mut connection, mut session) = open(url).await?;
    work(&mut session, &queue).await?;
    topics(&mut session).await?;
    large(&mut session, &queue).await?;
    request(&mut session, &queue).await?;
    durable(url, &mut session).await?;
    shared(&mut session).await?;
    transactions(&mut session, &queue).await?;
    stream(&mut session, &format!("{queue}-numbers")).await?;
    send(&mut session, &queue, "before", 1).await?;
    println!("restart");
    std::io::stdin().read_line(&mut String::new())?;
    connection.close().await.ok();
    (connection, session) = again(url).await?;
    send(&mut session, &queue, "after", 1).await?;
    take(&mut session, &queue, &["before0", "after0"]).await?;
    session.end().await?;
    connection.close().await?;
    println!("ok");
    Ok(())
}

async fn open(url: &str) -> Result<(ConnectionHandle<()>, SessionHandle<()>), Failed> {
    let mut connection = Connection::open("fe2o3", url).await?;
    let session = Session::begin(&mut connection).await?;
    Ok((connection, session))
}

/// Connect again, as often as it takes.
async fn again(url: &str) -> Result<(ConnectionHandle<()>, SessionHandle<()>), Failed> {
    for _ in 0..200 {
        if let Ok(opened) = open(url).await {
            return Ok(opened);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    Err("the broker did not come back".into())
}

fn message(body: impl Into<Vec<u8>>) -> Message<Data> {
    let header = Header { durable: true, ..Default::default() };
    Message::builder().header(header).data(body.into()).build()
}

fn accepted(outcome: Outcome) -> Result<(), Failed> {
    match outcome {
        Outcome::Accepted(_) => Ok(()),
        other => Err(format!("the outcome was {other:?}").into()),
    }
}

async fn send(session: &mut SessionHandle<()>, address: &str, name: &str, count: usize) -> Result<(), Failed> {
    let mut sender = Sender::attach(session, name, address).await?;
    for number in 0..count {
        accepted(sender.send(message(format!("{name}{number}"))).await?)?;
    }
    Ok(sender.close().await?)
}

/// The next message, or an error after `WAIT`.
async fn next(receiver: &mut Receiver) -> Result<Delivery<Body<Data>>, Failed> {
    let name = receiver.name().to_string();
    match tokio::time::timeout(WAIT, receiver.recv()).await {
        Ok(delivery) => Ok(delivery?),
        Err(_) => Err(format!("nothing came to the link {name}").into()),
    }
}

async fn receive(receiver: &mut Receiver, release: bool) -> Result<Vec<u8>, Failed> {
    let delivery = next(receiver).await?;
    let body: Vec<u8> = match delivery.body() {
        Body::Data(parts) => parts.iter().flat_map(|part| part.0.to_vec()).collect(),
        other => return Err(format!("the body was {other:?}").into()),
    };
    if release {
        receiver.release(&delivery).await?;
    } else {
        receiver.accept(&delivery).await?;
    }
    Ok(body)
}

async fn expect(receiver: &mut Receiver, texts: &[&str]) -> Result<(), Failed> {
    for text in texts {
        let body = receive(receiver, false).await?;
        if body != text.as_bytes() {
            return Err(format!("{} came, not {text}", String::from_utf8_lossy(&body)).into());
        }
    }
    Ok(())
}

async fn take(session: &mut SessionHandle<()>, address: &str, texts: &[&str]) -> Result<(), Failed> {
    let mut receiver = Receiver::attach(session, "receiver", address).await?;
    expect(&mut receiver, texts).await?;
    Ok(receiver.close().await?)
}

async fn work(session: &mut SessionHandle<()>, queue: &str) -> Result<(), Failed> {
    send(session, queue, "m", 100).await?;
    let mut receiver = Receiver::attach(session, "worker", queue).await?;
    let first = receive(&mut receiver, true).await?;
    let mut seen = std::collections::HashSet::new();
    while seen.len() < 100 {
        if !seen.insert(receive(&mut receiver, false).await?) {
            return Err("a message came twice".into());
        }
    }
    if !seen.contains(&first) {
        return Err("the released message did not come again".into());
    }
    Ok(receiver.close().await?)
}

async fn topics(session: &mut SessionHandle<()>) -> Result<(), Failed> {
    let some = Receiver::attach(session, "some", "/exchanges/amq.topic/a.%2A").await?;
    let all = Receiver::attach(session, "all", "/exchanges/amq.topic/%23").await?;
    for key in ["a.b", "c"] {
        send(session, &format!("/exchanges/amq.topic/{key}"), key, 1).await?;
    }
    for (mut receiver, texts) in [(some, vec!["a.b0"]), (all, vec!["a.b0", "c0"])] {
        expect(&mut receiver, &texts).await?;
        receiver.close().await?;
    }
    Ok(())
}

/// A message of many frames.
async fn large(session: &mut SessionHandle<()>, queue: &str) -> Result<(), Failed> {
    let body: Vec<u8> = (0..1_000_000).map(|number| number as u8).collect();
    let mut sender = Sender::attach(session, "large", queue).await?;
    accepted(sender.send(message(body.clone())).await?)?;
    sender.close().await?;
    let mut receiver = Receiver::attach(session, "larger", queue).await?;
    if receive(&mut receiver, false).await? != body {
        return Err("a large message changed".into());
    }
    Ok(receiver.close().await?)
}

/// A request that is answered to a dynamic node.
async fn request(session: &mut SessionHandle<()>, queue: &str) -> Result<(), Failed> {
    let source = Source::builder().dynamic(true).build();
    let mut answers = Receiver::builder().name("answers").source(source).attach(session).await?;
    let address = answers.source().as_ref().and_then(|source| source.address.clone()).ok_or("no address")?;
    let properties = Some(Properties::builder().reply_to(address).build());
    let mut sender = Sender::attach(session, "asks", queue).await?;
    accepted(sender.send(Message { properties, ..message("2+2") }).await?)?;
    sender.close().await?;
    let mut requests = Receiver::attach(session, "requests", queue).await?;
    let asked = next(&mut requests).await?;
    requests.accept(&asked).await?;
    let reply_to = asked.message().properties.as_ref().and_then(|found| found.reply_to.clone()).ok_or("no reply-to")?;
    requests.close().await?;
    send(session, &reply_to, "4", 1).await?;
    expect(&mut answers, &["40"]).await?;
    Ok(answers.close().await?)
}

/// A durable subscription keeps what comes while its container is away.
async fn durable(url: &str, session: &mut SessionHandle<()>) -> Result<(), Failed> {
    let source = || {
        Source::builder()
            .address("topic://durable")
            .durable(TerminusDurability::UnsettledState)
            .expiry_policy(TerminusExpiryPolicy::Never)
            .build()
    };
    let (mut connection, mut own) = open(url).await?;
    Receiver::builder()
        .name("mine")
        .source(source())
        .attach(&mut own)
        .await?
        .detach()
        .await
        .map_err(|(_, error)| error)?;
    connection.close().await?;
    send(session, "topic://durable", "kept", 3).await?;
    (connection, own) = open(url).await?;
    let mut receiver = Receiver::builder().name("mine").source(source()).attach(&mut own).await?;
    expect(&mut receiver, &["kept0", "kept1", "kept2"]).await?;
    receiver.close().await?;
    Ok(connection.close().await?)
}

/// Receivers of one name share a subscription: each message goes to one of them.
async fn shared(session: &mut SessionHandle<()>) -> Result<(), Failed> {
    let mut receivers = Vec::new();
    for name in ["ours|0", "ours|1"] {
        let source = Source::builder().address("topic://shared").capabilities(vec![Symbol::from("shared")]).build();
        let mode = CreditMode::Manual;
        let mut receiver = Receiver::builder().name(name).source(source).credit_mode(mode).attach(session).await?;
        receiver.set_credit(1).await?;
        receivers.push(receiver);
    }
    send(session, "topic://shared", "either", 2).await?;
    let mut bodies = Vec::new();
    for mut receiver in receivers {
        bodies.push(receive(&mut receiver, false).await?);
        receiver.close().await?;
    }
    bodies.sort();
    if bodies != [b"either0", b"either1"] {
        return Err("a message of a shared subscription came to both, or to none".into());
    }
    Ok(())
}

/// A transaction sends and takes when it is committed, and neither when it is rolled back.
async fn transactions(session: &mut SessionHandle<()>, queue: &str) -> Result<(), Failed> {
    let controller = Controller::attach(session, "controller").await?;
    let mut sender = Sender::attach(session, "transacted", queue).await?;
    for commits in [false, true] {
        let transaction = Transaction::declare(&controller, None).await?;
        let body = if commits { "committed" } else { "rolled back" };
        accepted(transaction.post(&mut sender, message(body)).await?)?;
        if commits {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
    }
    sender.close().await?;
    for commits in [false, true] {
        let mut receiver = Receiver::attach(session, format!("taker-{commits}"), queue).await?;
        let transaction = Transaction::declare(&controller, None).await?;
        let delivery = next(&mut receiver).await?;
        match delivery.body() {
            Body::Data(parts) if parts.iter().any(|part| &part.0[..] == b"committed") => (),
            other => return Err(format!("{other:?} came").into()),
        }
        transaction.accept(&mut receiver, &delivery).await?;
        if commits {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
        receiver.close().await?;
    }
    Ok(controller.close().await?)
}

/// A stream from an offset on, and through a filter.
async fn stream(session: &mut SessionHandle<()>, address: &str) -> Result<(), Failed> {
    let mut sender = Sender::attach(session, "appends", address).await?;
    for number in 0..12 {
        let application_properties = Some(ApplicationProperties::builder().insert("number", number).build());
        let appended = Message { application_properties, ..message(number.to_string()) };
        accepted(sender.send(appended).await?)?;
    }
    sender.close().await?;
    let offset = |value: Value| ("rabbitmq:stream-offset-spec", value);
    for (filters, texts) in [
        (vec![offset("first".into())], vec!["0", "1", "2"]),
        (vec![offset(4u64.into()), ("amqp:sql-filter", "number % 3 = 0".into())], vec!["6", "9"]),
    ] {
        let mut source = Source::builder().address(address);
        for (name, value) in filters {
            let descriptor = Descriptor::Name(Symbol::from(name));
            source = source.add_to_filter(name, Described { descriptor, value });
        }
        let mut receiver = Receiver::builder().name("reader").source(source.build()).attach(session).await?;
        expect(&mut receiver, &texts).await?;
        receiver.close().await?;
    }
    Ok(())
}
