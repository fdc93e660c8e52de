//! What a {{kind}} needs and is told, as values.

use super::*;

fn primary(greeting: &str) -> {{kind}} {
    let primary = json!({ "metadata": { "name": "hello" }, "spec": { "greeting": greeting, "name": "Ada" } });
    serde_json::from_value(primary).unwrap()
}

#[test]
fn the_config_map_has_the_greeting() {
    let wanted = {{kind}}Operator::configmap(&primary("Hello, {name}!")).unwrap();
    assert_eq!((&wanted["metadata"]["name"], &wanted["data"]), (&json!("hello"), &json!({ "text": "Hello, Ada!" })));
}

#[test]
fn the_status_says_the_same() {
    let update = Update::status(json!({ "text": "Hello, Ada!" }));
    assert_eq!({{kind}}Operator::reconcile(&primary("Hello, {name}!")), Ok(update));
}

#[test]
fn a_greeting_without_a_name_is_wrong() {
    let found = |greeting| {{kind}}Operator::validate(&primary(greeting)).unwrap();
    assert_eq!(found("Hello!"), [Problem::at("spec.greeting", "{name} is missing")]);
    assert_eq!(found("Hello, {name}!"), []);
}
