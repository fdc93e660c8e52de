//! Does what the steps of a `Probe` say, and keeps what they saw.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use capstan_guest::cache::{self, Query};
use capstan_guest::expectations::{self, Outcome};
use capstan_guest::operations::{self, Options, Removal};
use capstan_guest::{
    Error, Json, Match, ObjectRef, Result, config, context, info, log, memo, recorder, sources, system, workflow,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::spec::{
    Compare, Deed, Dependent, DependentRun, Event, Expect, Field, Forget, Keep, Log, Memo, Place, Probe, Read,
    Register, Remember, Select, Sight, Step, Times, Verb, When, Workflow, WorkflowRun, Write,
};

/// What the steps saw, by name.
pub(crate) type Seen = Map<String, Value>;

/// Does the steps one after another; the first that fails ends it.
pub(crate) fn run(steps: &[Step], probe: &Probe) -> Result<Seen> {
    let mut seen = Seen::new();
    let state = state(probe);
    for Step { deed, keep, .. } in steps.iter().filter(|step| step.when.is_none_or(|when| when == state)) {
        match perform(deed, keep, probe) {
            Err(error) if keep.may_fail => {
                let name = keep.name.clone().unwrap_or_else(|| "refused".to_owned());
                seen.insert(name, refusal(&error));
            }
            answer if keep.tell => log(&answer?),
            answer => seen.extend(answer?),
        }
    }
    Ok(seen)
}

/// Returns whether the primary is to stay.
fn state(probe: &Probe) -> When {
    if context::run().is_some_and(|run| run.primary_deleted) {
        When::Gone
    } else if probe.metadata.deletion_timestamp.is_some() {
        When::Going
    } else {
        When::Present
    }
}

/// Does one step, and returns what it saw.
fn perform(deed: &Deed, keep: &Keep, probe: &Probe) -> Result<Seen> {
    let (name, sight) = match deed {
        Deed::Memo(memo) => ("memo", self::memo(memo)?),
        Deed::Expect(expect) => ("expect", self::expect(expect)?),
        Deed::Register(Register { name, declaration }) => ("register", json!(sources::register(name, declaration)?)),
        Deed::Deregister(name) => ("deregister", value(&sources::deregister(name)?)?),
        Deed::Remember(Remember { name, actual, replaced }) => {
            ("remember", value(&sources::remember(name, actual, replaced.as_ref())?)?)
        }
        Deed::Forget(Forget { name, id }) => ("forget", value(&sources::forget(name, id)?)?),
        Deed::Write(write) => ("write", self::write(write, keep, probe)?),
        Deed::Read(read) => ("read", self::read(read, keep)?),
        Deed::Await(read) => ("await", wait(read, keep)?),
        Deed::Compare(compare) => ("compare", self::compare(compare)?),
        Deed::Workflow(workflow) => ("workflow", self::workflow(workflow)?),
        Deed::Dependent(dependent) => ("dependent", self::dependent(dependent)?),
        Deed::See(sights) => {
            let see = |sight: &Sight| Ok((sight.name().to_owned(), see(*sight, probe)?));
            return sights.iter().map(see).collect();
        }
        Deed::Fail(text) => return Err(text.as_str().into()),
        Deed::FailTimes(times) => return fail_times(*times),
        Deed::Log(line) => return Ok(say(line)),
        Deed::Event(event) => return Ok(self::event(event)),
        Deed::BusyMs(ms) => return Ok(spin(*ms)),
        Deed::Print(bytes) => return print(&lines(*bytes)),
        Deed::PrintText(text) => return print(text),
        Deed::Shout(bytes) => return shout(*bytes),
        Deed::Times(times) => return again(times, probe),
        Deed::Connect(address) => ("connect", connect(address)),
        Deed::Trap => trap(),
        Deed::Loop => forever(),
        Deed::Allocate => hoard(),
        Deed::Recurse => ("recurse", json!(recurse(0))),
    };
    let name = keep.name.clone().unwrap_or_else(|| name.to_owned());
    Ok(Seen::from_iter([(name, sight)]))
}

/// Logs what was seen where there is no status to put it into.
pub(crate) fn log(seen: &Seen) {
    for (name, sight) in seen {
        info!("seen", name, sight);
    }
}

/// Checks what is expected, or expects it if nothing is, and returns what has become of it.
fn expect(Expect { name, timeout_ms, source, pointer, is }: &Expect) -> Result<Value> {
    let is_so = || {
        let Some(source) = source else {
            return Ok(*is == Value::Bool(true));
        };
        let object = cache::source(source).one::<Value>()?;
        Ok(object.as_ref().and_then(|object| object.pointer(pointer)) == Some(is))
    };
    let outcome = match expectations::check(name, is_so)? {
        Some(outcome) => outcome,
        None if expectations::check_and_set(name, Duration::from_millis((*timeout_ms).into()), is_so)? => {
            Outcome::Pending
        }
        None => Outcome::Fulfilled,
    };
    Ok(json!({ "outcome": format!("{outcome:?}"), "pending": expectations::pending().map(|pending| pending.name) }))
}

fn fail_times(times: u32) -> Result<Seen> {
    let attempt = context::retry().map_or(0, |retry| retry.attempt);
    if attempt < times {
        return Err(format!("fails on purpose, attempt {attempt}").into());
    }
    Ok(Seen::new())
}

#[expect(clippy::panic, reason = "this is what it is for")]
fn trap() -> ! {
    panic!("traps on purpose")
}

fn forever() -> ! {
    loop {
        black_box(());
    }
}

fn hoard() -> ! {
    let mut hoard: Vec<Vec<u8>> = Vec::new();
    loop {
        hoard.push(black_box(vec![1; 1 << 20]));
    }
}

#[expect(unconditional_recursion, reason = "this is what it is for")]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    recurse(depth + 1) + frame.iter().sum::<u64>()
}

