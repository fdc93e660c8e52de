//! Passes requests from outside to the running version of a controller, when it is its plugin's turn to compute.

use std::sync::Arc;
use std::time::Duration;

use capstan_core::guest::{Guest, InboundRequest};
use capstan_core::manifest::Inbound;
use capstan_core::reconciler::Controller;
use capstan_core::reconciler::inbound::{Problem, Received, receive};
use capstan_core::room::Holding;
use capstan_core::source::callback::Asked;

use super::handle::{Handle, InForce};

/// What a controller says of one of its sources that take requests.
pub struct Door {
    /// The operator.
    pub operator: Arc<str>,
    /// The plugin that understands the requests.
    pub plugin: Arc<str>,
    /// What is let in.
    pub inbound: Inbound,
    /// How many calls of the plugin there may be at once.
    pub concurrency: usize,
    guest: Arc<dyn Guest>,
    /// The version that says so, if it runs.
    controller: Option<Arc<Controller>>,
}

impl Door {
    /// Returns true if anybody may send.
    pub fn is_open(&self) -> bool {
        self.inbound.senders.token().is_none()
    }

    /// Returns what holds the memory that a request takes, on the plugin's behalf.
    pub fn holding(&self) -> Option<Holding> {
        self.guest.holding()
    }
}

impl Handle {
    /// Returns what is let in at a source, as the running version says, or the one that is to run; `None` if it takes no requests.
    pub fn door(&self, source: &str) -> Option<Door> {
        let running = self.in_force.read().clone();
        let (declared, controller) = match running {
            Some(InForce { declared, controller }) => (declared, Some(controller)),
            None => (Arc::clone(&self.wanted.borrow()), None),
        };
        let inbound = declared.spec.inbound.get(source)?.clone();
        Some(Door {
            operator: Arc::clone(&declared.operator),
            plugin: Arc::clone(&declared.spec.plugin),
            inbound,
            concurrency: declared.plugin.limits.concurrency,
            guest: Arc::clone(&declared.guest),
            controller,
        })
    }

    /// Has the version of a door, through which a request to a source has come, understand it. What fails is counted and logged.
    ///
    /// # Errors
    /// [`Problem`].
    pub async fn receive(&self, door: &Door, source: &str, request: InboundRequest) -> Result<Received, Problem> {
        let not_now = || Problem::NotNow(format!("controller {} does not run", self.name()));
        let current = || self.taking.admit(self.controller());
        let controller = self.taking.admit(door.controller.clone()).ok_or_else(not_now)?;
        let external = controller.externals.get(source).cloned().ok_or_else(not_now)?;
        let asked = receive(&controller, &external, request, current);
        let answer = self.in_turn(None, asked).await;
        if let Err(problem) = &answer {
            if let Problem::Failed(failure) = problem {
                external.fail(&failure.message);
            }
            let asked = Asked { source: &external.name, faults: &self.faults };
            asked.tell_of_request(problem.kind(), &problem.to_string());
        }
        answer
    }

    /// Counts and logs that a request to a source was not answered in time, whether its turn had come or not.
    pub fn late(&self, source: &str, longest: Duration) {
        let asked = Asked { source, faults: &self.faults };
        let why = format!(
            "it was not answered within {} s, in which it waited for its turn or was looked at",
            longest.as_secs()
        );
        asked.tell_of_request("late", &why);
    }
}
