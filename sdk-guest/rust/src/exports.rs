//! Decides what an author implements: one trait for each thing that the daemon may ask of a component.

use std::fmt;

use serde::de::DeserializeOwned;

use crate::bindings::error_handler::exports::capstan::operator::error_handler;
use crate::bindings::retry_policy::exports::capstan::operator::retry_policy;
use crate::{
    Change, Created, Deletion, Handled, Json, Keys, Match, Met, NextRetry, PrimaryThings, Problem, Received, Request,
    Result, Things, Update,
};

/// What failed, for an [`ErrorHandler`].
pub type Failure = error_handler::FailureInfo;
/// A dependent that failed, and why.
pub type DependentFailure = error_handler::DependentFailure;
/// Where a failure comes from.
pub type Origin = error_handler::FailureOrigin;
/// What failed, for a [`RetryPolicy`].
pub type FailedRun = retry_policy::FailedRun;
/// The class of a failure, as under `retry.by` in the manifest.
pub type FailureClass = retry_policy::FailureClass;

impl fmt::Display for error_handler::FailureInfo {
    /// Writes the message, which is fit for a status.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Display for error_handler::DependentFailure {
    /// Writes the name and the message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.message)
    }
}

impl fmt::Display for retry_policy::FailedRun {
    /// Writes the message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The names that a trait answers to. The daemon refuses a version of the component that lacks one which the manifest uses, before it
/// is in force. `None`: which names there are shows at run time only, and they are not checked.
pub type Names = Option<&'static [&'static str]>;

/// Brings the world in line with a primary.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported as a Reconciler but does not implement `Reconciler`",
    label = "write `impl Reconciler for {Self} {{ … }}`"
)]
pub trait Reconciler {
    /// The author's type of the primary; it names the fields that are read.
    type Primary: DeserializeOwned + 'static;

    /// Called with the primary as the cache has it, after the managed workflow. An error is retried as the manifest says.
    fn reconcile(primary: &Self::Primary) -> Result<Update>;
}

/// Tidies up before a primary goes. Exporting it makes the controller use a finalizer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported as a Cleaner but does not implement `Cleaner`",
    label = "write `impl Cleaner for {Self} {{ … }}`"
)]
pub trait Cleaner {
    /// The author's type of the primary.
    type Primary: DeserializeOwned + 'static;

    /// Called for a primary that is marked for deletion and has the finalizer, after the clean-up of the managed workflow.
    fn cleanup(primary: &Self::Primary) -> Result<Deletion>;
}

/// Decides what a failed run leaves behind.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported as an ErrorHandler but does not implement `ErrorHandler`",
    label = "write `impl ErrorHandler for {Self} {{ … }}`"
)]
pub trait ErrorHandler {
    /// The author's type of the primary.
    type Primary: DeserializeOwned + 'static;

    /// Called after a failure of `reconcile`, or of the managed workflow before it.
    fn handle_error(primary: &Self::Primary, failure: &Failure) -> Result<Option<Handled>>;
}

/// Decides when a failed run is retried.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported as a RetryPolicy but does not implement `RetryPolicy`",
    label = "write `impl RetryPolicy for {Self} {{ … }}`"
)]
pub trait RetryPolicy {
    /// The author's type of the primary.
    type Primary: DeserializeOwned + 'static;

    /// Called after a failure of a run that reconciles or cleans up, when a retry would follow. An error leaves the delay to the
    /// manifest.
    fn decide_retry(primary: &Self::Primary, failed: &FailedRun) -> Result<NextRetry>;
}

/// Says whether a primary is one that the component can work with.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported as a Validator but does not implement `Validator`",
    label = "write `impl Validator for {Self} {{ … }}`"
)]
pub trait Validator {
    /// The author's type of the primary.
    type Primary: DeserializeOwned + 'static;

    /// Called before anything else in each run that reconciles, and sees the primary alone: of what the daemon offers, [`config`](crate::config) and
    /// the log work here. Returns what is wrong with it; nothing is written then but the status, until it changes. An error is one of the run, and
    /// is retried.
    fn validate(primary: &Self::Primary) -> Result<Vec<Problem>>;
}

/// Prepares a run.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported as an Initializer but does not implement `Initializer`",
    label = "write `impl Initializer for {Self} {{ … }}`"
)]
pub trait Initializer {
    /// The author's type of the primary.
    type Primary: DeserializeOwned + 'static;

    /// Called first in each run, before the managed workflow, whether the run will reconcile or clean up. It usually puts values
    /// into [`memo`](crate::memo), with `Lifetime::Run`, for the calls that follow. An error is one of the run, which ends with it.
    fn initialize(primary: &Self::Primary) -> Result<()>;
}

