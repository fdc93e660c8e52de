//! Lists what a manifest gives: rights, hosts, Secrets, limits, and whom it trusts.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Thing, Wants, of_plugin};
use crate::manifest::inbound::Senders;
use crate::manifest::{
    Authority, Capabilities, Component, Controller, Image, Isolation, Limits, Namespaces, OnNewVersion, Plugin, Source,
};
use crate::object::Gvk;
use crate::object::shard::Shard;

/// The operator as a whole.
const OPERATOR: &str = "operator";

/// Requests of who shows nothing, and components of whoever.
const ANYBODY: Thing = Thing::All("anybody");

/// By whom a component is signed where its manifest says nothing: the daemon and a ceiling may want keys all the same.
const ANY_SIGNER: Thing = Thing::All("anybody, as far as the manifest is concerned");

/// How many runs of a controller there are at once where nothing is said of it.
const RUNS: u64 = 8;

/// Which objects are selected: by labels, fields and shard.
type Selectors<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a Shard>);

/// A limit in numbers of this machine: its field, its value, and what is counted.
type Size = (&'static str, fn(&Limits) -> usize, &'static str);

impl Wants {
    pub(super) fn add_operator(&mut self, on_new_version: OnNewVersion) {
        if on_new_version == OnNewVersion::Apply {
            self.give(OPERATOR, "new versions".to_owned(), Thing::One("without an approval".to_owned()));
        }
    }

    /// Adds what a plugin is given, which serves these controllers.
    pub(super) fn add_plugin(&mut self, name: &str, plugin: &Plugin, controllers: &[&Controller]) {
        let Plugin { component: Some(component), capabilities, limits, isolation, .. } = plugin else {
            return;
        };
        let of = &*of_plugin(name);
        self.give(of, "component from".to_owned(), Thing::place(component));
        if let Component::Registry(image) = component {
            self.add_image(of, image);
        }
        for value in plugin.values() {
            self.give(of, "read".to_owned(), Thing::One(format!("{value}, key {}", value.key)));
        }
        if *isolation == Isolation::Shared {
            self.give(of, "run in".to_owned(), Thing::One("the daemon's process".to_owned()));
        }
        let around: BTreeSet<Thing> =
            controllers.iter().flat_map(|of| places(&of.namespaces, (None, None, None))).collect();
        self.add_capabilities(of, capabilities, &around);
        self.add_limits(of, limits);
    }

    fn add_image(&mut self, of: &str, Image { insecure, authority, verify, .. }: &Image) {
        let mut trust = |what: &str, thing| self.give(of, what.to_owned(), thing);
        match verify {
            None => trust("component signed by", ANY_SIGNER),
            Some(verify) => {
                verify.keys.iter().for_each(|key| trust("component signed by", Thing::One(key.digest().to_string())));
                verify.signed_as.iter().for_each(|name| trust("component signed as", Thing::One(name.to_string())));
            }
        }
        if *insecure {
            trust("component by", Thing::One("HTTP without TLS".to_owned()));
        }
        if let Some(Authority::File(file)) = authority {
            trust("registry vouched for by", Thing::One(format!("file {}", file.display())));
        }
    }

    fn add_capabilities(
        &mut self,
        of: &str,
        Capabilities { kubernetes, http, tcp }: &Capabilities,
        around: &BTreeSet<Thing>,
    ) {
        for grant in kubernetes {
            let own = grant.namespaces.as_ref().map(|namespaces| places(namespaces, (None, None, None)));
            for verb in &grant.verbs {
                for place in own.as_ref().unwrap_or(around) {
                    self.give(of, format!("{} {} in", verb.word(), grant.gvk), place.clone());
                }
            }
        }
        for (what, hosts) in [("HTTP to", http), ("TCP to", tcp)] {
            for host in hosts {
                self.give(of, what.to_owned(), Thing::Host(host.clone()));
            }
        }
    }

    fn add_limits(&mut self, of: &str, limits: &Limits) {
        let usual = Limits::default();
        let size = |size: usize| Some(u64::try_from(size).unwrap_or(u64::MAX));
        let mut add = |what, value: fn(&Limits) -> Option<u64>, unit| {
            self.bound(of, what, value(limits), (value(&usual), unit));
        };
        add("limits.memory", |limits| Some(limits.memory), "bytes");
        add("limits.timeout", |limits| Some(millis(limits.timeout)), "ms");
        add("limits.cpu", |limits| limits.cpu.map(millis), "ms in each second");
        add("limits.requests", |limits| Some(limits.requests.into()), "");
        add("limits.requestsPerSecond", |limits| Some(limits.requests_per_second.into()), "");
        add("limits.page", |limits| Some(limits.page.into()), "objects");
        let sizes: [Size; 7] = [
            ("limits.concurrency", |limits| limits.concurrency, ""),
            ("limits.connections", |limits| limits.connections, ""),
            ("limits.sources", |limits| limits.sources, ""),
            ("limits.log", |limits| limits.log, "bytes"),
            ("limits.memo.run", |limits| limits.memo_run, "bytes"),
            ("limits.memo.primary", |limits| limits.memo_primary, "bytes"),
            ("limits.memo.plugin", |limits| limits.memo_plugin, "bytes"),
        ];
        for (what, value, unit) in sizes {
            self.bound(of, what, size(value(limits)), (size(value(&usual)), unit));
        }
    }

