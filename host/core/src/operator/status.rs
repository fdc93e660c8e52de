//! Makes the status of an operator that is an object of the cluster (`OP-3`): state, conditions, what is in force, and what was.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::approval::{APPROVAL_REQUIRED, Asked};
use crate::text::said_within;

/// How a plugin is, or an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// A version is read, compiled and tried; the one before, if there is one, is at work.
    Loading,
    /// What the manifest says is in force.
    Active,
    /// It is in place, but a controller needs something before it can use it, and goes on as it was.
    Waiting,
    /// A newer version was refused; the last good one is at work.
    Outdated,
    /// A version wants more than the one in force, and waits for somebody's approval (`AP-2`); the one in force, if there is one, is at work.
    WaitingForApproval,
    /// No version could be used yet.
    Failed,
}

/// What is known of an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The generation of the object that is wanted.
    pub generation: i64,
    /// What it says, as JSON.
    pub spec: Arc<str>,
    /// Why it is not heeded: a word for programs, and what is to be known.
    pub refused: Option<(&'static str, String)>,
    /// Whether its last good version is put in place first, as nothing is in force.
    pub is_revived: bool,
    /// The version that waits for an approval.
    pub asked: Option<Asked>,
    /// What was otherwise in the version that was put in force last, line by line; `None`: this daemon has put none in place of another.
    pub change: Option<Vec<String>>,
    /// Its plugins.
    pub plugins: Vec<Plugin>,
    /// What its controllers need and have not got.
    pub lacking: Vec<String>,
    /// Why it is still there although it is to go.
    pub leaving: Option<String>,
    /// Who says it.
    pub daemon: Arc<str>,
}

/// What is known of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Plugin {
    /// Its name.
    pub name: Arc<str>,
    /// How it is.
    pub state: State,
    /// Whether its component is being pulled for the first time.
    pub is_pulled: bool,
    /// The reference of its component; empty if it has none.
    pub component: String,
    /// The digest of the artifact in force.
    pub image: Option<String>,
    /// The digest of the component in force; none if there is none.
    pub digest: Option<String>,
    /// When that was put in place; none if nothing is.
    pub since: Option<String>,
    /// Why a newer version is not: the step, and what was wrong.
    pub problem: Option<(String, String)>,
    /// Whether that is tried again although nothing has changed.
    pub is_tried_again: bool,
    /// Whether its registry is asked again from time to time.
    pub is_followed: bool,
    /// Why its registry says nothing of what it names now, though what is in force goes on.
    pub unseen: Option<String>,
}

/// The step at which a component is refused that is not signed as it has to be.
pub const UNSIGNED: &str = "signature";

/// The longest text of a condition.
const LONGEST: usize = 4096;

/// The longest manifest that is remembered, in bytes of JSON: the object has it twice then, and may have 1.5 MiB.
pub const REMEMBERED: usize = 512 << 10;

/// So many versions are remembered.
const VERSIONS: usize = 10;

/// The characters of a digest that are shown.
const SHORT: usize = 12;

