//! Tests of what a source takes in, shows, and whom it tells.

use std::collections::VecDeque;
use std::time::Duration;

use futures::FutureExt;
use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::cache::{Event, Writer};
use crate::cel::Expression;
use crate::manifest::filters::Question;
use crate::manifest::{ByIndex, Filters, Mapper as Declared, MappingKeys, Secondaries};
use crate::object::pointer::Pointer;
use crate::object::{Managers, Scope, Version};
use crate::room::Room;
use crate::source::exports::tests::{Fake, ask};
use crate::source::filter::PrimaryFilter;

fn gvk(kind: &str) -> Gvk {
    Gvk::parse("x.dev/v1", kind).unwrap()
}

fn parse(metadata: &str, rest: &str) -> Object {
    let json = format!(r#"{{"metadata":{{{metadata}}}{rest}}}"#);
    Object::parse(&json, &gvk("Page"), &Managers::default()).unwrap()
}

/// Returns an object in the namespace `n`.
fn object(name: &str, version: u64, more: &str) -> Object {
    parse(&format!(r#""namespace":"n","name":"{name}","resourceVersion":"{version}"{more}"#), "")
}

fn owned(name: &str, version: u64, owner: &str) -> Object {
    object(
        name,
        version,
        &format!(r#","ownerReferences":[{{"apiVersion":"x.dev/v1","kind":"Page","name":"{owner}","uid":"u"}}]"#),
    )
}

fn key(name: &str) -> ObjectRef {
    ObjectRef::namespaced("n", name)
}

fn keys(pointer: &str) -> Keys {
    Keys::Pointer(Pointer::parse(pointer).unwrap())
}

fn source(role: Role, filter: Filter, indexes: &[(&str, &str)]) -> Source {
    let indexes = indexes.iter().map(|(name, pointer)| ((*name).into(), keys(pointer))).collect();
    Source::new(Spec {
        name: "test".into(),
        gvk: gvk("Page"),
        cluster: None,
        role,
        filter,
        indexes,
        fields: Fields::whole(),
        bounded: None,
        packed: false,
        faults: Arc::default(),
    })
}

fn secondaries() -> Source {
    let mapper = Mapper::new(gvk("Page"), Scope::Namespaced, Declared::OwnerReference);
    source(Role::Secondary(mapper), Filter::default(), &[])
}

/// Returns a source of secondaries that asks an expression about each change.
fn asking(generic: &str) -> Source {
    let mapper = Mapper::new(gvk("Page"), Scope::Namespaced, Declared::OwnerReference);
    let generic = Some(Question::Cel(Expression::parse(generic, &["object"]).unwrap()));
    source(Role::Secondary(mapper), Filter::secondary(Filters { generic, ..Filters::default() }), &[])
}

fn primaries() -> Source {
    let filter = PrimaryFilter { generation_aware: true, finalizer: None };
    source(Role::Primary, Filter::primary(filter, Filters::default()), &[])
}

/// An informer of one place, which calls a source as the real one does.
struct Informer<'a> {
    source: &'a Source,
    place: Option<&'a str>,
    writer: Writer,
    /// Whether the source asks at once about what it has put off.
    asks: bool,
}

impl<'a> Informer<'a> {
    fn new(source: &'a Source, place: Option<&'a str>) -> Self {
        let writer = Writer::default();
        assert_eq!(source.attach(place, writer.cache()), []);
        Self { source, place, writer, asks: true }
    }

    fn event(&mut self, event: Event) -> Vec<String> {
        let mut triggers = self.writer.apply(event).map(|change| self.source.on(change)).unwrap_or_default();
        triggers.extend(self.asked());
        told(&triggers)
    }

    /// Asks about all that was put off.
    fn asked(&self) -> Vec<Trigger> {
        std::iter::from_fn(|| self.asks.then(|| ask(self.source))?).flatten().collect()
    }

    fn applied(&mut self, object: Object) -> Vec<String> {
        self.event(Event::Applied(object))
    }

    fn list(&mut self, objects: impl IntoIterator<Item = Object>, version: u64) -> Vec<String> {
        self.source.before_list(self.place);
        self.writer.start_list();
        let mut triggers = Vec::new();
        for object in objects {
            triggers.extend(self.writer.list_item(object).map(|change| self.source.on(change)).unwrap_or_default());
        }
        let gone = self.writer.finish_list(Version(version));
        triggers.extend(gone.into_iter().flat_map(|change| self.source.on(change)));
        triggers.extend(self.source.after_list(self.place));
        triggers.extend(self.asked());
        told(&triggers)
    }
}

/// Writes triggers as text: `n/p related`.
fn told(triggers: &[Trigger]) -> Vec<String> {
    let what = |what: &TriggerKind| match what {
        TriggerKind::Changed { deleting: false } => "changed".to_owned(),
        TriggerKind::Changed { deleting: true } => "deleting".to_owned(),
        TriggerKind::Deleted { last, unknown } => {
            format!("deleted@{}{}", last.version(), if *unknown { "?" } else { "" })
        }
        TriggerKind::Related { .. } => "related".to_owned(),
    };
    triggers.iter().map(|trigger| format!("{} {}", trigger.primary, what(&trigger.what))).collect()
}

fn names(objects: &[Object]) -> Vec<String> {
    objects.iter().map(|object| format!("{}@{}", object.key(), object.version())).collect()
}

const NOBODY: [String; 0] = [];

/// Keeps the triggers of an own write.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn teller(&self) -> impl FnOnce(Vec<Trigger>) {
        |triggers| self.0.lock().extend(told(&triggers))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

#[test]
fn sources_and_own_writes_go_between_tasks() {
    fn is_shared<T: Send + Sync>(_: &T) {}
    fn is_sent<T: Send>(_: &T) {}
    let source = secondaries();
    is_shared(&source);
    is_sent(&source.begin(key("s"), |_| ()));
}

#[test]
fn an_heir_reads_own_writes_awaits_their_echoes_and_is_told_only_what_is_new() {
    // NS-2, OV-1, FW-1
    let before = secondaries();
    let mut informer = Informer::new(&before, None);
    informer.applied(owned("r", 1, "p"));
    informer.applied(owned("s", 2, "p"));
    let own = |name, version| {
        let write = before.begin(key(name), |_| ());
        write.wrote(owned(name, version, "p"));
    };
    own("s", 4);
    own("t", 5);
    // Another cache of the same kind: it lags behind, r is gone, and u is new.
    let mut writer = Writer::default();
    for object in [owned("s", 2, "p"), owned("u", 3, "q")] {
        writer.apply(Event::Applied(object));
    }
    let source = Source::heir(before.spec().clone(), &before);
    let news = told(&source.attach(None, writer.cache()));
    assert_eq!(news, ["n/q related", "n/p related"]);
    assert_eq!(names(&source.related(&key("p"))), ["n/s@4", "n/t@5"]);
    let place = None;
    let mut informer = Informer { source: &source, place, writer, asks: true };
    assert_eq!(informer.applied(owned("s", 4, "p")), NOBODY);
    assert_eq!(informer.applied(owned("t", 5, "p")), NOBODY);
    assert_eq!(informer.applied(owned("s", 6, "p")), ["n/p related"]);
    let again = told(&Source::heir(source.spec().clone(), &source).attach(None, informer.writer.cache()));
    assert_eq!(again, NOBODY, "nothing has changed");
}

#[test]
fn an_heir_finds_what_has_changed_unseen_by_the_one_before() {
    // IM-4, NS-2
    let before = secondaries();
    let mut informer = Informer::new(&before, None);
    informer.applied(owned("r", 1, "p"));
    informer.applied(owned("s", 2, "p"));
    // Another cache of the same kind, which is ahead: s has changed, and is as related as before.
    let mut writer = Writer::default();
    for object in [owned("r", 1, "p"), owned("s", 3, "p")] {
        writer.apply(Event::Applied(object));
    }
    let heir = Source::heir(before.spec().clone(), &before);
    assert_eq!(told(&heir.attach(Some("n"), writer.cache())), ["n/p related"]);
    assert_eq!(names(&heir.related(&key("p"))), ["n/r@1", "n/s@3"]);
}

#[test]
fn what_an_own_write_was_answered_with_is_news_to_whoever_looks_elsewhere() {
    // NS-2, UC-5, FW-1
    let page = |version, generation| {
        let more = format!(r#","generation":{generation}"#);
        object("a", version, &more)
    };
    let newer = |object: Object| {
        let mut writer = Writer::default();
        writer.apply(Event::Applied(object));
        writer
    };
    let source = primaries();
    let mut before = Informer::new(&source, Some("n"));
    before.applied(page(1, 1));
    // Another client has changed it meanwhile: the change is in the answer, but has caused no trigger yet.
    source.put(page(3, 2));
    let after = newer(page(3, 2));
    assert_eq!(told(&source.attach(None, after.cache())), ["n/a changed"], "an answer that is only read");
    source.detach(Some("n"));
    source.begin(key("a"), |_| ()).wrote(page(4, 3));
    let last = newer(page(4, 3));
    let echo = told(&source.attach(Some("n"), last.cache()));
    assert_eq!(echo, NOBODY, "an echo that is awaited");
    assert_eq!(source.own_writes(), 0);
}

#[test]
fn what_is_not_known_is_not_taken_for_absent() {
    let source = secondaries();
    let mut writer = Writer::bounded(2_000);
    writer.start_list();
    writer.list_item(owned("x", 1, "p"));
    writer.finish_list(Version(1));
    source.attach(Some("n"), writer.cache());
    source.attach(Some("m"), Writer::default().cache());
    source.lacking(BTreeMap::from([(Some("l".into()), "forbidden".into())]));
    let [there, absent, large, page] = ["x", "y", "large", "p"].map(key);
    let elsewhere = |namespace| ObjectRef::namespaced(namespace, "y");
    let [listed, forbidden, unwatched] = ["m", "l", "unwatched"].map(elsewhere);
    let doubt = |within| source.known(within).err().map(|doubt| doubt.to_string());
    let says =
        |place: &str, why: &str| Some(format!("source test does not know all of x.dev/v1 Page in {place} yet: {why}"));
    let listing = || says("m", "its first list is not complete");
    for (within, expected) in [
        (Within::Object(&there), None),
        (Within::Object(&absent), None),
        (Within::Related(&page), None),
        (Within::Namespace("n"), None),
        (Within::Object(&listed), listing()),
        (Within::Related(&listed), listing()),
        (Within::Everywhere, listing()),
        (Within::Object(&forbidden), says("l", "forbidden")),
        (Within::Related(&forbidden), says("l", "forbidden")),
        (Within::Object(&unwatched), None),
    ] {
        assert_eq!(doubt(within), expected, "{within:?}");
    }
    let text = format!(r#","annotations":{{"a":"{}"}}"#, "x".repeat(4000));
    assert_eq!(writer.apply(Event::Applied(object("large", 2, &text))), None);
    let full = says("n", "its cache is full, and leaves objects out");
    assert_eq!(doubt(Within::Object(&large)), full);
    assert_eq!(doubt(Within::Object(&there)), None, "it is shown");
    assert!(!source.sees_all_of(&page));
    for within in [Within::Related(&page), Within::Namespace("n"), Within::Everywhere] {
        let doubt = source.shows_all(within).err().map(|doubt| doubt.to_string());
        assert_eq!(doubt, if matches!(within, Within::Everywhere) { listing() } else { full.clone() }, "{within:?}");
    }
    assert_eq!(source.shows_all(Within::Related(&unwatched)), Ok(()), "its namespace has no full cache");
    source.lacking(BTreeMap::new());
    assert_eq!(doubt(Within::Related(&forbidden)), None, "it is there now");
}

#[test]
fn after_a_change_of_the_filter_nothing_is_told_of_what_no_watch_has_shown() {
    // CF-1: a write may have made a primary that the selector leaves out.
    let source = primaries();
    let mut informer = Informer::new(&source, None);
    informer.applied(object("a", 1, ""));
    source.put(object("hidden", 2, ""));
    assert_eq!(told(&source.as_added(|_| true)), ["n/a changed"]);
}

#[test]
fn as_soon_as_all_namespaces_are_watched_what_one_has_shown_before_is_not_read_any_more() {
    // NS-2
    let source = secondaries();
    let mut one = Writer::default();
    one.apply(Event::Applied(owned("s", 1, "p")));
    source.attach(Some("n"), one.cache());
    let mut all = Writer::default();
    all.apply(Event::Applied(owned("s", 2, "p")));
    assert_eq!(told(&source.attach(None, all.cache())), ["n/p related"]);
    // The trigger may have begun a run already.
    assert_eq!(names(&source.related(&key("p"))), ["n/s@2"]);
    all.apply(Event::Applied(owned("s", 3, "p"))).map(|change| source.on(change));
    assert_eq!(source.get(&key("s")).map(|object| object.version()), Some(Version(3)));
    assert_eq!(source.detach(Some("n")), []);
}

#[test]
fn the_event_of_a_primary_that_a_run_has_made_is_told_and_no_other_echo() {
    // FW-1, EP-1: the queue knows it by that event alone
    let uid = |uid: &str, version| object("a", version, &format!(r#","uid":"{uid}""#));
    for (case, known, made, expected) in [
        ("it was gone", None, "1", vec!["n/a changed"]),
        ("its deletion has not been seen", Some("1"), "2", vec!["n/a deleted@1?", "n/a changed"]),
        ("it is there", Some("1"), "1", vec![]),
    ] {
        let source = primaries();
        let mut informer = Informer::new(&source, None);
        if let Some(known) = known {
            informer.applied(uid(known, 1));
        }
        let window = source.begin(key("a"), |_| ());
        window.wrote(uid(made, 2));
        assert_eq!(source.get(&key("a")).map(|object| object.version()), Some(Version(2)), "{case}");
        assert_eq!(informer.applied(uid(made, 2)), expected, "{case}");
    }
}

#[test]
fn of_two_writes_that_may_both_have_made_an_object_no_answer_hides_a_foreign_change() {
    // FW-8
    let shared = |version| {
        let json = format!(
            r#"{{"metadata":{{"namespace":"n","name":"s","resourceVersion":"{version}","managedFields":[{{"manager":"us","operation":"Apply","fieldsV1":{{"f:data":{{}}}}}}],"ownerReferences":[{{"apiVersion":"x.dev/v1","kind":"Page","name":"p","uid":"u"}}]}}}}"#
        );
        Object::parse(&json, &gvk("ConfigMap"), &Managers::new(["us"])).unwrap()
    };
    // Version 5 is ours, version 6 somebody's; both writes began before either was known.
    for (first, second) in [(5, 6), (6, 5)] {
        let source = secondaries();
        let mut informer = Informer::new(&source, None);
        let told = Told::default();
        let [one, other] = [0, 1].map(|_| source.begin(key("s"), told.teller()));
        one.answered(shared(first), "us");
        other.answered(shared(second), "us");
        let mut all = told.take();
        for version in [5, 6] {
            all.extend(informer.applied(shared(version)));
        }
        assert!(all.contains(&"n/p related".to_owned()), "{first}, then {second}");
    }
    // One alone is known to have made it.
    let source = secondaries();
    let mut informer = Informer::new(&source, None);
    source.begin(key("s"), |_| ()).answered(shared(5), "us");
    assert_eq!(informer.applied(shared(5)), NOBODY);
}

#[test]
fn what_a_run_has_written_that_belongs_to_no_primary_is_told_with_what_is_missing() {
    let by = |mapper| {
        let mapper = Mapper::new(gvk("Page"), Scope::Namespaced, mapper);
        source(Role::Secondary(mapper), Filter::default(), &[])
    };
    let labels = || by(Declared::Labels(MappingKeys::default()));
    let none = object("s", 1, "");
    let labelled = object("s", 1, r#","labels":{"capstan.dev/primary-name":"p"}"#);
    for (source, object, missing) in [
        (secondaries(), none.clone(), Some("an owner reference to a Page")),
        (secondaries(), owned("s", 1, "p"), None),
        (labels(), none.clone(), Some("the label capstan.dev/primary-name with the name of a Page")),
        (labels(), labelled, None),
        (by(Declared::Named(keys("/spec/page"))), none.clone(), None),
        (by(Declared::Export("pages".into())), none, None),
    ] {
        let found = source.missing(&source.facts(&Change::Added(object)));
        assert_eq!(found.as_deref(), missing, "{:?}", source.spec.role);
    }
}

#[test]
fn what_is_watched_elsewhere_is_told_and_what_stays_is_not() {
    // NS-2
    let source = primaries();
    let mut everywhere = Informer::new(&source, None);
    everywhere.applied(object("a", 1, ""));
    let mut writer = Writer::default();
    writer.apply(Event::Applied(object("a", 1, "")));
    assert_eq!(source.attach(Some("n"), writer.cache()), []);
    source.detach(None);
    assert_eq!(names(&source.list(None)), ["n/a@1"]);
    let mut other = Writer::default();
    let b = parse(r#""namespace":"m","name":"b","resourceVersion":"2""#, "");
    other.apply(Event::Applied(b));
    assert_eq!(told(&source.attach(Some("m"), other.cache())), ["m/b changed"]);
}

#[test]
fn what_was_seen_in_one_namespace_is_read_until_the_cache_of_all_has_it() {
    // NS-2, OV-1
    let source = secondaries();
    let mut before = Informer::new(&source, Some("n"));
    before.applied(owned("s", 2, "p"));
    let own = |name, version| {
        let write = source.begin(key(name), |_| ());
        write.wrote(owned(name, version, "p"));
    };
    own("s", 4);
    own("t", 5);
    before.applied(owned("s", 4, "p"));
    before.applied(owned("t", 5, "p"));
    assert_eq!(source.own_writes(), 0);
    let mut everywhere = Writer::default();
    everywhere.apply(Event::Applied(owned("s", 2, "p")));
    assert_eq!(told(&source.attach(None, everywhere.cache())), NOBODY);
    source.detach(Some("n"));
    assert_eq!(names(&source.related(&key("p"))), ["n/s@4", "n/t@5"]);
    let mut after = Informer { source: &source, place: None, writer: everywhere, asks: true };
    after.applied(owned("s", 4, "p"));
    after.applied(owned("t", 5, "p"));
    assert_eq!(source.own_writes(), 0);
    assert_eq!(names(&source.related(&key("p"))), ["n/s@4", "n/t@5"]);
}

#[test]
fn what_no_watch_shows_is_forgotten_once_all_up_to_it_has_been_seen() {
    // FW-4, OV-2
    let source = secondaries();
    let mut informer = Informer::new(&source, None);
    source.begin(key("s"), |_| ()).wrote(owned("s", 5, "p"));
    let left = || {
        let state = source.state.read();
        (state.windows.len(), state.overlay.iter().count())
    };
    for (version, known) in [(4, (1, 1)), (5, (0, 0))] {
        assert_eq!(informer.event(Event::Bookmark(Version(version))), NOBODY);
        assert_eq!(told(&source.passed(None)), NOBODY);
        assert_eq!(left(), known, "at {version}");
    }
    assert_eq!(informer.applied(owned("s", 6, "p")), ["n/p related"]);
}

#[test]
fn a_primary_that_was_made_again_unseen_is_told_as_gone_and_as_new() {
    let page = |version, uid: &str| object("a", version, &format!(r#","generation":1,"uid":"{uid}""#));
    let (seen, held) = (primaries(), primaries());
    let mut informer = Informer::new(&seen, None);
    informer.applied(page(1, "u-1"));
    let told = ["n/a deleted@1?", "n/a changed"];
    assert_eq!(informer.list([page(9, "u-2")], 9), told, "by a list");
    // Another client deletes it and makes it again while it is being written.
    let (mut informer, own) = (Informer::new(&held, None), Told::default());
    informer.applied(page(1, "u-1"));
    let write = held.begin(key("a"), own.teller());
    assert_eq!(informer.event(Event::Deleted(page(2, "u-1"))), ["n/a deleted@2"]);
    assert_eq!(informer.applied(page(3, "u-2")), NOBODY);
    drop(write);
    assert_eq!(own.take(), ["n/a changed"]);
    let write = held.begin(key("a"), own.teller());
    informer.applied(page(4, "u-2"));
    write.wrote(page(6, "u-3"));
    assert_eq!(informer.event(Event::Deleted(page(5, "u-2"))), ["n/a deleted@5"]);
    assert_eq!(informer.applied(page(6, "u-3")), ["n/a changed"]);
}

#[test]
fn a_primary_source_tells_of_accepted_changes_of_the_primary_itself() {
    // EP-2, CF-1, CF-2, CF-4
    let source = primaries();
    let mut informer = Informer::new(&source, None);
    let script = [
        (Event::Applied(object("a", 1, r#","generation":1"#)), vec!["n/a changed"]),
        (Event::Applied(object("a", 2, r#","generation":1,"labels":{"x":"y"}"#)), vec![]),
        (Event::Applied(object("a", 3, r#","generation":2"#)), vec!["n/a changed"]),
        (Event::Applied(object("a", 4, r#","generation":2,"deletionTimestamp":"t""#)), vec!["n/a deleting"]),
        (Event::Deleted(object("a", 5, "")), vec!["n/a deleted@5"]),
    ];
    for (event, expected) in script {
        assert_eq!(informer.event(event.clone()), expected, "{event:?}");
    }
    assert_eq!(source.related(&key("a")), []);
    informer.applied(object("a", 6, ""));
    assert_eq!(names(&source.related(&key("a"))), ["n/a@6"]);
}

#[test]
fn an_answer_of_a_run_to_its_primary_is_told_unless_generations_say_that_nothing_has_changed() {
    // UC-5
    for (generation_aware, expected) in [(true, vec![]), (false, vec!["n/a changed"])] {
        let filter = PrimaryFilter { generation_aware, finalizer: None };
        let filter = Filter::primary(filter, Filters::default());
        let source = source(Role::Primary, filter, &[]);
        let mut informer = Informer::new(&source, None);
        let page = |version| object("a", version, r#","generation":1"#);
        informer.list([page(1)], 1);
        // Its status was written: what the API server answered, and then the event of it.
        source.put(page(2));
        assert_eq!(informer.applied(page(2)), expected, "{generation_aware}");
    }
}

#[test]
fn primaries_of_the_old_and_the_new_version_are_told() {
    // IM-4, IM-5, IM-6
    let source = secondaries();
    let mut informer = Informer::new(&source, None);
    assert_eq!(informer.applied(owned("s", 1, "p")), ["n/p related"]);
    assert_eq!(informer.applied(owned("r", 2, "p")), ["n/p related"]);
    assert_eq!(informer.applied(object("alone", 3, "")), NOBODY);
    assert_eq!(names(&source.related(&key("p"))), ["n/r@2", "n/s@1"]);
    assert_eq!(informer.applied(owned("s", 4, "q")), ["n/p related", "n/q related"]);
    assert_eq!(names(&source.related(&key("p"))), ["n/r@2"]);
    assert_eq!(names(&source.related(&key("q"))), ["n/s@4"]);
    assert_eq!(informer.event(Event::Deleted(owned("s", 5, "q"))), ["n/q related"]);
    assert_eq!(source.related(&key("q")), []);
}

#[test]
fn it_is_told_whether_what_belongs_to_a_primary_is_gone() {
    let source = secondaries();
    let mut writer = Writer::default();
    assert_eq!(source.attach(None, writer.cache()), []);
    for (event, expected) in [
        (Event::Applied(owned("s", 1, "p")), false),
        (Event::Applied(owned("s", 2, "p")), false),
        (Event::Deleted(owned("s", 3, "p")), true),
        (Event::Applied(owned("s", 4, "p")), false),
    ] {
        let triggers = writer.apply(event).map(|change| source.on(change)).unwrap_or_default();
        let found: Vec<_> = triggers.into_iter().map(|trigger| trigger.what).collect();
        let related = TriggerKind::Related { source: "test".into(), object: key("s"), gone: expected };
        assert_eq!(found, [related]);
    }
}

#[test]
fn filters_silence_events_but_not_the_index() {
    // IS-2, IS-3
    let no = Expression::parse("false", &[]).ok().map(Question::Cel);
    let mapper = Mapper::new(gvk("Page"), Scope::Namespaced, Declared::OwnerReference);
    let filter = Filter::secondary(Filters { generic: no, ..Filters::default() });
    let source = source(Role::Secondary(mapper), filter, &[]);
    let mut informer = Informer::new(&source, None);
    assert_eq!(informer.applied(owned("s", 1, "p")), NOBODY);
    assert_eq!(names(&source.related(&key("p"))), ["n/s@1"]);
    assert_eq!(informer.event(Event::Deleted(owned("s", 2, "p"))), NOBODY);
    assert!(source.state.read().related.is_empty());
}

#[test]
fn a_secondary_deleted_under_another_owner_does_not_haunt_the_first() {
    let source = secondaries();
    let mut informer = Informer::new(&source, None);
    informer.applied(owned("s", 1, "p"));
    // The owner reference changed in the same write that let the object go: no update was seen.
    informer.event(Event::Deleted(owned("s", 2, "q")));
    informer.applied(owned("s", 3, "q"));
    assert_eq!(source.related(&key("p")), []);
    assert_eq!(names(&source.related(&key("q"))), ["n/s@3"]);
}

#[test]
fn joining_a_filled_cache_counts_everything_as_added() {
    // PO-3, IM-4
    let mut writer = Writer::default();
    writer.apply(Event::Applied(owned("s", 1, "p")));
    writer.apply(Event::Applied(owned("t", 2, "q")));
    let source = secondaries();
    assert_eq!(told(&source.attach(None, writer.cache())), ["n/p related", "n/q related"]);
    assert_eq!(names(&source.related(&key("q"))), ["n/t@2"]);
    assert!(!source.is_synced());
    writer.start_list();
    writer.finish_list(Version(3));
    assert!(source.is_synced());
}

#[test]
fn what_was_there_before_a_source_looked_is_nothing_new_to_it() {
    // EP-13: whether expressions are asked at once or later, and whether it is listed for the source or was before
    for joins in [false, true] {
        for source in [secondaries(), asking("true")] {
            let mut writer = Writer::default();
            let list = |writer: &mut Writer| {
                writer.start_list();
                let listed = ["a", "b"].into_iter().zip(1..).map(|(name, version)| owned(name, version, name));
                listed.filter_map(|object| writer.list_item(object)).collect::<Vec<_>>()
            };
            let mut triggers = Vec::new();
            if joins {
                list(&mut writer);
                writer.finish_list(Version(5));
                triggers.extend(source.attach(None, writer.cache()));
            } else {
                source.attach(None, writer.cache());
                source.before_list(None);
                for change in list(&mut writer) {
                    triggers.extend(source.on(change));
                }
                assert!(writer.finish_list(Version(5)).is_empty());
                triggers.extend(source.after_list(None));
            }
            let events = [
                Event::Applied(owned("c", 6, "c")),
                Event::Applied(owned("a", 7, "d")),
                Event::Deleted(owned("b", 8, "b")),
            ];
            for event in events {
                let asked = std::iter::from_fn(|| ask(&source)).flatten().collect::<Vec<_>>();
                triggers.extend(asked);
                triggers.extend(source.on(writer.apply(event).unwrap()));
            }
            triggers.extend(std::iter::from_fn(|| ask(&source)).flatten());
            let urgencies = triggers.iter().map(|trigger| (&*trigger.primary.name, trigger.urgency));
            let (fresh, replayed) = (Urgency::Fresh, Urgency::Replayed);
            let wanted = [("a", replayed), ("b", replayed), ("c", fresh), ("a", fresh), ("d", fresh), ("b", fresh)];
            assert_eq!(urgencies.collect::<Vec<_>>(), wanted, "joins: {joins}, costly: {}", source.is_costly());
        }
    }
}

#[test]
fn what_comes_after_a_list_that_ends_while_a_source_joins_is_new_to_it() {
    // EP-13
    let source = secondaries();
    let mut writer = Writer::default();
    writer.start_list();
    writer.list_item(owned("a", 1, "a"));
    let mut attaching = source.begin_attach(None, writer.cache().frozen());
    let mut triggers: Vec<_> = std::iter::from_fn(|| source.attach_on(&mut attaching)).flatten().collect();
    writer.finish_list(Version(5));
    source.attach_again(&mut attaching, writer.cache(), BTreeSet::new());
    triggers.extend(std::iter::from_fn(|| source.attach_on(&mut attaching)).flatten());
    triggers.extend(source.attached(&attaching));
    triggers.extend(source.on(writer.apply(Event::Applied(owned("c", 6, "c"))).unwrap()));
    let urgencies: Vec<_> = triggers.iter().map(|trigger| (&*trigger.primary.name, trigger.urgency)).collect();
    assert_eq!(urgencies, [("a", Urgency::Replayed), ("c", Urgency::Fresh)]);
}

#[test]
fn several_sources_over_one_cache_keep_their_own_windows() {
    // PO-5
    let (ours, theirs) = (secondaries(), secondaries());
    let mut writer = Writer::default();
    for source in [&ours, &theirs] {
        source.attach(None, writer.cache());
    }
    let told_late = Told::default();
    let write = ours.begin(key("s"), told_late.teller());
    write.wrote(owned("s", 1, "p"));
    let change = writer.apply(Event::Applied(owned("s", 1, "p"))).unwrap();
    assert_eq!(told(&ours.on(change.clone())), NOBODY);
    assert_eq!(told(&theirs.on(change)), ["n/p related"]);
}

#[test]
fn reads_outside_the_watched_namespaces_find_nothing() {
    // IN-2, IN-4
    let source = secondaries();
    let mut informer = Informer::new(&source, Some("n"));
    informer.applied(owned("s", 1, "p"));
    assert_eq!(names(&source.list(Some("n"))), ["n/s@1"]);
    assert_eq!(source.list(Some("m")), []);
    assert_eq!(source.get(&ObjectRef::namespaced("m", "s")), None);
    assert_eq!(source.get(&ObjectRef::cluster("s")), None);
    assert!(source.watches(&key("x")) && !source.watches(&ObjectRef::cluster("x")));
    // OV-1
    source.put(parse(r#""namespace":"m","name":"s","resourceVersion":"9""#, ""));
    assert!(source.state.read().overlay.is_empty());
    let told_late = Told::default();
    source
        .begin(ObjectRef::namespaced("m", "s"), told_late.teller())
        .wrote(parse(r#""namespace":"m","name":"s","resourceVersion":"9""#, ""));
    assert!(source.state.read().windows.is_empty());
}

#[test]
fn a_namespace_that_is_no_longer_watched_leaves_nothing_behind() {
    // NS-2, NS-3, OV-5
    let source = source(
        Role::Secondary(Mapper::new(gvk("Page"), Scope::Namespaced, Declared::OwnerReference)),
        Filter::default(),
        &[("by-name", "/metadata/name")],
    );
    let mut kept = Informer::new(&source, Some("m"));
    kept.applied(parse(r#""namespace":"m","name":"s","resourceVersion":"1""#, ""));
    let mut left = Informer::new(&source, Some("n"));
    left.applied(owned("s", 1, "p"));
    source.put(owned("s", 5, "p"));
    let told_late = Told::default();
    let write = source.begin(key("t"), told_late.teller());
    assert_eq!(left.applied(owned("t", 6, "p")), NOBODY);

    assert_eq!(source.detach(Some("n")), [key("s"), key("t")]);
    assert_eq!(left.applied(owned("u", 7, "p")), NOBODY);
    assert_eq!(names(&source.list(None)), ["m/s@1"]);
    assert_eq!(names(&source.by_index("by-name", "s").unwrap()), ["m/s@1"]);
    {
        let state = source.state.read();
        assert!(state.overlay.is_empty() && state.related.is_empty());
        assert_eq!(state.indexes["by-name"].len(), 1);
    }
    drop(write);
    assert_eq!(told_late.take(), NOBODY);
    assert!(source.state.read().windows.is_empty());
    assert_eq!(source.detach(Some("n")), []);
}

#[test]
fn an_own_write_is_read_at_once_and_its_echo_is_swallowed() {
    // FW-1, FW-3.3, OV-3, RO-3
    for echo_first in [false, true] {
        let source = secondaries();
        let mut informer = Informer::new(&source, None);
        informer.applied(owned("s", 1, "p"));
        let told_late = Told::default();
        let write = source.begin(key("s"), told_late.teller());
        if echo_first {
            assert_eq!(informer.applied(owned("s", 2, "p")), NOBODY);
        }
        write.wrote(owned("s", 2, "p"));
        assert_eq!(names(&source.related(&key("p"))), ["n/s@2"]);
        assert_eq!(source.get(&key("s")).unwrap().version(), Version(2));
        if !echo_first {
            assert_eq!(informer.applied(owned("s", 2, "p")), NOBODY);
        }
        assert_eq!(told_late.take(), NOBODY);
        let state = source.state.read();
        assert!(state.windows.is_empty() && state.overlay.is_empty());
        drop(state);
        assert_eq!(informer.applied(owned("s", 3, "p")), ["n/p related"]);
    }
}

#[test]
fn an_answer_that_finds_no_memory_is_neither_kept_nor_taken_for_what_the_cache_has() {
    // OV-1
    let room = Room::new(0);
    let source = secondaries().charging(|| Some(room.holding(&"p".into())));
    let mut informer = Informer::new(&source, None);
    informer.list([owned("s", 1, "p")], 1);
    let large = |version| {
        let small = owned("s", version, "p");
        let json = small.json().replacen('{', &format!("{{\"filler\":{:?},", "x".repeat(2 << 20)), 1);
        Object::parse(&json, &source.spec().gvk, &Managers::default()).unwrap()
    };
    source.begin(key("s"), |_| ()).wrote(large(2));
    assert_eq!((source.get(&key("s")), source.own_writes()), (None, 2));
    for within in [Within::Object(&key("s")), Within::Namespace("n"), Within::Related(&key("p")), Within::Everywhere] {
        assert!(source.known(within).unwrap_err().to_string().contains("--plugin-memory"), "{within:?}");
    }
    assert_eq!(source.known(Within::Namespace("m")), Ok(()));
    assert_eq!(informer.event(Event::Applied(large(2))), NOBODY);
    assert_eq!((source.known(Within::Everywhere), source.own_writes()), (Ok(()), 0));
    assert_eq!(source.get(&key("s")).unwrap().version(), Version(2));
    for (version, forgets) in [(3, Event::Bookmark(Version(4))), (5, Event::Deleted(large(6)))] {
        source.begin(key("s"), |_| ()).wrote(large(version));
        assert_eq!(source.get(&key("s")), None);
        informer.event(forgets);
        source.passed(None);
        assert_eq!((source.known(Within::Everywhere), source.own_writes()), (Ok(()), 0));
    }
}

#[test]
fn all_are_told_if_what_was_made_without_memory_for_the_answer_is_gone_before_any_watch_has_shown_it() {
    // OV-1, OV-5
    let room = Room::new(0);
    let large = |name| {
        let small = owned(name, 2, "p");
        let json = small.json().replacen('{', &format!("{{\"filler\":{:?},", "x".repeat(2 << 20)), 1);
        Object::parse(&json, &gvk("Page"), &Managers::default()).unwrap()
    };
    // Whether it is there in the list, or has been told of as gone already.
    for (listed, shown, expected) in [
        (false, false, &["n/p related", "n/q related"][..]),
        (true, false, &["n/p related"]),
        (false, true, &["n/p related"]),
    ] {
        let pages = Arc::new(primaries());
        let source = secondaries().charging(|| Some(room.holding(&"p".into()))).beside(&pages);
        let mut informer = Informer::new(&pages, None);
        informer.applied(object("p", 1, ""));
        informer.applied(object("q", 1, ""));
        let mut informer = Informer::new(&source, None);
        informer.list(shown.then(|| owned("s", 1, "p")), 1);
        source.put(large("s"));
        assert_eq!(source.own_writes(), 1);
        assert_eq!(informer.list(listed.then(|| large("s")), 3), expected, "{listed} {shown}");
        assert_eq!(
            (source.own_writes(), informer.list([], 4)),
            (0, if listed { vec!["n/p related".to_owned()] } else { vec![] })
        );
    }
    // The same if another cache takes the place of the one that would have shown it.
    let pages = Arc::new(primaries());
    Informer::new(&pages, None).applied(object("p", 1, ""));
    let source = secondaries().charging(|| Some(room.holding(&"p".into()))).beside(&pages);
    Informer::new(&source, None).list([], 1);
    source.put(large("s"));
    let mut writer = Writer::default();
    writer.start_list();
    writer.finish_list(Version(3));
    assert_eq!(source.attach(None, writer.cache()), []);
    assert_eq!(ask(&source).map(|triggers| told(&triggers)), Some(vec!["n/p related".to_owned()]));
}

#[test]
fn what_was_written_where_nothing_was_read_is_not_known_until_the_next_cache_has_it() {
    // OV-1
    for when in ["before it was left", "once it was left"] {
        for role in [secondaries, primaries] {
            let source = role();
            Informer::new(&source, Some("n")).list([owned("s", 1, "p")], 1);
            if when == "once it was left" {
                source.detach(Some("n"));
            }
            source.begin(key("s"), |_| ()).wrote(owned("s", 5, "p"));
            source.detach(Some("n"));
            let heir = Source::heir(source.spec().clone(), &source);
            for source in [source, heir] {
                assert_eq!(source.own_writes(), 0, "{when}");
                let mut informer = Informer::new(&source, None);
                informer.list([owned("s", 1, "p"), owned("t", 2, "p")], 4);
                assert_eq!(source.get(&key("s")), None, "{when}");
                for within in [Within::Object(&key("s")), Within::Namespace("n"), Within::Everywhere] {
                    let doubt = source.known(within).unwrap_err();
                    assert!(doubt.is_of_own_write(), "{when}: {within:?}: {doubt}");
                }
                assert_eq!(source.known(Within::Namespace("m")), Ok(()), "{when}");
                informer.applied(owned("s", 5, "p"));
                assert_eq!(source.known(Within::Everywhere), Ok(()), "{when}");
                assert_eq!(source.get(&key("s")).unwrap().version(), Version(5), "{when}");
            }
        }
    }
}

#[test]
fn writes_to_any_number_of_unwatched_namespaces_keep_nobody_from_reading_a_watched_one() {
    // OV-1
    let source = secondaries();
    Informer::new(&source, Some("n")).list([owned("s", 1, "p")], 10);
    let of = |n| format!("t-{n}");
    for n in 0..1_500 {
        source.put(parse(&format!(r#""namespace":{:?},"name":"s","resourceVersion":"{}""#, of(n), 100 + n), ""));
        assert_eq!(source.known(Within::Namespace("n")), Ok(()), "{n}");
    }
    assert_eq!(source.known(Within::Everywhere), Ok(()));
    for n in [10, 1_400] {
        let namespace = of(n);
        let mut late = Informer::new(&source, Some(&namespace));
        late.list([], 50);
        let doubt = source.known(Within::Namespace(&namespace)).unwrap_err();
        assert!(doubt.is_of_own_write(), "{namespace}: {doubt}");
        assert_eq!(source.known(Within::Namespace("n")), Ok(()), "{namespace}");
        late.list([], 2_000);
        assert_eq!(source.known(Within::Everywhere), Ok(()), "{namespace}");
    }
}

#[test]
fn what_was_written_by_another_source_or_by_none_is_not_known_until_the_cache_has_it() {
    // OV-1
    let pages = Arc::new(primaries());
    for watched in [true, false] {
        let written = if watched {
            let first = secondaries().beside(&pages);
            Informer::new(&first, None).list([], 1);
            first.put(owned("s", 5, "p"));
            5
        } else {
            pages.wrote_unread(&gvk("Page"), &owned("s", 7, "p"));
            7
        };
        // Such as one that a run registers, or that a new version has in place of another.
        let source = secondaries().beside(&pages);
        let mut informer = Informer::new(&source, None);
        informer.list([], written - 1);
        assert!(source.known(Within::Object(&key("s"))).unwrap_err().is_of_own_write(), "{watched}");
        informer.applied(owned("s", written, "p"));
        assert_eq!(names(&source.list(None)), [format!("n/s@{written}")]);
        assert_eq!(source.known(Within::Everywhere), Ok(()), "{watched}");
    }
}

#[test]
fn what_was_written_is_not_known_where_a_namespace_comes_again_with_an_older_cache() {
    // OV-1
    let source = secondaries();
    let mut informer = Informer::new(&source, Some("n"));
    informer.list([], 1);
    source.begin(key("s"), |_| ()).wrote(owned("s", 5, "p"));
    informer.applied(owned("s", 5, "p"));
    assert_eq!(source.own_writes(), 0);
    source.detach(Some("n"));
    let heir = Source::heir(source.spec().clone(), &source);
    let mut older = Informer::new(&heir, Some("n"));
    older.list([], 4);
    assert!(heir.known(Within::Object(&key("s"))).unwrap_err().is_of_own_write());
    older.applied(owned("s", 5, "p"));
    assert_eq!(names(&heir.list(None)), ["n/s@5"]);
}

#[test]
fn a_primary_that_a_cache_does_not_show_when_it_is_read_again_is_not_gone_for_that() {
    // PO-3
    for (case, unreadable, listed) in [("it can't be read", true, 9), ("the cache is older", false, 4)] {
        let source = primaries();
        let mut informer = Informer::new(&source, Some("n"));
        informer.list([object("a", 5, "")], 5);
        source.awaits(Some("n"));
        let mut writer = Writer::default();
        writer.start_list();
        if unreadable {
            writer.quarantine(Some(&key("a")));
        }
        writer.finish_list(Version(listed));
        assert_eq!(told(&source.attach(Some("n"), writer.cache())), NOBODY, "{case}");
        let mut again = writer;
        let change = again.apply(Event::Applied(object("a", 10, ""))).unwrap();
        assert_eq!(told(&source.on(change)), ["n/a changed"], "{case}");
        let change = again.apply(Event::Deleted(object("a", 11, ""))).unwrap();
        assert_eq!(told(&source.on(change)), ["n/a deleted@11"], "{case}");
        assert_eq!(source.passed(Some("n")), [], "{case}");
    }
    // What has ended meanwhile is told of once the cache has come to it.
    let source = primaries();
    Informer::new(&source, Some("n")).list([object("a", 5, "")], 5);
    source.awaits(Some("n"));
    let mut writer = Writer::default();
    writer.finish_list(Version(4));
    assert_eq!(told(&source.attach(Some("n"), writer.cache())), NOBODY);
    writer.apply(Event::Bookmark(Version(6)));
    assert_eq!(told(&source.passed(Some("n"))), ["n/a deleted@5?"]);
}

#[test]
fn what_the_cache_before_has_shown_to_be_gone_is_not_known_as_an_older_cache_has_it() {
    // OV-1: an own write ended it, such as one that removed the last finalizer.
    for (written, known) in [(6, false), (4, true)] {
        for role in [secondaries, primaries] {
            let before = role();
            let mut left = Informer::new(&before, None);
            left.list([owned("s", 1, "p"), owned("t", 1, "p")], 1);
            before.begin(key("s"), |_| ()).wrote(owned("s", written, "p"));
            left.event(Event::Deleted(owned("s", written, "p")));
            let heir = Source::heir(before.spec().clone(), &before);
            let mut older = Writer::default();
            older.list_item(owned("s", 1, "p"));
            older.list_item(owned("t", 1, "p"));
            older.finish_list(Version(5));
            heir.attach(Some("n"), older.cache());
            heir.detach(None);
            for within in [Within::Object(&key("s")), Within::Namespace("n"), Within::Everywhere] {
                let said = heir.known(within);
                assert_eq!(said.is_ok(), known, "{written}: {within:?}");
                assert!(said.map_or_else(|doubt| doubt.is_of_own_write(), |()| true), "{written}: {within:?}");
            }
            heir.on(older.apply(Event::Deleted(owned("s", 6, "p"))).unwrap());
            heir.passed(Some("n"));
            assert_eq!((heir.known(Within::Everywhere), heir.get(&key("s"))), (Ok(()), None), "{written}");
        }
    }
}

#[test]
fn a_created_object_is_read_before_the_watch_has_it() {
    // OV-4
    let source = secondaries();
    let mut informer = Informer::new(&source, None);
    informer.list([owned("b", 1, "p")], 10);
    source.begin(key("a"), |_| ()).wrote(owned("a", 11, "p"));
    source.begin(key("c"), |_| ()).wrote(owned("c", 12, "q"));
    assert_eq!(names(&source.list(Some("n"))), ["n/a@11", "n/b@1", "n/c@12"]);
    assert_eq!(names(&source.list(None)), ["n/a@11", "n/b@1", "n/c@12"]);
    assert_eq!(names(&source.related(&key("p"))), ["n/a@11", "n/b@1"]);
    // A write that takes an object from one primary to another.
    source.begin(key("b"), |_| ()).wrote(owned("b", 13, "q"));
    assert_eq!(names(&source.related(&key("p"))), ["n/a@11"]);
    assert_eq!(names(&source.related(&key("q"))), ["n/b@13", "n/c@12"]);
}

#[test]
fn a_foreign_change_beside_an_own_write_is_told_when_the_write_ends() {
    // FW-8, FW-6: the filter sees the whole span.
    let source = primaries();
    let mut informer = Informer::new(&source, None);
    informer.applied(object("a", 1, r#","generation":1"#));
    let told_late = Told::default();
    let write = source.begin(key("a"), told_late.teller());
    assert_eq!(informer.applied(object("a", 2, r#","generation":2"#)), NOBODY);
    assert_eq!(informer.applied(object("a", 3, r#","generation":2,"labels":{"own":"write"}"#)), NOBODY);
    write.wrote(object("a", 3, r#","generation":2,"labels":{"own":"write"}"#));
    assert_eq!(told_late.take(), ["n/a changed"]);
}

#[test]
fn a_write_that_fails_tells_what_was_held() {
    // FW-5
    let source = secondaries();
    let mut informer = Informer::new(&source, None);
    let told_late = Told::default();
    let write = source.begin(key("s"), told_late.teller());
    assert_eq!(informer.applied(owned("s", 2, "p")), NOBODY);
    drop(write);
    assert_eq!(told_late.take(), ["n/p related"]);
    assert!(source.state.read().windows.is_empty());
}

#[test]
fn the_primaries_at_write_time_are_told_too() {
    // FW-7: the object went p → q (ours) → r (foreign), and the list shows only its end.
    let source = secondaries();
    let mut informer = Informer::new(&source, None);
    informer.applied(owned("s", 1, "p"));
    source.begin(key("s"), |_| ()).wrote(owned("s", 2, "q"));
    assert_eq!(informer.list([owned("s", 3, "r")], 3), ["n/p related", "n/q related", "n/r related"]);
    assert_eq!(names(&source.related(&key("r"))), ["n/s@3"]);
    assert_eq!(source.related(&key("q")), []);
}

#[test]
fn an_echo_out_of_a_list_is_told() {
    // FW-3.3: the event may stand for more than the own write.
    let source = secondaries();
    let mut informer = Informer::new(&source, None);
    informer.applied(owned("s", 1, "p"));
    source.begin(key("s"), |_| ()).wrote(owned("s", 2, "p"));
    assert_eq!(informer.list([owned("s", 2, "p")], 5), ["n/p related"]);
    assert!(source.state.read().windows.is_empty());
    // That is over with the list.
    source.begin(key("s"), |_| ()).wrote(owned("s", 6, "p"));
    assert_eq!(informer.applied(owned("s", 6, "p")), NOBODY);
}

#[test]
fn what_own_writes_made_and_somebody_deleted_unseen_is_told_as_deleted() {
    // OV-5
    let source = primaries();
    let mut informer = Informer::new(&source, None);
    informer.list([object("kept", 1, "")], 1);
    source.begin(key("ghost"), |_| ()).wrote(object("ghost", 2, ""));
    source.put(object("kept", 3, ""));
    source.put(object("later", 9, ""));
    assert_eq!(names(&source.list(None)), ["n/ghost@2", "n/kept@3", "n/later@9"]);
    assert_eq!(informer.list([object("kept", 1, "")], 5), ["n/ghost deleted@2?"]);
    assert_eq!(names(&source.list(None)), ["n/kept@1", "n/later@9"]);
    assert!(source.state.read().windows.is_empty());
}

#[test]
fn of_two_objects_of_a_name_that_went_unseen_one_after_the_other_both_are_told() {
    // OV-5, AE-2
    let source = primaries();
    let mut informer = Informer::new(&source, None);
    informer.list([object("a", 1, r#","uid":"first""#)], 1);
    // A write by name has met the second.
    source.put(object("a", 3, r#","uid":"second""#));
    assert_eq!(informer.list([], 5), ["n/a deleted@1?", "n/a deleted@3?"]);
    assert_eq!((source.own_writes(), source.list(None)), (0, vec![]));
}

#[test]
fn an_object_that_nobody_can_read_stays_as_an_own_write_made_it() {
    // OV-5: whether the cache has no version of it, or one from before.
    for before in [None, Some(1)] {
        let source = primaries();
        let mut informer = Informer::new(&source, None);
        informer.list(before.map(|version| object("odd", version, "")), 1);
        source.begin(key("odd"), |_| ()).wrote(object("odd", 2, ""));
        let read = || {
            let one = source.get(&key("odd")).map(|object| object.version().0);
            (one, names(&source.list(None)), source.known(Within::Object(&key("odd"))))
        };
        let as_made = (Some(2), vec!["n/odd@2".to_owned()], Ok(()));
        assert_eq!(read(), as_made, "{before:?}");
        source.before_list(None);
        informer.writer.start_list();
        informer.writer.quarantine(Some(&key("odd")));
        informer.writer.finish_list(Version(5));
        assert_eq!(told(&source.after_list(None)), NOBODY);
        assert_eq!(read(), as_made, "{before:?}");
        informer.event(Event::Bookmark(Version(7)));
        assert_eq!((told(&source.passed(None)), read()), (vec![], as_made), "{before:?}");
        // What comes next of it counts, and the next list says that it is gone.
        let mut after = Informer { source: &source, place: None, writer: informer.writer, asks: true };
        if before.is_some() {
            assert_eq!(after.applied(object("odd", 9, "")), ["n/odd changed"]);
            assert_eq!(read().0, Some(9));
        }
        let gone = after.list([], 12);
        let last = if before.is_some() { 9 } else { 2 };
        assert_eq!(gone, [format!("n/odd deleted@{last}?")]);
        assert_eq!(read(), (None, vec![], Ok(())), "{before:?}");
        assert!(source.state.read().overlay.is_empty());
    }
}

#[test]
fn what_only_the_cache_before_could_read_is_told_as_gone_when_it_is_deleted() {
    // PO-3, OV-5
    for newer in [false, true] {
        let source = primaries();
        Informer::new(&source, None).list([object("odd", 3, "")], 5);
        let mut writer = Writer::default();
        writer.start_list();
        writer.quarantine(Some(&key("odd")));
        writer.finish_list(Version(9));
        assert_eq!(told(&source.attach(None, writer.cache())), NOBODY);
        assert_eq!(names(&source.list(None)), ["n/odd@3"]);
        assert_eq!(writer.lose(&key("odd")), None);
        if newer {
            source.put(object("odd", 12, ""));
        }
        let (gone, left): (&[&str], &[&str]) = if newer { (&[], &["n/odd@12"]) } else { (&["n/odd deleted@3?"], &[]) };
        assert_eq!(told(&source.lost(&key("odd"))), gone, "{newer}");
        assert_eq!(names(&source.list(None)), left, "{newer}");
        assert_eq!(told(&source.lost(&key("odd"))), NOBODY, "{newer}");
        assert_eq!(told(&source.lost(&ObjectRef::namespaced("elsewhere", "x"))), NOBODY);
    }
}

#[test]
fn that_a_primary_is_gone_is_told_before_what_comes_under_its_name() {
    // FW-2, FW-6
    let source = primaries();
    let mut informer = Informer::new(&source, None);
    informer.applied(object("a", 1, ""));
    let told_late = Told::default();
    let write = source.begin(key("a"), told_late.teller());
    assert_eq!(informer.applied(object("a", 2, "")), NOBODY);
    assert_eq!(informer.event(Event::Deleted(object("a", 3, ""))), ["n/a deleted@3"]);
    assert_eq!(informer.applied(object("a", 4, "")), NOBODY);
    drop(write);
    assert_eq!(told_late.take(), ["n/a changed"]);
    assert!(source.state.read().windows.is_empty());
}

#[test]
fn what_was_held_about_a_ghost_is_not_told_besides() {
    // OV-5: deleted at 3, made again by us at 4, deleted again unseen.
    let source = secondaries();
    let mut informer = Informer::new(&source, None);
    informer.applied(owned("a", 1, "p"));
    source.begin(key("a"), |_| ()).wrote(owned("a", 4, "p"));
    assert_eq!(informer.event(Event::Deleted(owned("a", 3, "p"))), NOBODY);
    assert_eq!(informer.list([], 9), ["n/p related"]);
    assert!(source.state.read().windows.is_empty());
}

#[test]
fn what_a_full_cache_leaves_out_is_not_kept_elsewhere_nor_taken_for_deleted() {
    let source = primaries();
    let mut writer = Writer::bounded(1);
    assert_eq!(source.attach(None, writer.cache()), []);
    source.begin(key("a"), |_| ()).wrote(object("a", 2, ""));
    assert!(source.get(&key("a")).is_some(), "it may still come");
    source.before_list(None);
    writer.start_list();
    for name in ["a", "b"] {
        assert_eq!(writer.list_item(object(name, 2, "")), None);
    }
    assert_eq!(writer.finish_list(Version(3)), []);
    assert_eq!(source.after_list(None), []);
    assert_eq!(source.get(&key("a")), None);
    source.begin(key("b"), |_| ()).wrote(object("b", 4, ""));
    let doubt = source.known(Within::Object(&key("b"))).unwrap_err();
    assert!(doubt.is_of_own_write(), "it may come with a list that is under way: {doubt}");
    writer.apply(Event::Bookmark(Version(4)));
    assert_eq!(source.passed(None), []);
    assert!(source.state.read().overlay.is_empty());
}

#[test]
fn what_was_written_is_read_though_the_cache_has_no_room_for_it() {
    // OV-3
    let source = secondaries();
    let mut writer = Writer::bounded(2_000);
    writer.start_list();
    writer.list_item(owned("s", 1, "p"));
    writer.finish_list(Version(1));
    source.attach(None, writer.cache());
    let large = |version| {
        let small = owned("s", version, "p");
        let json = small.json().replacen('{', &format!("{{\"filler\":{:?},", "x".repeat(10_000)), 1);
        Object::parse(&json, &gvk("Page"), &Managers::default()).unwrap()
    };
    source.begin(key("s"), |_| ()).wrote(large(5));
    assert_eq!(writer.apply(Event::Applied(large(5))), None);
    writer.apply(Event::Bookmark(Version(6)));
    source.passed(None);
    for read in [source.list(None), source.related(&key("p")), Vec::from_iter(source.get(&key("s")))] {
        assert_eq!(names(&read), ["n/s@5"]);
    }
    let change = writer.apply(Event::Applied(owned("s", 7, "p"))).unwrap();
    source.on(change);
    assert_eq!((names(&source.list(None)), source.own_writes()), (vec!["n/s@7".to_owned()], 0));
}

#[test]
fn a_deletion_missed_by_the_watch_is_told_though_an_echo_is_awaited() {
    let source = primaries();
    let mut informer = Informer::new(&source, None);
    informer.applied(object("a", 1, ""));
    source.begin(key("a"), |_| ()).wrote(object("a", 2, ""));
    assert_eq!(informer.list([], 5), ["n/a deleted@1?"]);
    let state = source.state.read();
    assert!(state.windows.is_empty() && state.overlay.is_empty());
}

#[test]
fn a_list_of_one_namespace_says_nothing_of_another() {
    let source = primaries();
    let mut informer = Informer::new(&source, Some("n"));
    let _other = Informer::new(&source, Some("m"));
    informer.applied(object("a", 1, ""));
    source.begin(key("a"), |_| ()).wrote(object("a", 2, ""));
    source.before_list(Some("m"));
    assert_eq!(informer.applied(object("a", 2, "")), NOBODY, "not tagged: only m is being listed");
    source.put(object("b", 7, ""));
    assert_eq!(source.after_list(Some("m")), []);
    assert_eq!(names(&source.list(Some("n"))), ["n/a@2", "n/b@7"]);
}

#[test]
fn a_cache_only_write_is_read_at_once_and_its_event_is_told() {
    // RO-3
    let source = secondaries();
    let mut informer = Informer::new(&source, None);
    source.put(owned("s", 2, "p"));
    assert_eq!(names(&source.related(&key("p"))), ["n/s@2"]);
    assert_eq!(informer.applied(owned("s", 2, "p")), ["n/p related"]);
    assert!(source.state.read().overlay.is_empty());
}

#[test]
fn an_answer_about_another_object_awaits_no_echo() {
    let source = secondaries();
    let mut informer = Informer::new(&source, None);
    source.begin(key("asked"), |_| ()).wrote(owned("answered", 2, "p"));
    assert!(source.state.read().windows.is_empty());
    assert_eq!(informer.applied(owned("answered", 2, "p")), ["n/p related"]);
}

#[test]
fn an_index_answers_as_own_writes_left_things() {
    // IX-1, IX-2
    let configured = |name: &str, version: u64, config: &str| {
        let metadata = format!(r#""namespace":"n","name":"{name}","resourceVersion":"{version}""#);
        parse(&metadata, &format!(r#","spec":{{"config":{config}}}"#))
    };
    let source = source(Role::Primary, Filter::default(), &[("by-config", "/spec/config")]);
    let mut informer = Informer::new(&source, None);
    informer.applied(configured("a", 1, r#""x""#));
    informer.applied(configured("b", 2, r#"["x","y"]"#));
    informer.applied(configured("c", 3, r#""x""#));
    informer.event(Event::Deleted(configured("c", 4, r#""x""#)));
    let by = |key: &str| names(&source.by_index("by-config", key).unwrap());
    assert_eq!((by("x"), by("y")), (vec!["n/a@1".to_owned(), "n/b@2".to_owned()], vec!["n/b@2".to_owned()]));
    source.put(configured("a", 5, r#""y""#));
    source.put(configured("d", 6, r#""x""#));
    assert_eq!(by("x"), ["n/b@2", "n/d@6"]);
    assert_eq!(by("y"), ["n/a@5", "n/b@2"]);
    informer.applied(configured("a", 5, r#""y""#));
    informer.applied(configured("d", 6, r#""x""#));
    informer.applied(configured("b", 7, r#""z""#));
    assert!(source.state.read().overlay.is_empty());
    assert_eq!(["x", "y", "z"].map(by), [["n/d@6"], ["n/a@5"], ["n/b@7"]]);
    let error = source.by_index("by-size", "x").unwrap_err();
    assert_eq!(error.to_string(), "the source test has no index by-size");
}

/// Returns a secondary `name` that has `key` as its field `/spec/key`.
fn keyed(name: &str, version: u64, key: &str) -> Object {
    let metadata = format!(r#""namespace":"n","name":"{name}","resourceVersion":"{version}""#);
    parse(&metadata, &format!(r#","spec":{{"key":"{key}"}}"#))
}

#[test]
fn an_index_of_primaries_leads_from_secondaries_to_primaries_and_back() {
    // IM-4, IM-5, IX-2
    let primaries = Arc::new(source(Role::Primary, Filter::default(), &[("by-key", "/spec/key")]));
    let by = ByIndex { name: "by-key".into(), key: keys("/metadata/name") };
    let mapper = Mapper::new(gvk("Page"), Scope::Namespaced, Declared::Index(by));
    let secondaries = source(Role::Secondary(mapper), Filter::default(), &[]).beside(&primaries);
    let (mut pages, mut maps) = (Informer::new(&primaries, None), Informer::new(&secondaries, None));
    assert_eq!(maps.applied(object("s", 1, "")), NOBODY, "nobody names it yet");
    pages.applied(keyed("p", 2, "s"));
    pages.applied(keyed("q", 3, "s"));
    pages.applied(parse(r#""namespace":"m","name":"r","resourceVersion":"4""#, r#","spec":{"key":"s"}"#));
    assert_eq!(names(&secondaries.related(&key("p"))), ["n/s@1"], "what came before its primary is found");
    assert!(secondaries.relates(&object("s", 1, ""), &key("q")));
    let elsewhere = ObjectRef::namespaced("m", "r");
    assert_eq!(secondaries.related(&elsewhere), [], "of another namespace");
    assert_eq!(maps.applied(object("s", 5, "")), ["n/p related", "n/q related"]);
    pages.applied(keyed("q", 6, "t"));
    assert_eq!(maps.applied(object("s", 7, "")), ["n/p related"]);
    assert_eq!(secondaries.related(&key("q")), []);
    assert_eq!(maps.event(Event::Deleted(object("s", 8, ""))), ["n/p related"]);
    assert_eq!(secondaries.related(&key("p")), []);
    assert!(secondaries.state.read().related.is_empty());
    assert!(secondaries.by_index(relation::MAPPED, "s").is_err(), "nobody has declared it");
}

#[test]
fn expressions_are_not_asked_again_about_what_the_caches_have() {
    // IX-1
    let cel = |text: &str| Keys::Cel(Expression::parse(text, &["object"]).unwrap());
    let mapper = Mapper::new(gvk("Page"), Scope::Namespaced, Declared::Named(cel("object.spec.key")));
    let failed = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&failed);
    // Each look at it is a failure more.
    let indexes = [("fails".into(), cel("object.spec.key + 1")), ("by-key".into(), cel("object.spec.key"))];
    let source = Source::new(Spec {
        indexes: indexes.into(),
        fields: Fields::whole(),
        bounded: None,
        packed: false,
        faults: Arc::new(Faults::new("c", move |_| *counted.lock() += 1)),
        ..source(Role::Secondary(mapper), Filter::default(), &[]).spec().clone()
    });
    let mut informer = Informer::new(&source, None);
    informer.applied(keyed("s", 1, "p"));
    informer.applied(keyed("t", 2, "p"));
    let after = *failed.lock();
    for _ in 0..3 {
        assert_eq!(names(&source.by_index("by-key", "p").unwrap()), ["n/s@1", "n/t@2"]);
        assert_eq!(names(&source.related(&key("p"))), ["n/s@1", "n/t@2"]);
        assert_eq!(source.by_index("fails", "p").unwrap(), []);
    }
    assert_eq!(*failed.lock(), after);
    // Deleted under another key, and made again.
    informer.event(Event::Deleted(keyed("t", 4, "q")));
    informer.applied(keyed("t", 5, "r"));
    assert_eq!(names(&source.by_index("by-key", "p").unwrap()), ["n/s@1"]);
    assert_eq!(names(&source.related(&key("r"))), ["n/t@5"]);
    // What was written is not in the caches yet.
    source.put(keyed("s", 6, "q"));
    assert_eq!(source.by_index("by-key", "p").unwrap(), []);
    assert_eq!(names(&source.by_index("by-key", "q").unwrap()), ["n/s@6"]);
    assert_eq!(names(&source.related(&key("q"))), ["n/s@6"]);
}

#[test]
fn where_events_come_in_no_expression_is_asked() {
    // IS-1, IM-5
    let source = asking("object.metadata.name != 's'");
    let mut informer = Informer { asks: false, ..Informer::new(&source, None) };
    assert_eq!(informer.applied(owned("s", 1, "p")), NOBODY);
    assert_eq!(informer.applied(owned("t", 2, "p")), NOBODY);
    assert_eq!(informer.applied(owned("t", 3, "q")), NOBODY);
    assert_eq!(names(&source.related(&key("p"))), ["n/s@1"], "reads do not wait");
    informer.asks = true;
    assert_eq!(told(&informer.asked()), ["n/q related"], "the two changes of t are one");
    assert_eq!(informer.applied(owned("t", 4, "p")), ["n/p related", "n/q related"]);
    // A source that continues from it has to say what this one has not said.
    informer.asks = false;
    assert_eq!(informer.event(Event::Deleted(owned("t", 5, "p"))), NOBODY);
    let heir = Source::heir(source.spec().clone(), &source);
    assert_eq!(heir.attach(None, informer.writer.cache()), []);
    source.hand_over(&[&heir]);
    assert!(ask(&source).is_none());
    let heir = Informer { source: &heir, place: None, writer: informer.writer, asks: true };
    assert_eq!(told(&heir.asked()), ["n/p related"]);
    assert_eq!(names(&heir.source.related(&key("p"))), ["n/s@1"]);
}

#[test]
fn each_of_those_that_go_on_from_one_source_tells_of_what_that_has_put_off() {
    // PO-3
    let source = asking("true");
    let mut informer = Informer { asks: false, ..Informer::new(&source, None) };
    informer.applied(owned("s", 1, "p"));
    informer.applied(owned("t", 2, "q"));
    informer.event(Event::Deleted(owned("t", 3, "q")));
    let heirs = [(); 2].map(|()| Source::heir(source.spec().clone(), &source));
    for heir in &heirs {
        assert_eq!(heir.attach(None, informer.writer.cache()), []);
    }
    source.hand_over(&[&heirs[0], &heirs[1]]);
    assert!(ask(&source).is_none());
    for source in &heirs {
        let heir = Informer { source, place: None, writer: Writer::default(), asks: true };
        assert_eq!(told(&heir.asked()), ["n/p related", "n/q related"]);
        assert_eq!(names(&source.related(&key("p"))), ["n/s@1"]);
    }
}

#[test]
fn no_question_about_one_sort_of_changes_decides_about_several() {
    // IS-1
    let no = |variables: &[&'static str]| Some(Question::Cel(Expression::parse("false", variables).unwrap()));
    let no_additions = || Filters { on_add: no(&["object"]), ..Filters::default() };
    let no_updates = || Filters { on_update: no(&["object", "oldObject"]), ..Filters::default() };
    let (there, gone) =
        (|version| Event::Applied(owned("s", version, "p")), |version| Event::Deleted(owned("s", version, "p")));
    for (case, filters, before, events, passes) in [
        ("added", no_additions(), vec![], vec![there(1)], false),
        ("added, then updated", no_additions(), vec![], vec![there(1), there(2)], true),
        ("updated", no_updates(), vec![there(1)], vec![there(2), there(3)], false),
        ("made again", no_updates(), vec![there(1)], vec![gone(2), there(3)], true),
    ] {
        let mapper = Mapper::new(gvk("Page"), Scope::Namespaced, Declared::OwnerReference);
        let source = source(Role::Secondary(mapper), Filter::secondary(filters), &[]);
        let mut informer = Informer::new(&source, None);
        for event in before {
            informer.event(event);
        }
        informer.asks = false;
        for event in events {
            assert_eq!(informer.event(event), NOBODY, "{case}");
        }
        informer.asks = true;
        assert_eq!(!informer.asked().is_empty(), passes, "{case}");
    }
}

#[test]
fn what_has_gone_without_room_to_wait_in_concerns_all_whom_it_may() {
    // IM-5
    let primaries = Arc::new(source(Role::Primary, Filter::default(), &[("by-key", "/spec/key")]));
    let name = Keys::Cel(Expression::parse("object.metadata.name", &["object"]).unwrap());
    let by = ByIndex { name: "by-key".into(), key: name };
    let mapper = Mapper::new(gvk("Page"), Scope::Namespaced, Declared::Index(by));
    let secondaries = source(Role::Secondary(mapper), Filter::default(), &[]).beside(&primaries);
    let (mut pages, maps) = (Informer::new(&primaries, None), Informer::new(&secondaries, None));
    let mut maps = Informer { asks: false, ..maps };
    pages.applied(keyed("p", 1, "s"));
    pages.applied(keyed("q", 2, "t"));
    let large = "x".repeat(1 << 20);
    for (name, version) in [("s", 3), ("t", 4), ("u", 5), ("v", 6)] {
        maps.applied(keyed(name, version, &large));
        maps.applied(keyed(name, version + 10, &large));
    }
    let gone: Vec<_> = [("s", 23), ("t", 24), ("u", 25), ("v", 26)]
        .map(|(name, at)| maps.event(Event::Deleted(keyed(name, at, &large))))
        .concat();
    assert_eq!(gone, NOBODY, "nothing is asked here");
    maps.asks = true;
    let told_of = told(&maps.asked());
    assert!(["n/p related", "n/q related"].iter().all(|told| told_of.contains(&(*told).to_owned())), "{told_of:?}");
    assert!(
        secondaries.state.read().backlog.len() == 0 && secondaries.state.read().indexes.values().all(Lookup::is_empty)
    );
}

#[tokio::test]
async fn an_index_that_is_behind_is_waited_for_before_secondaries_are_asked_by_it() {
    // IX-2
    let cel = Keys::Cel(Expression::parse("object.spec.key", &["object"]).unwrap());
    let plain = source(Role::Primary, Filter::default(), &[]).spec().clone();
    let primaries = Arc::new(Source::new(Spec { indexes: [("by-key".into(), cel)].into(), ..plain }));
    let by = ByIndex { name: "by-key".into(), key: keys("/metadata/name") };
    let mapper = Mapper::new(gvk("Page"), Scope::Namespaced, Declared::Index(by));
    let secondaries = source(Role::Secondary(mapper), Filter::default(), &[]).beside(&primaries);
    let late = |informer| Informer { asks: false, ..informer };
    let (mut pages, mut maps) = (late(Informer::new(&primaries, None)), late(Informer::new(&secondaries, None)));
    pages.applied(keyed("p", 1, "s"));
    assert_eq!(maps.applied(object("s", 2, "")), NOBODY);
    let told_of = Arc::new(Mutex::new(Vec::new()));
    let tell: Listener = Arc::new({
        let told_of = Arc::clone(&told_of);
        move |triggers| told_of.lock().extend(told(&triggers))
    });
    let nobody = Fake::default();
    let mut answers = Box::pin(secondaries.answer(&tell, &nobody));
    assert!(answers.as_mut().now_or_never().is_none(), "the index is behind");
    ask(&primaries);
    answers.await;
    assert_eq!(*told_of.lock(), ["n/p related"]);
}

#[test]
fn an_informer_that_is_about_to_be_left_says_nothing_about_what_another_one_shows() {
    // NS-2, OV-1
    let source = secondaries();
    let (mut one, mut all) = (Informer::new(&source, Some("n")), Writer::default());
    all.apply(Event::Applied(owned("s", 1, "p")));
    one.applied(owned("s", 1, "p"));
    source.begin(key("s"), |_| ()).wrote(owned("s", 5, "p"));
    assert_eq!(source.attach(None, all.cache()), []);
    // The one that is left is ahead: what it shows is not in the cache that is read now.
    assert_eq!(one.applied(owned("s", 5, "p")), NOBODY);
    assert_eq!(source.get(&key("s")).map(|object| object.version()), Some(Version(5)));
    // And behind: what it says is over.
    let told_now = |change: Option<Change>| told(&change.map(|change| source.on(change)).unwrap_or_default());
    assert_eq!(told_now(all.apply(Event::Applied(owned("s", 5, "p")))), NOBODY);
    assert_eq!(told_now(all.apply(Event::Deleted(owned("s", 6, "p")))), ["n/p related"]);
    assert_eq!(told_now(all.apply(Event::Applied(owned("s", 7, "p")))), ["n/p related"]);
    assert_eq!(one.event(Event::Deleted(owned("s", 6, "p"))), NOBODY);
}

#[test]
fn what_was_made_again_or_has_gone_while_its_namespace_could_not_be_read_is_told_as_that() {
    // NS-2, ID-1
    let page = |name: &str, version: u64, uid: &str| object(name, version, &format!(r#","uid":"{uid}""#));
    let all = [page("stays", 1, "s"), page("again", 2, "old"), page("gone", 3, "g")];
    let now = || {
        let mut writer = Writer::default();
        writer.start_list();
        for object in [page("stays", 1, "s"), page("again", 8, "new"), page("new", 9, "n")] {
            writer.list_item(object);
        }
        writer.finish_list(Version(10));
        writer.cache()
    };
    let lacking = || BTreeMap::from([(Some(Arc::from("n")), Arc::from("forbidden"))]);
    let noticed = ["n/again deleted@2?", "n/again changed", "n/new changed", "n/stays changed", "n/gone deleted@3?"];
    let unnoticed = ["n/again changed", "n/new changed", "n/stays changed"];
    for (lacks, expected) in [(lacking(), &noticed[..]), (BTreeMap::new(), &unnoticed[..])] {
        let source = primaries();
        Informer::new(&source, Some("n")).list(all.clone(), 5);
        source.lacking(lacks);
        assert_eq!(source.detach(Some("n")).len(), 3);
        assert_eq!(told(&source.attach(Some("n"), now())), expected);
    }
    let source = primaries();
    Informer::new(&source, Some("n")).list(all, 5);
    source.awaits(Some("n"));
    source.lacking(BTreeMap::new());
    assert_eq!(told(&source.attach(Some("n"), now())), noticed, "it waits for other fields");
}

#[test]
fn what_went_while_a_source_waited_for_fields_may_have_concerned_anybody() {
    // BC-2
    let pages = Arc::new(primaries());
    let mut informer = Informer::new(&pages, None);
    informer.applied(object("p", 1, ""));
    let source = secondaries().beside(&pages);
    Informer::new(&source, Some("n")).applied(owned("s", 2, "p"));
    source.awaits(Some("n"));
    let mut now = Writer::default();
    now.start_list();
    now.finish_list(Version(9));
    assert_eq!(source.attach(Some("n"), now.cache()), []);
    assert_eq!(told(&ask(&source).unwrap()), ["n/p related"]);
    assert!(ask(&source).is_none());
}

#[tokio::test]
async fn a_run_does_not_wait_for_what_has_gone_with_its_namespace() {
    // NS-2
    let source = asking("true");
    let mut informer = Informer { asks: false, ..Informer::new(&source, Some("n")) };
    informer.applied(owned("s", 1, "p"));
    let mut waits = Box::pin(source.settled());
    assert!(waits.as_mut().now_or_never().is_none());
    source.detach(Some("n"));
    waits.await;
}

#[tokio::test]
async fn a_run_can_wait_for_what_was_there_when_it_began() {
    // IX-2
    let source = asking("true");
    source.settled().await;
    let mut informer = Informer { asks: false, ..Informer::new(&source, None) };
    informer.applied(owned("s", 1, "p"));
    let settled = || source.settled().now_or_never().is_some();
    assert!(!settled());
    let mut waits = Box::pin(source.settled());
    assert!(waits.as_mut().now_or_never().is_none());
    informer.applied(owned("t", 2, "p"));
    assert!(ask(&source).is_some());
    waits.await;
    assert!(!settled(), "t came before this");
    let told_of = Arc::new(Mutex::new(Vec::new()));
    let tell: Listener = Arc::new({
        let told_of = Arc::clone(&told_of);
        move |triggers| told_of.lock().extend(told(&triggers))
    });
    source.has_questions().await;
    source.answer(&tell, &Fake::default()).await;
    assert!(settled());
    assert_eq!(*told_of.lock(), ["n/p related"]);
}

#[tokio::test]
async fn a_run_does_not_wait_for_what_was_passed_on_without_a_question() {
    // IX-2
    let source = asking("true");
    let mut informer = Informer { asks: false, ..Informer::new(&source, None) };
    let large = |n: u64, version: u64| {
        let owner = r#""ownerReferences":[{"apiVersion":"x.dev/v1","kind":"Page","name":"p","uid":"u"}]"#;
        let named = format!(r#""namespace":"n","name":"s{n}","resourceVersion":"{version}",{owner}"#);
        parse(&named, &format!(r#","data":"{}""#, "x".repeat(1 << 20)))
    };
    for n in 1..=6 {
        informer.applied(large(n, n));
    }
    while ask(&source).is_some() {}
    let at_once: Vec<_> = (1..=6).flat_map(|n| informer.event(Event::Deleted(large(n, 10 + n)))).collect();
    assert_eq!(at_once, ["n/p related"; 3], "there is room for three");
    let mut waits = Box::pin(source.settled());
    assert!(waits.as_mut().now_or_never().is_none());
    while ask(&source).is_some() {
        assert!(waits.as_mut().now_or_never().is_none());
    }
    waits.await;
}

#[test]
fn what_has_gone_and_come_back_while_it_waits_counts_whatever_it_was_before() {
    // CF-1, IS-1
    let any = Some(Question::Cel(Expression::parse("true", &["object"]).unwrap()));
    let filter = PrimaryFilter { generation_aware: true, finalizer: Some("x.dev/f".into()) };
    let source = source(Role::Primary, Filter::primary(filter, Filters { generic: any, ..Filters::default() }), &[]);
    let mut informer = Informer { asks: false, ..Informer::new(&source, None) };
    let page = |version: u64, generation: u64, more: &str| {
        object("p", version, &format!(r#","uid":"u","generation":{generation},"finalizers":["x.dev/f"]{more}"#))
    };
    let deleting = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
    informer.applied(page(1, 1, ""));
    assert_eq!(told(&Informer { asks: true, ..informer }.asked()), ["n/p changed"]);
    let mut informer = Informer { asks: false, ..Informer::new(&source, None) };
    informer.applied(page(1, 1, ""));
    while ask(&source).is_some() {}
    informer.applied(page(2, 2, deleting));
    informer.event(Event::Deleted(page(3, 2, deleting)));
    informer.applied(page(4, 2, deleting));
    informer.asks = true;
    assert_eq!(told(&informer.asked()), ["n/p deleting"]);
}

#[test]
fn what_belongs_to_no_namespace_is_found_while_it_waits() {
    // IM-6
    let mapper = Mapper::new(gvk("Page"), Scope::Namespaced, Declared::Annotations(MappingKeys::default()));
    let any = Some(Question::Cel(Expression::parse("true", &["object"]).unwrap()));
    let source =
        source(Role::Secondary(mapper), Filter::secondary(Filters { generic: any, ..Filters::default() }), &[]);
    let mut informer = Informer { asks: false, ..Informer::new(&source, None) };
    let notes = ["type\":\"x.dev/v1/Page", "name\":\"p", "namespace\":\"n"];
    let notes = notes.map(|note| format!("\"capstan.dev/primary-{note}\"")).join(",");
    informer.applied(parse(&format!(r#""name":"wide","resourceVersion":"1","annotations":{{{notes}}}"#), ""));
    assert_eq!(names(&source.related(&key("p"))), ["wide@1"], "it waits to be asked about");
    while ask(&source).is_some() {}
    assert_eq!(names(&source.related(&key("p"))), ["wide@1"]);
}

#[test]
fn what_has_found_no_room_in_the_look_ups_is_found_once_it_has() {
    // IX-2, IM-6
    let room = Room::new(0);
    let source = secondaries().charging(|| Some(room.holding(&"p".into())));
    let mut informer = Informer::new(&source, None);
    informer.applied(owned("s", 1, "p"));
    {
        // As if there had been no room.
        let mut state = source.state.write();
        state.related.moved(&key("s"), &BTreeSet::from([key("p")]), &BTreeSet::new());
        state.unkeyed.insert(key("s"));
    }
    assert_eq!(names(&source.related(&key("p"))), ["n/s@1"], "a read asks it");
    informer.applied(owned("s", 2, "p"));
    assert_eq!((names(&source.related(&key("p"))), source.state.read().unkeyed.len()), (vec!["n/s@2".to_owned()], 0));
    source.state.write().unkeyed.insert(key("s"));
    assert!(source.key_again(None).is_some());
    assert_eq!(told(&informer.asked()), NOBODY);
    assert_eq!((names(&source.related(&key("p"))), source.state.read().unkeyed.len()), (vec!["n/s@2".to_owned()], 0));
}

#[test]
fn what_finds_no_room_to_wait_in_is_passed_on_without_a_question() {
    // IS-1, IM-5
    let room = Room::new(0);
    let pages = Arc::new(source(Role::Primary, Filter::default(), &[]));
    Informer::new(&pages, None).applied(object("p", 1, ""));
    let source = asking("false").beside(&pages).charging(|| Some(room.holding(&"p".into())));
    let mut informer = Informer { asks: false, ..Informer::new(&source, None) };
    let waiting = || source.state.read().backlog.len();
    let mut version = 1;
    while waiting() == usize::try_from(version - 1).unwrap() {
        version += 1;
        assert!(version < 10_000, "all find room");
        assert_eq!(informer.applied(owned(&format!("s{version}"), version, "p")), NOBODY, "nothing is asked here");
    }
    let most = waiting();
    assert_eq!(source.state.read().unkeyed.len(), 1);
    informer.applied(owned("s2", version + 1, "p"));
    assert_eq!((waiting(), source.state.read().unkeyed.len()), (most, 1), "it waits already");
    informer.asks = true;
    assert_eq!(told(&informer.asked()), ["n/p related"], "whoever it may concern");
    assert_eq!(source.related(&key("p")).len(), most + 1);
    // Once there is room, it has keys like any other.
    for gone in 2..100 {
        informer.event(Event::Deleted(owned(&format!("s{gone}"), version + gone, "p")));
    }
    assert!(source.key_again(None).is_some());
    assert_eq!(told(&informer.asked()), NOBODY);
    assert_eq!((waiting(), source.state.read().unkeyed.len()), (0, 0));
}

#[test]
fn a_primary_that_finds_no_room_to_wait_in_runs_whatever_the_filter_would_say() {
    // IS-1
    let room = Room::new(0);
    let no = Some(Question::Cel(Expression::parse("false", &["object"]).unwrap()));
    let filter = Filter::primary(
        PrimaryFilter { generation_aware: true, finalizer: None },
        Filters { generic: no, ..Filters::default() },
    );
    let source = source(Role::Primary, filter, &[]).charging(|| Some(room.holding(&"p".into())));
    let mut informer = Informer { asks: false, ..Informer::new(&source, None) };
    let mut version = 0;
    let passed = loop {
        version += 1;
        assert!(version < 10_000, "all find room");
        let passed = informer.applied(object(&format!("p{version}"), version, ""));
        if !passed.is_empty() {
            break passed;
        }
    };
    assert_eq!(passed, [format!("n/p{version} changed")]);
    assert_eq!(informer.event(Event::Deleted(object(&format!("p{version}"), version + 1, ""))).len(), 1);
    informer.asks = true;
    assert_eq!(told(&informer.asked()), NOBODY);
    assert!(source.state.read().unkeyed.is_empty());
}

#[test]
fn what_finds_no_room_in_the_look_ups_is_asked_at_each_read() {
    // IX-2
    let room = Room::new(0);
    let by_key = source(Role::Primary, Filter::default(), &[("by-key", "/spec/key")]);
    let source = by_key.charging(|| Some(room.holding(&"p".into())));
    let mut informer = Informer::new(&source, None);
    let long = "x".repeat(300 << 10);
    for (name, version) in [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)] {
        informer.applied(keyed(name, version, &long));
    }
    let keyed_now = |source: &Source| source.state.read().indexes.values().map(Lookup::len).sum::<usize>();
    assert_eq!((keyed_now(&source), source.state.read().unkeyed.len()), (3, 2));
    assert_eq!(source.by_index("by-key", &long).unwrap().len(), 5);
    // Where there is room again, it is used.
    informer.event(Event::Deleted(keyed("a", 6, &long)));
    informer.applied(keyed("e", 7, &long));
    informer.event(Event::Deleted(keyed("d", 8, &long)));
    assert_eq!((keyed_now(&source), source.state.read().unkeyed.len()), (3, 0));
    assert_eq!(names(&source.by_index("by-key", &long).unwrap()), ["n/b@2", "n/c@3", "n/e@7"]);
}

#[test]
fn a_read_does_not_ask_about_many_objects() {
    // IX-2
    let source = asking("true");
    let mut informer = Informer { asks: false, ..Informer::new(&source, None) };
    let many: Vec<_> = (1..=1001).map(|n| owned(&format!("s{n:04}"), n, "p")).collect();
    informer.list(many, 2000);
    let doubt = source.known(Within::Related(&key("p"))).unwrap_err().to_string();
    assert!(doubt.ends_with("changes of 1001 objects wait to be asked about"), "{doubt}");
    let doubt = source.known(Within::Indexed).unwrap_err().to_string();
    assert!(doubt.ends_with("changes of 1001 objects wait to be asked about"), "{doubt}");
    for within in [Within::Object(&key("s0001")), Within::Namespace("n"), Within::Everywhere] {
        assert_eq!(source.known(within), Ok(()), "{within:?} is found without them");
    }
    assert_eq!(source.known(Within::Related(&ObjectRef::namespaced("m", "p"))), Ok(()), "they are of others");
    ask(&source);
    assert_eq!(source.known(Within::Related(&key("p"))), Ok(()));
    assert_eq!(source.related(&key("p")).len(), 1001);
}

#[tokio::test(start_paused = true)]
async fn a_read_waits_until_it_has_no_more_to_ask_about_than_it_may_but_not_for_ever() {
    // IX-2
    let source = asking("true");
    let mut informer = Informer { asks: false, ..Informer::new(&source, None) };
    let many: Vec<_> = (1..=1002).map(|n| owned(&format!("s{n:04}"), n, "p")).collect();
    informer.list(many, 2000);
    let start = Instant::now();
    for within in [Within::Object(&key("s0001")), Within::Related(&ObjectRef::namespaced("m", "p"))] {
        source.caught_up(within).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "{within:?}");
    }
    source.caught_up(Within::Indexed).await;
    assert!(start.elapsed() > Duration::ZERO && source.known(Within::Indexed).is_err());
    let begun = Instant::now();
    let asked = async {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            ask(&source);
        }
    };
    tokio::join!(source.caught_up(Within::Indexed), asked);
    assert_eq!((begun.elapsed(), source.known(Within::Indexed)), (Duration::from_millis(20), Ok(())));
}

#[test]
fn a_primary_can_name_its_secondaries_itself() {
    // IM-4, IM-6
    let cel = |text: &str, variable| Keys::Cel(Expression::parse(text, &[variable]).unwrap());
    let mapper = Mapper::new(gvk("Page"), Scope::Namespaced, Declared::Named(cel("object.spec.key", "object")));
    let mapper = mapper.led_by(Secondaries::Named(cel("[primary.spec.key, 'm/away']", "primary")), Scope::Namespaced);
    let primaries = Arc::new(primaries());
    let secondaries = source(Role::Secondary(mapper), Filter::default(), &[]).beside(&primaries);
    let (mut pages, mut maps) = (Informer::new(&primaries, None), Informer::new(&secondaries, None));
    assert_eq!(maps.applied(keyed("s", 1, "q")), ["n/q related"], "an object wakes whom it names");
    maps.applied(parse(r#""namespace":"m","name":"away","resourceVersion":"2""#, ""));
    pages.applied(keyed("p", 3, "s"));
    assert_eq!(names(&secondaries.related(&key("p"))), ["n/s@1"]);
    assert!(secondaries.relates(&keyed("s", 1, "q"), &key("p")));
    assert_eq!(secondaries.related(&key("q")), [], "there is no such primary");
    assert_eq!(secondaries.known(Within::Related(&key("p"))).map_err(|_| ()), Err(()), "not listed yet");
    maps.list([keyed("s", 4, "q")], 5);
    assert_eq!(secondaries.known(Within::Related(&key("p"))), Ok(()));
    pages.applied(parse(r#""namespace":"n","name":"p","resourceVersion":"6""#, r#","spec":{"key":7}"#));
    let doubt = secondaries.known(Within::Related(&key("p"))).unwrap_err().to_string();
    assert!(doubt.contains("its `secondaries` has no answer: the value of CEL expression"), "{doubt}");
}

#[test]
fn a_primary_whose_own_write_is_not_known_leads_nobody_knows_where() {
    // OV-1, IM-4
    let room = Room::new(0);
    let cel = |text: &str, variable| Keys::Cel(Expression::parse(text, &[variable]).unwrap());
    let mapper = Mapper::new(gvk("Page"), Scope::Namespaced, Declared::OwnerReference);
    let mapper = mapper.led_by(Secondaries::Named(cel("[primary.spec.key]", "primary")), Scope::Namespaced);
    let primaries = Arc::new(primaries().charging(|| Some(room.holding(&"p".into()))));
    let secondaries = source(Role::Secondary(mapper), Filter::default(), &[]).beside(&primaries);
    let (mut pages, mut maps) = (Informer::new(&primaries, None), Informer::new(&secondaries, None));
    pages.list([keyed("p", 1, "s")], 1);
    maps.list([object("s", 1, "")], 1);
    assert_eq!(secondaries.known(Within::Related(&key("p"))), Ok(()));
    let spec = format!(r#","spec":{{"key":"s","filler":{:?}}}"#, "x".repeat(2 << 20));
    primaries.put(parse(r#""namespace":"n","name":"p","resourceVersion":"2""#, &spec));
    let doubt = secondaries.known(Within::Related(&key("p"))).unwrap_err().to_string();
    assert!(doubt.contains("--plugin-memory"), "{doubt}");
    pages.event(Event::Deleted(keyed("p", 3, "s")));
    assert_eq!((secondaries.known(Within::Related(&key("p"))), secondaries.related(&key("p"))), (Ok(()), vec![]));
}

#[test]
fn an_own_write_is_found_although_the_source_is_not_told_yet_that_the_cache_has_it() {
    // OV-4
    let mapper = Mapper::new(gvk("Page"), Scope::Namespaced, Declared::OwnerReference);
    let source = source(Role::Secondary(mapper), Filter::default(), &[("by-name", "/metadata/name")]);
    let mut informer = Informer::new(&source, None);
    informer.applied(owned("s", 1, "p"));
    let found = || {
        let related = ["p", "q"].map(|owner| names(&source.related(&key(owner))));
        (related, ["s", "t"].map(|name| names(&source.by_index("by-name", name).unwrap())))
    };
    let moved = informer.writer.apply(Event::Applied(owned("s", 2, "q"))).unwrap();
    let made = informer.writer.apply(Event::Applied(owned("t", 3, "q"))).unwrap();
    source.put(owned("s", 2, "q"));
    source.begin(key("t"), |_| ()).wrote(owned("t", 3, "q"));
    let both = ["n/s@2".to_owned(), "n/t@3".to_owned()];
    let expected = ([vec![], both.to_vec()], both.map(|name| vec![name]));
    assert_eq!(found(), expected);
    for change in [moved, made] {
        source.on(change);
    }
    assert_eq!(found(), expected);
    for (name, version) in [("s", 4), ("t", 5)] {
        informer.event(Event::Deleted(owned(name, version, "q")));
    }
    let state = source.state.read();
    assert!(state.related.is_empty() && state.indexes.values().all(Lookup::is_empty));
}

#[test]
fn annotations_map_a_secondary_in_another_namespace() {
    // IM-2
    let mapper = Mapper::new(
        gvk("Page"),
        Scope::Namespaced,
        Declared::Annotations(MappingKeys { across_namespaces: true, ..MappingKeys::default() }),
    );
    let source = source(Role::Secondary(mapper), Filter::default(), &[]);
    let mut informer = Informer::new(&source, None);
    let tags = r#","annotations":{"capstan.dev/primary-name":"p","capstan.dev/primary-namespace":"m"}"#;
    assert_eq!(informer.applied(object("s", 1, tags)), ["m/p related"]);
    assert_eq!(names(&source.related(&ObjectRef::namespaced("m", "p"))), ["n/s@1"]);
    assert_eq!(informer.applied(object("s", 2, "")), ["m/p related"]);
    assert_eq!(source.related(&ObjectRef::namespaced("m", "p")), []);
}

// === the whole source, with a watch that is late ===

const SECONDARIES: [&str; 2] = ["s", "t"];
const OWNERS: [&str; 2] = ["p", "q"];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// We write a secondary for an owner, with a window; the answer comes after this number of further events.
    Own(usize, usize, usize),
    Put(usize, usize),
    Foreign(usize, usize),
    Delete(usize),
    Deliver,
    List,
    /// The source asks about what it has put off longest, if it has.
    Ask,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..2_usize, 0..2_usize, 0..4_usize).prop_map(|(object, owner, lag)| Step::Own(object, owner, lag)),
        1 => (0..2_usize, 0..2_usize).prop_map(|(object, owner)| Step::Put(object, owner)),
        1 => (0..2_usize, 0..2_usize).prop_map(|(object, owner)| Step::Foreign(object, owner)),
        1 => (0..2_usize).prop_map(Step::Delete),
        2 => Just(Step::Deliver),
        1 => Just(Step::List),
        2 => Just(Step::Ask),
    ]
}

struct World<'a> {
    version: u64,
    server: BTreeMap<&'static str, Object>,
    late: VecDeque<Event>,
    informer: Informer<'a>,
    told: Vec<String>,
}

impl World<'_> {
    fn write(&mut self, object: usize, owner: usize) -> Object {
        self.version += 1;
        let written = owned(SECONDARIES[object], self.version, OWNERS[owner]);
        self.server.insert(SECONDARIES[object], written.clone());
        self.late.push_back(Event::Applied(written.clone()));
        written
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Own(object, owner, lag) => {
                let source = self.informer.source;
                let told_late = Told::default();
                let write = source.begin(key(SECONDARIES[object]), told_late.teller());
                let answer = self.write(object, owner);
                (0..lag).for_each(|_| self.step(Step::Deliver));
                write.wrote(answer);
                self.told.extend(told_late.take());
            }
            Step::Put(object, owner) => {
                let answer = self.write(object, owner);
                self.informer.source.put(answer);
            }
            Step::Foreign(object, owner) => drop(self.write(object, owner)),
            Step::Delete(object) => {
                if let Some(last) = self.server.remove(SECONDARIES[object]) {
                    self.version += 1;
                    let owner = last.header().owners[0].name.clone();
                    self.late.push_back(Event::Deleted(owned(SECONDARIES[object], self.version, &owner)));
                }
            }
            Step::Deliver => {
                if let Some(event) = self.late.pop_front() {
                    let told = self.informer.event(event);
                    self.told.extend(told);
                }
            }
            Step::Ask => self.told.extend(told(&ask(self.informer.source).unwrap_or_default())),
            Step::List => {
                self.late.clear();
                let listed: Vec<_> = self.server.values().cloned().collect();
                let told = self.informer.list(listed, self.version);
                self.told.extend(told);
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_the_watch_does_a_source_ends_as_the_server(
        steps in prop::collection::vec(step(), 0..60),
        costly in any::<bool>(),
    ) {
        let source = if costly { asking("true") } else { secondaries() };
        let informer = Informer { asks: false, ..Informer::new(&source, None) };
        let mut world =
            World { version: 0, server: BTreeMap::new(), late: VecDeque::new(), informer, told: Vec::new() };
        for step in steps {
            world.step(step);
            // Whatever waits to be asked about: what is read is what is there.
            for owner in OWNERS {
                let of_owner = |object: &Object| *object.header().owners[0].name == *owner;
                let expected: Vec<_> = source.list(None).into_iter().filter(of_owner).collect();
                prop_assert_eq!(source.related(&key(owner)), expected);
            }
        }
        while !world.late.is_empty() {
            world.step(Step::Deliver);
        }
        world.informer.asks = true;
        drop(world.informer.asked());
        prop_assert_eq!(source.list(None), world.server.values().cloned().collect::<Vec<_>>());
        for owner in OWNERS {
            let of_owner = |object: &&Object| *object.header().owners[0].name == *owner;
            let expected: Vec<_> = world.server.values().filter(of_owner).cloned().collect();
            prop_assert_eq!(source.related(&key(owner)), expected);
        }
        // A last change of another client causes a trigger, whatever came before.
        world.told.clear();
        world.step(Step::Foreign(0, 0));
        world.step(Step::Deliver);
        prop_assert!(world.told.contains(&"n/p related".to_owned()));
        let state = source.state.read();
        prop_assert!(state.overlay.is_empty(), "{:?}", state.overlay);
        prop_assert_eq!(state.related.len(), world.server.len());
    }
}

#[test]
fn whoever_has_written_an_object_that_is_gone_unseen_is_told_beside_those_whose_it_was_before() {
    // IM-5, OV-5
    for costly in [false, true] {
        let source = if costly { asking("has(object.metadata.name)") } else { secondaries() };
        let mut informer = Informer::new(&source, None);
        informer.list([owned("s", 1, "q")], 1);
        source.put(owned("s", 3, "p"));
        let mut told = informer.list([], 5);
        told.sort();
        assert_eq!(told, ["n/p related", "n/q related"], "costly {costly}");
    }
}

/// How a primary has come to know that an object is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knows {
    /// It has written it.
    Wrote,
    /// It has written it, and its event may be somebody else's.
    Put,
    /// It was shown all of its objects.
    Related,
    /// It was shown the object that it has asked for.
    Got,
}

/// Lets a primary come to know an object, another client take that from it, and returns who is told of that.
fn robbed(source: &Source, knows: Knows, echo: bool, listed: bool, deleted: bool) -> Vec<String> {
    let mut informer = Informer { asks: false, ..Informer::new(source, None) };
    let made = owned("s", 2, "p");
    let mut told_of = Vec::new();
    match knows {
        Knows::Wrote => source.begin(key("s"), |_| ()).wrote(made.clone()),
        Knows::Put => source.put(made.clone()),
        Knows::Related | Knows::Got => {}
    }
    if echo || matches!(knows, Knows::Related | Knows::Got) {
        told_of.extend(informer.applied(made));
    }
    match knows {
        Knows::Related => assert_eq!(names(&source.related(&key("p"))), ["n/s@2"]),
        Knows::Got => source.was_shown(&source.get(&key("s")).unwrap(), &key("p")),
        Knows::Wrote | Knows::Put => {}
    }
    told_of.clear();
    let stranger = object("s", 3, "");
    if listed {
        let there = (!deleted).then_some(stranger);
        told_of.extend(informer.list(there, 4));
    } else {
        told_of.extend(informer.applied(stranger));
        if deleted {
            told_of.extend(informer.event(Event::Deleted(object("s", 4, ""))));
        }
    }
    told_of.extend(told(&Informer { asks: true, ..informer }.asked()));
    told_of
}

#[test]
fn whoever_has_written_or_read_an_object_as_its_own_is_told_when_it_is_not_any_more() {
    // IM-5, IS-1
    for costly in [false, true] {
        for knows in [Knows::Wrote, Knows::Put, Knows::Related, Knows::Got] {
            for (echo, listed, deleted) in (0..8).map(|n| (n & 1 != 0, n & 2 != 0, n & 4 != 0)) {
                let source = if costly { asking("has(object.metadata.name)") } else { secondaries() };
                let told = robbed(&source, knows, echo, listed, deleted);
                let case = format!("costly {costly}, {knows:?}, echo {echo}, listed {listed}, deleted {deleted}");
                assert_eq!(told.iter().filter(|told| *told == "n/p related").count(), 1, "{case}: {told:?}");
            }
        }
    }
}

#[test]
fn what_was_read_while_it_waited_and_has_changed_by_the_end_of_the_read_is_told() {
    // IM-5, IS-1
    let source = asking("has(object.metadata.name)");
    let mut informer = Informer::new(&source, None);
    informer.applied(owned("s", 2, "p"));
    informer.applied(object("s", 3, ""));
    source.were_shown([owned("s", 2, "q")].iter(), &key("q"));
    assert_eq!(told(&informer.asked()), ["n/q related"]);
    source.were_shown([object("s", 3, "")].iter(), &key("q"));
    assert_eq!(told(&informer.asked()), NOBODY, "it is as it was read");
}
