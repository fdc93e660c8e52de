//! Decides what a source shows of an object: the fields that it keeps, whatever others that read the same caches keep (BC).

use super::Source;
use crate::object::{Change, Object};

impl Source {
    /// Returns an object with the fields that the source keeps; `None` if the cache has not all of them: it may have kept less
    /// of the object before.
    pub fn show(&self, object: &Object) -> Option<Object> {
        let fields = &self.spec.fields;
        object.fields().covers(fields).then(|| object.part(fields))
    }

    /// Returns a change as this source shows it.
    pub(super) fn seen(&self, change: Change) -> Option<Change> {
        if self.spec.fields.is_whole() && change.object().fields().is_whole() {
            return Some(change);
        }
        change.seen(|object| self.show(&object))
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
    use crate::manifest::{Filters, Keys, Mapper as Declared};
    use crate::object::fields::Fields;
    use crate::object::pointer::Pointer;
    use crate::object::{Change, Gvk, Managers, Object, ObjectRef, Scope};
    use crate::source::filter::Filter;
    use crate::source::mapper::Mapper;
    use crate::source::{Role, Source, Spec, Within};

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
        let on_update = Some(Expression::parse(filter, &["object", "oldObject"]).unwrap());
        Source::new(Spec {
            name: "s".into(),
            gvk: gvk(),
            role: Role::Secondary(Mapper::new(gvk(), Scope::Namespaced, Declared::Named(pointer()))),
            filter: Filter::secondary(Filters { on_update, ..Filters::default() }),
            indexes: BTreeMap::from([("by-a".into(), pointer())]),
            fields: kept,
            faults: Arc::default(),
        })
    }

    /// Returns how many are told of a change, once all questions about it have been asked.
    fn told(source: &Source, change: Change) -> usize {
        let at_once = source.on(change);
        at_once.len() + std::iter::from_fn(|| source.ask()).flatten().count()
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
}
