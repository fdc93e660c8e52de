//! The plugins of an operator: their limits, instances and capabilities.
#![expect(clippy::ref_option, reason = "a field that may be left out is looked at where it is")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::super::destinations::{HostName, ToHttp, ToTcp};
use super::super::raw::{self, Maybe, MaybeLeaf};
use super::super::units::{Bytes, Objects, Registered, Requests, Time, Times};
use super::super::{Capabilities, Grant, Instances, Isolation, Limits, Plugin, Warm};
use super::{Check, get, located, time, workers};
use crate::network::{Destination, Host};
use crate::yaml::{Leaf, Located, OrWord, Scalar, Slot};

/// The most bytes of log lines or memos that the daemon keeps for a component.
const MOST_KEPT: u64 = 64 << 20;

/// The most hosts of one list, and entries for kinds: each is looked at for each request.
const MOST_HOSTS: usize = 256;
const MOST_GRANTS: usize = 256;

/// The longest time that a call may take.
const LONGEST_CALL: Duration = Duration::from_hours(1);

/// Hosts that something may connect to, as they are written.
pub(super) struct Hosts<'r> {
    pub(super) http: &'r Maybe<Vec<Leaf<ToHttp>>>,
    pub(super) tcp: &'r Maybe<Vec<Leaf<ToTcp>>>,
    /// Which of them may have addresses of private networks.
    pub(super) internal: &'r Maybe<Vec<Leaf<HostName>>>,
}

fn bytes(field: &MaybeLeaf<Bytes>, default: usize) -> usize {
    get(field).map_or(default, |Scalar(Bytes(n))| usize::try_from(*n).unwrap_or(usize::MAX))
}

fn times(field: &MaybeLeaf<Times>, default: usize) -> usize {
    get(field).map_or(default, |Scalar(Times(n))| usize::try_from(*n).unwrap_or(default))
}

