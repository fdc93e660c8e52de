//! Makes an operator of another namespace than the daemon's own one that shares no name and no namespace with others, and decides how many of them
//! there may be (CE rules).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ceiling;
use super::ceiling::kinds::Told;
use crate::manifest::{Ceiling, Component, Controller, LONGEST_MANAGER, Namespaces, Operator, ServiceAccount, Tenant};

/// Returns what an operator of another namespace is called in the daemon: names with a dot are nobody else's.
pub fn name(namespace: &str, name: &str) -> Arc<str> {
    format!("{namespace}.{name}").into()
}

/// Returns whose an operator is, where teams take turns: of another namespace, that; else its own.
pub fn team(operator: &str) -> Arc<str> {
    // With the dot: an operator of the daemon's own may be called as a namespace is.
    operator.split_inclusive('.').next().unwrap_or(operator).into()
}

/// Returns an operator of this namespace as the daemon runs it: it is called `NAMESPACE.NAME`, as its controllers are; it writes under field managers
/// that say so; and it reads Secrets and `ConfigMap`s of its namespace in the name of its account.
///
/// # Errors
/// What is more than its ceiling has, with the fields, a line each.
pub fn housed(operator: Operator, namespace: &Arc<str>, ceiling: &Ceiling) -> Result<Operator, String> {
    let mut found = ceiling::excess(&operator, namespace, ceiling, &Told::new());
    let housed = Housing::new(&operator, namespace, ceiling).house(operator);
    for controller in housed.controllers.values().filter(|one| one.field_manager.len() > LONGEST_MANAGER) {
        let manager = &controller.field_manager;
        found.push(format!(
            "spec.controllers.{}.fieldManager: `{manager}`, as it is called beside others, has {} bytes; expected at most {LONGEST_MANAGER}",
            controller.own_name,
            manager.len()
        ));
    }
    if found.is_empty() { Ok(housed) } else { Err(found.join("\n")) }
}

/// Checks that an operator of a namespace may go on under a ceiling, as the daemon runs it (`CE-7`). `told` is what the API server calls its kinds.
///
/// # Errors
/// What is more than the ceiling has by now, a line each.
pub fn may_go_on(operator: &Operator, namespace: &Arc<str>, ceiling: &Ceiling, told: &Told) -> Result<(), String> {
    let mut found = ceiling::excess(operator, namespace, ceiling, told);
    for (name, plugin) in &operator.plugins {
        let Some(Component::Registry(image)) = &plugin.component else { continue };
        // With fewer keys, it may be none of these that has signed it.
        let is_signed = !image.ceiling.is_empty() && image.ceiling.iter().all(|key| ceiling.keys.contains(key));
        if !ceiling.keys.is_empty() && !is_signed {
            found.push(format!(
                "spec.plugins.{name}.component: found one that was put in force under other keys; the ceiling `{}` permits what one of its `verifyKeys` has signed",
                ceiling.name
            ));
        }
    }
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}

/// What the operators of a namespace have of the room that its ceiling gives (`CE-5`).
pub struct Room<'c> {
    ceiling: &'c Ceiling,
    taken: Count,
}

/// How many operators, plugins and controllers there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    operators: usize,
    plugins: usize,
    controllers: usize,
}

impl<'c> Room<'c> {
    /// Returns the room of a namespace, of which these operators have theirs already.
    pub fn new<'o>(ceiling: &'c Ceiling, before: impl IntoIterator<Item = &'o Operator>) -> Self {
        let taken = before.into_iter().map(Count::of).fold(Count::default(), Count::and);
        Self { ceiling, taken }
    }

    /// Gives an operator the room that it needs in exchange for what it had `before`, which it keeps otherwise.
    ///
    /// # Errors
    /// What is too much.
    pub fn exchange(&mut self, before: Option<Count>, operator: Count) -> Result<(), String> {
        let rest = before.map_or(self.taken, |before| self.taken.without(before));
        let sum = rest.and(operator);
        let Ceiling { name, operators, plugins, controllers, .. } = self.ceiling;
        for (what, found, most) in [
            ("operators", sum.operators, *operators),
            ("plugins", sum.plugins, *plugins),
            ("controllers", sum.controllers, *controllers),
        ] {
            if found > most {
                return Err(format!(
                    "with it the namespace has {found} {what}; the ceiling `{name}` permits {most}, and those that run go first, then the older ones"
                ));
            }
        }
        self.taken = sum;
        Ok(())
    }
}