fn spin(ms: u32) -> Seen {
    let until = system::now_ms() + f64::from(ms);
    while system::now_ms() < until {}
    Seen::new()
}

/// Returns what became of each attempt: `open`, or the error.
fn connect(address: &str) -> Value {
    let told =
        |outcome: std::io::Result<()>| outcome.map_or_else(|error| error.kind().to_string(), |()| "open".to_owned());
    let anywhere = "0.0.0.0:0";
    json!({
        "tcp": told(TcpStream::connect(address).map(drop)),
        "listen": told(TcpListener::bind(anywhere).map(drop)),
        "udp": told(UdpSocket::bind(anywhere).and_then(|socket| socket.send_to(b"x", address)).map(drop)),
        "lookup": told("localhost:80".to_socket_addrs().map(drop)),
    })
}

/// Returns so many bytes in lines of 80.
fn lines(bytes: usize) -> String {
    let line = format!("{}\n", "x".repeat(79));
    line.chars().cycle().take(bytes).collect()
}

fn print(text: &str) -> Result<Seen> {
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(Seen::new())
}

fn shout(bytes: usize) -> Result<Seen> {
    std::io::stderr().write_all(&vec![0xff; bytes])?;
    Ok(Seen::new())
}

/// Returns what the last round saw.
fn again(Times { n, steps }: &Times, probe: &Probe) -> Result<Seen> {
    (0..*n).try_fold(Seen::new(), |_, _| run(steps, probe))
}

fn see(sight: Sight, probe: &Probe) -> Result<Value> {
    Ok(match sight {
        Sight::Run => value(&context::run())?,
        Sight::Retry => value(&context::retry())?,
        Sight::NextImminent => json!(context::next_imminent()),
        Sight::TimeLeftMs => json!(context::time_left().as_millis()),
        Sight::Settings => context::settings()?,
        Sight::Config => config::get()?,
        Sight::Now => json!(system::now()),
        Sight::NowMs => json!(system::now_ms()),
        Sight::Uuid => json!(system::uuid()),
        Sight::Random => json!(system::random_bytes(8)),
        Sight::Primary => value(&probe.metadata)?,
    })
}

