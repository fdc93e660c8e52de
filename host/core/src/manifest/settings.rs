//! A controller's settings as a component reads them: the manifest's names, defaults filled in, durations as written there.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::events::{EventKey, Events};
use super::filters::Question;
use super::inbound::{Inbound, Senders};
use super::polls::Polled;
use super::{
    Bound, Bytes, Condition, Controller, Dependent, External, Filters, Keep, Keys, Manage, Mapper, MappingKeys,
    Matching, Namespaces, Node, Outside, Retry, Secondaries, Source, Time, Workflow,
};
use crate::cel::{Expression, Template};
use crate::guest::ConditionRole;
use crate::object::Gvk;
use crate::object::pointer::Pointer;
use crate::object::shard::Shard;

impl Controller {
    /// Returns the controller's entry of the manifest as JSON, with its name and with all defaults (`context.settings`).
    pub fn settings(&self) -> Value {
        let limit = self.rate_limit.as_ref().map_or(
            json!("none"),
            |limit| json!({ "maxReconciliations": limit.max_reconciliations, "within": written(limit.within) }),
        );
        let min_reschedule = Some(self.min_reschedule).filter(|interval| !interval.is_zero());
        json!({
            "name": &*self.own_name,
            "plugin": self.has_component().then_some(&*self.plugin),
            "primary": kind(&self.primary),
            "cluster": self.cluster.as_deref(),
            "namespaces": namespaces(&self.namespaces),
            "labelSelector": self.label_selector.as_deref(),
            "fieldSelector": self.field_selector.as_deref(),
            "shardSelector": self.shard_selector.as_ref().map(Shard::as_str),
            "pageSize": self.page_size,
            "keep": keep(&self.keep),
            "drop": drop(&self.keep),
            "bounded": self.bounded.map(bounded),
            "packed": self.stored.is_packed(),
            "generationAware": self.generation_aware,
            "triggerOnAllEvents": self.all_events(),
            "filters": filters(&self.filters),
            "paused": self.paused,
            "events": events(&self.events),
            "statusConditions": self.status_conditions,
            "finalizer": self.finalizer.as_deref(),
            "finalizers": { "formerly": self.former_finalizers.iter().map(|name| &**name).collect::<Vec<_>>() },
            "fieldManager": &*self.field_manager,
            "serverSideApply": self.server_side_apply,
            "fieldValidation": self.field_validation,
            "retry": self.retry.as_ref().map_or(json!("none"), |retry| self.retries(retry)),
            "rateLimit": limit,
            "minRescheduleInterval": min_reschedule.map_or("none".to_owned(), written),
            "maxReconciliationInterval": self.max_interval.map_or("none".to_owned(), written),
            "reconciliationTimeout": self.run_timeout.map_or("none".to_owned(), written),
            "concurrency": self.concurrency,
            "cacheSyncTimeout": written(self.cache_sync_timeout),
            "onStartError": self.on_start_error,
            "indexes": indexes(&self.indexes),
            "sources": sources(self),
            "workflow": workflow(&self.workflow),
            "status": self.status().map(made),
            "standalone": each(&self.standalone, workflow),
        })
    }

    fn retries(&self, retry: &Retry) -> Value {
        let by = self.retry_by.iter().map(|(class, retry)| (class.name().to_owned(), Value::Object(delays(retry))));
        let mut fields = delays(retry);
        fields.insert("by".to_owned(), by.collect());
        Value::Object(fields)
    }
}

fn events(events: &Events) -> Value {
    let cel = |cel: &Expression| json!({ "cel": cel.as_str() });
    let key = match &events.key {
        EventKey::Message => json!("message"),
        EventKey::TypeAndReason => json!("typeAndReason"),
        EventKey::Cel(key) => cel(key),
    };
    let Events { name, owner_reference, of_failures, .. } = events;
    json!({ "key": key, "name": name.as_ref().map(cel), "ownerReference": owner_reference, "ofFailures": of_failures })
}

