//! Wake-ups: who waits for news of a client or runtime, on this instance and on others; and hints for the workers.
//!
//! A hint may be lost: whoever waits looks again after a while, and a sweep finds work that nobody announced.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use omgservers_protocol::id::{ClientId, LocalRunId, RuntimeId};
use sqlx::postgres::{PgListener, PgPool};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::db::Shard;
use crate::event::{Kind, LANES};

/// Something to look at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum News {
    /// There may be a message for this client.
    Client(ClientId),
    /// There may be a command for this runtime.
    Runtime(RuntimeId),
    /// Tokens of somebody were revoked.
    Revoked,
    /// Something else should run on a developer's machine.
    LocalRun(LocalRunId),
}

/// There may be work on this entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Job {
    pub shard: Shard,
    pub kind: Kind,
    pub key: i64,
}

/// How many hints may wait; more are left to the sweep.
const BACKLOG: usize = 8_192;
/// Hints are gathered for so long before others are told.
const GATHER: Duration = Duration::from_millis(2);
const CHANNEL: &str = "omgservers_news";
/// Postgres takes payloads of less than 8000 bytes.
const PAYLOAD_MAX: usize = 7_900;

pub struct Hub {
    waiting: Mutex<HashMap<News, Waiting>>,
    jobs: [mpsc::Sender<Job>; LANES],
    /// One per database.
    others: Vec<mpsc::Sender<News>>,
    /// No other instance lives, so nobody else needs to be told. One that has just started looks again by itself.
    alone: AtomicBool,
}

/// Those who wait for the same news. They are counted under the lock of the map: how many hold the [`Notify`] would not
/// say, since somebody may be about to let go of it.
#[derive(Default)]
struct Waiting {
    notify: Arc<Notify>,
    listeners: usize,
}

/// The receiving ends, for those who run the loops.
pub struct Receivers {
    pub jobs: [mpsc::Receiver<Job>; LANES],
    pub others: Vec<mpsc::Receiver<News>>,
}

impl Hub {
    pub fn new(databases: usize) -> (Arc<Self>, Receivers) {
        let [(jobs, jobs_receiver), (slow, slow_receiver)] = [mpsc::channel(BACKLOG), mpsc::channel(BACKLOG)];
        let (others, others_receivers) = (0..databases).map(|_| mpsc::channel(BACKLOG)).unzip();
        let hub = Self {
            waiting: Mutex::default(),
            jobs: [jobs, slow],
            others,
            alone: AtomicBool::new(false),
        };
        (
            Arc::new(hub),
            Receivers {
                jobs: [jobs_receiver, slow_receiver],
                others: others_receivers,
            },
        )
    }

    /// Starts to wait. Take it before looking, so that nothing falls between the look and the wait.
    pub fn listen(self: &Arc<Self>, news: News) -> Listener {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = waiting.entry(news).or_default();
        entry.listeners += 1;
        let notify = entry.notify.clone();
        Listener {
            hub: self.clone(),
            news,
            notify,
        }
    }

    /// Wakes those who wait here, and on other instances those of the given database.
    pub fn tell(&self, database: usize, news: News) {
        self.tell_here(news);
        if self.alone.load(Ordering::Relaxed) {
            return;
        }
        if self.others[database].try_send(news).is_err() {
            metrics::counter!("omgservers_wake_dropped_total", "kind" => "news").increment(1);
        }
    }

    /// Whether this is the only instance.
    pub fn set_alone(&self, alone: bool) {
        self.alone.store(alone, Ordering::Relaxed);
    }

    fn tell_here(&self, news: News) {
        let notify = self
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&news)
            .map(|waiting| waiting.notify.clone());
        if let Some(notify) = notify {
            notify.notify_waiters();
        }
    }

    /// After a gap everybody looks again.
    fn tell_all_here(&self) {
        let all: Vec<_> = self
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .map(|waiting| waiting.notify.clone())
            .collect();
        for notify in all {
            notify.notify_waiters();
        }
    }

    pub fn hint(&self, job: Job) {
        if self.jobs[job.kind.lane()].try_send(job).is_err() {
            metrics::counter!("omgservers_wake_dropped_total", "kind" => "job").increment(1);
        }
    }
}

/// Waits for one piece of news.
pub struct Listener {
    hub: Arc<Hub>,
    news: News,
    notify: Arc<Notify>,
}

impl Listener {
    /// Completes when something was told after this was called (and first polled or enabled).
    pub fn notified(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut waiting = self.hub.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = waiting.entry(self.news) {
            entry.get_mut().listeners -= 1;
            if entry.get().listeners == 0 {
                entry.remove();
            }
        }
    }
}

