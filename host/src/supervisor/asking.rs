//! Has versions of operators wait that want more than the one in force, until somebody approves them (AP rules).

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_core::guest::Description;
use capstan_core::manifest::{OnNewVersion, Operator, is_object_path};
use capstan_core::operator::approval::{self, Asked, Identity, LINES, Memory, waits};
use capstan_core::operator::difference::{Difference, difference};
use capstan_core::operator::wants::{About, Wants};
use capstan_core::registry::Digest;
use capstan_core::rollout::File;
use capstan_core::rollout::plan::Attempt;

use super::Supervisor;
use super::load::Outcome;
use super::objects::approvals::Approvals;
use super::status::now;
use super::supply::{Component, Unit};

/// The most lines of what has changed that the status keeps.
const CHANGE: usize = 20;

/// Who says whether a version may be put in force that wants more.
#[derive(Clone, Default)]
pub enum Asking {
    /// Nobody can: an operator that asks is refused.
    #[default]
    Nowhere,
    /// Nobody is asked: whoever runs this is the author.
    Nobody,
    /// Who may write approvals.
    Of(Arc<Approvals>),
}

/// What a version is beside the one in force.
pub(super) struct Judged {
    /// What is otherwise; `None` if none is in force.
    pub(super) change: Option<Difference>,
    /// That it waits.
    pub(super) asked: Option<Asked>,
}

impl Asking {
    /// Returns files as they can be heeded: where nobody can approve anything, none that asks.
    pub(super) fn heard(&self, files: Vec<File>) -> Vec<File> {
        let Self::Nowhere = self else {
            return files;
        };
        let heard = |file: File| match &file.content {
            Ok(operators) => match operators.iter().find(|operator| operator.on_new_version == OnNewVersion::Ask) {
                Some(operator) => File { content: Err(unanswered(operator)), path: file.path },
                None => file,
            },
            Err(_) => file,
        };
        files.into_iter().map(heard).collect()
    }

    /// Returns where approvals are.
    fn approvals(&self) -> Option<&Approvals> {
        match self {
            Self::Nowhere | Self::Nobody => None,
            Self::Of(approvals) => Some(approvals),
        }
    }

    /// Waits until there may be other approvals. If the future is dropped, no change is lost.
    pub(super) async fn changed(&self) {
        match self.approvals() {
            Some(approvals) => approvals.changed().await,
            None => std::future::pending().await,
        }
    }

    /// Whether it is not known yet what is approved of an operator that asks.
    pub(super) fn is_awaited(&self, operator: &Operator, in_force: OnNewVersion) -> bool {
        self.approvals().is_some_and(|approvals| {
            let said = [operator.on_new_version, in_force, approvals.floor(), approvals.said_last(operator)];
            let asks = said.contains(&OnNewVersion::Ask);
            if asks {
                approvals.want();
            }
            asks && !approvals.are_known()
        })
    }
}

fn unanswered(operator: &Operator) -> String {
    format!(
        "{}: found `ask`, and this daemon looks for approvals nowhere: they are objects of the cluster; expected a daemon with `--operators cluster`, which looks for them for operators in files, too, or `apply`",
        operator.origin.on_new_version()
    )
}

impl Supervisor {
    /// Returns the supervisor with who says whether versions are put in force.
    #[must_use]
    pub fn asking(self, asking: Asking) -> Self {
        Self { asking, ..self }
    }

    /// Returns what the version of an operator is of which these units have been loaded.
    pub(super) fn judge(&self, operator: &Operator, units: &[Outcome]) -> Judged {
        let own = self.in_force.iter().filter(|(unit, _)| unit.operator == operator.name);
        let own: Vec<_> = own.map(|(unit, version)| (&*unit.plugin, &version.attempt, &*version.plugin)).collect();
        let before = own.iter().copied().fold(Wants::default(), with);
        let (mut after, mut components) = (Wants::default(), BTreeMap::new());
        for name in operator.plugins.keys() {
            let Some((attempt, component)) = self.becomes(operator, name, units) else {
                continue;
            };
            after = with(after, (name, attempt, component));
            let digest = Digest::parse(&format!("sha256:{}", component.digest()));
            components.extend(digest.ok().map(|digest| (Arc::clone(name), digest)));
        }
        let difference = difference(&before, &after);
        let version = Identity { components, given: after.given() };
        let mut said: Vec<_> = own.iter().map(|(_, attempt, _)| attempt.on_new_version).collect();
        said.extend([operator.on_new_version, self.said_in_force(&operator.name)]);
        let asked = self.asks(operator, (&difference, version), (said, own.is_empty()));
        Judged { change: (!own.is_empty()).then_some(difference), asked }
    }

