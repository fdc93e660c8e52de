//! Tests of what a source keeps, and of whom it says that something has changed.

use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::Instant;

use super::shares::EACH;
use super::*;
use crate::manifest::polls::{Each, Polled};
use crate::object::pointer::Pointer;
use crate::room::Room;

fn spec(polled: Polled) -> manifest::External {
    let id = Pointer::parse("/id").unwrap();
    manifest::External { id, things: 4, memory: 2_000, filters: manifest::Filters::default(), polled }
}

fn together() -> External {
    External::new(&"x".into(), spec(Polled::Together { every: Duration::from_secs(1) }))
}

pub(super) fn each() -> External {
    let each =
        Each { every: Some(Duration::from_secs(1)), first_after: Duration::from_secs(1), when: None, concurrency: 1 };
    External::new(&"x".into(), spec(Polled::Each(each)))
}

/// Returns a source of which requests tell, and whose things can be asked for.
pub(super) fn fetched() -> External {
    let each = Each { every: None, first_after: Duration::ZERO, when: None, concurrency: 1 };
    External::new(&"x".into(), spec(Polled::Inbound(Some(each))))
}

/// Returns things as `id=value` says them, one after another.
pub(super) fn things(text: &str) -> Things {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(id, value)| (id.into(), value.into())).collect()
}

fn answer(primaries: &[(&str, &str)]) -> BTreeMap<ObjectRef, Things> {
    primaries.iter().map(|(name, text)| (ObjectRef::namespaced("n", name), things(text))).collect()
}

fn names(changed: Vec<Differs>) -> Vec<String> {
    changed.into_iter().map(|differs| differs.primary.name.to_string()).collect()
}

/// Returns whether an answer has changed anything.
fn took(answer: Result<Vec<Change>, Refused>) -> Result<bool, Refused> {
    answer.map(|changes| !changes.is_empty())
}

#[test]
fn an_answer_for_all_concerns_those_whose_things_differ_and_those_who_are_missing_in_it() {
    // XC-1, XC-2
    let source = together();
    for (now, changed) in [
        (vec![("a", "1=x"), ("b", "1=x 2=y")], vec!["a", "b"]),
        (vec![("a", "1=x"), ("b", "1=x 2=y")], vec![]),
        (vec![("a", "1=z"), ("b", "1=x 2=y")], vec!["a"]),
        (vec![("a", "1=z"), ("b", "2=y")], vec!["b"]),
        (vec![("a", "1=z")], vec!["b"]),
        (vec![], vec!["a"]),
    ] {
        let found = source.take_all(source.begin(), answer(&now), BTreeMap::new(), || None).unwrap();
        assert_eq!(names(found.primaries), changed, "{now:?}");
    }
}

#[test]
fn an_answer_for_one_primary_says_whether_its_things_differ() {
    // XC-1, XC-6
    let (source, a) = (each(), ObjectRef::namespaced("n", "a"));
    for (uid, now, changed) in [
        ("u", "", false),
        ("u", "1=x", true),
        ("u", "1=x", false),
        ("u", "1=y", true),
        ("v", "1=y", true),
        ("v", "", true),
    ] {
        assert_eq!(took(source.take_one(source.begin(), (&a, uid), things(now), || None)), Ok(changed), "{uid} {now}");
        assert_eq!((source.of(&a, uid), source.knows(&a, uid)), (things(now), true));
        assert_eq!((source.of(&a, "other"), source.knows(&a, "other")), (Things::new(), false));
    }
    source.take_one(source.begin(), (&a, "v"), things("1=y"), || None).unwrap();
    source.forget(&a);
    assert_eq!((source.of(&a, "v"), source.knows(&a, "v"), source.counts()), (Things::new(), false, Counts::default()));
}

