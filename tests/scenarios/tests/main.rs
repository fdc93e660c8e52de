//! What Capstan does on a real API server, one module per theme. A test that shows a scenario starts with its number.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]
#![allow(
    clippy::needless_pass_by_value,
    clippy::format_collect,
    clippy::too_many_lines,
    reason = "calls read like sentences: values are given as they are written"
)]

mod all_events;
mod apart;
mod attacks;
mod bad_input;
mod base;
mod bulk;
mod ceilings;
mod chart;
mod clusters;
mod compiling;
mod conditions;
mod config;
mod contests;
mod dependents;
mod dev;
mod endless;
mod expectations;
mod exports;
mod external;
mod field_validation;
mod fit;
mod following;
mod generated;
mod guide;
mod identity;
mod image;
mod inbound;
mod kept;
mod kinds;
mod languages;
mod lifecycle;
mod lot;
mod mysql_schema;
mod names;
mod namespaces;
mod neighbours;
mod network;
mod operations;
mod operators;
mod outage;
mod pause;
mod permissions;
mod polling;
mod primary;
mod registered;
mod registries;
mod sample_operations;
mod secondaries;
mod sources;
mod swap;
mod takeover;
mod templates;
mod tomcat;
mod tried;
mod typed;
mod validation;
mod web;
mod webpage;
mod workflows;
