//! Decides which Kubernetes Events are taken from a component: what is too long is cut, what the API server would refuse is refused.

use std::collections::BTreeMap;

use capstan_core::guest::Event;
use capstan_core::object::labels::{is_key, is_tag};

/// The longest message and key.
const MESSAGE: usize = 1024;

/// The longest reason, action and component.
const WORD: usize = 128;

/// As the API server has it: the bytes of all annotations together. Labels are bounded alike.
const TAGS: usize = 256 << 10;

/// Returns an event that the API server takes.
pub(super) fn bounded(event: Event) -> Result<Event, String> {
    tags("a label", "labels", &event.labels, is_key)?;
    if let Some((name, value)) = event.labels.iter().find(|(_, value)| !is_tag(value)) {
        let value = cut(value.clone(), WORD);
        return Err(format!("{value:?} can't be the value of label {name}"));
    }
    // As the API server does: only labels tell upper from lower case.
    tags("an annotation", "annotations", &event.annotations, |text| is_key(&text.to_lowercase()))?;
    let Event { warning, reason, message, key, action, component, labels, annotations } = event;
    Ok(Event {
        warning,
        reason: cut(reason, WORD),
        message: cut(message, MESSAGE),
        key: key.map(|key| cut(key, MESSAGE)),
        action: action.map(|action| cut(action, WORD)),
        component: component.map(|component| cut(component, WORD)),
        labels,
        annotations,
    })
}

/// Returns the bytes that an event takes.
pub(super) fn size(event: &Event) -> usize {
    let tags = [&event.labels, &event.annotations].map(bytes).iter().sum::<usize>();
    let texts = [&event.key, &event.action, &event.component];
    let texts = texts.into_iter().flatten().map(String::len).sum::<usize>();
    event.reason.len() + event.message.len() + texts + tags
}

fn bytes(tags: &BTreeMap<String, String>) -> usize {
    tags.iter().map(|(name, value)| name.len() + value.len()).sum()
}

fn tags(one: &str, all: &str, tags: &BTreeMap<String, String>, right: impl Fn(&str) -> bool) -> Result<(), String> {
    let bytes = bytes(tags);
    if bytes > TAGS {
        return Err(format!("its {all} take {bytes} bytes; {TAGS} are allowed"));
    }
    match tags.keys().find(|name| !right(name)) {
        Some(name) => Err(format!("{:?} can't be the name of {one}", cut(name.clone(), WORD))),
        None => Ok(()),
    }
}

fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event {
            warning: false,
            reason: "r".repeat(200),
            message: "ä".repeat(1000),
            key: None,
            action: Some("a".repeat(200)),
            component: Some("c".repeat(200)),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }

    fn map(name: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let event = bounded(event()).unwrap();
        let lengths = [&event.reason, &event.message].map(String::len);
        assert_eq!(lengths, [128, 1024]);
        assert_eq!(size(&event), 128 + 1024 + 128 + 128);
    }

    #[test]
    fn labels_and_annotations_that_the_api_server_would_refuse_are_refused() {
        let long = "x".repeat(TAGS);
        for (labels, annotations, wanted) in [
            (map("app", "a"), map("Example.com/Any", "any thing"), Ok(())),
            (map("a b", "a"), map("a", ""), Err("\"a b\" can't be the name of a label")),
            (map("a", "a b"), map("a", ""), Err("\"a b\" can't be the value of label a")),
            (map("a", ""), map("a/b/c", ""), Err("\"a/b/c\" can't be the name of an annotation")),
            (map("a", ""), map("a", &long), Err("its annotations take 262145 bytes; 262144 are allowed")),
        ] {
            let found = bounded(Event { labels, annotations, ..event() });
            assert_eq!(found.map(drop), wanted.map_err(str::to_owned));
        }
    }
}
