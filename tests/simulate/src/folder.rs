//! Supplies the manifest and the component to the daemon: now and then they are wrong, or take some time to load.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan::plugin::Usage;
use capstan::supervisor::supply::{Again, Component, Content, Drain, Loader, Refusal, Supply, Values};
use capstan_core::manifest::{Operator, Permission};
use capstan_core::operator::wants::About;
use capstan_core::rollout::File;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::script::Script;
use crate::stage::Stage;
use crate::world::{OnStartError, Setup, Variant, operator};

/// The manifest and the component.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) variant: Variant,
    /// True if the manifest can't be read.
    pub(crate) garbled: bool,
    /// The number of the component, one more for each new one.
    pub(crate) component: u64,
    /// True if the component has no `cleanup`, whatever it should have.
    pub(crate) bare: bool,
    /// The step at which the component is refused; `None` if it is not.
    pub(crate) refused: Option<&'static str>,
    /// How long loading the component takes.
    pub(crate) load: Duration,
    /// How often the daemon had to look at everything again.
    pub(crate) hangups: u64,
}

/// The place of the files. It outlives the daemon.
pub(crate) struct Folder {
    stage: Arc<Stage>,
    setup: Setup,
    files: watch::Sender<Files>,
}

/// A daemon's view of a [`Folder`].
struct View {
    folder: Arc<Folder>,
    files: watch::Receiver<Files>,
    hangups: u64,
}

/// Loads the component.
struct FromFolder(Arc<Folder>);

impl Folder {
    pub(crate) fn new(stage: &Arc<Stage>, setup: Setup) -> Arc<Self> {
        let files = Files {
            variant: Variant::Usual,
            garbled: false,
            component: 0,
            bare: false,
            refused: None,
            load: Duration::ZERO,
            hangups: 0,
        };
        Arc::new(Self { stage: Arc::clone(stage), setup, files: watch::Sender::new(files) })
    }

    /// Changes the files.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Files)) {
        self.files.send_modify(change);
    }

    /// Returns a daemon's view.
    pub(crate) fn supply(self: &Arc<Self>) -> Box<dyn Supply> {
        let files = self.files.subscribe();
        let hangups = files.borrow().hangups;
        Box::new(View { folder: Arc::clone(self), files, hangups })
    }
}

impl Supply for View {
    fn manifests(&mut self, _: &[Operator]) -> Vec<File> {
        let files = self.files.borrow_and_update();
        let right = || vec![operator(self.folder.setup, files.variant)];
        let content = if files.garbled { Err("it is garbled".to_owned()) } else { Ok(right()) };
        vec![File { path: Path::new("sim.yaml").to_owned(), content }]
    }

    fn want(&mut self, _: &[Operator]) {}

    fn content(&self, _: &Path) -> Content {
        let files = self.files.borrow();
        Content::Whole(format!("{} {:?}", files.component, files.refused).into())
    }

    fn changed(&mut self) -> BoxFuture<'_, Again> {
        async {
            if self.files.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            let hangups = self.files.borrow().hangups;
            let told = std::mem::replace(&mut self.hangups, hangups) != hangups;
            if told { Again::InAnyCase } else { Again::OnceChanged }
        }
        .boxed()
    }

    fn loader(&self, _: Again) -> Box<dyn Loader> {
        Box::new(FromFolder(Arc::clone(&self.folder)))
    }
}

impl Loader for FromFolder {
    fn load<'a>(
        &'a self,
        _: &'a Operator,
        _: &'a str,
        _: (&'a Content, &'a Values),
    ) -> BoxFuture<'a, Result<Arc<dyn Component>, Refusal>> {
        let Folder { stage, setup, files } = &*self.0;
        async move {
            let before = files.borrow().clone();
            sleep(before.load).await;
            if files.borrow().component != before.component {
                return Err(Refusal::new("read", "it has changed while it was read"));
            }
            if let Some(step) = before.refused {
                return Err(Refusal::new(step, "it is of no use"));
            }
            stage.note(format!("component {} is loaded", before.component));
            stage.loaded();
            let digest = before.component.to_string();
            // One whose operator's account has lost a right goes on without what it can't read any more.
            let goes_on = setup.hurry == Some(OnStartError::GoOn) || setup.account;
            let script = Script { stage: Arc::clone(stage), cleaner: setup.cleaner && !before.bare, goes_on, digest };
            Ok(Arc::new(script) as Arc<dyn Component>)
        }
        .boxed()
    }
}

impl Component for Script {
    fn digest(&self) -> &str {
        &self.digest
    }

    fn writes(&self) -> &BTreeSet<Permission> {
        const { &BTreeSet::new() }
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

    fn drain(&self) -> Drain {
        Arc::new(|| std::future::ready(()).boxed())
    }
}