    /// Returns what is to be in force of a plugin: what was loaded, or what is in force already.
    fn becomes<'a>(
        &'a self,
        operator: &Operator,
        name: &Arc<str>,
        units: &'a [Outcome],
    ) -> Option<(&'a Attempt, &'a dyn Component)> {
        let unit = Unit { operator: Arc::clone(&operator.name), plugin: Arc::clone(name) };
        match units.iter().find(|(loaded, ..)| *loaded == unit) {
            Some((_, attempt, loaded)) => Some((attempt, &**loaded.as_ref().ok()?)),
            None => self.in_force.get(&unit).map(|version| (&version.attempt, &*version.plugin)),
        }
    }

    /// Returns the version if it waits.
    fn asks(
        &self,
        operator: &Operator,
        (difference, version): (&Difference, Identity),
        (mut said, is_first): (Vec<OnNewVersion>, bool),
    ) -> Option<Asked> {
        let approvals = self.asking.approvals()?;
        said.push(approvals.floor());
        if is_first {
            // Somebody may have edited the manifest while no daemon was there.
            said.push(approvals.said_last(operator));
        }
        let is_object = is_object_path(operator.origin.file());
        let memory = if is_object { Memory::Status } else { Memory::Nowhere };
        let remembered = || approvals.was_in_force(operator, self.concurrency);
        let known: Vec<_> =
            approvals.of(&operator.name).into_iter().chain(is_first.then(remembered).flatten()).collect();
        if !waits(said, (difference, memory), &version, &known) {
            return None;
        }
        let since = self.status.asked(&operator.name).filter(|asked| asked.version == version).map(|asked| asked.since);
        let own = (approvals.namespace(), &*operator.name);
        // That of a tenant is asked for by the name that it has at home, and says where its approval is.
        let home = operator.controllers.values().find_map(|controller| controller.home.as_deref());
        let at_home = home.and_then(|home| Some((home, operator.name.strip_prefix(home)?.strip_prefix('.')?)));
        let named = if is_object { None } else { Some(&version) };
        Some(Asked {
            command: approval::command(at_home.unwrap_or(own), named),
            place: format!("{}/{}", own.0, own.1),
            difference: difference.texts(LINES),
            wants_more: difference.wants_more,
            since: since.unwrap_or_else(|| now().to_string()),
            version,
        })
    }

    /// Has the version of an operator wait; what is in force runs on.
    pub(super) fn have_wait(&self, operator: &Arc<str>, asked: Asked, units: &[Outcome]) {
        for (unit, _, _) in units.iter().filter(|(_, _, loaded)| loaded.is_ok()) {
            self.status.waits(unit, &asked);
        }
        self.status.ask(operator, Some(asked));
    }

    /// Has those versions looked at again that have been approved.
    pub(super) fn heed_approvals(&mut self) {
        let Some(approvals) = self.asking.approvals() else {
            return;
        };
        let is_approved = |name: &Arc<str>| {
            self.status.asked(name).is_some_and(|asked| approvals.of(name).is_some_and(|of| of == asked.version))
        };
        self.tried.retain(|name, _| !is_approved(name));
    }

    /// Says what is otherwise in the version that has just been put in force.
    pub(super) fn tell_change(&self, operator: &Arc<str>, change: Option<Difference>) {
        self.status.ask(operator, None);
        if let Some(change) = change.filter(|change| !change.is_empty()) {
            let lines = change.texts(CHANGE);
            tracing::info!(%operator, difference = lines.join("; "), more = change.wants_more, "a new version is in force");
            self.status.changed(operator, lines);
        }
    }

    /// Returns what the version of an operator in force says of newer ones.
    pub(super) fn said_in_force(&self, operator: &str) -> OnNewVersion {
        let own = self.in_force.iter().filter(|(unit, _)| *unit.operator == *operator);
        let own = own.map(|(_, version)| version.attempt.on_new_version);
        own.chain(self.said.get(operator).copied()).max().unwrap_or_default()
    }
}

/// Adds what a plugin wants.
fn with(wants: Wants, (name, attempt, component): (&str, &Attempt, &dyn Component)) -> Wants {
    let (about, description): (Option<&About>, Option<&Description>) = (component.about(), component.description());
    wants.and(name, attempt, (about, description))
}
