//! Stands in for the daemon where there is none: the imports over the run that [`test::with`](crate::test::with) has set.

use crate::bindings::imports::capstan::operator as contract;
use crate::test::state;

pub(crate) mod context {
    use super::{contract::context::RunInfo, state};

    pub(crate) fn run() -> Option<RunInfo> {
        state(|state| (!state.is_beside).then(|| state.run.clone()))
    }

    pub(crate) fn next_imminent() -> bool {
        state(|state| state.next_imminent)
    }

    pub(crate) fn time_left_ms() -> u32 {
        state(|state| state.time_left_ms)
    }

    pub(crate) fn settings() -> String {
        state(|state| state.settings.to_string())
    }
}

pub(crate) mod cache {
    use super::contract::cache::{Place, Query};
    use super::contract::types::{CallError, ObjectKey, Page};
    use super::state;

    pub(crate) fn find_all(query: &Query) -> Result<Page, CallError> {
        state(|state| state.known(&query.place).and_then(|objects| objects.page(query)))
    }

    pub(crate) fn find_one(place: &Place) -> Result<Option<String>, CallError> {
        state(|state| state.known(place).and_then(|objects| objects.one(place)))
    }

    pub(crate) fn find_named(place: &Place, key: &ObjectKey) -> Result<Option<String>, CallError> {
        state(|state| Ok(state.known(place)?.named(place, key)))
    }
}

pub(crate) mod operations {
    use super::contract::operations::{Comparison, RemoveOptions, WriteOptions};
    use super::contract::types::{CallError, MatchResult, ObjectRef};
    use super::state;
    use crate::test::{Verb, objects};

    type Written = Result<String, CallError>;

    pub(crate) fn create(object: &str, options: Option<&WriteOptions>) -> Written {
        state(|state| state.write(Verb::Create, object, options))
    }

    pub(crate) fn apply(object: &str, options: Option<&WriteOptions>) -> Written {
        state(|state| state.write(Verb::Apply, object, options))
    }

    pub(crate) fn force_apply(object: &str, options: Option<&WriteOptions>) -> Written {
        state(|state| state.write(Verb::ForceApply, object, options))
    }

    pub(crate) fn update(object: &str, options: Option<&WriteOptions>) -> Written {
        state(|state| state.write(Verb::Update, object, options))
    }

    pub(crate) fn edit(object: &str, options: Option<&WriteOptions>) -> Written {
        state(|state| state.write(Verb::Edit, object, options))
    }

    pub(crate) fn json_patch(target: &ObjectRef, patch: &str, options: Option<&WriteOptions>) -> Written {
        state(|state| state.patch(Verb::JsonPatch, target, patch, options))
    }

    pub(crate) fn merge_patch(target: &ObjectRef, patch: &str, options: Option<&WriteOptions>) -> Written {
        state(|state| state.patch(Verb::MergePatch, target, patch, options))
    }

    pub(crate) fn remove(target: &ObjectRef, _options: Option<&RemoveOptions>) -> Result<(), CallError> {
        state(|state| state.remove(target))
    }

    pub(crate) fn add_finalizer(finalizer: Option<&str>) -> Written {
        state(|state| state.finalizer(Verb::AddFinalizer, finalizer))
    }

    pub(crate) fn remove_finalizer(finalizer: Option<&str>) -> Written {
        state(|state| state.finalizer(Verb::RemoveFinalizer, finalizer))
    }

    pub(crate) fn compare(
        by: Comparison,
        actual: &str,
        desired: &str,
        ignore: &[String],
    ) -> Result<MatchResult, CallError> {
        objects::compare(by, actual, desired, ignore)
    }
}

pub(crate) mod workflow {
    use super::contract::types::CallError;
    use super::contract::workflow::{NodeResult, WorkflowResult};
    use super::state;

    pub(crate) fn reconcile(name: Option<&str>) -> Result<WorkflowResult, CallError> {
        state(|state| state.workflows.run(name))
    }

    pub(crate) fn cleanup(name: Option<&str>) -> Result<WorkflowResult, CallError> {
        state(|state| state.workflows.run(name))
    }

    pub(crate) fn reconcile_dependent(name: &str) -> Result<NodeResult, CallError> {
        state(|state| state.workflows.run_dependent(name))
    }

