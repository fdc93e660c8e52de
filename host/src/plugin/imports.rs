//! What a component may ask the daemon: each function asks the run ([`Asking`]), which asks
//! the manifest; and the functions of WASI that it has.

use std::sync::Arc;
use std::time::Duration;

use capstan_core::guest::{
    CallError, CompareQuestion, ObjectTarget, Place, Query, WorkflowCall, WriteRequest, WriteVerb,
};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;
use tracing::error;
use wasmtime::component::{HasSelf, Linker};
use wasmtime_wasi::cli::{WasiCli, WasiCliView as _};
use wasmtime_wasi::clocks::{WasiClocks, WasiClocksView as _};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::random::random;
use wasmtime_wasi::random::{WasiRandom, WasiRandomView as _};
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsView as _};
use wasmtime_wasi::{WasiView as _, p2};

use super::asking::Asking;
use super::bindings::Daemon;
use super::bindings::capstan::operator::{
    cache, config, context, expectations, log, memo, operations, recorder, sources, system, types, workflow,
};
use super::instance::State;
use super::network::{self, Network};

/// What a component is answered.
type Reply<T> = Result<T, types::CallError>;

/// Random bytes in one call.
const RANDOM: u32 = 4096;

/// Returns everything that a component may import: the contract, and WASI; with `wasi:http` only if the manifest permits it a
/// host. There are no files and no environment behind it; what is printed goes to the log.
pub(super) fn linker(engine: &wasmtime::Engine, network: &Network) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    Daemon::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    link_wasi(&mut linker)?;
    if network.has_http() {
        network::http::link(&mut linker)?;
    }
    if network.has_tcp() {
        network::tcp::link(&mut linker)?;
        if network.leads_nowhere() {
            network::tcp::refuse(&mut linker)?;
        }
    }
    Ok(linker)
}

fn link_wasi(l: &mut Linker<State>) -> wasmtime::Result<()> {
    use p2::bindings::{cli, clocks, filesystem, io, random, sockets};

    io::error::add_to_linker::<State, Io>(l, |state| state.ctx().table)?;
    io::poll::add_to_linker::<State, Io>(l, |state| state.ctx().table)?;
    io::streams::add_to_linker::<State, Io>(l, |state| state.ctx().table)?;
    clocks::wall_clock::add_to_linker::<State, WasiClocks>(l, State::clocks)?;
    clocks::monotonic_clock::add_to_linker::<State, WasiClocks>(l, State::clocks)?;
    random::random::add_to_linker::<State, WasiRandom>(l, State::random)?;
    random::insecure::add_to_linker::<State, WasiRandom>(l, State::random)?;
    random::insecure_seed::add_to_linker::<State, WasiRandom>(l, State::random)?;
    filesystem::preopens::add_to_linker::<State, WasiFilesystem>(l, State::filesystem)?;
    filesystem::types::add_to_linker::<State, WasiFilesystem>(l, State::filesystem)?;
    cli::exit::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::environment::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::stdin::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::stdout::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::stderr::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_input::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_output::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_stdin::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_stdout::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_stderr::add_to_linker::<State, WasiCli>(l, State::cli)?;
    // Python's standard library imports them, used or not. Unless the manifest permits it a host, the context permits none of it.
    let options = sockets::network::LinkOptions::default();
    sockets::network::add_to_linker::<State, WasiSockets>(l, &options, State::sockets)?;
    sockets::instance_network::add_to_linker::<State, WasiSockets>(l, State::sockets)?;
    sockets::tcp::add_to_linker::<State, WasiSockets>(l, State::sockets)?;
    sockets::tcp_create_socket::add_to_linker::<State, WasiSockets>(l, State::sockets)?;
    sockets::udp::add_to_linker::<State, WasiSockets>(l, State::sockets)?;
    sockets::udp_create_socket::add_to_linker::<State, WasiSockets>(l, State::sockets)?;
    sockets::ip_name_lookup::add_to_linker::<State, WasiSockets>(l, State::sockets)?;
    Ok(())
}

/// The streams of WASI need the table of resources only.
struct Io;

impl wasmtime::component::HasData for Io {
    type Data<'a> = &'a mut wasmtime::component::ResourceTable;
}

// === the run ===

impl State {
    /// Returns what answers the call in progress.
    fn asking(&self) -> Asking {
        Asking { facts: Arc::clone(&self.facts), run: self.run.clone(), call: self.call }
    }

    async fn write(&mut self, verb: WriteVerb, options: Option<operations::WriteOptions>) -> Reply<String> {
        let options = options.map(Into::into).unwrap_or_default();
        let asking = self.asking();
        Ok(asking.write(WriteRequest { verb, options }).await?)
    }

