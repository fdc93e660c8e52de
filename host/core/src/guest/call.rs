//! The calls of a guest: one table of what a component may export, from which come its interfaces, each call with its arguments and
//! its answer as values, and the functions of a session.

use std::borrow::Cow;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::{
    Changed, ConditionResult, Created, DeleteControl, Description, DesiredSet, ErrorControl, FailedRun, Failure,
    FailureInfo, Found, InboundAnswer, InboundRequest, MatchResult, Named, NextRetry, PolledAll, PolledOne,
    UpdateControl,
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
        $interface:ident $name:literal {
            $(
                $(#[$doc:meta])*
                $call:ident $function:literal: $method:ident($($argument:ident: $type:ty),*) -> $answer:ty;
            )+
        }
    )*) => {
        /// An interface that a component may export, with its functions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Interface {
            $(#[doc = concat!("`", $name, "`")] $interface,)*
        }

        /// A function that a component may export.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Function {
            $($(#[doc = concat!("`", $function, "`")] $call,)+)*
        }

        /// A call of an export, with its arguments: names as the manifest has them, objects as JSON.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "their names say what the arguments are")]
        pub enum Call<'a> {
            /// Only starts the component, for a try.
            Start,
            $($($(#[$doc])* $call { $($argument: $type),* },)+)*
        }

        /// What an export has answered.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub enum Answer {
            /// It has started.
            Start,
            $($(#[doc = concat!("An answer of `", $function, "`.")] $call($answer),)+)*
        }

        impl Interface {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$interface),*];

            /// Returns its name in the contract.
            pub fn name(self) -> &'static str {
                match self { $(Self::$interface => $name,)* }
            }

            /// Returns its functions. A component that exports it has all of them.
            pub fn functions(self) -> &'static [Function] {
                match self { $(Self::$interface => &[$(Function::$call),+],)* }
            }
        }

        impl Function {
            /// Returns its name in the contract.
            pub fn name(self) -> &'static str {
                match self { $($(Self::$call => $function,)+)* }
            }

            /// Returns the interface that it is of.
            pub fn interface(self) -> Interface {
                match self { $($(Self::$call)|+ => Interface::$interface,)* }
            }
        }

        impl Call<'_> {
            /// Returns which function is called; none if none is.
            pub fn function(&self) -> Option<Function> {
                match self { Self::Start => None, $($(Self::$call { .. } => Some(Function::$call),)+)* }
            }
        }

        impl Answer {
            /// Returns which function answers like that; none if none was called.
            pub fn function(&self) -> Option<Function> {
                match self { Self::Start => None, $($(Self::$call(_) => Some(Function::$call),)+)* }
            }
        }

        impl<'s> dyn Session + 's {
            $($(
                $(#[$doc])*
                pub async fn $method<'a>(&'a self, $($argument: $type),*) -> Result<$answer, Failure> {
                    let call: Call<'a> = Call::$call { $($argument),* };
                    match self.call(call).await? {
                        Answer::$call(answer) => Ok(answer),
                        _ => Err(Failure::other("the component answers what was not asked")),
                    }
                }
            )+)*
        }
    };
}

