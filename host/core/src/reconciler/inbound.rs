//! Takes in requests from outside: calls the component beside all runs, keeps what it has learned, and has those primaries run that this
//! concerns, before the request is answered (IB).

use std::borrow::Cow;
use std::sync::Arc;

use tokio::time::Instant;

use super::beside::Beside;
use super::controller::Controller;
use super::passing::{End, tell, tell_of};
use crate::external::{self, Differs, External};
use crate::guest::{Cause, Failure, InboundAnswer, InboundRequest, Learned, SourceEvent};
use crate::object::ObjectRef;
use crate::text;

/// The longest body of an answer, in bytes.
const LONGEST_ANSWER: usize = 64 << 10;

/// What a request has led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The HTTP status to answer with.
    pub status: u16,
    /// The body to answer with.
    pub body: String,
    /// Events about primaries that are not there, of which nothing is kept.
    pub dropped: usize,
}

/// Why a request is not answered as the component says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The component has failed, or what it answers is of no use.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// Some of what was learned finds no room. The rest is kept.
    #[error("{0}")]
    Full(String),
    /// It, or some of it, can't be taken in now; sent again it may be.
    #[error("{0}")]
    NotNow(String),
}

impl Problem {
    /// Returns the kind of problem, by which it is logged once in a while: its text may be the sender's.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Failed(failure) => match failure.cause {
                Cause::Returned => "returned",
                Cause::Trap => "trap",
                Cause::Timeout => "timeout",
                Cause::OutOfMemory => "outOfMemory",
                Cause::Other => "other",
            },
            Self::Full(_) => "full",
            Self::NotNow(_) => "notNow",
        }
    }
}

/// What could be read of an answer.
struct Answer {
    events: Vec<Event>,
    /// Events about primaries that are not there.
    dropped: usize,
    /// Why others are left out: it is not known whether their primaries are there.
    doubt: Option<Problem>,
}

/// Something that a request says of a primary that is there.
struct Event {
    primary: ObjectRef,
    uid: Box<str>,
    what: What,
}

enum What {
    Wake,
    /// The thing with this id is this one, or gone.
    Thing(Arc<str>, Option<Arc<str>>),
}

/// Tells the component of a request to a source, and takes in what it has learned. Once this returns, the primaries that it concerns are in the
/// queue. `current` returns the controller that is in force by then.
///
/// # Errors
/// [`Problem`].
pub async fn receive(
    controller: &Arc<Controller>,
    source: &Arc<External>,
    request: InboundRequest,
    current: impl Fn() -> Option<Arc<Controller>>,
) -> Result<Received, Problem> {
    let beside = Beside::new(controller, None);
    let session = controller.guest.open(Arc::<Beside>::clone(&beside));
    let answer = session.receive(&source.name, Cow::Owned(request)).await?;
    drop(session);
    let InboundAnswer { status, body, events } = checked(answer)?;
    let same = |now: &Arc<Controller>| now.externals.get(&source.name).is_some_and(|now| Arc::ptr_eq(now, source));
    let not_now = |what: &str| Problem::NotNow(format!("{what} while the request was looked at"));
    let now = current().ok_or_else(|| not_now("the controller has stopped taking requests"))?;
    if !same(&now) {
        return Err(not_now(&format!("source {} has become another one", source.name)));
    }
    let Answer { events, dropped, doubt } = read(&now, source, events, &beside)?;
    source.understood();
    let (changed, taken) = take(&now, source, &events);
    forget_gone(&now, source, &events);
    tell_of(&now, source, changed, End::Told).await;
    taken.and(doubt.map_or(Ok(()), Err))?;
    Ok(Received { status, body, dropped })
}

/// Finds an answer that HTTP does not have.
fn checked(answer: InboundAnswer) -> Result<InboundAnswer, Failure> {
    let InboundAnswer { status, body, .. } = &answer;
    if !(200..600).contains(status) {
        return Err(Failure::other(format!("it answers with the status {status}; expected one from 200 to 599")));
    }
    if body.len() > LONGEST_ANSWER {
        let found = body.len();
        return Err(Failure::other(format!("it answers with {found} bytes; expected at most {LONGEST_ANSWER}")));
    }
    Ok(answer)
}

/// Reads what was learned, all of it before anything of it is kept.
fn read(
    controller: &Controller,
    source: &External,
    events: Vec<SourceEvent>,
    beside: &Beside,
) -> Result<Answer, Failure> {
    let mut budget = beside.budget.lock();
    let mut answer = Answer { events: Vec::with_capacity(events.len()), dropped: 0, doubt: None };
    for SourceEvent { primary, learned } in events {
        let what = match learned {
            Learned::Wake => What::Wake,
            Learned::Gone(id) => What::Thing(id.into(), None),
            Learned::Present(thing) => {
                let things = external::read(&[thing], &source.spec.id, &mut budget);
                let things = things.map_err(|problem| Failure::other(problem.to_string()))?;
                let Some((id, thing)) = things.into_iter().next() else { continue };
                What::Thing(id, Some(thing))
            }
        };
        match controller.primaries.look(&primary) {
            Ok(Some(there)) => answer.events.push(Event { uid: there.header().uid.as_ref().into(), primary, what }),
            Ok(None) => answer.dropped += 1,
            Err(doubt) => drop(answer.doubt.get_or_insert_with(|| Problem::NotNow(doubt.to_string()))),
        }
    }
    Ok(answer)
}

/// Keeps what was learned, and has those primaries run that are only to run. Returns the others that it changes something for, and
/// [`Problem::Full`], as the first event says it that finds no room: the others are kept.
fn take(controller: &Controller, source: &External, events: &[Event]) -> (Vec<Differs>, Result<(), Problem>) {
    let (mut woken, mut changed, mut result) = (Vec::new(), Vec::new(), Ok(()));
    for Event { primary, uid, what } in events {
        let learned = match what {
            What::Wake => Ok(!source.hint(primary, uid, Instant::now())),
            What::Thing(id, now) => {
                let learned = source.learn((primary, uid), id, now.clone(), || controller.guest.lasting());
                source.settle_later((primary, uid), Instant::now());
                let differs = |things| Differs { primary: primary.clone(), things };
                learned.map(|change| {
                    changed.extend(change.map(|change| differs(vec![change])));
                    false
                })
            }
        };
        match learned {
            Ok(true) => woken.push(primary.clone()),
            Ok(false) => {}
            Err(refused) => {
                let full = || Problem::Full(format!("{}: {refused}", text::said(&primary.to_string())));
                result = result.and_then(|()| Err(full()));
            }
        }
    }
    tell(controller, source, woken);
    (changed, result)
}

/// Forgets what was kept of primaries that have gone meanwhile, or have been made again (`XC-6`).
fn forget_gone(controller: &Controller, source: &External, events: &[Event]) {
    for Event { primary, uid, .. } in events {
        let now = controller.primaries.get(primary);
        let there = now.as_ref().is_some_and(|now| *now.header().uid == **uid);
        // A run may look at what it had; once that is over, it is forgotten as that of any other.
        if !there && (now.is_some() || !controller.queue.knows(primary)) {
            source.forget_one(primary, uid);
        }
    }
}
