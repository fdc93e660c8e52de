//! Decides what passes between the daemon and its API server: it can cut connections or hold back their data.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cluster::{Cluster, User, wait};

use crate::SOON;

pub mod meddler;

/// The interval at which a connection that is held back checks if it may continue.
const HELD: Duration = Duration::from_millis(20);

/// A proxy to the API server. It lasts as long as the process.
pub struct Line {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    down: AtomicBool,
    /// What comes from the API server.
    held_answers: AtomicBool,
    /// What goes to it.
    held_requests: AtomicBool,
    /// Something is held that goes to it.
    waiting: AtomicBool,
    streams: parking_lot::Mutex<Vec<TcpStream>>,
}

impl Line {
    /// Opens a proxy to this control plane.
    pub fn to(cluster: &Cluster) -> Self {
        let server = cluster.url().trim_start_matches("https://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::<State>::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.down.load(Ordering::SeqCst) {
                    drop(client.shutdown(Shutdown::Both));
                } else if let Ok(upstream) = TcpStream::connect(&server) {
                    shared.join(client, upstream);
                }
            }
        });
        Self { address, state }
    }

    /// Returns a kubeconfig that connects by this proxy.
    pub fn kubeconfig(&self, cluster: &Cluster, user: &User, folder: &tempfile::TempDir) -> PathBuf {
        let text = std::fs::read_to_string(cluster.kubeconfig(user).unwrap()).unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, text.replace(cluster.url(), &self.url())).unwrap();
        file
    }

    /// Returns its address, as that of an API server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Ends all connections, and refuses new ones until [`Line::mend`].
    pub fn cut(&self) {
        self.state.down.store(true, Ordering::SeqCst);
        self.interrupt();
    }

    /// Lets nothing through, in either direction, until [`Line::release`]; connections stay, and new ones are
    /// accepted.
    pub fn hold(&self) {
        self.state.held_answers.store(true, Ordering::SeqCst);
        self.hold_requests();
    }

    /// Lets the API server's answers and events through, and no new request, until [`Line::release`].
    pub fn hold_requests(&self) {
        self.state.waiting.store(false, Ordering::SeqCst);
        self.state.held_requests.store(true, Ordering::SeqCst);
    }

    /// Waits until a request is held back.
    pub fn await_held(&self) {
        wait::until(SOON, "a request", || self.state.waiting.load(Ordering::SeqCst).then_some(())).unwrap();
    }

    /// Lets through the data that was held back, and all that follows.
    pub fn release(&self) {
        self.state.held_answers.store(false, Ordering::SeqCst);
        self.state.held_requests.store(false, Ordering::SeqCst);
    }

    /// Ends all connections; new ones are served.
    pub fn interrupt(&self) {
        for stream in self.state.streams.lock().drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// Serves new connections again.
    pub fn mend(&self) {
        self.state.down.store(false, Ordering::SeqCst);
    }
}

/// Where data goes.
#[derive(Clone, Copy)]
enum Direction {
    /// To the API server.
    Up,
    /// From it.
    Down,
}

impl State {
    /// Says whether data that has come must wait.
    fn holds(&self, direction: Direction) -> bool {
        match direction {
            Direction::Down => self.held_answers.load(Ordering::SeqCst),
            Direction::Up => {
                let held = self.held_requests.load(Ordering::SeqCst);
                self.waiting.fetch_or(held, Ordering::SeqCst);
                held
            }
        }
    }

    fn join(self: &Arc<Self>, client: TcpStream, upstream: TcpStream) {
        let copies = [&client, &upstream].map(|stream| stream.try_clone().unwrap());
        self.streams.lock().extend(copies);
        let [from, to] = [&upstream, &client].map(|stream| stream.try_clone().unwrap());
        let (up, down) = (Arc::clone(self), Arc::clone(self));
        thread::spawn(move || pump(client, upstream, &up, Direction::Up));
        thread::spawn(move || pump(from, to, &down, Direction::Down));
    }
}

/// Copies from one connection to the other until one of them ends.
fn pump(mut from: TcpStream, mut to: TcpStream, state: &State, direction: Direction) {
    // However it ends, the other direction ends with it.
    drop(copy(&mut from, &mut to, state, direction));
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}

fn copy(from: &mut TcpStream, to: &mut TcpStream, state: &State, direction: Direction) -> io::Result<()> {
    let mut buffer = [0; 16 << 10];
    loop {
        let read = from.read(&mut buffer)?;
        while state.holds(direction) {
            // Checks again after a while; only this connection waits.
            thread::park_timeout(HELD);
        }
        if read == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..read])?;
    }
}
