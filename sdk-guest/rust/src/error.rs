//! Decides what counts as an error: anything that can be shown, and what the daemon refused.

use std::fmt::{self, Debug, Display};

use crate::bindings::imports::capstan::operator::types::{CallError, CallReason};

/// The result of every function that an author writes or calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something did not work: a text for people, and for a refused call its [`Reason`].
///
/// Everything that implements [`Display`] becomes one by `?` or `into()`: texts, `serde_json::Error`, own error types. For
/// the same reason it does not implement `Display` itself: its text is [`message`](Error::message).
///
/// ```
/// fn check(html: &str) -> capstan_guest::Result<()> {
///     if !html.contains("<html") {
///         return Err("spec.html is not an HTML page".into());
///     }
///     let _: u16 = "80".parse()?;
///     Ok(())
/// }
/// assert_eq!(check("").unwrap_err().message(), "spec.html is not an HTML page");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    message: String,
    refused: Option<Refused>,
}

/// What a refused call said beside its message.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Refused {
    reason: Reason,
    code: u16,
}

/// Why the daemon or the API server refused a call.
pub type Reason = CallReason;

impl Error {
    /// Returns the text.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns why a call was refused; `None` if the error does not come from a call.
    pub fn reason(&self) -> Option<Reason> {
        self.refused.map(|refused| refused.reason)
    }

    /// Returns the API server's HTTP status, if it was asked.
    pub fn code(&self) -> Option<u16> {
        self.refused.map(|refused| refused.code).filter(|code| *code != 0)
    }

    /// Puts what was being done before the text: `context: message`.
    pub fn context(mut self, context: impl Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Makes the error of a call, as the daemon reports it.
    pub(crate) fn of_call(error: CallError) -> Self {
        let CallError { reason, code, message } = error;
        Self { message, refused: Some(Refused { reason, code }) }
    }

    /// Returns the text as the contract wants it.
    pub(crate) fn into_message(self) -> String {
        if self.message.is_empty() { "an error without a message".to_owned() } else { self.message }
    }
}

impl<E: Display> From<E> for Error {
    fn from(error: E) -> Self {
        Self { message: error.to_string(), refused: None }
    }
}

impl Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.refused {
            Some(Refused { reason, code: 0 }) => write!(f, " ({reason:?})"),
            Some(Refused { reason, code }) => write!(f, " ({reason:?}, {code})"),
            None => Ok(()),
        }
    }
}
