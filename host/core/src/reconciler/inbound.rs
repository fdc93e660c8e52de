//! Takes in requests from outside: calls the component beside all runs, keeps what it has learned, and has those primaries run that this
//! concerns, before the request is answered (IB).

use std::borrow::Cow;
use std::sync::Arc;

use super::beside::Beside;
use super::controller::Controller;
use super::polling::tell;
use crate::external::{self, External};
use crate::guest::{Failure, InboundAnswer, InboundRequest, Learned, SourceEvent};
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
    /// What was learned finds no room. What came before it is kept.
    #[error("{0}")]
    Full(String),
    /// It can't be taken in now; sent again it may be.
    #[error("{0}")]
    NotNow(String),
}

/// Something that a request says of a primary.
struct Event {
    primary: ObjectRef,
    /// Its uid; `None`: it is not there.
    uid: Option<Box<str>>,
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
    let now = current().filter(same).ok_or_else(|| {
        Problem::NotNow(format!("source {} has become another one while the request was looked at", source.name))
    })?;
    let events = read(&now, source, events, &beside)?;
    let dropped = events.iter().filter(|event| event.uid.is_none()).count();
    take(&now, source, events)?;
    source.understood();
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
) -> Result<Vec<Event>, Problem> {
    let mut budget = beside.budget.lock();
    let mut read = Vec::with_capacity(events.len());
    for SourceEvent { primary, learned } in events {
        let there = controller.primaries.look(&primary).map_err(|doubt| Problem::NotNow(doubt.to_string()))?;
        let uid = there.map(|there| there.header().uid.as_ref().into());
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
        read.push(Event { primary, uid, what });
    }
    Ok(read)
}

/// Keeps what was learned of primaries that are there, and has those run that it changes something for.
fn take(controller: &Controller, source: &External, events: Vec<Event>) -> Result<(), Problem> {
    let (mut woken, mut result) = (Vec::new(), Ok(()));
    for Event { primary, uid, what } in events {
        let Some(uid) = uid else { continue };
        let changed = match what {
            What::Wake => Ok(true),
            What::Thing(id, now) => source.learn((&primary, &uid), &id, now, || controller.guest.lasting()),
        };
        match changed {
            Ok(true) => woken.push(primary),
            Ok(false) => {}
            Err(refused) => {
                let primary = primary.to_string();
                result = Err(Problem::Full(format!("{}: {refused}", text::said(&primary))));
                break;
            }
        }
    }
    tell(controller, source, woken);
    result
}
