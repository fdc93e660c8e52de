//! Files that are right, and what a stranger may put into one.

use capstan_core::registry::artifact::MANIFEST;

use tar::EntryType;

use super::*;

type Entry<'a> = (&'a str, EntryType, &'a [u8]);

/// Writes a tar with these entries, whose names may be any, and returns what comes of it.
fn opened(entries: &[Entry<'_>]) -> Result<Archive, String> {
    written(&tarred(entries))
}

fn tarred(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, kind, content) in entries {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes
}

fn written(bytes: &[u8]) -> Result<Archive, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    Archive::open(file.path()).map_err(|error| error.to_string())
}

fn part(bytes: &[u8]) -> Descriptor {
    Descriptor { media_type: MANIFEST.to_owned(), digest: Digest::sha256(bytes), size: bytes.len() as u64 }
}

fn listed(descriptor: Descriptor) -> Listed {
    Listed { descriptor, name: None, artifact_type: None }
}

#[test]
fn what_is_written_is_read_again_and_is_the_same_file_each_time() {
    // LY-1
    let (manifest, large) = (&b"a manifest"[..], vec![7; 100_000]);
    let write = || {
        let mut writer = Writer::begin(Vec::new(), &[listed(part(manifest))]).unwrap();
        writer.blob(&part(manifest).digest, manifest).unwrap();
        writer.part(&part(&large)).unwrap().extend_from_slice(&large);
        writer.pad(&part(&large)).unwrap();
        writer.end().unwrap()
    };
    assert_eq!(write(), write());
    let archive = written(&write()).unwrap();
    let items = archive.items().unwrap();
    assert_eq!((items.len(), items[0].manifest.as_slice()), (1, manifest));
    archive.check(&part(&large)).unwrap();
    assert_eq!(archive.part(&part(&large), 100_000).unwrap(), large);
    // As others read it.
    let mut names = Vec::new();
    for entry in tar::Archive::new(write().as_slice()).entries().unwrap() {
        names.push(entry.unwrap().path().unwrap().display().to_string());
    }
    assert_eq!(names[..2], ["oci-layout", "index.json"]);
    assert_eq!(names[2..], [layout::path(&part(manifest).digest), layout::path(&part(&large).digest)]);
}

#[test]
fn a_file_of_a_stranger_is_refused_with_what_is_wrong() {
    // LY-2
    let (file, mark) = (EntryType::Regular, ("oci-layout", EntryType::Regular, layout::MARK_TEXT));
    let list = ("index.json", file, &br#"{"manifests":[]}"#[..]);
    let huge = vec![b' '; (1 << 20) + 1];
    for (entries, expected) in [
        (vec![list], "it has no `oci-layout`: it is no OCI image layout"),
        (vec![mark], "it has no `index.json`: it is no OCI image layout"),
        (vec![mark, list, ("../x", file, b"")], "`../x` leads out of it"),
        (vec![mark, list, ("/x", EntryType::Directory, b"")], "`/x` leads out of it"),
        (vec![mark, list, ("x", EntryType::Symlink, b"")], "`x` in it is a link; expected files and folders"),
        (vec![mark, list, ("x", EntryType::Link, b"")], "`x` in it is a link"),
        (vec![mark, list, ("x", EntryType::Block, b"")], "`x` in it is no regular file"),
        (vec![mark, list, ("x", EntryType::GNUSparse, b"")], "`x` in it is no regular file"),
        (vec![mark, list, ("./index.json", file, b"{}")], "`./index.json` is in it twice"),
        (vec![mark, ("index.json", file, &huge)], "`index.json` has 1048577 bytes; at most 1048576 are taken"),
        (vec![("oci-layout", file, b"{}"), list], "`oci-layout` says no `imageLayoutVersion`"),
    ] {
        let found = opened(&entries).unwrap_err();
        assert!(found.contains(expected), "{found}");
    }
    let folder = ("blobs/", EntryType::Directory, &b""[..]);
    let more = ("pax", EntryType::XHeader, &b"30 mtime=1\n"[..]);
    assert!(opened(&[mark, folder, more, list, ("manifest.json", file, b"[]")]).is_ok());
    let many = vec![("x", EntryType::Directory, &b""[..]); ENTRIES + 1];
    assert!(opened(&many).unwrap_err().contains("it has more than 20000 entries"));
    assert!(written(&[0x1f, 0x8b, 8]).unwrap_err().contains("it is compressed"));
    assert!(written(&[b'a'; 2000]).unwrap_err().contains("it is no tar"));
    assert!(written(b"").unwrap_err().contains("it has no `oci-layout`"));
    let whole = tarred(&[mark, list, ("blobs/x", file, &[1; 2000])]);
    assert!(written(&whole[..whole.len() - 1024]).unwrap_err().contains("it ends within `blobs/x`"));
    assert!(Archive::open(Path::new("/dev/zero")).unwrap_err().to_string().contains("it is a device"));
}

#[test]
fn a_part_that_is_missing_or_is_another_is_not_taken() {
    // LY-2
    let (good, path) = (part(b"good"), layout::path(&part(b"good").digest));
    let (other, missing) = (layout::path(&part(b"more").digest), part(b"none"));
    let list = layout::write_list(&[listed(good.clone())]);
    let entry = |name, bytes| (name, EntryType::Regular, bytes);
    let base = [entry("oci-layout", layout::MARK_TEXT), entry("index.json", list.as_slice())];
    let archive = opened(&[base[0], base[1], entry(&path, b"good"), entry(&other, b"evil")]).unwrap();
    assert_eq!(archive.part(&good, 4).unwrap(), b"good");
    let said = |result: io::Result<Vec<u8>>| result.unwrap_err().to_string();
    assert!(said(archive.part(&good, 3)).ends_with("has 4 bytes; at most 3 are taken"));
    assert_eq!(said(archive.part(&missing, 9)), format!("it lacks {}", missing.digest));
    let evil = format!("what is in it as {} is {}", part(b"more").digest, part(b"evil").digest);
    assert_eq!(said(archive.part(&part(b"more"), 9)), evil);
    assert_eq!(archive.check(&part(b"more")).unwrap_err().to_string(), evil);
    let short = Descriptor { size: 3, ..good.clone() };
    assert_eq!(
        archive.check(&short).unwrap_err().to_string(),
        format!("{} has 4 bytes in it; expected 3", good.digest)
    );
    let archive = opened(&base).unwrap();
    assert_eq!(archive.items().unwrap_err().to_string(), format!("it lacks {}", good.digest));
}
