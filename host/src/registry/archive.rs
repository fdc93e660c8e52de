//! Writes an OCI image layout as a tar, and reads one of a stranger: which parts are in it, and where.
//!
//! Nothing is unpacked: a part is read from its place, and checked against its digest (`LY-2`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use capstan_core::registry::Digest;
use capstan_core::registry::artifact::Descriptor;
use capstan_core::registry::layout::{self, Item, LIST, Listed, MARK, Place};
use capstan_core::text::said;
use ring::digest::{Context, SHA256};
use tar::Header;

use super::pull;
use crate::read;

/// The most entries of a file.
const ENTRIES: usize = 20_000;

/// The size of blocks in a tar.
const BLOCK: usize = 512;

/// How much is read at once to check a part.
const PIECE: u64 = 64 << 10;

/// A file that is written.
pub struct Writer<W> {
    out: W,
}

/// A file that is read.
#[derive(Debug)]
pub struct Archive {
    file: File,
    list: Vec<Listed>,
    blobs: BTreeMap<Digest, Span>,
}

/// Where something is in a file.
#[derive(Clone, Copy, Debug)]
struct Span {
    at: u64,
    size: u64,
}

// === impl Writer ===

impl<W: Write> Writer<W> {
    /// Begins a layout with these manifests.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn begin(out: W, list: &[Listed]) -> io::Result<Self> {
        let mut writer = Self { out };
        writer.whole(MARK, layout::MARK_TEXT)?;
        writer.whole(LIST, &layout::write_list(list))?;
        Ok(writer)
    }

    /// Adds a part.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn blob(&mut self, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
        self.whole(&layout::path(digest), bytes)
    }

    /// Begins a part: as many bytes are to be written as it has. [`pad`](Self::pad) ends it.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn part(&mut self, part: &Descriptor) -> io::Result<&mut W> {
        self.head(&layout::path(&part.digest), part.size)?;
        Ok(&mut self.out)
    }

    /// Ends a part.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn pad(&mut self, part: &Descriptor) -> io::Result<()> {
        self.fill(part.size)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn end(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn whole(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.head(path, bytes.len() as u64)?;
        self.out.write_all(bytes)?;
        self.fill(bytes.len() as u64)
    }

    /// The same parts are the same file, whenever and by whomever it is written.
    fn head(&mut self, path: &str, size: u64) -> io::Result<()> {
        let mut header = Header::new_ustar();
        header.set_path(path)?;
        header.set_size(size);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_cksum();
        self.out.write_all(header.as_bytes())
    }

    fn fill(&mut self, size: u64) -> io::Result<()> {
        let more = usize::try_from(size.next_multiple_of(BLOCK as u64) - size).unwrap_or_default();
        self.out.write_all([0; BLOCK].get(..more).unwrap_or_default())
    }
}

// === impl Archive ===

