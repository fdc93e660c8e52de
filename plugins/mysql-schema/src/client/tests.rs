//! What is sent to a server, and what is made of its answers, without one.

use super::*;

/// A server that says what it was told to, and keeps what it hears.
struct Script {
    says: io::Cursor<Vec<u8>>,
    hears: Vec<u8>,
}

impl Read for Script {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.says.read(buffer)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hears.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a server that sends these packets.
fn server(packets: &[&[u8]]) -> Script {
    let mut says = Vec::new();
    for packet in packets {
        says.extend(&u32::try_from(packet.len()).unwrap().to_le_bytes()[..3]);
        says.push(1);
        says.extend(*packet);
    }
    Script { says: io::Cursor::new(says), hears: Vec::new() }
}

fn greeting() -> Vec<u8> {
    let rest = [&[1, 0, 0, 0][..], b"12345678", &[0; 19], b"901234567890\0", b"mysql_native_password\0"].concat();
    [&[10][..], b"5.5.5-10.11.19-MariaDB\0", &rest].concat()
}

const DONE: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

fn connected(packets: &[&[u8]]) -> Result<Connection<Script>, Error> {
    let greeting = greeting();
    let all: Vec<&[u8]> = [&greeting[..]].into_iter().chain(packets.iter().copied()).collect();
    Connection::login(server(&all), "capstan", &Password::new("secret"))
}

#[test]
fn a_password_is_kept_and_shown_as_servers_do() {
    // As MariaDB's PASSWORD() has it.
    assert_eq!(Password::new("secret").kept(), "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7");
    assert_eq!(format!("{:?}", Password::new("secret")), "Password(…)");
}

#[test]
fn a_login_sends_no_password_and_switches_to_the_way_that_is_known() {
    let connection = connected(&[DONE]).unwrap();
    let heard = String::from_utf8_lossy(&connection.stream.hears).into_owned();
    assert!(heard.contains("capstan") && heard.contains(NATIVE) && !heard.contains("secret"), "{heard}");
    let switch = [b"\xfemysql_native_password\0", &b"abcdefghijklmnopqrst\0"[..]].concat();
    let connection = connected(&[&switch, DONE]).unwrap();
    let other = Password::new("secret").answer(b"abcdefghijklmnopqrst");
    assert!(connection.stream.hears.ends_with(&other));
    let error = connected(&[b"\xfecaching_sha2_password\0abcdefghijklmnopqrst\0"]).err().unwrap();
    assert!(error.to_string().starts_with("the database server wants caching_sha2_password"), "{error}");
}

#[test]
fn rows_are_read_to_their_end_and_errors_say_what_the_server_says() {
    let row = b"\x05hello\xfb";
    let end = &[0xfe, 0, 0, 2, 0];
    let mut connection = connected(&[DONE, &[2], b"def a", b"def b", end, row, end]).unwrap();
    assert_eq!(connection.query("SELECT 1").unwrap(), [vec![Some("hello".to_owned()), None]]);
    let mut connection = connected(&[DONE, DONE]).unwrap();
    assert_eq!(connection.query("DROP").unwrap(), Vec::<Row>::new());
    let mut connection = connected(&[DONE, b"\xff\x15\x04#28000Access denied"]).unwrap();
    assert_eq!(connection.query("DROP").unwrap_err().to_string(), "the database server: Access denied (1045)");
}

#[test]
fn what_is_cut_short_or_too_long_is_an_error() {
    for packets in [&[][..], &[&[10][..]], &[&greeting()[..30]], &[b"\x09old\0"]] {
        assert!(Connection::login(server(packets), "u", &Password::new("p")).is_err(), "{packets:?}");
    }
    let long = vec![b'x'; LONGEST + 1];
    let mut connection = connected(&[DONE, &long]).unwrap();
    assert!(matches!(connection.query("SELECT"), Err(Error::Unexpected("a packet that is too long"))));
    let mut connection = connected(&[DONE, &[1], b"def", &[0xfe, 0, 0, 2, 0], b"\x09short"]).unwrap();
    assert!(matches!(connection.query("SELECT"), Err(Error::Unexpected("a packet that ends too early"))));
}

#[test]
fn names_and_texts_end_no_statement() {
    assert_eq!(Name("a`b").to_string(), "`a``b`");
    assert_eq!(Text("a'b\\").to_string(), "'a''b\\\\'");
    assert_eq!(Pattern("web_a%b").to_string(), "`web\\_a\\%b`");
}
