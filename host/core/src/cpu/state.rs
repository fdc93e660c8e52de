//! Decides who computes next: the plugin that has used least, however many runs it has.
//!
//! Everything is a function of state, input and `now`. A run has a seat; it needs a slot for as long as it is polled,
//! and for no longer. Plugins are ordered by the time that they have held slots; one that comes back from doing nothing
//! starts one slice before whoever was let in last, so that a short run is over before the others' next slices, but saves up
//! no more. Within a plugin the first come are the first served.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Held, Job, LATE, LONG, Slots, Spent};

/// What a plugin with a quota may have saved up.
const BURST: Duration = Duration::from_secs(1);

/// What a plugin may compute at once before others that have used as much, when it comes back from doing nothing: a slice.
const CREDIT: Duration = Duration::from_millis(10);

/// While runs wait, how often to look whether a slot is held for too long.
const GLANCE: Duration = Duration::from_millis(10);

/// While nobody waits, how often to look at what is polled.
const PATROL: Duration = Duration::from_millis(250);

/// All plugins and runs. `W` wakes a run.
#[derive(Debug)]
pub(super) struct State<W> {
    slots: Slots,
    accounts: BTreeMap<AccountId, Account>,
    seats: HashMap<SeatId, Seat<W>>,
    /// Slots that are given away.
    taken: usize,
    /// What the account that was let in last had used by then.
    level: Duration,
    /// The number of the last thing that got one.
    number: u64,
    /// When somebody looks; none: not before it is called.
    look: Option<Instant>,
}

/// An account, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct AccountId(u64);

/// A seat, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SeatId(u64);

/// What a plugin has used.
#[derive(Debug)]
struct Account {
    name: Arc<str>,
    /// Handles and seats. With the last one it goes.
    users: usize,
    /// Where it stands: what it has used, or was lifted to when it came back.
    used: Duration,
    /// What it has used since it is here.
    total: Duration,
    /// Seconds of a slot that it may have in a second; none: as many as there are.
    quota: Option<f64>,
    /// Up to when what it has used is paid for, at the rate of its quota. Beyond now: it has to wait until then.
    paid: Option<Instant>,
    waiting: VecDeque<SeatId>,
    /// The seats that have a slot, and since when.
    holding: Vec<(SeatId, Instant)>,
    /// When it was let in last, as a number.
    turn: u64,
}

/// A run.
#[derive(Debug)]
struct Seat<W> {
    account: AccountId,
    job: Job,
    phase: Phase<W>,
}

#[derive(Debug)]
enum Phase<W> {
    /// It waits for something else than a slot.
    Away,
    /// It waits for a slot.
    Waiting(W),
    /// It has one, and uses it as soon as it is polled.
    Granted,
    /// It is polled.
    Polled {
        since: Instant,
        /// It has been reported.
        told: bool,
    },
}

/// Whether a run may be polled, and who has to be told of what changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entered<W> {
    pub(super) may: bool,
    /// Those that have got a slot.
    pub(super) wake: Vec<W>,
    /// Somebody has to look earlier than planned.
    pub(super) look: bool,
}

/// What a look has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Looked<W> {
    /// Those that have got a slot.
    pub(super) wake: Vec<W>,
    /// Polls that have become too long since the last look.
    pub(super) late: Vec<Held>,
    /// When to look again; none: not before somebody asks for it.
    pub(super) next: Option<Instant>,
}

// === impl State ===

impl<W: Clone> State<W> {
    pub(super) fn new(slots: Slots) -> Self {
        Self {
            slots,
            accounts: BTreeMap::new(),
            seats: HashMap::new(),
            taken: 0,
            level: Duration::ZERO,
            number: 0,
            look: None,
        }
    }

    /// Returns the account of this name, which is new if nobody has it. Its quota is the one that is given last.
    pub(super) fn account(&mut self, name: &Arc<str>, quota: Option<f64>) -> AccountId {
        let known = self.accounts.iter_mut().find(|(_, account)| account.name == *name);
        if let Some((id, account)) = known {
            account.users += 1;
            account.quota = quota;
            if quota.is_none() {
                account.paid = None;
            }
            return *id;
        }
        let id = AccountId(self.count());
        let account = Account {
            name: Arc::clone(name),
            users: 1,
            used: Duration::ZERO,
            total: Duration::ZERO,
            quota,
            paid: None,
            waiting: VecDeque::new(),
            holding: Vec::new(),
            turn: 0,
        };
        self.accounts.insert(id, account);
        id
    }

