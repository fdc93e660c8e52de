//! Decides what a watch shows next, and when.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kinds::Kind;
use crate::meta;
use crate::selector::Selector;
use crate::status::Refusal;
use crate::store::Change;
use crate::world::{At, World};
use crate::wrong::Wrong;

/// The interval of bookmarks, for a watch that wants them.
const BOOKMARKS: Duration = Duration::from_mins(1);

/// The shortest time that a watch lasts if it does not ask for another, in seconds.
const LASTS: u64 = 1800;

/// The state of a watch.
#[derive(Debug)]
pub(crate) struct Watch {
    kind: Arc<Kind>,
    number: usize,
    selector: Selector,
    /// Lines that come before anything else.
    first: VecDeque<Bytes>,
    /// Everything up to this version has been shown.
    shown: u64,
    /// When the next bookmark is due; `None` if it wants none.
    bookmark: Option<Instant>,
    ends: Instant,
    /// The number of cuts before it began, which don't cut it.
    cuts: usize,
}

/// What a watch shows next.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// A line.
    Line(Bytes),
    /// Nothing until something changes, or this time comes.
    Wait(Instant),
    /// The watch ends.
    End,
    /// Its connection breaks.
    Broken,
}

/// How watches are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// They end, as watches that have lasted long enough do.
    Closed,
    /// Their connections break.
    Broken,
}

impl World {
    /// Opens a watch, of one object or of all that are asked for.
    pub(crate) fn open(&mut self, at: &At<'_>, name: Option<&str>) -> Result<Watch, Refusal> {
        let asked = at.asked;
        let selector = Selector::of(asked, at.namespace, name)?;
        let initial = asked.query.contains_key("sendInitialEvents").then(|| asked.is("sendInitialEvents"));
        fits(initial, asked.parameter("resourceVersionMatch"))?;
        let lasts = asked.parameter("timeoutSeconds").and_then(|seconds| seconds.parse().ok());
        let lasts = lasts.unwrap_or_else(|| LASTS + self.chance.below(LASTS));
        let bookmarks = asked.is("allowWatchBookmarks");
        let mut watch = Watch {
            kind: Arc::clone(&at.kind),
            number: at.number,
            selector,
            first: VecDeque::new(),
            shown: 0,
            bookmark: bookmarks.then(|| at.now + BOOKMARKS),
            ends: at.now + Duration::from_secs(lasts),
            cuts: self.cuts.len(),
        };
        let version = asked.parameter("resourceVersion");
        // A watch from no version in particular shows all objects first, whether it asks for them or not.
        let initial = initial.or_else(|| matches!(version, None | Some("0")).then_some(true));
        match (version, initial) {
            // The state as watches see it may be shown; no client has to be shown a newer one.
            (Some("0"), None | Some(true)) => self.begin(&mut watch, 0, at.now),
            (None, None | Some(true)) => self.begin(&mut watch, self.store.revision(), at.now),
            (Some(version), Some(true)) => {
                let version = self.version(version)?;
                self.begin(&mut watch, version, at.now);
            }
            (Some(version), None | Some(false)) => {
                let version = self.version(version)?;
                self.go_on(&mut watch, version, at.now);
            }
            (None, Some(false)) => watch.shown = self.store.revision(),
        }
        if initial == Some(true) && bookmarks {
            watch.first.push_back(bookmark(&at.kind, watch.shown, true));
        }
        Ok(watch)
    }

    /// Begins a watch with all objects: as watches see them by now, if that is not older than `version`.
    fn begin(&self, watch: &mut Watch, version: u64, now: Instant) {
        let seen = self.store.seen(watch.number, now);
        watch.shown = if seen >= version { seen } else { self.store.revision() };
        let objects = self.store.as_of(watch.number, watch.shown);
        let objects = objects.values().filter(|object| watch.selector.takes(object));
        watch.first = objects.map(|object| line("ADDED", object)).collect();
    }

