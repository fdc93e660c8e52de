//! Decides what a source shows of an object: the fields that it keeps, whatever others that read the same caches keep (BC).

use tokio::time::Instant;

use super::{Source, Spec};
use crate::object::fields::Fields;
use crate::object::{Change, Object};

impl Spec {
    /// Returns the fields that stay in the cache of each object, whatever is forgotten.
    pub fn stays(&self) -> &Fields {
        self.bounded.as_ref().map_or(&self.fields, |bounded| &bounded.stays)
    }
}

impl Source {
    /// Returns an object with the fields that the source keeps; `None` if the cache has not all of them: it may have kept less
    /// of the object before. A bounded source returns what stays of an object that it has forgotten.
    pub fn show(&self, object: &Object) -> Option<Object> {
        let fields = &self.spec.fields;
        if object.fields().covers(fields) {
            return Some(object.part(fields));
        }
        let stays = self.spec.stays();
        let found =
            object.fields().covers(stays).then(|| self.remembered(object).unwrap_or_else(|| object.part(stays)));
        found.filter(|_| self.spec.bounded.is_some())
    }

    /// The same of one version: a newer one that is remembered says nothing of what has changed.
    fn show_as_it_was(&self, object: &Object) -> Option<Object> {
        let shown = self.show(object)?;
        Some(if shown.version() == object.version() { shown } else { object.part(self.spec.stays()) })
    }

    /// Returns true if this is what stays of an object that the source has forgotten: only the API server can show the rest.
    pub fn has_forgotten(&self, object: &Object) -> bool {
        !object.fields().covers(&self.spec.fields)
    }

    /// Takes in an object of this source that was asked for because the source had forgotten it, and returns it as the source
    /// shows it.
    pub fn recall(&self, object: Object) -> Object {
        let object = object.cut(&self.spec.fields);
        self.remember(object.clone());
        object
    }

    fn remembered(&self, object: &Object) -> Option<Object> {
        self.recent.as_ref()?.lock().get(object.key(), object.version(), Instant::now())
    }

    fn remember(&self, object: Object) {
        if let Some(recent) = &self.recent {
            recent.lock().put(object, Instant::now());
        }
    }

    /// Returns how many objects a bounded source has whole.
    pub fn remembers(&self) -> usize {
        self.recent.as_ref().map_or(0, |recent| recent.lock().len())
    }

    /// Returns a change as this source shows it.
    pub(super) fn seen(&self, change: Change) -> Option<Change> {
        if self.spec.fields.is_whole() && change.object().fields().is_whole() && self.recent.is_none() {
            return Some(change);
        }
        let seen = change.seen(|object| self.show_as_it_was(&object))?;
        match &seen {
            Change::Added(new) | Change::Updated { new, .. } if !self.has_forgotten(new) => {
                self.remember(new.clone().cut(&self.spec.fields));
            }
            Change::Added(_) | Change::Updated { .. } => {}
            Change::Deleted { last, .. } => {
                if let Some(recent) = &self.recent {
                    recent.lock().remove(last.key());
                }
            }
        }
        Some(seen)
    }

    /// Returns true if a question about a change can be answered: its objects are all there.
    pub(super) fn can_be_asked(&self, change: &Change) -> bool {
        match change {
            Change::Added(object) | Change::Deleted { last: object, .. } => !self.has_forgotten(object),
            Change::Updated { old, new } => !self.has_forgotten(old) && !self.has_forgotten(new),
        }
    }

    /// Returns the answer to a write as this source shows it.
    pub fn cut(&self, answer: Object) -> Object {
        answer.cut(&self.spec.fields)
    }

    /// Returns true if the source keeps all of an object, or all of a subresource of it.
    pub fn keeps(&self, subresource: Option<&str>) -> bool {
        self.spec.fields.has_part(subresource)
    }

