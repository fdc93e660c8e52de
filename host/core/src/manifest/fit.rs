//! Decides whether kinds as they are served fit what a manifest names of them: fields, versions, and where their objects live.
//!
//! What is found is certain: a path that a schema leaves open, or a kind of which nothing is known, is no finding.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::events::{EventKey, PRIMARY};
use super::filters::{OBJECT, OLD_OBJECT, Question};
use super::{
    ByIndex, Condition, Conditions, Controller, Dependent, Filters, Keep, Keys, Mapper, Matching, Namespaces, Outside,
    Secondaries, Source, Workflow,
};
use crate::budget::{Budget, Exceeded};
use crate::cel::{DEPENDENTS, Expression};
use crate::guest::ConditionRole;
use crate::kinds;
use crate::object::pointer::Pointer;
use crate::object::{Gvk, Scope};
use crate::schema::{Holder, Kind, Known, Lack};
use crate::yaml::{self, Errors, Fault, Problem, Quoted, join, listed, similar};

mod conditions;

pub use conditions::can_have;

/// Something that a manifest names, and that a kind does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The field of the manifest: `spec.controllers.webpage.keep[0]`.
    pub field: String,
    /// What was found, and what would be right.
    pub message: String,
    /// What else helps: the fields that exist.
    pub(super) help: Option<String>,
    /// The character of the field's text at which it is, and that text.
    inside: Option<(usize, String)>,
}

/// Says what is known of a kind in the cluster that has this name in the manifest; in that of the daemon without one.
pub type Ask<'k> = dyn Fn(&Gvk, Option<&Arc<str>>) -> Known<'k> + 'k;

/// The longest name that is suggested, in bytes.
pub(super) const LONGEST: usize = 64;

/// Returns what a controller names that kinds do not have, as far as they are `known`.
///
/// # Errors
/// [`Exceeded`] if that costs too much.
pub fn misfits(controller: &Controller, known: &Ask<'_>, budget: &mut Budget) -> Result<Vec<Misfit>, Exceeded> {
    let mut search = Search { known, budget, looked: BTreeSet::new(), told: BTreeSet::new(), found: Vec::new() };
    search.controller(controller)?;
    Ok(search.found)
}

/// Returns the kinds of which a controller names fields, each with the cluster that it is in.
pub fn named(controller: &Controller) -> BTreeSet<(Gvk, Option<Arc<str>>)> {
    let known: &Ask<'_> = &|_, _| Known::Nothing;
    let budget = &mut Budget::of(0);
    let mut search = Search { known, budget, looked: BTreeSet::new(), told: BTreeSet::new(), found: Vec::new() };
    // Nothing is known, so nothing costs.
    search.controller(controller).unwrap_or_default();
    search.looked
}

/// Returns what was found of an operator as errors with their places in the text of its file, or with its fields if it is an object.
pub fn placed(text: &str, file: &Path, operator: &str, misfits: Vec<Misfit>) -> Errors {
    let trees = yaml::documents(text).unwrap_or_default();
    let is_named = |tree: &yaml::Tree| Some(tree.field("metadata")?.field("name")?.text()? == operator);
    let tree = trees.iter().find(|tree| is_named(tree) == Some(true));
    let problem = |Misfit { field, message, help, inside }| {
        let fault = Fault { help, inside, ..Fault::new(0, message) };
        match tree.and_then(|tree| tree.place_of(&field)) {
            Some(place) => Problem::new(file, text, place, fault),
            None => Problem::of_field(file, &field, fault),
        }
    };
    Errors::new(misfits.into_iter().map(problem).collect())
}

impl Misfit {
    /// Returns what is wrong with a field of the manifest.
    pub fn new(field: String, message: String) -> Self {
        Self { field, message, help: None, inside: None }
    }

    /// Returns the same with what else helps.
    pub(super) fn helped(self, help: String) -> Self {
        Self { help: Some(help), ..self }
    }
}

/// A kind in the cluster of a name.
#[derive(Clone, Copy)]
struct At<'a> {
    gvk: &'a Gvk,
    cluster: Option<&'a Arc<str>>,
}

/// How a path is written.
enum Written<'a> {
    /// As a JSON pointer.
    Pointer,
    /// The same to what is kept or left out, of which one into a list stands for the whole list.
    Kept,
    /// Behind a variable, which stands at a character of an expression.
    Cel { variable: &'a str, offset: usize, text: &'a str },
}

struct Search<'s, 'k> {
    known: &'s Ask<'k>,
    budget: &'s mut Budget,
    /// The kinds whose schema was wanted.
    looked: BTreeSet<(Gvk, Option<Arc<str>>)>,
    /// The fields of the manifest with the paths that were told of them.
    told: BTreeSet<(String, String)>,
    found: Vec<Misfit>,
}

// === what a controller names ===

