//! Decides which plugins are loaded, wait or end, given what is wanted, in force, tried and being loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::values::Given;
use crate::manifest::{Component, Controller, Image, OnNewVersion, Operator, Origin, Plugin};

/// A plugin of an operator: what is loaded and replaced as one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit {
    /// The operator.
    pub operator: Arc<str>,
    /// The plugin's name in its manifest.
    pub plugin: Arc<str>,
}

/// What a component is, short of reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// It is not there.
    Missing,
    /// Somebody is writing it.
    Half,
    /// It is being pulled from a registry, for the first time.
    Pulled,
    /// A registry does not give it: why.
    Refused(Arc<str>),
    /// Whole: what tells it from others.
    Whole(Arc<str>),
}

/// What is to be in force of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// What the manifest says of it.
    pub plugin: Plugin,
    /// The controllers that use it.
    pub controllers: BTreeMap<Arc<str>, Controller>,
    /// Its component.
    pub component: Content,
    /// The values of its `config` that are elsewhere.
    pub values: Given,
    /// What becomes of versions of its operator that want more: a change of that is one of the version, too (`AP-2`).
    pub on_new_version: OnNewVersion,
    /// Where its operator is declared, which makes no difference.
    pub origin: Origin,
}

/// The plugins of an operator as they are to be.
pub type Attempts = BTreeMap<Unit, Attempt>;

/// What follows for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: this was tried.
    Nothing,
    /// It is looked at again once what is being loaded of it has been.
    Wait {
        /// That ends now: a component in it is not wanted any more, and compiling it may take long.
        superseded: bool,
    },
    /// It is looked at again once something of it has been read or pulled.
    Await {
        /// What is being loaded of it ends now: it is not what is wanted, and what is comes later.
        superseded: bool,
    },
    /// What differs from what is in force is loaded.
    Load,
}

/// Returns the plugins of an operator as they are to be, given what their components are, the values of their `config` that are elsewhere,
/// and what is in force.
pub fn attempts<'a>(
    operator: &Operator,
    content: impl Fn(&Component) -> Content,
    values: impl Fn(&Plugin) -> Given,
    in_force: impl Fn(&Unit) -> Option<&'a Attempt>,
) -> Attempts {
    let attempts = operator.plugins.iter().map(|(name, plugin)| {
        let unit = Unit { operator: Arc::clone(&operator.name), plugin: Arc::clone(name) };
        let controllers = operator.controllers.iter().filter(|(_, controller)| controller.plugin == *name);
        let attempt = Attempt {
            plugin: plugin.clone(),
            controllers: controllers.map(|(name, controller)| (Arc::clone(name), controller.clone())).collect(),
            component: plugin.component.as_ref().map_or(Content::Whole("".into()), &content),
            values: values(plugin),
            on_new_version: operator.on_new_version,
            origin: operator.origin.clone(),
        };
        // Where all that differs is a file that is being written, what is in force stays.
        let stays = in_force(&unit).filter(|now| attempt.component == Content::Half && attempt.is_declared_as(now));
        let attempt = stays.cloned().unwrap_or(attempt);
        (unit, attempt)
    });
    attempts.collect()
}

/// Decides what follows for an operator, where this was tried last and that is being loaded.
pub fn next(wanted: &Attempts, tried: Option<&Attempts>, loading: Option<&Attempts>) -> Next {
    let same_component = |(unit, loading): (&Unit, &Attempt)| {
        let component = |attempt: &Attempt| (attempt.plugin.component.clone(), attempt.component.clone());
        wanted.get(unit).is_some_and(|wanted| component(wanted) == component(loading))
    };
    match loading {
        _ if tried == Some(wanted) => Next::Nothing,
        _ if wanted.values().any(Attempt::is_awaited) => {
            let is_wanted = |(unit, attempt)| wanted.get(unit) == Some(attempt);
            Next::Await { superseded: !loading.into_iter().flatten().all(is_wanted) }
        }
        Some(loading) => Next::Wait { superseded: !loading.iter().all(same_component) },
        None => Next::Load,
    }
}

