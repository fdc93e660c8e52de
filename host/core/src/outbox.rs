//! Decides which message of many senders is sent next, and which are dropped: no sender delays another. One message of a sender is sent at a
//! time, beside those of others.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::bucket::{Bucket, Rate};

/// The most waiting messages of one sender.
const MESSAGES: usize = 256;

/// The most bytes of one sender's waiting messages together.
const BYTES: usize = 256 << 10;

/// Bytes that each message takes beside its own size.
const OVERHEAD: usize = 64;

/// The rate for one object, as in client-go: 25 messages at once, then one in five minutes.
const PER_OBJECT: Rate = Rate { interval: Duration::from_mins(5), burst: 25 };

/// The rate for one sender, for all objects together.
const PER_SENDER: Rate = Rate { interval: Duration::from_millis(20), burst: 1000 };

/// With more senders than this, those are forgotten of which there is nothing to remember.
const SENDERS: usize = 64;

/// The most objects whose rate is remembered for one sender.
const OBJECTS: usize = 4096;

/// The least time between two reports of dropped messages.
const TOLD: Duration = Duration::from_mins(1);

/// The messages that wait.
#[derive(Debug)]
pub struct Outbox<T> {
    senders: BTreeMap<Arc<str>, Sender<T>>,
    /// The sender of the last message.
    last: Option<Arc<str>>,
    /// With so many senders it is looked for those that can be forgotten.
    many: usize,
}

/// A message.
#[derive(Debug)]
pub struct Message<T> {
    /// The same for equal messages; while one of them waits, further ones are counted with it.
    pub id: String,
    /// The object that it is about.
    pub object: String,
    /// The bytes that it takes.
    pub size: usize,
    /// The number of times it was posted.
    pub times: u64,
    /// The content that is sent.
    pub content: T,
}

/// The state of a sender.
#[derive(Debug)]
struct Sender<T> {
    waiting: BTreeMap<Place, Message<T>>,
    places: HashMap<String, Place>,
    number: u64,
    bytes: usize,
    rate: Bucket,
    objects: HashMap<String, Bucket>,
    /// Messages dropped since the last report.
    dropped: u64,
    told: Option<Instant>,
    /// A message is being sent.
    sending: bool,
}

/// The time from which on a message may be sent, and its number.
type Place = (Instant, u64);

/// The result of posting a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The message waits to be sent, or was counted with one that waits.
    Waits,
    /// The message was dropped, or another one in its place.
    Dropped,
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self { senders: BTreeMap::new(), last: None, many: SENDERS }
    }
}

impl<T> Default for Sender<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            places: HashMap::new(),
            number: 0,
            bytes: 0,
            rate: Bucket::default(),
            objects: HashMap::new(),
            dropped: 0,
            told: None,
            sending: false,
        }
    }
}

// === impl Outbox ===

impl<T> Outbox<T> {
    /// Takes a message, or drops one.
    pub fn post(&mut self, sender: &Arc<str>, message: Message<T>, now: Instant) -> Posted {
        self.sender(sender, now).post(message, now)
    }

    fn sender(&mut self, name: &Arc<str>, now: Instant) -> &mut Sender<T> {
        let Self { senders, many, .. } = self;
        if senders.len() >= *many && !senders.contains_key(name) {
            senders.retain(|_, sender| !sender.is_over(now));
            *many = SENDERS.max(2 * senders.len());
        }
        senders.entry(Arc::clone(name)).or_default()
    }

    /// Records that a message was dropped before it was posted. Returns the number dropped since the last report, if
    /// one is due now.
    pub fn dropped(&mut self, sender: &Arc<str>, now: Instant) -> Option<u64> {
        let sender = self.sender(sender, now);
        sender.dropped += 1;
        let silent = sender.told.is_some_and(|told| now < told + TOLD);
        (!silent).then(|| {
            sender.told = Some(now);
            std::mem::take(&mut sender.dropped)
        })
    }

    /// Returns the next message and its sender, of which no other is sent until [`Outbox::sent`]; the senders take turns. If none may be
    /// sent now, returns the time of the next one as `Err`; `None` if none waits but for those that are being sent.
    pub fn next(&mut self, now: Instant) -> Result<(Arc<str>, Message<T>), Option<Instant>> {
        let ready = |sender: &Sender<T>| sender.earliest().is_some_and(|at| at <= now);
        let after = self.last.take().map_or(Bound::Unbounded, Bound::Excluded);
        let after = self.senders.range::<Arc<str>, _>((after, Bound::Unbounded));
        let turn = after.chain(&self.senders).find(|(_, sender)| ready(sender)).map(|(name, _)| Arc::clone(name));
        let Some(name) = turn else {
            return Err(self.senders.values().filter_map(Sender::earliest).min());
        };
        self.last = Some(Arc::clone(&name));
        let message = self.senders.get_mut(&name).and_then(Sender::take);
        message.map(|message| (name, message)).ok_or(None)
    }