/// What dependents should look like. Usually written with [`#[dependents]`](crate::dependents); by hand if names are only known
/// at run time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported with Dependents but does not implement `Dependents`",
    label = "write `#[capstan_guest::dependents] impl {Self} {{ fn configmap(primary: &…) -> Result<…> {{ … }} }}`"
)]
pub trait Dependents {
    /// The names that it answers to: [`Names`].
    const NAMES: Names = None;

    /// The author's type of the primary.
    type Primary: DeserializeOwned + 'static;

    /// Returns the object that the dependent `name` should be. The namespace defaults to the primary's. Under another name than
    /// before it is another object; what becomes of the former one is said by `onRename` in the manifest.
    fn desired(name: &str, primary: &Self::Primary) -> Result<Json>;
}

/// What dependents should look like of which there are as many as the primary says (`bulk: true` in the manifest). Usually written
/// with [`#[bulks]`](crate::bulks).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported with Bulks but does not implement `Bulks`",
    label = "write `#[capstan_guest::bulks] impl {Self} {{ fn configmaps(primary: &…) -> Result<Vec<…>> {{ … }} }}`"
)]
pub trait Bulks {
    /// The names that it answers to: [`Names`].
    const NAMES: Names = None;

    /// The author's type of the primary.
    type Primary: DeserializeOwned + 'static;

    /// Returns all objects that the bulk dependent `name` should consist of, each as `desired` would return it; the same name and
    /// namespace once. What the daemon has made for this dependent and primary beyond them is deleted first.
    fn desired_set(name: &str, primary: &Self::Primary) -> Result<Vec<Json>>;
}

/// Writes dependents outside of the cluster (`external` in the manifest). What they should be is said by [`Dependents`] or [`Bulks`], and what
/// there is of them is read by [`Pollers`], [`ResourcePollers`] or [`Receivers`].
///
/// ```
/// use capstan_guest::{Created, External, Json, Result};
/// use serde_json::{Value, json};
/// # #[derive(serde::Deserialize)]
/// # struct WebPage { uid: String }
/// # struct WebPageOperator;
/// # fn register(_: &Value, _: &str) -> Result<Value> { Ok(json!({ "name": "a.example" })) }
/// # fn change(_: &Value, _: &Value) -> Result<Value> { Ok(json!({ "name": "a.example" })) }
/// # fn release(_: &Value) -> Result<()> { Ok(()) }
///
/// impl External for WebPageOperator {
///     type Primary = WebPage;
///
///     fn create_external(_name: &str, desired: &Json, page: &WebPage) -> Result<Created> {
///         // The uid lets the registry know a second call for the same page.
///         Created::new(register(&desired.parse()?, &page.uid)?)
///     }
///
///     fn update_external(_name: &str, actual: &Json, desired: &Json, _page: &WebPage) -> Result<Json> {
///         Json::of(&change(&actual.parse()?, &desired.parse()?)?)
///     }
///
///     fn remove_external(_name: &str, actual: &Json, _page: &WebPage) -> Result<()> {
///         release(&actual.parse()?)
///     }
/// }
/// # capstan_guest::export!(WebPageOperator: External);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported with External but does not implement `External`",
    label = "write `impl External for {Self} {{ … }}`"
)]
pub trait External {
    /// The names that it answers to: [`Names`].
    const NAMES: Names = None;

    /// The author's type of the primary.
    type Primary: DeserializeOwned + 'static;

    /// Creates what is desired of the dependent `name`, and returns it as it is then. It has to bear being repeated: the daemon may end before
    /// it has kept the answer.
    fn create_external(name: &str, desired: &Json, primary: &Self::Primary) -> Result<Created>;

    /// Makes `actual` as desired, and returns it as it is then, with the same id.
    fn update_external(name: &str, actual: &Json, desired: &Json, primary: &Self::Primary) -> Result<Json>;

    /// Removes `actual`. It is a success if it is gone already.
    fn remove_external(name: &str, actual: &Json, primary: &Self::Primary) -> Result<()>;
}

/// Own comparisons of dependents. Usually written with [`#[matchers]`](crate::matchers).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported with Matchers but does not implement `Matchers`",
    label = "write `#[capstan_guest::matchers] impl {Self} {{ fn same_data(actual: &…, desired: &…) -> Match {{ … }} }}`"
)]
pub trait Matchers {
    /// The names that it answers to: [`Names`].
    const NAMES: Names = None;

    /// The author's type of the primary.
    type Primary: DeserializeOwned + 'static;

    /// Says whether `actual` is as `desired`.
    fn matches(name: &str, actual: &Json, desired: &Json, primary: &Self::Primary) -> Result<Match>;
}

/// Conditions of a workflow. Usually written with [`#[conditions]`](crate::conditions).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported with Conditions but does not implement `Conditions`",
    label = "write `#[capstan_guest::conditions] impl {Self} {{ fn is_ready(primary: &…) -> bool {{ … }} }}`"
)]
pub trait Conditions {
    /// The names that it answers to: [`Names`].
    const NAMES: Names = None;