#[test]
fn what_has_not_been_polled_with_success_is_unknown_and_what_was_known_outlasts_failures() {
    // PP-1
    let source = together();
    let said = || source.known().map_err(|unknown| unknown.to_string());
    assert_eq!(said(), Err("source x has not been polled yet".to_owned()));
    assert_eq!((source.fail("no way"), source.fail("nor now")), (1, 2));
    assert_eq!(said(), Err("source x has not been polled with success yet: nor now".to_owned()));
    let first = source.take_all(source.begin(), answer(&[("a", "1=x")]), BTreeMap::new(), || None).unwrap();
    assert_eq!((first.known_now, said()), (true, Ok(())));
    assert_eq!(source.fail("again"), 1);
    assert_eq!((said(), source.counts().failures), (Ok(()), 1));
    assert_eq!(source.of(&ObjectRef::namespaced("n", "a"), "u"), things("1=x"));
    let second = source.take_all(source.begin(), answer(&[("a", "1=x")]), BTreeMap::new(), || None).unwrap();
    assert_eq!((second, source.counts().failures), (Changed::default(), 0));
    assert_eq!(each().known(), Ok(()), "it is asked for one primary after another");
}

#[test]
fn what_is_wrong_with_the_things_of_one_primary_is_nothing_to_the_others() {
    // PP-1
    let source = together();
    let [a, b, c] = ["a", "b", "c"].map(|name| ObjectRef::namespaced("n", name));
    source.take_all(source.begin(), answer(&[("a", "1=x"), ("b", "1=x")]), BTreeMap::new(), || None).unwrap();
    let refused = || BTreeMap::from([(a.clone(), "twice 1".into()), (c.clone(), "no id".into())]);
    let changed = source.take_all(source.begin(), answer(&[("b", "1=y")]), refused(), || None).unwrap();
    let updated = Change::Updated { before: "x".into(), now: "y".into() };
    let differs = Differs { primary: b.clone(), things: vec![updated] };
    assert_eq!(changed, Changed { primaries: vec![differs], known_now: false, refused_anew: true });
    assert_eq!((source.of(&a, "u"), source.of(&b, "u")), (things("1=x"), things("1=y")));
    assert_eq!((source.known_of(&a, "u"), source.known_of(&b, "u")), (Ok(()), Ok(())));
    let why = source.known_of(&c, "u").unwrap_err().to_string();
    assert_eq!(why, "source x has not been polled with success yet: no id");
    let again = source.take_all(source.begin(), answer(&[("b", "1=y")]), refused(), || None).unwrap();
    assert_eq!((again, source.counts().things), (Changed::default(), 2));
    let well = source.take_all(source.begin(), answer(&[("c", "1=x")]), BTreeMap::new(), || None).unwrap();
    assert_eq!((names(well.primaries), source.known_of(&c, "u")), (vec!["c".into(), "a".into(), "b".into()], Ok(())));
}

#[test]
fn an_answer_beyond_the_bounds_is_refused_and_changes_nothing() {
    let source = together();
    source.take_all(source.begin(), answer(&[("a", "1=x"), ("b", "1=x")]), BTreeMap::new(), || None).unwrap();
    let before = source.counts();
    let refused =
        source.take_all(source.begin(), answer(&[("a", "1=x 2=x 3=x 4=x 5=x")]), BTreeMap::new(), || None).unwrap_err();
    assert_eq!(refused.to_string(), "it would have 5 things, and may have 4 (bounded.things)");
    let large = format!("1={}", "x".repeat(3_000));
    let refused = source.take_all(source.begin(), answer(&[("a", &large)]), BTreeMap::new(), || None).unwrap_err();
    assert_eq!(refused.to_string(), "its things would take 3323 bytes, and may take 2000 (bounded.memory)");
    assert_eq!(source.counts(), before);
}

#[test]
fn one_primary_may_have_half_of_what_others_leave() {
    let source = each();
    let [a, b, c] = ["a", "b", "c"].map(|name| ObjectRef::namespaced(name, name));
    let refused = source.take_one(source.begin(), (&a, "u"), things("1=x 2=x 3=x"), || None).unwrap_err();
    assert_eq!(refused, Refused::Share { found: 3, most: 2 });
    assert!(!source.knows(&a, "u"));
    source.take_one(source.begin(), (&a, "u"), things("1=x 2=x"), || None).unwrap();
    assert_eq!(
        took(source.take_one(source.begin(), (&b, "u"), things("1=x 2=x"), || None)),
        Err(Refused::Share { found: 2, most: 1 })
    );
    source.take_one(source.begin(), (&b, "u"), things("1=x"), || None).unwrap();
    source.take_one(source.begin(), (&c, "u"), things("1=x"), || None).unwrap();
    source.take_one(source.begin(), (&a, "u"), things("1=y 2=x"), || None).unwrap();
    let large = format!("1={}", "x".repeat(1_000));
    let refused = source.take_one(source.begin(), (&c, "u"), things(&large), || None).unwrap_err();
    assert_eq!(refused, Refused::Share { found: 1_323, most: 595 });
    source.take_one(source.begin(), (&a, "u"), things("1=y"), || None).unwrap();
    assert_eq!(source.counts().things, 3);
}