fn memo(Memo { lifetime, put, value, get, count, remove }: &Memo) -> Result<Value> {
    match (put, get, count, remove) {
        (Some(key), None, None, None) => {
            memo::set(*lifetime, key, value)?;
            Ok(value.clone())
        }
        (None, Some(key), None, None) => Ok(memo::get(*lifetime, key)?.unwrap_or_default()),
        (None, None, Some(key), None) => {
            let count = memo::get::<u32>(*lifetime, key)?.unwrap_or_default() + 1;
            memo::set(*lifetime, key, &count)?;
            Ok(json!(count))
        }
        (None, None, None, Some(key)) => {
            memo::remove(*lifetime, key)?;
            Ok(Value::Null)
        }
        _ => Err("a memo step has one of put, get, count, remove".into()),
    }
}

fn write(write: &Write, keep: &Keep, probe: &Probe) -> Result<Value> {
    let options = options(write)?;
    let object = match &write.change {
        Some(change) => &changed(probe, change),
        None => &write.object,
    };
    let target = || match &write.target {
        Some(target) => Ok(target.clone()),
        None => ObjectRef::of(object).map_err(|error| error.context("a write step needs a target or an object")),
    };
    let written = match write.verb {
        Verb::Create => options.create(object)?,
        Verb::Apply => options.apply(object)?,
        Verb::ForceApply => options.force_apply(object)?,
        Verb::Update => options.update(object)?,
        Verb::Edit => options.edit(object)?,
        Verb::JsonPatch => options.json_patch(&target()?, &write.patch)?,
        Verb::MergePatch => options.merge_patch(&target()?, &write.patch)?,
        Verb::AddFinalizer => operations::add_finalizer(write.finalizer.as_deref())?,
        Verb::RemoveFinalizer => operations::remove_finalizer(write.finalizer.as_deref())?,
        Verb::Remove => {
            removal(write).remove(&target()?)?;
            return Ok(Value::Null);
        }
    };
    Ok(shown(&written.parse()?, &keep.show))
}

/// Returns the primary as it was received, with a document merged into it: null removes a field.
pub(crate) fn changed(probe: &Probe, change: &Value) -> Value {
    let mut whole = probe.whole.clone();
    merge(&mut whole, change);
    whole
}

fn merge(into: &mut Value, change: &Value) {
    let Value::Object(fields) = change else {
        into.clone_from(change);
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, change) in fields {
        match (into.as_object_mut(), change) {
            (Some(object), Value::Null) => drop(object.remove(name)),
            (Some(object), change) => merge(object.entry(name).or_insert(Value::Null), change),
            (None, _) => {}
        }
    }
}

fn options(write: &Write) -> Result<Options> {
    let mut options = Options::new();
    if let Some(mode) = write.mode {
        options = options.mode(mode);
    }
    if let Some(by) = write.compare_by {
        options = options.compare_by(by);
    }
    if let Some(name) = &write.subresource {
        options = options.subresource(name);
    }
    if let Some(name) = &write.source {
        options = options.source(name);
    }
    match &write.actual {
        Some(actual) => options.actual(actual),
        None => Ok(options),
    }
}

fn removal(write: &Write) -> Removal {
    let mut removal = Removal::new();
    if let Some(propagation) = write.propagation {
        removal = removal.propagation(propagation);
    }
    if let Some(uid) = &write.uid {
        removal = removal.only_uid(uid);
    }
    if let Some(version) = &write.resource_version {
        removal = removal.only_at(version);
    }
    if let Some(seconds) = write.grace_seconds {
        removal = removal.grace_seconds(seconds);
    }
    removal
}

fn read(read: &Read, Keep { show, .. }: &Keep) -> Result<Value> {
    let place = match &read.place {
        Place::Source(name) => cache::source(name),
        Place::Kind { api_version, kind } => cache::kind(api_version, kind),
        Place::Primaries => cache::primaries(),
    };
    let one = |object: Option<Value>| object.map_or(Value::Null, |object| shown(&object, show));
    let query = match &read.select {
        Select::One => return place.one().map(one),
        Select::Named { namespace, name } => {
            return place.named(namespace.as_deref(), name).map(one);
        }
        Select::Related => place.related(),
        Select::Namespace(namespace) => place.in_namespace(namespace),
        Select::Everywhere => place.everywhere(),
        Select::Indexed { index, key } => place.indexed(index, key),
    };
    let objects: Vec<Value> = narrowed(query, read).all()?;
    Ok(objects.iter().map(|object| shown(object, show)).collect())
}