    /// Returns objects as this source shows them.
    pub(super) fn all_shown(&self, objects: Vec<Object>) -> Vec<Object> {
        if self.spec.fields.is_whole() && objects.iter().all(|object| object.fields().is_whole()) {
            return objects;
        }
        objects.iter().filter_map(|object| self.show(object)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use crate::cache::{Event, Writer};
    use crate::cel::Expression;
    use crate::manifest::filters::Question;
    use crate::manifest::{Bound, Filters, Keys, Mapper as Declared};
    use crate::object::fields::Fields;
    use crate::object::pointer::Pointer;
    use crate::object::{Change, Gvk, Managers, Object, ObjectRef, Scope};
    use crate::source::exports::tests::ask;
    use crate::source::filter::Filter;
    use crate::source::mapper::Mapper;
    use crate::source::{Bounded, Role, Source, Spec, Within};

    fn gvk() -> Gvk {
        Gvk::parse("x.dev/v1", "Page").unwrap()
    }

    fn fields(pointers: &[&str]) -> Fields {
        let pointers: Vec<_> = pointers.iter().map(|text| Pointer::parse(text).unwrap()).collect();
        Fields::only(&pointers)
    }

    /// Returns a page whose fields `a` and `b` name another one.
    fn page(version: u64, a: &str, b: &str, kept: &Fields) -> Object {
        let text = format!(
            r#"{{"metadata":{{"namespace":"n","name":"s","resourceVersion":"{version}"}},"a":"{a}","b":"{b}"}}"#
        );
        Object::parse_fields(&text, &gvk(), &Managers::default(), kept).unwrap()
    }

    /// Returns a source of secondaries that keeps some fields, with a mapper and an index by `a`, and with a filter.
    fn source(kept: Fields, filter: &str) -> Source {
        let pointer = || Keys::Pointer(Pointer::parse("/a").unwrap());
        let on_update = Some(Question::Cel(Expression::parse(filter, &["object", "oldObject"]).unwrap()));
        Source::new(Spec {
            name: "s".into(),
            gvk: gvk(),
            cluster: None,
            role: Role::Secondary(Mapper::new(gvk(), Scope::Namespaced, Declared::Named(pointer()))),
            filter: Filter::secondary(Filters { on_update, ..Filters::default() }),
            indexes: BTreeMap::from([("by-a".into(), pointer())]),
            fields: kept,
            bounded: None,
            packed: false,
            faults: Arc::default(),
        })
    }

    /// Returns how many are told of a change, once all questions about it have been asked.
    fn told(source: &Source, change: Change) -> usize {
        let at_once = source.on(change);
        at_once.len() + std::iter::from_fn(|| ask(source)).flatten().count()
    }

    #[test]
    fn each_source_of_a_cache_sees_what_it_keeps_whatever_others_keep() {
        // BC-2, PO-5
        let whole = Fields::whole();
        let mut writer = Writer::default();
        let [own, other, none] =
            [fields(&["/a"]), Fields::whole(), fields(&["/b"])].map(|kept| source(kept, "!has(object.b)"));
        let key = ObjectRef::namespaced("n", "s");
        for source in [&own, &other, &none] {
            source.attach(None, writer.cache());
        }
        let change = writer.apply(Event::Applied(page(1, "p", "1", &whole))).unwrap();
        let triggers = [&own, &other, &none].map(|source| told(source, change.clone()));
        assert_eq!(triggers, [1, 1, 0], "who has the field by which primaries are found");
        let change = writer.apply(Event::Applied(page(2, "p", "2", &whole))).unwrap();
        assert!(matches!(change, Change::Updated { .. }));
        let triggers = [&own, &other].map(|source| told(source, change.clone()));
        assert_eq!(triggers, [1, 0], "a filter sees what is kept");
        let seen = |source: &Source| {
            let listed = source.list(None);
            let all = [source.get(&key), listed.first().cloned(), source.by_index("by-a", "p").unwrap().pop()];
            all.map(|object| object.map(|object| object.json().contains("\"b\"")))
        };
        assert_eq!(seen(&own), [Some(false); 3]);
        assert_eq!(seen(&other), [Some(true); 3]);
        assert_eq!(seen(&none), [Some(true), Some(true), None]);
        let answer = page(3, "p", "3", &whole);
        own.put(answer);
        assert_eq!(own.get(&key).map(|object| object.json().contains("\"b\"")), Some(false), "an own write");
    }

    #[test]
    fn what_was_cached_with_fewer_fields_is_neither_shown_nor_taken_for_absent() {
        // BC-2
        let mut writer = Writer::default();
        writer.start_list();
        writer.list_item(page(1, "p", "1", &fields(&["/b"])));
        writer.finish_list(crate::object::Version(1));
        let key = ObjectRef::namespaced("n", "s");
        let source = source(fields(&["/a"]), "true");
        assert_eq!(source.attach(None, writer.cache()), []);
        assert_eq!((source.get(&key), source.list(None)), (None, vec![]));
        let doubt = source.known(Within::Object(&key)).unwrap_err().to_string();
        assert!(doubt.ends_with("its cache has not all fields of this object yet"), "{doubt}");
        let change = writer.apply(Event::Applied(page(2, "p", "1", &Fields::whole()))).unwrap();
        assert_eq!(told(&source, change), 1, "it counts as added");
        assert_eq!((source.known(Within::Object(&key)), source.list(None).len()), (Ok(()), 1));
    }

    #[test]
    fn what_is_forgotten_leads_where_it_led_and_no_filter_is_asked_about_it() {
        // BC-1
        let whole = Fields::whole();
        let bound = Bound { objects: 1, bytes: 1 << 20, unused: None };
        let spec = source(whole.clone(), "has(oldObject.b) && object.b == \"no\"").spec().clone();
        let source = Source::new(Spec { bounded: Some(Bounded { stays: fields(&["/a"]), bound }), ..spec });
        let mut writer = Writer::default();
        writer.keep(source.spec().stays().clone());
        source.attach(None, writer.cache());
        let mut changed = |version, b, forget: bool| {
            if forget {
                source.recall(other(9));
            }
            let change = writer.apply(Event::Applied(page(version, "p", b, &whole))).unwrap();
            (told(&source, change), source.remembers())
        };
        assert_eq!(changed(1, "x", false), (1, 1));
        assert_eq!(changed(2, "x", false), (0, 1), "both versions are there");
        assert_eq!(changed(3, "x", true), (1, 1), "the one before is forgotten, so the change counts");
        source.recall(other(10));
        let key = ObjectRef::namespaced("n", "s");
        let stays = source.get(&key).unwrap();
        assert!(
            source.has_forgotten(&stays)
                && !stays.json().contains("\"b\"")
                && source.known(Within::Object(&key)).is_ok()
        );
        assert_eq!(source.related(&ObjectRef::namespaced("n", "p")), std::slice::from_ref(&stays));
        assert_eq!(source.by_index("by-a", "p"), Ok(vec![stays]));
        source.recall(page(3, "p", "x", &whole));
        assert!(!source.has_forgotten(&source.get(&key).unwrap()));
        let gone = writer.apply(Event::Deleted(page(4, "p", "x", &whole))).unwrap();
        assert_eq!((told(&source, gone), source.remembers(), source.get(&key)), (1, 0, None));
    }

    fn other(version: u64) -> Object {
        let text = format!(r#"{{"metadata":{{"namespace":"n","name":"other","resourceVersion":"{version}"}}}}"#);
        Object::parse(&text, &gvk(), &Managers::default()).unwrap()
    }
}
