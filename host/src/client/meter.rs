//! Lets each plugin send so many requests a second: what is beyond waits, and nobody else does. Knows what each has registered lately.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::bucket::{Bucket, Rate};
use capstan_core::cluster::{Cluster, Error, Write};
use capstan_core::object::{Gvk, Object, ObjectRef, Scope};
use capstan_core::source::registered::News;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::Access;
use crate::metrics::CountedPlugin;

/// The plugins' meters.
#[derive(Default)]
pub struct Meters(Mutex<HashMap<Unit, Arc<Meter>>>);

/// An operator, and a plugin of its.
type Unit = (Arc<str>, Arc<str>);

/// How often it is told of a plugin that its requests wait.
const TOLD: Duration = Duration::from_mins(1);

/// What one plugin has sent lately, whichever of its versions and controllers.
#[derive(Default)]
struct Meter {
    state: Mutex<Bucket>,
    /// When it was told that its requests wait.
    told: Mutex<Option<Instant>>,
    news: Arc<News>,
}

/// The API server, as one plugin has it.
pub struct Metered {
    api: Access,
    unit: Unit,
    meter: Arc<Meter>,
    rate: Rate,
    /// Its metrics, which are there as long as this is.
    counted: CountedPlugin,
}

impl Meters {
    /// Returns the API server as a plugin has it that may send so many requests a second.
    pub fn api_of(
        &self,
        unit: (&Arc<str>, &Arc<str>),
        per_second: u32,
        api: Access,
        counted: CountedPlugin,
    ) -> Metered {
        let meter = self.meter(unit);
        let unit = (Arc::clone(unit.0), Arc::clone(unit.1));
        Metered { api, unit, meter, rate: Rate::per_second(per_second), counted }
    }
}

impl Meters {
    /// Returns how often the runs of a plugin have registered sources lately.
    pub fn news_of(&self, unit: (&Arc<str>, &Arc<str>)) -> Arc<News> {
        Arc::clone(&self.meter(unit).news)
    }

    fn meter(&self, (operator, plugin): (&Arc<str>, &Arc<str>)) -> Arc<Meter> {
        let mut meters = self.0.lock();
        // Those of plugins that are gone.
        meters.retain(|_, meter| Arc::strong_count(meter) > 1 || Arc::strong_count(&meter.news) > 1);
        let name = (Arc::clone(operator), Arc::clone(plugin));
        Arc::clone(meters.entry(name).or_default())
    }
}

impl Meter {
    /// Tells once in a while that requests of the plugin wait.
    fn tell(&self, (operator, plugin): &Unit, now: Instant) {
        let last = &mut *self.told.lock();
        if last.is_none_or(|last| now.duration_since(last) >= TOLD) {
            *last = Some(now);
            tracing::info!(%operator, %plugin, "requests of the plugin wait, as it has too many a second (limits.requestsPerSecond)");
        }
    }
}

impl Metered {
    /// Waits until the next request may be sent.
    async fn turn(&self) {
        let now = Instant::now();
        let wait = self.meter.state.lock().take(self.rate, now);
        if wait > Duration::ZERO {
            self.counted.counts.throttled.inc();
            self.meter.tell(&self.unit, now);
            sleep(wait).await;
        }
    }
}

impl Cluster for Metered {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        async move {
            self.turn().await;
            self.api.write(write).await
        }
        .boxed()
    }

    fn dry_run(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        async move {
            self.turn().await;
            self.api.dry_run(write).await
        }
        .boxed()
    }

    fn get<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, Error>> {
        async move {
            self.turn().await;
            self.api.get(gvk, key).await
        }
        .boxed()
    }

    fn look<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, Error>> {
        async move {
            self.turn().await;
            self.api.look(gvk, key).await
        }
        .boxed()
    }

    fn serves<'a>(&'a self, gvk: &'a Gvk) -> BoxFuture<'a, Result<bool, Error>> {
        self.api.serves(gvk)
    }

    fn scope(&self, gvk: &Gvk) -> Option<Scope> {
        self.api.scope(gvk)
    }

    fn is_down(&self) -> bool {
        self.api.is_down()
    }
}