    /// One handle more.
    pub(super) fn share(&mut self, id: AccountId) {
        if let Some(account) = self.accounts.get_mut(&id) {
            account.users += 1;
        }
    }

    /// One handle or seat less.
    pub(super) fn release(&mut self, id: AccountId) {
        if let Some(account) = self.accounts.get_mut(&id) {
            account.users -= 1;
            if account.users == 0 {
                self.accounts.remove(&id);
            }
        }
    }

    /// Gives a run a seat.
    pub(super) fn sit(&mut self, account: AccountId, job: Job) -> SeatId {
        self.share(account);
        let id = SeatId(self.count());
        let phase = Phase::Away;
        self.seats.insert(id, Seat { account, job, phase });
        id
    }

    /// A run is over, or given up, wherever it stands.
    pub(super) fn stand_up(&mut self, id: SeatId, now: Instant) -> Vec<W> {
        let wake = self.leave(id, now);
        if let Some(seat) = self.seats.remove(&id) {
            if let (Phase::Waiting(_), Some(account)) = (seat.phase, self.accounts.get_mut(&seat.account)) {
                account.waiting.retain(|other| *other != id);
            }
            self.release(seat.account);
        }
        wake
    }

    /// A run wants to be polled. If it has to wait, it is woken by `waker` once it has a slot.
    pub(super) fn enter(&mut self, id: SeatId, waker: &W, now: Instant) -> Entered<W> {
        let Some(seat) = self.seats.get_mut(&id) else {
            return Entered { may: true, wake: Vec::new(), look: false };
        };
        match &mut seat.phase {
            Phase::Granted => {}
            Phase::Waiting(known) => {
                *known = waker.clone();
                return Entered { may: false, wake: Vec::new(), look: false };
            }
            Phase::Polled { .. } => {
                return Entered { may: true, wake: Vec::new(), look: false };
            }
            Phase::Away => {
                let account = seat.account;
                seat.phase = Phase::Waiting(waker.clone());
                self.queue(account, id);
            }
        }
        let granted = self.grant(now);
        let may = self.begin(id, now);
        let by = now + if may { PATROL } else { LONG };
        let look = self.look.is_none_or(|planned| planned > by);
        if look {
            self.look = Some(by);
        }
        // Itself, if it has just been let in, is not to be woken.
        let others = granted.into_iter().filter(|(seat, _)| *seat != id);
        let wake = others.map(|(_, waker)| waker).collect();
        Entered { may, wake, look }
    }

    /// Lets a run use the slot that it has been given, if it has been given one.
    fn begin(&mut self, id: SeatId, now: Instant) -> bool {
        let seat = self.seats.get_mut(&id);
        let Some(seat) = seat.filter(|seat| matches!(seat.phase, Phase::Granted)) else {
            return false;
        };
        seat.phase = Phase::Polled { since: now, told: false };
        if let Some(account) = self.accounts.get_mut(&seat.account) {
            account.began(id, now);
        }
        true
    }

    /// The poll of a run is over; its slot goes to the next.
    pub(super) fn leave(&mut self, id: SeatId, now: Instant) -> Vec<W> {
        let Some(seat) = self.seats.get_mut(&id) else {
            return Vec::new();
        };
        let spent = match seat.phase {
            Phase::Away | Phase::Waiting(_) => return Vec::new(),
            Phase::Granted => Duration::ZERO,
            Phase::Polled { since, .. } => now.saturating_duration_since(since),
        };
        seat.phase = Phase::Away;
        self.taken -= 1;
        if let Some(account) = self.accounts.get_mut(&seat.account) {
            account.holding.retain(|(other, _)| *other != id);
            account.charge(spent, now);
        }
        self.grant(now).into_iter().map(|(_, waker)| waker).collect()
    }

    /// A run has used so much elsewhere.
    pub(super) fn charge(&mut self, id: SeatId, spent: Duration, now: Instant) {
        let account = self.seats.get(&id).map(|seat| seat.account);
        if let Some(account) = account.and_then(|id| self.accounts.get_mut(&id)) {
            account.charge(spent, now);
        }
    }