    /// The author's type of the primary.
    type Primary: DeserializeOwned + 'static;

    /// Says whether the condition `name` is met for `dependent`, whose objects are read with
    /// [`cache::source`](crate::cache::source).
    fn is_met(name: &str, dependent: &str, primary: &Self::Primary) -> Result<Met>;
}

/// Reads things outside of the cluster, for all primaries at once. Usually written with [`#[pollers]`](crate::pollers).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported with Pollers but does not implement `Pollers`",
    label = "write `#[capstan_guest::pollers] impl {Self} {{ fn themes() -> Result<PrimaryThings> {{ … }} }}`"
)]
pub trait Pollers {
    /// The names that it answers to: [`Names`].
    const NAMES: Names = None;

    /// Returns all things of the source `name`. A primary that is not in the answer has none. An error keeps what was known, and is
    /// tried again. Called when it is time, outside of all runs: [`context::run`](crate::context::run) is `None`.
    fn poll(name: &str) -> Result<PrimaryThings>;
}

/// Reads things outside of the cluster, for one primary. Usually written with [`#[resource_pollers]`](crate::resource_pollers).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported with ResourcePollers but does not implement `ResourcePollers`",
    label = "write `#[capstan_guest::resource_pollers] impl {Self} {{ fn domains(primary: &…) -> Result<Vec<…>> {{ … }} }}`"
)]
pub trait ResourcePollers {
    /// The names that it answers to: [`Names`].
    const NAMES: Names = None;

    /// The author's type of the primary.
    type Primary: DeserializeOwned + 'static;

    /// Returns the things of the source `name` that belong to the primary. An error keeps what was known, and is tried again. Called
    /// when it is time, by the first look of a run at the things of a primary, and when a request has only said that something has changed;
    /// always outside of the run: [`context::run`](crate::context::run) is `None`.
    fn poll_one(name: &str, primary: &Self::Primary) -> Result<Things>;
}

/// Understands requests from outside. Usually written with [`#[receivers]`](crate::receivers).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported with Receivers but does not implement `Receivers`",
    label = "write `#[capstan_guest::receivers] impl {Self} {{ fn hooks(request: &Request) -> Received {{ … }} }}`"
)]
pub trait Receivers {
    /// The names that it answers to: [`Names`].
    const NAMES: Names = None;

    /// Says what a request to the source `name` says of primaries, and what it is answered with. An error is answered with status 500, and
    /// nothing of the request is kept. Called outside of all runs: [`context::run`](crate::context::run) is `None`.
    fn receive(name: &str, request: &Request) -> Result<Received>;
}

/// Decides which changes of primaries and secondaries matter. Usually written with [`#[filters]`](crate::filters).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported with Filters but does not implement `Filters`",
    label = "write `#[capstan_guest::filters] impl {Self} {{ fn has_theme(change: &Change) -> bool {{ … }} }}`"
)]
pub trait Filters {
    /// The names that it answers to: [`Names`].
    const NAMES: Names = None;

    /// Says whether a change should cause a run, by the filter `name`. An error counts as yes. Called outside of all runs:
    /// [`context::run`](crate::context::run) is `None`.
    fn accepts(name: &str, change: &Change) -> Result<bool>;
}

/// Finds the primaries of secondaries. Usually written with [`#[mappers]`](crate::mappers).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported with Mappers but does not implement `Mappers`",
    label = "write `#[capstan_guest::mappers] impl {Self} {{ fn theme_to_pages(theme: &…) -> Vec<String> {{ … }} }}`"
)]
pub trait Mappers {
    /// The names that it answers to: [`Names`].
    const NAMES: Names = None;

    /// Returns the primaries to which a secondary belongs, by the mapper `name`. Called once for each version of a secondary, outside
    /// of all runs. An error keeps what was known, and is tried again.
    fn to_primaries(name: &str, secondary: &Json) -> Result<Keys>;
}

/// Finds the secondaries of a primary. Usually written with [`#[secondary_mappers]`](crate::secondary_mappers).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported with SecondaryMappers but does not implement `SecondaryMappers`",
    label = "write `#[capstan_guest::secondary_mappers] impl {Self} {{ fn page_to_themes(page: &…) -> Vec<String> {{ … }} }}`"
)]
pub trait SecondaryMappers {
    /// The names that it answers to: [`Names`].
    const NAMES: Names = None;

    /// The author's type of the primary.
    type Primary: DeserializeOwned + 'static;

    /// Returns the secondaries that belong to the primary, by the mapper `name`. Called when a run reads them for the first time with
    /// this version of its primary. An error is one of that read.
    fn to_secondaries(name: &str, primary: &Self::Primary) -> Result<Keys>;
}
