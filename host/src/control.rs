//! Answers probes and signals and runs the watchdog whatever runs do, on a thread and a runtime of its own.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::{RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use capstan_core::text::said;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::http::{self, Bounds, Peer};
use crate::logging::{LAST_LINES, Log};
use crate::readiness::{self, Asked, Matter, Unready};
use crate::shutdown::{self, Signals};
use crate::watchdog::{FROZEN, Heartbeat, Late, Watchdog, named};

/// Limits of the server of probes.
const BOUNDS: Bounds = Bounds { connections: 64, answer: Duration::from_secs(10) };

/// How long the main runtime may take to say what is not ready.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long the main runtime's last answer counts while it is too busy for another.
const FRESH: Duration = Duration::from_secs(10);

/// The interval at which log lines that were left out are reported.
const TELL: Duration = Duration::from_secs(10);

/// How long the process may take to exit once its last log lines are written; then it is aborted.
const LAST_RESORT: Duration = Duration::from_secs(2);

/// Lists what is not ready yet; empty = ready.
pub type Question = Box<dyn Fn() -> Vec<Unready> + Send + Sync>;

/// The arguments of [`Control::start`].
pub struct Start {
    /// Where probes are served; it does not block.
    pub listener: TcpListener,
    /// How long runs under way may take to finish after the first signal.
    pub drain: Duration,
    /// Cancelled at the first signal.
    pub stop: CancellationToken,
    /// Ends the process with a status, whatever its other threads do; see [`exit`].
    pub exit: Box<dyn FnOnce(u8) + Send>,
    /// The log.
    pub log: Log,
}

/// The running thread. Dropping this ends it.
pub struct Control {
    address: SocketAddr,
    main: Arc<Main>,
    ended: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// The main runtime, and what is asked of it. The list of what is not ready is made there, as its threads may hold
/// the locks that this needs; a probe waits for the list only for [`PATIENCE`].
struct Main {
    runtime: Handle,
    /// Pages that are built there.
    pages: OnceLock<Router>,
    question: OnceLock<Question>,
    /// True while it is being asked.
    asked: Mutex<bool>,
    known: watch::Sender<Option<Known>>,
}

#[derive(Clone, Debug)]
struct Known {
    unready: Vec<Unready>,
    at: Instant,
}

/// The state that the pages of probes show.
struct Probes {
    main: Arc<Main>,
    late: Late,
    /// When the daemon has started.
    since: Instant,
    /// True once a probe was told that it is ready.
    was_ready: AtomicBool,
}

// === impl Control ===

impl Control {
    /// Starts the thread. To be called on the main runtime, which the thread watches from now on.
    ///
    /// # Errors
    /// If the system refuses the thread or the signal handlers.
    pub async fn start(start: Start) -> anyhow::Result<Self> {
        let main = Arc::new(Main::new(Handle::current()));
        let ended = CancellationToken::new();
        let heart = Heartbeat::default();
        let beating = ended.clone().run_until_cancelled_owned(heart.clone().run());
        tokio::spawn(beating);
        let (tell, told) = oneshot::channel();
        let thread = {
            let (main, ended) = (Arc::clone(&main), ended.clone());
            let work = move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                match runtime.context("start the runtime of probes and signals") {
                    Ok(runtime) => runtime.block_on(run(start, main, heart, ended, tell)),
                    Err(error) => drop(tell.send(Err(error))),
                }
            };
            let thread = std::thread::Builder::new().name("control".to_owned());
            thread.spawn(work).context("start the thread of probes and signals")?
        };
        Ok(Self {
            address: told.await.context("start the thread of probes and signals")??,
            main,
            ended,
            thread: Some(thread),
        })
    }

    /// Sets the function that lists what is not ready. Until then the daemon is not ready.
    pub fn ask(&self, question: Question) {
        // Set once only.
        drop(self.main.question.set(question));
    }

    /// Serves these pages, too. They are built on the main runtime.
    pub fn show(&self, pages: Router) {
        // Set once only.
        drop(self.main.pages.set(pages));
    }