    /// Looks at what has changed by the passing of time alone.
    pub(super) fn look(&mut self, now: Instant) -> Looked<W> {
        let wake = self.grant(now).into_iter().map(|(_, waker)| waker).collect();
        let mut late = Vec::new();
        for seat in self.seats.values_mut() {
            let Phase::Polled { since, told } = &mut seat.phase else {
                continue;
            };
            let held = now.saturating_duration_since(*since);
            if held >= LATE && !*told {
                *told = true;
                if let Some(account) = self.accounts.get(&seat.account) {
                    late.push(Held { plugin: Arc::clone(&account.name), job: seat.job.clone(), held });
                }
            }
        }
        let waited_for = self.accounts.values().any(|account| !account.waiting.is_empty());
        self.look = match (waited_for, self.taken) {
            (true, _) => Some(now + GLANCE),
            (false, 1..) => Some(now + PATROL),
            (false, 0) => None,
        };
        Looked { wake, late, next: self.look }
    }

    /// Returns what each account has used, in the order in which they came.
    pub(super) fn spent(&self, now: Instant) -> Vec<Spent> {
        let of = |account: &Account| {
            let held = account.holding.iter().map(|(_, since)| now.saturating_duration_since(*since));
            Spent {
                plugin: Arc::clone(&account.name),
                time: account.total,
                held: held.max().unwrap_or_default(),
                waiting: account.waiting.len(),
            }
        };
        self.accounts.values().map(of).collect()
    }

    fn queue(&mut self, id: AccountId, seat: SeatId) {
        let level = self.level.saturating_sub(CREDIT);
        if let Some(account) = self.accounts.get_mut(&id) {
            if account.waiting.is_empty() && account.holding.is_empty() {
                account.used = account.used.max(level);
            }
            account.waiting.push_back(seat);
        }
    }

    /// Gives away the slots that there are, and returns those who have got one.
    fn grant(&mut self, now: Instant) -> Vec<(SeatId, W)> {
        let mut granted = Vec::new();
        while let Some(id) = self.next(now) {
            self.number += 1;
            let Some(account) = self.accounts.get_mut(&id) else {
                break;
            };
            let Some(next) = account.waiting.pop_front() else {
                break;
            };
            account.turn = self.number;
            self.level = self.level.max(account.used);
            let Some(seat) = self.seats.get_mut(&next) else {
                continue;
            };
            account.holding.push((next, now));
            self.taken += 1;
            if let Phase::Waiting(waker) = std::mem::replace(&mut seat.phase, Phase::Granted) {
                granted.push((next, waker));
            }
        }
        granted
    }

    /// Returns the account that is next, if there is a slot for it.
    fn next(&self, now: Instant) -> Option<AccountId> {
        let Slots { usual, extra } = self.slots;
        let waiting = || self.accounts.iter().filter(|(_, account)| account.ready(now));
        let first = |(_, account): &(&AccountId, &Account)| (account.standing(now), account.turn);
        if self.taken < usual {
            return waiting().min_by_key(first).map(|(id, _)| *id);
        }
        // Each poll that takes long has somebody else's slot: that one gets another, unless he has one already.
        if self.taken >= usual + extra || self.taken >= usual + self.long(now) {
            return None;
        }
        let without = waiting().filter(|(_, account)| account.holding.is_empty());
        without.min_by_key(first).map(|(id, _)| *id)
    }

    /// Returns how many slots have been held for long.
    fn long(&self, now: Instant) -> usize {
        let holding = self.accounts.values().flat_map(|account| &account.holding);
        holding.filter(|(_, since)| now.saturating_duration_since(*since) >= LONG).count()
    }

    fn count(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

// === impl Account ===

impl Account {
    /// Whether it waits, and its quota lets it.
    fn ready(&self, now: Instant) -> bool {
        !self.waiting.is_empty() && self.paid.is_none_or(|paid| paid <= now)
    }

    /// Returns what it has used, with what is not over.
    fn standing(&self, now: Instant) -> Duration {
        let held = self.holding.iter().map(|(_, since)| now.saturating_duration_since(*since));
        self.used + held.sum::<Duration>()
    }

    /// A poll begins: from now on the time counts.
    fn began(&mut self, seat: SeatId, now: Instant) {
        for (_, since) in self.holding.iter_mut().filter(|(id, _)| *id == seat) {
            *since = now;
        }
    }

    fn charge(&mut self, spent: Duration, now: Instant) {
        self.used += spent;
        self.total += spent;
        if let Some(quota) = self.quota {
            let start = now.checked_sub(BURST).unwrap_or(now);
            let from = self.paid.map_or(start, |paid| paid.max(start));
            self.paid = Some(from + spent.div_f64(quota));
        }
    }
}

#[cfg(test)]
mod tests;
