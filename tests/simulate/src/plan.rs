//! Decides what happens in a simulation, and when: all of it drawn from a seed, and each step may be left out.

use std::time::Duration;

use model::{Cut, Fault, Loss};

use crate::chance::Chance;
use crate::world::{DEPENDENTS, Dependent, NAMES, ON_START_ERROR, OnStartError, Setup, Thing, VARIANTS, Variant};

/// The time during which things go wrong.
pub(crate) const CHAOS: Duration = Duration::from_secs(30);

/// A simulation.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) setup: Setup,
    /// The longest time from a change until watches show it, unless a step says more.
    pub(crate) lag: Duration,
    /// The longest time that a request takes to arrive, and its answer.
    pub(crate) way: Duration,
    pub(crate) steps: Vec<Step>,
    /// The version of the manifest for a while once nothing goes wrong any more.
    pub(crate) last: Variant,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) at: Duration,
    pub(crate) act: Act,
}

/// What happens.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// A user creates a primary, if it does not exist.
    Create(Thing, u64),
    /// A user changes its spec.
    Edit(Thing, u64),
    /// A user changes it to want the dependent that the daemon deletes, or not to want it.
    Extra(Thing, bool),
    /// A user writes an annotation.
    Touch(Thing),
    /// A user changes its labels so that it matches the selector, or does not.
    Label(Thing, bool),
    Delete(Thing),
    /// A user deletes it with force, and creates it again before any client looks.
    Replace(Thing, u64),
    EditDependent(Thing, Dependent),
    DeleteDependent(Thing, Dependent),
    /// Somebody changes this of an object: one of all that exist, by its number.
    EditAny(u64, Part),
    /// Somebody deletes an object: one of all that exist, by its number.
    DeleteAny(u64),
    /// The next request of this sort goes wrong.
    Trouble(Sort, Fault),
    /// The daemon crashes, and starts again after this time.
    Crash(Moment, Duration),
    /// Watches end.
    Cut(Kind, Cut),
    /// The API server forgets the changes up to now.
    Compact,
    /// Watches end, and no client is shown the changes up to now: clients have to list.
    Unseen(Kind),
    /// This is wrong for a while.
    For(Duration, Wrong),
    /// The manifest says something else from now on.
    Swap(Variant),
    /// Another component takes its place, which does the same.
    Component,
    /// Another one, which has no `cleanup`, or has it again.
    Bare(bool),
    /// The daemon has to look at everything again.
    Hangup,
    /// The next run of the component does this.
    Whim(Whim),
}

/// A state that is wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Watches show changes of a kind this much later.
    Late(Kind, Duration),
    /// A kind is not served.
    Unserved(Kind),
    /// Something is forbidden, in one namespace or in all.
    Forbidden(Kind, Verb, Option<&'static str>),
    /// Every request is answered with this code; `None`: connections break.
    Away(Option<u16>),
    /// An object can't be read.
    Unreadable(Thing, Dependent),
    /// The manifest can't be read.
    Garbled,
    /// The component is refused, at this step.
    Refused(&'static str),
    /// Loading the component takes this long.
    Slow(Duration),
}

/// A sort of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Write,
    Read,
    Watch,
}

/// When the daemon crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Now,
    /// At the next write, which is lost.
    BeforeWrite,
    /// After the next write, before its answer arrives.
    AfterWrite,
}

/// A kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Things,
    Maps,
}

/// The verbs that may be forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    All,
}

const VERBS: [Verb; 8] =
    [Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Update, Verb::Patch, Verb::Delete, Verb::All];

/// A part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A label that nobody asks for.
    Label,
    /// What dependents say, and the status of primaries.
    Content,
    /// The owner references.
    Owners,
    /// The mark that says for whom the daemon has made it.
    Mark,
    /// The finalizers of what is not being deleted.
    Finalizers,
}

const PARTS: [Part; 5] = [Part::Label, Part::Content, Part::Owners, Part::Mark, Part::Finalizers];

/// What a component does once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whim {
    Trap,
    Fail,
    /// It waits for this time.
    Wait(Duration),
    /// It changes the spec of another primary.
    Poke(Thing, u64),
    /// It creates another primary.
    Make(Thing, u64),
    /// It creates a primary that the selector leaves out.
    Hide(u64),
    /// It writes an object that is not a dependent.
    Other(u64),
    /// It removes a finalizer that is not there.
    Tidy,
    /// It gives its primary the label that it has.
    Mark,
    /// It asks to run again.
    Again(Duration),
    /// It does not answer what it desires.
    FailDesired,
    /// It traps when it is asked what it desires.
    TrapDesired,
}

