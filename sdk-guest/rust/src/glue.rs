//! Decides how a call of the daemon becomes a call of the author's traits. Hidden: `export!` alone uses it.

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answers::{self, Keep, Next, Wait, Write};
use crate::bindings::bulk::exports::capstan::operator::bulk;
use crate::bindings::cleaner::exports::capstan::operator::cleaner::{self, DeleteControl};
use crate::bindings::condition::exports::capstan::operator::condition::{self, ConditionResult};
use crate::bindings::dependent::exports::capstan::operator::dependent;
use crate::bindings::description::exports::capstan::operator::description;
pub use crate::bindings::description::exports::capstan::operator::description::KnownNames;
use crate::bindings::error_handler::exports::capstan::operator::error_handler::{
    self, ErrorHandling, FailureInfo, NextStep,
};
use crate::bindings::external::exports::capstan::operator::external;
use crate::bindings::filter::exports::capstan::operator::filter;
use crate::bindings::imports::capstan::operator::types::ObjectKey;
use crate::bindings::inbound::exports::capstan::operator::inbound;
use crate::bindings::initializer::exports::capstan::operator::initializer;
use crate::bindings::mapper::exports::capstan::operator::mapper;
use crate::bindings::matcher::exports::capstan::operator::matcher;
use crate::bindings::poller::exports::capstan::operator::poller::{self, PrimaryResources};
use crate::bindings::reconciler::exports::capstan::operator::reconciler::{self, PrimaryUpdate, UpdateControl};
use crate::bindings::resource_poller::exports::capstan::operator::resource_poller::{self, PollResult};
use crate::bindings::retry_policy::exports::capstan::operator::retry_policy::{self, FailedRun};
use crate::bindings::secondary_mapper::exports::capstan::operator::secondary_mapper;
use crate::bindings::validator::exports::capstan::operator::validator;
use crate::inbound::Received;
use crate::{
    Bulks, Cleaner, Conditions, Created, Deletion, Dependents, Error, ErrorHandler, External, Filters, Handled,
    Initializer, Json, Keys, Mappers, Match, Matchers, Met, Names, NextRetry, Pollers, PrimaryThings, Problem,
    Receivers, Reconciler, ResourcePollers, Result, RetryPolicy, SecondaryMappers, Things, Update, Validator, context,
    json,
};

/// The primary of functions that do not look at it.
pub type Anything = serde::de::IgnoredAny;

/// What a component exports: the author's traits behind the contract's functions.
pub struct Adapter<T>(PhantomData<T>);

impl<T: Reconciler> reconciler::Guest for Adapter<T> {
    fn reconcile(primary: String) -> Result<UpdateControl, String> {
        let update = self::primary(&primary).and_then(|primary| T::reconcile(&primary));
        update.and_then(update_control).map_err(Error::into_message)
    }
}

impl<T: Cleaner> cleaner::Guest for Adapter<T> {
    fn cleanup(primary: String) -> Result<DeleteControl, String> {
        let delete = self::primary(&primary).and_then(|primary| T::cleanup(&primary));
        delete.map(delete_control).map_err(Error::into_message)
    }
}

impl<T: ErrorHandler> error_handler::Guest for Adapter<T> {
    fn handle_error(primary: String, failed: FailureInfo) -> Result<error_handler::ErrorControl, String> {
        let handled = self::primary(&primary).and_then(|primary| T::handle_error(&primary, &failed));
        handled.and_then(error_control).map_err(Error::into_message)
    }
}

impl<T: RetryPolicy> retry_policy::Guest for Adapter<T> {
    fn decide_retry(primary: String, failed: FailedRun) -> Result<retry_policy::NextRetry, String> {
        let next = self::primary(&primary).and_then(|primary| T::decide_retry(&primary, &failed));
        next.map(next_retry).map_err(Error::into_message)
    }
}

impl<T: Validator> validator::Guest for Adapter<T> {
    fn validate(primary: String, _old: Option<String>) -> Result<Vec<validator::Problem>, String> {
        let found = self::primary(&primary).and_then(|primary| T::validate(&primary));
        let said = |Problem { field, message }| validator::Problem { field, message };
        found.map(|found| found.into_iter().map(said).collect()).map_err(Error::into_message)
    }
}

impl<T: Initializer> initializer::Guest for Adapter<T> {
    fn initialize(primary: String) -> Result<(), String> {
        let ready = self::primary(&primary).and_then(|primary| T::initialize(&primary));
        ready.map_err(Error::into_message)
    }
}

impl<T: Dependents> dependent::Guest for Adapter<T> {
    fn desired(name: String, primary: String) -> Result<String, String> {
        let desired = self::primary(&primary).and_then(|primary| T::desired(&name, &primary));
        desired.map(Json::into_string).map_err(Error::into_message)
    }
}

impl<T: Bulks> bulk::Guest for Adapter<T> {
    fn desired_set(name: String, primary: String) -> Result<Vec<String>, String> {
        let set = self::primary(&primary).and_then(|primary| T::desired_set(&name, &primary));
        set.map(|set| set.into_iter().map(Json::into_string).collect()).map_err(Error::into_message)
    }
}