impl Count {
    /// Returns what an operator takes.
    pub fn of(operator: &Operator) -> Self {
        let plugins = operator.plugins.values().filter(|plugin| plugin.component.is_some()).count();
        Self { operators: 1, plugins, controllers: operator.controllers.len() }
    }

    fn and(self, other: Self) -> Self {
        Self {
            operators: self.operators + other.operators,
            plugins: self.plugins + other.plugins,
            controllers: self.controllers + other.controllers,
        }
    }

    fn without(self, other: Self) -> Self {
        Self {
            operators: self.operators.saturating_sub(other.operators),
            plugins: self.plugins.saturating_sub(other.plugins),
            controllers: self.controllers.saturating_sub(other.controllers),
        }
    }
}

/// What makes an operator a tenant.
struct Housing<'c> {
    ceiling: &'c Ceiling,
    tenant: Option<Arc<Tenant>>,
    namespace: &'c Arc<str>,
}

impl<'c> Housing<'c> {
    fn new(operator: &Operator, namespace: &'c Arc<str>, ceiling: &'c Ceiling) -> Self {
        let account = operator.controllers.values().find_map(|controller| controller.service_account.as_ref());
        let tenant = account.map(|account| {
            Arc::new(Tenant {
                namespace: Arc::clone(namespace),
                account: Arc::clone(&account.name),
                operator: Arc::clone(&operator.name),
            })
        });
        Self { ceiling, tenant, namespace }
    }

    fn house(&self, operator: Operator) -> Operator {
        let mut plugins = operator.plugins;
        for plugin in plugins.values_mut() {
            for value in plugin.values_mut() {
                value.tenant.clone_from(&self.tenant);
            }
            for grant in &mut plugin.capabilities.kubernetes {
                self.settle(grant.namespaces.as_mut());
            }
            if let Some(Component::Registry(image)) = &mut plugin.component {
                image.ceiling.clone_from(&self.ceiling.keys);
            }
        }
        let controllers = operator.controllers.into_values().map(|controller| self.controller(controller));
        Operator {
            name: name(self.namespace, &operator.name),
            plugins,
            controllers: controllers.map(|controller| (Arc::clone(&controller.name), controller)).collect(),
            on_new_version: operator.on_new_version.max(self.ceiling.on_new_version),
            origin: operator.origin,
        }
    }

    fn controller(&self, controller: Controller) -> Controller {
        let mut controller = Controller {
            name: name(self.namespace, &controller.own_name),
            field_manager: format!("capstan.{}.{}", self.namespace, controller.field_manager).into(),
            home: Some(Arc::clone(self.namespace)),
            finalizer: Some(ceiling::finalizer(self.namespace, &controller.own_name)),
            service_account: controller
                .service_account
                .map(|account| ServiceAccount { namespace: Some(Arc::clone(self.namespace)), ..account }),
            ..controller
        };
        self.settle(Some(&mut controller.namespaces));
        for source in controller.sources.values_mut() {
            self.settle(source.namespaces.as_mut());
        }
        for inbound in controller.inbound.values_mut() {
            if let Some(token) = inbound.senders.token_mut() {
                token.tenant.clone_from(&self.tenant);
            }
        }
        controller
    }

