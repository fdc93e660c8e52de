//! Decides what a `Probe` can ask for. An unknown field is an error, so that a test's typo is found.

use std::collections::BTreeMap;

use capstan_guest::Metadata;
use capstan_guest::log::Level;
use capstan_guest::memo::Lifetime;
use capstan_guest::operations::{By, Mode, ObjectRef, Propagation};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The annotation that holds the spec of a primary of another kind, whose own spec says something else.
const ANNOTATION: &str = "test.capstan.dev/spec";

/// The primary.
pub(crate) struct Probe {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Spec,
    /// All of it, as it was received.
    pub(crate) whole: Value,
}

impl Probe {
    /// Returns the primary of what is about none.
    pub(crate) fn nobody() -> Self {
        Self { metadata: Metadata::default(), spec: Spec::default(), whole: Value::Null }
    }
}

impl<'de> Deserialize<'de> for Probe {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let whole = Value::deserialize(deserializer)?;
        let metadata: Metadata =
            serde_json::from_value(whole.get("metadata").cloned().unwrap_or_default()).map_err(D::Error::custom)?;
        let spec = match (metadata.annotations.get(ANNOTATION), whole.get("spec")) {
            (Some(text), _) => serde_json::from_str(text),
            (None, Some(spec)) => serde_json::from_value(spec.clone()),
            (None, None) => Ok(Spec::default()),
        };
        Ok(Self { metadata, spec: spec.map_err(D::Error::custom)?, whole })
    }
}

/// What the exports do, one field each. Other fields are free, for conditions in CEL and the like.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    pub(crate) reconcile: Reconcile,
    pub(crate) cleanup: Cleanup,
    pub(crate) on_error: Option<OnError>,
    pub(crate) retry: Option<Retry>,
    pub(crate) validate: Validate,
    pub(crate) initialize: Initialize,
    /// By the dependent's name: the object as it is, but for `$do`, `$copy` and `$text`.
    pub(crate) dependents: BTreeMap<String, Map<String, Value>>,
    /// What `desired-set` answers, by the dependent's name: objects like these.
    pub(crate) bulks: BTreeMap<String, Vec<Map<String, Value>>>,
    pub(crate) matchers: BTreeMap<String, Matcher>,
    pub(crate) conditions: BTreeMap<String, Value>,
    /// What `poll-one` answers, by source.
    pub(crate) polls: BTreeMap<String, Poll>,
    /// What `poll` answers for this primary, by source.
    pub(crate) polled: BTreeMap<String, Poll>,
    /// What `accepts` answers for this object, by the filter's name.
    pub(crate) filters: BTreeMap<String, Filter>,
    /// What `to-primaries` answers for this object, by the mapper's name.
    pub(crate) mappers: BTreeMap<String, Mapper>,
    /// What `to-secondaries` answers for this primary, by the mapper's name.
    pub(crate) secondary_mappers: BTreeMap<String, Mapper>,
}

/// What `reconcile` does, and then answers.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct Reconcile {
    #[serde(rename = "do", deserialize_with = "one_or_many")]
    pub(crate) steps: Vec<Step>,
    /// The status to write; what the steps saw and `observedGeneration` are added.
    pub(crate) status: Option<Map<String, Value>>,
    /// The object to write.
    pub(crate) object: Option<Value>,
    /// What is merged into the primary, which is then the object to write.
    pub(crate) change: Option<Value>,
    /// Milliseconds until the next run.
    pub(crate) reschedule: Option<u32>,
    /// The `resourceVersion` at which alone is written; `given` for that of the primary as it was received.
    pub(crate) only_at: Option<String>,
    /// Instead of all that: what each run does in its turn, and all after the last one.
    pub(crate) turns: Vec<Reconcile>,
    /// A status document that is no JSON.
    pub(crate) bad_json: bool,
    /// A status document of another primary.
    pub(crate) other_name: Option<String>,
}

/// What `cleanup` does, and then answers.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct Cleanup {
    #[serde(rename = "do", deserialize_with = "one_or_many")]
    pub(crate) steps: Vec<Step>,
    /// Whether the finalizer is kept.
    pub(crate) keep: bool,
    /// Milliseconds until the next call, if it is kept.
    pub(crate) reschedule: Option<u32>,
}

