//! What a manifest declares of requests from outside: who may send them, how large they are, and how many there may be.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ConfigValue;

/// What is let in at the address of an inbound source (IB rules).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// Whose requests are let in.
    pub senders: Senders,
    /// How the component is told of bodies.
    pub body: BodyForm,
    /// The most bytes of a body.
    pub body_size: u64,
    /// The most requests a second.
    pub per_second: u32,
}

/// Whose requests are let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Senders {
    /// Those that have the token which a Secret has.
    Token(ConfigValue),
    /// All that reach the port: the component looks at who sends.
    Anybody,
}

/// How the component is told of bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyForm {
    /// As the text that they are; what is no UTF-8 is refused.
    #[default]
    Text,
    /// In base64.
    Base64,
}

/// The largest body of a request, in bytes: it is an argument of a call.
pub const LARGEST_BODY: u64 = 1 << 20;

/// The key of a Secret's data that has the token, where the manifest names none.
pub const TOKEN_KEY: &str = "token";

impl Senders {
    /// Returns where the token is that requests need; `None`: they need none.
    pub fn token(&self) -> Option<&ConfigValue> {
        match self {
            Self::Token(value) => Some(value),
            Self::Anybody => None,
        }
    }

    /// Returns the same, to be changed.
    pub(crate) fn token_mut(&mut self) -> Option<&mut ConfigValue> {
        match self {
            Self::Token(value) => Some(value),
            Self::Anybody => None,
        }
    }
}

impl BodyForm {
    /// Returns its name in a manifest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Base64 => "base64",
        }
    }

    /// Returns a body as the component is told of it; `None` if it is no text.
    pub fn write(self, body: Vec<u8>) -> Option<String> {
        match self {
            Self::Text => String::from_utf8(body).ok(),
            Self::Base64 => Some(STANDARD.encode(body)),
        }
    }
}