    async fn workflow(&mut self, call: WorkflowCall) -> Result<capstan_core::guest::WorkflowResult, CallError> {
        let asking = self.asking();
        asking.workflow(call, self.until).await
    }
}

// === the interfaces ===

impl types::Host for State {}

impl context::Host for State {
    fn run(&mut self) -> Option<context::RunInfo> {
        let info = self.run.as_ref()?.info();
        (!info.beside).then(|| info.into())
    }

    fn next_imminent(&mut self) -> bool {
        self.run.as_ref().is_some_and(|run| run.next_imminent())
    }

    fn time_left_ms(&mut self) -> u32 {
        let left = self.until.saturating_duration_since(Instant::now());
        u32::try_from(left.as_millis()).unwrap_or(u32::MAX)
    }

    fn settings(&mut self) -> String {
        self.run.as_ref().map_or_else(|| "{}".to_owned(), |run| run.settings())
    }
}

impl cache::Host for State {
    async fn find_all(&mut self, query: cache::Query) -> Reply<types::Page> {
        let asking = self.asking();
        let page = asking.find_all(Query::try_from(query)?).await?;
        self.answer(page.items.iter().map(String::len).sum())?;
        Ok(page.into())
    }

    async fn find_one(&mut self, place: cache::Place) -> Reply<Option<String>> {
        let (place, asking) = (Place::try_from(place)?, self.asking());
        let found = asking.run()?.find_one(place).await?;
        self.answer(found.as_ref().map_or(0, String::len))?;
        Ok(found)
    }

    async fn find_named(&mut self, place: cache::Place, key: types::ObjectKey) -> Reply<Option<String>> {
        let (place, asking) = (Place::try_from(place)?, self.asking());
        let found = asking.run()?.find_named(place, key.into()).await?;
        self.answer(found.as_ref().map_or(0, String::len))?;
        Ok(found)
    }
}

impl operations::Host for State {
    async fn create(&mut self, object: String, options: Option<operations::WriteOptions>) -> Reply<String> {
        self.write(WriteVerb::Create(object), options).await
    }

    async fn apply(&mut self, object: String, options: Option<operations::WriteOptions>) -> Reply<String> {
        self.write(WriteVerb::Apply(object), options).await
    }

    async fn force_apply(&mut self, object: String, options: Option<operations::WriteOptions>) -> Reply<String> {
        self.write(WriteVerb::ForceApply(object), options).await
    }

    async fn update(&mut self, object: String, options: Option<operations::WriteOptions>) -> Reply<String> {
        self.write(WriteVerb::Update(object), options).await
    }

    async fn edit(&mut self, object: String, options: Option<operations::WriteOptions>) -> Reply<String> {
        self.write(WriteVerb::Edit(object), options).await
    }

    async fn json_patch(
        &mut self,
        target: types::ObjectRef,
        patch: String,
        options: Option<operations::WriteOptions>,
    ) -> Reply<String> {
        self.write(WriteVerb::JsonPatch(target.try_into()?, patch), options).await
    }

    async fn merge_patch(
        &mut self,
        target: types::ObjectRef,
        patch: String,
        options: Option<operations::WriteOptions>,
    ) -> Reply<String> {
        self.write(WriteVerb::MergePatch(target.try_into()?, patch), options).await
    }

    async fn remove(&mut self, target: types::ObjectRef, options: Option<operations::RemoveOptions>) -> Reply<()> {
        let target = ObjectTarget::try_from(target)?;
        let asking = self.asking();
        let deletion = options.map(Into::into).unwrap_or_default();
        Ok(asking.remove(target, deletion).await?)
    }

    async fn add_finalizer(&mut self, finalizer: Option<String>) -> Reply<String> {
        let asking = self.asking();
        Ok(asking.add_finalizer(finalizer).await?)
    }

    async fn remove_finalizer(&mut self, finalizer: Option<String>) -> Reply<String> {
        let asking = self.asking();
        Ok(asking.remove_finalizer(finalizer).await?)
    }

    async fn compare(
        &mut self,
        by: operations::Comparison,
        actual: String,
        desired: String,
        ignore: Vec<String>,
    ) -> Reply<types::MatchResult> {
        Ok(self.asking().run()?.compare(CompareQuestion { by: by.into(), actual, desired, ignore })?.into())
    }
}

impl workflow::Host for State {
    async fn reconcile(&mut self, name: Option<String>) -> Reply<workflow::WorkflowResult> {
        Ok(self.workflow(WorkflowCall::Reconcile(name)).await?.into())
    }