/// Returns what ends of what is in force: plugins that no manifest declares any more. One whose controllers are to get another plugin
/// goes on until that is in force, unless its operator was taken away: that one ends, whatever comes in its place.
pub fn retired<'a>(operators: &[Operator], in_force: impl Iterator<Item = (&'a Unit, &'a Attempt)>) -> Vec<Unit> {
    let by_name: BTreeMap<_, _> = operators.iter().map(|operator| (&operator.name, operator)).collect();
    let by_controller: BTreeMap<_, _> =
        operators.iter().flat_map(|operator| operator.controllers.keys().map(move |name| (name, operator))).collect();
    let declared = |(unit, _): &(&Unit, &Attempt)| {
        by_name.get(&unit.operator).is_some_and(|operator| operator.plugins.contains_key(&unit.plugin))
    };
    let (stay, others): (Vec<_>, Vec<_>) = in_force.partition(declared);
    let provided: BTreeSet<_> = stay.iter().flat_map(|(_, attempt)| attempt.controllers.keys()).collect();
    let waits = |unit: &Unit, attempt: &Attempt, name: &Arc<str>| {
        // An operator that has another name in its file by now is there still.
        let is_there =
            |next: &&Operator| by_name.contains_key(&unit.operator) || next.origin.file() == attempt.origin.file();
        !provided.contains(name) && by_controller.get(name).is_some_and(is_there)
    };
    let goes_on =
        |(unit, attempt): &(&Unit, &Attempt)| attempt.controllers.keys().any(|name| waits(unit, attempt, name));
    others.into_iter().filter(|other| !goes_on(other)).map(|(unit, _)| unit.clone()).collect()
}

/// Returns what operators name in registries, each with the operator that does.
pub fn images(operators: &[Operator]) -> impl Iterator<Item = (Arc<str>, Image)> {
    let of = |operator: &Operator| {
        let images = operator.plugins.values().filter_map(|plugin| match &plugin.component {
            Some(Component::Registry(image)) => Some((Arc::clone(&operator.name), Image::clone(image))),
            Some(Component::File(_)) | None => None,
        });
        images.collect::<Vec<_>>()
    };
    operators.iter().flat_map(of)
}

impl Attempt {
    /// Whether something of it has to be read or pulled before it can be tried.
    pub fn is_awaited(&self) -> bool {
        self.values == Given::Unread || self.component == Content::Pulled
    }

    /// Returns the digest of its component, if that is of a registry.
    pub fn image(&self) -> Option<&str> {
        let of_registry = matches!(self.plugin.component, Some(Component::Registry(_)));
        if let (true, Content::Whole(digest)) = (of_registry, &self.component) { Some(digest) } else { None }
    }

    /// Whether manifests say the same of both, and the values that these name are the same.
    pub fn is_declared_as(&self, other: &Self) -> bool {
        self.plugin == other.plugin
            && self.controllers == other.controllers
            && self.values == other.values
            && self.on_new_version == other.on_new_version
    }
}

impl fmt::Display for Unit {
    /// Writes `operator/plugin`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.operator, self.plugin)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::values::Values;
    use super::*;
    use crate::manifest;

    /// Returns an operator with these plugins, and controllers of the same name with how many of their runs go on at once.
    fn operator(name: &str, plugins: &[(&str, u32)]) -> Operator {
        operator_in("/m/a", name, plugins)
    }

    fn operator_in(file: &str, name: &str, plugins: &[(&str, u32)]) -> Operator {
        let lines = |line: &dyn Fn(&str, u32) -> String| {
            plugins.iter().map(|(name, number)| line(name, *number)).collect::<Vec<_>>().join(", ")
        };
        let plugin = |name: &str, _| format!("{name}: {{ component: {{ path: {name}.wasm }} }}");
        let controller = |name: &str, number| {
            format!(
                "{name}: {{ plugin: {name}, concurrency: {number}, primary: {{ apiVersion: v1, kind: ConfigMap }} }}"
            )
        };
        let text = format!(
            "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: {name} }}\nspec:\n  plugins: {{ {} }}\n  controllers: {{ {} }}\n",
            lines(&plugin),
            lines(&controller)
        );
        manifest::parse(&text, Path::new(file)).unwrap().remove(0)
    }

    /// Returns what a plugin is given of values that are elsewhere.
    fn given(why: &str) -> Given {
        Given::Refused(why.into())
    }

    fn whole(version: &str) -> Content {
        Content::Whole(version.into())
    }

    /// Returns the attempts of one operator, whose components are all like this.
    fn wanted(plugins: &[(&str, u32)], content: &Content) -> Attempts {
        attempts(&operator("one", plugins), |_| content.clone(), |_| given(""), |_| None)
    }

    #[test]
    fn a_component_that_is_being_written_is_as_before_unless_the_manifest_differs() {
        let now = wanted(&[("p", 1)], &whole("1"));
        for (concurrency, value, content, expected) in [
            (1, "", Content::Half, whole("1")),
            (1, "", Content::Missing, Content::Missing),
            (1, "", whole("2"), whole("2")),
            (2, "", Content::Half, Content::Half),
            // CV-1: so does another value of its settings.
            (1, "other", Content::Half, Content::Half),
        ] {
            let after = operator("one", &[("p", concurrency)]);
            let after = attempts(&after, |_| content.clone(), |_| given(value), |unit| now.get(unit));
            let found = after.into_values().map(|attempt| attempt.component).collect::<Vec<_>>();
            assert_eq!(found, [expected], "{concurrency} {value:?} {content:?}");
        }
    }

