//! What the daemon and its process for a component say to each other: one frame each, in turns, on a lane per instance.
//!
//! A frame is a length in four bytes and so many bytes of postcard. The daemon believes nothing of what it reads: a frame is
//! bounded before it is read, lists in it while they are, one by one and together, and what is out of turn has no place to go.

use std::borrow::Cow;
use std::time::Duration;

use capstan_core::cluster::Deletion;
use capstan_core::guest::{
    Answer, Call, CompareQuestion, Event, Lifetime, ObjectTarget, Place, Query, RunInfo, WorkflowCall, WriteRequest,
};
use capstan_core::object::ObjectRef;
use capstan_core::wire::{at_most, few, within};
use serde::{Deserialize, Serialize};

use crate::plugin::ambient::Ambient;
use crate::plugin::ending::Broken;
use crate::plugin::instance::HOSTCALL;
use crate::plugin::output::{Level, Stream};

/// The longest frame of a process, in bytes: one question with its documents, or an answer, and what was said before.
pub(super) const LONGEST: usize = HOSTCALL + (256 << 10);

/// The most that an instance says before it is heard, and the most fields of one line of it.
const SAID: usize = 1 << 10;
pub(super) const FIELDS: usize = 256;

/// Bytes of a frame's length.
pub(super) const HEAD: usize = 4;

/// What the process is told first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Setup<'a> {
    /// Bytes of linear memory an instance may have.
    pub(super) memory: u64,
    /// How many calls may run at once.
    pub(super) concurrency: usize,
    /// The plugin's configuration.
    pub(super) config: Cow<'a, str>,
    /// Where its time and random numbers come from.
    pub(super) ambient: Ambient,
    /// Bytes of memory that describe an instance.
    pub(super) weight: u64,
}

/// What it answers, once it is ready for lanes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    /// The walls that stand, and those that do not: name, and why not.
    #[serde(deserialize_with = "few")]
    pub(super) walls: Vec<(String, Option<String>)>,
}

/// What the daemon wants of an instance.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order<'a> {
    Call {
        #[serde(borrow)]
        call: Call<'a>,
        /// The run that begins with it.
        run: Option<RunInfo>,
        /// How long it may take.
        left: Duration,
        /// Bytes of memory that are held for the instance.
        granted: u64,
    },
    /// It is dropped.
    End,
}

/// What an instance says when it is its turn.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    /// Processor time since the last one.
    pub(super) cpu: Duration,
    /// Bytes of linear memory that the instance has.
    pub(super) memory: u64,
    /// What it has printed and logged since the last one.
    #[serde(deserialize_with = "at_most::<SAID, _, _>")]
    pub(super) said: Vec<Said>,
    pub(super) body: Body,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Body {
    /// It goes on with the answer, which is of the type that the question has.
    Ask(Ask),
    /// The call is over.
    Done(Done),
}

/// How a call ended: with an answer, an error that the component returned, or not.
pub(super) type Done = Result<Result<Answer, String>, Broken>;

/// What a component has said.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said {
    Printed(Stream, Vec<u8>),
    /// With its fields as they are written.
    Logged(Level, String, #[serde(deserialize_with = "at_most::<FIELDS, _, _>")] Vec<(String, String)>),
}

/// What an instance asks for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    NextImminent,
    Settings,
    FindAll(Query),
    FindOne(Place),
    FindNamed(Place, ObjectRef),
    Write(WriteRequest),
    Remove(ObjectTarget, Deletion),
    AddFinalizer(Option<String>),
    RemoveFinalizer(Option<String>),
    Compare(CompareQuestion),
    Workflow(WorkflowCall),
    LastResult(Option<String>),
    Memo(Lifetime, String),
    SetMemo(Lifetime, String, Option<String>),
    Publish(Event),
    Expect(String, Duration),
    PendingExpectation,
    ClearExpectation(String),
    Register(String, String),
    Deregister(String),
    Remember(String, String, Option<String>),
    Forget(String, String),
    /// Memory: so many bytes in all. Answered with why not.
    Grow(u64),
    /// To go on computing, or to be heard.
    Rest,
}

/// Returns a frame.
pub(super) fn frame<T: Serialize>(value: &T) -> postcard::Result<Vec<u8>> {
    let mut frame = postcard::to_extend(value, vec![0; HEAD])?;
    let length = frame.len() - HEAD;
    let length = u32::try_from(length).map_err(|_| postcard::Error::SerializeBufferFull)?;
    if let Some(head) = frame.first_chunk_mut() {
        *head = length.to_le_bytes();
    }
    Ok(frame)
}

