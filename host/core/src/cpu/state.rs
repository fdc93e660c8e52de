//! Decides which plugin computes next: the one that has used least time, however many runs it has.
//!
//! Everything is a function of state, input and `now`. A run has a seat; it needs a slot for as long as it is polled,
//! and for no longer. Plugins are ordered by the time that they have held slots; one that comes back from being idle
//! starts one slice before the plugin that was let in last, so that a short run is over before the others' next
//! slices, but saves up no more. Within a plugin, runs are served in the order of their requests.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Held, Job, LATE, LONG, Slots, Spent};

/// The time for which a plugin with a quota may save up.
const BURST: Duration = Duration::from_secs(1);

/// One slice: the time that a plugin that comes back from being idle may compute before others that have used as
/// much.
const CREDIT: Duration = Duration::from_millis(10);

/// So much more than who has used least, another account counts as having used at most.
const AHEAD: Duration = Duration::from_secs(1);

/// The time between two looks for slots that are held for long, while runs wait.
const GLANCE: Duration = Duration::from_millis(10);

/// The time between two looks at the polls under way, while no run waits.
const PATROL: Duration = Duration::from_millis(250);

/// All plugins and runs. `W` wakes a run.
#[derive(Debug)]
pub(super) struct State<W> {
    slots: Slots,
    accounts: BTreeMap<AccountId, Account>,
    seats: HashMap<SeatId, Seat<W>>,
    /// The number of slots that are given away.
    taken: usize,
    /// The least time that any account which computes, or may, had used when one was let in last: who comes back from being idle begins
    /// there. Whoever has used more, or says so, does not put others behind those who have used little without a rest.
    level: Duration,
    /// The last number that was given to an account, seat or turn.
    number: u64,
    /// The time of the next planned look; `None`: not before it is asked for.
    look: Option<Instant>,
}

/// An account, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct AccountId(u64);

/// A seat, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SeatId(u64);

/// The account of a plugin.
#[derive(Debug)]
struct Account {
    name: Arc<str>,
    /// The number of handles and seats. The account is removed with the last one.
    users: usize,
    /// Its place in the order: the time that it has used, or that it was raised to when it came back from being idle.
    used: Duration,
    /// The time that it has used since it was created.
    total: Duration,
    /// The seconds of a slot that it may have in a second; `None`: no bound.
    quota: Option<f64>,
    /// The time at which its quota has paid for all that it has used. If that is in the future, it waits until then.
    paid: Option<Instant>,
    waiting: VecDeque<SeatId>,
    /// The seats that have a slot, and since when.
    holding: Vec<(SeatId, Instant)>,
    /// The number of its last turn.
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
    /// It does not need a slot.
    Away,
    /// It waits for a slot.
    Waiting(W),
    /// It has a slot, and uses it as soon as it is polled.
    Granted,
    /// It is polled.
    Polled {
        since: Instant,
        /// True if it has been reported as too long.
        told: bool,
    },
}

/// The answer to a run that wants to be polled, and the consequences for others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entered<W> {
    pub(super) may: bool,
    /// The wakers of runs that have got a slot.
    pub(super) wake: Vec<W>,
    /// True if a look is needed earlier than planned.
    pub(super) look: bool,
}

/// The findings of a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Looked<W> {
    /// The wakers of runs that have got a slot.
    pub(super) wake: Vec<W>,
    /// Polls that have become too long since the last look.
    pub(super) late: Vec<Held>,
    /// When to look again; `None`: not before it is asked for.
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

    /// Returns the account of this name, and creates it if there is none. The last given quota counts.
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

    /// Adds a handle or seat.
    pub(super) fn share(&mut self, id: AccountId) {
        if let Some(account) = self.accounts.get_mut(&id) {
            account.users += 1;
        }
    }

    /// Removes a handle or seat; the account is removed with the last one.
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

    /// Ends a run, or gives it up, in any phase. Returns the wakers of runs that have got a slot.
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

    /// Asks for a slot for the poll of a run. If the run has to wait, it is woken by `waker` once it has a slot.
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
        // A run that has just got its slot here need not be woken.
        let others = granted.into_iter().filter(|(seat, _)| *seat != id);
        let wake = others.map(|(_, waker)| waker).collect();
        Entered { may, wake, look }
    }

    /// Starts the poll of a run if it has been given a slot. Returns true if it has.
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

    /// Ends the poll of a run; its slot goes to the next. Returns the wakers of runs that have got a slot.
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

    /// Charges time to the plugin of a run that it has used elsewhere.
    pub(super) fn charge(&mut self, id: SeatId, spent: Duration, now: Instant) {
        let account = self.seats.get(&id).map(|seat| seat.account);
        if let Some(account) = account.and_then(|id| self.accounts.get_mut(&id)) {
            account.charge(spent, now);
        }
    }

    /// Handles changes that come with time alone.
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

    /// Returns the time that each account has used, in the order of their creation.
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

    /// Gives away free slots, and returns the runs that have got one, with their wakers.
    fn grant(&mut self, now: Instant) -> Vec<(SeatId, W)> {
        let mut granted = Vec::new();
        while let Some(id) = self.next(now) {
            self.number += 1;
            let least = self.least(now);
            let Some(account) = self.accounts.get_mut(&id) else {
                break;
            };
            let Some(next) = account.waiting.pop_front() else {
                break;
            };
            account.turn = self.number;
            // What it used while nobody else wanted it is not held against it.
            account.used = account.used.min(least.saturating_add(AHEAD));
            self.level = self.level.max(least);
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

    /// Returns the least time that any account has used which has a slot, or may have one.
    fn least(&self, now: Instant) -> Duration {
        let active = self.accounts.values().filter(|account| !account.holding.is_empty() || account.ready(now));
        active.map(|account| account.used).min().unwrap_or_default()
    }

    /// Returns the next account, if there is a slot for it.
    fn next(&self, now: Instant) -> Option<AccountId> {
        let Slots { usual, extra } = self.slots;
        let waiting = || self.accounts.iter().filter(|(_, account)| account.ready(now));
        let first = |(_, account): &(&AccountId, &Account)| (account.standing(now), account.turn);
        if self.taken < usual {
            return waiting().min_by_key(first).map(|(id, _)| *id);
        }
        // Each poll that takes long blocks a slot that others could use. An extra slot replaces it, but only for a
        // plugin that holds none.
        if self.taken >= usual + extra || self.taken >= usual + self.long(now) {
            return None;
        }
        let without = waiting().filter(|(_, account)| account.holding.is_empty());
        without.min_by_key(first).map(|(id, _)| *id)
    }

    /// Returns the number of slots that have been held for long.
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
    /// Returns true if a run of the account waits and the quota allows it.
    fn ready(&self, now: Instant) -> bool {
        !self.waiting.is_empty() && self.paid.is_none_or(|paid| paid <= now)
    }

    /// Returns the time that it has used, with that of polls under way.
    fn standing(&self, now: Instant) -> Duration {
        let held = self.holding.iter().map(|(_, since)| now.saturating_duration_since(*since));
        self.used + held.sum::<Duration>()
    }

    /// Records that a poll begins: its time counts from now on.
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