impl Search<'_, '_> {
    fn controller(&mut self, controller: &Controller) -> Result<(), Exceeded> {
        let base = join("spec.controllers", &controller.own_name);
        let primary = At { gvk: &controller.primary, cluster: controller.cluster.as_ref() };
        self.version(&format!("{base}.primary.apiVersion"), primary);
        // Where secondaries follow them, they say something all the same.
        let followed = controller.dependents().next().is_some()
            || controller.sources.values().any(|source| source.namespaces.is_none());
        let namespaces = Some(&controller.namespaces).filter(|_| !followed);
        self.namespaces(&format!("{base}.namespaces"), primary, namespaces);
        self.selector(&format!("{base}.fieldSelector"), primary, controller.field_selector.as_ref());
        self.keep(&base, primary, &controller.keep)?;
        self.filters(&base, primary, &controller.filters)?;
        self.indexes(&base, primary, &controller.indexes)?;
        self.conditions(&base, primary, controller)?;
        if let EventKey::Cel(cel) = &controller.events.key {
            self.cel(&format!("{base}.events.key.cel"), primary, (cel, PRIMARY))?;
        }
        if let Some(cel) = &controller.events.name {
            self.cel(&format!("{base}.events.name.cel"), primary, (cel, PRIMARY))?;
        }
        for (name, source) in &controller.sources {
            let base = format!("{}.informer", join(&format!("{base}.sources"), name));
            let secondary = At { gvk: &source.gvk, cluster: controller.cluster_of(source) };
            self.source(&base, (primary, secondary), source)?;
        }
        for (name, external) in &controller.externals {
            if let Some(cel) = external.each().and_then(|each| each.when.as_ref()) {
                let base = join(&format!("{base}.sources"), name);
                self.cel(&format!("{base}.pollEach.when.cel"), primary, (cel, PRIMARY))?;
            }
        }
        self.workflow(&format!("{base}.workflow"), primary, &controller.workflow)?;
        for (field, cel) in
            controller.status().map(|it| it.expressions(&format!("{base}.status.template"))).unwrap_or_default()
        {
            self.templated(&field, (primary, &controller.workflow), cel)?;
        }
        for (name, workflow) in &controller.standalone {
            self.workflow(&join(&format!("{base}.standalone"), name), primary, workflow)?;
        }
        Ok(())
    }

    fn source(&mut self, base: &str, (primary, secondary): (At<'_>, At<'_>), source: &Source) -> Result<(), Exceeded> {
        self.version(&format!("{base}.apiVersion"), secondary);
        self.namespaces(&format!("{base}.namespaces"), secondary, source.namespaces.as_ref());
        self.selector(&format!("{base}.fieldSelector"), secondary, source.field_selector.as_ref());
        self.keep(base, secondary, &source.keep)?;
        self.filters(base, secondary, &source.filters)?;
        self.indexes(base, secondary, &source.indexes)?;
        match &source.mapper {
            Mapper::Named(keys) => self.keys(&format!("{base}.mapper"), secondary, (keys, OBJECT))?,
            Mapper::Index(ByIndex { key, .. }) => {
                self.keys(&format!("{base}.mapper.index.key"), secondary, (key, OBJECT))?;
            }
            Mapper::OwnerReference
            | Mapper::OwnerKind
            | Mapper::Annotations(_)
            | Mapper::Labels(_)
            | Mapper::Export(_) => {}
        }
        match &source.secondaries {
            Some(Secondaries::Named(keys)) => self.keys(&format!("{base}.secondaries"), primary, (keys, PRIMARY)),
            Some(Secondaries::Export(_)) | None => Ok(()),
        }
    }

    fn workflow(&mut self, base: &str, primary: At<'_>, workflow: &Workflow) -> Result<(), Exceeded> {
        for (name, dependent) in &workflow.dependents {
            let own = At { gvk: &dependent.gvk, ..primary };
            let base = join(&format!("{base}.dependents"), name);
            self.dependent(&base, (primary, own), dependent)?;
            let template = dependent.template.iter();
            for (field, cel) in template.flat_map(|it| it.expressions(&format!("{base}.desired.template"))) {
                self.templated(&field, (primary, workflow), cel)?;
            }
        }
        for (name, outside) in &workflow.outside {
            self.outside(&join(&format!("{base}.dependents"), name), primary, outside)?;
        }
        Ok(())
    }

    fn outside(&mut self, base: &str, primary: At<'_>, outside: &Outside) -> Result<(), Exceeded> {
        if let Some(state) = &outside.state {
            self.version(&format!("{base}.external.state.apiVersion"), At { gvk: &state.dependent.gvk, ..primary });
        }
        if let Some(id) = &outside.called {
            self.cel(&format!("{base}.name.cel"), primary, (id, PRIMARY))?;
        }
        self.gates(base, (primary, None), &outside.conditions)
    }

