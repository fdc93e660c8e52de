//! What a cache of 10,000 Deployments costs, whole, packed, or of metadata alone: taking them in, the memory they keep, reading one, and
//! finding those of one primary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark may fail loudly")]

use std::fmt::Write as _;

use capstan_core::cache::{Event, Writer};
use capstan_core::manifest;
use capstan_core::object::fields::Fields;
use capstan_core::object::{Change, Gvk, Managers, Object, ObjectRef, Scope};
use capstan_core::source::filter::Filter;
use capstan_core::source::mapper::Mapper;
use capstan_core::source::{Role, Source, Spec};
use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher, black_box};

/// Counts bytes: `max alloc` of a benchmark is what it keeps, `grow` and `alloc` what it asks for.
#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const OBJECTS: usize = 10_000;

fn main() {
    divan::main();
}

/// A Deployment of about 6 KB, half of it managedFields; owned by one of 1,000 pages.
fn deployment(number: usize) -> String {
    let page = number % 1_000;
    let mut environment = String::new();
    for variable in 0..38 {
        write!(
            environment,
            r#"{{"name":"SETTING_{variable}","value":"the value of setting {variable} in {number}"}},"#
        )
        .unwrap();
    }
    environment.pop();
    let mut fields = String::new();
    for variable in 0..40 {
        write!(fields, r#""k:{{\"name\":\"SETTING_{variable}\"}}":{{".":{{}},"f:name":{{}},"f:value":{{}}}},"#)
            .unwrap();
    }
    fields.pop();
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"page-{number}","namespace":"team-{}",
"uid":"6f1d5ab2-0c3e-4c57-9d0e-{number:012}","resourceVersion":"{}","generation":3,
"creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"web","page":"page-{page}"}},
"ownerReferences":[{{"apiVersion":"x.dev/v1","kind":"Page","name":"page-{page}","uid":"0e5b2c1e-77c1-4a43-8a55-{page:012}",
"controller":true}}],"managedFields":[{{"manager":"web","operation":"Apply","apiVersion":"apps/v1",
"time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:spec":{{{fields}}}}}}}]}},
"spec":{{"replicas":2,"selector":{{"matchLabels":{{"app":"web"}}}},"template":{{"metadata":{{"labels":{{"app":"web"}}}},
"spec":{{"containers":[{{"name":"web","image":"registry.example/web:{number}","env":[{environment}]}}]}}}}}},
"status":{{"observedGeneration":3,"replicas":2,"updatedReplicas":2,"readyReplicas":2,"availableReplicas":2,
"conditions":[{{"type":"Available","status":"True","reason":"MinimumReplicasAvailable"}}]}}}}"#,
        page % 10,
        1_000 + number,
    )
}

fn gvk() -> Gvk {
    Gvk::parse("apps/v1", "Deployment").unwrap()
}

fn source() -> Source {
    let page = Gvk::parse("x.dev/v1", "Page").unwrap();
    let mapper = Mapper::new(page, Scope::Namespaced, manifest::Mapper::OwnerReference);
    Source::new(Spec {
        name: "deployments".into(),
        gvk: gvk(),
        cluster: None,
        role: Role::Secondary(mapper),
        filter: Filter::default(),
        indexes: std::collections::BTreeMap::new(),
        fields: Fields::whole(),
        bounded: None,
        packed: false,
        faults: std::sync::Arc::default(),
    })
}

fn filled(texts: &[String]) -> Writer {
    let mut writer = Writer::default();
    for text in texts {
        black_box(writer.apply(Event::Applied(Object::parse(text, &gvk(), &Managers::default()).unwrap())));
    }
    writer
}

/// What a cache keeps of objects.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Whole,
    Packed,
    Metadata,
}

const KEPT: [Kept; 3] = [Kept::Whole, Kept::Packed, Kept::Metadata];

/// Returns a cache that keeps them like that, as a list brings them.
fn keeping(kept: Kept, texts: &[String]) -> Writer {
    let mut writer = Writer::default();
    let fields = match kept {
        Kept::Whole | Kept::Packed => Fields::whole(),
        Kept::Metadata => Fields::metadata(),
    };
    writer.keep(fields.clone());
    writer.pack(matches!(kept, Kept::Packed));
    writer.start_list();
    for text in texts {
        black_box(writer.list_item(Object::parse_fields(text, &gvk(), &Managers::default(), &fields).unwrap()));
        settle(&mut writer);
    }
    writer.finish_list(capstan_core::object::Version(20_000));
    settle(&mut writer);
    writer
}