/// Gathers news and tells the other instances on this database.
pub async fn send_to_others(pool: PgPool, holder: String, mut news: mpsc::Receiver<News>, stop: CancellationToken) {
    let mut gathered = Vec::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            count = news.recv_many(&mut gathered, 512) => if count == 0 { return },
        }
        tokio::time::sleep(GATHER).await;
        while gathered.len() < 4_096
            && let Ok(more) = news.try_recv()
        {
            gathered.push(more);
        }
        gathered.sort_unstable_by_key(|news| match news {
            News::Client(id) => (0, id.get()),
            News::Runtime(id) => (1, id.get()),
            News::Revoked => (2, 0),
            News::LocalRun(id) => (3, id.get()),
        });
        gathered.dedup();
        for payload in payloads(&holder, &gathered) {
            // Without a durable commit: a notice that is lost with the server is found by looking again.
            let sent = sqlx::query("select pg_notify($1, $2)")
                .bind(CHANNEL)
                .bind(&payload)
                .execute(&pool)
                .await;
            if let Err(cause) = sent {
                tracing::warn!(error = %cause, "could not tell other instances");
            }
        }
        gathered.clear();
    }
}

fn payloads(holder: &str, gathered: &[News]) -> Vec<String> {
    let mut payloads = vec![holder.to_owned()];
    for news in gathered {
        let word = match news {
            News::Client(id) => format!(" c{id}"),
            News::Runtime(id) => format!(" r{id}"),
            News::Revoked => " v0".to_owned(),
            News::LocalRun(id) => format!(" l{id}"),
        };
        let last = payloads.last_mut().expect("starts with one");
        if last.len() + word.len() > PAYLOAD_MAX {
            payloads.push(format!("{holder}{word}"));
        } else {
            last.push_str(&word);
        }
    }
    payloads
}

fn read_payload<'a>(holder: &str, payload: &'a str) -> impl Iterator<Item = News> + 'a {
    let mut words = payload.split(' ');
    let own = words.next() == Some(holder);
    words.filter(move |_| !own).filter_map(|word| {
        let id = word.get(1..)?.parse().ok()?;
        match word.as_bytes()[0] {
            b'c' => Some(News::Client(ClientId(id))),
            b'r' => Some(News::Runtime(RuntimeId(id))),
            b'v' => Some(News::Revoked),
            b'l' => Some(News::LocalRun(LocalRunId(id))),
            _ => None,
        }
    })
}

/// Hears what other instances tell. After any error everybody looks again.
pub async fn hear_others(pool: PgPool, holder: String, hub: Arc<Hub>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let listening = async {
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.listen(CHANNEL).await?;
            hub.tell_all_here();
            loop {
                match listener.try_recv().await? {
                    Some(notification) => {
                        for news in read_payload(&holder, notification.payload()) {
                            hub.tell_here(news);
                        }
                    }
                    None => hub.tell_all_here(),
                }
            }
            #[expect(unreachable_code, reason = "names the type of the block's errors")]
            Ok::<(), sqlx::Error>(())
        };
        tokio::select! {
            () = stop.cancelled() => return,
            ended = listening => if let Err(cause) = ended {
                tracing::warn!(error = %cause, "not listening to other instances, trying again");
            },
        }
        hub.tell_all_here();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::task::{Context, Wake, Waker};

    use super::*;

    #[test]
    fn news_travel_in_payloads_of_bounded_size_and_not_to_oneself() {
        let news: Vec<_> = (0..2_000)
            .map(|id| News::Client(ClientId(700_000_000_000_000_000 + id)))
            .collect();
        let payloads = payloads("me", &news);
        assert!(payloads.len() > 1 && payloads.iter().all(|payload| payload.len() <= PAYLOAD_MAX));
        let heard: Vec<_> = payloads
            .iter()
            .flat_map(|payload| read_payload("you", payload))
            .collect();
        assert_eq!(heard, news);
        assert_eq!(
            payloads.iter().flat_map(|payload| read_payload("me", payload)).count(),
            0
        );
    }

    #[tokio::test]
    async fn a_listener_hears_what_is_told_after_it_began() {
        let (hub, _receivers) = Hub::new(1);
        {
            let listener = hub.listen(News::Client(ClientId(1)));
            let mut notified = std::pin::pin!(listener.notified());
            notified.as_mut().enable();
            hub.tell(0, News::Client(ClientId(2)));
            hub.tell(0, News::Client(ClientId(1)));
            tokio::time::timeout(Duration::from_secs(5), notified)
                .await
                .expect("was woken");
        }
        assert!(hub.waiting.lock().unwrap().is_empty());
    }

    /// Holds up whoever wakes it.
    struct Holding {
        woken: SyncSender<()>,
        go_on: Mutex<Receiver<()>>,
    }

    impl Wake for Holding {
        fn wake(self: Arc<Self>) {
            self.woken.send(()).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
        }
    }

    #[test]
    fn a_listener_that_goes_while_it_is_told_is_forgotten() {
        let (hub, _receivers) = Hub::new(1);
        let news = News::Client(ClientId(1));
        let (woken, is_woken) = sync_channel(1);
        let (go_on, may_go_on) = sync_channel(1);
        let waker = Waker::from(Arc::new(Holding {
            woken,
            go_on: Mutex::new(may_go_on),
        }));
        let listener = hub.listen(news);
        let mut notified = Box::pin(listener.notified());
        let polled = notified.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        let teller = {
            let hub = hub.clone();
            std::thread::spawn(move || hub.tell(0, news))
        };
        is_woken.recv().unwrap();
        drop(notified);
        drop(listener);
        go_on.send(()).unwrap();
        teller.join().unwrap();
        assert!(hub.waiting.lock().unwrap().is_empty());
    }
}