    /// Takes in that a message of a sender has been sent.
    pub fn sent(&mut self, sender: &str) {
        if let Some(sender) = self.senders.get_mut(sender) {
            sender.sending = false;
        }
    }
}

// === impl Sender ===

impl<T> Sender<T> {
    fn post(&mut self, mut message: Message<T>, now: Instant) -> Posted {
        if let Some(place) = self.places.get(&message.id)
            && let Some(waiting) = self.waiting.get_mut(place)
        {
            let bytes = self.bytes - waiting.size + message.size;
            if bytes <= BYTES {
                self.bytes = bytes;
                message.times += waiting.times;
                *waiting = message;
            } else {
                waiting.times += message.times;
            }
            return Posted::Waits;
        }
        let Some(wait) = self.wait(&message.object, now) else {
            return Posted::Dropped;
        };
        let place = (now + wait, self.number);
        self.number += 1;
        let mut posted = Posted::Waits;
        while self.waiting.len() >= MESSAGES || self.bytes + message.size + OVERHEAD > BYTES {
            // The last message in the order of sending makes room, if it has to wait longer than this one.
            posted = Posted::Dropped;
            let last = self.waiting.last_key_value().map(|(place, _)| *place);
            match last.filter(|last| *last > place) {
                Some(last) => drop(self.remove(last)),
                None => return Posted::Dropped,
            }
        }
        self.bytes += message.size + OVERHEAD;
        self.places.insert(message.id.clone(), place);
        self.waiting.insert(place, message);
        posted
    }

    /// Returns how long a message about this object waits; `None` if that is too long.
    fn wait(&mut self, object: &str, now: Instant) -> Option<Duration> {
        if self.objects.len() >= OBJECTS && !self.objects.contains_key(object) {
            // Forgets the objects that have used up least of their rate.
            let mut used: Vec<_> = self.objects.values().copied().collect();
            let (_, middle, _) = used.select_nth_unstable(OBJECTS / 2);
            let middle = *middle;
            self.objects.retain(|_, bucket| *bucket > middle);
        }
        let bucket = self.objects.entry(object.to_owned()).or_default();
        let by_object = bucket.take_within(PER_OBJECT, PER_OBJECT.interval, now)?;
        let by_sender = self.rate.take_within(PER_SENDER, Duration::from_secs(10), now)?;
        Some(by_object.max(by_sender))
    }

