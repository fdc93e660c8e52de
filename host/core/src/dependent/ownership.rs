//! Decides to whom the existing object of a dependent belongs: to this primary, to another owner, or to no known
//! owner.
//!
//! Only a uid proves ownership. Names can be reused, mapping annotations can be copied, and our field manager writes
//! for other primaries, too.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::object::{Gvk, Object, ObjectRef, Owner};

/// The annotation that holds the [`Mark`] of an object.
pub use crate::object::MARK;

/// The longest mark that is read, in bytes: names are bounded, so our marks are shorter.
const LONGEST: usize = 4096;

/// The mark of an object: the dependent and the primary for which the daemon created it. Objects that no owner
/// reference ties to their primary have one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The operator.
    pub operator: String,
    /// Its controller.
    pub controller: String,
    /// The dependent.
    pub dependent: String,
    /// The primary.
    pub primary: Marked,
}

/// The primary that a [`Mark`] names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Marked {
    /// Group and version of its kind.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; `None` for a cluster-scoped primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its uid, which alone proves ownership.
    pub uid: String,
}

/// The owner of an object, as seen from one primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// It belongs to this primary.
    Ours,
    /// It was made for this primary, but by another dependent, controller or operator.
    Sibling(Mark),
    /// It was made for another primary, which may be deleted by now.
    Marked(Mark),
    /// It is this primary's, and another dependent of the kind may have made it, as it has no mark.
    Unmarked,
    /// Another object owns it.
    Owned(Owner),
    /// It has neither a mark nor an owner reference.
    Unclaimed,
}

impl Mark {
    /// Returns the mark of the objects that a dependent creates for a primary.
    pub fn new((operator, controller, dependent): (&str, &str, &str), primary: &Object, gvk: &Gvk) -> Self {
        let key = primary.key();
        Self {
            operator: operator.to_owned(),
            controller: controller.to_owned(),
            dependent: dependent.to_owned(),
            primary: Marked {
                api_version: gvk.api_version().into_owned(),
                kind: gvk.kind.to_string(),
                namespace: key.namespace.as_deref().map(str::to_owned),
                name: key.name.to_string(),
                uid: primary.header().uid.to_string(),
            },
        }
    }

    /// Returns true if both marks name the same dependent, controller and operator, and the same primary by uid.
    pub fn is_alike(&self, other: &Self) -> bool {
        self.operator == other.operator
            && self.controller == other.controller
            && self.dependent == other.dependent
            && self.primary.uid == other.primary.uid
    }

    /// Returns the mark of an object; `None` if there is none, or it can't be read.
    pub fn of(object: &Object) -> Option<Self> {
        if !object.header().marked {
            return None;
        }
        // What is unpacked for that does not stay in memory.
        let object = object.unread();
        let tags = object.tags();
        let text = &tags.annotations.get(MARK)?.0;
        if text.len() > LONGEST {
            return None;
        }
        serde_json::from_str(text).ok()
    }
}

impl Marked {
    /// Returns kind and key of the primary; `None` if the mark's `apiVersion` is not valid.
    pub fn place(&self) -> Option<(Gvk, ObjectRef)> {
        let key = ObjectRef { namespace: self.namespace.as_deref().map(Into::into), name: self.name.as_str().into() };
        Some((Gvk::parse(&self.api_version, &self.kind).ok()?, key))
    }
}

/// Returns true if an owner reference or the mark of an object names the primary with this uid.
pub fn is_for(object: &Object, uid: &str) -> bool {
    let mut owners = object.header().owners.iter();
    owners.any(|owner| &*owner.uid == uid) || Mark::of(object).is_some_and(|mark| mark.primary.uid == uid)
}

/// Returns the owner of an object, as seen from the dependent and the primary that `own` names. `declared` has the
/// dependents of the controller that still exist; objects of removed dependents count as ours.
pub fn whose(object: &Object, own: &Mark, declared: &BTreeSet<&str>) -> Whose {
    let owners = &object.header().owners;
    if owners.iter().any(|owner| *owner.uid == *own.primary.uid) {
        return Whose::Ours;
    }
    if let Some(mark) = Mark::of(object) {
        if mark.primary.uid != own.primary.uid {
            return Whose::Marked(mark);
        }
        let controller = mark.operator == own.operator && mark.controller == own.controller;
        let taken = mark.dependent != own.dependent && declared.contains(&*mark.dependent);
        return if controller && !taken { Whose::Ours } else { Whose::Sibling(mark) };
    }
    owners.first().map_or(Whose::Unclaimed, |owner| Whose::Owned(owner.clone()))
}

