//! Takes addresses to listen at: `[::]` is all of this machine, those of IPv4 as well, also where there is no IPv6.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use rustix::io::Errno;
use rustix::net::sockopt::set_ipv6_v6only;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Listens at an address.
///
/// # Errors
/// If it is in use or does not belong to this host.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    socket(address)?.listen(BACKLOG)
}

/// Listens at an address for a runtime that serves it later.
///
/// # Errors
/// As for [`listen`].
pub(crate) fn ahead(address: SocketAddr) -> anyhow::Result<std::net::TcpListener> {
    let listener = listen(address).and_then(TcpListener::into_std);
    listener.with_context(|| format!("listen on {address}"))
}

/// Takes an address, without listening yet.
///
/// # Errors
/// As for [`listen`].
pub(crate) fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    either(address, bound)
}

/// Takes an address by a function; instead of all addresses those of IPv4 where there are no others.
fn either<T>(address: SocketAddr, take: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let taken = take(address);
    let is_all = address.is_ipv6() && address.ip().is_unspecified();
    match taken {
        Err(error) if is_all && lacks_ipv6(&error) => take((Ipv4Addr::UNSPECIFIED, address.port()).into()),
        taken => taken,
    }
}

/// Whether the kernel has no IPv6, or has it turned off.
fn lacks_ipv6(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL, Errno::PROTONOSUPPORT]
        .iter()
        .any(|one| Some(one.raw_os_error()) == number)
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        // Whatever `net.ipv6.bindv6only` says.
        set_ipv6_v6only(&socket, false)?;
    }
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::Ipv6Addr;

    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn all_addresses_are_those_of_both_families() {
        let listener = listen("[::]:0".parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        // Where this machine has any.
        if std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.unwrap();
        }
        let alone = listen("127.0.0.1:0".parse().unwrap()).unwrap().local_addr().unwrap();
        assert!(TcpStream::connect((Ipv6Addr::LOCALHOST, alone.port())).await.is_err());
    }

    #[test]
    fn without_ipv6_all_addresses_are_those_of_ipv4_and_no_other_address_is_another_one() {
        let tried = RefCell::new(Vec::new());
        let try_at = |address: &str, errno: Errno| {
            let taken = either(address.parse().unwrap(), |address| {
                tried.borrow_mut().push(address.to_string());
                if address.is_ipv6() { Err(errno.into()) } else { Ok(()) }
            });
            (taken.is_ok(), tried.take())
        };
        for (address, errno, taken, expected) in [
            ("[::]:80", Errno::AFNOSUPPORT, true, &["[::]:80", "0.0.0.0:80"][..]),
            ("[::]:80", Errno::ADDRNOTAVAIL, true, &["[::]:80", "0.0.0.0:80"]),
            ("[::]:80", Errno::ADDRINUSE, false, &["[::]:80"]),
            ("[::1]:80", Errno::AFNOSUPPORT, false, &["[::1]:80"]),
            ("0.0.0.0:80", Errno::AFNOSUPPORT, true, &["0.0.0.0:80"]),
        ] {
            let expected = expected.iter().map(|&address| address.to_owned()).collect::<Vec<_>>();
            assert_eq!(try_at(address, errno), (taken, expected), "{address} {errno}");
        }
    }
}