impl Archive {
    /// Opens a file, and finds what is in it.
    ///
    /// # Errors
    /// If it can't be read, is no tar, has no layout, or something that none has.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = read::open(path)?;
        let found = found(&file)?;
        let text = |span: Option<Span>, name: &str| {
            let span = span.ok_or_else(|| wrong(format!("it has no `{name}`: it is no OCI image layout")))?;
            within(name, span.size, read::TEXT)?;
            bytes(&file, span)
        };
        layout::read_mark(&text(found.mark, MARK)?).map_err(wrong)?;
        let list = layout::read_list(&text(found.list, LIST)?).map_err(wrong)?;
        Ok(Self { blobs: found.blobs, list, file })
    }

    /// Returns the manifests that are listed.
    ///
    /// # Errors
    /// If one is not there, too large or not what its digest says.
    pub fn items(&self) -> io::Result<Vec<Item>> {
        let item = |listed: &Listed| {
            let manifest = self.part(&listed.descriptor, pull::MANIFEST as u64)?;
            Ok(Item { listed: listed.clone(), manifest })
        };
        self.list.iter().map(item).collect()
    }

    /// Returns a part of at most so many bytes.
    ///
    /// # Errors
    /// If it is not there, too large or not what its digest says.
    pub fn part(&self, part: &Descriptor, most: u64) -> io::Result<Vec<u8>> {
        let span = self.span(part)?;
        within(&part.digest.to_string(), span.size, most)?;
        let bytes = bytes(&self.file, span)?;
        same(&part.digest, &Digest::sha256(&bytes))?;
        Ok(bytes)
    }

    /// Finds that a part is there, and is what its digest says, without keeping it.
    ///
    /// # Errors
    /// If it is not.
    pub fn check(&self, part: &Descriptor) -> io::Result<()> {
        let Span { mut at, size } = self.span(part)?;
        let (end, mut context) = (at + size, Context::new(&SHA256));
        while at < end {
            let piece = Span { at, size: PIECE.min(end - at) };
            context.update(&bytes(&self.file, piece)?);
            at += piece.size;
        }
        same(&part.digest, &Digest::of(context.finish().as_ref()))
    }

    fn span(&self, Descriptor { digest, size, .. }: &Descriptor) -> io::Result<Span> {
        let missing = || wrong(format!("it lacks {digest}"));
        let span = *self.blobs.get(digest).ok_or_else(missing)?;
        if span.size != *size {
            return Err(wrong(format!("{digest} has {} bytes in it; expected {size}", span.size)));
        }
        Ok(span)
    }
}

/// What is in a file.
#[derive(Default)]
struct Contents {
    mark: Option<Span>,
    list: Option<Span>,
    blobs: BTreeMap<Digest, Span>,
}

/// Finds what is in a file, by the heads of its entries alone.
fn found(file: &File) -> io::Result<Contents> {
    let whole = file.metadata()?.len();
    if bytes(file, Span { at: 0, size: whole.min(2) })? == [0x1f, 0x8b] {
        return Err(wrong("it is compressed; expected the tar in it, as `gunzip` writes it"));
    }
    let mut archive = tar::Archive::new(file);
    let mut found = Contents::default();
    // What only says more of the next entry, such as a long name, is an entry here, and nobody reads it.
    for (count, entry) in archive.entries_with_seek()?.raw(true).enumerate() {
        let entry = entry.map_err(|error| wrong(format!("it is no tar: {}", said(&error.to_string()))))?;
        if count >= ENTRIES {
            return Err(wrong(format!("it has more than {ENTRIES} entries")));
        }
        let path = entry.path_bytes();
        let path = String::from_utf8_lossy(&path);
        let place = layout::place(&path).map_err(wrong)?;
        let span = Span { at: entry.raw_file_position(), size: entry.size() };
        let kind = entry.header().entry_type();
        if !kind.is_file() && !kind.is_contiguous() {
            if kind.is_dir()
                || kind.is_pax_local_extensions()
                || kind.is_pax_global_extensions()
                || kind.is_gnu_longname()
            {
                continue;
            }
            let is_link = kind.is_symlink() || kind.is_hard_link() || kind.is_gnu_longlink();
            let what = if is_link { "a link" } else { "no regular file" };
            return Err(wrong(format!("`{}` in it is {what}; expected files and folders", said(&path))));
        }
        if span.at.checked_add(span.size).is_none_or(|end| end > whole) {
            return Err(wrong(format!("it ends within `{}`", said(&path))));
        }
        let before = match place {
            Place::Mark => found.mark.replace(span),
            Place::List => found.list.replace(span),
            Place::Blob(digest) => found.blobs.insert(digest, span),
            Place::Other => None,
        };
        if before.is_some() {
            return Err(wrong(format!("`{}` is in it twice", said(&path))));
        }
    }
    Ok(found)
}

fn bytes(file: &File, Span { at, size }: Span) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn within(what: &str, size: u64, most: u64) -> io::Result<()> {
    if size <= most {
        return Ok(());
    }
    Err(wrong(format!("`{what}` has {size} bytes; at most {most} are taken")))
}

fn same(expected: &Digest, found: &Digest) -> io::Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(wrong(format!("what is in it as {expected} is {found}")))
}

fn wrong(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

#[cfg(test)]
mod tests;
