//! Decides whether the exports of a component have the signatures that the contract says.

use std::sync::Arc;

use capstan_core::guest::Function;

use super::Instance;
use crate::plugin::bindings::capstan::operator::types;
use crate::plugin::bindings::exports::capstan::operator::{
    cleaner, condition, description, error_handler, external, filter, inbound, poller, reconciler, resource_poller,
    retry_policy, validator,
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
        for &function in Arc::clone(&self.exports).keys() {
            let found = match function {
                Function::Reconcile => self.function::<(&str,), reconciler::UpdateControl>(function).map(drop),
                Function::Cleanup => self.function::<(&str,), cleaner::DeleteControl>(function).map(drop),
                Function::HandleError => self.function::<Handle<'_>, error_handler::ErrorControl>(function).map(drop),
                Function::DecideRetry => self.function::<Decide<'_>, retry_policy::NextRetry>(function).map(drop),
                Function::Validate => {
                    self.function::<(&str, Option<&str>), Vec<validator::Problem>>(function).map(drop)
                }
                Function::Initialize => self.function::<(&str,), ()>(function).map(drop),
                Function::Desired => self.function::<(&str, &str), String>(function).map(drop),
                Function::DesiredSet => self.function::<(&str, &str), Vec<String>>(function).map(drop),
                Function::Create => self.function::<(&str, &str, &str), external::Created>(function).map(drop),
                Function::Update => self.function::<(&str, &str, &str, &str), String>(function).map(drop),
                Function::Remove => self.function::<(&str, &str, &str), ()>(function).map(drop),
                Function::Match => self.function::<(&str, &str, &str, &str), types::MatchResult>(function).map(drop),
                Function::IsMet => self.function::<(&str, &str, &str), condition::ConditionResult>(function).map(drop),
                Function::Receive => self.function::<Receive<'_>, inbound::InboundAnswer>(function).map(drop),
                Function::Accepts => self.function::<(&str, &filter::Change), bool>(function).map(drop),
                Function::ToPrimaries | Function::ToSecondaries => {
                    self.function::<(&str, &str), Vec<types::ObjectKey>>(function).map(drop)
                }
                Function::Describe => self.function::<(), Vec<description::KnownNames>>(function).map(drop),
                Function::Poll => self.function::<(&str,), Vec<poller::PrimaryResources>>(function).map(drop),
                Function::PollOne => self.function::<(&str, &str), resource_poller::PollResult>(function).map(drop),
            };
            let interface = || function.interface().name().to_owned();
            found.map_err(|error| Otherwise { interface: interface(), reason: format!("{error:#}") })?;
        }
        Ok(())
    }
}
