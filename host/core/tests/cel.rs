//! CEL expressions: ours say what the crate `cel` says, and none costs more than it may, whatever the documents are.

#![allow(clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]
#![expect(clippy::wildcard_enum_match_arm, reason = "of most types, only the name is compared")]

use std::collections::HashMap;
use std::sync::Arc;

use capstan_core::budget::{Budget, OPERATION};
use capstan_core::cel::{Error, Value, evaluate};
use cel::objects::Map as TheirMap;
use cel::{Context, Program, Value as Theirs};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

/// What an expression says, in words that both share; none if it fails.
fn ours(program: &Program, document: &Json) -> Option<String> {
    let mut budget = Budget::of(OPERATION);
    let said = evaluate(program.expression(), &[("d", document)], &mut budget);
    said.ok().map(|value| match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(int) => format!("{int}"),
        Value::Uint(uint) => format!("{uint}u"),
        Value::Double(double) => format!("{double:?}"),
        Value::Text(text) => format!("{text:?}"),
        Value::Type("null") => "\"null_type\"".to_owned(),
        Value::Type(name) => format!("{name:?}"),
        other => format!("a {}", other.type_name()),
    })
}

fn theirs(program: &Program, document: &Json) -> Option<String> {
    let mut context = Context::default();
    context.add_variable_from_value("d", convert(document));
    program.execute(&context).ok().map(|value| match value {
        Theirs::Null => "null".to_owned(),
        Theirs::Bool(truth) => truth.to_string(),
        Theirs::Int(int) => format!("{int}"),
        Theirs::UInt(uint) => format!("{uint}u"),
        Theirs::Float(double) => format!("{double:?}"),
        Theirs::String(text) => format!("{text:?}"),
        Theirs::Bytes(_) => "a bytes".to_owned(),
        Theirs::List(_) => "a list".to_owned(),
        Theirs::Map(_) => "a map".to_owned(),
        other => format!("a {}", other.type_of()),
    })
}

fn convert(json: &Json) -> Theirs {
    match json {
        Json::Null => Theirs::Null,
        Json::Bool(truth) => Theirs::Bool(*truth),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Theirs::Int(int),
            (None, Some(uint)) => Theirs::UInt(uint),
            (None, None) => Theirs::Float(number.as_f64().expect("a number")),
        },
        Json::String(text) => Theirs::String(Arc::new(text.clone())),
        Json::Array(items) => Theirs::List(Arc::new(items.iter().map(convert).collect())),
        Json::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (Arc::new(name.clone()).into(), convert(value)));
            Theirs::Map(TheirMap { map: Arc::new(fields.collect::<HashMap<_, _>>()) })
        }
    }
}

fn document() -> Json {
    json!({
        "s": "abc", "u": "ü€", "e": "", "n": 3, "z": 0, "m": -2, "f": 1.5, "w": 2.0, "big": u64::MAX, "t": true, "no": false,
        "nil": null, "l": [1, 2, 3], "ls": ["a", "b"], "mixed": [1, "a", null, [1], {"a": 1}], "none": [],
        "o": {"a": 1, "b": {"c": "x"}}, "empty": {}, "number": "12", "truth": "true",
    })
}

