//! Speaks to a server: logs in, and sends statements. Of the MySQL protocol it knows what that needs, without TLS.

use std::fmt::{self, Debug, Display, Formatter};
use std::io::{self, Read, Write};
use std::net::TcpStream;

use sha1::{Digest, Sha1};

/// The longest packet that is read, in bytes: rows are short here.
const LONGEST: usize = 1 << 16;
/// The most rows that are read.
const ROWS: usize = 1000;

/// What is said of what we can: long passwords, the protocol of 4.1, transactions, 20 bytes of chance, names of ways to log in.
const CAPABILITIES: u32 = 0x1 | 0x200 | 0x2000 | 0x8000 | 0x0008_0000;
/// `utf8mb4_general_ci`, by its number.
const CHARSET: u8 = 45;
/// The way to log in that is known here.
const NATIVE: &str = "mysql_native_password";
/// The command that is a statement.
const QUERY: u8 = 3;
/// How packets begin that are no rows.
const OK: u8 = 0;
const NULL: u8 = 0xfb;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;

/// A row of an answer; `None` is NULL.
pub type Row = Vec<Option<String>>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server can't be reached, or is silent.
    #[error("the database server: {0}")]
    Io(#[from] io::Error),
    /// The server refuses the login or the statement.
    #[error("the database server: {message} ({code})")]
    Refused {
        /// Its number of the error.
        code: u16,
        /// What it says.
        message: String,
    },
    /// The server wants another way to log in.
    #[error(
        "the database server wants {0} for this account, and {NATIVE} is all that is spoken here: ALTER USER … IDENTIFIED VIA {NATIVE}"
    )]
    Login(String),
    /// What comes is not of the protocol.
    #[error("the database server sends what is not expected: {0}")]
    Unexpected(&'static str),
}

/// A password, or what the server keeps of it, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

/// A connection that is logged in.
pub struct Connection<S = TcpStream> {
    stream: S,
    /// The number of the next packet.
    sequence: u8,
}

impl Connection {
    /// Connects to an address such as `127.0.0.1:3306`, and logs in.
    ///
    /// # Errors
    /// Any [`Error`].
    pub fn open(address: &str, user: &str, password: &Password) -> Result<Self, Error> {
        Self::login(TcpStream::connect(address)?, user, password)
    }
}

impl<S: Read + Write> Connection<S> {
    fn login(stream: S, user: &str, password: &Password) -> Result<Self, Error> {
        let mut connection = Self { stream, sequence: 0 };
        let greeting = connection.read()?;
        let nonce = nonce(&greeting)?;
        let mut answer = Vec::new();
        answer.extend(CAPABILITIES.to_le_bytes());
        answer.extend([0; 4]);
        answer.push(CHARSET);
        answer.extend([0; 23]);
        answer.extend(user.as_bytes());
        // The end of the name, and the length of what follows.
        answer.extend([0, 20]);
        answer.extend(password.answer(&nonce));
        answer.extend(NATIVE.as_bytes());
        answer.push(0);
        connection.write(&answer)?;
        let packet = connection.read()?;
        if packet.first() == Some(&END) {
            connection.switch(&packet, password)?;
        }
        Ok(connection)
    }

    /// Answers a server that names the way to log in, and gives other bytes of chance.
    fn switch(&mut self, packet: &[u8], password: &Password) -> Result<(), Error> {
        let mut packet = Packet(packet.get(1..).unwrap_or_default());
        let way = packet.text()?;
        if way != NATIVE {
            return Err(Error::Login(way));
        }
        let nonce = packet.take(20)?.to_vec();
        self.write(&password.answer(&nonce))?;
        self.read().map(drop)
    }

    /// Sends a statement, and returns the rows of its answer, at most 1000.
    ///
    /// # Errors
    /// Any [`Error`].
    pub fn query(&mut self, statement: &str) -> Result<Vec<Row>, Error> {
        self.sequence = 0;
        let mut command = vec![QUERY];
        command.extend(statement.as_bytes());
        self.write(&command)?;
        let columns = match self.read()?.first() {
            Some(&OK) => return Ok(Vec::new()),
            Some(&columns) if columns < NULL => columns,
            _ => return Err(Error::Unexpected("neither an end nor columns")),
        };
        // Their names and types, and the packet that ends these.
        for _ in 0..=columns {
            self.read()?;
        }
        let mut rows = Vec::new();
        loop {
            let packet = self.read()?;
            if packet.first() == Some(&END) && packet.len() < 9 {
                return Ok(rows);
            }
            if rows.len() == ROWS {
                return Err(Error::Unexpected("too many rows"));
            }
            let mut packet = Packet(&packet);
            rows.push((0..columns).map(|_| packet.value()).collect::<Result<_, _>>()?);
        }
    }