exports! {
    Reconciler "reconciler" {
        /// Brings the world in line with a primary.
        Reconcile "reconcile": reconcile(primary: &'a str) -> UpdateControl;
    }

    Cleaner "cleaner" {
        /// Tidies up before a primary goes.
        Cleanup "cleanup": cleanup(primary: &'a str) -> DeleteControl;
    }

    ErrorHandler "error-handler" {
        /// Decides what a failed run leaves behind.
        HandleError "handle-error": handle_error(primary: &'a str, failed: Cow<'a, FailureInfo>) -> ErrorControl;
    }

    RetryPolicy "retry-policy" {
        /// Decides when a failed run is retried.
        DecideRetry "decide-retry": decide_retry(primary: &'a str, failed: Cow<'a, FailedRun>) -> NextRetry;
    }

    Validator "validator" {
        /// Says what is wrong with a primary; `old` is what it was before, where an update is to be admitted.
        Validate "validate": validate(primary: &'a str, old: Option<&'a str>) -> Found;
    }

    Initializer "initializer" {
        /// Prepares a run.
        Initialize "initialize": initialize(primary: &'a str) -> ();
    }

    Dependent "dependent" {
        /// Returns the object that a dependent should be.
        Desired "desired": desired(name: &'a str, primary: &'a str) -> String;
    }

    Bulk "bulk" {
        /// Returns the objects that a bulk dependent should consist of.
        DesiredSet "desired-set": desired_set(name: &'a str, primary: &'a str) -> DesiredSet;
    }

    External "external" {
        /// Creates a thing outside of the cluster.
        Create "create": create(name: &'a str, desired: &'a str, primary: &'a str) -> Created;

        /// Makes a thing outside of the cluster as desired.
        Update "update": update(name: &'a str, actual: &'a str, desired: &'a str, primary: &'a str) -> String;

        /// Removes a thing outside of the cluster.
        Remove "remove": remove(name: &'a str, actual: &'a str, primary: &'a str) -> ();
    }

    Matcher "matcher" {
        /// Says whether a dependent is as desired, in the component's own way.
        Match "match": matches(name: &'a str, actual: &'a str, desired: &'a str, primary: &'a str) -> MatchResult;
    }

    Condition "condition" {
        /// Says whether a condition is met for a dependent.
        IsMet "is-met": is_met(name: &'a str, dependent: &'a str, primary: &'a str) -> ConditionResult;
    }

    Poller "poller" {
        /// Returns all things of a source outside of the cluster.
        Poll "poll": poll(name: &'a str) -> PolledAll;
    }

    ResourcePoller "resource-poller" {
        /// Returns the things of a source outside of the cluster that belong to a primary.
        PollOne "poll-one": poll_one(name: &'a str, primary: &'a str) -> PolledOne;
    }

    Inbound "inbound" {
        /// Understands a request from outside.
        Receive "receive": receive(name: &'a str, request: Cow<'a, InboundRequest>) -> InboundAnswer;
    }

    Filter "filter" {
        /// Says whether a change of an object matters.
        Accepts "accepts": accepts(name: &'a str, changed: Changed<'a>) -> bool;
    }

    Mapper "mapper" {
        /// Returns the primaries to which a secondary belongs.
        ToPrimaries "to-primaries": to_primaries(name: &'a str, secondary: &'a str) -> Named;
    }

    SecondaryMapper "secondary-mapper" {
        /// Returns the secondaries that belong to a primary.
        ToSecondaries "to-secondaries": to_secondaries(name: &'a str, primary: &'a str) -> Named;
    }

    Description "description" {
        /// Returns which names the component answers to.
        Describe "describe": describe() -> Description;
    }
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
    fn a_call_and_its_answer_are_of_the_same_function() {
        let is_met = Call::IsMet { name: "a", dependent: "b", primary: "{}" };
        assert_eq!(is_met.function(), Answer::IsMet(ConditionResult::met()).function());
        let functions = |interface: &Interface| interface.functions().iter().map(|function| function.name());
        let names = |interface: &Interface| functions(interface).collect::<Vec<_>>().join(" ");
        let names: Vec<_> = Interface::ALL.iter().map(|interface| (interface.name(), names(interface))).collect();
        let names: Vec<_> = names.iter().map(|(interface, functions)| (*interface, &**functions)).collect();
        assert_eq!(
            names,
            [
                ("reconciler", "reconcile"),
                ("cleaner", "cleanup"),
                ("error-handler", "handle-error"),
                ("retry-policy", "decide-retry"),
                ("validator", "validate"),
                ("initializer", "initialize"),
                ("dependent", "desired"),
                ("bulk", "desired-set"),
                ("external", "create update remove"),
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
        assert_eq!(Call::Start.function(), None);
    }
}