impl Check<'_> {
    pub(super) fn plugin(&mut self, plugin: &Located<raw::Plugin>) -> Option<Plugin> {
        let Located { value: plugin, place } = plugin;
        let component =
            self.need(&plugin.component, *place, "component").and_then(|component| self.component(component));
        let limits = self.limits(&plugin.limits);
        let capabilities = self.capabilities(&plugin.capabilities);
        self.check_isolation(&plugin.isolation, &capabilities);
        let config = self.config(&plugin.config);
        let config_from = self.config_from(&plugin.config_from, &config);
        let component = component?;
        let instances = self.instances(&plugin.instances, limits.memory);
        Some(Plugin {
            component: Some(component),
            limits,
            capabilities,
            config,
            config_from,
            instances,
            isolation: get(&plugin.isolation).copied().unwrap_or_default(),
            on_swap: get(&plugin.on_swap).copied().unwrap_or_default(),
        })
    }

    fn instances(&mut self, field: &Maybe<raw::Instances>, limit: u64) -> Instances {
        let warm = match get(field) {
            None | Some(OrWord::Word(_)) => return Instances::Fresh,
            Some(OrWord::Value(OrWord::Word(_))) => None,
            Some(OrWord::Value(OrWord::Value(raw::Bounded::Warm(warm)))) => warm.read(),
        };
        let usual = Warm::within(limit);
        let Some(warm) = warm.map(|warm| &warm.value) else {
            return Instances::Warm(usual);
        };
        if let Some(Located { value: Scalar(Bytes(memory)), place }) = located(&warm.memory)
            && *memory > limit
        {
            self.fault(
                *place,
                format!("found {memory} bytes; an instance never has more than `limits.memory`, which is {limit}"),
            );
        }
        Instances::Warm(Warm {
            runs: times(&warm.runs, usual.runs),
            memory: get(&warm.memory).map_or(usual.memory, |Scalar(Bytes(n))| *n),
            idle: time(&warm.idle, usual.idle),
        })
    }

    /// Tells of limits that are beyond what a component may have.
    fn check_limits(&mut self, limits: &raw::Limits) {
        if let Some(Located { value: Scalar(Bytes(memory)), place }) = located(&limits.memory)
            && !(1 << 16..=1 << 32).contains(memory)
        {
            self.fault(*place, format!("found {memory} bytes; a component's memory is from `64Ki` to `4Gi`"));
        }
        if let Some(Located { value: Scalar(Time(cpu)), place }) = located(&limits.cpu)
            && cpu.is_zero()
        {
            let message = "found no time at all; runs need some, such as `500ms` in each second";
            self.fault(*place, message.to_owned());
        }
        let memo = get(&limits.memo);
        let none = None;
        let of = |field: fn(&raw::Memo) -> &MaybeLeaf<Bytes>| memo.map_or(&none, field);
        for field in [&limits.log, of(|memo| &memo.run), of(|memo| &memo.primary), of(|memo| &memo.plugin)] {
            if let Some(Located { value: Scalar(Bytes(size)), place }) = located(field)
                && *size > MOST_KEPT
            {
                let found = format!("found {size} bytes; the daemon keeps at most `64Mi` of these");
                self.fault(*place, found);
            }
        }
        if let Some(Located { value: Scalar(Time(timeout)), place }) = located(&limits.timeout)
            && *timeout > LONGEST_CALL
        {
            self.fault(*place, format!("found {}; a call ends within an hour, `1h`", Time(*timeout)));
        }
    }

    fn limits(&mut self, limits: &Maybe<raw::Limits>) -> Limits {
        let defaults = Limits::usual(self.most);
        let Some(limits) = get(limits) else {
            return defaults;
        };
        self.check_limits(limits);
        let memo = get(&limits.memo);
        let of_memo = |field: fn(&raw::Memo) -> &MaybeLeaf<Bytes>, default| {
            memo.map_or(default, |memo| bytes(field(memo), default))
        };
        Limits {
            memory: get(&limits.memory).map_or(defaults.memory, |Scalar(Bytes(n))| *n),
            timeout: time(&limits.timeout, defaults.timeout),
            concurrency: workers(&limits.concurrency, defaults.concurrency),
            memo_run: of_memo(|memo| &memo.run, defaults.memo_run),
            memo_primary: of_memo(|memo| &memo.primary, defaults.memo_primary),
            memo_plugin: of_memo(|memo| &memo.plugin, defaults.memo_plugin),
            cpu: get(&limits.cpu).map_or(defaults.cpu, |Scalar(Time(cpu))| Some(*cpu)),
            requests: get(&limits.requests).map_or(defaults.requests, |Scalar(Requests(n))| *n),
            requests_per_second: get(&limits.requests_per_second)
                .map_or(defaults.requests_per_second, |Scalar(Times(n))| *n),
            connections: workers(&limits.connections, defaults.connections),
            page: get(&limits.page).map_or(defaults.page, |Scalar(Objects(n))| *n),
            sources: get(&limits.sources).map_or(defaults.sources, |Scalar(Registered(n))| *n as usize),
            log: bytes(&limits.log, defaults.log),
        }
    }

    /// Tells of a process that could not do what the component may.
    fn check_isolation(&mut self, field: &Maybe<Isolation>, capabilities: &Capabilities) {
        let Some(Located { value: Isolation::Process, place }) = located(field) else {
            return;
        };
        if !(capabilities.http.is_empty() && capabilities.tcp.is_empty()) {
            let message = "found `process` beside `capabilities` for a network; a process that is shut in has none, so expected `shared`, or no `http` and `tcp`";
            self.fault(*place, message);
        }
    }

    fn capabilities(&mut self, field: &Maybe<raw::Capabilities>) -> Capabilities {
        let Some(capabilities) = get(field) else {
            return Capabilities::default();
        };
        let kubernetes = self.grants(&capabilities.kubernetes);
        let hosts = Hosts { http: &capabilities.http, tcp: &capabilities.tcp, internal: &capabilities.internal };
        let (http, tcp) = self.hosts(hosts);
        Capabilities { kubernetes, http, tcp }
    }

    /// Returns the hosts for HTTP and for TCP.
    pub(super) fn hosts(&mut self, Hosts { http, tcp, internal }: Hosts<'_>) -> (Vec<Destination>, Vec<Destination>) {
        let mut http = self.destinations(http, |Scalar(ToHttp(to))| to);
        let mut tcp = self.destinations(tcp, |Scalar(ToTcp(to))| to);
        for (name, place) in self.internal(internal) {
            let mut found = false;
            for entry in http.iter_mut().chain(&mut tcp) {
                let same = matches!(&entry.host, Host::Name(host) if *host == name);
                entry.internal |= same;
                found |= same;
            }
            if !found {
                self.unknown_host(&name, place, http.iter().chain(&tcp));
            }
        }
        (http, tcp)
    }

    fn destinations<F>(
        &mut self,
        field: &Maybe<Vec<Leaf<F>>>,
        of: impl Fn(&Scalar<F>) -> &Destination,
    ) -> Vec<Destination> {
        let mut destinations = Vec::new();
        for Located { value, place } in self.few_of(field, "hosts", MOST_HOSTS) {
            let to = of(value);
            if destinations.contains(to) {
                self.fault(*place, "found the same a second time; once is enough");
            }
            destinations.push(to.clone());
        }
        destinations
    }

    /// Returns the items of a list that are compared with each other; none if there are more than `most`.
    fn few_of<'s, T>(&mut self, field: &'s Maybe<Vec<Slot<T>>>, what: &str, most: usize) -> Vec<&'s Located<T>> {
        let Some(Located { value, place }) = located(field) else {
            return Vec::new();
        };
        let few = self.few(*place, (value.len(), what), most, "");
        if few { self.items(value, *place) } else { Vec::new() }
    }

    /// Returns the names of internal hosts, with their places.
    fn internal(&mut self, field: &Maybe<Vec<Leaf<HostName>>>) -> Vec<(Arc<str>, usize)> {
        let items = self.few_of(field, "hosts", MOST_HOSTS);
        let named = |item: &&Located<Scalar<HostName>>| (Arc::clone(&item.value.0.0), item.place);
        items.iter().map(named).collect()
    }

    fn unknown_host<'d>(&mut self, name: &str, place: usize, known: impl Iterator<Item = &'d Destination>) {
        let names = known.filter_map(|entry| match &entry.host {
            Host::Name(name) => Some(&**name),
            Host::Address(_) | Host::Below(_) => None,
        });
        let names: BTreeSet<&str> = names.collect();
        self.known(place, "host", name, &names);
    }

    fn grants(&mut self, field: &Maybe<Vec<Slot<raw::Grant>>>) -> Vec<Grant> {
        let mut kubernetes = Vec::<Grant>::new();
        for grant in self.few_of(field, "entries", MOST_GRANTS) {
            let Located { value: grant, place } = grant;
            let gvk = self.gvk(&grant.api_version, &grant.kind, *place);
            let verbs = self.need(&grant.verbs, *place, "verbs").map(|verbs| {
                if verbs.value.is_empty() {
                    self.fault(verbs.place, "found an empty list; expected at least one verb");
                }
                self.set(&verbs.value, verbs.place, |verb| *verb)
            });
            let namespaces = self.namespaces(&grant.namespaces);
            let Some((gvk, verbs)) = gvk.zip(verbs) else {
                continue;
            };
            let mut before = kubernetes.iter();
            if before.any(|grant| grant.gvk == gvk && grant.namespaces == namespaces) {
                self.fault(
                    *place,
                    format!("found {gvk} a second time; expected one entry with all its verbs, or other `namespaces`"),
                );
            }
            kubernetes.push(Grant { gvk, verbs, namespaces });
        }
        kubernetes
    }
}
