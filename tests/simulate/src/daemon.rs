//! Puts the daemon's own parts together on the model, and lets them end at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use capstan::client::meter::Meters;
use capstan::client::{ApiServer, recorder};
use capstan::controller::{self, Declared, Handle, Neighbours};
use capstan::informer::pool::Pool;
use capstan::metrics::Metrics;
use capstan::pause;
use capstan::workers::Workers;
use capstan_core::cpu::Slots;
use capstan_core::guest::Guest;
use capstan_core::object::Managers;
use capstan_core::permission::Home;
use capstan_core::room::Room;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::chance::Chance;
use crate::line::Line;
use crate::script::Script;
use crate::stage::Stage;
use crate::world::{Setup, Variant, operator};

/// Bytes of objects in a cache.
const CACHE: usize = 64 << 20;

/// The daemon. It crashes when it is dropped.
pub(crate) struct Daemon {
    handle: Arc<Handle>,
    neighbours: Arc<Neighbours>,
    guest: Arc<dyn Guest>,
    setup: Setup,
    _tasks: JoinSet<()>,
}

impl Daemon {
    /// Starts it, for the `number`th time.
    pub(crate) fn start(stage: &Arc<Stage>, setup: Setup, variant: Variant, (seed, number): (u64, u64)) -> Self {
        let client = kube::Client::new(Line::new(stage), "default");
        let chance = Mutex::new(Chance::new(seed, 100 + number));
        let chance = pause::Chance::of(move || chance.lock().share());
        let api = ApiServer::new(client, Managers::default()).pausing(chance);
        let (api, metrics) = (Arc::new(api), Arc::<Metrics>::default());
        let (recorder, writer) = recorder::recorder(Arc::clone(&api), "sim".to_owned());
        let stop = CancellationToken::new();
        let slots = Slots { usual: 8, extra: 0 };
        let runtime = tokio::runtime::Handle::current();
        let room = Room::default();
        let neighbours = Arc::new(Neighbours {
            pool: Pool::new(Arc::clone(&api), Arc::clone(&metrics), (CACHE, room), stop.clone()),
            api: Arc::clone(&api),
            metrics,
            recorder,
            meters: Meters::default(),
            requests_per_second: 1000,
            home: Home { own: "capstan".into(), closed: None },
            identity: "sim".into(),
            drain: Duration::from_secs(30),
            workers: Workers::here(runtime, slots),
        });
        let guest: Arc<dyn Guest> = Arc::new(Script { stage: Arc::clone(stage), cleaner: setup.cleaner });
        let declared = declared(&neighbours, &guest, setup, variant);
        let handle = Arc::new(Handle::new(declared, &neighbours));
        let mut tasks = JoinSet::new();
        tasks.spawn(writer.run(stop.clone()));
        tasks.spawn({
            let handle = Arc::clone(&handle);
            async move { api.listen(|| handle.resume()).await }
        });
        tasks.spawn(controller::run(Arc::clone(&handle), Arc::clone(&neighbours), stop));
        Self { handle, neighbours, guest, setup, _tasks: tasks }
    }

    /// Makes its controller another.
    pub(crate) fn swap(&self, variant: Variant) {
        let declared = declared(&self.neighbours, &self.guest, self.setup, variant);
        self.handle.change(declared, &self.neighbours);
    }

    /// Returns what it says of itself.
    pub(crate) fn state(&self) -> Value {
        self.handle.describe(None, 100).state
    }
}

fn declared(neighbours: &Neighbours, guest: &Arc<dyn Guest>, setup: Setup, variant: Variant) -> Declared {
    let operator = operator(setup, variant);
    let first = |map: &BTreeMap<_, capstan_core::manifest::Controller>| map.values().next().cloned();
    let spec = first(&operator.controllers).expect("the manifest has a controller");
    let plugin = operator.plugins.values().next().cloned();
    neighbours.api.keep_shares_of(&spec.field_manager);
    Declared {
        account: neighbours.workers.account("sim/sim", None),
        operator: operator.name,
        spec,
        plugin: plugin.expect("the manifest has a plugin"),
        guest: Arc::clone(guest),
        component: "component".into(),
    }
}
