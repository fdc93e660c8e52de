//! Decides what the API server seems to answer: a proxy that speaks HTTP, and answers itself, or spoils what is answered.

use std::io::{self, ErrorKind, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use cluster::{Cluster, User};
use parking_lot::Mutex;

/// How long a watch lasts whose connection is half closed.
const WATCHED: Duration = Duration::from_secs(1);

/// How much of an answer comes at once, and how long after the last of it, where it comes slowly.
const DRIP: (usize, Duration) = (64, Duration::from_millis(20));

/// The longest head of a request.
const HEAD: usize = 64 << 10;

/// What is wrong with the API server.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// So many requests of this sort are answered with this status, and this header.
    Answers(Sort, u16, &'static str, usize),
    /// Each watch ends after a second.
    WatchesEnd,
    /// After a second nothing more comes on the connection of a watch, which is not closed the other way.
    HalfClosed,
    /// Answers come a few bytes at a time.
    Drips,
}

/// What requests want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// To watch, from some version on.
    Watch,
    /// To change something.
    Write,
    /// Anything else.
    Read,
}

/// A proxy to the API server, to which plain HTTP is spoken. It lasts as long as the process.
pub struct Meddler {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    cluster: &'static Cluster,
    fault: Mutex<Option<Fault>>,
    requests: AtomicUsize,
    /// Those that it has answered itself, or spoiled.
    spoiled: AtomicUsize,
    clients: Mutex<Vec<TcpStream>>,
}

/// A request as it has come.
struct Asked {
    head: String,
    body: Vec<u8>,
}

impl Meddler {
    /// Opens a proxy to this control plane.
    pub fn to(cluster: &'static Cluster) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            cluster,
            fault: Mutex::new(None),
            requests: AtomicUsize::new(0),
            spoiled: AtomicUsize::new(0),
            clients: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                // However it ends, the client asks again.
                thread::spawn(move || drop(state.serve(client)));
            }
        });
        Self { address, state }
    }

    /// Returns a kubeconfig that connects by this proxy.
    pub fn kubeconfig(&self, user: &User, folder: &tempfile::TempDir) -> PathBuf {
        let cluster = self.state.cluster;
        let text = std::fs::read_to_string(cluster.kubeconfig(user).unwrap()).unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, text.replace(cluster.url(), &format!("http://{}", self.address))).unwrap();
        file
    }

    /// Lets something be wrong from now on, or nothing (`None`). All connections end, so that what is under way is met by it, too.
    pub fn meddle(&self, fault: Option<Fault>) {
        *self.state.fault.lock() = fault;
        self.state.spoiled.store(0, Ordering::SeqCst);
        for client in self.state.clients.lock().drain(..) {
            drop(client.shutdown(Shutdown::Both));
        }
    }

    /// Returns how many requests have come.
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// Returns how many requests have met the fault.
    pub fn spoiled(&self) -> usize {
        self.state.spoiled.load(Ordering::SeqCst)
    }
}

impl State {
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        self.clients.lock().push(client.try_clone()?);
        let asked = Asked::read(&mut client)?;
        self.requests.fetch_add(1, Ordering::SeqCst);
        let fault = self.met(&asked);
        if let Some(Fault::Answers(_, code, header, _)) = fault {
            let body = format!(r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","code":{code}}}"#);
            let length = body.len();
            let head = format!("HTTP/1.1 {code} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n");
            return client.write_all(format!("{head}{header}connection: close\r\n\r\n{body}").as_bytes());
        }
        let mut server = self.cluster.connect().map_err(io::Error::other)?;
        server.write_all(asked.passed_on(matches!(fault, Some(Fault::WatchesEnd))).as_bytes())?;
        server.write_all(&asked.body)?;
        server.flush()?;
        if matches!(fault, Some(Fault::HalfClosed)) {
            let half = client.try_clone()?;
            thread::spawn(move || {
                thread::park_timeout(WATCHED);
                drop(half.shutdown(Shutdown::Write));
            });
        }
        let drips = matches!(fault, Some(Fault::Drips)).then_some(DRIP);
        let copied = copy(&mut server, &mut client, drips);
        if copied.is_err() {
            // It stays open the other way, until the client closes it.
            drop(client.read_to_end(&mut Vec::new()));
        }
        copied
    }

    /// Returns what is wrong for a request.
    fn met(&self, asked: &Asked) -> Option<Fault> {
        let fault = (*self.fault.lock())?;
        let sort = asked.sort();
        let most = match fault {
            Fault::Answers(to, _, _, times) if to == sort => times,
            Fault::WatchesEnd | Fault::HalfClosed if sort == Sort::Watch => usize::MAX,
            Fault::Drips => usize::MAX,
            Fault::Answers(..) | Fault::WatchesEnd | Fault::HalfClosed => 0,
        };
        let meets = |met: usize| (met < most).then_some(met + 1);
        self.spoiled.fetch_update(Ordering::SeqCst, Ordering::SeqCst, meets).is_ok().then_some(fault)
    }
}

impl Asked {
    fn read(client: &mut TcpStream) -> io::Result<Self> {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() > HEAD {
                return Err(ErrorKind::InvalidData.into());
            }
            client.read_exact(&mut byte)?;
            head.extend(byte);
        }
        let head = String::from_utf8(head).map_err(io::Error::other)?;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let mut body = vec![0; length.unwrap_or(0)];
        client.read_exact(&mut body)?;
        Ok(Self { head, body })
    }

    fn sort(&self) -> Sort {
        if self.head.lines().next().is_some_and(|line| line.contains("watch=true&resourceVersion=")) {
            Sort::Watch
        } else if self.head.starts_with("GET ") || self.head.contains("/selfsubjectaccessreviews") {
            Sort::Read
        } else {
            Sort::Write
        }
    }

    /// Returns the head as it is passed on: the answer ends with its connection, and a watch may end soon.
    fn passed_on(&self, briefly: bool) -> String {
        let head = match self.head.split_once("&timeoutSeconds=") {
            Some((before, after)) if briefly => {
                format!("{before}&timeoutSeconds=1{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
            }
            Some(_) | None => self.head.clone(),
        };
        head.replacen("\r\n", "\r\nconnection: close\r\n", 1)
    }
}

/// Copies an answer to its end; a few bytes at a time, if it is to.
fn copy(from: &mut impl Read, to: &mut TcpStream, drips: Option<(usize, Duration)>) -> io::Result<()> {
    let mut buffer = vec![0; drips.map_or(16 << 10, |(bytes, _)| bytes)];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            // A server need not say that it closes.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        to.write_all(&buffer[..read])?;
        if let Some((_, pause)) = drips {
            thread::park_timeout(pause);
        }
    }
}