/// What `handle-error` does, and then answers.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct OnError {
    #[serde(rename = "do", deserialize_with = "one_or_many")]
    pub(crate) steps: Vec<Step>,
    /// The status to write; with `failure: true`, what failed is added as `failure`.
    pub(crate) status: Option<Map<String, Value>>,
    pub(crate) failure: bool,
    /// Whether message and attempt are added to the list `failures` of the status.
    pub(crate) failures: bool,
    pub(crate) next: Next,
}

/// How to go on after a failure.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Next {
    #[default]
    Retry,
    RetryAfter(u32),
    Stop,
    Reschedule(u32),
}

/// What `decide-retry` does, and then answers.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct Retry {
    #[serde(rename = "do", deserialize_with = "one_or_many")]
    pub(crate) steps: Vec<Step>,
    /// Milliseconds until the retry; without it, as the manifest says.
    #[serde(rename = "after")]
    pub(crate) next: Option<u32>,
    /// The attempt after which there are no more.
    pub(crate) stop_at: Option<u32>,
}

/// What `validate` does, and then answers.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Validate {
    #[serde(rename = "do", deserialize_with = "one_or_many")]
    pub(crate) steps: Vec<Step>,
    /// What is wrong, by field; `""` is the primary as a whole.
    pub(crate) wrong: BTreeMap<String, String>,
}

/// What `initialize` does.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Initialize {
    #[serde(rename = "do", deserialize_with = "one_or_many")]
    pub(crate) steps: Vec<Step>,
}

/// What a matcher does before it compares `data`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Matcher {
    #[serde(rename = "do", deserialize_with = "one_or_many")]
    pub(crate) steps: Vec<Step>,
}

/// What a poll does, and then answers.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct Poll {
    #[serde(rename = "do", deserialize_with = "one_or_many")]
    pub(crate) steps: Vec<Step>,
    /// The things.
    pub(crate) things: Vec<Value>,
    /// Whether each gets a field `count`: how often it was polled. It is kept for the plugin, as the memo `polls NAME`.
    pub(crate) count: bool,
    /// The texts of things in place of that, as they are.
    pub(crate) texts: Vec<String>,
    /// Milliseconds until the next poll.
    pub(crate) again: Option<u32>,
}

/// The body of a request: what `receive` does, and then answers.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct Receive {
    #[serde(rename = "do", deserialize_with = "one_or_many")]
    pub(crate) steps: Vec<Step>,
    /// What it says of primaries.
    pub(crate) events: Vec<Told>,
    /// The status, if it is to be another than 202.
    pub(crate) status: Option<u16>,
    /// The text.
    pub(crate) text: String,
    /// Whether the text is what was asked, instead: the source, the path and the headers.
    pub(crate) echo: bool,
}

/// What a request says of a primary: that it has a thing, that one is gone, or only that it is to run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Told {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) present: Option<Value>,
    pub(crate) gone: Option<String>,
}

/// What a filter does, and then answers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Filter {
    #[serde(rename = "do", default, deserialize_with = "one_or_many")]
    pub(crate) steps: Vec<Step>,
    pub(crate) accepts: bool,
}

/// What a mapper does, and then answers.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct Mapper {
    #[serde(rename = "do", deserialize_with = "one_or_many")]
    pub(crate) steps: Vec<Step>,
    /// What belongs to the object: `name` or `namespace/name`.
    pub(crate) keys: Vec<String>,
}

/// What a condition does and answers, if it is more than true or false.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Condition {
    #[serde(rename = "do", default, deserialize_with = "one_or_many")]
    pub(crate) steps: Vec<Step>,
    pub(crate) met: bool,
    pub(crate) detail: Option<Value>,
}

/// One thing to do, and how what it sees is kept: `{ read: {…}, as: pods, show: [/spec] }`.
pub(crate) struct Step {
    pub(crate) deed: Deed,
    pub(crate) keep: Keep,
    /// `when`: it is done for such a primary only; none = for any.
    pub(crate) when: Option<When>,
}

