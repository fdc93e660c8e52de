//! An instance of a component: a store with a memory limit and a deadline per call, dropped when a call goes wrong. It belongs
//! to one run at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_core::cpu;
use capstan_core::guest::{Answer, Call, CallError, CallReason, Context, Found, Function, Named};
use tokio::time::Instant;
use wasmtime::component::{
    self, ComponentExportIndex, ComponentNamedList, InstancePre, Lift, Lower, ResourceTable, TypedFunc,
};
use wasmtime::{Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtxView, WasiHttpView};

use super::Facts;
use super::bindings::capstan::operator::types;
use super::bindings::exports::capstan::operator::{
    cleaner, condition, description, error_handler, external, filter, inbound, poller, reconciler, resource_poller,
    retry_policy, validator,
};
use super::convert::{bounded, described, desired_set, named, polled_all, polled_one, received};
use super::ending::{Overdue, early, until};
use super::idle::Wear;
use super::network::http::Http;
use super::network::{Connected, Line, tcp};
use super::output::{Home, Pipe, Stream};
use super::usage::{Alive, Counters};

mod limiter;
mod signatures;

use limiter::{Limiter, Share};

/// Bytes that one call of a host function, or the answer of an export, may make the daemon allocate. Objects in etcd
/// are smaller than 1.5 MiB.
pub(super) const HOSTCALL: usize = 4 << 20;

/// Streams and pollables that an instance may hold.
const RESOURCES: usize = 1024;

/// The same with a network, where the daemon may keep some KiB for each.
const RESOURCES_WITH_NETWORK: usize = 96;

/// What the instances of a component are made of.
pub(super) struct Parts {
    pub(super) pre: InstancePre<State>,
    pub(super) exports: Arc<Indices>,
    pub(super) facts: Arc<Facts>,
    pub(super) counters: Arc<Counters>,
}

/// A component that runs.
pub(super) struct Instance {
    store: Store<State>,
    handle: component::Instance,
    exports: Arc<Indices>,
    /// Runs that it has behind it.
    runs: usize,
    /// It has opened what ends with it alone.
    used_up: bool,
    _alive: Alive,
}

/// What the daemon keeps beside a running component.
pub(super) struct State {
    /// The plugin.
    pub(super) facts: Arc<Facts>,
    /// The run that calls belong to; none while a plugin is loaded, and between runs.
    pub(super) run: Option<Arc<dyn Context>>,
    /// Where prints and log lines go, and who is asked for memory and time.
    pub(super) home: Home,
    /// Which function is called; none if none is.
    pub(super) call: Option<Function>,
    /// When it has to be over.
    pub(super) deadline: Instant,
    /// When it is given up, be it before that: with its run, or with the call that waits for it.
    pub(super) until: Instant,
    limiter: Limiter,
    wasi: WasiCtx,
    http: Http,
    /// What the component has handles of. They are part of its memory: the C library keeps its standard streams in there.
    table: ResourceTable,
}

/// The functions that a component exports, found once.
pub(super) type Indices = BTreeMap<Function, ComponentExportIndex>;

/// The manifest does without this interface, but now it is called.
#[derive(Debug, thiserror::Error)]
#[error("the component does not export `{0}`")]
struct NotExported(&'static str);

/// Returns the name of the function that is called.
pub(super) fn called(function: Option<Function>) -> &'static str {
    function.map_or("start", Function::name)
}

// === impl State ===

impl State {
    /// Returns the state of an instance that has not started.
    fn new(facts: Arc<Facts>, run: Option<Arc<dyn Context>>, home: Home) -> Self {
        let pipe = |stream| Pipe { home: home.clone(), stream };
        let line = Line::new(&facts.network, &home);
        let mut wasi = WasiCtx::builder();
        wasi.stdout(pipe(Stream::Out))
            .stderr(pipe(Stream::Err))
            .max_random_size(64 << 10)
            // The functions are linked because Python imports them; that is no permission.
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false);
        facts.ambient.provide(&mut wasi);
        if facts.network.has_tcp() {
            tcp::permit(&mut wasi, &line);
        }
        let wasi = wasi.build();
        let mut table = ResourceTable::new();
        table.set_max_capacity(if facts.network.is_there() { RESOURCES_WITH_NETWORK } else { RESOURCES });
        let limit = usize::try_from(facts.limits.memory).unwrap_or(usize::MAX);
        let share = match &home {
            Home::Here(_) => Share::Held(facts.room.holding(&facts.unit)),
            Home::Apart(wire) => Share::Asked(Arc::clone(wire)),
        };
        let limiter = Limiter::new(limit, share);
        let deadline = Instant::now();
        let http = Http::new(line);
        Self { facts, run, home, call: None, deadline, until: deadline, limiter, wasi, http, table }
    }
}

impl State {
    /// Counts an answer of so many bytes as the component's memory.
    ///
    /// # Errors
    /// If there is no room for it.
    pub(super) fn answer(&mut self, bytes: usize) -> Result<(), CallError> {
        self.limiter.answer(bytes).map_err(|left| {
            let message =
                format!("the answer has {bytes} bytes, and {left} are left of the component's memory (limits.memory)");
            CallError::new(CallReason::Exhausted, message)
        })
    }

