//! Decides what people may do with operators and their primaries who have a role of Kubernetes that collects others: `view`, `edit`, `admin`.

use std::collections::BTreeSet;

use super::{Kinds, Resources, Rule, plural_by, rules};
use crate::kinds::Verb;
use crate::manifest::Operator;

/// A role that collects those with its label, `rbac.authorization.k8s.io/aggregate-to-NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collector {
    /// Who has it reads.
    View,
    /// Who has it writes, too.
    Edit,
    /// Who has it also approves versions of operators.
    Admin,
}

/// Returns the rules for the primaries of these operators. Kinds of Kubernetes itself are left out: what those roles permit of these is for nobody
/// else to say, and of Secrets `view` permits nothing on purpose.
pub fn of_primaries(operators: &[Operator], kinds: &Kinds, collector: Collector) -> Vec<Rule> {
    let mut found = Resources::new();
    let here = operators.iter().flat_map(|operator| operator.controllers.values()).filter(|c| c.cluster.is_none());
    for primary in here.map(|controller| &controller.primary).filter(|primary| is_custom(&primary.group)) {
        let plural = plural_by(kinds, primary);
        found.insert((primary.group.clone(), format!("{plural}/status")), BTreeSet::from([Verb::Get]));
        found.insert((primary.group.clone(), plural), collector.verbs());
    }
    rules(found)
}

/// Returns the rules for operators that are objects, and for approvals of their versions, which admins give.
pub fn of_operators(collector: Collector) -> Vec<Rule> {
    let approvals = match collector {
        Collector::View | Collector::Edit => Collector::View,
        Collector::Admin => Collector::Admin,
    };
    let resources = [
        ("operatorapprovals", approvals.verbs()),
        ("operators", collector.verbs()),
        ("operators/status", BTreeSet::from([Verb::Get])),
    ];
    rules(resources.into_iter().map(|(name, verbs)| (("capstan.dev".into(), name.to_owned()), verbs)).collect())
}

impl Collector {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Edit => "edit",
            Self::Admin => "admin",
        }
    }

    fn verbs(self) -> BTreeSet<Verb> {
        let read = [Verb::Get, Verb::List, Verb::Watch];
        let write = [Verb::Create, Verb::Update, Verb::Patch, Verb::Delete];
        match self {
            Self::View => BTreeSet::from(read),
            Self::Edit | Self::Admin => read.into_iter().chain(write).collect(),
        }
    }
}

/// Whether a group is none of Kubernetes itself.
fn is_custom(group: &str) -> bool {
    group.contains('.') && !group.ends_with(".k8s.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_kubernetes_itself_is_left_out() {
        for (group, expected) in [
            ("", false),
            ("apps", false),
            ("rbac.authorization.k8s.io", false),
            ("example.com", true),
            ("k8s.io.example.com", true),
        ] {
            assert_eq!(is_custom(group), expected, "{group}");
        }
    }

    #[test]
    fn only_admins_approve() {
        let verbs = |collector| of_operators(collector).into_iter().map(|rule| (rule.resource, rule.verbs.len()));
        for (collector, approvals, operators) in
            [(Collector::View, 3, 3), (Collector::Edit, 3, 7), (Collector::Admin, 7, 7)]
        {
            let expected = [("operatorapprovals", approvals), ("operators", operators), ("operators/status", 1)];
            let expected = expected.map(|(name, verbs)| (name.to_owned(), verbs));
            assert_eq!(verbs(collector).collect::<Vec<_>>(), expected, "{collector:?}");
        }
    }
}