    /// Returns the address of the probes, with the real port if port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.ended.cancel();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Does the thread's work until `ended` is cancelled.
async fn run(
    start: Start,
    main: Arc<Main>,
    heart: Heartbeat,
    ended: CancellationToken,
    tell: oneshot::Sender<anyhow::Result<SocketAddr>>,
) {
    let Start { listener, drain, stop, exit, log } = start;
    let begun = async {
        let mut signals = Signals::listen().context("listen for signals")?;
        let listener = tokio::net::TcpListener::from_std(listener).context("listen for probes")?;
        let address = listener.local_addr().context("find the own address")?;
        anyhow::Ok((async move || signals.next().await, listener, address))
    };
    let (signals, listener, address) = match begun.await {
        Ok(begun) => begun,
        Err(error) => return drop(tell.send(Err(error))),
    };
    drop(tell.send(Ok(address)));
    let watchdog = Watchdog::new(heart);
    let probes = Probes { main, late: watchdog.late(), since: Instant::now(), was_ready: AtomicBool::new(false) };
    let telling = async {
        loop {
            tokio::time::sleep(TELL).await;
            log.tell();
        }
    };
    tokio::select! {
        biased;
        code = shutdown::obey(signals, &stop, drain) => exit(code),
        () = http::serve(listener, router(probes), BOUNDS, ended) => {}
        () = watchdog.run() => {}
        () = telling => {}
    }
}

/// Ends the process, whatever its other threads do.
pub fn exit(code: u8, log: &Log) {
    log.flush(LAST_LINES);
    // The C library's work at exit may wait for a thread that never ends.
    let last_resort = std::thread::Builder::new().spawn(|| {
        std::thread::park_timeout(LAST_RESORT);
        std::process::abort();
    });
    drop(last_resort);
    std::process::exit(code.into());
}

// === impl Main ===

impl Main {
    fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            pages: OnceLock::new(),
            question: OnceLock::new(),
            asked: Mutex::new(false),
            known: watch::Sender::new(None),
        }
    }

    /// Returns what is not ready.
    async fn unready(self: &Arc<Self>) -> Vec<Unready> {
        let mut known = self.known.subscribe();
        known.mark_unchanged();
        self.ask();
        let answered = tokio::time::timeout(PATIENCE, known.changed()).await;
        let known = known.borrow();
        match &*known {
            Some(known) if answered.is_ok() || known.at.elapsed() < FRESH => known.unready.clone(),
            Some(_) | None => vec![Unready {
                what: "the main runtime".to_owned(),
                why: format!("has not answered within {PATIENCE:?}"),
                matter: Matter::Daemon,
            }],
        }
    }

    /// Asks the main runtime what is not ready, unless it is being asked already.
    fn ask(self: &Arc<Self>) {
        if std::mem::replace(&mut *self.asked.lock(), true) {
            return;
        }
        let main = Arc::clone(self);
        self.runtime.spawn(async move {
            let starting =
                || vec![Unready { what: "the daemon".to_owned(), why: "starting".to_owned(), matter: Matter::Daemon }];
            let unready = main.question.get().map_or_else(starting, |ask| ask());
            let at = Instant::now();
            *main.asked.lock() = false;
            main.known.send_replace(Some(Known { unready, at }));
        });
    }
}

// === pages ===

fn router(probes: Probes) -> Router {
    Router::new().route("/livez", get(livez)).route("/readyz", get(readyz)).fallback(page).with_state(Arc::new(probes))
}

/// Answers 200 as long as the main runtime runs, else 503.
async fn livez(State(probes): State<Arc<Probes>>) -> Response {
    match alive(probes.late.by()) {
        Ok(()) => "ok\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
    }
}

/// Returns why the daemon has to be restarted, as an error, given how late its heartbeat is.
fn alive(late: Duration) -> Result<(), String> {
    if late < FROZEN {
        return Ok(());
    }
    Err(format!("the main runtime has not run for {} s\n", late.as_secs()))
}