    #[test]
    fn what_is_pulled_for_the_first_time_is_awaited_and_what_a_registry_refuses_is_not() {
        // OC-7
        for (content, given, expected) in [
            (Content::Pulled, Given::All(Values::default()), true),
            (Content::Refused("it fails (503)".into()), Given::All(Values::default()), false),
            (whole("sha256:1"), Given::All(Values::default()), false),
            (whole("sha256:1"), Given::Unread, true),
        ] {
            let all = attempts(&operator("one", &[("p", 1)]), |_| content.clone(), |_| given.clone(), |_| None);
            assert_eq!(all.values().any(Attempt::is_awaited), expected, "{content:?} {given:?}");
        }
    }

    #[test]
    fn an_operator_is_loaded_once_for_each_change_and_what_is_being_loaded_ends_if_its_component_is_old() {
        let first = wanted(&[("p", 1)], &whole("1"));
        let slower = wanted(&[("p", 2)], &whole("1"));
        let newer = wanted(&[("p", 1)], &whole("2"));
        let renamed = wanted(&[("q", 1)], &whole("1"));
        let two = wanted(&[("p", 1), ("q", 1)], &whole("1"));
        let wait = |superseded| Next::Wait { superseded };
        for (row, (after, tried, loading, expected)) in [
            (&first, None, None, Next::Load),
            (&first, Some(&first), None, Next::Nothing),
            (&first, Some(&first), Some(&first), Next::Nothing),
            (&newer, Some(&first), None, Next::Load),
            (&slower, Some(&first), None, Next::Load),
            (&slower, Some(&first), Some(&first), wait(false)),
            (&two, Some(&first), Some(&first), wait(false)),
            (&newer, Some(&first), Some(&first), wait(true)),
            (&renamed, Some(&first), Some(&first), wait(true)),
            (&first, Some(&two), Some(&two), wait(true)),
            // Whatever was tried.
            (&first, None, Some(&first), wait(false)),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(next(after, tried, loading), expected, "row {row}");
        }
    }

    #[test]
    fn what_is_loaded_while_something_is_awaited_ends_unless_it_is_wanted_as_it_is() {
        // OC-7
        let of = |plugins: &[(&str, u32)], content: &dyn Fn(&str) -> Content| {
            let by_path = |component: &Component| match component {
                Component::File(path) => content(&path.display().to_string()),
                Component::Registry(_) => unreachable!("none is declared"),
            };
            attempts(&operator("one", plugins), by_path, |_| given(""), |_| None)
        };
        let q_awaited = |path: &str| if path.ends_with("q.wasm") { Content::Pulled } else { whole("1") };
        let first = wanted(&[("p", 1)], &whole("1"));
        let both = of(&[("p", 1), ("q", 1)], &q_awaited);
        let changed = of(&[("p", 2), ("q", 1)], &q_awaited);
        for (after, loading, superseded) in
            [(&both, None, false), (&both, Some(&first), false), (&changed, Some(&first), true)]
        {
            assert_eq!(next(after, None, loading), Next::Await { superseded });
        }
    }

    #[test]
    fn a_plugin_that_is_not_declared_any_more_ends_once_its_controllers_have_another() {
        let of = |operator: &Operator| attempts(operator, |_| whole("1"), |_| given(""), |_| None);
        let [one, two] = ["one", "two"].map(|name| operator(name, &[("p", 1)]));
        let (gone, other) = (operator("one", &[("q", 1)]), operator("two", &[("r", 1)]));
        let elsewhere = operator_in("/m/b", "two", &[("p", 1)]);
        let both: Attempts = of(&one).into_iter().chain(of(&two)).collect();
        for (operators, in_force, expected) in [
            (vec![one.clone()], of(&one), ""),
            (vec![], of(&one), "one/p"),
            (vec![gone.clone()], of(&one), "one/p"),
            // Its controller goes to another operator, whose plugin is not in force yet, or is.
            (vec![gone.clone(), two.clone()], of(&one), ""),
            (vec![gone, two.clone()], both.clone(), "one/p"),
            (vec![other], both, "one/p two/p"),
            // Its operator has another name by now, or was taken away, and another one wants its controller.
            (vec![two], of(&one), ""),
            (vec![elsewhere], of(&one), "one/p"),
        ] {
            let found = retired(&operators, in_force.iter());
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found.join(" "), expected, "{operators:?}");
        }
    }
}
