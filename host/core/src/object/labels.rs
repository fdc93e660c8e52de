//! What may be a label, and label selectors in the syntax of kubectl: `app=web`, `tier in (a, b)`, `!canary`, with commas between.

use std::collections::{BTreeMap, BTreeSet};

use crate::yaml::Broken;

/// What labels must be, or fields of objects: all of it, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(BTreeMap<String, Requirement>);

/// What one label must be. It is kept by kind of term, so that two selectors are compared in one walk, however many terms they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Requirement {
    exists: bool,
    absent: bool,
    /// The values that are left; `None`: any.
    within: Option<BTreeSet<String>>,
    /// None of these; also met if there is no such label.
    without: BTreeSet<String>,
    above: Option<i64>,
    below: Option<i64>,
}

/// One term of a selector.
enum Term {
    Exists(String),
    Absent(String),
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Greater(String, i64),
    Less(String, i64),
}

/// Bytes of a selector, of labels, fields or shards.
pub const LONGEST: usize = 16 << 10;

/// Whether `text` is a DNS label (RFC 1123).
pub fn is_label(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(allowed) && !text.starts_with('-') && !text.ends_with('-')
}

/// Whether `text` is one DNS label or several with dots between them.
pub fn is_domain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Whether `text` may be the value of a label, or the last part of its key, which must not be empty.
pub fn is_tag(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let ends = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    text.len() <= 63 && text.bytes().all(allowed) && ends(bytes.first()) && ends(bytes.last())
}

/// Whether `text` may be the key of a label or annotation.
pub fn is_key(text: &str) -> bool {
    let (domain, name) = text.rsplit_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    domain.is_none_or(is_domain) && is_tag(name) && !name.is_empty()
}

impl Selector {
    /// Reads a selector. The empty text selects everything.
    ///
    /// # Errors
    /// [`Broken`], which says what is missing or wrong, and at which character.
    ///
    /// ```
    /// # use capstan_core::object::labels::Selector;
    /// let selector = Selector::parse("app=web,!canary").unwrap();
    /// assert!(selector.matches(|key| (key == "app").then_some("web")));
    /// assert_eq!(Selector::parse("app in web").unwrap_err().to_string(), "expected `(` before the values, at character 8");
    /// ```
    pub fn parse(text: &str) -> Result<Self, Broken> {
        if text.len() > LONGEST {
            let message = format!("a selector has at most {LONGEST} bytes");
            return Err(Broken { offset: 0, message });
        }
        let mut parser = Parser { tokens: tokens(text), next: 0, end: text.chars().count() };
        let (mut selector, mut first) = (Self::default(), true);
        while let Some(term) = parser.term(first)? {
            selector.add(term);
            first = false;
        }
        Ok(selector)
    }

    /// Reads a field selector, such as `metadata.name=config,status.phase!=Failed`, as far as its terms are some.
    pub fn of_fields(text: &str) -> Self {
        let mut selector = Self::default();
        let owned = |text: &str| text.trim().to_owned();
        for term in text.split(',') {
            let (equal, sign) = if term.contains("!=") { (false, "!=") } else { (true, "=") };
            let Some((field, value)) = term.split_once(sign) else { continue };
            let value = BTreeSet::from([owned(value.strip_prefix('=').unwrap_or(value))]);
            let field = owned(field);
            selector.add(if equal { Term::In(field, value) } else { Term::NotIn(field, value) });
        }
        selector
    }

    fn at(&mut self, key: String) -> &mut Requirement {
        self.0.entry(key).or_default()
    }

    fn add(&mut self, term: Term) {
        match term {
            Term::Exists(key) => self.at(key).exists = true,
            Term::Absent(key) => self.at(key).absent = true,
            Term::In(key, values) => {
                let within = &mut self.at(key).within;
                *within = Some(match within.take() {
                    Some(left) => left.into_iter().filter(|value| values.contains(value)).collect(),
                    None => values,
                });
            }
            Term::NotIn(key, values) => self.at(key).without.extend(values),
            Term::Greater(key, bound) => {
                let above = &mut self.at(key).above;
                *above = Some(above.map_or(bound, |known| known.max(bound)));
            }
            Term::Less(key, bound) => {
                let below = &mut self.at(key).below;
                *below = Some(below.map_or(bound, |known| known.min(bound)));
            }
        }
    }

    /// Whether labels meet all requirements; `label` returns the value of a key.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|(key, requirement)| requirement.is_met(label(key)))
    }

    /// Returns true if there are plainly no labels that meet both, because they want what can't be of one of them.
    pub fn excludes(&self, other: &Self) -> bool {
        let (one, other) = if self.0.len() <= other.0.len() { (&self.0, &other.0) } else { (&other.0, &self.0) };
        let mut both = one.iter().filter_map(|(key, one)| Some((one, other.get(key)?)));
        both.any(|(one, other)| one.denies(other) || other.denies(one))
    }
}