/// Answers 200 as long as the daemon can do its work, else 503.
async fn readyz(
    State(probes): State<Arc<Probes>>,
    Extension(peer): Extension<Peer>,
    RawQuery(query): RawQuery,
) -> Response {
    let unready = probes.main.unready().await;
    let verbose = query.is_some_and(|query| query.split('&').any(|field| field == "verbose"));
    let starting = readiness::starting(probes.since.elapsed(), probes.was_ready.load(Ordering::Relaxed));
    match readiness::answer(&unready, starting, Asked { verbose, here: peer.is_here() }) {
        Ok(told) => {
            probes.was_ready.store(true, Ordering::Relaxed);
            told.into_response()
        }
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
    }
}

/// Answers with any other page that is served here; 404 if there are none, 503 as long as the daemon starts.
async fn page(State(probes): State<Arc<Probes>>, request: Request) -> Response {
    let Main { pages, question, .. } = &*probes.main;
    let Some(pages) = pages.get() else {
        return match question.get() {
            Some(_) => StatusCode::NOT_FOUND.into_response(),
            None => (StatusCode::SERVICE_UNAVAILABLE, "the daemon: starting\n").into_response(),
        };
    };
    let pages = TowerToHyperService::new(pages.clone());
    let name = format!("the page {}", said(request.uri().path()));
    let page = probes.main.runtime.spawn(named(name, async move { pages.call(request).await }));
    match page.await {
        Ok(Ok(page)) => page,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::sync::mpsc;

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;
    use crate::shutdown::ABORTED;

    const SOON: Duration = Duration::from_secs(10);

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        format!("{} {}", head.split(' ').nth(1).unwrap(), body.trim())
    }

    #[test]
    fn probes_and_signals_are_heeded_while_the_main_runtime_stands_still() {
        let main = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (stop, (exit, exited)) = (CancellationToken::new(), mpsc::channel());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let control = main.block_on(Control::start(Start {
            listener,
            drain: SOON,
            stop: stop.clone(),
            exit: Box::new(move |code| exit.send(code).unwrap()),
            log: Log::default(),
        }));
        let control = control.unwrap();
        let address = control.address();
        for page in ["/readyz", "/metrics"] {
            assert_eq!(get(address, page), "503 the daemon: starting");
        }
        let (what, why) = ("plugin p".to_owned(), "being loaded".to_owned());
        let unready = Unready { what, why, matter: Matter::Start };
        control.ask(Box::new(move || vec![unready.clone()]));
        assert_eq!(get(address, "/readyz"), "503 plugin p: being loaded");
        assert_eq!(get(address, "/metrics"), "404 ");
        control.show(Router::new().route("/metrics", get_text("some")));
        assert_eq!(get(address, "/metrics"), "200 some");

        // The only worker is blocked.
        let (go_on, wait) = mpsc::channel::<()>();
        let (stands, is_still) = mpsc::channel();
        main.spawn(async move {
            stands.send(()).unwrap();
            let _ends = wait.recv();
        });
        is_still.recv_timeout(SOON).unwrap();
        assert_eq!(get(address, "/livez"), "200 ok");
        assert_eq!(get(address, "/readyz"), "503 plugin p: being loaded", "as it was last");

        kill_process(getpid(), Signal::TERM).unwrap();
        main.block_on(async { tokio::time::timeout(SOON, stop.cancelled()).await }).unwrap();
        kill_process(getpid(), Signal::INT).unwrap();
        assert_eq!(exited.recv_timeout(SOON), Ok(ABORTED));
        drop((go_on, control));
    }

    fn get_text(text: &'static str) -> axum::routing::MethodRouter {
        axum::routing::get(move || async move { text })
    }

    #[test]
    fn who_stands_still_for_long_is_not_alive() {
        assert_eq!(alive(Duration::from_secs(29)), Ok(()));
        assert_eq!(alive(FROZEN), Err("the main runtime has not run for 30 s\n".to_owned()));
    }
}
