//! Reads files that the user or a manifest names: only regular files, and only up to a size.
//!
//! A device has no end, and a FIFO may have no writer: reading either would take all memory, or block a thread
//! forever.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::string::FromUtf8Error;

use rustix::fs::OFlags;

/// The largest component, in bytes.
pub const COMPONENT: u64 = 64 << 20;

/// The largest manifest, kubeconfig or key, in bytes: what a `ConfigMap` holds.
pub const TEXT: u64 = 1 << 20;

/// The largest file of `CustomResourceDefinition`s, in bytes: some have megabytes, and several may be in one file.
pub const DEFINITIONS: u64 = 16 << 20;

/// Returns the content of a file.
///
/// # Errors
/// If it can't be read, is not a regular file, or has more than `limit` bytes.
pub fn bytes(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    opened(open(path)?, limit)
}

/// Opens a regular file.
///
/// # Errors
/// If it can't be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // Checked before it is opened, too: opening a device may have an effect.
    regular(fs::metadata(path)?.file_type())?;
    let without_waiting = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(without_waiting.bits()).unwrap_or_default())
        .open(path)?;
    regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// Returns the content of a text file.
///
/// # Errors
/// As for [`bytes()`], or if it is not UTF-8.
pub fn text(path: &Path, limit: u64) -> io::Result<String> {
    let invalid = |error: FromUtf8Error| {
        let why = match error.as_bytes() {
            [b'\0', b'a', b's', b'm', ..] => "it is WebAssembly; it should be a text".to_owned(),
            _ => format!("it is not a text: byte {} is not UTF-8", error.utf8_error().valid_up_to() + 1),
        };
        io::Error::new(io::ErrorKind::InvalidData, why)
    };
    String::from_utf8(bytes(path, limit)?).map_err(invalid)
}

/// Returns the content of an open file.
///
/// # Errors
/// As for [`bytes()`].
pub fn opened(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let metadata = file.metadata()?;
    regular(metadata.file_type())?;
    within(metadata.len(), limit)?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    // The size that the system reports may be wrong or outdated.
    file.take(limit + 1).read_to_end(&mut bytes)?;
    within(bytes.len() as u64, limit)?;
    Ok(bytes)
}

fn within(length: u64, limit: u64) -> io::Result<()> {
    if length <= limit {
        return Ok(());
    }
    let why = format!("it has {length} bytes or more; at most {limit} are read");
    Err(io::Error::new(io::ErrorKind::FileTooLarge, why))
}

fn regular(file: FileType) -> io::Result<()> {
    let what = match file {
        file if file.is_file() => return Ok(()),
        file if file.is_dir() => "a folder",
        file if file.is_fifo() => "a FIFO",
        file if file.is_socket() => "a socket",
        _ => "a device",
    };
    let why = format!("it is {what}; it should be a regular file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType as Kind, Mode, mknodat};

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mknodat(CWD, &fifo, Kind::Fifo, Mode::from(0o600), 0).unwrap();
        let socket = dir.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, what) in
            [(Path::new("/dev/zero"), "a device"), (dir.path(), "a folder"), (&fifo, "a FIFO"), (&socket, "a socket")]
        {
            let error = bytes(path, TEXT).unwrap_err().to_string();
            let expected = format!("it is {what}; it should be a regular file");
            assert_eq!(error, expected, "{}", path.display());
        }
    }

    #[test]
    fn what_is_no_text_is_called_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for (content, why) in [
            (&b"\0asm\x0d\0\x01\0\xff"[..], "it is WebAssembly; it should be a text"),
            (b"kind: \xff", "it is not a text: byte 7 is not UTF-8"),
        ] {
            fs::write(&path, content).unwrap();
            assert_eq!(text(&path, TEXT).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "12345").unwrap();
        assert_eq!(text(&path, 5).unwrap(), "12345");
        let error = bytes(&path, 4).unwrap_err().to_string();
        assert_eq!(error, "it has 5 bytes or more; at most 4 are read");
        let sparse = File::create(&path).unwrap();
        sparse.set_len(10 << 30).unwrap();
        let error = bytes(&path, COMPONENT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_has_more_than_the_system_says_is_refused() {
        let path = Path::new("/proc/self/status");
        assert_eq!(fs::metadata(path).unwrap().len(), 0);
        assert!(bytes(path, TEXT).is_ok());
        let error = bytes(path, 10).unwrap_err().to_string();
        assert_eq!(error, "it has 11 bytes or more; at most 10 are read");
    }
}