    /// Looks into the conditions of a dependent, which may name its fields if it is an object.
    fn gates(&mut self, base: &str, kinds: (At<'_>, Option<At<'_>>), conditions: &Conditions) -> Result<(), Exceeded> {
        const ROLES: [(ConditionRole, &str); 4] = [
            (ConditionRole::Activation, "activation"),
            (ConditionRole::ReconcilePrecondition, "reconcilePrecondition"),
            (ConditionRole::ReadyPostcondition, "readyPostcondition"),
            (ConditionRole::DeletePostcondition, "deletePostcondition"),
        ];
        let (primary, own) = kinds;
        for (role, name) in ROLES {
            if let Some(Condition::Cel(cel)) = conditions.of(role) {
                let field = format!("{base}.{name}.cel");
                self.cel(&field, primary, (cel, PRIMARY))?;
                own.map_or(Ok(()), |own| self.cel(&field, own, (cel, "dependent")))?;
            }
        }
        Ok(())
    }

    /// Finds fields of the primary, and of other dependents, in an expression of a template.
    fn templated(
        &mut self,
        field: &str,
        (primary, workflow): (At<'_>, &Workflow),
        cel: &Expression,
    ) -> Result<(), Exceeded> {
        self.cel(field, primary, (cel, PRIMARY))?;
        for (offset, path) in cel.fields(DEPENDENTS) {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let Some((name, path)) = path.split_first() else {
                continue;
            };
            if let Some(dependent) = workflow.dependents.get(*name).filter(|dependent| !dependent.bulk) {
                let variable = &*format!("{DEPENDENTS}.{name}");
                let written = Written::Cel { variable, offset, text: cel.as_str() };
                self.path(field, At { gvk: &dependent.gvk, ..primary }, path, &written)?;
            }
        }
        Ok(())
    }

    fn dependent(
        &mut self,
        base: &str,
        (primary, own): (At<'_>, At<'_>),
        dependent: &Dependent,
    ) -> Result<(), Exceeded> {
        self.version(&format!("{base}.apiVersion"), own);
        self.filters(base, own, &dependent.filters)?;
        if let Some(called) = &dependent.called {
            self.place(base, (primary, own), called.namespace.is_some());
            self.cel(&format!("{base}.name.cel"), primary, (&called.name, PRIMARY))?;
            if let Some(namespace) = &called.namespace {
                self.cel(&format!("{base}.namespace.cel"), primary, (namespace, PRIMARY))?;
            }
        }
        self.gates(base, (primary, Some(own)), &dependent.conditions)?;
        if let Matching::Generic(matching) = &dependent.matching {
            let ignored: Vec<_> = matching.ignore.iter().filter_map(|text| Pointer::parse(text).ok()).collect();
            self.pointers(&format!("{base}.match.generic.ignore"), own, &ignored, &Written::Pointer)?;
        }
        Ok(())
    }

    fn keep(&mut self, base: &str, at: At<'_>, keep: &Keep) -> Result<(), Exceeded> {
        match keep {
            Keep::Whole | Keep::Metadata => Ok(()),
            Keep::Only(pointers) => self.pointers(&format!("{base}.keep"), at, pointers, &Written::Kept),
            Keep::Without(pointers) => self.pointers(&format!("{base}.drop"), at, pointers, &Written::Kept),
        }
    }

    fn filters(&mut self, base: &str, at: At<'_>, filters: &Filters) -> Result<(), Exceeded> {
        let Filters { on_add, on_update, on_delete, generic } = filters;
        let asked = [("onAdd", on_add), ("onUpdate", on_update), ("onDelete", on_delete), ("generic", generic)];
        for (name, question) in asked {
            if let Some(cel) = question.as_ref().and_then(Question::cel) {
                let field = format!("{base}.filters.{name}.cel");
                self.cel(&field, at, (cel, OBJECT))?;
                self.cel(&field, at, (cel, OLD_OBJECT))?;
            }
        }
        Ok(())
    }

    fn indexes(&mut self, base: &str, at: At<'_>, indexes: &BTreeMap<Arc<str>, Keys>) -> Result<(), Exceeded> {
        let base = format!("{base}.indexes");
        indexes.iter().try_for_each(|(name, keys)| self.keys(&join(&base, name), at, (keys, OBJECT)))
    }

    fn keys(&mut self, base: &str, at: At<'_>, (keys, variable): (&Keys, &str)) -> Result<(), Exceeded> {
        match keys {
            Keys::Pointer(pointer) => self.pointer(&format!("{base}.pointer"), at, pointer, &Written::Pointer),
            Keys::Cel(cel) => self.cel(&format!("{base}.cel"), at, (cel, variable)),
        }
    }

    fn pointers(
        &mut self,
        base: &str,
        at: At<'_>,
        pointers: &[Pointer],
        written: &Written<'_>,
    ) -> Result<(), Exceeded> {
        let mut numbered = pointers.iter().enumerate();
        numbered.try_for_each(|(number, pointer)| self.pointer(&format!("{base}[{number}]"), at, pointer, written))
    }
}

// === whether a kind has it ===

impl<'k> Search<'_, 'k> {
    /// Returns a kind, if it is known.
    fn kind(&self, at: At<'_>) -> Option<&'k Kind<'k>> {
        match (self.known)(at.gvk, at.cluster) {
            Known::Served(kind) => Some(kind),
            Known::Nothing | Known::Otherwise(_) => None,
        }
    }

