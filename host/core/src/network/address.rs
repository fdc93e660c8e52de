//! Which addresses are closed, whatever a name resolves to.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses of private networks at which clouds hand out credentials.
const METADATA: [IpAddr; 7] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0023)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x00c1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0042, 0, 0, 0, 0, 0, 0x0042)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254)),
];

/// Why an address is not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// Nobody has it, or everybody.
    #[error("it is nobody's address")]
    Nobody,
    /// The machine itself, or what is set aside for other purposes.
    #[error("it is an address of the machine, or is set aside; write the address itself in place of the name")]
    Local,
    /// One of the machine's link, or that of a metadata service: whoever is connected there may be given the rights of the machine.
    #[error("it is an address of the machine's link, or of a metadata service: those are never reached")]
    Link,
    /// The API server's.
    #[error("it is the address of the API server; write the address itself in place of the name")]
    Guarded,
    /// A port of this machine where the daemon itself listens.
    #[error("the daemon itself listens there")]
    Own,
    /// One of a private network, as the cluster's are.
    #[error("it is an address of a private network; add the host to `capabilities.internal`")]
    Internal,
}

/// To whom an address belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zone {
    Nobody,
    Link,
    Local,
    Internal,
    Public,
}

/// Whether an address may be reached by an entry that has written it (`named`), or has its host among the internal ones.
pub(super) fn check(address: IpAddr, guarded: &BTreeSet<IpAddr>, named: bool, internal: bool) -> Result<(), Closed> {
    let address = plain(address);
    let zone = zone(address);
    if let Some(never) = never(address) {
        return Err(never);
    }
    if named {
        return Ok(());
    }
    if guarded.contains(&address) {
        return Err(Closed::Guarded);
    }
    match zone {
        Zone::Public => Ok(()),
        Zone::Internal if internal => Ok(()),
        Zone::Internal => Err(Closed::Internal),
        Zone::Local => Err(Closed::Local),
        Zone::Nobody => Err(Closed::Nobody),
        Zone::Link => Err(Closed::Link),
    }
}

/// Returns why an address is not reached whatever a manifest says, so that it may not even be written.
pub(super) fn never(address: IpAddr) -> Option<Closed> {
    match zone(address) {
        Zone::Nobody => Some(Closed::Nobody),
        Zone::Link => Some(Closed::Link),
        Zone::Local | Zone::Internal | Zone::Public => METADATA.contains(&address).then_some(Closed::Link),
    }
}

/// Returns the address that is meant: one of IPv4 may be written as one of IPv6.
pub fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(long) = address else {
        return address;
    };
    if let Some(short) = long.to_ipv4_mapped() {
        return IpAddr::V4(short);
    }
    match long.segments() {
        // NAT64, where the network translates.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        _ => address,
    }
}

fn zone(address: IpAddr) -> Zone {
    match address {
        IpAddr::V4(address) => zone_v4(address),
        IpAddr::V6(address) => zone_v6(address),
    }
}

fn zone_v4(address: Ipv4Addr) -> Zone {
    match address.octets() {
        [0 | 224..=239, ..] | [255, 255, 255, 255] => Zone::Nobody,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Zone::Internal,
        [169, 254, ..] => Zone::Link,
        // Loopback, and what is set aside: protocols, documentation, 6to4 relays, benchmarks, the future.
        [127 | 240..=255, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => Zone::Local,
        _ => Zone::Public,
    }
}

fn zone_v6(address: Ipv6Addr) -> Zone {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] | [0xff00..=0xffff, ..] => Zone::Nobody,
        [0xfc00..=0xfdff, ..] => Zone::Internal,
        [0xfe80..=0xfebf, ..] => Zone::Link,
        // Documentation, and what leads to an address of IPv4: Teredo, 6to4.
        [0x2001, 0 | 0x0db8, ..] | [0x2002, ..] => Zone::Local,
        [0x2000..=0x3fff, ..] => Zone::Public,
        // Loopback, and what is given to nobody yet.
        _ => Zone::Local,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(address: &str, named: bool, internal: bool) -> Result<(), Closed> {
        let guarded = ["10.96.0.1", "8.8.4.4"].map(|address| address.parse().unwrap());
        check(address.parse().unwrap(), &guarded.into(), named, internal)
    }

    #[test]
    fn a_name_leads_to_public_addresses_and_if_internal_to_private_ones() {
        use Closed::{Guarded, Internal, Link, Local, Nobody};
        for (address, public, internal) in [
            ("8.8.8.8", Ok(()), Ok(())),
            ("2606:4700::1", Ok(()), Ok(())),
            ("10.1.2.3", Err(Internal), Ok(())),
            ("172.16.0.1", Err(Internal), Ok(())),
            ("172.32.0.1", Ok(()), Ok(())),
            ("192.168.1.1", Err(Internal), Ok(())),
            ("100.64.0.1", Err(Internal), Ok(())),
            ("fd12::1", Err(Internal), Ok(())),
            ("::ffff:10.1.2.3", Err(Internal), Ok(())),
            ("64:ff9b::a01:203", Err(Internal), Ok(())),
            ("127.0.0.1", Err(Local), Err(Local)),
            ("127.8.8.8", Err(Local), Err(Local)),
            ("::1", Err(Local), Err(Local)),
            ("::ffff:127.0.0.1", Err(Local), Err(Local)),
            ("64:ff9b::7f00:1", Err(Local), Err(Local)),
            ("::127.0.0.1", Err(Local), Err(Local)),
            ("169.254.169.254", Err(Link), Err(Link)),
            ("fe80::1", Err(Link), Err(Link)),
            ("2002:7f00:1::", Err(Local), Err(Local)),
            ("198.18.0.1", Err(Local), Err(Local)),
            ("0.0.0.0", Err(Nobody), Err(Nobody)),
            ("::", Err(Nobody), Err(Nobody)),
            ("224.0.0.1", Err(Nobody), Err(Nobody)),
            ("255.255.255.255", Err(Nobody), Err(Nobody)),
            ("ff02::1", Err(Nobody), Err(Nobody)),
            ("10.96.0.1", Err(Guarded), Err(Guarded)),
            ("8.8.4.4", Err(Guarded), Err(Guarded)),
            ("100.100.100.200", Err(Link), Err(Link)),
            ("168.63.129.16", Err(Link), Err(Link)),
            ("fd00:ec2::254", Err(Link), Err(Link)),
            ("fd00:ec2::23", Err(Link), Err(Link)),
            ("fd20:ce::254", Err(Link), Err(Link)),
        ] {
            assert_eq!(checked(address, false, false), public, "{address}");
            assert_eq!(checked(address, false, true), internal, "{address}, internal");
        }
    }

    #[test]
    fn an_address_that_is_written_itself_is_reached_unless_it_is_nobodys_or_gives_the_rights_of_the_machine() {
        for address in ["8.8.8.8", "10.96.0.1", "127.0.0.1", "::1"] {
            assert_eq!(checked(address, true, false), Ok(()), "{address}");
        }
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "168.63.129.16",
            "fd00:ec2::254",
            "fe80::a9fe:a9fe",
            "febf::1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert_eq!(checked(address, true, true), Err(Closed::Link), "{address}");
        }
        assert_eq!(checked("0.0.0.0", true, true), Err(Closed::Nobody));
    }
}