    /// Sets when the call that begins has to be over.
    fn due(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.until = until(self.run.as_deref(), deadline);
        self.limiter.call(early(self.until));
        self.http.line().begin(self.until);
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.http.view(&mut self.table)
    }
}

impl Connected for State {
    fn line(&mut self) -> &mut Line {
        self.http.line()
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

// === impl Instance ===

impl Instance {
    /// Starts a component. Its start functions run within `deadline`, if the caller waits no longer.
    pub(super) async fn start(
        Parts { pre, exports, facts, counters }: &Parts,
        run: Option<Arc<dyn Context>>,
        home: Home,
        deadline: Instant,
    ) -> wasmtime::Result<Self> {
        let mut store = Store::new(pre.engine(), State::new(Arc::clone(facts), run, home));
        store.limiter_async(|state| &mut state.limiter);
        store.set_hostcall_fuel(HOSTCALL);
        store.epoch_deadline_callback(|store| {
            if let Home::Apart(wire) = &store.data().home {
                // Who has started this process says how long a call may take, and when it goes on.
                wire.rest().map_err(|_gone| Overdue)?;
                return Ok(UpdateDeadline::Continue(1));
            }
            // The caller's timer says the same, but only when the runtime gets to look at it.
            if Instant::now() >= store.data().deadline {
                return Err(Overdue.into());
            }
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(cpu::rest())))
        });
        store.data_mut().due(deadline);
        store.set_epoch_deadline(1);
        store.data_mut().limiter.begin(facts.weight).await?;
        let handle = pre.instantiate_async(&mut store).await?;
        Ok(Self { store, handle, exports: Arc::clone(exports), runs: 0, used_up: false, _alive: counters.instance() })
    }

    /// Begins a run in an instance that has been used before.
    pub(super) fn assign(&mut self, run: Arc<dyn Context>) {
        self.store.data_mut().run = Some(run);
    }

    /// Ends a run, if the instance is to be used again: nothing is kept of it but what the component knows. Returns
    /// what the instance has behind it.
    pub(super) fn release(&mut self) -> Wear {
        self.runs += 1;
        // A run may hold its plugin, and so the instances that wait there.
        self.store.data_mut().run = None;
        Wear { runs: self.runs, memory: self.memory() }
    }

    /// Whether it may be called again.
    pub(super) fn is_alive(&self) -> bool {
        !self.used_up
    }

    /// Returns how many bytes of memory it has, which never shrinks.
    pub(super) fn memory(&self) -> usize {
        self.store.data().limiter.used()
    }

    /// Makes a call, which has to be over then.
    pub(super) async fn answer(&mut self, call: &Call<'_>, deadline: Instant) -> Ended<Answer> {
        let state = self.store.data_mut();
        state.call = call.function();
        state.due(deadline);
        self.store.set_epoch_deadline(1);
        let answer = self.make(call).await;
        let line = self.store.data_mut().http.line();
        line.end();
        self.used_up |= line.is_used_up();
        answer
    }

    async fn make(&mut self, call: &Call<'_>) -> Ended<Answer> {
        Ok(match *call {
            Call::Start => {
                self.check()?;
                Ok(Answer::Start)
            }
            Call::Reconcile { primary } => {
                let answer = self.ask::<_, reconciler::UpdateControl>(Function::Reconcile, (primary,)).await?;
                answer.map(|control| Answer::Reconcile(control.into()))
            }
            Call::Cleanup { primary } => {
                let answer = self.ask::<_, cleaner::DeleteControl>(Function::Cleanup, (primary,)).await?;
                answer.map(|control| Answer::Cleanup(control.into()))
            }
            Call::HandleError { primary, ref failed } => self.handle(primary, &(&**failed).into()).await?,
            Call::DecideRetry { primary, ref failed } => self.decide(primary, &(&**failed).into()).await?,
            Call::Validate { primary, old } => {
                let answer = self.ask::<_, Vec<validator::Problem>>(Function::Validate, (primary, old)).await?;
                answer.map(|found| {
                    let problems = found.into_iter().take(Found::MOST).map(Into::into).collect();
                    Answer::Validate(Found { problems })
                })
            }
            Call::Initialize { primary } => {
                self.ask::<_, ()>(Function::Initialize, (primary,)).await?.map(Answer::Initialize)
            }
            Call::Desired { name, primary } => self.ask(Function::Desired, (name, primary)).await?.map(Answer::Desired),
            Call::DesiredSet { name, primary } => self.desired_set((name, primary)).await?,
            Call::Create { name, desired, primary } => self.create((name, desired, primary)).await?,
            Call::Update { name, actual, desired, primary } => {
                self.ask(Function::Update, (name, actual, desired, primary)).await?.map(Answer::Update)
            }
            Call::Remove { name, actual, primary } => {
                self.ask(Function::Remove, (name, actual, primary)).await?.map(Answer::Remove)
            }
            Call::Match { name, actual, desired, primary } => {
                let arguments = (name, actual, desired, primary);
                let answer = self.ask::<_, types::MatchResult>(Function::Match, arguments).await?;
                answer.map(|result| Answer::Match(result.into()))
            }
            Call::IsMet { name, dependent, primary } => {
                let arguments = (name, dependent, primary);
                let answer = self.ask::<_, condition::ConditionResult>(Function::IsMet, arguments).await?;
                answer.map(|result| Answer::IsMet(result.into()))
            }
            Call::Poll { name } => self.poll(name).await?,
            Call::Accepts { name, changed } => {
                self.ask(Function::Accepts, (name, &filter::Change::from(changed))).await?.map(Answer::Accepts)
            }
            Call::ToPrimaries { name, secondary } => {
                self.map(Function::ToPrimaries, (name, secondary)).await?.map(Answer::ToPrimaries)
            }
            Call::ToSecondaries { name, primary } => {
                self.map(Function::ToSecondaries, (name, primary)).await?.map(Answer::ToSecondaries)
            }
            Call::Describe {} => self.describe().await?,
            Call::Receive { name, ref request } => self.receive(name, &(&**request).into()).await?,
            Call::PollOne { name, primary } => self.poll_one((name, primary)).await?,
        })
    }