/// Whether a primary is to stay.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum When {
    /// It is there.
    Present,
    /// It is there, and marked for deletion.
    Going,
    /// It is gone, in all-events mode.
    Gone,
}

/// How what a step sees is kept.
pub(crate) struct Keep {
    /// `as`: the name under which it is kept; else that of the deed.
    pub(crate) name: Option<String>,
    /// `show`: the fields of an object that are kept, as JSON pointers; none = its name only.
    pub(crate) show: Vec<String>,
    /// `mayFail`: whether a refusal is kept, too; else it fails the call.
    pub(crate) may_fail: bool,
    /// `tell`: whether it is logged instead, so that it changes no status.
    pub(crate) tell: bool,
}

/// What there is to do.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Deed {
    /// Fails with this text.
    Fail(String),
    /// Fails until there have been so many retries.
    FailTimes(u32),
    /// Panics.
    Trap,
    /// Never ends.
    Loop,
    /// Allocates without end.
    Allocate,
    /// Calls itself without end.
    Recurse,
    /// Spins for so many milliseconds.
    BusyMs(u32),
    /// Tries to reach this address, and everything else that a network is for.
    Connect(String),
    /// Prints so many bytes, in lines of 80.
    Print(usize),
    /// Prints a text as it is.
    PrintText(String),
    /// Writes so many bytes, which are neither text nor lines, where errors are written.
    Shout(usize),
    Times(Times),
    Log(Log),
    Event(Event),
    Memo(Memo),
    Expect(Expect),
    /// Registers a source.
    Register(Register),
    /// Tells a source of a thing that the run has made, or put in the place of another.
    Remember(Remember),
    /// Tells a source of a thing that the run has removed.
    Forget(Forget),
    /// Deregisters the source of this name.
    Deregister(String),
    Write(Write),
    Read(Read),
    /// Reads again and again until there is something: a test holds a run by it.
    Await(Read),
    Compare(Compare),
    Workflow(Workflow),
    Dependent(Dependent),
    /// Keeps what the daemon says about the run.
    See(Vec<Sight>),
}

/// Steps that are done again and again.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Times {
    pub(crate) n: u32,
    #[serde(rename = "do", deserialize_with = "one_or_many")]
    pub(crate) steps: Vec<Step>,
}

/// What the daemon says about the run.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Sight {
    Run,
    Retry,
    NextImminent,
    TimeLeftMs,
    Settings,
    Config,
    Now,
    NowMs,
    Uuid,
    Random,
    Primary,
}

impl Sight {
    /// Returns the name under which it is kept.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Retry => "retry",
            Self::NextImminent => "nextImminent",
            Self::TimeLeftMs => "timeLeftMs",
            Self::Settings => "settings",
            Self::Config => "config",
            Self::Now => "now",
            Self::NowMs => "nowMs",
            Self::Uuid => "uuid",
            Self::Random => "random",
            Self::Primary => "primary",
        }
    }
}

/// A line of the log.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    #[serde(default = "info")]
    pub(crate) level: Level,
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) fields: BTreeMap<String, String>,
}

/// A Kubernetes Event.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Event {
    #[serde(default)]
    pub(crate) warning: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) key: Option<String>,
    pub(crate) action: Option<String>,
    pub(crate) component: Option<String>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// A value kept by the daemon: exactly one of `put`, `get`, `count` and `remove` names the key.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Memo {
    pub(crate) lifetime: Lifetime,
    pub(crate) put: Option<String>,
    #[serde(default)]
    pub(crate) value: Value,
    pub(crate) get: Option<String>,
    pub(crate) count: Option<String>,
    pub(crate) remove: Option<String>,
}

/// Something that is expected to come true in time, and checked from then on.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Expect {
    pub(crate) name: String,
    pub(crate) timeout_ms: u32,
    /// The one object of this source that belongs to the primary …
    pub(crate) source: Option<String>,
    /// … and which of its fields is to be …
    #[serde(default)]
    pub(crate) pointer: String,
    /// … this; without a source, whether it is so.
    pub(crate) is: Value,
}