#[test]
fn the_primaries_of_one_namespace_leave_something_to_others() {
    let source = each();
    let crowd = |n: usize| ObjectRef::namespaced("crowd", &n.to_string());
    let answers: Vec<_> =
        (0..4).map(|n| took(source.take_one(source.begin(), (&crowd(n), "u"), things("1=x"), || None))).collect();
    assert_eq!(answers, [Ok(true), Ok(true), Ok(true), Err(Refused::Home { found: 4, most: 3 })]);
    let other = ObjectRef::namespaced("other", "a");
    assert_eq!(took(source.take_one(source.begin(), (&other, "u"), things("1=x"), || None)), Ok(true));
    // What one has no more, another may have.
    source.forget(&crowd(0));
    source.take_one(source.begin(), (&crowd(1), "u"), Things::new(), || None).unwrap();
    assert_eq!(took(source.take_one(source.begin(), (&crowd(3), "u"), things("1=x"), || None)), Ok(true));
    (0..4).for_each(|n| source.forget(&crowd(n)));
    source.forget(&other);
    assert!(source.state.lock().homes.is_empty());
}

#[test]
fn a_poll_that_fails_or_is_not_wanted_settles_a_primary_and_what_was_known_outlasts_failures() {
    // PP-2, XC-6
    let (source, a) = (each(), ObjectRef::namespaced("n", "a"));
    let note = |uid: &str, standing| source.note(&a, uid, standing);
    assert_eq!(source.standing(&a, "u"), None);
    note("u", Standing::Failed);
    assert_eq!((source.standing(&a, "u"), source.standing(&a, "v")), (Some(Standing::Failed), None));
    assert_eq!(took(source.take_one(source.begin(), (&a, "u"), things("1=x"), || None)), Ok(true));
    note("u", Standing::Failed);
    assert_eq!((source.standing(&a, "u"), source.of(&a, "u")), (Some(Standing::Polled), things("1=x")));
    note("u", Standing::Unwanted);
    assert_eq!((source.standing(&a, "u"), source.of(&a, "u")), (Some(Standing::Unwanted), Things::new()));
    note("v", Standing::Failed);
    source.forget_one(&a, "u");
    assert_eq!(source.standing(&a, "v"), Some(Standing::Failed), "another one");
    source.forget_one(&a, "v");
    assert_eq!(source.counts(), Counts { failures: 0, ..Counts::default() });
}

#[test]
fn things_take_memory_of_the_plugin_and_give_it_back() {
    let room = Room::new(8_000);
    let plugin = "p".into();
    let holding = || Some(room.holding(&plugin));
    // Of 8000 bytes, a quarter stays free: so all that one may have is left, if nobody has anything.
    let is_free = || room.holding(&"other".into()).try_grow(6_000);
    let source = together();
    assert!(is_free());
    source.take_all(source.begin(), answer(&[("a", "1=x 2=x"), ("b", "1=x")]), BTreeMap::new(), holding).unwrap();
    assert_eq!(source.counts(), Counts { primaries: 2, things: 3, bytes: 810, failures: 0 });
    assert!(!is_free());
    source.take_all(source.begin(), BTreeMap::new(), BTreeMap::new(), holding).unwrap();
    assert!(is_free());
    source.take_all(source.begin(), answer(&[("a", "1=x")]), BTreeMap::new(), holding).unwrap();
    let mut hog = room.holding(&"hog".into());
    assert!(hog.try_grow(5_600));
    let large = format!("1={}", "x".repeat(1_500));
    let refused = source.take_all(source.begin(), answer(&[("a", &large)]), BTreeMap::new(), holding).unwrap_err();
    assert_eq!(refused, Refused::Memory(1_499));
    drop(hog);
    source.take_all(source.begin(), answer(&[("a", &large)]), BTreeMap::new(), holding).unwrap();
    drop(source);
    assert!(is_free());
}

