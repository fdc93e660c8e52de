//! Decides whether the exports of a component have the signatures of the contract.

use std::sync::Arc;

use capstan_core::guest::Interface;

use super::Instance;
use crate::plugin::bindings::capstan::operator::types;
use crate::plugin::bindings::exports::capstan::operator::{
    cleaner, condition, description, error_handler, filter, inbound, poller, reconciler, resource_poller, retry_policy,
};
use crate::plugin::ending::Otherwise;

/// What `handle-error` takes.
type Handle<'a> = (&'a str, &'a error_handler::FailureInfo);

/// What `receive` takes.
type Receive<'a> = (&'a str, &'a inbound::InboundRequest);

/// What `decide-retry` takes.
type Decide<'a> = (&'a str, &'a retry_policy::FailedRun);

impl Instance {
    /// Looks at the signature of each export.
    ///
    /// # Errors
    /// The interface that has another signature, and what is wrong.
    pub(super) fn check(&mut self) -> Result<(), Otherwise> {
        for &interface in Arc::clone(&self.exports).keys() {
            let found = match interface {
                Interface::Reconciler => self.function::<(&str,), reconciler::UpdateControl>(interface).map(drop),
                Interface::Cleaner => self.function::<(&str,), cleaner::DeleteControl>(interface).map(drop),
                Interface::ErrorHandler => {
                    self.function::<Handle<'_>, error_handler::ErrorControl>(interface).map(drop)
                }
                Interface::RetryPolicy => self.function::<Decide<'_>, retry_policy::NextRetry>(interface).map(drop),
                Interface::Initializer => self.function::<(&str,), ()>(interface).map(drop),
                Interface::Dependent => self.function::<(&str, &str), String>(interface).map(drop),
                Interface::Bulk => self.function::<(&str, &str), Vec<String>>(interface).map(drop),
                Interface::Matcher => {
                    self.function::<(&str, &str, &str, &str), types::MatchResult>(interface).map(drop)
                }
                Interface::Condition => {
                    self.function::<(&str, &str, &str), condition::ConditionResult>(interface).map(drop)
                }
                Interface::Inbound => self.function::<Receive<'_>, inbound::InboundAnswer>(interface).map(drop),
                Interface::Filter => self.function::<(&str, &filter::Change), bool>(interface).map(drop),
                Interface::Mapper | Interface::SecondaryMapper => {
                    self.function::<(&str, &str), Vec<types::ObjectKey>>(interface).map(drop)
                }
                Interface::Description => self.function::<(), Vec<description::KnownNames>>(interface).map(drop),
                Interface::Poller => self.function::<(&str,), Vec<poller::PrimaryResources>>(interface).map(drop),
                Interface::ResourcePoller => {
                    self.function::<(&str, &str), resource_poller::PollResult>(interface).map(drop)
                }
            };
            found
                .map_err(|error| Otherwise { interface: interface.name().to_owned(), reason: format!("{error:#}") })?;
        }
        Ok(())
    }
}