impl Whim {
    /// True if it is about what the component desires, and not about its run.
    pub(crate) fn is_of_desired(self) -> bool {
        matches!(self, Self::FailDesired | Self::TrapDesired)
    }
}

/// A class of steps, which a simulation may have or not have.
#[derive(Clone, Copy, Debug)]
enum Class {
    Edits,
    Deletions,
    Dependents,
    Anything,
    Labels,
    Writes,
    Reads,
    Watches,
    Crashes,
    Lags,
    Kinds,
    Rights,
    Outages,
    Swaps,
    Files,
    Whims,
    Oddities,
}

const CLASSES: [Class; 17] = [
    Class::Edits,
    Class::Deletions,
    Class::Dependents,
    Class::Anything,
    Class::Labels,
    Class::Writes,
    Class::Reads,
    Class::Watches,
    Class::Crashes,
    Class::Lags,
    Class::Kinds,
    Class::Rights,
    Class::Outages,
    Class::Swaps,
    Class::Files,
    Class::Whims,
    Class::Oddities,
];

impl Plan {
    /// Returns the simulation of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut chance = Chance::new(seed, 1);
        let mut start = Chance::new(seed, 5);
        let setup = Setup {
            generation_aware: !chance.one_in(4),
            server_side_apply: !chance.one_in(4),
            cleaner: chance.one_in(3),
            quiet_swap: chance.one_in(2),
            account: chance.one_in(4),
            tied: chance.one_in(3),
            asks: Chance::new(seed, 4).one_in(2),
            hurry: start.one_in(3).then(|| *start.pick(&ON_START_ERROR)),
            attempts: start.one_in(4).then_some(3),
        };
        let lag = *chance.pick(&[0, 20, 200, 1500]);
        let way = *chance.pick(&[1, 10, 100]);
        // Some things happen only if others don't.
        let mut classes: Vec<Class> = CLASSES.into_iter().filter(|_| chance.one_in(2)).collect();
        classes.push(Class::Edits);
        // Bugs show when steps meet: so they come in bursts, often about few primaries.
        let crowd = 1 + chance.below(NAMES.len() as u64);
        let things = (0..crowd).map(|_| *chance.pick(&Thing::ALL)).collect();
        let moments: Vec<Duration> = (0..=chance.below(8)).map(|_| chance.time(CHAOS)).collect();
        let count = 6 + chance.below(40);
        let mut draw = Draw { chance, things };
        let mut steps: Vec<Step> = (0..2 + draw.chance.below(3))
            .map(|_| Step { at: Duration::ZERO, act: Act::Create(draw.thing(), draw.value()) })
            .collect();
        steps.extend(setup.hurry.and_then(|_| lack(&mut start)));
        for _ in 0..count {
            let near = *draw.chance.pick(&[1, 50, 500, 3000]);
            let near = draw.chance.time(Duration::from_millis(near));
            let at = *draw.chance.pick(&moments) + near;
            let class = *draw.chance.pick(&classes);
            let act = draw.act(class);
            steps.extend(draw.beside(at, &act));
            steps.push(Step { at, act });
        }
        steps.extend(versions(&mut Chance::new(seed, 6)));
        steps.sort_by_key(|step| step.at);
        Self {
            seed,
            setup,
            lag: Duration::from_millis(lag),
            way: Duration::from_millis(way),
            steps,
            last: *Chance::new(seed, 3).pick(&VARIANTS),
        }
    }
}

impl Plan {
    /// True if the finalizers that primaries have depend on when they have run last.
    pub(crate) fn renames(&self) -> bool {
        let renames = |step: &Step| matches!(step.act, Act::Swap(Variant::Renamed) | Act::Bare(_));
        self.steps.iter().any(renames)
    }

    /// True if runs may fail before the component is asked: for what the controller has started without, or for
    /// finalizers of versions before; because the primary itself can't be read for a while, which only an account can lose the
    /// right to; because nothing says any more whose an object is; or as one that adds a finalizer again does nothing else.
    pub(crate) fn hides(&self) -> bool {
        let robs = |step: &Step| matches!(step.act, Act::EditAny(_, Part::Owners | Part::Mark | Part::Finalizers));
        let loses = |step: &Step| matches!(step.act, Act::For(_, Wrong::Forbidden(Kind::Things, ..)));
        let unread = self.setup.account && self.steps.iter().any(loses);
        self.setup.hurry == Some(OnStartError::GoOn) || self.renames() || unread || self.steps.iter().any(robs)
    }