    fn tell(&mut self, field: String, message: String) {
        self.found.push(Misfit::new(field, message));
    }

    /// Finds a version that is not served.
    fn version(&mut self, field: &str, at: At<'_>) {
        if let Known::Otherwise(served) = (self.known)(at.gvk, at.cluster) {
            let Gvk { kind, version, .. } = at.gvk;
            let served = match served.as_slice() {
                [] => "it is served in no version".to_owned(),
                served => format!("it is served in {}", yaml::either(served)),
            };
            self.tell(field.to_owned(), format!("found version `{version}`, in which {kind} is not served; {served}"));
        }
    }

    /// Finds namespaces where a kind lives in none.
    fn namespaces(&mut self, field: &str, at: At<'_>, namespaces: Option<&Namespaces>) {
        let few = match namespaces {
            None | Some(Namespaces::All) => false,
            Some(Namespaces::Own | Namespaces::Listed(_) | Namespaces::Selected(_)) => true,
        };
        if few && self.kind(at).is_some_and(|kind| kind.scope == Scope::Cluster) {
            let gvk = at.gvk;
            self.tell(
                field.to_owned(),
                format!("found `namespaces` for {gvk}, which lives in none: all its objects are watched; leave it out"),
            );
        }
    }

    /// Finds a name or namespace under which no object of a dependent can be.
    fn place(&mut self, base: &str, (primary, own): (At<'_>, At<'_>), has_namespace: bool) {
        let scope = |at: At<'_>| self.kind(at).map(|kind| kind.scope).or_else(|| kinds::scope(at.gvk));
        let gvk = own.gvk;
        match (scope(own), scope(primary), has_namespace) {
            (Some(Scope::Cluster), _, true) => {
                self.tell(format!("{base}.namespace"), format!("found `namespace` for {gvk}, which lives in none"));
            }
            (Some(Scope::Namespaced), Some(Scope::Cluster), false) => {
                let primary = primary.gvk;
                self.tell(format!("{base}.name"), format!("found `name` without `namespace`: {primary} lives in no namespace, and {gvk} in one; expected both"));
            }
            _ => {}
        }
    }