impl<T: External> external::Guest for Adapter<T> {
    fn create(name: String, desired: String, primary: String) -> Result<external::Created, String> {
        let desired = Json::unchecked(desired);
        let created = self::primary(&primary).and_then(|primary| T::create_external(&name, &desired, &primary));
        let said = |Created { actual, state }| external::Created {
            actual: Json::into_string(actual),
            state: state.map(Json::into_string),
        };
        created.map(said).map_err(Error::into_message)
    }

    fn update(name: String, actual: String, desired: String, primary: String) -> Result<String, String> {
        let (actual, desired) = (Json::unchecked(actual), Json::unchecked(desired));
        let updated =
            self::primary(&primary).and_then(|primary| T::update_external(&name, &actual, &desired, &primary));
        updated.map(Json::into_string).map_err(Error::into_message)
    }

    fn remove(name: String, actual: String, primary: String) -> Result<(), String> {
        let actual = Json::unchecked(actual);
        let removed = self::primary(&primary).and_then(|primary| T::remove_external(&name, &actual, &primary));
        removed.map_err(Error::into_message)
    }
}

impl<T: Matchers> matcher::Guest for Adapter<T> {
    fn match_(name: String, actual: String, desired: String, primary: String) -> Result<Match, String> {
        let (actual, desired) = (Json::unchecked(actual), Json::unchecked(desired));
        let matched = self::primary(&primary).and_then(|primary| T::matches(&name, &actual, &desired, &primary));
        matched.map_err(Error::into_message)
    }
}

impl<T: Conditions> condition::Guest for Adapter<T> {
    fn is_met(name: String, dependent: String, primary: String) -> Result<ConditionResult, String> {
        let condition = self::primary(&primary).and_then(|primary| T::is_met(&name, &dependent, &primary));
        let result = condition.and_then(|Met { met, detail }| {
            Ok(ConditionResult { met, detail: detail?.map(|detail| detail.to_string()) })
        });
        result.map_err(Error::into_message)
    }
}

impl<T: Pollers> poller::Guest for Adapter<T> {
    fn poll(name: String) -> Result<Vec<PrimaryResources>, String> {
        T::poll(&name).and_then(by_primary).map_err(Error::into_message)
    }
}

impl<T: ResourcePollers> resource_poller::Guest for Adapter<T> {
    fn poll_one(name: String, primary: String) -> Result<PollResult, String> {
        let things = self::primary(&primary).and_then(|primary| T::poll_one(&name, &primary));
        things.and_then(poll_result).map_err(Error::into_message)
    }
}

impl<T: Receivers> inbound::Guest for Adapter<T> {
    fn receive(name: String, request: inbound::InboundRequest) -> Result<inbound::InboundAnswer, String> {
        T::receive(&name, &request.into()).and_then(Received::into_answer).map_err(Error::into_message)
    }
}

impl<T: Filters> filter::Guest for Adapter<T> {
    fn accepts(name: String, change: filter::Change) -> Result<bool, String> {
        T::accepts(&name, &change.into()).map_err(Error::into_message)
    }
}

impl<T: Mappers> mapper::Guest for Adapter<T> {
    fn to_primaries(name: String, secondary: String) -> Result<Vec<ObjectKey>, String> {
        T::to_primaries(&name, &Json::unchecked(secondary)).map(|Keys(keys)| keys).map_err(Error::into_message)
    }
}

impl<T: SecondaryMappers> secondary_mapper::Guest for Adapter<T> {
    fn to_secondaries(name: String, primary: String) -> Result<Vec<ObjectKey>, String> {
        let keys = self::primary(&primary).and_then(|primary| T::to_secondaries(&name, &primary));
        keys.map(|Keys(keys)| keys).map_err(Error::into_message)
    }
}

/// What `export!` says of a component: the names of all that it exports.
pub trait Described {
    /// Returns the names by interface and controller.
    fn entries() -> Vec<KnownNames>;
}

impl<T: Described> description::Guest for Adapter<T> {
    fn describe() -> Result<Vec<KnownNames>, String> {
        Ok(T::entries())
    }
}

/// Returns the names of an interface for a controller, or for all; `None` where its function takes no name, or any.
pub fn known(exported: &str, controller: Option<&str>, names: Names) -> KnownNames {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    KnownNames { exported: exported.to_owned(), controller: controller.map(str::to_owned), names: names.map(owned) }
}

pub(crate) fn by_primary(PrimaryThings(all): PrimaryThings) -> Result<Vec<PrimaryResources>> {
    let one = |(namespace, name, things): (Option<String>, String, Result<Vec<Json>>)| {
        let resources = things?.into_iter().map(Json::into_string).collect();
        Ok(PrimaryResources { primary: ObjectKey::of(namespace.as_deref(), &name), resources })
    };
    all.into_iter().map(one).collect()
}

fn poll_result(Things { things, again }: Things) -> Result<PollResult> {
    let resources = things?.into_iter().map(Json::into_string).collect();
    Ok(PollResult { resources, again_ms: again.map(millis) })
}

