//! Holds the reader of manifests to a folder of examples, the JSON schema to the reader, and the documentation to the schema.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail loudly")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use capstan_core::manifest::{
    Ceilings, Condition, Controller, Defaults, Errors, Namespaces, OnStartError, Operator, parse, parse_object,
    parse_with, schema, schema_of_ceilings, schema_of_defaults,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

#[path = "manifest/chart.rs"]
mod chart;
#[path = "manifest/json_schema.rs"]
mod json_schema;
#[path = "manifest/tables.rs"]
mod tables;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/manifest");
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manifest.md");

/// Returns the YAML files of a folder with their texts, in the order of their names.
fn examples(folder: &str) -> Vec<(PathBuf, String)> {
    let files = fs::read_dir(Path::new(FOLDER).join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let yaml: BTreeSet<PathBuf> = files.filter(|file| file.extension().is_some_and(|end| end == "yaml")).collect();
    assert!(!yaml.is_empty(), "no examples in {folder}");
    yaml.into_iter().map(|file| (file.clone(), fs::read_to_string(file).unwrap())).collect()
}

/// Compares with the text in a file, which `BLESS=1` writes.
fn golden(file: &Path, found: &str) -> Result<(), String> {
    if std::env::var_os("BLESS").is_some() {
        fs::write(file, found).unwrap();
    }
    let expected = fs::read_to_string(file).unwrap_or_default();
    if expected == found { Ok(()) } else { Err(format!("--- {}\n{expected}\n--- found\n{found}", file.display())) }
}

#[test]
fn what_a_plugin_may_have_at_once_is_capped_and_told() {
    let manifest = r"{ apiVersion: capstan.dev/v1alpha1, kind: Operator, metadata: { name: web }, spec: {
        plugins: { large: { component: { path: a.wasm }, limits: { concurrency: 400 } }, usual: { component: { path: b.wasm } } },
        controllers: { pages: { plugin: large, primary: { apiVersion: v1, kind: ConfigMap }, concurrency: 100, namespaces: all } } } }";
    let mut operators = parse(manifest, Path::new("web.yaml")).unwrap();
    let operator = &mut operators[0];
    assert_eq!(
        operator.cap_concurrency(32),
        [
            "operator web: spec.plugins.large.limits.concurrency is 400, and this daemon permits 32 (--plugin-concurrency): 32 it is",
            "operator web: spec.controllers.pages.concurrency is 100, and this daemon permits 32 (--plugin-concurrency): 32 it is",
        ]
    );
    let of = |name: &str| operator.plugins[name].limits.concurrency;
    assert_eq!([of("large"), of("usual"), operator.controllers["pages"].concurrency], [32, 8, 32]);
    assert!(operator.cap_concurrency(32).is_empty());
}

/// Returns what is told of an operator that is an object of the cluster, with these things in the `spec` of its controller `web`, or beside that.
fn told_of(controller: &Value, spec: &Value) -> String {
    read(controller, spec).unwrap_err().to_string()
}

/// Reads that operator.
fn read(controller: &Value, spec: &Value) -> Result<Operator, Errors> {
    let mut web = json!({ "plugin": "p", "primary": { "apiVersion": "v1", "kind": "ConfigMap" } });
    json_patch::merge(&mut web, controller);
    let mut all =
        json!({ "plugins": { "p": { "component": { "oci": "a.example/b:1" } } }, "controllers": { "web": web } });
    json_patch::merge(&mut all, spec);
    let object = json!({ "metadata": { "name": "web" }, "spec": all });
    parse_object(&object, Path::new("operators/web"), &Defaults::default())
}

const SHARD: &str = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";

