//! Starts the daemon's own parts on the model, and ends them at once for a crash.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use capstan::backoff;
use capstan::client::meter::Meters;
use capstan::client::{ApiServer, recorder};
use capstan::clusters::{Clusters, Own};
use capstan::controller::Environment;
use capstan::informer::Memory;
use capstan::informer::pool::Pool;
use capstan::metrics::Metrics;
use capstan::part::Part;
use capstan::supervisor::Supervisor;
use capstan::supervisor::status::Status;
use capstan::workers::Workers;
use capstan_core::cpu::Slots;
use capstan_core::object::Managers;
use capstan_core::permission::Home;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};
use tokio_util::sync::CancellationToken;

use crate::chance::Chance;
use crate::folder::Folder;
use crate::line::Line;
use crate::stage::Stage;

/// The size of a cache, in bytes of objects.
const CACHE: usize = 64 << 20;

/// More than the depth to which tasks start other tasks.
const DEPTH: usize = 16;

/// The daemon. It crashes when it is dropped.
pub(crate) struct Daemon {
    status: Arc<Status>,
    tasks: JoinSet<()>,
}

impl Daemon {
    /// Starts it, for the `number`th time.
    pub(crate) fn start(stage: &Arc<Stage>, folder: &Arc<Folder>, (seed, number): (u64, u64)) -> Self {
        let client = kube::Client::new(Line::new(stage), "default");
        // The order of draws is not always the same: tokio wakes waiting tasks in an order of its own.
        let chances = Mutex::new(BTreeMap::<String, Chance>::new());
        let chance = backoff::Chance::new(move |whose| {
            let mut chances = chances.lock();
            let fresh = || Chance::of((seed, 100 + number), whose);
            let chance = chances.entry(whose.to_owned()).or_insert_with(fresh);
            chance.share()
        });
        let api = ApiServer::new(client, Managers::default()).pausing(chance);
        let (api, metrics) = (Arc::new(api), Arc::<Metrics>::default());
        let (recorder, writer) = recorder::recorder("sim".to_owned());
        let stop = CancellationToken::new();
        let slots = Slots { usual: 8, extra: 0 };
        let runtime = tokio::runtime::Handle::current();
        let memory = Memory::new(CACHE, u64::MAX);
        let own = Own {
            api: Arc::clone(&api),
            metrics: Arc::clone(&metrics),
            memory: memory.clone(),
            stop: stop.clone(),
            namespace: "capstan".into(),
            reach: Arc::new(|_, _| Ok(())),
            identity: "sim".into(),
        };
        let environment = Arc::new(Environment {
            clusters: Arc::new(Clusters::new(own)),
            pool: Pool::new(Arc::clone(&api), Arc::clone(&metrics), memory, stop.clone()),
            api: Arc::clone(&api),
            metrics,
            recorder,
            meters: Meters::default(),
            requests_per_second: 1000,
            home: Home { own: "capstan".into(), closed: None },
            identity: "sim".into(),
            drain: Duration::from_secs(30),
            workers: Workers::here(runtime, slots),
            swapped: Notify::new(),
            holder: None,
            ceilings: Arc::default(),
        });
        let status = Arc::<Status>::default();
        let supervisor = Supervisor::new(folder.supply(), environment, Arc::clone(&status), stop.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(writer.run(stop));
        tasks.spawn({
            let status = Arc::clone(&status);
            async move { api.listen(|| status.controllers().iter().for_each(|controller| controller.resume())).await }
        });
        tasks.spawn(supervisor.run());
        Self { status, tasks }
    }

    /// Ends it at once, with all tasks that it has started.
    pub(crate) async fn crash(mut self) {
        self.tasks.shutdown().await;
        // Tasks that its tasks have started end after them, one level after the other.
        for _ in 0..DEPTH {
            yield_now().await;
        }
    }

    /// Returns the state that it reports of its controller.
    pub(crate) fn state(&self) -> Value {
        let (controllers, _) = self.status.describe(&Part { limit: 100, after: None });
        controllers.into_iter().next().unwrap_or_default()
    }
}