    /// True if somebody may change the status of a primary, which is no reason for it to run.
    pub(crate) fn defaces(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.act, Act::EditAny(_, Part::Content)))
    }

    /// True if primaries leave the selection for a while.
    pub(crate) fn forgets(&self) -> bool {
        let leaves = |step: &Step| matches!(step.act, Act::Label(_, false) | Act::Swap(Variant::Fewer));
        self.steps.iter().any(leaves)
    }
}

/// Draws the steps.
struct Draw {
    chance: Chance,
    /// The primaries that most steps are about.
    things: Vec<Thing>,
}

impl Draw {
    fn thing(&mut self) -> Thing {
        *self.chance.pick(&self.things)
    }

    fn value(&mut self) -> u64 {
        self.chance.below(1000)
    }

    fn act(&mut self, class: Class) -> Act {
        let (one, number) = (self.thing(), self.value());
        let chance = &mut self.chance;
        let dependent = *chance.pick(&DEPENDENTS);
        let kind = *chance.pick(&[Kind::Things, Kind::Maps]);
        match class {
            Class::Edits => match chance.below(8) {
                0 => Act::Create(one, number),
                1 | 2 => Act::Extra(one, chance.one_in(2)),
                3 => Act::Touch(one),
                _ => Act::Edit(one, number),
            },
            Class::Deletions => match chance.below(4) {
                0 => Act::Replace(one, number),
                1 => Act::Create(one, number),
                _ => Act::Delete(one),
            },
            Class::Dependents => match chance.below(2) {
                0 => Act::EditDependent(one, dependent),
                _ => Act::DeleteDependent(one, dependent),
            },
            Class::Anything => match chance.below(4) {
                0 => Act::DeleteAny(number),
                _ => Act::EditAny(number, *chance.pick(&PARTS)),
            },
            Class::Labels => Act::Label(one, chance.one_in(2)),
            Class::Writes => Act::Trouble(Sort::Write, fault(chance)),
            Class::Reads => Act::Trouble(Sort::Read, fault(chance)),
            Class::Watches => match chance.below(3) {
                0 => Act::Trouble(Sort::Watch, fault(chance)),
                1 => Act::Cut(kind, *chance.pick(&[Cut::Closed, Cut::Broken])),
                _ => Act::Compact,
            },
            Class::Crashes => {
                let moments = [Moment::Now, Moment::BeforeWrite, Moment::AfterWrite];
                Act::Crash(*chance.pick(&moments), while_(chance))
            }
            Class::Lags => Act::For(while_(chance), Wrong::Late(kind, while_(chance))),
            Class::Kinds => Act::For(while_(chance), Wrong::Unserved(kind)),
            Class::Rights => {
                let verb = *chance.pick(&VERBS);
                let namespace = *chance.pick(&[None, Some("a"), Some("b")]);
                Act::For(while_(chance), Wrong::Forbidden(kind, verb, namespace))
            }
            Class::Outages => {
                let codes = [None, Some(500), Some(503), Some(429)];
                Act::For(while_(chance), Wrong::Away(*chance.pick(&codes)))
            }
            Class::Swaps => Act::Swap(*chance.pick(&VARIANTS)),
            Class::Files => file(chance),
            Class::Whims => Act::Whim(self.whim()),
            Class::Oddities => match chance.below(4) {
                0 => Act::Compact,
                1 => Act::Cut(Kind::Maps, Cut::Broken),
                _ => Act::For(while_(chance), Wrong::Unreadable(one, dependent)),
            },
        }
    }