impl Requirement {
    fn is_met(&self, value: Option<&str>) -> bool {
        let Some(value) = value else {
            return !self.wants_some();
        };
        let Self { exists: _, absent, within, without, above, below } = self;
        let number = || value.parse::<i64>().ok();
        !absent
            && within.as_ref().is_none_or(|within| within.contains(value))
            && !without.contains(value)
            && above.is_none_or(|bound| number().is_some_and(|number| number > bound))
            && below.is_none_or(|bound| number().is_some_and(|number| number < bound))
    }

    fn wants_some(&self) -> bool {
        self.exists || self.within.is_some() || self.above.is_some() || self.below.is_some()
    }

    /// Whether no value of the label meets both, seen from this one.
    fn denies(&self, other: &Self) -> bool {
        let no_value = |within: &BTreeSet<String>| {
            within.is_subset(&other.without) || other.within.as_ref().is_some_and(|other| within.is_disjoint(other))
        };
        (self.absent && other.wants_some())
            || self.within.as_ref().is_some_and(no_value)
            || self.above.zip(other.below).is_some_and(|(above, below)| below <= above.saturating_add(1))
    }
}

// === tokens ===

/// A word or a sign, and the characters before it.
type Token = (usize, String);

const SIGNS: [char; 7] = [',', '(', ')', '=', '!', '<', '>'];

/// Cuts a text into words and signs; `==` and `!=` are one sign.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut goes_on = false;
    for (offset, c) in text.chars().enumerate() {
        let sign = SIGNS.contains(&c);
        match tokens.last_mut() {
            Some((_, last)) if goes_on && !sign && !c.is_whitespace() => last.push(c),
            Some((at, last)) if c == '=' && *at + 1 == offset && (last == "=" || last == "!") => {
                last.push(c);
            }
            _ if c.is_whitespace() => {}
            _ => tokens.push((offset, c.to_string())),
        }
        goes_on = !sign && !c.is_whitespace();
    }
    tokens
}

fn is_word(token: &str) -> bool {
    !token.starts_with(SIGNS)
}

// === parsing ===

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    end: usize,
}

