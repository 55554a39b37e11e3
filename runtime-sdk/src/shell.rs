//! The loop around a sans-I/O core: wait for one thing, tell the core, do what it asks for. A runtime and a player's
//! client are driven by the same loop.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

/// A core: it is told what happened and says what to do. Time is an argument.
pub(crate) trait Core: Send + 'static {
    type Input: Send + 'static;
    type Output: Send;

    fn handle(&mut self, now: Duration, input: Self::Input);
    /// What must be done next. Called until `None` after every [`Core::handle`] and at every [`Core::deadline`].
    fn poll(&mut self, now: Duration) -> Option<Self::Output>;
    /// When to poll again even if nothing happens; always later than now.
    fn deadline(&self, now: Duration) -> Option<Duration>;
    /// Whether whoever takes the events lags behind, so that nothing more should be read for now.
    fn is_congested(&self) -> bool;
    /// Whether there is nothing left to do.
    fn is_over(&self) -> bool;
}

/// A core, and who waits for it.
pub(crate) struct Shared<C> {
    core: Mutex<C>,
    start: Instant,
    /// There may be an event.
    pub(crate) news: Notify,
    /// There may be something to ask of the service.
    pub(crate) driver: Notify,
    /// There may be something to send over a socket, or a reason to close it.
    socket: Notify,
    /// There is room for events again.
    relief: Notify,
}

impl<C: Core> Shared<C> {
    pub(crate) fn new(core: C) -> Self {
        Self {
            core: Mutex::new(core),
            start: Instant::now(),
            news: Notify::new(),
            driver: Notify::new(),
            socket: Notify::new(),
            relief: Notify::new(),
        }
    }

    /// Held for moments only, never while waiting.
    pub(crate) fn core(&self) -> MutexGuard<'_, C> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The core's time.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Tells the core what happened, and others that there may be news.
    pub(crate) fn handle(&self, input: C::Input) {
        self.core().handle(self.now(), input);
        self.news.notify_one();
        self.wake_sockets();
    }

    /// There may be something to send over a socket, or a reason to close it.
    pub(crate) fn wake_sockets(&self) {
        self.socket.notify_waiters();
    }

    /// Ready after the next [`Shared::wake_sockets`], from now on and not only from when it is first polled.
    pub(crate) fn socket_woken(&self) -> Notified<'_> {
        self.socket.notified()
    }

    /// Takes an event, and lets more come if they were held back.
    pub(crate) fn take<T>(&self, next: impl FnOnce(&mut C) -> Option<T>) -> Option<T> {
        let mut core = self.core();
        let was_congested = core.is_congested();
        let event = next(&mut core);
        if was_congested && !core.is_congested() {
            self.driver.notify_one();
            self.relief.notify_waiters();
        }
        event
    }

    /// Waits until there is room for events.
    pub(crate) async fn relieved(&self) {
        loop {
            let relief = self.relief.notified();
            if !self.core().is_congested() {
                return;
            }
            relief.await;
        }
    }
}

/// A task that ends when this is dropped.
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(future))
    }

    /// Waits for the end.
    pub(crate) async fn ended(&mut self) {
        // A panic has been reported by then, and an abort is only possible by dropping this.
        let _ = (&mut self.0).await;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Drives the core until it is over. `carry_out` does one thing and says what came of it; what is still under way when
/// the core is over is dropped.
pub(crate) async fn drive<C: Core, F>(shared: Arc<Shared<C>>, carry_out: impl Fn(C::Output) -> F)
where
    F: Future<Output = C::Input> + Send + 'static,
{
    let mut under_way = JoinSet::new();
    loop {
        let (outputs, deadline) = {
            let mut core = shared.core();
            let now = shared.now();
            let outputs: Vec<C::Output> = std::iter::from_fn(|| core.poll(now)).collect();
            if core.is_over() {
                break;
            }
            (outputs, core.deadline(now))
        };
        for output in outputs {
            under_way.spawn(carry_out(output));
        }
        let pause = async {
            match deadline {
                Some(deadline) => sleep_until(shared.start + deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(done) = under_way.join_next() => match done {
                Ok(input) => shared.handle(input),
                Err(cause) => tracing::error!(%cause, "a request ended in a panic"),
            },
            () = shared.driver.notified() => {}
            () = pause => {}
        }
    }
    shared.news.notify_one();
}
