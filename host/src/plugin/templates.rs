//! The plugin of controllers that have templates in place of a component: nothing is called, and what their runs use is counted as its own.

use std::collections::BTreeSet;
use std::fmt;
use std::future::ready;
use std::sync::Arc;

use capstan_core::guest::{Answer, Call, Context, Failure, Function, Guest, Interface, Session};
use capstan_core::manifest::Permission;
use capstan_core::operator::wants::About;
use capstan_core::room::{Holding, Room};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::{Component, Drain, Usage};

/// What stands for a component where there is none.
pub struct Templates {
    /// The operator and its own name: no other plugin has it.
    unit: Arc<str>,
    /// The memory that all plugins share.
    room: Room,
}

/// A run without a component.
struct Run;

impl Templates {
    /// Returns that of an operator.
    pub fn new(operator: &str, name: &str, room: &Room) -> Self {
        Self { unit: format!("{operator}/{name}").into(), room: room.clone() }
    }
}

impl fmt::Debug for Templates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Templates({})", self.unit)
    }
}

impl Component for Templates {
    fn digest(&self) -> &'static str {
        ""
    }

    fn writes(&self) -> &BTreeSet<Permission> {
        const NONE: &BTreeSet<Permission> = &BTreeSet::new();
        NONE
    }

    fn about(&self) -> Option<&About> {
        None
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn process_id(&self) -> Option<u32> {
        None
    }

    fn retire(&self) {}

    /// There are no instances of which there could be too many.
    fn drain(&self) -> Drain {
        Arc::new(|| ready(()).boxed())
    }
}

impl Guest for Templates {
    fn open(&self, _: Arc<dyn Context>) -> Box<dyn Session> {
        Box::new(Run)
    }

    fn open_nested(&self, _: Arc<dyn Context>) -> Box<dyn Session> {
        Box::new(Run)
    }

    fn exports(&self, _: Interface) -> bool {
        false
    }

    fn holding(&self) -> Option<Holding> {
        Some(self.room.holding(&self.unit))
    }
}

impl Session for Run {
    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<Answer, Failure>> {
        let function = call.function().map_or("it", Function::name);
        let failure = Failure::other(format!("the operator has no component that answers `{function}`"));
        ready(Err(failure)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use capstan_core::room::Error;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn what_templates_take_is_known_as_theirs() {
        // DT-7
        let room = Room::new(100);
        let templates = Templates::new("copies", "templates", &room);
        let mut held = templates.holding().unwrap();
        assert_eq!(held.grow(60, Instant::now()).await, Ok(()));
        let other = room.holding(&"other/plugin".into()).grow(50, Instant::now()).await;
        let Err(Error::UsedUp { holder, most, .. }) = other else {
            panic!("{other:?}");
        };
        assert_eq!((&*holder, most), ("copies/templates", 60));
        drop(held);
        assert_eq!(room.holding(&"other/plugin".into()).grow(50, Instant::now()).await, Ok(()));
        assert!(Interface::ALL.iter().all(|interface| !templates.exports(*interface)));
    }
}