#[test]
#[rustfmt::skip]
fn an_expression_says_what_the_crate_says() {
    let document = document();
    for text in [
        "d.s", "d.o.b.c", "d.o['a']", "d.l[0]", "d.l[3]", "d.l[-1]", "d.l[1.0]", "d.missing", "d.nil.a", "d.s.a", "d['nil']",
        "has(d.o.a)", "has(d.o.q)", "has(d.q.a)", "has(d.nil.a)",
        "1 + 2 == d.n", "d.n - 5", "d.n * d.m", "d.n / d.m", "d.n % d.m", "d.n / d.z", "d.n % d.z", "-d.n", "-d.f", "d.f + 1.0", "d.f / 0.0", "d.n + d.f", "d.f % 1.0",
        "9223372036854775807 + 1", "-9223372036854775807 - 2", "d.big + 1u", "d.big == 18446744073709551615u", "1u - 2u", "-(1u)",
        "d.s + 'd'", "d.l + [4] == [1, 2, 3, 4]", "d.s + 1", "size(d.l + d.ls)",
        "d.n == 3.0", "d.n == 3u", "d.w == 2", "d.f > 1", "1 < 1.5", "2u > 1.5", "d.n < d.big", "d.s < 'abd'", "d.s < 1", "true > false", "d.nil == null", "d.l == [1, 2, 3]", "d.l == [1, 2]", "d.o == {'b': {'c': 'x'}, 'a': 1}", "d.o == {'a': 1.0, 'b': {'c': 'x'}}", "d.s == 1", "d.l != d.ls", "null < 1",
        "d.t && d.no", "d.t || d.missing", "d.missing || d.t", "d.no && d.missing", "d.missing && d.no", "d.missing || d.no", "d.t && 1", "!d.t", "!d.n",
        "d.t ? d.n : d.missing", "d.no ? d.missing : d.s", "d.n ? 1 : 2",
        "2 in d.l", "2.0 in d.l", "4 in d.l", "'a' in d.o", "'q' in d.o", "1 in d.s", "null in d.mixed", "[1] in d.mixed", "{'a': 1} in d.mixed",
        "d.l.all(x, x > 0)", "d.l.all(x, x > 1)", "d.l.exists(x, x == 2)", "d.l.exists(x, x == 9)", "d.l.exists_one(x, x > 2)", "d.l.exists_one(x, x > 1)", "d.none.all(x, x.y)", "d.none.exists(x, x.y)",
        "d.mixed.exists(x, x > 0)", "d.mixed.all(x, x > 0)", "d.mixed.exists(x, x == 'a')", "d.mixed.all(x, x != 'a')", "d.mixed.exists_one(x, x == 1)",
        "d.l.map(x, x * 2) == [2, 4, 6]", "d.l.map(x, x > 1, x * 2) == [4, 6]", "d.l.filter(x, x > 1) == [2, 3]", "d.mixed.map(x, x + 1)", "d.l.map(x, d.l.map(y, x * y))[2][2]", "d.l.map(x, x).map(x, [x]) == [[1], [2], [3]]",
        "d.o.all(k, k != 'q')", "d.o.exists(k, k == 'a')", "d.o.map(k, size(k)) == [1, 1]", "d.s.all(x, true)", "d.n.exists(x, true)",
        "size(d.s)", "size(d.u)", "d.u.size()", "size(d.l)", "d.o.size()", "size(d.n)", "size(b'abc')",
        "d.s.contains('b')", "d.s.startsWith('a')", "d.s.endsWith('c')", "d.s.endsWith('a')", "d.s.contains(1)", "d.s.matches('^a.c$')", "d.s.matches('b')", "d.s.matches('(')", "matches(d.s, 'z')", "d.u.matches('^..$')",
        "string(d.n)", "string(d.f)", "string(d.t)", "string(d.big)", "string(b'ab')", "string(d.s)", "string(d.l)", "int(d.number)", "int(d.s)", "int(d.f)", "int(-1.5)", "int(d.big)", "uint(d.n)", "uint(d.m)", "uint(d.f)", "double(d.n)", "double('1.5')", "double(d.s)", "bool(d.truth)", "bool(d.s)", "bool('t')", "bytes(d.s) == b'abc'", "dyn(d.n)",
        "type(d.n) == int", "type(d.s) == string", "type(d.l) == list", "type(d.o) == map", "type(d.nil) == null_type", "type(d.f) == double", "type(type(d.n)) == type", "type(d.n) == uint",
        "{'a': 1, 'b': 2}['b']", "{1: 'x'}[1]", "{1: 'x'}[1u]", "{'a': 1}['b']", "{'a': 1}.a", "{'a': 1, 'a': 2}", "[1, 'a', null][1]", "{true: 1}[true]",
        "d.nil == d.missing", "d.mixed[4].a == d.mixed[0]",
    ] {
        let program = Program::compile(text).expect(text);
        assert_eq!(ours(&program, &document), theirs(&program, &document), "{text}");
    }
}