/// Whether what is wanted is in force, and if not, why.
enum Loaded {
    InForce,
    Asked { message: String },
    Loading { reason: &'static str, message: String },
    Refused { reason: String, message: String },
}

/// Returns the status of an operator that had another one before, which is null if it had none.
pub fn status(facts: &Facts, before: &Value, now: &str) -> Value {
    let loaded = Loaded::of(facts);
    let mut status = Map::new();
    let mut say = |name: &str, value: Value| {
        if !value.is_null() {
            status.insert(name.to_owned(), value);
        }
    };
    say("observedGeneration", facts.generation.into());
    say("daemon", (*facts.daemon).into());
    say("state", format!("{:?}", facts.state(&loaded)).into());
    say("digest", facts.digest().map_or(Value::Null, Value::from));
    let versions = facts.versions(&loaded, before, now);
    say("version", versions.last().map_or(Value::Null, |version| version["version"].clone()));
    let goes_on = facts.is_in_force() && versions.last().is_some_and(|last| last["generation"] == facts.generation);
    say("versions", versions.into());
    say("plugins", facts.plugins.iter().map(|plugin| plugin.told(facts.asked.as_ref())).collect());
    say("waiting", facts.waiting(&loaded));
    say("lastChange", facts.change.clone().map_or_else(|| before["lastChange"].clone(), Value::from));
    say("inForce", facts.remembered(&loaded, before));
    let conditions = facts.conditions(&loaded, goes_on).map(|(kind, holds, reason, message)| {
        let mut known = before["conditions"].as_array().into_iter().flatten();
        let same = known.find(|known| known["type"] == kind && known["status"] == holds);
        let since = same.and_then(|same| same["lastTransitionTime"].as_str()).unwrap_or(now);
        json!({
            "type": kind,
            "status": holds,
            "observedGeneration": facts.generation,
            "lastTransitionTime": since,
            "reason": reason,
            "message": said_within(&message, LONGEST),
        })
    });
    say("conditions", conditions.into_iter().collect());
    Value::Object(status)
}

impl Loaded {
    fn of(facts: &Facts) -> Self {
        if let Some((reason, message)) = &facts.refused {
            return Self::Refused { reason: (*reason).to_owned(), message: message.clone() };
        }
        if let Some(asked) = &facts.asked {
            return Self::Asked { message: asked.summary() };
        }
        let failed = facts.plugins.iter().find_map(|plugin| Some((&plugin.name, plugin.problem.as_ref()?)));
        if let Some((name, (step, message))) = failed {
            return Self::Refused { reason: reason(step), message: format!("plugin {name}: {message}") };
        }
        if facts.is_revived {
            let message =
                "nothing is in force, and what is wanted can't be used: the last good version is put in place first";
            return Self::Loading { reason: "Reviving", message: message.to_owned() };
        }
        let pulled = facts.plugins.iter().find(|plugin| plugin.is_pulled);
        if let Some(Plugin { name, component, .. }) = pulled {
            return Self::Loading { reason: "Pulling", message: format!("plugin {name}: {component} is being pulled") };
        }
        let loading = facts.plugins.iter().find(|plugin| plugin.state == State::Loading || plugin.since.is_none());
        match loading {
            Some(Plugin { name, .. }) => {
                let message = format!("plugin {name} is read, compiled and tried");
                Self::Loading { reason: "Loading", message }
            }
            None if facts.plugins.is_empty() => {
                Self::Loading { reason: "Loading", message: "it is being looked at".to_owned() }
            }
            None => Self::InForce,
        }
    }
}

impl Facts {
    /// Whether something of it is in force, wanted as it is or not.
    pub fn is_in_force(&self) -> bool {
        !self.plugins.is_empty() && self.plugins.iter().all(|plugin| plugin.since.is_some())
    }

    /// Whether something that had been in force, as `was_in_force` says of plugins, is not, because what is wanted failed or waits for an approval (`OP-5`).
    pub fn is_stuck(&self, was_in_force: impl Fn(&str) -> bool) -> bool {
        let failed = |plugin: &&Plugin| plugin.problem.is_some() || self.asked.is_some();
        let mut lacking = self.plugins.iter().filter(|plugin| plugin.since.is_none());
        let refused = self.refused.is_some() && self.plugins.iter().all(|plugin| plugin.since.is_none());
        refused || lacking.any(|plugin| failed(&plugin) && was_in_force(&plugin.name))
    }

    /// Returns when what can't be put in force is tried again although nothing has changed; `None`: it is not.
    fn again(&self) -> Option<&'static str> {
        let failed = || self.plugins.iter().filter(|plugin| plugin.problem.is_some());
        if self.refused.is_some() {
            None
        } else if failed().any(|plugin| plugin.is_tried_again) {
            Some("it is tried again, though nothing has changed")
        } else {
            failed().any(|plugin| plugin.is_followed).then_some("its registry is asked again from time to time")
        }
    }