    /// Asks what a failed run leaves behind.
    async fn handle(&mut self, primary: &str, failed: &error_handler::FailureInfo) -> Ended<Answer> {
        let answer = self.ask::<_, error_handler::ErrorControl>(Function::HandleError, (primary, failed)).await?;
        Ok(answer.map(|control| Answer::HandleError(control.into())))
    }

    /// Asks when a failed run is retried.
    async fn decide(&mut self, primary: &str, failed: &retry_policy::FailedRun) -> Ended<Answer> {
        let answer = self.ask::<_, retry_policy::NextRetry>(Function::DecideRetry, (primary, failed)).await?;
        Ok(answer.map(|next| Answer::DecideRetry(next.into())))
    }

    /// Has a thing outside of the cluster created.
    async fn create(&mut self, about: (&str, &str, &str)) -> Ended<Answer> {
        let answer = self.ask::<_, external::Created>(Function::Create, about).await?;
        Ok(answer.map(|created| Answer::Create(created.into())))
    }

    /// Asks for all things of a source outside of the cluster.
    async fn poll(&mut self, name: &str) -> Ended<Answer> {
        match self.ask::<_, Vec<poller::PrimaryResources>>(Function::Poll, (name,)).await? {
            Ok(primaries) => Ok(Ok(Answer::Poll(polled_all(primaries)?))),
            Err(message) => Ok(Err(message)),
        }
    }

    /// Asks for the things of a source outside of the cluster that belong to a primary.
    async fn poll_one(&mut self, about: (&str, &str)) -> Ended<Answer> {
        match self.ask::<_, resource_poller::PollResult>(Function::PollOne, about).await? {
            Ok(result) => Ok(Ok(Answer::PollOne(polled_one(result)?))),
            Err(message) => Ok(Err(message)),
        }
    }

    /// Asks which names the component answers to.
    async fn describe(&mut self) -> Ended<Answer> {
        let answer = self.ask::<_, Vec<description::KnownNames>>(Function::Describe, ()).await?;
        bounded(answer, |entries| described(entries).map(Answer::Describe))
    }

    /// Asks of which objects a bulk dependent should consist.
    async fn desired_set(&mut self, about: (&str, &str)) -> Ended<Answer> {
        bounded(self.ask(Function::DesiredSet, about).await?, |objects| desired_set(objects).map(Answer::DesiredSet))
    }

    /// Asks what a request from outside says.
    async fn receive(&mut self, name: &str, request: &inbound::InboundRequest) -> Ended<Answer> {
        let answer = self.ask::<_, inbound::InboundAnswer>(Function::Receive, (name, request)).await?;
        bounded(answer, |answer| received(answer).map(Answer::Receive))
    }

    /// Asks a mapper for the objects that belong to another one.
    async fn map(&mut self, function: Function, arguments: (&str, &str)) -> Ended<Named> {
        let keys = self.ask::<_, Vec<types::ObjectKey>>(function, arguments).await?;
        Ok(match keys {
            Ok(keys) => Ok(named(keys)?),
            Err(message) => Err(message),
        })
    }

    async fn ask<P, R>(&mut self, function: Function, arguments: P) -> Ended<R>
    where
        P: ComponentNamedList + Lower,
        R: Lift + 'static,
    {
        let function = self.function::<P, R>(function)?;
        let (answer,) = function.call_async(&mut self.store, arguments).await?;
        Ok(answer)
    }

    fn function<P, R>(&mut self, function: Function) -> wasmtime::Result<Typed<P, R>>
    where
        P: ComponentNamedList + Lower,
        R: Lift,
    {
        let Self { store, handle, exports, .. } = self;
        let index = exports.get(&function).ok_or(NotExported(function.interface().name()))?;
        handle.get_typed_func(store, index)
    }
}

/// What a call ends with: an answer, an error that the component returned, or no answer at all.
pub(super) type Ended<T> = wasmtime::Result<Result<T, String>>;

/// A function of a component.
type Typed<P, R> = TypedFunc<P, (Result<R, String>,)>;
