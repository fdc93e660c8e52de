//! Decides whether an address is one of this machine's, whatever interfaces come and go: as the system says at the time.
//!
//! No packet is sent for it: a socket of UDP is given an address, and dropped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Addresses that nobody has (RFC 5737, RFC 3849).
const NOBODYS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0x0db8, 0, 0, 0, 0, 0, 1))];

/// Whether what is sent to an address stays on this machine: one of loopback or of an interface, such as that of the pod.
pub(super) fn is_here(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || answers_itself(address) || (may_be_taken(address) && !takes_any(address))
}

/// Whether what is sent there comes from there.
fn answers_itself(address: IpAddr) -> bool {
    let anywhere = if address.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = UdpSocket::bind((anywhere, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == address)
}

/// Whether a socket of this machine may have the address, as the second one of an interface has it.
fn may_be_taken(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Whether the system lets a socket have any address (`ip_nonlocal_bind`), so that this says nothing.
fn takes_any(like: IpAddr) -> bool {
    NOBODYS.into_iter().any(|nobodys| nobodys.is_ipv4() == like.is_ipv4() && may_be_taken(nobodys))
}

/// Returns an address of an interface of this machine; `None` if it has no network.
#[cfg(test)]
pub(super) fn of_interface() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_here_if_it_is_one_of_an_interface() {
        for (address, here) in
            [("127.0.0.1", true), ("127.0.0.2", true), ("::1", true), ("::ffff:127.0.0.1", true), ("192.0.2.1", false)]
        {
            assert_eq!(is_here(address.parse().unwrap()), here, "{address}");
        }
        assert!(of_interface().is_none_or(is_here));
        assert!(NOBODYS.iter().all(|nobodys| !is_here(*nobodys)));
        // The second way alone says the same.
        assert!(of_interface().is_none_or(may_be_taken));
    }
}