    /// Returns why it is not known what a reference names now; `None` if that is known of all.
    fn unseen(&self) -> Option<String> {
        let mut unseen = self.plugins.iter().filter_map(|plugin| Some((&plugin.name, plugin.unseen.as_ref()?)));
        unseen.next().map(|(name, why)| {
            format!("plugin {name}: what is in force goes on, and its registry can't be asked for a newer one: {why}")
        })
    }

    fn state(&self, loaded: &Loaded) -> State {
        let waits = self.plugins.iter().any(|plugin| plugin.state == State::Waiting) || !self.lacking.is_empty();
        match loaded {
            Loaded::InForce if waits => State::Waiting,
            Loaded::InForce => State::Active,
            Loaded::Asked { .. } => State::WaitingForApproval,
            Loaded::Loading { .. } => State::Loading,
            Loaded::Refused { .. } if self.is_in_force() => State::Outdated,
            Loaded::Refused { .. } => State::Failed,
        }
    }

    /// Returns the digests of its components in force, shortened.
    fn digest(&self) -> Option<String> {
        let digests = self.plugins.iter().filter_map(|plugin| plugin.digest.as_deref());
        let digests: Vec<&str> = digests.map(|digest| digest.get(..SHORT).unwrap_or(digest)).collect();
        (!digests.is_empty()).then(|| digests.join(","))
    }

    /// Returns what has been in force, the newest last.
    fn versions(&self, loaded: &Loaded, before: &Value, now: &str) -> Vec<Value> {
        let mut versions = before["versions"].as_array().cloned().unwrap_or_default();
        let digest = self.digest().unwrap_or_default();
        let same = |last: &Value| last["generation"] == self.generation && last["digest"] == digest;
        if matches!(loaded, Loaded::InForce) && !versions.last().is_some_and(same) {
            let number = versions.last().and_then(|last| last["version"].as_u64()).unwrap_or(0).saturating_add(1);
            versions.push(json!({ "version": number, "generation": self.generation, "digest": digest, "time": now }));
        }
        versions.split_off(versions.len().saturating_sub(VERSIONS))
    }

    /// Returns the version that waits for an approval, for who gives it.
    fn waiting(&self, loaded: &Loaded) -> Value {
        let (Loaded::Asked { .. }, Some(asked)) = (loaded, &self.asked) else {
            return Value::Null;
        };
        let mut waiting = asked.version.told();
        waiting.insert("approval".to_owned(), asked.place.clone().into());
        waiting.insert("since".to_owned(), asked.since.clone().into());
        waiting.insert("difference".to_owned(), asked.difference.clone().into());
        Value::Object(waiting)
    }

    /// Returns what is in force as it was wanted, so that another daemon can start with it (`OP-5`).
    fn remembered(&self, loaded: &Loaded, before: &Value) -> Value {
        if !matches!(loaded, Loaded::InForce) {
            return before["inForce"].clone();
        }
        if self.spec.len() > REMEMBERED {
            return Value::Null;
        }
        // What it is of its registry may not be known for a moment.
        if self.plugins.iter().any(|plugin| !plugin.component.is_empty() && plugin.image.is_none()) {
            return before["inForce"].clone();
        }
        let image = |plugin: &Plugin| Some((plugin.name.to_string(), plugin.image.clone()?.into()));
        let images: Map<String, Value> = self.plugins.iter().filter_map(image).collect();
        let component =
            |plugin: &Plugin| Some((plugin.name.to_string(), format!("sha256:{}", plugin.digest.as_ref()?).into()));
        let components: Map<String, Value> = self.plugins.iter().filter_map(component).collect();
        json!({ "generation": self.generation, "spec": &*self.spec, "images": images, "components": components })
    }