    pub(crate) fn remove_dependent(name: &str) -> Result<NodeResult, CallError> {
        state(|state| state.workflows.run_dependent(name))
    }

    pub(crate) fn last_result(name: Option<&str>) -> Option<WorkflowResult> {
        state(|state| state.workflows.last(name))
    }
}

pub(crate) mod expectations {
    use super::contract::expectations::Expectation;
    use super::contract::types::CallError;
    use super::state;

    pub(crate) fn expect(name: &str, _timeout_ms: u32) -> Result<(), CallError> {
        state(|state| state.expect(name))
    }

    pub(crate) fn pending() -> Option<Expectation> {
        state(|state| state.expectation.clone())
    }

    pub(crate) fn clear(name: &str) -> bool {
        state(|state| state.expectation.take_if(|expected| expected.name == name).is_some())
    }
}

pub(crate) mod sources {
    use super::contract::types::CallError;
    use super::state;
    use crate::test::Remembered;

    pub(crate) fn register(name: &str, declaration: &str) -> Result<bool, CallError> {
        let declaration = crate::test::objects::read(declaration)?;
        state(|state| state.register(name, declaration))
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the daemon's function, which can fail")]
    pub(crate) fn deregister(name: &str) -> Result<(), CallError> {
        state(|state| state.registered.remove(name));
        Ok(())
    }

    pub(crate) fn remember(name: &str, actual: &str, replaced: Option<&str>) -> Result<(), CallError> {
        let actual = crate::test::objects::read(actual)?;
        let replaced = replaced.map(crate::test::objects::read).transpose()?;
        state(|state| state.remembered.push(Remembered::Thing { source: name.to_owned(), actual, replaced }));
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the daemon's function, which can fail")]
    pub(crate) fn forget(name: &str, id: &str) -> Result<(), CallError> {
        state(|state| state.remembered.push(Remembered::Forgotten { source: name.to_owned(), id: id.to_owned() }));
        Ok(())
    }
}

pub(crate) mod memo {
    use super::contract::memo::Lifetime;
    use super::contract::types::CallError;
    use super::state;

    pub(crate) fn get(lifetime: Lifetime, key: &str) -> Option<String> {
        state(|state| state.memos.get(&(lifetime, key.to_owned())).map(ToString::to_string))
    }

    pub(crate) fn put(lifetime: Lifetime, key: &str, value: Option<&str>) -> Result<(), CallError> {
        let value = value.map(crate::test::objects::read).transpose()?;
        state(|state| {
            let key = (lifetime, key.to_owned());
            match value {
                Some(value) => state.memos.insert(key, value),
                None => state.memos.remove(&key),
            };
        });
        Ok(())
    }
}

pub(crate) mod recorder {
    use super::contract::recorder::Event;
    use super::state;

    pub(crate) fn publish(event: &Event) {
        state(|state| state.events.push(event.clone()));
    }
}

pub(crate) mod config {
    use super::state;

    pub(crate) fn get() -> String {
        state(|state| state.config.to_string())
    }
}

pub(crate) mod log {
    use super::contract::{log::Level, types::Pair};
    use super::state;
    use crate::test::Line;

    pub(crate) fn write(level: Level, message: &str, fields: &[Pair]) {
        let fields = fields.iter().map(|pair| (pair.name.clone(), pair.value.clone())).collect();
        state(|state| {
            state.logs.push(Line { level, message: message.to_owned(), fields });
        });
    }
}

pub(crate) mod system {
    use super::state;

    pub(crate) fn now() -> String {
        state(|state| state.now.clone())
    }

    pub(crate) fn now_ms() -> f64 {
        state(|state| state.now_ms)
    }

    /// Not by chance: tests are to be repeatable.
    pub(crate) fn random_bytes(len: u32) -> Vec<u8> {
        state(|state| (0..len.min(4096)).map(|_| state.next_random()).collect())
    }

    pub(crate) fn uuid() -> String {
        let hex = random_bytes(15).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default().to_owned();
        format!("{}-{}-4{}-8{}-{}", part(0, 8), part(8, 12), part(12, 15), part(15, 18), part(18, 30))
    }
}
