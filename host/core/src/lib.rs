//! The decisions of Capstan. Nothing here talks to an API server or to a component; both are given as traits.
//!
//! In reading order: [`text`] makes what others say fit to be shown, [`budget`] bounds what work on documents costs, [`object`] has the
//! shared nouns, and [`kinds`] and [`schema`] what is known of kinds. [`cluster`] and [`guest`] are the two outsides, [`manifest`] what an
//! operator declares, read by [`yaml`]. [`cache`] keeps the objects of one informer, [`source::filter`] says which changes matter and [`source::mapper`] to
//! whom; [`source`] puts these together for one controller. [`external`] keeps what is polled outside of the cluster. [`queue`] is the only hand-off between watching and working;
//! [`dispatcher`] takes from it. [`dependent`] and [`workflow`] decide about what a primary wants to exist, [`conditions`] what its status says of that,
//! [`writes`] about what a component asks to be written. [`reconciler`] is one run, top to bottom. [`rollout`]
//! decides what a change of the manifests means while all this goes on, [`rbac`] which rights in the cluster manifests
//! ask for, [`operator`] what operators that are objects of the cluster are told, and [`permission`] what a component may make of them. [`bucket`] and [`outbox`] keep plugins from each other's
//! share of requests and Events; [`network`] says where components may connect to, [`kubeconfig`] how the daemon reaches other clusters, [`registry`] what it asks of those that have components; [`health`] is about the API server. [`wire`] is for what crosses between processes.
//!
//! The way of one event: an informer applies it to a [`cache`] and hands the change to each [`source`], whose triggers
//! reach the [`queue`]; the [`dispatcher`] takes a ticket and spawns [`reconciler::execute`], which reads the primary
//! again, decides, walks the workflow, calls the guest, writes, and says how it ended; the queue decides when to run
//! again.

pub mod backoff;
pub mod bucket;
pub mod budget;
pub mod cache;
pub mod cel;
pub mod cluster;
pub mod conditions;
pub mod cpu;
pub mod dependent;
pub mod dispatcher;
pub mod external;
pub mod granted;
pub mod guest;
pub mod health;
pub mod kinds;
pub mod kubeconfig;
pub mod lately;
pub mod manifest;
pub mod network;
pub mod object;
pub mod operator;
pub mod outbox;
pub mod patch;
pub mod permission;
pub mod queue;
pub mod rbac;
pub mod reconciler;
pub mod registry;
pub mod rollout;
pub mod room;
pub mod schema;
pub mod source;
pub mod startup;
pub mod text;
pub mod turns;
pub mod wire;
pub mod workflow;
pub mod writes;
pub mod yaml;