    /// Returns the conditions: type, status, reason and message. What is in force `goes_on` while another component of the same manifest is
    /// loaded.
    fn conditions(&self, loaded: &Loaded, goes_on: bool) -> [(&'static str, &'static str, String, String); 3] {
        let good = || "what it says is in force".to_owned();
        let is_loaded = match loaded {
            Loaded::Loading { .. } | Loaded::Asked { .. } if goes_on => {
                ("Loaded", "True", "InForce".to_owned(), good())
            }
            Loaded::Asked { message } => ("Loaded", "False", APPROVAL_REQUIRED.to_owned(), message.clone()),
            Loaded::InForce => ("Loaded", "True", "InForce".to_owned(), good()),
            Loaded::Loading { reason, message } => ("Loaded", "False", (*reason).to_owned(), message.clone()),
            Loaded::Refused { reason, message } => ("Loaded", "False", reason.clone(), message.clone()),
        };
        let ready = if is_loaded.1 != "True" {
            let goes_on = if self.is_in_force() { "the last good version goes on" } else { "nothing of it runs" };
            let (_, _, reason, message) = &is_loaded;
            ("Ready", "False", reason.clone(), format!("{goes_on}: {message}"))
        } else if self.lacking.is_empty() {
            ("Ready", "True", "Running".to_owned(), "it runs with all that it needs".to_owned())
        } else {
            ("Ready", "False", "Lacking".to_owned(), self.lacking.join("; "))
        };
        let (holds, reason, message) = match (loaded, &self.leaving) {
            (_, Some(why)) => ("True", "Leaving", why.clone()),
            (Loaded::Loading { reason, message }, None) => ("True", *reason, message.clone()),
            (Loaded::Asked { message }, None) => ("True", APPROVAL_REQUIRED, message.clone()),
            (Loaded::Refused { .. }, None) => match self.again() {
                Some(why) => ("True", "Retrying", why.to_owned()),
                None => ("False", "Refused", "it stays as it is until it changes".to_owned()),
            },
            (Loaded::InForce, None) if !self.lacking.is_empty() => ("True", "Waiting", self.lacking.join("; ")),
            (Loaded::InForce, None) => match self.unseen() {
                Some(why) => ("False", "RegistryFailed", why),
                None => ("False", "Settled", good()),
            },
        };
        [is_loaded, ready, ("Progressing", holds, reason.to_owned(), message)]
    }
}

/// Returns the word for programs of what has failed at a step.
fn reason(step: &str) -> String {
    match step {
        // Not of its signature.
        "verify" => "InvalidComponent".to_owned(),
        UNSIGNED => "SignatureFailed".to_owned(),
        step => {
            let mut reason = step.to_owned();
            reason.get_mut(..1).map(str::make_ascii_uppercase).unwrap_or_default();
            reason + "Failed"
        }
    }
}