    /// Adds what a controller does by itself, in whose name, and where.
    pub(super) fn add_controller(&mut self, controller: &Controller) {
        let Controller { name, primary, cluster, namespaces, remotes, service_account, concurrency, .. } = controller;
        let of = &*format!("controller {name}");
        let who = service_account.as_ref().map_or_else(
            || "the daemon".to_owned(),
            |account| {
                let namespace = account.namespace.as_deref().map(|name| format!("{name}/")).unwrap_or_default();
                format!("ServiceAccount {namespace}{}", account.name)
            },
        );
        self.give(OPERATOR, "act as".to_owned(), Thing::One(who));
        for (name, remote) in remotes {
            let thing = format!("{name}, by Secret {}, key {}", remote.secret, remote.key);
            self.give(OPERATOR, "other clusters".to_owned(), Thing::One(thing));
        }
        let shard = controller.shard_selector.as_ref();
        let selectors = (controller.label_selector.as_deref(), controller.field_selector.as_deref(), shard);
        for place in places(namespaces, selectors) {
            self.give(of, format!("work on {} in", kind(primary, cluster.as_deref())), place);
        }
        controller.sources.iter().for_each(|(name, source)| self.add_source(of, controller, (name, source)));
        for (_, dependent) in controller.dependents() {
            let kind = kind(&dependent.gvk, cluster.as_deref());
            let manage = dependent.manage;
            let verbs = [("create", manage.create), ("update", manage.update), ("delete", manage.delete)];
            let verbs = verbs.into_iter().chain([("watch", true), ("take over", dependent.adopt)]);
            // As its rights are: where its source is.
            let source = dependent.source.as_ref().and_then(|source| controller.sources.get(source));
            let namespaces = source.and_then(|source| source.namespaces.as_ref()).unwrap_or(namespaces);
            for (verb, _) in verbs.filter(|(_, does)| *does) {
                for place in places(namespaces, (None, None, None)) {
                    self.give(of, format!("{verb} {kind} in"), place);
                }
            }
        }
        for finalizer in &controller.former_finalizers {
            self.give(of, "take away the finalizer".to_owned(), Thing::One(finalizer.to_string()));
        }
        if controller.field_manager != controller.name {
            self.give(of, "write as".to_owned(), Thing::One(controller.field_manager.to_string()));
        }
        self.add_inbound(of, controller);
        let runs = u64::try_from(*concurrency).unwrap_or(u64::MAX);
        self.bound(of, "concurrency", Some(runs), (Some(RUNS), ""));
    }

    fn add_source(&mut self, of: &str, controller: &Controller, (name, source): (&str, &Source)) {
        let kind = kind(&source.gvk, controller.cluster_of(source).map(|name| &**name));
        let selectors =
            (source.label_selector.as_deref(), source.field_selector.as_deref(), source.shard_selector.as_ref());
        for place in places(source.namespaces.as_ref().unwrap_or(&controller.namespaces), selectors) {
            self.give(of, format!("watch {kind} in"), place);
        }
        if source.across_namespaces {
            self.give(of, "from one namespace into another by".to_owned(), Thing::One(format!("source {name}")));
        }
    }

    fn add_inbound(&mut self, of: &str, controller: &Controller) {
        for (name, inbound) in &controller.inbound {
            let sender = match &inbound.senders {
                Senders::Anybody => ANYBODY,
                Senders::Token(value) => Thing::One(format!("who has the token of {value}, key {}", value.key)),
            };
            self.give(of, format!("requests to {name} by"), sender);
            self.bound(of, &format!("sources.{name}.inbound.body"), Some(inbound.body_size), (Some(0), "bytes"));
            let often = format!("sources.{name}.inbound, requests a second");
            self.bound(of, &often, Some(inbound.per_second.into()), (Some(0), ""));
        }
        for (name, external) in &controller.externals {
            let things = u64::try_from(external.things).unwrap_or(u64::MAX);
            self.bound(of, &format!("sources.{name}, things"), Some(things), (Some(0), ""));
            self.bound(of, &format!("sources.{name}, memory"), Some(external.memory), (Some(0), "bytes"));
        }
    }
}

/// Returns where objects are, as things of which one more is more.
fn places(namespaces: &Namespaces, (labels, fields, shard): Selectors<'_>) -> BTreeSet<Thing> {
    let selectors = [("labels", labels), ("fields", fields), ("hashes", shard.map(Shard::as_str))];
    let selected: String = selectors.iter().filter_map(|(what, text)| Some(format!(", {what} {}", (*text)?))).collect();
    let within = |place: Option<String>| Thing::In { place, selected: selected.clone() };
    match namespaces {
        Namespaces::All => [within(None)].into(),
        Namespaces::Own => [within(Some("the daemon's own namespace".to_owned()))].into(),
        Namespaces::Listed(names) => names.iter().map(|name| within(Some(name.to_string()))).collect(),
        Namespaces::Selected(selected) => [within(Some(format!("namespaces with {}", selected.selector)))].into(),
    }
}

/// Returns a kind as it is told, with its cluster.
fn kind(gvk: &Gvk, cluster: Option<&str>) -> String {
    cluster.map_or_else(|| gvk.to_string(), |cluster| format!("{gvk} of the cluster {cluster}"))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
