//! Decides which part of a long answer a request asks for.

use axum::http::Uri;

/// The most entries in a part.
const LIMIT: usize = 500;

/// A part of a long answer: `?limit=100&continue=…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// At most this many entries.
    pub limit: usize,
    /// The `continue` of the part before; `None` = from the beginning.
    pub after: Option<String>,
}

impl Part {
    /// Reads the part that a query asks for.
    pub fn of(uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        let mut part = Self { limit: LIMIT, after: None };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "limit" => part.limit = value.parse().unwrap_or(LIMIT).clamp(1, LIMIT),
                "continue" if !value.is_empty() => part.after = Some(value.into_owned()),
                _ => {}
            }
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_asks_for_a_part() {
        let part = |text: &str| Part::of(&text.parse().unwrap());
        let expected = |limit, after: Option<&str>| Part { limit, after: after.map(str::to_owned) };
        assert_eq!(part("/x"), expected(LIMIT, None));
        assert_eq!(part("/x?limit=7&continue=a%2Fb%2Fc"), expected(7, Some("a/b/c")));
        assert_eq!(part("/x?limit=0"), expected(1, None));
        assert_eq!(part("/x?limit=999999999999999999999&continue="), expected(LIMIT, None));
    }
}
