//! Code of the program that the driver or the store calls: it may block for ever, and an instance goes on.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use tenure::{
    Elect,
    elect::{Status, Work},
    store::mongo::{
        MongoOptions,
        driver::event::{EventHandler, command::CommandEvent},
    },
};

use super::{
    fleet::{Place, SECOND, quick, replica_set, steady, until, when, within},
    rotation::{Guarded, LATTER},
};
use crate::mongodb::connected;

/// Blocks threads until it is opened.
#[derive(Clone, Debug, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn close(&self) {
        *self.0.0.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = false;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let (closed, opened) = &*self.0;
        drop(opened.wait_while(closed.lock().unwrap(), |closed| *closed).unwrap());
    }
}

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Opens a gate at the end of a test, however that comes.
struct Opens(Gate);

#[tokio::test]
async fn a_handler_of_command_events_that_blocks_or_panics_keeps_no_heartbeat() {
    let place = Place::on(replica_set().await.uri()).await;
    let gate = Gate::default();
    let _opens = Opens(gate.clone());
    let calls = Arc::new(AtomicU32::new(0));
    let called = (gate.clone(), calls.clone());
    let handler = EventHandler::callback(move |_: CommandEvent| {
        // Whatever is sent before an instance is there is the program's own.
        if thread::current().name() == Some("tenure-events") {
            called.0.pass();
            called.1.fetch_add(1, Ordering::Relaxed);
            panic!("on purpose");
        }
    });
    let options = MongoOptions::new().database(&place.name).command_events(handler);
    let elect = Elect::start(connected(&place.uri, options).await, quick("pod-1")).await.unwrap();
    until("it is called", async || when(calls.load(Ordering::Relaxed) > 0, ())).await;
    let held = elect.acquire("orders").await.unwrap();
    gate.close();
    let next = elect.acquire("others").await.unwrap();
    next.release().await.unwrap();
    let (remaining, before) = (held.remaining(), calls.load(Ordering::Relaxed));
    until("it is renewed", async || when(held.remaining() > remaining, ())).await;
    assert!(calls.load(Ordering::Relaxed) <= before + 1, "it was blocked meanwhile");
    assert!(matches!(elect.health().status, Status::Healthy), "{:?}", elect.health());
    held.release().await.unwrap();
    within("it closes", elect.close()).await;
}

#[tokio::test]
async fn a_source_of_the_connection_string_that_blocks_is_asked_once_until_it_answers() {
    let guarded = Guarded::start().await;
    let gate = Gate::default();
    let _opens = Opens(gate.clone());
    let asks = gate.clone();
    let store = guarded.store_behind(move || asks.pass()).await;
    gate.close();
    // The source is asked again after 10 s, 2 s and 4 s.
    let elect = Elect::start(store, steady("pod-1").with_refresh_duration(120 * SECOND)).await.unwrap();
    let held = elect.acquire("orders").await.unwrap();
    guarded.know(LATTER);
    guarded.change_password().await;
    let says = "uri_from failed: it has not answered the last time it was asked";
    until("it says what is in the way", async || {
        let health = elect.health();
        let beats = health.troubles.iter().find(|trouble| trouble.work == Work::Beats);
        when(beats.is_some_and(|trouble| trouble.error.contains(says)), health)
    })
    .await;
    gate.open();
    until("it is well again", async || {
        let health = elect.health();
        when(matches!(health.status, Status::Healthy) && health.troubles.is_empty(), health)
    })
    .await;
    assert!(held.is_valid(), "its lease goes on");
    held.release().await.unwrap();
    within("it closes", elect.close()).await;
}