/// Reads a frame of the process, without its length. Its lists take no more memory than the frame itself may.
pub(super) fn read<'a, T: Deserialize<'a>>(frame: &'a [u8]) -> postcard::Result<T> {
    within(LONGEST, || postcard::from_bytes(frame))
}

/// Returns how long the frame is that begins like that.
pub(super) fn length(head: [u8; HEAD]) -> usize {
    usize::try_from(u32::from_le_bytes(head)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use capstan_core::guest::{Found, Invalid, PolledAll, PrimaryThings};
    use capstan_core::object::Gvk;

    use super::*;

    fn report() -> Report {
        let gvk = Gvk::parse("apps/v1", "Deployment").unwrap();
        Report {
            cpu: Duration::from_micros(1500),
            memory: 64 << 10,
            said: vec![
                Said::Printed(Stream::Err, b"oh\n".to_vec()),
                Said::Logged(Level::Info, "seen".to_owned(), vec![("n".to_owned(), "1".to_owned())]),
            ],
            body: Body::Ask(Ask::FindNamed(Place::Kind(gvk), ObjectRef::namespaced("default", "page"))),
        }
    }

    #[test]
    fn what_is_said_comes_out_as_it_went_in() {
        let frame = frame(&report()).unwrap();
        assert_eq!(length(*frame.first_chunk().unwrap()), frame.len() - HEAD);
        let (said, heard) = (format!("{:?}", report()), read::<Report>(&frame[HEAD..]).unwrap());
        assert_eq!(format!("{heard:?}"), said);
    }

    #[test]
    fn whatever_bytes_come_they_are_read_or_refused() {
        let frame = frame(&report()).unwrap();
        let body = &frame[HEAD..];
        for end in 0..body.len() {
            assert!(read::<Report>(&body[..end]).is_err(), "{end}");
        }
        for at in 0..body.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut other = body.to_vec();
                other[at] = byte;
                // Not more than it could have said as well.
                let heard = read::<Report>(&other).map_or(0, |report| report.said.len());
                assert!(heard <= body.len(), "{at} {byte}");
            }
        }
    }

    #[test]
    fn a_kind_is_looked_at_and_a_long_list_refused() {
        let ask = |api_version: &str| {
            let place = ("Place", (api_version, "Pod"));
            let mut bytes = postcard::to_allocvec(&place.1).unwrap();
            // `Ask::FindOne(Place::Kind(…))`.
            bytes.splice(0..0, [3, 1]);
            postcard::from_bytes::<Ask>(&bytes).is_ok()
        };
        assert!(ask("v1"));
        assert!(!ask("v1/../../secrets"));
        let many = |count: usize| Report {
            said: (0..count).map(|_| Said::Printed(Stream::Out, Vec::new())).collect(),
            ..report()
        };
        for (count, fits) in [(SAID, true), (SAID + 1, false)] {
            let frame = frame(&many(count)).unwrap();
            assert_eq!(read::<Report>(&frame[HEAD..]).is_ok(), fits, "{count}");
        }
    }

    #[test]
    fn no_frame_takes_much_more_memory_than_it_has_bytes() {
        let logs = |fields: usize| {
            let fields = vec![(String::new(), String::new()); fields];
            Report { said: vec![Said::Logged(Level::Info, String::new(), fields)], ..report() }
        };
        let answers = |answer| Report { said: Vec::new(), body: Body::Done(Ok(Ok(answer))), ..report() };
        let problems = |count: usize| {
            let none = Invalid { field: None, message: String::new() };
            answers(Answer::Validate(Found { problems: vec![none; count] }))
        };
        // Lists in lists, each of which is short enough.
        let polled = |primaries: usize, things: usize| {
            let primary = ObjectRef::cluster("a");
            let things = PrimaryThings { primary, things: vec![String::new(); things] };
            answers(Answer::Poll(PolledAll { primaries: vec![things; primaries] }))
        };
        for (what, report, fits) in [
            ("fields", logs(FIELDS), true),
            ("fields", logs(FIELDS + 1), false),
            ("problems", problems(Found::MOST), true),
            ("problems", problems(Found::MOST + 1), false),
            ("things", polled(1_000, 100), true),
            ("things", polled(1_000, 1_000), false),
        ] {
            let frame = frame(&report).unwrap();
            assert!(frame.len() < LONGEST, "{what}");
            assert_eq!(read::<Report>(&frame[HEAD..]).is_ok(), fits, "{what}");
        }
    }
}