impl Parser {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.next).map(|(_, token)| token.as_str())
    }

    fn take(&mut self) -> Option<String> {
        let token = self.peek().map(str::to_owned);
        self.next += usize::from(token.is_some());
        token
    }

    fn take_if(&mut self, sign: &str) -> bool {
        let found = self.peek() == Some(sign);
        self.next += usize::from(found);
        found
    }

    fn broken<T>(&self, message: impl Into<String>) -> Result<T, Broken> {
        let offset = self.tokens.get(self.next).map_or(self.end, |(offset, _)| *offset);
        Err(Broken { offset, message: message.into() })
    }

    /// Reads the next term, with the comma before it unless it is the first.
    fn term(&mut self, first: bool) -> Result<Option<Term>, Broken> {
        if self.peek().is_none() {
            return Ok(None);
        }
        if !first && !self.take_if(",") {
            return self.broken("expected `,` between requirements");
        }
        if self.take_if("!") {
            return Ok(Some(Term::Absent(self.key()?)));
        }
        let key = self.key()?;
        let Some(operator) = self.peek().filter(|token| *token != ",").map(str::to_owned) else {
            return Ok(Some(Term::Exists(key)));
        };
        let term = match operator.as_str() {
            "=" | "==" => Term::In(key, BTreeSet::from([self.operand()?])),
            "!=" => Term::NotIn(key, BTreeSet::from([self.operand()?])),
            "in" => Term::In(key, self.operands()?),
            "notin" => Term::NotIn(key, self.operands()?),
            ">" => Term::Greater(key, self.number()?),
            "<" => Term::Less(key, self.number()?),
            _ => {
                return self.broken("expected `=`, `!=`, `in`, `notin`, `>`, `<` or `,` after a key");
            }
        };
        Ok(Some(term))
    }

    fn key(&mut self) -> Result<String, Broken> {
        match self.peek().filter(|token| is_word(token)).map(is_key) {
            Some(true) => Ok(self.take().unwrap_or_default()),
            Some(false) => self.broken("expected the key of a label: `name`, or `example.com/name`"),
            None => self.broken("expected the key of a label"),
        }
    }

    /// Reads the value after the sign of a comparison; it may be empty.
    fn operand(&mut self) -> Result<String, Broken> {
        self.take();
        if self.peek().is_none_or(|token| token == ",") { Ok(String::new()) } else { self.value() }
    }

    fn value(&mut self) -> Result<String, Broken> {
        match self.peek().map(|token| is_word(token) && is_tag(token)) {
            Some(true) => Ok(self.take().unwrap_or_default()),
            Some(false) => self.broken("expected a value: at most 63 letters, digits, `-`, `_` and `.`"),
            None => self.broken("expected a value"),
        }
    }

    fn number(&mut self) -> Result<i64, Broken> {
        self.take();
        match self.peek().and_then(|token| token.parse().ok()) {
            Some(number) => {
                self.take();
                Ok(number)
            }
            None => self.broken("expected a whole number"),
        }
    }

    /// Reads `(a, b)` after `in` or `notin`; a value may be empty.
    fn operands(&mut self) -> Result<BTreeSet<String>, Broken> {
        self.take();
        if !self.take_if("(") {
            return self.broken("expected `(` before the values");
        }
        let mut values = BTreeSet::new();
        loop {
            let empty = self.peek().is_some_and(|token| token == "," || token == ")");
            values.insert(if empty { String::new() } else { self.value()? });
            if self.take_if(")") {
                return Ok(values);
            }
            if !self.take_if(",") {
                return self.broken("expected `,` or `)` after a value");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let label = |key: &str| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        Selector::parse(selector).unwrap().matches(label)
    }

    #[test]
    fn labels_meet_a_selector_as_in_kubectl() {
        let web = [("app", "web"), ("size", "5"), ("a.b/c", "")];
        for (selector, expected) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("! low-level", true),
            ("app=web", true),
            ("app == web , size=5", true),
            ("app=", false),
            ("a.b/c=", true),
            ("app!=web", false),
            ("tier!=web", true),
            ("app in (db,web)", true),
            ("app in (db)", false),
            ("a.b/c in ()", true),
            ("app notin (db),tier notin (db)", true),
            ("tier in (,db)", false),
            ("size>4,size<6", true),
            ("size>5", false),
            ("app>1", false),
            ("in in (a)", false),
        ] {
            assert_eq!(matches(selector, &web), expected, "{selector}");
        }
    }

    #[test]
    fn a_broken_selector_says_where() {
        for (selector, offset, message) in [
            ("app=web,", 8, "expected the key of a label"),
            (",app", 0, "expected the key of a label"),
            ("app web", 4, "expected `=`, `!=`, `in`, `notin`, `>`, `<` or `,` after a key"),
            ("app in web", 7, "expected `(` before the values"),
            ("app in (web", 11, "expected `,` or `)` after a value"),
            ("app in (", 8, "expected a value"),
            ("app=web db", 8, "expected `,` between requirements"),
            ("app=a/b", 4, "expected a value: at most 63 letters, digits, `-`, `_` and `.`"),
            ("-app=a", 0, "expected the key of a label: `name`, or `example.com/name`"),
            ("!", 1, "expected the key of a label"),
            ("!a=b", 2, "expected `,` between requirements"),
            ("size>big", 5, "expected a whole number"),
            ("app===b", 5, "expected a value: at most 63 letters, digits, `-`, `_` and `.`"),
        ] {
            assert_eq!(Selector::parse(selector), Err(Broken { offset, message: message.into() }), "{selector}");
        }
    }

    #[test]
    fn selectors_exclude_each_other_where_one_label_would_have_to_be_two_things() {
        for (one, other, expected) in [
            ("a=b", "a=c", true),
            ("a=b", "a in (c, d)", true),
            ("a in (b, c)", "a in (c, d)", false),
            ("a=b", "a!=b", true),
            ("a in (b, c)", "a notin (b)", false),
            ("a", "!a", true),
            ("a=b", "!a", true),
            ("x=y,a=b", "a=c,z", true),
            ("a>5", "a<6", true),
            ("a>5", "a<7", false),
            ("a", "b", false),
            ("a=b", "b=c", false),
            ("a!=b", "a!=c", false),
            ("", "a", false),
        ] {
            let [one, other] = [one, other].map(|text| Selector::parse(text).unwrap());
            assert_eq!([one.excludes(&other), other.excludes(&one)], [expected; 2], "{one:?} {other:?}");
        }
    }

    #[test]
    fn the_terms_of_one_label_are_one_requirement_however_many_there_are() {
        // LC-3: two selectors are compared by keys, not by pairs of terms.
        let many = |term: &str| Selector::parse(&[term; 1000].join(",")).unwrap();
        for term in ["a", "!a", "a=b", "a!=b", "a>1", "a<1", "a in (b)"] {
            assert_eq!(many(term), Selector::parse(term).unwrap(), "{term}");
        }
        let fields = |text: &str| Selector::of_fields(text);
        assert_eq!(fields(&["a=b"; 1000].join(",")), fields("a==b"));
        assert!(fields("a=b,c!=d").excludes(&fields("c=d")) && !fields("a=b").excludes(&fields("a!=c,b=a")));
        for (selector, labels, expected) in [
            ("a>1,a>3", "4", true),
            ("a>1,a>3", "2", false),
            ("a in (1,2),a!=1", "2", true),
            ("a in (1,2),a!=1", "1", false),
        ] {
            let met = Selector::parse(selector).unwrap().matches(|key| (key == "a").then_some(labels));
            assert_eq!(met, expected, "{selector} {labels}");
        }
    }
}