/// Returns the mark of an object that was made for the same primary by another operator, controller or dependent: an owner
/// reference does not say which of them an object is. Objects of removed dependents of the same controller count as its own.
pub fn sibling(object: &Object, own: &Mark, declared: &BTreeSet<&str>) -> Option<Mark> {
    let mark = Mark::of(object).filter(|mark| mark.primary.uid == own.primary.uid)?;
    let controller = mark.operator == own.operator && mark.controller == own.controller;
    let taken = mark.dependent != own.dependent && declared.contains(&*mark.dependent);
    (!controller || taken).then_some(mark)
}

/// Returns true if the dependent of this mark created an object. Only the mark counts, so that objects of other dependents, components
/// or users are never taken for its own.
pub fn is_made_by(object: &Object, own: &Mark) -> bool {
    Mark::of(object).is_some_and(|mark| mark.is_alike(own))
}

impl Whose {
    /// Returns the error message for an object that exists and must not be written, with a way to solve it: `adopt`, if it is not of one that
    /// exists, or may exist.
    pub fn refusal(&self, kind: &str, object: &Object, dependent: &str, is_adoptable: bool) -> String {
        let key = object.key();
        let whose = match self {
            Self::Ours => return format!("{kind} {key} is ours"),
            Self::Sibling(mark) => format!("made for this primary by {}", maker(mark)),
            Self::Marked(mark) => {
                let Marked { kind, namespace, name, uid, .. } = &mark.primary;
                let place = namespace.as_ref().map(|namespace| format!("{namespace}/"));
                let place = place.unwrap_or_default();
                format!("made for {kind} {place}{name} (uid {uid}) by {}", maker(mark))
            }
            Self::Owned(Owner { kind, name, uid, .. }) => {
                format!("owned by {kind} {name} (uid {uid})")
            }
            Self::Unmarked => "without a mark, so that another dependent may have made it".to_owned(),
            Self::Unclaimed => "nobody is named as its owner".to_owned(),
        };
        let cure = if is_adoptable {
            format!("set `adopt: true` on dependent {dependent} to take it over")
        } else {
            format!(
                "nothing is taken from another owner, with `adopt` neither: give the object of dependent {dependent} another name"
            )
        };
        let managers = managers(object);
        format!("{kind} {key} exists and is not ours: managed by {managers}, {whose}; {cure}")
    }
}

fn maker(mark: &Mark) -> String {
    let Mark { operator, controller, dependent, .. } = mark;
    format!("dependent {dependent} of controller {controller} of operator {operator}")
}

