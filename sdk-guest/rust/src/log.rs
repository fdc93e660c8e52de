//! Writes to the daemon's log. Plugin, controller and primary are added to each line.
//!
//! ```
//! # let page = "hello";
//! capstan_guest::info!("reconciled", page, replicas = 2);
//! ```

use std::fmt::Display;

use crate::bindings::imports::capstan::operator as contract;
use crate::daemon;

/// How important a line is.
pub type Level = contract::log::Level;

/// Writes a line with fields; the macros [`info!`](crate::info) and the like are shorter. The message says what happened, the
/// fields have the facts.
pub fn write(level: Level, message: &str, fields: &[(&str, &dyn Display)]) {
    let fields: Vec<contract::types::Pair> = fields
        .iter()
        .map(|(name, value)| contract::types::Pair { name: (*name).to_owned(), value: value.to_string() })
        .collect();
    daemon::log::write(level, message, &fields);
}

/// Writes a line of the level `Trace`: each step.
#[macro_export]
macro_rules! trace {
    ($($line:tt)+) => { $crate::__line!(Trace, $($line)+) };
}

/// Writes a line of the level `Debug`: for finding faults.
#[macro_export]
macro_rules! debug {
    ($($line:tt)+) => { $crate::__line!(Debug, $($line)+) };
}

/// Writes a line of the level `Info`: worth knowing.
///
/// ```
/// # let name = "hello";
/// capstan_guest::info!("published", page = name, replicas = 2);
/// ```
#[macro_export]
macro_rules! info {
    ($($line:tt)+) => { $crate::__line!(Info, $($line)+) };
}

/// Writes a line of the level `Warn`: odd, but it goes on.
#[macro_export]
macro_rules! warn {
    ($($line:tt)+) => { $crate::__line!(Warn, $($line)+) };
}

/// Writes a line of the level `Error`: something failed.
#[macro_export]
macro_rules! error {
    ($($line:tt)+) => { $crate::__line!(Error, $($line)+) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __line {
    ($level:ident, $message:expr $(, $name:ident $(= $value:expr)?)* $(,)?) => {
        $crate::log::write($crate::log::Level::$level, $message, &[
            $((::core::stringify!($name), &$crate::__field!($name $(= $value)?))),*
        ])
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __field {
    ($name:ident) => {
        $name
    };
    ($name:ident = $value:expr) => {
        $value
    };
}