    /// Lets a watch continue after a version, or end at once if the changes after it are forgotten.
    fn go_on(&self, watch: &mut Watch, version: u64, now: Instant) {
        watch.shown = version;
        let compacted = self.store.compacted();
        if version < compacted {
            watch.ends = now;
            let why = format!("too old resource version: {version} ({compacted})");
            let body = Refusal::expired(why).body().unwrap_or_default();
            watch.first.push_back(line("ERROR", &body));
        }
    }

    /// Cuts all watches of a kind, or of all kinds.
    pub(crate) fn cut(&mut self, number: Option<usize>, cut: Cut) {
        self.cuts.push((number, cut));
    }

    /// Returns what a watch shows next.
    pub(crate) fn next(&self, watch: &mut Watch, now: Instant) -> Next {
        let cuts = self.cuts.get(watch.cuts..).unwrap_or_default();
        let cut = cuts.iter().find(|(number, _)| number.is_none_or(|number| number == watch.number));
        match cut {
            Some((_, Cut::Closed)) => return Next::End,
            Some((_, Cut::Broken)) => return Next::Broken,
            None if !self.is_served(watch.number) => return Next::End,
            None => {}
        }
        if let Some(line) = watch.first.pop_front() {
            return Next::Line(line);
        }
        if now >= watch.ends {
            return Next::End;
        }
        let mut hidden = None;
        while let Some(change) = self.store.after(watch.number, watch.shown) {
            if change.visible > now {
                hidden = Some(change.visible);
                break;
            }
            watch.shown = change.revision;
            if let Some(line) = shown(change, &watch.selector) {
                return Next::Line(line);
            }
        }
        if watch.bookmark.is_some_and(|due| due <= now) {
            watch.bookmark = Some(now + BOOKMARKS);
            watch.shown = self.store.seen(watch.number, now).max(watch.shown);
            return Next::Line(bookmark(&watch.kind, watch.shown, false));
        }
        let times = [Some(watch.ends), watch.bookmark, hidden];
        Next::Wait(times.into_iter().flatten().min().unwrap_or(watch.ends))
    }
}

/// Checks that a match of versions fits a watch that asks, or does not ask, for the objects that exist.
fn fits(initial: Option<bool>, matches: Option<&str>) -> Result<(), Refusal> {
    let why = match (initial, matches) {
        (Some(_), Some("NotOlderThan")) | (None, None) => return Ok(()),
        (Some(_), _) => "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        (None, Some(_)) => "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
    };
    Err(Refusal::options("ListOptions", &Wrong::forbidden("resourceVersionMatch", why)))
}

/// Returns the line with which a watch of these objects shows a change; `None` if it does not show it.
fn shown(change: &Change, selector: &Selector) -> Option<Bytes> {
    let [before, after] =
        [&change.old, &change.new].map(|object| object.as_ref().filter(|object| selector.takes(object)));
    match (before, after) {
        (None, None) => None,
        (None, Some(new)) => Some(line("ADDED", new)),
        (Some(_), Some(new)) => Some(line("MODIFIED", new)),
        // The object as it was when it was last selected, with its present version.
        (Some(old), None) => {
            let mut last = old.as_ref().clone();
            meta::set(&mut last, "resourceVersion", Some(change.revision.to_string().into()));
            Some(line("DELETED", &last))
        }
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    let mut line = json!({ "type": kind, "object": object }).to_string();
    line.push('\n');
    line.into()
}

fn bookmark(kind: &Kind, revision: u64, initial: bool) -> Bytes {
    let mut metadata = json!({ "resourceVersion": revision.to_string(), "creationTimestamp": null });
    let annotations = initial.then(|| json!({ "k8s.io/initial-events-end": "true" }));
    meta::set_part(&mut metadata, "annotations", annotations);
    line("BOOKMARK", &json!({ "kind": kind.name, "apiVersion": kind.api_version(), "metadata": metadata }))
}