    /// Writes the namespace in place of `own`.
    fn settle(&self, namespaces: Option<&mut Namespaces>) {
        if let Some(own) = namespaces.filter(|namespaces| **namespaces == Namespaces::Own) {
            *own = Namespaces::Listed(BTreeSet::from([Arc::clone(self.namespace)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::manifest::{Ceilings, Defaults, OnNewVersion, Plugin, parse_object};

    fn ceiling(more: &str) -> Arc<Ceiling> {
        let text = format!(
            "apiVersion: capstan.dev/v1alpha1\nkind: Ceilings\nspec:\n  ceilings:\n    teams:\n      namespaces: [team-a]\n      \
             serviceAccounts: [pages]\n      registries: [ghcr.io]\n      inbound: true\n      rules:\n        - {{ apiGroups: [\"\"], resources: \
             [configmaps, configmaps/status, secrets, events], verbs: [get, list, watch, create, patch] }}\n{more}"
        );
        Arc::clone(Ceilings::parse(&text, Path::new("c")).unwrap().of("team-a").unwrap())
    }

    fn operator(name: &str) -> Operator {
        let object = serde_json::json!({
            "metadata": { "name": name },
            "spec": {
                "serviceAccount": { "name": "pages" },
                "plugins": { "web": {
                    "component": { "oci": "ghcr.io/team-a/web:1", "pullSecret": "pull" },
                    "configFrom": { "a": { "secret": { "name": "s" } } },
                    "capabilities": { "kubernetes": [{ "apiVersion": "v1", "kind": "Secret", "verbs": ["get"], "namespaces": "own" }] },
                } },
                "controllers": { "web": {
                    "plugin": "web",
                    "namespaces": "own",
                    "primary": { "apiVersion": "v1", "kind": "ConfigMap" },
                    "sources": {
                        "s": { "informer": { "apiVersion": "v1", "kind": "Secret", "namespaces": "own" } },
                        "i": { "inbound": { "token": { "secret": { "name": "t" } } } },
                    },
                } },
            },
        });
        parse_object(&object, Path::new("o"), &Defaults::default()).unwrap()
    }

    #[test]
    fn a_ceiling_that_asks_has_the_versions_of_a_tenant_wait_whatever_its_manifest_says() {
        // AP-2
        let said = |ceiling: &Ceiling| housed(operator("web"), &"team-a".into(), ceiling).unwrap().on_new_version;
        assert_eq!(said(&ceiling("")), OnNewVersion::Apply);
        assert_eq!(said(&ceiling("      onNewVersion: ask\n")), OnNewVersion::Ask);
        let asks = Operator { on_new_version: OnNewVersion::Ask, ..operator("web") };
        let housed = housed(asks, &"team-a".into(), &ceiling("      onNewVersion: apply\n")).unwrap();
        assert_eq!(housed.on_new_version, OnNewVersion::Ask);
    }

    #[test]
    fn a_tenant_shares_no_name_with_others_and_is_in_its_namespace_alone() {
        // CE-2
        let housed = housed(operator("web"), &"team-a".into(), &ceiling("")).unwrap();
        assert_eq!(&*housed.name, "team-a.web");
        let controller = &housed.controllers["team-a.web"];
        let names =
            [&controller.name, &controller.own_name, &controller.field_manager, controller.home.as_ref().unwrap()];
        assert_eq!(names.map(|name| &**name), ["team-a.web", "web", "capstan.team-a.web", "team-a"]);
        assert_eq!(controller.finalizer.as_deref(), Some("team-a.operators.capstan.dev/web"));
        let account = controller.service_account.as_ref().unwrap();
        assert_eq!((&*account.name, account.namespace.as_deref()), ("pages", Some("team-a")));
        // Fields are those of its manifest.
        let capped = housed.clone().cap_concurrency(1).concat();
        assert!(capped.contains("operator team-a.web: spec.controllers.web.concurrency is 8"), "{capped}");
        let here = Namespaces::Listed(BTreeSet::from(["team-a".into()]));
        let plugin = &housed.plugins["web"];
        assert_eq!(controller.namespaces, here);
        assert_eq!(controller.sources["s"].namespaces, Some(here.clone()));
        assert_eq!(plugin.capabilities.kubernetes[0].namespaces, Some(here));
        let tokens = controller.inbound.values().filter_map(|inbound| inbound.senders.token());
        for value in Plugin::values(plugin).chain(tokens) {
            let tenant = value.tenant.as_ref().unwrap();
            assert_eq!(
                [&tenant.namespace, &tenant.account, &tenant.operator].map(|name| &**name),
                ["team-a", "pages", "web"]
            );
        }
    }

    #[test]
    fn the_keys_of_a_ceiling_are_demanded_beside_those_of_the_manifest() {
        // CE-4
        let pem = "-----BEGIN PUBLIC KEY-----\n          MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE5Tz4l6OjBrJ0ORXfhRVJUYzUaZKe\n          TMBIJ2BgL4SOhM9DfBMWmvZ3Wuw5rNbxQy5Nf9uHTB/xkFVMkV6n8Gk5Fw==\n          -----END PUBLIC KEY-----";
        let keyed = ceiling(&format!("      verifyKeys:\n        - |\n          {pem}\n"));
        let housed = housed(operator("web"), &"team-a".into(), &keyed).unwrap();
        let Some(Component::Registry(image)) = &housed.plugins["web"].component else { panic!() };
        let demands = image.demands(None);
        assert_eq!(demands.all.iter().map(|demand| demand.whose).collect::<Vec<_>>(), ["verifyKeys of its ceiling"]);
        assert_eq!(demands.all[0].keys, keyed.keys);
    }

    #[test]
    fn a_field_manager_that_is_too_long_beside_others_is_told() {
        let long = "a".repeat(63);
        let object = serde_json::json!({
            "metadata": { "name": "web" },
            "spec": {
                "serviceAccount": { "name": "pages" },
                "controllers": { &long: { "namespaces": "own", "primary": { "apiVersion": "v1", "kind": "ConfigMap" }, "status": { "template": { "a": "b" } } } },
            },
        });
        let operator = parse_object(&object, Path::new("o"), &Defaults::default()).unwrap();
        let namespace: Arc<str> = "b".repeat(63).into();
        let why = housed(operator, &namespace, &ceiling("")).unwrap_err();
        assert_eq!(
            why,
            format!(
                "spec.controllers.{long}.fieldManager: `capstan.{namespace}.{long}`, as it is called beside others, has 135 bytes; expected at most 117"
            )
        );
    }

    #[test]
    fn what_is_in_force_goes_on_as_long_as_its_ceiling_has_it() {
        // CE-7
        let key = |point: &str| {
            format!(
                "          -----BEGIN PUBLIC KEY-----\n          MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE{point}\n          -----END PUBLIC KEY-----\n"
            )
        };
        let one =
            key("5Tz4l6OjBrJ0ORXfhRVJUYzUaZKe\n          TMBIJ2BgL4SOhM9DfBMWmvZ3Wuw5rNbxQy5Nf9uHTB/xkFVMkV6n8Gk5Fw==");
        let keyed = |keys: &[&String]| {
            let keys: String = keys.iter().flat_map(|key| ["        - |\n", key.as_str()]).collect();
            ceiling(&format!("      verifyKeys:\n{keys}"))
        };
        let housed = |ceiling: &Ceiling| housed(operator("web"), &"team-a".into(), ceiling).unwrap();
        let go_on = |before: &Ceiling, now: &Ceiling| may_go_on(&housed(before), &"team-a".into(), now, &Told::new());
        let (free, signed) = (ceiling(""), keyed(&[&one]));
        for (before, now) in [(&free, &free), (&signed, &signed), (&signed, &free)] {
            assert_eq!(go_on(before, now), Ok(()));
        }
        let why = go_on(&free, &signed).unwrap_err();
        assert_eq!(
            why,
            "spec.plugins.web.component: found one that was put in force under other keys; the ceiling `teams` permits what one of its `verifyKeys` has signed"
        );
        let lower = ceiling("      limits: { memory: 1Mi }\n");
        let why = go_on(&free, &lower).unwrap_err();
        assert_eq!(why, "spec.plugins.web.limits.memory: found 64Mi; the ceiling `teams` permits 1Mi at most");
    }

    #[test]
    fn a_namespace_has_no_more_operators_than_its_ceiling_permits() {
        // CE-5
        for (more, expected) in [
            ("", Ok(())),
            (
                "      operators: 1\n",
                Err(
                    "with it the namespace has 2 operators; the ceiling `teams` permits 1, and those that run go first, then the older ones",
                ),
            ),
            (
                "      plugins: 1\n",
                Err(
                    "with it the namespace has 2 plugins; the ceiling `teams` permits 1, and those that run go first, then the older ones",
                ),
            ),
            (
                "      controllers: 1\n",
                Err(
                    "with it the namespace has 2 controllers; the ceiling `teams` permits 1, and those that run go first, then the older ones",
                ),
            ),
        ] {
            let ceiling = ceiling(more);
            let mut room = Room::new(&ceiling, []);
            room.exchange(None, Count::of(&operator("one"))).unwrap();
            let found = room.exchange(None, Count::of(&operator("two")));
            assert_eq!(found.as_ref().copied().map_err(String::as_str), expected);
            // What is refused takes no room, and the same needs no more.
            assert_eq!(room.exchange(None, Count::of(&operator("three"))).is_err(), expected.is_err());
            assert_eq!(room.exchange(Some(Count::of(&operator("one"))), Count::of(&operator("one"))), Ok(()));
        }
        // What runs has its room, whoever asks for more.
        let (two, mut larger) = (ceiling("      controllers: 2\n"), operator("one"));
        let second = larger.controllers["web"].clone();
        larger.controllers.insert("more".into(), second);
        let running = [operator("one"), operator("two")];
        let mut room = Room::new(&two, &running);
        assert!(room.exchange(Some(Count::of(&running[0])), Count::of(&larger)).is_err());
        assert_eq!(room.exchange(Some(Count::of(&running[1])), Count::of(&running[1])), Ok(()));
    }
}