#[test]
fn an_operator_has_no_more_watches_of_single_namespaces_than_others_can_bear() {
    // NS-6
    let names = |count: usize| (0..count).map(|n| format!("n{n}")).collect::<Vec<_>>();
    let sources = |count: usize, more: &Value| -> Value {
        let mut informer = json!({ "apiVersion": "v1", "kind": "Secret", "shared": false });
        json_patch::merge(&mut informer, more);
        (0..count).map(|n| (format!("s{n}"), json!({ "informer": informer }))).collect::<Map<_, _>>().into()
    };
    let few = json!({ "namespaces": ["a"] });
    let dependents = json!({ "dependents": {
        "one": { "apiVersion": "v1", "kind": "ConfigMap" }, "two": { "apiVersion": "v1", "kind": "ConfigMap" },
        "three": { "apiVersion": "v1", "kind": "Secret" },
    } });
    let selector = json!({ "selector": "a=b" });
    // Primaries, sources and one for each kind of dependents.
    for (controller, watches, most) in [
        (json!({ "namespaces": names(500), "sources": sources(4, &json!({})) }), Some(2500), None),
        (json!({ "namespaces": names(500), "sources": sources(3, &json!({})) }), None, None),
        (json!({ "namespaces": names(500), "sources": sources(4, &few) }), None, None),
        (json!({ "namespaces": names(500), "workflow": dependents, "sources": sources(1, &json!({})) }), None, None),
        (
            json!({ "namespaces": names(500), "workflow": dependents, "sources": sources(2, &json!({})) }),
            Some(2500),
            None,
        ),
        (json!({ "sources": sources(64, &json!({ "namespaces": names(32) })) }), Some(2048), None),
        (json!({ "sources": sources(64, &json!({})) }), None, None),
        (json!({ "namespaces": selector, "sources": sources(3, &json!({})) }), None, Some(500)),
        (json!({ "namespaces": selector, "sources": sources(9, &json!({})) }), None, Some(200)),
    ] {
        let told = watches.map(|watches| format!("found {watches} watches of single namespaces"));
        if let Some(told) = told {
            let text = told_of(&controller, &json!({}));
            assert!(text.contains(&told), "{told}: {text}");
        } else {
            let operator = read(&controller, &json!({})).unwrap_or_else(|errors| panic!("{errors}"));
            let found = match &operator.controllers["web"].namespaces {
                Namespaces::Selected(selected) => Some(selected.most),
                Namespaces::All | Namespaces::Own | Namespaces::Listed(_) => None,
            };
            assert_eq!(found, most);
        }
    }
}

#[test]
fn what_selects_primaries_is_bounded_over_all_controllers_of_an_operator() {
    // LC-3
    let selector = (0..2000).map(|n| format!("a!=v{n}")).collect::<Vec<_>>().join(",");
    let web =
        json!({ "plugin": "p", "primary": { "apiVersion": "v1", "kind": "ConfigMap" }, "labelSelector": selector });
    let controllers: Map<String, Value> = (0..5).map(|n| (format!("c{n}"), web.clone())).collect();
    let text = told_of(&json!({}), &json!({ "controllers": controllers }));
    assert!(text.contains("bytes of selectors of primaries; expected at most 65536 in one operator"), "{text}");
}

#[test]
fn an_operator_with_very_many_mistakes_is_refused_in_few_words() {
    // OP-2
    let name = |number: usize| format!("{}-{number:06}", "x".repeat(50));
    let names = |count: usize| (0..count).map(name).collect::<Vec<_>>();
    let maps = |count: usize, depends_on: &[String]| -> Value {
        let kind = json!({ "apiVersion": "v1", "kind": "Secret" });
        let mut maps: Map<String, Value> = (0..count).map(|n| (format!("a{}", name(n)), kind.clone())).collect();
        maps[&format!("a{}", name(0))]["dependsOn"] = depends_on.into();
        json!({ "workflow": { "dependents": maps } })
    };
    let many = |field: &dyn Fn(usize) -> String, value: Value| -> Value {
        (0..10_000).map(|number| (field(number), value.clone())).collect::<Map<_, _>>().into()
    };
    let plugin = |fields: Value| json!({ "plugins": { "p": fields } });
    let with_match = |matching: Value| {
        let mut with = maps(1, &[]);
        with["workflow"]["dependents"][&format!("a{}", name(0))]["match"] = matching;
        with
    };
    let finalizers: Vec<_> = (0..65).map(|number| format!("a.dev/f{number}")).collect();
    let long = json!({ "x".repeat(300_000): vec![0; 1000] });
    let texts: Map<String, Value> = (0..2000).map(|n| (name(n), "${dependents.unknown}".into())).collect();
    let mut templated = maps(1000, &[]);
    templated["status"] = json!({ "template": texts });
    for (controller, spec, told) in [
        (maps(2000, &names(10_000)), json!({}), "found 2000 dependents in all; expected at most 1024"),
        (maps(1000, &names(1000)), json!({}), "there are: "),
        (maps(1000, &vec![name(1); 1000]), json!({}), "found the same a second time"),
        (maps(2, &names(10_000)), json!({}), "found 10000 names; expected at most 1024"),
        (templated, json!({}), "there is no dependent `unknown` in `workflow`; there are "),
        (many(&name, 1.into()), json!({}), "… and 99"),
        (json!({ "sources": many(&name, json!({ "informer": {} })) }), json!({}), "found 10000 sources"),
        (json!({ "indexes": many(&name, json!({ "pointer": "/a" })) }), json!({}), "found 10000 indexes"),
        (json!({}), json!({ "controllers": many(&name, json!({ "plugin": "q" })) }), "found 10001 controllers"),
        (json!({}), json!({ "plugins": many(&name, json!({})) }), "found 10001 plugins"),
        (json!({}), json!({ "clusters": many(&name, json!({})) }), "found 10000 clusters"),
        (json!({}), plugin(json!({ "capabilities": { "internal": names(1000) } })), "found 1000 hosts"),
        (json!({}), plugin(json!({ "capabilities": { "kubernetes": vec![json!({}); 1000] } })), "found 1000 entries"),
        (
            json!({ "fieldSelector": vec!["a=b"; 5000].join(",") }),
            json!({}),
            "found 19999 bytes; expected at most 16384",
        ),
        (json!({ "labelSelector": vec!["a=b"; 5000].join(",") }), json!({}), "a selector has at most 16384 bytes"),
        (json!({ "shardSelector": vec![SHARD; 500].join("||") }), json!({}), "bytes; expected at most 16384"),
        (json!({ "namespaces": names(501) }), json!({}), "found 501 namespaces; expected at most 500"),
        (json!({ "finalizers": { "formerly": finalizers } }), json!({}), "found 65 finalizers; expected at most 64"),
        (json!({ "standalone": many(&name, json!({ "dependents": {} })) }), json!({}), "found 10000 workflows"),
        (with_match(json!({ "generic": { "ignore": vec!["/a"; 65] } })), json!({}), "found 65 pointers"),
        (json!({}), plugin(json!({ "config": long })), "names of fields that are too long"),
        (json!({}), plugin(json!({ "instances": "x".repeat(300_000) })), "found `xxx"),
    ] {
        let text = told_of(&controller, &spec);
        assert!(text.contains(told) && text.len() < 40_000, "{told}: {} bytes: {:.2000}", text.len(), text);
    }
}