/// Returns the field managers of an object as a list for messages; the object has been read with all of them.
fn managers(object: &Object) -> String {
    let shares = object.header().shares.iter();
    let whole = shares.filter(|share| share.subresource.is_none());
    let names: BTreeSet<&str> = whole.map(|share| &*share.manager).collect();
    if names.is_empty() {
        return "nobody".to_owned();
    }
    names.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::object::Managers;
    use crate::object::packed::{Dictionary, Packed};

    fn mark(path: (&str, &str, &str), name: &str, uid: &str) -> Mark {
        let gvk = Gvk::parse("sample.dev/v1", "Page").unwrap();
        let page = json!({"metadata": {"name": name, "namespace": "team", "uid": uid}});
        let page = Object::parse(&page.to_string(), &gvk, &Managers::default()).unwrap();
        Mark::new(path, &page, &gvk)
    }

    /// Returns an object with this mark and an owner of this uid, which argocd and kubectl have written.
    fn object(marked: Option<&Mark>, owner: Option<&str>) -> Object {
        let text = marked.map(|mark| serde_json::to_string(mark).unwrap());
        let annotations = text.map_or_else(|| json!({}), |text| json!({ MARK: text }));
        let owners: Vec<Value> = owner
            .map(|uid| json!({"apiVersion": "sample.dev/v1", "kind": "Page", "name": "first", "uid": uid}))
            .into_iter()
            .collect();
        let managers = json!([
            {"manager": "kubectl", "operation": "Update"},
            {"manager": "argocd", "operation": "Apply"},
            {"manager": "status", "operation": "Update", "subresource": "status"},
        ]);
        let tree = json!({"metadata": {"name": "conf", "namespace": "team", "annotations": annotations,
            "ownerReferences": owners, "managedFields": managers}});
        let gvk = Gvk::parse("v1", "ConfigMap").unwrap();
        Object::parse(&tree.to_string(), &gvk, &Managers::all()).unwrap()
    }

    #[test]
    fn to_look_for_a_mark_leaves_nothing_unpacked() {
        // BC-4
        let gvk = Gvk::parse("v1", "ConfigMap").unwrap();
        let own = mark(("web", "pages", "maps"), "home", "u-1");
        let marked = |n: usize| {
            let annotations = json!({ MARK: serde_json::to_string(&own).unwrap() });
            let text = json!({ "metadata": { "name": format!("m{n}"), "annotations": annotations }, "data": { "x": "y".repeat(4_000) } });
            Object::parse(&text.to_string(), &gvk, &Managers::default()).unwrap()
        };
        let all: Vec<_> = (0..20).map(marked).collect();
        let bytes = all.iter().map(Object::size).sum();
        let dictionary = Dictionary::of(all.iter().cloned(), all.len(), bytes).unwrap();
        let packed = Packed::of(&all[7], &dictionary).unwrap().object();
        assert_eq!(Mark::of(&packed), Some(own));
        assert_eq!(packed.unmade(), all[7].size());
    }

    #[test]
    fn only_a_uid_says_whose_an_object_is() {
        let own = mark(("o", "c", "conf"), "page", "u-1");
        let by = |path, uid| mark(path, "page", uid);
        let (sibling, renamed) = (by(("o", "c", "other"), "u-1"), by(("o", "c", "old"), "u-1"));
        let (foreign, namesake) = (by(("o2", "c", "conf"), "u-1"), by(("o", "c", "conf"), "u-2"));
        let declared = BTreeSet::from(["conf", "other"]);
        for (marked, owner, expected) in [
            (None, None, Whose::Unclaimed),
            (None, Some("u-1"), Whose::Ours),
            (Some(&own), None, Whose::Ours),
            (Some(&renamed), None, Whose::Ours),
            (Some(&sibling), None, Whose::Sibling(sibling.clone())),
            (Some(&foreign), None, Whose::Sibling(foreign.clone())),
            (Some(&namesake), None, Whose::Marked(namesake.clone())),
            (Some(&namesake), Some("u-1"), Whose::Ours),
        ] {
            assert_eq!(whose(&object(marked, owner), &own, &declared), expected);
        }
        let theirs = whose(&object(None, Some("u-2")), &own, &declared);
        assert!(matches!(theirs, Whose::Owned(owner) if &*owner.uid == "u-2"));
    }

    #[test]
    fn a_former_object_is_known_by_its_mark_alone() {
        let own = mark(("o", "c", "conf"), "page", "u-1");
        let by = |path, uid| mark(path, "page", uid);
        for (marked, owner, former) in [
            (Some(own.clone()), None, true),
            (Some(own.clone()), Some("u-1"), true),
            // Of the same primary, renamed: the uid counts.
            (Some(mark(("o", "c", "conf"), "old", "u-1")), None, true),
            (None, None, false),
            (None, Some("u-1"), false),
            (Some(by(("o", "c", "other"), "u-1")), Some("u-1"), false),
            (Some(by(("o", "c2", "conf"), "u-1")), Some("u-1"), false),
            (Some(by(("o2", "c", "conf"), "u-1")), Some("u-1"), false),
            (Some(by(("o", "c", "conf"), "u-2")), Some("u-1"), false),
        ] {
            let object = object(marked.as_ref(), owner);
            assert_eq!(is_made_by(&object, &own), former, "{marked:?} {owner:?}");
        }
    }

    #[test]
    fn a_refusal_says_whose_it_is_and_what_helps() {
        let own = mark(("o", "c", "conf"), "page", "u-1");
        let first = mark(("o", "c", "conf"), "first", "u-2");
        let adopt = "set `adopt: true` on dependent conf to take it over";
        let rename =
            "nothing is taken from another owner, with `adopt` neither: give the object of dependent conf another name";
        let made = "made for Page team/first (uid u-2) by dependent conf of controller c of operator o";
        for (marked, owner, whose_it_is, is_adoptable, cure) in [
            (None, None, "nobody is named as its owner", true, adopt),
            (None, Some("u-2"), "owned by Page first (uid u-2)", false, rename),
            (Some(&first), None, made, false, rename),
            (Some(&first), None, made, true, adopt),
        ] {
            let found = object(marked, owner);
            let text = whose(&found, &own, &BTreeSet::new()).refusal("ConfigMap", &found, "conf", is_adoptable);
            let there = "ConfigMap team/conf exists and is not ours: managed by argocd, kubectl";
            assert_eq!(text, format!("{there}, {whose_it_is}; {cure}"));
        }
    }
}