    /// Returns further steps beside one that make a case which is rare by chance: a primary that is created again
    /// while it is being retried, an object that can't be read when a list first shows it, a write that changes
    /// nothing while another client changes the object.
    #[expect(clippy::wildcard_enum_match_arm, reason = "few of them need something beside them")]
    fn beside(&mut self, at: Duration, act: &Act) -> Vec<Step> {
        if self.chance.one_in(2) {
            return Vec::new();
        }
        let after = at + Duration::from_millis(1);
        let step = |at, act| Step { at, act };
        match *act {
            Act::Replace(thing, number) => {
                let before = at.saturating_sub(self.chance.time(Duration::from_secs(2)));
                vec![
                    step(before, Act::Whim(Whim::Fail)),
                    step(before, Act::Edit(thing, number + 1)),
                    step(after, Act::Unseen(Kind::Things)),
                ]
            }
            Act::Whim(whim @ (Whim::Mark | Whim::Tidy)) => {
                let (one, number) = (self.thing(), self.value());
                // Late, so that no other step hides the loss of an event.
                let then = CHAOS + Duration::from_millis(3500);
                let longest = *self.chance.pick(&[20, 200, 1000]);
                let meanwhile = then + self.chance.time(Duration::from_millis(longest));
                vec![
                    step(at, Act::Edit(one, number)),
                    step(then, Act::Whim(whim)),
                    step(then, Act::Edit(one, number + 1)),
                    step(meanwhile, Act::Edit(one, number + 2)),
                ]
            }
            Act::For(_, Wrong::Unreadable(..)) => vec![step(after, Act::Unseen(Kind::Maps))],
            // Other steps meet often enough.
            _ => Vec::new(),
        }
    }

    fn whim(&mut self) -> Whim {
        let (number, time) = (self.value(), while_(&mut self.chance));
        let other = *self.chance.pick(&Thing::ALL);
        match self.chance.below(15) {
            0 => Whim::Trap,
            1 => Whim::Fail,
            2 | 3 => Whim::Wait(time),
            4 => Whim::Poke(other, number),
            5 => Whim::Make(other, number),
            6 => Whim::Other(number),
            7 | 8 => Whim::Tidy,
            9 => Whim::Hide(number),
            10 | 11 => Whim::Mark,
            12 => Whim::FailDesired,
            13 => Whim::TrapDesired,
            _ => Whim::Again(time),
        }
    }
}

/// Draws what happens to the files of the daemon.
fn file(chance: &mut Chance) -> Act {
    match chance.below(7) {
        0 => Act::For(while_(chance), Wrong::Garbled),
        1 => Act::For(while_(chance), Wrong::Refused(chance.pick::<&str>(&["verify", "prepare"]))),
        2 => Act::For(while_(chance), Wrong::Slow(while_(chance))),
        3 => Act::Hangup,
        4 => Act::Swap(*chance.pick(&VARIANTS)),
        _ => Act::Component,
    }
}

/// Returns a state in which a controller has to start without something, unless all is there.
fn lack(chance: &mut Chance) -> Option<Step> {
    let kind = *chance.pick(&[Kind::Things, Kind::Maps, Kind::Maps]);
    let wrong = match chance.below(3) {
        0 => return None,
        1 => Wrong::Unserved(kind),
        _ => Wrong::Forbidden(kind, *chance.pick(&[Verb::List, Verb::All]), None),
    };
    Some(Step { at: Duration::ZERO, act: Act::For(Duration::from_secs(1) + while_(chance), wrong) })
}

/// Returns steps to versions that have other finalizers and dependents.
fn versions(chance: &mut Chance) -> Vec<Step> {
    let count = if chance.one_in(3) { 1 + chance.below(4) } else { 0 };
    let mut step = |_| {
        let act = match chance.below(6) {
            0 => Act::Swap(Variant::More),
            1 => Act::Swap(Variant::Usual),
            2 => Act::Bare(chance.one_in(2)),
            3 => Act::Swap(Variant::Paced),
            _ => Act::Swap(Variant::Renamed),
        };
        Step { at: chance.time(CHAOS), act }
    };
    (0..count).map(&mut step).collect()
}

fn while_(chance: &mut Chance) -> Duration {
    let longest = *chance.pick(&[100, 1000, 10_000]);
    chance.time(Duration::from_millis(longest))
}

fn fault(chance: &mut Chance) -> Fault {
    let loss = if chance.one_in(4) { Loss::Silent } else { Loss::Broken };
    match chance.below(6) {
        0 => Fault::LoseRequest(loss),
        1 | 2 => Fault::LoseAnswer(loss),
        3 => Fault::Cut { after: usize::try_from(chance.below(2000)).unwrap_or_default() },
        4 => Fault::Delay { before: while_(chance), after: while_(chance) },
        _ => {
            let code = *chance.pick(&[409, 410, 422, 429, 429, 500, 503, 504]);
            Fault::Answer { code, retry_after: (code == 429).then(|| chance.below(3)) }
        }
    }
}