    fn earliest(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((at, _), _)| *at).filter(|_| !self.sending)
    }

    fn take(&mut self) -> Option<Message<T>> {
        let place = *self.waiting.first_key_value()?.0;
        self.sending = true;
        self.remove(place)
    }

    /// Returns true if one that begins anew would do the same, but for the number of a few drops that nobody was told of.
    fn is_over(&self, now: Instant) -> bool {
        let is_quiet = self.told.is_none_or(|told| now >= told + TOLD);
        let has_rate = self.rate.is_full(now) && self.objects.values().all(|bucket| bucket.is_full(now));
        self.waiting.is_empty() && !self.sending && is_quiet && has_rate
    }

    fn remove(&mut self, place: Place) -> Option<Message<T>> {
        let message = self.waiting.remove(&place)?;
        self.places.remove(&message.id);
        self.bytes -= message.size + OVERHEAD;
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, object: &str, size: usize) -> Message<&'static str> {
        Message { id: id.to_owned(), object: object.to_owned(), size, times: 1, content: "" }
    }

    /// Returns the messages that are sent now: sender, id and times.
    fn sent(outbox: &mut Outbox<&'static str>, now: Instant) -> Vec<String> {
        let mut sent = Vec::new();
        while let Ok((sender, message)) = outbox.next(now) {
            outbox.sent(&sender);
            sent.push(format!("{sender} {} ×{}", message.id, message.times));
        }
        sent
    }

    #[test]
    fn senders_take_turns_however_many_messages_one_has() {
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        let (flood, calm) = ("flood".into(), "calm".into());
        for n in 0..10_000 {
            outbox.post(&flood, message(&format!("{n}"), &format!("o{n}"), 100), now);
        }
        for n in 0..20 {
            let posted = outbox.post(&calm, message(&format!("{n}"), "o", 100), now);
            assert_eq!(posted, Posted::Waits);
        }
        let sent = sent(&mut outbox, now);
        assert_eq!(sent.len(), MESSAGES + 20);
        let last = sent.iter().rposition(|line| line.starts_with("calm"));
        assert_eq!(last, Some(38), "{sent:?}");
    }

    #[test]
    fn equal_messages_are_counted_while_one_of_them_waits() {
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        let sender = "s".into();
        for _ in 0..1000 {
            let posted = outbox.post(&sender, message("same", "o", 100), now);
            assert_eq!(posted, Posted::Waits);
        }
        assert_eq!(sent(&mut outbox, now), ["s same ×1000"]);
    }

    #[test]
    fn one_object_gets_twenty_five_at_once_and_then_one_in_five_minutes_which_counts_the_rest() {
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        let sender = "s".into();
        for n in 0..25 {
            outbox.post(&sender, message(&format!("{n}"), "o", 100), now);
        }
        assert_eq!(sent(&mut outbox, now).len(), 25);
        for _ in 0..7 {
            let posted = outbox.post(&sender, message("again", "o", 100), now);
            assert_eq!(posted, Posted::Waits);
        }
        let posted = outbox.post(&sender, message("another", "o", 100), now);
        assert_eq!(posted, Posted::Dropped);
        let posted = outbox.post(&sender, message("elsewhere", "p", 100), now);
        assert_eq!(posted, Posted::Waits);
        assert_eq!(sent(&mut outbox, now), ["s elsewhere ×1"]);
        let later = now + PER_OBJECT.interval;
        assert_eq!(outbox.next(now).err(), Some(Some(later)));
        assert_eq!(sent(&mut outbox, later), ["s again ×7"]);
    }

    #[test]
    fn what_waits_is_bounded_in_bytes_and_what_must_wait_longest_makes_room() {
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        let sender = "s".into();
        for n in 0..25 {
            outbox.post(&sender, message(&format!("{n}"), "o", 100), now);
        }
        sent(&mut outbox, now);
        outbox.post(&sender, message("held", "o", BYTES / 2), now);
        for n in 0..4 {
            outbox.post(&sender, message(&format!("big {n}"), "p", BYTES / 4), now);
        }
        let sent = sent(&mut outbox, now + Duration::from_hours(1));
        assert_eq!(sent, ["s big 0 ×1", "s big 1 ×1", "s big 2 ×1"]);
        let posted = outbox.post(&sender, message("huge", "p", BYTES), now);
        assert_eq!(posted, Posted::Dropped);
    }

    #[test]
    fn objects_are_forgotten_rather_than_kept_without_end() {
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        let sender: Arc<str> = "s".into();
        for n in 0..20_000_u64 {
            let now = now + Duration::from_millis(50 * n);
            outbox.post(&sender, message("m", &format!("o{n}"), 100), now);
            sent(&mut outbox, now);
        }
        assert!(outbox.senders[&sender].objects.len() <= OBJECTS);
    }

    #[test]
    fn one_message_of_a_sender_is_sent_at_a_time_beside_those_of_others() {
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        let [slow, calm]: [Arc<str>; 2] = ["a slow one".into(), "calm".into()];
        for n in 0..2 {
            outbox.post(&slow, message(&format!("{n}"), "o", 100), now);
            outbox.post(&calm, message(&format!("{n}"), "o", 100), now);
        }
        let mut next = |sent: Option<&str>| {
            if let Some(sender) = sent {
                outbox.sent(sender);
            }
            outbox.next(now).map(|(sender, message)| format!("{sender} {}", message.id))
        };
        assert_eq!(next(None), Ok("a slow one 0".to_owned()));
        assert_eq!(next(None), Ok("calm 0".to_owned()));
        assert_eq!(next(None), Err(None), "both are being sent");
        assert_eq!(next(Some("calm")), Ok("calm 1".to_owned()));
        assert_eq!(next(Some("calm")), Err(None));
        assert_eq!(next(Some("a slow one")), Ok("a slow one 1".to_owned()));
    }

    #[test]
    fn senders_are_forgotten_once_there_is_nothing_to_remember() {
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        let later = |n: u64| now + PER_OBJECT.interval * u32::try_from(n).unwrap();
        for n in 0..1000 {
            outbox.post(&format!("{n}").into(), message("m", "o", 100), later(n));
            sent(&mut outbox, later(n));
        }
        assert!(outbox.senders.len() <= SENDERS, "{}", outbox.senders.len());
        let busy = 4 * SENDERS;
        for n in 0..busy {
            outbox.post(&format!("busy {n}").into(), message("m", "o", 100), later(1000));
        }
        assert_eq!(sent(&mut outbox, later(1000)).len(), busy, "none that has something to send");
        for n in 0..1000 {
            let sender = format!("dropping {n}").into();
            for _ in 0..2 {
                outbox.dropped(&sender, later(2000 + n));
            }
        }
        assert!(outbox.senders.len() <= 2 * busy, "{}", outbox.senders.len());
        outbox.many = 0;
        outbox.dropped(&"last".into(), later(4000));
        assert_eq!(outbox.senders.len(), 1, "nothing is remembered of those that have dropped something");
    }

    #[test]
    fn drops_are_told_once_a_minute_with_their_number() {
        let (mut outbox, now) = (Outbox::<()>::default(), Instant::now());
        let sender = "s".into();
        let mut told = |seconds| outbox.dropped(&sender, now + Duration::from_secs(seconds));
        assert_eq!([told(0), told(1), told(59), told(60), told(61)], [Some(1), None, None, Some(3), None]);
    }
}