    async fn cleanup(&mut self, name: Option<String>) -> Reply<workflow::WorkflowResult> {
        Ok(self.workflow(WorkflowCall::Cleanup(name)).await?.into())
    }

    async fn reconcile_dependent(&mut self, name: String) -> Reply<workflow::NodeResult> {
        let result = self.workflow(WorkflowCall::ReconcileDependent(name.clone())).await?;
        Ok(node(result, &name))
    }

    async fn remove_dependent(&mut self, name: String) -> Reply<workflow::NodeResult> {
        let result = self.workflow(WorkflowCall::RemoveDependent(name.clone())).await?;
        Ok(node(result, &name))
    }

    async fn last_result(&mut self, name: Option<String>) -> Option<workflow::WorkflowResult> {
        self.run.as_ref()?.last_result(name.as_deref()).map(Into::into)
    }
}

/// Returns what became of the one dependent that was asked for; nothing was done if it was not reached.
fn node(result: capstan_core::guest::WorkflowResult, name: &str) -> workflow::NodeResult {
    let node = result.nodes.into_iter().find(|node| node.name == name);
    let untouched = || capstan_core::guest::NodeResult { name: name.to_owned(), ..Default::default() };
    node.unwrap_or_else(untouched).into()
}

impl sources::Host for State {
    async fn register(&mut self, name: String, declaration: String) -> Reply<bool> {
        Ok(self.asking().register(name, declaration, self.until).await?)
    }

    fn deregister(&mut self, name: String) -> Reply<()> {
        Ok(self.asking().run()?.deregister(&name)?)
    }

    fn remember(&mut self, name: String, actual: String, replaced: Option<String>) -> Reply<()> {
        Ok(self.asking().run()?.remember(&name, actual, replaced)?)
    }

    fn forget(&mut self, name: String, id: String) -> Reply<()> {
        Ok(self.asking().run()?.forget(&name, &id)?)
    }
}

impl memo::Host for State {
    fn get(&mut self, lifetime: memo::Lifetime, key: String) -> Option<String> {
        self.asking().memo(lifetime.into(), &key)
    }

    fn put(&mut self, lifetime: memo::Lifetime, key: String, value: Option<String>) -> Reply<()> {
        Ok(self.asking().set_memo(lifetime.into(), &key, value)?)
    }
}

impl expectations::Host for State {
    fn expect(&mut self, name: String, timeout_ms: u32) -> Reply<()> {
        Ok(self.asking().run()?.expect(&name, Duration::from_millis(timeout_ms.into()))?)
    }

    fn pending(&mut self) -> Option<expectations::Expectation> {
        self.run.as_ref()?.pending_expectation().map(Into::into)
    }

    fn clear(&mut self, name: String) -> bool {
        self.run.as_ref().is_some_and(|run| run.clear_expectation(&name))
    }
}

impl recorder::Host for State {
    fn publish(&mut self, event: recorder::Event) {
        self.asking().publish(event.into());
    }
}

impl config::Host for State {
    fn get(&mut self) -> String {
        self.facts.config.clone()
    }
}

impl log::Host for State {
    fn write(&mut self, level: log::Level, message: String, fields: Vec<types::Pair>) {
        let fields = fields.into_iter().map(|pair| (pair.name, pair.value)).collect();
        self.home.log(level.into(), message, fields);
    }
}

impl system::Host for State {
    fn now(&mut self) -> String {
        // As Kubernetes writes it: whole seconds.
        let seconds = i64::try_from(self.facts.ambient.now().as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX).to_string()
    }

    fn now_ms(&mut self) -> f64 {
        self.facts.ambient.now().as_secs_f64() * 1000.0
    }

    fn random_bytes(&mut self, len: u32) -> Vec<u8> {
        let bytes = random::Host::get_random_bytes(self.random(), len.min(RANDOM).into());
        bytes.unwrap_or_else(|error| {
            error!(%error, "there are no random bytes");
            Vec::new()
        })
    }

    fn uuid(&mut self) -> String {
        let bytes = self.random_bytes(16).try_into().unwrap_or_default();
        uuid(bytes)
    }
}

/// Writes random bytes as a UUID of version 4 (RFC 9562).
fn uuid(bytes: [u8; 16]) -> String {
    let n = u128::from_be_bytes(bytes);
    let n = n & !(0xf << 76) | (4 << 76);
    let n = n & !(0b11 << 62) | (0b10 << 62);
    let text = format!("{n:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|part| text.get(part).unwrap_or_default().to_owned()).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_says_its_version() {
        assert_eq!(uuid([0; 16]), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