/// An expression over `d`, made of others.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "d",
        "d.s",
        "d.n",
        "d.f",
        "d.l",
        "d.ls",
        "d.o",
        "d.o.a",
        "d.t",
        "d.nil",
        "d.missing",
        "d.mixed",
        "d.big",
        "1",
        "2.5",
        "3u",
        "'a'",
        "true",
        "null",
        "[]",
        "{}",
        "x",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(3, 12, 3, |inner| {
        // Not `+`: the crate adds anything to an empty list.
        let binary = prop::sample::select(vec!["-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "in", "&&", "||"]);
        let fold = prop::sample::select(vec!["all", "exists", "exists_one", "map", "filter"]);
        let one = prop::sample::select(vec!["size", "string", "int", "double", "uint", "type", "-", "!", "bool"]);
        prop_oneof![
            (inner.clone(), binary, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (one, inner.clone()).prop_map(|(f, a)| format!("{f}({a})")),
            (inner.clone(), fold, inner.clone()).prop_map(|(a, f, b)| format!("({a}).{f}(x, {b})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}]")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("({a})[{b}]")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_expression_says_what_the_crate_says(text in expression()) {
        // A variable that nothing binds is refused before anything is evaluated.
        let text = format!("[1].map(x, {text})[0]");
        let program = Program::compile(&text).expect("it is made of valid parts");
        let document = document();
        let (ours, said) = (ours(&program, &document), theirs(&program, &document));
        if ours != said {
            // The crate goes through maps in an order of chance, and may say something else each time.
            let varies = (0..64).any(|_| theirs(&program, &document) != said);
            prop_assert!(varies, "{} is {:?}, and the crate says {:?}", text, ours, said);
        }
    }
}

#[test]
fn no_expression_costs_more_than_it_may() {
    let hosts: Vec<_> = (0..6_000).map(|n| format!("host-{n}")).collect();
    let document = json!({
        "hosts": hosts, "text": "a".repeat(40_000), "pattern": "(a{0,200}){0,200}$", "words": r"(\w{1,20} ?){1,20}$",
        "sets": r"[\p{L}--\p{L}]".repeat(60),
    });
    for (text, costs_too_much) in [
        ("d.hosts.all(h, d.hosts.exists_one(x, x == h))", true),
        ("d.hosts.all(h, d.hosts.exists_one(x, x == h)) || true", true),
        ("true || d.hosts.all(h, d.hosts.exists_one(x, x == h))", false),
        ("d.hosts.exists(h, d.hosts.exists(x, x == h + 'q'))", true),
        ("d.hosts.all(h, !('q' in d.hosts))", true),
        ("d.hosts.all(h, d.hosts == d.hosts)", true),
        ("d.hosts.map(h, d.hosts).map(l, size(l)).size() == 6000", false),
        ("d.hosts.map(h, d.hosts + d.hosts).size() == 1", true),
        ("d.hosts.all(h, !d.text.contains(h + 'q'))", true),
        ("d.hosts.map(h, d.text + h).size() == 1", true),
        ("d.text.matches(d.pattern)", true),
        ("d.text.matches(d.words)", true),
        // It is compiled to next to nothing.
        ("d.text.matches('(?i)' + d.sets)", true),
        ("d.text.matches('^[a-z]+$')", false),
        ("d.hosts.all(h, h.matches('^[a-z]+-[0-9]+$'))", true),
        ("d.hosts.filter(h, h.startsWith('host-1')).size() > 10", false),
    ] {
        let program = Program::compile(text).expect(text);
        let mut budget = Budget::of(OPERATION / 10);
        let said = evaluate(program.expression(), &[("d", &document)], &mut budget);
        let refused = match &said {
            Ok(_) => false,
            Err(Error::Exceeded(_)) => true,
            Err(Error::Undefined(why)) => why.contains("regular expression"),
            Err(other) => panic!("{text}: {other}"),
        };
        assert_eq!(refused, costs_too_much, "{text}: {said:?}");
    }
}
