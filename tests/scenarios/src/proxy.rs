//! Stands between the daemon and its API server, and can cut the line.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cluster::{Cluster, User};

/// A line to the API server. It lasts as long as the process.
pub struct Line {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    down: AtomicBool,
    streams: parking_lot::Mutex<Vec<TcpStream>>,
}

impl Line {
    /// Opens a line to this control plane.
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

    /// Returns a kubeconfig that leads over this line.
    pub fn kubeconfig(
        &self,
        cluster: &Cluster,
        user: &User,
        folder: &tempfile::TempDir,
    ) -> PathBuf {
        let text = std::fs::read_to_string(cluster.kubeconfig(user).unwrap()).unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(
            &file,
            text.replace(cluster.url(), &format!("https://{}", self.address)),
        )
        .unwrap();
        file
    }

    /// Ends all connections, and refuses new ones until [`Line::mend`].
    pub fn cut(&self) {
        self.state.down.store(true, Ordering::SeqCst);
        self.interrupt();
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

impl State {
    fn join(&self, client: TcpStream, upstream: TcpStream) {
        let copies = [&client, &upstream].map(|stream| stream.try_clone().unwrap());
        self.streams.lock().extend(copies);
        let [from, to] = [&upstream, &client].map(|stream| stream.try_clone().unwrap());
        thread::spawn(move || pump(client, upstream));
        thread::spawn(move || pump(from, to));
    }
}

/// Copies until one of the two ends.
fn pump(mut from: TcpStream, mut to: TcpStream) {
    // However it ends, the other direction ends with it.
    drop(io::copy(&mut from, &mut to));
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}