impl Plugin {
    fn told(&self, asked: Option<&Asked>) -> Value {
        let Self { name, state, component, image, digest, since, problem, .. } = self;
        // What is new stands in `waiting`.
        let asked = asked.filter(|_| *state == State::WaitingForApproval);
        let said =
            |(step, message): &(String, String)| (step.clone(), asked.map_or_else(|| message.clone(), Asked::summary));
        let problem = problem.as_ref().map(said);
        let fields = [
            ("name", Some(name.to_string())),
            ("state", Some(format!("{state:?}"))),
            ("component", Some(component.clone()).filter(|component| !component.is_empty())),
            ("image", image.clone()),
            ("digest", digest.clone()),
            ("since", since.clone()),
            ("step", problem.as_ref().map(|(step, _)| step.clone())),
            ("problem", problem.as_ref().map(|(_, message)| said_within(message, LONGEST).into_owned())),
        ];
        fields.into_iter().filter_map(|(field, value)| Some((field.to_owned(), Value::from(value?)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::operator::approval::Identity;
    use crate::registry::Digest;

    fn plugin(state: State) -> Plugin {
        Plugin {
            name: "web".into(),
            state,
            is_pulled: false,
            component: "ghcr.io/org/web:1".to_owned(),
            image: Some("sha256:1".to_owned()),
            digest: Some("0123456789abcdef".to_owned()),
            since: Some("t0".to_owned()),
            problem: None,
            is_tried_again: false,
            is_followed: false,
            unseen: None,
        }
    }

    fn facts(plugin: Plugin) -> Facts {
        Facts {
            generation: 2,
            spec: "{}".into(),
            refused: None,
            is_revived: false,
            asked: None,
            change: None,
            plugins: vec![plugin],
            lacking: Vec::new(),
            leaving: None,
            daemon: "a".into(),
        }
    }

    /// Writes a status as `State version digest`, and its conditions as `Type=Status reason`.
    fn told(status: &Value) -> String {
        let text = |field: &str| status[field].as_str().unwrap_or("-").to_owned();
        let conditions = status["conditions"].as_array().unwrap().iter().map(|condition| {
            let field = |name: &str| condition[name].as_str().unwrap().to_owned();
            format!("{}={} {}", field("type"), field("status"), field("reason"))
        });
        let conditions: Vec<_> = conditions.collect();
        format!("{} {} {}: {}", text("state"), status["version"], text("digest"), conditions.join(", "))
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn a_status_says_how_an_operator_is() {
        // OP-3
        let absent = |plugin: Plugin| Plugin { since: None, digest: None, ..plugin };
        let failed = Plugin { problem: Some(("pull".to_owned(), "it is away".to_owned())), ..plugin(State::Outdated) };
        let again = Plugin { is_tried_again: true, ..failed.clone() };
        let first = absent(plugin(State::Loading));
        let pulled = Plugin { is_pulled: true, ..first.clone() };
        let lacking = Facts { lacking: vec!["it may not list pages".to_owned()], ..facts(plugin(State::Active)) };
        let refused = |plugin| Facts { refused: Some(("Invalid", "spec.x: wrong".to_owned())), ..facts(plugin) };
        let leaving = Facts { leaving: Some("2 primaries".to_owned()), ..facts(plugin(State::Active)) };
        let revived = Facts { is_revived: true, ..facts(first.clone()) };
        for (facts, expected) in [
            (
                facts(plugin(State::Active)),
                "Active 1 0123456789ab: Loaded=True InForce, Ready=True Running, Progressing=False Settled",
            ),
            (
                facts(first.clone()),
                "Loading null -: Loaded=False Loading, Ready=False Loading, Progressing=True Loading",
            ),
            (facts(pulled), "Loading null -: Loaded=False Pulling, Ready=False Pulling, Progressing=True Pulling"),
            (
                facts(plugin(State::Loading)),
                "Loading null 0123456789ab: Loaded=False Loading, Ready=False Loading, Progressing=True Loading",
            ),
            (lacking, "Waiting 1 0123456789ab: Loaded=True InForce, Ready=False Lacking, Progressing=True Waiting"),
            (
                facts(failed.clone()),
                "Outdated null 0123456789ab: Loaded=False PullFailed, Ready=False PullFailed, Progressing=False Refused",
            ),
            (
                facts(again),
                "Outdated null 0123456789ab: Loaded=False PullFailed, Ready=False PullFailed, Progressing=True Retrying",
            ),
            (
                facts(Plugin { is_followed: true, ..failed.clone() }),
                "Outdated null 0123456789ab: Loaded=False PullFailed, Ready=False PullFailed, Progressing=True Retrying",
            ),
            (
                facts(Plugin { problem: Some((UNSIGNED.to_owned(), "no".to_owned())), ..failed.clone() }),
                "Outdated null 0123456789ab: Loaded=False SignatureFailed, Ready=False SignatureFailed, Progressing=False Refused",
            ),
            (
                facts(Plugin { problem: Some(("verify".to_owned(), "no".to_owned())), ..failed.clone() }),
                "Outdated null 0123456789ab: Loaded=False InvalidComponent, Ready=False InvalidComponent, Progressing=False Refused",
            ),
            // What is in force runs, whatever its registry says.
            (
                facts(Plugin { unseen: Some("it fails (401)".to_owned()), ..plugin(State::Active) }),
                "Active 1 0123456789ab: Loaded=True InForce, Ready=True Running, Progressing=False RegistryFailed",
            ),
            (
                facts(absent(failed)),
                "Failed null -: Loaded=False PullFailed, Ready=False PullFailed, Progressing=False Refused",
            ),
            (
                refused(plugin(State::Active)),
                "Outdated null 0123456789ab: Loaded=False Invalid, Ready=False Invalid, Progressing=False Refused",
            ),
            (
                Facts { plugins: Vec::new(), ..refused(first) },
                "Failed null -: Loaded=False Invalid, Ready=False Invalid, Progressing=False Refused",
            ),
            (leaving, "Active 1 0123456789ab: Loaded=True InForce, Ready=True Running, Progressing=True Leaving"),
            (revived, "Loading null -: Loaded=False Reviving, Ready=False Reviving, Progressing=True Reviving"),
        ] {
            assert_eq!(told(&status(&facts, &Value::Null, "t1")), expected);
        }
    }

    #[test]
    fn a_version_that_waits_for_an_approval_is_told_with_what_it_wants_and_how_it_is_approved() {
        // AP-2, AP-6
        let digest = Digest::sha256(b"a");
        let version = Identity { components: BTreeMap::from([("web".into(), digest.clone())]), given: digest.clone() };
        let asked = Asked {
            version: version.clone(),
            difference: ["import + x:y/z@1.0.0 (more)", "size 1 → 2 bytes"]
                .map(|line| format!("plugin web: {line}"))
                .to_vec(),
            wants_more: true,
            since: "t2".to_owned(),
            command: "capstan approve web -n capstan".to_owned(),
            place: "capstan/web".to_owned(),
        };
        let problem = Some(("approve".to_owned(), asked.message()));
        let first = status(&facts(plugin(State::Active)), &Value::Null, "t1");
        let waiting = |plugin, generation| Facts { asked: Some(asked.clone()), generation, ..facts(plugin) };
        let held = Plugin { problem, ..plugin(State::WaitingForApproval) };
        let absent = Plugin { since: None, digest: None, ..held.clone() };
        for (facts, before, expected) in [
            // Another component of the same manifest, another manifest, the first version.
            (
                waiting(held.clone(), 2),
                &first,
                "WaitingForApproval 1 0123456789ab: Loaded=True InForce, Ready=True Running, Progressing=True ApprovalRequired",
            ),
            (
                waiting(held, 3),
                &first,
                "WaitingForApproval 1 0123456789ab: Loaded=False ApprovalRequired, Ready=False ApprovalRequired, Progressing=True ApprovalRequired",
            ),
            (
                waiting(absent, 2),
                &Value::Null,
                "WaitingForApproval null -: Loaded=False ApprovalRequired, Ready=False ApprovalRequired, Progressing=True ApprovalRequired",
            ),
        ] {
            let status = status(&facts, before, "t3");
            assert_eq!(told(&status), expected);
            assert_eq!(status["inForce"], before["inForce"]);
            assert_eq!(Identity::read(&status["waiting"]), Some(version.clone()));
            assert_eq!(status["waiting"]["approval"], "capstan/web");
            let message = "it wants more than what is in force, as `status.waiting` says; approve it by `capstan approve web -n capstan`";
            assert_eq!(status["conditions"][2]["message"], message);
            // The difference stands there, and nowhere else.
            assert_eq!(status.to_string().matches("import + x:y/z@1.0.0").count(), 1);
        }
        // Once it is in force, that is what has changed last, also for the next daemon.
        let changed = Facts { change: Some(asked.difference), ..facts(plugin(State::Active)) };
        let second = status(&changed, &first, "t3");
        assert_eq!((&second["waiting"], &second["lastChange"]), (&Value::Null, &json!(changed.change)));
        assert_eq!(status(&facts(plugin(State::Active)), &second, "t4")["lastChange"], second["lastChange"]);
    }

    #[test]
    fn an_operator_stays_ready_while_another_component_of_it_is_loaded_and_not_while_another_manifest_is() {
        // OP-3
        let first = status(&facts(plugin(State::Active)), &Value::Null, "t1");
        let loading = facts(plugin(State::Loading));
        for (generation, expected) in [
            (2, "Loading 1 0123456789ab: Loaded=True InForce, Ready=True Running, Progressing=True Loading"),
            (3, "Loading 1 0123456789ab: Loaded=False Loading, Ready=False Loading, Progressing=True Loading"),
        ] {
            assert_eq!(told(&status(&Facts { generation, ..loading.clone() }, &first, "t2")), expected);
        }
    }

    #[test]
    fn a_status_that_says_the_same_is_the_same_and_a_condition_keeps_its_time() {
        // OP-3, OP-5
        let good = facts(plugin(State::Active));
        let first = status(&good, &Value::Null, "t1");
        assert_eq!(status(&good, &first, "t2"), first);
        let refused = Facts { refused: Some(("Invalid", "spec.x: wrong".to_owned())), generation: 3, ..good.clone() };
        let second = status(&refused, &first, "t2");
        let times = |status: &Value| -> Vec<String> {
            let conditions = status["conditions"].as_array().unwrap();
            conditions.iter().map(|condition| condition["lastTransitionTime"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(times(&second), ["t2", "t2", "t1"]);
        assert_eq!(second["conditions"][1]["message"], "the last good version goes on: spec.x: wrong");
        assert_eq!(
            second["inForce"],
            json!({ "generation": 2, "spec": "{}", "images": { "web": "sha256:1" }, "components": { "web": "sha256:0123456789abcdef" } })
        );
        assert_eq!((&second["version"], &second["observedGeneration"]), (&json!(1), &json!(3)));
    }

    #[test]
    fn versions_are_counted_over_restarts_and_ten_are_remembered() {
        // OP-3, OP-5
        let mut last = Value::Null;
        for generation in 1..=12 {
            let now = Facts { generation, ..facts(plugin(State::Active)) };
            last = status(&now, &last, &format!("t{generation}"));
        }
        let versions = last["versions"].as_array().unwrap();
        assert_eq!((versions.len(), &last["version"]), (10, &json!(12)));
        assert_eq!(versions[0], json!({ "version": 3, "generation": 3, "digest": "0123456789ab", "time": "t3" }));
        // Nor is it forgotten while nobody knows what it is of its registry.
        let moved = Facts { generation: 12, ..facts(Plugin { image: None, ..plugin(State::Active) }) };
        assert_eq!(status(&moved, &last, "t")["inForce"], last["inForce"]);
        // Of what is too long, the version is known, and not what it said.
        let long = "x".repeat(REMEMBERED + 1);
        let now = Facts { spec: long.into(), ..facts(plugin(State::Active)) };
        assert_eq!(status(&now, &last, "t")["inForce"], Value::Null);
    }

    #[test]
    fn an_operator_is_stuck_if_something_that_was_in_force_can_not_be() {
        // OP-5
        let problem = Some(("check".to_owned(), "it is none".to_owned()));
        let failed =
            |name: &str| Plugin { name: name.into(), since: None, problem: problem.clone(), ..plugin(State::Failed) };
        let loading = Plugin { since: None, ..plugin(State::Loading) };
        let again = Plugin { is_tried_again: true, ..failed("web") };
        let outdated = Plugin { problem: problem.clone(), ..plugin(State::Outdated) };
        for (plugins, refused, expected) in [
            (vec![failed("web")], false, true),
            (vec![plugin(State::Active), failed("web")], false, true),
            // It is new.
            (vec![plugin(State::Active), failed("more")], false, false),
            (vec![loading], false, false),
            // As a tag that comes to name what is not signed, whose registry has what was in force.
            (vec![again], false, true),
            (vec![outdated.clone()], false, false),
            // The manifest is wrong, or others have its names by now.
            (vec![], true, true),
            (vec![outdated], true, false),
            (vec![], false, false),
        ] {
            let refused = refused.then(|| ("Invalid", "a name is taken".to_owned()));
            let now = Facts { plugins: plugins.clone(), refused, ..facts(plugin(State::Active)) };
            assert_eq!(now.is_stuck(|name| name == "web"), expected, "{plugins:?}");
        }
    }
}