#[test]
fn what_an_operator_is_kept_as_takes_no_more_than_so_many_parts_of_whatever_sort() {
    // OP-2
    let zeros = |count: usize| format!("[{}] == []", vec!["0"; count].join(","));
    let sums = |count: usize| format!("[{}] == []", vec!["-primary.spec.a"; count].join(","));
    let dependents = |cel: String, count: usize| -> Value {
        let one = |n: usize| {
            let condition = json!({ "cel": cel });
            (format!("d{n}"), json!({ "apiVersion": "v1", "kind": "Secret", "readyPostcondition": condition }))
        };
        json!({ "workflow": { "dependents": (0..count).map(one).collect::<Map<_, _>>() } })
    };
    let template = |value: Value, count: usize| {
        json!({ "workflow": { "dependents": { "d": {
        "apiVersion": "v1", "kind": "ConfigMap",
        "desired": { "template": { "metadata": { "name": "a" }, "data": vec![value; count] } },
    } } } })
    };
    let plugin = |config: Value| json!({ "plugins": { "p": { "config": config } } });
    let maps = |count: usize| plugin(json!({ "a": vec![json!({ "b": {} }); count] }));
    let small: Map<String, Value> = (0..63).map(|n| (format!("c{n}"), json!({
        "plugin": "p", "primary": { "apiVersion": "v1", "kind": "ConfigMap" },
        "sources": (0..32).map(|n| (format!("s{n}"), json!({ "informer": { "apiVersion": "v1", "kind": "Secret", "shared": false } }))).collect::<Map<_, _>>(),
        "workflow": { "dependents": (0..16).map(|n| (format!("d{n}"), json!({ "apiVersion": "v1", "kind": "Secret", "config": {} }))).collect::<Map<_, _>>() },
    }))).collect();
    // The worst that may be of each sort, and where it is more.
    let most = 20_000;
    for (few, many, field) in [
        (
            (dependents(zeros(1990), 10), json!({})),
            (dependents(zeros(2000), 10), json!({})),
            "spec.controllers.web.workflow.dependents.d9.readyPostcondition",
        ),
        (
            (dependents(sums(240), 20), json!({})),
            (dependents(sums(252), 20), json!({})),
            "spec.controllers.web.workflow.dependents.d9.readyPostcondition",
        ),
        (
            (template(format!("${{{}}}", zeros(400)).into(), 48), json!({})),
            (template(format!("${{{}}}", zeros(400)).into(), 50), json!({})),
            "spec.controllers.web.workflow.dependents.d.desired.template.data[",
        ),
        (
            (template(json!({ "a": [0, 0] }), 4990), json!({})),
            (template(json!({ "a": [0, 0] }), 5000), json!({})),
            "spec.controllers.web.workflow.dependents.d.desired.template: ",
        ),
        ((json!({}), maps(9900)), (json!({}), maps(10_000)), "spec.plugins.p.config: "),
    ] {
        let operator = read(&few.0, &few.1).unwrap_or_else(|errors| panic!("{errors}"));
        let parts = parts(&operator);
        assert!(parts <= most && parts > most * 9 / 10, "{field}: {parts}");
        let text = told_of(&many.0, &many.1);
        let told = "values of templates and `config`, and parts of CEL expressions, so far; expected at most 20000 in one operator";
        assert!(text.starts_with(&format!("operators/web: {field}")) && text.contains(told), "{field}: {text}");
        assert_eq!(text.lines().filter(|line| !line.is_empty()).count(), 1, "it is told once: {text}");
    }
    // Many small fields have none: what there is of them is bounded by their number.
    let operator = read(&json!({}), &json!({ "controllers": small })).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!((operator.controllers.len(), parts(&operator)), (64, 0));
}