fn update_control(update: Update) -> Result<UpdateControl> {
    let Update { write, version, reschedule } = update;
    let update = match write? {
        Write::Nothing => PrimaryUpdate::Nothing,
        Write::Object(object) => PrimaryUpdate::Object(answers::at_version(object, version)?.to_string()),
        Write::Status(status) => PrimaryUpdate::Status(answers::status_document(status, version)?.to_string()),
        Write::ObjectAndStatus(object, status) => {
            let object = answers::at_version(answers::with_status(object, status)?, version)?;
            PrimaryUpdate::ObjectAndStatus(object.to_string())
        }
        Write::Unchecked(document) => PrimaryUpdate::Status(document.into_string()),
    };
    Ok(UpdateControl { update, reschedule_ms: reschedule.map(millis) })
}

fn delete_control(Deletion { keep }: Deletion) -> DeleteControl {
    match keep {
        None => DeleteControl::RemoveFinalizer,
        Some(Keep::UntilNextEvent) => DeleteControl::KeepFinalizer(None),
        Some(Keep::For(pause)) => DeleteControl::KeepFinalizer(Some(millis(pause))),
    }
}

fn error_control(handled: Option<Handled>) -> Result<error_handler::ErrorControl> {
    let Some(Handled { status, next }) = handled else {
        return Ok(error_handler::ErrorControl::Unhandled);
    };
    let next = match next {
        Next::Retry => NextStep::Retry,
        Next::RetryAfter(delay) => NextStep::RetryAfterMs(millis(delay)),
        Next::Stop => NextStep::Stop,
        Next::Reschedule(after) => NextStep::RescheduleMs(millis(after)),
    };
    let status = status?.map(|status| answers::status_document(status, None)).transpose()?;
    let status = status.map(|status| status.to_string());
    Ok(error_handler::ErrorControl::Handled(ErrorHandling { status, next }))
}

fn next_retry(NextRetry(wait): NextRetry) -> retry_policy::NextRetry {
    match wait {
        Wait::Declared => retry_policy::NextRetry::Declared,
        Wait::After(delay) => retry_policy::NextRetry::AfterMs(millis(delay)),
        Wait::Stop => retry_policy::NextRetry::Stop,
    }
}

/// Returns the whole milliseconds that the contract can say.
fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// The primary of the last call, as each type that has asked for it: one run calls for the same text several times.
struct Parsed {
    text: String,
    values: Vec<Rc<dyn Any>>,
}

thread_local! {
    static PARSED: RefCell<Parsed> = const { RefCell::new(Parsed { text: String::new(), values: Vec::new() }) };
}

/// Returns the primary as `T`, read once for a text.
pub fn primary<T: DeserializeOwned + 'static>(text: &str) -> Result<Rc<T>> {
    PARSED.with_borrow_mut(|parsed| {
        if parsed.text != text {
            text.clone_into(&mut parsed.text);
            parsed.values.clear();
        }
        if let Some(known) = parsed.values.iter().find_map(|value| Rc::clone(value).downcast().ok()) {
            return Ok(known);
        }
        let value = Rc::new(json::parse::<T>(text).map_err(|error| error.context("the primary"))?);
        parsed.values.push(Rc::<T>::clone(&value));
        Ok(value)
    })
}

/// Returns the objects of a bulk dependent.
pub fn set<T: Serialize>(objects: impl IntoIterator<Item = T>) -> Result<Vec<Json>> {
    objects.into_iter().map(|object| Json::of(&object)).collect()
}

/// Returns the error for a name of the manifest that the component does not know.
pub fn unknown(what: &str, name: &str, known: &[&str]) -> Error {
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!("this component has no {what} `{name}`; it has: {known}").into()
}

/// Returns the name of the controller that this call is for, in a run or beside all runs.
pub fn controller() -> String {
    #[derive(serde::Deserialize)]
    struct Settings {
        controller: Name,
    }
    #[derive(serde::Deserialize)]
    struct Name {
        name: String,
    }
    let beside = || context::settings::<Settings>().map(|settings| settings.controller.name).unwrap_or_default();
    context::run().map_or_else(beside, |run| run.controller)
}

/// An answer that may be an error. Of the two traits with `kind`, this one is found first.
pub trait Fallible {
    /// Returns how it is settled.
    fn kind(&self) -> FallibleKind;
}

impl<T, E> Fallible for Result<T, E> {
    fn kind(&self) -> FallibleKind {
        FallibleKind
    }
}

/// An answer that is none: found through one more reference.
pub trait Plain {
    /// Returns how it is settled.
    fn kind(&self) -> PlainKind;
}

impl<T> Plain for &T {
    fn kind(&self) -> PlainKind {
        PlainKind
    }
}

/// Settles a `Result`.
pub struct FallibleKind;

impl FallibleKind {
    /// Returns the value or our error.
    pub fn settle<T, E>(self, answer: Result<T, E>) -> Result<T>
    where
        Error: From<E>,
    {
        answer.map_err(Error::from)
    }
}

/// Settles anything else.
pub struct PlainKind;

impl PlainKind {
    /// Returns the value.
    pub fn settle<T>(self, answer: T) -> Result<T> {
        Ok(answer)
    }
}
