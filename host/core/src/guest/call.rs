//! The calls of a guest: one table of what a component may export, from which come its interfaces, each call with its arguments and
//! its answer as values, and the functions of a session.

use std::borrow::Cow;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::{
    Changed, ConditionResult, DeleteControl, Description, DesiredSet, ErrorControl, FailedRun, Failure, FailureInfo,
    InboundAnswer, InboundRequest, MatchResult, Named, NextRetry, PolledAll, PolledOne, UpdateControl,
};

/// The calls of one run.
pub trait Session: Send + Sync {
    /// Makes a call. The answer is one to that call.
    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<Answer, Failure>>;

    /// Waits until a call would have its turn, and keeps that turn: from then on no call of this session waits for others.
    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

macro_rules! exports {
    ($(
        $(#[$doc:meta])*
        $interface:ident $name:literal, $call:ident $function:literal:
        $method:ident($($argument:ident: $type:ty),*) -> $answer:ty;
    )*) => {
        /// An interface that a component may export, with one function each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Interface {
            $(#[doc = concat!("`", $name, "`")] $interface,)*
        }

        /// A call of an export, with its arguments: names as the manifest has them, objects as JSON.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "their names say what the arguments are")]
        pub enum Call<'a> {
            /// Only starts the component, for a try.
            Start,
            $($(#[$doc])* $call { $($argument: $type),* },)*
        }

        /// What an export has answered.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub enum Answer {
            /// It has started.
            Start,
            $(#[doc = concat!("An answer of `", $function, "`.")] $call($answer),)*
        }

        impl Interface {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$interface),*];

            /// Returns its name in the contract.
            pub fn name(self) -> &'static str {
                match self { $(Self::$interface => $name,)* }
            }

            /// Returns the name of its function.
            pub fn function(self) -> &'static str {
                match self { $(Self::$interface => $function,)* }
            }
        }

        impl Call<'_> {
            /// Returns whose function is called; none if none is.
            pub fn interface(&self) -> Option<Interface> {
                match self { Self::Start => None, $(Self::$call { .. } => Some(Interface::$interface),)* }
            }
        }

        impl Answer {
            /// Returns whose function answers like that; none if none was called.
            pub fn interface(&self) -> Option<Interface> {
                match self { Self::Start => None, $(Self::$call(_) => Some(Interface::$interface),)* }
            }
        }

        impl<'s> dyn Session + 's {
            $(
                $(#[$doc])*
                pub async fn $method<'a>(&'a self, $($argument: $type),*) -> Result<$answer, Failure> {
                    match self.call(Call::$call { $($argument),* }).await? {
                        Answer::$call(answer) => Ok(answer),
                        _ => Err(Failure::other("the component answers what was not asked")),
                    }
                }
            )*
        }
    };
}

exports! {
    /// Brings the world in line with a primary.
    Reconciler "reconciler", Reconcile "reconcile":
    reconcile(primary: &'a str) -> UpdateControl;

    /// Tidies up before a primary goes.
    Cleaner "cleaner", Cleanup "cleanup":
    cleanup(primary: &'a str) -> DeleteControl;

    /// Decides what a failed run leaves behind.
    ErrorHandler "error-handler", HandleError "handle-error":
    handle_error(primary: &'a str, failed: Cow<'a, FailureInfo>) -> ErrorControl;

    /// Decides when a failed run is retried.
    RetryPolicy "retry-policy", DecideRetry "decide-retry":
    decide_retry(primary: &'a str, failed: Cow<'a, FailedRun>) -> NextRetry;

    /// Prepares a run.
    Initializer "initializer", Initialize "initialize":
    initialize(primary: &'a str) -> ();

    /// Returns the object that a dependent should be.
    Dependent "dependent", Desired "desired":
    desired(name: &'a str, primary: &'a str) -> String;

    /// Returns the objects that a bulk dependent should consist of.
    Bulk "bulk", DesiredSet "desired-set":
    desired_set(name: &'a str, primary: &'a str) -> DesiredSet;

    /// Says whether a dependent is as desired, in the component's own way.
    Matcher "matcher", Match "match":
    matches(name: &'a str, actual: &'a str, desired: &'a str, primary: &'a str) -> MatchResult;

    /// Says whether a condition is met for a dependent.
    Condition "condition", IsMet "is-met":
    is_met(name: &'a str, dependent: &'a str, primary: &'a str) -> ConditionResult;

    /// Returns all things of a source outside of the cluster.
    Poller "poller", Poll "poll":
    poll(name: &'a str) -> PolledAll;

    /// Returns the things of a source outside of the cluster that belong to a primary.
    ResourcePoller "resource-poller", PollOne "poll-one":
    poll_one(name: &'a str, primary: &'a str) -> PolledOne;

    /// Understands a request from outside.
    Inbound "inbound", Receive "receive":
    receive(name: &'a str, request: Cow<'a, InboundRequest>) -> InboundAnswer;

    /// Says whether a change of an object matters.
    Filter "filter", Accepts "accepts":
    accepts(name: &'a str, changed: Changed<'a>) -> bool;

    /// Returns the primaries to which a secondary belongs.
    Mapper "mapper", ToPrimaries "to-primaries":
    to_primaries(name: &'a str, secondary: &'a str) -> Named;

    /// Returns the secondaries that belong to a primary.
    SecondaryMapper "secondary-mapper", ToSecondaries "to-secondaries":
    to_secondaries(name: &'a str, primary: &'a str) -> Named;

    /// Returns which names the component answers to.
    Description "description", Describe "describe":
    describe() -> Description;
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// Answers whatever it is asked with the same.
    struct Same(Answer);

    impl Session for Same {
        fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<Answer, Failure>> {
            let answer = self.0.clone();
            async move { Ok(answer) }.boxed()
        }
    }

    #[tokio::test]
    async fn an_answer_to_another_call_is_a_failure() {
        let session: Box<dyn Session> = Box::new(Same(Answer::Desired("{}".to_owned())));
        assert_eq!(session.desired("a", "{}").await, Ok("{}".to_owned()));
        let beside = Failure::other("the component answers what was not asked");
        assert_eq!(session.cleanup("{}").await, Err(beside));
    }

    #[test]
    fn a_call_and_its_answer_are_of_the_same_interface() {
        let is_met = Call::IsMet { name: "a", dependent: "b", primary: "{}" };
        assert_eq!(is_met.interface(), Answer::IsMet(ConditionResult::met()).interface());
        let names: Vec<_> = Interface::ALL.iter().map(|interface| (interface.name(), interface.function())).collect();
        assert_eq!(
            names,
            [
                ("reconciler", "reconcile"),
                ("cleaner", "cleanup"),
                ("error-handler", "handle-error"),
                ("retry-policy", "decide-retry"),
                ("initializer", "initialize"),
                ("dependent", "desired"),
                ("bulk", "desired-set"),
                ("matcher", "match"),
                ("condition", "is-met"),
                ("poller", "poll"),
                ("resource-poller", "poll-one"),
                ("inbound", "receive"),
                ("filter", "accepts"),
                ("mapper", "to-primaries"),
                ("secondary-mapper", "to-secondaries"),
                ("description", "describe")
            ]
        );
        assert_eq!(Call::Start.interface(), None);
    }
}