/// Returns what is read once it is something. The limit of the call's time ends it, too.
fn wait(read: &Read, keep: &Keep) -> Result<Value> {
    loop {
        let found = self::read(read, keep)?;
        if !found.is_null() && found != json!([]) {
            return Ok(found);
        }
    }
}

/// Puts fields of objects that belong to the primary into a dependent's, as far as they are there; by the pointer to what they become.
pub(crate) fn copy(into: &mut Map<String, Value>, fields: &BTreeMap<String, Field>) -> Result<()> {
    for (to, Field { source, field }) in fields {
        let found = cache::source(source).one::<Value>()?;
        let Some(value) = found.as_ref().and_then(|object| object.pointer(field)) else { continue };
        let nested =
            to.rsplit('/').filter(|name| !name.is_empty()).fold(value.clone(), |value, name| json!({ name: value }));
        let mut whole = Value::Object(std::mem::take(into));
        merge(&mut whole, &nested);
        if let Value::Object(merged) = whole {
            *into = merged;
        }
    }
    Ok(())
}

fn narrowed(mut query: Query, Read { labels, fields, newest_only, limit, .. }: &Read) -> Query {
    if let Some(selector) = labels {
        query = query.labels(selector);
    }
    if *newest_only {
        query = query.newest_only();
    }
    if let Some(limit) = limit {
        query = query.limit(*limit);
    }
    query.fields(fields.iter().map(String::as_str))
}

fn compare(Compare { by, actual, desired, ignore }: &Compare) -> Result<Value> {
    let ignore: Vec<&str> = ignore.iter().map(String::as_str).collect();
    Ok(match operations::compare(*by, actual, desired, &ignore)? {
        Match::Matches => json!("matches"),
        Match::Differs(what) => json!({ "differs": what }),
    })
}

fn workflow(Workflow { run, name }: &Workflow) -> Result<Value> {
    let workflow = name.as_deref().map_or_else(workflow::managed, workflow::standalone);
    match run {
        WorkflowRun::Reconcile => value(&workflow.reconcile()?),
        WorkflowRun::Cleanup => value(&workflow.cleanup()?),
        WorkflowRun::LastResult => value(&workflow.last_result()),
    }
}

fn dependent(Dependent { run, name }: &Dependent) -> Result<Value> {
    let dependent = workflow::dependent(name);
    match run {
        DependentRun::Reconcile => value(&dependent.reconcile()?),
        DependentRun::Remove => value(&dependent.remove()?),
    }
}

fn say(Log { level, message, fields }: &Log) -> Seen {
    let fields: Vec<(&str, &dyn std::fmt::Display)> =
        fields.iter().map(|(name, value)| (name.as_str(), value as &dyn std::fmt::Display)).collect();
    log::write(*level, message, &fields);
    Seen::new()
}

fn event(from: &Event) -> Seen {
    let make = if from.warning { recorder::Event::warning } else { recorder::Event::normal };
    let mut event = make(&from.reason, &from.message);
    if let Some(key) = &from.key {
        event = event.key(key);
    }
    if let Some(action) = &from.action {
        event = event.action(action);
    }
    if let Some(component) = &from.component {
        event = event.component(component);
    }
    event = pairs(&from.labels, event, recorder::Event::label);
    pairs(&from.annotations, event, recorder::Event::annotation).publish();
    Seen::new()
}

fn pairs<T>(pairs: &BTreeMap<String, String>, to: T, add: impl Fn(T, &str, &str) -> T) -> T {
    pairs.iter().fold(to, |to, (name, value)| add(to, name, value))
}

/// Returns the asked fields of an object by their pointers, or its name if none is asked for.
fn shown(object: &Value, pointers: &[String]) -> Value {
    let field = |pointer: &str| object.pointer(pointer).cloned().unwrap_or_default();
    if pointers.is_empty() {
        return field("/metadata/name");
    }
    Value::Object(pointers.iter().map(|pointer| (pointer.clone(), field(pointer))).collect())
}

/// Returns a refusal as it is kept.
fn refusal(error: &Error) -> Value {
    json!({ "refused": error.reason(), "code": error.code(), "message": error.message() })
}

/// Returns any value as JSON.
pub(crate) fn value(of: &impl Serialize) -> Result<Value> {
    Json::of(of)?.parse()
}
