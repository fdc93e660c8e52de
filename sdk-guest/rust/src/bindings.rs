//! The generated bindings of the contract: hidden from authors, and the only place with unsafe code.
#![allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    rust_2018_idioms,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    reason = "generated; crossing the component's boundary means reading and writing linear memory"
)]

/// What the daemon offers. A component imports what it uses of it.
pub mod imports {
    wit_bindgen::generate!({
        inline: "package capstan:guest; world guest-imports { include capstan:operator/imports@0.1.0; }",
        path: "wit",
        additional_derives: [PartialEq, Eq, serde::Serialize, serde::Deserialize],
        additional_type_attributes: {
            "capstan:operator/types@0.1.0/call-reason": [#[serde(rename_all = "kebab-case")]],
            "capstan:operator/types@0.1.0/object-ref": [#[serde(rename_all = "camelCase")]],
            "capstan:operator/context@0.1.0/run-info": [#[serde(rename_all = "camelCase")]],
            "capstan:operator/log@0.1.0/level": [#[serde(rename_all = "kebab-case")]],
            "capstan:operator/memo@0.1.0/lifetime": [#[serde(rename_all = "kebab-case")]],
            "capstan:operator/operations@0.1.0/comparison": [#[serde(rename_all = "kebab-case")]],
            "capstan:operator/operations@0.1.0/propagation": [#[serde(rename_all = "kebab-case")]],
            "capstan:operator/operations@0.1.0/write-mode": [#[serde(rename_all = "kebab-case")]],
            "capstan:operator/recorder@0.1.0/severity": [#[serde(rename_all = "kebab-case")]],
            "capstan:operator/workflow@0.1.0/condition-role": [#[serde(rename_all = "kebab-case")]],
            "capstan:operator/workflow@0.1.0/operation": [#[serde(rename_all = "kebab-case")]],
        },
        generate_all,
    });
}

/// One world for each exported interface, so that a component exports what its author names and nothing else.
macro_rules! export_world {
    ($module:ident, $wit:literal $(, $attributes:tt)?) => {
        pub mod $module {
            wit_bindgen::generate!({
                inline: $wit,
                path: "wit",
                additional_derives: [PartialEq, Eq, serde::Serialize],
                $(additional_type_attributes: $attributes,)?
                pub_export_macro: true,
                with: { "capstan:operator/types@0.1.0": crate::bindings::imports::capstan::operator::types },
            });
        }
    };
}

export_world!(
    reconciler,
    "package capstan:guest; world guest-reconciler { export capstan:operator/reconciler@0.1.0; }"
);
export_world!(cleaner, "package capstan:guest; world guest-cleaner { export capstan:operator/cleaner@0.1.0; }");
export_world!(
    error_handler,
    "package capstan:guest; world guest-error-handler { export capstan:operator/error-handler@0.1.0; }",
    { "capstan:operator/error-handler@0.1.0/failure-origin": [#[serde(rename_all = "kebab-case")]] }
);
export_world!(
    retry_policy,
    "package capstan:guest; world guest-retry-policy { export capstan:operator/retry-policy@0.1.0; }",
    { "capstan:operator/retry-policy@0.1.0/failure-class": [#[serde(rename_all = "kebab-case")]] }
);
export_world!(validator, "package capstan:guest; world guest-validator { export capstan:operator/validator@0.1.0; }");
export_world!(
    initializer,
    "package capstan:guest; world guest-initializer { export capstan:operator/initializer@0.1.0; }"
);
export_world!(dependent, "package capstan:guest; world guest-dependent { export capstan:operator/dependent@0.1.0; }");
export_world!(bulk, "package capstan:guest; world guest-bulk { export capstan:operator/bulk@0.1.0; }");
export_world!(external, "package capstan:guest; world guest-external { export capstan:operator/external@0.1.0; }");
export_world!(matcher, "package capstan:guest; world guest-matcher { export capstan:operator/matcher@0.1.0; }");
export_world!(condition, "package capstan:guest; world guest-condition { export capstan:operator/condition@0.1.0; }");
export_world!(poller, "package capstan:guest; world guest-poller { export capstan:operator/poller@0.1.0; }");
export_world!(
    description,
    "package capstan:guest; world guest-description { export capstan:operator/description@0.1.0; }"
);
export_world!(inbound, "package capstan:guest; world guest-inbound { export capstan:operator/inbound@0.1.0; }");
export_world!(filter, "package capstan:guest; world guest-filter { export capstan:operator/filter@0.1.0; }");
export_world!(mapper, "package capstan:guest; world guest-mapper { export capstan:operator/mapper@0.1.0; }");
export_world!(
    secondary_mapper,
    "package capstan:guest; world guest-secondary-mapper { export capstan:operator/secondary-mapper@0.1.0; }"
);
export_world!(
    resource_poller,
    "package capstan:guest; world guest-resource-poller { export capstan:operator/resource-poller@0.1.0; }"
);