    /// Reads a packet; an error of the server is one.
    fn read(&mut self) -> Result<Vec<u8>, Error> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let [a, b, c, sequence] = head;
        self.sequence = sequence.wrapping_add(1);
        let length = u32::from_le_bytes([a, b, c, 0]) as usize;
        if length > LONGEST {
            return Err(Error::Unexpected("a packet that is too long"));
        }
        let mut packet = vec![0; length];
        self.stream.read_exact(&mut packet)?;
        if packet.first() != Some(&ERROR) {
            return Ok(packet);
        }
        let mut packet = Packet(packet.get(1..).unwrap_or_default());
        let code = packet.take(2)?.iter().rev().fold(0, |code, byte| code << 8 | u16::from(*byte));
        let message = String::from_utf8_lossy(packet.0);
        // A state such as `#42000` comes first.
        let message = message.strip_prefix('#').and_then(|text| text.get(5..)).unwrap_or(&message).to_owned();
        Err(Error::Refused { code, message })
    }

    fn write(&mut self, packet: &[u8]) -> Result<(), Error> {
        let length = u32::try_from(packet.len()).ok().filter(|length| *length < 0x00ff_ffff);
        let [a, b, c, _] = length.ok_or(Error::Unexpected("a statement that is too long"))?.to_le_bytes();
        let mut bytes = vec![a, b, c, self.sequence];
        bytes.extend(packet);
        self.stream.write_all(&bytes)?;
        Ok(self.stream.flush()?)
    }
}

/// Returns the bytes of chance in a greeting.
fn nonce(greeting: &[u8]) -> Result<Vec<u8>, Error> {
    let mut packet = Packet(greeting);
    if packet.take(1)? != [10] {
        return Err(Error::Unexpected("no greeting of version 10"));
    }
    packet.text()?;
    // The number of the connection.
    packet.take(4)?;
    let mut nonce = packet.take(8)?.to_vec();
    // What the server can, its character set and state, and what is kept for later.
    packet.take(1 + 2 + 1 + 2 + 2 + 1 + 10)?;
    nonce.extend(packet.take(12)?);
    Ok(nonce)
}

// === impl Password ===

impl Password {
    /// Returns one with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns what the server keeps of it, as `IDENTIFIED WITH mysql_native_password AS` takes it.
    pub fn kept(&self) -> String {
        let twice = Sha1::digest(Sha1::digest(&self.0));
        twice.iter().fold("*".to_owned(), |text, byte| format!("{text}{byte:02X}"))
    }

    /// Returns what shows to a server with these bytes of chance that it is known.
    fn answer(&self, nonce: &[u8]) -> Vec<u8> {
        let once = Sha1::digest(&self.0);
        let mixed = Sha1::new().chain_update(nonce).chain_update(Sha1::digest(once)).finalize();
        once.iter().zip(mixed).map(|(a, b)| a ^ b).collect()
    }
}

impl Debug for Password {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

// === impl Packet ===

/// What is left to be read of a packet.
struct Packet<'a>(&'a [u8]);

impl<'a> Packet<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Error::Unexpected("a packet that ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads a text that ends with a zero.
    fn text(&mut self) -> Result<String, Error> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Error::Unexpected("a text without an end"))?;
        let text = String::from_utf8_lossy(self.take(end)?).into_owned();
        self.take(1)?;
        Ok(text)
    }

    /// Reads a value of a row, which is shorter than a packet may be.
    fn value(&mut self) -> Result<Option<String>, Error> {
        let length = match self.take(1)? {
            [NULL] => return Ok(None),
            [0xfc] => self.take(2)?.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte)),
            [length] if *length < NULL => usize::from(*length),
            _ => return Err(Error::Unexpected("a value that is too long")),
        };
        Ok(Some(String::from_utf8_lossy(self.take(length)?).into_owned()))
    }
}

/// A name within a statement: of a schema, a user.
pub struct Name<'a>(pub &'a str);

/// A text within a statement.
pub struct Text<'a>(pub &'a str);

/// A name of a schema where a statement takes a pattern, as `GRANT` does.
pub struct Pattern<'a>(pub &'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0.replace('`', "``"))
    }
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.0.replace('\\', "\\\\").replace('\'', "''"))
    }
}

impl Display for Pattern<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let escaped = self.0.replace('\\', "\\\\").replace('_', "\\_").replace('%', "\\%");
        Display::fmt(&Name(&escaped), f)
    }
}

#[cfg(test)]
mod tests;
