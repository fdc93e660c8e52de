//! Files of `capstan load`, as a stranger may have written them.

use std::io::Write;

use capstan::registry::archive::{Archive, Writer};
use capstan_core::registry::Digest;
use capstan_core::registry::artifact::{Descriptor, MANIFEST};
use capstan_core::registry::layout::{self, Listed, Prefix, To};

use crate::bounded::within_bounds;

/// The most bytes of a component.
const MOST: u64 = 1 << 20;

/// A file is read or refused, and what is read of it is what its digest says.
pub fn archives(data: &[u8]) {
    // The file, its list, a manifest in it, and what is changed in a file that is right.
    if let Ok(list) = layout::read_list(data) {
        about(&written(&list, data));
    }
    let descriptor =
        Descriptor { media_type: MANIFEST.to_owned(), digest: Digest::sha256(data), size: data.len() as u64 };
    let mut right = written(&[Listed { descriptor, name: None, artifact_type: None }], data);
    about(data);
    about(&right);
    if let Some((place, change)) = data.split_first_chunk::<2>() {
        let place = usize::from(u16::from_le_bytes(*place)) % right.len();
        right.iter_mut().skip(place).zip(change).for_each(|(byte, change)| *byte ^= change);
        about(&right);
    }
}

/// Returns a file with this list, and one part.
fn written(list: &[Listed], part: &[u8]) -> Vec<u8> {
    let mut writer = Writer::begin(Vec::new(), list).expect("memory takes all");
    writer.blob(&Digest::sha256(part), part).expect("memory takes all");
    writer.end().expect("memory takes all")
}

/// Does all that `capstan load` does with a file before it sends anything.
fn about(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("room for it");
    let to = To::Below(Prefix::parse("registry.example/mirror").expect("a prefix"));
    within_bounds(|| {
        let read = Archive::open(file.path()).and_then(|archive| archive.items().map(|items| (archive, items)));
        let (archive, items) = match read {
            Ok(read) => read,
            Err(why) => return assert!(!why.to_string().is_empty()),
        };
        for item in &items {
            assert_eq!(Digest::sha256(&item.manifest), item.listed.descriptor.digest);
        }
        match layout::plan(items, &to, MOST) {
            Ok(plan) => {
                for load in plan.all {
                    let layer = &load.artifact.layer;
                    // What is not in it is refused.
                    if let Ok(component) = archive.part(layer, MOST) {
                        assert_eq!(Digest::sha256(&component), layer.digest);
                        assert!(archive.check(layer).is_ok());
                    }
                }
            }
            Err(why) => assert!(!why.is_empty()),
        }
    });
}