/// Returns how many parts of an operator are kept as trees.
fn parts(operator: &Operator) -> usize {
    fn values(value: &Value) -> usize {
        1 + match value {
            Value::Array(items) => items.iter().map(values).sum(),
            Value::Object(fields) => fields.values().map(values).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }
    let config = operator.plugins.values().map(|plugin| values(&plugin.config) - 1).sum::<usize>();
    let dependents = operator.controllers.values().flat_map(Controller::dependents);
    let of_dependents = dependents.map(|(_, dependent)| {
        let cel = match &dependent.conditions.ready_postcondition {
            Some(Condition::Cel(cel)) => cel.parts(),
            _ => 0,
        };
        let template = dependent.template.as_ref().map_or(0, |template| {
            let expressions = template.expressions("");
            values(&template.written()) - 1 + expressions.iter().map(|(_, cel)| cel.parts()).sum::<usize>()
        });
        values(&dependent.config) - 1 + cel + template
    });
    config + of_dependents.sum::<usize>()
}

fn name(file: &Path) -> &Path {
    Path::new(file.file_name().unwrap())
}

#[test]
fn what_is_wrong_is_told_as_the_examples_show() {
    // DR-6, ES-1, KD-10: `bad/references.yaml`
    let results = examples("bad").into_iter().map(|(file, text)| match parse(&text, name(&file)) {
        Ok(_) => Err(format!("{} is accepted", file.display())),
        Err(errors) => golden(&file.with_extension("txt"), &format!("{errors}\n")),
    });
    let wrong: Vec<String> = results.filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_example_of_an_error_shows_the_line_that_it_names() {
    for (file, text) in examples("bad") {
        for problem in parse(&text, name(&file)).unwrap_err().problems() {
            let line = text.lines().nth(problem.line - 1).unwrap();
            assert!(problem.snippet.as_ref().unwrap().contains(line.trim_end()), "{problem}");
            assert!((1..=line.chars().count() + 1).contains(&problem.column), "{problem}");
        }
    }
}

#[test]
fn what_is_right_is_read_as_the_examples_show() {
    // LC-4: `good/minimal.yaml`
    for (file, text) in examples("good") {
        let operators = parse(&text, Path::new("folder/operator.yaml")).unwrap_or_else(|errors| panic!("{errors}"));
        // An origin is a place, and of no interest here.
        let mut shown = String::new();
        for operator in &operators {
            let (plugins, controllers) = (&operator.plugins, &operator.controllers);
            writeln!(shown, "{}\n{plugins:#?}\n{controllers:#?}", operator.name).unwrap();
        }
        golden(&file.with_extension("txt"), &shown).unwrap_or_else(|difference| panic!("{difference}"));
    }
}

#[test]
fn what_is_nested_too_deep_is_refused() {
    let nested = |open: &str, close: &str, times: usize| format!("a: {}{}", open.repeat(times), close.repeat(times));
    let lines: Vec<String> = (0..500).map(|depth| " ".repeat(depth) + "a:").collect();
    let texts = [
        nested("[", "]", 100),
        nested("[", "]", 100_000),
        nested("{a: ", "}", 100),
        nested("- ", "a", 100),
        lines.join("\n"),
    ];
    for text in texts {
        let errors = parse(&text, Path::new("deep.yaml")).unwrap_err();
        assert!(errors.to_string().contains("not YAML"), "{}", errors.problems()[0].message);
    }
}

proptest! {
    /// Half of a text that is right, then anything, then the rest of another that is right.
    #[test]
    fn no_text_is_too_strange_to_be_told_what_is_wrong(
        (first, second) in (0_usize..4, 0_usize..4),
        (end, start) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        between in "[a-z:{}\\[\\]\n ,&*!|>'\"0-9ä~.()-]{0,12}",
    ) {
        let texts: Vec<Vec<char>> = examples("good").into_iter().map(|(_, text)| text.chars().collect()).collect();
        let (first, second) = (&texts[first % texts.len()], &texts[second % texts.len()]);
        let head: String = first[..end.index(first.len())].iter().collect();
        let tail: String = second[start.index(second.len())..].iter().collect();
        let text = head + &between + &tail;
        if let Err(errors) = parse(&text, Path::new("strange.yaml")) {
            prop_assert!(!errors.problems().is_empty());
            prop_assert!(errors.problems().iter().all(|problem| problem.line > 0 && problem.column > 0));
        }
    }
}

// === the JSON schema ===

/// The bad examples that a schema cannot find: names that refer to each other, what is within texts, and sums.
const BEYOND_A_SCHEMA: [&str; 15] = [
    "a_circle",
    "all_events",
    "an_interval_below_the_first",
    "an_unknown_plugin",
    "called",
    "depends_on",
    "memory_out_of_range",
    "never",
    "no_cpu",
    "operators",
    "same_object",
    "selector",
    "selector_operator",
    "too_many_expressions",
    "without_a_plugin",
];

/// Returns the documents of a text, as `kubectl` would read them.
fn documents(text: &str) -> Vec<Value> {
    let options = serde_yaml::options! { strict_booleans: true, leading_zero_numbers_as_strings: true };
    serde_yaml::from_str_multiple_with_options::<Value, Vec<_>>(text, options).unwrap()
}

#[test]
fn the_schema_accepts_all_that_is_right() {
    let schema = schema();
    for (file, text) in examples("good") {
        for document in documents(&text) {
            json_schema::validate(&schema, &document).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
    }
}

#[test]
fn the_schema_refuses_all_that_a_schema_can_find() {
    let schema = schema();
    let mut accepted = BTreeSet::new();
    for (file, text) in examples("bad") {
        let Ok(documents) = serde_yaml::from_str_multiple::<Value, Vec<_>>(&text) else {
            continue;
        };
        let right = documents.iter().all(|document| json_schema::validate(&schema, document).is_ok());
        if right && !documents.is_empty() {
            accepted.insert(file.file_stem().unwrap().to_str().unwrap().to_owned());
        }
    }
    assert_eq!(accepted, BEYOND_A_SCHEMA.into_iter().map(str::to_owned).collect());
}

/// Writes the defaults of a schema into a value, where it has none.
fn fill(root: &Value, schema: &Value, value: &mut Value) {
    let schema = json_schema::resolve(root, schema);
    for alternatives in ["anyOf", "oneOf"] {
        for alternative in schema[alternatives].as_array().into_iter().flatten() {
            let fits = json_schema::resolve(root, alternative)["properties"].as_object().is_none_or(|properties| {
                value.as_object().is_some_and(|value| value.keys().all(|name| properties.contains_key(name)))
            });
            if fits {
                fill(root, alternative, value);
            }
        }
    }
    let Value::Object(fields) = value else { return };
    let empty = Map::new();
    for (name, field) in schema["properties"].as_object().unwrap_or(&empty) {
        if let Some(default) = field.get("default").filter(|_| !fields.contains_key(name)) {
            fields.insert(name.clone(), default.clone());
        }
    }
    for (name, value) in fields {
        let field = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
        fill(root, field, value);
    }
}

#[test]
fn the_defaults_of_the_schema_mean_what_their_absence_means() {
    let text = fs::read_to_string(Path::new(FOLDER).join("good/bare.yaml")).unwrap();
    let schema = schema();
    let [bare] = documents(&text).try_into().unwrap();
    let mut filled = bare.clone();
    fill(&schema, &schema, &mut filled);
    assert!(filled.to_string().len() > 2 * bare.to_string().len(), "nothing was filled in: {filled}");
    let read = |text: &str| parse(text, Path::new("bare.yaml")).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(read(&filled.to_string()), read(&text));
}

// === the documentation ===

#[test]
fn the_example_of_the_documentation_is_right() {
    let docs = fs::read_to_string(DOCS).unwrap();
    let example = docs.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let operators = parse(example, Path::new("docs/manifest.md")).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(operators.len(), 1);
    json_schema::validate(&schema(), &documents(example).remove(0)).unwrap();
}

#[test]
fn the_documentation_has_every_field_of_the_schema_and_no_other() {
    let docs = fs::read_to_string(DOCS).unwrap();
    let (before, rest) = docs.split_once("<!-- fields").unwrap();
    let (marker, rest) = rest.split_once("-->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end of fields -->").unwrap();
    let right = format!("{before}<!-- fields{marker}-->\n\n{}<!-- end of fields -->{after}", tables::tables(&schema()));
    golden(Path::new(DOCS), &right).unwrap_or_else(|difference| panic!("{difference}"));
}

// === defaults of the daemon ===

const DEFAULTS: &str = "
apiVersion: capstan.dev/v1alpha1
kind: Defaults
spec:
  controllers:
    generationAware: false
    serverSideApply: false
    fieldValidation: warn
    retry: { maxAttempts: 3 }
    rateLimit: none
    minRescheduleInterval: 1s
    maxReconciliationInterval: 1h
    reconciliationTimeout: 1m
    concurrency: 2
    cacheSyncTimeout: 10s
    onStartError: wait
  dependents:
    serverSideApply: true
    serverSideApplyExcept: [{ apiVersion: v1, kind: Service }]
";

/// Returns a controller with these fields, as it is with these defaults.
fn controller(fields: &str, defaults: &Defaults) -> Controller {
    let text = format!(
        "{{ apiVersion: capstan.dev/v1alpha1, kind: Operator, metadata: {{ name: a }}, spec: {{ plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}, controllers: {{ c: {{ plugin: p, primary: {{ apiVersion: v1, kind: Pod }}, {fields} }} }} }} }}"
    );
    let mut operators = parse_with(&text, Path::new("a.yaml"), defaults).unwrap_or_else(|errors| panic!("{errors}"));
    operators.remove(0).controllers.remove("c").unwrap()
}

#[test]
fn what_a_manifest_leaves_out_is_as_the_defaults_of_the_daemon_say() {
    let (none, given) = (Defaults::default(), Defaults::parse(DEFAULTS, Path::new("d.yaml")).unwrap());
    let fields = "generationAware: false, serverSideApply: false, fieldValidation: warn, retry: { maxAttempts: 3 }, rateLimit: none, minRescheduleInterval: 1s, maxReconciliationInterval: 1h, reconciliationTimeout: 1m, concurrency: 2, cacheSyncTimeout: 10s, onStartError: wait";
    assert_eq!(controller("", &given), controller(fields, &none));
    // The manifest has the last word, field by field; what is null is left out.
    let own = "retry: { initialInterval: 1s }, rateLimit: { maxReconciliations: 1 }, maxReconciliationInterval: none, onStartError: goOn, generationAware: null";
    let (found, alone) = (controller(own, &given), controller(own, &none));
    assert_eq!((found.retry, found.rate_limit, found.max_interval), (alone.retry, alone.rate_limit, None));
    assert_eq!((found.on_start_error, found.generation_aware, found.concurrency), (OnStartError::GoOn, false, 2));
}

#[test]
fn what_templates_make_of_a_secret_is_secretive_however_many_make_it_one_after_the_other() {
    // DT-4
    let map = |name: &str, on: &str, of: &str| {
        format!(
            "{name}: {{ apiVersion: v1, kind: ConfigMap, dependsOn: [{on}], desired: {{ template: {{ metadata: {{ name: {name} }}, data: {{ of: \"${{{of}}}\" }} }} }} }}"
        )
    };
    let dependents = [
        "secret: { apiVersion: v1, kind: Secret, readOnly: true, name: { cel: primary.metadata.name } }".to_owned(),
        map("first", "secret", "dependents.secret.metadata.uid"),
        map("second", "first", "dependents.first.data.of"),
        map("blind", "first", "primary.metadata.uid"),
        map("after", "blind", "dependents.blind.data.of"),
    ];
    let found =
        controller(&format!("workflow: {{ dependents: {{ {} }} }}", dependents.join(", ")), &Defaults::default());
    let secretive = found.workflow.dependents.iter().filter(|(_, of)| of.shows_secret).map(|(name, _)| &**name);
    assert_eq!(secretive.collect::<Vec<_>>(), ["first", "second"]);
}

#[test]
fn which_dependents_are_applied_is_as_the_defaults_of_the_daemon_say() {
    // KD-5
    let kinds = ["ConfigMap", "Secret", "Service", "Pod"];
    let applied = |said: &str, own: &str| {
        let text = format!("{{ apiVersion: capstan.dev/v1alpha1, kind: Defaults, spec: {{ {said} }} }}");
        let defaults = Defaults::parse(&text, Path::new("d.yaml")).unwrap();
        let dependents = kinds.map(|kind| format!("{}: {{ apiVersion: v1, kind: {kind}{own} }}", kind.to_lowercase()));
        let state = "things: { external: { source: s, state: { apiVersion: v1, kind: ConfigMap } } }";
        let found = controller(
            &format!(
                "sources: {{ s: {{ pollEach: {{ every: 1s, id: /id }} }} }}, workflow: {{ dependents: {{ {}, {state} }} }}",
                dependents.join(", ")
            ),
            &defaults,
        );
        let each = |kind: &str| found.workflow.dependents[&*kind.to_lowercase()].server_side_apply;
        let (_, state) = found.workflow.states().next().unwrap();
        (kinds.map(each), state.server_side_apply)
    };
    let except = "serverSideApplyExcept: [{ apiVersion: v2, kind: Service }]";
    for (said, own, expected) in [
        ("controllers: {}", "", ([false, false, true, true], false)),
        ("dependents: {}", "", ([false, false, true, true], false)),
        ("dependents: { serverSideApply: false }", "", ([false; 4], false)),
        (&*format!("dependents: {{ {} }}", except.replace("v2", "v1")), "", ([true, true, false, true], true)),
        (&*format!("dependents: {{ {except} }}"), "", ([true, true, false, true], true)),
        ("dependents: { serverSideApplyExcept: [] }", "", ([true; 4], true)),
        ("dependents: { serverSideApply: false }", ", serverSideApply: true", ([true; 4], false)),
        ("dependents: { serverSideApplyExcept: [] }", ", serverSideApply: false", ([false; 4], true)),
    ] {
        assert_eq!(applied(said, own), expected, "{said} {own}");
    }
}

#[test]
fn defaults_are_fields_of_controllers_and_the_example_has_all_of_them() {
    let (defaults, operators) = (schema_of_defaults(), schema());
    let fields = |schema: &Value, of: &str| schema["$defs"][of]["properties"].as_object().unwrap().clone();
    let (own, all) = (fields(&defaults, "Controllers"), fields(&operators, "Controller"));
    let shape = |field: &Value| {
        let mut field = field.clone();
        for said in ["description", "default"] {
            field.as_object_mut().unwrap().remove(said);
        }
        field
    };
    for (name, field) in &own {
        assert!(DEFAULTS.contains(&format!(" {name}: ")), "{name}");
        assert_eq!(shape(field), shape(&all[name]), "{name}");
    }
    let docs = fs::read_to_string(DOCS).unwrap();
    let section = docs.split("## Defaults of the daemon").nth(1).unwrap();
    let (_, example) = section.split_once("```yaml").unwrap();
    let (example, named) = example.split_once("```").unwrap();
    assert!(Defaults::parse(example, Path::new("docs/manifest.md")).is_ok());
    let missing: Vec<_> = own.keys().filter(|name| !named.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn defaults_that_are_wrong_are_told_with_their_place() {
    let with = |from: &str, to: &str| DEFAULTS.replace(from, to);
    for (text, expected) in [
        (
            with("kind: Defaults", "kind: Operator"),
            "d.yaml:3:7: kind: found `Operator`; expected `apiVersion: capstan.dev/v1alpha1` and `kind: Defaults`",
        ),
        (
            with("concurrency: 2", "concurency: 2"),
            "d.yaml:14:5: spec.controllers.concurency: unknown field `concurency`; did you mean `concurrency`?",
        ),
        (
            with("maxAttempts: 3", "initialInterval: 5s, maxInterval: 1s"),
            "d.yaml:9:48: spec.controllers.retry.maxInterval: found 1s, less than `initialInterval`, which is 5s",
        ),
        (
            with("  controllers:", "  controller:"),
            "d.yaml:5:3: spec.controller: unknown field `controller`; did you mean `controllers`?",
        ),
        (
            "apiVersion: capstan.dev/v1alpha1\nkind: Defaults\nspec: {}".to_owned(),
            "d.yaml:3:1: spec: found neither `controllers` nor `dependents`; expected one of them at least",
        ),
        (format!("{DEFAULTS}---{DEFAULTS}"), "d.yaml:1:1: found 2 documents; expected one"),
        (String::new(), "d.yaml:1:1: found no document; expected one of `capstan.dev/v1alpha1 Defaults`"),
    ] {
        let errors = Defaults::parse(&text, Path::new("d.yaml")).err().map(|errors| errors.to_string());
        let first = errors.as_deref().and_then(|text| text.lines().next()).map(str::to_owned);
        assert_eq!(first.as_deref(), Some(expected), "{errors:?}");
    }
}

#[test]
fn the_section_of_ceilings_has_all_their_fields() {
    // CE-1
    let schema = schema_of_ceilings();
    let docs = fs::read_to_string(DOCS).unwrap();
    let section = docs.split("\n## Ceilings").nth(1).unwrap().split("\n## ").next().unwrap();
    let (_, example) = section.split_once("```yaml").unwrap();
    let (example, table) = example.split_once("```").unwrap();
    let ceilings = Ceilings::parse(example, Path::new("docs/manifest.md")).unwrap();
    assert_eq!(ceilings.namespaces().map(|name| &**name).collect::<Vec<_>>(), ["team-a", "team-b"]);
    assert_eq!(ceilings.all().count(), 1);
    for of in ["Ceiling", "Most", "Rule"] {
        for field in schema["$defs"][of]["properties"].as_object().unwrap().keys() {
            assert!(table.contains(&format!("`{field}`")), "{field}");
        }
    }
}

#[test]
fn ceilings_that_are_wrong_are_told_with_their_place() {
    const CEILINGS: &str = "
apiVersion: capstan.dev/v1alpha1
kind: Ceilings
spec:
  ceilings:
    teams:
      namespaces: [team-a]
      serviceAccounts: [pages]
      rules: [{ apiGroups: [''], resources: [configmaps], verbs: [get] }]
";
    let with = |from: &str, to: &str| CEILINGS.replace(from, to);
    let mut wrong = Vec::new();
    let second = "    more:\n      namespaces: [team-a]\n      serviceAccounts: [pages]\n      rules: [{ apiGroups: [''], resources: [a], verbs: [get] }]\n";
    for (text, expected) in [
        (
            with("[team-a]", "[]"),
            "c.yaml:7:7: spec.ceilings.teams.namespaces: found an empty list; expected one item at least",
        ),
        (
            with("serviceAccounts", "serviceAccount"),
            "c.yaml:8:7: spec.ceilings.teams.serviceAccount: unknown field `serviceAccount`; did you mean `serviceAccounts`?",
        ),
        (
            with("[get]", "['*']"),
            "c.yaml:9:67: spec.ceilings.teams.rules[0].verbs[0]: found `*`; expected `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`",
        ),
        (
            with("[configmaps]", "[ConfigMaps]"),
            "c.yaml:9:46: spec.ceilings.teams.rules[0].resources[0]: found `ConfigMaps`; expected a resource by its plural, such as `configmaps` or `pages/status`",
        ),
        (
            format!("{CEILINGS}      registries: ['*']\n"),
            "c.yaml:10:20: spec.ceilings.teams.registries[0]: found `*`; expected a registry such as `registry.example.com:5000`, or a path in it, `ghcr.io/org`",
        ),
        (
            format!("{CEILINGS}{second}"),
            "c.yaml:10:5: spec.ceilings.more: found the namespace `team-a` here and in `teams`; expected it in one of them",
        ),
        (
            with("    teams:", "    Teams:"),
            "c.yaml:6:5: spec.ceilings.Teams: found `Teams`; expected a name of lower-case letters, digits and `-`, at most 63 of them, with no `-` at either end",
        ),
        (String::new(), "c.yaml:1:1: found no document; expected one of `capstan.dev/v1alpha1 Ceilings`"),
    ] {
        let errors = Ceilings::parse(&text, Path::new("c.yaml")).err().map(|errors| errors.to_string());
        let mut lines = errors.iter().flat_map(|errors| errors.lines());
        if !lines.any(|line| line == expected) {
            wrong.push(format!("{expected}\n{errors:?}"));
        }
    }
    assert_eq!(wrong.join("\n"), "");
}

#[test]
fn the_chart_has_the_definition_of_operators() {
    // OP-1
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/capstan/files/operators.yaml");
    let definition = serde_yaml::to_string(&capstan_core::manifest::definition()).unwrap();
    golden(&file, &format!("# Printed by `capstan operator-crd`.\n{definition}")).unwrap();
    // AP-3
    let file = file.with_file_name("approvals.yaml");
    let definition = serde_yaml::to_string(&capstan_core::operator::approval::definition()).unwrap();
    golden(&file, &format!("# Printed by `capstan operator-crd`, after that of operators.\n{definition}")).unwrap();
}

#[test]
fn the_chart_checks_manifests_by_their_schema_and_is_as_patient_as_it_fills_in() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/capstan/values.schema.json");
    let text = fs::read_to_string(&file).unwrap();
    let (before, _) = text.split_once(chart::BEGINNING).unwrap();
    golden(&file, &format!("{before}{}", chart::end(&schema(), &schema_of_ceilings())))
        .unwrap_or_else(|difference| panic!("{difference}"));
    // Whatever the daemon takes is taken in values, too, also without what the chart fills in.
    let values: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let check = |manifest: &Value| {
        let root = serde_json::json!({ "definitions": values["definitions"], "$ref": "#/definitions/manifest" });
        json_schema::validate(&root, manifest)
    };
    for (file, text) in examples("good") {
        for mut manifest in documents(&text) {
            check(&manifest).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let fields = manifest.as_object_mut().unwrap();
            fields.retain(|field, _| field == "spec");
            for plugin in fields["spec"]["plugins"].as_object_mut().into_iter().flat_map(Map::values_mut) {
                plugin.as_object_mut().unwrap().remove("component");
            }
            check(&manifest).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            manifest["spec"]["controlers"] = Value::Null;
            assert!(check(&manifest).unwrap_err().starts_with("/spec/controlers: nothing is allowed here"));
        }
    }
}