/// A write: an object for `create`, `apply`, `forceApply`, `update`, `edit`; a target for the others; a patch for the patches.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Write {
    pub(crate) verb: Verb,
    #[serde(default)]
    pub(crate) object: Value,
    /// What is merged into the primary, which is then the object.
    pub(crate) change: Option<Value>,
    pub(crate) target: Option<ObjectRef>,
    #[serde(default)]
    pub(crate) patch: Value,
    pub(crate) finalizer: Option<String>,
    pub(crate) mode: Option<Mode>,
    pub(crate) compare_by: Option<By>,
    pub(crate) subresource: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) actual: Option<Value>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) grace_seconds: Option<u32>,
}

/// What is asked of `operations`.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Verb {
    Create,
    Apply,
    ForceApply,
    Update,
    Edit,
    JsonPatch,
    MergePatch,
    Remove,
    AddFinalizer,
    RemoveFinalizer,
}

/// A question for the cache.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Read {
    #[serde(rename = "in")]
    pub(crate) place: Place,
    pub(crate) select: Select,
    pub(crate) labels: Option<String>,
    #[serde(default)]
    pub(crate) fields: Vec<String>,
    #[serde(default)]
    pub(crate) newest_only: bool,
    pub(crate) limit: Option<u32>,
}

/// Where to look.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Place {
    Source(String),
    #[serde(rename_all = "camelCase")]
    Kind {
        api_version: String,
        kind: String,
    },
    Primaries,
}

/// Which objects.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Select {
    /// The one that belongs to the primary.
    One,
    /// The one with this name.
    Named { namespace: Option<String>, name: String },
    /// Those that belong to the primary.
    Related,
    /// Those of a namespace.
    Namespace(String),
    /// All.
    Everywhere,
    /// Those under a key.
    Indexed { index: String, key: String },
}

/// Two documents to compare.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Compare {
    pub(crate) by: By,
    pub(crate) actual: Value,
    pub(crate) desired: Value,
    #[serde(default)]
    pub(crate) ignore: Vec<String>,
}

/// A thing that the run has made, or put in the place of another.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Remember {
    pub(crate) name: String,
    pub(crate) actual: Value,
    pub(crate) replaced: Option<Value>,
}

/// A thing that the run has removed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Forget {
    pub(crate) name: String,
    pub(crate) id: String,
}

/// A source to register.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Register {
    pub(crate) name: String,
    /// As in the manifest.
    pub(crate) declaration: Value,
}

/// A workflow to run; without a name, the managed one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Workflow {
    pub(crate) run: WorkflowRun,
    pub(crate) name: Option<String>,
}

/// What is done with a workflow.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum WorkflowRun {
    Reconcile,
    Cleanup,
    LastResult,
}

/// A standalone dependent to run.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Dependent {
    pub(crate) run: DependentRun,
    pub(crate) name: String,
}

/// What is done with a standalone dependent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum DependentRun {
    Reconcile,
    Remove,
}

/// A field of an object that belongs to the primary.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Field {
    /// The source that has the object.
    pub(crate) source: String,
    /// Its JSON pointer.
    pub(crate) field: String,
}

/// Reads the steps from a list, or from one that stands alone.
pub(crate) fn steps(value: Value) -> serde_json::Result<Vec<Step>> {
    if let Value::Array(steps) = value {
        return steps.into_iter().map(step).collect();
    }
    Ok(vec![step(value)?])
}

fn step(mut value: Value) -> serde_json::Result<Step> {
    let mut aside = |name| value.as_object_mut().and_then(|fields| fields.remove(name));
    let keep = Keep {
        name: aside("as").map(serde_json::from_value).transpose()?,
        show: aside("show").map(serde_json::from_value).transpose()?.unwrap_or_default(),
        may_fail: aside("mayFail") == Some(Value::Bool(true)),
        tell: aside("tell") == Some(Value::Bool(true)),
    };
    let when = aside("when").map(serde_json::from_value).transpose()?;
    Ok(Step { deed: serde_json::from_value(value)?, keep, when })
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Step>, D::Error> {
    steps(Value::deserialize(deserializer)?).map_err(D::Error::custom)
}

fn info() -> Level {
    Level::Info
}