    /// Finds fields by which the API server does not select.
    fn selector(&mut self, field: &str, at: At<'_>, selector: Option<&Arc<str>>) {
        let Some((selector, fields)) = selector.zip(self.kind(at).and_then(|kind| kind.selectable.as_ref())) else {
            return;
        };
        let always = ["metadata.name", "metadata.namespace"];
        let known: Vec<&str> = always.into_iter().chain(fields.iter().map(String::as_str)).collect();
        // A comma within a value is escaped.
        let selector = selector.replace("\\,", "");
        let named = selector.split(',').filter_map(|term| term.split_once('='));
        let named: BTreeSet<_> = named.map(|(field, _)| field.strip_suffix('!').unwrap_or(field)).collect();
        for name in named.into_iter().filter(|name| !known.contains(name)) {
            let hint = similar(name, &known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let message = format!("found {}; {} can't be selected by it{hint}", Quoted(name), at.gvk);
            let help = Some(format!("fields that select here: {}", listed(&known)));
            self.found.push(Misfit { field: field.to_owned(), message, help, inside: None });
        }
    }

    fn pointer(&mut self, field: &str, at: At<'_>, pointer: &Pointer, written: &Written<'_>) -> Result<(), Exceeded> {
        let path: Vec<&str> = pointer.path().iter().map(|name| &**name).collect();
        self.path(field, at, &path, written)
    }

    fn cel(&mut self, field: &str, at: At<'_>, (cel, variable): (&Expression, &str)) -> Result<(), Exceeded> {
        for (offset, path) in cel.fields(variable) {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            self.path(field, at, &path, &Written::Cel { variable, offset, text: cel.as_str() })?;
        }
        Ok(())
    }

    /// Finds a path that leads to nothing.
    fn path(&mut self, field: &str, at: At<'_>, path: &[&str], written: &Written<'_>) -> Result<(), Exceeded> {
        if path.is_empty() {
            return Ok(());
        }
        self.looked.insert((at.gvk.clone(), at.cluster.cloned()));
        let Some(schema) = self.kind(at).and_then(|kind| kind.schema.as_ref()) else {
            return Ok(());
        };
        let Some(Lack { known, holder }) = schema.lack(path, self.budget)? else {
            return Ok(());
        };
        if matches!((written, &holder), (Written::Kept, Holder::List)) {
            return Ok(());
        }
        let name = path.get(known).copied().unwrap_or_default();
        let before = path.get(..known).unwrap_or_default();
        let (shown, holds) = (written.show(path), written.show(before));
        if !self.told.insert((field.to_owned(), shown.clone())) {
            return Ok(());
        }
        let (gvk, found, holds) = (at.gvk, Quoted(&shown), Quoted(&holds));
        let inside = written.inside(before);
        let misfit = |message, help| Misfit { field: field.to_owned(), message, help, inside };
        self.found.push(match holder {
            Holder::List => {
                misfit(format!("found {found}; {holds} of {gvk} is a list, which has no field {}", Quoted(name)), None)
            }
            Holder::Scalar(what) => {
                misfit(format!("found {found}; {holds} of {gvk} is a {what}, which has no fields"), None)
            }
            Holder::Object(fields) => {
                let fields: Vec<&str> =
                    fields.iter().map(String::as_str).filter(|field| field.len() <= LONGEST).collect();
                // Each pair of letters is compared.
                self.budget.step(u64::try_from(fields.len() * LONGEST).unwrap_or(u64::MAX))?;
                let near = if name.len() <= LONGEST { similar(name, &fields) } else { None };
                let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                let within = if before.is_empty() { String::new() } else { format!(" in {holds}") };
                let message = format!("found {found}; {gvk} has no field {}{within}{hint}", Quoted(name));
                misfit(message, Some(format!("fields here: {}", listed(&fields))))
            }
        });
        Ok(())
    }
}

// === impl Written ===

impl Written<'_> {
    /// Writes a path.
    fn show(&self, path: &[&str]) -> String {
        match self {
            Self::Pointer | Self::Kept => {
                let names = path.iter().map(|name| name.replace('~', "~0").replace('/', "~1"));
                names.flat_map(|name| ["/".to_owned(), name]).collect()
            }
            Self::Cel { variable, .. } => [variable].into_iter().chain(path).copied().collect::<Vec<_>>().join("."),
        }
    }

