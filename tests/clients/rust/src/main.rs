//! fe2o3-amqp as it is: amqp10 URL QUEUE. It prints "restart", waits for a line while the broker restarts, and
//! prints "ok", or an error. QUEUE is a queue that is there.

use std::error::Error;
use std::time::Duration;

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::messaging::{Body, Data, Header, Message, Outcome};
use fe2o3_amqp::{Connection, Receiver, Sender, Session};

type Failed = Box<dyn Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let words: Vec<String> = std::env::args().collect();
    let (url, queue) = (words[1].as_str(), format!("/queues/{}", words[2]));
    let (mut connection, mut session) = open(url).await?;
    work(&mut session, &queue).await?;
    topics(&mut session).await?;
    large(&mut session, &queue).await?;
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

async fn publish(sender: &mut Sender, body: Vec<u8>) -> Result<(), Failed> {
    let header = Header { durable: true, ..Default::default() };
    let message = Message::builder().header(header).data(body).build();
    match sender.send(message).await? {
        Outcome::Accepted(_) => Ok(()),
        other => Err(format!("the outcome was {other:?}").into()),
    }
}

async fn send(session: &mut SessionHandle<()>, address: &str, name: &str, count: usize) -> Result<(), Failed> {
    let mut sender = Sender::attach(session, name, address).await?;
    for number in 0..count {
        publish(&mut sender, format!("{name}{number}").into_bytes()).await?;
    }
    Ok(sender.close().await?)
}

async fn receive(receiver: &mut Receiver, release: bool) -> Result<Vec<u8>, Failed> {
    let delivery = receiver.recv::<Body<Data>>().await?;
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

async fn take(session: &mut SessionHandle<()>, address: &str, texts: &[&str]) -> Result<(), Failed> {
    let mut receiver = Receiver::attach(session, "receiver", address).await?;
    for text in texts {
        let body = receive(&mut receiver, false).await?;
        if body != text.as_bytes() {
            return Err(format!("{body:?} came, not {text}").into());
        }
    }
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
        for text in texts {
            if receive(&mut receiver, false).await? != text.as_bytes() {
                return Err(format!("{text} did not come").into());
            }
        }
        receiver.close().await?;
    }
    Ok(())
}

/// A message of many frames.
async fn large(session: &mut SessionHandle<()>, queue: &str) -> Result<(), Failed> {
    let body: Vec<u8> = (0..1_000_000).map(|number| number as u8).collect();
    let mut sender = Sender::attach(session, "large", queue).await?;
    publish(&mut sender, body.clone()).await?;
    sender.close().await?;
    let mut receiver = Receiver::attach(session, "larger", queue).await?;
    if receive(&mut receiver, false).await? != body {
        return Err("a large message changed".into());
    }
    Ok(receiver.close().await?)
}