/// Packs what is there.
fn settle(writer: &mut Writer) {
    while writer.is_due() {
        writer.portion();
    }
}

fn texts() -> Vec<String> {
    (0..OBJECTS).map(deployment).collect()
}

/// `max alloc` in bytes by the number of objects is what an object costs in the cache.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn ingest(bencher: Bencher<'_, '_>) {
    let texts = texts();
    bencher.counter(ItemsCount::new(OBJECTS)).bench(|| filled(&texts));
}

/// The same by what is kept, with all that packing takes.
#[divan::bench(args = KEPT, sample_count = 5, sample_size = 1)]
fn ingest_kept(bencher: Bencher<'_, '_>, kept: Kept) {
    let texts = texts();
    bencher.counter(ItemsCount::new(OBJECTS)).bench(|| keeping(kept, &texts));
}

/// Reads the text of one object among 10,000.
#[divan::bench(args = KEPT)]
fn read(bencher: Bencher<'_, '_>, kept: Kept) {
    let cache = keeping(kept, &texts()).cache();
    let keys: Vec<_> = cache.list().iter().map(|object| object.key().clone()).collect();
    let mut next = keys.iter().cycle().step_by(7_919);
    let read = |key| cache.get(key).map(|object| black_box(object.json()).len());
    bencher.with_inputs(|| next.next().unwrap()).bench_local_values(read);
}

/// Takes in a change of one object among 10,000.
#[divan::bench(args = KEPT)]
fn apply_kept(bencher: Bencher<'_, '_>, kept: Kept) {
    let texts = texts();
    let mut writer = keeping(kept, &texts);
    let objects: Vec<_> = texts.iter().map(|text| Object::parse(text, &gvk(), &Managers::default()).unwrap()).collect();
    let mut next = objects.iter().cycle().step_by(7_919);
    bencher
        .with_inputs(|| Event::Applied(next.next().unwrap().clone()))
        .bench_local_values(|event| writer.apply(event));
}

/// The cache without the parsing.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn apply(bencher: Bencher<'_, '_>) {
    let objects: Vec<_> =
        texts().iter().map(|text| Object::parse(text, &gvk(), &Managers::default()).unwrap()).collect();
    bencher.counter(ItemsCount::new(OBJECTS)).bench(|| {
        let mut writer = Writer::default();
        for object in &objects {
            black_box(writer.apply(Event::Applied(object.clone())));
        }
        writer
    });
}

/// What a source adds to a change of one of its 10,000 objects: mapping, filter, triggers.
#[divan::bench]
fn on_update(bencher: Bencher<'_, '_>) {
    let writer = filled(&texts());
    let source = source();
    source.attach(None, writer.cache());
    let old = writer.cache().get(&ObjectRef::namespaced("team-7", "page-7")).unwrap();
    let change = Change::Updated { old: old.clone(), new: old };
    bencher.bench(|| source.on(change.clone()));
}

/// Finds one object among 10,000.
#[divan::bench]
fn get(bencher: Bencher<'_, '_>) {
    let writer = filled(&texts());
    let cache = writer.cache();
    let keys: Vec<_> = cache.list().iter().map(|object| object.key().clone()).collect();
    let mut next = keys.iter().cycle().step_by(7_919);
    bencher.with_inputs(|| next.next().unwrap()).bench_local_values(|key| cache.get(key));
}

/// Finds the ten Deployments of one of 1,000 pages.
#[divan::bench]
fn related(bencher: Bencher<'_, '_>) {
    let writer = filled(&texts());
    let source = source();
    source.attach(None, writer.cache());
    let pages: Vec<_> =
        (0..1_000).map(|page| ObjectRef::namespaced(&format!("team-{}", page % 10), &format!("page-{page}"))).collect();
    assert!(pages.iter().all(|page| source.related(page).len() == OBJECTS / pages.len()));
    let mut next = pages.iter().cycle().step_by(379);
    bencher.with_inputs(|| next.next().unwrap()).bench_local_values(|page| source.related(page));
}

/// Lists one of ten namespaces.
#[divan::bench]
fn list_namespace(bencher: Bencher<'_, '_>) {
    let writer = filled(&texts());
    let cache = writer.cache();
    bencher.bench(|| cache.snapshot(Some("team-3")));
}