fn delays(retry: &Retry) -> Map<String, Value> {
    let fields = [
        ("initialInterval", json!(written(retry.initial_interval))),
        ("multiplier", json!(retry.multiplier)),
        ("maxAttempts", retry.max_attempts.map_or(json!("unlimited"), Value::from)),
        ("maxInterval", json!(retry.max_interval.map(written))),
        ("jitter", json!(retry.jitter)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn sources(controller: &Controller) -> Value {
    let watched = controller.sources.iter().map(|(name, one)| (name.to_string(), source(one)));
    let inbound = |name: &Arc<str>| controller.inbound.get(name);
    let polled = controller.externals.iter().map(|(name, one)| (name.to_string(), external(one, inbound(name))));
    Value::Object(watched.chain(polled).collect())
}

fn external(external: &External, inbound: Option<&Inbound>) -> Value {
    let External { id, things, memory, filters: asked, polled } = external;
    let filters = filters(asked);
    let id = &**id.text();
    let bounded = json!({ "things": things, "memory": Bytes(*memory).to_string() });
    match polled {
        Polled::Together { every } => {
            json!({ "poll": { "every": written(*every), "id": id, "filters": filters, "bounded": bounded } })
        }
        Polled::Each(each) => json!({ "pollEach": {
            "every": each.every.map(written),
            "id": id,
            "filters": filters,
            "firstAfter": written(each.first_after),
            "when": each.when.as_ref().map(|cel| json!({ "cel": cel.as_str() })),
            "concurrency": each.concurrency,
            "bounded": bounded,
        } }),
        Polled::Inbound(fetch) => json!({ "inbound": inbound.map(|inbound| json!({
            "token": match &inbound.senders {
                Senders::Token(at) => json!({ "secret": { "name": &*at.name, "key": &*at.key } }),
                Senders::Anybody => json!("none"),
            },
            "id": id,
            "filters": filters,
            "body": inbound.body.name(),
            "bodySize": Bytes(inbound.body_size).to_string(),
            "requestsPerSecond": inbound.per_second,
            "bounded": bounded,
            "fetch": fetch.as_ref().map(|each| json!({ "every": each.every.map(written), "concurrency": each.concurrency })),
        })) }),
    }
}

fn source(source: &Source) -> Value {
    let mapper = match &source.mapper {
        Mapper::OwnerReference => json!("ownerReference"),
        Mapper::OwnerKind => json!("ownerKind"),
        Mapper::Annotations(keys) => json!({ "annotations": mapping(keys) }),
        Mapper::Labels(keys) => json!({ "labels": mapping(keys) }),
        Mapper::Named(names) => keys(names),
        Mapper::Export(name) => json!({ "export": &**name }),
        Mapper::Index(by) => json!({ "index": { "name": &*by.name, "key": keys(&by.key) } }),
    };
    json!({ "informer": {
        "apiVersion": source.gvk.api_version(),
        "kind": &*source.gvk.kind,
        "cluster": source.cluster.as_deref(),
        "namespaces": source.namespaces.as_ref().map(namespaces),
        "labelSelector": source.label_selector.as_deref(),
        "fieldSelector": source.field_selector.as_deref(),
        "shardSelector": source.shard_selector.as_ref().map(Shard::as_str),
        "pageSize": source.page_size,
        "keep": keep(&source.keep),
        "drop": drop(&source.keep),
        "packed": source.stored.is_packed(),
        "shared": source.shared,
        "startPriority": source.start_priority,
        "bounded": source.bounded.map(bounded),
        "mapper": mapper,
        "secondaries": source.secondaries.as_ref().map(secondaries),
        "acrossNamespaces": source.across_namespaces,
        "filters": filters(&source.filters),
        "indexes": indexes(&source.indexes),
    } })
}

fn workflow(workflow: &Workflow) -> Value {
    json!({
        "invocation": if workflow.explicit { "explicit" } else { "automatic" },
        "errors": if workflow.errors_to_reconciler { "reconciler" } else { "fail" },
        "dependents": workflow.nodes().map(|(name, it)| (name.to_string(), node(it))).collect::<Map<_, _>>(),
    })
}

fn node(node: Node<'_>) -> Value {
    match node {
        Node::Object(node) => dependent(node),
        Node::Thing(node) => outside(node),
    }
}

fn outside(outside: &Outside) -> Value {
    let condition = |role| outside.conditions.of(role).map(condition);
    let state = outside.state.as_ref().map(|state| &state.dependent.gvk);
    json!({
        "external": {
            "source": &*outside.source,
            "key": outside.key.as_ref().map(|key| json!({ "cel": key.as_str() })),
            "state": state.map(|gvk| json!({ "apiVersion": gvk.api_version(), "kind": &*gvk.kind })),
        },
        "bulk": outside.bulk,
        "dependsOn": outside.depends_on.iter().map(|name| &**name).collect::<Vec<_>>(),
        "manage": verbs(outside.manage),
        "match": matching(&outside.matching),
        "name": outside.called.as_ref().map(|id| json!({ "cel": id.as_str() })),
        "config": *outside.config,
        "activation": condition(ConditionRole::Activation),
        "reconcilePrecondition": condition(ConditionRole::ReconcilePrecondition),
        "readyPostcondition": condition(ConditionRole::ReadyPostcondition),
        "deletePostcondition": condition(ConditionRole::DeletePostcondition),
    })
}

fn verbs(manage: Manage) -> Vec<&'static str> {
    let verbs = [("create", manage.create), ("update", manage.update), ("delete", manage.delete)];
    verbs.into_iter().filter_map(|(verb, may)| may.then_some(verb)).collect()
}

fn dependent(dependent: &Dependent) -> Value {
    let condition = |role| dependent.conditions.of(role).map(condition);
    let called = dependent.called.as_ref();
    json!({
        "apiVersion": dependent.gvk.api_version(),
        "kind": &*dependent.gvk.kind,
        "bulk": dependent.bulk,
        "desired": dependent.template.as_ref().map(made),
        "dependsOn": dependent.depends_on.iter().map(|name| &**name).collect::<Vec<_>>(),
        "manage": verbs(dependent.manage),
        "garbageCollected": dependent.garbage_collected,
        "createOnly": dependent.create_only,
        "adopt": dependent.adopt,
        "serverSideApply": dependent.server_side_apply,
        "fieldValidation": dependent.field_validation,
        "match": matching(&dependent.matching),
        "source": dependent.source.as_deref(),
        "filters": filters(&dependent.filters),
        "name": called.map(|called| json!({ "cel": called.name.as_str() })),
        "namespace": called.and_then(|called| called.namespace.as_ref()).map(|text| json!({ "cel": text.as_str() })),
        "onRename": dependent.on_rename,
        "onImmutable": dependent.on_immutable,
        "detectApiVersionChange": dependent.detect_api_version_change,
        "mapping": mapping(&dependent.mapping),
        "config": *dependent.config,
        "activation": condition(ConditionRole::Activation),
        "reconcilePrecondition": condition(ConditionRole::ReconcilePrecondition),
        "readyPostcondition": condition(ConditionRole::ReadyPostcondition),
        "deletePostcondition": condition(ConditionRole::DeletePostcondition),
    })
}

fn made(template: &Template) -> Value {
    json!({ "template": template.written() })
}

fn matching(matching: &Matching) -> Value {
    match matching {
        Matching::Usual => json!("usual"),
        Matching::DryRun => json!("dryRun"),
        Matching::Export(name) => json!({ "export": &**name }),
        Matching::Generic(flags) => json!({ "generic": {
            "ignore": flags.ignore.iter().map(|pointer| &**pointer).collect::<Vec<_>>(),
            "strictMetadata": flags.strict_metadata,
            "equality": flags.equality,
        } }),
    }
}

fn condition(condition: &Condition) -> Value {
    match condition {
        Condition::Gone => json!("gone"),
        Condition::CrdPresent => json!("crdPresent"),
        Condition::Cel(text) => json!({ "cel": text.as_str() }),
        Condition::Export(name) => json!({ "export": &**name }),
        Condition::Ready(kind) => json!({ "ready": kind }),
    }
}

fn filters(filters: &Filters) -> Value {
    let Filters { on_add, on_update, on_delete, generic } = filters;
    let questions = [("onAdd", on_add), ("onUpdate", on_update), ("onDelete", on_delete), ("generic", generic)];
    let asked = questions.into_iter().filter_map(|(name, question)| Some((name, question.as_ref()?)));
    Value::Object(asked.map(|(name, asked)| (name.to_owned(), question(asked))).collect())
}

fn question(question: &Question) -> Value {
    match question {
        Question::Cel(cel) => json!({ "cel": cel.as_str() }),
        Question::Export(name) => json!({ "export": &**name }),
    }
}

fn secondaries(secondaries: &Secondaries) -> Value {
    match secondaries {
        Secondaries::Named(names) => keys(names),
        Secondaries::Export(name) => json!({ "export": &**name }),
    }
}

fn mapping(keys: &MappingKeys) -> Value {
    let or_none = |key: &Option<Arc<str>>| key.as_deref().unwrap_or("none").to_owned();
    json!({
        "name": &*keys.name,
        "namespace": or_none(&keys.namespace),
        "kind": or_none(&keys.kind),
        "acrossNamespaces": keys.across_namespaces,
    })
}

fn namespaces(namespaces: &Namespaces) -> Value {
    match namespaces {
        Namespaces::All => json!("all"),
        Namespaces::Own => json!("own"),
        Namespaces::Listed(names) => names.iter().map(|name| &**name).collect(),
        Namespaces::Selected(selected) => json!({ "selector": &*selected.selector }),
    }
}

fn keep(keep: &Keep) -> Value {
    match keep {
        Keep::Whole | Keep::Without(_) => Value::Null,
        Keep::Metadata => json!("metadata"),
        Keep::Only(kept) => pointers(kept),
    }
}

fn drop(keep: &Keep) -> Value {
    match keep {
        Keep::Whole | Keep::Metadata | Keep::Only(_) => Value::Null,
        Keep::Without(left_out) => pointers(left_out),
    }
}

fn bounded(bound: Bound) -> Value {
    let bytes = Bytes(u64::try_from(bound.bytes).unwrap_or(u64::MAX));
    json!({ "objects": bound.objects, "bytes": bytes.to_string(), "unused": bound.unused.map(written) })
}

fn pointers(pointers: &[Pointer]) -> Value {
    pointers.iter().map(|pointer| &**pointer.text()).collect()
}

fn kind(gvk: &Gvk) -> Value {
    json!({ "apiVersion": gvk.api_version(), "kind": &*gvk.kind })
}

fn indexes(indexes: &std::collections::BTreeMap<Arc<str>, Keys>) -> Value {
    each(indexes, keys)
}

fn keys(keys: &Keys) -> Value {
    match keys {
        Keys::Pointer(pointer) => json!({ "pointer": &**pointer.text() }),
        Keys::Cel(cel) => json!({ "cel": cel.as_str() }),
    }
}

fn each<T>(entries: &std::collections::BTreeMap<Arc<str>, T>, one: impl Fn(&T) -> Value) -> Value {
    Value::Object(entries.iter().map(|(name, entry)| (name.to_string(), one(entry))).collect::<Map<_, _>>())
}

fn written(duration: Duration) -> String {
    Time(duration).to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_settings_are_a_valid_entry_of_a_manifest_and_mean_the_same() {
        // DR-7
        let text = "
apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: { name: a }
spec:
  plugins: { p: { component: { path: p.wasm } } }
  controllers:
    c:
      plugin: p
      primary: { apiVersion: sample.dev/v1, kind: Page }
      retry: { initialInterval: 1s, maxAttempts: 2 }
      defaultFilters: false
      filters: { generic: { cel: has(object.spec) } }
      indexes: { by: { cel: object.spec.a }, at: { pointer: /spec/b } }
      keep: [/spec]
      sources:
        s: { informer: { apiVersion: v1, kind: Secret, mapper: { index: { name: by } }, secondaries: { pointer: /spec/s }, acrossNamespaces: true, filters: { onDelete: { cel: finalStateUnknown } } } }
        x: { informer: { apiVersion: v1, kind: Pod, mapper: { export: a }, secondaries: { export: b }, filters: { onAdd: { export: c }, onUpdate: { export: d }, onDelete: { export: e }, generic: { export: f } } } }
        t: { informer: { apiVersion: v1, kind: Pod, mapper: { cel: object.spec.a }, drop: [/status], shared: false } }
        n: { informer: { apiVersion: v1, kind: Node, keep: metadata, bounded: { objects: 7, unused: 1m } } }
        u: { poll: { every: 30s, id: /name, bounded: { things: 7 } } }
        v: { pollEach: { every: 1m, id: /id, when: { cel: has(primary.spec.domain) }, firstAfter: 5s, concurrency: 2, bounded: { memory: 1Mi } } }
        w: { pollEach: { every: 1m, id: /id } }
      workflow:
        dependents:
          cm: { apiVersion: v1, kind: ConfigMap, desired: { template: { metadata: { name: '${primary.metadata.name}' }, data: { a: '$${x} ${primary.spec.a}', b: ['${primary.spec.b}', 1] } } }, reconcilePrecondition: { cel: primary.spec.on }, config: { x: 1 }, name: { cel: primary.metadata.name }, namespace: { cel: primary.spec.where }, onRename: delete }
          d: { apiVersion: apps/v1, kind: Deployment, dependsOn: [cm], match: { generic: { ignore: [/spec] } }, readyPostcondition: { ready: deployment } }
";
        let operator = super::super::parse(text, Path::new("a.yaml")).unwrap().remove(0);
        let controller = &operator.controllers["c"];
        let mut settings = controller.settings();
        // What a manifest leaves out instead of stating it: names, and what is null.
        settings.as_object_mut().unwrap().remove("name");
        let mut document = json!({
            "apiVersion": "capstan.dev/v1alpha1", "kind": "Operator", "metadata": { "name": "a" },
            "spec": { "plugins": { "p": { "component": { "path": "p.wasm" } } }, "controllers": { "c": settings } },
        });
        drop_nulls(&mut document);
        for dependent in
            document["spec"]["controllers"]["c"]["workflow"]["dependents"].as_object_mut().unwrap().values_mut()
        {
            // Refused where nothing is mapped by it.
            dependent.as_object_mut().unwrap().remove("mapping");
        }
        let again = super::super::parse(&document.to_string(), Path::new("a.yaml")).unwrap().remove(0);
        assert_eq!(again.controllers["c"].settings(), controller.settings());
    }

    fn drop_nulls(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|_, value| !value.is_null());
                map.values_mut().for_each(drop_nulls);
            }
            Value::Array(list) => list.iter_mut().for_each(drop_nulls),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}
