//! The decisions of Capstan. Nothing here talks to an API server or to a component; both are given as traits.
//!
//! In reading order: [`object`] has the shared nouns; [`manifest`] what a plugin declares; [`cluster`] and [`guest`]
//! are the two outsides.

pub mod cluster;
pub mod guest;
pub mod manifest;
pub mod object;