#[tokio::test]
async fn a_primary_is_polled_by_one_at_a_time() {
    let source = each();
    let [a, b] = ["a", "b"].map(ObjectRef::cluster);
    let first = source.alone(&a).await;
    assert!(source.alone(&a).now_or_never().is_none());
    assert!(source.alone(&b).now_or_never().is_some());
    drop(first);
    assert!(source.alone(&a).now_or_never().is_some());
    source.alone(&b).await;
}

#[tokio::test]
async fn however_many_are_polled_by_themselves_each_costs_as_much_as_the_first_and_none_is_kept() {
    let (source, begun) = (each(), Instant::now());
    let mut held = Vec::new();
    for n in 0..30_000 {
        held.push(source.alone(&ObjectRef::cluster(&n.to_string())).await);
    }
    held.clear();
    for n in 0..30_000 {
        source.alone(&ObjectRef::cluster(&format!("again-{n}"))).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let kept = source.polled.lock().locks.len();
    assert!(kept < 40_000, "{kept}");
}

#[test]
fn a_write_costs_what_its_thing_does_however_many_others_there_are() {
    // XC-4
    const THINGS: usize = 20_000;
    let mut spec = spec(Polled::Together { every: Duration::from_secs(1) });
    (spec.things, spec.memory) = (4 * THINGS, 1 << 40);
    let (source, a) = (External::new(&"x".into(), spec), ObjectRef::namespaced("n", "a"));
    let many: Things = (0..THINGS).map(|n| (n.to_string().into(), "x".into())).collect();
    source.take_all(source.begin(), [(a.clone(), many)].into(), BTreeMap::new(), || None).unwrap();
    let begun = Instant::now();
    for n in 0..THINGS {
        let write = match n % 3 {
            0 => Write::Replaced { before: "x".into(), now: "longer".into() },
            1 => Write::Removed,
            _ => Write::Created("it is there".into()),
        };
        source.write((&a, "u"), &n.to_string().into(), write, || None).unwrap();
        let new = format!("new-{n}").into();
        source.write((&a, "u"), &new, Write::Created("y".into()), || None).unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let state = source.state.lock();
    let known = &state.primaries[&a];
    let sizes = (known.things.len(), known::size(&a, &known.things) + known.written.size());
    assert_eq!((state.things, state.taken.bytes()), sizes);
    assert_eq!(known.bytes, sizes.1);
}

#[test]
fn a_write_that_finds_no_room_changes_nothing_and_the_last_thing_takes_its_primary_along() {
    // XC-4
    let (source, a) = (each(), ObjectRef::namespaced("n", "a"));
    source.take_one(source.begin(), (&a, "u"), things("1=x"), || None).unwrap();
    let before = source.counts();
    let large = Write::Replaced { before: "x".into(), now: "x".repeat(4_000).into() };
    assert!(source.write((&a, "u"), &"1".into(), large, || None).is_err());
    assert_eq!((source.counts(), source.of(&a, "u")), (before, things("1=x")));
    source.write((&a, "u"), &"1".into(), Write::Removed, || None).unwrap();
    assert_eq!((source.of(&a, "u"), source.counts().things), (Things::new(), 0));
    let state = source.state.lock();
    let known = &state.primaries[&a];
    assert_eq!((state.taken.bytes(), known.bytes), (known.written.size(), known.written.size()));
}

#[test]
fn what_a_run_has_written_is_read_until_an_answer_that_may_have_seen_it() {
    // XC-4, XC-5, XC-6
    let (a, made) = (ObjectRef::namespaced("n", "a"), |value: &str| Write::Created(value.into()));
    for source in [together(), each()] {
        let by_itself = source.spec.each().is_some();
        let poll = |now: &str| {
            if by_itself {
                return took(source.take_one(source.begin(), (&a, "u"), things(now), || None)).unwrap();
            }
            let all = if now.is_empty() { answer(&[]) } else { answer(&[("a", now)]) };
            !source.take_all(source.begin(), all, BTreeMap::new(), || None).unwrap().primaries.is_empty()
        };
        let write = |id: &str, write: Write| {
            source.write((&a, "u"), &id.into(), write, || None).unwrap();
            source.release(&a, Instant::now());
        };
        let known = || source.of(&a, "u");
        write("1", made("x"));
        assert_eq!(known(), if by_itself { Things::new() } else { things("1=x") }, "nothing was polled");
        assert!(!source.knows(&a, "u") || !by_itself);
        // A poll that was under way has not seen it.
        poll("");
        assert_eq!(known(), things("1=x"));
        poll("1=x");
        write("2", made("y"));
        assert_eq!(known(), things("1=x 2=y"));
        // The first answer has not seen it, and wakes nobody; of the next one that is known.
        assert_eq!((poll("1=x"), known()), (false, things("1=x 2=y")));
        assert_eq!((poll("1=x"), known()), (true, things("1=x")));
        write("1", Write::Removed);
        assert_eq!((poll("1=x"), known()), (false, Things::new()));
        assert_eq!((poll(""), known()), (false, Things::new()));
        write("3", made("z"));
        assert_eq!((poll("3=z"), poll("3=z"), known()), (false, false, things("3=z")), "as it was written");
        write("3", Write::Replaced { before: "z".into(), now: "longer".into() });
        let counts = source.counts();
        assert_eq!((counts.things, counts.bytes > 2 * EACH), (1, true), "what was replaced takes memory, too");
        let other = |write| source.write((&a, "v"), &"3".into(), write, || None);
        assert_eq!(other(Write::Removed), Ok(()), "another primary of its name");
        assert_eq!(known().is_empty(), !by_itself, "of those that are polled for all nobody knows the uid");
        source.forget(&a);
        assert_eq!(source.counts().bytes, 0);
    }
}

#[test]
fn what_a_run_has_written_takes_no_more_than_its_source_may_have_and_stays_where_the_answer_is_of_no_use() {
    // XC-5
    let (source, a) = (together(), ObjectRef::namespaced("n", "a"));
    source.take_all(source.begin(), answer(&[("a", "1=x")]), BTreeMap::new(), || None).unwrap();
    let write = |id: &str, text: &str| source.write((&a, "u"), &id.into(), Write::Created(text.into()), || None);
    let large = "x".repeat(2_000);
    assert!(matches!(write("2", &large), Err(Refused::Bytes { .. })));
    assert_eq!(source.of(&a, "u"), things("1=x"), "nothing has changed");
    write("2", "y").unwrap();
    let refused = BTreeMap::from([(a.clone(), "bad".into())]);
    source.take_all(source.begin(), answer(&[("b", "1=x")]), refused, || None).unwrap();
    source.take_all(source.begin(), answer(&[("a", "1=x")]), BTreeMap::new(), || None).unwrap();
    assert_eq!(source.of(&a, "u"), things("1=x 2=y"));
}

#[test]
fn what_a_run_makes_while_the_answer_for_all_is_of_no_use_stands_against_the_next_one() {
    // XC-5
    let (source, a) = (together(), ObjectRef::namespaced("n", "a"));
    let refused = || BTreeMap::from([(a.clone(), "bad".into())]);
    source.take_all(source.begin(), answer(&[]), BTreeMap::new(), || None).unwrap();
    source.take_all(source.begin(), answer(&[]), refused(), || None).unwrap();
    source.write((&a, "u"), &"1".into(), Write::Created("x".into()), || None).unwrap();
    assert!(source.known_of(&a, "u").is_err(), "nobody has said what else there is");
    source.take_all(source.begin(), answer(&[]), refused(), || None).unwrap();
    assert!(source.known_of(&a, "u").is_err());
    source.take_all(source.begin(), answer(&[]), BTreeMap::new(), || None).unwrap();
    assert_eq!((source.known_of(&a, "u"), source.of(&a, "u")), (Ok(()), things("1=x")));
}

#[test]
fn what_a_run_writes_of_what_requests_tell_is_read_at_once_and_the_next_request_is_right() {
    // XC-4, IB-2
    let (source, a) = (External::new(&"x".into(), spec(Polled::Inbound(None))), ObjectRef::namespaced("n", "a"));
    let learn = |id: &str, now: Option<&str>| {
        source.learn((&a, "u"), &id.into(), now.map(Arc::from), || None).map(|change| change.is_some())
    };
    let write = |id: &str, write: Write| source.write((&a, "u"), &id.into(), write, || None).unwrap();
    assert_eq!(source.known(), Ok(()), "there is nothing to wait for");
    write("1", Write::Created("x".into()));
    assert_eq!(source.of(&a, "u"), things("1=x"));
    write("1", Write::Created("y".into()));
    assert_eq!(source.of(&a, "u"), things("1=x"), "something newer is known");
    assert_eq!((learn("1", Some("x")), learn("1", Some("z"))), (Ok(false), Ok(true)));
    write("1", Write::Removed);
    assert_eq!((learn("1", None), source.of(&a, "u")), (Ok(false), Things::new()));
    assert_eq!((learn("1", Some("x")), source.of(&a, "u")), (Ok(true), things("1=x")));
}

#[test]
fn what_a_run_has_written_stands_against_every_answer_that_began_before_the_run_has_ended() {
    // XC-5
    let (a, id) = (ObjectRef::namespaced("n", "a"), Arc::<str>::from("1"));
    for source in [together(), each()] {
        let poll = |began, now: &str| {
            if source.spec.each().is_some() {
                return took(source.take_one(began, (&a, "u"), things(now), || None)).unwrap();
            }
            let all = if now.is_empty() { answer(&[]) } else { answer(&[("a", now)]) };
            !source.take_all(began, all, BTreeMap::new(), || None).unwrap().primaries.is_empty()
        };
        poll(source.begin(), "");
        source.write((&a, "u"), &id, Write::Created("x".into()), || None).unwrap();
        for _ in 0..3 {
            assert_eq!((poll(source.begin(), ""), source.of(&a, "u")), (false, things("1=x")));
        }
        let late = source.begin();
        source.release(&a, Instant::now());
        assert_eq!((poll(late, ""), poll(source.begin(), ""), source.of(&a, "u")), (false, false, things("1=x")));
        assert_eq!((poll(source.begin(), ""), source.of(&a, "u")), (true, Things::new()), "one answer later");
        source.write((&a, "u"), &id, Write::Created("x".into()), || None).unwrap();
        poll(source.begin(), "1=y");
        assert_eq!(
            (poll(source.begin(), ""), source.of(&a, "u")),
            (true, Things::new()),
            "somebody else has changed it"
        );
    }
}

#[test]
fn what_a_run_that_failed_has_written_does_not_outlive_its_primary_where_all_are_polled_at_once() {
    // XC-5, XC-6
    let (source, a) = (together(), ObjectRef::namespaced("n", "a"));
    let poll = |now: &[(&str, &str)]| {
        source.take_all(source.begin(), answer(now), BTreeMap::new(), || None).unwrap();
        source.of(&a, "any")
    };
    let make = |uid: &str, id: &str| {
        source.write((&a, uid), &id.into(), Write::Created("x".into()), || None).unwrap();
    };
    poll(&[]);
    // It has gone.
    make("u", "1");
    source.forget_others(&a, "u");
    assert_eq!((poll(&[]), poll(&[])), (things("1=x"), things("1=x")), "it is there");
    source.forget(&a);
    assert_eq!((poll(&[]), source.counts()), (Things::new(), Counts::default()));
    assert_eq!(source.all(None), []);
    // Another one has its name: it is told, or writes first.
    make("u", "1");
    source.forget_others(&a, "v");
    assert_eq!((poll(&[]), source.counts()), (Things::new(), Counts::default()));
    make("u", "1");
    make("v", "2");
    assert_eq!((poll(&[]), poll(&[])), (things("2=x"), things("2=x")), "what its own runs have written stands");
    // What the poll finds stays, whoever is there.
    source.forget(&a);
    assert_eq!(poll(&[("a", "3=z")]), things("3=z"));
    source.forget(&a);
    assert_eq!(source.of(&a, "any"), things("3=z"));
}