    /// Returns the character of an expression at which the name behind a path is, as far as it is written without blanks.
    fn inside(&self, before: &[&str]) -> Option<(usize, String)> {
        let Self::Cel { offset, text, .. } = self else {
            return None;
        };
        let path = format!("{}.", self.show(before)).chars().collect::<Vec<_>>();
        let stands = path.iter().copied().eq(text.chars().skip(*offset).take(path.len()));
        Some((offset + if stands { path.len() } else { 0 }, (*text).to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::parse;
    use crate::schema::{Definition, definitions};

    const DEFINITIONS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  group: sample.dev
  names: { kind: Page }
  scope: Namespaced
  versions:
    - name: v1
      served: true
      selectableFields: [{ jsonPath: .spec.title }]
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: { type: object, properties: { title: { type: string }, hosts: { type: array, items: { type: string } }, more: { x-kubernetes-preserve-unknown-fields: true } } }
            status: { type: object, properties: { phase: { type: string } } }
    - { name: v2, served: true }
    - { name: v1alpha1, served: false }
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  group: sample.dev
  names: { kind: Tenant }
  scope: Cluster
  versions: [{ name: v1, served: true, schema: { openAPIV3Schema: { type: object, properties: { spec: { type: object, properties: { quota: { type: string } } } } } } }]
";

    const PAGE: &str = "primary: { apiVersion: sample.dev/v1, kind: Page }";
    const TENANT: &str = "apiVersion: sample.dev/v1, kind: Tenant";

    /// Returns what is told of a controller `pages` with these fields, one in each line.
    fn text(fields: &[&str]) -> String {
        let fields: String = fields.iter().flat_map(|field| ["      ", field, "\n"]).collect();
        format!(
            "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    pages:\n      plugin: p\n{fields}"
        )
    }

    fn found(text: &str, budget: &mut Budget) -> Result<Vec<Misfit>, Exceeded> {
        let all = definitions(DEFINITIONS, Path::new("crd.yaml")).unwrap();
        let operators = parse(text, Path::new("a.yaml")).unwrap_or_else(|errors| panic!("{errors}"));
        let controller = operators[0].controllers.values().next().unwrap();
        misfits(controller, &|gvk, _| Definition::known(&all, gvk), budget)
    }

    /// Writes what is told of a controller: the field within it, and the message.
    fn told(fields: &[&str]) -> Vec<String> {
        let found = found(&text(fields), &mut Budget::of_run()).unwrap();
        let short = |field: &str| field.strip_prefix("spec.controllers.pages.").unwrap().to_owned();
        found.iter().map(|misfit| format!("{}: {}", short(&misfit.field), misfit.message)).collect()
    }

    const SPEC: &str = "has no field `titel` in `/spec`; did you mean `title`?";

    /// LC-14
    #[test]
    fn each_field_that_a_manifest_names_is_looked_for_in_its_kind() {
        let pointer = |field: &str| vec![format!("{field}: found `/spec/titel`; sample.dev/v1 Page {SPEC}")];
        let cel = |field: &str, variable: &str| {
            let spec = SPEC.replace("/spec", &format!("{variable}.spec"));
            vec![format!("{field}: found `{variable}.spec.titel`; sample.dev/v1 Page {spec}")]
        };
        let tenant = |field: &str| {
            vec![format!(
                "{field}: found `object.spec.qota`; sample.dev/v1 Tenant has no field `qota` in `object.spec`; did you mean `quota`?"
            )]
        };
        let source = |fields: &str| format!("sources: {{ s: {{ informer: {{ {TENANT}, {fields} }} }} }}");
        let dependent = |fields: &str| format!("workflow: {{ dependents: {{ d: {{ {TENANT}, {fields} }} }} }}");
        for (fields, expected) in [
            ("keep: [/spec/title, /spec/titel]".to_owned(), pointer("keep[1]")),
            ("drop: [/spec/titel]".to_owned(), pointer("drop[0]")),
            ("indexes: { i: { pointer: /spec/titel } }".to_owned(), pointer("indexes.i.pointer")),
            ("indexes: { i: { cel: object.spec.titel } }".to_owned(), cel("indexes.i.cel", "object")),
            ("filters: { onAdd: { cel: has(object.spec.titel) } }".to_owned(), cel("filters.onAdd.cel", "object")),
            ("filters: { generic: { cel: object.spec.titel == 'a' || object.spec.titel == 'b' } }".to_owned(), cel("filters.generic.cel", "object")),
            ("filters: { onUpdate: { cel: object.spec.title != oldObject.spec.titel } }".to_owned(), cel("filters.onUpdate.cel", "oldObject")),
            ("events: { key: { cel: primary.spec.titel } }".to_owned(), cel("events.key.cel", "primary")),
            ("events: { name: { cel: primary.spec.titel + event.reason } }".to_owned(), cel("events.name.cel", "primary")),
            ("sources: { s: { pollEach: { every: 1s, id: /nothing/of/it, when: { cel: primary.spec.titel == '' } } } }".to_owned(), cel("sources.s.pollEach.when.cel", "primary")),
            (source("filters: { onDelete: { cel: object.spec.qota == '' } }"), tenant("sources.s.informer.filters.onDelete.cel")),
            (source("indexes: { i: { cel: object.spec.qota } }"), tenant("sources.s.informer.indexes.i.cel")),
            (source("mapper: { cel: object.spec.qota }"), tenant("sources.s.informer.mapper.cel")),
            (format!("{}, indexes: {{ i: {{ pointer: /spec/title }} }}", source("mapper: { index: { name: i, key: { cel: object.spec.qota } } }")), tenant("sources.s.informer.mapper.index.key.cel")),
            (source("mapper: { labels: {} }, secondaries: { pointer: /spec/titel }"), pointer("sources.s.informer.secondaries.pointer")),
            (dependent("filters: { onAdd: { cel: object.spec.qota == '' } }"), tenant("workflow.dependents.d.filters.onAdd.cel")),
            (dependent("name: { cel: primary.spec.titel }"), cel("workflow.dependents.d.name.cel", "primary")),
            (dependent("desired: { template: { metadata: { name: a }, spec: { a: ['x ${primary.spec.titel}'] } } }"), cel("workflow.dependents.d.desired.template.spec.a[0]", "primary")),
            (
                dependent("manage: [delete] }, e: { apiVersion: v1, kind: Pod, dependsOn: [d], desired: { template: { metadata: { name: '${dependents.d.spec.qota}' } } }"),
                vec!["workflow.dependents.e.desired.template.metadata.name: found `dependents.d.spec.qota`; sample.dev/v1 Tenant has no field `qota` in `dependents.d.spec`; did you mean `quota`?".to_owned()],
            ),
            (dependent("activation: { cel: primary.spec.titel == '' && dependent.spec.quota == '' }"), cel("workflow.dependents.d.activation.cel", "primary")),
            (dependent("match: { generic: { ignore: [/spec/quota, /metadata/labels/a, /spec/qota] } }"), vec!["workflow.dependents.d.match.generic.ignore[2]: found `/spec/qota`; sample.dev/v1 Tenant has no field `qota` in `/spec`; did you mean `quota`?".to_owned()]),
            (format!("standalone: {{ w: {{ dependents: {{ d: {{ {TENANT}, readyPostcondition: {{ cel: primary.spec.titel == '' }} }} }} }} }}"), cel("standalone.w.dependents.d.readyPostcondition.cel", "primary")),
        ] {
            let flow = format!("{{ plugin: p, {PAGE}, {fields} }}");
            let text = text(&[]).replace("pages:\n      plugin: p\n", &format!("pages: {flow}\n"));
            let found = found(&text, &mut Budget::of_run()).unwrap();
            let told: Vec<_> = found.iter().map(|misfit| format!("{}: {}", misfit.field.replace("spec.controllers.pages.", ""), misfit.message)).collect();
            assert_eq!(told, expected, "{fields}");
        }
    }

    /// LC-14
    #[test]
    fn nothing_is_told_of_what_may_be_there_or_can_not_be_known() {
        for fields in [
            "keep: [/spec/title, /spec/hosts/0, /spec/hosts/any, /spec/more/any/thing, /status/phase, /metadata/annotations/a.dev~1b]",
            "filters: { generic: { cel: \"object.spec.hosts.exists(object, object.anything == '')\" } }",
            "filters: { generic: { cel: \"object.spec['titel'] == '' && object.spec.hosts[0].name == ''\" } }",
            "filters: { generic: { cel: \"{'titel': object.spec}.titel == object.apiVersion\" } }",
            "fieldSelector: metadata.name!=a,spec.title=b\\,c",
            "namespaces: [a, b]",
            "sources: { s: { informer: { apiVersion: v1, kind: ConfigMap, keep: [/any], indexes: { i: { pointer: /any } } } } }",
            "sources: { s: { informer: { apiVersion: other.dev/v1, kind: Page, keep: [/any] } } }",
            "sources: { s: { informer: { apiVersion: sample.dev/v1, kind: Tenant, namespaces: all } } }",
            "workflow: { dependents: { d: { apiVersion: sample.dev/v2, kind: Page, activation: { cel: dependent.any == '' } } } }",
        ] {
            assert_eq!(told(&[PAGE, fields]), Vec::<String>::new(), "{fields}");
        }
        // The source follows the namespaces.
        let tenants = "primary: { apiVersion: sample.dev/v1, kind: Tenant }";
        let follows = "namespaces: [a]\nsources: { s: { informer: { apiVersion: v1, kind: ConfigMap } } }";
        let lines: Vec<_> = follows.lines().collect();
        assert_eq!(told(&[&[tenants], &*lines].concat()), Vec::<String>::new());
    }

    /// LC-14
    #[test]
    fn a_kind_is_served_in_the_version_and_lives_where_the_manifest_says() {
        let tenant = "primary: { apiVersion: sample.dev/v1, kind: Tenant }";
        let none = "found `namespaces` for sample.dev/v1 Tenant, which lives in none: all its objects are watched; leave it out";
        for (fields, expected) in [
            (
                vec!["primary: { apiVersion: sample.dev/v1alpha1, kind: Page }"],
                "primary.apiVersion: found version `v1alpha1`, in which Page is not served; it is served in `v1` or `v2`".to_owned(),
            ),
            (
                vec![PAGE, "sources: { s: { informer: { apiVersion: sample.dev/v2, kind: Tenant } } }"],
                "sources.s.informer.apiVersion: found version `v2`, in which Tenant is not served; it is served in `v1`".to_owned(),
            ),
            (vec![tenant, "namespaces: own"], format!("namespaces: {none}")),
            (vec![tenant, "namespaces: { selector: a=b }"], format!("namespaces: {none}")),
            (
                vec![PAGE, "sources: { s: { informer: { apiVersion: sample.dev/v1, kind: Tenant, namespaces: [a] } } }"],
                format!("sources.s.informer.namespaces: {none}"),
            ),
            (
                vec![PAGE, "workflow: { dependents: { d: { apiVersion: sample.dev/v1, kind: Tenant, name: { cel: \"'a'\" }, namespace: { cel: \"'b'\" }, garbageCollected: false, mapping: { acrossNamespaces: true } } } }"],
                "workflow.dependents.d.namespace: found `namespace` for sample.dev/v1 Tenant, which lives in none".to_owned(),
            ),
            (
                vec![tenant, "workflow: { dependents: { d: { apiVersion: v1, kind: Secret, name: { cel: \"'a'\" } } } }"],
                "workflow.dependents.d.name: found `name` without `namespace`: sample.dev/v1 Tenant lives in no namespace, and v1 Secret in one; expected both".to_owned(),
            ),
            (
                vec![PAGE, "fieldSelector: spec.titel=a,metadata.uid!=b"],
                "fieldSelector: found `metadata.uid`; sample.dev/v1 Page can't be selected by it; did you mean `metadata.name`?".to_owned(),
            ),
        ] {
            assert_eq!(told(&fields).first(), Some(&expected), "{fields:?}");
        }
    }

    /// LC-14
    #[test]
    fn what_is_found_is_shown_where_it_stands_in_the_file() {
        let text = text(&[
            PAGE,
            "keep:",
            "  - /spec",
            "  - /spec/hosts/any",
            "  - /status",
            "  - /sepc",
            "indexes: { names: { pointer: /spec/hosts/name } }",
            "filters:",
            "  onAdd: { cel: \"has(object.spec.titel) && object.spec . name == '' && object.spec.titel == ''\" }",
            "  generic:",
            "    cel: object.status.phase.deep == '' || object.metadata.lable.a == ''",
            "fieldSelector: spec.titel=a",
        ]);
        let found = found(&text, &mut Budget::of_run()).unwrap();
        let other = "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: { name: other }\n---\n";
        let errors = placed(&format!("{other}{text}"), Path::new("a.yaml"), "a", found);
        let expected = r#"
a.yaml:18:11: spec.controllers.pages.keep[3]: found `/sepc`; sample.dev/v1 Page has no field `sepc`; did you mean `spec`?
   |
18 |         - /sepc
   |           ^^^^^
   = fields here: apiVersion, kind, metadata, spec, status

a.yaml:19:36: spec.controllers.pages.indexes.names.pointer: found `/spec/hosts/name`; `/spec/hosts` of sample.dev/v1 Page is a list, which has no field `name`
   |
19 |       indexes: { names: { pointer: /spec/hosts/name } }
   |                                    ^^^^^^^^^^^^^^^^

a.yaml:21:40: spec.controllers.pages.filters.onAdd.cel: found `object.spec.titel`; sample.dev/v1 Page has no field `titel` in `object.spec`; did you mean `title`?
   |
21 |         onAdd: { cel: "has(object.spec.titel) && object.spec . name == '' && object.spec.titel == ''" }
   |                                        ^
   = fields here: hosts, more, title

a.yaml:21:50: spec.controllers.pages.filters.onAdd.cel: found `object.spec.name`; sample.dev/v1 Page has no field `name` in `object.spec`
   |
21 |         onAdd: { cel: "has(object.spec.titel) && object.spec . name == '' && object.spec.titel == ''" }
   |                                                  ^
   = fields here: hosts, more, title

a.yaml:23:36: spec.controllers.pages.filters.generic.cel: found `object.status.phase.deep`; `object.status.phase` of sample.dev/v1 Page is a text, which has no fields
   |
23 |           cel: object.status.phase.deep == '' || object.metadata.lable.a == ''
   |                                    ^

a.yaml:23:66: spec.controllers.pages.filters.generic.cel: found `object.metadata.lable.a`; sample.dev/v1 Page has no field `lable` in `object.metadata`
   |
23 |           cel: object.status.phase.deep == '' || object.metadata.lable.a == ''
   |                                                                  ^
   = fields here: annotations, creationTimestamp, deletionGracePeriodSeconds, deletionTimestamp, finalizers, generateName, generation, labels, managedFields, name, namespace, ownerReferences, resourceVersion, selfLink, uid

a.yaml:24:22: spec.controllers.pages.fieldSelector: found `spec.titel`; sample.dev/v1 Page can't be selected by it; did you mean `spec.title`?
   |
24 |       fieldSelector: spec.titel=a
   |                      ^^^^^^^^^^^^
   = fields that select here: metadata.name, metadata.namespace, spec.title
"#;
        assert_eq!(errors.to_string(), expected.trim());
    }

    /// LC-14
    #[test]
    fn the_kinds_are_known_of_which_a_manifest_names_fields() {
        let kinds = |fields: &[&str]| {
            let operator = parse(&text(fields), Path::new("a.yaml")).unwrap().remove(0);
            named(&operator.controllers["pages"]).iter().map(|(gvk, _)| gvk.to_string()).collect::<Vec<_>>()
        };
        let tenants = "sources: { s: { informer: { apiVersion: sample.dev/v1, kind: Tenant, keep: [/spec] } } }";
        assert_eq!(kinds(&[PAGE, "namespaces: own"]), [""; 0]);
        assert_eq!(kinds(&[PAGE, "filters: { generic: { cel: object == object } }"]), [""; 0]);
        assert_eq!(kinds(&[PAGE, tenants]), ["sample.dev/v1 Tenant"]);
        assert_eq!(kinds(&[PAGE, tenants, "drop: [/status]"]), ["sample.dev/v1 Page", "sample.dev/v1 Tenant"]);
    }

    /// LC-14
    #[test]
    fn a_search_that_costs_too_much_ends() {
        let found = found(&text(&[PAGE, "keep: [/spec/titel]"]), &mut Budget::of(5));
        assert_eq!(found, Err(Exceeded::Steps(5)));
    }
}
