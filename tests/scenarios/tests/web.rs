//! An HTTP server outside of the cluster, which components talk to.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// Answers a method, a path and a body with a status and a body.
type Answer = dyn Fn(&str, &str, String) -> (u16, String) + Send + Sync;

/// Starts a server that answers like this, for as long as the tests run, and returns its port.
pub(crate) fn serve(answer: impl Fn(&str, &str, String) -> (u16, String) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer: Arc<Answer> = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            thread::spawn(move || exchange(&stream, &*answer));
        }
    });
    port
}

fn exchange(stream: &TcpStream, answer: &Answer) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let body = body(&head, &mut reader);
    let (code, text) = answer(method, path, body);
    let answer = format!("HTTP/1.1 {code} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}", text.len());
    let mut out = stream;
    drop(out.write_all(answer.as_bytes()));
}

/// Reads what a request sends, by its length or in chunks.
fn body(head: &str, reader: &mut BufReader<&TcpStream>) -> String {
    let field = |name: &str| {
        let line = head.lines().find_map(|line| line.to_lowercase().strip_prefix(name).map(str::to_owned));
        line.map(|value| value.trim().to_owned())
    };
    if let Some(length) = field("content-length:").and_then(|length| length.parse().ok()) {
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        return String::from_utf8(body).unwrap();
    }
    let mut whole = String::new();
    while field("transfer-encoding:").is_some() {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let size = usize::from_str_radix(line.trim(), 16).unwrap_or_default();
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk).unwrap();
        if size == 0 {
            break;
        }
        chunk.truncate(size);
        whole.push_str(&String::from_utf8(chunk).unwrap());
    }
    whole
}
